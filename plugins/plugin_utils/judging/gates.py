# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Published limits of the same hardware, and the lint of the shipped expectations against them.

A limit of somebody else decides no verdict. It says what a maker or an operator refuses: an entry of ours that passes such a number is
too soft.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import matching
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands, expectations, physics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.physics import LintFinding
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Match

FILE = expectations.FILES / "gates.yml"
CONFIDENCE = ("published", "quoted")


@dataclasses.dataclass(frozen=True)
class Gate:
    """One published limit (files/gates.yml). `value` is the least that it lets pass, `refuses` the number below which it refuses, where
    these are two. `share` is what our test gives of what the limit's own test gives, `why` the reason; `not_held` why no entry is held to
    it."""

    id: str
    match: Match
    metric: str
    value: float
    unit: str
    by: str
    date: str
    confidence: str
    refuses: float | None = None
    share: float = 1.0
    why: str = ""
    not_held: str = ""

    def contexts(self) -> t.Iterator[dict[str, t.Any]]:
        """Yield the context of each kind of machine that the limit is about, with the message size."""
        keys = list(self.match)
        options = [value if isinstance(value, list) else [value] for value in self.match.values()]
        for values in itertools.product(*options):
            yield dict(zip(keys, values, strict=True))


def load() -> list[Gate]:
    """Return the published limits. Raises ExpectationError for one that cannot be used."""
    made = []
    for number, raw in enumerate(yaml_load(FILE.read_text(encoding="utf-8"))):
        try:
            gate = Gate(**raw)
        except TypeError as error:
            raise expectations.ExpectationError(f"{FILE}, entry {number + 1}: {error}") from error
        if gate.unit not in physics.UNITS or gate.confidence not in CONFIDENCE or not gate.by or (gate.share != 1.0 and not gate.why):
            expected = f"a known unit, {' or '.join(CONFIDENCE)}, `by`, and `why` of a share"
            raise expectations.ExpectationError(f"{FILE}: {gate.id}: expected {expected}")
        made.append(gate)
    return made


def judging(gate: Gate, entries: expectations.Expectations) -> dict[str, expectations.Expectation]:
    """Return the entries, by id, that judge the hardware of a limit at its message size."""
    found = {}
    for context in gate.contexts():
        size = context.pop("size", None)
        slots = [None] if size is None else list(matching.slots_of(size))
        check = context.get("check", f"{context.get('op')}_bw")
        by_size = {
            chosen.size: chosen.expectation
            for chosen in entries.choose(context["stage"], check, context)
            if chosen.expectation.metric == gate.metric
        }
        entry = next((by_size[slot] for slot in slots if slot in by_size), None)
        if entry is not None:
            found[entry.id] = entry
    return found


def lint(entries: t.Sequence[expectations.Expectation], gates: t.Sequence[Gate]) -> t.Iterator[LintFinding]:
    """Yield an error for each shipped entry that passes a number which a limit of the same hardware refuses, that does not name the limits
    that it was held against, or names others; and for each limit whose hardware no entry is about."""
    resolved = expectations.Expectations(entries)
    held: dict[str, set[str]] = {entry.id: set() for entry in entries}
    for gate in gates:
        judged_by = judging(gate, resolved)
        if not judged_by and not gate.not_held:
            text = f"{gate.id}: no entry judges its hardware: correct its match, or say why in not_held"
            yield LintFinding("error", FILE.name, gate.id, text)
        for entry in judged_by.values():
            held[entry.id].add(gate.id)
            if not gate.not_held:
                yield from _softer(entry, gate)
    for entry in entries:
        named, due = set(entry.gates), held[entry.id]
        if named != due:
            found, expected = (", ".join(sorted(ids)) or "none" for ids in (named, due))
            text = f"gates: found {found}, expected {expected}: the limits of its hardware"
            yield LintFinding("error", entry.origin, entry.id, text)


def _softer(entry: expectations.Expectation, gate: Gate) -> t.Iterator[LintFinding]:
    passes, warns = (physics.convert(limit, entry.unit, gate.unit) for limit in bands.limits(entry))
    for word, ours, limit in (("PASS", passes, gate.value), ("WARN", warns, gate.refuses)):
        if limit is None:
            continue
        theirs = gate.share * limit
        too_soft = ours > theirs * (1 + 1e-3) if entry.better == "lower" else ours < theirs * (1 - 1e-3)
        if too_soft:
            text = f"{word} from {ours:g} {gate.unit} on, and {gate.id} refuses below {theirs:g} ({gate.by})"
            yield LintFinding("error", entry.origin, entry.id, text)
