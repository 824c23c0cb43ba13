# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One qemu guest that takes itself for a physical machine: memory modules by its firmware, a memory controller with counters, an NVMe disk
and a NIC below PCIe root ports, a management controller. It runs inside.py once and ends, or its power is cut (`close`).

It has the kernel of the soft-RoCE guests and this machine's `/` (read-only, under a memory overlay) as root; it has no network.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import socket
import subprocess
import sys
import time
import typing as t

from harness import fake_bmc, machine_tree
from rigs import common
from rigs.rdma import rdma
from rigs.simulated import nodes

HERE = pathlib.Path(__file__).resolve().parent
CHECKOUT = HERE.parents[2]
# Ends a guest that hangs.
LIMIT_S = 600


class Machine:
    """The guest. `folder` takes its files; `slots` are its memory modules, {locator: (MiB, MT/s)}."""

    def __init__(self, folder: pathlib.Path, slots: dict[str, tuple[int, int]]) -> None:
        self.folder = folder
        common.need_root("machine")
        common.need_packages(rdma.IMAGE_PACKAGES)
        image = rdma.built_image()
        for number, structure in enumerate(machine_tree.structures(slots)):
            (folder / f"smbios.{number}").write_bytes(structure)
        if not (folder / "disk").exists():
            self._disk()
        (folder / "sdr").write_bytes(b"".join(fake_bmc.records(first=1)))
        words = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr net.ifnames=0 no_timer_check"
        words += " memmap=64K$0x18000000 iomem=relaxed"
        words += f" rig.init={HERE}/init.sh rig.checkout={CHECKOUT} rig.python={sys.executable}"
        command = ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-smp", "2", "-m", "1024", "-nographic", "-nodefaults"]
        # Without the bit of hypervisors, and with a maker of its own, it is a physical machine.
        command += ["-cpu", "max,-hypervisor,vendor=GenuineIntel,family=6,model=85", "-no-user-config", "-no-reboot"]
        command += ["-smbios", "type=1,manufacturer=Example,product=GPU-8X"]
        for number in range(len(slots)):
            command += ["-smbios", f"file={folder}/smbios.{number}"]
        command += ["-serial", f"file:{folder}/console", "-monitor", f"unix:{folder}/monitor,server,nowait"]
        command += ["-kernel", f"{image}/vmlinuz", "-initrd", f"{image}/initrd.img", "-append", words]
        command += ["-virtfs", "local,path=/,mount_tag=outside,security_model=none,readonly=on,multidevs=remap"]
        command += ["-device", "virtio-rng-pci"]
        command += ["-device", f"ipmi-bmc-sim,id=bmc0,sdrfile={folder}/sdr", "-device", "isa-ipmi-kcs,bmc=bmc0"]
        command += ["-device", "pcie-root-port,id=port1,chassis=1,slot=5", "-drive", f"file={folder}/disk,if=none,id=disk,format=raw"]
        command += ["-device", "nvme,serial=S6EX001,drive=disk,bus=port1"]
        command += ["-device", "pcie-root-port,id=port2,chassis=2,slot=6", "-device", "e1000e,bus=port2,romfile="]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.end = time.monotonic() + LIMIT_S

    def _disk(self) -> None:
        """Make the disk, with a simulated node on it (soaked.py). It outlives a guest whose power is cut."""
        nodes.planted(self.folder / "disk.d" / "node", 1)
        with open(self.folder / "disk", "wb") as disk:
            disk.truncate(64 << 20)
        command = ["mkfs.ext4", "-q", "-F", "-d", str(self.folder / "disk.d"), str(self.folder / "disk")]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)

    def said(self) -> str:
        with contextlib.suppress(OSError):
            return (self.folder / "console").read_text(encoding="utf-8", errors="replace")
        return ""

    def until(self, done: t.Callable[[], bool]) -> None:
        """Wait until something is so. Raises RigError if the guest ended or hangs before."""
        while not done():
            if self.process.poll() is not None or time.monotonic() > self.end:
                raise common.RigError(f"the guest ended or hangs: {self.said()[-2000:]}")
            time.sleep(0.2)

    def monitor(self, command: str) -> None:
        """Give the emulator a command."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.settimeout(60)
            monitor.connect(str(self.folder / "monitor"))
            for words in ("", command):
                monitor.sendall(words.encode() + b"\n" if words else b"")
                text = b""
                while not text.endswith(b"(qemu) "):
                    text += monitor.recv(4096)

    def soaked(self) -> dict[str, t.Any] | None:
        """Return what the soak has shown, {check: observation of the node}, None as long as it goes on."""
        line = self.said().replace("\r", "").partition("SOAKED ")[2].partition("\n")
        return json.loads(line[0]) if line[1] else None

    def looks(self) -> list[dict[str, t.Any]]:
        """Return what inside.py has seen so far, each time {check: observation} and the facts."""
        lines = [line.partition("LOOKED ")[2] for line in self.said().replace("\r", "").split("\n") if "LOOKED {" in line]
        return [json.loads(line) for line in lines if line.endswith("}")]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
