# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers of an inventory that are out of their range: refused with the variable, what was found and what is expected."""

from __future__ import annotations

import typing as t

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import ranges
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import grouping, registry

ROLES = ("common", *registry.shipped())


def numbers(role: str) -> dict[str, dict[str, t.Any]]:
    specs = yaml.safe_load((collection.ROOT / f"roles/{role}/meta/argument_specs.yml").read_text(encoding="utf-8"))
    options = specs["argument_specs"]["main"]["options"]
    return {name: spec for name, spec in options.items() if {spec.get("type"), spec.get("elements")} & {"int", "float"}}


@pytest.mark.parametrize("role", ROLES)
def test_every_number_has_a_range_that_holds_its_default(role: str) -> None:
    for name, spec in numbers(role).items():
        assert ranges.of(name) is not None, f"{name} has no range: add it to planning/ranges.py"
        assert ranges.problem({name: spec}, {name: spec.get("default")}, role) is None
        if name.endswith("_timeout"):
            assert ranges.problem({name: spec}, {name: 0}, role) and ranges.problem({name: spec}, {name: -1}, role)
        if not name.endswith("_seed"):
            assert ranges.problem({name: spec}, {name: [-1] if spec["type"] == "list" else -1}, role), name
    for name, spec in grouping.Grouped.variables.items():
        assert spec["type"] not in ("int", "float") or ranges.of(f"lab_{name}")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("nccl_node_timeout", -1, "nccl_node_timeout: found -1, expected more than 0 and at most 31622400 seconds; see"),
        ("stack_timeout", 0, "stack_timeout: found 0, expected more than 0 and at most 31622400 seconds; see"),
        ("stack_timeout", float("inf"), "stack_timeout: found inf, expected more than 0"),
        ("stack_timeout", float("nan"), "stack_timeout: found nan, expected more than 0"),
        ("gemm_timeout", 6e8, "gemm_timeout: found 6e+08, expected more than 0"),
        ("acceptance_gpu_count", -8, "acceptance_gpu_count: found -8, expected at least 0; see"),
        ("acceptance_kube_ssh_port", 0, "acceptance_kube_ssh_port: found 0, expected at least 1 and at most 65535; see"),
        ("nccl_fabric_port", 70000, "nccl_fabric_port: found 70000, expected at least 1 and at most 65535; see"),
        ("ddp_straggler_percent", -1, "ddp_straggler_percent: found -1, expected at least 0 percent; see"),
        ("ddp_straggler_percent", 1000, None),
        ("rdma_size", 0, "rdma_size: found 0, expected at least 1 bytes; see"),
        ("rdma_ports_gbps", [400, 0], "rdma_ports_gbps: found 0, expected more than 0 and at most 100000 Gb/s; see"),
        ("acceptance_gpu_count", 0, None),
        ("acceptance_gpu_count", None, None),
        ("rdma_ports_gbps", [], None),
        ("train_seed", -1, None),
        ("stack_timeout", 0.5, None),
    ],
)
def test_a_number_out_of_its_range_is_refused_with_the_range(name: str, value: t.Any, expected: str | None) -> None:
    kind = {"type": "list", "elements": "float"} if isinstance(value, list) else {"type": "float"}
    found = ranges.problem({name: kind}, {name: value}, "ns.lab.role")
    assert found is None if expected is None else found and found.startswith(expected)


def test_of_a_stage_of_a_users_own_only_deadlines_have_ranges() -> None:
    spec = {"type": "int"}
    assert ranges.problem({"disk_batch": spec}, {"disk_batch": -1}, "disk", shipped=False) is None
    assert ranges.problem({"disk_timeout": spec}, {"disk_timeout": -1}, "disk", shipped=False)
    assert ranges.problem({"disk_batch": spec}, {"disk_batch": float("nan")}, "disk", shipped=False)
