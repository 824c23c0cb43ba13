# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares which power supplies, fans and other parts are there with the other machines of the same product, as their management
controllers list them.

An empty place is by design where the other machines have none there either; whether a part was pulled out, one machine alone does not show.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement

# The kind of parts of which a machine alone should not have one less than places.
SUPPLIES = "power supplies"
# Kinds without which a machine is not what was bought; disks and cards may differ between machines of one product.
FIXED = (SUPPLIES, "fans")
SHOWN = 4

# {kind of parts: {name: whether it is there}}
_Parts = t.Dict[str, t.Dict[str, bool]]
# {kind of parts: names of those without a reading}
_Silent = t.Dict[str, t.FrozenSet[str]]


def opinions(measured: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield an opinion for each machine, of one check, that lacks parts which others of its product have: FAIL if more than half of the
    others have them and they are power supplies or fans, else WARN. UNKNOWN in place of FAIL if the part is listed and has no reading: it
    may be there. A machine without others of its product has a WARN for a place without a power supply beside one that has one."""
    products: dict[str, dict[Key, _Parts]] = collections.defaultdict(dict)
    for key, m in measured.items():
        parts = _parts(m.context.get("parts"))
        if parts:
            products[str(m.context.get("product") or "")][key] = parts
    for product, machines in products.items():
        for key, parts in machines.items():
            others = [other for of, other in machines.items() if of != key] if product else []
            silent = _silent(measured[key].context.get("silent_parts"))
            for kind in {**dict.fromkeys(parts), **dict.fromkeys(silent)} if others else parts:
                names = parts.get(kind, {})
                opinion = _compared(kind, names, others, product, silent.get(kind, frozenset())) if others else _alone(kind, names)
                if opinion is not None:
                    yield key, opinion


def _compared(
    kind: str, names: t.Mapping[str, bool], others: list[_Parts], product: str, silent: t.Collection[str] = ()
) -> Opinion | None:
    """Return the opinion on the parts of a kind of one machine. A place that a machine does not list is empty: some controllers list no
    empty ones. `silent` are parts that it lists and that have no reading."""
    listing = [other[kind] for other in others if kind in other]
    counts = collections.Counter(name for other in listing for name, is_there in other.items() if is_there)
    missing = {name: count for name, count in counts.items() if not names.get(name, False)}
    if not missing:
        return None
    usual = {name: count for name, count in missing.items() if 2 * count > len(listing)}
    gone = {name: count for name, count in usual.items() if name not in silent}
    is_silent = bool(usual) and not gone and kind in FIXED
    shown = sorted(gone or usual or missing)
    words = ", ".join(shown[:SHOWN]) + (f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else "")
    count = max((gone or usual or missing).values())
    state = "has no reading, asked twice" if is_silent else "is not there"
    reason = f"{kind}: {words} {state}; {count} of {len(listing)} other machines of the product {product} have it"
    if is_silent:
        return Opinion("UNKNOWN", reason, "no_answer")
    return Opinion("FAIL", reason, "bmc_fault") if usual and kind in FIXED else Opinion("WARN", reason, "bmc_event")


def _alone(kind: str, names: t.Mapping[str, bool]) -> Opinion | None:
    empty = sorted(name for name, is_there in names.items() if not is_there)
    if kind != SUPPLIES or not empty or not any(names.values()):
        return None
    words = ", ".join(empty[:SHOWN])
    reason = f"{kind}: {words} is not there, and no other machine of its product shows whether this is by design"
    return Opinion("WARN", reason, "bmc_event")


def _silent(value: t.Any) -> _Silent:
    """Return the parts without a reading of a context, which comes from a node."""
    kinds = value if isinstance(value, dict) else {}
    return {str(kind): frozenset(map(str, names)) for kind, names in kinds.items() if isinstance(names, list) and names}


def _parts(value: t.Any) -> _Parts:
    """Return the parts of a context, which comes from a node."""
    kinds = value if isinstance(value, dict) else {}
    return {
        str(kind): {str(name): is_there for name, is_there in names.items() if isinstance(is_there, bool)}
        for kind, names in kinds.items()
        if isinstance(names, dict) and names
    }
