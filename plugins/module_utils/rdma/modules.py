# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules in the ports of a node, by ethtool and mlxlink, and what they say is wrong with them.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, plain_tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import optics
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

ETHTOOL, MLXLINK = "ethtool", ("mlxlink", "mstlink")
# Bit errors behind the correction from which a link is worth a look: the rate that links are specified for (InfiniBand Architecture
# Specification 1.7, volume 2, bit error rate of a link).
MOST_BER = 1e-12
SHOWN = 4


class Module(t.NamedTuple):
    """The module in a port as a measurement has it, findings [{"code", "part", "text"}], what was printed, and why it was not looked at."""

    row: PlainData
    findings: t.List[PlainData]
    raw: str
    unseen: str


def module(node: Node, port: PlainData, timeout: float) -> Module:
    """Return what is known of the module in a port. mlxlink, which says more, is asked first."""
    name = f"{port['device']} port {port['port']}"
    raws: list[str] = []
    reasons: list[str] = []
    found: optics.Optics | None = None
    tool = next(filter(node.which, MLXLINK), None)
    if tool:
        result = node.run([tool, "-d", port["device"], "-p", str(port["port"]), "-m", "-c", "--json"], timeout=timeout)
        raws.append(result.raw)
        found = optics.mlxlink(result.out)
        if not (found.values or found.serial or found.link):
            reasons.append(f"{tool}: {'; '.join(found.unread)}")
            found = None
    if found is None and node.which(ETHTOOL) and port["netdev"]:
        # --json came with 6.15 or so; older ones do not take it with -m.
        for words in (["--json", "-m"], ["-m"]):
            result = node.run([ETHTOOL, *words, port["netdev"]], timeout=timeout)
            raws.append(result.raw)
            if result.ok:
                found = optics.ethtool(result.out)
                if found.alarms and port["state"] == "ACTIVE":
                    again = node.run(result.argv, timeout=timeout)
                    raws.append(again.raw)
                    found = _lasting(found, optics.ethtool(again.out) if again.ok else found)
                break
        if found is None or not (found.values or found.serial or found.vendor):
            reasons.append(f"{ETHTOOL}: {' '.join((result.err or result.out).split())[-150:] or 'it prints no module'}")
            found = None
    if found is None:
        why = "; ".join(reasons) or "neither ethtool nor mlxlink is installed, or the port has no network device"
        return Module({}, [], "\n".join(raws), f"{name}: {why}")
    part = f"nic/{port['device']}/{port['port']}"
    row = {
        "port": f"{port['device']}/{port['port']}", "vendor": found.vendor, "part_number": found.part, "serial": found.serial,
        "values": plain_tree(found.values), "limits": plain_tree(found.limits), "link": plain_tree(found.link),
        "alarms": [*found.alarms, *found.faulty], "warnings": found.warnings,
    }  # fmt: skip
    active = port["state"] == "ACTIVE"
    problems, unused = _problems(found, port["link_layer"] == "Ethernet")
    if active and unused:
        # Whether the link should have these lanes is known by the other end and by links of its kind: judged with those of all nodes.
        row["unused"] = {"words": unused, "width": optics.width_of(str(found.link.get("width", ""))), "wired": found.wired}
    findings = [{"code": code, "part": part, "text": f"{name}: {text}"} for code, text in problems] if active else []
    dark = [value.why for lanes in found.values.values() for value in lanes if isinstance(value, Absent)] if active else []
    if dark:
        findings.append({"code": "no_answer", "part": part, "text": f"{name}: not known of its module: {'; '.join(dark[:SHOWN])}"})
    unseen = f"{name}: {'; '.join(found.unread[:SHOWN])}" if found.unread else ""
    return Module(row, findings, "\n".join(raws), unseen)


def _lasting(first: optics.Optics, again: optics.Optics) -> optics.Optics:
    """Return a module by its second look. Flags are latched (SFF-8636, CMIS): the first look finds what was raised since the last one, as
    when the other end was dark before its fibre was plugged in; what is over is a warning."""
    if not again.values or again.serial != first.serial:
        return first
    over = [f"{name}, which was over at once" for name in first.alarms if name not in again.alarms]
    return again._replace(warnings=[*again.warnings, *over])


def _problems(found: optics.Optics, is_ethernet: bool = False) -> tuple[list[tuple[str, str]], list[str]]:
    """Return [(reason code, sentence)] of a module in a port that is up: its own alarms and warnings, values beyond its own limits, and bit
    errors that the correction did not mend; and what is wrong in lanes that the link does not use, in words.

    A link of Ethernet that is up has light in each of its lanes, as nothing of it works without one: what is dark in both directions is no
    lane of it. One of InfiniBand may run with fewer lanes, which `spare_lanes` tells."""
    what = f"module {' '.join(filter(None, (found.vendor, found.part, found.serial))) or 'without a name'}"
    advice = "clean or replace the module or its fibre"
    spare = optics.spare_lanes(str(found.link.get("width", "")), _lanes(found))
    if is_ethernet and not spare:
        found = _without(found, found.unlit())
    beyond = list(_beyond(found))
    of_lanes = [*((name, lanes, "low alarm") for name, lanes in found.faulty.items()), *(each for each in beyond if each[1])]
    # All that is wrong has to be in the lanes that are left over, whichever these are.
    is_spare = bool(of_lanes) and len({lane for _words, lanes, _level in of_lanes for lane in lanes}) <= spare
    unused = [words for words, _lanes_of_it, _level in of_lanes] if is_spare else []
    graded = [(words, level) for words, _lanes_of_it, level in [*([] if is_spare else of_lanes), *(each for each in beyond if not each[1])]]
    alarms = [*found.alarms, *(words for words, level in graded if level.endswith("alarm"))]
    warnings = [*found.warnings, *(words for words, level in graded if level.endswith("warning"))]
    problems: list[tuple[str, str]] = []
    if alarms:
        problems.append(("nic_fault", f"{what} raises {', '.join(alarms[:SHOWN])}: {advice}"))
    elif warnings:
        problems.append(("nic_event", f"{what} warns of {', '.join(warnings[:SHOWN])}: {advice}"))
    for name in ("effective_ber", "symbol_ber"):
        rate = found.link.get(name)
        if isinstance(rate, (int, float)) and rate > MOST_BER:
            words = f"{name.replace('_', ' ')} {rate:.1e}, a healthy link has at most {MOST_BER:.0e}: {advice}"
            problems.append(("port_errors", words))
            break
    if found.link.get("advice"):
        problems.append(("nic_event", f"mlxlink recommends: {found.link['advice']}"))
    return problems, unused


def _without(found: optics.Optics, lanes: set[int]) -> optics.Optics:
    """Return a module without some of its lanes."""
    if not lanes:
        return found
    gone = [name for name, raised in found.lanes.items() if raised and lanes.issuperset(raised)]
    faulty = {name: [lane for lane in bad if lane not in lanes] for name, bad in found.faulty.items()}
    return found._replace(
        values={
            name: [value for lane, value in enumerate(values) if len(values) == 1 or lane not in lanes]
            for name, values in found.values.items()
        },
        alarms=[name for name in found.alarms if name not in gone],
        warnings=[name for name in found.warnings if name not in gone],
        faulty={name: bad for name, bad in faulty.items() if bad},
    )


def _lanes(found: optics.Optics) -> int:
    """Return the number of lanes that a module has values or alarms of."""
    return max([*map(len, found.values.values()), *(max(lanes) + 1 for lanes in found.faulty.values())], default=0)


def _beyond(found: optics.Optics) -> t.Iterator[tuple[str, list[int], str]]:
    """Yield (words, lanes, level) of each value beyond a limit of the module. `lanes` are those whose value is too low, as that of a
    lane without light; empty if another reason is behind it."""
    for name, limits in found.limits.items():
        for level, limit in limits.items():
            # 0 is what modules without the limit print.
            if isinstance(limit, Absent) or limit == 0:
                continue
            is_low, values = level.startswith("low"), found.values.get(name, [])
            beyond = {
                lane: value for lane, value in enumerate(values)
                if not isinstance(value, Absent) and (value < limit if is_low else value > limit)
            }  # fmt: skip
            if beyond:
                words = f"{name.replace('_', ' ')} {beyond[min(beyond)]:.3g} {optics.UNITS[name]} ({level} {limit:.3g})"
                yield words, list(beyond) if is_low and len(values) > 1 else [], level
