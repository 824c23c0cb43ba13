# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real Slurm with accounts and QOS: what it refuses is said in its own words, in check mode before anything is started."""

from __future__ import annotations

import typing as t

import pytest
from harness.own_rig import own
from harness.slurm_runs import Runs
from rigs.fleet.fleet import Fleet
from rigs.simulated import nodes
from rigs.slurm.slurm import Slurm

pytestmark = pytest.mark.fleet


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Runs]:
    with own(Fleet) as fleet:
        for number, host in enumerate(fleet.up(2), 1):
            nodes.planted(fleet.plant(host), number)
        slurm = Slurm(fleet, accounting=True)
        slurm.up()
        slurm.client("sacctmgr", "-i", "add", "qos", "tiny", "MaxWallDurationPerJob=1", "flags=DenyOnLimit")
        slurm.client("sacctmgr", "-i", "modify", "user", "root", "set", "qos=normal,tiny")
        yield Runs(slurm, tmp_path_factory.mktemp("slurm"))


def test_a_run_in_an_account_is_accepted(runs: Runs) -> None:
    done = runs.run(["stack"], acceptance_slurm_account="default", acceptance_slurm_qos="normal")
    assert done.status == 0, done.output
    runs.nothing_left(10)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"acceptance_slurm_account": "nobodys"}, "Invalid account or account/partition combination specified"),
        ({"acceptance_slurm_qos": "unknown"}, "Invalid qos specification"),
        ({"acceptance_slurm_qos": "tiny", "acceptance_slurm_time": 5}, "Job violates accounting/QOS policy"),
    ],
)
def test_check_mode_foresees_what_is_refused_in_the_words_of_slurm(runs: Runs, variables: dict[str, t.Any], words: str) -> None:
    foreseen = runs.run(["stack"], "--check", **variables)
    assert foreseen.status != 0 and words in foreseen.output and "without starting a job" in foreseen.output


def test_an_account_without_rights_makes_all_nodes_unknown_before_anything_is_allocated(runs: Runs) -> None:
    done = runs.run(["stack"], acceptance_slurm_account="nobodys")
    assert {(v["verdict"], v["reason_code"]) for v in done.verdicts} == {("UNKNOWN", "job_refused")}, done.output
    assert all("Invalid account or account/partition combination specified" in v["reason"] for v in done.verdicts)
    runs.nothing_left(10)
