# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA ports tested against themselves, by perftest: each port alone, and all ports at once.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import re
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Params, PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import nic_models, slots
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import perftest_sides
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import ports as rdma_ports
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import numa
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

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


def choice(params: Params) -> PlainData:
    """Return the options of rdma_ports that choose ports and GIDs. Within the node any GID will do."""
    fixed: PlainData = {"network": [], "gid_index": None, "roce_version": 2, "address_family": "", "link_local": True}
    return {**fixed, "port": params["port"]}


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
        self.model = nic_models.model(device)
        # What the wire and the PCIe link let through now; None if the port does not say its rate.
        self.now = _let_through(port["rate_gbps"], self.link) if port["rate_gbps"] else None
        # What the port is held to, in Gb/s, and what other machines are asked for it, as set by hold_to().
        self.held_to: float | None = self.now
        self.peers: PlainData = {}
        self.able: nic_models.Capable | None = None
        self.problem: tuple[str, str] | None = None
        if port["state"] != "ACTIVE":
            self.problem = "port_down", f"it is {port['state'] or 'without a state'} ({port['physical'] or 'physical state unknown'})"
        elif port["link_layer"] != "InfiniBand" and port["gid"] is None:
            self.problem = "no_gid", port["gid_problem"]

    def context(self, check: str) -> PlainData:
        """Return what selects the expectations of a port in a check, and identical ports."""
        selection: PlainData = {
            **self.hardware(),
            "nic_model": self.model,
            "op": check.partition("_")[0],
            "loopback": True,
            "rate_gbps": self.port["rate_gbps"],
            **({} if self.software else self.peers),
        }
        if check in LATENCY:  # each bridge takes time
            selection["placement"] = f"behind {max(0, self.bridges - 1)} bridges"
        if self.software or check in TOGETHER:  # what ports share is compared by the stage
            selection["comparable"] = False
        return selection

    def hardware(self) -> PlainData:
        """Return what the port is, by which its number has a ceiling."""
        known: PlainData = {"nic": self.device["type"] or self.device["driver"], "link_layer": self.port["link_layer"], **self.link}
        return known if self.software or self.held_to is None else {**known, "nic_gbps": self.held_to}


def hold_to(ports: list[LoopbackPort], stated: t.Sequence[float], machine: str, devices: list[PlainData]) -> None:
    """Set what each port is held to: the rate that the inventory states, else the best that a port of its model has on this node.

    Whatever a port itself has negotiated is no measure for it. Unless the inventory states a rate, the controller compares with the same
    port of other machines (`of_peers`, judging/peer_values.py): one that is slower everywhere is cabled so.
    """
    rates = [*stated] * len(ports) if len(stated) == 1 else [*stated]
    models = nic_models.models(devices)
    for port in ports:
        port.model = models.get(str(port.device["device"]), port.model)
    for number, port in enumerate(ports):
        alike = [other for other in ports if other.model == port.model]
        port.able = nic_models.capable(port.device, port.port, devices)
        if number < len(rates):
            port.held_to = max((_let_through(rates[number], other.link) for other in alike), default=rates[number])
            continue
        port.held_to = max((other.now for other in alike if other.now), default=port.now)
        place = port.part.partition("/")[2]
        of_rate = {"model": port.model, "machine": machine, "place": place, "now": port.now if port.problem is None else None}
        port.peers = {"of_peers": {"nic_gbps": of_rate}}


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


class Loopback(perftest_sides.PerftestRunner):
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
            port.part: [perftest_sides.PerftestSide(test, kind, self, latest) for test in self._tests(port, place)]
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

    def _result(self, port: LoopbackPort, server: perftest_sides.PerftestSide, client: perftest_sides.PerftestSide) -> Result:
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
        hint = no_verbs(self.node) if code in ("tool_failed", "no_loopback") else ""
        named = reason if reason.startswith(f"{port.name}: ") else f"{port.name}: {reason}"
        problem = first["outcome"], code, f"{named}{hint}"[:2000]
        return Result(port, None, problem, raw, client.result, client.bound)

    def _is_silent(self, port: LoopbackPort) -> Result:
        code, reason = self.silent[port.part]
        return Result(port, None, ("error", code, f"{port.name}: {reason}"[:2000]))


def no_verbs(node: Node) -> str:
    """Return what to say if user space cannot reach RDMA devices at all."""
    folder = node.path("/dev/infiniband")
    if os.path.isdir(folder) and any(name.startswith("uverbs") for name in os.listdir(folder)):
        return ""
    return "; there is no /dev/infiniband/uverbs* here: load ib_uverbs, or in a pod set nic_loopback_kube_resources"


def _kind(check: str, params: Params) -> PlainData:
    """Return a kind of test as perftest_sides.PerftestSide has them: the tool with its options, and what must stand in its output."""
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
