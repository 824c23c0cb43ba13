# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does the steps of quarantine/rules.py: each node is read again right before its change, and once more behind it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.node_control import NodeChangedError, NodeControl, NodeState
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine import reason, rules
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine.ledger import SEEN, Entry, Ledger
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import target_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData

# Hosts that are read at once.
THREADS = 16
# How often a node is read again whose change was refused because something else has changed it meanwhile, as kubelet does.
TRIES = 5
_NOW = {rules.DRAIN: "drained", rules.COMMENT: "commented", rules.RESUME: "resumed", rules.UNCOMMENT: "comment removed"}


@dataclasses.dataclass
class Done:
    """The result of the steps: lines for people; the nodes that were changed, or would be, {node: the change}; a sentence for each
    failure; the state of each of these nodes before and after, for --diff; and what is to be measured again before anything is done."""

    lines: list[str] = dataclasses.field(default_factory=list)
    changed: dict[str, str] = dataclasses.field(default_factory=dict)
    failed: list[str] = dataclasses.field(default_factory=list)
    before: list[str] = dataclasses.field(default_factory=list)
    after: list[str] = dataclasses.field(default_factory=list)
    again: PlainData = dataclasses.field(default_factory=dict)


def states(controls: t.Mapping[str, NodeControl]) -> tuple[dict[str, NodeState], list[str]]:
    """Return the states of the nodes behind hosts, and a sentence for each host that does not say."""

    def read(host: str) -> list[NodeState] | str:
        try:
            return controls[host].nodes()
        except RunError as error:
            return str(error)

    with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
        answers = list(threads.map(read, controls))
    found = {state.name: state for answer in answers if not isinstance(answer, str) for state in answer}
    return found, [f"{answer}; no node there is touched" for answer in answers if isinstance(answer, str)]


def shown(state: NodeState | None) -> str:
    """Return the state of a node in a line."""
    if state is None:
        return "not there"
    comment = f", comment '{state.comment}'" if state.comment else ""
    words = f"'{state.reason}'" if state.reason else "no reason"
    return f"{'out of service' if state.held else 'in service'}, {words}{comment}"


def carry_out(
    steps: t.Iterable[rules.Step],
    fleet: rules.Fleet,
    controls: t.Mapping[str, NodeControl],
    really: bool,
    ledger: Ledger | None = None,
    by_run: bool = False,
) -> Done:
    """Do the steps, or only say what would be done. Each is written to the record `ledger`: that a node is given back before that is done,
    since an old run must not take it again, anything else behind it; and that it was out of service, whoever
    had taken it. `by_run`: no person but a run asks for it."""
    done = Done()

    def record(step: rules.Step) -> None:
        if ledger is not None:
            mark = reason.mark_of(step.text)
            ledger.write(Entry(int(time.time()), step.node, step.do, mark.run if mark else step.of, step.grounds, by_run, step.undoes))

    for step in steps:
        state = fleet.states.get(step.node)
        if really and state is not None and state.held and step.do != rules.RESUME:
            record(step._replace(do=SEEN))
        if step.do == rules.LEAVE:
            done.lines.append(f"{step.node}: left: {step.why}")
            continue
        if not really:
            done.lines.append(f"{step.node}: would be {_NOW[step.do]}: {step.why}")
            _changed(done, step, state, _expected(step, state))
            continue
        try:
            if step.do == rules.RESUME:
                record(step)
            before, after = _do(step, controls[target_of(step.node)])
            if step.do != rules.RESUME:
                record(step)
        except RunError as error:
            done.failed.append(f"{step.node}: not {_NOW[step.do]}: {error}")
            done.lines.append(done.failed[-1])
            continue
        done.lines.append(f"{step.node}: {_NOW[step.do]}: {step.why}")
        _changed(done, step, before, after)
    return done


def _changed(done: Done, step: rules.Step, before: NodeState | None, after: NodeState | None) -> None:
    done.changed[step.node] = _NOW[step.do]
    done.before.append(f"{step.node}: {shown(before)}\n")
    done.after.append(f"{step.node}: {shown(after)}\n")


def _expected(step: rules.Step, state: NodeState | None) -> NodeState | None:
    """Return the state of a node behind a step."""
    if state is None:
        return None
    if step.do in (rules.COMMENT, rules.UNCOMMENT):
        return state._replace(comment=step.text)
    return state._replace(held=step.do == rules.DRAIN, reason=step.text)


def _do(step: rules.Step, control: NodeControl) -> tuple[NodeState, NodeState]:
    """Do a step on a node that is as it was planned for. Return its states before and after. Raise RunError otherwise."""
    for tried in range(1, TRIES + 1):
        state = control.read(step.node)
        kept = rules.may(step, state)
        if state is None or kept:
            raise RunError(f"it has changed meanwhile: {kept}")
        try:
            _change(step, state, control)
        except NodeChangedError:
            # An answer that was lost on the way may have been that of our own change.
            after = control.read(step.node)
            if after is not None and _is_done(step, after):
                return state, after
            if tried == TRIES:
                raise
            continue
        after = control.read(step.node)
        if after is None or not _is_done(step, after):
            raise RunError(f"it was told to, and is {shown(after)}")
        return state, after
    raise AssertionError("the last try ends in one way or another")


def _change(step: rules.Step, state: NodeState, control: NodeControl) -> None:
    if step.do == rules.DRAIN:
        control.drain(state, step.text)
    elif step.do == rules.RESUME:
        control.resume(state)
    else:
        control.comment(state, step.text)


def _is_done(step: rules.Step, after: NodeState) -> bool:
    if step.do in (rules.COMMENT, rules.UNCOMMENT):
        return after.comment == step.text
    if step.do == rules.DRAIN:
        return after.held and after.reason == step.text
    return not after.held and reason.mark_of(after.reason) is None
