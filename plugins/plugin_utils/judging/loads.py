# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When each node was worked in a run: a look at a machine says nothing about a load that came after it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import datetime
import functools
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement

# Times are by the controller's clock, which is laid beside that of a node once in an attempt: by so much two of them may be apart.
CLOCK_S = 5.0


class LoadingStage(t.Protocol):
    """The part of a stage's description (stages/base.py) that says whether it works the nodes."""

    name: str
    loads: bool


class Load(t.NamedTuple):
    """A record of a check that worked a node, or may have. `at` is when it began."""

    at: float
    key: Key
    outcome: str


class Loads:
    """The loads of each node. A stage that is not among `stages`, as one of a team's own, is taken for one that works the nodes."""

    def __init__(self, records: t.Iterable[Measurement], stages: t.Iterable[LoadingStage]) -> None:
        self.looking = frozenset(stage.name for stage in stages if not stage.loads)
        self.of_node: dict[str, list[Load]] = collections.defaultdict(list)
        for record in records:
            if record.stage not in self.looking:
                for node in subjects.nodes_of(record.subject):
                    self.of_node[node].append(Load(began(record), record.key, record.outcome))

    def behind(self, look: Measurement) -> Key | None:
        """Return the last check that worked a node of a look after the look; None if there is none."""
        looked_until = began(look) + CLOCK_S
        loads = [load for load in self._of(look) if load.outcome != "not_applicable" and load.at > looked_until]
        return max(loads).key if loads else None

    def repeated(self, look: Measurement, later: Measurement, planned: t.Container[Key]) -> bool:
        """Return True if between two looks at a node all checks of the plan were measured anew that had worked it before the first look."""
        loads = self._of(look)
        anew = [load for load in loads if began(look) < load.at <= began(later) + CLOCK_S]
        done = {load.key for load in anew if load.outcome in ("measured", "not_applicable")}
        before = [load for load in loads if load.at <= began(look) and load.key in planned]
        ran = {load.key for load in before if load.outcome not in ("not_applicable", "missing")}
        return any(load.outcome == "measured" for load in anew) and ran <= done

    def _of(self, look: Measurement) -> list[Load]:
        return [load for node in sorted(subjects.nodes_of(look.subject)) for load in self.of_node.get(node, ())]


def began(record: Measurement) -> float:
    """Return when a record began, in seconds since 1970; 0 if it does not say so."""
    return _seconds(record.started_at)


@functools.lru_cache(maxsize=1 << 16)
def _seconds(time: str) -> float:
    """Return a time of the journal in seconds since 1970, 0 for what is none. Hundreds of records of a run begin in one second."""
    try:
        return datetime.datetime.strptime(time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.UTC).timestamp()
    except ValueError:
        return 0.0
