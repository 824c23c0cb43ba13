# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of messages: each row is reached, each line has siblings of other devices, versions and cases of letters that mean the same,
a fault ends with what ends it, and lines of healthy machines are none."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import kernel
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.check_report import CheckReport
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.kernel_messages import tables
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import BARE_METAL, Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import kernel_log
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.machine_tree import MachineTree
from hypothesis import given
from hypothesis import strategies as st
from unit.module_utils.host import kernel_lines as lines

# Other names of the same kind of part.
OTHERS = [
    (r"\bsd[a-d]\b", "sdaf"), (r"\bnvme0", "nvme11"), (r"\bmd0\b", "md126"), (r"\b0000:(?=[0-9a-f]{2}:)", "0000a1:"),
    (r"\bCPU(:?)1\b", r"CPU\g<1>191"),
]  # fmt: skip
PREFIXES = (
    "", "[   12.345678] ", "<3>", "[12345.678901][ T1234] ", "Nov 24 03:12:45 gpu-01 kernel: ", "kernel: ",
    "Nov 24 03:12:45.123456 gpu-01 kernel: ", "<3>[12345.678901][ T1234] ", "Nov 24 03:12:45 gpu-01 kernel: [   12.345678] ",
    # dmesg -T, -x, -d, -H, --time-format iso.
    "[Mon May 25 05:20:57 2026] ", "[Mon May  5 05:20:57 2026] ", "[Mon May 25 05:20:57 2026] [  T123] ",
    "kern  :err   : [  123.456789] ", "kern  :err   : [Mon May 25 05:20:57 2026] ", "[  123.456789 <    0.000012>] ",
    "[May25 05:20] ", "[  +0.000012] ", "2026-05-25T05:20:57,123456+00:00 ", "kern  :crit  : 2026-05-25T05:20:57,123456+00:00 ",
    # Files of syslog, and the journal.
    "2026-05-25 05:20:57 node1 kernel: ", "2026-05-25T05:20:57.123456+00:00 node1 kernel: ",
    "2026-05-25T05:20:57Z node1 kernel: [ 1.234567] ",
    "<3>1 2026-05-25T05:20:57.123Z node1 kernel - - - ", "Mon 2026-05-25 05:20:57 UTC node1 kernel: ", "1716614457.123456 node1 kernel: ",
    "[   12.345678] node1 kernel: ", "2026-05-25 05:20:57 ",
)  # fmt: skip


def siblings(line: str) -> t.Iterator[str]:
    for prefix in PREFIXES:
        yield prefix + line
    yield line.upper()
    yield line.lower()
    for pattern, other in OTHERS:
        yield re.sub(pattern, other, line)


@pytest.mark.parametrize(("line", "code"), lines.FAULTS)
def test_faults_and_their_siblings(line: str, code: str) -> None:
    for sibling in siblings(line):
        found = kernel.read(sibling)
        assert found and found.code == code, (sibling, found)


@pytest.mark.parametrize("line", lines.BENIGN)
def test_lines_of_healthy_machines(line: str) -> None:
    for prefix in PREFIXES:
        assert kernel.read(prefix + line) is None, prefix + line


@pytest.mark.parametrize("line", [line for line, _code in lines.FAULTS] + lines.BENIGN)
def test_what_stands_before_a_message_is_no_part_of_it(line: str) -> None:
    for prefix in PREFIXES:
        assert kernel_log.plain(prefix + line) == line, prefix


def test_deferred_errors_and_poison_of_amd(tmp_path: pathlib.Path) -> None:
    """Where edac_mce_amd is not loaded, only the status says so; on Intel its bits are part of a count."""

    def codes(vendor: str, status: str) -> list[str]:
        machine = MachineTree(tmp_path / vendor / status)
        machine.write("proc/cpuinfo", f"processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: X\n")
        line = f"mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 22: {status}"
        machine.log(line)
        report, tree = CheckReport(BARE_METAL), Tree(Node(60, root=str(machine.root)))
        kernel.inspect(tree, report, False)
        assert [error.code for error, _count in kernel.during([kernel_log.Line(line)], tree)] == [code for code, _words in report.problems]
        return [code for code, _words in report.problems]

    for vendor, bad in (("AuthenticAMD", "machine_check"), ("HygonGenuine", "machine_check"), ("GenuineIntel", "hardware_corrected")):
        for status in ("942031000003085b", "9c2030000001085b", "8000080000000000", "8000100000000000"):
            assert codes(vendor, status) == [bad], (vendor, status)
        assert codes(vendor, "9c20400000010135") == ["hardware_corrected"]
        assert codes(vendor, "be00000000010091") == ["machine_check"]
        assert codes(vendor, "ffffffffffffffff") == []


def test_each_row_is_reached_and_has_a_code_of_a_health_check() -> None:
    reached = set()
    every = [line for line, _code in lines.FAULTS] + [line for row in lines.ENDED for line in row[:2]] + lines.BENIGN
    for line in every:
        found = tables.read(line)
        reached.add(found.message if found else None)
    for table in tables.TABLES:
        for message in table:
            assert message in reached, message
            assert message.source and message.meaning
            for code in (message.code, message.healed):
                assert callable(code) or not code or code in reasons.MILD or code in reasons.DEFECTS, message


@given(
    st.sampled_from([message for table in tables.TABLES for message in table]).flatmap(
        lambda message: st.tuples(st.just(message), st.from_regex(re.compile(f"\\A(?:{message.form})", re.IGNORECASE | re.ASCII)))
    )
)
def test_any_line_that_a_row_describes_is_read(drawn: tuple[t.Any, str]) -> None:
    """A row is not hidden by the pattern of all forms; a row before it may have the line."""
    assert tables.read(drawn[1]) is not None


def told(tmp_path: pathlib.Path, *logged: str) -> list[str]:
    machine = MachineTree(tmp_path)
    for line in logged:
        machine.log(line)
    report = CheckReport(BARE_METAL)
    for of_memory in (True, False):
        kernel.inspect(Tree(Node(60, root=str(machine.root))), report, of_memory)
    return [code for code, _words in report.problems]


@pytest.mark.parametrize(("fault", "end", "stays"), lines.ENDED)
def test_a_fault_ends_with_what_ends_it(tmp_path: pathlib.Path, fault: str, end: str, stays: str | None) -> None:
    found = kernel.read(fault)
    assert found and stays in (None, "pcie_nonfatal", "disk_worn", "nic_event")
    code = found.code
    other = end
    others = [("0000:15", "0000:16"), ("0000:31", "0000:32"), ("md0", "md1"), ("md9", "md8"), ("8:16", "8:32"), ("VD 01", "VD 02")]
    for part, another in others:
        other = other.replace(part, another)
    assert told(tmp_path / "ended", fault, end) == ([stays] if stays else [])
    assert told(tmp_path / "again", fault, end, fault) == [code]
    assert told(tmp_path / "before", end, fault) == [code]
    assert told(tmp_path / "of-another", fault, other) == [code]


@pytest.mark.parametrize("line", [line for line, code in lines.FAULTS if code in reasons.DEFECTS])
def test_nothing_unrelated_ends_a_fault(tmp_path: pathlib.Path, line: str) -> None:
    found = tables.read(line)
    assert found
    others = [end for _fault, end, _stays in lines.ENDED] + lines.BENIGN
    unrelated = [end for end in others if not found.message.state or (tables.read(end) or found).message.state != found.message.state]
    assert found.code in told(tmp_path, line, *unrelated)


def test_a_medium_that_was_taken_out_is_no_broken_disk(tmp_path: pathlib.Path) -> None:
    error = "I/O error, dev {}, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2"
    virtual = ["sd 6:0:0:0: [sdc] Attached SCSI removable disk", error.format("sdc"), "Buffer I/O error on dev sdc1, logical block 0"]
    gone = ["sd 6:0:0:0: rejecting I/O to dead device", "sd 6:0:0:0: [sdc] Synchronize Cache(10) failed: Result: hostbyte=DID_NO_CONNECT"]
    assert told(tmp_path / "virtual", *virtual, *gone) == []
    assert told(tmp_path / "virtual-and-real", *virtual, error.format("sdd")) == ["disk"]
    assert told(tmp_path / "attached", "sd 6:0:0:0: [sdc] Attached SCSI disk", error.format("sdc")) == ["disk"]


def test_a_medium_that_is_taken_out_during_a_test(tmp_path: pathlib.Path) -> None:
    machine = MachineTree(tmp_path)
    tree = Tree(Node(60, root=str(machine.root)))
    lines_of_test = [kernel_log.Line(f"Buffer I/O error on dev {disk}1, logical block 0, async page read") for disk in ("sdc", "sdd")]
    assert len(list(kernel.during(lines_of_test, tree))) == 2
    machine.write("sys/block/sdc/removable", "1\n")
    assert [error.key[-1] for error, _count in kernel.during(lines_of_test, tree)] == ["sdd1"]


def test_corrected_errors_of_a_link_are_counted_by_day(tmp_path: pathlib.Path) -> None:
    def corrected(folder: str, *seconds: float) -> list[tuple[str, str]]:
        machine = MachineTree(tmp_path / folder)
        text = "pcieport 0000:15:00.0: AER: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"
        machine.write("dev/kmsg", "".join(f"3,{number},{int(second * 1e6)},-;{text}\n" for number, second in enumerate(seconds)))
        report = CheckReport(BARE_METAL)
        kernel.corrected_links(Tree(Node(60, root=str(machine.root))), report, 100.0)
        return report.problems

    day = 86400.0
    assert corrected("spread", *(number * day / 2 for number in range(300))) == []
    assert [code for code, _words in corrected("burst", 0.0, *(400 * day + number for number in range(150)))] == ["pcie_corrected"]


def test_records_of_several_lines_and_escaped_bytes(tmp_path: pathlib.Path) -> None:
    assert kernel_log.plain(r"a:\x0aNVRM: b\x09c") == "a:\nNVRM: b\tc"
    machine = MachineTree(tmp_path)
    status = "[Hardware Error]: CPU:0\\x09MC4_STATUS[Over|UE|-|PCC|AddrV|UECC]: 0xf600200001080813"
    machine.write("dev/kmsg", f"3,1,9,-;{status}\n SUBSYSTEM=x\n")
    log = kernel_log.at_start(str(machine.path("dev/kmsg")))
    assert log and [kernel.read(line.text) is not None for line in log.lines()] == [True]
