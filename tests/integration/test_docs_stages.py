# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""docs/stages.md, followed to the letter: its files on disk, its stages on real hosts."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
from harness.fleet_runs import Acceptance, Done
from harness.pages import files_of

pytestmark = pytest.mark.fleet


HOSTS = ["gpu-01", "gpu-02", "gpu-03"]


def run(on: Acceptance, folder: pathlib.Path, *more: str) -> Done:
    """As the page says: its roles and variables lie beside an inventory."""
    files_of("docs/stages.md", folder)
    addresses = {h: {"reach_address": on.fleet.address(h), "acceptance_fabric_address": on.fleet.address(h)} for h in HOSTS}
    (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": addresses}}))
    return on.run(HOSTS, "-i", str(folder / "hosts.yml"), *more)


def test_the_stages_of_the_page_are_accepted_on_real_hosts(healthy: Acceptance, tmp_path: pathlib.Path) -> None:
    done = run(healthy, tmp_path)
    assert done.status == 0, done.output[-3000:]
    assert {(v["stage"], v["subject"]["kind"]) for v in done.verdicts} == {
        ("copy", "node"), ("memory", "node"), ("reach", "pair"), ("gather", "group"), ("gather", "node")
    }  # fmt: skip
    assert len(done.verdicts) == 12 and {v["verdict"] for v in done.verdicts} == {"PASS"}
    (group,) = [m for m in done.journal if m["subject"]["kind"] == "group"]
    assert group["subject"] == {"kind": "group", "id": "gather", "members": HOSTS} and group["metrics"]["bandwidth"]["value"] > 0
    healthy.nothing_left(*HOSTS)


def test_of_a_group_of_ones_own_only_the_member_that_fails_is_not_accepted(healthy: Acceptance, tmp_path: pathlib.Path) -> None:
    healthy.plant("gpu-03", gpus=7)
    done = run(healthy, tmp_path, "--tags", "gather")
    found = {v["subject"]["id"]: (v["verdict"], v["reason_code"]) for v in done.verdicts}
    assert found == {
        "gather": ("UNKNOWN", "member"), "gpu-01": ("PASS", None), "gpu-02": ("PASS", None), "gpu-03": ("UNKNOWN", "gpu_count")
    }, done.output[-3000:]  # fmt: skip
    recap = {host: int(failed) for host, failed in re.findall(r"^(gpu-\d+) .*failed=(\d)", done.output, re.M)}
    assert done.status and recap == {"gpu-01": 0, "gpu-02": 0, "gpu-03": 1}, done.output[-3000:]
    healthy.nothing_left(*HOSTS)


def test_what_the_page_says_is_refused_is_refused(healthy: Acceptance, tmp_path: pathlib.Path) -> None:
    done = run(healthy, tmp_path, "-e", "copy_block=4M")
    assert done.status and "copy_block" in done.output and not done.verdicts
