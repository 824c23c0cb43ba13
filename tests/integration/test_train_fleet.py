# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stage train and the quick test over sshd hosts: real PyTorch on the CPU in place of each GPU, and faults planted into it from outside."""

from __future__ import annotations

import json
import pathlib
import shutil
import typing as t

import pytest
from harness.fleet_runs import Acceptance, Done
from rigs import common, pytorch
from rigs.fleet.fleet import Fleet

pytestmark = pytest.mark.fleet
PLANT = pathlib.Path(__file__).resolve().parents[1] / "rigs/torch_plant/sitecustomize.py"
ANY_PACE = {
    "id": "any-pace", "match": {"stage": "train", "shape": ["32x16", "64x64x64"]}, "metric": "tflops", "value": 0.001, "unit": "GFLOPS",
    "source": "a CPU in the place of a GPU: any pace will do", "date": "2026-11", "confidence": "derived",
}  # fmt: skip
# Small enough for many processes on two cores. What the CPU computes has no pace worth a word.
SMALL = {
    "train_device": "cpu", "train_python": pytorch.PYTHON, "train_shapes": ["64x64x64"], "train_seconds": 0.05,
    "train_warmup_seconds": 0.05, "train_steps": 20, "train_width": 16, "train_batch": 32,
    "acceptance_expectations": [ANY_PACE],
}  # fmt: skip
# Which call of a layer is in the training of all GPUs together: each step has two, and that of each GPU alone comes before.
TOGETHER = 2 * 20 + 11
FAULTS = {
    "gpu-02": (3, f"once:1:linear:{TOGETHER}"),
    "gpu-03": (2, "wrong:1:linear:1"),
    "gpu-04": (2, f"kill:1:linear:{TOGETHER}"),
    "gpu-05": (2, f"hang:0:linear:{TOGETHER}"),
    "gpu-06": (2, "memory:1:matmul:2"),
}  # fmt: skip
# Hosts that multiply matrices, too: hundreds in a block, on cores that everybody wants.
PRODUCTS = ("gpu-01", "gpu-06")


@pytest.fixture(scope="module")
def runs(rig_fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Acceptance]:
    common.need_packages(pytorch.PACKAGES)
    rig_fleet.up(6)
    made = Acceptance(rig_fleet, tmp_path_factory.mktemp("runs"))
    for host in rig_fleet.hosts:
        made.plant(host, gpus=FAULTS.get(host, (2,))[0])
        shutil.copy(PLANT, rig_fleet.plant(host) / "bin")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def faulty(runs: Acceptance) -> Done:
    """One run over hosts with one fault each, and gpu-01 without."""
    variables = {
        host: {
            **SMALL, "acceptance_gpu_count": FAULTS.get(host, (2,))[0], "train_types": ["fp32"] if host in PRODUCTS else [],
            "train_results_dir": "/opt/simulated/reports", "train_silence_timeout": 60 if host == "gpu-05" else 120,
            "train_env": {"PYTHONPATH": "/opt/simulated/bin", "GPUFLEET_TEST_PLANT": FAULTS.get(host, (2, ""))[1]},
        }
        for host in runs.fleet.hosts
    }  # fmt: skip
    return runs.run(runs.fleet.hosts, "-e", json.dumps({"acceptance_stages": ["train"]}), variables=variables)


def said(done: Done, host: str, number: int, check: str = "train", mode: str = "together") -> tuple[str, str, str]:
    """Return the reason of a GPU in a check."""
    (found,) = (
        v for v in done.on(host) if v["subject"]["id"].endswith(f"-{number:012x}") and v["check"] == check and mode in v["variant"]
    )
    return found["verdict"], found["reason_code"] or "", found["reason"]


def test_a_healthy_node_is_accepted_beside_all_kinds_of_trouble(faulty: Done, runs: Acceptance) -> None:
    assert faulty.status != 0 and faulty.of("gpu-01") == {"PASS"}, faulty.output[-3000:]
    healthy = [m for m in faulty.journal if m["target"] == "gpu-01" and m["check"] == "train"]
    assert len(healthy) == 2 * 3 and all(m["simulated"] for m in healthy)
    assert len({m["context"]["fingerprint"] for m in healthy if m["subject"]["kind"] == "gpu"}) == 1
    left = json.loads((runs.fleet.plant("gpu-01") / "reports/summary.json").read_text())
    assert left["gpu_tests"]["returncode"] == 0 and left["env"]["torch"]
    assert all(f"[{tag}] " in left["gpu_tests"]["stdout"] for tag in ("ENV", "COMPUTE", "TRAIN", "RESULT"))
    runs.nothing_left(*runs.fleet.hosts)


def test_a_gpu_that_computes_wrong_is_convicted_by_the_others(faulty: Done) -> None:
    verdict, code, reason = said(faulty, "gpu-02", 1)
    assert (verdict, code) == ("FAIL", "wrong_results") and "GPU 1 gave 2 different results of the same work" in reason
    assert {said(faulty, "gpu-02", number, mode=mode)[0] for number in (0, 2) for mode in ("alone", "together")} == {"PASS"}
    assert said(faulty, "gpu-02", 1, mode="alone")[0] == "PASS"


def test_two_that_differ_are_both_doubted_in_their_node_and_the_other_nodes_say_which_is_wrong(faulty: Done) -> None:
    (node,) = (v for v in faulty.on("gpu-03") if v["subject"]["id"] == "gpu-03" and v["check"] == "train" and "alone" in v["variant"])
    assert (node["verdict"], node["reason_code"]) == ("FAIL", "wrong_results")
    assert any("GPU 0 and GPU 1 differ" in finding for finding in node["findings"])
    assert [said(faulty, "gpu-03", number)[0] for number in (0, 1)] == ["PASS", "FAIL"]


@pytest.mark.parametrize(
    ("host", "number", "check", "code", "words"),
    [
        ("gpu-04", 1, "train", "tool_failed", "killed by signal 9 (SIGKILL)"),
        ("gpu-05", 0, "train", "timeout", "said nothing for 60 s"),
        ("gpu-06", 1, "compute", "out_of_memory", "out of memory"),
    ],
)
def test_what_ends_one_gpu_is_named_and_leaves_the_other_alone(
    faulty: Done, host: str, number: int, check: str, code: str, words: str
) -> None:
    verdict, found, reason = said(faulty, host, number, check)
    assert (verdict, found) == ("UNKNOWN", code) and words in reason
    assert {v["verdict"] for v in faulty.on(host) if v["subject"]["id"].endswith(f"-{1 - number:012x}")} == {"PASS"}


def test_a_quick_test_of_two_nodes_says_what_it_does_not_show(runs: Acceptance) -> None:
    hosts = ["gpu-01", "gpu-03"]
    for host in hosts:
        runs.plant(host, gpus=8)
    few = {"train_gpus": 1, "train_width": 16, "train_batch": 32, "train_shapes": ["64x64x64"], "train_device": "cpu"}
    settings = {"train_python": pytorch.PYTHON, "train_minutes": 600, "nccl_node_types": ["half"]}
    as_a_gpu = {"PYTHONPATH": "/opt/simulated/bin", "GPUFLEET_TEST_SUMS": "single"}
    inventory = {host: {**settings, "train_env": as_a_gpu} for host in hosts}
    done = runs.run(hosts, "-e", json.dumps(few), playbook="playbooks/quick.yml", variables=inventory)
    assert done.status == 0 and done.folder and all(done.good(host) for host in hosts), done.output[-3000:]
    assert {v["stage"] for v in done.verdicts} == {"stack", "nccl_node", "train"}
    # What the quick test measures wins over the inventory, and -e over both.
    assert {v["variant"] for v in done.verdicts if v["stage"] == "nccl_node"} == {"gpus=all sizes=8M:16G type=float"}
    assert {(v["check"], v["variant"]) for v in done.verdicts if v["stage"] == "train"} == {
        ("compute", "gpus=1 mode=together shape=64x64x64 type=bf16"), ("train", "gpus=1 mode=together steps=30"),
    }  # fmt: skip
    plan = json.loads((done.folder / "plan.json").read_text())
    assert (plan["mode"], plan["partial"]) == ("quick", True)
    head = " ".join(done.output.split())
    report = " ".join((done.folder / "report.md").read_text().split())
    for words in ("PARTIAL: a quick test, which does not show", "what works between nodes", "heat and time", "quick test is no acceptance"):
        assert words in head and words in report, head[-3000:]
    runs.nothing_left(*hosts)
