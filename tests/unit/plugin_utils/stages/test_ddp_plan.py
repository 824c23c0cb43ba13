# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the stage ddp plans and refuses, and that its module, its role and its workload mean the same."""

from __future__ import annotations

import json
import typing as t

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import ddp
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.ddp import DEFAULTS as OF_RANKS
from ansible_collections.gpufleet.acceptance.plugins.modules.ddp import OPTIONS
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import ddp as stage

# What is for the agent that starts the ranks: how a node's PyTorch is known to be built for its devices.
OF_AGENTS = {"build", "build_word", "blas", "visible", "device_files"}
DEFAULTS = yaml.safe_load((collection.ROOT / "roles/ddp/defaults/main.yml").read_text())


def wanted(**changes: t.Any) -> dict[str, t.Any]:
    return {**DEFAULTS, **{f"ddp_{name}": value for name, value in changes.items()}}


def test_the_variables_choose_the_checks_of_ddp() -> None:
    common = "backend=nccl gpus=all"
    sweep = f"{common} sizes=1M:4G type=float"
    found = stage.STAGE.checks(wanted(ops=["all_reduce", "all_gather"]))
    assert found == [("collectives", common), ("all_reduce", sweep), ("all_gather", sweep), ("training", common), ("pace", common)]
    assert len(stage.STAGE.checks(wanted(gpus=["all", "1"]))) == 8
    assert {check for check, _variant in found} <= {*stage.STAGE.conditions, "all_reduce", "all_gather"}


def test_values_and_bandwidth_are_checked_over_each_rail_in_a_launch_of_its_own() -> None:
    found = stage.STAGE.checks(wanted(rails=["mlx5_0", "mlx5_1"], gpus=["8"]))
    assert found[:4] == stage.STAGE.checks(wanted(gpus=["8"]))
    parts = (("collectives", ""), ("all_reduce", " sizes=1M:4G type=float"))
    assert found[4:] == [(check, f"backend=nccl gpus=1 rail=mlx5_{n}{more}") for n in (0, 1) for check, more in parts]
    head = ddp.Trainer(ArgumentSpecValidator(OPTIONS).validate({"members": []}).validated_parameters, Node(60), None)
    assert [len(several) for several in head.batches([{"check": c, "variant": v} for c, v in found])] == [4, 2, 2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"port": 80}, "ddp_port: found 80"),
        ({"port": 65500}, "ddp_port: found 6"),
        ({"sizes": "1G:1M"}, "ddp_sizes: found"),
        ({"rails": ["mlx5_0", "mlx5_1:2"]}, None),
        ({"rails": ["mlx5_0"], "backend": "gloo"}, "ddp_rails: found ddp_backend gloo"),
        ({"rails": ["mlx5_0", "mlx5_0"]}, "ddp_rails: found 'mlx5_0', expected RDMA devices, each once"),
    ],
)
def test_settings_that_make_no_sense(changes: dict[str, t.Any], words: str | None) -> None:
    said = stage.STAGE.problem(wanted(**changes))
    assert said is None if words is None else said and said.startswith(words)


def test_role_and_module_have_the_same_options() -> None:
    for name, option in OPTIONS.items():
        if f"ddp_{name}" in DEFAULTS and name not in ("gpus", "group", "python"):  # python is acceptance_python
            assert option["default"] == DEFAULTS[f"ddp_{name}"], name


def test_each_rank_is_told_what_it_understands() -> None:
    members = [{"name": f"gpu-{n}", "address": f"10.0.0.{n}", "hostname": f"gpu-{n}", "gpus": 8, "local": n == 2} for n in (1, 2)]
    validated = ArgumentSpecValidator(OPTIONS).validate({"members": members, "sizes": "1M:1G", "type": "half"})
    params = validated.validated_parameters
    made = ddp.Trainer(params, Node(60), None)
    checks = ddp.default_checks(params)
    order = made.order(checks, made.group.members)
    assert set(order) <= {*OF_RANKS, *OF_AGENTS} and order["parts"] == OF_RANKS["parts"]
    assert order["sizes"] == [1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30] and order["bandwidth_type"] == "float16"
    assert made.order(checks[2:], made.group.members)["parts"] == ["training", "pace"]
    made.group.folder, made.group.ssh = "/nonexistent/folder", ["ssh"]
    job = made.launch_of(checks, made.group.members, [0, 3], 60)
    first, second = job.commands
    assert first.name == "gpu-2" and first.env["MASTER_PORT"] == "29500" and not first.leashed, "the head is the first node"
    assert first.env["CUDA_VISIBLE_DEVICES"] == "0,3" and job.ranks == 4 and second.leashed
    assert len(second.argv[-1]) < 128 << 10, "what the kernel takes as one argument"


def test_an_unknown_backend_gets_one_error() -> None:
    (said,) = ArgumentSpecValidator(OPTIONS).validate({"members": [], "backend": "mpi"}).error_messages
    assert said == "value of backend must be one of: nccl, gloo, hccl, auto, got: mpi"


HERE = {"hostname": "n-2", "gpus": ["a", "b"], "memory_mib": 65536, "ports": [], "nvlink_domain": "", "refused": None, "simulated": True}


@pytest.mark.parametrize(
    ("backend", "kind", "gpu", "carries", "sees"),
    [
        ("auto", "ascend", "Ascend 910B3", "hccl", "ASCEND_RT_VISIBLE_DEVICES"),
        ("hccl", "ascend", "Ascend 910B3", "hccl", "ASCEND_RT_VISIBLE_DEVICES"),
        ("auto", "nvidia", "NVIDIA H200", "nccl", "CUDA_VISIBLE_DEVICES"),
        ("gloo", "nvidia", "NVIDIA H200", "gloo", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_npus_train_by_hccl(backend: str, kind: str, gpu: str, carries: str, sees: str) -> None:
    members = [{"name": f"n-{n}", "address": f"10.0.0.{n}", "hostname": f"n-{n}", "gpus": 2, "local": n == 2} for n in (1, 2)]
    params = ArgumentSpecValidator(OPTIONS).validate({"members": members, "backend": backend}).validated_parameters
    made = ddp.Trainer(params, Node(60), {**HERE, "kind": kind, "gpu": gpu})
    made.group.folder, made.group.ssh = "/nonexistent/folder", ["ssh"]
    checks = ddp.default_checks(params)
    assert {check["variant"].split()[0] for check in checks} == {f"backend={backend}"} and len(made.batches(checks)) == 1
    made.group.members[0].gpu = gpu
    job = made.launch_of(checks, made.group.members, [1], 60)
    told = json.loads(job.commands[0].argv[-1])
    assert told["order"]["backend"] == carries and told["nodes"] == ["n-2", "n-1"] and job.commands[0].env[sees] == "1"
    context = made.context_of("all_reduce", {}, made.group.members, [1])
    assert context["gpu"] == gpu and not context["nvls"] and not context["mnnvl"]


NODES = {f"gpu-0{n}": f"gpu-0{n}" for n in range(1, 5)}


@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        ({}, {"ddp": [*NODES]}),
        ({"node_count": 2}, {"ddp": ["gpu-01", "gpu-02"]}),
        ({"world_size": 24, "gpus": ["8"]}, {"ddp": ["gpu-01", "gpu-02", "gpu-03"]}),
        ({"group": ("a", "b", "a", "b")}, {"ddp/a": ["gpu-01", "gpu-03"], "ddp/b": ["gpu-02", "gpu-04"]}),
        ({"group": ("a", "", "a", "")}, {"ddp/a": ["gpu-01", "gpu-03"]}),
    ],
)
def test_groups_are_those_of_nccl_fabric(changes: dict[str, t.Any], groups: dict[str, list[str]]) -> None:
    settings = {
        node: {
            **wanted(**{name: value[at] if isinstance(value, tuple) else value for name, value in changes.items()}),
            "acceptance_plane": "ssh", "acceptance_fabric_address": f"10.0.0.{at}",
        }
        for at, node in enumerate(NODES)
    }  # fmt: skip
    items, _notes = stage.STAGE.items(NODES, settings)
    assert {item["subject"]["id"]: item["subject"]["members"] for item in items if item["check"] == "training"} == groups
