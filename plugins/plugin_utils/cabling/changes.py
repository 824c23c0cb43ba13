# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The differences between a fabric at the beginning and at the end of a run: errors that were counted, and links that are gone, moved or
slower.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import End, Finding, Map

# Counters that a finding names.
SHOWN = 4


def findings(before: Map, after: Map, counted: bool) -> list[Finding]:
    """Return what changed in the devices that both looks saw. `counted`: both looks read the counters of errors."""
    return [*(_errors(before, after) if counted else ()), *_links(before, after), *_managers(before, after)]


def _managers(before: Map, after: Map) -> t.Iterator[Finding]:
    for name in sorted(after.silent.keys() - before.silent.keys()):
        words = f"a subnet manager answered in {name} when the run began, and at its end {after.silent[name]}"
        yield Finding("FAIL", "subnet_manager", words)


def _errors(before: Map, after: Map) -> t.Iterator[Finding]:
    for end, counters in sorted(after.counted.items()):
        then = before.counted.get(end, {})
        # One that is lower was cleared, and has counted all of this since.
        rose = {name: count - then.get(name, 0) if count >= then.get(name, 0) else count for name, count in counters.items()}
        rose = {name: count for name, count in rose.items() if count}
        if rose:
            words = ", ".join(f"{name} by {count} to {counters[name]}" for name, count in sorted(rose.items())[:SHOWN])
            words = f"{after.spoken(end)}: counters of errors rose during the run: {words}"
            yield Finding("WARN", "port_errors", words, _both(before, end))


def _links(before: Map, after: Map) -> t.Iterator[Finding]:
    for end, far in sorted(before.links.items()):
        if end > far or (end.device not in after.devices and far.device not in after.devices):
            continue
        now = after.links.get(end)
        if now is None and after.links.get(far) is None:
            why = next((f" ({after.down[each]})" for each in (end, far) if each in after.down), "")
            words = f"{before.spoken(end)} had a link with {before.spoken(far)} when the run began, and has none at its end{why}"
            yield Finding("FAIL", "cable_missing", words, (end, far))
        elif now != far:
            ends = [f"{before.spoken(each)} to {after.spoken(after.links[each])}" for each in (end, far) if each in after.links]
            words = f"{before.spoken(end)} had a link with {before.spoken(far)} when the run began; at its end {' and '.join(ends)}"
            yield Finding("FAIL", "cable_wrong", f"{words}: the cable was moved during the run", (end, far))
        elif end in before.rates and end in after.rates and after.rates[end].gbps < before.rates[end].gbps:
            was, is_now = before.rates[end], after.rates[end]
            words = (
                f"{before.spoken(end)} with {before.spoken(far)} ran at {was.gbps:g} Gb/s ({was.words}) when the run began, and runs at "
                f"{is_now.gbps:g} ({is_now.words}) at its end"
            )
            yield Finding("FAIL", "link_slow", words, (end, far))


def _both(fabric: Map, end: End) -> tuple[End, ...]:
    far = fabric.links.get(end)
    return (end,) if far is None else (end, far)
