# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Quarantine as playbooks/quarantine.yml asks for it: from a run and the nodes as they are now to what is done and said.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import pathlib
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry as planes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.node_control import NodeControl
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine import convictions, doing, measured, reason, retesting, rules
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine.ledger import Ledger
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine.since import LaterRuns, Since
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, target_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RUN_ID

QUARANTINE, UNDO, RETURN = "quarantine", "undo", "return"
# Locked in the results folder while nodes are read and changed: two at once would each take what a cap allows.
LOCK = "quarantine.lock"
RACK = "acceptance_rack"
# Why a run only writes a comment; the finding is given.
UNPROVEN = "only a comment, since nobody has confirmed {} yet by a quarantine with -e confirm=true"
# The options of the module.
OPTIONS: PlainData = {
    "run_id": {"type": "str", "required": True},
    "results_dir": {"type": "str", "required": True},
    "confirm": {"type": "bool", "default": False},
    "mode": {"type": "str", "choices": ["drain", "comment"], "default": "drain"},
    "unknown": {"type": "bool", "default": False},
    "second_run": {"type": "str", "default": ""},
    "undo": {"type": "bool", "default": False},
    "return": {"type": "bool", "default": False},
    "simulated": {"type": "bool", "default": False},
    "by_run": {"type": "bool", "default": False},
    "retest": {"type": "bool", "default": False},
    "hosts": {"type": "list", "elements": "str"},
    "percent": {"type": "float", "default": 10},
    "percent_per_hour": {"type": "float", "default": 5},
    "per_rack": {"type": "int", "default": 1},
}


class Hosts:
    """The inventory hosts of the play. `variable(host, name)` is the value of a variable of a host, None if it has none."""

    def __init__(self, names: t.Sequence[str], variable: t.Callable[[str, str], t.Any]) -> None:
        self.domains: dict[str, str] = {}
        self.controls: dict[str, NodeControl] = {}
        self.without: list[str] = []
        self.racks: dict[str, str] = {}
        for host in names:
            stated = variable(host, RACK)
            of_nodes = {f"{host}/{node}": name for node, name in stated.items()} if isinstance(stated, dict) else {host: stated}
            self.racks.update({node: str(name) for node, name in of_nodes.items() if name not in (None, "")})
            plane = planes.of({planes.VARIABLE: variable(host, planes.VARIABLE)}, host)
            self.domains[host] = plane.reachability_domain(host)
            control = plane.node_control(host, functools.partial(variable, host))
            if control is None:
                self.without.append(host)
            else:
                self.controls[host] = control


def carry_out(options: PlainData, hosts: Hosts, check_mode: bool) -> doing.Done:
    """Do what the options ask for, if they confirm it. Raise RunError for options that contradict each other or name no run."""
    run = str(options["run_id"])
    if not RUN_ID.fullmatch(run):
        raise RunError(f"run_id: found {run!r}, expected the id of a run, like 20260101T000000Z-0a1b2c")
    if options["undo"] and options["return"]:
        raise RunError("undo, return: found both, expected one: undo takes back what was done for a run, return what a later run passes")
    caps = rules.Caps(float(options["percent"]), float(options["percent_per_hour"]), int(options["per_rack"]))
    if not (0 <= caps.percent <= 100 and 0 <= caps.percent_per_hour <= 100 and caps.per_rack >= 0):
        found = f"quarantine_percent {caps.percent:g}, quarantine_percent_per_hour {caps.percent_per_hour:g}"
        raise RunError(f"found {found}, quarantine_per_rack {caps.per_rack}; expected percentages of 0 to 100, and 0 nodes or more")
    judged = None if options["undo"] else convictions.read(str(options["results_dir"]), run)
    if judged and options["simulated"]:
        judged.simulated = ()
    really = bool(options["confirm"]) and not check_mode
    with _alone(str(options["results_dir"])) if really else contextlib.nullcontext():
        return _carried_out(options, hosts, judged, caps, really)


@contextlib.contextmanager
def _alone(results_dir: str) -> t.Iterator[None]:
    """Raise RunError if another playbook of this results folder changes nodes now."""
    path = pathlib.Path(results_dir) / LOCK
    with contextlib.ExitStack() as opened:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(opened.enter_context(open(path, "a", encoding="utf-8")), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"{path}: another quarantine, undo or return changes nodes now; run again when it has ended") from None
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}; expected a file that can be written") from error
        yield


def _carried_out(options: PlainData, hosts: Hosts, judged: convictions.Judged | None, caps: rules.Caps, really: bool) -> doing.Done:
    results_dir, run = str(options["results_dir"]), str(options["run_id"])
    ledger = Ledger(results_dir)
    states, unread = doing.states(hosts.controls)
    now = int(time.time())
    seen = measured.read(results_dir, run) if judged else measured.Measured()
    fleet = rules.Fleet(
        states, {name: hosts.domains[target_of(name)] for name in states}, {**(judged.racks if judged else {}), **hosts.racks}, now,
        _nvlink(results_dir, states, seen), ledger.drained_since(now - rules.HOUR_S),
    )  # fmt: skip
    notes: list[str] = []
    retests = bool(options["retest"]) and not options["second_run"] and options["mode"] == rules.DRAIN
    if judged is None:
        steps = rules.undo(fleet, run)
    else:
        later = LaterRuns(results_dir, run)
        if options["return"]:
            steps = rules.give_back(fleet, judged, _checks_of(options), _convicted_since(later))
        else:
            steps, notes = _quarantined(options, judged, fleet, caps, hosts, Since(judged, seen, ledger, later), ledger, retests)
            if retests:
                again = _again(judged, steps, hosts)
                if again.nodes and really:
                    return _to_measure(options, again)
                steps = [
                    step._replace(why=f"{again.why_not[step.node]} ({step.why})") if step.node in again.why_not else step for step in steps
                ]
                notes += _said(again, "would be") if again.nodes else []
    done = doing.carry_out(steps, fleet, hosts.controls, really, ledger if really else None, bool(options["by_run"]))
    done.failed += unread
    done.lines = [*done.lines, *unread, *notes, *_summary(done, steps, really, options)]
    return done


def _confirmed(
    options: PlainData, second: convictions.Judged | None, fleet: rules.Fleet, ledger: Ledger
) -> t.Callable[[convictions.Conviction], bool]:
    """Return what says whether a second run convicts a node, too, and the node is still what that run has measured."""
    if second is None:
        return lambda _conviction: False
    since = Since(second, measured.read(str(options["results_dir"]), second.run), ledger, ())
    return lambda c: convictions.confirmed(c, second) and not (c.node in fleet.states and since.what_happened(fleet.states[c.node]))


def _again(judged: convictions.Judged, steps: t.Sequence[rules.Step], hosts: Hosts) -> retesting.Again:
    """Return what measures again the nodes that are left only because no second run convicts them."""
    unconfirmed = {step.node for step in steps if step.is_unconfirmed}
    return retesting.chosen(judged, [c for c in judged.convictions if c.node in unconfirmed], hosts.domains)


def _said(again: retesting.Again, word: str) -> list[str]:
    """Return what is measured again, in words."""
    stages = ", ".join(stage if isinstance(stage, str) else str(stage["name"]) for stage in again.stages)
    nodes = [f"{host}/{name}" for host, names in again.nodes.items() for name in names] or []
    names = ", ".join([*nodes, *(host for host, names in again.nodes.items() if not names)])
    return [f"before anything is taken, {stages} {word} measured again on {names}: what only rates speak against, and good partners"]


def _to_measure(options: PlainData, again: retesting.Again) -> doing.Done:
    """Return what is to be measured first. Nothing is done yet."""
    done = doing.Done(lines=_said(again, "is"))
    nodes = {host: {"names": names} if names else {} for host, names in again.nodes.items()}
    done.again = {"stages": again.stages, "nodes": nodes, **{name: options[name] for name in ("run_id", "mode", "by_run", "unknown")}}
    return done


def _nvlink(results_dir: str, states: t.Mapping[str, t.Any], seen: measured.Measured) -> dict[str, str]:
    """Return the NVLink domain of each node of which a run knows it: this run, or for nodes in quarantine the one that took them."""
    marks = {name: mark for name, state in states.items() if (mark := reason.mark_of(state.reason)) is not None}
    others = {run: measured.read(results_dir, run).domains for run in sorted({mark.run for mark in marks.values()})}
    held = {name: domain for name, mark in marks.items() if (domain := others[mark.run].get(name))}
    return {**held, **seen.domains}


def _convicted_since(later: t.Iterable[convictions.Judged]) -> t.Callable[[str], str]:
    """Return what gives the words of a run after this one that convicts a node, empty if none does."""

    def words(node: str) -> str:
        for judged in later:
            found = next((c for c in judged.convictions if c.node == node and c.verdict == convictions.FAIL), None)
            if found is not None:
                return f"run {judged.run}, which is newer, convicts it: {found.words}"
        return ""

    return words


def _quarantined(
    options: PlainData,
    judged: convictions.Judged,
    fleet: rules.Fleet,
    caps: rules.Caps,
    hosts: Hosts,
    since: Since,
    ledger: Ledger,
    retests: bool,
) -> tuple[list[rules.Step], list[str]]:
    """Return the steps for the nodes that a run convicts, and sentences about the others."""
    words = (convictions.FAIL, convictions.UNKNOWN) if options["unknown"] else (convictions.FAIL,)
    asked = [conviction for conviction in judged.convictions if conviction.verdict in words]
    chosen, left = [], []
    for conviction in asked:
        why = _why_not(conviction, options, hosts)
        if why:
            left.append(rules.Step(conviction.node, rules.LEAVE, f"{why} ({conviction.verdict}: {conviction.words})"))
        else:
            chosen.append(conviction)
    known = ledger.confirmed()

    def unproven(conviction: convictions.Conviction) -> str:
        is_new = bool(options["by_run"]) and not known.intersection(conviction.grounds)
        return UNPROVEN.format(", ".join(conviction.grounds) or "its findings") if is_new else ""

    steps = rules.quarantine(
        chosen, fleet, caps, judged.run, str(options["mode"]), _confirmed(options, _second(options, judged), fleet, ledger),
        since.why_not, unproven, retests,
    )  # fmt: skip
    notes = [f"{step.node}: {words}" for step in steps if step.do == rules.DRAIN for words in _of_places(step.node, fleet)]
    new = sorted({ground for step in steps if step.do == rules.DRAIN for ground in step.grounds} - known)
    if new and not options["by_run"]:
        notes.append(f"no node was drained before for {', '.join(new)}: with this, runs with acceptance_quarantine drain for it, too")
    unknown = sum(conviction.verdict == convictions.UNKNOWN for conviction in judged.convictions)
    if unknown and not options["unknown"]:
        notes.append(f"{_nodes(unknown)} UNKNOWN and left; -e quarantine_unknown=true takes UNKNOWN nodes as well")
    notes += judged.unconvicted
    ready = [
        step.node for step in rules.give_back(fleet, judged, _checks_of(options), _convicted_since(since.later)) if step.do == rules.RESUME
    ]
    if ready:
        notes.append(f"ready to return, by -e return=true: {', '.join(ready)}")
    return [*steps, *left], notes


def _of_places(node: str, fleet: rules.Fleet) -> t.Iterator[str]:
    """Yield what the rack and the NVLink domain of a node lose without it."""
    rack, domain = fleet.racks.get(node), fleet.nvlink.get(node)
    count = sum(other == rack for other in fleet.racks.values())
    if rack and count > 1:
        yield f"{count - 1} of {count} nodes of rack {rack} are left without it"
    count = sum(other == domain for other in fleet.nvlink.values())
    if domain:
        yield (
            f"{count - 1} of {count} nodes of NVLink domain {domain} that the run has seen are left without it, and jobs over all of it "
            "wait. Its IMEX daemon goes on, and the nodes_config.cfg of the others still lists it: once it is powered off they wait for it "
            "(IMEX_NODE_DISCONNECTED_GRACE_TIME); without it in the list, restart IMEX on all nodes of the domain with the same list"
        )


def _why_not(conviction: convictions.Conviction, options: PlainData, hosts: Hosts) -> str:
    """Return why a convicted node cannot be quarantined from here, empty if it can."""
    host = target_of(conviction.node)
    if conviction.simulated and not options["simulated"]:
        return "its numbers are those of a simulated tool"
    if conviction.is_unasked:
        return "no probe ran there, which says nothing about the node: measure it again"
    if host in hosts.controls:
        return ""
    if host in hosts.without:
        return "nothing takes it out of service: see acceptance_quarantine_hook, or for a plane of your own docs/planes.md"
    return f"{host} is not among the hosts of this play"


def _second(options: PlainData, judged: convictions.Judged) -> convictions.Judged | None:
    """Return the second run, None if none is named."""
    name = str(options["second_run"])
    if name == judged.run:
        raise RunError(f"second_run: found {name}, expected another run than run_id")
    return convictions.read(str(options["results_dir"]), name) if name else None


def _checks_of(options: PlainData) -> t.Callable[[str, str], t.Sequence[Key] | None]:
    """Return what gives the checks by which a run convicted a node, None if its results are not here."""

    @functools.cache
    def read(run: str) -> dict[str, convictions.Conviction]:
        try:
            return {conviction.node: conviction for conviction in convictions.read(str(options["results_dir"]), run).convictions}
        except RunError:
            return {}

    def checks(run: str, node: str) -> t.Sequence[Key] | None:
        conviction = read(run).get(node)
        return conviction.checks if conviction else None

    return checks


def _summary(done: doing.Done, steps: t.Sequence[rules.Step], really: bool, options: PlainData) -> list[str]:
    """Return what was done in a line, and what to do next."""
    beyond = sum(step.beyond for step in steps)
    left = sum(step.do == rules.LEAVE for step in steps)
    what = QUARANTINE if not options["undo"] and not options["return"] else UNDO if options["undo"] else RETURN
    counted = f"{what}: {_nodes(len(done.changed))} {'changed' if really else 'would be changed'}, {left} left, {len(done.failed)} failed"
    lines = [f"{counted}{f', {beyond} of those left beyond the cap' if beyond else ''}"]
    if not really and done.changed:
        lines.append("nothing was done: -e confirm=true does it")
    return lines


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"
