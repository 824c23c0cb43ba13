# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The leaves of nodes and the switch ports of suspects, from the map of a fabric."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import infiniband
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import subnet
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import places, reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.groups import Groups
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import End, Map
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.places import Places
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.journal import Journal
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import network, rdma
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.fabric_map import STAGE
from harness import records
from harness.fat_tree import FatTree


def of(tree: FatTree) -> Places:
    found = places.of_map(reading.read(tree.measured()).fabric)
    assert found is not None
    return found


def test_nodes_of_one_port_are_on_their_leaf_and_those_of_several_rails_on_all_leaves_of_their_group() -> None:
    assert of(FatTree(16)).leaf["gpu-0005"] == "leaf-2"
    assert of(FatTree(16, rails=2)).leaf["gpu-0005"] == "leaf-3+leaf-4"


def test_one_exchanged_cable_does_not_take_a_node_out_of_its_group_or_join_two_groups() -> None:
    tree = FatTree(16, rails=4)
    tree.swap("gpu-0001:1", "gpu-0009:1")
    leaf = of(tree).leaf
    assert leaf["gpu-0001"] == leaf["gpu-0002"] != leaf["gpu-0009"] == leaf["gpu-0010"]
    assert len(Groups(reading.read(tree.measured()).fabric).leaves) == 4


def test_a_suspect_is_said_with_the_switch_and_the_port_that_it_is_plugged_into() -> None:
    found = of(FatTree(16, rails=2))
    assert found.words("gpu-0006/nic/mlx5_1/1") == "gpu-0006 mlx5_1/1 is plugged into port 2 of leaf-4"
    assert found.words("gpu-0006").count("plugged into") == 2
    assert found.words("gpu-9999") == found.words("gpu-0006/gpu/GPU-1") == ""


def test_a_pair_is_said_with_the_switches_between_its_leaves() -> None:
    found = of(FatTree(16))
    assert found.words("gpu-0001|gpu-0005").endswith("between leaf-1 and leaf-2 are spine-1, spine-2")
    assert "between" not in found.words("gpu-0001|gpu-0002")
    ports = found.words("gpu-0001/nic/mlx5_0/1|gpu-0005/nic/mlx5_0/1")
    assert ports.startswith("gpu-0001 mlx5_0/1 is plugged into port 1 of leaf-1; gpu-0005") and "spine-2" in ports


def test_names_that_may_not_stand_in_an_id_make_no_leaf() -> None:
    tree = FatTree(16)
    records = tree.measured()
    for device in records[-1].context["fabrics"][0]["devices"]:
        device[2] = device[2].replace("leaf-1:", "leaf|1:")
    found = places.of_map(reading.read(records).fabric)
    assert found is not None and "gpu-0001" not in found.leaf and found.leaf["gpu-0005"] == "leaf-2"


def test_the_newest_run_that_has_a_map_is_taken_where_the_run_has_none(tmp_path: pathlib.Path) -> None:
    for name, tree in (("20260101T000000Z-000001", FatTree(16)), ("20260102T000000Z-000001", FatTree(16, rails=2))):
        run = Run(str(tmp_path), name)
        run.make()
        (run.dir / "plan.json").write_text('{"stages": [{"name": "fabric_map"}]}')
        Journal(run.journal.path).append([record.as_dict() for record in tree.measured()])
    last = Run(str(tmp_path), "20260103T000000Z-000001")
    found = network.newest(last, [STAGE], [])
    assert found is not None and found.run == "20260102T000000Z-000001"
    assert found.words("gpu-0001/nic/mlx5_1/1").endswith("port 1 of leaf-2 (by the map of run 20260102T000000Z-000001)")
    own = network.newest(last, [STAGE], FatTree(16).measured())
    assert own is not None and own.run == ""
    assert network.newest(Run(str(tmp_path), "20260101T000000Z-000000"), [STAGE], []) is None


@pytest.mark.parametrize(("given", "hops"), [({}, {"hops": 1}), ({"rdma_leaf": "x"}, {"hops": 1}), ({"rdma_leaf": ""}, {"hops": 1})])
def test_ports_on_one_leaf_are_one_hop_apart_by_the_map_unless_the_inventory_says_its_leaves(given: dict[str, str], hops: object) -> None:
    nodes = {name: name for name in ("gpu-0001", "gpu-0002", "gpu-0005")}
    settings = {name: {"rdma_tcp_ports": "18515-19000", **given} for name in nodes}
    book = rdma.Timetable(nodes, settings, {}, [], None, of(FatTree(16)))
    near = ("gpu-0001/nic/mlx5_0/1", "gpu-0002/nic/mlx5_0/1")
    far = ("gpu-0001/nic/mlx5_0/1", "gpu-0005/nic/mlx5_0/1")
    assert book._hops("gpu-0001", "gpu-0002", near) == hops
    # "x" is the leaf of all nodes in the inventory, which counts although the map says otherwise.
    assert book._hops("gpu-0001", "gpu-0005", far) == (hops if given.get("rdma_leaf") else {})


def routed() -> Map:
    """Return the recorded fabric, in which OpenSM has set the routes, with all of its hosts as nodes."""
    folder = pathlib.Path(__file__).resolve().parents[3] / "fixtures/infiniband/healthy"
    found = infiniband.discovery((folder / "ibnetdiscover.txt").read_text())
    seen = subnet.plain({"device": "mlx5_0", "port": 1}, found, {}, None, None, None, {})
    seen["routes"] = subnet.packed_routes(found, infiniband.routes((folder / "dump_fts.txt").read_text()))
    hosts = {device.name.split()[0]: device.port_guids[1] for device in found.devices.values() if device.kind == infiniband.ADAPTER}
    port = {"device": "mlx5_0", "port": 1, "state": "ACTIVE", "link_layer": "InfiniBand", "heard": []}
    checks = [("ports", host, {"ports": [{**port, "guid": guid}]}) for host, guid in hosts.items()]
    return reading.read(
        records.measurement({"stage": "fabric_map", "check": check, "subject": {"kind": "node", "id": host, "members": []},
                             "target": host, "context": context})
        for check, host, context in [*checks, ("discovery", "gpu-01", {"fabrics": [seen]})]
    ).fabric  # fmt: skip


def test_a_path_is_named_with_the_ports_by_which_its_packets_go() -> None:
    found = places.of_map(routed())
    assert found is not None
    # As ibtracert of the same fabric says.
    there = "packets from gpu-02 mlx5_0/1 to gpu-16 mlx5_0/1 go by port 8 of leaf-1, port 8 of spine-2"
    for subject in ("gpu-02/nic/mlx5_0/1|gpu-16/nic/mlx5_0/1", "gpu-02|gpu-16"):
        said = found.words(subject)
        assert there in said and "packets from gpu-16 mlx5_0/1 to gpu-02 mlx5_0/1 go by port " in said and "between" not in said, said
    # Two nodes at one leaf have no other way.
    assert "packets" not in found.words("gpu-01|gpu-02")


def test_routes_that_lead_nowhere_are_none() -> None:
    fabric = routed()
    switches = list(fabric.routes)
    for table in (None, bytes(16), bytes([5] * 16), b""):
        fabric.routes = {} if table is None else dict.fromkeys(switches, table)
        assert fabric.route(End("gpu-02", "mlx5_0/1"), End("gpu-16", "mlx5_0/1")) == []
        found = places.of_map(fabric)
        assert found is not None and "between leaf-1 and leaf-4 are spine-1, spine-2" in found.words("gpu-02|gpu-16")
