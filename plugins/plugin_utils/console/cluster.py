# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The actions of a cluster: custom resources, which its API keeps, checks and tells about.

What is shown and decided on is what a watch has told. It may be late, so whatever is said of an action names the version that it was
decided on, and is refused where that has become another.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import queue
import secrets
import threading
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry as accelerators
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions, request
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.actions import Action, Filters, NodeInfo, Page, Status
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.controller import StoredAction
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes import plane
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup, inventory
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Connection, KubeError, connect
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.watch import ADDED, FAILED, GONE, Watch
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.following import requested

Object = t.Dict[str, t.Any]
GROUP = "acceptance.gpufleet.dev"
VERSION = f"{GROUP}/v1alpha1"
KIND, PLURAL = "Syncaction", "syncactions"
# While it is there, the API does not let an action go: something of it may run.
FINALIZER = f"{GROUP}/run"
ASKED_BY, OF_SCHEDULE = f"{GROUP}/asked-by", f"{GROUP}/schedule"
# How long nodes, and the pods that hold their devices, are taken for what they were.
NODES_S = 15.0
MOST_LISTED = 500
# Of deleted actions for those who follow.
TOMBSTONES = 10_000
# Names of fields in the status, where they are others than in ours.
FIELDS = {
    "runID": "run_id", "queuePosition": "queue_position", "waitingFor": "waiting_for", "startTime": "started", "completionTime": "ended",
    "lastScheduleTime": "last_scheduled", "nextScheduleTime": "next_scheduled",
    **{name: name for name in ("phase", "conditions", "verdict", "command", "nodes", "counts", "progress", "message", "link")},
}  # fmt: skip


@contextlib.contextmanager
def _said() -> t.Iterator[None]:
    """Raise the error of the console for an error of the API that a block raises."""
    try:
        yield
    except KubeError as error:
        if error.status == 422:
            raise request.RequestError(_problems(error)) from error
        kinds = {404: actions.NotFound, 409: actions.Conflict, 403: actions.Denied}
        raise kinds.get(error.status, actions.Unavailable)(error.reason) from error


def _problems(error: KubeError) -> t.List[request.Problem]:
    causes = (error.details.get("details") or {}).get("causes") or []
    refusals = [(str(cause.get("field") or "spec").removeprefix("spec."), str(cause.get("message") or "")) for cause in causes]
    return [request.Problem(field, "a value that the API refuses", message[:300]) for field, message in refusals] or [
        request.Problem("spec", "what the API refuses", error.reason[:300])
    ]


class ClusterActions:
    """Keeps actions in the API of one cluster. `selector` chooses the nodes that may be measured, `leads` says whether we work."""

    def __init__(
        self, connection: Connection, namespaces: t.Sequence[str] = (), images: t.Sequence[str] = (), selector: str = inventory.SELECTOR,
        resource: str = accelerators.DEFAULT.resource, leads: t.Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        self.connection = connection
        with _said():
            self.client = connect(connection)
        self.namespaces = list(namespaces) or [self.client.namespace]
        self.images, self.selector, self.resource, self.leads = images, selector, resource, leads
        self._objects: t.Dict[str, Object] = {}
        # The same, read.
        self._actions: t.Dict[str, Action] = {}
        self._gone: t.Dict[str, t.Tuple[int, Action]] = {}
        self._first = self._newest = 0
        self._news = threading.Condition()
        self._round = queue.Queue[None](1)
        self._watching, self._starting = False, threading.Lock()
        self._failed = ""
        self._nodes: t.Tuple[float, t.Sequence[NodeInfo]] = (0.0, ())

    # What the watch has told ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when all actions are known. Unavailable where there is no answer, or no such resource."""
        with self._starting, _said():
            if self._watching:
                return
            for namespace in self.namespaces:
                watch = self._watch(namespace)
                watch.start()
                page = self.client.get(_path(namespace), limit=1)
                self._first = max(self._first, int(page["metadata"]["resourceVersion"]))
                self._drain(watch)
                threading.Thread(target=self._follow, args=(namespace, watch), name=f"actions-{namespace}", daemon=True).start()
            self._watching = True

    def _watch(self, namespace: str) -> Watch:
        return Watch(connect(self.connection), _path(namespace), "")

    def _drain(self, watch: Watch) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._heard(*watch.changes.get_nowait())

    def _follow(self, namespace: str, watch: Watch) -> None:
        while True:
            kind, item = watch.changes.get()
            if kind != FAILED:
                self._heard(kind, item)
                continue
            # The API was away for longer than a watch has patience.
            self._failed = str(item)
            time.sleep(1)
            watch = self._again(namespace)

    def _again(self, namespace: str) -> Watch:
        while True:
            with contextlib.suppress(KubeError):
                watch = self._watch(namespace)
                watch.start()
                listed, changes = self.client.get(_path(namespace)), []
                with contextlib.suppress(queue.Empty):
                    while True:
                        changes.append(watch.changes.get_nowait())
                for change in changes:
                    self._heard(*change)
                uids = {item["metadata"]["uid"] for item in listed["items"]}
                for item in [cached for cached in self._objects.values() if cached["metadata"]["namespace"] == namespace]:
                    if item["metadata"]["uid"] not in uids:
                        self._heard(GONE, item)
                self._failed = ""
                return watch
            time.sleep(1)

    def _heard(self, kind: str, item: Object) -> None:
        uid = item["metadata"]["uid"]
        with self._news:
            old = self._objects.get(uid)
            if "resourceVersion" in item["metadata"]:
                self._newest = max(self._newest, _number(item))
            # An answer to us may come behind the word of a watch that it is gone.
            if kind == ADDED and uid not in self._gone and (old is None or _number(item) > _number(old)):
                self._objects[uid], self._actions[uid] = item, _action(item)
            elif kind == GONE and old is not None:
                del self._objects[uid]
                self._gone[uid] = (self._newest, dataclasses.replace(self._actions.pop(uid), gone=True))
                if len(self._gone) > TOMBSTONES:
                    del self._gone[next(iter(self._gone))]
            else:
                return
            self._news.notify_all()
        with contextlib.suppress(queue.Full):
            self._round.put_nowait(None)

    def _all(self) -> t.List[t.Tuple[Object, Action]]:
        self.start()
        if self._failed:
            raise actions.Unavailable(self._failed)
        with self._news:
            return [(item, self._actions[uid]) for uid, item in self._objects.items()]

    def _one(self, name: str, namespace: str) -> Object:
        """As the API has it at this moment."""
        with _said():
            return self.client.get(_path(self._where(namespace), name))

    def _where(self, namespace: str) -> str:
        chosen = namespace or self.namespaces[0]
        if chosen not in self.namespaces:
            raise actions.Denied(f"namespace {ascii(chosen)[:80]}: expected one of {', '.join(self.namespaces)}")
        return chosen

    # For people: actions.Actions ----------------------------------------------------------------------------------------

    def create(self, name: str | None, spec: Object, who: str, namespace: str = "") -> Action:
        where = namespace or self.namespaces[0]
        checked = request.read(spec, self.limits(self.known()), where)
        if name is not None and not actions.NAME.match(name):
            expected = "up to 63 small letters, digits and dashes, none at its ends"
            raise request.RequestError([request.Problem("metadata.name", request.shown(name), expected)])
        body = _object(name or f"{checked.kind}-{secrets.token_hex(4)}", spec, {ASKED_BY: who})
        with _said():
            return self._kept(self.client.post(_path(where), body, fieldValidation="Strict"))

    def _kept(self, item: Object) -> Action:
        """Store an object that the API has returned, so that it is visible at once."""
        self._heard(ADDED, item)
        return _action(item)

    def get(self, name: str, namespace: str = "") -> Action:
        if not actions.NAME.match(name):
            raise actions.NotFound(f"action {ascii(name)[:80]} does not exist")
        return _action(self._one(name, namespace))

    def list(self, filters: Filters) -> Page:
        name, down = actions.ordered(filters.sort)

        def key(action: Action) -> t.Tuple[str, str]:
            return actions.SORTS[name](action), _place(action)

        keyed = [(key(action), action) for _item, action in self._all() if _matches(action, filters)]
        if filters.after:
            after = actions.marked(filters.after)
            keyed = [entry for entry in keyed if (entry[0] < after if down else entry[0] > after)]
        limit = max(1, min(filters.limit, MOST_LISTED))
        chosen = (heapq.nlargest if down else heapq.nsmallest)(limit, keyed, key=lambda entry: entry[0])
        return Page([action for _key, action in chosen], actions.mark(*chosen[-1][0]) if len(keyed) > limit else "")

    def set(self, name: str, *, suspend: bool | None = None, cancel: bool | None = None, namespace: str = "") -> Action:
        before = self.get(name, namespace)
        if cancel is False and before.spec.get("cancel"):
            raise actions.Conflict(f"action {name} is cancelled and stays so")
        spec = {key: value for key, value in (("suspend", suspend), ("cancel", cancel)) if value is not None}
        with _said():
            return self._kept(self.client.patch(_path(self._where(namespace), name), {"spec": spec}))

    def delete(self, name: str, namespace: str = "") -> None:
        self.get(name, namespace)
        with _said():
            self.client.delete(_path(self._where(namespace), name), propagationPolicy="Background")

    def changes(self, since: str = "") -> t.Iterator[t.Tuple[str, Action]]:
        self.start()
        version = int(since) if since.isascii() and since.isdigit() and len(since) < 19 else 0
        while True:
            with self._news:
                if since and version < self._first:  # what was deleted before we came nobody can tell
                    return
                news = [(_number(item), self._actions[uid]) for uid, item in self._objects.items() if _number(item) > version]
                news += [(number, action) for number, action in self._gone.values() if number > version and since]
                if not news:
                    self._news.wait(30)
                    continue
            since = since or "0"
            for number, action in sorted(news, key=lambda entry: entry[0]):
                version = max(version, number, self._first)
                yield str(version), action

    def nodes(self) -> t.Sequence[NodeInfo]:
        used: t.Dict[str, t.List[str]] = {}
        infos = self.known()
        labels = {node.name: node.labels for node in infos}
        for _item, action in self._all():
            if action.status.phase == actions.RUNNING:
                with contextlib.suppress(request.RequestError):
                    for name in request.read(action.spec, self.limits(infos), action.namespace).chosen(labels):
                        used.setdefault(name, []).append(action.name)
        return [dataclasses.replace(node, used_by=[*used.get(node.name, ()), *node.used_by]) for node in infos]

    # For the controller: controller.ActionStore --------------------------------------------------------------------------------

    def stored(self) -> t.Sequence[StoredAction]:
        every = ((action, item["metadata"]) for item, action in self._all())
        listed = [StoredAction(action, "deletionTimestamp" in meta, meta.get("generation") or 0) for action, meta in every]
        return sorted(listed, key=lambda stored: _place(stored.action))

    def _known_as(self, stored: StoredAction) -> Object:
        with self._news:
            item = self._objects.get(stored.action.uid)
        if item is None:
            raise actions.Conflict(f"action {stored.action.name} is no more")
        return item

    def _patch(self, item: Object, change: Object, part: str = "") -> Object:
        """Change what was decided on, and nothing else."""
        meta = item["metadata"]
        body = {**change, "metadata": {**change.get("metadata", {}), "resourceVersion": meta["resourceVersion"]}}
        with _said():
            changed = self.client.patch(_path(meta["namespace"], meta["name"]) + part, body)
        self._heard(ADDED, changed)
        return changed

    def say(self, stored: StoredAction, status: Status) -> None:
        item = self._known_as(stored)
        finalizers = item["metadata"].get("finalizers") or []
        ended = status.phase in actions.ENDED
        if status.run_id and not ended and FINALIZER not in finalizers and not stored.deleting:
            item = self._patch(item, {"metadata": {"finalizers": [*finalizers, FINALIZER]}})
        item = self._patch(item, {"status": {**_told(status), "observedGeneration": stored.generation}}, "/status")
        if ended:
            self._let_go(item)

    def _let_go(self, item: Object) -> None:
        finalizers = item["metadata"].get("finalizers") or []
        if FINALIZER in finalizers:
            with contextlib.suppress(actions.NotFound):
                self._patch(item, {"metadata": {"finalizers": [finalizer for finalizer in finalizers if finalizer != FINALIZER]}})

    def spawn(self, parent: StoredAction, name: str, spec: t.Mapping[str, t.Any]) -> None:
        owner = self._known_as(parent)["metadata"]
        body = _object(name, spec, {ASKED_BY: parent.action.who})
        body["metadata"]["labels"] = {OF_SCHEDULE: owner["name"]}
        body["metadata"]["ownerReferences"] = [
            {"apiVersion": VERSION, "kind": KIND, "name": owner["name"], "uid": owner["uid"], "controller": True}
        ]
        with contextlib.suppress(actions.Conflict), _said():
            self._heard(ADDED, self.client.post(_path(owner["namespace"]), body))

    def forget(self, stored: StoredAction) -> None:
        with _said():
            self.client.delete(_path(stored.action.namespace, stored.action.name), propagationPolicy="Background")

    def release(self, stored: StoredAction) -> None:
        self._let_go(self._known_as(stored))

    def known(self) -> t.Sequence[NodeInfo]:
        read_at, infos = self._nodes
        if not read_at or time.monotonic() > read_at + NODES_S:
            with _said():
                nodes = sorted(inventory.nodes(self.client, self.selector, self.resource), key=lambda node: node.name)
                holders = self._held()
            infos = [_node(node, holders) for node in nodes]
            self._nodes = (time.monotonic(), infos)
        return infos

    def _held(self) -> t.Dict[str, t.Dict[str, int]] | None:
        """{node: {pod: devices that it holds}}; None where we may not look (files/rbac/holders.yaml)."""
        holders: t.Dict[str, t.Dict[str, int]] = {}
        try:
            for page in self.client.pages("/api/v1/pods", fieldSelector="status.phase!=Succeeded,status.phase!=Failed"):
                for pod in page["items"]:
                    count, node = requested(pod, self.resource), (pod.get("spec") or {}).get("nodeName")
                    if count and node:
                        holders.setdefault(node, {})[f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"] = count
        except KubeError as error:
            if error.status == 403:
                return None
            raise
        return holders

    def limits(self, nodes: t.Sequence[NodeInfo]) -> request.Limits:
        return request.Limits(
            plane=plane.PLANE.name,
            nodes={node.name: node.labels for node in nodes},
            gpus=actions.known_gpus(nodes),
            images=self.images,
            namespaces=self.namespaces,
        )

    def swept(self, stored: StoredAction, run_id: str) -> bool:
        client = connect(self.connection._replace(namespace=stored.action.namespace))
        with _said():
            return not cleanup.remove(client, cleanup.of_run(run_id), wait_s=2.0)

    def wait(self, seconds: float) -> None:
        with contextlib.suppress(queue.Empty):
            self._round.get(timeout=seconds)

    def leading(self) -> bool:
        return self.leads()


def _path(namespace: str, name: str = "") -> str:
    return f"/apis/{VERSION}/namespaces/{namespace}/{PLURAL}" + (f"/{name}" if name else "")


def _number(item: Object) -> int:
    return int(item["metadata"]["resourceVersion"])


def _place(action: Action) -> str:
    return f"{action.created} {action.namespace}/{action.name}"


def _object(name: str, spec: t.Mapping[str, t.Any], annotations: t.Mapping[str, str]) -> Object:
    filled = {key: value for key, value in annotations.items() if value}
    return {"apiVersion": VERSION, "kind": KIND, "metadata": {"name": name, "annotations": filled}, "spec": dict(spec)}


def _action(item: Object) -> Action:
    meta, status = item["metadata"], item.get("status") or {}
    return Action(
        name=meta["name"], namespace=meta["namespace"], spec=item.get("spec") or {}, created=meta["creationTimestamp"], uid=meta["uid"],
        status=Status(**{attribute: status[name] for name, attribute in FIELDS.items() if status.get(name) is not None}),
        who=str((meta.get("annotations") or {}).get(ASKED_BY) or ""), schedule=str((meta.get("labels") or {}).get(OF_SCHEDULE) or ""),
    )  # fmt: skip


def _told(status: Status) -> Object:
    """A time that is not known is none, and not empty: the API would refuse it. What is not said any more goes."""
    values = {field_name: getattr(status, attribute) for field_name, attribute in FIELDS.items()}
    return {name: (None if value == "" and name.endswith("Time") else value) for name, value in values.items()}


def _matches(action: Action, filters: Filters) -> bool:
    status = action.status
    pairs = ((filters.namespace, action.namespace), (filters.phase, status.phase), (filters.verdict, status.verdict))
    if any(expected and expected != actual for expected, actual in pairs) or (filters.kind and filters.kind not in action.spec):
        return False
    text = filters.text.lower()
    return not text or any(text in field.lower() for field in (action.name, action.who, str(action.spec)))


def _node(node: inventory.ClusterNode, holders: t.Mapping[str, t.Mapping[str, int]] | None) -> NodeInfo:
    pods = (holders or {}).get(node.name, {})
    cordoned = any(taint.get("key") == inventory.UNSCHEDULABLE for taint in node.taints)
    return NodeInfo(
        name=node.name, gpus=node.devices, free=None if holders is None else max(0, node.devices - sum(pods.values())), labels=node.labels,
        used_by=sorted(pods), problem=node.not_ready or ("it is cordoned" if cordoned else ""),
    )  # fmt: skip
