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
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.request import Limits, Request, RequestError, read
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.runner import Runner, Work
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.spec import Schedule
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import new_run_id

LOG = logging.getLogger("gpufleet.acceptance.console")
# Between two looks where nothing is heard of.
LOOK_S = 2.0
# A run that was asked to end gives everything back meanwhile.
END_S = 90.0


@dataclasses.dataclass(frozen=True)
class StoredAction:
    """An action as it is stored. `deleting`: a user deleted it, and it goes once nothing of it runs."""

    action: Action
    deleting: bool = False
    generation: int = 0


class ActionStore(t.Protocol):
    """The store of the actions, on disk or in a cluster. Any call may raise ActionError; the controller tries again at its next look."""

    def stored(self) -> t.Sequence[StoredAction]:
        """Return all actions, the oldest first."""

    def say(self, stored: StoredAction, status: Status) -> None:
        """Store the status of an action. Raises Conflict if the action was changed meanwhile."""

    def spawn(self, parent: StoredAction, name: str, spec: t.Mapping[str, t.Any]) -> None:
        """Make a new action of a schedule. Does nothing if an action of that name exists."""

    def forget(self, stored: StoredAction) -> None:
        """Delete an action as a user would."""

    def release(self, stored: StoredAction) -> None:
        """Let an action go that is being deleted and of which nothing runs any more."""

    def known(self) -> t.Sequence[NodeInfo]:
        """Return the nodes that can be measured."""

    def limits(self, nodes: t.Sequence[NodeInfo]) -> Limits:
        """Return what requests may ask for."""

    def swept(self, stored: StoredAction, run_id: str) -> bool:
        """Remove what an ended run has left on the nodes. Return True if nothing is left."""

    def wait(self, seconds: float) -> None:
        """Wait until something has changed, at most for `seconds`."""

    def leading(self) -> bool:
        """Return True if this controller is the one that works."""


class Controller:
    """`most`: how many runs at once."""

    def __init__(
        self, store: ActionStore, runner: Runner, limit: int = 4, link: str = "/runs/{name}", clock: t.Callable[[], float] = time.time
    ) -> None:
        self.store = store
        self.runner = runner
        self.most = limit
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
                leads = self.store.leading()
                if leads:
                    self.round()
                elif led:
                    self.end_all()
                led = leads
            except (ActionError, RunError, OSError) as error:
                LOG.warning("%s", error)
            self.store.wait(LOOK_S)

    def end_all(self) -> None:
        """Let go of all runs that this controller has begun: they belong to another controller now."""
        for key in list(self.runner.children):
            self.runner.work(key).end(hard=True)

    # One look ---------------------------------------------------------------------------------------------------------

    def round(self) -> None:
        """One look at all actions."""
        every = self.store.stored()
        nodes = self.store.known()
        limits = self.store.limits(nodes)
        self._forget_what_has_changed(every, limits)
        candidates: t.List[t.Tuple[StoredAction, Request]] = []
        claims: t.List[queue.Claim] = []
        for stored in every:
            request = None
            with _skipped(stored):
                request = self._step(stored, limits, every)
            if request is not None:
                candidates.append((stored, request))
                claims.append(self._claim(stored, request.nodes, running=False))
            elif self._holds(stored):
                claims.append(self._claim(stored, self.runner.work(stored.action.uid).nodes(), running=True))
        turns = queue.turns(claims, self.most)
        free = {node.name: node for node in nodes}
        for stored, request in candidates:
            turn = turns[stored.action.uid]
            if turn.go:
                busy = _busy(request, free)
                turn = queue.Turn(1, busy) if busy else turn
            with _skipped(stored):
                self._start(stored, request) if turn.go else self._wait(stored, request, turn)
        self._sweep_folders(every)

    def _forget_what_has_changed(self, every: t.Sequence[StoredAction], limits: Limits) -> None:
        if limits != self._limits:
            self._limits = limits
            self._requests.clear()
        for remembered in (self._requests, self._nothing_new):
            if len(remembered) > 2 * len(every) + 100:  # of those that are no more
                remembered.clear()

    def _read(self, action: Action, limits: Limits) -> Request:
        """Return the request of an action. Raises RequestError that says what is wrong with it."""
        spec, request = self._requests.get(action.uid, (None, None))
        if request is None or spec != action.spec:
            request = read(action.spec, limits, action.namespace)
            self._requests[action.uid] = action.spec, request
        return request

    def _claim(self, stored: StoredAction, nodes: t.Collection[str], running: bool) -> queue.Claim:
        return queue.Claim(stored.action.uid, stored.action.name, nodes, running)

    def _holds(self, stored: StoredAction) -> bool:
        """Return True if an action holds its nodes at this moment."""
        phase = stored.action.status.phase
        if phase in actions.ENDED and not stored.deleting:
            return False
        return phase == actions.RUNNING or self.runner.work(stored.action.uid).alive()

    def _step(self, stored: StoredAction, limits: Limits, every: t.Sequence[StoredAction]) -> Request | None:
        """The next thing of one action. A request is one that wants its turn."""
        action, status = stored.action, stored.action.status
        work = self.runner.work(action.uid)
        if stored.deleting:
            if self._ended(stored, work):
                work.forget()
                self.store.release(stored)
            return None
        if status.phase in actions.ENDED:
            self._expire(stored)
            return None
        try:
            request = self._read(action, limits)
        except RequestError as error:
            # Nodes may have gone since it was begun: what runs goes on, and says UNKNOWN of them.
            if status.phase == actions.RUNNING:
                self._watch(stored, None, work)
            else:
                self._say(stored, actions.REFUSED, message=str(error), ended=self._now())
            return None
        if status.phase == actions.RUNNING and not work.alive() and work.outcome(status.run_id).judged:
            self._watch(stored, request, work)  # whoever cancels or suspends it now comes too late
            return None
        if request.cancel:
            if self._ended(stored, work):
                self._say(stored, actions.CANCELLED, message="cancelled", ended=self._now())
            return None
        if request.suspend:
            if self._ended(stored, work):
                self._say(stored, actions.SUSPENDED, message="suspended", queue_position=0, waiting_for="")
            return None
        if request.schedule:
            self._schedule(stored, request.schedule, every)
            return None
        if status.phase == actions.RUNNING and work.nodes():
            self._watch(stored, request, work)
            return None
        return request.on(work.nodes() or request.chosen(limits.nodes or {}), limits.nodes or {})

    def _ended(self, stored: StoredAction, work: Work) -> bool:
        """Return True if nothing of an action runs. A running process is asked to end, and killed if that takes too long."""
        if work.alive():
            asked_at = self._asked.setdefault(work.key, self.clock())
            work.end(hard=self.clock() > asked_at + END_S)
            return False
        self._asked.pop(work.key, None)
        run_id = stored.action.status.run_id
        return not run_id or stored.action.status.phase in actions.ENDED or self.store.swept(stored, run_id)

    def _expire(self, stored: StoredAction) -> None:
        """Remove an action whose time is over; its run and the history stay."""
        ttl = stored.action.spec.get("ttlSecondsAfterFinished")
        if isinstance(ttl, int) and stored.action.status.ended and self.clock() >= calendar.moment(stored.action.status.ended) + ttl:
            self.store.forget(stored)

    # A run ------------------------------------------------------------------------------------------------------------

    def _wait(self, stored: StoredAction, request: Request, turn: queue.Turn) -> None:
        self._say(
            stored, actions.QUEUED, message=f"waits for {turn.waits}", queue_position=turn.position, waiting_for=turn.waits,
            command=request.command_shown(), nodes=len(request.nodes),
        )  # fmt: skip

    def _start(self, stored: StoredAction, request: Request) -> None:
        if not request.nodes:
            self._say(stored, actions.QUEUED, message="waits for nodes: none has the labels of its pool", queue_position=1,
                      waiting_for="nodes with the labels of its pool")  # fmt: skip
            return
        run_id = stored.action.status.run_id or new_run_id()
        # Said before it is done: whoever comes after us finds by this id what we have begun.
        self._say(
            stored, actions.RUNNING, message=f"run {run_id}", run_id=run_id, queue_position=0, waiting_for="",
            started=stored.action.status.started or self._now(), command=request.command_shown(), nodes=len(request.nodes),
            link=self.link.format(name=stored.action.name),
        )  # fmt: skip
        self._begin(self.runner.work(stored.action.uid), request, run_id)

    def _begin(self, work: Work, request: Request | None, run_id: str) -> None:
        """Whoever drove it before is gone: he ends what he has begun before another may lead."""
        if self.store.leading():
            work.begin(request, run_id, take_over=True)

    def _watch(self, stored: StoredAction, request: Request | None, work: Work) -> None:
        """A run that goes on, has ended, or has lost whoever drove it."""
        run_id = stored.action.status.run_id
        if work.alive():
            self._say(stored, actions.RUNNING, progress=work.progress(run_id))
            return
        outcome = work.outcome(run_id)
        if outcome.judged:
            verdict = actions.ACCEPTED if outcome.accepted else actions.NOT_ACCEPTED
            self._say(stored, actions.FINISHED, message=outcome.why, verdict=verdict, counts=outcome.counts,
                      progress=work.progress(run_id), ended=self._now())  # fmt: skip
        elif outcome.waits_for:
            self._say(stored, actions.RUNNING, message=f"waits for {outcome.waits_for}")
        elif outcome.cut_off and work.nodes():
            self._begin(work, None, run_id)
        elif self.store.swept(stored, run_id):
            self._say(stored, actions.FAILED, message=outcome.why or "its folder is lost", ended=self._now())

    # A schedule ---------------------------------------------------------------------------------------------------------

    def _schedule(self, stored: StoredAction, schedule: Schedule, every: t.Sequence[StoredAction]) -> None:
        action = stored.action
        last = action.status.last_scheduled
        after = calendar.moment(last or action.created)
        now = self.clock()
        due_at = calendar.due(schedule, after, now)
        spawned = [child for child in every if child.action.schedule == action.name and child.action.namespace == action.namespace]
        message = "waits for its time"
        if due_at is not None:
            running = [child.action.name for child in spawned if child.action.status.phase not in actions.ENDED]
            if running:
                message = f"left out {calendar.text(due_at)}: {running[0]} has not ended"
            else:
                spec = {name: value for name, value in action.spec.items() if name != "schedule"}
                self.store.spawn(stored, calendar.name(action.name, due_at), spec)
            last = calendar.text(due_at)
        elif action.status.message and action.status.phase == actions.SCHEDULED:
            message = action.status.message
        upcoming = calendar.upcoming(schedule, max(now, after))
        self._say(stored, actions.SCHEDULED, message=message, last_scheduled=last, next_scheduled=calendar.text(upcoming))
        for verdict, limit in ((True, schedule.accepted), (False, schedule.refused)):
            ended = [child for child in spawned if child.action.status.phase in actions.ENDED]
            ended = [child for child in ended if (child.action.status.verdict == actions.ACCEPTED) is verdict and not child.deleting]
            for child in sorted(ended, key=lambda child: child.action.created, reverse=True)[limit:]:
                self.store.forget(child)

    # What is said -------------------------------------------------------------------------------------------------------

    def _now(self) -> str:
        return calendar.text(self.clock())

    def _say(self, stored: StoredAction, phase: str, **changes: t.Any) -> None:
        """Say it, where it is not said already."""
        before = stored.action.status
        now = (before, stored.generation, phase, changes)
        if self._nothing_new.get(stored.action.uid) == now:
            return
        status = dataclasses.replace(before, phase=phase, **changes)
        new_conditions = conditions.of(phase, status.verdict, status.message, before.conditions, self._now(), stored.generation)
        status = _plain(dataclasses.replace(status, conditions=new_conditions))
        if status != _plain(before):
            self.store.say(stored, status)
        else:
            self._nothing_new[stored.action.uid] = now

    def _sweep_folders(self, every: t.Sequence[StoredAction]) -> None:
        """Folders of actions that are no more: somebody has taken them away by force. What runs for nobody is ended."""
        uids = {stored.action.uid for stored in every}
        for key in self.runner.kept():
            if key not in uids:
                work = self.runner.work(key)
                if work.alive():
                    work.end()
                else:
                    work.forget()


@contextlib.contextmanager
def _skipped(stored: StoredAction) -> t.Iterator[None]:
    """Suppress a failure of one action, so that others do not wait; the next look tries it again."""
    try:
        yield
    except (actions.Conflict, actions.NotFound, RunError, OSError) as error:
        LOG.warning("%s: %s", stored.action.name, error)


def _plain(status: Status) -> Status:
    """To be compared, whoever has read it."""
    return dataclasses.replace(status, conditions=list(status.conditions), command=list(status.command), counts=dict(status.counts))


def _busy(request: Request, nodes: t.Mapping[str, NodeInfo]) -> str:
    """Return who uses the GPUs that an action waits for; nobody is preempted. Empty if they are free or it is not known."""
    if not request.devices:
        return ""
    holders = []
    for name in request.nodes:
        node = nodes.get(name)
        if node is not None and node.gpus and node.free is not None and node.free < node.gpus:
            by = f" by {', '.join(node.used_by[:3])}" if node.used_by else ""
            holders.append(f"{node.gpus - node.free} of {node.gpus} GPUs of {name}, held{by}")
    return "; ".join(holders[:3]) + (f" and of {len(holders) - 3} nodes more" if len(holders) > 3 else "")
