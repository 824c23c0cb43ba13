# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readers of the host's tables and tools read rubbish: an answer, never an exception."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import xids
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import kernel, pci
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import ipmi, smart, smbios
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import host_health
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.machine_tree import SLOTS, MachineTree
from harness.machine_tree import smbios as table_of
from hypothesis import given
from hypothesis import strategies as st

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
ROWS = st.lists(ANYTHING | st.fixed_dictionaries({"id": ANYTHING, "raw": ANYTHING}))
KEYS = ("smartctl", "smart_status", "nvme_smart_health_information_log", "ata_smart_attributes", "model_name", "critical_warning")
WHOLE = table_of(dict.fromkeys(SLOTS, (65536, 4800)))


@given(
    st.dictionaries(st.sampled_from(KEYS), ANYTHING | st.fixed_dictionaries({"table": ROWS, "messages": ANYTHING})),
    st.integers(0, 255),
)
def test_any_answer_of_smartctl_is_read_without_an_exception(said: dict[str, t.Any], rc: int) -> None:
    smart.smartctl(json.dumps(said), rc)
    smart.nvme_smart_log(json.dumps(said), rc % 2)


@given(st.lists(st.lists(st.text(alphabet="0123456789abc/: ASUTC.|", max_size=12), max_size=8)))
def test_any_answer_of_ipmitool_is_read_without_an_exception(rows: list[list[str]]) -> None:
    text = "\n".join(" | ".join(row) for row in rows)
    ipmi.sensors(text)
    ipmi.events(text)


@given(
    st.binary(max_size=200)
    | st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)).map(
        lambda change: WHOLE[: change[0]] + bytes([change[1]]) + WHOLE[change[0] + 1 :]
    )
)
def test_any_table_of_memory_modules_is_read_without_an_exception(table: bytes) -> None:
    assert all(one.words() and one.name for one in smbios.dimms(table))


BEGINNINGS = (
    "", "NVRM: ", "NVRM: Xid (PCI:0000:1a:00): 145, ", "nvidia-nvswitch0: SXid (", "[Hardware Error]: CPU:1 (19:1:1) MC5_STATUS[",
    "EDAC MC0: 1 ", "mlx5_core 0000:31:00.0: ", "nvme nvme0: I/O ", "XFS (sda1): ", "md/raid1:md0: ", "<3>[ 1.000000] ", "\\x0a\\xff",
)  # fmt: skip


@given(st.sampled_from(BEGINNINGS), st.text() | st.text(alphabet="0123456789abcdefx|-:,() \\\n[]"))
def test_any_line_of_the_kernel_is_read_without_an_exception(beginning: str, text: str) -> None:
    for line in (beginning + text, text + beginning):
        kernel.read(line)
        xids.takes_back(line)
        event = xids.read(line)
        assert event is None or xids.code_in(f"{event.words()} ({event.line})")


def test_a_file_that_is_rubbish_costs_one_check(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = MachineTree(tmp_path)

    def bad(*_arguments: t.Any) -> t.Any:
        raise ValueError("no number")

    monkeypatch.setattr(pci, "Bus", bad)
    checks = [{"check": check, "variant": ""} for check in ("pcie", "kernel")]
    found = list(host_health.probe({"checks": checks, "pcie_corrected": 100.0, "ras_days": 30.0}, Node(60, root=str(machine.root))))
    assert [(one["outcome"], one["reason_code"]) for one in found] == [("error", "tool_failed"), ("measured", None)]
