# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The conclusion of a case: its assertions evaluated on its evidence, with their numbers, and one sentence about the cause.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation, reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import SubjectData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Chart
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import actions, cases, drawn, expressions, scraped, vocabulary
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cases import Case
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import CaseEvidence
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.system import System

PASS, FAIL, SKIP, UNKNOWN = "PASS", "FAIL", "SKIP", "UNKNOWN"
Object = t.Dict[str, t.Any]
# The most letters of a cause in the journal.
CAUSE = 1500


@dataclasses.dataclass
class Conclusion:
    """The status of a case with its cause. `expressions` has {"that", "said", "holds", "gates", "cause", "lacking"} for each assertion;
    `code` is the reason code, empty for a PASS."""

    status: str
    cause: str
    code: str = ""
    expressions: list[Object] = dataclasses.field(default_factory=list)
    metrics: dict[str, tuple[float | None, str]] = dataclasses.field(default_factory=dict)
    # The baseline's numbers with which the metrics were compared.
    reference: Object = dataclasses.field(default_factory=dict)
    simulated: bool = False
    # Charts of drawn.py.
    charts: list[Chart] = dataclasses.field(default_factory=list)
    # {word of an assertion with its arguments: (its number, the unit)}.
    seen: dict[str, tuple[float, str]] = dataclasses.field(default_factory=dict)


def beforehand(case: Case, system: System, cluster: str, destructive: bool, nodes: t.Mapping[str, str]) -> Conclusion | None:
    """Return a SKIP for a case that must not run, None if it may. Nothing was made yet."""
    if cluster not in case.clusters:
        return _skipped("sharing_cluster", f"the case is for {' and '.join(case.clusters)}, and gpu_sharing_cluster is {cluster}")
    lacking = cases.lacking(case.needs, system)
    if lacking:
        return _skipped("sharing_unsupported", f"system {system.name} has no {', '.join(lacking)}")
    if all(assertion.always or cases.lacking(assertion.needs, system) for assertion in case.assertions):
        return _skipped("sharing_unsupported", f"of system {system.name} nothing can be seen that the case asserts")
    if case.destructive and not destructive:
        return _skipped("sharing_destructive", "set gpu_sharing_destructive to let it disturb the cluster")
    if case.node and not nodes.get(case.node):
        return _skipped("sharing_no_node", f"gpu_sharing_{case.node} names no node")
    return None


def _skipped(rule: str, words: str) -> Conclusion:
    return Conclusion(SKIP, f"{reasons.SKIP_RULES[rule]}: {words}", rule)


# (metrics of a case, whether they are simulated) -> (comparisons with a baseline, the reference numbers used).
Against = t.Callable[[t.Mapping[str, t.Tuple[float | None, str]], bool], t.Tuple[t.List[Object], Object]]


def conclude(case: Case, evidence: CaseEvidence, against: Against | None = None) -> Conclusion:
    """Return the conclusion of a case that ran. FAIL if an assertion is known not to hold, PASS if all are known to hold, else UNKNOWN.
    A PASS becomes a FAIL if `against` finds a regression, and UNKNOWN if a clock is too far off."""
    numbers = evidence.parameters
    conclusion = Conclusion(UNKNOWN, "", "no_sample", simulated=_simulated(evidence), charts=drawn.charts(evidence))
    ask = _noting(vocabulary.ask(evidence), conclusion.seen)
    outcomes: list[tuple[cases.Assertion, expressions.Outcome]] = []
    for assertion in case.assertions:
        if cases.lacking(assertion.needs, evidence.system):
            continue
        outcome = expressions.evaluate(assertion.expression, ask, numbers)
        outcomes.append((assertion, outcome))
        conclusion.expressions.append({
            "that": assertion.expression, "said": outcome.words, "holds": outcome.holds, "gates": list(assertion.gates),
            "cause": assertion.cause, "lacking": list(outcome.lacking),
        })  # fmt: skip
    for name, (text, unit) in case.metrics.items():
        try:
            conclusion.metrics[name] = (expressions.value(text, ask, numbers), unit)
        except expressions.Absent:
            conclusion.metrics[name] = (None, unit)
    _decide(conclusion, case, evidence, outcomes)
    if conclusion.status == PASS and against is not None:
        compared, conclusion.reference = against(conclusion.metrics, conclusion.simulated)
        conclusion.expressions += compared
        worse = next((expression for expression in compared if not expression["holds"]), None)
        if worse:
            conclusion.status, conclusion.code, conclusion.cause = FAIL, "case_failed", f"{worse['cause']}: {worse['said']}"
    skewed = _skewed(evidence)
    if conclusion.status == PASS and skewed:
        conclusion.status, conclusion.code, conclusion.cause = UNKNOWN, "clock_skew", skewed
    return conclusion


def _skewed(evidence: CaseEvidence) -> str:
    """Return a sentence about the scheduler whose clock differs too much from the API server's, empty if none does."""
    looks = (process for samples in evidence.samples.values() for sample in samples for process in sample.processes if process.ahead_s)
    worst = max(looks, key=lambda process: abs(process.ahead_s or 0), default=None)
    limit = evidence.parameters.get("clock_skew_max_s")
    if worst is None or worst.ahead_s is None or limit is None or abs(worst.ahead_s) <= limit:
        return ""
    direction = "ahead of" if worst.ahead_s > 0 else "behind"
    words = f"{abs(worst.ahead_s):.0f} s {direction} the API server's, at most clock_skew_max_s={limit:g} is allowed"
    return f"the clock of node {worst.node}, as read in its scheduler {worst.scheduler}, is {words}"


def _decide(
    conclusion: Conclusion, case: Case, evidence: CaseEvidence, outcomes: list[tuple[cases.Assertion, expressions.Outcome]]
) -> None:
    skips = [(rule, expressions.evaluate(when, vocabulary.ask(evidence), evidence.parameters)) for rule, when in case.skips]
    undecided = next((outcome for _rule, outcome in skips if outcome.holds is not False), None)
    # If it is not known whether the case applies, only an assertion of every case (`always`) can fail it.
    wrong = [(assertion, outcome) for assertion, outcome in outcomes if outcome.holds is False and (assertion.always or undecided is None)]
    if wrong:
        assertion, outcome = wrong[0]
        stopped = f"; the steps stopped: {evidence.stopped}" if evidence.stopped else ""
        conclusion.status, conclusion.code = FAIL, "case_failed"
        conclusion.cause = f"{assertion.cause or 'an assertion does not hold'}: {outcome.words}{stopped}"
        return
    rule = next((rule for rule, outcome in skips if outcome.holds), None)
    if rule:
        conclusion.status, conclusion.code, conclusion.cause = SKIP, rule, reasons.SKIP_RULES[rule]
        return
    lacking = list(dict.fromkeys([
        *([evidence.stopped] if evidence.stopped else []),
        *(undecided.lacking if undecided else ()),
        *(reason for _one, outcome in outcomes if outcome.holds is None for reason in outcome.lacking),
    ]))  # fmt: skip
    if lacking or not outcomes:
        conclusion.cause = "; ".join(lacking) or "nothing of it can be asserted of this system"
        return
    conclusion.status, conclusion.code = PASS, ""
    own = [outcome.words for assertion, outcome in outcomes if not assertion.always] or [outcome.words for _one, outcome in outcomes]
    conclusion.cause = f"all {len(outcomes)} assertions hold: {'; '.join(own)}"[:CAUSE]


def _noting(ask: expressions.Ask, seen: dict[str, tuple[float, str]]) -> expressions.Ask:
    """Return `ask` so that it adds each number that it returns to `seen`."""

    def noted(name: str, args: t.Sequence[str | float]) -> expressions.Value:
        value = ask(name, args)
        if not isinstance(value, bool):
            words = "_".join(f"{arg:g}" if isinstance(arg, float) else arg for arg in (name, *args) if arg != "")
            seen[words] = (float(value), vocabulary.unit_of(name, args))
        return value

    return noted


def _simulated(evidence: CaseEvidence) -> bool:
    looks = (scrape for samples in evidence.samples.values() for sample in samples for scrape in sample.scrapes)
    logs = [*(pod.log for pod in evidence.pods), *evidence.logs.values()]
    return any(scrape.exposition.simulated for scrape in looks if scrape.exposition) or any(
        scraped.SIMULATED in line.text for log in logs if log for line in log
    )


def observed(
    conclusion: Conclusion, case: Case, subject: SubjectData, context: Object, started_at: str, duration_s: float, variant: str
) -> Object:
    """Return a conclusion as an observation for the journal (docs/architecture.md). The verdict engine judges it as a condition."""
    operation, sampling = actions.describe(case.steps)
    full_context: Object = {
        **context,
        "condition": True,
        "case": {
            "id": case.id, "suite": case.suite, "title": case.title, "profile": case.profile, "gates": list(case.gates), "soak": case.soak,
            "status": conclusion.status, "operation": operation, "sampling": sampling, "expressions": conclusion.expressions,
            "cause": conclusion.cause[:CAUSE],
            "seen": {name: {"value": value, "unit": unit} for name, (value, unit) in conclusion.seen.items()},
            **({"charts": conclusion.charts} if conclusion.charts else {}),
            **({"baseline": conclusion.reference} if conclusion.reference else {}),
        },
    }  # fmt: skip
    common = {
        "variant": variant, "subject": subject, "context": full_context, "started_at": started_at, "duration_s": duration_s,
        "simulated": conclusion.simulated,
    }  # fmt: skip
    metrics = {name: {"value": value, "unit": unit} for name, (value, unit) in conclusion.metrics.items()}
    if conclusion.status == PASS:
        return observation.measured(case.check, metrics=metrics, **common)
    if conclusion.status == FAIL:
        full_context["findings"] = [{"code": "case_failed", "text": f"{case.id}: {conclusion.cause}"[:CAUSE]}]
        return observation.measured(case.check, metrics=metrics, **common)
    outcome = "not_applicable" if conclusion.status == SKIP else "error"
    return observation.failed(
        case.check, conclusion.code, f"{case.id}: {conclusion.cause}"[:1900], outcome=outcome, metrics=metrics, **common
    )
