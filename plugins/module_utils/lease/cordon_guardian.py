# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guardian of a cordon, which uncordons the node if the controller does not. It runs in a pod of its own on another node, as a service
account that may read and patch nodes.

It starts before the cordon is set, and reports so in its log. It ends as soon as the node's mark is gone. At the deadline, and when it is
told to end, it removes mark and cordon if the mark is still that of its run. It needs only Python's standard library.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import ssl
import sys
import threading
import time
import typing as t

# As in module_utils/answer/plain_data.py, which does not travel with this file.
PlainData = t.Dict[str, t.Any]

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# What the controller waits for in the log, and what it takes for a no.
GUARDING, REFUSED = "guarding node", "cannot guard node"
ANSWER_S = 10.0
CONFLICT = 409


class ApiError(Exception):
    """An error of the API server, or no answer (status 0)."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class Api:
    """The API server as a pod reaches it."""

    def __init__(self) -> None:
        self.host, self.port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])

    def get(self, path: str) -> PlainData:
        return self._request("GET", path)

    def patch(self, path: str, body: PlainData) -> PlainData:
        return self._request("PATCH", path, body)

    def _request(self, method: str, path: str, body: PlainData | None = None) -> PlainData:
        try:
            # A token is replaced before its time is over.
            with open(ACCOUNT + "/token", encoding="utf-8") as file:
                token = file.read().strip()
            trusted = ssl.create_default_context(cafile=ACCOUNT + "/ca.crt")
            headers = {"Authorization": "Bearer " + token, "Content-Type": "application/merge-patch+json"}
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=ANSWER_S, context=trusted)
            with contextlib.closing(connection):
                connection.request(method, path, None if body is None else json.dumps(body), headers)
                answer = connection.getresponse()
                text = answer.read()
            if answer.status >= http.client.BAD_REQUEST:
                raise ApiError(answer.status, f"status {answer.status}: {text[:300].decode('utf-8', 'replace')}")
            parsed: PlainData = json.loads(text)
            return parsed
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ApiError(0, f"{type(error).__name__}: {error}") from None


class CordonGuardian:
    """The guardian of one cordoned node. `settings`: {"node", "run", "label" (with the run of a cordon), "annotations" (that go with it),
    "deadline_s", "every_s"}."""

    def __init__(self, settings: PlainData, api: t.Any, began: float, end: t.Any, clock: t.Callable[[], float] = time.time) -> None:
        self.settings, self.api, self.began, self.end, self.clock = settings, api, began, end, clock
        self.path = "/api/v1/nodes/" + settings["node"]

    def may(self) -> None:
        """Raise ApiError if this pod may not read and patch its node: it could not uncordon the node later."""
        self.api.get(self.path)
        self.api.patch(self.path + "?dryRun=All", {"metadata": {}})

    def guard(self) -> str:
        """Wait until the cordon is gone, the deadline has passed or the pod is told to end, and uncordon the node then. Return what was
        done."""
        was_ours = False
        while True:
            over = self.end.is_set() or self.clock() >= self.began + self.settings["deadline_s"]
            try:
                node = self.api.get(self.path)
                is_ours = (node["metadata"].get("labels") or {}).get(self.settings["label"]) == self.settings["run"]
                if is_ours and over:
                    self._give_back(node)
                    return f"gave node {self.settings['node']} back"
                if (was_ours and not is_ours) or over:
                    return f"node {self.settings['node']} was given back" if was_ours else "nothing was to be given back"
                was_ours = is_ours
            except ApiError as error:
                if error.status != CONFLICT:
                    _say(str(error))
            # Who is told to end has little time.
            if self.end.is_set():
                time.sleep(0.2)
            else:
                self.end.wait(self.settings["every_s"])

    def _give_back(self, node: PlainData) -> None:
        """Uncordon the node as it was read. The resource version makes the API server refuse the change if the node has changed since."""
        metadata = {
            "resourceVersion": node["metadata"]["resourceVersion"], "labels": {self.settings["label"]: None},
            "annotations": dict.fromkeys(self.settings["annotations"]),
        }  # fmt: skip
        self.api.patch(self.path, {"metadata": metadata, "spec": {"unschedulable": None}})


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def since(path: str) -> float:
    """Return when the container was first started. A restarted container reads that time from `path`, so that a restart does not prolong
    the deadline."""
    try:
        with open(path, encoding="utf-8") as file:
            return float(file.read())
    except (OSError, ValueError):
        started_at = time.time()
        with open(path, "w", encoding="utf-8") as file:
            file.write(str(started_at))
        return started_at


def main() -> int:
    settings = json.loads(os.environ["GPUFLEET_GUARDED"])
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_why: end.set())
    guardian = CordonGuardian(settings, Api(), since(settings["began"]), end)
    try:
        guardian.may()
    except ApiError as error:
        _say(f"{REFUSED} {settings['node']}: {error}")
        return 1
    _say(f"{GUARDING} {settings['node']}")
    _say(guardian.guard())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
