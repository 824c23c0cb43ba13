# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The head's half: what it launches, whom it finds in the output, and the floors of parts of a group."""

from __future__ import annotations

import pathlib
import shlex
import typing as t

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import matching, slots
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import collective as fabric
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import group, hangs, launching, mpi
from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise import hang
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nccl_tests
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.modules.nccl_fabric import OPTIONS
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands, expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import nccl_fabric
from harness.records import make_plan

ROCE = [[0, "RoCE v1", "fe80::1"], [1, "RoCE v2", "fe80::1"], [2, "RoCE v1", "10.0.0.1"], [3, "RoCE v2", "10.0.0.1"]]


def head(tmp_path: pathlib.Path, count: int = 2, gpus: int = 8, **more: t.Any) -> fabric.GroupHead:
    members = [
        {"name": f"gpu-{n:02d}", "address": f"10.1.30.{40 + n}", "hostname": f"gpu-{n:02d}", "gpus": gpus, "local": n == 1}
        for n in range(1, count + 1)
    ]
    validated = ArgumentSpecValidator(OPTIONS).validate({"members": members, "checks": [], **more})
    assert not validated.error_messages
    made = fabric.GroupHead(validated.validated_parameters, Node(60), None)
    assert isinstance(made.launcher, launching.Mpi)
    made.launcher.flavour, made.launcher.version = mpi.OPENMPI4, "Open MPI 4.1.4"
    made.group.folder = str(tmp_path)
    made.group.ssh = ["ssh", "-o", "BatchMode=yes"]
    return made


def test_the_second_line_of_a_seed_from_variables_alone(tmp_path: pathlib.Path) -> None:
    made = head(
        tmp_path,
        binary_dir="/data/nccl-tests-2.13.11/build", layout="node", iterations=0, warmup=0,
        mpi_args=[
            *shlex.split("-bind-to none -map-by slot -mca coll_hcoll_enable 0 -mca pml ob1"),
            *shlex.split("-mca btl_tcp_if_include bond0 -mca btl ^openib"),
        ],
        env={
            "NCCL_IB_GID_INDEX": 3, "NCCL_SOCKET_IFNAME": "bond0", "NCCL_IB_HCA": "^mlx5_8", "NCCL_IB_TC": 128,
            "NCCL_IB_QPS_PER_CONNECTION": 8, "NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring",
        },
    )  # fmt: skip
    keys = {"gpus": "8", "sizes": "32M:8G", "type": "float"}
    seats = made.group.members
    job = made.job_of("all_reduce", keys, seats, made._slots(seats, keys), made._sizes(seats, keys), 60)
    ours = ["--hostfile", f"{tmp_path}/hosts-1", "--mca", "plm", "rsh", "--mca", "plm_rsh_agent", "ssh -o BatchMode=yes"]
    ours += ["--mca", "plm_rsh_no_tree_spawn", "1"]
    words = [word for word in job.shown() if word != "--allow-run-as-root"]
    for word in ours:
        words.remove(word)
    assert words == shlex.split(
        "mpirun -np 2 -bind-to none -map-by slot -mca coll_hcoll_enable 0 -mca pml ob1 "
        "-mca btl_tcp_if_include bond0 -mca btl ^openib -x NCCL_IB_GID_INDEX=3 -x NCCL_SOCKET_IFNAME=bond0 -x NCCL_IB_HCA=^mlx5_8 "
        "-x NCCL_IB_TC=128 -x NCCL_IB_QPS_PER_CONNECTION=8 -x NCCL_DEBUG=INFO -x NCCL_ALGO=Ring "
        "/data/nccl-tests-2.13.11/build/all_reduce_perf -b 32M -e 8G -f 2 -g 8"
    )
    assert (tmp_path / "hosts-1").read_text() == "10.1.30.41 slots=1\n10.1.30.42 slots=1\n" and job.ranks == 16
    assert made.context_of("all_reduce", keys, seats, list(range(8)))["algorithm"] == "ring"


def test_one_rank_per_gpu_the_head_first_and_single_slots(tmp_path: pathlib.Path) -> None:
    made = head(tmp_path, count=3, env={"CUDA_VISIBLE_DEVICES": "7,6,5,4,3,2,1,0"})
    seats = made.group.members
    made.job_of("all_gather", {}, [seats[2], seats[0], seats[1]], range(8), ("8M", "8M"), 60)
    assert (tmp_path / "hosts-1").read_text() == "10.1.30.41 slots=8\n10.1.30.42 slots=8\n10.1.30.43 slots=8\n"
    job = made.job_of("all_gather", {}, seats[:2], [2], ("8M", "8M"), 60)
    assert "CUDA_VISIBLE_DEVICES=5" in job.argv and job.ranks == 2 and job.argv[job.argv.index("-g") + 1] == "1"


def output(hosts: list[str], wrong: int = 0) -> str:
    """An output whose ranks ran on these hosts."""
    ranks = "".join(
        f"#  Rank {n:2d} Group  0 Pid {100 + n:6d} on {host:>10} device {n:2d} [0000:1a:00] NVIDIA H200\n" for n, host in enumerate(hosts)
    )
    factor = 2 * (len(hosts) - 1) / len(hosts)
    return (
        "# nThread 1 nGpus 1 minBytes 8388608 maxBytes 8388608 step: 2(factor) warmup iters: 5 iters: 20 validation: 1\n"
        f"#\n# Using devices\n{ranks}#\n"
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
        f" 8388608 2097152 float sum -1 83.89 100.00 {100 * factor:.2f} {wrong} 83.89 100.00 {100 * factor:.2f} 0\n"
        f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}\n# Avg bus bandwidth    : {100 * factor:g}\n"
    )


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        (["gpu-01", "gpu-01", "gpu-02", "gpu-02"], None),
        (["gpu-02", "gpu-01", "gpu-02", "gpu-01"], None),
        # Open MPI 5 with the settings of 4: everything on the launcher, status 0, a whole table.
        (["gpu-01"] * 4, "all 4 ranks ran on gpu-01: the launcher did not use the other 1 nodes"),
        (["gpu-01", "gpu-01", "gpu-01", "gpu-02"], "gpu-01: 3, gpu-02: 1"),
        (["gpu-01", "gpu-01", "gpu-09", "gpu-09"], "none on gpu-02"),
    ],
)
def test_every_node_has_its_ranks_and_nobody_else_has(tmp_path: pathlib.Path, hosts: list[str], words: str | None) -> None:
    made = head(tmp_path)
    read = nccl_tests.parse(output(hosts), 0, expect_ranks=len(hosts))
    assert read["outcome"] == "measured", read["reason"]
    job = launching.Job([], made.group.members, 4, 60, "")
    problem = fabric._covered(read, job)
    assert problem is None if words is None else words in str(problem)


def test_each_rail_has_a_gid_index_of_its_own(tmp_path: pathlib.Path) -> None:
    """NCCL before 2.21.5 takes one index for all; on another rail the same one may be another kind of GID."""
    made = head(tmp_path)
    made.nccl_version = "2.20.5"
    other = [[0, "RoCE v2", "10.0.0.1"], *ROCE[1:3], [3, "RoCE v1", "10.0.0.1"]]
    for seat in made.group.members:
        common = {"port": 1, "link_layer": "Ethernet", "rate_gbps": 400.0}
        seat.ports = [{**common, "device": "mlx5_0", "gids": ROCE}, {**common, "device": "mlx5_1", "gids": other}]
    found = []
    for rail in ("mlx5_0", "mlx5_1", "mlx5_0"):
        assert made.choose_gids(made.group.members, "all_reduce", {"rail": rail}) is None
        found.append(made._env_of({"rail": rail})["NCCL_IB_GID_INDEX"])
        assert [said.split(" was")[0] for said in made.warnings] == [f"NCCL_IB_GID_INDEX={found[-1]}"]
    assert found == ["3", "0", "3"]
    assert made.choose_gids(made.group.members[:0], "all_reduce", {}) is None and not made.warnings, "none is set any more"


def test_a_number_counts_for_a_rail_only_where_nccl_says_that_it_is_its(tmp_path: pathlib.Path) -> None:
    made = head(tmp_path, env={"NCCL_IB_HCA": "^mlx5_8", "NCCL_DEBUG": "WARN"})
    seats = made.group.members
    for one in seats:
        one.ports = [{"device": f"mlx5_{n}", "port": 1, "link_layer": "InfiniBand", "rate_gbps": 400.0, "gids": []} for n in range(8)]
    keys = {"gpus": "1", "rail": "mlx5_3"}
    assert made._agree(seats, keys) is None and made._slots(seats, keys) == [3]
    context = made.context_of("all_reduce", keys, seats, [3])
    assert (context["rail"], context["slot"], context["nics"], context["gpus"]) == ("mlx5_3", 3, 1, 1)
    assert "rail" not in made.context_of("all_reduce", {}, seats, list(range(8)))
    job = made.job_of("all_reduce", keys, seats, [3], ("8M", "8M"), 60)
    assert {"CUDA_VISIBLE_DEVICES=3", "NCCL_IB_HCA==mlx5_3", "NCCL_DEBUG=INFO"} <= set(job.argv) and job.ranks == 2
    debug = "{0}:7:7 [0] NCCL INFO NET/IB : Using [0]mlx5_3:1/IB [RO]; OOB ib0:10.0.0.1<0>\n"
    debug += "{0}:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0\n"
    job.rc, table = 0, output(["gpu-01", "gpu-02"])
    job.out = debug.format("gpu-01") + debug.format("gpu-02") + table
    assert made.read_job(job).outcome == "measured", made.read_job(job).reason
    job.out = debug.format("gpu-01") + table
    assert made.read_job(job).code == "other_way"
    seats[1].ports.pop(3)
    code, reason = made._agree(seats, keys) or ("", "")
    assert code == "no_rdma" and reason.startswith("rail mlx5_3: gpu-02 has no such device, only mlx5_0, mlx5_1, mlx5_2, mlx5_4"), reason


@pytest.mark.parametrize(
    ("said", "outcome", "code"),
    [
        ("", "timeout", "timeout"),
        (output(["gpu-01", "gpu-01", "gpu-02", "gpu-02"])[:-60], "timeout", "timeout"),
        # MPICH 4.0.2 over UCX: the table is whole, and two ranks spin in MPI_Finalize. No node hung.
        (output(["gpu-01", "gpu-01", "gpu-02", "gpu-02"]), "error", "launch_failed"),
        (output(["gpu-01", "gpu-01", "gpu-02", "gpu-02"], wrong=3), "error", "wrong_results"),
    ],
)
def test_what_a_launch_that_did_not_end_has_said(tmp_path: pathlib.Path, said: str, outcome: str, code: str) -> None:
    made = head(tmp_path)
    job = launching.Job([], made.group.members, 4, 60, "")
    job.out, job.timed_out, job.rc = said, True, -15
    launch = made.read_job(job)
    assert (launch.outcome, launch.code) == (outcome, code), launch.reason


def test_a_launch_that_checked_nothing(tmp_path: pathlib.Path) -> None:
    """-c 0 among the extra arguments, whatever the launcher has said besides."""
    made = head(tmp_path, extra_args=["-c", "0"])
    assert made.job_of("all_reduce", {}, made.group.members, range(2), ("8M", "8M"), 60).argv[-2:] == ["-c", "0"]
    job = launching.Job([], made.group.members, 4, 60, "")
    job.out, job.rc = output(["gpu-01", "gpu-01", "gpu-02", "gpu-02"]).replace("validation: 1", "validation: 0"), 0
    launch = made.read_job(job)
    assert (launch.outcome, launch.code) == ("error", "unchecked") and "-c 0" in str(launch.reason)


def test_a_sweep_that_the_tool_made_smaller(tmp_path: pathlib.Path) -> None:
    made = head(tmp_path)
    job = launching.Job([], made.group.members, 4, 60, "")
    job.out, job.rc = output(["gpu-01", "gpu-01", "gpu-02", "gpu-02"]), 0
    job.order = made.job_of("all_reduce", {}, made.group.members, range(2), ("8M", "64G"), 60).order
    assert job.order == {"sizes": [8 << 20, 64 << 30]} and made.read_job(job).code == "reduced_size"


def test_nodes_that_cannot_be_one_group(tmp_path: pathlib.Path) -> None:
    made = head(tmp_path)
    seats = made.group.members
    assert made._agree(seats, {}) is None
    seats[1].hostname = "gpu-01"
    assert made._agree(seats, {})[0] == "duplicate_identity"
    seats[1].hostname, seats[1].gpus = "gpu-02", ["a"]
    assert made._agree(seats, {})[0] == "gpu_count" and made._agree(seats, {"gpus": "2"})[0] == "gpu_count"
    assert made._agree(seats, {"gpus": "1"}) is None


@pytest.mark.parametrize(
    ("hca", "left"),
    [
        ("", ["mlx5_0/1", "mlx5_1/1", "mlx5_10/1", "bnxt_0/1"]),
        ("mlx5_1", ["mlx5_1/1", "mlx5_10/1"]),
        ("=mlx5_1", ["mlx5_1/1"]),
        ("^mlx5_1", ["mlx5_0/1", "bnxt_0/1"]),
        ("^=mlx5_1:1", ["mlx5_0/1", "mlx5_10/1", "bnxt_0/1"]),
        ("^=mlx5_1:2", ["mlx5_0/1", "mlx5_1/1", "mlx5_10/1", "bnxt_0/1"]),
        ("mlx5_0,bnxt", ["mlx5_0/1", "bnxt_0/1"]),
        ("^lo", ["mlx5_0/1", "mlx5_1/1", "mlx5_10/1", "bnxt_0/1"]),
    ],
)
def test_the_ports_that_nccl_ib_hca_leaves(hca: str, left: list[str]) -> None:
    ports = [{"device": name, "port": 1} for name in ("mlx5_0", "mlx5_1", "mlx5_10", "bnxt_0")]
    assert [f"{p['device']}/{p['port']}" for p in group.left_by(hca, ports)] == left


@pytest.mark.parametrize(
    ("version", "env", "tables", "index", "words"),
    [
        ("2.28.9", {}, (ROCE, ROCE), None, None),
        ("2.20.5", {}, (ROCE, ROCE), "3", None),
        ("2.20.5", {}, (ROCE, ROCE[:3]), None, "none in common"),
        ("2.20.5", {"NCCL_IB_DISABLE": "1"}, (ROCE, ROCE[:3]), None, None),
        ("2.28.9", {"NCCL_IB_GID_INDEX": 2}, (ROCE, ROCE), "2", None),
        ("2.28.9", {"NCCL_IB_GID_INDEX": 3}, (ROCE, ROCE[:3]), "3", "gpu-02 mlx5_0/1"),
        ("2.20.5", {"NCCL_IB_HCA": "^mlx5"}, (ROCE, ROCE[:3]), None, None),
    ],
)
def test_an_old_nccl_is_told_the_gid_index_that_all_nodes_share(
    tmp_path: pathlib.Path, version: str, env: dict[str, t.Any], tables: tuple[t.Any, t.Any], index: str | None, words: str | None
) -> None:
    made = head(tmp_path, env=env)
    made.nccl_version = version
    for seat, gids in zip(made.group.members, tables):
        seat.ports = [{"device": "mlx5_0", "port": 1, "link_layer": "Ethernet", "rate_gbps": 400.0, "gids": gids}]
    refused = made.choose_gids(made.group.members, "all_reduce", {})
    assert made.env.get("NCCL_IB_GID_INDEX") == index
    assert refused is None if words is None else refused and refused[0] == "no_gid" and words in refused[1]


def test_a_group_of_two_kinds_of_accelerators_is_told_how_to_become_two(tmp_path: pathlib.Path) -> None:
    made = head(tmp_path, count=2)
    made.group.members[1].problem = ("other_accelerator", "NCCL numbers: of NVIDIA GPUs only, and this node has 8 Ascend 910B3")
    (said,) = made._check({"check": "all_reduce", "variant": "gpus=all sizes=8M:8M type=float"})
    words = "1 of 2 nodes take part: nodes with other accelerators want nccl_fabric_group: '' or a group of their own; gpu-02: NCCL"
    assert said["reason_code"] == "member" and said["reason"].startswith(words)


def test_the_head_chooses_floors_as_the_verdict_engine_does() -> None:
    shipped = expectations.shipped()
    plan = make_plan({"judging": {"sets": [shipped.dump()], "of": {"gpu-01": 0}}})
    entries = nccl_fabric.STAGE.floors(plan, "gpu-01")
    seen = 0
    for gpu in ("NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA H20", "NVIDIA GB200", "Tesla V100-SXM2-32GB"):
        for nodes in (2, 4, 8, 18, 36, 248):
            for algorithm in ("auto", "ring", "nvlstree", "sharp"):
                for nics, rate in ((8, 400), (4, 200), (8, 200), (1, 400), (0, None)):
                    for op in ("all_reduce", "all_gather"):
                        context = {
                            "gpu": gpu, "gpus": 4 if "GB200" in gpu else 8, "nodes": nodes, "algorithm": algorithm, "nics": nics,
                            "nic_gbps": rate, "nvls": "GB200" in gpu, "op": op, "type": "float", "mnnvl": "GB200" in gpu,
                            "nvlink_domains": 1,
                        }  # fmt: skip
                        chosen = shipped.choose("nccl_fabric", op, context)
                        usable = slots.usable(context)
                        doubtful = usable is not None and usable.certain < usable.at_most
                        known = [c for c in chosen if not (doubtful and matching.about_usable_nics(c.expectation.match))]
                        wanted = {c.size: c.expectation.value for c in known if c.expectation.metric == "busbw"}
                        assert fabric.Floors(entries, op, context).expected(nodes) == wanted
                        seen += bool(wanted)
    assert seen > 50


def rack(tmp_path: pathlib.Path, gpu: str, nodes: int, domains: int, keys: dict[str, str] | None = None, **env: str) -> dict[str, t.Any]:
    """What the head says of a group of trays with 4 GPUs and 4 NICs of 400G each."""
    made = head(tmp_path, nodes, 4, env=env)
    for number, seat in enumerate(made.group.members):
        seat.gpu, seat.nvlink_domain = gpu, f"cluster-{number * domains // nodes}/1" if domains else ""
        seat.ports = [{"device": f"mlx5_{n}", "port": 1, "link_layer": "InfiniBand", "rate_gbps": 400.0, "gids": []} for n in range(4)]
    return made.context_of("all_reduce", keys or {}, made.group.members, list(range(4)))


def test_a_rack_without_mnnvl_is_held_to_its_nics(tmp_path: pathlib.Path) -> None:
    for context in (rack(tmp_path, "NVIDIA GB200", 18, 1, {"mnnvl": "0"}), rack(tmp_path, "NVIDIA GB200", 18, 1, NCCL_MNNVL_ENABLE="0")):
        assert (context["mnnvl"], context["nvls"], context["nvlink_domains"]) == (False, False, None)
        (chosen,) = expectations.shipped().choose("nccl_fabric", "all_reduce", context)
        assert chosen.expectation.id == "fabric-4x400g-all_reduce"


@pytest.mark.parametrize(
    ("gpu", "nodes", "domains", "value", "verdict"),
    [
        ("NVIDIA GB200", 18, 1, 840.0, "PASS"),
        # Nobody knows whether these are the trays of one rack.
        ("NVIDIA GB200", 18, 0, 840.0, None),
        ("NVIDIA GB200", 18, 1, 190.0, "FAIL"),
        ("NVIDIA GB300", 18, 1, 930.0, "PASS"),
        ("NVIDIA GB300", 18, 1, 847.0, "WARN"),
        ("NVIDIA GB300", 18, 1, 192.0, "FAIL"),
        ("NVIDIA GB200", 2, 1, 811.0, "PASS"),
        ("NVIDIA GB200", 9, 1, 192.0, "FAIL"),
        # Of some trays here and some there nothing is known, least of all that their NICs are enough.
        ("NVIDIA GB200", 9, 2, 192.0, None),
        ("NVIDIA GB200", 9, 0, 192.0, None),
        ("NVIDIA GB200", 36, 2, 820.0, "PASS"),
        ("NVIDIA GB200", 36, 2, 192.0, "FAIL"),
        ("NVIDIA GB200", 20, 2, 384.0, None),
        ("NVIDIA GB300", 4, 1, 192.0, None),
        ("NVIDIA H200", 18, 0, 192.0, "PASS"),
    ],
)
def test_a_rack_is_held_to_its_nvlink_and_not_to_its_nics(
    tmp_path: pathlib.Path, gpu: str, nodes: int, domains: int, value: float, verdict: str | None
) -> None:
    context = rack(tmp_path, gpu, nodes, domains)
    chosen = expectations.shipped().choose("nccl_fabric", "all_reduce", context)
    at = [one for one in chosen if one.size != 8 << 30]  # two racks are held to a number at 8 GiB, too
    found = [bands.compare(bands.Reading(value, "GB/s", 16 << 30), one.expectation).verdict for one in at]
    assert found == ([verdict] if verdict else [])
    assert context["nvls"] is ("GB" in gpu) and context["mnnvl"] is ("GB" in gpu)
    if "GB" in gpu:
        off = rack(tmp_path, gpu, nodes, domains, NCCL_NVLS_ENABLE="0")
        assert not expectations.shipped().choose("nccl_fabric", "all_reduce", off)


def test_nothing_is_known_of_parts_of_several_racks(tmp_path: pathlib.Path) -> None:
    plan = make_plan({"judging": {"sets": [expectations.shipped().dump()], "of": {"gpu-01": 0}}})
    entries = nccl_fabric.STAGE.floors(plan, "gpu-01")
    two = fabric.Floors(entries, "all_reduce", rack(tmp_path, "NVIDIA GB200", 36, 2))
    assert two.floor(16 << 30, 36, 4) == pytest.approx(0.9 * 820) and two.floor(16 << 30, 18, 4) == 0.0
    one = fabric.Floors(entries, "all_reduce", rack(tmp_path, "NVIDIA GB200", 18, 1))
    assert one.floor(16 << 30, 2, 4) == pytest.approx(0.9 * 811)


def test_a_part_of_a_group_is_held_to_the_floor_of_its_size() -> None:
    entries = [
        {"match": {"check": "all_reduce", "nodes": 8, "size": "plateau"}, "value": 320.0, "rank": 0},
        {"match": {"check": "all_reduce", "nodes": 2, "size": "plateau"}, "value": 430.0, "rank": 0},
    ]
    floors = fabric.Floors(entries, "all_reduce", {"nodes": 8, "gpus": 8})
    assert floors.floor(16 << 30, 2, 8) == pytest.approx(0.9 * 430)
    assert floors.floor(16 << 30, 4, 8) == pytest.approx(0.9 * 320), "nothing is known of four: that of the whole group"
    assert floors.floor(16 << 30, 2, 1) == pytest.approx(0.9 * 430 / 8)
    assert floors.floor(1 << 30, 2, 8) == 0.0, "a size that nobody has an expectation for"
    assert floors.size(16 << 30) == 16 << 30


def test_ports_that_are_not_active_are_counted_unless_they_are_left_out(tmp_path: pathlib.Path) -> None:
    def context(**env: str) -> dict[str, t.Any]:
        made = head(tmp_path, 2, 8, env=env)
        for seat in made.group.members:
            ports = [{"device": f"mlx5_{n}", "port": 1, "link_layer": "InfiniBand", "rate_gbps": 400.0, "gids": []} for n in range(8)]
            seat.gpu, seat.ports, seat.down = "NVIDIA H200", ports[:4], ports[4:]
        return made.context_of("all_reduce", {}, made.group.members, list(range(8)))

    def nics(**env: str) -> tuple[t.Any, ...]:
        of = context(**env)
        return of["nics"], of["nics_used"], of["nics_down"]

    assert nics() == (8, 4, 4)
    assert nics(NCCL_IB_HCA="mlx5_0,mlx5_1,mlx5_2,mlx5_3") == (4, 4, 0)
    assert nics(NCCL_IB_DISABLE="1") == (0, 0, 0)


def test_who_holds_a_group_up_is_named_and_the_search_is_spared(tmp_path: pathlib.Path) -> None:
    made = head(tmp_path, count=3, gpus=2)
    check = {"check": "all_reduce", "variant": "gpus=all sizes=8M:8M"}
    job = made.job_of("all_reduce", {}, made.group.members, [0, 1], ("8M", "8M"), 20.0)
    evidence = made.evidence_of(job)
    assert job.on_hang and job.plea == b""
    job.timed_out, job.duration_s = True, 20.0

    def look(number: int) -> tuple[hang.Look, hang.Look]:
        return (hang.Look("T"),) * 2 if number == 3 else (hang.Look("R"),) * 2

    nodes = {f"gpu-{node:02}": (2 * node - 2, 2 * node - 1) for node in (1, 2, 3)}
    answers = {
        node: hangs.Answer(tuple(hang.RankSeen(number, node, look(number), 1.0) for number in numbers), dict(zip(numbers, (0, 1))))
        for node, numbers in nodes.items()
    }
    unseen = made.read_job(job)
    assert (unseen.code, unseen.reason) == ("timeout", "the group did not end within 20 s and was ended")  # nobody looked
    evidence.gathered, evidence.answers = True, answers
    launch = made.read_job(job)
    assert (launch.outcome, launch.code) == ("timeout", "rank_hung") and launch.code not in fabric.SEARCHED
    assert str(launch.reason).startswith("rank 3 on gpu-02 is stopped (state T); the group did not end within 20 s")
    (found,) = made.hang_findings(check, launch, [0, 1])
    assert (found["subject"]["id"], found["reason_code"]) == ("gpu-02/gpu/slot-1", "rank_hung") and "rank 3 is stopped" in found["reason"]
    evidence.answers = {node: answer for node, answer in answers.items() if node != "gpu-02"}
    evidence.silent = ["gpu-02"]
    (found,) = made.hang_findings(check, made.read_job(job), [0, 1])
    assert found["subject"] == {"kind": "node", "id": "gpu-02", "members": ["gpu-02"]} and "did not answer" in found["reason"]
    evidence.silent, evidence.unread = [], {"gpu-02": "Connection refused"}
    launch = made.read_job(job)
    assert launch.code == "timeout" and "gpu-02 could not be looked at: Connection refused" in str(launch.reason)
    assert not list(made.hang_findings(check, launch, [0, 1]))
