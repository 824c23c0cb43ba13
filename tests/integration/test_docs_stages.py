# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""docs/stages.md, followed to the letter: its files on disk, its stages on real hosts."""

from __future__ import annotations

import pathlib
import re

import pytest
from harness.fleet_runs import ROOT, Acceptance

pytestmark = pytest.mark.fleet
BLOCK = re.compile(r"^```\w+\n# (\S+)\n(.*?)^```$", re.S | re.M)


def test_the_stages_of_the_page_are_accepted_on_real_hosts(healthy: Acceptance, tmp_path: pathlib.Path) -> None:
    for name, text in BLOCK.findall((ROOT / "docs/stages.md").read_text()):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
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
    for name, text in BLOCK.findall((ROOT / "docs/stages.md").read_text()):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    asked = ["-e", f"@{tmp_path / 'group_vars/all.yml'}", "-e", "copy_block=4M"]
    done = healthy.run(["gpu-01"], *asked, environment={"ANSIBLE_ROLES_PATH": str(tmp_path / "roles")})
    assert done.status and "copy_block" in done.output and not done.verdicts
