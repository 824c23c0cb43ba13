# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find management controllers that report about another machine than the one they are named for.

A wrong address in an inventory would judge a machine by the parts of its neighbour. The serial numbers of memory modules, the UUID and the
serial number of the machine are what both the controller (Redfish) and the node's firmware (SMBIOS) list.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t
import uuid

# {kind of number: {number in the form in which it is compared: as it is written}}
Numbers = t.Mapping[str, t.Mapping[str, str]]
# The kinds by how well they tell two machines apart: some makers leave the same serial number, or the same UUID, on all of their machines.
KINDS = {"dimms": "serial numbers of memory modules", "uuid": "UUID", "serial": "serial number"}
SHOWN = 3
# The UUID of boards whose maker has set none (a default of AMI's firmware): many machines have it.
_DEFAULT_UUID = "03000200-0400-0500-0006-000700080009"


def by_controller(machine: t.Any) -> Numbers:
    """Return the numbers of a machine as a context of the check `redfish` has them: {kind: texts}."""
    texts = machine if isinstance(machine, dict) else {}
    return {kind: _numbers(kind, texts.get(kind)) for kind in KINDS}


def by_firmware(context: t.Mapping[str, t.Any]) -> Numbers:
    """Return the numbers of a machine as a context of the check `memory` has them: `system` and `dimms`."""
    system, dimms = context.get("system"), context.get("dimms")
    texts: dict[str, list[t.Any]] = {kind: [system.get(kind)] for kind in ("uuid", "serial")} if isinstance(system, dict) else {}
    texts["dimms"] = [dimm.get("serial") for dimm in dimms if isinstance(dimm, dict)] if isinstance(dimms, list) else []
    return {kind: _numbers(kind, texts.get(kind)) for kind in KINDS}


def difference(controller: Numbers, firmware: Numbers) -> str | None:
    """Return in words that a controller and a node's firmware list different machines; None if they share a number, or no kind of number.

    Serial numbers of machines are compared only if nothing better is there.
    """
    comparable = [kind for kind in KINDS if controller[kind] and firmware[kind]]
    decisive = [kind for kind in comparable if kind != "serial"] or comparable
    if not decisive or any(controller[kind].keys() & firmware[kind].keys() for kind in decisive):
        return None
    kind = decisive[0]
    return f"{KINDS[kind]} {_shown(controller[kind])} by the management controller, {_shown(firmware[kind])} by the firmware of the node"


def shared(machines: t.Mapping[str, Numbers]) -> dict[str, str]:
    """Return the nodes whose controllers list the same set of memory modules, in words: {node: words}. One module alone says nothing: its
    serial number has 32 bits, so that two of the modules of 2,000 nodes may have the same."""
    owners: dict[frozenset[str], list[str]] = collections.defaultdict(list)
    for node, numbers in machines.items():
        owners[frozenset(numbers["dimms"])].append(node)
    words: dict[str, str] = {}
    for modules, nodes in owners.items():
        if modules and len(nodes) > 1:
            names = ", ".join(sorted(nodes)[:SHOWN]) + (" ..." if len(nodes) > SHOWN else "")
            modules_text = _shown(machines[nodes[0]]["dimms"])
            same = f"the management controllers of {names} list the same memory modules, serial numbers {modules_text}"
            words.update(dict.fromkeys(nodes, same))
    return words


def _numbers(kind: str, texts: t.Any) -> dict[str, str]:
    numbers = {}
    for text in texts if isinstance(texts, list) else ():
        number = (_uuid if kind == "uuid" else _serial)(text) if isinstance(text, str) else ""
        if number:
            numbers[number] = text.strip()
    return numbers


def _serial(text: str) -> str:
    """Return a serial number in upper case without leading zeros; empty for what firmware has that was never told one."""
    number = text.strip().upper().lstrip("0")
    return number if len(set(number)) > 1 and any(character.isdigit() for character in number) else ""


def _uuid(text: str) -> str:
    """Return the same text for a UUID in both orders of the bytes of its first three fields; empty if it is none."""
    try:
        value = uuid.UUID(text)
    except ValueError:
        return ""
    orders = (str(value), str(uuid.UUID(bytes=value.bytes_le)))
    return min(orders) if len(set(value.bytes)) > 1 and _DEFAULT_UUID not in orders else ""


def _shown(numbers: t.Mapping[str, str]) -> str:
    return ", ".join(sorted(numbers.values())[:SHOWN]) + (" ..." if len(numbers) > SHOWN else "")
