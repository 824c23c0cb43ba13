# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the stage ddp plans and refuses, and that its module, its role and its workload mean the same."""

from __future__ import annotations

import typing as t

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import ddp
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.ddp import DEFAULTS as OF_RANKS
from ansible_collections.gpufleet.acceptance.plugins.modules.ddp import OPTIONS
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import ddp as stage

DEFAULTS = yaml.safe_load((collection.ROOT / "roles/ddp/defaults/main.yml").read_text())


def wanted(**changes: t.Any) -> dict[str, t.Any]:
    return {**DEFAULTS, **{f"ddp_{name}": value for name, value in changes.items()}}


def test_what_is_checked() -> None:
    common = "backend=nccl gpus=all"
    sweep = f"{common} sizes=1M:4G type=float"
    found = stage.STAGE.checks(wanted(ops=["all_reduce", "all_gather"]))
    assert found == [("collectives", common), ("all_reduce", sweep), ("all_gather", sweep), ("training", common), ("pace", common)]
    assert len(stage.STAGE.checks(wanted(gpus=["all", "1"]))) == 8
    assert {check for check, _variant in found} <= {*stage.STAGE.conditions, "all_reduce", "all_gather"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [({}, None), ({"port": 80}, "ddp_port: found 80"), ({"port": 65500}, "ddp_port: found 6"), ({"sizes": "1G:1M"}, "ddp_sizes: found")],
)
def test_settings_that_make_no_sense(changes: dict[str, t.Any], words: str | None) -> None:
    said = stage.STAGE.problem(wanted(**changes))
    assert said is None if words is None else said and said.startswith(words)


def test_role_and_module_have_the_same_options() -> None:
    for name, option in OPTIONS.items():
        if f"ddp_{name}" in DEFAULTS and name not in ("gpus", "group"):
            assert option["default"] == DEFAULTS[f"ddp_{name}"], name


def test_each_rank_is_told_what_it_understands() -> None:
    members = [{"name": f"gpu-{n}", "address": f"10.0.0.{n}", "hostname": f"gpu-{n}", "gpus": 8, "local": n == 2} for n in (1, 2)]
    validated = ArgumentSpecValidator(OPTIONS).validate({"members": members, "sizes": "1M:1G", "type": "half"})
    params = validated.validated_parameters
    made = ddp.Trainer(params, Node(60), None)
    checks = ddp.default_checks(params)
    order = made.order(checks, made.group.seats)
    assert set(order) <= set(OF_RANKS) and order["parts"] == OF_RANKS["parts"]
    assert order["sizes"] == [1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30] and order["bandwidth_type"] == "float16"
    assert made.order(checks[2:], made.group.seats)["parts"] == ["training", "pace"]
    made.group.folder, made.group.ssh = "/tmp", ["ssh"]
    job = made.launch_of(checks, made.group.seats, [0, 3], 60)
    first, second = job.commands
    assert first.name == "gpu-2" and first.env["MASTER_PORT"] == "29500" and not first.leashed, "the head is the first node"
    assert first.env["CUDA_VISIBLE_DEVICES"] == "0,3" and job.ranks == 4 and second.leashed
    assert len(second.argv[-1]) < 128 << 10, "what the kernel takes as one argument"
