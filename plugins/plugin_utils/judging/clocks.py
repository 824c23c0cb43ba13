# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clocks of nodes against the clock of the controller, as the answers of nodes show them.

The clock of a node is ahead if its answer was given later than it arrived, and behind if the node began before it was asked: both are
certain, however long the way and the work took.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import SKEW, SKEW_S
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, is_number

# Kerberos, certificates and joins of clusters bear minutes at most.
FAIL_S = 60.0
# The check that the opinion is about, if it is planned.
CHECK = "clock"
# From so many nodes on, most of which agree, the controller's own clock is in doubt.
MANY = 3
# Seconds within which clocks agree: the way and the work of an answer hide a part of the skew.
AGREE_S = 30.0


def opinions(deciding: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield an opinion for each node whose clock is off: on its check of the clock, else on its first check."""
    checks: dict[str, list[Key]] = collections.defaultdict(list)
    skews: dict[str, float] = {}
    for key, record in deciding.items():
        if record.subject.kind != "node":
            continue
        checks[key.subject].append(key)
        skew = record.context.get(SKEW)
        if is_number(skew) and abs(skew) > abs(skews.get(key.subject, SKEW_S)):
            skews[key.subject] = float(skew)
    median = statistics.median(skews.values()) if skews else 0.0
    agreeing = {node for node, skew in skews.items() if abs(skew - median) <= AGREE_S}
    is_controllers = 2 * len(agreeing) > len(checks) and len(checks) >= MANY
    for node, skew in skews.items():
        key = min(checks[node], key=lambda key: (key.check != CHECK, key))
        where = "ahead of" if skew > 0 else "behind"
        reason = f"the clock of the node is at least {abs(skew):.0f} s {where} the controller's"
        is_excused = is_controllers and node in agreeing
        if is_excused:
            reason += "; so are the clocks of most nodes, so the controller's own clock may be wrong"
        elif len(checks) < MANY:
            reason += "; one of the two is wrong, compare both with the time"
        is_off = abs(skew) > FAIL_S and not is_excused
        yield key, Opinion("FAIL" if is_off else "WARN", reason, "clock_off" if is_off else "clock_offset")
