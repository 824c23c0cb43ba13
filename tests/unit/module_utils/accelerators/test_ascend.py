# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ascend NPUs, asked of the simulated npu-smi and hccn_tool through the real runner, and who is asked at all."""

from __future__ import annotations

import json
import pathlib
import subprocess
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import ascend, nvidia
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import is_absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import npu_smi
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import gemm, stack
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import gpu
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state.evidence import Window
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from rigs.simulated import nodes

LAST = "gpu/NPU-42C711D4-20B03704-00000007-14CC040A-D2000007"
NOWHERE = "/nonexistent/nvidia-smi"


def machine(folder: pathlib.Path, faults: str = "", **settings: t.Any) -> Node:
    nodes.planted(folder, 7, model="Ascend 910B3", faults=faults, **settings)
    return Node(60, tools={"npu_smi": str(folder / "bin/npu-smi"), "nvidia_smi": NOWHERE})


def ask(node: Node, check: str, **more: t.Any) -> list[dict[str, t.Any]]:
    folder = pathlib.Path(node.tools["npu_smi"]).parent
    params = {
        "checks": [{"check": check, "variant": ""}], "python": str(folder / "python3"), "packages": ["torch"],
        "environment": [], "sysctls": [], "disks": [], "gpu_count": None, **more,
    }  # fmt: skip
    return list(stack.probe(params, node))


@pytest.mark.parametrize(("layout", "devices"), [("910b", 8), ("a3", 16), ("950", 8)])
def test_each_layout_of_npu_smi_is_read_with_all_of_its_npus(tmp_path: pathlib.Path, layout: str, devices: int) -> None:
    node = machine(tmp_path, LAYOUT=layout)
    seen = gpu.snapshot(node)
    assert (seen["outcome"], seen["kind"], seen["driver"], seen["simulated"]) == ("measured", "ascend", "25.5.1", True), seen["reason"]
    assert len({g["uuid"] for g in seen["gpus"]}) == devices == len({g["port"] for g in seen["gpus"]}) and None not in node.gpus  # type: ignore[operator]
    assert gpu.model(seen) == "Ascend 910B3" and {g["memory_total_mib"] for g in seen["gpus"]} == {65536}
    assert [g["bdf"] for g in seen["gpus"]][:1] == ["0000:c1:00.0"] and gpu.name(seen["gpus"][1]).startswith("NPU 1 (0000:c2:00.0")
    assert gpu.foreign_processes(seen) == [], "what an idle NPU has in use is nobody's"
    assert gpu.refusal(seen, devices, "HCCL numbers", kinds=("ascend",)) is None


def test_the_stage_stack_on_a_healthy_node(tmp_path: pathlib.Path) -> None:
    node = machine(tmp_path)
    (facts,) = ask(node, "facts")
    found = facts["context"]["facts"]
    assert found["driver"] == "25.5.1" and found["gpu"] == "Ascend 910B3" and found["gpu_count"] == 8 and facts["simulated"]
    assert found["npu_ports"] == ["UP 200 Gb/s"] and found["npu_firmware"] == ["7.8.0.6.201"] and len(found["gpu_serials"]) == 8
    assert found["gpu_processes"] == [] and "vbios" not in found and not [name for name in found if str(found[name]).startswith("unread")]
    health = ask(node, "gpu_health")
    assert {one["outcome"] for one in health} == {"measured"} and len(health) == 9 and LAST in health[0]["members"]
    (start,) = ask(node, "cuda")
    assert start["outcome"] == "measured" and start["context"]["soc"] == "Ascend910B3" and start["command"][-1] == "initialise ACL"


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("ecc", "ecc", "2 uncorrectable memory errors since"),
        ("npu_alarm", "npu_alarm", "80E18005 HBM multi bit error"),
        ("npu_lost", "gpu_lost", "NPU 7"),
        ("less_memory=61440", "gpu_state", "it has 61440 MiB of memory, and another NPU of the node 65536"),
        ("npu_silent", "gpu_lost", "lists 9 NPUs and 8 answer"),
        ("npu_no_ecc", "unsupported", "does not report its memory errors"),
        ("port_down", "port_down", "its network port is DOWN"),
        ("port_slow", "port_down", "at 100 Gb/s, on another NPU of this node at 200"),
        ("port_fault", "port_down", "net_health is Fault"),
        ("no_gpu", "no_gpu", "finds no NPU"),
        ("smi_mismatch", "acl_failed", "-8005"),
        ("smi_cut", "incomplete_output", "is cut"),
    ],
)
def test_each_fault_of_an_npu_has_its_code_and_words(tmp_path: pathlib.Path, fault: str, code: str, words: str) -> None:
    health = ask(machine(tmp_path, fault), "gpu_health")
    assert (health[0]["outcome"], health[0]["reason_code"]) == ("error", code) and words in health[0]["reason"], health[0]


def test_isolated_pages_are_worth_a_look(tmp_path: pathlib.Path) -> None:
    node, *parts = ask(machine(tmp_path, "npu_isolated=3"), "gpu_health")
    assert node["outcome"] == "measured" and [one["code"] for one in node["context"]["findings"]] == ["ecc_past"]
    assert [len(part["context"].get("findings", [])) for part in parts] == [0] * 7 + [1]


@pytest.mark.parametrize(("fault", "words"), [("cuda_init", "aclInit failed: error 507899"), ("cuda_no_library", "libascendcl.so")])
def test_a_runtime_that_does_not_start(tmp_path: pathlib.Path, fault: str, words: str) -> None:
    (start,) = ask(machine(tmp_path, fault), "cuda")
    assert start["reason_code"] == "acl_failed" and words in start["reason"]


def test_a_node_with_fewer_npus_than_expected_is_gpu_count(tmp_path: pathlib.Path) -> None:
    assert ask(machine(tmp_path, gpus=7), "gpu_health", gpu_count=8)[0]["reason_code"] == "gpu_count"


def test_a_process_of_others_on_an_npu_refuses_numbers(tmp_path: pathlib.Path) -> None:
    seen = gpu.snapshot(machine(tmp_path, "busy"))
    assert gpu.foreign_processes(seen) == ["NPU 7: pid 4242 (python3), 58000 MiB"]
    refused = gpu.refusal(seen, None, "HCCL numbers", kinds=("ascend",))
    assert refused and refused[1] == "busy_gpu"


def test_a_die_without_an_identity_is_told_by_its_place(tmp_path: pathlib.Path) -> None:
    node = machine(tmp_path, "npu_no_identity")
    assert node.gpus is None and {g["uuid"] for g in gpu.snapshot(node)["gpus"]} == {None}
    assert node.gpus == [] and "gpu/0000:c1:00.0" in ask(node, "gpu_health")[0]["members"]


# Which kind a node has -----------------------------------------------------------------------------------------------


def test_a_node_with_none_says_so(tmp_path: pathlib.Path) -> None:
    seen = gpu.snapshot(Node(60, tools={"npu_smi": "/nonexistent/npu-smi", "nvidia_smi": NOWHERE}))
    assert seen["reason_code"] == "tool_missing" and "acceptance_nvidia_smi" in seen["reason"] and "acceptance_npu_smi" in seen["reason"]


def test_a_node_with_two_kinds_says_so(tmp_path: pathlib.Path) -> None:
    node = machine(tmp_path)
    nodes.planted(tmp_path / "other", 8)
    node.tools["nvidia_smi"] = str(tmp_path / "other/bin/nvidia-smi")
    seen = gpu.snapshot(node)
    assert (seen["outcome"], seen["reason_code"], seen["gpus"]) == ("error", "unsupported", []) and "two kinds" in seen["reason"]


def test_tools_that_were_ended_at_once_are_named_as_that(tmp_path: pathlib.Path) -> None:
    """Of a node whose deadline has passed nobody knows which accelerators it has, let alone of two kinds."""
    node = machine(tmp_path)
    nodes.planted(tmp_path / "other", 8)
    node.end = 0.0
    node.tools["nvidia_smi"] = str(tmp_path / "other/bin/nvidia-smi")
    seen = gpu.snapshot(node)
    assert (seen["outcome"], seen["reason_code"], seen["gpus"]) == ("error", "timeout", [])
    assert "nvidia-smi was ended before it answered: it had 0.0 s, all that was left until the deadline" in seen["reason"]
    assert "kinds" not in seen["reason"] and "mixed" not in seen["reason"]


def test_two_tools_that_both_hang_are_both_named(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    node = machine(tmp_path)
    nodes.planted(tmp_path / "other", 8)
    for kind in (nvidia, ascend):
        monkeypatch.setattr(kind, "QUERY_TIMEOUT_S", 0.0)
    node.tools["nvidia_smi"] = str(tmp_path / "other/bin/nvidia-smi")
    seen = gpu.snapshot(node)
    assert (seen["outcome"], seen["reason_code"]) == ("error", "gpu_lost")
    assert seen["reason"].startswith("neither ") and seen["reason"].count("did not answer in 0 s") == 2 and "mixed" not in seen["reason"]


def test_a_tool_without_devices_is_no_kind(tmp_path: pathlib.Path) -> None:
    node = machine(tmp_path)
    other = tmp_path / "other"
    nodes.planted(other, 8, faults="no_gpu")
    node.tools["nvidia_smi"] = str(other / "bin/nvidia-smi")
    assert gpu.snapshot(node)["kind"] == "ascend"
    without = Node(60, tools={"npu_smi": str(tmp_path / "none/bin/npu-smi"), "nvidia_smi": str(tmp_path / "h200/bin/nvidia-smi")})
    nodes.planted(tmp_path / "none", 9, model="Ascend 910B3", faults="no_gpu")
    nodes.planted(tmp_path / "h200", 10)
    seen = gpu.snapshot(without)
    assert (seen["kind"], len(seen["gpus"])) == ("nvidia", 8)


def test_tests_of_nvidia_are_not_for_npus(tmp_path: pathlib.Path) -> None:
    node = machine(tmp_path)
    params = {"checks": [{"check": "gemm", "variant": "dtype=bf16 mode=alone shape=8192x8192x8192"}]}
    (one,) = gemm.probe({**params, "gpu_count": None, "mig": "refused"}, node)
    assert (one["outcome"], one["reason_code"]) == ("not_applicable", "other_accelerator") and "8 Ascend 910B3" in one["reason"]


# Evidence ------------------------------------------------------------------------------------------------------------


def watch(node: Node) -> dict[str, t.Any]:
    """The evidence of a test that lasts until the sampler has said something."""
    with Window(node, gpu.snapshot(node)) as window:
        end = time.monotonic() + 60
        while window.samples.seek(0, 2) < 400:
            assert time.monotonic() < end
            time.sleep(0.02)
    return window.evidence()


def test_evidence_of_a_quiet_test(tmp_path: pathlib.Path) -> None:
    evidence = watch(machine(tmp_path))
    assert evidence["changes"] == [] and set(evidence["unreadable"]) <= {"pcie_replay", "xid"}
    of = evidence["window"][LAST.partition("/")[2]]
    assert of["power"] == {"unit": "W", "min": 317.5, "max": 317.5, "mean": 317.5} and of["temperature"]["max"] == 62


@pytest.mark.parametrize(
    ("fault", "code", "words"), [("npu_corrected", "ecc_corrected", "NPU 7: ecc_corrected"), ("port_errors", "link_errors", "mac_rx_bad")]
)
def test_an_error_counter_of_an_npu_that_rises_is_a_change(tmp_path: pathlib.Path, fault: str, code: str, words: str) -> None:
    (change,) = watch(machine(tmp_path, fault))["changes"]
    assert (change["code"], change["part"]) == (code, LAST) and words in change["text"]


def test_an_alarm_while_the_test_runs(tmp_path: pathlib.Path) -> None:
    node = machine(tmp_path)
    with Window(node, gpu.snapshot(node)) as window:
        nodes.planted(tmp_path, 7, model="Ascend 910B3", faults="npu_alarm")
    assert [one["code"] for one in window.evidence()["changes"]] == ["npu_alarm"]


# Versions and texts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text", "version"),
    [
        ("ascend-toolkit/latest/aarch64-linux/ascend_toolkit_install.info", "package_name=Ascend-cann\nversion=8.0.RC2\n", "8.0.RC2"),
        ("cann/x86_64-linux/ascend_toolkit_install.info", "version=8.5.0\n", "8.5.0"),
        ("ascend-toolkit/latest/version.cfg", "toolkit_running_version=[7.3.0.1.231:7.0.1]\n", "7.0.1"),
    ],
)
def test_the_version_of_cann_is_read_from_its_files(tmp_path: pathlib.Path, path: str, text: str, version: str) -> None:
    where = tmp_path / "usr/local/Ascend" / path
    where.parent.mkdir(parents=True)
    where.write_text(text)
    assert ascend.cann(Node(60, root=str(tmp_path))) == version


def test_the_version_of_the_driver(tmp_path: pathlib.Path) -> None:
    where = tmp_path / "usr/local/Ascend/driver/version.info"
    where.parent.mkdir(parents=True)
    where.write_text("Version=24.1.rc2\nascendhal_version=7.35.19\n")
    assert ascend.version_in(Node(60, root=str(tmp_path)), "/usr/local/Ascend/driver/version.info") == "24.1.rc2"


@pytest.mark.parametrize("text", ["", "\x00", "| 0 910B3 | OK |", "npu-smi x Version: 1\n| 0 910B3 | OK | 9 9 0 / 0 |\n", None, "9" * 5000])
def test_bad_text_is_an_error(text: t.Any) -> None:
    assert npu_smi.parse_info(text)["outcome"] == "error"
    assert is_absent(npu_smi.parse_ecc(text)["double"]) and npu_smi.parse_identity(text) is None and npu_smi.parse_stat(text) == {}


def test_the_script_that_asks_acl_is_python() -> None:
    script = ascend.Ascend(Node(1), "npu-smi").start().script
    said = subprocess.run(["python3", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
    assert said and "library" in json.loads(said[-1].removeprefix("ACL "))


ECC_CELLS = (
    "HBM Double Bit Error Count", "DDR Double Bit Error Count", "HBM Single Bit Error Count", "HBM Double Bit Isolated Pages Count",
)  # fmt: skip


@pytest.mark.parametrize("form", ["NA", "Unknown", "-1", "", "0x", "error", None])
@pytest.mark.parametrize("cell", ECC_CELLS)
def test_a_counter_of_memory_that_cannot_be_read_is_not_0(cell: str, form: str | None) -> None:
    """HBM unreadable and DDR 0 were 0 errors together; only a device without DDR may say so."""
    values: dict[str, str | None] = {**dict.fromkeys(ECC_CELLS, "0"), cell: form}
    text = "".join(f"        {name}   : {value}\n" for name, value in values.items() if value is not None)
    kind = {"E": "", "I": "isolated_"}[cell.split()[3][0]] + cell.split()[1].lower()
    read = npu_smi.parse_ecc(text)[kind]
    has_none = "DDR" in cell and (form is None or form in ("NA", ""))
    assert is_absent(read) or (has_none and read == 0)
    if "HBM Double Bit Error" in cell:
        faulty = npu_smi.parse_ecc(text.replace("DDR Double Bit Error Count   : 0", "DDR Double Bit Error Count : 3"))
        assert faulty["double"] == 3, "what can be read is the least that there is"


def test_a_port_that_is_up_and_does_not_tell_its_speed_is_unknown_beside_ports_that_do(tmp_path: pathlib.Path) -> None:
    node = machine(tmp_path)
    seen = gpu.snapshot(node)
    of = gpu.accelerator(node, seen)
    links = of.links(seen)
    assert links and of.links_down(seen, links) == {}
    silent = {uuid: (state, None if uuid == next(iter(links)) else speed, net) for uuid, (state, speed, net) in links.items()}
    assert [code for code, _words in of.links_down(seen, silent).values()] == ["gpu_state"]
    none = {uuid: (state, None, net) for uuid, (state, _speed, net) in links.items()}
    assert of.links_down(seen, none) == {}
