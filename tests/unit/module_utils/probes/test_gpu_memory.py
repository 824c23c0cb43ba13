# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe of gpu_memory over a simulated node, and over output that no healthy workload prints."""

from __future__ import annotations

import json
import pathlib
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import board_memory, nvidia
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import gpu_memory
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from hypothesis import given
from hypothesis import strategies as st
from rigs.simulated import nodes

CHECKS = [{"check": check, "variant": ""} for check in gpu_memory.CHECKS]
RECORDED = pathlib.Path(__file__).resolve().parents[3] / "fixtures/nvbandwidth-h100"
FOUND = t.List[t.Dict[str, t.Any]]


def ask(
    folder: pathlib.Path, faults: str = "", timeout: float = 30.0, python: str = "", checks: t.Any = None, gpus: int = 8,
    options: t.Any = None, **more: t.Any,
) -> FOUND:  # fmt: skip
    nodes.planted(folder, 1, faults=faults, gpus=gpus, **more)
    params: dict[str, t.Any] = {
        "checks": checks or CHECKS, "python": python or str(folder / "bin/python3"), "env": {}, "gpu_count": gpus, "mig": "refused",
        "tool": "driver", "nvbandwidth": "", "mib": 256, "copies": 16, "passes": 1, "seed": 1, "test_timeout": timeout,
    }  # fmt: skip
    params.update(options or {})
    node = Node(60, root=str(folder), tools={"nvidia_smi": str(folder / "bin/nvidia-smi")})
    return list(gpu_memory.probe(params, node))


def of(found: FOUND, check: str, part: bool = False) -> FOUND:
    return [one for one in found if one["check"] == check and bool(one["part"]) == part]


def saying(folder: pathlib.Path, *records: t.Any, rc: int = 0) -> str:
    path = folder / "says"
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("#!/bin/sh\ncat >/dev/null\ncat <<'EOF'\n" + "\n".join(lines) + f"\nEOF\nexit {rc}\n")
    path.chmod(0o755)
    return str(path)


READY = {"kind": "ready", "driver": "13.0", "numa": [0]}
END = {"kind": "end"}


def ended(check: str) -> dict[str, t.Any]:
    return {"kind": "time", "check": check, "after_s": 0, "took_s": 0}


def test_a_healthy_node_has_a_number_of_every_check_and_gpu(tmp_path: pathlib.Path) -> None:
    found = ask(tmp_path)
    assert {one["outcome"] for one in found} == {"measured"}, [one["reason"] for one in found if one["reason"]]
    assert len(found) == len(CHECKS) * 9
    (node,) = of(found, "h2d")
    slowest = min(one["metrics"]["bandwidth"]["value"] for one in of(found, "h2d", part=True))
    assert node["metrics"]["bandwidth"] == {"value": slowest, "unit": "GB/s"}
    assert (node["context"]["pcie_gen"], node["context"]["pcie_width"], node["context"]["gpus"]) == (5, 16, 8)
    assert set(of(found, "bidirectional")[0]["metrics"]) == {"bandwidth", "h2d", "d2h"}
    assert of(found, "h2d", part=True)[0]["context"]["links_under_load"] == ["5 x16"]
    assert "pcie_gen" not in of(found, "device")[0]["context"]


def test_the_worst_way_is_named(tmp_path: pathlib.Path) -> None:
    found = ask(tmp_path, "mem_far=0.5 mem_peer=0.4")
    worst = of(found, "numa", part=True)[-1]["context"]["worst"]
    assert worst.startswith("GPU 7 from NUMA node 0: 2") and worst.endswith(" GB/s")
    last = of(found, "peer", part=True)[-1]
    assert last["context"]["worst"].startswith("GPU 7 to GPU 0: 15") and last["context"]["worst"].endswith("GB/s directly")
    assert last["series"] == [] and len(of(found, "peer")[0]["series"]) == 8 * 7 and len(of(found, "numa")[0]["series"]) == 8


@pytest.mark.parametrize(
    ("fault", "check", "words"),
    [
        ("mem_wrong", "h2d", "GPU 7: copied from host to GPU: 3 words of 8 bytes are wrong, the first at byte 1073741832"),
        ("mem_bits", "pattern", "expected 0x5555555555555555, found 0x5555555555555557; bits 0x2 differ"),
        ("mem_wrong_peer", "peer", "GPU 7: "),
    ],
)
def test_wrong_data_is_wrong_results_of_its_gpu(tmp_path: pathlib.Path, fault: str, check: str, words: str) -> None:
    found = ask(tmp_path, fault)
    bad = [one for one in found if one["outcome"] != "measured"]
    assert [(one["check"], one["reason_code"]) for one in bad] == [(check, "wrong_results")]
    assert bad[0]["part"] and words in bad[0]["reason"]
    assert of(found, check)[0]["metrics"] == {}


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("mem_ecc", "ecc", "GPU 7: cuStreamSynchronize failed with status 214"),
        ("mem_half", "out_of_memory", "GPU 7: 67.4 of 140.4 GiB of memory could be tested, 48.0 %, and at least 95 % is needed: 67.7"),
        ("mem_unproven", "bad_output", "planted None of GPU 7"),
        ("mem_denied", "no_permission", "memory on NUMA node 1 cannot be had: see cpuset and mbind of the container"),
        ("mem_no_cuda", "cuda_failed", "cuInit failed with status 802"),
        ("mem_crash", "tool_failed", "the workload ended with status 139: Segmentation fault"),
    ],
)
def test_what_was_not_measured_says_why(tmp_path: pathlib.Path, fault: str, code: str, words: str) -> None:
    found = [one for one in ask(tmp_path, fault) if one["outcome"] != "measured"]
    assert {one["reason_code"] for one in found} == {code} and words in found[0]["reason"]


def test_a_gpu_without_a_result_is_no_measurement(tmp_path: pathlib.Path) -> None:
    found = [one for one in ask(tmp_path, "mem_missing") if one["outcome"] != "measured"]
    assert len(found) == len(CHECKS) and found[0]["reason"] == "the workload printed 0 results of GPU 7"


@pytest.mark.parametrize(("fault", "code"), [("mem_link_gen", "pcie_speed"), ("mem_link_width", "pcie_width")])
def test_a_link_that_trains_down_under_load_is_a_change(tmp_path: pathlib.Path, fault: str, code: str) -> None:
    changes = ask(tmp_path, fault)[0]["evidence"]["changes"]
    assert [one["code"] for one in changes] == [code] and "GPU 7" in changes[0]["text"] and "under load" in changes[0]["text"]


def test_what_ended_before_a_hang_stands_and_the_hang_has_a_name(tmp_path: pathlib.Path) -> None:
    found = ask(tmp_path, "mem_hang", timeout=2.0)
    assert of(found, "latency")[0]["outcome"] == "measured"
    (hung,) = of(found, "pattern")
    assert hung["reason_code"] == "timeout" and hung["reason"].endswith("; pattern of GPU 0 did not end")


def test_one_gpu_skips_what_is_of_several_and_one_numa_node_what_is_of_far_memory(tmp_path: pathlib.Path) -> None:
    results = [{"kind": "result", "check": "h2d", "device": 0, "h2d": 55.0}, ended("h2d")]
    checks = [{"check": check, "variant": ""} for check in ("h2d", "h2d_all", "peer", "numa")]
    found = ask(tmp_path, python=saying(tmp_path, READY, *results, END), checks=checks, gpus=1)
    assert [(one["check"], one["outcome"], one["reason_code"]) for one in found if not one["part"]] == [
        ("h2d", "measured", None),
        ("h2d_all", "not_applicable", "one_gpu"),
        ("peer", "not_applicable", "one_gpu"),
        ("numa", "not_applicable", "one_numa_node"),
    ]


@pytest.mark.parametrize("value", ["NaN", "-1", "0", '"55"', "true", "null", "1e400"])
def test_a_number_that_is_none_is_no_measurement(tmp_path: pathlib.Path, value: str) -> None:
    line = f'{{"kind": "result", "check": "h2d", "device": 0, "h2d": {value}}}'
    found = ask(tmp_path, python=saying(tmp_path, READY, line, ended("h2d"), END), checks=CHECKS[:1], gpus=1)
    assert found[1]["outcome"] == "error" and found[1]["reason_code"] == "bad_output"


def test_far_memory_without_a_result_is_no_measurement(tmp_path: pathlib.Path) -> None:
    python = saying(tmp_path, {"kind": "ready", "driver": "13.0"}, ended("numa"), END)
    found = ask(tmp_path, python=python, checks=[{"check": "numa", "variant": ""}], gpus=1)
    assert [one["reason_code"] for one in found] == [None, "incomplete_output"] and found[0]["metrics"] == {}


def test_two_results_of_one_gpu_are_none(tmp_path: pathlib.Path) -> None:
    result = {"kind": "result", "check": "h2d", "device": 0, "h2d": 55.0}
    found = ask(tmp_path, python=saying(tmp_path, READY, result, result, ended("h2d"), END), checks=CHECKS[:1], gpus=1)
    assert found[1]["reason"] == "the workload printed 2 results of GPU 0"


def test_data_that_was_wrong_before_a_crash_is_a_defect(tmp_path: pathlib.Path) -> None:
    wrong = {"kind": "wrong", "check": "h2d", "device": 0, "words": 1, "offset": 8, "expected": "0x1", "found": "0x3", "where": "copied"}
    found = ask(tmp_path, python=saying(tmp_path, READY, wrong, rc=139), checks=CHECKS[:1], gpus=1)
    assert [one["reason_code"] for one in found] == ["tool_failed", "wrong_results"]
    assert found[1]["reason"] == "GPU 0: copied: a word of 8 bytes is wrong, at byte 8: expected 0x1, found 0x3; bits 0x2 differ"


def test_how_gpus_are_joined_is_known_by_what_they_are(tmp_path: pathlib.Path) -> None:
    (node,) = of(ask(tmp_path, "mem_indirect"), "peer")
    assert {(row["board"], row["direct"]) for row in node["series"] if 7 in (row["gpu"], row["to"])} == {(True, False)}
    (node,) = of(ask(tmp_path / "cards", NAME="NVIDIA L40S"), "peer")
    assert {(row["board"], row["direct"], row["near"]) for row in node["series"]} == {(False, True, None)}


@pytest.mark.parametrize("direct", [None, "yes", 1, "absent"])
def test_a_way_that_nobody_knows_is_no_measurement(tmp_path: pathlib.Path, direct: t.Any) -> None:
    way = {} if direct == "absent" else {"direct": direct}
    rows = [{"kind": "result", "check": "peer", "device": at, "to": 1 - at, "rate": 390.0, **way} for at in (0, 1)]
    found = ask(tmp_path, python=saying(tmp_path, READY, *rows, ended("peer"), END), checks=[{"check": "peer", "variant": ""}], gpus=2)
    assert {one["reason_code"] for one in found if one["part"]} == {"bad_output"}


# Of the memory of a GPU -------------------------------------------------------------------------------------------------

GIB = 1 << 30


def shown(total: t.Any, name: str = "NVIDIA H100 80GB HBM3", used: int = 0, reserved: int = 0, *processes: dict[str, t.Any]) -> t.Any:
    return {
        "uuid": "GPU-0", "index": 0, "name": name, "memory_total_mib": total, "memory_used_mib": used, "memory_reserved_mib": reserved,
        "processes": list(processes),
    }  # fmt: skip


def pattern_of(g: t.Any, tested_bytes: int, after: t.Any = None, **more: t.Any) -> t.Any:
    """The number of `pattern`, or its problem, of a workload that tested so much."""
    record = {"kind": "result", "check": "pattern", "device": 0, "bytes": tested_bytes, "planted": 74, "free": tested_bytes, **more}
    result = types.SimpleNamespace(out="\n".join(map(json.dumps, (READY, record, END))), argv=["python3"])
    output = gpu_memory.MemoryOutput(result, [g], nvidia.Nvidia)
    output.after = {"GPU-0": after} if after else {}
    read = gpu_memory._of_pattern(output, "pattern", 0)
    return read[1:] if isinstance(read, tuple) else read.metrics["tested"]["value"]


# As nvidia-smi prints them.
NAMES = (
    "NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB", "A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe",
    "NVIDIA A800-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H800", "NVIDIA H100 NVL", "NVIDIA H200",
    "NVIDIA H200 NVL", "NVIDIA H20", "NVIDIA H20-3e", "NVIDIA GH200 480GB", "NVIDIA B200", "NVIDIA B300 SXM6 AC", "NVIDIA GB200",
    "Tesla V100-SXM2-16GB",
    "Tesla V100-SXM2-32GB", "Tesla V100S-PCIE-32GB", "Tesla T4", "NVIDIA A10", "NVIDIA A10G", "NVIDIA L4", "NVIDIA A30", "NVIDIA A40",
    "NVIDIA L40", "NVIDIA L40S", "NVIDIA RTX PRO 6000 Blackwell Server Edition",
)  # fmt: skip


@given(model=st.sampled_from(NAMES), lost=st.floats(0, 0.5), hidden=st.floats(0, 0.5))
def test_the_share_is_of_what_the_model_has_whatever_the_driver_says(model: str, lost: float, hidden: float) -> None:
    """A driver that hides memory of a board, and shows the rest as all there is, makes the share no greater."""
    whole = board_memory.of_model(model)
    assert whole
    total = int(whole * (1 - hidden))
    covered = int(total * 2**20 * (1 - lost))
    read = pattern_of(shown(total, model), covered)
    share = covered / 2**20 / whole
    if share < 0.95:
        assert read[0] == "out_of_memory" and f"{100 * share:.1f} %" in read[1]
    else:
        assert read == round(100 * share, 2)


def test_memory_of_an_unknown_size_is_not_tested_in_any_share() -> None:
    assert pattern_of(shown(None, "NVIDIA Thing"), 80 * GIB)[0] == "gpu_state"
    assert pattern_of(shown(None), 79 * GIB) == 99.19  # the model is known
    assert pattern_of(shown(49140, "NVIDIA Thing"), int(0.96 * 49140 * 2**20)) == 96.0


def test_what_holds_the_rest_is_named() -> None:
    python = {"pid": 7, "name": "python3 train.py", "used_mib": 40000, "type": "C"}
    xorg = {"pid": 3, "name": "/usr/lib/xorg/Xorg", "used_mib": 900, "type": "G"}
    before, after = (shown(81559, "NVIDIA H100 80GB HBM3", 900, 500, *there) for there in ([xorg], [xorg, python]))
    code, words = pattern_of(before, 38 * GIB, after)
    assert code == "out_of_memory" and words == (
        "GPU 0: 38.0 of 79.6 GiB of memory could be tested, 47.7 %, and at least 95 % is needed: 38.0 GiB were free as the "
        "driver says; 500 MiB are reserved by the driver; 900 MiB are held by /usr/lib/xorg/Xorg (pid 3); "
        "40000 MiB are held by python3 train.py (pid 7)"
    )
    assert "5000 MiB are held by processes that cannot be seen from here" in pattern_of(shown(81559, used=5000), 38 * GIB)[1]


def test_a_superchip_has_no_pcie_link_in_its_context(tmp_path: pathlib.Path) -> None:
    g = {"name": "NVIDIA GH200 480GB", "pcie": {"gen_max": 4, "width_max": 1}}
    assert gpu_memory._hardware("h2d", [g], nvidia.Nvidia, "") == {"gpu": "NVIDIA GH200 480GB"}


def test_what_a_real_gpu_gave_is_read(tmp_path: pathlib.Path) -> None:
    recorded = RECORDED.parent / "gpu-memory/h200.jsonl"
    program = tmp_path / "says"
    program.write_text(f"#!/bin/sh\ncat >/dev/null\ncat {recorded}\n")
    program.chmod(0o755)
    checks = [{"check": check, "variant": ""} for check in ("h2d", "d2h", "bidirectional", "device", "latency", "pattern", "numa")]
    found = ask(tmp_path, python=str(program), checks=checks, gpus=1)
    values = {one["check"]: {name: m["value"] for name, m in one["metrics"].items()} for one in found if one["part"]}
    assert values == {
        "h2d": {"bandwidth": 55.229, "lowest": 55.016}, "d2h": {"bandwidth": 55.208, "lowest": 55.0},
        "bidirectional": {"bandwidth": 50.431, "lowest": 40.488, "h2d": 50.431, "d2h": 50.64},
        "device": {"bandwidth": 4281.0, "read": 4496.0}, "latency": {"latency": 1.1978, "small_copy": values["latency"]["small_copy"]},
        "pattern": {},
    }  # fmt: skip
    # The workload of that time did not prove that its kernels ran.
    (pattern,) = of(found, "pattern", part=True)
    assert pattern["reason_code"] == "bad_output" and pattern["reason"].endswith("planted None of GPU 0")
    assert of(found, "numa")[0]["reason_code"] == "one_numa_node" and found[0]["evidence"]["changes"] == []


def test_what_a_real_gpu_tested_of_its_memory_is_read(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "says"
    program.write_text(f"#!/bin/sh\ncat >/dev/null\ncat {RECORDED.parent / 'gpu-memory/h100.jsonl'}\n")
    program.chmod(0o755)
    checks = [{"check": check, "variant": ""} for check in ("h2d", "device", "pattern")]
    found = ask(tmp_path, python=str(program), checks=checks, gpus=1, model="NVIDIA H100 80GB HBM3")
    assert {one["outcome"] for one in found} == {"measured"}
    (pattern,) = of(found, "pattern", part=True)
    assert pattern["metrics"]["tested"]["value"] == 98.36
    assert {name: pattern["context"][name] for name in ("planted", "tested_gib", "board_gib")} == {
        "planted": 74, "tested_gib": 78.34, "board_gib": 79.65,
    }  # fmt: skip


def test_two_real_gpus_have_a_matrix(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "says"
    program.write_text(f"#!/bin/sh\ncat >/dev/null\ncat {RECORDED.parent / 'gpu-memory/h100-x2.jsonl'}\n")
    program.chmod(0o755)
    found = ask(tmp_path, python=str(program), gpus=2, model="NVIDIA H100 80GB HBM3")
    assert {one["outcome"] for one in found if one["check"] != "pattern"} == {"measured", "not_applicable"}
    assert of(found, "numa")[0]["reason_code"] == "one_numa_node"
    assert [(row["gpu"], row["to"], row["bandwidth"], row["direct"]) for row in of(found, "peer")[0]["series"]] == [
        (0, 1, 391.305, True), (1, 0, 391.351, True),
    ]  # fmt: skip
    assert [row["bandwidth"] for row in of(found, "peer_all")[0]["series"]] == [377.313, 376.483]
    unsteady = {one["check"] for one in found if one["context"].get("comparable") is False}
    assert unsteady == {"bidirectional", "bidirectional_all"}


# By nvbandwidth ------------------------------------------------------------------------------------------------------

SECOND = [{"check": check, "variant": ""} for check in ("h2d", "d2h", "bidirectional", "device", "latency", "pattern", "h2d_all")]


def second(folder: pathlib.Path, recorded: str, change: tuple[str, str] = ("", ""), rc: int = 0, bdf: str = "00000000:1A:00.0") -> FOUND:
    """The checks on one GPU, copies by a program that prints a recording; `bdf` is where the simulated GPU is."""
    text = (RECORDED / recorded).read_text().replace("00000000:00:06", bdf.rpartition(".")[0]).replace(*change)
    (folder / "recorded").write_text(text)
    program = folder / "nvbandwidth"
    program.write_text(f'#!/bin/sh\necho "$@" >"{folder}/arguments"\ncat "{folder}/recorded"\nexit {rc}\n')
    program.chmod(0o755)
    return ask(folder, checks=SECOND, gpus=1, options={"tool": "nvbandwidth", "nvbandwidth": str(program)})


def test_nvbandwidth_is_a_second_opinion_on_what_it_has(tmp_path: pathlib.Path) -> None:
    found = second(tmp_path, "all.txt")
    values = {one["check"]: {name: m["value"] for name, m in one["metrics"].items()} for one in found if one["part"]}
    assert values == {
        "h2d": {"bandwidth": 52.67}, "d2h": {"bandwidth": 53.97}, "bidirectional": {"bandwidth": 39.4},
        "device": {"bandwidth": 2976.42}, "latency": {"latency": 1.23234}, "pattern": {"tested": 98.2},
    }  # fmt: skip
    assert found[0]["tool_version"] == "nvbandwidth v0.8" and found[0]["context"]["backend"] == "nvbandwidth"
    assert of(found, "pattern")[0]["context"]["backend"] == "libcuda" and of(found, "h2d_all")[0]["reason_code"] == "one_gpu"
    assert (tmp_path / "arguments").read_text().startswith("-t host_to_device_memcpy_ce device_to_host_memcpy_ce")


@pytest.mark.parametrize(
    ("recorded", "rc", "code", "words"),
    [
        ("badtest.txt", 0, "usage", "Testcase nonsense not found"),
        ("nogpu.txt", 1, "tool_failed", "ended with status 1"),
        ("h2d.txt", 0, "unsupported", "no result of device_to_host_memcpy_ce"),
        ("killed.txt", 137, "tool_failed", "ended with status 137"),
    ],
)
def test_nvbandwidth_without_numbers_is_no_measurement(tmp_path: pathlib.Path, recorded: str, rc: int, code: str, words: str) -> None:
    found = [one for one in second(tmp_path, recorded, rc=rc) if one["check"] == "h2d"]
    assert [one["reason_code"] for one in found] == [code] and words in found[0]["reason"]


def test_nvbandwidth_on_other_gpus_is_no_measurement(tmp_path: pathlib.Path) -> None:
    found = second(tmp_path, "all.txt", change=("00000000:1A:00", "00000000:77:00"))
    assert found[0]["reason_code"] == "gpu_invisible" and "00000000:77:00" in found[0]["reason"]
