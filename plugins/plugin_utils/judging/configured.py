# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Subjects that are configured in another way than their neighbours, or than NCCL is by itself, and so judged by another floor.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nccl
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import physics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import SEVERITY, Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import CONTEXT_KEYS
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Context, Measurement, is_number

# Keys of a context that are settings and not hardware, and what a machine sets them by.
SETTINGS = ("nvls", "algorithm", "proto")
SET_BY = ("NCCL_NVLS_ENABLE", "NCCL_ALGO", "NCCL_PROTO")


def complete(records: t.Mapping[Key, list[Measurement]]) -> None:
    """Set in each measurement, in place, the settings that the run made where those of its machine select: what a machine has set by itself
    is a state. What it selected stands in `as_set` then, as probes write it."""
    for attempts in records.values():
        for number, record in enumerate(attempts):
            context = record.context
            if "as_set" in context or not any(name in context for name in SETTINGS) or not _of_machine(context):
                continue
            by_run = _by_run(context)
            as_set = {name: context[name] for name in by_run}
            if by_run != as_set:
                attempts[number] = record.replaced(context={**context, **by_run, "as_set": as_set})


def opinions(deciding: t.Mapping[Key, Measurement], judged: t.Callable[[Key, Measurement], Opinion]) -> t.Iterator[tuple[Key, Opinion]]:
    """A WARN for each that is configured otherwise than most of its neighbours, or for all where nobody is in the majority; and for each
    whose machine's own settings would select a floor that it passes. None of it selects a floor: those are of the run's settings."""
    yield from _narrow(deciding)
    groups: dict[str, list[Key]] = collections.defaultdict(list)
    for key, record in deciding.items():
        context = record.context
        if record.outcome == "measured" and record.subject.kind in ("node", "group") and any(k in context for k in SETTINGS):
            hardware = [context.get(k) for k in CONTEXT_KEYS if k not in SETTINGS]
            groups[repr([key[:3], record.subject.kind, record.simulated, hardware])].append(key)
            yield from _softened(key, record, judged)
    for keys in groups.values():
        kinds: dict[str, list[Key]] = collections.defaultdict(list)
        for key in keys:
            kinds[repr(list(_in_force(deciding[key].context).values()))].append(key)
        largest = max(kinds.values(), key=len)
        clear = 2 * len(largest) > len(keys)
        for same_settings in kinds.values():
            if clear and same_settings is largest:
                continue
            contexts = [deciding[of[0]].context for of in ([largest] if clear else kinds.values()) if of is not same_settings]
            for key in same_settings:
                yield from _differs(key, deciding[key], contexts, f"{len(largest)} of {len(keys)}" if clear else "others")


def _in_force(context: Context) -> Context:
    """Return the settings that were in force on a machine, whoever made them."""
    as_set = context.get("as_set")
    return {name: (as_set if isinstance(as_set, dict) and name in as_set else context).get(name) for name in SETTINGS}


def _differs(key: Key, record: Measurement, other_contexts: list[Context], who: str) -> t.Iterator[tuple[Key, Opinion]]:
    machine = _of_machine(record.context)
    by = f" ({', '.join(machine)} of the machine itself)" if machine else ""
    own = _in_force(record.context)
    for other_context in other_contexts:
        others = _in_force(other_context)
        differences = [f"{k} is {own[k]}, of {who} {others[k]}" for k in SETTINGS if own[k] != others[k]]
        words = f"it is configured in another way than its identical neighbours{by}: {'; '.join(differences)}"
        yield key, Opinion("WARN", words, "settings_differ")


def _of_machine(context: Context) -> list[str]:
    """The settings that select a floor and that the machine has by itself."""
    machine_settings = context.get("nccl_machine")
    return [f"{name}={machine_settings[name]}" for name in SET_BY if name in machine_settings] if isinstance(machine_settings, dict) else []


def _by_run(context: Context) -> Context:
    """Return the settings of a context as the run made them; empty if it does not say what hardware they are for."""
    gpu, gpus = context.get("gpu"), context.get("gpus")
    if not isinstance(gpu, str) or not isinstance(gpus, int):
        return {}
    settings, machine = context.get("nccl_env"), context.get("nccl_machine")
    settings, machine = (of if isinstance(of, dict) else {} for of in (settings, machine))
    given = {name: str(value) for name, value in settings.items() if name not in machine}
    nodes = context.get("nodes")
    reach = gpus * (nodes if isinstance(nodes, int) and physics.across(context) else 1)
    by_run = {k: v for k, v in nccl.selection([gpu], reach, given, given).items() if k in context}
    # A machine's settings take NVLS away; that a context claims more than its hardware has is not theirs.
    return {**by_run, "nvls": bool(context["nvls"]) or by_run["nvls"]} if "nvls" in by_run else by_run


def _softened(key: Key, record: Measurement, judged: t.Callable[[Key, Measurement], Opinion]) -> t.Iterator[tuple[Key, Opinion]]:
    """A WARN for one that would pass by the floor that its machine's own settings select, and does not by that of the run's."""
    as_set, machine = record.context.get("as_set"), _of_machine(record.context)
    if not isinstance(as_set, dict) or not machine:
        return
    own, softer = judged(key, record), judged(key, record.replaced(context={**record.context, **as_set}))
    if own.reason_code != "no_expectation" and SEVERITY[own.verdict] > SEVERITY[softer.verdict]:
        settings = f"the machine's own settings ({', '.join(machine)}) select no floor"
        words = f"{settings}; if they are meant, the run sets them; by theirs it is {softer.verdict}"
        yield key, Opinion("WARN", words, "settings_differ")


def _narrow(deciding: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """A WARN for groups whose nodes have fewer or slower NICs than those of groups with the same GPUs."""
    alike: dict[str, dict[Key, float]] = collections.defaultdict(dict)
    for key, record in deciding.items():
        context = record.context
        nics, gbps = context.get("nics"), context.get("nic_gbps")
        if record.outcome != "measured" or record.subject.kind != "group" or physics.across(context):
            continue
        if is_number(nics) and is_number(gbps):
            alike[repr([key[:3], record.simulated, context.get("gpu"), context.get("gpus")])][key] = nics * gbps
    for rates in alike.values():
        highest = max(rates.values())
        for key, rate in rates.items():
            if rate < highest:
                context = deciding[key].context
                faster = sum(another > rate for another in rates.values())
                words = f"its nodes have {context['nics']} NICs of {context['nic_gbps']:g} Gb/s"
                comparison = f"{faster} of {len(rates)} groups with the same GPUs have up to {highest / rate:.3g} times as much"
                yield key, Opinion("WARN", f"{words}, {comparison}", "link_slow")
