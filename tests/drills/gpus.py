# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs that the driver refused, machines with fewer GPUs than places for them, cells of nvidia-smi that cannot be read, and counters that
stand high: measured by the probes over the simulated tools, and judged as in a run. Nothing is reached over a network."""

from __future__ import annotations

import os
import pathlib
import typing as t

from drills import health
from drills.health import FINE, UNKNOWN, WARN, Plant

NVIDIA, THREE_D, VGA, BRIDGE = "0x10de", "0x030200", "0x030000", "0x068000"
# Where the GPUs of a simulated node are.
SHOWN = [f"0000:{26 + 7 * number:02x}:00.0" for number in range(8)]


class Device(t.NamedTuple):
    """A device on the PCI bus. `of`: the physical function of a virtual one."""

    address: str
    driver: str = ""
    kind: str = THREE_D
    vendor: str = NVIDIA
    name: str = "0x2335"
    of: str = ""


class Machine(t.NamedTuple):
    """A plant on a machine with a PCI bus and a product name: `gpus` of the plant are on the bus, and `more` devices."""

    plant: Plant
    more: tuple[Device, ...] = ()
    product: str = "Server 1"
    virtual: bool = False


SWITCHES = tuple(Device(f"0000:0{number}:00.0", "nvidia-nvswitch", BRIDGE, name="0x22a3") for number in (5, 6, 7, 8))
BESIDE = (
    Device("0000:c1:00.0", "ast", VGA, "0x1a03", "0x2000"), Device("0000:c2:00.0", "", VGA, "0x102b", "0x0536"),
    Device("0000:1a:00.1", "snd_hda_intel", "0x040300"), Device("0000:1a:00.4", "nvidia", of=SHOWN[0]),
)  # fmt: skip
LESS = {"BUSBW": 360}
BARE = "cells=virtualization_mode:None "

HEALTHY = [
    Machine(Plant("a machine with a display of its BMC, NVSwitches, sound and virtual functions", BARE, FINE), (*BESIDE, *SWITCHES)),
    Machine(Plant("a DGX with eight GPUs", BARE, FINE), product="DGXH100"),
    Machine(Plant("a virtual machine with four GPUs of a board", "", FINE, gpus=4, settings=LESS), virtual=True),
    Machine(Plant("a server for four GPUs with four", f"{BARE} cells=state:N/A", FINE, gpus=4, settings=LESS), product="PowerEdge XE8640"),
    Machine(Plant("a virtual machine whose GPUs all have 8 of 16 lanes", "cells=current_link_width:8x", FINE), virtual=True),
    Machine(Plant("without persistence mode", "cells=persistence_mode:Disabled", FINE), virtual=True),
    Machine(Plant("a few corrected errors and replays", "cells=dram_correctable:12 cells=replay_counter:40", FINE), virtual=True),
    Machine(Plant("raw errors of NVLinks, before they are corrected", "nvlink_of_all=FEC_Errors_-_0:36140749276", FINE), virtual=True),
]
WORTH_A_LOOK = [
    Machine(Plant("a GPU that is held for virtual machines", BARE, WARN), (Device("0000:52:00.0", "vfio-pci"),)),
    Machine(Plant("no GPU tells its DRAM errors", "cells=dram_uncorrectable:N/A", WARN)),
    Machine(Plant("no GPU may tell its DRAM errors", "cells=dram_uncorrectable:Insufficient_Permissions", WARN)),
    Machine(Plant("no GPU tells how wide its PCIe link is", "cells=current_link_width:Unknown_Error", WARN)),
    Machine(Plant("20 million corrected memory errors on one GPU", "cell=dram_correctable:20000000", WARN)),
    Machine(Plant("three million PCIe replays on one GPU", "cell=replay_counter:3000000", WARN)),
    Machine(Plant("100,000 PCIe replays on every GPU", "cells=replay_counter:100000", WARN)),
    *(
        Machine(Plant(f"NVLinks of one GPU: {counter}", f"nvlink={counter}", WARN))
        for counter in (
            "Replay_Errors:4000000", "Recovery_Errors:300", "CRC_Errors:90000", "Link_recovery_successful_events:300",
            "Total_link_recovery_events:300", "Tx_discards:90000", "Symbol_Errors:500", "Effective_Errors:500", "Effective_BER:3e-8",
            "Symbol_BER:15e-9", "Malformed_packet_Errors:40", "Buffer_overrun_Errors:40", "Rx_remote_Errors:40", "A_new_Failure:50",
        )
    ),
    Machine(Plant("300 recoveries of NVLinks on every GPU", "nvlink_of_all=Total_link_recovery_events:300", WARN)),
]
FAULTS = [
    Machine(Plant("a GPU that the driver refused", BARE), (Device("0000:52:00.0"),)),
    Machine(Plant("two GPUs of eight that the driver refused", BARE, gpus=6, settings=LESS), (Device(SHOWN[6]), Device(SHOWN[7]))),
    Machine(Plant("a GPU that the driver refused in a virtual machine", ""), (Device("0000:52:00.0"),), virtual=True),
    Machine(Plant("a GPU that the driver has and nvidia-smi does not show", BARE), (Device("0000:52:00.0", "nvidia"),)),
    Machine(Plant("a GPU with another driver", BARE, UNKNOWN), (Device("0000:52:00.0", "nouveau", VGA),)),
    *(
        Machine(Plant(f"four GPUs in a {product} of eight", BARE + "cells=state:N/A", UNKNOWN, gpus=4, settings=LESS), (), product)
        for product in ("DGXH100", "DGX H200", "PowerEdge XE9680", "SYS-821GE-TNHR", "ThinkSystem SR680a V3", "G593-SD0-AAX1-000")
    ),
    Machine(
        Plant("four GPUs in an instance with eight", "cells=state:N/A", UNKNOWN, gpus=4, settings=LESS), (), "p5en.48xlarge", virtual=True
    ),
    Machine(Plant("four GPUs beside the NVSwitches of eight", BARE + "cells=state:N/A", UNKNOWN, gpus=4, settings=LESS), SWITCHES),
    Machine(Plant("four GPUs of a board with NVSwitches", BARE, UNKNOWN, gpus=4, settings=LESS)),
    *(
        Machine(Plant(f"one GPU: {cell} reads {form}", f"cell={cell}:{form}", UNKNOWN))
        for cell, form in (
            ("dram_uncorrectable", "N/A"), ("dram_uncorrectable", "Unknown_Error"), ("sram_uncorrectable_parity", "ERR!"),
            ("remapped_row_failure", "N/A"), ("remapped_row_pending", "Unknown_Error"), ("remapped_row_unc", "[N/A]"),
            ("unrepairable_memory", "Unknown_Error"), ("current_ecc", "Unknown_Error"), ("gpu_recovery_action", "Unknown_Error"),
            ("current_link_width", "N/A"), ("replay_counter", "Unknown_Error"),
        )
    ),
    *(
        Machine(Plant(f"all GPUs: {cell} reads Unknown Error", f"cells={cell}:Unknown_Error", UNKNOWN))
        for cell in ("dram_uncorrectable", "remapped_row_unc", "remapped_row_failure", "channel_repair_pending", "gpu_recovery_action")
    ),
    Machine(Plant("memory errors beside a counter that cannot be read", "ecc cells=sram_uncorrectable_parity:N/A")),
    Machine(Plant("an NVLink that could not be recovered", "nvlink=Link_recovery_failed_events:1")),
    Machine(Plant("an NVLink is lost while a test runs", "after:nvlink=Link_recovery_failed_events:1")),
    Machine(Plant("one GPU of a virtual machine with 8 of 16 lanes", "cell=current_link_width:8x"), virtual=True),
    Machine(Plant("all GPUs of a physical machine with 8 of 16 lanes", BARE + "cells=current_link_width:8x")),
    Machine(Plant("8 of 16 lanes, and the widest cannot be read", BARE + "cells=max_link_width:N/A cells=current_link_width:8x")),
]


def planted(machine: Machine) -> t.Callable[[pathlib.Path], None]:
    """Return what puts the bus and the firmware's tables of a machine into the root of its node."""

    def plant(root: pathlib.Path) -> None:
        shown = [Device(address, "nvidia") for address in SHOWN[: machine.plant.gpus]]
        for device in (*shown, *machine.more):
            folder = root / "sys/bus/pci/devices" / device.address
            folder.mkdir(parents=True)
            for name, text in (("vendor", device.vendor), ("class", device.kind), ("device", device.name)):
                (folder / name).write_text(text + "\n")
            if device.driver:
                os.symlink(f"../../drivers/{device.driver}", folder / "driver")
            if device.of:
                os.symlink(f"../{device.of}", folder / "physfn")
        dmi = root / "sys/class/dmi/id"
        dmi.mkdir(parents=True)
        (dmi / "sys_vendor").write_text("Amazon EC2\n" if machine.virtual else "Maker\n")
        (dmi / "product_name").write_text(machine.product + "\n")
        (root / "proc").mkdir()
        (root / "proc/cpuinfo").write_text(f"flags\t\t: fpu{' hypervisor' if machine.virtual else ''}\n")
        (root / "proc/uptime").write_text("864000.00 1.00\n")

    return plant


def accepted(folder: pathlib.Path) -> tuple[int, list[str], list[str]]:
    """Return the number of planted faults, the accepted ones, and the good nodes that are not accepted as they should be."""
    machines = [*HEALTHY, *WORTH_A_LOOK, *FAULTS]
    found = health.judged_all([(machine.plant, planted(machine)) for machine in machines], folder, "gpus")
    accepts, rejects = health.mistakes("gpus", [machine.plant for machine in machines], found, len(HEALTHY))
    return len(WORTH_A_LOOK) + len(FAULTS), accepts, rejects
