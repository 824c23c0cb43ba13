# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of the wrong kind: one sentence with the variable, what was found and what is expected."""

from __future__ import annotations

import typing as t

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry as planes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.ssh import plane as ssh
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.interface import refusal, structured_text
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import (
    base,
    ddp,
    hccl,
    hccl_local,
    nccl_fabric,
    nccl_node,
    sweep,
    train,
)

SPEC = {
    "acceptance_nodes": {"type": "dict"},
    "acceptance_gpu_count": {"type": "int"},
    "acceptance_kube_env": {"type": "dict"},
    "acceptance_kube_tolerations": {"type": "list", "elements": "dict"},
    "acceptance_exec": {"type": "dict", "options": {"args": {"type": "list", "elements": "str"}}},
    "acceptance_warn": {"type": "str", "choices": ["accept", "refuse"]},
    "disk_tests": {"type": "list", "elements": "str", "choices": ["read", "write"]},
    "acceptance_mode": {"type": "dict", "options": {"kind": {"type": "str", "choices": ["a", "b"]}}},
}
HIDDEN = {"acceptance_kube_env"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"acceptance_nodes": ["a", "b"]}, "acceptance_nodes: found ['a', 'b'], expected a mapping; see ansible-doc -t role ns.lab.common"),
        ({"acceptance_gpu_count": "eight"}, "acceptance_gpu_count: found 'eight', expected a whole number; see"),
        ({"acceptance_kube_tolerations": ["x"]}, "acceptance_kube_tolerations: found ['x'], expected a list, each of it a mapping; see"),
        ({"acceptance_exec": {"args": {}}}, "acceptance_exec: args: found {'args': {}}, expected a list as args; see"),
        ({"acceptance_kube_env": ["hunter2"]}, "acceptance_kube_env: expected a mapping; see"),
        ({"acceptance_warn": "never"}, "acceptance_warn: found 'never', expected one of accept, refuse; see ansible-doc"),
        ({"disk_tests": ["raed"]}, "disk_tests: found 'raed', expected one or more of read, write; see ansible-doc"),
        ({"acceptance_mode": {"kind": "c"}}, "acceptance_mode: kind: found 'c', expected one of a, b; see ansible-doc"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_variable_without_secrets(values: dict[str, t.Any], said: str) -> None:
    (message,) = ArgumentSpecValidator(SPEC).validate(dict(values)).error_messages
    words = refusal(message, "ns.lab.common", values, HIDDEN)
    assert words.startswith(said) and "<class" not in words and "hunter2" not in words


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"acceptance_warn": ["refuse"]}, "acceptance_warn: found ['refuse'], expected a text"),
        ({"acceptance_warn": {"a": 1}}, "acceptance_warn: found {'a': 1}, expected a text"),
        ({"disk_tests": ["read", ["write"]]}, "disk_tests: found ['read', ['write']], expected a list, each of it a text"),
        ({"acceptance_warn": 3, "disk_tests": "read", "acceptance_gpu_count": [1]}, None),
    ],
)
def test_a_list_where_a_text_should_be_is_not_read_as_its_form_in_python(values: dict[str, t.Any], said: str | None) -> None:
    assert structured_text(SPEC, values, HIDDEN) == said


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        (["8M:auto", "1G", "1:8", "8M:8M"], None),
        (["0:8"], "nccl_node_sizes: found '0:8', expected a smallest size of at least one byte"),
        (["16G:8M"], "nccl_node_sizes: found '16G:8M', expected the smaller size first: 8M:16G"),
        (["8M-1G"], "nccl_node_sizes: found '8M-1G', expected SMALLEST:LARGEST, like 8M:1G or 8M:auto"),
        (["8M:1G", "x:1G"], "nccl_node_sizes: found 'x:1G', expected SMALLEST:LARGEST, like 8M:1G or 8M:auto"),
    ],
)
def test_sizes_of_a_sweep_that_measure_nothing_are_refused(sizes: list[str], said: str | None) -> None:
    assert sweep.of_sizes("nccl_node_sizes", sizes) == said
    assert nccl_node.STAGE.problem({**defaults("nccl_node"), "nccl_node_sizes": sizes}) == said
    of_fabric = nccl_fabric.STAGE.problem({**defaults("nccl_fabric"), "nccl_fabric_sizes": sizes})
    assert of_fabric == (said and said.replace("nccl_node", "nccl_fabric"))


def defaults(role: str) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", yaml.safe_load((collection.ROOT / f"roles/{role}/defaults/main.yml").read_text()))


@pytest.mark.parametrize(
    ("stage", "changes", "said"),
    [
        (ddp.STAGE, {"rounds": 0}, "ddp_rounds: found 0, expected at least 1"),
        (ddp.STAGE, {"elements": -1}, "ddp_elements: found -1, expected at least 1"),
        (ddp.STAGE, {"iterations": 0}, "ddp_iterations: found 0, expected at least 1"),
        (ddp.STAGE, {"steps": 1}, "ddp_steps: found 1, expected at least 20"),
        (ddp.STAGE, {"straggler_percent": float("nan")}, "ddp_straggler_percent: found nan, expected at least 0"),
        (ddp.STAGE, {"straggler_percent": float("inf")}, "ddp_straggler_percent: found inf, expected at least 0"),
        (ddp.STAGE, {"sizes": "0:1G"}, "ddp_sizes: found '0:1G', expected a smallest size of at least one byte"),
        (ddp.STAGE, {"types": []}, "ddp_types: found an empty list, expected what is checked"),
        (ddp.STAGE, {"gpus": ["0"]}, "ddp_gpus: found '0', expected all, or a number from 1 on"),
        (ddp.STAGE, {"gpus": []}, "ddp: nothing is measured over its groups: a list that its checks are made of is empty"),
        (
            nccl_fabric.STAGE, {"tool": "torch", "ops": ["reduce"]},
            "nccl_fabric_ops: found 'reduce', expected what PyTorch measures: all_gather, all_reduce, alltoall, broadcast, reduce_scatter",
        ),
        (
            nccl_fabric.STAGE, {"tool": "torch", "types": ["uint8"]},
            "nccl_fabric_types: found 'uint8', expected what PyTorch measures: bfloat16, double, float, half, int32, int64",
        ),
        (hccl.STAGE, {"ops": []}, "hccl: nothing is measured over its groups: a list that its checks are made of is empty"),
        (hccl.STAGE, {"gpus": ["many"]}, "hccl_gpus: found 'many', expected all, or a number from 1 on"),
        (hccl.STAGE, {"factor": 1}, "hccl_factor: found 1, expected at least 2"),
        (hccl_local.STAGE, {"iterations": -20}, "hccl_local_iterations: found -20, expected at least 0"),
        (nccl_node.STAGE, {"iterations": 0}, "nccl_node_iterations: found 0, expected at least 1"),
        (train.STAGE, {"steps": 19}, "train_steps: found 19, expected at least 20"),
        (train.STAGE, {"batch": 0}, "train_batch: found 0, expected at least 1"),
    ],
)
def test_what_would_measure_nothing(stage: base.Stage, changes: dict[str, t.Any], said: str) -> None:
    given = defaults(stage.name)
    assert stage.problem(given) is None
    assert stage.problem({**given, **{f"{stage.name}_{name}": value for name, value in changes.items()}}) == said


def test_a_cluster_that_is_taken_for_a_machine() -> None:
    own = ["acceptance_nodes", "acceptance_gpu_count", "acceptance_kube_image", "acceptance_node_vars"]
    assert planes.unsupported_variables(planes.of({}, "lab"), own) == ["acceptance_kube_image", "acceptance_node_vars", "acceptance_nodes"]
    words = ssh._no_such_host("ssh: Could not resolve hostname lab: Name or service not known")
    assert "acceptance_plane: kubernetes" in words and ssh._no_such_host("Connection refused") == ""


def test_a_plane_says_whether_its_hosts_stand_for_many_nodes() -> None:
    """If a plane does not say it, a host with a reachability domain does."""
    assert planes.of({}, "lab").nodes_behind is False and planes.of({"acceptance_plane": "kubernetes"}, "lab").nodes_behind is True
    assert not base.stands_for_nodes({}) and base.stands_for_nodes({"acceptance_realm": "lab"})
    assert not base.stands_for_nodes({"acceptance_realm": "rack-1", "acceptance_nodes_behind": False})
    assert base.stands_for_nodes({"acceptance_nodes_behind": True})


def test_the_nodes_of_a_request_are_read_back_whatever_their_plane() -> None:
    for plane in planes.shipped().values():
        assert planes.chosen_by(plane.chosen(["n1", "n2"])) == ["n1", "n2"]
    assert planes.chosen_by({}) == [] and planes.lending() == {"kubernetes"}
