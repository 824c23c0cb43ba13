# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA ports that are loaded against themselves while something else is measured, by perftest and the code of loopback.py.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Params, PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import hardware as rdma_hardware
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import loopback, perftest_sides
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import ports as rdma_ports
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import numa, process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

# The test that loads the ports, all at once.
TEST = "write_bw_all"
MESSAGE_BYTES, QUEUE_PAIRS = 65536, 8
# What a test may take longer than its load.
SPARE_S, LEAST_S = 120.0, 10.0

Problem = t.Tuple[str, str, str]


class Stoppable(loopback.Loopback):
    """A test of ports that can be ended early."""

    if_missing = "install perftest or set soak_loopback_binary_dir, or soak_loopback: false"
    if_in_use = "set soak_loopback_tcp_port to the first of as many free ones as there are RDMA ports"
    stopped = False
    sides: t.Sequence[perftest_sides.PerftestSide] = ()

    def run(self, sides: t.Sequence[perftest_sides.PerftestSide]) -> None:
        self.sides = sides
        super().run(sides)

    def stop(self) -> None:
        """End the children of the test, so that it ends."""
        self.stopped = True
        for child in [side.child for side in self.sides]:
            if child is not None:
                process.kill(child.pid, process.start_time(child.pid), signal.SIGKILL)


class Rows:
    """The results of one load, {"part", "bandwidth": Gb/s, "problem", "changes"} of each port, when it has ended."""

    def __init__(self) -> None:
        self.rows: list[PlainData] = []


class LoadedPorts:
    """The active RDMA ports of a node. `problem` is why none is loaded, as (outcome, reason code, reason), or None."""

    def __init__(self, params: Params, node: Node) -> None:
        self.params, self.node = params, node
        self.devices = rdma_ports.read_devices(node, params["loopback_devices"])
        places = numa.places(node.root)
        usable = [device for device in self.devices if not loopback.without_rc(node, device)]
        choice = loopback.choice({"port": None})
        ports = [loopback.LoopbackPort(device, port, places) for device in usable for port in rdma_ports.ports_of([device], choice)]
        self.ports = [port for port in ports if port.problem is None]
        self.problem = None if self.ports else self._problem(usable, ports)

    def _problem(self, usable: list[PlainData], ports: list[loopback.LoopbackPort]) -> Problem:
        off = "set soak_loopback: false if none is meant to be used"
        if not self.devices:
            missing = rdma_hardware.undriven(self.node)
            if missing:
                return "error", "no_rdma", f"no RDMA devices, although there is RDMA hardware: {'; '.join(missing[:8])}; {off}"
            if self.params["loopback_devices"]:
                return "error", "no_rdma", f"soak_loopback_devices: no RDMA device matches {', '.join(self.params['loopback_devices'])}"
            return "not_applicable", "no_rdma_expected", "the node has no RDMA device and no hardware for one"
        if not usable:
            return "not_applicable", "no_reliable_connection", "no RDMA device of the node has the reliable connections that perftest makes"
        words = "; ".join(f"{port.name}: {port.problem[1]}" for port in ports if port.problem)
        return "error", "port_down", f"no RDMA port can be loaded: {words[:800]}; {off}"

    @contextlib.contextmanager
    def loaded(self, seconds: float) -> t.Iterator[Rows]:
        """Load all ports for so many seconds beside the block, at most to its end."""
        rows = Rows()
        if not self.ports:
            yield rows
            return
        load = Stoppable(self._options(seconds), self.node)

        def work() -> None:
            rows.rows = [self._row(result, load) for result in load.measure(TEST, self.ports)]

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield rows
        finally:
            # perftest connects and ends around its own time.
            thread.join(min(SPARE_S, max(LEAST_S, seconds)))
            if thread.is_alive():
                load.stop()
                thread.join()

    def _options(self, seconds: float) -> PlainData:
        """Return the options of nic_loopback; in a test of all ports it measures for TOGETHER_TIMES as long as `duration`."""
        return {
            "duration": max(1, int(seconds / loopback.TOGETHER_TIMES)), "size": MESSAGE_BYTES, "qps": QUEUE_PAIRS, "gpu": False,
            "binary_dir": self.params["loopback_binary_dir"], "tcp_port": self.params["loopback_tcp_port"],
            "test_timeout": seconds + SPARE_S,
        }  # fmt: skip

    @staticmethod
    def _row(result: loopback.Result, load: Stoppable) -> PlainData:
        problem = result.problem
        if problem and load.stopped:
            problem = "error", "interrupted", f"{result.port.name}: its load was ended with that of the GPUs"
        bandwidth = None if problem else t.cast(PlainData, result.row)["bandwidth"]
        changes = result.output["changes"]
        return {"part": result.port.part, "bandwidth": bandwidth, "problem": list(problem) if problem else None, "changes": changes}
