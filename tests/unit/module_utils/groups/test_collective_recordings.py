# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real NCCL over two "hosts" of one machine, as the stage itself recorded it."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nccl_tests

FIXTURES = pathlib.Path(__file__).resolve().parents[3] / "fixtures/h200-x4"


@pytest.mark.parametrize(
    ("name", "op"),
    [("plain-all_reduce", "all_reduce"), ("plain-all_gather", "all_gather"), ("layout-all_reduce", "all_reduce")],
)
def test_four_ranks_on_two_hosts_are_one_measurement(name: str, op: str) -> None:
    read = nccl_tests.parse((FIXTURES / f"fabric-{name}.txt").read_text(), 0, expect_ranks=4)
    assert (read["outcome"], read["op"], read["complete"], len(read["rows"])) == ("measured", op, True, 8)
    assert [(rank["host"], rank["name"]) for rank in read["ranks"]] == [(f"gpu-0{n}", "NVIDIA H200") for n in (1, 1, 2, 2)]
    assert 5 < read["peak_busbw"]["value"] < 12, "sockets, not NVLink"


def test_a_binary_without_mpi_is_four_tests_alone() -> None:
    read = nccl_tests.parse((FIXTURES / "fabric-nonmpi-all_reduce.txt").read_text(), 0, expect_ranks=4)
    assert read["outcome"] == "error" and "built without MPI" in read["reason"]
