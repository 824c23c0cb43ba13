# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The base class of modules for clusters: their options, with the variables of the host as defaults.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import queue
import threading
import time
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup, logs, marks, states
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError, Object, connect
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import PREFIX
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.plain import PlainError, plain

CONNECTION: Object = {
    **{name: {"type": "str"} for name in ("context", "server", "namespace", "proxy", "no_proxy")},
    **{name: {"type": "path"} for name in ("kubeconfig", "token_file", "ca_file")},
}
FOLLOWED = 16

# What to do about a pod that does not go on, by reason code.
ADVICE = {
    "unschedulable": "free the devices or name other nodes: kubectl describe node; see acceptance_kube_tolerations for taints",
    "image_pull": "see acceptance_kube_image, and acceptance_kube_image_pull_secrets for a registry that wants credentials",
    "no_python": "the image lacks the program: see acceptance_kube_python, or take an image made by files/tester-image",
    "container_failed": "see its log; kubectl describe pod has the events",
    "crash_loop": "see its log with previous=true",
    "oom_killed": "raise the memory in acceptance_kube_resources",
    "lost_node": "look at the node's kubelet: kubectl describe node, journalctl -u kubelet",
    "evicted": "its words say who took its place; by the kubelet: the node is short of memory, disk or processes (kubectl describe node)",
    "pod_refused": "the kubelet refuses it: kubectl describe pod, and the device plugin's log",
    "pod_deleted": "somebody deletes it; a resume measures again",
    "timeout": "kubectl describe pod has the events: volumes, secrets, network (CNI, DNS)",
}


class KubeAction(ActionBase):
    """The action of a module for a cluster. It runs on the controller only."""

    _requires_connection = False
    _supports_check_mode = True
    options: Object = {}

    def run(self, tmp: str | None = None, task_vars: Object | None = None) -> Object:
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        validated = ArgumentSpecValidator({**CONNECTION, **self.options}).validate(dict(self._task.args))
        if validated.error_messages:
            return {"failed": True, "msg": "; ".join(validated.error_messages)}
        args = validated.validated_parameters
        options = {PREFIX + name: value for name, value in args.items() if value is not None and name not in self.options}
        try:
            of_host = {k: plain(self._templar.template(v), k) for k, v in task_vars.items() if k.startswith(PREFIX)}
            variables = {**of_host, **options}
            name = str(task_vars.get("inventory_hostname") or "cluster")
            return {"changed": False, **self.act(connect(of_variables.connection(name, variables)), args, variables)}
        except KubeError as error:
            return {"failed": True, "msg": error.reason, "reason_code": error.reason_code}
        except PlainError as error:
            return {"failed": True, "msg": str(error)}

    def act(self, client: Client, args: Object, variables: Object) -> Object:
        raise NotImplementedError


def selector(run_id: str = "", stage: str = "") -> str:
    """Return the label selector for all our objects, or for those of one run or one stage."""
    parts = [marks.OURS, f"{marks.RUN}={run_id}" if run_id else "", f"{marks.STAGE}={stage}" if stage else ""]
    return ",".join(part for part in parts if part)


def pods(client: Client, label_selector: str, node: str = "") -> t.Iterator[Object]:
    """Yield our pods as {"pod", "node", "run_id", "stage", "phase", "container", "words", "advice"}."""
    for page in client.pages(cleanup.path("/api/v1", client.namespace, "pods"), labelSelector=label_selector):
        for item in page["items"]:
            on = str(item["spec"].get("nodeName") or "")
            if node in ("", on):
                state = states.state(item)
                labels = item["metadata"]["labels"]
                phase = str((item.get("status") or {}).get("phase") or "Pending")
                names = [c["name"] for kind in ("containers", "initContainers") for c in item["spec"].get(kind) or []]
                yield {
                    "pod": item["metadata"]["name"],
                    "node": on,
                    "run_id": labels.get(marks.RUN, ""),
                    "stage": labels.get(marks.STAGE, ""),
                    # The API says Pending while the probe of a pod runs as an init container.
                    "phase": "Running" if phase == "Pending" and state.phase == states.RUNNING else phase,
                    "container": marks.container(item) if marks.container(item) in names else names[0],
                    "words": state.words,
                    "advice": ADVICE.get(state.code, "") if state.words else "",
                }


def last_lines(client: Client, pod: Object, count: int, previous: bool = False) -> list[str]:
    """Return the last lines of a pod's log without frames, or a sentence if it cannot be read."""
    try:
        words = logs.words(client, _path(client, pod), pod["container"], tailLines=count + 50, previous=previous)
        return list(collections.deque(words, maxlen=count))
    except KubeError as error:
        return [f"no log: {error.reason}"]


def _path(client: Client, pod: Object) -> str:
    return f"{cleanup.path('/api/v1', client.namespace, 'pods')}/{pod['pod']}"


def follow(client: Client, chosen: list[Object], seconds: float, say: t.Callable[[str], None]) -> None:
    """Pass the lines of pods' logs to `say` as they come, for `seconds` or until all pods have ended."""
    messages: queue.Queue[str | None] = queue.Queue(1000)
    stop = threading.Event()

    def read(pod: Object) -> None:
        who = pod["node"] or pod["pod"]
        try:
            for line in logs.words(client, _path(client, pod), pod["container"], silence=seconds, follow=True, tailLines=10):
                if stop.is_set():
                    return
                messages.put(f"{who}: {line}")
        except KubeError as error:
            messages.put(f"{who}: no log: {error.reason}")
        finally:
            messages.put(None)

    for pod in chosen[:FOLLOWED]:
        threading.Thread(target=read, args=(pod,), daemon=True).start()
    running, end = min(len(chosen), FOLLOWED), time.monotonic() + seconds
    while running and time.monotonic() < end:
        try:
            line = messages.get(timeout=0.5)
        except queue.Empty:
            continue
        if line is None:
            running -= 1
        else:
            say(line)
    stop.set()
