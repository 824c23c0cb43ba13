# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The findings of one reading of a matrix (judging/matrix.py): whom they name, how sure they are, and by which cells.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise.search import SearchFinding
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_repeats import Confidence
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_table import TOLD, PairTable, whole


class Findings:
    """The findings about one table, in the order in which they were made."""

    def __init__(self, table: PairTable) -> None:
        self.table = table
        self._findings: list[SearchFinding] = []

    def add(
        self,
        kind: Literal["node", "nic", "pair", "switch", "group"],
        members: Iterable[str],
        confidence: Confidence,
        reason: str,
        *,
        cells: Iterable[tuple[str, str]],
        alternatives: Iterable[tuple[str, str]] = (),
        name: str = "",
        behind: Iterable[str] = (),
    ) -> None:
        """Add a finding; `behind`: ports whose other cells say nothing of anybody else as long as it is bad."""
        members = tuple(dict.fromkeys(map(whole, members)))
        alike: list[dict[str, object]] = [
            {"kind": kind, "id": key, "members": key.split("|")}
            for kind, key in dict.fromkeys((kind, whole(key)) for kind, key in alternatives)
        ]
        evidence = self.table.evidence(cells)
        hidden = {"|".join(sorted(map(whole, (p, o)))) for p in behind for o in self.table.bad[p] | self.table.unknown[p]}
        self._findings.append(
            SearchFinding(kind, name or "|".join(members), members, confidence, reason, evidence, tuple(alike), tuple(sorted(hidden)))
        )

    def merged(self) -> tuple[SearchFinding, ...]:
        """Return one finding for each port and path, where both directions have one."""
        by_key: dict[tuple[str, str], SearchFinding] = {}
        for finding in self._findings:
            key = (finding.kind, finding.id)
            earlier = by_key.get(key)
            if earlier is None:
                by_key[key] = finding
                continue
            reason = finding.reason if finding.reason in earlier.reason else f"{earlier.reason}; {finding.reason}"
            sure = either([earlier.confidence, finding.confidence])
            alike = tuple(name for name in earlier.indistinguishable if name in finding.indistinguishable)
            evidence = (*earlier.evidence[: TOLD // 2], *finding.evidence[: TOLD // 2])  # of both
            by_key[key] = dataclasses.replace(earlier, confidence=sure, reason=reason, evidence=evidence, indistinguishable=alike)
        return tuple(by_key.values())


def together(states: list[Confidence]) -> Confidence:
    """Return the confidence of a whole from its parts: "suspected" first, then that of the least sure part."""
    for state in ("suspected", "unresolved", "convicted"):
        if state in states:
            return state
    return "unresolved"


def either(states: list[Confidence]) -> Confidence:
    """Return the confidence of a port from its two roles: "suspected" first, then that of the surer role."""
    for state in ("suspected", "convicted"):
        if state in states:
            return state
    return "unresolved"
