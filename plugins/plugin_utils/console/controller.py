# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings actions to their end: looks at all of them again and again, and does of each the next thing that is left to do.

It remembers nothing that it needs. What was asked for and how far it is stands with whoever keeps the actions, what runs stands in the
folders of the runner; so a controller that is killed anywhere is followed by one that goes on from there, and a change that was missed is
seen the next time. A run gets its id in the status before it is begun, and is begun under that id once.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions, calendar, conditions, queue
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.actions import Action, ActionError, NodeInfo, Status
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.request import Limits, Request, RequestError, Schedule, read
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.runner import Runner, Work
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RunError, new_run_id

LOG = logging.getLogger("gpufleet.acceptance.console")
# Between two looks where nothing is heard of.
LOOK_S = 2.0
# A run that was asked to end gives everything back meanwhile.
END_S = 90.0


@dataclasses.dataclass(frozen=True)
class Kept:
    """An action as whoever keeps it has it."""

    action: Action
    # Somebody has deleted it: it goes when nothing of it runs.
    deleting: bool = False
    generation: int = 0


class Keeper(t.Protocol):
    """Who keeps the actions. Everything raises ActionError: the next look tries again."""

    def kept(self) -> t.Sequence[Kept]:
        """All actions, the oldest first."""

    def say(self, kept: Kept, status: Status) -> None:
        """Conflict where the action has become another meanwhile."""

    def spawn(self, parent: Kept, name: str, spec: t.Mapping[str, t.Any]) -> None:
        """A new action of a schedule. Where one of that name is there already, nothing."""

    def forget(self, kept: Kept) -> None:
        """Delete it, as somebody would."""

    def release(self, kept: Kept) -> None:
        """Nothing of it runs any more: it may go."""

    def known(self) -> t.Sequence[NodeInfo]:
        """The nodes that there are."""

    def limits(self, nodes: t.Sequence[NodeInfo]) -> Limits:
        """What requests may ask for."""

    def swept(self, kept: Kept, run_id: str) -> bool:
        """Remove what a run that has ended has left on the nodes; whether nothing is left."""

    def wait(self, seconds: float) -> None:
        """Until something has changed, and so long at most."""

    def leading(self) -> bool:
        """Whether we are the one who works."""


class Controller:
    """`most`: how many runs at once."""

    def __init__(
        self, keeper: Keeper, runner: Runner, most: int = 4, link: str = "/runs/{run_id}", clock: t.Callable[[], float] = time.time
    ) -> None:
        self.keeper = keeper
        self.runner = runner
        self.most = most
        self.link = link
        self.clock = clock
        # When a run was asked to end; a controller that comes later asks again.
        self._asked: t.Dict[str, float] = {}
        # Thousands wait, and are looked at each time: what came of the same as now is not worked out again.
        self._limits: Limits | None = None
        self._requests: t.Dict[str, t.Tuple[t.Mapping[str, t.Any], Request]] = {}
        self._nothing_new: t.Dict[str, t.Tuple[t.Any, ...]] = {}

    def run(self, stopped: t.Callable[[], bool]) -> None:
        """Until it is stopped. What runs is left running, by whoever leads; who leads no longer ends it, for another goes on with it."""
        led = False
        while not stopped():
            try:
                leads = self.keeper.leading()
                if leads:
                    self.round()
                elif led:
                    self.end_all()
                led = leads
            except (ActionError, RunError, OSError) as error:
                LOG.warning("%s", error)
            self.keeper.wait(LOOK_S)

    def end_all(self) -> None:
        """What we have begun belongs to another one now."""
        for key in list(self.runner.children):
            self.runner.work(key).end(hard=True)

    # One look ---------------------------------------------------------------------------------------------------------

    def round(self) -> None:
        """One look at all actions."""
        every = self.keeper.kept()
        nodes = self.keeper.known()
        limits = self.keeper.limits(nodes)
        self._forget_what_has_changed(every, limits)
        candidates: t.List[t.Tuple[Kept, Request]] = []
        claims: t.List[queue.Claim] = []
        for kept in every:
            request = None
            with _skipped(kept):
                request = self._step(kept, limits, every)
            if request is not None:
                candidates.append((kept, request))
                claims.append(self._claim(kept, request.nodes, running=False))
            elif self._holds(kept):
                claims.append(self._claim(kept, self.runner.work(kept.action.uid).nodes(), running=True))
        turns = queue.turns(claims, self.most)
        free = {node.name: node for node in nodes}
        for kept, request in candidates:
            turn = turns[kept.action.uid]
            if turn.go:
                busy = _busy(request, free)
                turn = queue.Turn(1, busy) if busy else turn
            with _skipped(kept):
                self._start(kept, request) if turn.go else self._wait(kept, request, turn)
        self._sweep_folders(every)

    def _forget_what_has_changed(self, every: t.Sequence[Kept], limits: Limits) -> None:
        if limits != self._limits:
            self._limits = limits
            self._requests.clear()
        for remembered in (self._requests, self._nothing_new):
            if len(remembered) > 2 * len(every) + 100:  # of those that are no more
                remembered.clear()

    def _read(self, action: Action, limits: Limits) -> Request:
        """What an action asks for. RequestError says what is wrong with it."""
        spec, request = self._requests.get(action.uid, (None, None))
        if request is None or spec != action.spec:
            request = read(action.spec, limits, action.namespace)
            self._requests[action.uid] = action.spec, request
        return request

    def _claim(self, kept: Kept, nodes: t.Collection[str], running: bool) -> queue.Claim:
        return queue.Claim(kept.action.uid, kept.action.name, nodes, running)

    def _holds(self, kept: Kept) -> bool:
        """Whether its nodes are its own at this moment."""
        phase = kept.action.status.phase
        if phase in actions.ENDED and not kept.deleting:
            return False
        return phase == actions.RUNNING or self.runner.work(kept.action.uid).alive()

    def _step(self, kept: Kept, limits: Limits, every: t.Sequence[Kept]) -> Request | None:
        """The next thing of one action. A request is one that wants its turn."""
        action, status = kept.action, kept.action.status
        work = self.runner.work(action.uid)
        if kept.deleting:
            if self._ended(kept, work):
                work.forget()
                self.keeper.release(kept)
            return None
        if status.phase in actions.ENDED:
            self._expire(kept)
            return None
        try:
            request = self._read(action, limits)
            if request.schedule:
                calendar.check(request.schedule)
        except RequestError as error:
            # Nodes may have gone since it was begun: what runs goes on, and says UNKNOWN of them.
            if status.phase == actions.RUNNING:
                self._watch(kept, None, work)
            else:
                self._say(kept, actions.REFUSED, message=str(error), ended=self._now())
            return None
        if status.phase == actions.RUNNING and not work.alive() and work.outcome(status.run_id).judged:
            self._watch(kept, request, work)  # whoever cancels or suspends it now comes too late
            return None
        if request.cancel:
            if self._ended(kept, work):
                self._say(kept, actions.CANCELLED, message="cancelled", ended=self._now())
            return None
        if request.suspend:
            if self._ended(kept, work):
                self._say(kept, actions.SUSPENDED, message="suspended", queue_position=0, waiting_for="")
            return None
        if request.schedule:
            self._schedule(kept, request.schedule, every)
            return None
        if status.phase == actions.RUNNING and work.nodes():
            self._watch(kept, request, work)
            return None
        return request.on(work.nodes() or request.chosen(limits.nodes or {}))

    def _ended(self, kept: Kept, work: Work) -> bool:
        """Whether nothing of it runs; what does is asked to end, and killed where that takes too long."""
        if work.alive():
            asked = self._asked.setdefault(work.key, self.clock())
            work.end(hard=self.clock() > asked + END_S)
            return False
        self._asked.pop(work.key, None)
        run_id = kept.action.status.run_id
        return not run_id or kept.action.status.phase in actions.ENDED or self.keeper.swept(kept, run_id)

    def _expire(self, kept: Kept) -> None:
        """Where its time is over, the action goes; the run and the history stay."""
        ttl = kept.action.spec.get("ttlSecondsAfterFinished")
        if isinstance(ttl, int) and kept.action.status.ended and self.clock() >= calendar.moment(kept.action.status.ended) + ttl:
            self.keeper.forget(kept)

    # A run ------------------------------------------------------------------------------------------------------------

    def _wait(self, kept: Kept, request: Request, turn: queue.Turn) -> None:
        self._say(
            kept, actions.QUEUED, message=f"waits for {turn.waits}", queue_position=turn.position, waiting_for=turn.waits,
            command=request.command_shown(), nodes=len(request.nodes),
        )  # fmt: skip

    def _start(self, kept: Kept, request: Request) -> None:
        if not request.nodes:
            self._say(kept, actions.QUEUED, message="waits for nodes: none has the labels of its pool", queue_position=1,
                      waiting_for="nodes with the labels of its pool")  # fmt: skip
            return
        run_id = kept.action.status.run_id or new_run_id()
        # Said before it is done: whoever comes after us finds by this id what we have begun.
        self._say(
            kept, actions.RUNNING, message=f"run {run_id}", run_id=run_id, queue_position=0, waiting_for="",
            started=kept.action.status.started or self._now(), command=request.command_shown(), nodes=len(request.nodes),
            link=self.link.format(run_id=run_id),
        )  # fmt: skip
        self._begin(self.runner.work(kept.action.uid), request, run_id)

    def _begin(self, work: Work, request: Request | None, run_id: str) -> None:
        """Whoever drove it before is gone: he ends what he has begun before another may lead."""
        if self.keeper.leading():
            work.begin(request, run_id, take_over=True)

    def _watch(self, kept: Kept, request: Request | None, work: Work) -> None:
        """A run that goes on, has ended, or has lost whoever drove it."""
        run_id = kept.action.status.run_id
        if work.alive():
            self._say(kept, actions.RUNNING, progress=work.progress(run_id))
            return
        outcome = work.outcome(run_id)
        if outcome.judged:
            verdict = actions.ACCEPTED if outcome.accepted else actions.NOT_ACCEPTED
            self._say(kept, actions.FINISHED, message=outcome.why, verdict=verdict, counts=outcome.counts,
                      progress=work.progress(run_id), ended=self._now())  # fmt: skip
        elif outcome.cut_off and work.nodes():
            self._begin(work, None, run_id)
        elif self.keeper.swept(kept, run_id):
            self._say(kept, actions.FAILED, message=outcome.why or "its folder is lost", ended=self._now())

    # A schedule ---------------------------------------------------------------------------------------------------------

    def _schedule(self, kept: Kept, schedule: Schedule, every: t.Sequence[Kept]) -> None:
        action = kept.action
        last = action.status.last_scheduled
        after = calendar.moment(last or action.created)
        now = self.clock()
        due = calendar.due(schedule, after, now)
        mine = [one for one in every if one.action.schedule == action.name and one.action.namespace == action.namespace]
        message = "waits for its time"
        if due is not None:
            running = [one.action.name for one in mine if one.action.status.phase not in actions.ENDED]
            if running:
                message = f"left out {calendar.text(due)}: {running[0]} has not ended"
            else:
                spec = {name: value for name, value in action.spec.items() if name != "schedule"}
                self.keeper.spawn(kept, calendar.name(action.name, due), spec)
            last = calendar.text(due)
        elif action.status.message and action.status.phase == actions.SCHEDULED:
            message = action.status.message
        upcoming = calendar.upcoming(schedule, max(now, after))
        self._say(kept, actions.SCHEDULED, message=message, last_scheduled=last, next_scheduled=calendar.text(upcoming))
        for verdict, most in ((True, schedule.accepted), (False, schedule.refused)):
            ended = [one for one in mine if one.action.status.phase in actions.ENDED]
            ended = [one for one in ended if (one.action.status.verdict == actions.ACCEPTED) is verdict and not one.deleting]
            for one in sorted(ended, key=lambda one: one.action.created, reverse=True)[most:]:
                self.keeper.forget(one)

    # What is said -------------------------------------------------------------------------------------------------------

    def _now(self) -> str:
        return calendar.text(self.clock())

    def _say(self, kept: Kept, phase: str, **changes: t.Any) -> None:
        """Say it, where it is not said already."""
        before = kept.action.status
        now = (before, kept.generation, phase, changes)
        if self._nothing_new.get(kept.action.uid) == now:
            return
        status = dataclasses.replace(before, phase=phase, **changes)
        made = conditions.of(phase, status.verdict, status.message, before.conditions, self._now(), kept.generation)
        status = _plain(dataclasses.replace(status, conditions=made))
        if status != _plain(before):
            self.keeper.say(kept, status)
        else:
            self._nothing_new[kept.action.uid] = now

    def _sweep_folders(self, every: t.Sequence[Kept]) -> None:
        """Folders of actions that are no more: somebody has taken them away by force. What runs for nobody is ended."""
        known = {kept.action.uid for kept in every}
        for key in self.runner.kept():
            if key not in known:
                work = self.runner.work(key)
                if work.alive():
                    work.end()
                else:
                    work.forget()


@contextlib.contextmanager
def _skipped(kept: Kept) -> t.Iterator[None]:
    """What goes wrong with one action keeps nobody else waiting; the next look tries it again."""
    try:
        yield
    except (actions.Conflict, actions.NotFound, RunError, OSError) as error:
        LOG.warning("%s: %s", kept.action.name, error)


def _plain(status: Status) -> Status:
    """To be compared, whoever has read it."""
    return dataclasses.replace(status, conditions=list(status.conditions), command=list(status.command), counts=dict(status.counts))


def _busy(request: Request, nodes: t.Mapping[str, NodeInfo]) -> str:
    """Whose GPUs it waits for; nobody is pushed aside. Empty where they are free or nobody can tell."""
    if not request.devices:
        return ""
    held = []
    for name in request.nodes:
        node = nodes.get(name)
        if node is not None and node.gpus and node.free is not None and node.free < node.gpus:
            by = f" by {', '.join(node.used_by[:3])}" if node.used_by else ""
            held.append(f"{node.gpus - node.free} of {node.gpus} GPUs of {name}, held{by}")
    return "; ".join(held[:3]) + (f" and of {len(held) - 3} nodes more" if len(held) > 3 else "")
