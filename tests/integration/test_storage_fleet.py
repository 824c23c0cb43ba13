# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage storage over sshd hosts with the real fio: a good file system, a missing one, a read-only one and a full one; and a controller
that is killed while it writes."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import time
import typing as t

import pytest
import test_fabric_fleet as fabric
from rigs import common, storage
from rigs.fleet.fleet import Fleet

pytestmark = pytest.mark.fleet
ROOT = pathlib.Path(__file__).resolve().parents[2]
PATH = "/var/lib/scratch"
SMALL = {"storage_gib": 0.06, "storage_jobs": 2, "storage_seconds": 1}


@pytest.fixture(scope="module")
def hosts(rig_fleet: Fleet) -> t.Iterator[Fleet]:
    common.need_packages(storage.PACKAGES)
    rig_fleet.up(4)
    for host in ("gpu-01", "gpu-03", "gpu-04"):
        (rig_fleet.var_lib(host) / "scratch").mkdir(exist_ok=True)
    rig_fleet.inside("gpu-03", "mount", "-t", "tmpfs", "-o", "ro,size=64m", "tmpfs", PATH)
    rig_fleet.inside("gpu-04", "mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", PATH)
    yield rig_fleet
    fabric.nothing_left(rig_fleet)


def command(fleet: Fleet, results: pathlib.Path, **more: t.Any) -> list[str]:
    rates = {"gibps_read": 0.0001, "gibps_write": 0.0001}
    extra = {
        "acceptance_results_dir": str(results), "acceptance_stages": ["storage"], "acceptance_history": False,
        "acceptance_storage": [{"name": "scratch", "path": PATH, **rates}], **SMALL, **more,
    }  # fmt: skip
    return ["ansible-playbook", "acceptance.yml", "-i", str(fleet.inventory), "-f", "4", "-e", json.dumps(extra)]


def folders(fleet: Fleet) -> list[pathlib.Path]:
    return list((fleet.var_lib("gpu-01") / "scratch").glob(".gpufleet-acceptance-*"))


def test_each_file_system_gets_its_verdict_and_nothing_is_left(hosts: Fleet, tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        command(hosts, tmp_path), cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500, check=False
    )
    run = fabric.finish(tmp_path, done.returncode, done.stdout + done.stderr)
    found = {(v["subject"]["id"], v["check"]): (v["verdict"], v["reason_code"]) for v in run.verdicts}
    assert {verdict for (host, _check), (verdict, _code) in found.items() if host == "gpu-01"} == {"PASS"}, run.output[-3000:]
    assert len([key for key in found if key[0] == "gpu-01"]) == 7
    mounts = {host: found[host, "mount"] for host in hosts.hosts if host != "gpu-01"}
    codes = {"gpu-02": "mount_missing", "gpu-03": "mount_read_only", "gpu-04": "mount_full"}
    assert mounts == {host: ("FAIL", code) for host, code in codes.items()}, run.output[-3000:]
    assert {verdict for (host, check), (verdict, _code) in found.items() if host in codes and check != "mount"} == {"UNKNOWN"}
    assert not folders(hosts)


def test_a_controller_that_is_killed_while_fio_writes_leaves_nothing(hosts: Fleet, tmp_path: pathlib.Path) -> None:
    running = subprocess.Popen(
        command(hosts, tmp_path, storage_seconds=60), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    wait(lambda: folders(hosts))
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    wait(lambda: not folders(hosts))


def wait(until: t.Callable[[], t.Any], seconds: float = 200) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end
        time.sleep(0.1)
