# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mistakes that a run would show only at its end, by the playbooks in check mode over the simulated fleet."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[4]


def check(tmp_path: pathlib.Path, playbook: str, *more: str, **variables: object) -> tuple[int, str]:
    extra = json.dumps({"acceptance_results_dir": str(tmp_path / "results"), **variables})
    done = subprocess.run(
        [ROOT / ".venv/bin/ansible-playbook", playbook, "-i", "inventories/demo", "--check", "--limit", "h200-01", "-e", extra, *more],
        cwd=ROOT, env={**os.environ, "ANSIBLE_NOCOLOR": "1"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    ("playbook", "variables", "words"),
    [
        ("playbooks/soak.yml", {"minutes": 1}, "-e minutes: nothing in this run reads this variable"),
        ("playbooks/soak.yml", {"hurs": 1}, "did you mean hours?"),
        ("acceptance.yml", {"nccl_node_types": ["flot"]}, "nccl_node_types: found 'flot', expected some of int8"),
        ("acceptance.yml", {"acceptance_results_dir": "/etc/passwd/results"}, "acceptance_results_dir: found /etc/passwd/results, "),
    ],
)
def test_a_wrong_variable_is_refused_in_check_mode(tmp_path: pathlib.Path, playbook: str, variables: dict[str, object], words: str) -> None:
    status, output = check(tmp_path, playbook, **variables)
    assert status != 0 and words in output, output


def test_an_expectation_for_a_stage_that_does_not_exist_is_noted(tmp_path: pathlib.Path) -> None:
    entry = {"id": "mine", "match": {"stage": "gem"}, "metric": "tflops", "value": 1, "unit": "TFLOPS", "source": "us", "date": "2026-11"}
    status, output = check(tmp_path, "acceptance.yml", acceptance_expectations=[{**entry, "confidence": "measured"}])
    assert status == 0 and "this run has no stage gem; did you mean gemm?" in output, output


def test_variables_that_the_playbook_the_stages_or_the_inventory_read_are_taken(tmp_path: pathlib.Path) -> None:
    status, output = check(tmp_path, "playbooks/soak.yml", hours=2, awx_job_id=7, run_id="20260101T000000Z-0a1b2c")
    assert status == 0, output
