# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA ports from sysfs: trees of mlx5 devices, and soft-RoCE's as it was recorded, which lacks some of the files."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import rdma_ports
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import gid
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from rigs.simulated import pairs

PARAMS: dict[str, t.Any] = {
    "checks": [{"check": "ports", "variant": ""}], "devices": [], "port": None, "network": [], "gid_index": None, "roce_version": 2,
    "address_family": "", "link_local": False,
}  # fmt: skip


def seen(root: pathlib.Path, **params: t.Any) -> dict[str, t.Any]:
    (found,) = rdma_ports.probe({**PARAMS, **params}, Node(10, root=str(root)))
    return found


def codes(found: dict[str, t.Any]) -> list[tuple[str, str]]:
    return [(f["code"], f["part"]) for f in found["context"]["findings"]]


def recorded(fixtures: pathlib.Path, root: pathlib.Path, name: str = "rxe0") -> None:
    """The recorded sysfs of a soft-RoCE device as files."""
    device = root / "sys/class/infiniband" / name
    for line in (fixtures / "perftest-rxe/sysfs_infiniband.rv01.txt").read_text().splitlines():
        file = re.match(r"^\./(\S+)\t(.*)~$", line)
        entry = re.match(r"^ports/1/gids/(\d+) (\S+) \| types: (.*) \| ndevs: (.*)$", line)
        files = {}
        if file and "error reading" not in file.group(2):
            files[file.group(1)] = file.group(2)
        elif entry:
            files[f"ports/1/gids/{entry.group(1)}"] = entry.group(2)
            if "Invalid" not in entry.group(3):
                files[f"ports/1/gid_attrs/types/{entry.group(1)}"] = entry.group(3)
                files[f"ports/1/gid_attrs/ndevs/{entry.group(1)}"] = entry.group(4)
        for path, text in files.items():
            (device / path).parent.mkdir(parents=True, exist_ok=True)
            (device / path).write_text(text + "\n")


def test_a_machine_as_it_should_be(tmp_path: pathlib.Path) -> None:
    pairs.sysfs(tmp_path, [f"10.0.{rail}.1" for rail in range(12)])
    found = seen(tmp_path)
    assert found["outcome"] == "measured" and codes(found) == []
    ports = found["context"]["ports"]
    assert [p["device"] for p in ports] == [f"mlx5_{rail}" for rail in range(12)]  # numbers as numbers
    assert [p["gid"]["address"] for p in ports] == [f"10.0.{rail}.1" for rail in range(12)]
    assert {p["gid"]["index"] for p in ports} == {3}
    assert (ports[0]["rate_gbps"], ports[0]["width"], ports[0]["speed"], ports[0]["state"]) == (400.0, 4, "NDR", "ACTIVE")
    assert found["context"]["table"][11] == "mlx5_11 port 1 ==> ens11np0 (Up)"
    device = found["context"]["devices"][0]
    assert (device["driver"], device["type"], device["firmware"]) == ("mlx5_core", "MT4129", "28.39.1002")
    assert device["pcie"]["current"] == {"speed": 32.0, "width": 16}
    assert "10.0.11.1 RoCE v2 ens11np0 *" in found["raw"]


def test_soft_roce_lacks_files(fixtures: pathlib.Path, tmp_path: pathlib.Path) -> None:
    recorded(fixtures, tmp_path)
    found = seen(tmp_path)
    assert found["outcome"] == "measured" and codes(found) == []
    (port,) = found["context"]["ports"]
    assert (port["netdev"], port["gid"]["index"], port["gid"]["address"]) == ("eth1", 1, "10.214.0.101")
    assert port["counters"]["rcvd_pkts"] == 252961
    assert found["context"]["devices"][0]["driver"] == "rdma_rxe"
    assert found["context"]["warnings"] == ["not of the driver mlx5: rxe0 (rdma_rxe)"]
    linked = seen(tmp_path, network=["192.168.0.0/16"])
    assert codes(linked) == [("no_gid", "nic/rxe0/1")]
    text = linked["context"]["findings"][0]["text"]
    assert "in 192.168.0.0/16" in text and "1: 10.214.0.101 RoCE v2 eth1" in text


def test_a_node_without_the_wanted_rdma_devices_is_no_rdma(tmp_path: pathlib.Path) -> None:
    assert seen(tmp_path)["reason_code"] == "no_rdma"
    pairs.sysfs(tmp_path, ["10.0.0.1"])
    missing = seen(tmp_path, devices=["mlx5_bond_*"])
    assert missing["reason_code"] == "no_rdma" and "there are: mlx5_0" in missing["reason"]


def test_ports_that_are_down_narrow_or_differ_are_findings(tmp_path: pathlib.Path) -> None:
    pairs.sysfs(tmp_path, [f"10.0.{rail}.1" for rail in range(4)])
    pairs.port(tmp_path, 1, "10.0.1.1", "DOWN", "10 Gb/sec (4X SDR)", "s")
    pairs.port(tmp_path, 2, "10.0.2.1", "ACTIVE", "200 Gb/sec (2X NDR)", "s", firmware="28.30.1000")
    (tmp_path / "sys/devices/pci0000:00/0000:03:00.0/current_link_width").write_text("8\n")
    assert sorted(codes(seen(tmp_path))) == [
        ("firmware", "nic/mlx5_0/1"),
        ("link_slow", "nic/mlx5_2/1"),
        ("link_slow", "nic/mlx5_2/1"),
        ("pcie_width", "nic/mlx5_3/1"),
        ("port_down", "nic/mlx5_1/1"),
    ]


def table(*entries: tuple[str, str]) -> list[gid.Gid]:
    return [{"index": i, "gid": "", "address": address, "type": kind, "netdev": "eth0"} for i, (address, kind) in enumerate(entries)]


USUAL = table(
    ("fe80::1", "RoCE v1"), ("fe80::1", "RoCE v2"), ("10.0.0.1", "RoCE v1"), ("10.0.0.1", "RoCE v2"), ("fd00::1", "RoCE v2"),
    ("192.168.5.228", "RoCE v2"), ("169.254.3.4", "RoCE v2"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "index"),
    [
        ({}, 3),
        ({"allowed_networks": ["192.168.0.0/16"]}, 5),
        ({"allowed_networks": ["fd00::/8"]}, 4),
        ({"family": "ipv6"}, 4),
        ({"version": 1}, 2),
        ({"index": 6}, 6),
        ({"allowed_networks": ["fe80::/64"]}, None),
        ({"allowed_networks": ["fe80::/64"], "allow_link_local": True}, 1),
        ({"allowed_networks": ["172.16.0.0/12"]}, None),
        ({"index": 9}, None),
    ],
)
def test_the_settings_choose_the_gid(settings: dict[str, t.Any], index: int | None) -> None:
    found, why = gid.choose(USUAL, **settings)
    assert (found[0]["index"] if found else None) == index
    assert bool(why) == (not found) and (found or "5: 192.168.5.228 RoCE v2 eth0" in why)


def test_gids_are_preferred_by_kind_whatever_their_order() -> None:
    """IPv4 before IPv6 and link-local last, wherever they stand."""
    found, _why = gid.choose(USUAL[::-1])
    assert [g["address"] for g in found] == ["10.0.0.1", "192.168.5.228", "fd00::1"]
    found, _why = gid.choose(table(("fe80::1", "RoCE v2"), ("fd00::1", "RoCE v2")), allow_link_local=True)
    assert [g["address"] for g in found] == ["fd00::1", "fe80::1"]


def test_two_nodes_choose_gids_of_a_network_that_they_share() -> None:
    ours = table(("10.0.0.1", "RoCE v2"), ("192.168.5.228", "RoCE v2"), ("fd00::1", "RoCE v2"))
    for theirs, prefix, indexes in (
        (table(("10.0.0.2", "RoCE v2"), ("192.168.5.1", "RoCE v2")), 16, (0, 0)),
        (table(("192.168.9.1", "RoCE v2")), 16, (1, 0)),
        (table(("192.168.9.1", "RoCE v2")), None, (0, 0)),  # another /24, and nobody knows better
        (table(("fd00::2", "RoCE v2")), 24, (2, 0)),
        (table(("172.16.0.1", "RoCE v2")), 24, (0, 0)),
    ):
        own, other = gid.of_one_network(ours, theirs, prefix)
        assert (own["index"], other["index"]) == indexes


def test_a_text_that_is_no_network_is_refused() -> None:
    with pytest.raises(ValueError, match=r"10\.0\.0\.0/40"):
        gid.choose(USUAL, ["10.0.0.0/40"])


def test_what_the_inventory_says_of_the_rails(tmp_path: pathlib.Path) -> None:
    """Rails of two rates are as they should be where that is said; a slower one, or another number of them, is not."""
    pairs.sysfs(tmp_path, ["10.0.0.1"], rate="400 Gb/sec (4X NDR)")
    pairs.port(tmp_path, 1, "10.0.1.1", "ACTIVE", "200 Gb/sec (4X HDR)", "x")
    assert codes(seen(tmp_path)) == [("link_slow", "nic/mlx5_1/1")], "without a word siblings should be alike"
    assert codes(seen(tmp_path, gbps=[400.0, 200.0], rails=2)) == []
    assert codes(seen(tmp_path, gbps=[200.0])) == [], "it is the least"
    assert codes(seen(tmp_path, gbps=[400.0])) == [("link_slow", "nic/mlx5_1/1")]
    assert len(codes(seen(tmp_path, gbps=[0.0]))) == 2, "no rate is nothing to be held to"
    found = seen(tmp_path, gbps=[400.0] * 8, rails=8)
    assert codes(found) == [("rail_order", ""), ("rail_order", ""), ("link_slow", "nic/mlx5_1/1")]
    text = found["context"]["findings"][0]["text"]
    assert text == "2 rails (mlx5_0 port 1, mlx5_1 port 1), rdma_ports_rails says 8"
    assert found["context"]["wanted"] == {"rails": 8, "gbps": [400.0] * 8}


def test_a_rate_that_cannot_be_read_is_not_the_one_that_was_asked_for(tmp_path: pathlib.Path) -> None:
    pairs.sysfs(tmp_path, ["10.0.0.1"], rate="?")
    found = seen(tmp_path, gbps=[400.0])
    assert codes(found) == [("link_slow", "nic/mlx5_0/1")] and "cannot be read" in found["context"]["findings"][0]["text"]


def test_ports_name_the_switch_that_they_are_connected_to(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs.sysfs(tmp_path, ["10.0.0.1", "10.0.1.1"])
    assert [(p["switch"], p["switch_port"]) for p in seen(tmp_path)["context"]["ports"]] == [(None, None)] * 2
    program = tmp_path / "bin/lldpctl"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho lldp.ens1np0.chassis.name=leaf-03; echo lldp.ens1np0.port.ifname=Ethernet1/7\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    assert [(p["switch"], p["switch_port"]) for p in seen(tmp_path)["context"]["ports"]] == [(None, None), ("leaf-03", "Ethernet1/7")]
    program.write_text("#!/bin/sh\necho lldp.ens1np0.chassis.name=leaf-03; exit 1\n")
    assert seen(tmp_path)["context"]["ports"][1]["switch"] is None


# Counters that stand high -------------------------------------------------------------------------------------------

COUNTED = (
    "ports/1/counters/link_downed", "ports/1/counters/link_error_recovery", "ports/1/counters/symbol_error",
    "ports/1/counters/port_rcv_errors", "ports/1/counters/local_link_integrity_errors",
    "ports/1/counters/excessive_buffer_overrun_errors",
)  # fmt: skip
OF_INTERFACE = ("carrier_down_count", "statistics/rx_crc_errors")


def written(root: pathlib.Path, rail: int, name: str, text: str) -> None:
    folder = "sys/class/net/" + f"ens{rail}np0" if name in OF_INTERFACE else f"sys/class/infiniband/mlx5_{rail}"
    path = root / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


@pytest.mark.parametrize("name", [*COUNTED, *OF_INTERFACE])
@pytest.mark.parametrize(
    ("count", "usual", "is_found"), [("4000", "0", True), ("65535", "2", True), ("3", "0", False), ("15", "12", False)]
)
def test_a_port_whose_counters_of_errors_stand_high_is_worth_a_look(
    tmp_path: pathlib.Path, name: str, count: str, usual: str, is_found: bool
) -> None:
    pairs.sysfs(tmp_path, [f"10.0.{rail}.1" for rail in range(4)])
    (tmp_path / "proc").mkdir(exist_ok=True)
    (tmp_path / "proc/uptime").write_text("8640000.00 1.00\n")  # a hundred days
    for rail in range(4):
        written(tmp_path, rail, name, count if rail == 2 else usual)
    assert codes(seen(tmp_path)) == ([("port_errors", "nic/mlx5_2/1")] if is_found else [])


def test_counters_that_are_high_on_all_ports_are_held_to_the_time_since_boot(tmp_path: pathlib.Path) -> None:
    pairs.sysfs(tmp_path, [f"10.0.{rail}.1" for rail in range(4)])
    for rail in range(4):
        written(tmp_path, rail, COUNTED[0], "500")
    assert [code for code, _part in codes(seen(tmp_path))] == ["port_errors"] * 4


def test_a_counter_that_cannot_be_read_counts_for_nobody(tmp_path: pathlib.Path) -> None:
    pairs.sysfs(tmp_path, [f"10.0.{rail}.1" for rail in range(4)])
    for rail in range(4):
        written(tmp_path, rail, COUNTED[0], "N/A" if rail else "-1")
    assert codes(seen(tmp_path)) == []


def test_an_active_port_without_a_rate_is_unknown_beside_siblings_that_have_one(tmp_path: pathlib.Path) -> None:
    pairs.sysfs(tmp_path, [f"10.0.{rail}.1" for rail in range(4)])
    for text in ("", "N/A", "Unknown"):
        written(tmp_path, 2, "ports/1/rate", text)
        assert codes(seen(tmp_path)) == [("no_answer", "nic/mlx5_2/1")]


def test_a_slow_port_whose_adapter_gives_no_board_is_one_of_its_chip(tmp_path: pathlib.Path) -> None:
    pairs.sysfs(tmp_path, [f"10.0.{rail}.1" for rail in range(4)])
    written(tmp_path, 2, "board_id", "")
    written(tmp_path, 2, "ports/1/rate", "100 Gb/sec (1X NDR)")
    assert ("link_slow", "nic/mlx5_2/1") in codes(seen(tmp_path))
