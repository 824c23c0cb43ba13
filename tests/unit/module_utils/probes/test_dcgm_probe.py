# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage dcgm over a simulated node and a dcgmi that prints what the test says."""

from __future__ import annotations

import pathlib
import shlex
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import dcgm
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.dcgm_output import PASS, v4
from rigs.simulated import nodes

GOOD = {name: [PASS] * 8 for name in ("software", "pcie", "memory")}


def ask(
    folder: pathlib.Path, text: str, rc: int = 0, seconds: float = 0, timeout: float = 30.0, faults: str = ""
) -> dict[str, dict[str, t.Any]]:
    nodes.planted(folder, 1, faults=faults)
    tool = folder / "bin/dcgmi"
    (folder / "output").write_text(text)
    tool.write_text(f"#!/bin/sh\nsleep {seconds}\ncat {shlex.quote(str(folder / 'output'))}\nexit {rc}\n")
    tool.chmod(0o755)
    params = {"level": 2, "dcgmi": str(tool), "env": {}, "gpu_count": 8, "mig": "refused", "test_timeout": timeout}
    params["checks"] = dcgm.default_checks(params)
    node = Node(60, root=str(folder), tools={"nvidia_smi": str(folder / "bin/nvidia-smi")})
    return {o["check"]: o for o in dcgm.probe(params, node)}


def test_all_that_passed_is_measured(tmp_path: pathlib.Path) -> None:
    found = ask(tmp_path, v4(GOOD))
    outcomes = {name: (o["outcome"], o["variant"]) for name, o in found.items()}
    assert outcomes == {
        **{name: ("measured", "level=2") for name in ("software", "pcie", "memory")}, "other": ("not_applicable", "level=2"),
    }  # fmt: skip
    assert found["other"]["reason_code"] == "no_other_test"
    assert not any(o["context"].get("findings") for o in found.values()) and found["pcie"]["tool_version"] == "DCGM 4.2.3"
    assert found["pcie"]["command"][1:] == ["diag", "-r", "2", "-j"]


def test_a_failed_test_names_its_gpu_and_says_why(tmp_path: pathlib.Path) -> None:
    bad = {"status": "Fail", "warnings": [{"warning": "GPU 3 has uncorrectable memory errors"}]}
    found = ask(tmp_path, v4({**GOOD, "memory": [PASS] * 3 + [bad] + [PASS] * 4}), rc=226)
    memory = found["memory"]
    assert memory["reason_code"] == "diagnostic_failed" and "memory of GPU 3 (DCGM's number): GPU 3 has unc" in memory["reason"]
    assert found["pcie"]["outcome"] == "measured"


@pytest.mark.parametrize(
    ("results", "version", "code", "words"),
    [
        ({"memory": [{"status": "Skip", "info": ["not allowed"]}] * 8}, "4.2.3", "diagnostic_skipped", "DCGM skipped it: memory of GPU 0"),
        ({"memory": [PASS] * 7}, "4.2.3", "diagnostic_skipped", "memory has results of 7 of 8 GPUs"),
        ({"memory": [{**PASS, "entity_group": "Switch"}] * 8}, "4.2.3", "diagnostic_skipped", "memory has results of 0 of 8 GPUs"),
        ({"memory": None}, "4.2.3", "diagnostic_skipped", "DCGM 4.2.3 ran no test memory"),
        (
            {"memory": [{"status": "Pass", "warnings": [{"warning": "Couldn't allocate at least 75 % of GPU memory"}]}] * 8},
            "4.5.0", "false_alarm", "could not have the memory",
        ),
    ],
)  # fmt: skip
def test_what_did_not_test_is_no_pass(
    tmp_path: pathlib.Path, results: dict[str, t.Any], version: str, code: str, words: str
) -> None:
    tests = {name: of for name, of in {**GOOD, **results}.items() if of}
    found = ask(tmp_path, v4(tests, version))["memory"]
    assert (found["outcome"], found["reason_code"]) == ("error", code) and words in found["reason"]


def test_alarms_that_say_nothing_about_the_gpu(tmp_path: pathlib.Path) -> None:
    off = {"status": "Fail", "warnings": [{"warning": "Persistence Mode: Persistence mode for GPU 0 is disabled. Enable it"}]}
    busy = {"status": "Fail", "warnings": [{"warning": "MCUTIL > 10%"}]}
    found = ask(tmp_path, v4({**GOOD, "software": [off] * 8, "nvbandwidth": [busy] * 8}, "4.5.0"), rc=226)
    software = found["software"]
    assert software["outcome"] == "measured" and "nvidia-smi -pm 1" in str(software["context"])
    assert software["context"]["findings"][0]["code"] == "diagnostic_warned"
    assert found["other"]["reason_code"] == "false_alarm" and "issue 272" in found["other"]["reason"]
    # Of another version the same words are a failure.
    found = ask(tmp_path, v4({**GOOD, "nvbandwidth": [busy] * 8}, "4.6.0"), rc=226)
    assert found["other"]["reason_code"] == "diagnostic_failed"


def test_a_warning_of_a_test_that_passed_is_a_finding(tmp_path: pathlib.Path) -> None:
    warned = {"status": "Pass", "warnings": [{"warning": "replay errors grew"}]}
    found = ask(tmp_path, v4({**GOOD, "pcie": [warned] * 8}))["pcie"]
    assert found["outcome"] == "measured" and found["context"]["findings"][0]["text"].startswith("pcie of GPU 0")


def test_a_diagnostic_that_hangs_and_one_that_is_not_there(tmp_path: pathlib.Path) -> None:
    assert {(o["outcome"], o["reason_code"]) for o in ask(tmp_path, v4(GOOD), seconds=30, timeout=0.5).values()} == {("timeout", "timeout")}
    nodes.planted(tmp_path, 1)
    params = {"level": 2, "dcgmi": "/nonexistent/dcgmi", "env": {}, "gpu_count": 8, "mig": "refused", "test_timeout": 5.0}
    params["checks"] = dcgm.default_checks(params)
    node = Node(60, root=str(tmp_path), tools={"nvidia_smi": str(tmp_path / "bin/nvidia-smi")})
    found = list(dcgm.probe(params, node))
    assert {o["reason_code"] for o in found} == {"tool_missing"} and "install DCGM" in found[0]["reason"]


WIDTH = "GPU {} is running at PCI link width 8X, which is below the minimum allowed link generation of 16 (parameter 'min_pci_width')"
GENERATION = "GPU {} is running at PCI link generation 3, which is below the minimum allowed link generation of 4 (parameter 'x')"


def narrow(numbers: t.Iterable[int], words: str) -> list[t.Any]:
    return [{"status": "Fail", "warnings": [{"warning": words.format(n)}]} if n in numbers else PASS for n in range(8)]


@pytest.mark.parametrize("words", [WIDTH, GENERATION])
def test_a_virtual_machine_hides_its_slots_from_dcgm_too(tmp_path: pathlib.Path, words: str) -> None:
    """The simulated GPUs are those of a virtual machine."""
    text = v4({**GOOD, "pcie": narrow(range(8), words)})
    folders = [tmp_path / name for name in ("all", "one", "bare", "slow", "both")]
    found = ask(folders[0], text, rc=226, faults="cells=current_link_width:8x")["pcie"]
    assert found["outcome"] == "measured" and {f["code"] for f in found["context"]["findings"]} == {"diagnostic_warned"}
    one = ask(folders[1], text, rc=226, faults="pcie_width")["pcie"]
    assert one["reason_code"] == "diagnostic_failed", "one GPU has fewer lanes than the others"
    bare = ask(folders[2], text, rc=226, faults="cells=current_link_width:8x cells=virtualization_mode:Host_VGPU")["pcie"]
    assert bare["reason_code"] == "diagnostic_failed", "on the machine itself the driver knows the slot"
    slow = v4({**GOOD, "pcie": narrow(range(8), words + "; Bandwidth of GPU 0 did not exceed minimum required bandwidth")})
    assert ask(folders[3], slow, rc=226, faults="cells=current_link_width:8x")["pcie"]["reason_code"] == "diagnostic_failed"
    both = v4({**GOOD, "pcie": [{"status": "Fail", "warnings": [{"warning": words.format(0)}, {"warning": "low bandwidth"}]}, *[PASS] * 7]})
    assert ask(folders[4], both, rc=226, faults="cells=current_link_width:8x")["pcie"]["reason_code"] == "diagnostic_failed"


TABLE = """8 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
"""


def test_the_gpus_beside_one_with_mig_are_tested(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "node"
    nodes.planted(folder, 1, faults="mig")
    rows = "".join(
        f"| {7 - n}      | Name: NVIDIA H200 |\n|        | Device UUID: GPU-{1:08x}-0000-4000-8000-{n:012x} |\n"
        for n in range(8)
    )
    (folder / "table").write_text(TABLE + rows)
    (folder / "output").write_text(v4({name: [PASS] * 7 for name in GOOD}))
    tool = folder / "bin/dcgmi"
    tool.write_text(f"#!/bin/sh\necho $* >>{folder}/calls\ncase $1 in discovery) cat {folder}/table ;; *) cat {folder}/output ;; esac\n")
    tool.chmod(0o755)
    params: dict[str, t.Any] = {
        "level": 2, "dcgmi": str(tool), "env": {}, "gpu_count": 8, "mig": "allowed", "test_timeout": 30.0,
    }  # fmt: skip
    params["checks"] = dcgm.default_checks(params)
    node = Node(60, root=str(folder), tools={"nvidia_smi": str(folder / "bin/nvidia-smi")})
    found = {o["check"]: o for o in dcgm.probe(params, node)}
    assert {found[name]["outcome"] for name in GOOD} == {"measured"} and found["pcie"]["context"]["gpus"] == 7
    assert len(found["pcie"]["context"]["set_aside"]) == 1
    assert (folder / "calls").read_text().splitlines() == ["discovery -l", "diag -r 2 -j -i 7,6,5,4,3,2,1"], "DCGM counts otherwise"
    (folder / "table").write_text(TABLE)
    assert {o["reason_code"] for o in dcgm.probe(params, node)} == {"diagnostic_skipped"}
