# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the versions of installed programs and libraries from a node.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import glob
import os
import re

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node


def read(node: Node, path: str) -> str:
    """A file of the host; the kernel's own are the same wherever the host's file system is mounted."""
    text = node.read(path)
    if text is None and node.root != "/" and path.startswith(("/proc/", "/sys/")):
        try:
            with open(path, encoding="utf-8", errors="replace") as source:
                text = source.read(1 << 20).strip()
        except OSError:
            text = None
    return text or ""


def output(node: Node, *argv: str, env: dict[str, str] | None = None) -> str | None:
    """Return the output of a tool of the host; None if there is no such tool."""
    if not node.which(argv[0]):
        return None
    result = node.run(list(argv), timeout=15, env=env)
    if result.ok:
        return result.out.strip()
    why = f"no answer in {result.ended_after(15)}" if result.timed_out else " ".join((result.err or result.out).split())[:100]
    return f"unreadable: {why or f'status {result.rc}'}"


def version(text: str | None) -> str | None:
    """The version in what `TOOL --version` printed."""
    match = re.search(r"\d+\.\d+[\w.+~-]*", text or "")
    return text if text is None or text.startswith("unreadable") else match.group(0) if match else text[:80]


def libraries(node: Node, name: str, *extra_folders: str) -> list[str] | None:
    """Return the names of the files that match `name` in the host's folders of libraries and in those of `more`; None if there are none."""
    folders = ("/usr/lib", "/usr/lib64", "/usr/lib/*-linux-gnu", "/usr/local/lib", *extra_folders)
    names = {os.path.basename(p) for folder in folders for p in glob.glob(node.path(f"{folder}/{name}"))}
    return sorted(names) or None
