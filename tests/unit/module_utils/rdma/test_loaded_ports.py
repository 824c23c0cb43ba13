# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA ports under load beside the GPUs, over the simulated perftest."""

from __future__ import annotations

import pathlib
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import loaded_ports
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from rigs.simulated import pairs


def machine(root: pathlib.Path, *lines: str, ports: int = 2) -> dict[str, t.Any]:
    """A machine with RDMA ports; return the options of the stage for it."""
    pairs.sysfs(root, [f"127.{rail + 1}.77.1" for rail in range(ports)])
    pairs.conf(root, "pace 0.1", "seconds 0.1", *lines)
    return {"loopback_devices": [], "loopback_binary_dir": str(pairs.tools_of(root)), "loopback_tcp_port": 21515}


def rows(root: pathlib.Path, options: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    ports = loaded_ports.LoadedPorts(options, Node(60, root=str(root)))
    assert ports.problem is None
    with ports.loaded(4) as loaded:
        time.sleep(0.01)
    return loaded.rows


def test_all_ports_are_loaded(tmp_path: pathlib.Path) -> None:
    found = rows(tmp_path, machine(tmp_path))
    assert [one["part"] for one in found] == ["nic/mlx5_0/1", "nic/mlx5_1/1"]
    assert all(one["bandwidth"] > 300 and one["problem"] is None for one in found)


def test_a_port_that_dies_has_no_number(tmp_path: pathlib.Path) -> None:
    found = rows(tmp_path, machine(tmp_path, "die 127.2.77.1"))
    assert found[0]["problem"] is None and found[1]["bandwidth"] is None and found[1]["problem"][0] == "error"


def test_perftest_that_is_missing_is_named_with_what_to_do(tmp_path: pathlib.Path) -> None:
    found = rows(tmp_path, {**machine(tmp_path), "loopback_binary_dir": "/nonexistent"})
    assert found[0]["problem"][1] == "tool_missing" and "soak_loopback: false" in found[0]["problem"][2]


def test_a_load_that_does_not_end_is_ended_with_the_gpus(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_ports, "LEAST_S", 0.0)
    options = machine(tmp_path, "hang 127.1.77.1", ports=1)
    ports = loaded_ports.LoadedPorts(options, Node(60, root=str(tmp_path)))
    with ports.loaded(1) as loaded:
        pass
    assert loaded.rows[0]["problem"][:2] == ["error", "interrupted"]


@pytest.mark.parametrize(
    ("change", "devices", "outcome", "code"),
    [
        (lambda root: None, ["bnxt*"], "error", "no_rdma"),
        (lambda root: (root / "sys/class/infiniband/mlx5_0/ports/1/state").write_text("1: DOWN\n"), [], "error", "port_down"),
    ],
)
def test_ports_that_cannot_be_loaded_say_why(tmp_path: pathlib.Path, change: t.Any, devices: list[str], outcome: str, code: str) -> None:
    options = {**machine(tmp_path, ports=1), "loopback_devices": devices}
    change(tmp_path)
    problem = loaded_ports.LoadedPorts(options, Node(60, root=str(tmp_path))).problem
    assert problem is not None and problem[:2] == (outcome, code)


def test_a_node_without_rdma_skips(tmp_path: pathlib.Path) -> None:
    options = {"loopback_devices": [], "loopback_binary_dir": "", "loopback_tcp_port": 21515}
    problem = loaded_ports.LoadedPorts(options, Node(60, root=str(tmp_path))).problem
    assert problem is not None and problem[:2] == ("not_applicable", "no_rdma_expected")
