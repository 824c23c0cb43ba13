# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gates P0, P1 and P2 of a matrix: proven, failed or not proven, each with its cases.

A skipped case proves nothing, nor does one that is not in the run; a shortened soak proves nothing of P2.

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
    """The result of a case on one cluster: its verdict, the rule of a skip, its assertions as conclusion.py writes them, and how much it
    was shortened."""

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
    """`failed` and `lacking` are {case: why}; `proven` the cases that are."""

    name: str
    proven: list[str] = dataclasses.field(default_factory=list)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)
    lacking: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def state(self) -> str:
        return FAILED if self.failed else NOT_PROVEN if self.lacking or not self.proven else PROVEN


def gates(cases: t.Sequence[Case], results: t.Sequence[CaseResult]) -> list[Gate]:
    """`cases` are all of the matrix, whether they were run or not."""
    found = []
    for name in GATES:
        gate = Gate(name)
        for case in cases:
            mine = [one for one in results if one.id == case.id and one.code != ELSEWHERE]
            if name in case.gates:
                _put(gate, case, mine)
            else:  # it proves nothing of this gate, but what holds for every case may fail it
                _put(gate, case, [one for one in mine if _alone(name, one)[0] == FAILED and one.expressions])
        found.append(gate)
    return found


def _put(gate: Gate, case: Case, results: t.Sequence[CaseResult]) -> None:
    if not results and gate.name in case.gates:
        gate.lacking[case.id] = "it was not run on a cluster that it is for"
        return
    verdicts = [(one, *_alone(gate.name, one)) for one in results]
    failed = [f"{one.host}: {why}" for one, state, why in verdicts if state == FAILED]
    lacking = [f"{one.host}: {why}" for one, state, why in verdicts if state == NOT_PROVEN]
    if failed:
        gate.failed[case.id] = "; ".join(failed)
    elif lacking:
        gate.lacking[case.id] = "; ".join(lacking)
    elif results:
        gate.proven.append(case.id)


def _alone(gate: str, result: CaseResult) -> tuple[str, str]:
    """Return the state of a gate by one result: a failed assertion of another gate fails that other gate."""
    mine = [one for one in result.expressions if gate in one["gates"]]
    wrong = next((one for one in mine if one["holds"] is False), None)
    if wrong is not None:
        return FAILED, f"{wrong['cause'] or 'an assertion does not hold'}: {wrong['said']}"
    if result.verdict == "FAIL" and not any(one["holds"] is False for one in result.expressions):
        return FAILED, result.reason
    if gate == "P2" and result.soak and result.scale != 1:
        return NOT_PROVEN, f"its soak was shortened to {result.scale:g} of its time"
    if result.verdict in ("SKIPPED", "UNKNOWN") or not mine or any(one["holds"] is not True for one in mine):
        return NOT_PROVEN, f"{result.verdict}: {result.reason}"
    return PROVEN, ""
