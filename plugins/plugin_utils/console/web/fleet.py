# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet of today for the home page: of each node the worst last verdict of every stage, and why.

A large history takes seconds to read and changes only with a judgement. One thread reads it; pages show the state that was read last.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
import threading
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.actions import ActionError, NodeInfo
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import standing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.open_problems import CauseLine, OpenProblems, WithoutCause
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.past import Past
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import current, searching, worsening
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import Store
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.causes import GOOD
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import keys, subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.parts import Part
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry

# How long a look at the version of the history holds, and how long a page waits for the first reading.
HOLDS_S, FIRST_S = 2.0, 0.6
# Runs whose causes are shown, and those among which the causes of what these do not explain are looked for.
RUNS_WITH_CAUSES, MOST_RUNS = 5, 50
# Of the newest runs, those in which RDMA devices are looked for.
RUNS_WITH_DEVICES = 5
# Label of an inventory's hosts: the group is in its name.
GROUP = "group"
MOST_GROUPS = 400
LOG = logging.getLogger("gpufleet.acceptance.console")


@dataclasses.dataclass(frozen=True)
class NodeState:
    """A node with its worst last verdict of each stage. `judged_at` is that of the last run with it, in seconds. `worse` names the checks
    that became worse than their own past."""

    name: str
    verdicts: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    judged_at: float = 0.0
    run: str = ""
    simulated: bool = False
    worse: tuple[str, ...] = ()

    def verdict(self, stage: str = "") -> str:
        """Return the verdict of a stage, of the worst one without a stage; empty if nothing was measured."""
        if stage:
            return self.verdicts.get(stage, "")
        return min(self.verdicts.values(), key=WORST_FIRST.index, default="")


def requested(name: str) -> str:
    """Return the name of a measured node in requests: behind a cluster's API it is measured as CLUSTER/NODE, and asked for as NODE."""
    return name.rpartition("/")[2]


class WorseLine(t.NamedTuple):
    """A check of a subject with its verdict in the last accepted run and now. `node` is empty if the subject is no node or part of one."""

    name: str
    node: str
    check: str
    before: str
    after: str


class WorseSince(t.NamedTuple):
    """The checks that are worse in a run than in the last accepted run of its nodes."""

    run: str
    accepted: str
    lines: list[WorseLine]


@dataclasses.dataclass(frozen=True)
class FleetState:
    """`devices` has the names of all RDMA devices that each node had when they were last seen, by its name in requests, and `models` the
    model of its GPUs, if they are of one model."""

    nodes: t.Mapping[str, NodeState] = dataclasses.field(default_factory=dict)
    causes: tuple[CauseLine, ...] = ()
    worse: tuple[WorseSince, ...] = ()
    bad_pairs: int = 0
    devices: t.Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    models: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    without_cause: tuple[WithoutCause, ...] = ()

    def measured_as(self, name: str) -> str:
        """Return the name under which a node was measured; the given one if it was not."""
        if name in self.nodes:
            return name
        return next((measured for measured in self.nodes if requested(measured) == name), name)


class FleetReader:
    """Reads the fleet of a history again whenever there is a new judgement."""

    def __init__(self, past: Past, infos: t.Callable[[], t.Iterable[NodeInfo]]) -> None:
        self._past, self._infos = past, infos
        self._lock = threading.Lock()
        self._looked_at = float("-inf")
        self._version: tuple[int, int] | None = None
        self._state: FleetState | None = None
        self._problem = ""
        self._read = threading.Event()

    def state(self) -> tuple[FleetState | None, str]:
        """Return the state that was read last, None while the first reading goes on, and why the last reading failed, or an empty text."""
        if time.monotonic() - self._looked_at > HOLDS_S and self._lock.acquire(blocking=False):
            threading.Thread(target=self._look, name="console-fleet", daemon=True).start()
        self._read.wait(FIRST_S)
        return self._state, self._problem

    def _look(self) -> None:
        """Read the fleet if its history has changed. Holds the lock, which the caller took."""
        try:
            store = self._past.store()
            version = current.version(store) if store else (0, 0)
            if version != self._version or self._problem:
                self._state = self._state_of(store) if store else FleetState()
                self._version = version
            self._problem = ""
        except RunError as error:
            self._problem = str(error)
        except Exception as error:  # whatever it is, the page is shown, and says so
            LOG.exception("reading the fleet")
            self._problem = f"the history cannot be read: {type(error).__name__}: {error}"
        finally:
            self._looked_at = time.monotonic()
            self._read.set()
            self._lock.release()

    def _state_of(self, store: Store) -> FleetState:
        known = self._known()
        fleet = current.fleet(store, exists=lambda name: name in known or requested(name) in known)
        failed_in = self._let_failures_stand(store, fleet)
        nodes = {name: _node_state(name, node) for name, node in fleet.nodes.items() if node.kind == "node"}
        bad_pairs = sum(any(result.verdict in ("FAIL", "UNKNOWN") for result in results.values()) for results in fleet.pairs.values())
        not_accepted = [run.name for run in fleet.runs if not run.accepted]
        devices: dict[str, frozenset[str]] = {}
        models: dict[str, str] = {}
        for run in reversed(fleet.runs[:RUNS_WITH_DEVICES]):
            seen = self._past.seen(run.name)
            devices.update((requested(name), names) for name, names in seen.devices.items())
            models.update((requested(name), model) for name, of_node in seen.parts.items() if (model := _gpu_model(of_node)))
        problems = self._problems(fleet, sorted({*not_accepted, *failed_in}, reverse=True))
        worse = tuple(_worse(store, fleet, not_accepted))
        return FleetState(nodes, problems.worst_first(), worse, bad_pairs, devices, models, problems.without_cause())

    def _let_failures_stand(self, store: Store, fleet: current.Fleet) -> set[str]:
        """Give checks that the newest run with them did not measure the failure that stands, as the page of the node has it. Return the
        runs of these failures."""
        open_checks = {
            name: {check for check, result in node.checks.items() if result.verdict in standing.NOT_MEASURED}
            for name, node in fleet.nodes.items() if node.kind == "node"
        }  # fmt: skip
        failed: set[str] = set()
        runs: set[str] = set()
        words = ",".join(word for word in WORST_FIRST if word not in (*GOOD, *standing.NOT_MEASURED))
        query = searching.Query(verdict=words, since=f"{current.DAYS}d")
        for _run, rows in searching.found_in_runs(store, query) if any(open_checks.values()) else ():
            for row in rows:
                node = keys.node_of(row["subject"])
                if current.Check(row["stage"], row["check"], row["variant"]) in open_checks.get(node, ()):
                    failed.add(node)
        for name in failed:
            worst: dict[current.Check, current.CurrentResult] = {}
            for row in standing.read(self._past, name).stands:
                check = current.Check(row["stage"], row["check"], row["variant"])
                result = current.CurrentResult(
                    row["verdict"], row["value"], row["floor"], row["expected"], row["metric"], row["unit"], row["regressed"]
                )
                if check in open_checks[name] and keys.node_of(row["subject"]) == name and row["verdict"] not in GOOD:
                    worst[check] = max(worst.get(check, result), result, key=lambda one: one.badness)
                    runs.add(row["run"])
            fleet.nodes[name].checks.update(worst)
        return runs

    def _known(self) -> set[str]:
        try:
            return {info.name for info in self._infos()}
        except ActionError:
            return set()  # the page says so by itself

    def _problems(self, fleet: current.Fleet, runs: t.Sequence[str]) -> OpenProblems:
        """Return the open problems by the causes of runs, the newest first. A run whose report cannot be read is a line that says so."""
        problems = OpenProblems(fleet)
        for number, run in enumerate(runs[:MOST_RUNS]):
            is_older = number >= RUNS_WITH_CAUSES
            if is_older and problems.is_explained:
                break
            try:
                problems.add(run, self._past.causes(run), only_unexplained=is_older)
            except RunError as error:
                problems.add_unreadable(run, str(error))
            except Exception as error:  # a report of another form
                LOG.exception("reading the causes of run %s", run)
                problems.add_unreadable(run, f"run {run}: report.json cannot be read: {type(error).__name__}")
        return problems


def _gpu_model(parts: t.Mapping[str, Part]) -> str:
    """Return the model of the GPUs among the parts of a node; empty if it is not known, or there are several."""
    found = {part.model for key, part in parts.items() if key.startswith("gpu/")}
    return found.pop() if len(found) == 1 else ""


def _worse(store: Store, fleet: current.Fleet, runs: t.Sequence[str]) -> t.Iterator[WorseSince]:
    """Yield what the newest runs that were not accepted have made worse, each check once."""
    named: set[tuple[str, current.Check]] = set()
    for run in runs[:RUNS_WITH_CAUSES]:
        since = worsening.since_accepted(store, run)
        lines = []
        for row in since.checks if since else ():
            subject = keys.node_of(row.subject)
            node = fleet.nodes.get(subject)
            known = node.checks if node else fleet.pairs.get(keys.ends_of(subject), {})
            # A check that is good now was measured by a newer run.
            if (row.subject, row.check) not in named and row.check in known and known[row.check].verdict not in GOOD:
                named.add((row.subject, row.check))
                of_node = subject if node and node.kind == "node" else ""
                check = f"{row.check.stage} {row.check.check}"
                lines.append(WorseLine(subjects.spoken(row.subject), of_node, check, row.before, row.after))
        if since and lines:
            yield WorseSince(run, since.accepted, lines)


def _node_state(name: str, node: current.CurrentNode) -> NodeState:
    verdicts: dict[str, str] = {}
    for check, result in node.checks.items():
        worst = verdicts.get(check.stage)
        if worst is None or WORST_FIRST.index(result.verdict) < WORST_FIRST.index(worst):
            verdicts[check.stage] = result.verdict
    worse = tuple(f"{check.stage} {check.check}" for check, result in node.checks.items() if result.regressed)
    return NodeState(name, verdicts, node.judged_at, node.run, node.simulated, worse)


# What a page shows ---------------------------------------------------------------------------------------------------------------------


def stages_of(nodes: t.Iterable[NodeState]) -> list[str]:
    """Return the stages that were measured on any of these nodes, in the order in which they run."""
    places = {name: stage.place for name, stage in registry.shipped().items()}
    measured = {stage for node in nodes for stage in node.verdicts}
    return sorted(measured, key=lambda stage: (places.get(stage, 10**6), stage))


def groupings(infos: t.Collection[NodeInfo]) -> list[str]:
    """Return the labels by which nodes can be grouped: those that make more than one group and not one for each node."""
    values: dict[str, set[str]] = collections.defaultdict(set)
    for info in infos:
        for label, text in info.labels.items():
            prefix = label.partition("/")[0]
            values[GROUP if prefix == GROUP else label].add(label if prefix == GROUP else text)
    return sorted(label for label, texts in values.items() if 1 < len(texts) <= min(MOST_GROUPS, max(2, len(infos) // 2)))


def group_of(info: NodeInfo | None, label: str) -> str:
    """Return the group of a node by a label; empty if it has none."""
    if info is None or not label:
        return ""
    if label == GROUP:
        return next((name.partition("/")[2] for name in info.labels if name.startswith(f"{GROUP}/")), "")
    return info.labels.get(label, "")


class Wall(t.NamedTuple):
    """The nodes of a group as a picture: a strip for each node, a cell in it for each stage. `paths` is {verdict: path of an SVG}."""

    name: str
    counts: t.Mapping[str, int]
    width: int
    height: int
    paths: t.Mapping[str, str]
    places: t.Sequence[tuple[int, int, NodeState]]
    strip: int


# Nodes in a row, width of a strip, height of the cell of a stage, and the room below a row, in units of the picture.
COLUMNS, STRIP, CELL, ROOM = 100, 10, 6, 6


def wall(name: str, nodes: t.Sequence[NodeState], stages: t.Sequence[str]) -> Wall:
    """Return the picture of a group. Neighbours with the same verdict are one piece, so that 5,000 nodes are a few kilobytes of paths."""
    cell = CELL * 2 if len(stages) == 1 else CELL
    strip = cell * max(1, len(stages))
    pieces: dict[str, list[str]] = collections.defaultdict(list)
    places = []
    for first in range(0, len(nodes), COLUMNS):
        row = nodes[first : first + COLUMNS]
        top = first // COLUMNS * (strip + ROOM)
        places += [(number * STRIP, top, node) for number, node in enumerate(row)]
        for number, stage in enumerate(stages):
            begin = 0
            for end in range(1, len(row) + 1):
                verdict = row[begin].verdict(stage)
                if end == len(row) or row[end].verdict(stage) != verdict:
                    width = (end - begin) * STRIP
                    pieces[verdict or "none"].append(f"M{begin * STRIP} {top + number * cell}h{width}v{cell - 1}h-{width}z")
                    begin = end
    rows = -(-len(nodes) // COLUMNS)
    counts = collections.Counter(node.verdict() for node in nodes)
    return Wall(
        name, {word: counts[word] for word in (*WORST_FIRST, "") if counts[word]}, min(len(nodes), COLUMNS) * STRIP,
        max(1, rows * (strip + ROOM) - ROOM), {verdict: "".join(of_verdict) for verdict, of_verdict in pieces.items()}, places, strip,
    )  # fmt: skip
