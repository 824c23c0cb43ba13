# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Slurm rig, and that both ways to read it agree."""

from __future__ import annotations

import subprocess

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import reading
from rigs.slurm.slurm import Slurm

pytestmark = pytest.mark.fleet


def test_jobs_run_on_the_node_that_was_asked_for(rig_slurm: Slurm) -> None:
    assert set(rig_slurm.states().values()) == {"idle"} and not rig_slurm.jobs()
    for host in rig_slurm.fleet.hosts:
        argv = rig_slurm.fleet.ssh("gpu-01", "srun", "-w", host, "--exclusive", "--gres=gpu:h200:8", "hostname")
        assert subprocess.run(argv, capture_output=True, text=True, check=False).stdout == f"{host}\n"


def test_a_drained_node_reads_the_same_in_both_ways(rig_slurm: Slurm) -> None:
    """JSON of 22.05's sinfo or of scontrol, and lines of our form."""
    rig_slurm.drain("gpu-02", "NHC: a\nb|c")
    try:
        found = [nodes for argv in (("scontrol", "show", "nodes", "--json"), ("sinfo", "--json")) if (nodes := whole(rig_slurm, *argv))]
        text = rig_slurm.client("env", "SLURM_TIME_FORMAT=%s", "sinfo", "-h", "-N", "-o", reading.form("m", reading.NODE_FIELDS))
        by_lines = reading.nodes_of_lines(text, "m")
        assert [alike(node) for node in found[0]] == [alike(node) for node in by_lines]
        drained = next(node for node in by_lines if node.name == "gpu-02")
        assert drained.reason.text == "NHC: a\nb|c" and drained.reason.user == "root" and drained.obstacle()
    finally:
        rig_slurm.resume("gpu-02")


def alike(node: reading.SlurmNode) -> reading.SlurmNode:
    """Return a node without what the two ways may tell in different words: sinfo has no comments, and
    its lines no time of boot, and it lists partitions in any order."""
    return node._replace(version="", comment=None, booted=0, partitions=tuple(sorted(node.partitions)))


def whole(slurm: Slurm, *argv: str) -> list[reading.SlurmNode] | None:
    """Return the nodes in the answer to a command; None where this version does not know it."""
    done = subprocess.run(slurm.fleet.ssh("gpu-01", *argv), capture_output=True, text=True, check=False)
    return reading.nodes_of_json(done.stdout)
