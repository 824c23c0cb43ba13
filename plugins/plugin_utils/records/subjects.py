# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Subjects in words: nodes are counted as nodes, pairs as pairs, groups as groups.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Subject

PLURAL = {"node": "nodes", "pair": "pairs", "switch": "switches", "group": "groups"}


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
    words = [f"{number[kind]} {kind if number[kind] == 1 else many}" for kind, many in PLURAL.items() if number[kind]]
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
