# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Subjects that are configured in another way than their neighbours, or than NCCL is by itself, and so judged by another floor.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import nccl
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import physics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import SEVERITY, Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import CONTEXT_KEYS
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Context, Measurement, is_number

# Keys of a context that are settings and not hardware, and what a machine sets them by.
SETTINGS = ("nvls", "algorithm", "proto")
SET_BY = ("NCCL_NVLS_ENABLE", "NCCL_ALGO", "NCCL_PROTO")


def opinions(deciding: t.Mapping[Key, Measurement], judged: t.Callable[[Key, Measurement], Opinion]) -> t.Iterator[tuple[Key, Opinion]]:
    """A WARN for each that differs from most of its neighbours, or for all where nobody is in the majority. One that is set so by the
    machine itself, and not by the run, is `judged` by its neighbours' floors too: nobody has said that it should be softer. Where all are
    set so, it is a WARN where that is what makes them pass."""
    yield from _narrow(deciding, judged)
    groups: dict[str, list[Key]] = collections.defaultdict(list)
    for key, record in deciding.items():
        context = record.context
        if record.outcome == "measured" and record.subject.kind in ("node", "group") and any(k in context for k in SETTINGS):
            hardware = [context.get(k) for k in CONTEXT_KEYS if k not in SETTINGS]
            groups[repr([key[:3], record.subject.kind, record.simulated, hardware])].append(key)
    for keys in groups.values():
        kinds: dict[str, list[Key]] = collections.defaultdict(list)
        for key in keys:
            kinds[repr([deciding[key].context.get(k) for k in SETTINGS])].append(key)
        largest = max(kinds.values(), key=len)
        clear = 2 * len(largest) > len(keys)
        for same_settings in kinds.values():
            if clear and same_settings is largest:
                for key in same_settings:
                    yield from _softened(key, deciding[key], judged)
                continue
            contexts = [deciding[of[0]].context for of in ([largest] if clear else kinds.values()) if of is not same_settings]
            for key in same_settings:
                yield from _differs(key, deciding[key], contexts, f"{len(largest)} of {len(keys)}" if clear else "others", judged)


def _differs(
    key: Key, record: Measurement, other_contexts: list[Context], who: str, judged: t.Callable[[Key, Measurement], Opinion]
) -> t.Iterator[tuple[Key, Opinion]]:
    context = record.context
    machine = _of_machine(context)
    by = f" ({', '.join(machine)} of the machine itself)" if machine else ""
    for other_context in other_contexts:
        differences = [
            f"{k} is {context.get(k)}, of {who} {other_context.get(k)}" for k in SETTINGS if context.get(k) != other_context.get(k)
        ]
        words = f"it is configured in another way than its identical neighbours{by}: {'; '.join(differences)}"
        yield key, Opinion("WARN", words, "settings_differ")
        if machine:
            opinion = judged(key, record.replaced(context={**context, **{k: other_context[k] for k in SETTINGS if k in other_context}}))
            if SEVERITY[opinion.verdict] > SEVERITY["PASS"] and opinion.reason_code != "no_expectation":
                yield key, opinion._replace(reason=f"held to what its neighbours are held to: {opinion.reason}; {words}")


def _of_machine(context: Context) -> list[str]:
    """The settings that select a floor and that the machine has by itself."""
    machine_settings = context.get("nccl_machine")
    return [f"{name}={machine_settings[name]}" for name in SET_BY if name in machine_settings] if isinstance(machine_settings, dict) else []


def _softened(key: Key, record: Measurement, judged: t.Callable[[Key, Measurement], Opinion]) -> t.Iterator[tuple[Key, Opinion]]:
    """A WARN for one that passes by the floor that its machine's own settings select, and would not by that of NCCL without them."""
    context = record.context
    machine = _of_machine(context)
    gpu, gpus = context.get("gpu"), context.get("gpus")
    if not machine or not isinstance(gpu, str) or not isinstance(gpus, int):
        return
    settings = context.get("nccl_env")
    settings = settings if isinstance(settings, dict) else {}
    given_settings = {name: str(value) for name, value in settings.items() if name not in context["nccl_machine"]}
    nodes = context.get("nodes")
    reach = gpus * (nodes if isinstance(nodes, int) and physics.across(context) else 1)
    plain: Context = {"nvls": nccl.nvls([gpu], reach, given_settings)}
    plain.update(
        {k: given_settings.get(f"NCCL_{name}", "auto").lower() for k, name in (("algorithm", "ALGO"), ("proto", "PROTO")) if k in context}
    )
    softened, unchanged = judged(key, record.replaced(context={**context, **plain})), judged(key, record)
    if softened.reason_code != "no_expectation" and SEVERITY[softened.verdict] > SEVERITY[unchanged.verdict]:
        words = f"the machine's own settings select its floor ({', '.join(machine)}); without them: {softened.verdict}, {softened.reason}"
        yield key, Opinion("WARN", words, "settings_differ")


def _narrow(deciding: t.Mapping[Key, Measurement], judged: t.Callable[[Key, Measurement], Opinion]) -> t.Iterator[tuple[Key, Opinion]]:
    """Groups whose floor is that of the NICs that are left: others are there and not active, or groups with the same GPUs have more or
    faster ones."""
    alike: dict[str, dict[Key, float]] = collections.defaultdict(dict)
    for key, record in deciding.items():
        context = record.context
        nics, gbps, down = (context.get(name) for name in ("nics", "nic_gbps", "nics_down"))
        if record.outcome != "measured" or record.subject.kind != "group" or physics.across(context):
            continue
        if not is_number(nics) or not is_number(gbps):
            continue
        alike[repr([key[:3], record.simulated, context.get("gpu"), context.get("gpus")])][key] = nics * gbps
        if is_number(down) and down > 0:
            with_all_ports = judged(key, record.replaced(context={**context, "nics": nics + down}))
            if with_all_ports.reason_code != "no_expectation" and SEVERITY[with_all_ports.verdict] > SEVERITY[judged(key, record).verdict]:
                words = f"it passes by the floor for {nics} NICs, and {down} more are there and not active"
                advice = "bring them up, or leave them out by NCCL_IB_HCA"
                reason = f"{words}: {advice}; {with_all_ports.reason}"
                yield key, with_all_ports._replace(verdict="UNKNOWN", reason=reason, reason_code="port_down")
    for rates in alike.values():
        highest = max(rates.values())
        for key, rate in rates.items():
            if rate < highest:
                context = deciding[key].context
                faster = sum(another > rate for another in rates.values())
                words = f"its nodes have {context['nics']} NICs of {context['nic_gbps']:g} Gb/s"
                comparison = f"{faster} of {len(rates)} groups with the same GPUs have up to {highest / rate:.3g} times as much"
                yield key, Opinion("WARN", f"{words}, {comparison}", "link_slow")
