# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user's expectations that were applied to no measurement of a run, although they seem to be meant for it.

An inventory is shared by many runs, so an entry for a stage, check or GPU that this run does not have is no mistake. A mistake is

* an entry for a stage, check and GPU of this run that was not applied, while no other entry of the user was applied to that GPU and check;
* a size that no sweep had;
* a name that almost equals a name of this run and is no known product.

If nodes were left out, by --limit or by a sample, only the last two are reported.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import difflib
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected.matching import mismatch, row_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands, physics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectation, Expectations, shipped
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import stages as our_stages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Context, JudgingInputs, Measurement, Plan, is_number

# So alike are two names of which one is taken for a misspelling of the other.
ALIKE = 0.8


class Seen(t.NamedTuple):
    """The measurements of one check on one kind of hardware: context and sizes of the sweep."""

    number: int
    stage: str
    check: str
    context: Context
    sizes: frozenset[int]

    def differs(self, entry: Expectation) -> list[str]:
        """Keys of an entry's match in which it is not about this."""
        context = {**self.context, "stage": self.stage, "check": self.check}
        return [key for key, value in entry.match.items() if mismatch({key: value}, context) is not None]


def warnings(plan: Plan, records: t.Iterable[Measurement], inputs: JudgingInputs) -> list[str]:
    """A line for each; `inputs` are those of the judgement (planning.judging_inputs), `records` well-formed measurements."""
    of = inputs.of
    sets = [Expectations.load(dumped) for dumped in inputs.sets]
    user_entries: dict[tuple[str, str], Expectation] = {}
    where: dict[tuple[str, str], set[int]] = {}
    for index in set(of.values()):
        for entry in sets[index].entries:
            if entry.layer != "shipped":
                user_entries[entry.origin, entry.id] = entry
                where.setdefault((entry.origin, entry.id), set()).add(index)
    if not user_entries:
        return []
    cases = _seen_kinds(records, of, {key for entry in user_entries.values() for key in entry.match})
    used_keys = [key for key, entry in user_entries.items() if any(not case.differs(entry) for case in cases if case.number in where[key])]
    sentences = []
    for key, entry in sorted(user_entries.items()):
        stage_cases = [case for case in cases if case.number in where[key] and case.stage == entry.match["stage"]]
        competing = [user_entries[held_key] for held_key in used_keys if held_key != key]
        sentence = _in_vain(entry, stage_cases, key in used_keys, competing, plan)
        if sentence:
            sentences.append(f"{entry.origin}: no measurement was held to it: {sentence}")
    return sentences


def _seen_kinds(records: t.Iterable[Measurement], of: dict[str, int], keys: set[str]) -> list[Seen]:
    """Once of each kind: thousands of nodes are a few."""
    by_text: dict[str, Seen] = {}
    for record in records:
        index = of.get(node_of(record.subject.id), of.get(record.target))
        if record.outcome == "measured" and index is not None:
            context = {key: record.context[key] for key in sorted(keys & set(record.context))}
            sizes = frozenset(int(row["size"]) for row in record.series if is_number(row.get("size")))
            case = Seen(index, record.stage, record.check, context, sizes)
            by_text.setdefault(repr((*case[:4], sorted(sizes))), case)
    return list(by_text.values())


def _in_vain(entry: Expectation, stage_cases: list[Seen], is_used: bool, competing: list[Expectation], plan: Plan) -> str | None:
    """Return why an entry is taken for a mistake; None if it is not, or if nothing says so."""
    if is_used:
        return _no_size(entry, [case for case in stage_cases if not case.differs(entry)])
    stages = {stage["name"] for stage in plan.stages} | {*plan.skipped_stages}
    if entry.match["stage"] not in stages:
        return _misspelt(entry, "stage", stages, our_stages())
    checks = {item.check for item in plan.items if item.stage == entry.match["stage"]}
    if "check" in entry.match and not checks & set(_listed(entry, "check")):
        return _misspelt(entry, "check", checks, _shipped_values("check"))
    stage_cases = [case for case in stage_cases if "check" not in case.differs(entry)]
    if not stage_cases:
        return None
    if "gpu" in entry.match and all("gpu" in case.differs(entry) for case in stage_cases):
        return _misspelt(entry, "gpu", {str(case.context.get("gpu")) for case in stage_cases}, {*_shipped_values("gpu"), *physics.PRODUCTS})
    if plan.left_out or entry.match["stage"] in plan.sample or any(_of_a_kind(entry, competing) for competing in competing):
        return None
    nearest = min((case for case in stage_cases if "gpu" not in case.differs(entry)), key=lambda case: len(case.differs(entry)))
    return "; ".join(
        f"match.{key}: found {', '.join(map(str, _listed(entry, key)))}, measured was {nearest.context.get(key)}"
        for key in nearest.differs(entry)
    )


def _no_size(entry: Expectation, cases: list[Seen]) -> str | None:
    def has(case: Seen, size: t.Any) -> bool:
        return size is None or row_of(size, case.sizes) is not None

    if not cases or any(has(case, size) for case in cases for size in entry.sizes):
        return None
    sizes = {size for case in cases for size in case.sizes}
    sizes_expected = " and ".join(bands.human(size) if isinstance(size, int) else str(size) for size in entry.sizes)
    sizes_text = f"{len(sizes)} sizes from {bands.human(min(sizes))} to {bands.human(max(sizes))}" if sizes else "no message sizes"
    return f"match.size: found {sizes_expected}, measured were {sizes_text}"


def _misspelt(entry: Expectation, key: str, measured_values: t.Iterable[str], known_values: t.Iterable[str]) -> str | None:
    """Return the sentence about a value of an entry that is no known value and almost equals one of `measured_values`, or None."""
    for value in _listed(entry, key):
        near = [name for name in measured_values if alike(str(value), name)]
        if near and value not in known_values:
            best = max(near, key=lambda name: difflib.SequenceMatcher(None, str(value), name).ratio())
            return f"match.{key}: found {value!r}, did you mean {best!r}?"
    return None


def alike(word_a: str, word_b: str) -> bool:
    """Return True if one is a likely misspelling of the other."""
    short, long = sorted((re.sub(r"[^a-z0-9]", "", word.lower()) for word in (word_a, word_b)), key=len)
    return bool(short) and (short in long or difflib.SequenceMatcher(None, short, long).ratio() >= ALIKE)


def _listed(entry: Expectation, key: str) -> list[t.Any]:
    value = entry.match[key]
    return value if isinstance(value, list) else [value]


def _shipped_values(key: str) -> set[str]:
    return {value for entry in shipped().entries if key in entry.match for value in _listed(entry, key)}


def _of_a_kind(entry_a: Expectation, entry_b: Expectation) -> bool:
    """Return True if two entries are variants for one GPU, stage and check, such as for 4 and for 8 GPUs."""
    keys = ("stage", "check", "gpu")
    picked = [{key: entry.match[key] for key in keys if key in entry.match} for entry in (entry_a, entry_b)]
    return entry_a.metric == entry_b.metric and ("gpu" in picked[0]) == ("gpu" in picked[1]) and physics.overlap(picked[0], picked[1])
