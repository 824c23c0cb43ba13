# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage storage_together in one job of a real Slurm, over hosts that share a folder by sshfs."""

from __future__ import annotations

import typing as t

import pytest
from harness.own_rig import own
from harness.slurm_runs import Runs
from rigs import common, storage
from rigs.fleet.fleet import Fleet
from rigs.simulated import nodes
from rigs.slurm.slurm import Slurm

pytestmark = [pytest.mark.fleet, pytest.mark.long]
HOSTS = ["gpu-01", "gpu-02", "gpu-03", "gpu-04"]
UNMOUNTED, DRAINED = "gpu-03", "gpu-01"
PATH, EXPORT = "/mnt/shared", "/var/lib/export"
VARIABLES: dict[str, t.Any] = {
    "acceptance_storage": [{"name": "home", "path": PATH, "shared": True, "gibps_read_all": 0.001}], "storage_together_gib": 0.05,
    "storage_together_share": 50, "storage_together_jobs": 1, "storage_together_depth": 1, "storage_together_seconds": 2,
    "storage_together_patience": 5, "storage_together_window": 20, "storage_together_answer_timeout": 20,
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Runs]:
    """A Slurm on four hosts, of which all but one have mounted a folder of the last one."""
    common.need_packages(storage.PACKAGES)
    with own(Fleet) as fleet:
        for number, host in enumerate(fleet.up(len(HOSTS)), 1):
            nodes.planted(fleet.plant(host), number)
        (fleet.var_lib(HOSTS[-1]) / "export").mkdir()
        for host in HOSTS:
            fleet.inside(host, "mkdir", "-p", PATH)
            if host != UNMOUNTED:
                options = ("-o", "dir_cache=no", "-o", "StrictHostKeyChecking=no", "-o", "reconnect")
                fleet.inside(host, "sshfs", f"root@{fleet.address(HOSTS[-1])}:{EXPORT}", PATH, *options)
        slurm = Slurm(fleet)
        slurm.up()
        yield Runs(slurm, tmp_path_factory.mktemp("runs"))
        assert list((fleet.var_lib(HOSTS[-1]) / "export").iterdir()) == []
        for host in HOSTS:
            if host != UNMOUNTED:
                fleet.inside(host, "umount", PATH)


def found_of(runs: Runs, **more: t.Any) -> tuple[dict[tuple[str, str], tuple[str, str | None, str]], str]:
    """Return {(check, node): (verdict, reason code, reason)} of a run, and what it printed."""
    done = runs.run(["storage_together"], **{**VARIABLES, **more})
    of = {(v["check"], v["subject"]["id"].rpartition("/")[2]): (v["verdict"], v["reason_code"], v["reason"]) for v in done.verdicts}
    return of, done.output[-4000:]


def test_nodes_of_a_job_begin_together_and_one_without_the_mount_is_named(runs: Runs) -> None:
    found, said = found_of(runs)
    assert found["coherent", UNMOUNTED][:2] == ("FAIL", "mount_missing"), said
    for host in {*HOSTS} - {UNMOUNTED}:
        assert [found[check, host][0] for check in ("together", "model_load")] == ["PASS"] * 2, (found, said)
        # Locks of sshfs do not hold between hosts, which the nodes see at one moment only if they have begun together.
        assert host == HOSTS[0] or "locks do not hold between nodes" in found["coherent", host][2], (found, said)
    before = HOSTS[HOSTS.index(UNMOUNTED) - 1]  # reads the checkpoint of the node that has none
    assert [found["checkpoint", host][0] for host in HOSTS if host not in (UNMOUNTED, before)] == ["PASS"] * 2, found
    assert found["checkpoint", before][:2] == ("UNKNOWN", "partner"), found
    assert found["curve", "home"][:2] == ("UNKNOWN", "incomplete"), found
    runs.nothing_left(60, "sftp", "sshfs")


def test_the_others_are_measured_without_a_node_that_slurm_does_not_give(runs: Runs) -> None:
    runs.slurm.drain(DRAINED, "fan")
    try:
        found, said = found_of(runs)
    finally:
        runs.slurm.resume(DRAINED)
    assert {found[check, DRAINED][:2] for check in ("coherent", "together")} == {("UNKNOWN", "node_drained")}, (found, said)
    assert [found["together", host][0] for host in (HOSTS[1], HOSTS[3])] == ["PASS"] * 2, (found, said)
    assert found["curve", "home"][:2] == ("UNKNOWN", "incomplete") and "1 of the nodes could not take part" in found["curve", "home"][2]
    runs.nothing_left(60, "sftp", "sshfs")
