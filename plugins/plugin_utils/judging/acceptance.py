# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decision on a run by its verdicts: if it is accepted, and why.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Cause, JudgingInputs, Measurement, Plan, Verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Coverage


class GatedStage(t.Protocol):
    """The part of a stage's description (stages/base.py) that a decision uses."""

    gated: bool
    quick_conditions: frozenset[str]

    def proof(self, rows: list[tuple[Verdict, Measurement]]) -> tuple[str, str]: ...


class Decision(t.NamedTuple):
    """The decision on a run, with the fields of a Judgement of the same names."""

    passed: bool
    accepted: bool
    why: str
    coverage: Coverage
    unproven: list[str]
    speed_not_proven: list[str]


class Acceptance:
    """Decides on a run. `changed` says what of the evidence is not as it was written; `warnings` are about the run as a whole."""

    def __init__(
        self,
        plan: Plan,
        inputs: JudgingInputs,
        stages: t.Mapping[str, GatedStage],
        deciding: t.Mapping[Key, Measurement],
        changed: t.Sequence[str],
        warnings: t.Sequence[str],
    ) -> None:
        self.plan, self.inputs, self.stages = plan, inputs, stages
        self.deciding, self.changed, self.warnings = deciding, changed, warnings

    def decide(
        self,
        planned: list[Verdict],
        derived: list[Verdict],
        everything: list[Verdict],
        extras: list[Verdict],
        found_causes: list[Cause],
    ) -> Decision:
        """Return the decision by the verdicts of a run: of the plan's items, of what follows from them, of everything, and of what was
        measured and not planned."""
        counts: collections.Counter[str] = collections.Counter(v.verdict for v in planned)
        unproven = self._unproven(planned)
        refused = [
            *self._refusals(planned, derived, everything, extras, found_causes),
            *(refusal for refusal, _what in unproven if refusal),
        ]
        not_proven = [missing_proof for _refusal, missing_proof in unproven if missing_proof]
        why = "; ".join(refused) if refused else self._acceptable(planned, counts)
        if self.plan.partial:
            quick = "a quick test is no acceptance" if self.plan.not_proven else ""
            parts = "this run left parts of the fleet or of the stages out" if self._left_out() or not quick else ""
            why += f"; PARTIAL: {' and '.join(filter(None, (quick, parts)))}"
        why += "".join(f"; {missing_proof}" for missing_proof in not_proven)
        return Decision(
            passed=not refused,
            accepted=not refused and not not_proven and self.plan.mode != "quick",
            why=why,
            coverage=self._coverage(planned, everything, counts),
            unproven=not_proven,
            speed_not_proven=self._speed_not_proven(planned),
        )

    def _refusals(
        self,
        planned: list[Verdict],
        derived: list[Verdict],
        everything: list[Verdict],
        extras: list[Verdict],
        found_causes: list[Cause],
    ) -> t.Iterator[str]:
        """Yield what speaks against the run. Who is to blame is named, whoever found it, and not what is bad because of somebody else."""
        because = {key: subjects.bearer(c["kind"], c["subject"]) for c in found_causes for key in c["explains"]}
        failed = {because.get(v.key) or subjects.bearer(v.subject.kind, v.subject.id) for v in everything if v.verdict == "FAIL"}
        unknowns_of = [v for v in (*planned, *derived) if v.verdict == "UNKNOWN"]
        unknown = {because.get(v.key) or subjects.bearer(v.subject.kind, v.subject.id) for v in unknowns_of} - failed
        fails, unknowns = (sum(v.verdict == word for v in planned) for word in ("FAIL", "UNKNOWN"))
        bad_extras = sum(v.verdict == "FAIL" for v in extras)
        warned = sum(v.verdict == "WARN" for v in everything) + len(self.warnings)
        refuse_worse = self.inputs.regression == "refuse"
        worse = {subjects.bearer(v.subject.kind, v.subject.id) for v in everything if v.regressed} if refuse_worse else set()
        refusals = [
            (self.changed, "; ".join(self.changed)),
            (not planned, "the plan is empty: nothing was to be measured"),
            (failed, f"FAIL on {subjects.named(failed)}"),
            (unknown, f"UNKNOWN on {subjects.named(unknown)}"),
            (fails or unknowns, f"{fails} FAIL and {unknowns} UNKNOWN of {len(planned)} planned checks"),
            (bad_extras, f"{bad_extras} FAIL of checks that were not planned"),
            (planned and not fails and not unknowns and not self._shown_to_work(planned), self._nothing_shown),
            (self.inputs.warn != "accept" and warned, f"{warned} WARN, and acceptance_warn is {self.inputs.warn}"),
            (worse, f"worse than its own past: {subjects.named(worse)}, and acceptance_regression is {self.inputs.regression}"),
        ]
        yield from (text for refuses, text in refusals if refuses)

    def _acceptable(self, planned: list[Verdict], counts: t.Mapping[str, int]) -> str:
        """Return the sentence about a run that nothing speaks against."""
        planned_subjects = {subjects.bearer(v.subject.kind, v.subject.id) for v in planned}
        why = f"all {len(planned)} planned checks on {subjects.counted(kind for kind, _name in planned_subjects)} are acceptable"
        why += f", {counts['WARN']} with a WARN to read" if counts["WARN"] else ""
        why += f", {len(self.warnings)} WARN of the run as a whole" if self.warnings else ""
        return why + (f", {counts['KNOWN_FAIL']} under a waiver" if counts["KNOWN_FAIL"] else "")

    def _coverage(self, planned: list[Verdict], everything: list[Verdict], counts: t.Mapping[str, int]) -> Coverage:
        measured_count = sum(self._done(v) for v in planned)
        return {
            "planned": len(planned),
            "measured": measured_count,
            "skipped": counts["SKIPPED"],
            "verdicts": {word: counts[word] for word in bands.SEVERITY if counts[word]},
            "ratio": measured_count / len(planned) if planned else 0.0,
            "unknown": [f"{v.subject.id} {v.stage} {v.check}" for v in everything if v.verdict == "UNKNOWN"],
            "not_measured": [_in_words(v) for v in planned if not self._done(v)],
        }

    def _shown_to_work(self, planned: list[Verdict]) -> bool:
        """Return True if a planned check is a PASS, or was measured and is a WARN in a run that accepts WARN."""
        passed = any(v.verdict == "PASS" for v in planned)
        warned = (v for v in planned if v.verdict == "WARN" and self.inputs.warn == "accept")
        return passed or any(self.deciding[v.key].outcome == "measured" for v in warned)

    @property
    def _nothing_shown(self) -> str:
        words = "PASS or a measured WARN" if self.inputs.warn == "accept" else "PASS"
        return f"no planned check is a {words}: nothing was shown to work"

    def _speed_not_proven(self, planned: list[Verdict]) -> list[str]:
        """Return one text for each stage and GPU model whose speed a quick test did not judge, because no expectation exists."""
        checks: set[tuple[str, str, str]] = set()
        for verdict in planned if self.plan.mode == "quick" else ():
            stage, record = self.stages.get(verdict.stage), self.deciding.get(verdict.key)
            if not stage or record is None or record.outcome != "measured":
                continue
            if verdict.expectation is None and verdict.check in stage.quick_conditions:
                checks.add((verdict.stage, verdict.check, str(record.context.get("gpu") or "this hardware")))
        return [f"the speed of {stage} {check} on {gpu} (no expectation is known)" for stage, check, gpu in sorted(checks)]

    def _unproven(self, planned: list[Verdict]) -> list[tuple[str, str]]:
        """Return, for each stage whose checks prove something together, why the run is refused, and what is not proven."""
        gated = {name: stage for name, stage in self.stages.items() if stage.gated}
        rows: dict[str, list[tuple[Verdict, Measurement]]] = {name: [] for name in gated}
        for verdict in planned if gated else ():
            record = self.deciding.get(verdict.key)
            if record is not None and verdict.stage in gated:
                rows[verdict.stage].append((verdict, record))
        return [stage.proof(rows[name]) for name, stage in gated.items() if rows[name]]

    def _left_out(self) -> bool:
        return bool(self.plan.left_out or self.plan.skipped_stages)

    def _done(self, verdict: Verdict) -> bool:
        """Return True if a check has a result: what was found to be bad has one, also where no number came of it."""
        if verdict.verdict in ("FAIL", "KNOWN_FAIL"):
            return True
        record = self.deciding.get(verdict.key)
        return record is not None and record.outcome in ("measured", "not_applicable")


def _in_words(verdict: Verdict) -> str:
    """Return a check with its verdict: `gpu-04 nccl_node all_reduce: UNKNOWN (timeout)`."""
    check = " ".join(filter(None, (verdict.subject.id, verdict.stage, verdict.check, verdict.variant)))
    return f"{check}: {verdict.verdict}{f' ({verdict.reason_code})' if verdict.reason_code else ''}"
