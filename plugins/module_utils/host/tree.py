# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's view of a machine, /sys and /proc, wherever the file system of the host is mounted.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import container, hypervisor
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

BARE_METAL, VIRTUAL_MACHINE, CONTAINER = "physical machine", "virtual machine", "container"
# Bytes that are read of one file at most, and at once. A file of sysfs has a page; one of /proc comes in pieces of any length.
MOST, PIECE = 1 << 20, 16384
# Files that container engines put into each container.
_OF_CONTAINERS = ("/.dockerenv", "/run/.containerenv")


class Tree:
    """Reads files and folders of /sys and /proc. Each of the two is taken from the root of `node` if it is there, else from where we run:
    the kernel is the same."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._from_node: dict[str, bool] = {}

    def path(self, path: str) -> str:
        top = "/" + path.split("/")[1]
        if top not in ("/sys", "/proc"):
            return self.node.path(path)
        if top not in self._from_node:
            self._from_node[top] = os.path.isdir(self.node.path(top))
        return self.node.path(path) if self._from_node[top] else path

    def exists(self, path: str) -> bool:
        return os.path.exists(self.path(path))

    def text(self, path: str) -> str | None:
        """Return the text of a small file without surrounding blanks, None if it cannot be read."""
        data = self.data(path)
        return None if data is None else data.decode("utf-8", "replace").strip("\0 \t\r\n")

    def data(self, path: str) -> bytes | None:
        """Return the bytes of a small file, None if it cannot be read. A file of sysfs may refuse by an error of any kind."""
        found = b""
        try:
            # Without a buffer object for each of the thousands of files of 100 bytes that a look reads.
            file = os.open(self.path(path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                while len(found) < MOST and (piece := os.read(file, min(PIECE, MOST - len(found)))):
                    found += piece
            finally:
                os.close(file)
        except OSError:
            return None
        return found

    def number(self, path: str) -> int | None:
        """Return the whole number in a file, None if there is none."""
        text = self.text(path) or ""
        try:
            return int(text, 0)
        except ValueError:
            return int(text) if text.isdigit() else None

    def is_unread(self, path: str) -> bool:
        """Return True if a file is there and has no whole number from 0 on."""
        value = self.number(path)
        return self.exists(path) and (value is None or value < 0)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; none if there is no such folder."""
        try:
            return sorted(os.listdir(self.path(path)))
        except OSError:
            return []

    def place(self) -> str:
        """Return whether the probe runs on a BARE_METAL machine, in a VIRTUAL_MACHINE or in a CONTAINER: the last two do not see all of
        their machine."""
        if container.is_inside() or any(os.path.exists(self.node.path(path)) for path in _OF_CONTAINERS):
            return CONTAINER
        return VIRTUAL_MACHINE if self.is_virtual() else BARE_METAL

    def is_virtual(self) -> bool:
        """Return True if the machine is a virtual one, also as a container of it sees it."""
        vendor, product = (self.text(f"/sys/class/dmi/id/{name}") or "" for name in ("sys_vendor", "product_name"))
        return hypervisor.by_dmi(vendor, product) or hypervisor.by_cpuinfo(self.text("/proc/cpuinfo") or "")


def is_root() -> bool:
    """Return True if the probe may read what only root may."""
    return os.geteuid() == 0


def span(numbers: t.Iterable[int]) -> str:
    """Return whole numbers as the kernel lists them: `0-3,8`."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
