# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe of the stage storage, with a stand-in for fio that makes files and prints JSON of fio's form. The real one runs in
integration/test_storage_fleet.py."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import shutil
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import mounts
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import folder
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import gdsio
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import storage
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage import alone, base, checks, touching
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

ALL = list(checks.CHECKS)
PARAMS = {
    "tests": ALL, "gib": 0.25, "share": 5.0, "seconds": 0.05, "jobs": 2, "depth": 4, "direct": True, "nodes": 1, "answer_timeout": 300.0,
    "test_timeout": 300.0, "files": 1000, "pjdfstest": "",
}  # fmt: skip
# It writes what it is told to and prints the JSON of one job.
STAND_IN = """#!/usr/bin/python3
import json, os, sys
words = dict(word[2:].partition("=")[::2] for word in sys.argv[1:])
own = os.environ["FIO_PLAN"]
with open(own + ".calls", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
plan = json.load(open(own)).get(words["name"], {})
if plan.get("hang"):
    import time
    time.sleep(300)
size, jobs = int(words["size"]), int(words["numjobs"])
for job in range(jobs) if words["name"] == "write" else ():
    name = words["filename_format"].replace("$jobnum", str(job))
    with open(os.path.join(words["directory"].replace("\\\\:", ":"), name), "wb") as target:
        target.truncate(size)
rate = plan.get("rate", 2 << 30)
took = size * jobs * 1000 / rate if isinstance(rate, (int, float)) and rate > 0 else 1000
side = {"io_bytes": size * jobs, "bw_bytes": rate, "total_ios": 5.0005 * took, "iops": 5000.5, "runtime": took}
side["clat_ns"] = {"mean": 200000.0}
job = {"error": plan.get("error", 0), "read": {"io_bytes": 0}, "write": {"io_bytes": 0}}
job["write" if "write" in words["rw"] else "read"] = side
sys.stderr.write(plan.get("says", ""))
print("a message\\n" + json.dumps({"fio version": "fio-3.33", "jobs": [job]}, indent=1) if not plan.get("silent") else "")
sys.exit(plan.get("status", 1 if job["error"] else 0))
"""


class Place:
    """A folder that stands for a file system, and a plan for the stand-in: {check: what it does there}."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = folder / "scratch"
        self.path.mkdir()
        (folder / "bin").mkdir()
        (folder / "state").mkdir()
        (folder / "bin/fio").write_text(STAND_IN)
        (folder / "bin/fio").chmod(0o755)
        self.plan = folder / "plan"
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("FIO_PLAN", str(self.plan))
        self.ledger = session.Ledger(str(folder / "state"))

    def measure(
        self, checks: t.Sequence[str] = ALL, plan: dict[str, t.Any] | None = None, path: str = "", shared: bool = False, **more: t.Any
    ) -> dict[str, t.Any]:
        self.plan.write_text(json.dumps(plan or {}))
        entry = {"name": "scratch", "path": path or str(self.path), "shared": shared, "gibps_read": 2.5}
        params = {**PARAMS, "checks": [{"check": check, "variant": "storage=scratch"} for check in checks], "storage": [entry], **more}
        found = {seen["check"]: seen for seen in storage.probe(params, Node(2000, ledger=self.ledger))}
        assert list(self.path.iterdir()) == [], "something is left"
        return found

    def calls(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in pathlib.Path(f"{self.plan}.calls").read_text().splitlines()]


@pytest.fixture
def place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def codes(found: dict[str, t.Any]) -> dict[str, str]:
    return {check: seen["reason_code"] or "" for check, seen in found.items()}


def test_all_checks_of_a_healthy_file_system(place: Place) -> None:
    found = place.measure()
    assert {check: seen["outcome"] for check, seen in found.items()} == dict.fromkeys(ALL, "measured"), codes(found)
    assert found["read"]["metrics"] == {"bandwidth": {"value": 2.0, "unit": "GiB/s"}}
    assert found["random_read"]["metrics"] == {"iops": {"value": 5000.5, "unit": "count"}}
    assert found["metadata"]["metrics"]["operations"]["value"] > 0
    context = found["mount"]["context"]
    assert context["stated"] == {"read": 2.5} and context["mount"]["kind"] and context["looked_for"] and context["size_gib"] > 0
    assert all(seen["variant"] == "storage=scratch" for seen in found.values())


def test_files_are_written_once_to_throw_away_and_as_large_as_time_and_limit_let_them_be(place: Place) -> None:
    place.measure(["write", "verify", "read"])
    first, second, *rest = place.calls()
    assert [first["name"], second["name"], *(call["name"] for call in rest)] == ["write", "write", "verify", "read"]
    assert int(first["size"]) == 32 << 20 and int(second["size"]) == 51 << 20  # 0.05 s at 2 GiB/s are 102 MiB
    assert all(call["direct"] == "1" and call["size"] == second["size"] for call in rest)
    assert rest[0]["verify"] == second["verify"] == "crc32c" and "verify" not in rest[1]
    assert "verify" not in first, "a second write that is lost would leave what passes for it"
    assert first["randseed"] != second["randseed"] == rest[0]["randseed"]
    assert all(call["allow_file_create"] == "0" for call in rest)


def test_no_more_is_written_than_the_limits_say(place: Place) -> None:
    place.measure(["write"], gib=0.02)
    assert {int(call["size"]) for call in place.calls()} == {10 << 20}
    found = place.measure(["write", "read", "metadata"], share=1e-9)
    assert codes(found) == {"write": "disk_full", "read": "disk_full", "metadata": ""}
    assert "storage_share" in found["read"]["reason"]


def test_many_jobs_do_not_write_more_than_the_limits_say(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touching, "seen", lambda _path: {"path": "/", "numbers": [40 << 20, 40 << 20, 0, 0]})  # half of it are 20 MiB
    found = place.measure(["write"], share=50.0, jobs=21)
    assert codes(found) == {"write": "disk_full"} and "at least 21 MiB are needed for 21 jobs" in found["write"]["reason"]
    assert codes(place.measure(["write"], share=50.0, jobs=20)) == {"write": ""}


def test_a_file_system_that_is_not_listed_is_not_tested(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone.StorageTest, "_mount", lambda _self, *_path: None)
    for shared in (True, False):
        assert set(codes(place.measure(["mount", "verify"], shared=shared)).values()) == {"unsupported"}


@pytest.mark.parametrize(
    ("kind", "code"), [("otherfs", "unsupported"), ("overlay", "mount_missing"), ("fuse.fuse-overlayfs", "mount_missing")]
)
def test_a_kind_that_nobody_knows_is_neither_shared_nor_missing(
    place: Place, monkeypatch: pytest.MonkeyPatch, kind: str, code: str
) -> None:
    monkeypatch.setattr(alone.StorageTest, "_mount", lambda _self, *_path: mounts.Mounted("/", kind, "disk", ("rw",)))
    assert set(codes(place.measure(["mount", "verify"], shared=True)).values()) == {code}


def test_a_shared_file_system_gets_little_from_each_node(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "is_of_network", lambda _kind: True)
    monkeypatch.setattr(base, "SHARED_BYTES", 32 << 20)
    found = place.measure(["mount", "verify", "metadata"], shared=True)
    assert set(codes(found).values()) == {""} and [call["size"] for call in place.calls()] == [str(16 << 20)] * 3


def test_many_nodes_divide_what_they_may_write_to_a_shared_file_system(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "is_of_network", lambda _kind: True)
    space = {"path": str(place.path), "numbers": [40 << 30, 4 << 30, 100_000, 5_000]}  # a half of 4 GiB is free for us
    monkeypatch.setattr(touching, "seen", lambda _path: space)
    assert set(codes(place.measure(["verify", "metadata"], shared=True, nodes=2)).values()) == {""}
    found = place.measure(["verify", "metadata"], shared=True, nodes=200)
    assert codes(found) == {"verify": "disk_full", "metadata": "disk_full"} and "among 200 nodes" in found["verify"]["reason"]
    assert set(codes(place.measure(["verify", "metadata"], nodes=200)).values()) == {""}, "a disk of its own is not divided"


def test_inodes_of_others_are_left_to_them(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touching, "seen", lambda _path: {"path": "/", "numbers": [1 << 40, 1 << 39, 10_000, 1_999]})
    found = place.measure(["metadata"])
    assert codes(found) == {"metadata": "disk_full"} and "1999 inodes" in found["metadata"]["reason"]


def test_a_file_system_that_does_not_say_its_size_is_not_written_to(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touching, "seen", lambda _path: {"path": "/", "numbers": [0, 0, 0, 0]})
    assert codes(place.measure(["write", "read"])) == {"write": "unsupported", "read": "unsupported"}
    assert not pathlib.Path(f"{place.plan}.calls").exists()


def test_a_shared_file_system_that_is_a_local_folder_is_not_mounted(place: Place) -> None:
    found = place.measure(shared=True)
    assert set(codes(found).values()) == {"mount_missing"} and "of this machine alone" in found["mount"]["reason"]
    assert found["mount"]["context"]["findings"][0]["code"] == "mount_missing"


def test_a_folder_where_something_must_be_mounted_is_not_tested(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = [{"name": "scratch", "path": str(place.path), "mounted": True}]
    found = place.measure(storage=entry)
    assert set(codes(found).values()) == {"mount_missing"} and "should be a mount of its own" in found["mount"]["reason"]
    monkeypatch.setattr(alone.StorageTest, "_mount", lambda _self, path, *_id: mounts.Mounted(path, "xfs", "/dev/md0", ("rw",)))
    assert codes(place.measure(storage=entry))["mount"] == ""


def test_a_path_that_is_not_there(place: Place) -> None:
    found = place.measure(path=str(place.path / "gone"))
    assert set(codes(found).values()) == {"mount_missing"} and "nothing was tested there" in found["write"]["reason"]


def test_a_read_only_mount_and_a_full_one_are_not_written_to(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    read_only = mounts.Mounted("/", "xfs", "/dev/sda", ("ro",))
    with monkeypatch.context() as patch:
        patch.setattr(alone.StorageTest, "_mount", lambda _self, *_path: read_only)
        assert set(codes(place.measure()).values()) == {"mount_read_only"}
    for numbers in ([1 << 40, 4096, 0, 0], [1 << 40, 1 << 39, 1000, 0]):
        with monkeypatch.context() as patch:
            patch.setattr(touching, "seen", lambda path, numbers=numbers: {"path": path, "numbers": numbers})
            assert set(codes(place.measure()).values()) == {"mount_full"}
    assert not pathlib.Path(f"{place.plan}.calls").exists()


def test_a_file_system_that_hangs_is_unknown_in_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touching, "seen", lambda _path: time.sleep(100))
    found = place.measure(answer_timeout=0.2)
    assert set(codes(found).values()) == {"no_answer"} and "hangs" in found["mount"]["reason"]


def test_a_stale_mount_and_a_file_system_that_has_shut_down(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, code in ((116, "mount_stale"), (107, "mount_stale"), (5, "file_system"), (13, "no_permission")):

        def refuse(path: str, number: int = number) -> None:
            raise OSError(number, "x", path)

        monkeypatch.setattr(touching, "seen", refuse)
        assert set(codes(place.measure()).values()) == {code}


def test_data_that_comes_back_otherwise_is_wrong(place: Place) -> None:
    found = place.measure(plan={"verify": {"error": 84, "status": 0}})
    assert codes(found)["verify"] == "wrong_results" and found["verify"]["outcome"] == "error"
    assert {code for check, code in codes(found).items() if check != "verify"} == {""}


@pytest.mark.parametrize(
    ("plan", "code"), [({"error": 28}, "disk_full"), ({"error": 5}, "file_system"), ({"silent": True, "status": 1}, "tool_failed")]
)
def test_what_was_not_written_whole_is_not_read_and_called_wrong(place: Place, plan: dict[str, t.Any], code: str) -> None:
    found = place.measure(plan={"write": plan, "verify": {"error": 84}})
    assert {check: of for check, of in codes(found).items() if of} == dict.fromkeys(set(ALL) - {"mount", "metadata"}, code)
    assert {call["name"] for call in place.calls()} == {"write"}
    assert "findings" not in found["verify"]["context"] and "nothing was written" in found["verify"]["reason"]


def test_an_error_while_a_shared_file_system_is_written_is_a_finding_of_the_check_that_reads(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "is_of_network", lambda _kind: True)
    found = place.measure(["mount", "verify"], plan={"write": {"error": 5}}, shared=True)
    assert found["verify"]["context"]["findings"][0]["code"] == found["verify"]["reason_code"] == "file_system"


def test_an_error_of_the_disk_is_a_finding_of_the_check(place: Place) -> None:
    found = place.measure(["read"], plan={"read": {"error": 5}})
    assert found["read"]["context"]["findings"][0]["code"] == found["read"]["reason_code"] == "file_system"


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        ({"silent": True}, "tool_failed"), ({"status": 3}, "tool_failed"), ({"rate": 0}, "no_result"), ({"rate": None}, "no_result"),
        ({"error": 28}, "disk_full"), ({"error": 22, "says": "fio: destination does not support O_DIRECT"}, "unsupported"),
        ({"error": 22}, "tool_failed"), ({"silent": True, "status": 1, "says": "it does not support direct=1"}, "unsupported"),
    ],
)  # fmt: skip
def test_a_run_that_is_no_measurement_has_no_number(place: Place, plan: dict[str, t.Any], code: str) -> None:
    found = place.measure(["read"], plan={"read": plan})
    assert codes(found) == {"read": code} and found["read"]["metrics"] == {}


def test_a_tool_that_hangs_is_ended_and_the_folder_removed(place: Place) -> None:
    found = place.measure(["read", "metadata"], plan={"read": {"hang": True}}, test_timeout=1.5, files=1)
    assert codes(found) == {"read": "timeout", "metadata": ""}


def test_a_file_system_that_hangs_while_fio_runs_ends_what_comes_next(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, looks = touching.seen, place.path.parent / "looks"

    def once(path: str) -> t.Any:
        if looks.exists():
            time.sleep(100)
        looks.touch()
        return seen(path)

    monkeypatch.setattr(touching, "seen", once)
    found = place.measure(["read", "random_read", "metadata"], plan={"read": {"hang": True}}, test_timeout=1.5, answer_timeout=3.0)
    assert codes(found) == {"read": "timeout", "random_read": "no_answer", "metadata": "no_answer"}


def test_a_folder_that_had_to_stay_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_removed", lambda path, *_how: f"{path} is left: x")
    monkeypatch.setattr(touching, "many_files", lambda _path, _count, _seconds: 1 / 0)
    with pytest.raises(AssertionError, match="something is left"):
        place.measure(["mount", "metadata"])
    entry = {"name": "scratch", "path": str(place.path)}
    params = {**PARAMS, "checks": [{"check": check, "variant": "storage=scratch"} for check in ("mount", "metadata")], "storage": [entry]}
    found = {seen["check"]: seen for seen in storage.probe(params, Node(2000, ledger=place.ledger))}
    assert codes(found) == {"mount": "no_answer", "metadata": "preflight"} and "is left" in found["mount"]["reason"]


def test_a_path_with_a_colon_is_one_folder(place: Place, tmp_path: pathlib.Path) -> None:
    """fio begins a second folder at a colon without a backslash before it."""
    (tmp_path / "a:b").mkdir()
    assert set(codes(place.measure(path=str(tmp_path / "a:b"))).values()) == {""}
    assert list((tmp_path / "a:b").iterdir()) == []
    assert all(call["directory"].startswith(rf"{tmp_path}/a\:b/{folder.PREFIX}") for call in place.calls())


def test_without_fio_mount_and_metadata_are_tested(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = place.measure()
    assert {check for check, code in codes(found).items() if code == "tool_missing"} == {*ALL} - {"mount", "metadata"}


def test_numbers_through_the_page_cache_are_marked(place: Place) -> None:
    found = place.measure(["read"], direct=False)
    assert found["read"]["context"]["comparable"] is False and place.calls()[-1]["direct"] == "0"


@pytest.mark.parametrize(("kind", "options"), [("tmpfs", ()), ("zfs", ()), ("ext4", ("data=journal",))])
def test_file_systems_that_take_direct_io_and_keep_data_in_memory_are_marked(
    place: Place, monkeypatch: pytest.MonkeyPatch, kind: str, options: tuple[str, ...]
) -> None:
    mounted = mounts.Mounted("/", kind, "x", options)
    monkeypatch.setattr(alone.StorageTest, "_mount", lambda _self, *_path: mounted)
    found = place.measure(["mount", "read"])
    assert found["read"]["context"]["comparable"] is False and found["read"]["context"]["unlike"].startswith(kind)
    assert found["mount"]["context"]["unlike"].startswith(kind)


@pytest.mark.parametrize(("dio", "unlike"), [("0\n", True), ("1\n", False), (None, True)])
def test_a_loop_device_whose_file_is_read_through_the_page_cache_is_marked(
    place: Place, monkeypatch: pytest.MonkeyPatch, dio: str | None, unlike: bool
) -> None:
    read = Node.read
    monkeypatch.setattr(alone.StorageTest, "_mount", lambda _self, *_path: mounts.Mounted("/", "ext4", "/dev/loop7", ()))
    monkeypatch.setattr(Node, "read", lambda self, path: dio if path == "/sys/block/loop7/loop/dio" else read(self, path))
    found = place.measure(["read"])["read"]["context"]
    assert ("comparable" in found) == unlike and ("/dev/loop7 is a file" in found.get("unlike", "")) == unlike


def test_the_checks_of_a_call_that_names_none() -> None:
    entries = [{"name": "a"}, {"name": "b", "shared": True}]
    found = [(one["variant"], one["check"]) for one in storage.default_checks({"storage": entries, "tests": ALL})]
    assert [check for variant, check in found if variant == "storage=a"] == ALL
    assert [check for variant, check in found if variant == "storage=b"] == ["mount", "verify", "metadata"]


def test_fewer_files_than_wanted_in_half_of_the_time_are_a_timeout_and_removed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place.measure(["metadata"], files=20)["metadata"]["context"]["files"] == 20
    monkeypatch.setattr(
        touching, "many_files", functools.partial(lambda own, path, count, _seconds: own(path, count, 0.0), touching.many_files)
    )
    seen = place.measure(["metadata"], files=1000000, test_timeout=80.0)["metadata"]
    assert (seen["outcome"], seen["reason_code"]) == ("timeout", "timeout")
    assert "0 of 1000000 files were made in 40 s, half of storage_test_timeout" in seen["reason"]
    monkeypatch.setattr(Node, "remaining", lambda _self: 20.0)
    seen = place.measure(["metadata"], files=1000000, test_timeout=80.0)["metadata"]
    assert "0 of 1000000 files were made in 10 s, half of the 20 s that were left until the deadline, storage_timeout" in seen["reason"]


# It writes nothing and prints lines of gdsio's form; the counters of the kernel's module are a file that it writes.
GDSIO = """#!/bin/sh
echo "$@" >> "$FIO_PLAN.gdsio"
line() {
    echo "IoType: $1 XferType: GPUD Threads: 2 DataSetSize: 32768/32768(KiB) IOSize: 1024(KiB) Throughput: $2 GiB/sec," \\
        "Avg_Latency: 1 usecs ops: 32 total_time 1 secs"
}
echo "Reads : n=$(($$ + 5)) ok=$(($$ + 5)) err=0 readMiB=1 io_state_err=0" > "$FIO_PLAN.stats"
echo "Writes : n=$(($$ + 5)) ok=$(($$ + 5)) err=0 writeMiB=1 io_state_err=0" >> "$FIO_PLAN.stats"
case "$*" in *"-I 1"*) line WRITE 1.049312; echo "Verifying data"; line READ 2.5 ;; *) line READ 2.698050 ;; esac
[ ! -e "$FIO_PLAN.broken" ]
"""


def test_gpudirect_has_rates_that_count_only_if_the_kernel_counted_them(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place.measure(["gpudirect"])["gpudirect"]["reason_code"] == "tool_missing"
    tool = place.path.parent / "bin/gdsio"
    tool.write_text(GDSIO)
    tool.chmod(0o755)
    copied = place.measure(["gpudirect"])["gpudirect"]
    assert copied["metrics"] == {"write": {"value": 1.049312, "unit": "GiB/s"}, "read": {"value": 2.69805, "unit": "GiB/s"}}
    assert copied["context"]["comparable"] is False and "counted no read and no write" in copied["context"]["unlike"]
    monkeypatch.setattr(gdsio, "COUNTERS", f"{place.plan}.stats")
    pathlib.Path(f"{place.plan}.stats").unlink()
    direct = place.measure(["gpudirect"])["gpudirect"]
    assert direct["outcome"] == "measured" and "comparable" not in direct["context"]
    calls = pathlib.Path(f"{place.plan}.gdsio").read_text().splitlines()
    assert [call.partition(" -s ")[2] for call in calls[-2:]] == ["128M -i 1M -x 0 -I 1 -V", "128M -i 1M -x 0 -I 0"]
    pathlib.Path(f"{place.plan}.broken").touch()
    assert place.measure(["gpudirect"])["gpudirect"]["reason_code"] == "tool_failed"


@pytest.mark.skipif(not shutil.which("prove"), reason="prove is part of Perl")
def test_failed_tests_of_pjdfstest_are_named_and_those_without_a_result_unknown(place: Place) -> None:
    tests = place.path.parent / "pjdfstest/tests"
    assert place.measure(["posix"])["posix"]["reason_code"] == "tool_missing"
    (tests / "chmod").mkdir(parents=True)
    assert place.measure(["posix"], pjdfstest=str(tests))["posix"]["reason_code"] == "tool_failed"
    for name, lines in (("00", "1..2\nok 1\nok 2"), ("01", "1..3\nok 1\nnot ok 2\nnot ok 3")):
        (tests / f"chmod/{name}.t").write_text(f"#!/bin/sh\nmkdir -p a{name}/b/c/d/e/f/g\nprintf '{lines}\n'\n")
        (tests / f"chmod/{name}.t").chmod(0o755)
    bad = place.measure(["posix"], pjdfstest=str(tests), shared=False)["posix"]
    assert bad["reason_code"] == "file_system" and "2 of 5 tests of pjdfstest failed: chmod/01.t (2-3)" in bad["reason"]
    (tests / "chmod/01.t").unlink()
    assert place.measure(["posix"], pjdfstest=str(tests))["posix"]["context"]["tests"] == 2
