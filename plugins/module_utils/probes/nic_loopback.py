# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every active RDMA port of a node against itself, by perftest: each port alone, and all ports at once.

Data goes from the memory of the port's own NUMA node through PCIe into the NIC and back, and over no cable.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params, PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import nic_models
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import governor
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import hardware as rdma_hardware
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import loopback, perftest_sides, port_errors
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import ports as rdma_ports
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import evidence
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import numa
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """Yield, for each check {"check": loopback.PORTS or one of loopback.TESTS, "variant": ""}, an observation of the node with the number
    of its slowest port, and one of each port (`nic/DEVICE/PORT`): `bandwidth` in Gb/s of one direction, `latency` in us."""
    checks = [(c["check"], c["variant"]) for c in params["checks"]]
    context: PlainData = {"machine": node.product()}
    devices = rdma_ports.read_devices(node, params["devices"])
    refused = _refused(params, node, devices)
    if refused:
        outcome, code, reason = refused
        for check, variant in checks:
            yield observation.failed(check, code, reason, outcome, variant=variant, context=dict(context))
        return
    usable = [device for device in devices if not loopback.without_rc(node, device)]
    context["left_out"] = {device["device"]: "no reliable connections" for device in devices if device not in usable}
    places = numa.places(node.root)
    choice = loopback.choice(params)
    ports = [loopback.LoopbackPort(device, port, places) for device in usable for port in rdma_ports.ports_of([device], choice)]
    loopback.hold_to(ports, params["gbps"], context["machine"], devices)
    active = [port for port in ports if port.problem is None]
    tests = loopback.Loopback(params, node)
    lease = governor.GovernorLease(node, params["governor"]) if params["governor"] and active and node.ledger else None
    with lease or contextlib.nullcontext(), evidence.LoggedErrors(node) as logged:
        results = tests.all_of([check for check, _variant in checks if check != loopback.PORTS], active)
    common: PlainData = {"evidence": {"changes": logged.changes, "unreadable": ["pfc"]}}
    context["governor"] = lease.summary() if lease else None
    for check, variant in checks:
        fields = {**common, "variant": variant}
        if check == loopback.PORTS:
            yield _of_ports(params, node, devices, ports, {**fields, "context": context})
        elif not active:
            reason = "no port can be measured: " + "; ".join(f"{p.name}: {p.problem[1]}" for p in ports if p.problem)
            code = next((p.problem[0] for p in ports if p.problem), "no_rdma")
            yield observation.failed(check, code, reason[:1000], **fields, context=context)
        elif check in loopback.TOGETHER and len(active) == 1:
            reason = f"{check} is of several ports, and the node has one that is active"
            yield observation.failed(check, "one_port", reason, "not_applicable", **fields, context=context)
        else:
            yield from _observations(check, results[check], {**fields, "context": context})


def stated(context: PlainData) -> bool:
    """Return True if the inventory says which ports of the node are in use, so that one that is down is a finding of the probe."""
    return bool(context.get("wanted") or context.get("devices_stated"))


def default_checks(params: Params) -> list[dict[str, str]]:
    """Return the checks of a call that names none."""
    of_gpu = loopback.OF_GPU if params["gpu"] else ()
    return [{"check": check, "variant": ""} for check in (loopback.PORTS, *params["tests"], *of_gpu)]


def _refused(params: Params, node: Node, devices: list[PlainData]) -> tuple[str, str, str] | None:
    """Return why nothing can be measured on the node as (outcome, reason code, reason), or None."""
    names = rdma_ports.names(node)
    if names and not devices:
        patterns = ", ".join(params["devices"])
        return "error", "no_rdma", f"nic_loopback_devices: no RDMA device matches {patterns}; there are: {', '.join(names)}"
    if devices and all(loopback.without_rc(node, device) for device in devices):
        drivers = ", ".join(f"{d['device']} ({d['driver'] or 'driver unknown'})" for d in devices)
        return "not_applicable", "no_reliable_connection", f"perftest measures reliable connections, which no RDMA device has: {drivers}"
    if devices:
        return None
    if params["ports"] == 0:
        return "not_applicable", "no_rdma_expected", "nic_loopback_ports says that this host has no RDMA ports"
    if params["ports"] or params["devices"]:
        required = {"nic_loopback_ports": params["ports"], "nic_loopback_devices": ", ".join(params["devices"])}
        drivers = " and ".join(f"{name} says {value}" for name, value in required.items() if value)
        return "error", "no_rdma", f"no RDMA devices, and {drivers}: is the driver loaded?"
    missing = rdma_hardware.undriven(node)
    if missing:
        advice = "load the RDMA driver (mlx5_ib, irdma, bnxt_re ...), or set nic_loopback_ports: 0 if this host should have no RDMA ports"
        return "error", "no_rdma", f"no RDMA devices, although there is RDMA hardware: {'; '.join(missing[:8])}; {advice}"
    return "not_applicable", "no_rdma_expected", "the node has no RDMA device and no hardware for one"


# Observations --------------------------------------------------------------------------------------------------------


def _of_ports(params: Params, node: Node, devices: list[PlainData], ports: list[loopback.LoopbackPort], common: PlainData) -> PlainData:
    """Return the observation of the ports themselves, which looks at the PCIe links behind the tests."""
    current = {device["device"]: device for device in rdma_ports.read_devices(node, params["devices"])}
    findings: list[PlainData] = []
    for port in ports:
        if port.problem and port.problem[0] == "port_down" and not (params["devices"] or params["ports"]):
            continue  # many adapters have a second port that nobody uses: other machines tell (stages/nic_loopback.py)
        if port.problem and port.problem[0] == "port_down":
            advice = "if it is not used, name the devices that are in nic_loopback_devices"
            findings.append({"code": "port_down", "part": port.part, "text": f"{port.name}: {port.problem[1]}; {advice}"})
        elif port.problem:
            findings.append({"code": port.problem[0], "part": port.part, "text": f"{port.name}: {port.problem[1]}"})
    for device in devices:
        findings += _of_link(current.get(device["device"], device))
    findings += port_errors.findings(node, [port.port for port in ports], nic_models.models(devices))
    if len(params["gbps"]) > 1 and len(params["gbps"]) != len(ports):
        port_names = ", ".join(port.name for port in ports)
        text = f"{len(ports)} RDMA ports ({port_names}), nic_loopback_gbps states {len(params['gbps'])}"
        findings.append({"code": "rail_order", "part": "", "text": text})
    for port, least in zip(ports, params["gbps"] * len(ports) if len(params["gbps"]) == 1 else params["gbps"]):
        if port.problem is None and (port.port["rate_gbps"] or 0) < least and not port.software:
            now = f"{port.port['rate_gbps']:g} Gb/s" if port.port["rate_gbps"] else "a rate that cannot be read"
            text = f"{port.name} runs at {now}, nic_loopback_gbps says {least:g}"
            findings.append({"code": "link_slow", "part": port.part, "text": text})
    if params["ports"] is not None and params["ports"] != len(ports):
        port_names = ", ".join(port.name for port in ports)
        text = f"{len(ports)} RDMA ports ({port_names}), nic_loopback_ports says {params['ports']}"
        findings.append({"code": "rail_order", "part": "", "text": text})
    port_rows = [_row_of(port) for port in ports]
    context = {
        **common["context"],
        "findings": findings,
        "ports": port_rows,
        "wanted": params["ports"],
        "devices_stated": bool(params["devices"]),
        "gbps_stated": bool(params["gbps"]),
        "looked_for": [f"state, rate and PCIe link of {port.name}" for port in ports if port.problem is None],
        "not_looked_for": {
            port.part: f"{port.name}: it is {port.port['state'] or 'without a state'}, so nothing was measured"
            for port in ports
            if port.problem is not None
        },
    }
    lines = [" ".join(f"{name}={value}" for name, value in row.items()) for row in port_rows]
    return observation.measured(loopback.PORTS, raw="\n".join([*lines, ""]), **{**common, "context": context})


def _row_of(port: loopback.LoopbackPort) -> PlainData:
    """Return what the stage compares of a port. `turn` tells the ports of one adapter apart: its function and its number there."""
    able = port.able
    function = (port.device["pci"] or "").rpartition(".")[2]
    return {
        "port": port.part, "state": port.port["state"], "gbps": port.port["rate_gbps"], "numa": port.numa, "uplink": port.uplink,
        "model": port.model, "turn": f"{function}/{port.port['port']}", "module": port.port.get("module"), "software": port.software,
        "lanes": port.port["width"], "physical": port.port["physical"],
        "able": {"gbps": able.gbps, "witness": able.witness, "certain": able.certain} if able else None, **port.link,
    }  # fmt: skip


def _of_link(device: PlainData) -> t.Iterator[PlainData]:
    """Yield what is wrong with the PCIe link of a device: below what device and slot can do, or a slot that can do less than the device."""
    pcie = device["pcie"]
    if not pcie or not device["ports"]:
        return
    part = f"nic/{device['device']}/{device['ports'][0]['port']}"
    for name, code, unit in (("speed", "pcie_speed", "GT/s"), ("width", "pcie_width", "lanes")):
        current, highest, slot = (pcie[end][name] for end in ("current", "max", "slot"))
        able = min(filter(None, (highest, slot)), default=None)
        if current and able and current < able:
            text = f"{device['device']}: its PCIe link has {current:g} of {able:g} {unit}: reseat the NIC or its riser"
            yield {"code": code, "part": part, "text": text}
        elif highest and slot and slot < highest:
            text = f"{device['device']}: its PCIe slot has {slot:g} {unit}, the NIC can do {highest:g}"
            yield {"code": "pcie_slot", "part": part, "text": text}


def _observations(check: str, results: list[loopback.Result], common: PlainData) -> t.Iterator[PlainData]:
    """Yield the node's own observation of a check, and those of its ports."""
    metric, better = ("latency", max) if check in loopback.LATENCY else ("bandwidth", min)
    unit = perftest_sides.SERIES_UNITS[metric]
    measured = [result for result in results if result.row]
    worst = better(measured, key=lambda result: t.cast(PlainData, result.row)[metric]) if measured else results[0]
    raw = "\n".join(result.raw for result in results if result.raw)
    simulated = observation.SIMULATED_MARK in raw
    first = results[0].output
    when = {"started_at": first.get("started_at"), "duration_s": round(sum(result.output["duration_s"] for result in results), 3)}
    metrics = {metric: {"value": t.cast(PlainData, worst.row)[metric], "unit": unit}} if len(measured) == len(results) else {}
    evidence_of = {**common["evidence"], "changes": [*common["evidence"]["changes"], *(c for r in results for c in r.output["changes"])]}
    # Ports of several kinds have ceilings of their own (judging/bands.py).
    series = [{"port": result.port.part, **result.port.hardware(), **result.row} for result in results if result.row]
    context = {**common["context"], **worst.port.context(check), "series_units": perftest_sides.SERIES_UNITS}
    node_fields = {**common, **when, "evidence": evidence_of, "context": context, "simulated": simulated}
    yield observation.measured(
        check, members=[result.port.part for result in results], metrics=metrics, series=series, raw=raw, command=first["command"],
        tool_version=first["tool_version"], **node_fields,
    )  # fmt: skip
    for result in results:
        output = result.output
        fields: PlainData = {
            "variant": common["variant"], "part": result.port.part, "command": output["command"], "tool_version": output["tool_version"],
            "started_at": output.get("started_at"), "duration_s": output["duration_s"], "simulated": simulated,
            "context": {
                **result.port.context(check), "governor": common["context"]["governor"], "numa": result.port.numa, "bound": result.bound,
                "uplink": result.port.uplink, "warnings": output["warnings"],
            },
        }  # fmt: skip
        if result.problem or result.row is None:
            outcome, code, reason = result.problem or ("error", "bad_output", "perftest printed no row")
            yield observation.failed(check, code, reason, outcome, **fields)
            continue
        yield observation.measured(check, metrics={metric: {"value": result.row[metric], "unit": unit}}, **fields)
