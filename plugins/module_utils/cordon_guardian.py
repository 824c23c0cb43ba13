# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gives a cordon back that nobody else gives back: in a pod of its own on another node, as a service account that may read and patch nodes.

It is there before the cordon, and says so in its log. As soon as the node's mark is gone it ends; at the deadline, and when it is told to
end, it takes mark and cordon away, where the mark is still that of its run. One text, with Python's own library and nothing else.

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

Record = t.Dict[str, t.Any]
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# What the controller waits for in the log, and what it takes for a no.
GUARDING, REFUSED = "guarding node", "cannot guard node"
ANSWER_S = 10.0
CONFLICT = 409


class Refused(Exception):
    """The API server says no, or nothing."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class Api:
    """The API server as a pod reaches it."""

    def __init__(self) -> None:
        self.host, self.port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])

    def get(self, path: str) -> Record:
        return self._asked("GET", path)

    def patch(self, path: str, body: Record) -> Record:
        return self._asked("PATCH", path, body)

    def _asked(self, method: str, path: str, body: Record | None = None) -> Record:
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
                raise Refused(answer.status, f"status {answer.status}: {text[:300].decode('utf-8', 'replace')}")
            found: Record = json.loads(text)
            return found
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Refused(0, f"{type(error).__name__}: {error}") from None


class Guardian:
    """`told`: {"node", "run", "label" (that has the run of a cordon), "annotations" (that go with it), "deadline_s", "every_s"}."""

    def __init__(self, told: Record, api: t.Any, began: float, end: t.Any, now: t.Callable[[], float] = time.time) -> None:
        self.told, self.api, self.began, self.end, self.now = told, api, began, end, now
        self.path = "/api/v1/nodes/" + told["node"]

    def may(self) -> None:
        """Refused where it could not give back, which is said before there is anything to give back."""
        self.api.get(self.path)
        self.api.patch(self.path + "?dryRun=All", {"metadata": {}})

    def guard(self) -> str:
        """Until there is nothing to guard any more; what became of it."""
        seen = False
        while True:
            over = self.end.is_set() or self.now() >= self.began + self.told["deadline_s"]
            try:
                node = self.api.get(self.path)
                mine = (node["metadata"].get("labels") or {}).get(self.told["label"]) == self.told["run"]
                if mine and over:
                    self._give_back(node)
                    return f"gave node {self.told['node']} back"
                if (seen and not mine) or over:
                    return f"node {self.told['node']} was given back" if seen else "nothing was to be given back"
                seen = mine
            except Refused as error:
                if error.status != CONFLICT:
                    _say(str(error))
            # Who is told to end has little time.
            if self.end.is_set():
                time.sleep(0.2)
            else:
                self.end.wait(self.told["every_s"])

    def _give_back(self, node: Record) -> None:
        """As it was read: somebody who has changed it since is not overwritten."""
        metadata = {
            "resourceVersion": node["metadata"]["resourceVersion"], "labels": {self.told["label"]: None},
            "annotations": dict.fromkeys(self.told["annotations"]),
        }  # fmt: skip
        self.api.patch(self.path, {"metadata": metadata, "spec": {"unschedulable": None}})


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def since(path: str) -> float:
    """When it was first started here: a container that is started again has no more time for that."""
    try:
        with open(path, encoding="utf-8") as file:
            return float(file.read())
    except (OSError, ValueError):
        now = time.time()
        with open(path, "w", encoding="utf-8") as file:
            file.write(str(now))
        return now


def main() -> int:
    told = json.loads(os.environ["GPUFLEET_GUARDED"])
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_why: end.set())
    guardian = Guardian(told, Api(), since(told["began"]), end)
    try:
        guardian.may()
    except Refused as error:
        _say(f"{REFUSED} {told['node']}: {error}")
        return 1
    _say(f"{GUARDING} {told['node']}")
    _say(guardian.guard())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
