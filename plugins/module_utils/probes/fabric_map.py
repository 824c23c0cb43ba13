# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells what a node knows of its fabric: its ports and their neighbours, the modules in them, and the InfiniBand fabric.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import number, plain
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params, PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import lldp
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import hardware, modules, subnet
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import ports as rdma_ports
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

PORTS, OPTICS, DISCOVERY = "ports", "optics", "discovery"
# What was looked for, as the report counts it.
LOOKED_FOR = {PORTS: "ports and their neighbours", OPTICS: "modules in ports", DISCOVERY: "the InfiniBand fabric"}
_KEPT = ("device", "port", "state", "physical", "link_layer", "rate_gbps", "width", "speed", "netdev", "model")
SHOWN = 4


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """Yield one observation of the node for each check."""
    devices = rdma_ports.read_devices(node, params["devices"])
    # The chip of an adapter: what its ports are held to follows from it, and boards of one chip have several names.
    ports = [{**port, "model": device["type"] or device["pci_id"]} for device in devices for port in device["ports"]]
    for check in params["checks"]:
        fields: PlainData = {"variant": check["variant"]}
        if not ports:
            yield _without(node, check["check"], fields)
        elif check["check"] == PORTS:
            yield _of_ports(node, params, ports, fields)
        elif check["check"] == OPTICS:
            yield _of_modules(node, params, ports, fields)
        else:
            yield _of_fabrics(node, params, ports, fields)


def default_checks(_params: dict[str, t.Any]) -> list[dict[str, str]]:
    """The checks of a call that names none."""
    return [{"check": name, "variant": ""} for name in (PORTS, OPTICS, DISCOVERY)]


def _without(node: Node, check: str, fields: PlainData) -> Observation:
    missing = hardware.undriven(node)
    if missing:
        reason = f"no RDMA device, although there is RDMA hardware: {'; '.join(missing[:SHOWN])}; load its driver"
        return observation.failed(check, "no_rdma", reason, **fields)
    reason = "the node has no RDMA device and no hardware for one, so it is in no fabric"
    return observation.failed(check, "no_rdma_expected", reason, "not_applicable", **fields)


def _of_ports(node: Node, params: Params, ports: list[PlainData], fields: PlainData) -> Observation:
    raw = ""
    heard: dict[str, list[lldp.Neighbour]] = {}
    unseen: dict[str, str] = {}
    is_unread = False
    ethernet = [port for port in ports if port["link_layer"] == "Ethernet" and port["netdev"]]
    if ethernet:
        raw, heard, why, is_unread = _neighbours(node, params)
        if why:
            unseen["lldp"] = why
    rows = []
    for port in ports:
        row = {name: port[name] for name in _KEPT}
        if port["link_layer"] == "InfiniBand":
            row["guid"] = subnet.port_guid(node, _folder(port))
            row["sm_lid"] = plain(number(node.read(f"{_folder(port)}/sm_lid"), "sm_lid"))
        row["heard"] = [list(neighbour) for neighbour in heard.get(port["netdev"] or "", ())]
        rows.append(row)
    silent = [port["netdev"] for port in ethernet if port["state"] == "ACTIVE" and port["netdev"] not in heard]
    if silent and not unseen:
        unseen["lldp"] = f"no neighbour is heard at {', '.join(silent[:SHOWN])}: is LLDP on at the switch?"
    context = {"ports": rows, "condition": True, "required": params["required"], "looked_for": LOOKED_FOR[PORTS], "not_looked_for": unseen}
    if is_unread:
        context["unread"] = dict(unseen)
    return observation.measured(PORTS, context=context, raw=raw or "\n".join(rdma_ports.netdev_table(ports)), **fields)


def _neighbours(node: Node, params: Params) -> tuple[str, dict[str, list[lldp.Neighbour]], str, bool]:
    """Return what lldpctl printed, the neighbours by interface, why they are not known, and if that is because it cannot be read."""
    tool = rdma_ports.LLDPCTL
    if not node.which(tool):
        return "", {}, f"{tool} is not installed: install lldpd to have the switches of Ethernet ports", False
    result = node.run([tool, "-f", "json"], timeout=params["tool_timeout"])
    heard = lldp.heard(result.out) if result.ok else None
    if heard is None and result.ok:
        # Versions that were built without JSON print another form, and those before 1.0.22 no JSON if a name has a quotation mark.
        plainly = node.run([tool, "-f", "keyvalue"], timeout=params["tool_timeout"])
        neighbours = lldp.neighbours(plainly.out) if plainly.ok else {}
        if neighbours or (plainly.ok and not plainly.out.strip()):  # it prints nothing for nobody
            result, heard = plainly, {interface: [neighbour] for interface, neighbour in neighbours.items()}
    if heard is None:
        words = "it did not end in time" if result.timed_out else " ".join((result.err or result.out).split())[-200:] or "it prints nothing"
        return result.raw, {}, f"{tool}: {words}", result.ok or result.timed_out
    return result.raw, heard, "", False


def _of_modules(node: Node, params: Params, ports: list[PlainData], fields: PlainData) -> Observation:
    found = [modules.module(node, port, params["tool_timeout"]) for port in ports]
    rows = [module.row for module in found if module.row]
    unseen = [module.unseen for module in found if module.unseen]
    raw = "\n".join(module.raw for module in found)
    if not rows:
        reason = f"no module can be read: {'; '.join(unseen[:SHOWN])}"
        if params["required"] and any(port["state"] == "ACTIVE" for port in ports):
            return observation.failed(OPTICS, "no_answer", reason[:1000], raw=raw, **fields)
        return observation.failed(OPTICS, "not_visible", reason[:1000], "not_applicable", raw=raw, **fields)
    context = {
        "modules": rows,
        "condition": True,
        "findings": [finding for module in found for finding in module.findings],
        "looked_for": LOOKED_FOR[OPTICS],
        "not_looked_for": {"modules": "; ".join(unseen[:SHOWN])} if unseen else {},
    }
    return observation.measured(OPTICS, context=context, raw=raw, **fields)


def _of_fabrics(node: Node, params: Params, ports: list[PlainData], fields: PlainData) -> Observation:
    """Return the observation of all fabrics that the node's InfiniBand ports are in: each is discovered once."""
    active = [port for port in ports if port["link_layer"] == "InfiniBand" and port["state"] == "ACTIVE"]
    if not active:
        down = [port for port in ports if port["link_layer"] == "InfiniBand"]
        if down:
            return observation.failed(DISCOVERY, "port_down", f"none of the {len(down)} InfiniBand ports of the node is active", **fields)
        reason = "the node has no InfiniBand port: the fabric is Ethernet, which only its neighbours tell"
        return observation.failed(DISCOVERY, "no_rdma_expected", reason, "not_applicable", **fields)
    refused = subnet.refusal(node)
    if refused and params["optional"]:
        return observation.failed(DISCOVERY, "not_visible", refused[1], "not_applicable", **fields)
    if refused:  # an active port is in a fabric, so that nobody has looked at it is no reason to skip it
        return observation.failed(DISCOVERY, *refused, **fields)
    fabrics: list[PlainData] = []
    raws: list[str] = []
    known: set[str] = set()
    for port in active:
        guid = subnet.port_guid(node, _folder(port))
        if guid in known:
            continue
        try:
            one, raw = subnet.discover(node, port, params["tool_timeout"], params["watch"])
        except ReasonedError as error:
            return observation.failed(DISCOVERY, error.reason_code, error.reason, raw="\n".join(raws), **fields)
        known |= subnet.port_guids(one)
        fabrics.append(one)
        raws.append(raw)
    unseen = {name: why for one in fabrics for name, why in one["not_looked_for"].items()}
    context = {"fabrics": fabrics, "condition": True, "looked_for": LOOKED_FOR[DISCOVERY], "not_looked_for": unseen}
    return observation.measured(DISCOVERY, context=context, raw="\n".join(raws), command=[subnet.TOOL], **fields)


def _folder(port: PlainData) -> str:
    return f"{rdma_ports.CLASS}/{port['device']}/ports/{port['port']}"
