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
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import nic_loopback
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
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


def rated(gbps: str, rails: t.Iterable[int] = range(PORTS), chip: str = "") -> Change:
    """The rate of ports, and the chip of their adapters."""

    def change(root: pathlib.Path) -> None:
        for rail in rails:
            device = root / f"sys/class/infiniband/mlx5_{rail}"
            (device / "ports/1/rate").write_text(gbps + "\n")
            if chip:
                (device / "hca_type").write_text(chip + "\n")
                (device / "board_id").write_text(f"{chip}_0000000001\n")
            if chip == IN_BAND[0]:
                link("max_link_speed", "8.0 GT/s PCIe", [rail])(root)
                link("current_link_speed", "8.0 GT/s PCIe", [rail])(root)
                link("max_link_width", "8", [rail])(root)
                link("current_link_width", "8", [rail])(root)

    return change


# The tests whose number the simulated tool lowers; `slow` makes a latency longer, too.
BANDWIDTH = ["read_bw", "write_bw", "read_bw_all", "write_bw_all"]
# A NIC of another kind beside those of 400 Gb/s: chip and rate.
IN_BAND = ("MT4117", "25 Gb/sec (1X EDR)")
# Rates of ports of which a part of the lanes came up, and the share that they then give.
LANES = {"1X": ("97 Gb/sec (1X NDR)", 0.2474), "2X": ("200 Gb/sec (2X NDR)", 0.495)}


def narrow_slot(root: pathlib.Path) -> None:
    """The last NIC is in a slot of eight lanes, which both ends say."""
    link("max_link_width", "8")(root)
    link("current_link_width", "8")(root)


def down(root: pathlib.Path) -> None:
    (root / f"sys/class/infiniband/mlx5_{PORTS - 1}/ports/1/state").write_text("1: DOWN\n")


def second_port_down(root: pathlib.Path) -> None:
    """The last port is that of the second function of the adapter before it."""
    down(root)
    device = root / f"sys/class/infiniband/mlx5_{PORTS - 1}/device"
    first, second = _slot(root, PORTS - 2), _slot(root, PORTS - 2).with_name(f"0000:{PORTS - 2:02x}:00.1")
    shutil.copytree(first, second, symlinks=True)
    device.unlink()
    device.symlink_to(second)


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
    Plant("ports of 100 Gb/s", PASS, ("gbps 97",), rated("100 Gb/sec (4X EDR)", chip="MT4121")),
    Plant("ports of 100 Gb/s whose chip is sold with 400", WARN, ("gbps 97",), rated("100 Gb/sec (4X EDR)")),
    Plant(
        "a slower NIC in band on a smaller PCIe link", PASS, ("slow ADDRESS 0.0625",), rated(IN_BAND[1], [PORTS - 1], IN_BAND[0]),
        {"tests": BANDWIDTH},
    ),
    Plant(
        "a port that is cabled more slowly, as stated", PASS, ("slow ADDRESS 0.495",), rated(LANES["2X"][0], [PORTS - 1]),
        {"gbps": [400, 400, 400, 200], "tests": BANDWIDTH},
    ),
    Plant("all ports halve when all work at once", WARN, tuple(f"long 2 127.{rail + 1}.9.1 0.5" for rail in range(PORTS))),
    Plant("a second port of an adapter that nobody uses", WARN, (), second_port_down),
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
    Plant("a port that is down beside ports of its model that are up", UNKNOWN, (), down),
    *(
        Plant(f"one port of four at {lanes}", FAIL, (f"slow ADDRESS {share}",), rated(rate, [PORTS - 1]))
        for lanes, (rate, share) in LANES.items()
    ),
    Plant("one port at 1X whose number does not show it", FAIL, (), rated(LANES["1X"][0], [PORTS - 1])),
    Plant("a NIC in a slot of eight lanes", FAIL, ("slow ADDRESS 0.495",), narrow_slot),
    Plant("a port slower than stated", FAIL, ("slow ADDRESS 0.495",), rated(LANES["2X"][0], [PORTS - 1]), {"gbps": [400]}),
    Plant(
        "a port of four at 2X beside a NIC of another kind", FAIL, ("slow ADDRESS 0.0625", "slow 127.1.9.1 0.495"),
        lambda root: (rated(IN_BAND[1], [PORTS - 1], IN_BAND[0])(root), rated(LANES["2X"][0], [0])(root))[0],
    ),
    Plant("fewer ports than stated", FAIL, options={"ports": PORTS + 1}),
    Plant("InfiniBand hardware without a driver", UNKNOWN, change=function("0x020700", "0x15b3")),
    Plant("a NIC of Mellanox without its RDMA driver", UNKNOWN, change=function("0x020000", "0x15b3", True)),
    Plant("no RDMA devices, and the inventory expects some", UNKNOWN, change=without_devices, options={"ports": PORTS}),
    Plant("no perftest", UNKNOWN, options={"binary_dir": "/nonexistent"}),
]


class Fleet(t.NamedTuple):
    """Machines of one product, {number of machines: what is planted on them}; the worst verdict must be one of `verdicts`."""

    what: str
    verdicts: frozenset[str]
    machines: tuple[tuple[int, Plant], ...]


def _one_port(lanes: str) -> Plant:
    rate, share = LANES[lanes]
    return Plant("", FAIL, (f"slow ADDRESS {share}",), rated(rate, [PORTS - 1]))


GOOD, AT_2X = Plant("", PASS), Plant("", WARN, (f"gbps {392 * LANES['2X'][1]:.0f}",), rated(LANES["2X"][0]))
HEALTHY_FLEETS = [
    Fleet("the last port of each of three machines is cabled at half of the rate", WARN, ((3, _one_port("2X")),)),
    Fleet("all ports of two machines at half of what the adapter can do", WARN, ((2, AT_2X),)),
]
BAD_FLEETS = [
    *(
        Fleet(f"one port of four at {lanes} on {bad} of {bad + good} machines", FAIL, ((bad, _one_port(lanes)), (good, GOOD)))
        for lanes in LANES
        for bad, good in ((1, 1), (2, 0), (1, 3))
    ),
    Fleet(
        "a NIC in a slot of eight lanes on one of three machines", FAIL,
        ((2, GOOD), (1, Plant("", FAIL, ("slow ADDRESS 0.495",), narrow_slot))),
    ),
    Fleet("one machine of three with all ports at half of the rate", FAIL, ((2, GOOD), (1, AT_2X))),
    Fleet("a port down on all machines, whose siblings are up", UNKNOWN, ((3, Plant("", UNKNOWN, (), down)),)),
    Fleet(
        "the last port cabled at half of the rate, and on one of four machines at a quarter", FAIL,
        ((3, _one_port("2X")), (1, _one_port("1X"))),
    ),
]  # fmt: skip


def judged(folder: pathlib.Path, number: int, plant: Plant | Fleet) -> set[str]:
    """The verdicts of a node, or of the nodes of a fleet."""
    machines = ((1, plant),) if isinstance(plant, Plant) else plant.machines
    plants = [each for count, each in machines for _machine in range(count)]
    run = Run(folder, samples.RUN)
    run.dir.mkdir(parents=True)
    items: list[dict[str, t.Any]] = []
    records = []
    for place, each in enumerate(plants):
        root, name = folder / f"root-{place}", f"gpu-{place + 1:02}"
        addresses = [f"127.{rail + 1 + 4 * place}.9.{number + 1}" for rail in range(PORTS)]
        pairs.sysfs(root, addresses)
        lines = [line.replace("ADDRESS", addresses[-1]).replace(".9.1 ", f".9.{number + 1} ") for line in each.lines]
        pairs.conf(root, "pace 0.1", "seconds 0.1", *lines)
        each.change(root)
        tests = {"tests": ["write_bw", "write_bw_all"]} if isinstance(plant, Fleet) else {}
        given = {"binary_dir": str(pairs.tools_of(root)), "duration": 1, **tests, **each.options}
        params = t.cast("dict[str, t.Any]", ArgumentSpecValidator(OPTIONS).validate(given).validated_parameters)
        params["checks"] = nic_loopback.default_checks(params)
        subject = {"kind": "node", "id": name, "members": []}
        own = [{"stage": STAGE, "target": name, "subject": subject, **check} for check in params["checks"]]
        completer = Completer(run, STAGE, name, "ssh", {(i["check"], i["variant"], name): t.cast(t.Any, i) for i in own})
        records += [completer.complete(one) for one in nic_loopback.probe(params, Node(200, root=str(root)))]
        items += own
    known = expectations.shipped()
    plan = samples.plan(list(dict.fromkeys(item["target"] for item in items)), [STAGE], items=items)
    found = verdict.judge(t.cast(t.Any, plan), records, lambda *_who: known, stages=registry.shipped().values())
    words = {v["verdict"] for v in found.verdicts}
    assert found.accepted == (not words & {"FAIL", "UNKNOWN"} and bool(words - {"SKIPPED"})), (plant.what, words)
    return words


def accepted(folder: pathlib.Path) -> tuple[int, list[str], list[str]]:
    """Return the number of planted faults, the accepted ones, and the good nodes that are not accepted as they should be."""
    healthy = [*HEALTHY, *HEALTHY_FLEETS]
    faults = [*FAULTS, *BAD_FLEETS]
    plants: list[Plant | Fleet] = [*healthy, *faults]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda one: judged(folder / f"loopback-{one[0]}", *one), enumerate(plants)))
    accepts: list[str] = []
    rejects: list[str] = []
    for number, (plant, words) in enumerate(zip(plants, found, strict=True)):
        worst = next((word for word in ("FAIL", "UNKNOWN", "WARN", "SKIPPED", "PASS") if word in words), "nothing")
        if worst not in plant.verdicts:
            (rejects if number < len(healthy) else accepts).append(f"loopback: {plant.what}: {', '.join(sorted(words))}")
    return len(faults), accepts, rejects
