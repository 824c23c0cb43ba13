# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""docs/stages.md, followed to the letter: its files on disk, its stages on real hosts."""

from __future__ import annotations

import pathlib

import pytest
from harness.fleet_runs import Acceptance
from harness.pages import files_of

pytestmark = pytest.mark.fleet


def test_the_stages_of_the_page_are_accepted_on_real_hosts(healthy: Acceptance, tmp_path: pathlib.Path) -> None:
    files_of("docs/stages.md", tmp_path)
    hosts = ["gpu-01", "gpu-02", "gpu-03"]
    done = healthy.run(
        hosts,
        "-e",
        f"@{tmp_path / 'group_vars/all.yml'}",
        variables={host: {"reach_address": healthy.fleet.address(host)} for host in hosts},
        environment={"ANSIBLE_ROLES_PATH": str(tmp_path / "roles")},
    )
    assert done.status == 0, done.output[-3000:]
    assert {(v["stage"], v["subject"]["kind"]) for v in done.verdicts} == {("copy", "node"), ("memory", "node"), ("reach", "pair")}
    assert len(done.verdicts) == 8 and {v["verdict"] for v in done.verdicts} == {"PASS"}
    healthy.nothing_left(*hosts)


def test_what_the_page_says_is_refused_is_refused(healthy: Acceptance, tmp_path: pathlib.Path) -> None:
    files_of("docs/stages.md", tmp_path)
    asked = ["-e", f"@{tmp_path / 'group_vars/all.yml'}", "-e", "copy_block=4M"]
    done = healthy.run(["gpu-01"], *asked, environment={"ANSIBLE_ROLES_PATH": str(tmp_path / "roles")})
    assert done.status and "copy_block" in done.output and not done.verdicts
