# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The comparison of the facts of a run's nodes (judging/drift.py), like held against like.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import drift
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import FactRules, JudgingInputs, Measurement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Deviation


class FactComparison:
    """Compares the facts of the nodes of a run. `deviating` has, after opinions(), the deviating facts of each node with their severity."""

    def __init__(self, deciding: t.Mapping[Key, Measurement], inputs: JudgingInputs) -> None:
        self.deciding, self.inputs = deciding, inputs
        self.deviating: dict[str, list[Deviation]] = {}

    def opinions(self) -> t.Iterator[tuple[Key, Opinion]]:
        """Yield the deviations of facts, among nodes with the same GPUs and under the same rules, like held against like (drift.Kind).

        A node that is alone with its rules is compared with others of the same GPU, as a WARN.
        """
        pools: dict[str, dict[str, dict[str, Key]]] = collections.defaultdict(lambda: collections.defaultdict(dict))
        for key, record in self.deciding.items():
            if record.outcome == "measured" and isinstance(record.context.get("facts"), dict):
                model, under = (json.dumps(value, sort_keys=True, default=str) for value in (record.context.get("gpu"), self._rules(key)))
                pools[model][under][key[3]] = key
        for pool in pools.values():
            lone = [key for group in pool.values() if len(group) == 1 for key in group.values()]
            companions = [key for group in pool.values() if len(group) > 1 for key in group.values()]
            lone_deviations = self._drift([*lone, *companions[: drift.COMPARED]], {}) if lone else {}
            for group in pool.values():
                keys = list(group.values())
                rules = self._rules(keys[0])
                for node, facts in self._drift(keys, rules).items():
                    key = group[node]
                    if len(group) == 1:
                        facts = [*facts, *drift.softened(lone_deviations.get(node, []), rules)]
                    items: list[Deviation] = [
                        {**item, "severity": item.get("severity") or drift.severity(item, rules.get("drift"))} for item in facts
                    ]
                    items = [item for item in items if item["severity"] != "ignore"]
                    if items:
                        self.deviating[node] = items
                        yield key, _opinion(items)

    def _rules(self, key: Key) -> FactRules:
        """Return the inventory's rules for the facts of a node."""
        return self.inputs.stack.get(self.deciding[key].target) or {}

    def _drift(self, keys: list[Key], rules: FactRules) -> dict[str, list[Deviation]]:
        """Return the deviating facts of nodes under some rules, also of those that have none."""
        facts = {key[3]: self.deciding[key].context["facts"] for key in keys}
        kinds = {key[3]: self._kind(self.deciding[key]) for key in keys}
        return drift.drift(facts, rules.get("golden"), rules.get("ignore") or (), kinds)

    def _kind(self, record: Measurement) -> drift.Kind:
        """Return the key of the nodes with which the facts of a node are compared."""
        return drift.kind_of(record.context["facts"], record.plane, self.inputs.own_facts.get(record.target) or ())


def _opinion(items: list[Deviation]) -> Opinion:
    """Return the opinion on the facts in which a node deviates (plugin_utils/judging/drift.py), each with its severity."""
    sentences = []
    for item in sorted(items, key=lambda item: item["severity"] != "fail"):
        basis = {"golden": "the golden value is", "majority": f"{item['agree']} of {item['of']} nodes have"}
        text = f"{basis.get(item['basis'], 'expected')} {item['expected'][:80]}"
        sentences.append(f"{item['item']} is {item['found'][:80]}, {text}")
    shown_facts = "; ".join(sentences[:4]) + (f"; and {len(sentences) - 4} more" if len(sentences) > 4 else "")
    verdict = "FAIL" if any(item["severity"] == "fail" for item in items) else "WARN"
    return Opinion(verdict, shown_facts, "drift", findings=sentences[4:])
