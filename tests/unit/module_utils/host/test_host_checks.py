# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the stage `host_health` that read files, on the tree of a machine with planted faults."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sqlite3
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import clock, memory, settings
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.check_report import CheckReport
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import BARE_METAL, CONTAINER, Tree, span
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import host_health
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness import machine_tree as tree_of
from harness.machine_tree import GPU, NIC, SLOTS, MachineTree

Found = t.Dict[str, t.Any]


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> MachineTree:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}/root/bin:/usr/bin:/bin")
    return MachineTree(tmp_path / "root")


def ask(machine: MachineTree, check: str) -> Found:
    params = {"checks": [{"check": check, "variant": ""}], "pcie_corrected": 100.0, "ras_days": 30.0}
    (found,) = host_health.probe(params, Node(60, root=str(machine.root)))
    return found


def told(found: Found) -> list[tuple[str, str]]:
    return [(one["code"], one["text"]) for one in found["context"].get("findings", [])]


@pytest.mark.parametrize("check", ["memory", "pcie", "kernel"])
def test_a_healthy_machine_has_nothing(machine: MachineTree, check: str) -> None:
    found = ask(machine, check)
    assert found["outcome"] == "measured" and told(found) == [] and found["evidence"] == {}
    assert found["context"]["place"] == BARE_METAL and found["context"]["looked_for"]


def test_uncorrectable_memory_errors_name_module_slot_and_serial_number(machine: MachineTree) -> None:
    machine.edac(5, corrected=2, uncorrected=1)
    found = ask(machine, "memory")
    assert (found["outcome"], found["reason_code"]) == ("error", "host_memory")
    assert found["reason"] == (
        "P1-DIMMB1 (mc1 dimm1 channel 1 slot 0), serial number 35A1B205: 1 uncorrectable memory error since boot: replace the module"
    )
    assert [code for code, _text in told(found)] == ["host_memory", "host_memory_corrected"]


def test_corrected_memory_errors_are_worth_a_look(machine: MachineTree) -> None:
    machine.edac(0, corrected=7)
    found = ask(machine, "memory")
    assert found["outcome"] == "measured" and told(found)[0][0] == "host_memory_corrected"
    assert told(found)[0][1].endswith("7 corrected memory errors since boot")


def test_no_serial_number_of_another_module_is_named(machine: MachineTree) -> None:
    (slot, other, *_more) = memory.dimms(Tree(Node(60, root=str(machine.root))))
    slot, longer = slot._replace(locator="A1"), other._replace(locator="A10")
    assert memory._serial([slot, longer], "A10") == longer.serial and memory._serial([slot, longer], "CPU0 A1") == slot.serial
    assert memory._serial([slot, slot._replace(serial="other")], "A1") == "" and memory._serial([slot], "") == ""


def test_a_controller_that_cannot_say_which_module(machine: MachineTree) -> None:
    machine.write("sys/devices/system/edac/mc/mc0/ue_count", "3\n")
    assert ask(machine, "memory")["reason"].startswith("a module of memory controller mc0: 3 uncorrectable")


def test_older_drivers_count_by_rows_of_chips(machine: MachineTree) -> None:
    of = "sys/devices/system/edac/mc/mc0"
    for number in range(4):
        for name in tuple(machine.path(f"{of}/dimm{number}").iterdir()):
            name.unlink()
        machine.path(f"{of}/dimm{number}").rmdir()
    machine.write(f"{of}/csrow1/ue_count", "1\n")
    machine.write(f"{of}/ue_count", "1\n")
    machine.write(f"{of}/csrow1/ch0_ce_count", "3\n")
    machine.write(f"{of}/csrow1/ch0_dimm_label", "mc#0csrow#1channel#0\n")
    machine.write(f"{of}/ce_count", "3\n")
    assert [text for _code, text in told(ask(machine, "memory"))] == [
        "mc#0csrow#1channel#0 (mc0 csrow1 ch0): 3 corrected memory errors since boot",
        "csrow1 (mc0 csrow1): 1 uncorrectable memory error since boot: replace the module",
    ]


def test_a_module_that_differs_and_one_that_is_disabled(machine: MachineTree) -> None:
    machine.dimms({SLOTS[1]: (32768, 4800), SLOTS[4]: (65536, 4400)})
    machine.write("proc/meminfo", f"MemTotal: {400 << 20} kB\n")
    texts = dict(told(ask(machine, "memory")))
    assert "dimm_lost" in texts and "480 GiB" in texts["dimm_lost"]
    found = [text for code, text in told(ask(machine, "memory")) if code == "dimm_differs"]
    assert found == [
        "DIMM P0-DIMMB1 (P0 CHANNEL B), serial number 35A1B201: its size is 32 GiB, that of most modules of the machine 64 GiB",
        "DIMM P1-DIMMA1 (P1 CHANNEL A), serial number 35A1B204: its speed is 4400 MT/s, that of most modules of the machine 4800 MT/s",
    ]


def test_a_table_that_is_cut_or_rubbish(machine: MachineTree) -> None:
    whole = tree_of.smbios(machine.slots)
    for table in (whole[:300], whole[:7], whole[:-20], b"", b"\xff\x03" + os.urandom(500)):
        machine.write("sys/firmware/dmi/tables/DMI", table)
        assert ask(machine, "memory")["reason_code"] == "no_answer"
    # Older firmware has no end of table, and some fills the rest with zeros.
    for table in (b"\x11\x04\0\0\0\0" * 9, whole[:-6], whole + b"\0" * 40, whole + b"rubbish behind the end"):
        machine.write("sys/firmware/dmi/tables/DMI", table)
        assert ask(machine, "memory")["outcome"] == "measured"


def test_what_a_physical_machine_should_show_root(machine: MachineTree) -> None:
    machine.path("sys/firmware/dmi/tables/DMI").unlink()
    found = ask(machine, "memory")
    assert (found["outcome"], found["reason_code"]) == ("error", "unsupported") and "dmi" in found["evidence"]["unreadable"]
    machine.edac(0, uncorrected=1)
    assert ask(machine, "memory")["reason_code"] == "host_memory"


def test_a_check_that_needs_root_names_acceptance_become(machine: MachineTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    machine.path("sys/firmware/dmi/tables/DMI").unlink()
    found = ask(machine, "memory")
    assert found["reason_code"] == "no_permission" and "acceptance_become" in found["reason"]


def test_a_container_that_shows_a_part_or_nothing(machine: MachineTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFLEET_POD_UID", "1")
    machine.path("sys/firmware/dmi/tables/DMI").unlink()
    found = ask(machine, "memory")
    assert found["outcome"] == "measured" and found["context"]["place"] == CONTAINER
    assert list(found["context"]["not_looked_for"]) == ["dmi"] == found["evidence"]["unreadable"]
    machine.path("sys/devices/system/edac/mc").rename(machine.path("sys/gone"))
    machine.path("dev/kmsg").unlink()
    found = ask(machine, "memory")
    assert (found["outcome"], found["reason_code"]) == ("not_applicable", "not_visible")
    assert "EDAC" in found["reason"]


def test_a_narrow_link_names_the_device_its_slot_and_the_ports_above(machine: MachineTree) -> None:
    machine.device(GPU, current_link_width=8)
    found = ask(machine, "pcie")
    assert (found["outcome"], found["reason_code"]) == ("error", "pcie_width")
    assert found["reason"] == (
        "GPU 0000:17:00.0 in slot 5, below 0000:15:00.0 > 0000:16:00.0 > 0000:16:01.0: its PCIe link is x8 and can be x16: "
        "reseat the device, its riser or its cable"
    )


def test_a_narrow_link_of_the_switch_above_a_gpu(machine: MachineTree) -> None:
    machine.device(tree_of.SWITCH_UP, current_link_width=8)
    assert ask(machine, "pcie")["reason"].startswith("the port 0000:16:00.0 above GPU 0000:17:00.0 in slot 5")


def test_the_ports_inside_a_switch_are_no_link(machine: MachineTree) -> None:
    machine.device(tree_of.SWITCH_UP, max_link_width=32, current_link_width=16)
    assert ask(machine, "pcie")["outcome"] == "measured"


@pytest.mark.parametrize(
    ("address", "files", "code"),
    [
        (tree_of.SWITCH_DOWN, {"max_link_width": 8, "current_link_width": 8}, "pcie_width"),
        (NIC, {"current_link_speed": "16.0 GT/s PCIe"}, "pcie_slow"),
        (tree_of.DISK, {"current_link_width": 2}, "pcie_width"),
    ],
)
def test_other_links(machine: MachineTree, address: str, files: dict[str, t.Any], code: str) -> None:
    if address == tree_of.SWITCH_DOWN:
        machine.device(GPU, current_link_width=8)
        code = "pcie_slot"
    machine.device(address, **files)
    assert [found for found, _text in told(ask(machine, "pcie"))] == [code]


def test_links_of_a_virtual_machine_are_not_looked_at(machine: MachineTree) -> None:
    machine.write("proc/cpuinfo", "flags : fpu hypervisor\n")
    machine.device(GPU, current_link_width=1)
    found = ask(machine, "pcie")
    assert found["outcome"] == "measured" and list(found["context"]["not_looked_for"]) == ["pcie_link"]


def test_a_device_that_does_not_answer_has_no_width(machine: MachineTree) -> None:
    """As Linux 6.1 shows it behind a port that was reset after a fatal error."""
    machine.device(NIC, max_link_width=255, max_link_speed="Unknown")
    machine.device(tree_of.ROOT_OF_NIC, max_link_width=32)
    found = ask(machine, "pcie")
    assert (found["outcome"], found["reason_code"]) == ("error", "no_answer") and "the greatest width of its link" in found["reason"]
    machine.path(f"sys/bus/pci/devices/{NIC}/config").write_bytes(b"\xff" * 64)
    assert ask(machine, "pcie")["reason"] == (
        "NIC mlx5_0 0000:31:00.0, below 0000:30:00.0: it does not answer: all bits of its configuration are set"
    )


# Before the last boot -----------------------------------------------------------------------------------------------

BOOT = 1_790_000_000  # 2026-09-21 14:13:20 +0000
TABLES = """
CREATE TABLE mc_event (id INTEGER PRIMARY KEY, timestamp TEXT, err_count INTEGER, err_type TEXT, err_msg TEXT, label TEXT);
CREATE TABLE aer_event (id INTEGER PRIMARY KEY, timestamp TEXT, dev_name TEXT, err_type TEXT, err_msg TEXT);
CREATE TABLE mce_record (id INTEGER PRIMARY KEY, timestamp TEXT, status INTEGER, bank INTEGER);
"""


def recorded(machine: MachineTree, statement: str) -> None:
    """A database of rasdaemon with one event."""
    path = machine.root / "var/lib/rasdaemon/ras-mc_event.db"
    path.parent.mkdir(parents=True)
    (machine.root / "proc").mkdir(exist_ok=True)
    (machine.root / "proc/stat").write_text(f"cpu 1\nbtime {BOOT}\n")
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript(TABLES + statement)


@pytest.mark.parametrize(
    ("check", "statement", "code"),
    [
        ("memory", "INSERT INTO mc_event VALUES (1, '2026-09-20 10:00:00 +0200', 3, 'Uncorrected', '', 'DIMM_A1')", "past_error"),
        ("memory", "INSERT INTO mc_event VALUES (1, '2026-09-20 10:00:00 +0200', 3, 'Corrected', '', 'DIMM_A1')", None),
        ("memory", "INSERT INTO mc_event VALUES (1, '2026-07-20 10:00:00 +0200', 1, 'Uncorrected', '', 'DIMM_A1')", None),
        ("memory", "INSERT INTO mc_event VALUES (1, 'yesterday', 1, 'Corrected', '', x'00ff')", None),
        ("pcie", "INSERT INTO aer_event VALUES (1, '2026-09-20 10:00:00 +0000', '0000:17:00.0', 'Uncorrected (Fatal)', '')", "past_error"),
        ("pcie", "INSERT INTO aer_event VALUES (1, '2026-09-20 10:00:00 +0000', '0000:17:00.0', 'Corrected', '')", None),
        ("kernel", f"INSERT INTO mce_record VALUES (1, '2026-09-20 10:00:00 +0000', {0xBD80000000100134 - 2**64}, 7)", "past_error"),
        ("kernel", f"INSERT INTO mce_record VALUES (1, '2026-09-20 10:00:00 +0000', {0x8C00004000010092 - 2**64}, 7)", None),
        ("memory", "DROP TABLE mc_event", None),
    ],
)
def test_errors_before_the_last_boot_are_those_of_rasdaemon(machine: MachineTree, check: str, statement: str, code: str | None) -> None:
    recorded(machine, statement)
    found = ask(machine, check)
    assert [one for one, _text in told(found)] == ([code] if code else [])
    assert any("rasdaemon" in words for words in found["context"]["looked_for"])
    if code and check == "memory":
        assert "DIMM_A1: uncorrectable memory error, 3 times, the last on 2026-09-20 10:00:00 +0200" in told(found)[0][1]


def test_a_database_that_cannot_be_read_is_told(machine: MachineTree) -> None:
    recorded(machine, "")
    (machine.root / "var/lib/rasdaemon/ras-mc_event.db").write_bytes(b"no database" * 99)
    found = ask(machine, "memory")
    assert found["outcome"] == "measured" and "cannot be read" in found["context"]["not_looked_for"]["rasdaemon"]


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ({"fatal": {"SDES": 1}}, "pcie_error"),
        ({"nonfatal": {"CmpltTO": 2}}, "pcie_error"),
        ({"nonfatal": {"UnsupReq": 2}}, "pcie_nonfatal"),
        ({"correctable": 201}, "pcie_corrected"),
        ({"correctable": 199}, None),
    ],
)
def test_error_counters_of_pcie(machine: MachineTree, errors: dict[str, t.Any], code: str | None) -> None:
    machine.errors(NIC, **errors)
    found = ask(machine, "pcie")
    assert [one for one, _text in told(found)] == ([code] if code else [])
    assert found["outcome"] == ("error" if code == "pcie_error" else "measured")
    assert all("NIC mlx5_0 0000:31:00.0" in text for _code, text in told(found))


LINES = [
    ("EDAC MC0: 1 UE ie31200 UE on mc#0csrow#1channel#1 (csrow:1 channel:1 page:0x0 offset:0x0 grain:8)", "host_memory"),
    ("EDAC MC0: 1 CE ie31200 CE on mc#0csrow#1channel#0 (csrow:1 channel:0 page:0x0 offset:0x0 grain:8)", "host_memory_corrected"),
    ("Memory failure: 0x12345: recovery action for dirty LRU page: Recovered", "host_memory"),
    ("mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 7: 8c00004000010092", "hardware_corrected"),
    ("mce: [Hardware Error]: CPU 4: Machine Check Exception: 5 Bank 7: be00000000010091", "machine_check"),
    ("mce: [Hardware Error]: CPU 4: Machine Check: 0 Bank 7: bc00000000010091", "machine_check"),
    ("{1}[Hardware Error]: event severity: fatal", "machine_check"),
    ("{1}[Hardware Error]: event severity: corrected", "hardware_corrected"),
    ("pcieport 0000:15:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)", "pcie_error"),
    ("pcieport 0000:15:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer", "pcie_nonfatal"),
    ("pcieport 0000:15:00.0: pciehp: Slot(5): Link Down", "pcie_error"),
    ("pcieport 0000:15:00.0: DPC: containment event, status:0x1f01 source:0x0000", "pcie_error"),
    ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10", "disk"),
    ("I/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2", "disk"),
    ("EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0", "file_system"),
    ("EXT4-fs (sda1): Remounting filesystem read-only", "file_system"),
    ("mlx5_core 0000:31:00.0: poll_health:840:(pid 0): device's health compromised - reached miss count", "nic_fault"),
    ("mce: CPU12: Package temperature above threshold, cpu clock throttled (total events = 1)", "hardware_corrected"),
    ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [x:1]", "cpu_stalled"),
    ("EDAC MC0: Giving out device to module ie31200_edac controller IE31200: DEV 0000:00:00.0 (POLLED)", None),
    ("mce: [Hardware Error]: Machine check events logged", None),
    ("pcieport 0000:15:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", None),
    ("mce: CPU0: Thermal monitoring enabled (TM1)", None),
    ("NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.", None),
]


@pytest.mark.parametrize(("line", "code"), LINES)
def test_lines_of_the_kernel(machine: MachineTree, line: str, code: str | None) -> None:
    machine.log(line)
    machine.log(line)
    checks = {check: told(ask(machine, check)) for check in ("memory", "kernel")}
    mine = "memory" if code and code.startswith("host_memory") else "kernel"
    assert [found for found, _text in checks.pop(mine)] == ([code] if code else [])
    assert list(checks.values()) == [[]]


def test_a_log_that_lost_its_beginning_or_may_not_be_read(machine: MachineTree) -> None:
    machine.write("dev/kmsg", "6,90000,1,-;usb 1-1: new device\n")
    assert ask(machine, "kernel")["evidence"]["unreadable"] == ["kernel_log_since_boot"]
    machine.path("dev/kmsg").unlink()
    assert ask(machine, "kernel")["reason_code"] == "unsupported"


@pytest.mark.parametrize(
    ("kernel", "keeper", "codes"),
    [
        (clock.KernelClock(True, 0.1, 0.01), ("chrony", 0.0001), []),
        (clock.KernelClock(False, 16.0, 16.0), None, ["clock_free"]),
        (clock.KernelClock(True, 0.1, 0.01), ("chrony", -0.5), ["clock_offset"]),
        (None, ("ntp", 3.0), ["clock_off"]),
    ],
)
def test_the_clock(kernel: clock.KernelClock | None, keeper: tuple[str, float] | None, codes: list[str]) -> None:
    report = CheckReport(BARE_METAL)
    clock.judge(kernel, keeper, report)
    made = report.observation("clock")
    assert [code for code, _words in report.problems] == codes and made["outcome"] == ("error" if "clock_off" in codes else "measured")


def test_a_clock_of_which_nothing_is_known() -> None:
    report = CheckReport(CONTAINER)
    clock.judge(None, None, report)
    assert report.observation("clock")["reason_code"] == "not_visible"


def test_settings_are_facts(machine: MachineTree) -> None:
    acs = (b"\0" * 0x100) + (0x000D | 1 << 16).to_bytes(4, "little") + b"\0\0" + (0x1D).to_bytes(2, "little")
    machine.path("sys/bus/pci/devices/0000:15:00.0/config").write_bytes(acs)
    machine.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "3800000\n")
    machine.write("sys/kernel/iommu_groups/0/type", "DMA-FQ\n")
    found = settings.facts(Node(60, root=str(machine.root)))
    assert found["dimms"][0] == "P0-DIMMA1: 64 GiB at 4800 MT/s" and len(found["dimms"]) == 8
    assert found["numa_layout"] == ["node 0: CPUs 0-3, distances 10 21", "node 1: CPUs 4-7, distances 21 10"]
    assert (found["cpu_max_mhz"], found["cpu_smt"], found["iommu"]) == ([3800], "on", "DMA-FQ")
    assert found["pcie_acs"] == "redirects at 1 of 1 ports" and found["nvme_disks"] == ["1 x Example NVMe, firmware unknown"]
    machine.dimms({SLOTS[2]: (0, 0)})
    assert settings.facts(Node(60, root=str(machine.root)))["dimms"][2] == "P0-DIMMC1: empty"


def test_a_check_that_does_not_exist(machine: MachineTree) -> None:
    assert ask(machine, "fans")["reason_code"] == "usage"


def test_the_machine_that_the_tests_run_on() -> None:
    """Nothing is planted here, so only that each check ends in words is known."""
    for check in host_health.CHECKS:
        params = {"checks": [{"check": check, "variant": ""}], "pcie_corrected": 100.0, "ras_days": 30.0}
        (found,) = host_health.probe(params, Node(60))
        assert found["context"].get("looked_for") or found["metrics"] or found["reason"]
    assert Tree(Node(60)).place() and span([0, 1, 2, 8]) == "0-2,8"
