# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines with a broken part beside their GPUs: measured by the probe of `host_health` over trees of files, recorded output of tools and
resources of Redfish, and judged as in a run, three machines at a time of which one has the fault."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sqlite3
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import settings
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import host_health
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import Completer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.redfish import reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.redfish.client import Resource, Service
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from harness import machine_tree as of_machine
from harness import redfish_service
from harness import report_samples as samples
from harness.machine_tree import GPU, NIC, SLOTS, MachineTree
from harness.redfish_service import CHASSIS, ENTRIES, SYSTEM

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "host-health"
NAMES = ("gpu-01", "gpu-02", "gpu-03")
CHECKS = ("memory", "pcie", "storage", "bmc", "kernel")
Tree = t.Dict[str, Resource]
FINE, WARN, FAIL, UNKNOWN = "PASS", "WARN", "FAIL", "UNKNOWN"


def recorded(name: str) -> str:
    return (FIXTURES / name).read_text(encoding="utf-8")


class Plant(t.NamedTuple):
    """A fault that `write` plants on the second machine; the worst verdict that it must have, the GB/s of its NUMA nodes,
    codes of what was counted while they were measured, and a change of what its management controller says by Redfish. `alike`: all
    machines have it."""

    what: str
    worst: str
    write: t.Callable[[MachineTree], t.Any] = lambda _machine: None
    rates: tuple[float, float] = (200.0, 203.0)
    changes: t.Sequence[str] = ()
    redfish: t.Callable[[Tree], t.Any] = lambda _tree: None
    alike: bool = False


class Controller(Service):
    """A management controller with these resources."""

    def __init__(self, tree: Tree) -> None:
        super().__init__("https://bmc", "reader", "x", float("inf"))
        self.tree = tree

    def get(self, path: str) -> Resource:
        if path.rstrip("/") not in self.tree:
            raise ReasonedError("bmc_unreadable", f"{path}: the service answers with status 500")
        return self.tree[path.rstrip("/")]


def _supply(**status: t.Any) -> t.Callable[[Tree], t.Any]:
    return lambda tree: tree[f"{CHASSIS}/Power"]["PowerSupplies"][1].update(status)


def _neighbour_without_power(tree: Tree) -> None:
    tree.update(redfish_service.machine("77C0DE"))
    _supply(Status={"State": "Enabled", "Health": "Critical"})(tree)


def _logged(severity: str) -> t.Callable[[Tree], t.Any]:
    entry = {"Severity": severity, "Message": "PSU2 input lost", "Created": "2026-11-24T06:54:01Z"}
    return lambda tree: tree[ENTRIES]["Members"].append(entry)


def _log(line: str) -> t.Callable[[MachineTree], t.Any]:
    return lambda machine: machine.log(line)


def _events(machine: MachineTree, uptime_s: float) -> None:
    """Give the controller the recorded log of faults, whose first is of 2026-11-24T06:54:08Z."""
    machine.controller(recorded("sdr-elist-healthy.txt"), recorded("sel-elist-broken.txt"))
    machine.write("proc/uptime", f"{uptime_s:.2f} 1\n")


def _rasdaemon(machine: MachineTree) -> None:
    """Give rasdaemon's database an uncorrectable error of a day before the last boot."""
    path = machine.path("var/lib/rasdaemon/ras-mc_event.db")
    path.parent.mkdir(parents=True)
    machine.write("proc/stat", f"btime {int(time.time()) - 3600}\n")
    stamp = time.strftime("%Y-%m-%d %H:%M:%S +0000", time.gmtime(time.time() - 90_000))
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE mc_event (id INTEGER PRIMARY KEY, timestamp TEXT, err_count INTEGER, err_type TEXT, label TEXT)")
        database.execute("INSERT INTO mc_event VALUES (1, ?, 1, 'Uncorrected', 'P1-DIMMB1')", (stamp,))
        database.commit()


PLANTS = [
    Plant("nothing is wrong", FINE),
    Plant("a NUMA node a tenth slower than the other", FINE, rates=(200.0, 180.0)),
    Plant("a GPU whose link sleeps", FINE, lambda m: m.device(GPU, current_link_speed="2.5 GT/s PCIe")),
    Plant("a few corrected PCIe errors", FINE, lambda m: m.errors(NIC, correctable=20)),
    Plant("a log with other words", FINE, _log("usb 1-1: new device, hardware error correction supported")),
    Plant("corrected memory errors", WARN, lambda m: m.edac(3, corrected=9)),
    Plant("many corrected PCIe errors", WARN, lambda m: m.errors(GPU, correctable=5000)),
    Plant("refused PCIe requests", WARN, lambda m: m.errors(NIC, nonfatal={"UnsupReq": 3})),
    Plant("a corrected machine check", WARN, _log("mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 7: 8c00004000010092")),
    Plant("faults in the log of the controller before the last boot", WARN, lambda m: _events(m, 10)),
    Plant("an uncorrectable memory error before the last boot", WARN, _rasdaemon),
    Plant("a NUMA node at 0.8 of the other", WARN, rates=(200.0, 160.0)),
    Plant("corrected memory errors while memory is copied", WARN, changes=["host_memory_corrected"]),
    Plant("an uncorrectable memory error while memory is copied", FAIL, changes=["host_memory"]),
    Plant("an uncorrectable memory error", FAIL, lambda m: m.edac(5, uncorrected=1)),
    Plant("an uncorrectable memory error in the log", FAIL, _log("EDAC MC0: 1 UE ie31200 UE on P0-DIMMA1 (channel:0 slot:0 page:0x0)")),
    Plant("a missing memory module", FAIL, lambda m: m.dimms({SLOTS[6]: (0, 0)})),
    Plant("a memory module of half the size", FAIL, lambda m: m.dimms({SLOTS[1]: (32768, 4800)})),
    Plant("a memory module that is slow", FAIL, lambda m: m.dimms({SLOTS[4]: (65536, 4400)})),
    Plant("a GPU with 8 of 16 lanes", FAIL, lambda m: m.device(GPU, current_link_width=8)),
    Plant("a switch with 8 of 16 lanes above a GPU", FAIL, lambda m: m.device(of_machine.SWITCH_UP, current_link_width=8)),
    Plant("a NIC with 8 of 16 lanes", FAIL, lambda m: m.device(NIC, current_link_width=8)),
    Plant("a fatal PCIe error", FAIL, lambda m: m.errors(of_machine.ROOT_OF_GPU, fatal={"SDES": 1})),
    Plant("a PCIe completion that never came", FAIL, lambda m: m.errors(GPU, nonfatal={"CmpltTO": 1})),
    Plant("a disk that says that it fails", FAIL, lambda m: m.disk(recorded("smartctl-nvme-bad.json"), 8)),
    Plant("an array without one of its disks", FAIL, lambda m: m.write("sys/block/md0/md/degraded", "1\n")),
    Plant("a power supply without input", FAIL, lambda m: m.controller(recorded("sdr-elist-broken.txt"))),
    Plant("faults in the log of the controller since boot", FAIL, lambda m: _events(m, time.time() - 1795503000)),
    Plant("a machine check", FAIL, _log("mce: [Hardware Error]: CPU 4: Machine Check Exception: 5 Bank 7: be00000000010091")),
    Plant("a hardware error by the firmware", FAIL, _log("{1}[Hardware Error]: event severity: recoverable")),
    Plant("a link that went down", FAIL, _log("pcieport 0000:15:00.0: pciehp: Slot(5): Link Down")),
    Plant("an NVMe disk that did not answer", FAIL, _log("nvme nvme0: controller is down; will reset: CSTS=0xffffffff")),
    Plant("a NIC whose firmware does not answer", FAIL, _log("mlx5_core 0000:31:00.0: poll_health:840: device's health compromised")),
    Plant("a NUMA node at half of its bandwidth", FAIL, rates=(200.0, 100.0)),
    Plant("an empty slot by Redfish", FINE, redfish=lambda tree: tree[f"{SYSTEM}/Memory/DIMM6"].update(Status={"State": "Absent"})),
    Plant("a note in the log by Redfish", FINE, redfish=_logged("OK")),
    Plant("a fault in the log by Redfish", WARN, redfish=_logged("Critical")),
    Plant("a power supply in state Warning", WARN, redfish=_supply(Status={"State": "Enabled", "Health": "Warning"})),
    Plant("a power supply in state Critical", FAIL, redfish=_supply(Status={"State": "Enabled", "Health": "Critical"})),
    Plant("a fan that stands, by Redfish", FAIL, redfish=lambda tree: tree[f"{CHASSIS}/Thermal"]["Fans"][0].update(Reading=0)),
    Plant("a state of all parts that none explains", FAIL, redfish=lambda tree: tree[SYSTEM]["Status"].update(HealthRollup="Critical")),
    Plant("power supplies that cannot be read", UNKNOWN, redfish=lambda tree: tree.pop(f"{CHASSIS}/Power")),
    Plant("a log that cannot be read, by Redfish", UNKNOWN, redfish=lambda tree: tree.pop(ENTRIES)),
    Plant("the management controller of another machine", UNKNOWN, redfish=lambda tree: tree.update(redfish_service.machine("77C0DE"))),
    Plant("a fault by the management controller of another machine", UNKNOWN, redfish=_neighbour_without_power),
    Plant("a management controller that does not answer", UNKNOWN, redfish=lambda tree: tree.clear()),
    Plant("a table of memory modules that root may not read", UNKNOWN, lambda m: m.path("sys/firmware/dmi/tables/DMI").unlink()),
    Plant("a log that root may not read", UNKNOWN, lambda m: m.path("dev/kmsg").unlink()),
]  # fmt: skip


def _observed(machine: MachineTree, plant: Plant) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    """Yield (stage, observation) of one machine."""
    node = Node(60, root=str(machine.root))
    context = {"gpu": "NVIDIA H100 80GB HBM3", "gpus": 8, "facts": {"gpu_count": 8, **settings.facts(node)}}
    context["facts"] = {name: value for name, value in context["facts"].items() if value is not None}
    yield "stack", observation.measured("facts", context=context)
    params = {"checks": [{"check": check, "variant": ""} for check in CHECKS], "pcie_corrected": 100.0, "ras_days": 30.0}
    for seen in host_health.probe(params, node):
        yield "host_health", seen
    tree = redfish_service.machine(machine.batch)
    plant.redfish(tree)
    yield "host_health", reading.observe(Controller(tree))
    series = [{"node": number, "cores": 8, "bandwidth": rate, "one_core": 12.0} for number, rate in enumerate(plant.rates)]
    metrics = {"bandwidth": {"value": min(plant.rates), "unit": "GB/s"}}
    about = {"place": "physical machine", "comparable": True}
    changes = [{"code": code, "part": "", "text": f"{code} rose from 0 to 1", "before": 0, "after": 1} for code in plant.changes]
    fields: dict[str, t.Any] = {"metrics": metrics, "series": series, "context": about}
    yield "host_health", observation.measured("bandwidth", evidence={"window": {}, "changes": changes, "unreadable": []}, **fields)


def judged(folder: pathlib.Path, plant: Plant) -> tuple[str, str]:
    """The worst verdict of the machine with the fault, and of the two without."""
    folder.mkdir(parents=True)
    run = Run(folder, samples.RUN)
    run.dir.mkdir()
    records: list[dict[str, t.Any]] = []
    items: list[dict[str, t.Any]] = []
    for number, name in enumerate(NAMES):
        machine = MachineTree(folder / name, f"35A1B{number}")
        machine.disk(recorded("smartctl-nvme-good.json"))
        machine.controller(recorded("sdr-elist-healthy.txt"))
        bad = plant.alike or name == NAMES[1]
        if bad:
            plant.write(machine)
        os.environ["PATH"] = f"{machine.root}/bin:/usr/bin:/bin"
        for stage, seen in list(_observed(machine, plant if bad else PLANTS[0])):
            item = {"stage": stage, "check": seen["check"], "variant": "", "target": name}
            items.append({**item, "subject": {"kind": "node", "id": name, "members": []}})
            records.append(Completer(run, stage, name, "ssh", {(seen["check"], "", name): items[-1]}).complete(seen))
    known = expectations.shipped()
    plan: t.Any = samples.plan(list(NAMES), ["stack", "host_health"], items=items)
    found = verdict.judge(plan, records, lambda *_who: known, stages=registry.shipped().values())
    words = [{v["verdict"] for v in found.verdicts if (v["subject"]["id"] == NAMES[1]) == bad} for bad in (True, False)]
    first, others = (next(w for w in (FAIL, UNKNOWN, WARN, FINE, "SKIPPED") if w in of) for of in words)
    assert found.accepted == (first not in (FAIL, UNKNOWN) and others not in (FAIL, UNKNOWN))
    return first, others


def accepted(folder: pathlib.Path) -> tuple[int, list[str], list[str]]:
    """Return the number of planted faults, the accepted ones, and the good machines that are not accepted as they should be."""
    return tried(folder, "host", PLANTS)


def tried(folder: pathlib.Path, name: str, plants: t.Sequence[Plant]) -> tuple[int, list[str], list[str]]:
    """Return what accepted() does, of these plants."""
    accepts: list[str] = []
    rejects: list[str] = []
    path = os.environ["PATH"]
    try:
        for number, plant in enumerate(plants):
            worst, others = judged(folder / f"{name}-{number}", plant)
            if worst != plant.worst:
                (rejects if plant.worst in (FINE, WARN) and worst in (FAIL, UNKNOWN) else accepts).append(f"{name}: {plant.what}: {worst}")
            if others != (plant.worst if plant.alike else FINE):
                rejects.append(f"{name}: beside {plant.what}: {others}")
    finally:
        os.environ["PATH"] = path
    return sum(plant.worst != FINE for plant in plants), accepts, rejects
