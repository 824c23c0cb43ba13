# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arrays of disks: md by /proc/mdstat (drivers/md/md.c, md_seq_show) and sysfs, and pools of ZFS.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.check_report import CheckReport
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree

MDSTAT, ZFS = "/proc/mdstat", "/proc/spl/kstat/zfs"
# Work that an array does on its disks, with its share in the line of /proc/mdstat.
_REBUILDS = re.compile(r"\b(recovery|resync|reshape)\s*=\s*(\d+(?:\.\d+)?%|DELAYED|PENDING|REMOTE)")


# States of an array (drivers/md/md.c, array_states).
_STATES = (
    "clear", "inactive", "suspended", "readonly", "read-auto", "clean", "active", "write-pending", "active-idle", "broken",
)  # fmt: skip


class Array(t.NamedTuple):
    """An array of disks: `problems` are words for what is wrong with it, `work` for what it does, "" if nothing."""

    name: str
    problems: tuple[str, ...]
    work: str


def inspect(tree: Tree, report: CheckReport) -> None:
    """Look at the arrays of a machine."""
    text = tree.text(MDSTAT)
    arrays = {array.name: array for array in mdstat(text or "")}
    for name in (name for name in tree.names("/sys/block") if re.match(r"md(\d|_)", name)):
        known = arrays.get(name)
        problems = [] if known and known.problems else _by_sysfs(tree, name)
        arrays[name] = known._replace(problems=(*known.problems, *problems)) if known else Array(name, tuple(problems), "")
    unread = [name for name, array in arrays.items() if not array.problems and _is_unread(tree, name, text)]
    if unread:
        report.silent("arrays", f"arrays of disks: {', '.join(unread[:4])} does not say its state, by {MDSTAT} or in /sys/block")
    for array in arrays.values():
        if array.problems:
            report.found("disk", f"the array {array.name} {', '.join(array.problems)}{f' ({array.work})' if array.work else ''}")
    if arrays:
        report.saw(f"state of {len(arrays)} arrays of disks")
    if text is None and tree.exists(MDSTAT):
        report.silent("arrays", f"arrays of disks: {MDSTAT} is there and cannot be read")
    _pools(tree, report)


def mdstat(text: str) -> list[Array]:
    """Return the arrays in the text of /proc/mdstat."""
    arrays: list[Array] = []
    for block in re.split(r"(?m)^(?=\S)", text):
        head = re.match(r"(md\w+|md_\S+)\s*:\s*(.*)", block)
        if head:
            arrays.append(_array(head.group(1), head.group(2), block))
    return arrays


def _array(name: str, state: str, block: str) -> Array:
    problems = []
    # The container of firmware RAID (IMSM, DDF) is never active: the volumes in it are.
    is_container = bool(re.search(r"\bsuper external:(?![/-])", block))
    if not state.startswith("active") and not is_container:
        problems.append(f"is {state.split(maxsplit=1)[0]}" if state.split() else "has no state")
    if re.search(r"\bactive\b.*\b(?:broken|FAILED)\b", state):
        problems.append("is broken")
    failed = re.findall(r"(\S+?)\[\d+\](?:\([A-Z]\))*\(F\)", state)
    if failed:
        problems.append(f"has failed disks: {', '.join(failed)}")
    counts = re.search(r"\[(\d+)/(\d+)\]", block)
    missing = int(counts.group(1)) - int(counts.group(2)) if counts else 0
    places = re.search(r"\[([U_]+)\]", block)
    missing = max(missing, places.group(1).count("_") if places else 0)
    if missing > 0:
        problems.append(f"is degraded: {missing} of its disks are missing")
    work = _REBUILDS.search(block)
    return Array(name, tuple(problems), f"{work.group(1)} {work.group(2)}" if work else "")


def _is_unread(tree: Tree, name: str, text: str | None) -> bool:
    """Return True for an array whose state or whose number of missing disks neither of the two witnesses tells. Arrays without redundancy
    count no missing disks."""
    of = f"/sys/block/{name}/md"
    is_listed = any(array.name == name for array in mdstat(text or ""))
    return not is_listed and (tree.text(f"{of}/array_state") not in _STATES or tree.is_unread(f"{of}/degraded"))


def _by_sysfs(tree: Tree, name: str) -> list[str]:
    of = f"/sys/block/{name}/md"
    problems = []
    state = tree.text(f"{of}/array_state") or ""
    # `inactive` is also the state of the container of firmware RAID, and `clear` that of a device without an array.
    if state == "broken" or (state == "inactive" and not (tree.text(f"{of}/metadata_version") or "").startswith("external:")):
        problems.append(f"is {state}")
    degraded = tree.number(f"{of}/degraded")
    if degraded:
        problems.append(f"is degraded: {degraded} of its disks are missing")
    return problems


def _pools(tree: Tree, report: CheckReport) -> None:
    pools = {name: state for name in tree.names(ZFS) if (state := tree.text(f"{ZFS}/{name}/state")) is not None}
    for name, state in pools.items():
        if state.upper() != "ONLINE":
            report.found("disk", f"the ZFS pool {name} is {state.lower() or 'without a state'}")
    silent = [name for name in tree.names(ZFS) if name not in pools and tree.exists(f"{ZFS}/{name}/io")]
    if silent:  # before OpenZFS 0.8 no pool told its state here
        report.missed("arrays", f"states of ZFS pools: {', '.join(silent[:4])} tells none in {ZFS}")
    if pools:
        report.saw(f"state of {len(pools)} ZFS pools")
