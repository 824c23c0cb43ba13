# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that the driver did not take: every wording of nvidia.ko and of Linux is a lost GPU until the driver is loaded again."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import base, xids
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import gpu

AT = "0000:14:00.0"
NEXT = "\\x0aNVRM: "
HERE = f"{NEXT}installed in this system is not supported by"
LINES = [
    (f"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\\x0aNVRM: BAR1 is 0M @ 0x0 (PCI:{AT})", True),
    (f"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\nNVRM: BAR0 is 16M @ 0x0 (PCI:{AT})", True),
    ("NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:", False),
    (f"NVRM: BAR1 is 0M @ 0x0 (PCI:{AT})", True),
    (f"nvidia: probe of {AT} failed with error -1", True),
    (f"nvidia {AT}: probe with driver nvidia failed with error -12", True),
    ("NVRM: The NVIDIA probe routine failed for 2 device(s).", False),
    ("NVRM: None of the NVIDIA devices were initialized.", False),
    ("NVRM: None of the NVIDIA graphics adapters were initialized!", False),
    (f"NVRM: The NVIDIA GPU {AT} (PCI ID: 10de:2330){HERE} the{NEXT}NVIDIA 470.1 driver", True),
    (f"NVRM: The NVIDIA GPU {AT} (PCI ID: 10de:1db4){HERE} open{NEXT}nvidia.ko", True),
    (f"NVRM: The NVIDIA vGPU {AT} (PCI ID: 10de:2330){HERE} open{NEXT}nvidia.ko.", True),
    (f"NVRM: The NVIDIA GeForce GT 710 GPU installed in this system is{NEXT} supported through the NVIDIA 470.xx Legacy drivers.", False),
    ("NVRM: installed in this system is not supported by the", False),
    (f"NVRM: ignoring the legacy GPU {AT}", True),
    (f"NVRM: Device start failed for {AT} (ret=-5)", True),
    ("NVRM: pci_enable_device failed, aborting", False),
    ("NVRM: Can't find an IRQ for your NVIDIA card!", False),
    ("NVRM: request_mem_region failed for 16M @ 0xf5000000. This can\\x0aNVRM: occur when a driver such as rivatv is loaded", False),
    ("NVRM: failed to wait for bar firewall to lower", False),
    ("NVRM: Fatal Error while attempting to resize PCIe BARs.", False),
    ("NVRM: GPU0 kgspInitRm_IMPL: unexpected WPR2 already up, cannot proceed with booting GSP", False),
    ("NVRM: GPU0 RmInitAdapter: Cannot initialize GSP firmware RM", False),
    (f"NVRM: GPU {AT}: Cannot initialize GSP firmware RM", True),
]  # fmt: skip
LASTING = [
    f"NVRM: GPU {AT}: RmInitAdapter failed! (0x62:0x40:2477)",
    f"NVRM: GPU {AT}: rm_init_adapter failed, device minor number 0",
    "NVRM: rm_init_adapter(0) failed",
    f"NVRM: GPU {AT}: GPU has fallen off the bus.",
    "NVRM: GPU 18:00.0: GPU has fallen off the bus.",
    "NVRM: fallen off the bus and is not responding to commands.",
    f"NVRM: The NVIDIA GPU {AT}{NEXT}(PCI ID: 10de:2330) installed in this system has{NEXT}fallen off the bus",
]
BENIGN = [
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024",
    "NVRM: PCI:0000:14:00.0 (10de:2330): BAR0 @ 0xf5000000 (16MB)",
    "NVRM: BAR1 is 131072M @ 0x20000000000 (PCI:0000:14:00.0)",
    "NVRM: The NVIDIA probe routine was not called for 1 device(s).",
    "NVRM: GPU 0000:14:00.0: RmInitAdapter succeeded!",
    "nvidia 0000:14:00.0: enabling device (0140 -> 0142)",
    "nvidia 0000:14:00.0: vgaarb: VGA decodes changed: olddecodes=io+mem,decodes=none:owns=none",
    "nouveau 0000:14:00.0: probe with driver nouveau failed with error -12",
    "nouveau: probe of 0000:14:00.0 failed with error -12",
    "nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver for UNIX platforms  550.54.15",
    "python3[12]: nvidia: probe of 0000:14:00.0 failed with error -1",
]
LOADED = "nvidia-nvlink: Nvlink Core is being initialized, major device number 234"


def siblings(line: str) -> list[str]:
    return [
        line,
        f"[   12.345678] {line}",
        line.replace("0000:14:", "0001:a4:"),
        line.replace("14:00.0", "AF:00.0"),
        line.replace("error -1", "error -28"),
    ]


@pytest.mark.parametrize(("line", "has_address"), LINES)
def test_probes_that_failed(line: str, has_address: bool) -> None:
    for sibling in siblings(line):
        found = xids.read(sibling)
        assert found and found.of.code == "gpu_lost" and found.until_load, sibling
        assert (found.where is not None) == has_address, sibling
        assert found.where is None or gpu.slot(found.where)


@pytest.mark.parametrize("line", LASTING)
def test_what_a_load_of_the_driver_does_not_take_back(line: str) -> None:
    for sibling in siblings(line):
        found = xids.read(sibling)
        assert found and found.of.code == "gpu_lost" and not found.until_load, sibling


@pytest.mark.parametrize("line", BENIGN)
def test_lines_of_a_driver_that_took_its_gpus(line: str) -> None:
    assert xids.read(line) is None and xids.takes_back(line) is None


def test_a_switch_that_its_driver_did_not_take() -> None:
    for line in (
        "nvidia-nvswitch: probe of 0000:c1:00.0 failed with error -22",
        "nvidia-nvswitch 0000:c1:00.0: probe with driver nvidia-nvswitch failed with error -22",
    ):
        found = xids.read(line)
        assert found and found.of.code == "nvlink" and found.until_load


def left(*lines: str) -> list[str]:
    entries: list[tuple[base.Logged | base.TakenBack, None]] = []
    for line in lines:
        event, taken = xids.read(line), xids.takes_back(line)
        if event:
            of = event.of
            entries.append((base.Logged(event.where, event.name, of.code, of.own_code, None, event.line, event.until_load), None))
        if taken:
            entries.append((base.TakenBack(*taken), None))
    return [error.words for error, _data in base.standing(entries)]


def test_a_load_of_the_driver_asks_again() -> None:
    failed, lost = LINES[4][0], LASTING[0]
    assert left(failed) == left(LOADED, failed) == left(failed, LOADED, failed)[-1:] == [failed]
    assert left(failed, LOADED) == []
    assert left(lost, LOADED) == [lost]


def test_a_function_for_virtual_machines_is_no_gpu_of_the_host() -> None:
    ignored, refused = "NVRM: Ignoring probe for VF 0000:14:00.4 ", "nvidia: probe of 0000:14:00.4 failed with error -1"
    assert left(ignored, refused) == left(refused, ignored) == []
    assert len(left(ignored, refused, f"nvidia: probe of {AT} failed with error -1")) == 1
