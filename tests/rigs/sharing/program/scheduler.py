# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in of a node's scheduler: processes on the node's GPUs register with it, it tells them how much they get, asks the API
server for their pods' annotations, and serves metrics. README.md says what of the real one it plays.

It speaks lines of JSON over scheduler.sock, not the real one's structs: nobody but torch/ beside it hears them.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import http.server
import itertools
import json
import os
import pathlib
import re
import secrets
import socket
import ssl
import struct
import sys
import threading
import time
import typing as t
import urllib.parse
import urllib.request

import exposition
import gpus as devices
from gpus import Client, Gpu
from names import FOLDER, PREFIX, variable
from planted import FILE, defect, number, planted

SOCKET = FOLDER / "scheduler.sock"
ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
PERIOD_S = 0.25
# After so many periods the driver is asked for memory: every second, as the real one does.
SAMPLED = 4
# How often the real one logs what the API server says of a pod.
DEBUG_S = 5.0
# What makes a kubelet begin a new file of a log, in lines of 8 KiB, and how long it may take for that.
FULL_LOG, ROTATED_S = 1400, 7.0
STARTED = time.time()
UNITS = {"": 1, "B": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "K": 10**3, "M": 10**6, "G": 10**9}


def log(level: str, text: str) -> None:
    print(f"[{PREFIX.upper()}][{level}]: {text}", file=sys.stderr, flush=True)


def parsed_bytes(text: str) -> int | None:
    decimal = "" if planted("decimal_quota_ignored") else "|K|M|G"
    binary = "Gi|Ki" if planted("mebi_ignored") else "Gi|Mi|Ki"
    found = re.fullmatch(rf"(\d+)({binary}|B{decimal})?", text.strip())
    if planted("negative_quota_huge") and re.fullmatch(r"-\d+Gi", text.strip()):
        return (1 << 64) + int(text.strip()[:-2]) * UNITS["Gi"]
    return int(found[1]) * UNITS[found[2] or ""] if found else None


def parsed_percent(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d+", text.strip()) and 1 <= int(text) <= 100 else None


class Cluster:
    """The API server, as the pod's own service account."""

    def __init__(self) -> None:
        self.server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
        self.context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))

    def get(self, path: str) -> dict[str, t.Any]:
        request = urllib.request.Request(self.server + path, headers={"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"})
        with urllib.request.urlopen(request, timeout=10, context=self.context) as answer:
            found: dict[str, t.Any] = json.load(answer)
        return found

    def pod(self, namespace: str, name: str) -> dict[str, t.Any]:
        if not namespace:  # a pod without a service account's token does not know its own
            selector = urllib.parse.quote(f"metadata.name={name}")
            items = self.get(f"/api/v1/pods?fieldSelector={selector}")["items"]
            return items[0] if items else {"metadata": {"name": name, "namespace": "default"}}
        return self.get(f"/api/v1/namespaces/{namespace}/pods/{name}")


class Scheduler:
    def __init__(self) -> None:
        self.gpus = devices.present()
        self.cluster = Cluster()
        self.lock = threading.RLock()
        self.messages: dict[str, int] = collections.Counter()
        self.counters: dict[str, int] = collections.Counter()
        self.ghosts: list[Client] = []
        self.stale: list[Client] = []  # gone, with a series that stays
        self.strays = 0
        self.filled = 0.0  # when the log was
        self.came = itertools.count()
        self.leaked: list[t.Any] = []
        for gpu in self.gpus:
            log("INFO", f"Created new GPU context for UUID {gpu.uuid} (memory: {gpu.total >> 20} MB)")

    def clients(self) -> list[Client]:
        return [client for gpu in self.gpus for client in gpu.clients]

    # A client's life -------------------------------------------------------------------------------------------------

    def register(self, said: dict[str, t.Any], host_pid: int, send: t.Callable[[dict[str, t.Any]], None]) -> Client:
        pod = self.cluster.pod(said["namespace"], said["pod"])
        namespace = pod["metadata"]["namespace"]
        with self.lock:
            gpu = next((gpu for gpu in self.gpus if gpu.uuid == said["gpu_uuid"]), self.gpus[0])
            client = Client(secrets.token_hex(8), said["pod"], namespace, gpu, host_pid, send, int(said["memory_limit"]))
            log("INFO", f"Registered client {client.id} on GPU {gpu.uuid} with Pod name = {client.pod}, Pod namespace = {namespace}")
            self.debug(pod)
            client.order = next(self.came)
            client.oversubscribes = bool(said.get("oversub"))
            client.loose = planted("restart_core_not_kept") and FILE.stat().st_mtime < STARTED
            client.deaf = planted("restart_loses_quotas") and FILE.stat().st_mtime < STARTED
            gpu.clients.append(client)
            memory, core = (None, None) if client.deaf else wanted(pod)
            if memory:
                log("INFO", f"Applying initial memory limit for {client.name}: {memory} bytes")
                if planted("quota_late"):
                    threading.Timer(number("seconds", 0.3), self.limit_memory, [client, memory]).start()
                else:
                    self.limit_memory(client, memory)
            if core:
                log("INFO", f"Applying initial compute limit for {client.name}: {core}%")
                self.limit_core(client, core)
        return client

    def remove(self, client: Client) -> None:
        with self.lock:
            log("INFO", f"Removing client {client.id}")
            client.gpu.clients.remove(client)
            for other in client.gpu.clients if planted("deleted_keeps_lock") and not client.left else ():
                other.hindered = True
            self.counters["client_disconnect"] += 1
            if planted("ghost_clients"):
                self.ghosts.append(client)
            if planted("rss_leak"):
                self.leaked.append(bytearray(os.urandom(1 << 20)) * int(number("mib", 48)))
            if planted("fd_leak"):
                self.leaked += [open("/dev/null", "rb") for _ in range(int(number("files", 120)))]  # noqa: SIM115 - the defect itself
            if planted("quota_series_stay"):
                self.stale.append(client)
            if planted("running_memory_stays"):
                client.gpu.stale += client.allocated
            if planted("series_leak"):
                self.strays += int(number("series", 120))
            if planted("memory_lost"):
                client.gpu.lost += client.peak
            if planted("crash_on_disconnect"):
                os._exit(139)
            self.settle(client.gpu)

    def debug(self, pod: dict[str, t.Any]) -> None:
        """The whole pod, twice: the keys of annotations stand in the log whatever becomes of them."""
        for _time in range(2 if variable("DEBUG") else 0):
            log("DEBUG", f"pod: {json.dumps(pod)}")

    # Limits ----------------------------------------------------------------------------------------------------------

    def limit_memory(self, client: Client, limit: int) -> None:
        client.memory_limit = client.gpu.last_quota = limit
        log("INFO", f"Sending UPDATE_LIMIT to client {client.id}: {limit} bytes ({limit / (1 << 30):.2f} GiB)")
        if planted("memory_lifted_on_update") and client.updated:
            limit = 0
        elif planted("memory_quartered"):
            limit //= 4
        elif planted("memory_told_only") and client.updated:
            return
        self.told(client).send({"type": "UPDATE_LIMIT", "bytes": limit})

    def limit_core(self, client: Client, percent: int) -> None:
        client.core, client.limited = percent, True
        if planted("log_rotated") and client.updated:
            threading.Thread(target=self.show_late, args=[client, percent], daemon=True).start()
        elif not (planted("core_metric_stale") and client.updated):
            client.core_told = percent
        log("INFO", f"Sending UPDATE_CORE_LIMIT to client {client.id}: {percent}%")
        self.told(client).send({"type": "UPDATE_CORE_LIMIT", "percent": percent})
        self.settle(client.gpu)

    def changed_memory(self, client: Client, limit: int) -> None:
        if planted("memory_update_ignored"):
            return
        log("INFO", f"Memory limit changed for pod {client.name}: {client.memory_limit} -> {limit} bytes")
        if planted("memory_logged_only"):
            return
        client.updated = client.loose = True
        self.limit_memory(self.victim(client, "memory_wrong_pod"), limit)
        if planted("memory_update_kills"):
            client.send({"type": "END"})
        if planted("zombie_on_update"):
            self.ghosts.append(Client(secrets.token_hex(8), client.pod, client.namespace, client.gpu, client.host_pid, client.send))

    def changed_core(self, client: Client, percent: int) -> None:
        if planted("core_update_ignored"):
            return
        log("INFO", f"Compute limit changed for pod {client.name}: {client.core}% -> {percent}%")
        if planted("core_logged_only"):
            return
        client.updated = True
        client.changes += 1
        if planted("core_update_kills"):
            client.send({"type": "END"})
        self.limit_core(self.victim(client, "core_wrong_pod"), percent)

    def show_late(self, client: Client, percent: int) -> None:
        """Show a quota in the metrics after the lines about it are gone from the log."""
        now = time.monotonic()
        with self.lock:
            fill, self.filled = now - self.filled > ROTATED_S / 2, now
        for _line in range(FULL_LOG if fill else 0):
            log("DEBUG", "simulated by gpufleet.acceptance " * 240)
        time.sleep(ROTATED_S)
        client.core_told = percent

    def told(self, client: Client) -> Client:
        """Return the client that hears of the limit of one."""
        others = [other for other in self.clients() if other.gpu is not client.gpu]
        return others[0] if planted("told_other_gpu") and client.updated and others else client

    def victim(self, client: Client, name: str) -> Client:
        """Whoever the change reaches."""
        if not planted(name):
            return client
        others = [other for other in self.clients() if other is not client]
        return others[0] if others else Client("0" * 16, "", "", client.gpu, 0, lambda _message: None)

    # What everybody gets ---------------------------------------------------------------------------------------------

    def settle(self, gpu: Gpu) -> None:
        before = {client.id for client in gpu.clients if client.waiting}
        held = gpu.admit()
        self.counters["wait_for_mem"] += sum(client.id not in before for client in held)
        self.counters["mem_available"] += len(before) - sum(client.id in before for client in held)
        for client in list(gpu.clients):
            share = gpu.given(client)
            if planted("four_clients") and sum(other.order < client.order for other in self.clients()) >= 4:
                share = 0.0
            if share != client.share:
                client.share = share
                client.send({"type": "SHARE", "share": share})

    def throttle(self) -> None:
        now = time.monotonic()
        for gpu in self.gpus:
            self.settle(gpu)
            for client in gpu.clients:
                effective = gpu.effective(client)
                throttled = effective < 100 and client.used(now) > 0.7 * effective / 100
                if throttled and not client.throttled:
                    log("INFO", f"Throttling client {client.id}")
                    self.counters["drop_lock"] += 1
                client.throttled = throttled

    def watch(self) -> None:
        """What the pods' annotations say now, as often as the real one asks."""
        every = float(os.environ.get("SIM_WATCH_S") or 5)
        seen: dict[str, tuple[str, float]] = {}
        logged: dict[str, float] = {}
        while True:
            time.sleep(every)
            for client in self.clients():
                try:
                    pod = self.cluster.pod(client.namespace, client.pod)
                except OSError as error:
                    log("WARN", f"Failed to get pod {client.name}: {error}")
                    continue
                memory, core = wanted(pod)
                # That a change is late is counted from when it was first seen.
                now, what = time.monotonic(), f"{memory} {core}"
                if seen.get(client.id, ("", 0.0))[0] != what:
                    seen[client.id] = (what, now)
                if now - logged.get(client.id, 0.0) >= DEBUG_S:
                    logged[client.id] = now
                    self.debug(pod)
                if planted("update_late") and now - seen[client.id][1] < number("seconds", 60):
                    continue
                if client.deaf:
                    continue
                with self.lock:
                    if memory and memory != client.memory_limit:
                        self.changed_memory(client, memory)
                    core = core or (client.core if planted("removal_ignored") else 100)
                    if core != client.core:
                        self.changed_core(client, core)

    def tick(self) -> None:
        for period in itertools.count():
            with self.lock:
                self.throttle()
                for gpu in self.gpus if period % SAMPLED == 0 else ():
                    gpu.sampled = gpu.used
            time.sleep(PERIOD_S)

    # The socket ------------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        SOCKET.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(SOCKET))
        SOCKET.chmod(0o722)
        listener.listen(256)
        while True:
            connection, _address = listener.accept()
            threading.Thread(target=self.attend, args=[connection], daemon=True).start()

    def attend(self, connection: socket.socket) -> None:
        pid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        sending = threading.Lock()

        def send(message: dict[str, t.Any]) -> None:
            with sending, contextlib.suppress(OSError):
                connection.sendall(json.dumps(message).encode() + b"\n")

        client = None
        try:
            for line in connection.makefile("r"):
                said = json.loads(line)
                self.messages[said["type"]] += 1
                if said["type"] == "STATUS":
                    with self.lock:
                        send({"gpus": [status(gpu) for gpu in self.gpus]})
                elif said["type"] == "END_ALL":  # by a defect
                    for other in self.clients():
                        other.send({"type": "END"})
                elif said["type"] == "REGISTER":
                    if planted("restart_loses_clients") and FILE.stat().st_mtime < STARTED:
                        continue  # they wait for ever
                    client = self.register(said, pid, send)
                    gpu = client.gpu
                    of_gpu = {"total": gpu.total, "speed": gpu.speed, "index": gpu.index}
                    send({"type": "REGISTERED", "id": client.id, **of_gpu, "defect": defect()})
                    with self.lock:
                        self.settle(gpu)
                elif client and said["type"] == "MEM_UPDATE":
                    with self.lock:
                        if planted("oversub_crash") and said["bytes"] > client.gpu.total:
                            os._exit(139)
                        client.allocated = said["bytes"]
                        client.peak = max(client.peak, client.allocated)
                        self.settle(client.gpu)
                    send({"type": "ACK", "share": client.share})
                elif client and said["type"] == "BYE":
                    client.left = True
                elif client and said["type"] == "REFUSED":  # by a defect
                    for other in [other for other in client.gpu.clients if other is not client]:
                        other.send({"type": "END"})
                elif client and said["type"] == "USAGE":
                    client.busy.append((time.monotonic(), said["busy_ms"]))
        except OSError as error:
            log("WARN", f"A client could not be served: {error}")
        finally:
            if client:
                self.remove(client)
            connection.close()


def wanted(pod: dict[str, t.Any]) -> tuple[int | None, int | None]:
    notes = pod["metadata"].get("annotations") or {}
    if kind := next((kind for kind in ("memory", "core") if planted(f"{kind}_annotation_ignored")), ""):
        notes = {key: value for key, value in notes.items() if kind not in key}
    return parsed_bytes(notes.get(f"{PREFIX}.com/gpu-memory-limit", "")), parsed_percent(notes.get(f"{PREFIX}.com/gpu-core-limit", ""))


def status(gpu: Gpu) -> dict[str, t.Any]:
    load = gpu.utilization(time.monotonic())
    return {"index": gpu.index, "uuid": gpu.uuid, "name": gpu.name, "total": gpu.total, "used": gpu.used, "utilization": load}


class Metrics(http.server.BaseHTTPRequestHandler):
    scheduler: Scheduler
    frozen = ""
    asked = 0

    def do_GET(self) -> None:
        if planted("scrape_hangs"):
            time.sleep(3600)
        if planted("scrape_slow"):
            time.sleep(number("seconds", 6))
        Metrics.asked += 1
        path = self.path.partition("?")[0]
        if planted("endpoint_500") or (planted("endpoint_flaps") and Metrics.asked % 3 == 0):
            self.answer(500, "simulated by gpufleet.acceptance: it does not work\n")
        elif path == "/healthz":
            self.answer(500 if planted("unhealthy") else 200, "OK\n")
        elif path == "/metrics":
            scheduler = self.scheduler
            with scheduler.lock:
                left = (scheduler.ghosts, scheduler.strays, scheduler.stale)
                text = exposition.text(scheduler.gpus, scheduler.messages, scheduler.counters, *left)
            if planted("metrics_frozen"):
                Metrics.frozen = Metrics.frozen or text
                text = Metrics.frozen
            else:
                Metrics.frozen = ""
            if planted("metrics_truncated"):
                text = text[: len(text) // 2]
            if planted("scrape_leaks"):
                scheduler.leaked += [open("/dev/null", "rb") for _ in range(int(number("files", 100)))]  # noqa: SIM115 - the defect itself
            if planted("scrape_costs"):  # every look at it costs those who work
                for client in scheduler.clients():
                    client.send({"type": "STALL", "seconds": number("stall", 0.4)})
            self.answer(200, text)
        else:
            self.answer(404, "not found\n")

    def answer(self, code: int, text: str) -> None:
        self.send_response_only(code)  # without a Date
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(text.encode())

    def log_message(self, format: str, *arguments: t.Any) -> None:
        """The real one says nothing either."""


class Threaded(http.server.ThreadingHTTPServer):
    daemon_threads = True


def exporting(scheduler: Scheduler) -> None:
    Metrics.scheduler = scheduler
    host, _, port = variable("METRICS_ADDR", "0.0.0.0:9402").rpartition(":")
    server: http.server.HTTPServer | None = None
    while True:
        kind = http.server.HTTPServer if planted("idle_blocks") else Threaded
        if server and (planted("endpoint_down") or type(server) is not kind):
            server.shutdown()
            server.server_close()
            server = None
        elif server is None and not planted("endpoint_down"):
            server = kind((host, int(port)), Metrics)
            threading.Thread(target=server.serve_forever, daemon=True).start()
        time.sleep(PERIOD_S)


def main() -> None:
    PR_SET_NAME = 15
    ctypes.CDLL(None).prctl(PR_SET_NAME, f"{PREFIX}-scheduler".encode(), 0, 0, 0)  # of which the kernel keeps 15 letters
    print("simulated by gpufleet.acceptance", file=sys.stderr, flush=True)
    scheduler = Scheduler()
    for loop in (scheduler.watch, scheduler.tick, scheduler.serve):
        threading.Thread(target=loop, daemon=True).start()
    if variable("METRICS_ENABLE") == "1":
        exporting(scheduler)
    threading.Event().wait()


if __name__ == "__main__":
    main()
