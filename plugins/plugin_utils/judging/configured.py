# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Subjects of the same hardware that are configured in another way than their neighbours, and so judged by another floor.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import SEVERITY, Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import CONTEXT_KEYS
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key

Record = t.Dict[str, t.Any]
# Keys of a context that are settings and not hardware, and what a machine sets them by.
SETTINGS = ("nvls", "algorithm", "proto")
SET_BY = ("NCCL_NVLS_ENABLE", "NCCL_ALGO", "NCCL_PROTO")


def opinions(deciding: t.Mapping[Key, Record], judged: t.Callable[[Key, Record], Opinion]) -> t.Iterator[tuple[Key, Opinion]]:
    """A WARN for each that differs from most of its neighbours, or for all where nobody is in the majority. One that is set so by the
    machine itself, and not by the run, is `judged` by its neighbours' floors too: nobody has said that it should be softer."""
    groups: dict[str, list[Key]] = collections.defaultdict(list)
    for key, record in deciding.items():
        context = record["context"]
        if record["outcome"] == "measured" and record["subject"]["kind"] in ("node", "group") and any(k in context for k in SETTINGS):
            hardware = [context.get(k) for k in CONTEXT_KEYS if k not in SETTINGS]
            groups[repr([key[:3], record["subject"]["kind"], record["simulated"], hardware])].append(key)
    for keys in groups.values():
        kinds: dict[str, list[Key]] = collections.defaultdict(list)
        for key in keys:
            kinds[repr([deciding[key]["context"].get(k) for k in SETTINGS])].append(key)
        most = max(kinds.values(), key=len)
        clear = 2 * len(most) > len(keys)
        for mine in kinds.values() if len(kinds) > 1 else ():
            if clear and mine is most:
                continue
            others = [deciding[of[0]]["context"] for of in ([most] if clear else kinds.values()) if of is not mine]
            for key in mine:
                yield from _differs(key, deciding[key], others, f"{len(most)} of {len(keys)}" if clear else "others", judged)


def _differs(
    key: Key, record: Record, others: list[dict[str, t.Any]], who: str, judged: t.Callable[[Key, Record], Opinion]
) -> t.Iterator[tuple[Key, Opinion]]:
    context = record["context"]
    own = context.get("nccl_machine")
    machine = [f"{name}={own[name]}" for name in SET_BY if name in own] if isinstance(own, dict) else []
    by = f" ({', '.join(machine)} of the machine itself)" if machine else ""
    for theirs in others:
        said = [f"{k} is {context.get(k)}, of {who} {theirs.get(k)}" for k in SETTINGS if context.get(k) != theirs.get(k)]
        words = f"it is configured in another way than its identical neighbours{by}: {'; '.join(said)}"
        yield key, Opinion("WARN", words, "settings_differ")
        if machine:
            found = judged(key, {**record, "context": {**context, **{k: theirs[k] for k in SETTINGS if k in theirs}}})
            if SEVERITY[found.verdict] > SEVERITY["PASS"] and found.reason_code != "no_expectation":
                yield key, dataclasses.replace(found, reason=f"held to what its neighbours are held to: {found.reason}; {words}")
