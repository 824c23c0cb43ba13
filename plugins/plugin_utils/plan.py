# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan: which (stage, check, subject) this run intends to measure, written before the first measurement.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import importlib
import json
import pathlib
import platform
import random
import typing as t

from ansible import context
from ansible.errors import AnsibleError
from ansible.module_utils.ansible_release import __version__ as ansible_version
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.playbook.role import Role
from ansible.playbook.role.include import RoleInclude
from ansible.template import Templar
from ansible_collections.gpufleet.acceptance.plugins.module_utils.observation import utc
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection, subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import manifest as manifests
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.layers import Layers
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.run import RunError, new_run_id

__all__ = ["PlanError", "Planner", "Stage", "new_run_id"]
COMMON_ROLE = "gpufleet.acceptance.common"
SHIPPED_STAGES = {
    name: f"gpufleet.acceptance.{name}" for name in ("stack", "nccl_node", "gemm", "rdma_ports", "rdma", "rdma_again", "nccl_fabric")
}
# What a stage brings along: the facts that it needs before it, the confirmation of what it suspects after it.
BEFORE, AFTER = {"rdma": "rdma_ports"}, {"rdma": "rdma_again"}
PLANES = ("ssh", "kubernetes")


class PlanError(RunError):
    """The inventory asks for something that cannot be planned; names the variable, what was found and expected."""


class Stage:
    """A stage of this run: its role's defaults and argument specs are the whole interface."""

    def __init__(
        self, name: str, role_name: str, play: t.Any, manager: t.Any, loader: t.Any, where: str, manifest: t.Any = None
    ) -> None:
        self.name = name
        self.role = role_name
        # Whom --tags rdma asks for means what that stage brings along too.
        self.tags = [name, *(main for brought in (BEFORE, AFTER) for main, other in brought.items() if other == name)]
        try:
            include = RoleInclude.load(role_name, play, variable_manager=manager, loader=loader)
            role = Role.load(include, play, from_include=True, validate=False)
        except AnsibleError as error:
            raise PlanError(f"{where}: role {role_name!r} of stage {name!r} cannot be loaded: {error}") from error
        self.defaults: dict[str, t.Any] = dict(role.get_default_vars())
        self.options: dict[str, t.Any] = dict((role._get_role_argspecs().get("main") or {}).get("options") or {})
        self.manifest = manifests.load(manifest, where) if manifest else None
        if self.manifest:
            self.defaults, self.options = manifests.options(name)
        # How a stage between nodes plans its subjects: items({node: target}, settings) and work(run, plan, todo).
        self.between = between(name) if role_name == SHIPPED_STAGES.get(name) else None
        if name != "common" and not self.between and f"{name}_checks" not in self.defaults:
            raise PlanError(
                f"{where}: role {role_name!r} of stage {name!r} has no {name}_checks in its defaults; "
                f"expected a list of {{check, variant}} that says what the stage measures on a host"
            )

    @property
    def prefix(self) -> str:
        return "acceptance_" if self.name == "common" else f"{self.name}_"


class Planner:
    """Builds a plan from the play that the action runs in."""

    def __init__(self, play: t.Any, loader: t.Any, task_vars: dict[str, t.Any]) -> None:
        self.play = play
        self.loader = loader
        self.vars = task_vars
        self.layers = Layers(task_vars["hostvars"])
        self.manager = task_vars["hostvars"]._variable_manager
        self.hosts: list[str] = list(task_vars["ansible_play_hosts_all"])
        self.notes: list[str] = []
        # What a person at a terminal is asked before anything is measured.
        self.questions: list[str] = []

    # Stages ------------------------------------------------------------------------------------------------------

    def stages(self, wanted: t.Any) -> tuple[list[Stage], list[str]]:
        """The stages to run, and the names of those that --tags or --skip-tags left out."""
        if not isinstance(wanted, list) or not wanted:
            raise PlanError(f"acceptance_stages: found {wanted!r}, expected a list of stages, like {sorted(SHIPPED_STAGES)}")
        chosen: list[Stage] = []
        left_out: list[str] = []
        whole, notes = complete(wanted)
        self.notes += notes
        for number, item in whole:
            where = f"acceptance_stages[{number}]"
            name, role, manifest = self._named(item, where)
            if name in [s.name for s in chosen] or name in left_out:
                raise PlanError(f"{where}: stage {name!r} is listed twice")
            stage = Stage(name, role, self.play, self.manager, self.loader, where, manifest)
            if selected(stage.tags, self.play.only_tags, self.play.skip_tags):
                chosen.append(stage)
            else:
                left_out.append(name)
        if not chosen:
            only, skip = list(self.play.only_tags), list(self.play.skip_tags)
            raise PlanError(
                f"no stage is left by --tags {','.join(map(str, only))} --skip-tags {','.join(map(str, skip))}; "
                f"the stages are {', '.join(left_out)}"
            )
        return chosen, left_out

    def _named(self, item: t.Any, where: str) -> tuple[str, str, t.Any]:
        if isinstance(item, str) and item in SHIPPED_STAGES:
            return item, SHIPPED_STAGES[item], None
        if isinstance(item, dict) and set(item) <= {"name", "role", "manifest"} and isinstance(item.get("name"), str):
            name = str(item["name"])
            if not name.isidentifier() or name != name.lower() or name in ("common", "acceptance"):
                raise PlanError(f"{where}: found stage name {name!r}, expected lower-case letters, digits and _")
            role = item.get("role") or (manifests.ROLE if item.get("manifest") else SHIPPED_STAGES.get(name))
            if item.get("manifest") and (role != manifests.ROLE or name in SHIPPED_STAGES):
                raise PlanError(f"{where}: stage {name!r}: a manifest has a name of its own and no role")
            if role:
                return name, str(role), item.get("manifest")
        raise PlanError(
            f"{where}: unknown stage {item!r}; expected one of {', '.join(SHIPPED_STAGES)}, "
            "or {name, role} or {name, manifest} for your own"
        )

    # Hosts -------------------------------------------------------------------------------------------------------

    def left_out(self) -> list[str]:
        """Hosts of the play's pattern that --limit keeps out."""
        here = set(self.hosts)
        return sorted(name for name in self.layers.matching(self.play.hosts) if name not in here)

    def settings(self, stages: list[Stage]) -> dict[str, dict[str, t.Any]]:
        """What each host's variables say of `stages`, validated and templated: {host: {variable: value}}.

        Hosts with the same settings share the work: 2,000 hosts are one or two distinct sets.
        """
        common = Stage("common", COMMON_ROLE, self.play, self.manager, self.loader, "collection")
        roles = [common, *stages]
        prefixes = tuple(role.prefix for role in roles)
        found: dict[str, dict[str, t.Any]] = {}
        shared: dict[str, dict[str, t.Any]] = {}
        for host in self.hosts:
            variables = self.layers.variables(host)
            own = {k: v for k, v in variables.items() if k.startswith(prefixes) and k not in _OURS}
            text = repr(sorted(own.items()))
            key = host if "{{" in text or "{%" in text else text
            if key not in shared:
                shared[key] = self._settle(host, roles, own, variables)
            found[host] = shared[key]
        return found

    def _settle(
        self, host: str, roles: list[Stage], own: dict[str, t.Any], variables: dict[str, t.Any]
    ) -> dict[str, t.Any]:
        scope: dict[str, t.Any] = {}
        for role in roles:
            scope.update(role.defaults)
        scope.update(variables)
        templar = Templar(loader=self.loader, variables=scope)
        settled: dict[str, t.Any] = {}
        for role in roles:
            values = {}
            for name in role.options:
                if name in own or name in role.defaults:
                    values[name] = self._template(templar, host, name, scope[name])
            validated = ArgumentSpecValidator(role.options).validate({k: v for k, v in values.items() if v is not None})
            if validated.error_messages:
                raise PlanError(f"{host}: {'; '.join(validated.error_messages)}")
            unknown = [k for k in own if k.startswith(role.prefix) and k not in role.options and role.options]
            if role.name == "common" and unknown:
                raise PlanError(
                    f"{host}: unknown variable {sorted(unknown)[0]}; expected one of {', '.join(sorted(role.options))}"
                )
            # rdma_ports_network begins like a variable of the stage rdma.
            unknown = [k for k in unknown if not any(k in other.options for other in roles)]
            self.notes += [f"variable {k} is not one of role {role.role}" for k in sorted(unknown)]
            settled.update(values)
            settled.update(validated.validated_parameters)
            if role.name != "common" and not role.between:
                name = f"{role.name}_checks"
                settled[name] = checks(self._template(templar, host, name, scope[name]), f"{host}: {name}")
        return settled

    def _nodes(self, host: str, settings: dict[str, t.Any]) -> list[str]:
        """The nodes behind an inventory host: a machine itself, or those of a cluster; a cluster that cannot say which is
        planned as a whole, so that it is UNKNOWN and not absent."""
        if settings.get("acceptance_plane") != "kubernetes":
            return [host]
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube import inventory

        nodes, notes = inventory.subjects(host, settings)
        self.notes += notes
        return [f"{host}/{node}" for node in nodes] or [host]

    def template(self, host: str, value: t.Any) -> t.Any:
        """A raw value of a host's variables, templated where it has templates at all."""
        if "{{" not in repr(value) and "{%" not in repr(value):
            return value
        templar = Templar(loader=self.loader, variables=self.layers.variables(host))
        return self._template(templar, host, "acceptance_expectations", value)

    def _template(self, templar: t.Any, host: str, name: str, value: t.Any) -> t.Any:
        try:
            return templar.template(value)
        except AnsibleError as error:
            raise PlanError(f"{host}: {name}: {error}") from error

    # The plan ----------------------------------------------------------------------------------------------------

    def build(self, run_id: str, wanted: t.Any) -> tuple[dict[str, t.Any], dict[str, dict[str, t.Any]]]:
        """The plan of a new run, and the settings of its hosts."""
        stages, skipped = self.stages(wanted)
        settings = self.settings(stages)
        left_out = self.left_out()
        items: list[dict[str, t.Any]] = []
        samples: dict[str, t.Any] = {}
        targets = {host: {"plane": settings[host].get("acceptance_plane") or "ssh"} for host in self.hosts}
        target_of = {node: host for host in self.hosts for node in self._nodes(host, settings[host])}
        for stage in stages:
            nodes = list(target_of)
            sample = settings[self.hosts[0]].get(f"{stage.name}_sample") if nodes else None
            if sample:
                nodes, samples[stage.name] = choose(nodes, sample, f"{stage.name}_sample")
            if stage.between:
                more, notes = stage.between.items({node: target_of[node] for node in nodes}, settings)
                items += [{"stage": stage.name, **item} for item in more]
                self.notes += notes
                if hasattr(stage.between, "question"):
                    self.questions += filter(None, [stage.between.question({node: target_of[node] for node in nodes}, settings)])
                continue
            if stage.manifest:
                behind_ssh = sorted({target_of[node] for node in nodes if targets[target_of[node]]["plane"] == "ssh"})
                nodes = [node for node in nodes if target_of[node] not in behind_ssh]
                if behind_ssh:
                    self.notes.append(f"stage {stage.name} is a manifest, for nodes of clusters only: not for {', '.join(behind_ssh[:10])}")
            for node in nodes:
                for check, variant in settings[target_of[node]][f"{stage.name}_checks"]:
                    subject = {"kind": "node", "id": node, "members": []}
                    items.append(
                        {"stage": stage.name, "check": check, "variant": variant, "subject": subject, "target": target_of[node]}
                    )
        seconds = {s.name: max((float(v.get(f"{s.name}_check_seconds") or 0) for v in settings.values()), default=0.0) for s in stages}
        plan = {
            "schema": "plan/v1",
            "run_id": run_id,
            "created_at": utc(),
            "mode": "run",
            "chained": True,
            "collection_version": collection.version(),
            "ansible_version": ansible_version,
            "python_version": platform.python_version(),
            "partial": bool(left_out or skipped),
            "left_out": left_out,
            "skipped_stages": skipped,
            "stages": [{"name": s.name, "role": s.role, **({"manifest": s.manifest} if s.manifest else {})} for s in stages],
            "targets": targets,
            "items": items,
            "sample": samples,
            "check_seconds": {name: value for name, value in seconds.items() if value},
            "notes": sorted(set(self.notes)),
        }
        return plan, settings


_OURS = ("acceptance_run", "acceptance_stage", "acceptance_judgement", "acceptance_mode")


def complete(wanted: list[t.Any]) -> tuple[list[tuple[int, t.Any]], list[str]]:
    """The stages with those that they bring along, each with the number of the one that was named; and what to say of it.

    Whoever names them keeps them where they are, and a stage given as {name, role} comes alone.
    """
    found: list[tuple[int, t.Any]] = []
    notes = []
    for number, item in enumerate(wanted):
        brought = [of.get(item) if isinstance(item, str) else None for of in (BEFORE, AFTER)]
        before, after = (other if other and other not in wanted else None for other in brought)
        said = [f"{other} {where} it" for other, where in ((before, "before"), (after, "after")) if other]
        if said:
            notes.append(f"stage {item} brings {' and '.join(said)}; --skip-tags leaves one out")
        found += [(number, name) for name in (before, item, after) if name is not None]
    return found, notes


def selected(tags: t.Iterable[str], only: t.Iterable[str], skip: t.Iterable[str]) -> bool:
    """Whether --tags and --skip-tags let a task with these tags run, by Ansible's rules."""
    only, skip, mine = set(only), set(skip), {"all", "tagged", *tags}
    return (not only or bool(only & mine)) and not skip & mine


def between(stage: str) -> t.Any:
    """The module of plugin_utils/fleet/ that plans a shipped stage whose subjects are pairs or groups of nodes, or None."""
    if not (pathlib.Path(__file__).parent / "fleet" / f"{stage}.py").is_file():
        return None
    return importlib.import_module(f"ansible_collections.gpufleet.acceptance.plugins.plugin_utils.fleet.{stage}")


def checks(value: t.Any, where: str) -> list[tuple[str, str]]:
    """A stage's list of checks as (check, variant)."""
    if not isinstance(value, list) or not value:
        raise PlanError(f"{where}: found {value!r}, expected a list of checks that is not empty")
    found = []
    for item in value:
        if not isinstance(item, dict) or not isinstance(item.get("check"), str):
            raise PlanError(f"{where}: found {item!r}, expected {{check: NAME, variant: TEXT}}")
        pair = (str(item["check"]), str(item.get("variant") or ""))
        if pair in found:
            raise PlanError(f"{where}: check {' '.join(pair).strip()!r} is listed twice")
        found.append(pair)
    return found


def choose(hosts: list[str], sample: t.Any, where: str) -> tuple[list[str], dict[str, t.Any]]:
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


def remaining(plan: dict[str, t.Any], measurements: list[dict[str, t.Any]]) -> dict[str, dict[str, list[dict[str, t.Any]]]]:
    """What is left to do, by target: {target: {stage: [{"check", "variant", "subject", "attempt"}]}}.

    `measured` and `not_applicable` are kept, the rest is repeated; a check whose members are not all there is too.
    """
    planned = {(i["stage"], i["check"], i["variant"], i["subject"]["id"]) for i in plan["items"]}
    finished: set[tuple[str, str, str, str]] = set()
    attempts: dict[tuple[str, str, str, str], int] = {}
    parts: dict[tuple[str, str, str, str], bool] = {}
    for m in measurements:
        key = (m["stage"], m["check"], m["variant"], m["subject"]["id"])
        good = m["outcome"] in ("measured", "not_applicable")
        attempts[key] = max(attempts.get(key, 0), m["attempt"])
        if key in planned:
            (finished.add if good else finished.discard)(key)
        else:
            parts[key] = good
    for m in measurements:
        key = (m["stage"], m["check"], m["variant"], m["subject"]["id"])
        if key in planned and any(not parts.get((*key[:3], member), True) for member in m["subject"]["members"]):
            finished.discard(key)
    todo: dict[str, dict[str, list[dict[str, t.Any]]]] = {}
    for item in plan["items"]:
        key = (item["stage"], item["check"], item["variant"], item["subject"]["id"])
        if key not in finished:
            left = {name: item[name] for name in ("check", "variant", "subject")}
            todo.setdefault(item["target"], {}).setdefault(item["stage"], []).append({**left, "attempt": attempts.get(key, 0) + 1})
    return todo


def phases(stages: list[dict[str, t.Any]], todo: dict[str, dict[str, t.Any]], long: t.Iterable[str]) -> list[dict[str, t.Any]]:
    """How the stages run: a long one over more hosts than forks is started everywhere and then collected."""
    forks = int(context.CLIARGS.get("forks") or 5)
    run = []
    for stage in stages:
        hosts = sum(1 for stages_of in todo.values() if stage["name"] in stages_of)
        if not hosts:
            continue
        split = stage["name"] in long and hosts > forks
        for phase in ("start", "collect") if split else ("all",):
            run.append({**stage, "phase": phase})
    return run


def task_of(stage: dict[str, t.Any]) -> dict[str, t.Any]:
    """The task that runs a stage, one of phases()."""
    role = {"name": stage["role"], "rolespec_validate": False, "public": False}
    return {"name": stage["name"], "ansible.builtin.import_role": role, "vars": {"acceptance_stage": stage}, "tags": stage["tags"]}


def summary(plan: dict[str, t.Any], todo: dict[str, dict[str, t.Any]]) -> list[str]:
    """The plan in a few lines for people."""
    lines = [f"run {plan['run_id']}: {len(plan['items'])} checks on {len(plan['targets'])} hosts"]
    total = 0.0
    left = sum(len(checks_left) for stages in todo.values() for checks_left in stages.values())
    if left != len(plan["items"]):
        lines[0] += f", {left} left to measure"
    for stage in plan["stages"]:
        mine = [item for item in plan["items"] if item["stage"] == stage["name"]]
        checks_of = collections.Counter(item["subject"]["id"] for item in mine)
        what = subjects.counted({item["subject"]["id"]: item["subject"]["kind"] for item in mine}.values())
        about = plan.get("check_seconds", {}).get(stage["name"], 0) * max(checks_of.values(), default=0)
        total += about
        takes = f", about {about:.0f} s" if about else ""
        sample = plan["sample"].get(stage["name"])
        chosen = f", sample with seed {sample['seed']}: {', '.join(sample['nodes'][:8])}" if sample else ""
        lines.append(f"  {stage['name']}: {what}{takes}{chosen}{' ...' if sample and len(sample['nodes']) > 8 else ''}")
    if total:
        # What reaching a node costs the controller: measured, 0.2 s of two cores per node and stage, before what the node does.
        reach = 0.1 * sum(len({i["target"] for i in plan["items"] if i["stage"] == s["name"]}) for s in plan["stages"])
        lines.append(f"  about {total + reach:.0f} s in all where nothing hangs")
    if plan["partial"]:
        lines.append(
            f"PARTIAL: left out {len(plan['left_out'])} hosts"
            + (f" ({', '.join(plan['left_out'][:10])})" if plan["left_out"] else "")
            + (f" and stages {', '.join(plan['skipped_stages'])}" if plan["skipped_stages"] else "")
        )
    return lines + [f"note: {note}" for note in plan["notes"]]


def dump(plan: dict[str, t.Any]) -> str:
    """The plan as it stands in plan.json."""
    return json.dumps(plan, indent=1, sort_keys=True, default=str) + "\n"
