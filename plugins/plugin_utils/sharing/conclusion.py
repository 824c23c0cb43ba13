# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict of a case: its assertions against its evidence, with their numbers, and one sentence about the cause.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import observation, reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import SubjectData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import actions, cases, drawn, expressions, scraped, vocabulary
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cases import Case
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import CaseEvidence
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.system import System

PASS, FAIL, SKIP, UNKNOWN = "PASS", "FAIL", "SKIP", "UNKNOWN"
Object = t.Dict[str, t.Any]


@dataclasses.dataclass
class Conclusion:
    """`expressions` are {"that", "said", "holds", "gates", "cause", "lacking"} of all assertions; `code` is a reason code for what is
    neither a PASS nor a FAIL."""

    status: str
    cause: str
    code: str = ""
    expressions: list[Object] = dataclasses.field(default_factory=list)
    metrics: dict[str, tuple[float | None, str]] = dataclasses.field(default_factory=dict)
    # The baseline's numbers that they were held to.
    reference: Object = dataclasses.field(default_factory=dict)
    simulated: bool = False
    # For people, as drawn.py makes them.
    charts: list[Object] = dataclasses.field(default_factory=list)


def beforehand(case: Case, system: System, cluster: str, destructive: bool, nodes: t.Mapping[str, str]) -> Conclusion | None:
    """Why a case is skipped before anything is made."""
    if cluster not in case.clusters:
        return _skipped("sharing_cluster", f"the case is for {' and '.join(case.clusters)}, and gpu_sharing_cluster is {cluster}")
    lacking = cases.lacking(case.needs, system)
    if lacking:
        return _skipped("sharing_unsupported", f"system {system.name} has no {', '.join(lacking)}")
    if all(one.always or cases.lacking(one.needs, system) for one in case.assertions):
        return _skipped("sharing_unsupported", f"of system {system.name} nothing can be seen that the case asserts")
    if case.destructive and not destructive:
        return _skipped("sharing_destructive", "set gpu_sharing_destructive to let it disturb the cluster")
    if case.node and not nodes.get(case.node):
        return _skipped("sharing_no_node", f"gpu_sharing_{case.node} names no node")
    return None


def _skipped(rule: str, words: str) -> Conclusion:
    return Conclusion(SKIP, f"{reasons.SKIP_RULES[rule]}: {words}", rule)


# The metrics of a case, and whether they are simulated -> assertions of them, and what of a baseline those name.
Against = t.Callable[[t.Mapping[str, t.Tuple[float | None, str]], bool], t.Tuple[t.List[Object], Object]]


def conclude(case: Case, evidence: CaseEvidence, against: Against | None = None) -> Conclusion:
    """Fail closed: a FAIL is what is known not to hold, a PASS what is known to hold in all its parts. What passes may still have become
    worse than it was."""
    ask, numbers = vocabulary.ask(evidence), evidence.parameters
    found = Conclusion(UNKNOWN, "", "no_sample", simulated=_simulated(evidence), charts=drawn.charts(evidence))
    held: list[tuple[cases.Assertion, expressions.Outcome]] = []
    for one in case.assertions:
        if cases.lacking(one.needs, evidence.system):
            continue
        outcome = expressions.evaluate(one.that, ask, numbers)
        held.append((one, outcome))
        found.expressions.append({
            "that": one.that, "said": outcome.said, "holds": outcome.holds, "gates": list(one.gates), "cause": one.cause,
            "lacking": list(outcome.lacking),
        })  # fmt: skip
    for name, (text, unit) in case.metrics.items():
        try:
            found.metrics[name] = (expressions.value(text, ask, numbers), unit)
        except expressions.Absent:
            found.metrics[name] = (None, unit)
    _decide(found, case, evidence, held)
    if found.status == PASS and against is not None:
        compared, found.reference = against(found.metrics, found.simulated)
        found.expressions += compared
        worse = next((one for one in compared if not one["holds"]), None)
        if worse:
            found.status, found.code, found.cause = FAIL, "case_failed", f"{worse['cause']}: {worse['said']}"
    skewed = _skewed(evidence)
    if found.status == PASS and skewed:
        found.status, found.code, found.cause = UNKNOWN, "clock_skew", skewed
    return found


def _skewed(evidence: CaseEvidence) -> str:
    """Which scheduler's clock is too far from the API server's: its times in logs and metrics are then not what they say."""
    looks = (scrape for samples in evidence.samples.values() for sample in samples for scrape in sample.scrapes if scrape.ahead_s)
    worst = max(looks, key=lambda one: abs(one.ahead_s or 0), default=None)
    limit = evidence.parameters.get("clock_skew_max_s")
    if worst is None or worst.ahead_s is None or limit is None or abs(worst.ahead_s) <= limit:
        return ""
    way = "ahead of" if worst.ahead_s > 0 else "behind"
    said = f"{abs(worst.ahead_s):.0f} s {way} the API server's, at most clock_skew_max_s={limit:g} is allowed"
    return f"the clock of node {worst.node}, as its scheduler {worst.scheduler} says it, is {said}"


def _decide(found: Conclusion, case: Case, evidence: CaseEvidence, held: list[tuple[cases.Assertion, expressions.Outcome]]) -> None:
    skips = [(rule, expressions.evaluate(when, vocabulary.ask(evidence), evidence.parameters)) for rule, when in case.skips]
    undecided = next((outcome for _rule, outcome in skips if outcome.holds is not False), None)
    # Where it is not known that the case applies, only what holds for any case can fail it.
    wrong = [(one, outcome) for one, outcome in held if outcome.holds is False and (one.always or undecided is None)]
    if wrong:
        one, outcome = wrong[0]
        stopped = f"; the steps stopped: {evidence.stopped}" if evidence.stopped else ""
        found.status, found.code = FAIL, "case_failed"
        found.cause = f"{one.cause or 'an assertion does not hold'}: {outcome.said}{stopped}"
        return
    rule = next((rule for rule, outcome in skips if outcome.holds), None)
    if rule:
        found.status, found.code, found.cause = SKIP, rule, reasons.SKIP_RULES[rule]
        return
    lacking = list(dict.fromkeys([
        *([evidence.stopped] if evidence.stopped else []),
        *(undecided.lacking if undecided else ()),
        *(reason for _one, outcome in held if outcome.holds is None for reason in outcome.lacking),
    ]))  # fmt: skip
    if lacking or not held:
        found.cause = "; ".join(lacking) or "nothing of it can be asserted of this system"
        return
    found.status, found.code = PASS, ""
    found.cause = f"all {len(held)} assertions hold" if len(held) > 1 else f"{held[0][1].said}"


def _simulated(evidence: CaseEvidence) -> bool:
    looks = (scrape for samples in evidence.samples.values() for sample in samples for scrape in sample.scrapes)
    logs = [*(pod.log for pod in evidence.pods), *evidence.logs.values()]
    return any(scrape.exposition.simulated for scrape in looks if scrape.exposition) or any(
        scraped.SIMULATED in line.text for log in logs if log for line in log
    )


def observed(
    found: Conclusion, case: Case, subject: SubjectData, context: Object, started_at: str, duration_s: float, variant: str
) -> Object:
    """A conclusion as an observation for the journal (docs/architecture.md): the verdict engine judges it as a condition."""
    operation, sampling = actions.said(case.steps)
    about: Object = {
        **context,
        "condition": True,
        "case": {
            "id": case.id, "suite": case.suite, "title": case.title, "profile": case.profile, "gates": list(case.gates), "soak": case.soak,
            "status": found.status, "operation": operation, "sampling": sampling, "expressions": found.expressions,
            "cause": found.cause[:1500], **({"charts": found.charts} if found.charts else {}),
            **({"baseline": found.reference} if found.reference else {}),
        },
    }  # fmt: skip
    common = {
        "variant": variant, "subject": subject, "context": about, "started_at": started_at, "duration_s": duration_s,
        "simulated": found.simulated,
    }  # fmt: skip
    metrics = {name: {"value": value, "unit": unit} for name, (value, unit) in found.metrics.items()}
    if found.status == PASS:
        return observation.measured(case.check, metrics=metrics, **common)
    if found.status == FAIL:
        about["findings"] = [{"code": "case_failed", "text": f"{case.id}: {found.cause}"[:1500]}]
        return observation.measured(case.check, metrics=metrics, **common)
    outcome = "not_applicable" if found.status == SKIP else "error"
    return observation.failed(case.check, found.code, f"{case.id}: {found.cause}"[:1900], outcome=outcome, metrics=metrics, **common)
