# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several rounds together: for each check the newest verdict that still holds, and what speaks against each node.

A verdict holds until a part that it is about is changed. Of a check of one part that is this part, of any other check every part of its
nodes. A part that left its node needs no verdict, but one that came in its place has to pass the same checks. A pass of a group replaces no
verdict over nodes that it lacks: two nodes together show nothing about a hundred.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover.rounds import Round
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.parts import MACHINE, Part

FAIL, UNKNOWN, WARN, KNOWN_FAIL = "FAIL", "UNKNOWN", "WARN", "KNOWN_FAIL"


class Change(t.NamedTuple):
    """A part that a later round has seen in place of another one, or that came or left. `slot` is the name of its place, `round` the number
    of the round that saw it first; `before` or `after` is None where there was none."""

    node: str
    slot: str
    round: int
    before: Part | None
    after: Part | None


class Deciding(t.NamedTuple):
    """The newest verdict of a check, and the round that it is of."""

    round: Round
    verdict: Verdict


@dataclasses.dataclass
class Standing:
    """The verdicts of some rounds together. `checks` are the deciding verdicts, `bad` says of each check that has no valid pass why,
    `of_node` has the bad checks of each node (empty if there is none), and `notes` say what speaks against the acceptance of the whole
    besides."""

    checks: dict[Key, Deciding]
    bad: dict[Key, str]
    of_node: dict[str, list[Key]]
    changes: list[Change]
    notes: list[str]

    @property
    def accepted(self) -> bool:
        """Return True if every planned check has a valid pass, and nothing else speaks against the whole."""
        return not self.bad and not self.notes


def of(rounds: t.Sequence[Round], repaired: t.Mapping[str, str] | None = None) -> Standing:
    """Return what the rounds say together. `repaired` has the time (UTC, as records have it) at which a node came back from its repair:
    what was measured before does not hold."""
    checks = _deciding(rounds)
    changes = _changes(rounds)
    parts = _present(rounds)
    came, successor = _came(changes), _successors(changes)
    machines = {
        change.node: change.round
        for change in changes
        if MACHINE in (change.before and change.before.key, change.after and change.after.key)
    }
    touched: dict[str, int] = collections.defaultdict(int)
    for change in changes:
        touched[change.node] = max(touched[change.node], change.round)
    bad: dict[Key, str] = {}
    for key, (round_, verdict) in checks.items():
        if _has_left(key, parts):
            if not _is_followed(key, checks, came, successor):
                bad[key] = "its part left, and none that came in its place has passed this check"
            continue
        why = _against(round_, verdict)
        if not why:
            why = _outdated(key, round_, verdict, came, touched, machines) or _before_repair(round_, verdict, repaired or {})
        if why:
            bad[key] = why
    nodes = dict.fromkeys(sorted({node for _round, verdict in checks.values() for node in subjects.nodes_of(verdict.subject)}))
    of_node: dict[str, list[Key]] = {node: [] for node in nodes}
    of_nobody = []
    for key, reason in bad.items():
        blamed = _blamed(key, checks[key])
        of_nobody += [] if blamed else [f"{key.stage} {key.check} of {key.subject}: {reason}"]
        for node in blamed:
            of_node.setdefault(node, []).append(key)
    return Standing(checks, bad, of_node, changes, [*_notes(rounds, checks, bool(bad)), *_seen_twice(parts), *of_nobody])


def _deciding(rounds: t.Sequence[Round]) -> dict[Key, Deciding]:
    """Return the newest verdict of each check. Numbers of simulated tools replace no others, and a pass of a group none over more nodes."""
    checks: dict[Key, Deciding] = {}
    widest: dict[Key, set[str]] = collections.defaultdict(set)
    for round_ in rounds:
        for key, verdict in round_.verdicts.items():
            before, nodes = checks.get(key), subjects.nodes_of(verdict.subject)
            is_replaced = before is None or not verdict.simulated or before.round.report["simulated"]
            if is_replaced and (nodes >= widest[key] or _against(round_, verdict)):
                checks[key] = Deciding(round_, verdict)
            widest[key] |= nodes
    return checks


def nodes_of(key: Key, rounds: t.Sequence[Round]) -> set[str]:
    """Return the nodes over which a check must pass: those of all its verdicts."""
    found = (round_.verdicts[key].subject for round_ in rounds if key in round_.verdicts)
    return {node for subject in found for node in subjects.nodes_of(subject)}


def _against(round_: Round, verdict: Verdict) -> str:
    """Return why a verdict is no pass; empty if it is one, or is waived."""
    judging = round_.plan.judging
    if verdict.verdict in (FAIL, UNKNOWN):
        return f"{verdict.verdict} in round {round_.number}: {verdict.reason}"
    if verdict.verdict == WARN and judging.warn != "accept":
        return f"WARN in round {round_.number}, and acceptance_warn is {judging.warn}: {verdict.reason}"
    if verdict.regressed and judging.regression == "refuse":
        return f"worse than its own past in round {round_.number}: {verdict.reason}"
    return ""


# Hardware ---------------------------------------------------------------------------------------------------------------------------------


def _present(rounds: t.Sequence[Round]) -> dict[str, dict[str, dict[str, Part]]]:
    """Return {node: {kind: {key: part}}}, of each kind as the newest round that listed any of it saw them."""
    found: dict[str, dict[str, dict[str, Part]]] = {}
    for round_ in rounds:
        for node, of_node in round_.parts.items():
            kinds: dict[str, dict[str, Part]] = collections.defaultdict(dict)
            for key, part in of_node.items():
                kinds[part.kind][key] = part
            found.setdefault(node, {}).update(kinds)
    return found


def _place(part: Part) -> str:
    """Return where a part is in its node, in words that the part that replaces it has too."""
    kind, _slash, name = part.key.partition("/")
    if part.key == MACHINE:
        return "machine"
    return (
        part.slot or part.pci or part.name if kind == "gpu" else f"{part.name if kind != 'dimm' else 'memory module'} {part.slot or name}"
    )


def _same(one: Part, other: Part) -> bool:
    """Return True unless a number of two parts tells them apart."""
    if one.kind == "gpu":
        return one.key == other.key
    return not any(a and b and a != b for a, b in ((one.serial, other.serial), (one.guid, other.guid), (one.model, other.model)))


def _changes(rounds: t.Sequence[Round]) -> list[Change]:
    """Return the parts that changed from one round that saw them to the next."""
    changes: list[Change] = []
    before: dict[str, dict[str, dict[str, Part]]] = {}
    for round_ in rounds:
        for node, kinds in _present([round_]).items():
            for kind, now in kinds.items():
                old = before.get(node, {}).get(kind)
                if old is not None:
                    changes += _changed(node, round_.number, old, now)
                before.setdefault(node, {})[kind] = now
    return changes


def _changed(node: str, number: int, old: t.Mapping[str, Part], now: t.Mapping[str, Part]) -> t.Iterator[Change]:
    was = {_place(part): part for part in old.values()}
    is_ = {_place(part): part for part in now.values()}
    for place in sorted({*was, *is_}):
        before, after = was.get(place), is_.get(place)
        seen = [part for part in (before, after) if part is not None]
        if len(seen) < 2 and seen[0].kind == "optic":
            continue  # a module that does not answer is still there: that a port is empty is a finding of its link
        if len(seen) < 2 or not _same(*seen):
            yield Change(node, place, number, before, after)


def _came(changes: t.Iterable[Change]) -> dict[str, int]:
    """Return {subject: round} of the parts that came."""
    return {
        f"{change.node}/{change.after.key}": change.round for change in changes if change.after is not None and change.after.key != MACHINE
    }


def _part_of(subject: str) -> tuple[str, str]:
    """Return the node and the key of the part that a subject is; the key is empty if it is none."""
    node = node_of(subject)
    key = subject[len(node) + 1 :]
    return node, "/".join(key.split("/")[:2])


def _has_left(key: Key, parts: t.Mapping[str, t.Mapping[str, t.Mapping[str, Part]]]) -> bool:
    node, part = _part_of(key.subject)
    known = parts.get(node, {}).get(part.partition("/")[0]) if part else None
    return known is not None and part not in known


def _successors(changes: t.Iterable[Change]) -> dict[str, str]:
    """Return {subject of a part that left: that of the part which came in its place}."""
    return {
        f"{change.node}/{change.before.key}": f"{change.node}/{change.after.key}"
        for change in changes if change.before is not None and change.after is not None and change.before.key != change.after.key
    }  # fmt: skip


def _is_followed(key: Key, checks: t.Mapping[Key, Deciding], came: t.Mapping[str, int], successor: t.Mapping[str, str]) -> bool:
    """Return True if the part that came in the place of one that left, or the last of several, has passed the same check since."""
    node, part = _part_of(key.subject)
    subject, seen = f"{node}/{part}", set[str]()
    while subject in successor and subject not in seen:
        seen.add(subject)
        subject = successor[subject]
    return bool(seen) and subject in came and _passed_since(key._replace(subject=subject), came[subject], checks)


def _passed_since(key: Key, number: int, checks: t.Mapping[Key, Deciding]) -> bool:
    found = checks.get(key)
    return found is not None and found.round.number >= number and not _against(found.round, found.verdict)


def _outdated(
    key: Key, round_: Round, verdict: Verdict, came: t.Mapping[str, int], touched: t.Mapping[str, int], machines: t.Mapping[str, int]
) -> str:
    """Return why a pass does not hold because of a later change; empty if it does. Another machine changes all its parts."""
    node, part = _part_of(key.subject)
    if part:
        number = max(came.get(f"{node}/{part}", 0), machines.get(node, 0))
        return f"measured in round {round_.number}, before the part was changed" if number > round_.number else ""
    late = sorted(name for name in subjects.nodes_of(verdict.subject) if touched.get(name, 0) > round_.number)
    return f"measured in round {round_.number}, before parts of {late[0]} were changed" if late else ""


def _before_repair(round_: Round, verdict: Verdict, repaired: t.Mapping[str, str]) -> str:
    late = sorted(name for name in subjects.nodes_of(verdict.subject) if repaired.get(name, "") > round_.planned_at)
    return f"measured in round {round_.number}, before {late[0]} came back from its repair at {repaired[late[0]]}" if late else ""


# Nodes and the whole ----------------------------------------------------------------------------------------------------------------------


def _blamed(key: Key, deciding: Deciding) -> set[str]:
    """Return the nodes that a bad check speaks against: who the report of its round convicts, else all nodes that were measured."""
    convicted = set()
    for cause in deciding.round.report["causes"]:
        if any(Key(one["stage"], one["check"], one["variant"], one["subject"]) == key for one in cause["explains"]):
            kind, bearer = subjects.bearer(cause["kind"], cause["subject"])
            convicted |= {bearer} if kind == "node" else set()
    return convicted or subjects.nodes_of(deciding.verdict.subject)


def _is_whole(round_: Round, nodes: t.Collection[str]) -> bool:
    """Return True if a round left nothing out, and was over all nodes of all rounds."""
    return not round_.report["partial"] and not set(nodes) - _planned(round_)


def _planned(round_: Round) -> set[str]:
    """Return the nodes of a round's plan."""
    return {node for item in round_.plan.items for node in subjects.nodes_of(item.subject)}


def _missing(rounds: t.Sequence[Round], nodes: t.Collection[str]) -> str:
    """Return which nodes the widest round did not have: they may be of another fleet, or have another name since."""
    missing = {round_.run.id: set(nodes) - _planned(round_) for round_ in rounds}
    widest = min(missing, key=lambda run: len(missing[run]))
    names = sorted(missing[widest])
    return f"; run {widest}, the widest, did not have {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}" if names else ""


def _seen_twice(parts: t.Mapping[str, t.Mapping[str, t.Mapping[str, Part]]]) -> list[str]:
    """Return a sentence for each GPU that two nodes list, each in its newest round."""
    owners: dict[str, list[str]] = collections.defaultdict(list)
    for node, kinds in parts.items():
        for key in kinds.get("gpu", ()):
            owners[key].append(node)
    return [
        f"{key} is listed on {' and on '.join(sorted(nodes))}: a node has another name since, or the part moved; measure both, or leave "
        "out the rounds with the old name" for key, nodes in sorted(owners.items()) if len(nodes) > 1
    ]  # fmt: skip


def _notes(rounds: t.Sequence[Round], checks: t.Mapping[Key, Deciding], is_bad: bool) -> list[str]:
    """Return what speaks against the whole besides its verdicts."""
    notes = []
    nodes = {node for _round, verdict in checks.values() for node in subjects.nodes_of(verdict.subject)}
    if not any(_is_whole(round_, nodes) for round_ in rounds):
        notes.append(f"PARTIAL: every round left parts of the fleet or of the stages out{_missing(rounds, nodes)}")
    simulated = {bool(round_.report["simulated"]) for round_ in rounds}
    notes += ["some rounds have numbers of simulated tools, and some of hardware"] if len(simulated) > 1 else []
    missing = [set(round_.report["not_proven"] or ()) for round_ in rounds]
    notes += sorted(set.intersection(*missing)) if missing else []
    if not any(deciding.verdict.verdict == "PASS" for deciding in checks.values()):
        notes.append("no check is a PASS: nothing was shown to work")
    if len(rounds) == 1 and not rounds[0].report["accepted"] and not notes and not is_bad:
        notes.append(str(rounds[0].report["why"]))
    return notes
