# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes with a part that is sent back is collected, and the maker's program leaves nothing on the node."""

from __future__ import annotations

import base64
import gzip
import os
import pathlib
import shutil
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import support_files
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

ROOT = pathlib.Path(__file__).resolve().parents[4]
MIB = 1 << 20
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="nvidia-bug-report.sh needs root")


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    """A simulated node whose tools stand in bin/ and whose state directory is empty."""
    shutil.copytree(ROOT / "tests/rigs/simulated/tools", tmp_path / "node/bin")
    shutil.copy(ROOT / "tests/rigs/simulated/gpu.xml", tmp_path / "gpu.xml")
    shutil.copy(ROOT / "tests/rigs/simulated/gpu.xml", tmp_path / "node/gpu.xml")
    (tmp_path / "node/root/dev").mkdir(parents=True)
    (tmp_path / "node/root/dev/kmsg").write_text("6,1,5000000,-;NVRM: loading\n")
    (tmp_path / "state").mkdir()
    return tmp_path


def collected(
    place: pathlib.Path, faults: str = "", seconds: float = 60, limit: int = 8 * MIB, bug_report: bool = True, model: str = "NVIDIA H200",
    **tools: str,
) -> dict[str, t.Any]:  # fmt: skip
    (place / "node/node.conf").write_text(f'NAME="{model}"\nGPUS=2\nFAULTS="{faults}"\n')
    tools = tools or {"nvidia_smi": str(place / "node/bin/nvidia-smi"), "amd_smi": "", "npu_smi": "no-npu-smi"}
    node = Node(seconds, ledger=session.Ledger(str(place / "state")), root=str(place / "node/root"), tools=tools)
    records = list(support_files.collect(node, bug_report, limit, str(place / "state")))
    assert {path.name for path in (place / "state").iterdir()} <= {"ledger.jsonl"}, "the folder is removed"
    assert not list(pathlib.Path.cwd().glob("nvidia-bug-report*"))
    return {record.get("file") or record["not_collected"]: record for record in records}


def unpacked(record: t.Mapping[str, t.Any]) -> str:
    return gzip.decompress(base64.b64decode(record["content"])).decode()


def test_without_leave_only_tools_and_log_are_read(place: pathlib.Path) -> None:
    found = collected(place, bug_report=False)
    assert set(found) == {
        "nvidia-smi.xml", "nvidia-smi-topo.txt", "nvidia-smi-nvlink.txt", "nvidia-smi-nvlink-errors.txt", "kernel.log",
    }  # fmt: skip
    assert all(record["complete"] for record in found.values())
    assert b"NVRM: loading" in base64.b64decode(found["kernel.log"]["content"])


def test_the_archive_of_the_makers_program_comes_back_and_its_folder_goes(place: pathlib.Path) -> None:
    record = collected(place)["nvidia-bug-report.log.gz"]
    assert record["complete"] and "End of NVIDIA bug report" in unpacked(record)


def test_one_that_hangs_is_kept_as_far_as_it_came_and_tried_again_in_safe_mode(place: pathlib.Path) -> None:
    found = collected(place, "bug_report_hang", seconds=12)
    first, second = found["incomplete-nvidia-bug-report.log.gz"], found["nvidia-bug-report-safe.log.gz"]
    assert not first["complete"] and "did not end within" in first["why"] and "Start of NVIDIA" in unpacked(first)
    assert second["complete"] and "--safe-mode --extra-system-data" in unpacked(second)


def test_no_file_of_it_is_larger_than_it_may_be(place: pathlib.Path) -> None:
    record = collected(place, "bug_report_large=3", limit=MIB)["incomplete-nvidia-bug-report.log.gz"]
    assert len(base64.b64decode(record["content"])) == MIB and "largest size of 1 MiB" in record["why"]


def test_it_does_not_begin_on_a_disk_without_room(place: pathlib.Path) -> None:
    found = collected(place, limit=1 << 60)
    assert "MiB free" in found["nvidia-bug-report.sh"]["why"]


def test_a_node_without_it_says_so(place: pathlib.Path) -> None:
    (place / "node/bin/nvidia-bug-report.sh").unlink()
    if shutil.which("nvidia-bug-report.sh"):
        pytest.skip("this machine has the real one")
    assert collected(place)["nvidia-bug-report.sh"]["why"] == "it is not on this node"


def test_other_makers_give_what_their_tool_says_and_no_bug_report(place: pathlib.Path) -> None:
    tools = {"nvidia_smi": "no-nvidia-smi", "npu_smi": "no-npu-smi", "amd_smi": str(place / "node/bin/amd-smi")}
    found = collected(place, model="AMD Instinct MI300X", **tools)
    assert {name for name, record in found.items() if record.get("complete")} >= {
        "amd-smi-static.json", "amd-smi-metric.json", "amd-smi-bad-pages.json", "amd-smi-firmware.json",
    }  # fmt: skip
    assert found["bug report"]["why"] == "no program of the maker is known for AMD GPUs"


def test_a_node_without_any_tool_says_so(place: pathlib.Path) -> None:
    found = collected(place, bug_report=False, nvidia_smi="no-nvidia-smi", npu_smi="no-npu-smi", amd_smi="")
    assert set(found) == {"output of a GPU's tool", "kernel.log"}


def test_a_tool_that_hangs_is_not_waited_for_twice(place: pathlib.Path) -> None:
    found = collected(place, "smi_hang", seconds=3, bug_report=False)
    assert "did not end within" in found["nvidia-smi.xml"]["why"] and "hung before" in found["nvidia-smi-topo.txt"]["why"]


def test_a_tool_that_fails_is_kept_with_the_reason(place: pathlib.Path) -> None:
    found = collected(place, "gpu_lost", bug_report=False)
    assert not found["nvidia-smi.xml"]["complete"] and "GPU is lost" in found["nvidia-smi.xml"]["why"]
