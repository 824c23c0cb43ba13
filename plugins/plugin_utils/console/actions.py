# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Actions of the console, whoever stores them: a file on a laptop (`local`) or the API of a cluster (`cluster`).

An action is a request and a short status. Numbers, verdicts and reports are the run's and the history's; the status has the run's id.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import json
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import AcceptanceError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData

# How far an action has come. Those of ENDED never change again.
PENDING, SUSPENDED, SCHEDULED, QUEUED, RUNNING = "Pending", "Suspended", "Scheduled", "Queued", "Running"
FINISHED, CANCELLED, REFUSED, FAILED = "Finished", "Cancelled", "Refused", "Failed"
PHASES = (PENDING, SUSPENDED, SCHEDULED, QUEUED, RUNNING, FINISHED, CANCELLED, REFUSED, FAILED)
ENDED = (FINISHED, CANCELLED, REFUSED, FAILED)
# Finished says what was measured: this or that. Refused is a request that nobody can carry out, failed a run that ended without a verdict.
ACCEPTED, NOT_ACCEPTED = "Accepted", "NotAccepted"

# Types of conditions. Each stands in every status, Unknown until it is decided.
CONDITIONS = ("Admitted", "Running", "Finished", "Accepted")

# A name of an action: what the API takes as the name of an object.
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")


class ActionError(AcceptanceError):
    """A request cannot be carried out; the message is one sentence for people."""


class NotFound(ActionError):
    """No such action."""


class Conflict(ActionError):
    """It is there already, or has become another meanwhile."""


class Denied(ActionError):
    """The console itself may not."""


class Unavailable(ActionError):
    """Whoever keeps the actions does not answer."""


@dataclasses.dataclass(frozen=True)
class Status:
    """The short status of an action."""

    phase: str = PENDING
    conditions: t.Sequence[PlainData] = ()
    run_id: str = ""
    verdict: str = ""
    command: t.Sequence[str] = ()
    # The nodes that are meant, of a pool those that it had when the run began.
    nodes: int = 0
    # {verdict: how many}, at the end; and while it runs what is measured of what is planned.
    counts: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    progress: str = ""
    message: str = ""
    link: str = ""
    # Of a queued one: its place, from 1, and whom it waits for, in words.
    queue_position: int = 0
    waiting_for: str = ""
    started: str = ""
    ended: str = ""
    # Of a scheduled one: when it was last begun, and when it is next.
    last_scheduled: str = ""
    next_scheduled: str = ""


@dataclasses.dataclass(frozen=True)
class Action:
    """One thing that somebody asked for."""

    name: str
    namespace: str
    spec: t.Mapping[str, t.Any]
    status: Status
    created: str
    who: str = ""
    uid: str = ""
    # Of one that a schedule has begun: the name of the scheduled one.
    schedule: str = ""
    # It is no more; what it measured stays in the history.
    gone: bool = False


@dataclasses.dataclass(frozen=True)
class Filters:
    """Which actions are listed; the newest first."""

    namespace: str = ""
    phase: str = ""
    verdict: str = ""
    kind: str = ""
    # Part of a name, of a node or of who asked.
    text: str = ""
    limit: int = 100
    # What the page before said.
    after: str = ""
    # One of SORTS, with a dash before it from the last to the first.
    sort: str = "-created"


@dataclasses.dataclass(frozen=True)
class Page:
    """A page of actions; `more` is for the filters of the next one, empty on the last."""

    actions: t.Sequence[Action]
    more: str = ""


# By what actions can be sorted. What is the same there goes by age.
SORTS: t.Mapping[str, t.Callable[[Action], str]] = {
    "name": lambda action: action.name,
    "phase": lambda action: action.status.phase,
    "verdict": lambda action: action.status.verdict,
    "created": lambda action: action.created,
    "who": lambda action: action.who,
}


def ordered(sort: str) -> t.Tuple[str, bool]:
    """(one of SORTS, whether from the last to the first). ActionError where it is none."""
    name = sort.removeprefix("-")
    if name not in SORTS:
        raise ActionError(f"sort: found {ascii(sort)[:80]}, expected one of {', '.join(SORTS)}, or one of them with a dash before it")
    return name, sort.startswith("-")


def mark(value: str, place: str) -> str:
    """Return a mark of the end of a page, so that the next page begins behind it, whatever was added or removed meanwhile."""
    return json.dumps([value, place], separators=(",", ":"))


def marked(text: str) -> t.Tuple[str, str]:
    """ActionError where it is none that a page has said."""
    try:
        value, place = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        value = place = None
    if not isinstance(value, str) or not isinstance(place, str):
        raise ActionError(f"after: found {ascii(text)[:80]}, expected what the page before said")
    return value, place


@dataclasses.dataclass(frozen=True)
class NodeInfo:
    """A node that actions can be for."""

    name: str
    # None where nobody knows.
    gpus: int | None = None
    free: int | None = None
    labels: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Who uses it now, in words: actions, and pods that hold its devices.
    used_by: t.Sequence[str] = ()
    # Why nothing can run there, in words.
    problem: str = ""
    # What the inventory expects of it; None if it has no expectations of its own, or none that can be read.
    expectations: Expectations | None = None


def known_gpus(nodes: t.Iterable[NodeInfo]) -> dict[str, int]:
    """Return the number of GPUs of the nodes of which it is known."""
    return {node.name: node.gpus for node in nodes if node.gpus is not None}


def known_expectations(nodes: t.Iterable[NodeInfo]) -> dict[str, Expectations]:
    """Return the expectations of the nodes for which the inventory has some."""
    return {node.name: node.expectations for node in nodes if node.expectations is not None}


class Actions(t.Protocol):
    """Everything raises ActionError, and `create` RequestError of `request` too."""

    def create(self, name: str | None, spec: PlainData, who: str, namespace: str = "") -> Action:
        """A new action; without a name it gets one. Conflict where the name is taken."""

    def get(self, name: str, namespace: str = "") -> Action:
        """NotFound where there is none."""

    def list(self, filters: Filters) -> Page:
        """The actions that match."""

    def set(self, name: str, *, suspend: bool | None = None, cancel: bool | None = None, namespace: str = "") -> Action:
        """Suspend, go on, or cancel. What is cancelled stays so."""

    def delete(self, name: str, namespace: str = "") -> None:
        """A running one is cancelled first; the history of a finished one stays."""

    def changes(self, since: str = "") -> t.Iterator[t.Tuple[str, Action]]:
        """(version, action) of every change behind `since`, all of them without it, for ever; `gone` marks a deleted one. It yields
        whenever something changes, and ends where `since` is too old: whoever listens lists again."""

    def nodes(self) -> t.Sequence[NodeInfo]:
        """The nodes that requests may name."""
