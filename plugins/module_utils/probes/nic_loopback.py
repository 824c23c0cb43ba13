# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every active RDMA port of a node against itself, by perftest: each port alone, and all ports at once.

Data goes from the memory of the port's own NUMA node through PCIe into the NIC and back, and over no cable.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import evidence, numa, observation, rdma_hardware, slots
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.plain_data import Observation, Params, PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import governor, perftest, rdma_ports

# The check of the ports themselves: that they are up, as many as they should be, and on the PCIe links that they can have.
PORTS = "ports"
BANDWIDTH, LATENCY = ("read_bw", "write_bw"), ("read_lat", "write_lat")
TOGETHER = tuple(f"{test}_all" for test in BANDWIDTH)
TESTS = (*BANDWIDTH, *LATENCY, *TOGETHER)
# With buffers in the memory of the GPU that is nearest to the port, if `gpu` is set.
OF_GPU = tuple(f"{test}_gpu" for test in BANDWIDTH)
# perftest's own connection does not leave the node.
PEER = "127.0.0.1"
LATENCY_BYTES, LATENCY_ITERATIONS = 2, 5000
# Seconds until both sides of a test have met.
PATIENCE_S = 15.0
# Seconds between the first attempts of a client whose server does not listen yet.
PAUSE_S = 0.05
# perftest leaves out a quarter of a test's time at its begin and its end: together it measures for twice as long, so that only the time
# in which all ports worked counts.
TOGETHER_TIMES = 2
# PCI Express: GT/s of a lane -> generation.
GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
# Rates of RDMA ports in Gb/s. A link that lets nearly so much through counts as one that does.
RATES = (10.0, 25.0, 40.0, 50.0, 56.0, 100.0, 200.0, 400.0, 800.0)
NEARLY = 0.95
# Drivers and kinds of devices (node_type of sysfs) without reliable connections as perftest makes them: EFA and usNIC have none, iWARP
# makes them by rdma_cm only.
WITHOUT_RC = ("efa", "usnic_verbs", "siw", "iw_cxgb4", "i40iw")
IWARP = "4:"
# RDMA in software is as fast as the processor lets it be.
SOFTWARE = ("rdma_rxe", "siw")
# A port whose loopback works in no test: what a person can look at.
ADVICE = (
    "the port does not reach itself. RoCE: its own address must be up and its route local (ip route get ADDRESS), and the NIC must not "
    "have loopback switched off; a virtual function needs its physical one to allow it. Leave ports that cannot loop back out by "
    "nic_loopback_devices"
)


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """Yield, for each check {"check": PORTS or one of TESTS, "variant": ""}, an observation of the node with the number of its slowest
    port, and one of each port (`nic/DEVICE/PORT`): `bandwidth` in Gb/s of one direction, `latency` in us."""
    checks = [(c["check"], c["variant"]) for c in params["checks"]]
    context: PlainData = {"machine": node.product()}
    devices = rdma_ports.read_devices(node, params["devices"])
    refused = _refused(params, node, devices)
    if refused:
        outcome, code, reason = refused
        for check, variant in checks:
            yield observation.failed(check, code, reason, outcome, variant=variant, context=dict(context))
        return
    usable = [device for device in devices if not without_rc(node, device)]
    context["left_out"] = {device["device"]: "no reliable connections" for device in devices if device not in usable}
    places = numa.places(node.root)
    ports = [LoopbackPort(device, port, places) for device in usable for port in rdma_ports.ports_of([device], choice(params))]
    active = [port for port in ports if port.problem is None]
    tests = Loopback(params, node)
    lease = governor.GovernorLease(node, params["governor"]) if params["governor"] and active and node.ledger else None
    with lease or contextlib.nullcontext(), evidence.LoggedErrors(node) as logged:
        results = tests.all_of([check for check, _variant in checks if check != PORTS], active)
    common: PlainData = {"evidence": {"changes": logged.changes, "unreadable": ["pfc"]}}
    context["governor"] = lease.summary() if lease else None
    for check, variant in checks:
        fields = {**common, "variant": variant}
        if check == PORTS:
            yield _of_ports(params, node, devices, ports, {**fields, "context": context})
        elif not active:
            reason = "no port can be measured: " + "; ".join(f"{p.name}: {p.problem[1]}" for p in ports if p.problem)
            code = next((p.problem[0] for p in ports if p.problem), "no_rdma")
            yield observation.failed(check, code, reason[:1000], **fields, context=context)
        elif check in TOGETHER and len(active) == 1:
            reason = f"{check} is of several ports, and the node has one that is active"
            yield observation.failed(check, "one_port", reason, "not_applicable", **fields, context=context)
        else:
            yield from _observations(check, results[check], {**fields, "context": context})


def stated(context: PlainData) -> bool:
    """Return True if the inventory says which ports of the node are in use, so that one that is down is a finding of the probe."""
    return bool(context.get("wanted") or context.get("devices_stated"))


def default_checks(params: Params) -> list[dict[str, str]]:
    """Return the checks of a call that names none."""
    of_gpu = OF_GPU if params["gpu"] else ()
    return [{"check": check, "variant": ""} for check in (PORTS, *params["tests"], *of_gpu)]


def choice(params: Params) -> PlainData:
    """Return the options of rdma_ports that choose ports and GIDs. Within the node any GID will do."""
    fixed: PlainData = {"network": [], "gid_index": None, "roce_version": 2, "address_family": "", "link_local": True}
    return {**fixed, "port": params["port"]}


def _refused(params: Params, node: Node, devices: list[PlainData]) -> tuple[str, str, str] | None:
    """Return why nothing can be measured on the node as (outcome, reason code, reason), or None."""
    names = rdma_ports.names(node)
    if names and not devices:
        patterns = ", ".join(params["devices"])
        return "error", "no_rdma", f"nic_loopback_devices: no RDMA device matches {patterns}; there are: {', '.join(names)}"
    if devices and all(without_rc(node, device) for device in devices):
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


def without_rc(node: Node, device: PlainData) -> bool:
    """Return True if a device has no reliable connections as perftest makes them."""
    kind = node.read(f"{rdma_ports.CLASS}/{device['device']}/node_type") or ""
    return device["driver"] in WITHOUT_RC or kind.startswith(IWARP)


class LoopbackPort:
    """A port to measure. `problem` is why it cannot be, as (reason code, reason), or None."""

    def __init__(self, device: PlainData, port: PlainData, places: t.Mapping[int, numa.Place]) -> None:
        self.device = device
        self.port = port
        self.name = f"{port['device']} port {port['port']}"
        self.part = f"nic/{port['device']}/{port['port']}"
        self.software = device["driver"] in SOFTWARE
        number = device["numa_node"]
        self.numa = number if number is not None and number >= 0 else None
        # On a machine with one NUMA node all memory is near.
        self.place = places.get(self.numa) if self.numa is not None and len(places) > 1 else None
        self.link = _link(device)
        bridges = re.findall(r"/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])", device["pci_path"] or "")
        # What the ports behind one root port of PCIe share on the way to the host; in a virtual machine often the slot alone.
        self.uplink = bridges[0] if len(bridges) > 1 else (device["pci"] or device["device"]).rpartition(".")[0]
        self.bridges = len(bridges)
        self.problem: tuple[str, str] | None = None
        if port["state"] != "ACTIVE":
            self.problem = "port_down", f"it is {port['state'] or 'without a state'} ({port['physical'] or 'physical state unknown'})"
        elif port["link_layer"] != "InfiniBand" and port["gid"] is None:
            self.problem = "no_gid", port["gid_problem"]

    def context(self, check: str) -> PlainData:
        """Return what selects the expectations of a port in a check, and identical ports."""
        selection: PlainData = {
            "nic": self.device["type"] or self.device["driver"],
            "link_layer": self.port["link_layer"],
            "op": check.partition("_")[0],
            "loopback": True,
            **self.link,
        }
        if self.port["rate_gbps"] and not self.software:
            selection["nic_gbps"] = _let_through(self.port["rate_gbps"], self.link)
        if check in LATENCY:  # each bridge takes time
            selection["placement"] = f"behind {max(0, self.bridges - 1)} bridges"
        if self.software or check in TOGETHER:  # what ports share is compared by the stage
            selection["comparable"] = False
        return selection


def _link(device: PlainData) -> PlainData:
    """Return the PCIe link that a device and its slot can have, {"pcie_gen", "pcie_width"}; empty if it is not told, as in a guest."""
    pcie = device["pcie"] or {}
    ends = [pcie[end] for end in ("max", "slot") if end in pcie]
    generations = [GENERATIONS[end["speed"]] for end in ends if end["speed"] in GENERATIONS]
    widths = [end["width"] for end in ends if end["width"]]
    is_known = pcie and pcie["max"]["speed"] in GENERATIONS and pcie["max"]["width"]
    return {"pcie_gen": min(generations), "pcie_width": min(widths)} if is_known else {}


def _let_through(gbps: float, link: PlainData) -> float:
    """Return the rate of a port, or the largest one of RATES that its PCIe link lets through if that is less."""
    if link.get("pcie_gen") not in slots.PCIE:
        return gbps
    limit = 8 * slots.REACHED * slots.rate(link["pcie_gen"], link["pcie_width"])
    return gbps if gbps <= limit / NEARLY else max((rate for rate in RATES if rate <= limit / NEARLY), default=gbps)


# What is said of a test that was not started.
NOT_STARTED: PlainData = {"command": [], "tool_version": None, "duration_s": 0.0, "warnings": [], "changes": []}


class Result(t.NamedTuple):
    """The result of a test of a port: its row, or why there is none as (outcome, reason code, reason). `output` is the client's result,
    `bound` what of its NUMA node it was bound to."""

    port: LoopbackPort
    row: PlainData | None
    problem: tuple[str, str, str] | None
    raw: str = ""
    output: PlainData = NOT_STARTED
    bound: str | None = None


class Loopback(perftest.PerftestRunner):
    """Runs the tests of a node's ports."""

    if_missing = "install perftest or set nic_loopback_binary_dir"
    if_in_use = "set nic_loopback_tcp_port to the first of as many free ones as there are RDMA ports"

    def __init__(self, params: Params, node: Node) -> None:
        super().__init__({**params, "pause": PAUSE_S}, node)
        # Ports that have a number, and those whose first test broke off or hung, with code and reason: they are not asked again.
        self.works: set[str] = set()
        self.silent: dict[str, tuple[str, str]] = {}

    def all_of(self, checks: t.Sequence[str], ports: list[LoopbackPort]) -> dict[str, list[Result]]:
        """Return the results of all ports, in their order, by check."""
        results: dict[str, list[Result]] = {}
        order = [*TESTS, *OF_GPU]  # alone before together, which skips the ports that broke off or hung
        for check in sorted(checks, key=order.index):
            if check not in TOGETHER:
                results[check] = [result for port in ports for result in self.measure(check, [port])]
            elif len(ports) > 1:
                results[check] = self.measure(check, ports)
        return results

    def measure(self, check: str, ports: t.Sequence[LoopbackPort]) -> list[Result]:
        """Return the results of a check of some ports at the same time."""
        kind = _kind(check, self.params)
        latest = min(time.monotonic() + PATIENCE_S, self.node.end)
        pairs = {
            port.part: [perftest.PerftestSide(test, kind, self, latest) for test in self._tests(port, place)]
            for place, port in enumerate(ports)
            if port.part not in self.silent
        }
        self.run([side for sides in pairs.values() for side in sides])
        return [self._result(port, *pairs[port.part]) if port.part in pairs else self._is_silent(port) for port in ports]

    def _tests(self, port: LoopbackPort, place: int) -> t.Iterator[PlainData]:
        """Yield the test of each side: first the server's, then the client's."""
        gid = port.port["gid"] or {}
        for role in ("server", "client"):
            yield {
                "kind": 0, "subject": "", "rail": "", "a": port.part, "b": port.part, "role": role, "partner": "the port itself",
                "device": port.port["device"], "port": port.port["port"], "gid_index": gid.get("index"), "gid": gid.get("address"),
                "peer_gid": gid.get("address"), "peer": PEER, "tcp_port": self.params["tcp_port"] + place, "context": {},
                "place": port.place,
            }  # fmt: skip

    def _result(self, port: LoopbackPort, server: perftest.PerftestSide, client: perftest.PerftestSide) -> Result:
        both = [side.result for side in (client, server)]
        raw = "\n".join(f"# {port.name}, {result['role']}: {' '.join(result['command'])}\n{result['raw']}" for result in both)
        bad = [result for result in both if result["outcome"] != "measured"]
        if not bad:
            self.works.add(port.part)
            return Result(port, client.result["rows"][-1], None, raw, client.result, client.bound)
        # A side that only missed the other one says less.
        first = min(bad, key=lambda result: {"timeout": 1, "partner": 2}.get(result["reason_code"], 0))
        code, reason = first["reason_code"], "; ".join(dict.fromkeys(result["reason"] for result in bad))
        if not client.kind["gpu"] and port.part not in self.works and any(result["broke"] for result in bad):
            # What hangs may be slow; what the device itself breaks off has not come back.
            if any(result["broke"] and result["reason_code"] != "timeout" for result in bad):
                code, reason = "no_loopback", f"{ADVICE}; perftest: {reason}"
            self.silent[port.part] = code, reason
        hint = _no_verbs(self.node) if code in ("tool_failed", "no_loopback") else ""
        problem = first["outcome"], code, f"{port.name}: {reason}{hint}"[:2000]
        return Result(port, None, problem, raw, client.result, client.bound)

    def _is_silent(self, port: LoopbackPort) -> Result:
        code, reason = self.silent[port.part]
        return Result(port, None, ("error", code, f"{port.name}: {reason}"[:2000]))


def _no_verbs(node: Node) -> str:
    """Return what to say if user space cannot reach RDMA devices at all."""
    folder = node.path("/dev/infiniband")
    if os.path.isdir(folder) and any(name.startswith("uverbs") for name in os.listdir(folder)):
        return ""
    return "; there is no /dev/infiniband/uverbs* here: load ib_uverbs, or in a pod set nic_loopback_kube_resources"


def _kind(check: str, params: Params) -> PlainData:
    """Return a kind of test as perftest.PerftestSide has them: the tool with its options, and what must stand in its output."""
    test = check.replace("_all", "").replace("_gpu", "")
    op, kind = test.split("_")
    bandwidth = kind == "bw"
    seconds = params["duration"] * (TOGETHER_TIMES if check in TOGETHER else 1)
    size, qps = (params["size"], params["qps"]) if bandwidth else (LATENCY_BYTES, 1)
    how = ["-D", str(seconds), "-q", str(qps), "--noPeak", "--report_gbits"] if bandwidth else ["-n", str(LATENCY_ITERATIONS)]
    return {
        "check": check, "variant": "", "tool": f"ib_{test}", "options": ["-s", str(size), *how], "op": op, "kind": kind, "bytes": size,
        "iterations": None if bandwidth else LATENCY_ITERATIONS, "duration": seconds if bandwidth else None,
        "qps": qps if bandwidth else None, "context": {"bidirectional": False}, "gpu": check in OF_GPU,
    }  # fmt: skip


# Observations --------------------------------------------------------------------------------------------------------


def _of_ports(params: Params, node: Node, devices: list[PlainData], ports: list[LoopbackPort], common: PlainData) -> PlainData:
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
    if params["ports"] is not None and params["ports"] != len(ports):
        port_names = ", ".join(port.name for port in ports)
        text = f"{len(ports)} RDMA ports ({port_names}), nic_loopback_ports says {params['ports']}"
        findings.append({"code": "rail_order", "part": "", "text": text})
    port_rows = [
        {"port": p.part, "state": p.port["state"], "gbps": p.port["rate_gbps"], "numa": p.numa, "uplink": p.uplink, **p.link} for p in ports
    ]
    context = {
        **common["context"],
        "findings": findings,
        "ports": port_rows,
        "wanted": params["ports"],
        "devices_stated": bool(params["devices"]),
    }
    lines = [" ".join(f"{name}={value}" for name, value in row.items()) for row in port_rows]
    return observation.measured(PORTS, raw="\n".join([*lines, ""]), **{**common, "context": context})


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


def _observations(check: str, results: list[Result], common: PlainData) -> t.Iterator[PlainData]:
    """Yield the node's own observation of a check, and those of its ports."""
    metric, better = ("latency", max) if check in LATENCY else ("bandwidth", min)
    unit = perftest.SERIES_UNITS[metric]
    measured = [result for result in results if result.row]
    worst = better(measured, key=lambda result: t.cast(PlainData, result.row)[metric]) if measured else results[0]
    raw = "\n".join(result.raw for result in results if result.raw)
    simulated = observation.SIMULATED_MARK in raw
    first = results[0].output
    when = {"started_at": first.get("started_at"), "duration_s": round(sum(result.output["duration_s"] for result in results), 3)}
    metrics = {metric: {"value": t.cast(PlainData, worst.row)[metric], "unit": unit}} if len(measured) == len(results) else {}
    evidence_of = {**common["evidence"], "changes": [*common["evidence"]["changes"], *(c for r in results for c in r.output["changes"])]}
    series = [{"port": result.port.part, **result.row} for result in results if result.row]
    context = {**common["context"], **worst.port.context(check), "series_units": perftest.SERIES_UNITS}
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
