# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated nccl-tests print what the parser takes, for each operation and for the numbers of ranks of nodes and pools: sizes of a rank
are whole elements, as those of the real programs."""

from __future__ import annotations

import pathlib
import subprocess

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nccl_tests
from rigs.simulated import nodes

PROGRAMS = sorted(path.name for path in nodes.TOOLS.glob("*_perf"))
# GPUs of a node, of groups of three and seven nodes, and of the demo's fourteen.
RANKS = (8, 24, 56, 112)
# 18 links of 25 GB/s of an H200: more is above what it can give.
NVLINK_GB_S = 450


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of the programs of a simulated group."""
    folder = tmp_path_factory.mktemp("group")
    (folder / "bin").symlink_to(nodes.TOOLS)
    (folder / "node.conf").write_text(nodes.conf(1))
    return folder


def test_the_operations_that_a_request_may_name_are_simulated() -> None:
    assert {f"{operation}_perf" for operation in ("all_gather", "all_reduce", "alltoall", "broadcast", "reduce_scatter")} <= set(PROGRAMS)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_output_of_an_operation_is_measured(group: pathlib.Path, program: str, ranks: int) -> None:
    command = [group / "bin" / program, "-b", "8M", "-e", "1G", "-f", "2", "-g", str(ranks)]
    done = subprocess.run(command, check=False, text=True, capture_output=True)
    read = nccl_tests.parse(done.stdout, rc=done.returncode, expect_ranks=ranks, expect_max_bytes=1 << 30)
    assert read["outcome"] == "measured", read["reason"]
    if ranks == 8 and program != "all_reduce_perf":
        assert read["peak_busbw"]["value"] < NVLINK_GB_S


@pytest.mark.parametrize("program", ["all_gather_perf", "reduce_scatter_perf"])
def test_the_part_of_a_rank_is_aligned_to_16_bytes(group: pathlib.Path, program: str) -> None:
    """Source: nccl-tests src/all_gather.cu and reduce_scatter.cu, AllGatherGetCollByteCount: count / nranks & -(16 / eltSize)."""
    done = subprocess.run(
        [group / "bin" / program, "-b", "8M", "-e", "1G", "-f", "2", "-g", "24"], check=True, text=True, capture_output=True
    )
    counts = [int(line.split()[1]) for line in done.stdout.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    assert len(counts) == 8 and {count * 4 % 16 for count in counts} == {0}
