# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The train stage over a simulated node."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import train
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.modules.train import OPTIONS
from rigs.simulated import nodes

Observation = t.Dict[str, t.Any]


def ask(folder: pathlib.Path, faults: str = "", gpus: int = 8, **options: t.Any) -> list[Observation]:
    nodes.planted(folder, 1, faults=faults, gpus=gpus)
    given = {
        "python": str(folder / "bin/python3"), "gpu_count": gpus, "minutes": 10.0, **options,
    }  # fmt: skip
    params = ArgumentSpecValidator(OPTIONS).validate(given).validated_parameters
    params["checks"] = train.default_checks(params)
    return list(train.probe(params, Node(60, root=str(folder), tools={"nvidia_smi": str(folder / "bin/nvidia-smi")})))


def of(found: list[Observation], check: str, gpu: int | None = None) -> list[Observation]:
    end = "" if gpu is None else f"-{gpu:012x}"
    return [o for o in found if o["check"] == check and bool(o["part"]) is (gpu is not None) and o["part"].endswith(end)]


def test_a_healthy_node_has_an_observation_of_each_gpu_and_check(tmp_path: pathlib.Path) -> None:
    found = ask(tmp_path)
    assert len(found) == 5 * 9 and {o["outcome"] for o in found} == {"measured"} and all(o["simulated"] for o in found)
    assert all(len(o["members"]) == 8 and o["metrics"]["spread"]["value"] < 2 for o in found if not o["part"])
    assert [o["variant"] for o in found if not o["part"]] == [
        "mode=alone shape=8192x8192x8192 type=bf16", "mode=together shape=8192x8192x8192 type=bf16", "mode=alone steps=60",
        "mode=together steps=60", "minutes=10.0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "check", "code", "words"),
    [
        ("train_odd", "train", "wrong_results", "GPU 7 gave another result, where 7 of 8 gave the same result, bit for bit"),
        ("train_wrong", "compute", "wrong_results", "GPU 7 computed a wrong product: relative error 0.7, at most 0.0053"),
        ("train_nan", "train", "not_trained", "GPU 7: the loss of step 8 of 60 is not finite"),
        ("train_killed", "train", "tool_failed", "GPU 7: its process was killed by signal 9 (SIGKILL)"),
        ("train_killed", "burn_in", "tool_failed", "GPU 7: before this check, its process was killed"),
        ("train_memory", "compute", "out_of_memory", "GPU 7: OutOfMemoryError: CUDA out of memory"),
        ("train_lap", "burn_in", "wrong_results", "3 of 400 laps of the same training gave another loss, the first of them after 42 s"),
    ],
)
def test_a_gpu_that_is_wrong_is_named_and_no_other(tmp_path: pathlib.Path, fault: str, check: str, code: str, words: str) -> None:
    found = ask(tmp_path, fault)
    (bad, *_others) = of(found, check, 7)
    assert (bad["outcome"], bad["reason_code"]) == ("error", code) and words in bad["reason"]
    assert all(o["outcome"] == "measured" for o in found if not o["part"].endswith(f"-{7:012x}"))
    assert "tflops" not in of(found, check)[0]["metrics"]  # a node's number is that of all its GPUs


def test_npus_train_by_torch_npu_each_process_seeing_one(tmp_path: pathlib.Path) -> None:
    nodes.planted(tmp_path, 1, model="Ascend 910B3", gpus=2)
    params = ArgumentSpecValidator(OPTIONS).validate({"python": str(tmp_path / "bin/python3")}).validated_parameters
    params["checks"] = train.default_checks(params)
    node = Node(60, root=str(tmp_path), tools={"nvidia_smi": "", "npu_smi": str(tmp_path / "bin/npu-smi")})
    found = list(train.probe(params, node))
    assert len(found) == 4 * 3 and {o["outcome"] for o in found} == {"measured"} and found[0]["context"]["gpu"] == "Ascend 910B3"
    order = json.loads(found[0]["command"][-1])
    assert (order["kind"], order["devices"]) == ("npu", ["0", "1"])


def test_of_two_gpus_that_differ_none_is_convicted_and_the_node_is_not_believed(tmp_path: pathlib.Path) -> None:
    found = ask(tmp_path, "train_odd", gpus=2)
    (node, *_together) = of(found, "train")
    assert node["reason_code"] == "unresolved" and "GPU 0 and GPU 1 differ" in node["reason"]
    assert {o["outcome"] for o in found if o["part"]} == {"measured"}


def test_a_single_gpu_that_contradicts_itself_is_believed_in_neither_check(tmp_path: pathlib.Path) -> None:
    found = ask(tmp_path, "train_wavers", gpus=1, minutes=0.0)
    nodes_own = [o for o in of(found, "train")]
    assert {o["variant"] for o in nodes_own} == {"mode=alone steps=60", "mode=together steps=60"}
    assert {o["reason_code"] for o in nodes_own} == {"unresolved"}
    assert {o["outcome"] for o in of(found, "compute")} == {"measured"}


def test_results_say_what_their_bits_depend_on(tmp_path: pathlib.Path) -> None:
    context = of(ask(tmp_path), "train", 0)[0]["context"]
    assert context["driver"] and context["library"] and context["seed"] == 1 and context["host_cpu"] == "Simulated CPU"


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("torch_missing", "torch_missing", "set acceptance_python or train_python"),
        ("torch_too_new", "cuda_failed", "cannot use CUDA"),
        ("train_cut", "incomplete_output", "its last line is missing"),
        ("train_crash", "tool_failed", "Segmentation fault"),
        ("train_hang", "timeout", "did not end within 2 s"),
    ],
)
def test_what_no_gpu_can_help_is_said_of_the_node(tmp_path: pathlib.Path, fault: str, code: str, words: str) -> None:
    found = ask(tmp_path, fault, test_timeout=2.0 if fault == "train_hang" else 300.0, minutes=0.0)
    assert {o["reason_code"] for o in found} == {code} and len(found) == 4
    assert all(words in o["reason"] and not o["part"] for o in found)


def test_a_loss_that_does_not_fall_is_no_training(tmp_path: pathlib.Path) -> None:
    found = ask(tmp_path, "train_flat")
    assert {o["reason_code"] for o in found if o["check"] == "train" and o["part"]} == {"not_trained"}
    assert "from 1.225 to 1.2 in 60 steps" in of(found, "train", 3)[0]["reason"]


def test_some_of_the_gpus_or_more_than_there_are(tmp_path: pathlib.Path) -> None:
    nodes.planted(tmp_path, 1, gpus=2)
    for count, said in ((1, {None}), (3, {"gpu_count"})):
        given = {"python": str(tmp_path / "bin/python3"), "gpus": count}
        params = ArgumentSpecValidator(OPTIONS).validate(given).validated_parameters
        params["checks"] = train.default_checks(params)
        found = list(train.probe(params, Node(60, root=str(tmp_path), tools={"nvidia_smi": str(tmp_path / "bin/nvidia-smi")})))
        assert {o["reason_code"] for o in found} == said and len([o for o in found if o["part"]]) == (4 if count == 1 else 0)


def test_the_files_of_other_tools_say_the_same(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "reports"
    ask(tmp_path, results_dir=str(folder))
    summary, result = (json.loads((folder / name).read_text()) for name in ("summary.json", "gpu_tests_result.json"))
    assert summary["env"]["cuda_device_count"] == 8
    assert summary["gpu_tests"]["returncode"] == 0 and "losses" in summary["gpu_tests"]["stdout"]
    assert result["ok"] and {one["test"] for one in result["tests"]} == {"compute", "train", "burn_in"}
    ask(tmp_path, "train_odd", results_dir=str(folder))
    summary, result = (json.loads((folder / name).read_text()) for name in ("summary.json", "gpu_tests_result.json"))
    assert summary["gpu_tests"]["returncode"] == 2 and not result["ok"]
    assert {one["gpu"][-1] for one in result["tests"] if not one["ok"]} == {"7"}


def test_a_folder_that_cannot_be_written_is_told_and_costs_no_verdict(tmp_path: pathlib.Path) -> None:
    found = ask(tmp_path, results_dir="/proc/none")
    assert {one["outcome"] for one in found} == {"measured"} and "/proc/none could not be written" in found[0]["context"]["warnings"][0]
