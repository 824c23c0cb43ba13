# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `gpu_sharing`: the cases of the GPU-sharing matrix, each a check of a whole cluster.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlanItem, Subject, Variables, Verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Section, SectionChart
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import base
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import TIMEOUT, Range


class GpuSharing(base.Stage):
    name = "gpu_sharing"
    role = "gpufleet.acceptance.gpu_sharing"
    topology = base.CLUSTER
    gated = True
    ranges: t.Mapping[str, Range] = {
        "scale": Range(0, 1, above=True),
        "deadline": TIMEOUT,
    }
    unproven = "gates of GPU sharing:"
    short_names = ("cases", "suite", "smoke", "profile", "scale")

    def is_condition(self, check: str, quick: bool) -> bool:
        """Every case passes by its assertions, those of a team's own suites too; no number of it needs an expectation."""
        return True

    def on_cluster(self) -> type[t.Any]:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.kubernetes.on_cluster import SharingOnCluster

        return SharingOnCluster

    def foreseen(self, host: str, settings: Variables) -> list[str]:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.kubernetes import on_cluster

        return on_cluster.foreseen(host, settings)

    def items(self, nodes: base.Nodes, settings: base.Settings) -> tuple[list[PlanItem], list[str]]:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import settled

        clusters: dict[str, list[str]] = {}
        for node, target in nodes.items():
            clusters.setdefault(target, []).append(node)
        items, notes = [], []
        for target, members in clusters.items():
            requested = settled.settings_of(settings[target])
            variant = variant_of(settings[target])
            subject = Subject("group", f"{self.name}/{target}", members)
            items += [PlanItem(self.name, case.check, variant, subject, target) for case in requested.cases]
            if requested.parameters.scale != 1:
                notes.append(f"{target}: gpu_sharing_scale {requested.parameters.scale:g}: soaks are shortened and prove nothing of P2")
        return items, notes

    def problem(self, settings: Variables) -> str | None:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import settled

        try:
            settled.settings_of(settings)
        except RunError as error:
            return str(error)
        return None

    def remeasure(self, last: t.Mapping[Key, Measurement], records: t.Sequence[Measurement]) -> t.AbstractSet[Key]:
        """A PASS is kept; whatever else became of a case is done again by a resume."""
        return {key for key, m in last.items() if m.outcome != "measured" or m.context.get("findings")}

    def sections(self, rows: list[tuple[Verdict, Measurement]]) -> list[Section]:
        gates = self._gates(rows)
        of_gates = [
            [gate.name, gate.state, ", ".join(gate.proven), _listed(gate.failed), _listed(gate.lacking)] for gate in gates
        ]
        of_cases: list[list[str]] = []
        charts: list[SectionChart] = []
        for verdict, record in rows:
            case = record.context.get("case") or {}
            expression_texts = [f"{expression['said']}: {_WORDS[expression['holds']]}" for expression in case.get("expressions", [])]
            texts = ["; ".join(case.get("operation", [])), "; ".join(case.get("sampling", [])), "; ".join(expression_texts)]
            chart_header = {"of": f"{case.get('id')} on {record.target}", "verdict": verdict.verdict, "simulated": bool(record.simulated)}
            charts += [t.cast(SectionChart, {**chart_header, **chart}) for chart in case.get("charts", [])]
            of_cases.append([str(case.get("id")), record.target, verdict.verdict, *texts, str(case.get("cause", verdict.reason))])
        scales = sorted({float(record.context.get("scale", 1)) for _verdict, record in rows} - {1.0})
        lines = [f"Soaks, loads and waits were shortened to {scale:g} of their time: nothing is proven of P2." for scale in scales]
        preflight_tables = {record.target: record.context.get("preflight") or [] for _verdict, record in rows}
        installed = [[cluster, *map(str, line)] for cluster, table in preflight_tables.items() for line in table]
        columns = ["case", "cluster", "verdict", "operation", "sampling", "judged by", "conclusion"]
        return [
            {
                "title": "Gates of GPU sharing", "said": lines, "columns": ["gate", "state", "proven by", "failed", "not proven"],
                "rows": of_gates,
            },
            {"title": "Cases of GPU sharing", "said": [], "columns": columns, "rows": of_cases, "charts": charts},
            {
                "title": "What was installed for GPU sharing", "said": [], "columns": ["cluster", "what", "found", "expected", "means"],
                "rows": installed,
            },
        ]  # fmt: skip

    def proof(self, rows: list[tuple[Verdict, Measurement]]) -> tuple[str, str]:
        """A run whose cases of P0 were skipped has not shown that the system works, whatever passed beside them. What was not asked for,
        or is for another kind of cluster, is no reason to refuse what was; but it is not proven either."""
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import gates

        gates_reached = self._gates(rows)
        first = gates_reached[0]
        skipped: dict[str, str] = {}
        for verdict, record in rows:
            case = str((record.context.get("case") or {}).get("id"))
            if verdict.verdict == "SKIPPED" and record.reason_code != gates.ELSEWHERE and case in first.lacking:
                skipped.setdefault(str(record.reason_code), "")
                skipped[str(record.reason_code)] += f" {case}"
        rules = "; ".join(f"{rule}:{cases}" for rule, cases in skipped.items())
        refusal = f"gate {first.name} of GPU sharing is not proven, a skipped case is no pass: {rules}" if skipped else ""
        states = ", ".join(f"{gate.name} {gate.state}" for gate in gates_reached)
        return refusal, "" if first.state == gates.PROVEN else f"{self.unproven} {states}"

    def files(self, run_id: str, rows: list[tuple[Verdict, Measurement]]) -> dict[str, str]:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import archive

        return archive.files(run_id, rows, self._gates(rows))

    def _gates(self, rows: list[tuple[Verdict, Measurement]]) -> list[t.Any]:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import cases, gates

        results = []
        profiles = set()
        for verdict, record in rows:
            case = record.context.get("case") or {}
            profiles.add(case.get("profile"))
            results.append(gates.CaseResult(
                str(case.get("id")), record.target, verdict.verdict, str(record.reason_code or ""), str(verdict.reason),
                float(record.context.get("scale", 1)), bool(case.get("soak")), case.get("expressions", []),
            ))  # fmt: skip
        profile = cases.STRICT if cases.STRICT in profiles else cases.FAITHFUL
        return gates.gates(cases.shipped(profile), results)


_WORDS = {True: "holds", False: "does not hold", None: "not known"}


def _listed(of: t.Mapping[str, str]) -> str:
    return "; ".join(f"{case}: {why}" for case, why in of.items())


def variant_of(settings: Variables) -> str:
    """Profile and scale stand in every result."""
    return observation.variant(profile=settings["gpu_sharing_profile"], scale=f"{float(settings['gpu_sharing_scale']):g}")


STAGE = GpuSharing()
