# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The description of a stage. Code that needs to know something about a stage asks its description, never its name.

A shipped stage has a module here with `STAGE = ...()`; a team's own one has the same in `files/stage.py` of its role, or nothing at
all where it is like the class below: every node by itself, and a number for every check. docs/stages.md is the way through it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import member
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.causes import Blame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    JudgingInputs,
    Level,
    Match,
    Measurement,
    PlainData,
    Plan,
    PlanItem,
    Subject,
    Todo,
    Variables,
    Verdict,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Section
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import Range

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run

# {node's subject id: the target that measures it}, in the order of the inventory.
Nodes = t.Mapping[str, str]
# {target: its variables}
Settings = t.Mapping[str, Variables]
# The expectations of a node, or of what a target measured.
Expected = t.Callable[[str, str], Expectations]

# How the nodes of a stage work, which is what a plane needs to know of it.
ALONE = "alone"  # every node by itself
ROUNDS = "rounds"  # every node walks a timetable of tests with partners
TOGETHER = "together"  # every node walks a timetable of its own, and all begin together
GROUP = "group"  # the head of a group launches over the others
MANIFEST = "manifest"  # a manifest of the user's, on clusters only
CLUSTER = "cluster"  # its subject is a whole cluster; the stage itself asks the API (Stage.on_cluster)

LEVELS: tuple[Level, ...] = t.get_args(Level)

# The check of a node that is one of a group: that it takes part.
MEMBER = member.CHECK
# The check of a node that walks a timetable: its own, beside those of its pairs.
TIMETABLE = "timetable"


class Isolation(t.TypedDict, total=False):
    """The needs of a stage whose probe runs in an isolated environment of its own, such as a pod, in addition to those of every stage.

    `limits` are extended resources, and `lacks` is the reason code for a node without them. `devices` is how many devices of the node the
    probe gets, if not all. `patch` is like acceptance_kube_pod_patch. `on_gpu_nodes` is False if the stage runs on nodes without GPUs too.
    `ports` are the options by which the probe of a timetable finds the ports of a network of its own. `governor_switch` is the variable
    that lets a privileged helper on the node switch the CPU governor for the tests.
    """

    host_root: bool
    host_network: bool
    capabilities: t.Sequence[str]
    annotations: t.Mapping[str, str]
    limits: t.Mapping[str, t.Any]
    devices: int
    patch: PlainData
    on_gpu_nodes: bool
    lacks: str
    ports: PlainData
    governor_switch: str


class HeadFloor(t.TypedDict):
    """An expectation as the head of a group gets it; `rank` orders the layers, the weakest has 0."""

    match: Match
    value: float
    rank: int


@dataclasses.dataclass
class StageWork:
    """The work of one target in a stage, settled once when the stage begins.

    `options`: options of the stage's module, {name: value}.
    `keep`: planned checks of the target, (check, variant, subject id), that stay as an earlier attempt measured them.
    `starts_in`: seconds from now after which the targets begin together, by the controller's clock; on a cluster, seconds after its pods
    have met. The module has it as its option `begins_in`. None: the module needs no common start.
    `answer`: the result of the module, {"state": "done", "end": "done", "observations": [...]}, if it is known without running it.
    `per_node`: on a cluster, what each of its nodes has to do, {node's subject id: options}.
    """

    options: PlainData = dataclasses.field(default_factory=dict)
    keep: t.Sequence[tuple[str, str, str]] = ()
    starts_in: float | None = None
    answer: NodeAnswer | None = None
    per_node: dict[str, PlainData] = dataclasses.field(default_factory=dict)


def nothing_asked() -> NodeAnswer:
    """Return the answer of a node of whose timetable nothing is left to walk."""
    note = "nothing had to be measured again here"
    return {"state": "done", "end": "done", "observations": [observation.measured(TIMETABLE, context={"note": note})]}


def settings_of(plan: Plan, target: str) -> Variables:
    """Return the settings of a target in the plan: the variables of its stages that have an argument spec."""
    if plan.settings is None:
        raise KeyError(target)  # a plan of an older version
    return plan.settings.sets[plan.settings.of[target]]


def stands_for_nodes(settings: Variables) -> bool:
    """Return True if the host with these settings stands for many nodes, as its plane says (Plane.nodes_behind)."""
    # The first one is there only if it says something else than the second one.
    return bool(settings.get("acceptance_nodes_behind", settings.get("acceptance_realm")))


# Seconds of load from which on a check shows heat, power and throttling over time: coolers and supplies need minutes to become warm.
OVER_TIME_S = 300.0


def too_short(fault: str, seconds: float) -> str | None:
    """Return why a load of so many seconds does not show a class of faults; None if it does, or if its length does not matter."""
    if fault != "thermal" or seconds >= OVER_TIME_S:
        return None
    return f"{seconds:.0f} s of load, and heat builds up over minutes (from {OVER_TIME_S / 60:.0f} min on)"


class Stage:
    """The description of one stage. Attributes and methods are what it may say of itself; what it does not say holds as here."""

    name: str = ""
    # The role that measures it; a shipped one has its name.
    role: str = ""
    # What it brings along where it is named: facts that it needs before it, the confirmation of what it suspects after it.
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    # Stages that it brings to the end of the run, if a stage that `loads` the nodes follows it: a second look at what it has looked at.
    last: tuple[str, ...] = ()
    # It works the machines. What looks or asks only does not.
    loads: bool = True
    # The stage of which it is the second look: it takes the variables of that stage, and its findings are those that are new since then.
    looks_after: str = ""
    # How its nodes work together: ALONE, ROUNDS, TOGETHER, GROUP, MANIFEST or CLUSTER.
    topology: str = ALONE
    # The probe of a stage between nodes leaves checkpoints of what is finished (module_utils/system/checkpoints.py), which a resume uses.
    saves_checkpoints: bool = False
    # Its probe measures single nodes for so long that it outlives controller and node: it is started everywhere and collected then, and the
    # checkpoints that it leaves hold for a later attempt and after a reboot.
    continues: bool = False
    # Its work depends on the checkpoints of all nodes: a resume asks for them before (`finished` in `work`).
    queries_checkpoints: bool = False
    # A check is worth nothing without a number, or with one that nobody expects, but for these, which pass by being done.
    conditions: frozenset[str] = frozenset()
    # Conditions whose number is shown and compared with nothing.
    shown_only: frozenset[str] = frozenset()
    # Checks that a quick test passes by their being right, if nobody expects a number of this hardware. The report then names their speed
    # as not proven. In a whole run they need an expectation like any other.
    quick_conditions: frozenset[str] = frozenset()
    # A host may have no check of it, which a note of items() says.
    optional: bool = False
    # Its checks prove something together, which proof() says.
    gated: bool = False
    # Its probe gets the GPUs of a node, if it runs in an isolated environment.
    devices: bool = False
    # The ranges of its numbers, {name of the variable without NAME_: range}, if the end of the name does not say it (planning/ranges.py).
    ranges: t.Mapping[str, Range] = {}
    # Variables that hold a list of networks, without NAME_.
    networks: tuple[str, ...] = ()
    # It measures the facts and the addresses of nodes: rules for facts are its variables, and stages between nodes take the addresses.
    finds_facts: bool = False
    # The context of its measurements tells of all GPUs of the node: the numbers of GPUs that stages saw are compared.
    sees_all_gpus: bool = False
    # {class of faults (faults.py): its checks that can show one; empty for all but its conditions}. Whether a measurement of
    # them did look says lacks().
    sees: t.Mapping[str, tuple[str, ...]] = {}
    # {check: (stage, key of the context that names a check of that stage)}: the check does the same work as the other one and is held to
    # the expectations of the other one if it has none of its own.
    same_work: t.Mapping[str, tuple[str, str]] = {}
    # If positive, its variable `leaf` says where nodes are connected; if a host has several such variables, that of the stage with the
    # highest number counts.
    leaf_rank: int = 0
    # Its measurements are the map of the network (stages/network.py).
    maps: bool = False
    # What its proof() begins the names of unproven parts with.
    unproven: str = ""
    # Its place where stages are listed for people and where the stages of a level run, the lowest first.
    place: int = 100
    # The lowest level that has the stage. Empty: a run has it only if acceptance_stages names it.
    level: str = ""
    # The variables of it, without its name, that a request to the console may set: never one that holds a path, a program, arguments, an
    # environment or a setting of pods. Empty if no request may name the stage.
    requestable: tuple[str, ...] = ()
    # Of these, the ones that a request must set: nobody asks for days of load by saying nothing.
    must_request: tuple[str, ...] = ()
    # Its variables, lists, of which each combination of values is a command of its own (`command`).
    command_axes: tuple[str, ...] = ()
    # The collective library that it measures, as a request to the console names it.
    library: str = ""
    # Stages that a request to the console runs before it, which the plan would not bring.
    requested_before: tuple[str, ...] = ()
    # Its variables in a quick test, {name behind NAME_: value}, and what that does not show.
    quick: t.Mapping[str, t.Any] = {}
    not_proven: str = ""
    # Variables that it has besides those of its role, which may say them otherwise: {name behind NAME_: argument spec with a default}.
    variables: t.Mapping[str, PlainData] = {}
    # Short names of its variables on the command line, each without its name: -e SHORT wins over the inventory's NAME_SHORT.
    short_names: tuple[str, ...] = ()
    # Other stages whose numbers its `sections` show beside its own.
    beside: tuple[str, ...] = ()
    # Its checks that the controller makes by `observe`, without the node.
    by_controller: frozenset[str] = frozenset()
    # The code that runs on the nodes, where it is not a file of this collection's probes/: a path.
    probe: str = ""

    def is_condition(self, check: str, quick: bool) -> bool:
        """Return True if a check passes by being done, without an expectation of its number, in a whole run or in a quick test."""
        return check in self.conditions or (quick and check in self.quick_conditions)

    @property
    def between(self) -> bool:
        """Return True if the nodes of the stage work with each other."""
        return self.topology in (ROUNDS, TOGETHER, GROUP, CLUSTER)

    def items(self, nodes: Nodes, settings: Settings) -> tuple[t.Sequence[PlanItem | PlainData], list[str]]:
        """Return the items of the plan, and notes for people. Raises RunError for settings that make no sense. Here: each node with each of
        its `NAME_checks`.

        A team's own stage may return plain data, {"check", "variant", "subject", "target"}. `refused` of a group says why its nodes do not
        make one.
        """
        items: list[PlanItem | PlainData] = []
        for node, target in nodes.items():
            subject = Subject("node", node, [])
            items += [PlanItem(self.name, check, variant, subject, target) for check, variant in settings[target][f"{self.name}_checks"]]
        return items, []

    def by_number(self, nodes: Nodes) -> Variables:
        """Return the variables that follow from the number of nodes that the stage works on now, {name behind NAME_: value}. The inventory
        may say them otherwise."""
        return {}

    def problem(self, settings: Variables) -> str | None:
        """Return the error in the settings of one host, with the variable, what was found and what is expected, or None; called before
        anything is measured."""
        return None

    def lacks(self, fault: str, measurement: Measurement) -> str | None:
        """Return why a measurement of one of the checks that `sees` names could not show a class of faults on its nodes; None if it could.

        Here: a check must have a number, or say what it has looked at (`looked_for` of its context), or have found a defect.
        """
        looked = measurement.metrics or measurement.series or measurement.context.get("looked_for")
        return None if looked or measurement.outcome != "measured" else "it has no number and does not say what it looked at"

    def question(self, nodes: Nodes, settings: Settings) -> str | None:
        """Return the question to a person at a terminal before anything is measured, or None."""
        return None

    def complete(self, items: list[PlanItem], remaining: t.AbstractSet[Key]) -> t.AbstractSet[Key]:
        """Return the keys of those `items` of the plan, which are this stage's, that must be measured again because of what is
        `remaining` of the whole plan."""
        return frozenset()

    def remeasure(self, last: t.Mapping[Key, Measurement], records: t.Sequence[Measurement]) -> t.AbstractSet[Key]:
        """Return the planned checks that a resume measures again although they were measured. `last` are their last measurements, `records`
        all measurements of this stage. `work` may still keep some of the checks (`StageWork.keep`)."""
        return frozenset()

    def work(self, run: Run, plan: Plan, todos: dict[str, Todo]) -> dict[str, StageWork]:
        """Return the work of each target, computed once when a stage between nodes begins.

        `todos` is {target: {"stages": {stage: [item of the plan]}, "settings": {variable: value}}}. If a run is resumed that was in this
        stage, a todo also has "finished", the keys of the target's checkpoints.
        """
        return {}

    def among(self, work: StageWork, able: t.Collection[str]) -> PlainData:
        """Return the options that follow from which nodes behind a host take part, the same for all, of a stage whose topology is TOGETHER.
        `work` is that of the host, `able` are the subject ids of these nodes."""
        return {}

    def command(self, settings: Variables, nodes: int) -> list[str]:
        """Return a command that runs on its nodes, in words for people. `settings` has the variables of stages, `nodes` is the number of
        nodes. What only the nodes know stands in capitals. Empty if there is none to show."""
        return []

    def judged_contexts(self, settings: Variables) -> list[Variables]:
        """Return the context of each number that is compared with an expectation, as far as `settings` tell it: `check`, and `size` in
        bytes if the stage measures one. Here: its operations. Empty if nothing is known before the run."""
        return [{"check": operation} for operation in settings.get(f"{self.name}_ops") or ()]

    def observe(self, check: str, variant: str, settings: Variables) -> Observation:
        """Return the observation of one of the checks that are `by_controller`. `settings` are the variables of the machine, secrets among
        them, which no observation may hold."""
        raise NotImplementedError

    def seconds(self, settings: Variables, nodes: int, launch_s: float, gbps: float) -> float:
        """Return about how many seconds it takes if nothing hangs. `launch_s` is the time of one check that does not say it, `gbps` the
        speed of links in Gb/s."""
        checks = 1
        for axis in ("ops", "gpus", "sizes", "types", "shapes", "modes"):
            values = settings.get(f"{self.name}_{axis}")
            checks *= len(values) if isinstance(values, list) else 1
        each = settings.get(f"{self.name}_check_seconds")
        measuring = settings.get(f"{self.name}_seconds")
        check_s = float(each if isinstance(each, (int, float)) else launch_s)
        return checks * (check_s + (float(measuring) if isinstance(measuring, (int, float)) else 0.0)) + self.burn_in_seconds(settings)

    def shorter(self, settings: Variables) -> t.Sequence[t.Mapping[str, t.Any]]:
        """Return what makes it shorter than `settings` do, each {name behind NAME_: value}, the longest first."""
        return ()

    def burn_in_seconds(self, settings: Variables) -> float:
        """Return for how many seconds it loads the node beside its checks."""
        return 60.0 * float(settings.get(f"{self.name}_minutes") or 0)

    def on_cluster(self) -> type[t.Any]:
        """Return the class that runs a stage of the topology CLUSTER: a StageOnCluster of planes/kubernetes/stages/nodes.py with a
        `measure` of its own."""
        raise NotImplementedError

    def foreseen(self, host: str, settings: Variables) -> list[str]:
        """Return what check mode shows of a stage of the topology CLUSTER, as lines of text. Creates nothing."""
        return []

    def floors(self, plan: Plan, target: str) -> list[HeadFloor]:
        """Return the expectations that the head of a group of `target` needs, for a stage over groups."""
        return []

    def isolation(self, settings: Variables) -> Isolation:
        """Return what the probe needs in an isolated environment."""
        return {}

    def tables(self, records: list[Measurement], expected: Expected) -> list[Table]:
        """The tables of tests between pairs, made once for the opinions and for the report, which draws them."""
        return []

    def sections(self, rows: list[tuple[Verdict, Measurement]]) -> list[Section]:
        """Return the sections of the report for the stage besides its checks, tables and their charts (records/report_rows.py). `rows` are
        its verdicts and those of the stages `beside` it, each with the measurement that decided."""
        return []

    def files(self, run_id: str, rows: list[tuple[Verdict, Measurement]]) -> dict[str, str]:
        """{path below the run's folder of its name: text}, what it writes beside the forms of the report."""
        return {}

    def proof(self, rows: list[tuple[Verdict, Measurement]]) -> tuple[str, str]:
        """Return, for a `gated` stage, why a run cannot be accepted although each of its checks could be, and what is not proven;
        `rows` as for sections()."""
        return "", ""

    def derived(self, deciding: t.Mapping[Key, Measurement], plan: Plan, inputs: JudgingInputs) -> list[Measurement]:
        """Return records of subjects that only the measurements of several nodes together name, as an NVLink domain. They are judged like
        measurements and stand in no journal."""
        return []

    def opinions(
        self, deciding: t.Mapping[Key, Measurement], records: list[Measurement], expected: Expected, tables: list[Table]
    ) -> t.Iterator[tuple[Key, Opinion] | Blame]:
        """Yield the opinions that follow from the stage's measurements together, and the subjects that they convict. `deciding` is the
        attempt that
        counts of each key, `records` are all, those of one key in the order of their attempts, `tables` what it made of them."""
        return iter(())
