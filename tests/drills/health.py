# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes whose GPUs are not in order, or fail while a test runs that gives a fine number: measured by the probes over the simulated tools,
and judged as in a run. Nothing is reached over a network."""

from __future__ import annotations

import concurrent.futures
import pathlib
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import xids
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import nccl_node, stack
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import kernel_log
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.modules.nccl_tests import OPTIONS
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import Completer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from harness import report_samples as samples
from rigs.simulated import nodes

NAME = "gpu-01"
# The last GPU of a simulated node, and a bridge that no GPU is at.
LAST, NOBODY = "0000:4b:00", "0000:f0:00"
# A test has to last for some samples before a speed under load is judged.
LONG = {"SLEEP": 4}


class Plant(t.NamedTuple):
    """A planted fault: `faults` of the simulated tools, lines that the kernel has `logged` since boot (None: nobody may read them), how
    many GPUs, other settings of the node, lines that the kernel logs `between` the health check and the test, and whether the run has a
    `health` check. The worst verdict of the node must be one of `verdicts`."""

    what: str
    faults: str = ""
    verdicts: frozenset[str] = frozenset({"FAIL"})
    logged: str | None = ""
    gpus: int = 8
    settings: t.Mapping[str, t.Any] = {}
    between: str = ""
    health: bool = True


FINE, WARN, FAIL, UNKNOWN = (frozenset({word}) for word in ("PASS", "WARN", "FAIL", "UNKNOWN"))


def line(said: str, where: str = LAST, number: int = 7) -> str:
    return f"4,{number},9000000,-;NVRM: Xid (PCI:{where}): {said}\n"


def numbered(*classes: kernel_log.Class) -> list[int]:
    """An Xid of each row of the table that has one of these classes."""
    return [row[0] for row in xids.ROWS if row[2] in classes]


PROBE_FAILED = (
    f"4,7,9000000,-;nvidia: probe of {NOBODY}.0 failed with error -1\n"
    "4,8,9000000,-;NVRM: The NVIDIA probe routine failed for 1 device(s).\n"
)
LOADED = "6,9,9000000,-;nvidia-nvlink: Nvlink Core is being initialized, major device number 234\n"

HEALTHY = [
    Plant("nothing is wrong", "", FINE),
    Plant("nobody may read the kernel's log", "", FINE, None),
    Plant("the kernel's log has lost its first lines", "", FINE, "6,90000,1,-;usb 1-1: new device\n"),
    Plant("a process writes like the driver", "", FINE, f"12,9,9,-;NVRM: Xid (PCI:{LAST}): 79, x\n"),
    Plant("another kernel line names an Xid", "", FINE, f"4,9,9,-;audit: comm=NVRM: Xid (PCI:{LAST}): 79, x\n"),
    Plant("four GPUs on one board with 18 links each", "", FINE, gpus=4, settings={"BUSBW": 360}),
    Plant("a power limit that holds the clock under load", "capped=1400", FINE, settings=LONG),
    Plant("a whole test under load", "", FINE, settings=LONG),
]
# A WARN each, and no more than that: a good node must not be refused for it.
WORTH_A_LOOK = [
    Plant("one repaired memory error in the GPU's life", "ecc_life", WARN),
    Plant("ten remapped rows", "rows=10", WARN),
    Plant("ECC is off", "ecc_off", WARN),
    Plant("ECC is switched off while a test runs", "after:ecc_off", WARN),
    Plant("ECC is switched off between health check and test", "between:ecc_off", WARN),
    Plant("a slot of 8 lanes, where the other GPUs have 16", "slot_lanes=8", WARN),
    Plant("half of the power", "power_limit=350.00", WARN),
    Plant("half of the power from the first test on", "after:power_limit=350.00", WARN),
    Plant("slots of generation 3 on all GPUs of a virtual machine", "slots_of_all=3", WARN),
    Plant("a slot of generation 4 on one GPU", "slot=4", WARN),
    Plant("no NVLink is listed on any GPU", "links_silent", WARN),
    Plant("no GPU reports its memory errors", "ecc_untold_of_all", WARN),
    Plant("a sampler that dies after one sample", "sampler_dies", WARN, settings=LONG),
    Plant("no NVLink is listed after a test", "after:links_silent", WARN),
    Plant("low application clocks", "application_clock=1200", WARN),
    Plant("clocks that are locked low", "locked=1200", WARN, settings=LONG),
    *(Plant(f"Xid {n} of an application before the run", "", WARN, line(f"{n}, pid=7, name=x, y")) for n in (13, 31, 43, 45, 69, 92)),
    *(Plant(f"somebody else's application ends with Xid {n}", f"xid={n}_y", WARN) for n in (13, 31, 43, 45)),
    Plant("the driver asks for nothing any more", "", WARN, line("154, GPU recovery action changed from 0x1 (x) to 0x0 (None)")),
    Plant("an NVLink 5 error that is not fatal", "xid=149_Nonfatal", WARN),
    Plant("bit errors of an NVLink", "", WARN, line("149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001 0x00000000)")),
    Plant(
        "an NVLink 5 error of an unknown pattern", "", WARN, line("145, RLW_X Nonfatal XC0 i0 Link 03 (0x040983e2 0x00000008 0x00000000)")
    ),
    Plant(
        "an NVLink 5 error that leaves the action to Xid 154",
        "",
        WARN,
        line("145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x00000008 0x00000000)"),
    ),
    Plant("a GPU that the driver took when it was loaded again", "", FINE, f"{PROBE_FAILED}{LOADED}"),
    Plant("a row was marked for remapping", "xid=63_y", WARN),
]
FAULTS = [
    Plant("memory errors since the driver was loaded", "ecc"),
    Plant("eleven remapped rows", "rows=11"),
    Plant("memory beyond repair", "unrepairable"),
    Plant("a page retirement is pending", "retirement"),
    Plant("a recovery action", "recovery=Reboot"),
    Plant("a degraded fabric", "fabric_degraded"),
    Plant("a route of the fabric is unhealthy", "fabric_route"),
    Plant("the fabric is configured wrongly", "fabric_configuration"),
    Plant("17 of 18 NVLinks on every GPU", "links_of_all=17"),
    Plant("slots of generation 4 on all GPUs", "slots_of_all=4 cells=virtualization_mode:Host_VGPU"),
    Plant("no NVLink at all on any GPU", "links_of_all=0"),
    Plant("17 of 18 NVLinks on one GPU", "links=17"),
    Plant("18 NVLinks at half their rate on every GPU", "link_rate=13.281"),
    Plant("a GPU whose NVLinks are not listed", "links_untold", UNKNOWN),
    Plant("a GPU outside the fabric of the others", "fabric_out"),
    Plant("a GPU with less memory than the others", "less_memory=120000", UNKNOWN),
    Plant("a GPU that does not tell its memory errors, as the others do", "ecc_untold", UNKNOWN),
    Plant("17 of 18 NVLinks on every GPU of four", "links_of_all=17", gpus=4, settings={"BUSBW": 360}),
    *(
        Plant(f"while a test runs: {what}", f"after:{fault}")
        for fault, what in (
            ("remap_failure", "a row remap fails"),
            ("remap_pending", "a row remap becomes pending"),
            ("retirement", "a page retirement becomes pending"),
            ("unrepairable", "memory beyond repair"),
            ("rows=1", "a row is remapped for an uncorrectable error"),
            ("rows=11", "eleven rows are remapped"),
            ("ecc", "memory errors"),
            ("ecc_life", "a memory error that only the counter of the GPU's life shows"),
            ("recovery=Reset", "the driver asks for a reset"),
            ("recovery=Drain_P2P", "the driver asks for a drain"),
            ("pcie_width", "a PCIe link becomes narrower"),
            ("fabric_degraded", "the fabric degrades"),
            ("fabric_route", "a route of the fabric becomes unhealthy"),
            ("links=17", "an NVLink goes down"),
            ("links_of_all=17", "an NVLink of every GPU goes down"),
            ("fabric_out", "a GPU leaves the fabric of the others"),
            ("fewer_gpus=7", "a GPU goes away"),
            ("gpu_lost", "a GPU is lost"),
        )
    ),
    *(
        Plant(f"between the health check and the test: {fault}", f"between:{fault}")
        for fault in (
            "remap_failure",
            "remap_pending",
            "rows=11",
            "ecc",
            "recovery=Reset",
            "pcie_width",
            "fabric_degraded",
            "links_of_all=17",
        )
    ),
    Plant("nvidia-smi cannot be asked after the test", "after:smi_mismatch", UNKNOWN),
    Plant("random bytes after the test", "after:smi_garbage", UNKNOWN),
    Plant("PCIe generation 1 of 5 under load", "pcie_gen=1", settings=LONG),
    Plant("PCIe generation 4 under load, where the other GPUs have 5", "pcie_gen=4", settings=LONG),
    Plant("8 of 16 PCIe lanes under load", "pcie_lanes=8", settings=LONG),
    *(
        Plant(f"Xid {n} since boot", "", FAIL, line(f"{n}, pid=7, name=x, y"))
        for n in numbered(xids.MEMORY, xids.DRAM, xids.SRAM, xids.LOST, xids.FAULT, xids.LINK, xids.RESET, xids.ECC_OFF)
    ),
    *(
        Plant(f"Xid {n} while a test passes", f"xid={n}_Fatal")
        for n in (46, 48, 54, 61, 62, 64, 74, 79, 94, 95, 109, 119, 120, 136, 140, 143, 149, 154, 158, 171)
    ),
    *(
        Plant(f"Xid {n} between the health check and the test", between=line(f"{n}, pid=7, name=x, y"))
        for n in (48, 62, 64, 74, 79, 95, 119, 140, 143)
    ),
    Plant("Xid 119 since boot, and no health check in the run", "", FAIL, line("119, pid=7, name=x, y"), health=False),
    Plant("an NVSwitch failed since boot", "", FAIL, f"4,7,9,-;nvidia-nvswitch0: SXid ({NOBODY}): 24007, Fatal, Link 44\n"),
    Plant("a GPU that is gone had fallen off the bus", "", FAIL, line("79, pid=1, GPU has fallen off the bus.", NOBODY)),
    Plant("a GPU was gone when the driver started", "", FAIL, f"4,7,9,-;NVRM: GPU {NOBODY}.0: GPU has fallen off the bus.\n"),
    Plant("a GPU that the driver could not start", "", FAIL, f"3,7,9,-;NVRM: GPU {NOBODY}.0: RmInitAdapter failed! (0x26:0x56:1474)\n"),
    Plant("an older driver could not start a GPU", "", FAIL, "3,7,9,-;NVRM: RmInitAdapter failed! (0x26:0xffff:1096)\n"),
    Plant("a GPU that the driver did not take", "", FAIL, f"{LOADED}{PROBE_FAILED}"),
    Plant(
        "a GPU without address space",
        "",
        FAIL,
        f"3,7,9,-;NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\\x0aNVRM: BAR1 is 0M @ 0x0 (PCI:{NOBODY}.0)\n",
    ),
    Plant(
        "two GPUs that the driver did not take, without addresses",
        "",
        FAIL,
        "3,7,9,-;NVRM: The NVIDIA probe routine failed for 2 device(s).\n",
    ),
    Plant(
        "a GPU that the driver does not support",
        "",
        FAIL,
        f"3,7,9,-;NVRM: The NVIDIA GPU {NOBODY}.0 (PCI ID: 10de:2901)"
        "\\x0aNVRM: installed in this system is not supported by the\\x0aNVRM: NVIDIA 535.1 driver release.\n",
    ),
    Plant(
        "a GPU whose system processor does not start",
        "",
        FAIL,
        "3,7,9,-;NVRM: GPU0 kgspInitRm_IMPL: unexpected WPR2 already up, cannot proceed with booting GSP\n",
    ),
    Plant(
        "a nonfatal NVLink 5 error that asks for a reset",
        "",
        FAIL,
        line("145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a4c2 0x00000001 0x00000001)"),
    ),
    Plant("an NVLink that went down at its other end", "", FAIL, line("149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000)")),
    Plant("the driver could start no GPU", "no_gpu", FAIL, f"3,7,9,-;NVRM: GPU {LAST}.0: RmInitAdapter failed! (0x26:0x56:1474)\n"),
    Plant("the test's own process ended with Xid 31", "xid_own=31_y", UNKNOWN),
    Plant("the test's own process ended with Xid 13", "xid_own=13_y", UNKNOWN),
    Plant("an Xid that no table has", "xid=999_y", UNKNOWN),
    Plant("an Xid since boot that no table has", "", UNKNOWN, line("999, y")),
    Plant("while a test runs: a GPU loses memory", "after:less_memory=120000", UNKNOWN),
    Plant("a line of the driver that is cut", "", UNKNOWN, f"4,7,9,-;NVRM: Xid (PCI:{LAST}): 7\n"),
]


# Puts more into the root of a node.
Planting = t.Callable[[pathlib.Path], None]


def judged(folder: pathlib.Path, plant: Plant, planting: Planting = lambda _root: None) -> set[str]:
    """The verdicts of the health check and of one test after it."""
    host = nodes.local(folder, 1, kernel_log=plant.logged, faults=plant.faults, gpus=plant.gpus, **plant.settings)
    planting(pathlib.Path(host["acceptance_root"]))
    tools = folder / "bin"
    given = {"binary_dir": str(tools), "ops": ["all_reduce"], "sizes": "8M:16G"}
    params = t.cast("dict[str, t.Any]", ArgumentSpecValidator(OPTIONS).validate(given).validated_parameters)
    params["checks"] = nccl_node.default_checks(params)
    asked = {"checks": [{"check": "gpu_health", "variant": ""}], "gpu_count": plant.gpus}
    records: list[dict[str, t.Any]] = []
    items: list[dict[str, t.Any]] = []
    run = Run(folder, samples.RUN)
    run.dir.mkdir()
    steps: list[tuple[str, t.Any, dict[str, t.Any]]] = [("stack", stack.probe, asked), ("nccl_node", nccl_node.probe, params)]
    for stage, probe, settings in steps if plant.health else steps[1:]:
        if stage == "nccl_node" and plant.between:
            with open(folder / "root/dev/kmsg", "a") as log:
                log.write(plant.between)
        node = Node(60, root=host["acceptance_root"], tools={"nvidia_smi": str(tools / "nvidia-smi")})
        for check in settings["checks"]:
            subject = {"kind": "node", "id": NAME, "members": []}
            items.append({"stage": stage, "target": NAME, "subject": subject, **check})
        completer = Completer(run, stage, NAME, "ssh", {(i["check"], i["variant"], NAME): i for i in items if i["stage"] == stage})
        records += [completer.complete(one) for one in probe(settings, node)]
    known = expectations.shipped()
    plan: t.Any = samples.plan([NAME], ["stack", "nccl_node"], items=items)
    found = verdict.judge(plan, records, lambda *_who: known, stages=registry.shipped().values())
    words = {v["verdict"] for v in found.verdicts}
    assert found.accepted == (not words & {"FAIL", "UNKNOWN"})
    return words


def judged_all(plants: t.Sequence[tuple[Plant, Planting]], folder: pathlib.Path, name: str) -> list[set[str]]:
    """Return the verdicts of each plant."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda numbered: judged(folder / f"{name}-{numbered[0]}", *numbered[1]), enumerate(plants)))


def mistakes(part: str, plants: t.Sequence[Plant], found: t.Sequence[set[str]], healthy: int) -> tuple[list[str], list[str]]:
    """Return the faults that were accepted, and the nodes that are worse than they should be; the first `healthy` plants are good nodes."""
    accepts: list[str] = []
    rejects: list[str] = []
    for number, (plant, words) in enumerate(zip(plants, found, strict=True)):
        worst = next((word for word in ("FAIL", "UNKNOWN", "WARN", "PASS") if word in words), "nothing")
        if worst not in plant.verdicts:
            bad = number < healthy or worst in ("FAIL", "UNKNOWN")
            (rejects if bad else accepts).append(f"{part}: {plant.what}: {', '.join(sorted(words))}")
    return accepts, rejects


def accepted(folder: pathlib.Path) -> tuple[int, list[str], list[str]]:
    """Return the number of planted faults, the accepted ones, and the good nodes that are not accepted as they should be."""
    plants = [*HEALTHY, *WORTH_A_LOOK, *FAULTS]
    found = judged_all([(plant, lambda _root: None) for plant in plants], folder, "health")
    accepts, rejects = mistakes("health", plants, found, len(HEALTHY))
    return len(WORTH_A_LOOK) + len(FAULTS), accepts, rejects
