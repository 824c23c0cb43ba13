# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gates P0, P1 and P2 of a matrix: proven, failed or not proven, each with its cases.

A case that was skipped or not run proves nothing. A shortened soak proves nothing for P2.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cases import GATES, Case

PROVEN, FAILED, NOT_PROVEN = "proven", "failed", "not proven"
ELSEWHERE = "sharing_cluster"


@dataclasses.dataclass(frozen=True)
class CaseResult:
    """The result of a case on one cluster. `code` is the rule of a skip, `expressions` are the assertions as conclusion.py writes them, and
    `scale` is 1 unless the case was shortened."""

    id: str
    host: str
    verdict: str
    code: str
    reason: str
    scale: float
    soak: bool
    expressions: t.Sequence[t.Mapping[str, t.Any]]


@dataclasses.dataclass
class Gate:
    """The state of one gate: its proven cases, and {case: why} for those that failed or prove nothing."""

    name: str
    proven: list[str] = dataclasses.field(default_factory=list)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)
    lacking: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def state(self) -> str:
        return FAILED if self.failed else NOT_PROVEN if self.lacking or not self.proven else PROVEN


def gates(cases: t.Sequence[Case], results: t.Sequence[CaseResult]) -> list[Gate]:
    """Return the state of every gate. `cases` are all cases of the matrix, including those that were not run."""
    all_gates = []
    for name in GATES:
        gate = Gate(name)
        for case in cases:
            case_results = [result for result in results if result.id == case.id and result.code != ELSEWHERE]
            if name in case.gates:
                _add_case(gate, case, case_results)
            else:  # the case proves nothing for this gate, but an assertion of every case may fail the gate
                _add_case(gate, case, [result for result in case_results if _state_by(name, result)[0] == FAILED and result.expressions])
        all_gates.append(gate)
    return all_gates


def _add_case(gate: Gate, case: Case, results: t.Sequence[CaseResult]) -> None:
    if not results and gate.name in case.gates:
        gate.lacking[case.id] = "it was not run on a cluster that it is for"
        return
    verdicts = [(result, *_state_by(gate.name, result)) for result in results]
    failed = [f"{result.host}: {why}" for result, state, why in verdicts if state == FAILED]
    lacking = [f"{result.host}: {why}" for result, state, why in verdicts if state == NOT_PROVEN]
    if failed:
        gate.failed[case.id] = "; ".join(failed)
    elif lacking:
        gate.lacking[case.id] = "; ".join(lacking)
    elif results:
        gate.proven.append(case.id)


def _state_by(gate: str, result: CaseResult) -> tuple[str, str]:
    """Return the state of a gate by one result, with the reason. A failed assertion of another gate does not count."""
    expressions = [expression for expression in result.expressions if gate in expression["gates"]]
    wrong = next((expression for expression in expressions if expression["holds"] is False), None)
    if wrong is not None:
        return FAILED, f"{wrong['cause'] or 'an assertion does not hold'}: {wrong['said']}"
    if result.verdict == "FAIL" and not any(expression["holds"] is False for expression in result.expressions):
        return FAILED, result.reason
    if gate == "P2" and result.soak and result.scale != 1:
        return NOT_PROVEN, f"its soak was shortened to {result.scale:g} of its time"
    if result.verdict in ("SKIPPED", "UNKNOWN") or not expressions or any(expression["holds"] is not True for expression in expressions):
        return NOT_PROVEN, f"{result.verdict}: {result.reason}"
    return PROVEN, ""
