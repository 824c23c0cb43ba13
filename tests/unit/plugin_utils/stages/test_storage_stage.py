# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The description of the stage storage: what it takes of the inventory, and what nodes say together."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import peer_comparison
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, measurement_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.storage import STAGE, entries_problem

SCRATCH = {"name": "scratch", "path": "/scratch"}


def record(node: str, check: str, value: float | None = None, **context: t.Any) -> Measurement:
    metrics = {} if value is None else {"bandwidth": {"value": value, "unit": "GiB/s"}}
    return measurement_of({
        "schema": "measurement/v1", "run_id": "20261124T160000Z-abcdef", "plane": "ssh", "stage": "storage", "check": check,
        "variant": "storage=scratch", "target": node, "attempt": 1, "subject": {"kind": "node", "id": node, "members": []},
        "outcome": "measured", "reason_code": None, "reason": None, "simulated": False, "metrics": metrics, "series": [],
        "context": {"storage": "scratch", **context}, "evidence": {}, "started_at": "2026-11-24T16:00:00Z", "duration_s": 0.0,
        "tool_version": None, "command": [], "raw": None, "raw_sha256": None,
    })  # fmt: skip


def mounted(node: str, kind: str = "xfs", options: str = "noatime,rw", own: bool = True, **more: t.Any) -> Measurement:
    mount = {"place": "/scratch", "kind": kind, "source": "/dev/x", "options": options.split(","), **more}
    return record(node, "mount", mount=mount, is_mount_point=own, shared="source" in more)


def opinions(*records: Measurement) -> dict[str, tuple[str, str | None, str]]:
    deciding = {one.key: one for one in records}
    found = STAGE.opinions(deciding, list(records), lambda _node, _target: Expectations([]), [])
    return {key.subject: (one.verdict, one.reason_code, one.reason) for key, one in found}


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ("scratch", "expected a list of"), (["scratch"], "acceptance_storage[0]: found 'scratch'"),
        ([{"name": "a"}], "acceptance_storage[0]: path: found None"), ([{**SCRATCH, "name": "a b"}], "name: found 'a b'"),
        ([{**SCRATCH, "name": 3}], "name: found 3, expected letters, digits, '_', '.' and '-', as a text: put it between quotes"),
        ([{**SCRATCH, "name": "-a"}], "name: found '-a', expected letters, digits, '_', '.' and '-', a letter or digit first"),
        ([{**SCRATCH, "path": "scratch"}], "path: found 'scratch'"), ([{**SCRATCH, "path": "/"}], "path: found '/'"),
        ([{**SCRATCH, "path": "/a/../b"}], "path: found"), ([{**SCRATCH, "path": "/a\nb"}], "path: found"),
        ([{**SCRATCH, "path": "/a\\b"}], "path: found"), ([{**SCRATCH, "path": "/dev/shmx"}], "devices are never written to"),
        ([{**SCRATCH, "path": "/dev/nvme0n1"}], "devices are never written to"),
        ([{**SCRATCH, "shared": "yes"}], "shared: found 'yes'"), ([{**SCRATCH, "mounted": 1}], "mounted: found 1"),
        ([{**SCRATCH, "gibps_read": "2"}], "gibps_read: found '2'"),
        ([{**SCRATCH, "gibps_write": 0}], "gibps_write: found 0"), ([{**SCRATCH, "gbps": 1}], "found the key 'gbps'"),
        ([{**SCRATCH, "shared": True, "gibps_read": 2}], "expected gibps_read_all"),
        ([SCRATCH, {**SCRATCH, "path": "/b"}], "acceptance_storage[1]: name: found 'scratch' a second time"),
        ([SCRATCH, {"name": "b", "path": "/scratch/"}], "acceptance_storage[1]: path: found '/scratch' a second time"),
    ],
)  # fmt: skip
def test_an_entry_that_is_wrong_gets_one_clear_error(entries: t.Any, words: str) -> None:
    assert words in (entries_problem(entries) or "")


def test_a_check_may_take_longer_than_the_rate_that_it_measures() -> None:
    settings = {"storage_tests": ["write"], "storage_seconds": 20, "storage_test_timeout": 20}
    words = "storage_test_timeout: found 20, expected more than the 20 s of storage_seconds"
    assert STAGE.problem(settings) == words
    assert STAGE.problem({**settings, "storage_test_timeout": 21}) is None


def test_the_deadline_of_the_stage_is_longer_than_all_its_rates() -> None:
    checks = [{"check": check, "variant": "storage=scratch"} for check in ("mount", "write", "read")]
    settings = {"storage_tests": ["write", "read"], "storage_seconds": 20, "storage_checks": checks, "storage_timeout": 40}
    assert STAGE.problem(settings) == "storage_timeout: found 40, expected more than 40: storage_seconds for each of 2 rates"
    assert STAGE.problem({**settings, "storage_timeout": 41}) is None


def test_the_plan_counts_the_time_of_many_files() -> None:
    checks = [(check, "storage=scratch") for check in ("mount", "metadata")]
    settings = {"storage_seconds": 20, "storage_files": 1000, "storage_checks": checks}
    assert STAGE.seconds(settings, 1, 0.0, 0.0) == 40
    assert STAGE.seconds({**settings, "storage_files": 1_000_000}, 1, 0.0, 0.0) == 420
    assert STAGE.seconds({**settings, "storage_files": 1_000_000, "storage_checks": checks[:1]}, 1, 0.0, 0.0) == 20


def test_entries_that_are_right() -> None:
    shared = {"name": "lustre-1", "path": "/mnt/lustre/", "shared": True}
    memory = {"name": "m", "path": "/dev/shm"}
    assert entries_problem([]) is None
    assert entries_problem([{**SCRATCH, "gibps_read": 2, "gibps_write": 1.5}, shared, memory]) is None


def test_a_stage_without_file_systems_is_skipped_in_a_sentence() -> None:
    settings = {"a": {"storage_checks": []}, "b": {"storage_checks": [("mount", "storage=scratch")]}}
    items, notes = STAGE.items({"a": "a", "b": "b"}, settings)
    assert len(items) == 1 and notes == ["stage storage: skipped on a: acceptance_storage names no file system there"]
    settings["a"]["acceptance_storage"] = [SCRATCH]
    _items, notes = STAGE.items({"a": "a", "b": "b"}, settings)
    assert notes == ["stage storage: skipped on a: storage_tests names no check that is made on its file systems"]


def test_a_stated_rate_is_a_floor() -> None:
    found = opinions(*(record(f"n{value}", "read", value, stated={"read": 4.0}) for value in (3.9, 3.7, 3.0)))
    assert {node: of[:2] for node, of in found.items()} == {"n3.7": ("WARN", "below_warn"), "n3.0": ("FAIL", "below_floor")}


def test_a_rate_that_nothing_says_anything_of_is_unknown() -> None:
    few = opinions(*(record(f"n{n}", "read", 2.0) for n in range(5)))
    assert {of[:2] for of in few.values()} == {("UNKNOWN", "no_expectation")} and "set gibps_read" in few["n0"][2]
    assert opinions(*(record(f"n{n}", "read", 2.0) for n in range(6))) == {}


def test_disks_of_machines_of_another_product_are_no_neighbours_and_a_shared_file_system_is_one_for_all() -> None:
    mixed = [record(f"n{n}", "read", 2.0, machine="A" if n < 6 else "B") for n in range(8)]
    assert {node: of[:2] for node, of in opinions(*mixed).items()} == dict.fromkeys(("n6", "n7"), ("UNKNOWN", "no_expectation"))
    kinds = [
        {peer_comparison.hardware(record(node, "metadata", 2.0, machine=node, shared=shared)) for node in "ab"} for shared in (False, True)
    ]
    assert list(map(len, kinds)) == [2, 1]


def test_a_rate_of_the_page_cache_is_unknown() -> None:
    assert opinions(record("a", "write", 9.0, stated={"write": 1.0}, comparable=False))["a"][:2] == ("UNKNOWN", "unchecked")


def test_a_rate_of_memory_is_unknown_whatever_was_measured() -> None:
    of = record("a", "random_read", 9.0, comparable=False, unlike="tmpfs keeps data in the memory of the machine")
    assert opinions(of)["a"][:2] == ("UNKNOWN", "unchecked") and "tmpfs" in opinions(of)["a"][2]
    assert opinions(record("a", "verify", 9.0, comparable=False)) == {}, "its data is right all the same"


def test_machines_of_another_product_may_mount_a_disk_of_their_own_otherwise() -> None:
    alike = [mounted(f"n{n}") for n in range(3)]
    other = mounted("x", kind="ext4")
    other.context["machine"] = "another product"
    assert opinions(*alike, other) == {}


def test_as_many_nodes_as_work_now_divide_a_shared_file_system() -> None:
    assert STAGE.by_number({"a": "cluster", "b": "cluster", "c": "c"}) == {"nodes": 3}


def test_a_node_that_mounts_otherwise_than_most_is_found() -> None:
    alike = [mounted(f"n{n}") for n in range(4)]
    assert opinions(*alike) == {}
    for odd, verdict in ((mounted("x", own=False), "FAIL"), (mounted("x", kind="ext4"), "FAIL"), (mounted("x", options="rw,sync"), "WARN")):
        found = opinions(*alike, odd)
        assert {node: of[:2] for node, of in found.items()} == {"x": (verdict, "mount_differs")}, found


def test_two_nodes_that_differ_do_not_tell_which_is_wrong() -> None:
    found = opinions(mounted("a"), mounted("b", kind="ext4"))
    assert {node: of[0] for node, of in found.items()} == {"a": "UNKNOWN", "b": "UNKNOWN"}


def test_the_server_counts_of_a_shared_file_system_only() -> None:
    local = [mounted(f"n{n}") for n in range(3)]
    assert opinions(*local, mounted("x")) == {}
    shared = [mounted(f"n{n}", kind="nfs4", source="filer-1:/a") for n in range(3)]
    assert opinions(*shared, mounted("x", kind="nfs4", source="filer-2:/a"))["x"][:2] == ("WARN", "mount_differs")


def test_a_node_to_which_a_shared_file_system_says_another_size_has_another_quota() -> None:
    def seen(node: str, gib: float | None) -> Measurement:
        made = mounted(node, kind="nfs4", source="filer-1:/a")
        made.context["size_gib"] = gib
        return made

    alike = [seen(f"n{number}", 100.0 + number) for number in range(3)]
    assert opinions(*alike, seen("x", 95.0), seen("y", None), seen("z", 0.0)) == {}
    found = opinions(*alike, seen("x", 10.0))
    assert found.keys() == {"x"} and found["x"][:2] == ("WARN", "mount_differs") and "another quota" in found["x"][2]
    assert opinions(seen("x", 10.0), seen("y", 100.0)) == {}, "two do not tell which is right"


def test_the_report_shows_the_nodes_that_read_slowest_first() -> None:
    rows = [(None, record(f"n{n}", check, 1.0 + n)) for n in range(25) for check in ("read", "write")]
    (section,) = STAGE.sections(rows)  # type: ignore[arg-type]
    assert section["title"] == "File system scratch" and len(section["rows"]) == 20 and section["rows"][0][:3] == ["n0", "1", "1"]


def test_the_report_says_what_was_tested_as_a_file_system() -> None:
    mount = {"kind": "ext4", "source": "/dev/sda", "place": "/", "options": []}
    rows = [(None, record(f"n{n}", "mount", mount=mount, is_mount_point=False, path="/scratch")) for n in range(3)]
    (section,) = STAGE.sections(rows)  # type: ignore[arg-type]
    assert section["said"] == ["Tested was ext4 mounted at /, of which /scratch is a folder, on 3 nodes."] and not section["rows"]


@pytest.mark.parametrize("mount", [None, 5, {"kind": 1}, {"kind": "xfs", "options": 7}])
def test_a_mount_that_has_another_form_than_the_probes_is_unknown(mount: t.Any) -> None:
    found = opinions(*(mounted(f"n{number}") for number in range(3)), record("bad", "mount", mount=mount))
    assert {node: of[:2] for node, of in found.items()} == {"bad": ("UNKNOWN", "bad_measurement")}


def test_a_stated_rate_of_nothing_is_none() -> None:
    assert opinions(record("a", "read", 2.0, stated={"read": 0}))["a"][:2] == ("UNKNOWN", "no_expectation")


def test_disks_are_not_looked_at_where_the_data_stays_in_memory() -> None:
    for check in ("mount", "verify"):
        assert STAGE.lacks("storage", record("a", check, 2.0)) is None
        words = STAGE.lacks("storage", record("a", check, 2.0, unlike="tmpfs keeps data in the memory of the machine"))
        assert words == "no disk took part: tmpfs keeps data in the memory of the machine"
