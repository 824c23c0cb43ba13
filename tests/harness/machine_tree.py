# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file system of a physical machine with two sockets as far as the stage `host_health` reads it: eight memory modules, a GPU
behind a switch, a NIC and an NVMe disk. Faults are planted by writing over it."""

from __future__ import annotations

import os
import pathlib
import struct
import typing as t

SLOTS = [f"P{cpu}-DIMM{letter}1" for cpu in (0, 1) for letter in "ABCD"]
GPU, NIC, DISK = "0000:17:00.0", "0000:31:00.0", "0000:41:00.0"
ROOT_OF_GPU, SWITCH_UP, SWITCH_DOWN = "0000:15:00.0", "0000:16:00.0", "0000:16:01.0"
ROOT_OF_NIC, ROOT_OF_DISK = "0000:30:00.0", "0000:40:00.0"
BATCH = "35A1B2"
CORRECTABLE = "RxErr {}\nBadTLP 0\nBadDLLP 0\nRollover 0\nTimeout 0\nNonFatalErr 0\nCorrIntErr 0\nHeaderOF 0\nTOTAL_ERR_COR {}\n"
UNCORRECTABLE = (
    "Undefined", "DLP", "SDES", "TLP", "FCP", "CmpltTO", "CmpltAbrt", "UnxCmplt", "RxOF", "MalfTLP", "ECRC", "UnsupReq", "ACSViol",
)  # fmt: skip


# The size of a module that the firmware does not know.
UNKNOWN_SIZE = 0xFFFF


def structures(
    slots: dict[str, tuple[int, int]], batch: str = BATCH, banks: dict[str, str] | None = None, asset: str = "asset"
) -> list[bytes]:
    """Return the structures of an SMBIOS table: a memory device for each {locator: (MiB, MT/s)}; 0 MiB is an empty slot, UNKNOWN_SIZE a
    module of unknown size. `batch` begins the serial numbers, `banks` has the bank of each locator."""
    found = []
    for number, (slot, (mib, speed)) in enumerate(slots.items()):
        short = 0 if not mib else mib if mib < 0x7FFF or mib == UNKNOWN_SIZE else 0x7FFF
        data = struct.pack(
            "<HHHHHBBBBBHHBBBBBIHHHH", 0x1000, 0xFFFE, 80, 64, short, 9, 0, 1, 2, 34, 0x2080, 4800 if mib else 0, 3, 4, 5, 6, 2,
            mib if short == 0x7FFF else 0, speed, 1100, 1100, 1100,
        )  # fmt: skip
        serial = f"{batch}{number:02X}" if mib else "NO DIMM"
        bank = f"P{slot[1]} CHANNEL {slot[7]}" if banks is None else banks[slot]
        texts = (slot, bank or "Not Specified", "Maker", serial, asset, "M321R8GA0BB0")
        body = data + b"".join(text.encode() + b"\0" for text in texts) + b"\0"
        found.append(struct.pack("<BBH", 17, 4 + len(data), 0x1100 + number) + body)
    return found


def smbios(slots: dict[str, tuple[int, int]], batch: str = BATCH, banks: dict[str, str] | None = None, asset: str = "asset") -> bytes:
    """Return a whole table with these memory devices, a system structure before them and its end behind them."""
    devices = b"".join(structures(slots, batch, banks, asset))
    return struct.pack("<BBH", 1, 4, 1) + b"Example\0\0" + devices + struct.pack("<BBH", 127, 4, 0xFEFF) + b"\0\0"


class MachineTree:
    """The machine under `root`, healthy until something is written over. `batch` begins the serial numbers of its memory modules."""

    def __init__(self, root: pathlib.Path, batch: str = BATCH) -> None:
        self.root, self.batch = root, batch
        self.slots = dict.fromkeys(SLOTS, (65536, 4800))
        self.write("proc/cpuinfo", "processor : 0\nmodel name : Example CPU\nflags : fpu vme mce\n")
        self.write("proc/meminfo", f"MemTotal: {int(512 * 0.98 * (1 << 20))} kB\n")
        self.write("proc/uptime", "172800.00 300000.00\n")
        self.write("proc/mounts", "/dev/sda2 / ext4 rw,relatime 0 0\n")
        self.write("dev/kmsg", "5,0,0,-;Linux version 6.8.0 (x@y)\n6,1,1000,-;Command line: x\n")
        self.write("sys/class/dmi/id/sys_vendor", "Example\n")
        self.write("sys/class/dmi/id/product_name", "GPU-8X\n")
        self.dimms({})
        for number in range(8):
            self.edac(number)
        self._numa()
        self._pci()

    def path(self, path: str) -> pathlib.Path:
        return self.root / path.lstrip("/")

    def write(self, path: str, content: str | bytes) -> None:
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)

    def log(self, line: str, level: int = 3) -> None:
        with open(self.path("dev/kmsg"), "a") as log:
            log.write(f"{level},{100 + log.tell()},9000000,-;{line}\n")

    def dimms(self, changed: dict[str, tuple[int, int]]) -> None:
        """Write the table of the firmware, with other modules {locator: (MiB, MT/s)}."""
        self.slots.update(changed)
        self.write("sys/firmware/dmi/tables/DMI", smbios(self.slots, self.batch))

    def edac(self, number: int, corrected: int = 0, uncorrected: int = 0) -> None:
        """Write the counters of one memory module, and of its controller."""
        of = f"sys/devices/system/edac/mc/mc{number // 4}"
        self.write(f"{of}/dimm{number % 4}/dimm_label", f"{SLOTS[number]}\n")
        self.write(f"{of}/dimm{number % 4}/dimm_location", f"channel {number % 4} slot 0\n")
        for kind, count in (("ce", corrected), ("ue", uncorrected)):
            self.write(f"{of}/dimm{number % 4}/dimm_{kind}_count", f"{count}\n")
            self.write(f"{of}/{kind}_count", f"{count}\n")

    def device(self, address: str, **files: t.Any) -> None:
        """Write files of a PCI device."""
        folder = os.path.realpath(self.path(f"sys/bus/pci/devices/{address}"))[len(str(self.root.resolve())) :]
        for name, content in files.items():
            self.write(f"{folder}/{name}", f"{content}\n")

    def driver(self, address: str, name: str | None) -> None:
        """Bind a PCI device to a driver, or to none."""
        link = self.path(f"sys/bus/pci/devices/{address}/driver")
        if link.is_symlink():
            link.unlink()
        if name:
            self.path(f"sys/bus/pci/drivers/{name}").mkdir(parents=True, exist_ok=True)
            link.symlink_to(self.path(f"sys/bus/pci/drivers/{name}"))

    def pci(self, chain: t.Sequence[str], code: str, driver: str | None = None, top: str = "pci0000:00", **files: t.Any) -> None:
        """Add a PCI device of a class below a chain of ports (`chain` ends with the device itself), and the ports that are missing."""
        for depth, address in enumerate(chain):
            link = self.path(f"sys/bus/pci/devices/{address}")
            if link.is_symlink():
                continue
            folder = self.path(f"sys/devices/{top}").joinpath(*chain[: depth + 1])
            folder.mkdir(parents=True)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(folder)
            self.device(address, **{"class": code if address == chain[-1] else "0x060400"})
        self.device(chain[-1], **files)
        self.driver(chain[-1], driver)

    def errors(
        self, address: str, correctable: int = 0, nonfatal: dict[str, int] | None = None, fatal: dict[str, int] | None = None
    ) -> None:
        """Write the error counters of a PCI device."""
        texts = {
            kind: "".join(f"{name} {(found or {}).get(name, 0)}\n" for name in UNCORRECTABLE) + f"TOTAL_ERR {sum((found or {}).values())}"
            for kind, found in (("nonfatal", nonfatal), ("fatal", fatal))
        }
        self.device(
            address, aer_dev_correctable=CORRECTABLE.format(correctable, correctable), aer_dev_nonfatal=texts["nonfatal"],
            aer_dev_fatal=texts["fatal"],
        )  # fmt: skip

    def tool(self, name: str, script: str) -> None:
        """Write a program of the machine, in its folder `bin`."""
        self.write(f"bin/{name}", f"#!/bin/sh\n{script}\n")
        self.path(f"bin/{name}").chmod(0o755)

    def controller(self, sensors: str, events: str = "") -> None:
        """Give the machine a management controller with what `ipmitool sdr elist` and `sel elist` print."""
        self.write("dev/ipmi0", "")
        self.write("sdr", sensors)
        self.write("sel", events)
        self.tool("ipmitool", f'if [ "$2" = time ]; then cat "{self.root}/clock" 2>/dev/null; else cat "{self.root}/$1"; fi')

    def disk(self, said: str, rc: int = 0) -> None:
        """Write what `smartctl -j -a` prints for every disk."""
        self.write("smartctl.json", said)
        self.tool("smartctl", f'cat "{self.root}/smartctl.json"; exit {rc}')

    def scsi(self, name: str, code: str, place: str = "0:0:0:0", at: str = "0000:00:17.0", **files: t.Any) -> None:
        """Give the machine a disk of SCSI that runs behind an adapter of a class at a PCI address."""
        if not self.path(f"sys/bus/pci/devices/{at}").is_symlink():
            self.pci([at], code, "ahci")
        folder = f"sys/devices/pci0000:00/{at}/ata1/host0/target0:0:0/{place}"
        self.write(f"{folder}/block/{name}/removable", files.pop("removable", "0"))
        self.path(f"{folder}/block/{name}/device").symlink_to(self.path(folder))
        self.path("sys/block").mkdir(exist_ok=True, parents=True)
        self.path(f"sys/block/{name}").symlink_to(self.path(f"{folder}/block/{name}"))
        self.write(f"{folder}/block/{name}/size", "1000")
        for file, content in {"state": "running", **files}.items():
            self.write(f"{folder}/{file}", content)

    def _numa(self) -> None:
        for node, cpus in ((0, "0-3"), (1, "4-7")):
            self.write(f"sys/devices/system/node/node{node}/cpulist", f"{cpus}\n")
            self.write(f"sys/devices/system/node/node{node}/meminfo", f"Node {node} MemTotal: {256 << 20} kB\n")
            self.write(f"sys/devices/system/node/node{node}/distance", "10 21\n" if node == 0 else "21 10\n")
        self.write("sys/devices/system/cpu/smt/control", "on\n")

    def _pci(self) -> None:
        chains = (
            (ROOT_OF_GPU, SWITCH_UP, SWITCH_DOWN, GPU),
            (ROOT_OF_NIC, NIC),
            (ROOT_OF_DISK, DISK),
        )
        for chain in chains:
            for depth, address in enumerate(chain):
                folder = self.path("sys/devices/pci0000:00").joinpath(*chain[: depth + 1])
                folder.mkdir(parents=True)
                link = self.path(f"sys/bus/pci/devices/{address}")
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(folder)
                lanes = 4 if chain[-1] == DISK else 16
                kind = {GPU: "0x030200", NIC: "0x020700", DISK: "0x010802"}.get(address, "0x060400")
                each = {"link_speed": "32.0 GT/s PCIe", "link_width": lanes}
                ends = {f"{when}_{name}": value for when in ("current", "max") for name, value in each.items()}
                self.device(address, **{"class": kind}, **ends)
                self.errors(address)
        self.device(GPU, current_link_speed="2.5 GT/s PCIe")  # asleep
        self.device(NIC, **{"infiniband/mlx5_0/node_guid": "x"})
        self.device(DISK, **{"nvme/nvme0/model": "x"})
        for name, text in (
            ("model", "Example NVMe"), ("serial", "S6EX001"), ("address", DISK), ("state", "live"), ("transport", "pcie"),
            ("nvme0n1/size", "7501476528"),
        ):  # fmt: skip
            self.write(f"sys/class/nvme/nvme0/{name}", f"{text}\n")
        for address, name in ((GPU, "nvidia"), (NIC, "mlx5_core"), (DISK, "nvme")):
            self.driver(address, name)
        self.write("sys/bus/pci/slots/5/address", f"{GPU.rpartition('.')[0]}\n")
