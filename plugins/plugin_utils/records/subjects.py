# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Subjects in words: nodes are counted as nodes, pairs as pairs, groups as groups.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Subject

# A name that ends in a number, whatever follows the number.
_NUMBERED = re.compile(r"(.*?)(\d{1,15})(\D*)", re.DOTALL)
PLURAL = {"node": "nodes", "pair": "pairs", "switch": "switches", "nvlink_domain": "NVLink domains", "group": "groups"}
SINGULAR = {"nvlink_domain": "NVLink domain"}


def bearer(kind: str, subject: str) -> tuple[str, str]:
    """Return kind and id of what the verdict of a subject is shown at: the node of a part, or the subject itself."""
    name = node_of(subject)
    return (kind if kind in PLURAL and name == subject else "node"), name


def nodes_of(subject: Subject) -> set[str]:
    """Return the nodes that a subject consists of."""
    kind, name = bearer(subject.kind, subject.id)
    if kind == "node":
        return {name}
    return {node_of(member) for member in subject.members or (name.split("|") if kind == "pair" else ())}


def spoken(subject: str) -> str:
    """A subject's id as a technician says it: `rdma-02 mlx5_0 port 1`, `gpu-03 GPU-5e1f`, `a with b`."""
    if "|" in subject:
        return " with ".join(spoken(end) for end in subject.split("|"))
    node = node_of(subject)
    kind, _slash, part = subject[len(node) + 1 :].partition("/")
    if kind == "nic":
        device, _slash, port = part.rpartition("/")
        return f"{node} {device} port {port}" if device else f"{node} {part}"
    return f"{node} {part}" if part else node


def counted(kinds: t.Iterable[str]) -> str:
    """["node", "pair", "node"] -> `2 nodes and 1 pair`."""
    number = collections.Counter(kinds)
    words = [f"{number[kind]} {SINGULAR.get(kind, kind) if number[kind] == 1 else many}" for kind, many in PLURAL.items() if number[kind]]
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:]))) or "no subject"


def hosts(names: t.Sized) -> str:
    """["a"] -> `1 host`."""
    return f"{len(names)} host{'' if len(names) == 1 else 's'}"


def named(subjects: t.Iterable[tuple[str, str]], limit: int = 5) -> str:
    """Kinds and ids -> `2 nodes (a, b) and 1 group (grp)`."""
    names: dict[str, list[str]] = collections.defaultdict(list)
    for kind, name in sorted(set(subjects)):
        names[kind].append(name)
    words = [
        f"{counted([kind] * len(names[kind]))} ({', '.join(names[kind][:limit])}{' ...' if len(names[kind]) > limit else ''})"
        for kind in PLURAL
        if kind in names
    ]
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def folded(names: t.Iterable[str], limit: int = 16) -> str:
    """["gpu-01", "gpu-02", "gpu-04"] -> `gpu-[01-02,04]`, the form of Slurm, pdsh and ClusterShell. After `limit` ranges, and as many other
    names, the rest is counted."""
    series: dict[tuple[str, str, int], list[int]] = collections.defaultdict(list)
    for name in sorted(set(names)):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            series[name, "", -1].append(0)
            continue
        before, digits, behind = match.groups()
        series[before, behind, len(digits)].append(int(digits))
    _join_widths(series)
    words: list[str] = []
    hidden = shown = 0
    for (before, behind, width), numbers in sorted(series.items()):
        ranges = _ranges(sorted(numbers))
        shown_ranges = ranges[: max(0, limit - shown)]
        hidden += sum(last - first + 1 for first, last in ranges[len(shown_ranges) :])
        shown += len(shown_ranges)
        texts = [f"{first:0{width}}" + (f"-{last:0{width}}" if last > first else "") for first, last in shown_ranges if width >= 0]
        if width < 0 and shown_ranges:
            words.append(before)
        elif len(texts) == 1 and "-" not in texts[0]:
            words.append(f"{before}{texts[0]}{behind}")
        elif texts:
            words.append(f"{before}[{','.join(texts)}]{behind}")
    return ", ".join(words) + (f" and {hidden} more" if hidden else "")


def _join_widths(series: dict[tuple[str, str, int], list[int]]) -> None:
    """Count n8, n9 and n10, names without leading zeros, as one series; its numbers are written without zeros in front."""
    for before, behind, width in sorted(series):
        numbers = series[before, behind, width]
        if width >= 0 and all(len(str(number)) == width for number in numbers):
            del series[before, behind, width]
            series[before, behind, 0] += numbers


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges
