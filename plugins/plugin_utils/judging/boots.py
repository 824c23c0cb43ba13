# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restarts of a machine during a run, by the boots that its records saw.

A boot is known by the random id that a kernel gives itself when it starts, and by when it started. A machine that is suspended, restored
from a snapshot or whose clock is set keeps the id; a pod has the id of its node; a container that has an id of its own has the start of
its machine's kernel. A kernel started by kexec is a restart: what was measured before it was measured with another kernel.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import datetime
import itertools
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, is_number

# Two ids whose kernels started within so many seconds are one kernel: a machine needs longer to start anew.
SAME_S = 3.0
# By so much the clock of a node may be ahead of the controller's when a restart is held against the time at which it was announced.
CLOCK_S = 120.0


class Boot(t.NamedTuple):
    """One start of a node's kernel. `first` and `last` are the first and the last record under it, (started_at, key). `since` is when it
    started by the node's clock, None if no record says it."""

    first: tuple[str, Key]
    last: tuple[str, Key]
    since: float | None
    announced: bool

    @property
    def order(self) -> tuple[float, str]:
        return (self.since if self.since is not None else _seconds(self.first[0]), self.first[0])


class _Seen:
    """One boot id of a node as its records show it."""

    def __init__(self) -> None:
        self.first: tuple[str, Key] | None = None
        self.last: tuple[str, Key] | None = None
        self.since: set[float] = set()
        self.announced: set[str] = set()

    def add(self, record: Measurement, key: Key, who: t.Mapping[str, t.Any]) -> None:
        at = (record.started_at, key)
        self.first = at if self.first is None else min(self.first, at)
        self.last = at if self.last is None else max(self.last, at)
        if is_number(who.get("booted")):
            self.since.add(float(who["booted"]))
        if who.get("announced"):
            self.announced.add(str(who["announced"]))


class Boots:
    """The boots of the nodes of a run, the earliest first: `of_node` {node: boots}, of nodes with more than one."""

    def __init__(self, records: t.Mapping[Key, t.Sequence[Measurement]]) -> None:
        self._ids: dict[str, dict[str, _Seen]] = collections.defaultdict(lambda: collections.defaultdict(_Seen))
        by_api: dict[str, dict[str, _Seen]] = collections.defaultdict(lambda: collections.defaultdict(_Seen))
        joined: dict[str, list[list[str]]] = collections.defaultdict(list)
        for key, attempts in records.items():
            for record in attempts:
                for node, who in identities(record):
                    if who.get("boot_id"):
                        self._ids[node][str(who["boot_id"])].add(record, key, who)
                    if who.get("node_boot"):
                        by_api[node][str(who["node_boot"])].add(record, key, {**who, "booted": None})
                legs = record.context.get("boots")
                if isinstance(legs, list) and record.subject.kind == "node":
                    joined[record.subject.id].append([str(leg) for leg in legs])
        for node, seen in by_api.items():
            # The kernel of a pod in a virtual machine of its own is not its node's.
            if not self._ids[node].keys() & seen.keys():
                self._ids[node] = seen
        self._boot_of: dict[str, dict[str, Boot]] = {}
        for node, ids in self._ids.items():
            if len(ids) > 1:
                boots = _boots(ids, joined[node])
                if len(set(boots.values())) > 1:
                    self._boot_of[node] = boots
        self.of_node = {node: sorted(set(boots.values()), key=lambda boot: boot.order) for node, boots in self._boot_of.items()}

    def opinions(self) -> t.Iterator[tuple[Key, Opinion]]:
        """Yield a FAIL for each restart that nobody announced, at the first check behind it."""
        for node, boots in self.of_node.items():
            for before, boot in itertools.pairwise(boots):
                if not boot.announced:
                    key = boot.first[1]
                    between = f"between {_check(before.last[1])} ({before.last[0]}) and {_check(key)} ({boot.first[0]})"
                    words = f"{node} was started anew in this run{_when(boot)}, {between}, and nobody announced it: acceptance_rebooted"
                    yield key, Opinion("FAIL", words, "rebooted")

    def notes(self) -> list[str]:
        """Return a sentence of the run for each restart that was announced."""
        return [
            f"{node} was started anew in this run{_when(boot)}, as announced by acceptance_rebooted"
            for node, boots in sorted(self.of_node.items())
            for boot in boots[1:]
            if boot.announced
        ]

    def stale(self, deciding: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
        """Yield UNKNOWN for each check that was measured before the last restart of one of its nodes, if all restarts were announced."""
        last = {node: boots[-1] for node, boots in self.of_node.items() if all(boot.announced for boot in boots[1:])}
        for key, record in deciding.items() if last else ():
            for node in sorted(subjects.nodes_of(record.subject) & last.keys()):
                if self._is_before(node, record, last[node]):
                    reason = f"it was measured before {node} was started anew: resume the run, which measures it again"
                    yield key, Opinion("UNKNOWN", reason, "rebooted")
                    break

    def _is_before(self, node: str, record: Measurement, last: Boot) -> bool:
        """Return True if a record is of an earlier boot than the last one: by the id that it saw; without one, by its time."""
        who = dict(identities(record)).get(node, {})
        boots = self._boot_of[node]
        boot = boots.get(str(who.get("boot_id"))) or boots.get(str(who.get("node_boot")))
        return boot != last if boot else record.started_at < last.first[0]


def is_named(node: str, names: t.Container[str]) -> bool:
    """Return True if a node is among names of nodes or of their targets; "*" is all."""
    return node in names or node.partition("/")[0] in names or "*" in names


def identities(record: Measurement) -> t.Iterator[tuple[str, t.Mapping[str, t.Any]]]:
    """Yield the nodes whose identity a record has, and the identities."""
    found = record.context.get("identities")
    for node, who in found.items() if isinstance(found, dict) else ():
        if isinstance(who, dict):
            yield str(node), who


def _boots(ids: t.Mapping[str, _Seen], joined: t.Sequence[t.Sequence[str]]) -> dict[str, Boot]:
    """Return the boot of each id. Ids are one boot if their kernels started at the same time, or if a stage that lasts for days saw both
    and judged the restart itself (`boots` of its context)."""
    groups: list[set[str]] = [{name} for name in ids]

    def join(a: str, b: str) -> None:
        first, second = (next(group for group in groups if name in group) for name in (a, b))
        if first is not second:
            groups.remove(second)
            first |= second

    names = sorted(ids)
    for number, a in enumerate(names):
        for b in names[number + 1 :]:
            if any(abs(x - y) <= SAME_S for x in ids[a].since for y in ids[b].since):
                join(a, b)
    for legs in joined:
        for a, b in itertools.pairwise(legs):
            if a in ids and b in ids:
                join(a, b)
    boots = {}
    announcements: dict[Boot, set[str]] = {}
    for group in groups:
        seen = [ids[name] for name in sorted(group)]
        since = [value for each in seen for value in each.since]
        announced = any(_is_announced(each) for each in seen)
        firsts, lasts = [each.first for each in seen if each.first], [each.last for each in seen if each.last]
        boot = Boot(min(firsts), max(lasts), min(since, default=None), announced)
        announcements[boot] = {time for each in seen for time in each.announced}
        boots.update(dict.fromkeys(group, boot))
    # An announcement is of one restart: a later boot that has it too began while the resume that was told of it ran.
    used: set[str] = set()
    final = {}
    for boot in sorted(announcements, key=lambda boot: boot.order):
        final[boot] = boot._replace(announced=boot.announced and not announcements[boot] & used)
        used |= announcements[boot]
    return {name: final[boot] for name, boot in boots.items()}


def _is_announced(seen: _Seen) -> bool:
    """Return True if a restart was announced after it happened. A machine that restarts later in the same resume is not excused."""
    latest = max(map(_seconds, seen.announced), default=None)
    return latest is not None and (not seen.since or min(seen.since) <= latest + CLOCK_S)


def _when(boot: Boot) -> str:
    return f" at {_utc(boot.since)} by its clock" if boot.since is not None else ""


def _check(key: Key) -> str:
    return " ".join(filter(None, key[:2]))


def _seconds(time: str) -> float:
    """Return a time as measurements have it in seconds since 1970; 0 for any other text."""
    try:
        return datetime.datetime.strptime(time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.UTC).timestamp()
    except ValueError:
        return 0.0


def _utc(seconds: float) -> str:
    try:
        return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return f"second {seconds:g}"
