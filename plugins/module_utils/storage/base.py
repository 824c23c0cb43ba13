# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file system that is tested: how it is looked at, how much may be written there, and how a check says that it failed.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import errno
import os
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import findings, observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params, PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import mounts
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage import touching
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage.checks import READ, WRITE
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage.touching import BLOCK, GIB, Look
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import apart, container
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

# With less than LEAST_BYTES nothing can be measured. No node writes more than SHARED_BYTES to a file system that others test, too.
LEAST_BYTES, SHARED_BYTES = 16 << 20, 256 << 20
# No more than this share of what is free is taken: others write, too.
OF_FREE = 0.5
# What a file system answers that is not there, that has lost its server, and that has shut itself down.
_MISSING = (errno.ENOENT, errno.ENOTDIR)
_STALE = (errno.ESTALE, errno.ENOTCONN)
_SHUT_DOWN = (errno.EIO, errno.ESHUTDOWN, errno.EUCLEAN, errno.ENXIO, errno.ENODEV)


class FileSystemTest:
    """One entry of acceptance_storage on this node, and the checks that are wanted of it."""

    def __init__(self, params: Params, node: Node, entry: PlainData, wanted: t.Sequence[str]) -> None:
        self.params = params
        self.node = node
        self.entry = entry
        self.wanted = wanted
        # A pod has the file system where its user mounts it; elsewhere the host's may lie below another root.
        self.path = entry["path"] if container.is_inside() else node.path(entry["path"])
        self.size_of_job = 0
        # What the name of the folder ends with, empty for random words.
        self.folder_token = ""
        # Chooses the data that fio writes. By itself fio writes the same data in each run: old blocks would pass for those that were
        # written, and storage that keeps equal blocks once would have nothing to write.
        self.seed = new_seed()
        self.left = ""
        # Why the data stays in the memory of the machine, and why rates say nothing of the file system, if it does and they do not.
        self.in_memory = ""
        self.unlike = "" if params["direct"] else "storage_direct is false: they are those of the page cache"
        stated = {name: entry.get(f"gibps_{name}") for name in (READ, WRITE)}
        self.context: PlainData = {
            "storage": entry["name"], "machine": node.product(), "shared": bool(entry.get("shared")), "path": entry["path"],
            "direct": bool(params["direct"]), "stated": {name: value for name, value in stated.items() if value},
        }  # fmt: skip

    def look(self) -> Look:
        """Look at the file system. One that does not answer is a finding."""
        seconds, name = self.params["answer_timeout"], f"{self.entry['name']} ({self.entry['path']})"
        try:
            seen = apart.call(lambda: touching.seen(self.path), seconds)
        except apart.NoAnswer:
            words = f"{name} does not answer within {seconds:g} s: its server, its network or its disk hangs"
            return Look(mount=self._mount(self.path), problem=("", "no_answer", words))
        except OSError as error:
            code = "mount_missing" if error.errno in _MISSING else "mount_stale" if error.errno in _STALE else "no_permission"
            code = "file_system" if error.errno in _SHUT_DOWN else code
            return Look(mount=self._mount(self.path), problem=("", code, f"{name}: {error.strerror}"))
        look = Look(seen["path"], self._mount(seen["path"], seen.get("mount_id")), *seen["numbers"])
        return look._replace(problem=self._problem(name, look))

    def _mount(self, path: str, mount_id: int | None = None) -> mounts.Mounted | None:
        try:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as source:
                return mounts.mount_of(source.read(), path, mount_id)
        except OSError:
            return None

    def _problem(self, name: str, look: Look) -> findings.Finding | None:
        if look.mount is None:
            return "", "unsupported", f"{name}: /proc/self/mountinfo does not list the file system that it is on, so its kind is not known"
        kind = look.mount.kind
        is_alone = self.entry.get("shared") and not mounts.is_of_network(kind)
        if is_alone and kind not in mounts.OF_MACHINE:
            unknown = f"on {kind} at {look.mount.place}, of which it is not known whether several machines have it"
            return "", "unsupported", f"{name} should be shared and is {unknown}"
        if is_alone:
            alone = f"on {kind} at {look.mount.place}, a file system of this machine alone"
            return "", "mount_missing", f"{name} should be shared and is {alone}: it is not mounted"
        if self.entry.get("mounted") and look.mount.place != look.path:
            folder = f"a folder on {kind} at {look.mount.place}"
            return "", "mount_missing", f"{name} should be a mount of its own and is {folder}: nothing is mounted there"
        if look.mount.is_read_only:
            return "", "mount_read_only", f"{name} is mounted read-only ({kind} at {look.mount.place})"
        if look.size and look.free < LEAST_BYTES:
            return "", "mount_full", f"{name} is full: {look.free / GIB:.3f} of {look.size / GIB:.1f} GiB are free"
        if look.inodes and not look.free_inodes:
            return "", "mount_full", f"{name} is full: none of its {look.inodes} inodes is free"
        return None

    def limit(self, look: Look) -> int:
        """Return how many bytes may be written. Raise ReasonedError if that is too little for a test."""
        if not look.size:
            raise ReasonedError("unsupported", f"{self.entry['path']}: it does not say how large it is, so nothing was written")
        share = self.params["share"] / 100.0
        nodes = max(1, self.params["nodes"]) if self.entry.get("shared") else 1
        among = f", among {nodes} nodes" if nodes > 1 else ""
        least = max(LEAST_BYTES, self.params["jobs"] * BLOCK)
        limits = {
            f"storage_gib ({self.params['gib']:g} GiB)": self.params["gib"] * GIB,
            f"storage_share ({self.params['share']:g} % of {look.size / GIB:.1f} GiB{among})": share * look.size / nodes,
            f"half of the {look.free / GIB:.2f} GiB that are free{among}": OF_FREE * look.free / nodes,
        }
        why = min(limits, key=lambda name: limits[name])
        if limits[why] < least:
            words = f"at least {least >> 20} MiB are needed for {self.params['jobs']} jobs, and {why} is less"
            raise ReasonedError("disk_full", f"{self.entry['path']}: {words}")
        return int(min(limits[why], SHARED_BYTES) if self.entry.get("shared") else limits[why])

    @property
    def variant(self) -> str:
        return observation.variant(storage=self.entry["name"])

    def broken(self, check: str, code: str, words: str, **fields: t.Any) -> Observation:
        """Return a check that failed while the file system worked. A fault of the file system itself is a finding of the check."""
        found = [{"code": code, "part": "", "text": words}] if code in ("file_system", "mount_stale") else []
        return self.failed(check, code, words, findings=found, **fields)

    def failed(self, check: str, code: str, words: str, findings: t.Sequence[PlainData] = (), **fields: t.Any) -> Observation:
        context = {**self.context, **({"findings": list(findings)} if findings else {})}
        outcome = "timeout" if code == "timeout" else "missing" if code == "tool_missing" else "error"
        return observation.failed(check, code, words, outcome, variant=self.variant, context=context, **fields)


def new_seed() -> int:
    return int.from_bytes(os.urandom(7), "big")
