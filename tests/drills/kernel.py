# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines whose kernel has logged a fault, something that looks like one, or a fault that is over: by the probe of `host_health`, judged
as the machines of `host` are."""

from __future__ import annotations

import pathlib
import typing as t

from drills import host
from drills.host import FAIL, FINE, WARN, Plant
from harness.machine_tree import MachineTree


def logged(*lines: str) -> t.Callable[[MachineTree], t.Any]:
    return lambda machine: [machine.log(line) for line in lines]


def _read_error(disk: str) -> str:
    return f"I/O error, dev {disk}, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2"


_HW, _SLOT, _MLX5 = "[Hardware Error]: ", "pcieport 0000:15:00.0: pciehp: Slot(5): ", "mlx5_core 0000:31:00.0: poll_health:800:(pid 0): "
_CORRECTED = "pcieport 0000:15:00.0: AER: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"
PLANTS = [
    Plant("nothing is wrong", FINE),
    Plant("a bank that the platform reports as all ones", FINE,
          logged(f"{_HW}CPU:0 (19:11:1) MC25_STATUS[Over|UE|MiscV|AddrV|PCC|TCC|SyndV|UECC|Deferred|Poison|Scrub]: 0xffffffffffffffff")),
    Plant("a link change that was ignored", FINE, logged(f"{_SLOT}Link Down/Up ignored")),
    Plant("a discard that a disk lacks", FINE, logged("critical target error, dev sdb, sector 34 op 0x3:(DISCARD) flags 0x0 phys_seg 1")),
    Plant("zeroes that a disk cannot write", FINE,
          logged("blk_update_request: critical target error, dev nvme0n1, sector 34 op 0x9:(WRITE_ZEROES) flags 0x0 phys_seg 0")),
    Plant("virtual media that were taken out", FINE, logged("sd 6:0:0:0: [sdc] Attached SCSI removable disk", _read_error("sdc"))),
    Plant("an array that was rebuilt", FINE, logged("md/raid1:md0: Disk failure on sdb1, disabling device.", "md: md0: recovery done.")),
    Plant("a slot that has its power again", FINE,
          logged(f"{_MLX5}Detected insufficient power on the PCIe slot (27W).", f"{_MLX5}PCIe slot advertised sufficient power (75W).")),
    Plant("lines of a process", FINE, logged("python3[12]: md/raid1:md0: Disk failure on sdb1, disabling device.")),
    Plant("a few corrected PCIe errors", FINE, logged(*[_CORRECTED] * 20)),
    Plant("many corrected PCIe errors within a day", WARN, logged(*[_CORRECTED] * 150)),
    Plant("a corrected machine check of AMD", WARN,
          logged(f"{_HW}CPU:2 (17:31:0) MC18_STATUS[Over|CE|MiscV|AddrV|-|-|SyndV|CECC|-|-|-]: 0xdc2040000000011b")),
    Plant("a hung task", WARN, logged("INFO: task nvc:[driver]:5403 blocked for more than 120 seconds.")),
    Plant("a stall of RCU", WARN, logged("rcu: INFO: rcu_sched self-detected stall on CPU")),
    Plant("a link that came back", WARN, logged(f"{_SLOT}Link Down", f"{_SLOT}Link Up")),
    Plant("a NIC whose firmware recovered", WARN, logged(f"{_MLX5}Fatal error 1 detected", f"{_MLX5}health recovery succeeded")),
    Plant("a slot with too little power", WARN, logged(f"{_MLX5}Detected insufficient power on the PCIe slot (27W).")),
    Plant("a hot NIC", WARN, logged(f"{_MLX5}High temperature on sensors with bit set 0x0 0x1")),
    *(
        Plant(f"{what}, in the kernel's log", FAIL, logged(line))
        for what, line in (
            ("an uncorrected machine check of AMD",
             f"{_HW}CPU:12 (19:1:1) MC5_STATUS[-|UE|MiscV|AddrV|PCC|-|SyndV|-|-|-]: 0xbea0000000000108"),
            ("a deferred error",
             f"{_HW}CPU:3 (1a:2:1) MC17_STATUS[-|-|MiscV|AddrV|-|-|SyndV|UECC|Deferred|-|Scrub]: 0x9c2030000001085b"),
            ("poison", f"{_HW}CPU:3 (17:31:0) MC27_STATUS[-|UE|MiscV|-|-|TCC|SyndV|-|-|Poison|-]: 0xb8a0000000000108"),
            ("an interrupt for SERR", "NMI: PCI system error (SERR) for reason b1 on CPU 0."),
            ("an interrupt for IOCK", "NMI: IOCK error (debug interrupt?) for reason 71 on CPU 0."),
            ("a memory error without its place", "EDAC MC0: 1 UE no information on any memory (page:0x0 offset:0x0 grain:0)"),
            ("a PCIe completion that never came", "nvidia 0000:17:00.0: AER:    [14] CmpltTO                (First)"),
            ("a slot whose power failed", f"{_SLOT}Power fault"),
            ("a fatal error of a NIC", f"{_MLX5}Fatal error 1 detected"),
            ("a NIC that did not recover", f"{_MLX5}health recovery flow aborted, PCI reads still not working"),
            ("a Broadcom NIC's firmware", "bnxt_en 0000:31:00.0 eth2: Firmware not responding, status: 0x8001"),
            ("an NVMe command that was aborted", "nvme nvme0: I/O 12 QID 3 timeout, aborting"),
            ("an NVMe disk that was reset", "nvme nvme0: I/O tag 12 (400c) opcode 0x2 (I/O Cmd) QID 3 timeout, reset controller"),
            ("a read error of a disk", _read_error("sdd")),
            ("a SAS controller's firmware", "mpt3sas_cm0: fault_state(0x5854)!"),
            ("a RAID controller's firmware", "megaraid_sas 0000:18:00.0: FW detected to be in faultstate, restarting it..."),
            ("a volume that is offline", "megaraid_sas 0000:18:00.0: 10345 (683456s/0x0001/CRIT) - VD 01/1 is now OFFLINE"),
            ("an array that lost a disk", "md/raid1:md0: Disk failure on sdb1, disabling device."),
            ("an array without a disk", "md/raid10:md0: active with 3 out of 4 devices"),
            ("an array that cannot run", "md/raid:md127: not enough operational devices (2/4 failed)"),
            ("XFS that shut itself down", "XFS (nvme1n1p1): Filesystem has been shut down due to log error (0x2)."),
            ("XFS with an error of its log", "XFS (nvme1n1p1): log I/O error -5"),
            ("ext4's superblock", "EXT4-fs (dm-0): I/O error while writing superblock"),
            ("ext4's journal", "Aborting journal on device sda1-8."),
            ("btrfs", "BTRFS warning (device sda1): csum failed root 5 ino 257 off 0 csum 0x1 expected csum 0x2 mirror 1"),
            ("a thin pool", "device-mapper: thin: 253:4: switching pool to read-only mode"),
        )
    ),
]  # fmt: skip


def accepted(folder: pathlib.Path) -> tuple[int, list[str], list[str]]:
    """Return the number of planted faults, the accepted ones, and the good machines that are not accepted as they should be."""
    return host.tried(folder, "kernel", PLANTS)
