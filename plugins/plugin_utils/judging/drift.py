# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the facts of a node that differ from what they must be, or from what most nodes have.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import difflib
import fnmatch
import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators.registry import LIBRARY_FACTS
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import FactRules, Facts
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Deviation

# The value of a fact in one node.
Fact = t.Any

# The key of the rules for facts in a plan's judging inputs.
RULES = "stack"
# Facts that belong to one machine, or to its NVLink domain, which compares them (nvlink_domains.py): no other neighbour has to share them.
OWN = ("hostname", "machine_id", "*serial*", "*uuid*", "uptime*", "*.bdf", "nvlink_*", "imex_*")
# Facts that differ between any two machines and are held to a limit instead, of their absolute value.
LIMITS: dict[str, dict[str, float]] = {"clock_offset_s": {"max": 0.1}, "free_disk_gib_*": {"min": 5.0}}
# A difference in one of these breaks jobs or makes them slower; in anything else it is worth a look.
GRAVE = ("driver*", *LIBRARY_FACTS, "kernel", "*firmware*", "vbios*", "bios*", "gpu*", "ofed*", "fabric_manager*", "dimms")
# Comes and goes; a stage that it disturbs says so itself.
MILD = ("gpu_processes",)
# Facts that come with the product of a machine: another vendor has another BIOS, and its own part numbers of GPUs and NICs with their
# own firmware. They are compared among machines of one product only.
OF_PRODUCT = (
    "machine_*", "bios*", "vbios*", "nic_*", "cpu", "cpus", "numa_nodes", "memory_gib", "gpu_count", "gpu_pcie", "kernel_command_line",
    "dimms", "cpu_max_mhz", "cpu_boost", "cpu_smt", "numa_layout", "nvme_disks", "pcie_acs",
)  # fmt: skip
PRODUCT = "machine_product"
SHOWN = 20
# Nodes with which those are compared that are alone with their rules.
COMPARED = 32


class Kind(t.NamedTuple):
    """The key of the nodes whose facts are compared: the product of the machine ("" if unknown), the plane by which the
    facts came, and patterns of the facts that are not the machine's there (those of a pod, of its image)."""

    product: str = ""
    plane: str = ""
    own: tuple[str, ...] = ()


def kind_of(facts: Facts, plane: str, own_facts: t.Iterable[str] = ()) -> Kind:
    """The kind of a node by its facts and the plane that it was reached by."""
    product = " ".join(str(facts[name]) for name in ("machine_vendor", PRODUCT) if facts.get(name))
    return Kind(product, plane, tuple(own_facts))


def drift(
    facts_by_node: t.Mapping[str, Facts],
    golden: Facts | None = None,
    ignore: t.Iterable[str] = (),
    kinds: t.Mapping[str, Kind] | None = None,
) -> dict[str, list[Deviation]]:
    """Return the facts of each node that differ from what they must be, or from what most nodes have, {node: deviations}.

    `golden` maps a fact to what it must be: a text in which `*` stands for any text, a list of such of which one must
    match, or {"min", "max"} for a number. A fact that is a list matches where each of its entries does.
    Other facts are held to LIMITS or, unless a pattern of `ignore` names them, to the value that more than half of the
    nodes have. `basis` says which: "golden", "limit" or "majority"; "no majority" where no value has one, which then
    stands at every node; "alone" at a node whose product no other node has.
    `kinds` tells like from unlike (see _cohorts()); without it all nodes are compared with one another.
    `agree` of `of` nodes are as expected, `agreeing`; `differing` are those that share this node's value (20 at most).
    """
    golden = golden or {}
    by_node: dict[str, list[Deviation]] = {node: [] for node in facts_by_node}
    for name in sorted({name for facts in facts_by_node.values() for name in facts} | set(golden)):
        values = {node: facts.get(name) for node, facts in facts_by_node.items()}
        limit = next((limit for pattern, limit in LIMITS.items() if fnmatch.fnmatchcase(name, pattern)), None)
        if name in golden:
            deviating = _against(name, values, golden[name], "golden")
        elif _matches_any(name, ignore):
            continue
        elif limit is not None:
            deviating = _against(name, values, limit, "limit")
        elif _matches_any(name, OWN):
            continue
        else:
            deviating = {}
            for cohort in _cohorts(name, values, kinds or {}):
                deviating.update(_among(name, cohort))
            if name == PRODUCT:
                deviating.update(_alone(values, kinds or {}))
        for node, item in deviating.items():
            by_node[node].append(item)
    return by_node


def _cohorts(name: str, values: dict[str, Fact], kinds: t.Mapping[str, Kind]) -> t.Iterator[dict[str, Fact]]:
    """Yield the values of the nodes whose fact `name` can be compared: machines of one product if it comes with the product (OF_PRODUCT),
    nodes of one plane if it is not the machine's there. A fact that no node of a plane has is one that the plane does not see."""
    known_kinds = set(kinds.values())
    if len(known_kinds) < 2:
        yield values
        return
    of_product = _matches_any(name, OF_PRODUCT)
    planes_with_value = {kinds[node].plane for node, value in values.items() if value is not None}
    place: dict[Kind, tuple[str, str]] = {}
    for kind in known_kinds:
        apart = kind.plane not in planes_with_value or _matches_any(name, kind.own)
        place[kind] = (kind.product if of_product else "", kind.plane if apart else "")
    cohorts: dict[tuple[str, str], dict[str, Fact]] = collections.defaultdict(dict)
    for node, value in values.items():
        cohorts[place[kinds[node]]][node] = value
    yield from cohorts.values()


def _alone(products: dict[str, Fact], kinds: t.Mapping[str, Kind]) -> dict[str, Deviation]:
    """A deviating item for each node whose product no other node has: nobody can say whether what came with it is as it should be."""
    nodes: dict[str, list[str]] = collections.defaultdict(list)
    for node, kind in kinds.items():
        nodes[kind.product].append(node)
    expected = "a second machine of this product to compare its firmware with, or stack_golden"
    return {
        of[0]: _item(PRODUCT, products.get(of[0]), expected, "alone", agreeing=[], differing=of, of=len(kinds))
        for product, of in nodes.items()
        if product and len(of) == 1 and len(kinds) > 1
    }


def severity(item: Deviation, chosen: t.Mapping[str, str] | None = None) -> str:
    """`fail`, `warn` or `ignore` for a deviating item; `chosen` maps patterns of facts to one of these, the first that
    matches holds."""
    for pattern, worth in (chosen or {}).items():
        if fnmatch.fnmatchcase(item["item"], pattern):
            return worth
    if item["basis"] == "golden":
        return "fail"
    if item["basis"] != "majority" or _matches_any(item["item"], MILD) or item["found"].startswith("unreadable"):
        return "warn"
    return "fail" if _matches_any(item["item"], GRAVE) else "warn"


def softened(items: t.Iterable[Deviation], rules: FactRules) -> t.Iterator[Deviation]:
    """Yield the items of a node that is alone with its rules and differs from most others, as WARN; not those that its rules name."""
    for item in items:
        if item["basis"] == "majority" and not ignored(item["item"], rules):
            yield {**item, "severity": "warn"}


def ignored(fact: str, rules: FactRules) -> bool:
    """Return True if a node's rules allow another value of a fact than its neighbours have."""
    if fact in (rules.get("golden") or {}) or _matches_any(fact, rules.get("ignore") or ()):
        return True
    return next((worth for pattern, worth in (rules.get("drift") or {}).items() if fnmatch.fnmatchcase(fact, pattern)), "") == "ignore"


def named(fact: str, rules: FactRules) -> bool:
    """Return True if a node's rules name the fact itself as one that may differ; a pattern such as `gpu*` says nothing about it."""
    listed = (rules.get("golden") or {}, rules.get("ignore") or ())
    return any(fact in names for names in listed) or (rules.get("drift") or {}).get(fact) == "ignore"


def misspelt(fact: str) -> str:
    """Return the fact that a name of the rules probably means, empty if it is known, a pattern, or near to nothing."""
    known = (*OWN, *LIMITS, *GRAVE, *MILD, *OF_PRODUCT)
    if _matches_any(fact, known) or any(character in fact for character in "*?["):
        return ""
    names = [name.strip("*_") for name in known if len(name.strip("*_")) > 3]
    near = difflib.get_close_matches(fact, names, 1, 0.8)
    return near[0] if near and near[0] != fact else ""


def lasting(fact: str) -> bool:
    """Return True if a fact stays the same until somebody changes it; a fact with a limit is another number each time."""
    return not _matches_any(fact, (*LIMITS, "uptime*"))


def text(value: t.Any) -> str:
    """A fact as it is compared and shown."""
    if value is None:
        return "absent"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _matches_any(name: str, patterns: t.Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _against(name: str, values: dict[str, Fact], required: t.Any, basis: str) -> dict[str, Deviation]:
    """The nodes whose value is not as wanted."""
    good = [node for node, value in values.items() if _fits(value, required, basis)]
    bad = set(values) - set(good)
    if isinstance(required, dict):
        expected = " and ".join(
            f"at {'least' if bound == 'min' else 'most'} {required[bound]:g}" for bound in sorted(required)
        )
    else:
        expected = " or ".join(map(text, required if isinstance(required, list) else [required]))
    alike = collections.defaultdict(list)
    for node in bad:
        alike[text(values[node])].append(node)
    return {
        node: _item(name, value, expected, basis, agreeing=good, differing=alike[text(value)], of=len(values))
        for node, value in values.items()
        if node in bad
    }


def _fits(value: t.Any, required: t.Any, basis: str) -> bool:
    if isinstance(required, dict):
        if value is None:
            return basis == "limit"  # a node without such a disk or time keeper has nothing to hold to the limit
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        return bool(required.get("min", float("-inf")) <= abs(value) <= required.get("max", float("inf")))
    patterns = [text(pattern) for pattern in (required if isinstance(required, list) else [required])]
    entries = value if isinstance(value, list) and value else [value]
    return _fits_text(text(value), patterns) or all(_fits_text(text(entry), patterns) for entry in entries)


def _fits_text(value: str, patterns: list[str]) -> bool:
    # Equal first: brackets in a value are no pattern.
    return value in patterns or any(fnmatch.fnmatchcase(value, pattern) for pattern in patterns)


def _among(name: str, values: dict[str, Fact]) -> dict[str, Deviation]:
    """Return the nodes whose value differs from the majority value; all nodes if no value has a majority."""
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for node, value in values.items():
        # Why something could not be read differs in words, not in kind.
        groups["unreadable" if text(value).startswith("unreadable") else text(value)].append(node)
    if len(groups) == 1:
        return {}
    ranked = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    majority = ranked[0][1]
    clear = 2 * len(majority) > len(values)
    spread = ", ".join(f"{value[:60]} on {len(nodes)}" for value, nodes in ranked[:4])
    deviating: dict[str, Deviation] = {}
    for _value, nodes in ranked[1:] if clear else ranked:
        for node in nodes:
            if clear:
                node_value, expected = _difference(values[node], values[majority[0]])
                deviating[node] = _item(name, node_value, expected, "majority", agreeing=majority, differing=nodes, of=len(values))
            else:
                expected = f"no value has a majority: {spread}"
                deviating[node] = _item(
                    name, values[node], expected, "no majority", agreeing=[], differing=nodes, of=len(values)
                )
    return deviating


def _difference(value: t.Any, expected: t.Any) -> tuple[t.Any, t.Any]:
    """Return two long lists, such as those of all Python packages, without their common items."""
    if not (isinstance(value, list) and isinstance(expected, list)) or len(value) + len(expected) < 10:
        return value, expected
    return [v for v in value if v not in expected] or "absent", [v for v in expected if v not in value] or "absent"


def _item(
    name: str, value: t.Any, expected: t.Any, basis: str, *, agreeing: list[str], differing: list[str], of: int
) -> Deviation:
    return {
        "item": name,
        "found": text(value),
        "expected": text(expected),
        "basis": basis,
        "agree": len(agreeing),
        "of": of,
        "agreeing": sorted(agreeing)[:SHOWN],
        "differing": sorted(differing)[:SHOWN],
    }
