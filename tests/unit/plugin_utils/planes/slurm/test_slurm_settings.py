# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of a Slurm cluster, and the arguments of srun."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError


def job(**variables: t.Any) -> list[str]:
    named = {f"acceptance_slurm_{name}": value for name, value in variables.items()}
    return settings.of("lab", named).job("gpufleet-x", "a run", ["n1"], "gpu:h200:8", 600.0)


def test_a_job_has_one_node_alone_a_name_a_comment_and_a_limit() -> None:
    argv = job()
    for word in ("--nodelist=n1", "--nodes=1", "--exclusive", "--job-name=gpufleet-x", "--comment=a run", "--time=12", "--gres=gpu:h200:8"):
        assert word in argv
    assert "--propagate=NONE" in argv  # the limits of slurmd, and not those of a login
    assert argv[0] == "srun" and not any(word.startswith(("--partition", "--account", "--qos")) for word in argv)


def test_a_job_of_a_group_has_a_labelled_task_on_each_of_its_nodes() -> None:
    argv = settings.of("lab", {}).job("gpufleet-x", "a run", ["n1", "n2"], "", 600.0)
    assert {"--nodelist=n1,n2", "--nodes=2", "--label", "--wait=0"} <= set(argv)
    assert not [word for word in argv if word.startswith("--ntasks")]  # --exact would give each task one processor
    assert "--unbuffered" in job() and "--unbuffered" not in argv  # by which a line would come in pieces, each with a label


def test_variables_become_options() -> None:
    argv = job(partition="a,b", account="x", qos="y", reservation="z", constraint="c", gres="gpu:4", time=30, extra=["--licenses=l:1"])
    chosen = [
        "--partition=a,b",
        "--account=x",
        "--qos=y",
        "--reservation=z",
        "--constraint=c",
        "--gres=gpu:4",
        "--time=30",
        "--licenses=l:1",
    ]
    assert all(word in argv for word in chosen)


def test_a_job_asks_for_no_more_time_than_its_partition_allows() -> None:
    def limit(most: int, **variables: int) -> str:
        of_lab = settings.of("lab", {f"acceptance_slurm_{name}": value for name, value in variables.items()})
        argv = of_lab.job("x", "", ["n1"], "", 3700.0, most)
        return next(word for word in argv if word.startswith("--time="))

    assert [limit(0), limit(60), limit(120), limit(60, time=90)] == ["--time=64", "--time=60", "--time=64", "--time=90"]


@pytest.mark.parametrize(
    "option",
    [
        "--nodelist=n2", "--node=n2", "-wn2", "--exclusive=user", "--job-name=x", "--time=1", "hostname", "--", "", "--export=ALL",
        "--exp=ALL", "--mem=1", "--gpus-per-task=1", "--reboot", "--error=/tmp/x", "--no-kill", "--uid=0", "--propagate=ALL",
    ],
)  # fmt: skip
def test_options_by_which_a_job_would_not_be_ours_are_refused(option: str) -> None:
    with pytest.raises(RunError, match="lab: acceptance_slurm_extra: found"):
        job(extra=[option])


def test_an_option_with_a_variable_of_its_own_is_refused_by_its_name() -> None:
    with pytest.raises(RunError, match="found '--part=x', expected it in acceptance_slurm_partition"):
        job(extra=["--part=x"])


@pytest.mark.parametrize(("name", "value"), [("partition", "-a"), ("account", "a\nb"), ("qos", "\x1b[31m")])
def test_values_that_are_none_are_refused(name: str, value: str) -> None:
    with pytest.raises(RunError, match=f"lab: acceptance_slurm_{name}: found"):
        job(**{name: value})


@pytest.mark.parametrize("value", [{"selector": "a"}, [], {"names": "n1"}, {"expected": -1}, {"feature": ["a"]}, {"expected": [""]}])
def test_wrong_choices_of_nodes_are_refused(value: t.Any) -> None:
    if value == []:
        assert settings.selection("lab", {"acceptance_nodes": value}).names == ()
        return
    with pytest.raises(RunError, match="lab: acceptance_nodes: found"):
        settings.selection("lab", {"acceptance_nodes": value})
