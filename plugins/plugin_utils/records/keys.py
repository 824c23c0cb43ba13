# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key of a measurement, and the ids of subjects.

    NODE or CLUSTER/NODE           a node
    NODE/gpu/UUID, NODE/nic/DEVICE/PORT   a part of it
    A|B                            a pair, both ends sorted
    STAGE[/CLUSTER][/NAME]         a group of nodes
    CLUSTERUUID.CLIQUEID           an NVLink domain

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import re
import typing as t

_PART = re.compile(r"/(?:gpu|nic)/")


class Key(t.NamedTuple):
    """The key of a check: stage, check, variant and subject. A plain tuple of the same four texts is equal to it."""

    stage: str
    check: str
    variant: str
    subject: str


def key_of(record: t.Mapping[str, t.Any]) -> Key:
    """The key of an item of the plan, of a measurement or of a verdict."""
    return Key(record["stage"], record["check"], record["variant"], record["subject"]["id"])


def node_of(subject: str) -> str:
    """The node that a GPU or a port belongs to; a node, a pair and a group are themselves."""
    return _node_of(subject) if "/" in subject else subject


@functools.lru_cache(maxsize=1 << 17)
def _node_of(subject: str) -> str:
    """Each part is asked for dozens of times."""
    parts = _PART.split(subject)
    return parts[0] if len(parts) == 2 else subject


def target_of(node: str) -> str:
    """The host or the cluster of the inventory by which a node is reached."""
    return node.partition("/")[0]


def kind_of(subject: str) -> str:
    """Return the kind of a subject that is a node or a part of one, by its id."""
    return "gpu" if "/gpu/" in subject else "nic" if "/nic/" in subject else "node"


def pair_of(a: str, b: str) -> str:
    """The id of a pair."""
    return "|".join(sorted((a, b)))


def ends_of(pair: str) -> tuple[str, str]:
    """The two ends of a pair's id."""
    first, _bar, second = pair.partition("|")
    return first, second
