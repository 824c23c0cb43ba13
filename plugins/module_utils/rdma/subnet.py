# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The InfiniBand fabric as a node sees it through one of its ports, by ibnetdiscover, iblinkinfo, ibqueryerrors, sminfo, vendstat and
dump_fts.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import os
import time
import typing as t
import zlib

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import infiniband
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

TOOL = "ibnetdiscover"
DEVICES = "/dev/infiniband"
# Counters that are no errors: those of a busy healthy link, and of packets that a switch had to send back where they came from, such as
# multicast, which ibqueryerrors(8) calls a side effect (--suppress-common).
NO_ERRORS = "PortXmitWait,PortRcvSwitchRelayErrors"
# What the node could not do, by the tool that does it.
STATES, ERRORS, MANAGER, FIRMWARE, ROUTES = "iblinkinfo", "ibqueryerrors", "sminfo", "vendstat", "dump_fts"
# The most entries of all tables of routes that a measurement holds: those of 256 switches to 8,192 ports and a few more.
MOST_ROUTES = 2500000
# A switch answers within milliseconds; vendstat asks three times. So many switches, and so many seconds, are for their firmware. If none of
# the first ones tells it, the others are not asked: they are of another maker, or the key of the vendor's class is not known.
ANSWER_MS, MOST_SWITCHES, FIRMWARE_S, TRIED = 300, 512, 20.0, 3
_NONE_COUNTED = infiniband.Errors({}, 0, "")


def refusal(node: Node) -> tuple[str, str] | None:
    """Return (reason code, sentence) if no fabric can be discovered from this node: no tool, no device of the kernel, no rights."""
    if not node.which(TOOL):
        return "tool_missing", f"{TOOL} is not installed: install infiniband-diags to have the InfiniBand fabric looked at"
    try:
        managed = sorted(name for name in os.listdir(node.path(DEVICES)) if name.startswith("umad"))
    except OSError:
        managed = []
    if not managed:
        return "no_permission", f"there is no {DEVICES}/umad*: load the module ib_umad; a container must be given it"
    if not any(os.access(node.path(f"{DEVICES}/{name}"), os.R_OK | os.W_OK) for name in managed):
        return "no_permission", f"{DEVICES}/{managed[0]} may not be opened: the fabric is discovered as root only"
    return None


def discover(node: Node, port: PlainData, timeout: float, watch: float) -> tuple[PlainData, str]:
    """Return the fabric behind an active port as the context of a measurement has it, and all that the tools printed. Counters of errors
    are read twice, `watch` seconds apart. Raise ReasonedError if the fabric could not be read as a whole."""
    where = ["-C", port["device"], "-P", str(port["port"])]
    result = node.run([TOOL, *where], timeout=timeout)
    place = f"{port['device']} port {port['port']}"
    if result.timed_out:
        raise ReasonedError("timeout", f"{TOOL} through {place} did not end within {timeout:.0f} s")
    if not result.ok:
        words = (result.err or result.out).strip()[-300:] or f"it ended with status {result.rc}"
        raise ReasonedError("tool_failed", f"{TOOL} through {place}: {words}")
    found = infiniband.discovery(result.out)
    if found.unread:
        raise ReasonedError("incomplete_output", f"{TOOL} through {place}: {'; '.join(found.unread)}")
    silent = infiniband.unanswered(result.err)
    if silent:
        raise ReasonedError("incomplete_output", f"{TOOL} through {place}: {'; '.join(silent)}")
    raw = [result.raw]
    unseen: dict[str, str] = {}
    first, before = _errors(node, where, timeout, raw, unseen)
    states: dict[infiniband.End, infiniband.PortState] = {}
    linked = node.run([STATES, "-l", *where], timeout=timeout) if node.which(STATES) else None
    if linked is None or not linked.ok:
        unseen[STATES] = f"{STATES} {'is not installed' if linked is None else 'failed'}: why ports have no link is not known"
    else:
        states, unread = infiniband.states(linked.out)
        raw.append(linked.raw)
        # A text that is cut at the end of a line has only lines that are understood.
        missing = sum((found.devices[guid].port_guids.get(port, guid), port) not in states for guid, port in found.links)
        if missing:
            unread = [*unread, f"{missing} of {len(found.links)} ports with a cable are not listed"]
        if unread:
            unseen[STATES] = f"{STATES}: {'; '.join(unread)}"
    asked = node.run([MANAGER, *where], timeout=timeout) if node.which(MANAGER) else None
    manager = infiniband.manager(asked.out) if asked else None
    is_silent = asked is not None and manager is None and not asked.timed_out and infiniband.says_no_manager(f"{asked.out}\n{asked.err}")
    raw += [asked.raw] if asked else []
    state = manager.state if manager else ""
    if manager is None and not is_silent:
        why = "is not installed" if asked is None else "names no subnet manager, nor does it say that none answers"
        unseen[MANAGER] = f"{MANAGER} {why}"
    elif state != infiniband.MASTER:
        manager, is_silent = None, True
    versions = _firmware(node, where, found, raw, unseen)
    routes = _routes(node, where, found, timeout, unseen)
    if first is not None:
        time.sleep(max(0.0, min(before + watch - time.monotonic(), node.remaining() - timeout)))
    again, _at = _errors(node, where, timeout, raw, unseen) if first is not None else (None, 0.0)
    context = plain(port, found, states, first, again, manager, unseen)
    # A tool that is there and cannot be read has not looked, and nothing else counts the errors.
    unread_tools = {ERRORS: unseen[ERRORS]} if ERRORS in unseen and node.which(ERRORS) else {}
    more = {"firmware": versions, "routes": routes, "manager_silent": is_silent, "manager_state": state, "unread": unread_tools}
    return {**context, **more}, "\n".join(raw)


def _firmware(node: Node, where: list[str], found: infiniband.Discovery, raw: list[str], unseen: dict[str, str]) -> dict[str, str]:
    """Return the firmware of the switches that tell it, by GUID."""
    switches = [device for device in found.devices.values() if device.kind == infiniband.SWITCH]
    asked = [device for device in switches if device.lid][:MOST_SWITCHES]
    if not node.which(FIRMWARE):
        unseen[FIRMWARE] = f"{FIRMWARE} is not installed: the firmware of {len(switches)} switches was not read"
        return {}
    end = time.monotonic() + min(FIRMWARE_S, node.remaining() / 4)
    versions: dict[str, str] = {}
    why = ""
    for place, device in enumerate(asked):
        left = end - time.monotonic()
        if left <= 0 or (place == TRIED and not versions):
            break
        result = node.run([FIRMWARE, "-N", "-t", str(ANSWER_MS), *where, str(device.lid)], timeout=left)
        raw.append(result.raw)
        version = infiniband.firmware(result.out) if result.ok else None
        if version is not None:
            versions[device.guid] = version
        else:
            why = why or f", {device.name}: {' '.join((result.err or result.out).split())[-150:] or 'it says nothing'}"
    if len(versions) < len(switches):
        unseen[FIRMWARE] = f"{FIRMWARE}: {len(switches) - len(versions)} of {len(switches)} switches did not tell their firmware{why}"
    return versions


def _routes(node: Node, where: list[str], found: infiniband.Discovery, timeout: float, unseen: dict[str, str]) -> dict[str, str]:
    """Return the routes of each switch that tells them, as `packed_routes` has them."""
    lids = _lids(found)
    switches = [guid for guid, device in found.devices.items() if device.kind == infiniband.SWITCH]
    if len(lids) * len(switches) > MOST_ROUTES:
        unseen[ROUTES] = f"routes of {len(switches)} switches to {len(lids)} ports are more than a measurement holds"
        return {}
    result = node.run([ROUTES, "-n", *where], timeout=timeout) if node.which(ROUTES) else None
    tables = infiniband.routes(result.out, result.err) if result is not None and result.ok else {}
    packed = packed_routes(found, tables)
    if len(packed) < len(switches):
        why = "is not installed" if result is None else f"does not tell those of {len(switches) - len(packed)} of {len(switches)} switches"
        unseen[ROUTES] = f"{ROUTES} {why}: the routes of packets are not known there"
    return packed


def packed_routes(found: infiniband.Discovery, tables: t.Mapping[str, t.Mapping[int, int]]) -> dict[str, str]:
    """Return {GUID of a switch: the port for each connected port of an adapter, in the order of `plain`, a byte each (0: none),
    compressed}."""
    lids, routes = _lids(found), {}
    for guid in found.devices:
        if guid in tables:
            ports = (tables[guid].get(lid, 0) for lid in lids)
            routes[guid] = base64.b64encode(zlib.compress(bytes(port if port < 255 else 0 for port in ports))).decode()
    return routes


def _lids(found: infiniband.Discovery) -> list[int]:
    return [device.port_lids.get(number, 0) for device in found.devices.values() for number in sorted(device.port_guids)]


def _errors(node: Node, where: list[str], timeout: float, raw: list[str], unseen: dict[str, str]) -> tuple[infiniband.Errors | None, float]:
    """Return the counters of errors and when they were read. Counters that are not all, as some ports did not answer, are better than none
    of them; None if the output is not whole."""
    at = time.monotonic()
    if not node.which(ERRORS):
        unseen[ERRORS] = f"{ERRORS} is not installed"
        return None, at
    result = node.run([ERRORS, "-s", NO_ERRORS, *where], timeout=timeout)
    raw.append(result.raw)
    # Its status is 1 if there are errors.
    found = infiniband.errors(result.out, result.err)
    if result.timed_out or result.rc not in (0, 1) or found.unread:
        unseen[ERRORS] = (
            f"{ERRORS}: {'it did not end in time' if result.timed_out else found.unread or f'it ended with status {result.rc}'}"
        )
        is_in_part = found.unanswered and not result.timed_out and result.rc in (0, 1)
        return (found if is_in_part else None), at
    return found, at


def plain(
    port: PlainData,
    found: infiniband.Discovery,
    states: t.Mapping[infiniband.End, infiniband.PortState],
    first: infiniband.Errors | None,
    again: infiniband.Errors | None,
    manager: infiniband.Manager | None,
    unseen: dict[str, str],
) -> PlainData:
    """Return a fabric as the context of a measurement has it: a cable once, with the rate of each of its ends."""
    links = []
    for (guid, number), far in found.links.items():
        if (guid, number) <= far.end:
            back = found.links[far.end]
            links.append([guid, number, *far.end, far.width, far.speed, back.width, back.speed])
    before = first.counters if first else {}
    counted = {**before, **again.counters} if first and again and again.unanswered else (again or first or _NONE_COUNTED).counters
    rose = []
    for end, counters in (again.counters if again else {}).items():
        if end not in before and first and first.unanswered:
            continue  # what it had counted before was perhaps not told
        then = before.get(end, {})
        # One that is lower was cleared, and has counted all of this since.
        more = {name: count - then.get(name, 0) if count >= then.get(name, 0) else count for name, count in counters.items()}
        if any(count > 0 for count in more.values()):
            rose.append([*end, {name: count for name, count in more.items() if count > 0}])
    return {
        "through": f"{port['device']}/{port['port']}",
        "devices": [
            [d.guid, d.kind, d.name, d.ports, d.system, d.model, sorted([number, guid] for number, guid in d.port_guids.items())]
            for d in found.devices.values()
        ],
        "links": links,
        "down": [[*end, state.state, state.physical] for end, state in states.items() if state.width is None and end not in found.links],
        "could": [[*end, state.could_gbps] for end, state in states.items() if state.could_gbps],
        "wider": [[*end, state.could_width] for end, state in states.items() if state.could_width],
        "errors": [[*end, counters] for end, counters in counted.items()],
        "rose": rose,
        "manager_lid": manager.lid if manager else None,
        "not_looked_for": unseen,
    }


def port_guid(node: Node, folder: str) -> str | None:
    """Return the GUID of a port by its folder in sysfs: the lower half of its first GID."""
    words = (node.read(f"{folder}/gids/0") or "").split(":")
    guid = "".join(words[4:]).lower()
    return guid if len(words) == 8 and len(guid) == 16 and guid.strip("0") else None


def port_guids(one: PlainData) -> set[str]:
    """Return the GUIDs of all ports of adapters in a discovered fabric."""
    return {guid for device in one["devices"] for _number, guid in device[6]}
