# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Healthy and faulty nodes of a Kubernetes rig that exist in the API only: what our pods on them print, and how they end."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import threading
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import client, marks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.watch import ADDED, FAILED, Watch

GPUS = 8
# Pods with this annotation are not ended by kwok, but here.
HELD = {"rig.gpufleet.invalid/runs": "1h"}
SLOWEST_S = 120.0
LOG_FAULTS = ("cut", "mixed", "foreign", "forged", "empty")
SILENT = ("oom", "killed", "evicted", "refused")

# Runs on the rig's control machine, in the server that answers for the kubelets. The facts are as many as a real node's.
LOG = f"""{payload.unpacking()}
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame, observation

def observations(node):
    uuids = ["GPU-%s-%d" % (node, number) for number in range({GPUS})]
    parts = ["gpu/" + uuid for uuid in uuids]
    about = {{"machine_id": "machine-of-" + node, "gpu": "NVIDIA H200", "gpus": {GPUS}, "gpu_uuids": uuids}}
    facts = {{"driver": "570.124", "kernel": "6.8.0"}}
    facts.update(("fact_%d" % number, "the same everywhere") for number in range(250))
    yield observation.measured("facts", context=dict(about, facts=facts), simulated=True)
    yield observation.measured("gpu_health", context=about, members=parts, simulated=True)
    for part in parts:
        yield observation.measured("gpu_health", part=part, context={{"gpu_uuids": [part[4:]]}}, simulated=True)
    yield observation.measured("cuda", context=about, simulated=True)

def planted(pod):
    try:
        with open("/rig/faults.json") as source:
            return json.load(source).get(pod["spec"]["nodeName"], "")
    except FileNotFoundError:
        return ""

def probe(pod):
    every = pod["spec"]["containers"] + pod["spec"].get("initContainers", [])
    return next(one for one in every if one["name"] == "{marks.CONTAINER}")

def framed(pod, fault):
    environment = dict((v["name"], v.get("value")) for v in probe(pod)["env"])
    node, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
    seen = list(observations(node))
    if fault == "forged":
        for item in seen:
            item.update(subject={{"kind": "node", "id": "lab/kwok-0001", "members": []}})
    nonce = frame.nonce_of(environment["GPUFLEET_SECRET"], "another-pod" if fault == "foreign" else uid)
    said = {{"changed": False, "observations": seen, "state": "done", "end": "done", "fault": None, "undone": []}}
    return [line.decode() for line in frame.lines(said, nonce)]

def message(pod):
    ours = pod["metadata"].get("labels", {{}}).get("app.kubernetes.io/managed-by") == "{marks.MANAGER}"
    return "".join(framed(pod, "")) if ours and not planted(pod) else ""

def log(pod):
    fault = planted(pod)
    lines = framed(pod, fault)
    if fault == "cut":
        lines = lines[: len(lines) // 2]
    elif fault == "mixed":
        lines[1] = lines[1][:200] + " 17 of 20 done\\n" + lines[1][200:]
    elif fault in {("empty", *SILENT)!r}:
        lines = ["a tool says something\\n"]
    return "starting\\n" + "".join(lines)
"""


class Answers:
    """For as long as the `with` lasts, ends the pods that carry HELD as the kubelet of a node with its fault would report it.

    Faults: those of LOG_FAULTS and SILENT, `image`, `hang`, `slow` (until `go_on` is set).
    """

    def __init__(self, cluster: t.Any) -> None:
        self.cluster = cluster
        self.faults: dict[str, str] = {}
        self.go_on = threading.Event()
        self._api = client.connect(client.Connection("kwok", kubeconfig=str(cluster.kubeconfig)))
        self._watch = Watch(self._api, "/api/v1/pods", marks.OURS)
        self._ended: set[str] = set()

    def plant(self, faults: dict[str, str] | None = None) -> None:
        """Faults by node; without any all are healthy."""
        self.faults = dict(faults or {})
        self.go_on.clear()
        new = self.cluster.folder("control") / "faults.new"
        new.write_text(json.dumps(self.faults))
        new.rename(new.with_suffix(".json"))

    def __enter__(self) -> Answers:
        self.plant()
        self.cluster.answer_logs(LOG)
        self._watch.start()
        threading.Thread(target=self._follow, daemon=True).start()
        return self

    def __exit__(self, *_what: t.Any) -> None:
        self._watch.stop()

    def _follow(self) -> None:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            while True:
                kind, pod = self._watch.changes.get()
                if kind == FAILED:
                    return
                held = HELD.items() <= (pod["metadata"].get("annotations") or {}).items()
                if kind != ADDED or not held or not str(pod["spec"].get("nodeName", "")).startswith("kwok-"):
                    continue
                uid, running = pod["metadata"]["uid"], (pod.get("status") or {}).get("phase") == "Running"
                if running and uid not in self._ended and pod["spec"]["restartPolicy"] == "Never":
                    self._ended.add(uid)
                    pool.submit(self._end, pod)

    def _end(self, pod: dict[str, t.Any]) -> None:
        fault = self.faults.get(pod["spec"]["nodeName"], "")
        ended: dict[str, t.Any] = {"exitCode": 0, "reason": "Completed"}
        status: dict[str, t.Any] = {"phase": "Failed"}
        state: dict[str, t.Any] = {"terminated": ended}
        if fault == "hang":
            return
        if fault == "slow":
            self.go_on.wait(SLOWEST_S)
        if fault in ("oom", "killed"):
            ended.update(exitCode=137, reason="OOMKilled" if fault == "oom" else "Error")
        elif fault == "evicted":
            status.update(reason="Evicted", message="The node was low on resource: memory.")
        elif fault == "refused":
            status.update(reason="UnexpectedAdmissionError", message="Allocate failed due to requested number of devices unavailable")
            state = {"waiting": {"reason": "ContainerCreating"}}
        elif fault == "image":
            status = {"phase": "Pending"}
            state = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image: manifest unknown: not found"}}
        else:
            status = {"phase": "Succeeded"}
        container = pod["spec"]["containers"][0]
        status["containerStatuses"] = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": f"{container['image']}@sha256:{'0' * 64}",
                "ready": False,
                "restartCount": 0,
                "state": state,
            }
        ]
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
        with contextlib.suppress(client.KubeError):  # deleted in the meantime
            self._api.patch(path, {"status": status})
