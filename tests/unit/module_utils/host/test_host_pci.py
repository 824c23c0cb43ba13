# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Links and error counters of PCI devices behind every kind of path to the root."""

from __future__ import annotations

import os
import pathlib
import struct
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import pci
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import host_health
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.machine_tree import CORRECTABLE, GPU, NIC, MachineTree

Found = t.Dict[str, t.Any]


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> MachineTree:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return MachineTree(tmp_path / "root")


def ask(machine: MachineTree) -> Found:
    params = {"checks": [{"check": "pcie", "variant": ""}], "pcie_corrected": 100.0, "ras_days": 30.0}
    (found,) = host_health.probe(params, Node(60, root=str(machine.root)))
    return found


def told(found: Found) -> list[tuple[str, str]]:
    return [(one["code"], one["text"]) for one in found["context"].get("findings", [])]


def config(port: int) -> bytes:
    """A configuration whose PCI Express capability is the second one, of a device or port of this type."""
    data = bytearray(256)
    struct.pack_into("<HHHH", data, 0, 0x8086, 0x1234, 0, 0x10)
    data[0x34] = 0x40
    struct.pack_into("<BB", data, 0x40, 0x05, 0x60)
    struct.pack_into("<BBH", data, 0x60, 0x10, 0, port << 4 | 2)
    return bytes(data)


ROOT, UP, DOWN, ENDPOINT, INTEGRATED = 0x4, 0x5, 0x6, 0x0, 0x9
# {path: (folder of sysfs, folder of a second host bridge before an element, types)}; the last element is the disk.
PATHS: dict[str, tuple[str, list[int]]] = {
    "root port": ("pci0000:80/0000:80:01.0/0000:81:00.0", [ROOT, ENDPOINT]),
    "switch": ("pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:04.0/0000:83:00.0", [ROOT, UP, DOWN, ENDPOINT]),
    "two switches": (
        "pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:04.0/0000:83:00.0/0000:84:01.0/0000:85:00.0",
        [ROOT, UP, DOWN, UP, DOWN, ENDPOINT],
    ),
    "VMD": ("pci0000:80/0000:80:05.5/pci10000:00/10000:00:02.0/10000:01:00.0", [INTEGRATED, ROOT, ENDPOINT]),
    "VMD and a switch": (
        "pci0000:80/0000:80:05.5/pci10000:00/10000:00:02.0/10000:01:00.0/10000:02:03.0/10000:03:00.0",
        [INTEGRATED, ROOT, UP, DOWN, ENDPOINT],
    ),
    "VMD below a port": ("pci0000:80/0000:80:01.0/0000:81:00.5/pci10000:00/10000:00:02.0/10000:01:00.0", [ROOT, ENDPOINT, ROOT, ENDPOINT]),
    "VMD, without its host bridge": ("pci0000:80/0000:80:05.5/10000:00:02.0/10000:01:00.0", [INTEGRATED, ROOT, ENDPOINT]),
    "no port": ("pci0000:80/0000:80:02.0", [INTEGRATED]),
}  # fmt: skip


def plant(machine: MachineTree, folder: str, types: list[int], by_types: bool, **files: t.Any) -> list[str]:
    """Add a disk behind a path, all links x4 of x4; return the addresses."""
    addresses = [word for word in folder.split("/") if not word.startswith("pci")]
    for address, port in zip(addresses, types):
        path = machine.path(f"sys/devices/{folder.partition(address)[0]}{address}")
        path.mkdir(parents=True, exist_ok=True)
        link = machine.path(f"sys/bus/pci/devices/{address}")
        if not link.is_symlink():
            link.symlink_to(path)
        is_disk = address == addresses[-1]
        each = {f"{when}_link_{name}": value for when in ("current", "max") for name, value in (("width", 4), ("speed", "16.0 GT/s PCIe"))}
        machine.device(address, **{"class": "0x010802" if is_disk else "0x060400", **each})
        if by_types:
            machine.write(f"sys/devices/{folder.partition(address)[0]}{address}/config", config(port))
    machine.device(addresses[-1], vendor="0x144d", device="0xa80a", **files)
    return addresses


@pytest.mark.parametrize("by_types", [True, False], ids=["by types", "by places"])
@pytest.mark.parametrize("path", PATHS)
def test_a_narrow_link_behind_every_path(machine: MachineTree, path: str, by_types: bool) -> None:
    folder, types = PATHS[path]
    addresses = plant(machine, folder, types, by_types)
    assert told(ask(machine)) == []
    for index, (address, port) in enumerate(zip(addresses, types)):
        machine.device(address, current_link_width=1)
        is_lower_end = port in (UP, ENDPOINT) and index > 0
        if path == "VMD below a port" and index == 1 and not by_types:
            is_lower_end = False  # above another host bridge only types can tell
        if path == "VMD below a port" and index == 1 and by_types:
            is_lower_end = False  # the link of the VMD itself is above its host bridge: not that of the disk
        expected = [("pcie_width", address)] if is_lower_end else [("pcie_slot", address)] if path == "no port" else []
        assert [(code, address) for code, text in told(ask(machine)) if f" {address}" in text] == expected, address
        assert len(told(ask(machine))) == len(expected)
        machine.device(address, current_link_width=4)


def test_the_speed_of_a_link_behind_vmd(machine: MachineTree) -> None:
    folder, types = PATHS["VMD"]
    plant(machine, folder, types, True, current_link_speed="2.5 GT/s PCIe")
    assert [code for code, _text in told(ask(machine))] == ["pcie_slow"]


@pytest.mark.parametrize("kind", ["0x010802", "0x020000", "0x020700", "0x030200"])
@pytest.mark.parametrize(
    ("port_can", "sibling_has", "code"),
    [
        (None, None, "pcie_slot"), (None, 8, "pcie_slot"), (None, 16, "pcie_width"), (8, 16, "pcie_slot"), (8, 8, None),
        (16, 8, "pcie_width"),
    ],
)  # fmt: skip
def test_eight_of_sixteen_lanes_are_judged_by_port_and_sibling(
    machine: MachineTree, kind: str, port_can: int | None, sibling_has: int | None, code: str | None
) -> None:
    chain = ["0000:80:01.0", "0000:81:00.0"] if port_can else ["0000:81:00.0"]
    ids = {"vendor": "0x15b3", "device": "0x1021", "subsystem_vendor": "0x15b3", "subsystem_device": "0x23"}
    machine.pci(chain, kind, "x", **ids, current_link_width=8, max_link_width=16)
    if port_can:
        machine.device(chain[0], current_link_width=8, max_link_width=port_can)
    if sibling_has:
        machine.pci(["0000:90:01.0", "0000:91:00.0"], kind, "x", **ids, current_link_width=sibling_has, max_link_width=16)
        machine.device("0000:90:01.0", current_link_width=sibling_has, max_link_width=sibling_has)
    found = [(found, text) for found, text in told(ask(machine)) if "0000:81:00.0" in text]
    if kind == "0x030200" and port_can == 8:
        code = "pcie_slot"  # a GPU in a smaller slot is worth a look without siblings, too
    assert [one for one, _text in found] == ([code] if code else [])


def test_a_device_that_can_less_than_an_identical_one(machine: MachineTree) -> None:
    for number, lanes in enumerate((4, 4, 2)):
        ids = {"vendor": "0x144d", "device": "0xa80a", "subsystem_vendor": "0x144d", "subsystem_device": "0xaa8b"}
        machine.pci([f"0000:a{number}:00.0"], "0x010802", "nvme", **ids, current_link_width=lanes, max_link_width=lanes)
    assert [(code, "0000:a2" in text) for code, text in told(ask(machine))] == [("pcie_slot", True)]


@pytest.mark.parametrize("kind", ["0x010802", "0x020000", "0x020700", "0x030200"])
@pytest.mark.parametrize(
    ("slot_has", "sibling_has", "is_found"), [("16.0", "32.0", True), ("32.0", "32.0", False), ("16.0", "16.0", False)]
)
def test_a_device_in_a_slower_slot_than_an_identical_one(
    machine: MachineTree, kind: str, slot_has: str, sibling_has: str, is_found: bool
) -> None:
    ids = {"vendor": "0x15b3", "device": "0x1021", "subsystem_vendor": "0x15b3", "subsystem_device": "0x23"}
    for bus, speed in (("8", slot_has), ("9", sibling_has)):
        lanes = {"current_link_width": 4, "max_link_width": 4}
        speeds = {"current_link_speed": f"{speed} GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"}
        machine.pci([f"0000:{bus}0:01.0", f"0000:{bus}1:00.0"], kind, "x", **ids, **lanes, **speeds)
        machine.device(f"0000:{bus}0:01.0", **lanes, **{**speeds, "max_link_speed": f"{speed} GT/s PCIe"})
    found = [code for code, text in told(ask(machine)) if "0000:81:00.0" in text]
    assert found == (["pcie_slot"] if is_found and kind != "0x030200" else [])  # GPUs sleep: they are judged under load


@pytest.mark.parametrize(("current", "outcome"), [(255, "error"), (63, "error"), (16, "measured")])
def test_a_link_width_of_all_ones_is_no_answer(machine: MachineTree, current: int, outcome: str) -> None:
    machine.device(NIC, current_link_width=current)
    found = ask(machine)
    assert found["outcome"] == outcome and (outcome == "measured" or found["reason_code"] == "no_answer")


def test_an_integrated_device_without_lanes(machine: MachineTree) -> None:
    machine.pci(["0000:04:00.0"], "0x020000", "i40e", current_link_width=0, max_link_width=0)
    assert ask(machine)["outcome"] == "measured"


# Error counters -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["correctable", "nonfatal", "fatal"])
@pytest.mark.parametrize("text", ["", "\n", "RxErr many\n", "DLP -3\n", "DLP\n", None])
def test_counters_that_are_there_and_cannot_be_read(machine: MachineTree, kind: str, text: str | None) -> None:
    path = machine.path(f"sys/bus/pci/devices/{NIC}/aer_dev_{kind}")
    path.unlink() if text is None else path.write_text(text)
    found = ask(machine)
    assert (found["outcome"], found["reason_code"]) == ("error", "no_answer") and "NIC mlx5_0" in found["reason"]


@pytest.mark.parametrize(("fatal", "form"), [(1, "{}"), (1234, "{:,}"), (5, "0x{:x}"), (3, " {} ")])
def test_counters_in_every_form(machine: MachineTree, fatal: int, form: str) -> None:
    machine.device(NIC, aer_dev_fatal=f"DLP 0\nSDES {form.format(fatal)}\nTOTAL_ERR_FATAL {fatal}")
    counted = pci.counters(Tree(Node(60, root=str(machine.root))), NIC)
    assert counted is not None and counted.fatal == {"SDES": fatal} and ask(machine)["reason_code"] == "pcie_error"


@pytest.mark.parametrize(
    ("counts", "flagged"),
    [
        ([0, 0, 0, 0], []), ([30_000, 0, 0, 0], [0]), ([30_000, 29_000, 31_000, 30_500], []), ([30_000, 10, 30_000, 10], [0, 2]),
        ([90, 0, 0, 0], []), ([101, 0, 0, 0], [0]), ([50_000, 50_000, 50_000, 50_000], [0, 1, 2, 3]), ([0, 0, 0, 39_000], [3]),
    ],
)  # fmt: skip
def test_counters_that_stand_high_beside_siblings(machine: MachineTree, counts: list[int], flagged: list[int]) -> None:
    """A machine that has been up for 400 days may have 40,000 corrected errors by the rate."""
    machine.write("proc/uptime", f"{400 * 86400}.00 1.00\n")
    for number, count in enumerate(counts):
        address = f"0000:a{number}:00.0"
        machine.pci([address], "0x030200", "nvidia", vendor="0x10de", device="0x2330", current_link_width=16, max_link_width=16)
        machine.errors(address, correctable=count)
    found = told(ask(machine))
    assert [code for code, _text in found] == ["pcie_corrected"] * len(flagged)
    assert all(any(f"0000:a{number}:" in text for _code, text in found) for number in flagged)


def test_advisory_errors_do_not_count(machine: MachineTree) -> None:
    machine.device(GPU, aer_dev_correctable=CORRECTABLE.format(0, 9999).replace("NonFatalErr 0", "NonFatalErr 9999"))
    assert told(ask(machine)) == []


def test_a_time_since_boot_that_cannot_be_read_allows_one_day(machine: MachineTree) -> None:
    machine.write("proc/uptime", "nonsense\n")
    machine.errors(GPU, correctable=150)
    assert [code for code, _text in told(ask(machine))] == ["pcie_corrected"]


def test_the_same_counters_of_many_devices_are_read_once_and_stay_apart(machine: MachineTree) -> None:
    addresses = [f"0000:{bus:02x}:00.0" for bus in range(0x40, 0xC0)]
    for address in addresses:
        machine.pci([address], "0x020000")
        machine.errors(address, correctable=7)
    pci._counted.cache_clear()
    tree = Tree(Node(60, root=str(machine.root)))
    found = {address: pci.counters(tree, address) for address in addresses}
    assert pci._counted.cache_info().misses <= 3, "one text of each kind"
    first, *others = found.values()
    assert first and all(of == first for of in others)
    first.correctable["RxErr"] = 99
    assert all(of and of.correctable != first.correctable for of in others)
    machine.errors(addresses[0], correctable=8)
    again = pci.counters(tree, addresses[0])
    assert again and again != found[addresses[1]], "a count that rose is another text"


@pytest.mark.parametrize("size", [0, 1, 4096, 16384, 16385, 100_000, (1 << 20) + 5])
def test_a_file_is_read_whole_up_to_a_mebibyte(machine: MachineTree, size: int) -> None:
    content = bytes(number % 251 for number in range(size))
    machine.write("sys/x", content)
    tree = Tree(Node(60, root=str(machine.root)))
    assert tree.data("/sys/x") == content[: 1 << 20] and tree.data("/sys/nowhere") is None and tree.data("/sys") is None
