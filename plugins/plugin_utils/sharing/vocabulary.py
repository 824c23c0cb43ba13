# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vocabulary of assertions: each word returns a number or a truth value from the evidence of a case.

A word never guesses: it raises Absent if the evidence that it needs is missing or incomplete, and the assertion is then unknown.
The words are in the folder `words`.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import CaseEvidence
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.expressions import Absent, Call, Value
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words import (
    allocations,
    changes,
    clients,
    ladder,
    metrics,
    pods,
    quotas,
    schedulers,
    speeds,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words.register import METRIC, WORDS

# The modules that have registered their words by being imported.
MODULES = (pods, speeds, allocations, changes, metrics, clients, quotas, schedulers, ladder)


def ask(evidence: CaseEvidence) -> t.Callable[[str, t.Sequence[str | float]], Value]:
    """Return a function that evaluates words on the evidence, for expressions.evaluate()."""

    def evaluate(name: str, args: t.Sequence[str | float]) -> Value:
        try:
            return WORDS[name].of(evidence, *args)
        except KeyError as error:  # the case has no `needs` for an ability that the system lacks
            raise Absent(f"the description of {evidence.system.name} does not say {error}") from error

    return evaluate


def problem(call: Call) -> str | None:
    """Return why a call is invalid with any evidence, None if it is valid."""
    entry = WORDS.get(call.word)
    if entry is None:
        return f"{call.word} is not known; expected one of {', '.join(sorted(WORDS))}"
    if not entry.optional <= len(call.args) <= len(entry.kinds):
        return f"{call.word}: found {len(call.args)} arguments, expected {', '.join(entry.kinds) or 'none'}"
    return None


# {the end of a metric's name: its unit}.
_UNITS = {"_bytes": "B", "_percent": "percent", "_ms": "ms", "_ratio": "ratio", "_throttled": "ratio"}


def unit_of(name: str, args: t.Sequence[str | float]) -> str:
    """Return the unit of the number that a word returns."""
    entry = WORDS[name]
    if entry.unit or METRIC not in entry.kinds:
        return entry.unit or "count"
    metric_name = str(args[entry.kinds.index(METRIC)])
    return next((unit for suffix, unit in _UNITS.items() if metric_name.endswith(suffix)), "count")
