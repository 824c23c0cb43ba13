# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan: which (stage, check, subject) this run intends to measure, written before the first measurement.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import difflib
import json
import platform
import random
import typing as t

from ansible.errors import AnsibleError
from ansible.module_utils.ansible_release import __version__ as ansible_version
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.template import Templar
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.observation import utc
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import base
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry as planes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import (
    budget,
    estimate,
    foreseeable,
    given,
    kept,
    open_checks,
    ranges,
    reserved,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.interface import (
    COMMON,
    COMMON_ROLE,
    Interface,
    PlanError,
    refusal,
    structured_text,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.layers import Layers
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import inventory, subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    Level,
    Plan,
    PlanItem,
    PlannedStage,
    Sample,
    Target,
    Variables,
    plan_item,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.plain import plain, vaulted
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import faults, registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import manifest as manifests


class Planner:
    """Builds a plan from the play that the action runs in."""

    def __init__(self, play: t.Any, loader: t.Any, task_vars: Variables) -> None:
        self.play = play
        self.loader = loader
        self.vars = task_vars
        self.layers = Layers(task_vars["hostvars"], play)
        self.manager = task_vars["hostvars"]._variable_manager
        self.hosts: list[str] = list(task_vars["ansible_play_hosts_all"])
        self.notes: list[str] = []
        # {identity: subject id} of the nodes behind hosts.
        self._identified: dict[str, str] = {}
        # Whether the stages measure in small.
        self.quick = False
        # Variables by which acceptance_budget makes stages shorter.
        self._shorter: Variables = {}
        # Returns {(stage, check): on how many nodes the runs of the history at a URL found something by it}.
        self.found: t.Callable[[str], t.Mapping[tuple[str, str], int]] | None = None
        # What a person at a terminal is asked before anything is measured.
        self.questions: list[str] = []

    # Stages ------------------------------------------------------------------------------------------------------

    def stages(self, stage_list: t.Any) -> tuple[list[Interface], list[str]]:
        """The stages to run, and the names of those that --tags or --skip-tags left out."""
        stage_list = plain(stage_list, "acceptance_stages")
        if not isinstance(stage_list, list) or not stage_list:
            shipped = ", ".join(sorted(registry.shipped()))
            on_a_line = """; on a command line -e '{"acceptance_stages": ["stack"]}'""" if isinstance(stage_list, str) else ""
            raise PlanError(f"acceptance_stages: found {stage_list!r}, expected a list of stages, of {shipped}{on_a_line}")
        chosen: list[Interface] = []
        left_out: list[str] = []
        complete_list, additions = complete(stage_list)
        for number, item in complete_list:
            where = f"acceptance_stages[{number}]"
            entry = named(item, where)
            if entry["name"] in [s.name for s in chosen] or entry["name"] in left_out:
                raise PlanError(f"{where}: stage {entry['name']!r} is listed twice")
            stage = self.interface(entry, where)
            if selected(tags_of(stage.name), self.play.only_tags, self.play.skip_tags):
                chosen.append(stage)
            else:
                left_out.append(stage.name)
        if not chosen:
            tag_options = (("--tags", self.play.only_tags), ("--skip-tags", self.play.skip_tags))
            by = " ".join(f"{option} {','.join(sorted(map(str, tags)))}" for option, tags in tag_options if tags)
            remedy = "others are brought by acceptance_stages or by another acceptance_level"
            raise PlanError(f"no stage is left by {by}; the stages are {', '.join(left_out)}; {remedy}")
        stages = [stage for stage in chosen if _looks_after_something(stage, chosen)]
        self.notes += addition_notes(additions, {stage.name for stage in stages})
        return stages, left_out

    def interface(self, entry: PlannedStage, where: str) -> Interface:
        return Interface(entry, self.play, self.manager, self.loader, where)

    # Hosts -------------------------------------------------------------------------------------------------------

    def left_out(self) -> list[str]:
        """Hosts of the play's pattern that --limit keeps out."""
        play_hosts = set(self.hosts)
        return sorted(name for name in self.layers.matching(self.play.hosts) if name not in play_hosts)

    def settings(self, stages: list[Interface]) -> dict[str, Variables]:
        """Return each host's variables of `stages`, validated and templated: {host: {variable: value}}.

        Hosts with the same settings share the work: 2,000 hosts are one or two distinct sets.
        """
        if reserved.problem(self.manager.extra_vars):
            raise PlanError(reserved.problem(self.manager.extra_vars))
        common = self.interface({"name": COMMON, "role": COMMON_ROLE}, "collection")
        roles = [common, *stages]
        prefixes = tuple(role.prefix for role in roles)
        self._refuse_unread(stages, roles)
        by_host: dict[str, Variables] = {}
        shared: dict[str, Variables] = {}
        seen_names: set[str] = set()
        for host in self.hosts:
            variables = self.layers.variables(host)
            if new := variables.keys() - seen_names:  # most hosts have the variables of the first
                self.notes += nearly(roles, sorted(new), host)
                seen_names |= new
            stage_values = {k: v for k, v in variables.items() if k.startswith(prefixes) and k not in _OURS}
            text = repr(sorted(stage_values.items()))
            key = host if "{{" in text or "{%" in text else text
            if key not in shared:
                shared[key] = self._settle(host, roles, stage_values, variables)
            by_host[host] = shared[key]
            plane = planes.of(by_host[host], host)
            domain = plane.reachability_domain(host)
            if domain:
                by_host[host] = {**by_host[host], "acceptance_realm": domain}
            if plane.nodes_behind is not None and plane.nodes_behind != bool(domain):
                by_host[host] = {**by_host[host], "acceptance_nodes_behind": plane.nodes_behind}
            for name in planes.unsupported_variables(plane, stage_values):
                if any(layer != "run" for layer, _value in self.layers.of(host, name)):  # -e is for all hosts of a mixed fleet
                    raise PlanError(f"{host}: {name} has no effect on plane {plane.name}: set acceptance_plane, or move it to other hosts")
        return by_host

    def _refuse_unread(self, stages: list[Interface], roles: list[Interface]) -> None:
        """Raise PlanError if nothing reads a variable given by -e. It is a note where a team's own role or playbook may read it."""
        begins = (*(role.prefix for role in roles), *(f"{name}_" for name in registry.shipped()))
        extra = self.manager.extra_vars

        def inventory() -> t.Iterator[Variables]:
            for host in self.hosts:
                variables = self.layers.variables(host)
                yield {name: value for name, value in variables.items() if name not in extra or len(self.layers.of(host, name)) > 1}

        problem = given.unread(extra, begins, (value for role in roles for value in role.defaults.values()), inventory)
        if problem and given.has_only_our_playbooks() and all(stage.name in registry.shipped() for stage in stages):
            raise PlanError(problem)
        self.notes += [problem] if problem else []

    def _settle(
        self, host: str, roles: list[Interface], stage_values: Variables, variables: Variables
    ) -> Variables:
        scope: Variables = {}
        for role in roles:
            scope.update(role.defaults)
        scope.update(variables)
        scope.update(self._in_small(roles))
        scope.update(self._shorter)
        scope.update(self._in_short(roles))
        templar = Templar(loader=self.loader, variables=scope)
        of_plane = planes.of({planes.VARIABLE: self._template(templar, host, planes.VARIABLE, scope[planes.VARIABLE])}, host).options
        scope = {**{name: spec["default"] for name, spec in of_plane.items() if "default" in spec}, **scope}
        templar.available_variables = scope
        settled: Variables = {}
        hidden = kept.secret(roles)
        for role in roles:
            options = {**role.options, **of_plane} if role.name == COMMON else role.options
            values = {}
            for name in options:
                if name in stage_values or name in role.defaults or (name in of_plane and name in scope):
                    values[name] = self._template(templar, host, name, scope[name], hidden)
            structured = structured_text(options, values, hidden)
            if structured:
                raise PlanError(f"{host}: {structured}; see ansible-doc -t role {role.entry['role']}")
            validated = ArgumentSpecValidator(options).validate({k: v for k, v in values.items() if v is not None})
            if validated.error_messages:
                messages = [refusal(message, str(role.entry["role"]), values, hidden) for message in validated.error_messages]
                raise PlanError(f"{host}: {'; '.join(messages)}")
            # rdma_ports_network begins like a variable of the stage rdma.
            # A variable of another shipped plane is refused with the name of this host's plane, in settings().
            of_others = (name for plane in planes.shipped().values() for name in plane.options)
            known = {*of_plane, *of_others, *(name for another in roles for name in another.known)}
            unknown = sorted(name for name in stage_values if name.startswith(role.prefix) and name not in known)
            if unknown:
                raise PlanError(f"{host}: {misspelt(unknown[0], role)}")
            settled.update(values)
            # A text may have become a number that is none, as "nan".
            settled.update({name: plain(value, f"{host}: {name}") for name, value in validated.validated_parameters.items()})
            shipped = role.name == COMMON or role.name in registry.shipped()
            problem = ranges.problem(options, settled, str(role.entry["role"]), shipped) or role.stage.problem(settled)
            if problem:
                raise PlanError(f"{host}: {problem}")
            # A list of one may be written without brackets; its checks are made of the list.
            scope.update({name: value for name, value in validated.validated_parameters.items() if isinstance(value, list)})
            templar.available_variables = scope
            if role.name != COMMON and not role.stage.between:
                name = f"{role.name}_checks"
                settled[name] = checks(self._template(templar, host, name, scope[name]), f"{host}: {name}", role.stage.optional)
        return settled

    def _in_small(self, roles: list[Interface]) -> Variables:
        """Return the stages' variables of a quick test, whatever the inventory says; a variable of the play or given by -e wins."""
        stated = {**self.layers.of_play, **self.manager.extra_vars}
        small = {f"{role.name}_{name}": value for role in roles for name, value in role.stage.quick.items()} if self.quick else {}
        return {name: value for name, value in small.items() if name not in stated}

    def _in_short(self, roles: list[Interface]) -> Variables:
        """Return the stages' variables that -e gives by a short name. The whole name by -e wins."""
        extra = self.manager.extra_vars
        named = {f"{role.name}_{name}": extra[name] for role in roles for name in role.stage.short_names if name in extra}
        return {name: value for name, value in named.items() if name not in extra}

    def _nodes(self, host: str, settings: Variables) -> list[str]:
        """The nodes behind an inventory host. One that cannot say which they are is planned as a whole, so that it is UNKNOWN and not
        absent."""
        found = base.Subjects(*planes.of(settings, host).subjects(host, settings))
        self.notes += found.notes
        for subject, identity in found.identities.items():
            twin = self._identified.setdefault(identity, subject)
            if twin != subject and subject in found.ids:
                raise PlanError(
                    f"{host}: {subject} is the same node as {twin}: two hosts of the inventory select it; expected each node behind one "
                    "host: narrow acceptance_nodes of one of them"
                )
        return found.ids or [host]

    def template(self, host: str, value: t.Any) -> t.Any:
        """Return the expectations in a host's variables as plain data, templated if they have templates."""
        return plain(self._of_host(host, "acceptance_expectations", value), f"{host}: acceptance_expectations")

    def _of_host(self, host: str, name: str, value: t.Any) -> t.Any:
        """Return the value of the variable `name` of a host, templated if it has templates."""
        if "{{" not in repr(value) and "{%" not in repr(value):
            return value
        templar = Templar(loader=self.loader, variables=self.layers.variables(host))
        return self._template(templar, host, name, value)

    def _template(self, templar: t.Any, host: str, name: str, value: t.Any, hidden: t.Collection[str] = ()) -> t.Any:
        """Return the value of the variable `name` of a host as plain data. Raise PlanError if a part of it is encrypted by ansible-vault,
        which makes it a secret, and the files of a run show it: all variables but those in `hidden`."""
        try:
            templated = templar.template(value)
            made = plain(templated, f"{host}: {name}")
            places = vaulted(templated, f"{host}: {name}") if name not in hidden else []
            if places and not all(kept.is_withheld(name, place) for place in places):
                raise PlanError(
                    f"{places[0]}: found a text that ansible-vault encrypted, expected none: plan.json and the reports show this variable; "
                    f"secrets may stand in {', '.join(sorted(hidden)) or 'no part of it'}"
                )
            return made
        except AnsibleError as error:
            raise PlanError(f"{host}: {name}: {error}") from error
        except RecursionError as error:
            raise PlanError(f"{host}: {name}: found a value that holds itself, expected one that does not") from error

    # The plan ----------------------------------------------------------------------------------------------------

    def build(
        self, run_id: str, stage_list: t.Any, level: Level = "standard", open_checks_file: str = ""
    ) -> tuple[Plan, list[Interface], dict[str, Variables]]:
        """Return the plan of a new run, its stages, and the settings of its hosts. The stages are those of `stage_list`, or
        those of `level` if it is None. With a file of open checks the run has these checks alone, by default in the stages of these."""
        rows = open_checks.read(open_checks_file) if open_checks_file else []
        of_level = open_checks.stages_of(rows) if rows else registry.of_level(level)
        stages, skipped = self.stages(of_level if stage_list is None else stage_list)
        settings = self.settings(stages)
        problem = foreseeable.problem(settings, [interface.stage for interface in stages], self.layers.variables, self._of_host)
        if problem:
            raise PlanError(problem)
        left_out = sorted({*self.left_out(), *map(str, settings[self.hosts[0]]["acceptance_left_out"] or ())})
        items: list[PlanItem] = []
        samples: dict[str, Sample] = {}
        targets: dict[str, Target] = {host: {"plane": planes.of(settings[host], host).name} for host in self.hosts}
        target_of = {node: host for host in self.hosts for node in self._nodes(host, settings[host])}
        if stage_list is None and len(target_of) < 2:
            stages = self._within_a_node(stages, level)
        stages, settings, without_time = self._within_budget(stages, settings, target_of)
        skipped += without_time
        for interface in stages:
            nodes = {node: target for node, target in target_of.items() if self._takes(interface, target, settings)}
            sample = settings[self.hosts[0]].get(f"{interface.name}_sample") if nodes else None
            if sample:
                names, samples[interface.name] = choose(list(nodes), sample, f"{interface.name}_sample")
                nodes = {node: nodes[node] for node in names}
            planned, notes = interface.stage.items(nodes, settings)
            items += [_item(interface.name, item) for item in planned]
            self.notes += notes
            self.questions += filter(None, [interface.stage.question(nodes, settings)])
        if rows:
            items, missing = open_checks.chosen(items, rows, [interface.stage for interface in stages])
            if not items:
                raise PlanError(f"{open_checks.VARIABLE}: {open_checks_file}: {missing[0]}; expected checks of the nodes of this inventory")
            self.notes += [f"{open_checks.VARIABLE}: not measured: {words}" for words in missing]
            measured = {node for item in items for node in subjects.nodes_of(item.subject)}
            left_out = sorted({*left_out, *(target_of.keys() - measured)})
            skipped += [interface.name for interface in stages if all(item.stage != interface.name for item in items)]
        seconds = {s.name: max((estimate.of_check(s.stage, values) for values in settings.values()), default=0.0) for s in stages}
        seconds.update({s.name: estimate.between(s.stage, items, target_of, settings) for s in stages if s.stage.between})
        plan = Plan(
            schema="plan/v1",
            run_id=run_id,
            created_at=utc(),
            inventory=inventory.of_today(),
            mode="quick" if self.quick else "run",
            level=level if stage_list is None and not rows else "",
            chained=True,
            collection_version=collection.version(),
            ansible_version=ansible_version,
            python_version=platform.python_version(),
            partial=bool(left_out or skipped or self.quick or rows),
            not_proven=[*(s.stage.not_proven for s in stages if s.stage.not_proven), NOTHING_BETWEEN] if self.quick else [],
            left_out=left_out,
            skipped_stages=skipped,
            stages=[s.entry for s in stages],
            targets=targets,
            items=items,
            settings=kept.keep(settings, kept.secret(stages)),
            sample=samples,
            check_seconds={name: value for name, value in seconds.items() if value},
            notes=sorted(set(self.notes)),
        )
        return plan, stages, settings

    def _within_budget(
        self, stages: list[Interface], settings: dict[str, Variables], target_of: dict[str, str]
    ) -> tuple[list[Interface], dict[str, Variables], list[str]]:
        """Return the stages and the settings that acceptance_budget leaves, and the names of the stages that it leaves out. `target_of` is
        {node: target}."""
        text = str(settings[self.hosts[0]][budget.VARIABLE])
        budget_s = budget.seconds_of(text)
        if budget_s is None:
            return stages, settings, []
        stated = {**self.layers.of_play, **self.manager.extra_vars, **self._in_short(stages)}
        forms: dict[str, list[budget.Form]] = {}
        for interface in stages:
            nodes = {node: target for node, target in target_of.items() if self._takes(interface, target, settings)}
            forms[interface.name] = budget.forms(interface.stage, nodes, settings, stated)
        found = self.found(str(settings[self.hosts[0]]["acceptance_history_url"])) if self.found else {}
        shares = faults.shares(budget.by_class([interface.stage for interface in stages], found))
        choice = budget.choose([interface.stage for interface in stages], forms, shares, budget_s, text)
        kept_stages = [interface for interface in stages if interface.name in choice.stages]
        without_load = [interface for interface in kept_stages if not _looks_after_something(interface, kept_stages)]
        kept_stages = [interface for interface in kept_stages if interface not in without_load]
        self.notes += choice.notes
        self._shorter = choice.variables
        return kept_stages, self.settings(kept_stages) if choice.variables else settings, [
            *choice.left_out, *(interface.name for interface in without_load)
        ]  # fmt: skip

    def _within_a_node(self, stages: list[Interface], level: Level) -> list[Interface]:
        """Return the stages that a single node can run; a note names the others."""
        between = [stage.name for stage in stages if stage.stage.between]
        if between:
            self.notes.append(f"acceptance_level {level}: {', '.join(between)} measure between nodes, and this run has one node")
        return [stage for stage in stages if not stage.stage.between]

    def _takes(self, stage: Interface, target: str, settings: dict[str, Variables]) -> bool:
        """Return True if a target can run a stage at all; a note says once that it cannot."""
        reason = planes.of(settings[target], target).refuses(stage.stage)
        if reason:
            self.notes.append(f"stage {stage.name}: not for {target}: {reason}")
        return reason is None


def misspelt(name: str, role: Interface) -> str:
    """Return the message about a variable that begins like those of a role and is none of them."""
    options = sorted(role.known)
    near = difflib.get_close_matches(name.removeprefix(role.prefix), [option.removeprefix(role.prefix) for option in options], 3)
    expected = f"did you mean {' or '.join(role.prefix + option for option in near)}?" if near else f"expected one of {', '.join(options)}"
    return f"unknown variable {name}{f' of stage {role.name}' if role.name != COMMON else ''}; {expected}"


def nearly(roles: list[Interface], names: list[str], host: str) -> list[str]:
    """A note of each variable that would be a role's but for its beginning: a role asks only for names that begin as its own do."""
    ends: dict[str, set[str]] = {}
    for role in roles:
        for option in role.known:
            ends.setdefault(option.removeprefix(role.prefix), set()).add(role.prefix)
    of_somebody = tuple(f"{name}_" for name in (*registry.shipped(), *(role.name for role in roles), "acceptance", "ansible"))
    notes = []
    for name in names:
        cuts = [] if name.startswith(of_somebody) else [at + 1 for at, letter in enumerate(name) if letter == "_"]
        candidates = [
            begin + name[at:]
            for at in cuts
            for begin in ends.get(name[at:], ())
            if difflib.SequenceMatcher(None, name[:at], begin).ratio() >= 0.8
        ]
        if candidates:
            notes.append(f"{host}: {name} is no variable of this collection; did you mean {sorted(candidates)[0]}?")
    return notes


NOTHING_BETWEEN = "what works between nodes"

_OURS = (*reserved.OURS, "acceptance_mode")


def named(item: t.Any, where: str) -> PlannedStage:
    """An item of acceptance_stages as plan.json writes it."""
    shipped = registry.shipped()
    if isinstance(item, str) and item in shipped:
        return {"name": item, "role": shipped[item].role}
    if isinstance(item, dict) and set(item) <= {"name", "role", "manifest", "description"} and isinstance(item.get("name"), str):
        name = str(item["name"])
        if not name.isidentifier() or name != name.lower() or name in (COMMON, "acceptance"):
            raise PlanError(f"{where}: found stage name {name!r}, expected lower-case letters, digits and _")
        role = item.get("role") or (manifests.ROLE if item.get("manifest") else shipped[name].role if name in shipped else None)
        if item.get("manifest") and (role != manifests.ROLE or name in shipped):
            raise PlanError(f"{where}: stage {name!r}: a manifest has a name of its own and no role")
        if role:
            stage = PlannedStage(name=name, role=str(role))
            if item.get("manifest"):
                stage["manifest"] = item["manifest"]
            return stage
    raise PlanError(
        f"{where}: unknown stage {item!r}; expected one of {', '.join(shipped)}, or {{name, role}} or {{name, manifest}} for your own"
    )


def tags_of(name: str) -> list[str]:
    """Return the tags of a stage, with those of the stages that bring it along: --tags rdma means these, too."""
    return [name, *(stage.name for stage in registry.shipped().values() if name in (*stage.before, *stage.after, *stage.last))]


def _looks_after_something(stage: Interface, chosen: list[Interface]) -> bool:
    """Return False for a second look if nothing between it and the first one loads the nodes. Raise PlanError if there is no first one."""
    first, names = stage.stage.looks_after, [each.name for each in chosen]
    if not first:
        return True
    if first not in names[: names.index(stage.name)]:
        raise PlanError(f"stage {stage.name}: found no {first} before it, by acceptance_stages or --tags, expected both: it looks again")
    behind = [each.name for each in chosen[names.index(stage.name) + 1 :] if each.stage.loads]
    if behind:
        raise PlanError(f"stage {stage.name}: found {', '.join(behind)} behind it, expected it behind all stages that work the nodes")
    return any(each.stage.loads for each in chosen[names.index(first) : names.index(stage.name)])


class Addition(t.NamedTuple):
    """A stage that another stage brings into the run; `place` says where, in words."""

    by: str
    name: str
    place: str


def complete(stage_list: list[t.Any]) -> tuple[list[tuple[int, t.Any]], list[Addition]]:
    """Return the stages with those that they bring along, each with the number of the one that was named, and what was added.

    A stage that is named stays where it is. One given as {name, role} comes alone. One given as {name} brings its second look.
    """
    numbered: list[tuple[int, t.Any]] = []
    additions: list[Addition] = []
    for number, item in enumerate(stage_list):
        stage = registry.shipped().get(item) if isinstance(item, str) else None
        brought = (stage.before, stage.after) if stage else ((), ())
        stages_before, stages_after = ([neighbour for neighbour in neighbours if neighbour not in stage_list] for neighbours in brought)
        additions += [Addition(str(item), name, "before it") for name in stages_before]
        additions += [Addition(str(item), name, "after it") for name in stages_after]
        numbered += [(number, name) for name in (*stages_before, item, *stages_after)]
    for number, item in list(numbered):
        name_of = item["name"] if isinstance(item, dict) and set(item) <= {"name", "description"} and "name" in item else item
        stage = registry.shipped().get(name_of) if isinstance(name_of, str) else None
        behind = [name for _number, name in numbered[numbered.index((number, item)) + 1 :]]
        if stage and stage.last and any(_loads(name) for name in behind):
            named_stages = [each.get("name") if isinstance(each, dict) else each for each in stage_list]
            looks = [name for name in stage.last if name not in named_stages]
            numbered += [(number, name) for name in looks]
            additions += [Addition(str(name_of), name, "behind the last load") for name in looks]
    return numbered, additions


def addition_notes(additions: t.Iterable[Addition], running: t.Collection[str]) -> list[str]:
    """Return a note for each stage that brings others into the run; `running` are the names of the stages that --tags leaves in it."""
    by_stage: dict[str, list[str]] = {}
    for addition in additions:
        if addition.by in running and addition.name in running:
            by_stage.setdefault(addition.by, []).append(f"{addition.name} {addition.place}")
    return [f"stage {stage} brings {' and '.join(brought)}; --skip-tags leaves one out" for stage, brought in by_stage.items()]


def _loads(item: t.Any) -> bool:
    """Return True if a stage of acceptance_stages works the nodes; one of a team's own may."""
    stage = registry.shipped().get(item) if isinstance(item, str) else None
    return stage is None or stage.loads


def selected(tags: t.Iterable[str], only: t.Iterable[str], skip: t.Iterable[str]) -> bool:
    """Return True if --tags and --skip-tags let a task with these tags run, by Ansible's rules."""
    only, skip, own_tags = set(only), set(skip), {"all", "tagged", *tags}
    return (not only or bool(only & own_tags)) and not skip & own_tags


def checks(value: t.Any, where: str, optional: bool = False) -> list[tuple[str, str]]:
    """A stage's list of checks as (check, variant). `optional`: it may be empty."""
    if not isinstance(value, list) or not (value or optional):
        raise PlanError(f"{where}: found {value!r}, expected a list of checks{'' if optional else ' that is not empty'}")
    pairs = []
    for item in value:
        if not isinstance(item, dict) or not isinstance(item.get("check"), str):
            raise PlanError(f"{where}: found {item!r}, expected {{check: NAME, variant: TEXT}}")
        pair = (str(item["check"]), str(item.get("variant") or ""))
        if pair in pairs:
            raise PlanError(f"{where}: check {' '.join(pair).strip()!r} is listed twice")
        pairs.append(pair)
    return pairs


def choose(hosts: list[str], sample: t.Any, where: str) -> tuple[list[str], Sample]:
    """A seeded choice of hosts: {count: N} or {percent: P}, {seed: S}."""
    allowed = {"count", "percent", "seed"}
    if not isinstance(sample, dict) or not set(sample) <= allowed or ("count" in sample) == ("percent" in sample):
        raise PlanError(f"{where}: found {sample!r}, expected {{count: N}} or {{percent: P}}, and {{seed: S}}")
    seed = sample.get("seed", 0)
    try:
        count = int(sample["count"]) if "count" in sample else -(-len(hosts) * int(sample["percent"]) // 100)
    except (TypeError, ValueError) as error:
        raise PlanError(f"{where}: found {sample!r}, expected whole numbers") from error
    if count < 1:
        raise PlanError(f"{where}: found {sample!r}, expected at least one node")
    chosen = set(random.Random(str(seed)).sample(sorted(hosts), min(count, len(hosts))))
    return [h for h in hosts if h in chosen], {"seed": seed, "nodes": sorted(chosen), "of": len(hosts)}


def _item(stage: str, item: PlanItem | t.Mapping[str, t.Any]) -> PlanItem:
    """Return an item of the plan. A team's own stage may return plain data."""
    try:
        return item if isinstance(item, PlanItem) else plan_item(stage, item)
    except ValueError as error:
        raise PlanError(f"stage {stage}: its items() returned {item!r}: {error}") from error


def dump(plan: Plan) -> str:
    """Return the text of plan.json."""
    return json.dumps(plan.as_dict(), indent=1, sort_keys=True, default=str) + "\n"
