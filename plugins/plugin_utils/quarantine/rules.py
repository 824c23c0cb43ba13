# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides about each node of a fleet whether it is quarantined, resumed or left, and says why. Reads nothing and changes nothing.

A node is touched only while its reason is empty or ours. What a cap keeps from being done is said.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.node_control import NodeState
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine import reason
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine.convictions import PASS, Conviction, Judged

DRAIN, COMMENT, RESUME, UNCOMMENT, LEAVE = "drain", "comment", "resume", "uncomment", "leave"
HOUR_S = 3600
# Why a node is left against which one run and nothing but rates speaks.
UNCONFIRMED = "only rates are too low, and no second run says so: measure again by -e retest=true, or name a run with -e second_run=..."
# How much later than our reason a node may be taken out of service for it: clocks differ, and a control plane takes its time.
LATER_S = 600


class Caps(t.NamedTuple):
    """Limits of the number of nodes that we take out of service: percent of a domain and of each partition at a time, percent of a domain
    in an hour, and nodes of one rack or NVLink domain at a time. A percentage allows one node at least."""

    percent: float = 10.0
    percent_per_hour: float = 5.0
    per_rack: int = 1


class Step(t.NamedTuple):
    """A decision about a node, and a sentence that says why. `text` is written to the node, `of` is the run whose mark is removed.
    `beyond`: a cap alone keeps it from being drained. `grounds` are the findings that it is drained for; `undoes`: it takes
    back a drain that should not have been; `is_unconfirmed`: it is left only because no second run convicts it."""

    node: str
    do: str
    why: str
    text: str = ""
    of: str = ""
    beyond: bool = False
    grounds: tuple[str, ...] = ()
    undoes: bool = False
    is_unconfirmed: bool = False


@dataclasses.dataclass
class Fleet:
    """The nodes as they are now: {node: state}, {node: domain within which caps count}, {node: rack}, and the time, seconds since 1970;
    {node: NVLink domain}, and the nodes that our record says were taken in the last hour, though they may have been given back."""

    states: t.Mapping[str, NodeState]
    domains: t.Mapping[str, str]
    racks: t.Mapping[str, str]
    now: int
    nvlink: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    recent: t.Collection[str] = ()


def nothing(*_given: t.Any) -> str:
    """Return no objection."""
    return ""


def foreign(state: NodeState) -> str:
    """Return who else than we has taken a node out of service or written a reason to it, in words; empty if nobody has."""
    if state.obstacle:
        return state.obstacle
    if reason.is_changed(state.reason):
        return f"somebody has changed the reason that we wrote: '{state.reason}'"
    if state.reason and reason.mark_of(state.reason) is None:
        return f"its reason is not ours: '{state.reason}'"
    if state.held and not state.reason:
        return "somebody has taken it out of service without a reason"
    return ""


def foreign_comment(state: NodeState) -> str:
    """Return why the comment of a node is not ours to change, empty if it is."""
    is_ours = not state.comment or reason.mark_of(state.comment) is not None
    return "" if is_ours else f"its comment is not ours: '{state.comment}'"


def may(step: Step, state: NodeState | None) -> str:
    """Return why a step must not be done on a node in this state, empty if it may. Asked right before each change."""
    if state is None:
        return "there is no such node"
    if step.do in (COMMENT, UNCOMMENT):
        mark = reason.mark_of(state.comment)
        if step.do == UNCOMMENT and (mark is None or mark.run != step.of):
            return foreign_comment(state) or "its comment is gone"
        return foreign_comment(state)
    mark = reason.mark_of(state.reason)
    if step.do == RESUME and (mark is None or mark.run != step.of):
        return foreign(state) or "it is not in quarantine any more"
    if mark is not None and state.held and state.held_at > mark.at + LATER_S:
        return f"somebody has given it back and taken it out of service again since: '{state.reason}'"
    if step.do == DRAIN and state.held and mark is not None:
        return f"it is in quarantine already, for run {mark.run}"
    return foreign(state)


def quarantine(
    convictions: t.Iterable[Conviction],
    fleet: Fleet,
    caps: Caps,
    run: str,
    mode: str,
    confirmed: t.Callable[[Conviction], bool],
    outdated: t.Callable[[Conviction, NodeState], str] = nothing,
    unproven: t.Callable[[Conviction], str] = nothing,
    reserving: bool = False,
) -> list[Step]:
    """Return a step for each convicted node. `mode` is DRAIN or COMMENT; `confirmed` says whether a second run convicts a node, too,
    `outdated` why the node is not what the run has convicted any more,
    `unproven` why the node only gets a comment. `reserving`: caps count unconfirmed nodes as taken."""
    used = _Used(fleet, caps)
    steps = []
    for conviction in convictions:
        text = reason.text_of(reason.Mark(run, conviction.kind, fleet.now, conviction.words))
        only = unproven(conviction) if mode == DRAIN else ""
        do = COMMENT if only else mode
        why = f"{conviction.verdict}, {conviction.kind}: {conviction.words}"
        step = Step(conviction.node, do, f"{only}: {why}" if only else why, text, grounds=conviction.grounds)
        state = fleet.states.get(conviction.node)
        comment = reason.mark_of(state.comment) if state else None
        kept = may(step, state) or (outdated(conviction, state) if state else "")
        if not kept and do == COMMENT and comment is not None and comment.run == run:
            kept = "the comment of this run stands there"
        beyond = "" if kept or do != DRAIN else used.beyond(conviction.node)
        is_unconfirmed = not kept and do == DRAIN and conviction.is_rate and not confirmed(conviction)
        if is_unconfirmed and not (reserving and beyond):
            step = step._replace(do=LEAVE, why=f"{UNCONFIRMED} ({step.why})", is_unconfirmed=True)
            if reserving:
                used.take(conviction.node)
        elif beyond:
            step = step._replace(do=LEAVE, why=f"beyond the cap, {beyond}: would be drained: {step.why}", beyond=True)
        elif kept:
            step = step._replace(do=LEAVE, why=f"{kept} ({step.why})")
        elif do == DRAIN:
            used.take(conviction.node)
        steps.append(step)
    return steps


def undo(fleet: Fleet, run: str) -> list[Step]:
    """Return the steps that take back what was done for a run, where it still stands as we wrote it."""
    steps = []
    for name, state in sorted(fleet.states.items()):
        mark, comment = reason.mark_of(state.reason), reason.mark_of(state.comment)
        if mark is not None and mark.run == run:
            step = Step(name, RESUME, f"undo: {mark.words}", of=run, undoes=True)
            kept = may(step, state)
            steps.append(step._replace(do=LEAVE, why=kept) if kept else step)
        elif reason.is_changed(state.reason) and run in state.reason:
            steps.append(Step(name, LEAVE, foreign(state)))
        if comment is not None and comment.run == run:
            steps.append(Step(name, UNCOMMENT, f"undo: {comment.words}", of=run))
    return steps


def give_back(
    fleet: Fleet,
    later: Judged,
    checks_of: t.Callable[[str, str], t.Sequence[t.Any] | None],
    convicted_since: t.Callable[[str], str] = nothing,
) -> list[Step]:
    """Return a step for each node that is in quarantine for another run and was measured by the later one: resumed if it passes all checks
    that convicted it. `checks_of(run, node)` returns those checks, None if they are not known any more; `convicted_since(node)` the words
    of a still later run that convicts the node, empty if none does."""
    steps = []
    convicted = {conviction.node: conviction for conviction in later.convictions}
    began = reason.began(later.run)
    for name, state in sorted(fleet.states.items()):
        mark = reason.mark_of(state.reason)
        if mark is None or mark.run == later.run:
            continue
        step = Step(name, RESUME, f"passes what run {mark.run} convicted it for: {mark.words}", of=mark.run)
        checks = checks_of(mark.run, name)
        missing = [key for key in checks or () if not later.passes(name, key)]
        if began <= mark.at:
            kept = f"in quarantine since run {later.run} began"
        elif name in convicted:
            kept = f"run {later.run} convicts it, too: {convicted[name].words}"
        elif convicted_since(name):
            kept = convicted_since(name)
        elif name in later.simulated:
            kept = f"its numbers in run {later.run} are those of a simulated tool"
        elif not checks:
            kept = f"what run {mark.run} convicted it for is not known here: give it back with -e undo=true -e run_id={mark.run}"
        elif missing:
            key = missing[0]
            word = later.words.get(key, "not measured")
            measured = " of other nodes" if word == PASS else ""
            kept = f"{' '.join(filter(None, (key.stage, key.check, key.variant)))} is {word}{measured} in run {later.run}"
        else:
            kept = may(step, state)
        steps.append(step._replace(do=LEAVE, why=kept) if kept else step)
    return steps


class _Used:
    """The nodes that are in quarantine, and how many more the caps allow."""

    def __init__(self, fleet: Fleet, caps: Caps) -> None:
        self.fleet, self.caps = fleet, caps
        self.sizes: collections.Counter[tuple[str, str]] = collections.Counter()
        self.held: collections.Counter[tuple[str, str]] = collections.Counter()
        self.recent: dict[str, set[str]] = collections.defaultdict(set)
        for name, state in fleet.states.items():
            self.sizes.update(self._groups(name))
            mark = reason.mark_of(state.reason)
            if state.held and mark is not None:
                self.held.update(self._groups(name))
            if name in fleet.recent or (state.held and mark is not None and fleet.now - mark.at < HOUR_S):
                self.recent[fleet.domains[name]].add(name)

    def _groups(self, name: str) -> list[tuple[str, str]]:
        domain, rack, nvlink = self.fleet.domains[name], self.fleet.racks.get(name, ""), self.fleet.nvlink.get(name, "")
        partitions = [("partition", f"{domain}/{partition}") for partition in self.fleet.states[name].partitions]
        places = [(kind, place) for kind, place in (("rack", rack), ("NVLink domain", nvlink)) if place]
        return [("domain", domain), *partitions, *places]

    def beyond(self, name: str) -> str:
        """Return the cap that one more node would exceed, in words; empty if none."""
        for kind, group in self._groups(name):
            words = group or "the machines of the inventory" if kind == "domain" else f"{kind} {group}"
            size, held = self.sizes[kind, group], self.held[kind, group]
            limit = self.caps.per_rack if kind in ("rack", "NVLink domain") else _share(self.caps.percent, size)
            if held >= limit:
                return f"{held} of {size} nodes of {words} are in quarantine, at most {limit} may be"
        domain = self.fleet.domains[name]
        limit = _share(self.caps.percent_per_hour, self.sizes["domain", domain])
        taken = len(self.recent[domain])
        return f"{taken} nodes were taken in the last hour, at most {limit} may be" if taken >= limit else ""

    def take(self, name: str) -> None:
        self.held.update(self._groups(name))
        self.recent[self.fleet.domains[name]].add(name)


def _share(percent: float, size: int) -> int:
    """Return so much of a number of nodes, rounded down, and one at least. Zero percent is none."""
    return max(1, math.floor(size * percent / 100)) if percent > 0 else 0
