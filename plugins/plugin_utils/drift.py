# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which facts of a node differ from what they must be, or from what most nodes have.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import fnmatch
import json
import typing as t

# Facts that belong to one machine.
OWN = ("hostname", "machine_id", "*serial*", "*uuid*", "free_disk*", "clock_offset*", "uptime*", "gpu_processes", "*.bdf")
# A difference in one of these breaks jobs; in anything else it is worth a look.
GRAVE = ("driver", "cuda*", "nccl*", "kernel", "*firmware*", "vbios*", "bios*", "gpu*", "ofed*", "fabric_manager*")


def drift(
    facts_by_node: dict[str, dict[str, t.Any]], golden: dict[str, t.Any] | None = None, ignore: t.Iterable[str] = ()
) -> dict[str, list[dict[str, t.Any]]]:
    """{node: facts} -> {node: [{"item", "found", "expected", "basis", "agree", "of", "agreeing", "differing"}]}.

    `golden` maps a fact to the text it must match (`*` stands for any text), or to a list of such. Other facts are held
    against the value that most of the nodes have; where no value has more than half of them, `basis` is "no majority".
    """
    ignored = (*OWN, *ignore)
    found: dict[str, list[dict[str, t.Any]]] = {node: [] for node in facts_by_node}
    items = sorted({item for facts in facts_by_node.values() for item in facts} | set(golden or {}))
    for item in items:
        if golden and item in golden:
            allowed = golden[item] if isinstance(golden[item], list) else [golden[item]]
            for node, facts in facts_by_node.items():
                if not any(fnmatch.fnmatchcase(text(facts.get(item)), text(want)) for want in allowed):
                    found[node].append(_item(item, facts.get(item), " or ".join(map(text, allowed)), "golden", [], [node]))
            continue
        if any(fnmatch.fnmatchcase(item, pattern) for pattern in ignored):
            continue
        nodes_by_value: dict[str, list[str]] = collections.defaultdict(list)
        for node, facts in facts_by_node.items():
            nodes_by_value[text(facts.get(item))].append(node)
        if len(nodes_by_value) == 1:
            continue
        majority, agreeing = max(nodes_by_value.items(), key=lambda pair: (len(pair[1]), pair[0]))
        clear = 2 * len(agreeing) > len(facts_by_node)
        for value, nodes in nodes_by_value.items():
            if value == majority and clear:
                continue
            for node in nodes:
                found[node].append(
                    _item(item, facts_by_node[node].get(item), majority if clear else "no value has a majority",
                          "majority" if clear else "no majority", agreeing if clear else [], nodes)
                )  # fmt: skip
    return found


def severity(item: dict[str, t.Any], chosen: dict[str, str] | None = None) -> str:
    """`fail`, `warn` or `ignore` for a deviating item; `chosen` maps patterns of facts to one of these."""
    for pattern, worth in (chosen or {}).items():
        if fnmatch.fnmatchcase(item["item"], pattern):
            return worth
    if item["basis"] == "golden":
        return "fail"
    grave = any(fnmatch.fnmatchcase(item["item"], pattern) for pattern in GRAVE)
    return "fail" if grave and item["basis"] == "majority" else "warn"


def text(value: t.Any) -> str:
    """A fact as it is compared and shown."""
    if value is None:
        return "absent"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _item(
    item: str, found: t.Any, expected: str, basis: str, agreeing: list[str], differing: list[str]
) -> dict[str, t.Any]:
    return {
        "item": item,
        "found": text(found),
        "expected": expected,
        "basis": basis,
        "agree": len(agreeing),
        "of": len(agreeing) + len(differing),
        "agreeing": sorted(agreeing)[:20],
        "differing": sorted(differing)[:20],
    }
