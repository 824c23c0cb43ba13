# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base classes of planes. A plane knows how to find the nodes behind an inventory host, and how to run a stage on them.

A plane is a folder here with a module `plane` that has a PLANE. Other code calls its methods and never compares its name.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import time
import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import membership
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import live, payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.answers import interpret
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.node_control import NodeControl
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.progress import Progress
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.upkeep import Operation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import driver, withheld
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import write_atomically
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import Check, Completer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, PlannedRun, Todo, TodoItem, Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeWork
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.plain import plain
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import (
    Run,
    RunError,
    facts_of,
    has_facts,
    node_file,
    readable,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry as stages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import GROUP, Stage, StageWork, stands_for_nodes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import Range


class Subjects(t.NamedTuple):
    """The nodes behind an inventory host: their subject ids, including expected nodes that are missing; notes for the operator; and
    {subject id: identity}, by which a node is known behind another inventory host too, as far as it has one."""

    ids: list[str]
    notes: list[str]
    identities: t.Mapping[str, str] = {}


class Plane:
    """One way to reach nodes. `settings` are the variables of an inventory host on this plane."""

    name: str = ""
    # Variables that say how to reach a host. A resumed run takes them from the current inventory.
    connection_variables: t.FrozenSet[str] = frozenset()
    # Prefixes of the variables that have an effect on this plane only. On hosts of other shipped planes they are refused.
    variables: tuple[str, ...] = ()
    # Its variables that the argument specs of the collection do not have, {variable: argument spec}; they begin with acceptance_. They are
    # among the settings of its hosts, and those with no_log are in no file of a run.
    options: t.Mapping[str, PlainData] = {}
    # The ranges of its variables that are numbers: {variable: range}.
    ranges: t.Mapping[str, Range] = {}
    # Variables whose value no file of a run may hold, and variables that are written without the values of an environment.
    hidden: tuple[str, ...] = ()
    partly_hidden: tuple[str, ...] = ()
    # True if a stage that continues (Stage.continues) goes on here without its controller.
    outlives_controller: bool = False
    # True if one inventory host stands for many nodes; None: it does if it has a reachability domain.
    nodes_behind: bool | None = None
    # True if a device plugin or the like, and not the inventory, decides which GPUs a test gets. Fewer GPUs than before are then no fault.
    lends_devices: bool = False
    # What an operator can do here to runs from beside them, {name of the playbook: what does it}. The playbook skips hosts of other planes.
    operations: t.Mapping[str, Operation] = {}
    # The role that installs the console behind a host; empty if there is none.
    console_role: str = ""

    def subjects(self, host: str, settings: Variables) -> Subjects | tuple[list[str], list[str]]:
        """Return the nodes behind an inventory host, none if they cannot be found out."""
        raise NotImplementedError

    def reachability_domain(self, host: str) -> str:
        """Return the reachability domain of the nodes behind a host. Nodes of one domain reach one another and are measured in pairs: those
        behind one host, or, with an empty name, all machines that stand in the inventory themselves."""
        return ""

    def problem(self, host: str, settings: Variables, stages: t.Sequence[Stage]) -> str | None:
        """Return what is wrong with the settings of a host for these stages, None if nothing is. Does not contact the host."""
        return None

    def unsupported_variables(self, names: t.Iterable[str]) -> list[str]:
        """Return those of some variables that have no effect on this plane."""
        return []

    def chosen(self, nodes: t.Sequence[str]) -> Variables:
        """Return the variables by which a run measures these nodes only; here the nodes are hosts of the inventory, in a host pattern."""
        return {"acceptance_hosts": ",".join(nodes)}

    def chosen_by(self, variables: t.Mapping[str, t.Any]) -> list[str]:
        """Return the nodes that the variables of chosen() name; empty if they choose nodes in another way."""
        return str(variables["acceptance_hosts"]).split(",") if "acceptance_hosts" in variables else []

    def placed(self, namespace: str, image: str) -> Variables:
        """Return the variables by which the tests of a request to the console run in this namespace and from this image. Either may be
        empty. Here: none, since the tests run on the nodes themselves."""
        return {}

    def own_facts(self, settings: Variables) -> t.Sequence[str]:
        """Return patterns of the facts that a probe on this plane does not read from the machine itself. They are compared only among the
        nodes of this plane; all other facts are compared with other planes too."""
        return ()

    def refuses(self, stage: Stage) -> str | None:
        """Return why a stage can never run on this plane, None if it can."""
        return None

    def manifest_problem(self, manifest: t.Any) -> str | None:
        """Return what is wrong with the manifest of a stage, None if this plane can put it on nodes, empty if it takes no manifests."""
        return ""

    def select(self, host: str, settings: Variables, entry: t.Mapping[str, t.Any]) -> list[str]:
        """Return the subject ids of the nodes that an entry of acceptance_node_vars selects."""
        raise RunError(f"{host}: acceptance_node_vars is for hosts with nodes behind them; the variables of {host} are its own")

    def why_not_detachable(self, host: str, settings: Variables, stages: t.Sequence[Stage]) -> str | None:
        """Return why these stages cannot run without a controller (acceptance_detach), None if they can."""
        return f"{host}: what runs on plane {self.name} needs its controller"

    def notes(self, host: str, settings: Variables, stages: t.Collection[str]) -> list[str]:
        """Return a note for each setting that has no effect on a run of these stages."""
        return []

    def preflight(self, host: str, settings: Variables, stages: t.Sequence[Stage]) -> list[str]:
        """Return, in check mode, what these stages would check before they create anything, as lines for people. Changes nothing."""
        return []

    def node_control(self, host: str, variable: t.Callable[[str], t.Any]) -> NodeControl | None:
        """Return what takes the nodes behind a host out of service and gives them back, without contacting anything; None if nothing here
        does. `variable` returns the value of a variable of the host, None if it has none. Raise RunError for a wrong one."""
        return None

    def on(self, action: t.Any, planned: PlannedRun, task_vars: Variables) -> StageOnTarget:
        """Return one stage of a run on one inventory host, ready to run."""
        raise NotImplementedError


class StageOnTarget:
    """One stage of one run on one inventory host, on any plane.

    `action.module` is the probe module of the stage. `planned` is {(check, variant, subject id): item of the todo}.
    """

    def __init__(self, action: t.Any, planned: PlannedRun, task_vars: Variables, plane: str) -> None:
        self.action = action
        self.vars = task_vars
        self.controller = driver.parent()
        self.acting = Run(planned["results_dir"], planned["run_id"])
        self.host = str(task_vars["inventory_hostname"])
        self.stage = str(task_vars["acceptance_stage"]["name"])
        self.description = stages.of(task_vars["acceptance_stage"])
        # A node of a group gets the options of its membership, whatever module does the work.
        self.spec: PlainData = {**(membership.OPTIONS if self.description.topology == GROUP else {}), **action.spec}
        self.phase = str(task_vars["acceptance_stage"].get("phase", "all"))
        self.detach = bool(planned.get("detached"))
        # The names of the sinks that receive measurements.
        self.sinks: t.Sequence[str] = planned.get("sinks") or ()
        todo = self.acting.mailbox.todo(self.host)
        template = action._templar.template
        secret = {name: plain(template(task_vars[name]), name) for name in todo.get("secret", ()) if name in task_vars}
        saved = todo.get("settings", {})
        secret.update({name: withheld.whole(saved[name], secret[name]) for name in secret if name in saved})
        # As the files of the run have them, without secrets.
        self.public_settings: PlainData = saved
        self.settings: PlainData = {**saved, **secret}
        items = todo.get("stages", {}).get(self.stage, [])
        self.planned: dict[Check, TodoItem] = {(i["check"], i["variant"], i["subject"]["id"]): i for i in items}
        simulated = bool(self.settings.get("acceptance_simulated"))
        behind = stands_for_nodes(self.settings)
        self.progress = Progress(self.acting.mailbox, self.stage, self.description, self.host, self.planned, behind)
        announced = todo.get("announced")
        self.completer = Completer(self.acting, self.stage, self.host, plane, self.planned, simulated, announced)

    def run(self) -> PlainData:
        raise NotImplementedError

    def look(self) -> PlainData:
        """Save the checkpoints of an interrupted attempt, if the nodes of this plane keep any."""
        return {"skipped": True, "changed": False, "skip_reason": "nothing is kept of a stage between nodes here"}

    def in_check_mode(self) -> PlainData:
        """Handle a task in check mode inside a run that is not: measure nothing, and record that for each of its checks."""
        if not self.planned or self.phase in ("start", "look"):
            return {"skipped": True, "changed": False, "skip_reason": "nothing to say in check mode"}
        measurements = interpret({"state": "check_mode"}, self.completer)
        self.keep(measurements)
        return self.result(measurements)

    def args(self) -> PlainData:
        """Return the module's arguments: what the task gives; else the options of the stage's work; else the variable of the stage
        (`nccl_node_warmup` for `warmup`), of the one that it looks after, or of all stages (`acceptance_root` for `root`), as the plan has
        them."""
        work = self.work
        begins = {} if work.starts_in is None else {"begins_in": work.starts_in}
        own = self.description.by_controller
        pairs = dict.fromkeys((check, variant) for check, variant, _subject in self.planned if check not in own)
        checks = [{"check": check, "variant": variant} for check, variant in pairs]
        return {**self.settled(self.spec), "checks": checks, **work.options, **begins, **self.given, "run": self.run_options()}

    @property
    def given(self) -> PlainData:
        """Return the arguments of the task itself."""
        return {k: plain(v, k) for k, v in self.action._task.args.items() if v is not None}

    def settled(self, names: t.Iterable[str]) -> PlainData:
        """Return {option: value} for those of the named options that the plan has a variable for."""
        args: PlainData = {}
        for name in names:
            looks_after = self.description.looks_after
            for prefix in (f"{self.stage}_", *([f"{looks_after}_"] if looks_after else []), "acceptance_"):
                if self.settings.get(prefix + name) is not None:
                    args[name] = self.settings[prefix + name]
                    break
        return args

    def run_options(self) -> PlainData:
        """Return the module's option `run`: run id, stage, phase and grace time, and the interpreters of all stages."""
        grace = self.vars["acceptance_stage"].get("grace")
        given = {} if grace is None else {"grace": grace}
        return {
            "run_id": self.acting.id, "stage": self.stage, "phase": self.phase, "interpreters": self.interpreters,
            "output": self.output_path, **given,
        }  # fmt: skip

    @property
    def output_path(self) -> str:
        """Return the path of the file on each node that shows the output of its tool."""
        return live.path_on_node(self.acting.id, self.stage, self.host)

    @property
    def interpreters(self) -> dict[str, str]:
        """Return {variable: path} of the Pythons that the stages of the run name by a path. The first stage that comes to a node tells of
        a missing one, before any load."""
        common = self.settings.get("acceptance_python")
        named = {name: path for name, path in self.settings.items() if name.endswith("_python") and not name.startswith("acceptance_")}
        paths = {name: path for name, path in named.items() if isinstance(path, str) and "/" in path}
        return {"acceptance_python" if path == common else name: path for name, path in paths.items()}

    def request(self, args: PlainData) -> NodeWork:
        """Return the request to a node for the stage's work with these arguments. Raise ValueError for wrong arguments."""
        return payload.request(self.action.module, self.spec, args, self.description.probe)

    @functools.cached_property
    def work(self) -> StageWork:
        """The work of this target, which the first worker of the stage computes for all targets. The checks that it keeps leave
        `planned`; `starts_in` is counted from now."""
        if not self.description.between:
            return StageWork()

        def compute() -> dict[str, PlainData]:
            todos = self.acting.mailbox.todos(self.stage)
            works = stage_works(self.description, self.description.work(self.acting, self.acting.plan(), todos), todos)
            computed_at = time.time()
            return {target: {"computed_at": computed_at, **vars(work)} for target, work in works.items()}

        record = self.acting.mailbox.compute_once(self.stage, self.host, compute)
        computed_at = record.pop("computed_at", 0.0)
        work = StageWork(**record)
        for check, variant, subject in work.keep:
            self.planned.pop((check, variant, subject), None)
        if work.starts_in is not None and not work.per_node:
            # All targets begin at one moment. Each gets the seconds that are left, since its clock may differ from ours.
            work.starts_in = max(0.0, computed_at + work.starts_in - time.time())
        return work

    def keep(self, measurements: list[PlainData]) -> None:
        """Append measurements to the journal. Raise RunError if another controller has taken over the run."""
        if not self.acting.is_mine(self.controller):
            raise RunError(f"run {self.acting.id} was taken over by another controller")
        self.keep_facts(measurements)
        self.acting.journal.append(measurements)
        if self.sinks:
            self._tell_sinks(measurements)

    def _tell_sinks(self, measurements: list[PlainData]) -> None:
        """Pass measurements to the sinks that receive them. Sinks are imported only here, so a run without sinks does not load them."""
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks import registry, telling
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Kept

        try:
            chosen = registry.chosen(registry.requested(self.settings), self.sinks)
            notes = telling.kept(chosen, Kept(self.acting.id, self.acting.dir, self.stage, self.host, measurements))
        except Exception as error:  # a failing sink must not lose measurements
            notes = [f"no sink was called for {self.stage} on {self.host}: {type(error).__name__}: {error}"]
        for note in notes:
            Display().display(f"note: {note}", color="yellow")

    def result(self, measurements: list[PlainData]) -> PlainData:
        """Return the result of the task."""
        return {
            "changed": False,
            "msg": "; ".join(sorted({m["reason"] or f"{m['check']} measured" for m in measurements})),
            "outcomes": {f"{m['subject']['id']} {m['check']} {m['variant']}".strip(): m["outcome"] for m in measurements},
        }

    def keep_facts(self, measurements: list[PlainData]) -> None:
        for m in measurements:
            if has_facts(m):
                write_atomically(self.acting.dir / "nodes" / node_file(m["subject"]["id"]), readable(facts_of(m)))


def stage_works(stage: Stage, works: t.Mapping[str, StageWork | PlainData], todos: t.Mapping[str, Todo]) -> dict[str, StageWork]:
    """Return what `Stage.work` returned, with plain dicts {option: value} of a team's older stage as StageWork, and warn about them once.

    Such a dict may have the keys "kept", "begins_at" (a time of this clock), "answer" and, for a cluster, "nodes" besides its options. The
    next release drops this.
    """
    if any(isinstance(work, dict) for work in works.values()):
        Display().warning(
            f"stage {stage.name}: its work() returned plain dicts, expected base.StageWork(options=...) for each target; "
            "the next release does not take them (docs/stages.md)"
        )
    return {target: work if isinstance(work, StageWork) else _work_of(work, todos.get(target, {})) for target, work in works.items()}


def _work_of(old: PlainData, todo: Todo) -> StageWork:
    options = dict(old)
    begins_at = options.pop("begins_at", None)
    return StageWork(
        keep=[tuple(key) for key in options.pop("kept", ())],
        starts_in=None if begins_at is None else max(0.0, begins_at - time.time()),
        answer=options.pop("answer", None),
        per_node=options.pop("nodes", {}) if stands_for_nodes(todo.get("settings", {})) else {},
        options=options,
    )
