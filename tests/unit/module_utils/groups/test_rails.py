# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A number is a rail's only where every node has the rail and NCCL says that it used it and nothing else."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import group, rails
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import ports as rdma_ports
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

FIXTURES = pathlib.Path(__file__).parents[3] / "fixtures"
HOSTS = ["gpu-01", "gpu-02"]
USED = "{host}:41:41 [0] NCCL INFO NET/IB : Using [0]{device}:1/RoCE [RO]; OOB bond0:10.0.0.1<0>\n"
SENT = "{host}:41:52 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/{way}/0/GDRDMA\n"


def said(device: str = "mlx5_1", way: str = "IB", hosts: t.Sequence[str] = HOSTS, prefix: str = "") -> str:
    return "".join(prefix + line.format(host=host, device=device, way=way) for host in hosts for line in (USED, SENT))


@pytest.mark.parametrize(
    ("text", "rail"),
    [
        (said(), "mlx5_1"),
        (said(), "mlx5_1:1"),
        (said(way="IBext_v8"), "mlx5_1"),
        (said(prefix="[default0]:"), "mlx5_1"),  # torchrun
        (said(prefix="[1,0]<stdout>:"), "mlx5_1"),  # mpirun --tag-output
        (said(hosts=[f"{host}.site.example" for host in HOSTS]), "mlx5_1"),
        (said() + said(), "mlx5_1"),
    ],
)
def test_nccl_says_that_it_used_the_rail_alone(text: str, rail: str) -> None:
    assert rails.doubt(text, rail, HOSTS) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "gpu-01 does not say which RDMA devices"),
        (said(hosts=HOSTS[:1]), "gpu-02 does not say which RDMA devices"),
        (said("mlx5_11"), "gpu-01 used mlx5_11:1"),
        (said(hosts=HOSTS[:1]) + said("mlx5_2", hosts=HOSTS[1:]), "gpu-02 used mlx5_2:1"),
        (said("mlx5_1:1/RoCE [1]mlx5_2"), "gpu-01 used mlx5_2:1"),
        (said(way="Socket"), "gpu-01 sent by way of Socket"),
        ("".join(USED.format(host=host, device="mlx5_1") for host in HOSTS), "gpu-01 does not say by which way"),
        # As NCCL 2.28 says it where there is none.
        (said().replace("Using [0]mlx5_1:1/RoCE [RO]", "Using [RO]"), "gpu-01 used no RDMA device"),
        (said() + USED.format(host="gpu-02", device="mlx5_3"), "gpu-02 used mlx5_3:1"),
    ],
)
def test_whatever_else_it_says_is_doubt(text: str, words: str) -> None:
    assert words in rails.doubt(text, "mlx5_1", HOSTS)


def test_real_words_of_sockets_where_there_is_no_device() -> None:
    """NCCL 2.28 was asked for mlx5_0, which the host has not, and gave numbers all the same."""
    text = (FIXTURES / "nccl-debug" / "rail-without-device.txt").read_text()
    assert rails.doubt(text, "mlx5_0", ["vm"]) == "NCCL on vm used no RDMA device"
    with_one = text.replace("NET/IB : Using [RO]", "NET/IB : Using [0]mlx5_0:1/RoCE [RO]")
    assert with_one != text and rails.doubt(with_one, "mlx5_0", ["vm"]) == "NCCL on vm sent by way of Socket"


def test_another_port_is_another_rail() -> None:
    assert "used mlx5_1:1" in rails.doubt(said(), "mlx5_1:2", HOSTS)


def test_ranks_are_told_of_the_device_by_its_whole_name() -> None:
    env = rails.environment("mlx5_1")
    assert env["NCCL_IB_HCA"] == "=mlx5_1" and env["NCCL_DEBUG"] == "INFO"
    ports = [{"device": f"mlx5_{n}", "port": 1} for n in (1, 10, 11)]
    assert [port["device"] for port in group.left_by(env["NCCL_IB_HCA"], ports)] == ["mlx5_1"]


def seat(
    name: str, count: int = 4, gpus: int = 8, near: dict[int, list[int]] | None = None, down: t.Collection[int] = ()
) -> group.GroupMember:
    ports = [{"device": f"mlx5_{n}", "port": 1, **({"near": near.get(n, [])} if near else {})} for n in range(count)]
    active = [port for n, port in enumerate(ports) if n not in down]
    inactive = [port for port in ports if port not in active]
    return group.GroupMember(name, name, gpus=[str(n) for n in range(gpus)], ports=active, down=inactive)


def test_every_node_without_the_rail_is_named() -> None:
    assert rails.lacking([seat("a"), seat("b")], "mlx5_3") is None
    code, reason = rails.lacking([seat("a"), seat("b", count=2), seat("c", down=[3])], "mlx5_3") or ("", "")
    assert code == "no_rdma" and reason == "rail mlx5_3: b has no such device, only mlx5_0, mlx5_1; c: its port is not active"
    assert (rails.lacking([seat("a"), seat("c", down=[3])], "mlx5_3") or ("", ""))[0] == "port_down"
    assert "b has no such device and no other" in str(rails.lacking([seat("b", count=0)], "mlx5_0"))


def test_a_rail_that_is_close_to_another_gpu_on_each_node_is_not_measured_by_a_third() -> None:
    code, reason = rails.lacking([seat("a", near={2: [3]}), seat("b", near={2: [5, 6]})], "mlx5_2") or ("", "")
    assert code == "unsupported" and "(a: 3; b: 5, 6)" in reason
    assert rails.lacking([seat("a", near={2: [3, 5]}), seat("b", near={2: [5]})], "mlx5_2") is None


@pytest.mark.parametrize(
    ("seats", "slot"),
    [
        ([seat("a"), seat("b")], 4),  # by its number: the third of four devices, eight GPUs
        ([seat("a", count=8), seat("b", count=8)], 2),
        ([seat("a", near={2: [6, 7]}), seat("b", near={2: [6, 7]})], 6),
        ([seat("a", near={2: [4, 5]}), seat("b", near={2: [4, 5]})], 4),
        ([seat("a", near={2: [5]}), seat("b")], 5),  # the other says nothing
        ([seat("a"), seat("b", gpus=1)], 0),
    ],
)
def test_the_gpu_of_a_rail_is_there_on_every_node(seats: list[group.GroupMember], slot: int) -> None:
    assert rails.slot(seats, "mlx5_2") == slot


def test_the_closest_gpus_are_those_behind_the_same_bridge(tmp_path: pathlib.Path) -> None:
    pci = tmp_path / "sys/bus/pci/devices"
    pci.mkdir(parents=True)
    for number in range(4):
        slot = tmp_path / f"sys/devices/pci0000:{number // 2}0/0000:{number // 2}0:01.0/0000:{number:02x}:00.0"
        slot.mkdir(parents=True)
        (slot / "class").write_text("0x030200\n")
        (slot / "vendor").write_text("0x10de\n")
        (pci / slot.name).symlink_to(slot)
    for number in range(2):
        slot = tmp_path / f"sys/devices/pci0000:{number}0/0000:{number}0:01.0/0000:a{number}:00.0"
        slot.mkdir()
        (tmp_path / f"sys/class/infiniband/mlx5_{number}/ports/1").mkdir(parents=True)
        (tmp_path / f"sys/class/infiniband/mlx5_{number}/device").symlink_to(slot)
    node = Node(60, root=str(tmp_path))
    found = rails.near(node, rdma_ports.read_devices(node), [{"bdf": f"00000000:0{n}:00.0"} for n in range(4)])
    assert found == {"mlx5_0": [0, 1], "mlx5_1": [2, 3]}
    assert rails.near(node, [], [{"bdf": None}]) == {}
