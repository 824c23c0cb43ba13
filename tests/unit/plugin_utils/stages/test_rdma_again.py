# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rounds of the stage rdma_again."""

from __future__ import annotations

import pathlib

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix import diagnose_matrix
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_table import Cell
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import rdma_again

ROLE = pathlib.Path(__file__).resolve().parents[4] / "roles/rdma_again/defaults/main.yml"
LIMIT = yaml.safe_load(ROLE.read_text())["rdma_again_limit"]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("rails", [1, 2, 8])
@pytest.mark.parametrize("count", range(3, 14))
def test_the_default_limit_suffices_to_convict_one_bad_port(count: int, rails: int, directed: bool) -> None:
    """Few partners are asked often: on four nodes with eight rails the port needs 24 rounds."""
    ports = {f"n{node}/nic/mlx5_{rail}/1": (f"n{node}", rail) for node in range(count) for rail in range(rails)}
    bad = "n0/nic/mlx5_0/1"

    def cell(a: str, b: str, again: bool = False) -> Cell:
        return Cell(a, b, str(ports[a][1]), 3.0 if bad in (a, b) else 10.0, floor=9.0, directed=directed, again=again)

    cells = [cell(a, b) for a in ports for b in ports if ports[a][1] == ports[b][1] and (a != b if directed else a < b)]
    needed = [(0, a, b) for a, b, _rail in diagnose_matrix(cells).again]
    rounds = rdma_again._rounds(needed, ports)
    assert len(rounds) <= LIMIT
    measured = [cell(*_ports(test), again=True) for tests in rounds for test in tests]
    (finding,) = diagnose_matrix(cells + measured).findings
    assert finding.confidence == "convicted" and bad.split("/", maxsplit=1)[0] in finding.id


def _ports(test: tuple[int, str, str, str, rdma_again.rdma.Step]) -> tuple[str, str]:
    """The two ports of one test of a round."""
    _kind, server, client, _subject, [(mine, other)] = test
    return f"{server}/nic/mlx5_{mine}/1", f"{client}/nic/mlx5_{other}/1"
