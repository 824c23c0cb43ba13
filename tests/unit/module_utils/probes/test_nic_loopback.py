# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports against themselves over the simulated perftest, skip rules over trees of sysfs, and a recording of soft-RoCE."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import nic_loopback
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import loopback, perftest_sides
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.modules.nic_loopback import OPTIONS
from rigs.simulated import pairs

RECORDINGS = pathlib.Path(__file__).resolve().parents[3] / "fixtures" / "perftest-rxe"
# Runs of these tests side by side have ports of their own.
PORT = 24000 + os.getpid() % 1000 * 8
Found = t.List[t.Dict[str, t.Any]]


def machine(root: pathlib.Path, ports: int = 2, *lines: str, **of_ports: t.Any) -> pathlib.Path:
    pairs.sysfs(root, [f"127.{rail + 1}.7.1" for rail in range(ports)], **of_ports)
    pairs.conf(root, "pace 0.05", "seconds 0.05", *lines)
    return root


def measure(root: pathlib.Path, **options: t.Any) -> Found:
    given = {"binary_dir": str(pairs.tools_of(root)), "duration": 1, "tcp_port": PORT, **options}
    params = ArgumentSpecValidator(OPTIONS).validate(given).validated_parameters
    params["checks"] = nic_loopback.default_checks(params)
    return list(nic_loopback.probe(params, Node(100, root=str(root))))


def of(found: Found, check: str, part: str = "") -> dict[str, t.Any]:
    (one,) = [one for one in found if one["check"] == check and one["part"] == part]
    return one


def told(found: Found) -> set[tuple[str, str | None]]:
    return {(one["outcome"], one["reason_code"]) for one in found}


def test_every_port_alone_and_all_at_once(tmp_path: pathlib.Path) -> None:
    found = measure(machine(tmp_path))
    parts = ["nic/mlx5_0/1", "nic/mlx5_1/1"]
    assert told(found) == {("measured", None)} and len(found) == 1 + 6 * 3
    for check in loopback.TESTS:
        whole = of(found, check)
        assert whole["members"] == parts and whole["simulated"] and len(whole["series"]) == 2
        one = of(found, check, parts[1])
        metric, value = ("latency", 3.4) if "_lat" in check else ("bandwidth", 392.0)
        assert one["metrics"] == {metric: {"value": value, "unit": "us" if metric == "latency" else "Gb/s"}}
        context = one["context"]
        assert (context["nic_gbps"], context["pcie_gen"], context["pcie_width"], context["loopback"]) == (400.0, 5, 16, True)
    words = " ".join(of(found, "write_bw", parts[0])["command"])
    assert words.endswith(f"ib_write_bw -d mlx5_0 -i 1 -x 3 -s 65536 -D 1 -q 8 --noPeak --report_gbits -p {PORT} 127.0.0.1")
    assert "-D 2 " in " ".join(of(found, "write_bw_all", parts[1])["command"])  # the middle half of it counts
    assert f"-p {PORT + 1} " in " ".join(of(found, "write_bw_all", parts[1])["command"])
    assert of(found, "ports")["context"]["findings"] == []


def test_a_slow_port_is_the_number_of_the_node(tmp_path: pathlib.Path) -> None:
    found = measure(machine(tmp_path, 2, "slow 127.2.7.1 0.5"), tests=["write_bw"])
    assert of(found, "write_bw")["metrics"]["bandwidth"]["value"] == 196.0
    assert of(found, "write_bw", "nic/mlx5_0/1")["metrics"]["bandwidth"]["value"] == 392.0


def test_a_port_that_does_not_reach_itself(tmp_path: pathlib.Path) -> None:
    """It is asked once, the others are measured, and a node has no number without it."""
    found = measure(machine(tmp_path, 2, "deaf 127.2.7.1"))
    for check in loopback.TESTS:
        bad = of(found, check, "nic/mlx5_1/1")
        assert (bad["outcome"], bad["reason_code"]) == ("error", "no_loopback")
        assert "mlx5_1 port 1: the port does not reach itself" in bad["reason"] and "nic_loopback_devices" in bad["reason"]
        assert bool(bad["command"]) == (check == "read_bw")
        assert of(found, check, "nic/mlx5_0/1")["outcome"] == "measured" and of(found, check)["metrics"] == {}


def test_a_test_that_hangs_is_ended(tmp_path: pathlib.Path) -> None:
    """And its port is not asked again, which would take as long each time."""
    found = measure(machine(tmp_path, 1, "hang 127.1.7.1", "pace 1"), tests=["write_bw", "write_lat"], test_timeout=1.0)
    for test in ("write_bw", "write_lat"):
        bad = of(found, test, "nic/mlx5_0/1")
        assert bad["reason_code"] == "timeout" and "ib_write_bw did not end within 1 s" in bad["reason"]


def test_a_missing_perftest_is_named_with_its_variable(tmp_path: pathlib.Path) -> None:
    found = measure(machine(tmp_path, 1), binary_dir=str(tmp_path / "none"), tests=["write_bw"])
    bad = of(found, "write_bw", "nic/mlx5_0/1")
    assert bad["reason_code"] == "tool_missing" and "install perftest or set nic_loopback_binary_dir" in bad["reason"]


def test_a_port_that_is_down_is_a_finding_and_the_others_are_measured(tmp_path: pathlib.Path) -> None:
    machine(tmp_path)
    pairs.port(tmp_path, 2, "127.3.7.1", "DOWN", "400 Gb/sec (4X NDR)", "x")
    found = measure(tmp_path, tests=["write_bw", "write_bw_all"], devices=["mlx5_*"])
    (finding,) = of(found, "ports")["context"]["findings"]
    assert (finding["code"], finding["part"]) == ("port_down", "nic/mlx5_2/1") and "nic_loopback_devices" in finding["text"]
    assert of(found, "write_bw")["members"] == ["nic/mlx5_0/1", "nic/mlx5_1/1"]
    # If the inventory does not say which ports are in use, other machines do.
    assert not of(measure(tmp_path, tests=["write_bw"]), "ports")["context"]["findings"]


def test_a_node_whose_ports_are_all_down_is_an_error(tmp_path: pathlib.Path) -> None:
    found = measure(machine(tmp_path, 2, state="DOWN"), ports=2)
    assert [finding["code"] for finding in of(found, "ports")["context"]["findings"]] == ["port_down", "port_down"]
    assert told([one for one in found if one["check"] != "ports"]) == {("error", "port_down")}


def test_one_port_skips_what_is_of_several(tmp_path: pathlib.Path) -> None:
    found = measure(machine(tmp_path, 1))
    skipped = {one["check"] for one in found if (one["outcome"], one["reason_code"]) == ("not_applicable", "one_port")}
    assert skipped == set(loopback.TOGETHER)


@pytest.mark.parametrize(
    ("speed", "width", "slot", "code"),
    [("16.0", "16", None, "pcie_speed"), ("32.0", "8", None, "pcie_width"), ("32.0", "8", "8", "pcie_slot"), ("32.0", "16", "16", None)],
)
def test_the_pcie_link_of_nic_and_slot(tmp_path: pathlib.Path, speed: str, width: str, slot: str | None, code: str | None) -> None:
    machine(tmp_path, 1)
    device = tmp_path / "sys/devices/pci0000:00/0000:00:00.0"
    (device / "current_link_speed").write_text(f"{speed} GT/s PCIe\n")
    (device / "current_link_width").write_text(f"{width}\n")
    if slot:
        (device.parent / "max_link_speed").write_text("32.0 GT/s PCIe\n")
        (device.parent / "max_link_width").write_text(f"{slot}\n")
    found = measure(tmp_path, tests=["write_bw"])
    assert [finding["code"] for finding in of(found, "ports")["context"]["findings"]] == ([code] if code else [])
    # A slot with half of the lanes lets half of 400 Gb/s through; a link that is only trained down is held to what it can do.
    assert of(found, "write_bw")["context"]["nic_gbps"] == (200.0 if slot == "8" else 400.0)


def test_cpus_of_the_numa_node_that_may_not_be_used(tmp_path: pathlib.Path) -> None:
    machine(tmp_path, 5)  # the fifth is on NUMA node 1
    for number, cpus in enumerate(("0", "4000-4007")):
        node = tmp_path / f"sys/devices/system/node/node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(cpus + "\n")
        (node / "meminfo").write_text(f"Node {number} MemTotal: 1024 kB\n")
    found = measure(tmp_path, tests=["write_bw"])
    far = of(found, "write_bw", "nic/mlx5_4/1")
    assert far["reason_code"] == "no_permission" and "no CPU of NUMA node 1 may be used here" in far["reason"]
    assert far["reason"].count(" port 1: ") == 1, "the port is named once"
    near = of(found, "write_bw", "nic/mlx5_0/1")
    assert near["outcome"] == "measured" and near["context"]["numa"] == 0 and near["context"]["bound"] in ("cpus", "cpus and memory")


# Memory of GPUs ------------------------------------------------------------------------------------------------------


def gpus(root: pathlib.Path, *slots: str) -> None:
    """GPUs at paths of the PCI bus, `pci0000:00/0000:01:00.1` for example."""
    for slot in slots:
        pairs.gpu(root, slot)


@pytest.mark.parametrize("peer", [True, False])
def test_memory_of_the_nearest_gpu(tmp_path: pathlib.Path, peer: bool) -> None:
    """Each port with the GPU behind its own bridge; DMA-BUF where no module for peer memory is loaded."""
    machine(tmp_path, 2, "cuda 1")
    gpus(tmp_path, "pci0000:00/0000:01:00.0/0000:1b:00.0", "pci0000:00/0000:00:00.0/0000:9d:00.0")
    if peer:
        (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    found = measure(tmp_path, tests=["write_bw"], gpu=True)
    assert told(found) == {("measured", None)}
    for port, slot in (("nic/mlx5_0/1", "0000:9d:00.0"), ("nic/mlx5_1/1", "0000:1b:00.0")):
        words = of(found, "write_bw_gpu", port)["command"]
        assert f"--use_cuda_bus_id={slot}" in words and ("--use_cuda_dmabuf" in words) != peer
        assert "--use_cuda_dmabuf" not in of(found, "write_bw", port)["command"]


@pytest.mark.parametrize("peer", [True, False])
def test_memory_of_the_nearest_amd_gpu_is_named_by_its_place_in_the_order_of_hip(tmp_path: pathlib.Path, peer: bool) -> None:
    machine(tmp_path, 2, "rocm 1")
    pairs.gpu(tmp_path, "pci0000:00/0000:01:00.0/0000:1b:00.0", 0)
    pairs.gpu(tmp_path, "pci0000:00/0000:00:00.0/0000:9d:00.0", 1)
    if peer:
        (tmp_path / "sys/module/ib_peer_mem").mkdir(parents=True)
    found = measure(tmp_path, tests=["write_bw"], gpu=True)
    assert told(found) == {("measured", None)}
    for port, place in (("nic/mlx5_0/1", "1"), ("nic/mlx5_1/1", "0")):
        words = of(found, "write_bw_gpu", port)["command"]
        assert f"--use_rocm={place}" in words and ("--use_rocm_dmabuf" in words) != peer


@pytest.mark.parametrize("hidden", [True, False])
def test_an_amd_gpu_whose_place_is_not_known_is_not_guessed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, hidden: bool) -> None:
    machine(tmp_path, 1, "rocm 1")
    pairs.gpu(tmp_path, "0000:1b:00.0", 0)
    if hidden:
        monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3")
    else:
        (tmp_path / "sys/class/kfd/kfd/topology/nodes/2/properties").unlink()
    found = measure(tmp_path, tests=["write_bw"], gpu=True)
    assert of(found, "write_bw_gpu", "nic/mlx5_0/1")["reason_code"] == "no_gpu"


def test_a_perftest_without_rocm_is_named(tmp_path: pathlib.Path) -> None:
    machine(tmp_path, 1, "cuda 1")
    pairs.gpu(tmp_path, "0000:1b:00.0", 0)
    assert of(measure(tmp_path, tests=["write_bw"], gpu=True), "write_bw_gpu", "nic/mlx5_0/1")["reason_code"] == "no_gpudirect"


def test_ports_that_are_as_near_to_several_gpus_take_turns(tmp_path: pathlib.Path) -> None:
    machine(tmp_path, 2, "cuda 1")
    gpus(tmp_path, "pci0000:00/0000:1b:00.0", "pci0000:00/0000:9d:00.0")
    found = measure(tmp_path, tests=[], gpu=True)
    used = [word for port in (0, 1) for word in of(found, "read_bw_gpu", f"nic/mlx5_{port}/1")["command"] if "bus_id" in word]
    assert used == ["--use_cuda_bus_id=0000:1b:00.0", "--use_cuda_bus_id=0000:9d:00.0"]


def test_nothing_falls_back_to_host_memory(tmp_path: pathlib.Path) -> None:
    """A perftest that is built without GPUs, and a node without them."""
    found = measure(machine(tmp_path, 1), tests=["write_bw"], gpu=True)
    assert of(found, "write_bw_gpu", "nic/mlx5_0/1")["reason_code"] == "no_gpu"
    gpus(tmp_path, "pci0000:00/0000:1b:00.0")
    found = measure(tmp_path, tests=["write_bw"], gpu=True)
    bad = of(found, "write_bw_gpu", "nic/mlx5_0/1")
    assert bad["reason_code"] == "no_gpudirect" and "built for these GPUs" in bad["reason"] and bad["metrics"] == {}
    assert of(found, "write_bw", "nic/mlx5_0/1")["outcome"] == "measured"


# Where it does not apply ---------------------------------------------------------------------------------------------


def function(root: pathlib.Path, kind: str, vendor: str, device: str = "0x1021", driver: str = "", physfn: bool = False) -> None:
    path = root / "sys/bus/pci/devices/0000:3b:00.0"
    path.mkdir(parents=True)
    for name, text in {"class": kind, "vendor": vendor, "device": device}.items():
        (path / name).write_text(text + "\n")
    for name, there in (("driver", driver), ("physfn", physfn)):
        if there:
            (path / name).symlink_to("/nonexistent")


def auxiliary(root: pathlib.Path, name: str = "", driven: bool = False) -> None:
    path = root / "sys/bus/auxiliary/devices" / name
    path.mkdir(parents=True)
    if driven:
        (path / "driver").symlink_to("/nonexistent")


SKIPPED, UNKNOWN = ("not_applicable", "no_rdma_expected"), ("error", "no_rdma")


def test_a_node_without_rdma_hardware_is_skipped(tmp_path: pathlib.Path) -> None:
    assert told(measure(tmp_path)) == {SKIPPED}


@pytest.mark.parametrize(
    ("kind", "vendor", "device", "driver", "expected"),
    [
        ("0x020700", "0x15b3", "0x1021", "", UNKNOWN),
        ("0x020700", "0x15b3", "0x1021", "mlx5_core", UNKNOWN),
        ("0x020000", "0x15b3", "0x1021", "", UNKNOWN),
        ("0x020000", "0x15b3", "0x1021", "mlx5_core", UNKNOWN),
        ("0x020000", "0x1d0f", "0xefa2", "", UNKNOWN),
        ("0x020000", "0x1d0f", "0xec20", "ena", SKIPPED),
        ("0x020000", "0x8086", "0x1572", "i40e", SKIPPED),
        ("0x030200", "0x10de", "0x2330", "", SKIPPED),
    ],
)
def test_rdma_hardware_without_its_driver(
    tmp_path: pathlib.Path, kind: str, vendor: str, device: str, driver: str, expected: tuple[str, str]
) -> None:
    function(tmp_path, kind, vendor, device, driver)
    found = measure(tmp_path)
    assert told(found) == {expected}
    assert expected == SKIPPED or "0000:3b:00.0" in found[0]["reason"]


def test_a_virtual_function_for_a_guest_is_no_hardware_of_the_host(tmp_path: pathlib.Path) -> None:
    function(tmp_path, "0x020000", "0x15b3", physfn=True)
    assert told(measure(tmp_path)) == {SKIPPED}


@pytest.mark.parametrize(
    ("name", "driven", "expected"),
    [
        ("mlx5_core.rdma.0", False, UNKNOWN), ("ice.roce.0", False, UNKNOWN), ("mlx5_core.rdma.0", True, UNKNOWN),
        ("mlx5_core.eth.0", False, SKIPPED), ("", False, SKIPPED),
    ],
)  # fmt: skip
def test_a_driver_that_offers_rdma_forbids_the_skip(tmp_path: pathlib.Path, name: str, driven: bool, expected: tuple[str, str]) -> None:
    """On the auxiliary bus stands whether RDMA is switched on: an Ethernet NIC with its driver and without that part has it off."""
    function(tmp_path, "0x020000", "0x15b3", driver="mlx5_core")
    auxiliary(tmp_path, name, driven)
    assert told(measure(tmp_path)) == {expected}


def test_what_the_inventory_says_of_ports(tmp_path: pathlib.Path) -> None:
    function(tmp_path / "a", "0x020700", "0x15b3")
    assert told(measure(tmp_path / "a", ports=0)) == {SKIPPED}
    assert told(measure(tmp_path / "b", ports=8)) == {UNKNOWN}
    found = measure(machine(tmp_path / "c"), ports=3, tests=["write_bw"])
    assert [finding["code"] for finding in of(found, "ports")["context"]["findings"]] == ["rail_order"]
    bad = measure(machine(tmp_path / "d"), devices=["mlx4_*"])
    assert told(bad) == {UNKNOWN} and "no RDMA device matches mlx4_*; there are: mlx5_0, mlx5_1" in bad[0]["reason"]


def test_devices_without_reliable_connections(tmp_path: pathlib.Path) -> None:
    machine(tmp_path)
    (tmp_path / "sys/class/infiniband/mlx5_0/node_type").write_text("4: RNIC\n")
    found = measure(tmp_path, tests=["write_bw"])
    assert of(found, "write_bw")["members"] == ["nic/mlx5_1/1"] and list(of(found, "ports")["context"]["left_out"]) == ["mlx5_0"]
    (tmp_path / "sys/class/infiniband/mlx5_1/node_type").write_text("4: RNIC\n")
    assert told(measure(tmp_path)) == {("not_applicable", "no_reliable_connection")}


# A recording ---------------------------------------------------------------------------------------------------------


def test_what_soft_roce_printed_of_itself_is_read(tmp_path: pathlib.Path) -> None:
    """The words of a port that was measured against itself; of software it says no rate, and is compared with nobody."""
    text = (RECORDINGS / "one_guest_self_loopback.txt").read_text().rpartition("# rc=")[0]
    kind = {**loopback._kind("write_bw", {"size": 65536, "qps": 1, "duration": 1}), "iterations": 200, "duration": None}
    device = {"device": "rxe0", "type": None, "driver": "rdma_rxe", **dict.fromkeys(("numa_node", "pcie", "pci_path", "pci"))}
    gid = {"index": 1, "address": "10.214.0.101"}
    port = loopback.LoopbackPort(
        device, {"device": "rxe0", "port": 1, "rate_gbps": 100.0, "link_layer": "Ethernet", "state": "ACTIVE", "gid": gid}, {}
    )
    runner = loopback.Loopback({"gpu": False, "binary_dir": "", "tcp_port": 18515, "test_timeout": 30}, Node(10, root=str(tmp_path)))
    (_server, test) = runner._tests(port, 0)
    side = perftest_sides.PerftestSide(test, kind, runner, 0.0)
    side.result = {}
    side._read(text, 0)
    assert side.result["outcome"] == "measured" and side.result["rows"][0]["bandwidth"] == 0.58
    context = port.context("write_bw")
    assert context["comparable"] is False and "nic_gbps" not in context and context["nic"] == "rdma_rxe"
