# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage storage over sshd hosts with the real fio: a good file system, a missing one, a read-only one and a full one; and controllers,
guardians and probes that are killed while fio writes. Files of others stay."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import typing as t

import pytest
import test_fabric_fleet as fabric
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import storage as probe
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage import alone, checks, touching
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from rigs import common, storage
from rigs.fleet.fleet import Fleet

pytestmark = pytest.mark.fleet
ROOT = pathlib.Path(__file__).resolve().parents[2]
PATH = "/var/lib/scratch"
# Names that look like ours, and are not: they have no marker.
FOREIGN = ("thesis", ".gpufleet-acceptance-0123456789abcdef/thesis")
SMALL = {"storage_gib": 0.06, "storage_jobs": 2, "storage_seconds": 1}


@pytest.fixture(scope="module")
def hosts(rig_fleet: Fleet) -> t.Iterator[Fleet]:
    common.need_packages(storage.PACKAGES)
    rig_fleet.up(4)
    before = fabric.left(rig_fleet)
    for host in ("gpu-01", "gpu-03", "gpu-04"):
        (rig_fleet.var_lib(host) / "scratch").mkdir(exist_ok=True)
    for name in FOREIGN:
        path = rig_fleet.var_lib("gpu-01") / "scratch" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    rig_fleet.inside("gpu-03", "mount", "-t", "tmpfs", "-o", "ro,size=64m", "tmpfs", PATH)
    rig_fleet.inside("gpu-04", "mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", PATH)
    yield rig_fleet
    assert [(rig_fleet.var_lib("gpu-01") / "scratch" / name).read_text() for name in FOREIGN] == ["mine"] * len(FOREIGN)
    fabric.nothing_left(rig_fleet, before=before)


def command(fleet: Fleet, results: pathlib.Path, **more: t.Any) -> list[str]:
    rates = {"gibps_read": 0.0001, "gibps_write": 0.0001}
    extra = {
        "acceptance_results_dir": str(results), "acceptance_stages": ["storage"], "acceptance_history": False,
        "acceptance_storage": [{"name": "scratch", "path": PATH, **rates}], **SMALL, **more,
    }  # fmt: skip
    return ["ansible-playbook", "acceptance.yml", "-i", str(fleet.inventory), "-f", "4", "-e", json.dumps(extra)]


def folders(fleet: Fleet) -> list[pathlib.Path]:
    found = (fleet.var_lib("gpu-01") / "scratch").glob(".gpufleet-acceptance-*")
    return [path for path in found if path.name not in FOREIGN[1]]


def programs(fleet: Fleet, name: str) -> list[int]:
    """Return the processes of gpu-01 that run this program."""
    return [pid for pid, argv in fleet.processes("gpu-01").items() if pathlib.Path(argv[0]).name.startswith(name)]


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
    wait(lambda: programs(hosts, "fio"))
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    wait(lambda: not folders(hosts) and not programs(hosts, "fio"))
    end_what_is_kept(hosts)


@pytest.mark.long
def test_guardian_and_probe_killed_at_once_leave_no_fio_and_the_next_one_removes_the_folder(hosts: Fleet, tmp_path: pathlib.Path) -> None:
    running = subprocess.Popen(
        command(hosts, tmp_path, storage_seconds=60), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    wait(lambda: folders(hosts) and programs(hosts, "fio"))
    ours = programs(hosts, "python3")
    for number in (signal.SIGSTOP, signal.SIGKILL):  # none has time to clean up
        for pid in ours:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    wait(lambda: not programs(hosts, "fio"), 20)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    assert folders(hosts)
    restore = ["ansible-playbook", "playbooks/restore.yml", "-i", str(hosts.inventory), "-f", "4"]
    done = subprocess.run(restore, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0 and not folders(hosts), done.stdout + done.stderr


def test_a_byte_that_changes_on_the_disk_is_wrong_data(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    common.need_packages(storage.PACKAGES)
    unchanged = alone.StorageTest._fio

    def changing(self: alone.StorageTest, path: str, check: str, options: list[str]) -> t.Any:
        if check == checks.VERIFY:
            with open(os.path.join(path, "data.1"), "r+b") as data:
                data.seek(touching.BLOCK + 4711)
                byte = data.read(1)
                data.seek(-1, os.SEEK_CUR)
                data.write(bytes([byte[0] ^ 1]))
                os.fsync(data.fileno())
        return unchanged(self, path, check, options)

    monkeypatch.setattr(alone.StorageTest, "_fio", changing)
    params = {
        "storage": [{"name": "scratch", "path": str(tmp_path)}], "tests": list(checks.CHECKS), "gib": 0.06, "share": 5.0, "seconds": 0.5,
        "jobs": 2, "depth": 4, "direct": True, "nodes": 1, "answer_timeout": 60.0, "test_timeout": 100.0,
    }  # fmt: skip
    asked = [{"check": check, "variant": "storage=scratch"} for check in (checks.WRITE, checks.VERIFY, checks.READ)]
    found = {seen["check"]: seen["reason_code"] for seen in probe.probe({**params, "checks": asked}, Node(300))}
    assert found == {"write": None, "verify": "wrong_results", "read": None} and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [0, 1])
def test_data_of_an_earlier_write_is_wrong_data(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, write: int) -> None:
    """The disk loses what is written over other data: that of the first piece, and that of an earlier run."""
    common.need_packages(storage.PACKAGES)
    unchanged, kept = alone.StorageTest._fio, tmp_path / "kept"
    (tmp_path / "scratch").mkdir()
    kept.mkdir()
    writes: list[str] = []

    def losing(self: alone.StorageTest, path: str, check: str, options: list[str]) -> t.Any:
        if check == checks.VERIFY and len(writes) > 2:
            for name in os.listdir(kept):
                with open(kept / name, "rb") as old, open(os.path.join(path, name), "r+b") as data:
                    data.write(old.read(3 * touching.BLOCK - 4096 if write else -1))
        found = unchanged(self, path, check, options)
        if check == checks.WRITE:
            writes.append(path)
            if len(writes) == write + 1:
                for name in (name for name in os.listdir(path) if name.startswith("data.")):
                    shutil.copy(os.path.join(path, name), kept / name)
        return found

    monkeypatch.setattr(alone.StorageTest, "_fio", losing)
    params = {
        "storage": [{"name": "scratch", "path": str(tmp_path / "scratch")}], "tests": list(checks.CHECKS), "gib": 0.06, "share": 5.0,
        "seconds": 0.5, "jobs": 2, "depth": 4, "direct": True, "nodes": 1, "answer_timeout": 60.0, "test_timeout": 100.0,
    }  # fmt: skip
    asked = [{"check": check, "variant": "storage=scratch"} for check in (checks.WRITE, checks.VERIFY)]
    runs = [{seen["check"]: seen["reason_code"] for seen in probe.probe({**params, "checks": asked}, Node(300))} for _run in range(2)]
    assert runs == [{"write": None, "verify": None}, {"write": None, "verify": "wrong_results"}]


def end_what_is_kept(fleet: Fleet) -> None:
    """End guardians that keep finished checks for a resume, until an hour behind the deadline: here nobody resumes. Whether a check had
    finished when the controller was killed is chance."""
    for host in fleet.hosts:
        wait(lambda host=host: all(is_ended(path) for path in kept(fleet, host)))
        if kept(fleet, host):
            for pid, argv in fleet.processes(host).items():
                if pathlib.Path(argv[0]).name.startswith("python3"):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)
        wait(lambda host=host: not kept(fleet, host))


def kept(fleet: Fleet, host: str) -> list[pathlib.Path]:
    return list((fleet.var_lib(host) / "gpufleet-acceptance").glob("*/storage.jsonl"))


def is_ended(path: pathlib.Path) -> bool:
    """Return True if the guardian of a result has ended its probe: the result has its trailer, or is gone."""
    with contextlib.suppress(FileNotFoundError):
        lines = path.read_text().splitlines()
        return bool(lines) and '"crc32"' in lines[-1]
    return True


def wait(until: t.Callable[[], t.Any], seconds: float = 200) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end
        time.sleep(0.1)
