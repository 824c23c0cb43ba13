# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parts in the history: by whatever name they are asked for, where they are and were, and their numbers."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

import pytest
import sqlalchemy as sa
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import folders, hardware, part_sheets, pruning, schema, searching
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.searching import Query
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError, Store, url_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import measurement, parts
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.parts import Part
from harness import history_runs as runs
from harness.history_runs import Machine

GUID = "506b:4b03:00ab:cdef"


def lists(gpu: int, module: str, nic: str = "mlx5_2", switch: str = "leaf-03") -> dict[str, t.Any]:
    """What a machine lists: a GPU, an RDMA device, two slots of memory, and a disk."""
    return {
        "gpu_table": [{"uuid": runs.uuid(gpu), "index": 3, "serial": f"16520{gpu}", "bdf": "0000:4b:00.0", "name": "NVIDIA H200"}],
        "devices": [{"device": nic, "guid": GUID, "serial_number": "MT2301", "pci": "0000:02:00.0", "type": "MT4129"}],
        "ports": [{"device": nic, "port": 1, "switch": switch, "switch_port": "Ethernet1/7"}],
        "dimms": [{"slot": "A1", "bank": "", "mib": 65536, "serial": module}, {"slot": "A2", "bank": "", "mib": 0, "serial": "Unknown"}],
        "disks": [{"disk": "nvme0", "model": "Example 7T", "serial": "S6CK1", "pci": "0000:81:00.0"}],
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Store]:
    """GPU 1 was in node a for two runs and is in node b since; the module of slot A1 of node a was replaced by another one."""
    results = tmp_path_factory.mktemp("hardware")
    first = {"a": Machine("a" * 32, {1: 670.0}, lists=lists(1, "35A1B205")), "b": Machine("b" * 32, {2: 671.0})}
    moved = {"a": Machine("a" * 32, {3: 670.0}, lists=lists(3, "35A1B206")), "b": Machine("b" * 32, {1: 640.0})}
    moved["b"] = dataclasses.replace(moved["b"], lists={"gpu_table": lists(1, "")["gpu_table"]})
    for day, machines in enumerate((first, first, moved), 1):
        run = runs.measured(results, day, machines)
        nic = measurement.Completer(run, "gemm", "a", "ssh", {}, False)
        metrics = {"tflops": {"value": 390.0 + day, "unit": "TFLOPS"}}
        run.journal.append(
            [nic.complete(observation.measured("bf16", variant=runs.VARIANT, part="nic/mlx5_2/1", metrics=metrics))]
        )
        runs.judge(run)
    with Store(url_of(results), make=True) as made:
        assert folders.bring(made, str(results)).left_out == []
        yield made


@pytest.mark.parametrize(
    ("text", "kind", "address", "places"),
    [
        (runs.uuid(1), "gpu", runs.uuid(1), [("b", 3, 3), ("a", 1, 2)]),
        ("165201", "gpu", runs.uuid(1), [("b", 3, 3), ("a", 1, 2)]),
        (f"a/gpu/{runs.uuid(3)}", "gpu", runs.uuid(3), [("a", 3, 3)]),
        ("a GPU 3", "gpu", runs.uuid(3), [("a", 3, 3)]),
        ("a mlx5_2", "nic", GUID, [("a", 1, 3)]),
        ("a/nic/mlx5_2/1", "nic", GUID, [("a", 1, 3)]),
        (GUID.upper(), "nic", GUID, [("a", 1, 3)]),
        ("0x506b4b0300abcdef", "nic", GUID, [("a", 1, 3)]),
        ("mt2301", "nic", GUID, [("a", 1, 3)]),
        ("35a1b205", "dimm", "35A1B205", [("a", 1, 2)]),
        ("a A1", "dimm", "35A1B206", [("a", 3, 3)]),
        ("S6CK1", "disk", "S6CK1", [("a", 1, 3)]),
        ("leaf-03", "switch", "leaf-03", [("a", 1, 3)]),
    ],
)  # fmt: skip
def test_a_part_is_found_by_each_of_its_names_with_the_places_where_it_was(
    store: Store, text: str, kind: str, address: str, places: list[tuple[str, int, int]]
) -> None:
    (found,) = hardware.find(store, text)
    assert (found.kind, found.address) == (kind, address)
    assert [(stay.node, stay.since, stay.until) for stay in found.stays] == [(node, *map(runs.run_id, days)) for node, *days in places]
    # The address leads to the same part.
    assert hardware.find(store, found.address) == [found]


@pytest.mark.parametrize("text", ["", "a", "a mlx5_9", "Unknown", "nobody", "a A2", "mlx5_2", "'; DROP TABLE part_name; --", "\ud800"])
def test_what_is_no_name_of_a_part_finds_none(store: Store, text: str) -> None:
    assert hardware.find(store, text) == []


def test_the_numbers_of_a_part_follow_it_from_node_to_node(store: Store) -> None:
    rows = searching.search(store, Query(part="165201")).rows
    assert [(row["run"], row["subject"][0], row["value"]) for row in rows] == [
        (runs.run_id(3), "b", 640.0), (runs.run_id(2), "a", 670.0), (runs.run_id(1), "a", 670.0),
    ]  # fmt: skip
    assert {row["subject"] for row in searching.search(store, Query(part=GUID)).rows} == {"a/nic/mlx5_2/1"}
    assert [row["run"] for row in searching.search(store, Query(part="165201", node="b")).rows] == [runs.run_id(3)]
    assert searching.search(store, Query(part="35A1B205")).rows == []
    with pytest.raises(HistoryError, match="part nobody is not in the history"):
        searching.search(store, Query(part="nobody"))


def test_a_node_has_the_parts_that_its_runs_saw(store: Store) -> None:
    newest, *_older = hardware.of_node(store, "a")
    assert set(newest) == {f"gpu/{runs.uuid(3)}", "nic/mlx5_2", "dimm/A1", "dimm/A2", "disk/nvme0"}
    assert newest["nic/mlx5_2"].connected == "leaf-03 Ethernet1/7" and hardware.of_node(store, "nobody") == []
    assert hardware.is_node(store, "a") and not hardware.is_node(store, f"a/gpu/{runs.uuid(3)}")


def test_runs_with_the_same_parts_share_a_sheet(store: Store) -> None:
    with store.reading() as connection:
        sheets = connection.execute(sa.select(schema.hardware.c.sheet_id)).scalars().all()
    assert len(sheets) == 4 and len(set(sheets)) == 3


def test_a_part_stays_known_when_its_numbers_are_pruned(tmp_path: pathlib.Path) -> None:
    runs.judged(tmp_path, 1, {"a": Machine("a" * 32, {1: 670.0}, lists=lists(1, "35A1B205"))}, acceptance_history=True)
    with Store(url_of(tmp_path)) as store:
        pruning.prune(store, "2026-06-01", really=True)
        (found,) = hardware.find(store, "35A1B205")
        assert found.node == "a" and searching.search(store, Query(part=runs.uuid(1))).rows == []


def test_a_part_of_an_older_history_is_found_by_its_uuid_and_its_subject(store: Store, tmp_path: pathlib.Path) -> None:
    runs.judged(tmp_path, 1, {"a": Machine("a" * 32, {1: 670.0})}, acceptance_history=True)
    runs.judged(tmp_path, 2, {"b": Machine("b" * 32, {1: 670.0})}, acceptance_history=True)
    with Store(url_of(tmp_path)) as older:
        found = [hardware.find(older, text) for text in (runs.uuid(1), f"b/gpu/{runs.uuid(1)}", f"b {runs.uuid(1)}")]
        assert found[0] == found[1] == found[2]
        assert [(stay.node, stay.since) for stay in found[0][0].stays] == [("b", runs.run_id(2)), ("a", runs.run_id(1))]


@pytest.mark.parametrize("serial", ["", "0", "N/A", "Unknown", "00000000", "0x00000000", "0123456789", "NO DIMM 1", "A1_SerNum0"])
def test_a_serial_number_that_tells_nothing_is_no_name(serial: str) -> None:
    part = Part("dimm/A1", "memory module", "64 GiB", serial)
    assert part_sheets.names(part) == set() and part_sheets.identity(part, "a") == "a/dimm/A1"
    assert part_sheets.address(part, "a") == "a/dimm/A1"


def test_parts_that_share_a_name_are_not_taken_for_one(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disks of virtual machines have the same serial number at each node, and a copied machine the GUIDs of the first."""
    disks = [{"disk": name, "model": "QEMU", "serial": "QM00001", "pci": ""} for name in ("sda", "sdb")]
    devices = [{"device": "mlx5_0", "guid": GUID, "serial_number": "", "pci": "0000:02:00.0"}]
    machines = {
        name: Machine(name * 32, {gpu: 670.0}, lists={"disks": disks, "devices": devices, "gpu_table": [{"uuid": runs.uuid(9)}]})
        for gpu, name in ((1, "a"), (2, "b"))
    }
    for day in (1, 2):
        runs.judged(tmp_path, day, machines, acceptance_history=True)
    with Store(url_of(tmp_path)) as store:
        names = ["QM00001", GUID, runs.uuid(9)]
        found = [[(one.address, [stay.node for stay in one.stays]) for one in hardware.find(store, name)] for name in names]
        assert found == [
            [("a/disk/sda", ["a"]), ("a/disk/sdb", ["a"]), ("b/disk/sda", ["b"]), ("b/disk/sdb", ["b"])],
            [("a/nic/mlx5_0", ["a"]), ("b/nic/mlx5_0", ["b"])],
            [(f"a/gpu/{runs.uuid(9)}", ["a"]), (f"b/gpu/{runs.uuid(9)}", ["b"])],
        ]  # fmt: skip
        for one in (one for name in names for one in hardware.find(store, name)):
            assert hardware.find(store, one.address) == [one]
        assert [one.address for one in hardware.find(store, "b sdb")] == ["b/disk/sdb"]
        # Also if more nodes have the name than are read.
        monkeypatch.setattr(hardware, "MOST_SHEETS", 1)
        assert [one.node for name in ("a/disk/sda", "b/disk/sda") for one in hardware.find(store, name)] == ["a", "b"]


def test_modules_and_devices_without_a_name_of_their_own_stay_apart() -> None:
    dimms = [{"slot": "DIMM 0", "bank": f"P0 CHANNEL {letter}", "mib": 65536, "serial": f"35A1B20{letter}"} for letter in "AB"]
    devices = [{"device": f"efa_{number}", "guid": "0000:0000:0000:0000"} for number in range(2)]
    record = {"subject": {"id": "a"}, "context": {"dimms": dimms, "devices": devices}}
    seen = list(parts.of_records([record]).parts["a"].values())
    assert [part_sheets.address(part, "a") for part in seen] == ["a/nic/efa_0", "a/nic/efa_1", "35A1B20A", "35A1B20B"]
    words = "DIMM DIMM 0 (P0 CHANNEL B), serial number 35A1B20B: the firmware does not use it"
    assert [part.serial for part in seen if parts.names(part, [words])] == ["35A1B20B"]


def test_parts_come_out_of_a_sheet_as_they_went_in() -> None:
    part = Part("nic/mlx5_2", "mlx5_2", guid=GUID, switches=("leaf-03", "leaf-04"))
    rows = json.loads(part_sheets.packed([part]))
    # Another version may have written more.
    assert part_sheets.unpacked([{**row, "new": 1} for row in rows]) == [part]
