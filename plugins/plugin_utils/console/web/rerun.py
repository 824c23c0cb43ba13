# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The form that measures what failed in a run again: the nodes of its failures, the stages that found them, and the variables it had.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import allowed
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import fleet
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.drawing import url
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.forms import text_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import keys
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Plan
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import CauseRow
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry

# Verdicts for which a run is not accepted. A WARN is read and not measured again.
FAILED = ("FAIL", "UNKNOWN")


def link(run: str, causes: t.Sequence[CauseRow]) -> str:
    """Return the address of the form; empty if no node failed in a stage that a request may name. A run may have thousands of failed nodes,
    so the address has the run and not their names."""
    return url("/start", {"again": run}) if fields(causes, None) else ""


def fields(causes: t.Iterable[CauseRow], plan: Plan | None) -> list[tuple[str, str]]:
    """Return the fields of a form that measures the failed nodes of these causes again, by the stages that found them; empty if there are
    none. The variables are those of the plan that a request may set and that differ from the defaults.

    A stage between nodes needs a second node: it gets the good ends of up to two bad pairs."""
    nodes: list[str] = []
    partners: list[str] = []
    found: list[str] = []
    hosts: set[str] = set()
    for cause in causes:
        if cause["verdict"] not in FAILED:
            continue
        if cause["kind"] not in ("group", "switch", "nvlink_domain"):
            nodes += _ends(cause["subject"])
            hosts.update(keys.target_of(keys.node_of(end)) for end in cause["subject"].split("|"))
        found += [finding["stage"] for finding in cause["findings"] if finding["verdict"] in FAILED]
        partners += [node for check in cause["explains"] if "|" in check["subject"] for node in _ends(check["subject"])]
    # A repetition of a stage is not asked for by itself.
    stages = [name for name in dict.fromkeys(stage.removesuffix("_again") for stage in found) if name in allowed.NAMES]
    nodes = list(dict.fromkeys(nodes))
    if not nodes or not stages:
        return []
    if any(registry.shipped()[name].between for name in stages) and len(nodes) < 3:
        nodes += [name for name in dict.fromkeys(partners) if name not in nodes][:2]
    variables = _variables(plan, stages, sorted(hosts)) if plan else {}
    lines = "\n".join(f"{name}: {text}" for name, text in variables.items())
    form = [("kind", "stages"), ("where", "nodes"), ("nodes", "\n".join(nodes)), *(("stage", name) for name in stages)]
    return [*form, ("variables", lines)] if lines else form


def _variables(plan: Plan, stages: t.Iterable[str], hosts: t.Iterable[str]) -> dict[str, str]:
    """Return {variable: its value as it is typed} of those that a request may set and that a run had beside the defaults. One that differs
    between these hosts is left to the inventory, from which it came."""
    if plan.settings is None:
        return {}
    sets, of = plan.settings.sets, plan.settings.of
    hosts = [host for host in hosts if host in of]
    brought = {stage for name in stages for stage in (*registry.shipped()[name].before, name, *registry.shipped()[name].after)}
    texts: dict[str, str] = {}
    for variable in allowed.VARIABLES:
        stage = allowed.stage_of(variable)
        if stage not in brought:
            continue
        values = {json.dumps(sets[of[host]].get(variable), sort_keys=True) for host in hosts}
        value = json.loads(values.pop()) if len(values) == 1 else None
        default = allowed.role(stage)[1].get(variable)
        if value in (None, "", []) or value == default:
            continue
        try:
            allowed.value(variable, text_of(value))
        except ValueError:  # an inventory may set more than a request
            continue
        texts[variable] = text_of(value)
    return texts


def _ends(subject: str) -> list[str]:
    """Return the nodes of a subject, as requests name them."""
    return [fleet.requested(keys.node_of(end)) for end in subject.split("|")]
