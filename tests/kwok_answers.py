# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers for nodes that exist in the API only: ends our pods on kwok nodes and answers for their logs as a kubelet would.

    kwok_answers.py KUBECONFIG CERTIFICATE KEY PORT FAULTS

FAULTS is a JSON file {node: fault}, read for each pod. Faults: `cut`, `mixed`, `foreign` (a frame of another pod), `forged` (a
whole frame, with the pod's nonce, that claims another node), `empty`, `hang`, `oom`, `killed`, `evicted`, `refused`, `image`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.server
import json
import os
import pathlib
import ssl
import subprocess
import sys
import threading
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import frame, observation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube import client, objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube.watch import ADDED, FAILED, GONE, Watch

ROOT = pathlib.Path(__file__).resolve().parents[1]
GPUS = 8


def observations(node: str, checks: list[str]) -> list[dict[str, t.Any]]:
    """What `stack` sees on a healthy node; as large as a real one, which has some 250 facts."""
    uuids = [f"GPU-{node}-{number}" for number in range(GPUS)]
    parts = [f"gpu/{uuid}" for uuid in uuids]
    about = {"machine_id": f"machine-of-{node}", "gpu": "NVIDIA H200", "gpus": GPUS, "gpu_uuids": uuids}
    facts = {"driver": "570.124", "kernel": "6.8.0", **{f"fact_{number}": "the same everywhere" for number in range(250)}}
    seen = []
    for check in checks:
        context = {**about, "facts": facts} if check == "facts" else about
        members = parts if check == "gpu_health" else []
        seen.append(observation.measured(check, context=context, members=members, simulated=True))
        seen += [observation.measured(check, part=part, context={"gpu_uuids": [part[4:]]}, simulated=True) for part in members]
    return seen


class Containers:
    """The pods that the watch has shown, and what their logs hold."""

    def __init__(self, kubeconfig: str, faults: pathlib.Path) -> None:
        self.api = client.connect(client.Connection("kwok", kubeconfig=kubeconfig))
        self.faults = faults
        self.pods: dict[str, dict[str, t.Any]] = {}
        self.requests: dict[str, dict[str, t.Any]] = {}
        self._done: set[str] = set()

    def fault(self, node: str) -> str:
        try:
            return str(json.loads(self.faults.read_text()).get(node, ""))
        except (OSError, ValueError):
            return ""

    def follow(self) -> None:
        watch = Watch(self.api, "/api/v1/pods", objects.OURS)
        watch.start()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            while True:
                kind, pod = watch.changes.get()
                if kind == FAILED:
                    os._exit(1)
                key = f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}"
                if kind == GONE:
                    self.pods.pop(key, None)
                elif kind == ADDED and str(pod["spec"].get("nodeName", "")).startswith(("kwok-", "kw")):
                    self.pods[key] = {"metadata": pod["metadata"], "spec": pod["spec"]}
                    running = (pod.get("status") or {}).get("phase") == "Running"
                    if running and pod["metadata"]["uid"] not in self._done and pod["spec"]["restartPolicy"] == "Never":
                        self._done.add(pod["metadata"]["uid"])
                        pool.submit(self.end, pod)

    def end(self, pod: dict[str, t.Any]) -> None:
        """As the kubelet would report it."""
        fault = self.fault(pod["spec"]["nodeName"])
        ended: dict[str, t.Any] = {"exitCode": 0, "reason": "Completed"}
        status: dict[str, t.Any] = {"phase": "Failed"}
        state: dict[str, t.Any] = {"terminated": ended}
        if fault == "hang":
            return
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
        name = pod["spec"]["containers"][0]["name"]
        image = pod["spec"]["containers"][0]["image"]
        status["containerStatuses"] = [
            {"name": name, "image": image, "imageID": f"{image}@sha256:{'0' * 64}", "ready": False, "restartCount": 0, "state": state}
        ]
        with contextlib.suppress(client.KubeError):  # deleted in the meantime
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
            self.api.patch(path, {"status": status})

    def log(self, namespace: str, name: str) -> bytes | None:
        pod = self.pods.get(f"{namespace}/{name}")
        if pod is None:
            return None
        container = pod["spec"]["containers"][0]
        environment = {variable["name"]: variable.get("value") for variable in container["env"]}
        volume = next(v["configMap"]["name"] for v in pod["spec"]["volumes"] if v["name"] == "in")
        if volume not in self.requests:
            self.requests[volume] = self.api.get(f"/api/v1/namespaces/{namespace}/configmaps/{volume}")["data"]
        request = json.loads(self.requests[volume][container["command"][-1].rsplit("/", 1)[1]])
        node, checks = pod["spec"]["nodeName"], [check["check"] for check in request["params"]["checks"]]
        secret, uid = str(environment["GPUFLEET_SECRET"]), pod["metadata"]["uid"]
        fault = self.fault(node)
        seen = observations(node, checks)
        if fault == "forged":
            other = {"kind": "node", "id": "lab/kwok-0001", "members": []}
            seen = [{**item, "subject": other, "context": {"machine_id": "forged"}} for item in seen]
        if fault == "foreign":
            uid = "another-pod"
        said = {"changed": False, "observations": seen, "state": "done", "end": "done", "fault": None, "undone": []}
        lines = frame.lines(said, frame.nonce_of(secret, uid))
        if fault in ("empty", "oom", "killed", "evicted", "refused"):
            lines = [b"a tool says something\n"]
        elif fault == "cut":
            lines = lines[: len(lines) // 2]
        elif fault == "mixed":
            lines[1] = lines[1][:200] + b" 17 of 20 done\n" + lines[1][200:]
        return b"starting\n" + b"".join(lines)


def serve(containers: Containers, certificate: str, key: str, port: int) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            part = self.path.split("?")[0].strip("/").split("/")
            body = containers.log(part[1], part[2]) if len(part) == 4 and part[0] == "containerLogs" else None
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_words: t.Any) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 256
        daemon_threads = True

    server = Server(("127.0.0.1", port), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()


class Answers:
    """This program in the network of a rig's control machine, for as long as the `with` lasts."""

    def __init__(self, cluster: t.Any, folder: pathlib.Path) -> None:
        self.cluster = cluster
        self.faults_file = folder / "kwok-faults.json"
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / "kwok-answers.log"

    def plant(self, **faults: str) -> None:
        """Faults by node, with _ for -: kwok_0001="cut"; none heals all."""
        self.faults_file.write_text(json.dumps({node.replace("_", "-"): fault for node, fault in faults.items()}))

    def __enter__(self) -> Answers:
        self.plant()
        pki = self.cluster.pki
        argv = [
            "nsenter", "-t", str(self.cluster.init("control")), "-n", sys.executable, __file__, str(self.cluster.kubeconfig),
            str(pki / "apiserver.crt"), str(pki / "apiserver.key"), "10251", str(self.faults_file),
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(ROOT / ".collections")}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
        end = time.monotonic() + 20
        listening = f":{10251:04X} 00000000:0000 0A"
        while listening not in pathlib.Path(f"/proc/{self.cluster.init('control')}/net/tcp").read_text():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(self.log.read_text())
            time.sleep(0.05)
        return self

    def __exit__(self, *_what: t.Any) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


def main() -> None:
    kubeconfig, certificate, key, port, faults = sys.argv[1:]
    containers = Containers(kubeconfig, pathlib.Path(faults))
    threading.Thread(target=containers.follow, daemon=True).start()
    serve(containers, certificate, key, int(port))


if __name__ == "__main__":
    main()
