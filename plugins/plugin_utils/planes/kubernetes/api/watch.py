# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One watch over the pods of a stage: a list, then changes from its resource version on, with bookmarks.

After a dropped connection or a restart of the API server the watch goes on from the last resource version. After `410 Gone` it lists
again, which also shows what has disappeared in between.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import queue
import threading
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError

# The API server ends a watch after WATCH_S and sends a bookmark each minute. A silence of SILENCE_S means a dead connection.
WATCH_S = 300
SILENCE_S = 90.0
# The most changes in the queue. Beyond it the stream is not read further, so that memory does not grow. A list is always queued in full,
# because start() waits for it before anything is taken.
BACKLOG = 2000

ADDED, GONE, FAILED = "ADDED", "GONE", "FAILED"
Change = t.Tuple[str, t.Any]


class Watch:
    """A thread that queues the changes of the objects at `path` with these labels.

    `changes` has (ADDED, object) for a new or changed object, (GONE, object or {"metadata": {"name", "uid"}}) for a removed one, and
    (FAILED, KubeError) as the last entry of a watch that cannot go on.
    """

    def __init__(self, client: Client, path: str, selector: str) -> None:
        self.client = client
        self.path = path
        self.selector = selector
        self.changes: queue.Queue[Change] = queue.Queue()
        self.ready = threading.Event()
        self.lists = 0
        self.watches = 0
        self._names: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Start the thread and return when the first list was read, so that later objects are seen. Raise KubeError if it cannot be
        read."""
        self._thread.start()
        self.ready.wait()
        if not self.lists:
            raise self.changes.get()[1]

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        try:
            self._follow()
        except KubeError as error:
            self.changes.put((FAILED, error))
        finally:
            self.ready.set()

    def _follow(self) -> None:
        version = ""
        while not self._stop.is_set():
            if not version:
                version = self._list()
                self.ready.set()
            try:
                for latest in self._watch(version):
                    version = latest
                    while self.changes.qsize() >= BACKLOG and not self._stop.wait(0.05):
                        pass
                    if self._stop.is_set():
                        return
            except KubeError as error:
                if error.status == 410:
                    version = ""
                elif error.reason_code in ("cluster_unreachable", "credentials"):
                    self.client.get(self.path, limit=1)  # has the client's patience, renews credentials, says what is wrong
                    self._stop.wait(0.2)
                else:
                    raise

    def _list(self) -> str:
        present: dict[str, str] = {}
        version = ""
        for page in self.client.pages(self.path, labelSelector=self.selector):
            version = page["metadata"]["resourceVersion"]
            for item in page["items"]:
                present[item["metadata"]["uid"]] = item["metadata"]["name"]
                self.changes.put((ADDED, item))
        for uid, name in self._names.items():
            if uid not in present:
                self.changes.put((GONE, {"metadata": {"name": name, "uid": uid}}))
        self._names = present
        self.lists += 1
        return version

    def _watch(self, version: str) -> t.Iterator[str]:
        """Queue the changes of one stream until it ends. Yield each resource version."""
        self.watches += 1
        for line in self.client.lines(
            self.path, SILENCE_S, watch=True, labelSelector=self.selector, resourceVersion=version,
            allowWatchBookmarks=True, timeoutSeconds=WATCH_S,
        ):  # fmt: skip
            try:
                change = json.loads(line)
            except ValueError:  # the last line of a server that was killed
                return
            try:
                kind, item = change["type"], change["object"]
            except (KeyError, TypeError):  # a proxy's page, for example
                words = f"watch: found {line[:80]!r}, expected a change"
                raise KubeError("cluster_unreachable", f"{self.client.name}: {words}") from None
            if kind == "ERROR":
                code = int(item.get("code") or 500)
                raise KubeError("cluster_unreachable", f"{self.client.name}: watch: {item.get('message')}", code, item)
            if kind == "DELETED":
                self._names.pop(item["metadata"]["uid"], None)
                self.changes.put((GONE, item))
            elif kind != "BOOKMARK":
                self._names[item["metadata"]["uid"]] = item["metadata"]["name"]
                self.changes.put((ADDED, item))
            yield item["metadata"]["resourceVersion"]
