# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stack stage on a node with a recorded nvidia-smi and real children."""

from __future__ import annotations

import json
import pathlib
import re
import sys
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import stack
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.fake_smi import UUID, FakeSmi

GOOD = {
    "init": 0, "driver_cuda": "13.0", "count_status": 0, "count": 4, "contexts": [0, 0, 0, 0],
    "torch": "2.11.0+cu130", "torch_cuda": "13.0", "torch_available": True,
}  # fmt: skip


@pytest.fixture
def smi(tmp_path: pathlib.Path, fixtures: pathlib.Path) -> FakeSmi:
    return FakeSmi(tmp_path, fixtures / "h200-x4")


def ask(smi: FakeSmi, check: str, **params: t.Any) -> list[dict[str, t.Any]]:
    params = {
        "checks": [{"check": check, "variant": ""}],
        "python": sys.executable,
        "packages": ["python"],
        "environment": [],
        "sysctls": [],
        "disks": [],
        "gpu_count": None,
        **params,
    }
    return list(stack.probe(params, Node(60, root=str(smi.folder), tools={"nvidia_smi": params.pop("nvidia_smi", smi.path)})))


def python_saying(smi: FakeSmi, *said: dict[str, t.Any], then: str = "exit 0") -> str:
    smi.write("said", "".join(f"CUDA {json.dumps(words)}\n" for words in said))
    path = smi.folder / "python3"
    path.write_text(f'#!/bin/sh\necho noise\ncat "${{0%/*}}/said"\n{then}\n')
    path.chmod(0o755)
    return str(path)


def broken(smi: FakeSmi, tag: str, value: str) -> None:
    smi.write("q.xml", re.sub(rf"<{tag}>[^<]*</{tag}>", f"<{tag}>{value}</{tag}>", smi.read("q.xml"), count=1))


def test_facts_say_who_the_machine_is(smi: FakeSmi) -> None:
    (smi.folder / "etc").mkdir()
    smi.write("etc/machine-id", "0123456789abcdef\n")
    (found,) = ask(smi, "facts")
    assert found["outcome"] == "measured" and found["part"] == "" and found["context"]["facts"]["gpu_count"] == 4
    assert found["context"]["machine_id"] == "0123456789abcdef" and found["context"]["gpu"] == "NVIDIA H200"
    assert found["context"]["gpu_uuids"] == [UUID.format(i) for i in range(4)] and found["context"]["gpus"] == 4


def test_every_gpu_of_a_healthy_node(smi: FakeSmi) -> None:
    node, *gpus = ask(smi, "gpu_health", gpu_count=4)
    parts = [f"gpu/{UUID.format(i)}" for i in range(4)]
    assert node["outcome"] == "measured" and node["members"] == parts and len(node["context"]["gpu_table"]) == 4
    assert [(g["part"], g["outcome"]) for g in gpus] == [(part, "measured") for part in parts]


def test_a_bad_gpu_fails_itself_and_its_node(smi: FakeSmi) -> None:
    broken(smi, "dram_uncorrectable", "3")
    node, *gpus = ask(smi, "gpu_health")
    assert (node["outcome"], node["reason_code"]) == ("error", "ecc") and "serial 1650000000000" in node["reason"]
    assert [g["reason_code"] for g in gpus] == ["ecc", None, None, None]


def test_the_gravest_finding_names_the_node(smi: FakeSmi) -> None:
    bare = smi.read("q.xml").replace("<virtualization_mode>Pass-Through<", "<virtualization_mode>Host VGPU<")
    smi.write("q.xml", bare.replace("<current_link_width>16x<", "<current_link_width>8x<"))
    assert ask(smi, "gpu_health")[0]["reason_code"] == "pcie_width"
    broken(smi, "remapped_row_pending", "Yes")
    node, first, second, *_others = ask(smi, "gpu_health")
    assert (node["reason_code"], first["reason_code"], second["reason_code"]) == ("ecc", "ecc", "pcie_width")
    assert node["reason"].startswith("GPU 0") and "x8" in node["reason"]


def test_a_lost_gpu_and_its_siblings(smi: FakeSmi) -> None:
    broken(smi, "uuid", "[Unknown Error]")
    node, *gpus = ask(smi, "gpu_health")
    assert (node["outcome"], node["reason_code"]) == ("error", "gpu_lost")
    assert gpus[0]["part"] == "gpu/00000000:00:06.0" and gpus[0]["reason_code"] == "gpu_lost"
    assert [g["outcome"] for g in gpus[1:]] == ["measured"] * 3


def test_a_gpu_that_the_driver_has_and_nvidia_smi_has_not(smi: FakeSmi) -> None:
    (smi.folder / "proc/driver/nvidia/gpus/0000:1a:00.0").mkdir(parents=True)
    node = ask(smi, "gpu_health")[0]
    assert node["reason_code"] == "gpu_lost" and "0000:1a:00.0" in node["reason"]


def test_a_link_that_is_down(smi: FakeSmi) -> None:
    smi.write("nvlink-s.txt", smi.read("nvlink-s.txt").replace("Link 5: 26.562 GB/s", "Link 5: <inactive>", 1))
    node, first, *_others = ask(smi, "gpu_health")
    assert node["reason_code"] == first["reason_code"] == "nvlink" and "17 x 26.562 GB/s" in node["reason"]


@pytest.fixture(autouse=True)
def bare_metal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run on virtual machines too."""
    monkeypatch.setattr(Tree, "is_virtual", lambda _self: False)


FINDINGS = t.List[t.Tuple[str, str]]


def found_on(gpu: dict[str, t.Any]) -> FINDINGS:
    return [(one["code"], one["text"]) for one in gpu["context"].get("findings", [])]


def physical(text: str) -> str:
    """Return a report of GPUs as a physical machine makes it, which sees their slots."""
    return re.sub("<virtualization_mode>[^<]*<", "<virtualization_mode>None<", text)


def test_slots_of_an_older_generation_on_all_gpus(smi: FakeSmi) -> None:
    """Siblings are alike, so only the GPU's own generation shows it: as the driver says it, or as the model does."""
    slow = physical(smi.read("q.xml")).replace("<max_link_gen>5<", "<max_link_gen>3<")
    for text in (slow, slow.replace("<max_device_link_gen>5<", "<max_device_link_gen>N/A<")):
        smi.write("q.xml", text)
        _node, *gpus = ask(smi, "gpu_health")
        assert len(gpus) == 4
        for g in gpus:
            assert (g["outcome"], g["reason_code"]) == ("error", "pcie_speed")
            assert "generation 3 in its slot, and the GPU 5, and no baseboard" in g["reason"]


@pytest.mark.parametrize("generation", ["3", "4"])
@pytest.mark.parametrize(
    ("name", "is_board"),
    [
        ("NVIDIA H100 80GB HBM3", True), ("NVIDIA H800", True), ("NVIDIA H20", True), ("NVIDIA H20-3e", True), ("NVIDIA B200", True),
        ("NVIDIA B300 SXM6 AC", True), ("NVIDIA H100 PCIe", False), ("NVIDIA H100 NVL", False), ("NVIDIA H200 NVL", False),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", False), ("NVIDIA H800 PCIe", False),
    ],
)  # fmt: skip
def test_a_card_goes_into_any_slot_and_a_board_has_its_own(smi: FakeSmi, name: str, is_board: bool, generation: str) -> None:
    text = smi.read("q.xml").replace("<max_link_gen>5<", f"<max_link_gen>{generation}<").replace(">NVIDIA H200<", f">{name}<")
    smi.write("q.xml", text)
    assert all("pcie_speed" not in str(g) for g in ask(smi, "gpu_health")), "a virtual machine does not see the slot"
    smi.write("q.xml", physical(text))
    for g in ask(smi, "gpu_health")[1:]:
        codes = {code for code, _words in found_on(g)} | {g["reason_code"]}
        assert ("pcie_speed" in codes) is is_board and ("pcie_slot" in codes) is not is_board, g


def test_slots_with_fewer_lanes_on_all_gpus(smi: FakeSmi) -> None:
    """The driver shows what GPU and slot can do together: riser cards that halve the lanes of all GPUs leave no sibling to compare with."""
    text = physical(smi.read("q.xml"))
    for name in ("max_link_width", "current_link_width"):
        text = text.replace(f"<{name}>16x<", f"<{name}>8x<")
    assert "<max_link_width>8x<" in text
    smi.write("q.xml", text)
    _node, *gpus = ask(smi, "gpu_health")
    assert len(gpus) == 4
    for g in gpus:
        assert g["reason_code"] == "pcie_width" and "x8 in its slot, and the GPU x16, and no baseboard" in g["reason"]


def test_nvlinks_that_nobody_lists(smi: FakeSmi) -> None:
    for text in ("", "Unable to retrieve NVLink information\n"):
        smi.write("nvlink-s.txt", text)
        node, *gpus = ask(smi, "gpu_health")
        assert node["outcome"] == "measured" and node["evidence"]["unreadable"][0] == "nvlink"
        assert all(found_on(g)[0][0] == "unreadable_state" and "the model has 18" in found_on(g)[0][1] for g in gpus)
    smi.write("q.xml", smi.read("q.xml").replace("NVIDIA H200<", "NVIDIA H200 NVL<").replace("<state>Completed<", "<state>N/A<"))
    assert not any(found_on(g) for g in ask(smi, "gpu_health")[1:]), "cards may have no bridges"


def test_memory_errors_that_no_gpu_reports(smi: FakeSmi) -> None:
    text = smi.read("q.xml")
    for tag in ("current_ecc", "sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable"):
        text = re.sub(rf"<{tag}>[^<]*</{tag}>", f"<{tag}>N/A</{tag}>", text)
    smi.write("q.xml", text)
    node, *gpus = ask(smi, "gpu_health")
    assert node["outcome"] == "measured" and all([code for code, _words in found_on(g)] == ["unreadable_state"] for g in gpus)
    smi.write("q.xml", text.replace("NVIDIA H200<", "NVIDIA GeForce RTX 4090<"))
    assert not any(found_on(g) for g in ask(smi, "gpu_health")[1:])


def test_a_gpu_that_the_driver_could_not_start(smi: FakeSmi) -> None:
    (smi.folder / "dev").mkdir()
    smi.write("dev/kmsg", "6,0,0,-;Linux\n3,7,9,-;NVRM: GPU 0000:1a:00.0: RmInitAdapter failed! (0x26:0x56:1474)\n")
    node = ask(smi, "gpu_health")[0]
    assert (node["outcome"], node["reason_code"]) == ("error", "gpu_lost") and "could not start the GPU" in node["reason"]
    smi.write("q.xml", "No devices were found\n")
    smi.write("rc", "6")
    (node,) = ask(smi, "gpu_health")
    assert (node["outcome"], node["reason_code"]) == ("error", "gpu_lost"), "none came up, and the log says why"
    assert ask(smi, "gpu_health", gpu_count=0)[0]["reason_code"] == "no_gpu_expected"


def test_a_count_that_is_not_expected(smi: FakeSmi) -> None:
    found = ask(smi, "gpu_health", gpu_count=8)[0]
    assert found["reason_code"] == "gpu_count" and "4 GPUs found" in found["reason"] and "8" in found["reason"]


@pytest.mark.parametrize("check", ["gpu_health", "cuda"])
def test_a_machine_without_gpus_is_an_error_unless_none_is_expected(smi: FakeSmi, check: str) -> None:
    smi.write("q.xml", "No devices were found\n")
    smi.write("rc", "6")
    (found,) = ask(smi, check)
    assert (found["outcome"], found["reason_code"]) == ("error", "no_gpu")
    (found,) = ask(smi, check, gpu_count=0)
    assert (found["outcome"], found["reason_code"]) == ("not_applicable", "no_gpu_expected")
    (found,) = ask(smi, check, nvidia_smi="/no/such/nvidia-smi", gpu_count=8)
    assert (found["outcome"], found["reason_code"]) == ("error", "tool_missing")


def test_cuda_is_initialised_by_a_child(smi: FakeSmi) -> None:
    # This machine has no driver: the real child says so.
    (found,) = ask(smi, "cuda")
    assert (found["outcome"], found["reason_code"]) == ("error", "cuda_failed")
    assert "libcuda.so.1" in found["reason"]


def test_a_working_cuda_is_measured_with_its_versions(smi: FakeSmi) -> None:
    (found,) = ask(smi, "cuda", python=python_saying(smi, {"init": 0}, GOOD))
    assert found["outcome"] == "measured" and found["context"]["driver_cuda"] == "13.0"
    assert found["tool_version"] == "torch 2.11.0+cu130"


def test_cuda_is_measured_without_pytorch(smi: FakeSmi) -> None:
    (found,) = ask(smi, "cuda", python=python_saying(smi, {k: v for k, v in GOOD.items() if "torch" not in k}))
    assert found["outcome"] == "measured" and found["tool_version"] is None


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (
            {"torch_available": False, "torch_cuda": "13.0", "driver_cuda": "12.4"},
            "cuda_failed",
            "built for CUDA 13.0, newer",
        ),
        ({"torch_available": False, "torch_cuda": None}, "cuda_failed", "built without CUDA"),
        ({"torch_available": False}, "cuda_failed", "says that CUDA is not available"),
        ({"torch_error": "OSError: libcudnn.so.9"}, "cuda_failed", "libcudnn"),
        ({"init": 802}, "cuda_failed", "nvidia-fabricmanager"),
        ({"init": 803}, "cuda_failed", "differ in version"),
        ({"init": 12345}, "cuda_failed", "error 12345"),
        ({"count": 3}, "gpu_count", "number of GPUs: CUDA sees 3 and nvidia-smi 4"),
        ({"count_status": 100}, "cuda_failed", "no CUDA device"),
        ({"contexts": [0, 46, 0, 0]}, "cuda_failed", "GPU 1: error 46"),
        ({"library": "libcuda.so.1: cannot open"}, "cuda_failed", "cannot be loaded"),
    ],
)
def test_a_cuda_that_fails_has_the_reason_of_its_step(smi: FakeSmi, change: dict[str, t.Any], code: str, words: str) -> None:
    (found,) = ask(smi, "cuda", python=python_saying(smi, {**GOOD, **change}))
    assert (found["outcome"], found["reason_code"]) == ("error", code) and words in found["reason"]


@pytest.mark.parametrize(
    ("said", "then", "outcome", "words"),
    [
        ([], "sleep 100", "timeout", "initialising CUDA in"),
        ([{k: v for k, v in GOOD.items() if "torch" not in k}], "sleep 100", "timeout", "importing torch in"),
        ([GOOD], "kill -SEGV $$", "error", "status -11"),
        ([], "exit 0", "error", "status 0"),
        ([], "echo 'CUDA {'; exit 1", "error", "status 1"),
        ([], "echo 'CUDA {} '; exit 0", "error", "status 0"),
    ],
)
def test_a_child_that_does_not_finish(
    smi: FakeSmi, monkeypatch: pytest.MonkeyPatch, said: list[dict[str, t.Any]], then: str, outcome: str, words: str
) -> None:
    monkeypatch.setattr(stack, "START_TIMEOUT_S", 3.0 if outcome == "timeout" else 60.0)
    (found,) = ask(smi, "cuda", python=python_saying(smi, *said, then=then))
    assert (found["outcome"], found["reason_code"]) == (outcome, "cuda_failed") and words in found["reason"]


def test_a_python_that_is_not_there(smi: FakeSmi) -> None:
    (found,) = ask(smi, "cuda", python="/no/such/python")
    assert found["reason_code"] == "tool_missing" and "stack_python" in found["reason"]


def test_what_is_simulated_says_so(smi: FakeSmi) -> None:
    smi.write(
        "q.xml",
        smi.read("q.xml").replace("<nvidia_smi_log>", "<!-- simulated by gpufleet.acceptance --><nvidia_smi_log>"),
    )
    for check in ("facts", "gpu_health", "cuda"):
        assert all(found["simulated"] for found in ask(smi, check))


# Links, lifetime, settings, the kernel's log -------------------------------------------------------------------------


def test_links_that_are_missing_everywhere(smi: FakeSmi) -> None:
    smi.write("nvlink-s.txt", smi.read("nvlink-s.txt").replace("Link 5: 26.562 GB/s", "Link 5: <inactive>"))
    node, *gpus = ask(smi, "gpu_health")
    assert node["reason_code"] == "nvlink" and {g["reason_code"] for g in gpus} == {"nvlink"} and "has 18 links" in node["reason"]
    # Bridged cards have as many as somebody has plugged in.
    smi.write("q.xml", smi.read("q.xml").replace("<product_name>NVIDIA H200<", "<product_name>NVIDIA H200 NVL<"))
    assert ask(smi, "gpu_health")[0]["outcome"] == "measured"


def test_links_that_cannot_be_read(smi: FakeSmi) -> None:
    smi.write("nvlink-s.txt", "")
    node = ask(smi, "gpu_health")[0]
    assert node["outcome"] == "measured" and "nvlink" in node["evidence"]["unreadable"]


def test_memory_errors_of_the_past_are_worth_a_look(smi: FakeSmi) -> None:
    head, mark, rest = smi.read("q.xml").partition("<aggregate>")
    smi.write("q.xml", head + mark + rest.replace("<dram_uncorrectable>0<", "<dram_uncorrectable>1<", 1))
    broken(smi, "remapped_row_unc", "1")
    node, first, *_others = ask(smi, "gpu_health")
    assert node["outcome"] == first["outcome"] == "measured"
    assert [f["code"] for f in node["context"]["findings"]] == ["ecc_past", "ecc_past"] == [f["code"] for f in first["context"]["findings"]]
    assert {f["part"] for f in node["context"]["findings"]} == {f"gpu/{UUID.format(0)}"}


def test_each_defect_stands_for_itself(smi: FakeSmi) -> None:
    broken(smi, "remapped_row_pending", "Yes")
    broken(smi, "current_link_width", "8x")
    broken(smi, "current_ecc", "Disabled")
    node = ask(smi, "gpu_health")[0]
    assert node["reason_code"] == "ecc" and {f["code"] for f in node["context"]["findings"]} == {"pcie_width", "ecc_off"}


def test_a_counter_of_errors_that_nobody_can_read_is_not_clean(smi: FakeSmi) -> None:
    text = smi.read("q.xml")
    for tag in ("sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable"):
        text = text.replace(f"<{tag}>0<", f"<{tag}>N/A<")
    smi.write("q.xml", text)
    assert "ecc" in ask(smi, "gpu_health")[0]["evidence"]["unreadable"]


def kernel(smi: FakeSmi, *lines: str, first: int = 0) -> list[dict[str, t.Any]]:
    (smi.folder / "dev").mkdir(exist_ok=True)
    rows = [f"6,{first},0,-;Linux version 6.8", *(f"4,{first + n},{n}000000,-;{line}" for n, line in enumerate(lines, 1))]
    smi.write("dev/kmsg", "\n".join(rows) + "\n")
    return ask(smi, "gpu_health")


@pytest.mark.parametrize(
    ("number", "code"), [(48, "ecc"), (64, "ecc"), (74, "nvlink"), (79, "gpu_lost"), (95, "ecc"), (119, "gpu_fault"), (999, "xid_unknown")]
)
def test_what_the_driver_has_logged_since_boot(smi: FakeSmi, number: int, code: str) -> None:
    line = f"NVRM: Xid (PCI:0000:00:07): {number}, pid=77, name=python3, x"
    node, first, second, *_others = kernel(smi, line, line)
    assert (node["outcome"], node["reason_code"], second["reason_code"], first["outcome"]) == ("error", code, code, "measured")
    assert "2 times since boot" in node["reason"] and "a reboot" in node["reason"] and "Z, 2 times" in node["reason"]
    assert node["context"]["kernel_log"]["whole"] and not node["evidence"]


def test_application_errors_of_the_past(smi: FakeSmi) -> None:
    node, first, *_others = kernel(smi, *(f"NVRM: Xid (PCI:0000:00:06): {number}, pid=7, name=x, y" for number in (13, 31, 43, 45)))
    assert node["outcome"] == "measured" and [f["code"] for f in first["context"]["findings"]] == ["xid"] * 4


def test_an_error_of_a_gpu_that_is_gone_is_the_nodes(smi: FakeSmi) -> None:
    node, *gpus = kernel(smi, "NVRM: Xid (PCI:0000:5a:00): 79, pid=1, GPU has fallen off the bus.")
    assert node["reason_code"] == "gpu_lost" and {g["outcome"] for g in gpus} == {"measured"}


def test_only_the_last_recovery_action_counts(smi: FakeSmi) -> None:
    said = "NVRM: Xid (PCI:0000:00:06): 154, GPU recovery action changed from 0x{} ({}) to 0x{} ({})"
    node = kernel(smi, said.format(0, "None", 1, "GPU Reset Required"), said.format(1, "GPU Reset Required", 0, "None"))[0]
    assert node["outcome"] == "measured"
    assert kernel(smi, said.format(0, "None", 1, "GPU Reset Required"))[0]["reason_code"] == "gpu_reset"


def test_a_log_whose_beginning_is_gone_or_that_nobody_may_read(smi: FakeSmi) -> None:
    assert ask(smi, "gpu_health")[0]["evidence"]["unreadable"] == ["xid"]
    assert kernel(smi, first=5000)[0]["evidence"]["unreadable"] == ["xid_since_boot"]
    forged = "NVRM: Xid (PCI:0000:00:07): 79, x"
    (smi.folder / "dev/kmsg").write_text(f"6,0,0,-;Linux\n12,1,1,-;{forged}\n6,2,2,-;audit: comm={forged}\n")
    assert ask(smi, "gpu_health")[0]["outcome"] == "measured"
