# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What playbooks beside a run do on a Slurm cluster: jobs of runs are shown and cancelled, and no others."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry, upkeep
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

RUN = "20260101T000000Z-0a1b2c"
SQUEUE = f"""for last in "$@"; do :; done; mark=${{last%%|*}}
[[ " $* " == *" --me "* ]] || exit 9
echo "$mark|5|gpufleet-{RUN}-gemm|RUNNING|None|n1"
echo "$mark|6|gpufleet-20260101T000000Z-ffffff-stack|PENDING|Resources|n2"
echo "$mark|7|training|RUNNING|None|n3"
"""


@pytest.fixture
def do(
    program: t.Callable[[str, str], None], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> t.Callable[..., tuple[dict[str, t.Any], list[str], str]]:
    program("squeue", SQUEUE)
    program("scancel", f'echo "$@" > {tmp_path}/cancelled')

    def of(operation: str, check_mode: bool = False, **options: t.Any) -> tuple[dict[str, t.Any], list[str], str]:
        action = types.SimpleNamespace(
            _task=types.SimpleNamespace(check_mode=check_mode), _templar=types.SimpleNamespace(template=lambda value: value)
        )
        defaults = {name: option["default"] for name, option in upkeep.OPTIONS.items()}
        wanted = upkeep.Upkeep(action, {**defaults, **options}, {"inventory_hostname": "lab"})
        shown: list[str] = []
        monkeypatch.setattr(wanted, "show", shown.append)
        result = registry.shipped()["slurm"].operations[operation](wanted)
        cancelled = tmp_path / "cancelled"
        return result, shown, cancelled.read_text().strip() if cancelled.exists() else ""

    return of


def test_status_shows_the_jobs_of_runs(do: t.Callable[..., tuple[dict[str, t.Any], list[str], str]]) -> None:
    result, shown, _cancelled = do("status")
    assert result["found"] and len(shown) == 2
    assert shown[0] == f"lab: job 5, gpufleet-{RUN}-gemm, for n1: RUNNING, None"


def test_that_no_job_is_there_is_said(
    do: t.Callable[..., tuple[dict[str, t.Any], list[str], str]], program: t.Callable[[str, str], None]
) -> None:
    """Also for a detached run whose jobs have ended: its results wait for somebody."""
    program("squeue", "exit 0")
    for operation in ("status", "logs"):
        assert do(operation)[1] == ["lab: no job of a run waits or runs"]
        result, (line,), _cancelled = do(operation, run_id=RUN)
        assert not result["found"] and line.startswith(f"lab: no job of run {RUN} waits or runs; if it is detached, ")


LOGS = """shift $#
read -r length; head -c $length > /dev/null
echo 'a banner of the site'; echo 'n1: "gemm dtype=bf16: measured: tflops 670 TFLOPS"'; echo 'n1: "runs for 4 s: gemm \\u001b[31m"'
"""


def test_logs_show_what_jobs_do_on_their_nodes(
    do: t.Callable[..., tuple[dict[str, t.Any], list[str], str]], program: t.Callable[[str, str], None], tmp_path: pathlib.Path
) -> None:
    program("srun", f'echo "$@" | cut -c -200 > {tmp_path}/asked\n{LOGS}')
    result, shown, cancelled = do("logs", tail=100)
    assert shown[:2] == ["lab/n1: gemm dtype=bf16: measured: tflops 670 TFLOPS", "lab/n1: runs for 4 s: gemm \\x1b[31m"]
    assert shown[2:] == ["lab: job 6, gpufleet-20260101T000000Z-ffffff-stack, for n2: PENDING, Resources"] and not cancelled
    assert "--jobid=5 --overlap" in (tmp_path / "asked").read_text() and result["found"]
    assert do("logs", node="lab/n2")[1] == shown[2:] and not do("logs", stage="soak")[1]


def test_a_job_that_nobody_may_look_into_is_said(
    do: t.Callable[..., tuple[dict[str, t.Any], list[str], str]], program: t.Callable[[str, str], None]
) -> None:
    program("srun", "echo 'srun: error: Unable to confirm allocation for job 5: Invalid job id specified' >&2; exit 1")
    (line,) = do("logs", run_id=RUN)[1]
    assert line == "lab/n1: lab: srun fails: Unable to confirm allocation for job 5: Invalid job id specified"


@pytest.mark.parametrize(
    ("operation", "options", "cancelled"),
    [
        ("stop", {}, "5 6"),
        ("stop", {"run_id": RUN}, "5"),
        ("stop", {"run_id": RUN, "check_mode": True}, ""),
        ("stop", {"run_id": "20270101T000000Z-000000"}, ""),
        ("cleanup", {"run_id": RUN}, "5"),
        ("cleanup", {}, ""),
    ],
)
def test_jobs_of_runs_are_cancelled_and_no_others(
    do: t.Callable[..., tuple[dict[str, t.Any], list[str], str]], operation: str, options: dict[str, t.Any], cancelled: str
) -> None:
    assert do(operation, **options)[2] == cancelled


def test_slurm_that_does_not_answer_fails_the_playbook(
    do: t.Callable[..., tuple[dict[str, t.Any], list[str], str]], program: t.Callable[[str, str], None]
) -> None:
    program("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(RunError, match="lab: squeue fails: Unable to contact slurm controller"):
        do("stop")
