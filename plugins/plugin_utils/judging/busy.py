# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers that are too low, measured while others used the processors of the machine: nobody knows what they would have been without.

A busy host makes no verdict better: a FAIL or WARN for a number becomes UNKNOWN. Wrong results, defects and passes stay what they are.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, is_number

# Reasons of a number that a busy processor may explain.
NUMBERS = frozenset({"below_floor", "below_warn", "below_siblings", "below_neighbours", "sweep_dip", "straggler"})
# From this share of the processors on, others disturb a measurement; or from one processor on, if tasks waited for a processor in this
# share of the time. On an H100 machine with 16 processors others took 0.02 to 0.06 and tasks waited in 0.000 to 0.006 while we measured;
# with 16 busy loops of others it was 15.0 to 15.4, and 0.05 to 0.08: `train` gave 206 in place of 226 TFLOPS.
SHARE, STALLED = 0.10, 0.05
# Of the processors a hypervisor may take so many away.
STOLEN_SHARE = 0.05


def words(record: Measurement | None) -> str | None:
    """Return who else used the processors while a record was measured, as a clause; None if nobody did to speak of, or it is not known.
    A simulated number is not slowed by them."""
    others = record.evidence.get("others") if record is not None and not record.simulated else None
    if not isinstance(others, dict):
        return None
    of, processors, stolen, stalled = (others.get(name) for name in ("of", "processors", "stolen", "stalled"))
    if not is_number(of) or not of > 0 or not is_number(processors):
        return None
    waited = stalled if is_number(stalled) else 0.0
    if processors >= SHARE * of or (processors >= 1 and waited >= STALLED):
        programs = others.get("programs")
        names = ", ".join(map(str, programs)) if isinstance(programs, list) and programs else "programs that cannot be seen from here"
        stalls = f", and tasks waited for a processor in {100 * waited:.0f} % of the time" if waited >= STALLED else ""
        return f"other programs used {processors:.1f} of the machine's {of:.0f} processors{stalls}: {names[:300]}"
    if is_number(stolen) and stolen >= STOLEN_SHARE * of:
        return f"the hypervisor took {stolen:.1f} of the machine's {of:.0f} processors for others"
    return None


def doubted(opinions: t.Iterable[Opinion], clause: str | None) -> list[Opinion]:
    """Return the opinions, with UNKNOWN in place of each FAIL or WARN for a number if others used the processors (words())."""
    return [
        opinion.but("UNKNOWN", "busy_host", f"{opinion.reason}; but while it was measured {clause}")
        if clause and opinion.verdict in ("FAIL", "WARN") and opinion.reason_code in NUMBERS
        else opinion
        for opinion in opinions
    ]
