# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RDMA ports against themselves, some of them bad: measured by the probe over the simulated perftest, and judged as in a run. Nothing is
reached over a network."""

from __future__ import annotations

import concurrent.futures
import pathlib
import shutil
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import nic_loopback
from ansible_collections.gpufleet.acceptance.plugins.modules.nic_loopback import OPTIONS
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import Completer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from harness import report_samples as samples
from rigs.simulated import pairs

STAGE = "nic_loopback"
PORTS = 4
Change = t.Callable[[pathlib.Path], None]


class Plant(t.NamedTuple):
    """A fault planted on a node with four ports: lines of the simulated perftest (ADDRESS stands for its last port), a change of its tree,
    options of the module. The worst verdict of the node must be one of `verdicts`."""

    what: str
    verdicts: frozenset[str]
    lines: tuple[str, ...] = ()
    change: Change = lambda _root: None
    options: t.Mapping[str, t.Any] = {}


PASS, WARN, FAIL, UNKNOWN, SKIPPED = (frozenset({word}) for word in ("PASS", "WARN", "FAIL", "UNKNOWN", "SKIPPED"))


def _slot(root: pathlib.Path, rail: int) -> pathlib.Path:
    return root / f"sys/devices/pci0000:00/0000:{rail:02x}:00.0"


def link(name: str, text: str, rails: t.Iterable[int] = (PORTS - 1,)) -> Change:
    """A file of the PCIe link of some ports."""

    def change(root: pathlib.Path) -> None:
        for rail in rails:
            (_slot(root, rail) / name).write_text(text + "\n")

    return change


def old_slots(root: pathlib.Path) -> None:
    link("current_link_speed", "16.0 GT/s PCIe", range(PORTS))(root)
    (root / "sys/devices/pci0000:00/max_link_speed").write_text("16.0 GT/s PCIe\n")


def rated(gbps: str) -> Change:
    def change(root: pathlib.Path) -> None:
        for rail in range(PORTS):
            (root / f"sys/class/infiniband/mlx5_{rail}/ports/1/rate").write_text(gbps + "\n")

    return change


def down(root: pathlib.Path) -> None:
    (root / f"sys/class/infiniband/mlx5_{PORTS - 1}/ports/1/state").write_text("1: DOWN\n")


def far(root: pathlib.Path) -> None:
    """The last port is on a NUMA node whose CPUs may not be used."""
    for number, cpus in enumerate(("0", "4000-4007")):
        node = root / f"sys/devices/system/node/node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(cpus + "\n")
        (node / "meminfo").write_text(f"Node {number} MemTotal: 1024 kB\n")
    (_slot(root, PORTS - 1) / "numa_node").write_text("1\n")


def without_devices(root: pathlib.Path) -> None:
    shutil.rmtree(root / "sys/class/infiniband")


def function(kind: str, vendor: str, driver: bool = False) -> Change:
    """No RDMA device, and a PCI function."""

    def change(root: pathlib.Path) -> None:
        without_devices(root)
        path = root / "sys/bus/pci/devices/0000:3b:00.0"
        path.mkdir(parents=True)
        for name, text in {"class": kind, "vendor": vendor, "device": "0x1021"}.items():
            (path / name).write_text(text + "\n")
        if driver:
            (path / "driver").symlink_to("../../drivers/mlx5_core")

    return change


HEALTHY = [
    Plant("nothing is wrong", PASS),
    Plant("RoCE at 0.9 of the rate", PASS, ("gbps 360",)),
    Plant("NICs of 400 Gb/s in slots of PCIe 4.0", WARN, ("gbps 196",), old_slots),
    Plant("ports of 100 Gb/s", PASS, ("gbps 97",), rated("100 Gb/sec (4X EDR)")),
    Plant("all ports halve when all work at once", WARN, tuple(f"long 2 127.{rail + 1}.9.1 0.5" for rail in range(PORTS))),
    Plant("a port that nobody uses", WARN, (), down),
    Plant("a number of ports as stated", PASS, options={"ports": PORTS}),
    Plant("no RDMA hardware", SKIPPED, change=without_devices),
    Plant("no RDMA devices, as the inventory says", SKIPPED, change=function("0x020700", "0x15b3"), options={"ports": 0}),
    Plant("a network controller of another vendor", SKIPPED, change=function("0x020000", "0x8086", True)),
]
FAULTS = [
    Plant("a port at half of its rate", FAIL, ("slow ADDRESS 0.5",)),
    Plant("a port at 0.85 of its siblings", FAIL, ("slow ADDRESS 0.85",)),
    Plant("a port at 0.93 of its siblings", WARN, ("slow ADDRESS 0.93",)),
    Plant("all ports at half of their rate", FAIL, ("gbps 196",)),
    Plant("a latency of 10 us", FAIL, ("slow ADDRESS 0.3",), options={"tests": ["write_lat"]}),
    Plant("a port that is slow with all at once only", FAIL, ("long 2 ADDRESS 0.5",)),
    Plant("a port that is a little slow with all at once only", WARN, ("long 2 ADDRESS 0.85",)),
    Plant("a port that does not loop back", UNKNOWN, ("deaf ADDRESS",)),
    Plant("a port whose test hangs", UNKNOWN, ("hang ADDRESS", "pace 1"), options={"test_timeout": 2.0, "tests": ["write_bw"]}),
    Plant("a port whose test dies", UNKNOWN, ("die ADDRESS",)),
    Plant("fewer iterations than counted", UNKNOWN, ("count 4",)),
    Plant("bits taken for bytes", UNKNOWN, ("gbps 3136",)),
    Plant("a NIC on half of its lanes", FAIL, (), link("current_link_width", "8")),
    Plant("a NIC at half of its speed", FAIL, (), link("current_link_speed", "16.0 GT/s PCIe")),
    Plant("memory of the port's NUMA node cannot be had", UNKNOWN, (), far),
    Plant("a port that is down, of ports that are in use", FAIL, (), down, {"devices": ["mlx5_*"]}),
    Plant("fewer ports than stated", FAIL, options={"ports": PORTS + 1}),
    Plant("InfiniBand hardware without a driver", UNKNOWN, change=function("0x020700", "0x15b3")),
    Plant("a NIC of Mellanox without its RDMA driver", UNKNOWN, change=function("0x020000", "0x15b3", True)),
    Plant("no RDMA devices, and the inventory expects some", UNKNOWN, change=without_devices, options={"ports": PORTS}),
    Plant("no perftest", UNKNOWN, options={"binary_dir": "/nonexistent"}),
]


def judged(folder: pathlib.Path, number: int, plant: Plant) -> set[str]:
    """The verdicts of a node."""
    root, name = folder / "root", "gpu-01"
    addresses = [f"127.{rail + 1}.9.{number + 1}" for rail in range(PORTS)]
    pairs.sysfs(root, addresses)
    lines = [line.replace("ADDRESS", addresses[-1]).replace(".9.1 ", f".9.{number + 1} ") for line in plant.lines]
    pairs.conf(root, "pace 0.1", "seconds 0.1", *lines)
    plant.change(root)
    given = {"binary_dir": str(pairs.tools_of(root)), "duration": 1, **plant.options}
    params = t.cast("dict[str, t.Any]", ArgumentSpecValidator(OPTIONS).validate(given).validated_parameters)
    params["checks"] = nic_loopback.default_checks(params)
    subject = {"kind": "node", "id": name, "members": []}
    items = [{"stage": STAGE, "target": name, "subject": subject, **check} for check in params["checks"]]
    run = Run(folder, samples.RUN)
    run.dir.mkdir()
    completer = Completer(run, STAGE, name, "ssh", {(i["check"], i["variant"], name): t.cast(t.Any, i) for i in items})
    records = [completer.complete(one) for one in nic_loopback.probe(params, Node(200, root=str(root)))]
    known = expectations.shipped()
    found = verdict.judge(
        t.cast(t.Any, samples.plan([name], [STAGE], items=items)), records, lambda *_who: known, stages=registry.shipped().values()
    )
    words = {v["verdict"] for v in found.verdicts}
    assert found.accepted == (not words & {"FAIL", "UNKNOWN"} and bool(words - {"SKIPPED"})), (plant.what, words)
    return words


def accepted(folder: pathlib.Path) -> tuple[int, list[str], list[str]]:
    """Return the number of planted faults, the accepted ones, and the good nodes that are not accepted as they should be."""
    plants = [*HEALTHY, *FAULTS]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda one: judged(folder / f"loopback-{one[0]}", *one), enumerate(plants)))
    accepts: list[str] = []
    rejects: list[str] = []
    for number, (plant, words) in enumerate(zip(plants, found, strict=True)):
        worst = next((word for word in ("FAIL", "UNKNOWN", "WARN", "SKIPPED", "PASS") if word in words), "nothing")
        if worst not in plant.verdicts:
            bad = number < len(HEALTHY)
            (rejects if bad else accepts).append(f"loopback: {plant.what}: {', '.join(sorted(words))}")
    return len(FAULTS), accepts, rejects
