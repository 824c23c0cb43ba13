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

Facts = t.Mapping[str, t.Any]

# Facts that belong to one machine: no neighbour has to share them.
OWN = ("hostname", "machine_id", "*serial*", "*uuid*", "uptime*", "*.bdf")
# Facts that differ between any two machines and are held to a limit instead, of their absolute value.
LIMITS: dict[str, dict[str, float]] = {"clock_offset_s": {"max": 0.1}, "free_disk_gib_*": {"min": 5.0}}
# A difference in one of these breaks jobs or makes them slower; in anything else it is worth a look.
GRAVE = ("driver*", "cuda*", "nccl*", "kernel", "*firmware*", "vbios*", "bios*", "gpu*", "ofed*", "fabric_manager*")
# Comes and goes; a stage that it disturbs says so itself.
MILD = ("gpu_processes",)
SHOWN = 20


def drift(
    facts_by_node: t.Mapping[str, Facts], golden: Facts | None = None, ignore: t.Iterable[str] = ()
) -> dict[str, list[dict[str, t.Any]]]:
    """{node: facts} -> {node: [{"item", "found", "expected", "basis", "agree", "of", "agreeing", "differing"}]}.

    `golden` maps a fact to what it must be: a text in which `*` stands for any text, a list of such of which one must
    match, or {"min", "max"} for a number. A fact that is a list matches where each of its entries does.
    Other facts are held to LIMITS or, unless a pattern of `ignore` names them, to the value that more than half of the
    nodes have. `basis` says which: "golden", "limit" or "majority"; "no majority" where no value has one, which then
    stands at every node.
    `agree` of `of` nodes are as expected, `agreeing`; `differing` are those that share this node's value (20 at most).
    """
    golden = golden or {}
    found: dict[str, list[dict[str, t.Any]]] = {node: [] for node in facts_by_node}
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
            deviating = _among(name, values)
        for node, item in deviating.items():
            found[node].append(item)
    return found


def severity(item: t.Mapping[str, t.Any], chosen: t.Mapping[str, str] | None = None) -> str:
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


def ignored(fact: str, rules: t.Mapping[str, t.Any]) -> bool:
    """Whether a node's rules ({"golden", "ignore", "drift"}) say that it may have another value than its neighbours have."""
    if fact in (rules.get("golden") or {}) or _matches_any(fact, rules.get("ignore") or ()):
        return True
    return next((worth for pattern, worth in (rules.get("drift") or {}).items() if fnmatch.fnmatchcase(fact, pattern)), "") == "ignore"


def lasting(fact: str) -> bool:
    """Whether it stays as it is until somebody changes it; what is held to a limit is another number each time."""
    return not _matches_any(fact, (*LIMITS, "uptime*"))


def text(value: t.Any) -> str:
    """A fact as it is compared and shown."""
    if value is None:
        return "absent"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _matches_any(name: str, patterns: t.Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _against(name: str, values: dict[str, t.Any], wanted: t.Any, basis: str) -> dict[str, dict[str, t.Any]]:
    """The nodes whose value is not as wanted."""
    good = [node for node, value in values.items() if _fits(value, wanted, basis)]
    bad = set(values) - set(good)
    if isinstance(wanted, dict):
        expected = " and ".join(
            f"at {'least' if bound == 'min' else 'most'} {wanted[bound]:g}" for bound in sorted(wanted)
        )
    else:
        expected = " or ".join(map(text, wanted if isinstance(wanted, list) else [wanted]))
    alike = collections.defaultdict(list)
    for node in bad:
        alike[text(values[node])].append(node)
    return {
        node: _item(name, value, expected, basis, agreeing=good, differing=alike[text(value)], of=len(values))
        for node, value in values.items()
        if node in bad
    }


def _fits(value: t.Any, wanted: t.Any, basis: str) -> bool:
    if isinstance(wanted, dict):
        if value is None:
            return basis == "limit"  # a node without such a disk or time keeper has nothing to hold to the limit
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        return bool(wanted.get("min", float("-inf")) <= abs(value) <= wanted.get("max", float("inf")))
    patterns = [text(pattern) for pattern in (wanted if isinstance(wanted, list) else [wanted])]
    entries = value if isinstance(value, list) and value else [value]
    return _fits_text(text(value), patterns) or all(_fits_text(text(entry), patterns) for entry in entries)


def _fits_text(value: str, patterns: list[str]) -> bool:
    # Equal first: brackets in a value are no pattern.
    return value in patterns or any(fnmatch.fnmatchcase(value, pattern) for pattern in patterns)


def _among(name: str, values: dict[str, t.Any]) -> dict[str, dict[str, t.Any]]:
    """The nodes that differ from the value of more than half of them; all nodes, where there is none."""
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for node, value in values.items():
        # Why something could not be read differs in words, not in kind.
        groups["unreadable" if text(value).startswith("unreadable") else text(value)].append(node)
    if len(groups) == 1:
        return {}
    ranked = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    most = ranked[0][1]
    clear = 2 * len(most) > len(values)
    spread = ", ".join(f"{value[:60]} on {len(nodes)}" for value, nodes in ranked[:4])
    found = {}
    for _value, nodes in ranked[1:] if clear else ranked:
        for node in nodes:
            if clear:
                seen, expected = _difference(values[node], values[most[0]])
                found[node] = _item(name, seen, expected, "majority", agreeing=most, differing=nodes, of=len(values))
            else:
                expected = f"no value has a majority: {spread}"
                found[node] = _item(
                    name, values[node], expected, "no majority", agreeing=[], differing=nodes, of=len(values)
                )
    return found


def _difference(found: t.Any, expected: t.Any) -> tuple[t.Any, t.Any]:
    """Of two long lists, as those of all Python packages, only what the other has not."""
    if not (isinstance(found, list) and isinstance(expected, list)) or len(found) + len(expected) < 10:
        return found, expected
    return [v for v in found if v not in expected] or "absent", [v for v in expected if v not in found] or "absent"


def _item(
    name: str, found: t.Any, expected: t.Any, basis: str, *, agreeing: list[str], differing: list[str], of: int
) -> dict[str, t.Any]:
    return {
        "item": name,
        "found": text(found),
        "expected": text(expected),
        "basis": basis,
        "agree": len(agreeing),
        "of": of,
        "agreeing": sorted(agreeing)[:SHOWN],
        "differing": sorted(differing)[:SHOWN],
    }
