# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the head of an HCCL group makes of what a launch printed, and what ranks say of themselves, by real shells."""

from __future__ import annotations

import pathlib
import subprocess
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import collective as fabric
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import group, launching
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import hccl_group
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry

TABLE = (
    "the minbytes is 33554432, maxbytes is 67108864, iters is 20, warmup_iters is 5\n"
    "data_size(Bytes): |   aveg_time(us): | alg_bandwidth(GB/s): | check_result:\n"
    "33554432          | 1315.10        | 25.51474             | success\n"
    "67108864          | 2630.20        | 25.51474             | success\n"
)
PARAMS: dict[str, t.Any] = {
    "env": {}, "mpirun": "mpirun", "mpi_args": [], "token": "", "key": None, "group": "hccl", "ssh_args": [], "members": [], "factor": 2,
    "iterations": 20, "warmup": 5, "reduction": "sum", "extra_args": [], "binary_dir": "", "floors": [],
}  # fmt: skip


class Plain(launching.Launcher):
    """Launches nothing around the ranks."""

    def commands(self, entry: t.Any, seats: t.Any, each: int, argv: list[str], env: dict[str, str]) -> list[launching.LaunchCommand]:
        return [launching.LaunchCommand(argv, env)]


def said(*ends: tuple[int, str, int]) -> str:
    return "".join(f"gpufleet: rank {rank} on {host} ended with status {status}.\n" for rank, host, status in ends)


def test_a_table_of_other_sizes_is_no_measurement() -> None:
    assert [read(TABLE, ALL, sizes=(8192, 67108864)).code, read(TABLE, ALL, sizes=(33554432, 1 << 30)).code] == ["reduced_size"] * 2
    head = hccl_group.HcclHead(PARAMS, Node(60), None)
    head.group.folder, head.launcher = "/nonexistent/folder", Plain()
    seats = [group.GroupMember("a", "10.0.0.1", local=True, gpus=["x", "y"])]
    assert head.job_of("all_reduce", {}, seats, range(2), ("8K", "64M"), 60).order == {
        "sizes": [8192, 67108864], "type": "fp32"
    }


BEGUN = TABLE.partition("data")[0]
ALL = said((0, "npu-01", 0), (1, "npu-01", 0), (2, "npu-02.example.com", 0), (3, "npu-02", 0))


def read(
    out: str, err: str, rc: int = 0, timed_out: bool = False, op: str = "all_reduce", sizes: tuple[int, ...] = (33554432, 67108864)
) -> fabric.LaunchResult:
    head = hccl_group.HcclHead(PARAMS, Node(60), None)
    head.launcher.version = "Hydra 4.3.2"
    seats = [group.GroupMember(f"node-{number}", f"10.0.0.{number}", hostname=f"npu-0{number}") for number in (1, 2)]
    argv = ["mpirun", "-n", "4", *launching.watched([f"/opt/bin/{op}_test", "-p", "2"])]
    job = launching.Job([launching.LaunchCommand(argv, {})], seats, 4, 30, "")
    job.out, job.err, job.rc, job.timed_out = out, err, rc, timed_out
    job.order = {"sizes": [*sizes]}
    return head.read_job(job)


def test_a_whole_table_of_all_ranks() -> None:
    launch = read(TABLE, ALL)
    assert launch.outcome == "measured" and launch.busbw(67108864) == pytest.approx(25.51474 * 1.5)
    assert launch.read["peak_busbw"]["unit"] == "GB/s"
    assert launch.job.shown() == ["mpirun", "-n", "4", "/opt/bin/all_reduce_test", "-p", "2"]
    assert read(TABLE, ALL, op="broadcast").busbw(67108864) == pytest.approx(25.51474)


def test_units_of_1024_are_made_gb() -> None:
    table = TABLE.replace("25.51474", "23.76245")
    launch = read(table, ALL)
    assert launch.outcome == "measured" and launch.busbw(67108864) == pytest.approx(25.51474 * 1.5, rel=1e-5)
    assert launch.read["warnings"]


@pytest.mark.parametrize(
    ("out", "err", "rc", "code", "words"),
    [
        (TABLE, said((0, "npu-01", 0), (1, "npu-01", 0)), 0, "rank_mismatch", "all 4 ranks ran on node-1"),
        (TABLE, said((0, "npu-01", 0), (1, "npu-01", 0), (2, "npu-02", 0)), 0, "rank_mismatch", "each of 2 nodes should have 2 ranks"),
        (TABLE, "", 0, "rank_mismatch", "none on node-1, node-2"),
        (TABLE * 4, ALL, 0, "not_mpi", "several tables"),
        (TABLE, said((2, "npu-02", 3)), 137, "rank_died", "rank 2 on node-2 ended with status 3"),
        ("", said((2, "npu-02", 139)), 9, "rank_died", "rank 2 on node-2 was killed (status 139)"),
        ("", "sh: 1: /opt/bin/all_reduce_test: not found\n" + said((3, "npu-02", 127)), 9, "tool_missing", "node-2 does not have"),
        ("", said((3, "npu-02", 126)), 9, "tool_not_executable", "node-2 cannot execute"),
        (TABLE.replace("success", "NULL"), ALL, 0, "unchecked", "not checked"),
        (TABLE + "local rank_id 1, check result failed, 8192 | 1.0 | 1.0 | failed\n", ALL, 0, "wrong_results", "rank_id 1"),
        (TABLE.rsplit("6710", 1)[0], ALL, 0, "incomplete_output", "end at 33554432"),
        ("", "ssh: connect to host 10.0.0.2 port 22: Connection refused\n", 255, "unreachable", "10.0.0.2"),
    ],
)
def test_an_output_that_proves_no_measurement_has_its_reason_code(out: str, err: str, rc: int, code: str, words: str) -> None:
    launch = read(out, err, rc)
    assert (launch.outcome, launch.code) == ("error", code) and words in str(launch.reason), launch.reason


def test_ranks_that_left_are_named_where_the_others_wait() -> None:
    launch = read(BEGUN, said((2, "npu-02", 0)), timed_out=True)
    assert launch.code == "rank_died" and "2 on node-2" in str(launch.reason)
    assert read(BEGUN, "", timed_out=True).code == "timeout"
    ended = said((0, "npu-01", 143), (2, "npu-02", 0), (3, "npu-02", 143))
    assert "2 on node-2" in str(read(BEGUN, ended, timed_out=True).reason), "the others were ended by us"


# Hydra 4.3.2, as it was: it may or may not see that the connection of a rank of status 0 closes before MPI_Finalize.
HYDRA = (
    "\n" + "=" * 83 + "\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 43 RUNNING AT 10.231.1.12\n=   EXIT CODE: 9\n"
    "=   CLEANING UP REMAINING PROCESSES\n=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES\n" + "=" * 83 + "\n"
    "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\nThis typically refers to a problem with your application.\n"
    "Please see the FAQ page for debugging suggestions\n"
)


@pytest.mark.parametrize(
    ("out", "ends", "words"),
    [
        (BEGUN, [(2, "npu-02", 0)], "rank 2 on node-2 ended with status 0 before the test was done; the tool's"),
        ("", [(2, "npu-02", 0)], "rank 2 on node-2 ended with status 0 before the test was done; the tool's last words: none"),
        (BEGUN, [(2, "npu-02", 0), (0, "npu-01", 139)], "rank 2 on node-2 ended with status 0 before the test was done; besides rank 0 on"),
        (BEGUN, [(0, "npu-01", 139), (2, "npu-02", 0)], "rank 2 on node-2 ended with status 0 before the test was done; besides rank 0 on"),
        (BEGUN, [(2, "npu-02", 137), (0, "npu-01", 139)], "rank 2 on node-2 was killed (status 137)"),
        (TABLE, [(2, "npu-02", 0), (0, "npu-01", 139)], "rank 0 on node-1 was killed (status 139)"),
    ],
)
def test_who_left_first_is_named_where_mpirun_ends_the_others(out: str, ends: list[tuple[int, str, int]], words: str) -> None:
    launch = read(out + HYDRA, said(*ends), 9)
    assert launch.code == "rank_died" and str(launch.reason).startswith(words), launch.reason


def test_what_the_tool_itself_says_of_a_failure_is_the_reason() -> None:
    launch = read(BEGUN + "Process 2 HcclGetRootInfo failed, code 7\n" + HYDRA, said((2, "npu-02", 0)), 9)
    assert launch.code == "tool_failed" and "HcclGetRootInfo" in str(launch.reason), launch.reason


@pytest.mark.parametrize(("command", "status"), [("exit 0", 0), ("exit 3", -9), ("kill -SEGV $$", -9)])
def test_a_rank_says_how_it_ended(command: str, status: int) -> None:
    argv = launching.watched(["/bin/sh", "-c", command])
    done = subprocess.run(argv, env={"PATH": "/usr/bin:/bin", "PMI_RANK": "5"}, capture_output=True, text=True, check=False)
    ((rank, _host, said_status),), rest = launching.ends(done.stderr)
    assert (rank, said_status, done.returncode) == ("5", {"exit 0": 0, "exit 3": 3}.get(command, 139), status) and "gpufleet" not in rest


def test_a_rank_that_is_told_to_end_says_nothing() -> None:
    argv = launching.watched(["/bin/sh", "-c", "echo here; exec sleep 100"])
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout and child.stdout.readline() == "here\n"
        child.terminate()
        assert child.wait() == 143 and child.stderr and not launching.ends(child.stderr.read())[0]


def test_a_missing_program_is_status_127(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(launching.watched([str(tmp_path / "none")]), capture_output=True, text=True, check=False)
    (end,), rest = launching.ends(done.stderr)
    assert end.status == 127 and "not found" in rest


def test_operations_are_told_what_to_compute() -> None:
    head = hccl_group.HcclHead(PARAMS, Node(60), None)
    seats = [group.GroupMember("a", "localhost", local=True, hostname="a", gpus=["x", "y", "z"])]
    head.launcher = Plain()
    for op in hccl_group.OPS:
        words = head.job_of(op, {"type": "fp16"}, seats, [1, 2], ("8K", "64M"), 10).argv
        assert ("-o" in words) == (op in hccl_group.REDUCING)
        assert words[words.index("-p") + 1] == "2" and words[words.index("-d") + 1] == "fp16"


def test_the_stage_brings_every_node_by_itself() -> None:
    stages = registry.shipped()
    assert stages["hccl"].before == ("hccl_local",) and stages["hccl"].floor == ("busbw", "GB/s")
    assert not stages["hccl_local"].between and stages["hccl_local"].devices
