# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs in the guest: looks at the machine before and after errors are planted, and prints each time a line `LOOKED {check: observation}`. A
soak is under way meanwhile; in the next boot it goes on, and nothing else is done (soaked.py).

A real memory controller: the stock driver ie31200_edac is bound to q35's host bridge. Its registers are a piece of memory that the kernel
leaves alone (`memmap=64K$0x18000000 iomem=relaxed` on its command line), into which is written what hardware would write there.
"""

from __future__ import annotations

import json
import mmap
import os
import pathlib
import struct
import subprocess
import time

import soaked
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import ipmi_device, settings
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import host_health
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

BASE, SIZE = 0x18000000, 65536
BRIDGE = pathlib.Path("/sys/bus/pci/devices/0000:00:00.0")
CONTROLLER = pathlib.Path("/sys/devices/system/edac/mc/mc0")
# The driver's registers: two modules of 4 GiB with two ranks each; the log of the last error of each channel.
MODULES, LOGS = 0x5004, (0x40C8, 0x44C8)
# Of the bridge's configuration: base of the registers (4 bytes each), and the status of errors, which the driver polls each second.
BASE_AT, STATUS_AT = (0x48, 0x4C), 0xC8
# Number of a sensor of the management controller (fake_bmc.records).
PSU2 = 8


def configure(at: int, value: bytes) -> None:
    with open(BRIDGE / "config", "r+b", buffering=0) as config:
        config.seek(at)
        config.write(value)


def bind(memory: mmap.mmap) -> None:
    memory[:] = bytes(SIZE)
    module = 0x10 | 0x10 << 8 | 1 << 17 | 1 << 18
    memory[MODULES : MODULES + 8] = struct.pack("<2I", module, module)
    configure(BASE_AT[0], struct.pack("<I", BASE | 1))
    configure(BASE_AT[1], bytes(4))
    configure(STATUS_AT, bytes(2))
    (BRIDGE / "driver_override").write_text("ie31200_edac")
    subprocess.run(["modprobe", "ie31200_edac"], check=True)


def fail(memory: mmap.mmap, kind: str, channel: int, rank: int) -> None:
    """Plant one memory error, corrected (`ce`) or uncorrectable (`ue`), and wait until the driver has counted it."""
    bit = 1 if kind == "ce" else 2
    for number, at in enumerate(LOGS):
        struct.pack_into("<Q", memory, at, bit | rank << 27 | 0x55 << 16 if number == channel else 0)
    counter = CONTROLLER / f"{kind}_count"
    before = counter.read_text()
    configure(STATUS_AT, struct.pack("<H", bit))
    while counter.read_text() == before:
        time.sleep(0.01)
    configure(STATUS_AT, bytes(2))


def management_controller() -> ipmi_device.Device:
    return ipmi_device.Device("/dev/ipmi0", time.monotonic() + 300)


def fail_power_supply(device: ipmi_device.Device) -> None:
    """Plant a power supply that lost its input, as an event (IPMI 2.0, 31.6). The emulator measures nothing, so its sensors stay as they
    are."""
    # The emulator's clock of events begins at 0.
    device.ask((0x0A, 0x49), struct.pack("<I", int(time.time())))
    device.ask((0x0A, 0x44), bytes([0, 0, 2, 0, 0, 0, 0, 0x20, 0, 4, 0x08, PSU2, 0x6F, 0x03, 0xFF, 0xFF]))


def look() -> None:
    checks = [{"check": check, "variant": ""} for check in ("memory", "pcie", "kernel", "storage", "bmc")]
    node = Node(300)
    found = {seen["check"]: seen for seen in host_health.probe({"checks": checks, "pcie_corrected": 100.0, "ras_days": 30.0}, node)}
    found["facts"] = settings.facts(node)
    found["by_device"] = {"sensors": ipmi_device.sensors(management_controller()), "events": ipmi_device.events(management_controller())}
    print("LOOKED", json.dumps(found), flush=True)


def main() -> None:
    soaked.mount()
    if soaked.is_begun():
        soaked.go_on()
        return
    soaked.begin()
    with mmap.mmap(os.open("/dev/mem", os.O_RDWR | os.O_SYNC), SIZE, offset=BASE) as memory:
        bind(memory)
        subprocess.run(["modprobe", "-a", "ipmi_devintf", "ipmi_si"], check=True)
        while not os.path.exists("/dev/ipmi0"):
            time.sleep(0.1)
        look()
        for _error in range(3):
            fail(memory, "ce", 0, 1)
        fail(memory, "ue", 1, 1)
    fail_power_supply(management_controller())
    print("PLANT", flush=True)  # the outer machine injects a PCIe error now
    root_port = next(path for path in pathlib.Path("/sys/bus/pci/devices").iterdir() if (path / "aer_dev_fatal").exists())
    fatal = [path / "aer_dev_fatal" for path in root_port.parent.iterdir() if (path / "aer_dev_fatal").exists()]
    while not any("DLP 1" in path.read_text() for path in fatal):
        time.sleep(0.1)
    time.sleep(5)  # the kernel resets the port and goes on logging
    look()
    time.sleep(3600)  # the soak goes on, until the outer machine cuts the power


if __name__ == "__main__":
    main()
