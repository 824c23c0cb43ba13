# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workload of gpu_memory over a driver whose GPUs are memory of this process."""

from __future__ import annotations

import ctypes
import functools
import json
import operator
import pathlib
import re
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import gpu_memory as probe
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import gpu_memory, host_memory, memory_kernels
from harness.fake_driver import FakeDevice, FakeDriver

Record = t.Dict[str, t.Any]
Run = t.Callable[..., t.List[Record]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run checks on GPUs of 1 MiB each; a MiB of the workload is 4 KiB here."""
    monkeypatch.setattr(gpu_memory, "MIB", 4096)
    monkeypatch.setattr(gpu_memory, "LEAST_FREE", 4096)
    monkeypatch.setattr(gpu_memory, "DEVICE_COPY", 16384)
    monkeypatch.setattr(gpu_memory, "CHASE_BYTES", 65536)
    monkeypatch.setattr(gpu_memory, "CHASE_STEPS", 700)
    monkeypatch.setattr(gpu_memory, "SMALL_COPIES", 3)
    monkeypatch.setattr(gpu_memory, "HOLD_S", 0.0)

    def of(
        checks: list[str], devices: int = 1, change: t.Callable[[FakeDriver], None] | None = None, total: int = 1 << 20, **order: t.Any
    ) -> list[Record]:
        driver = FakeDriver(*(f"GPU-{n}" for n in range(devices)))
        for device in driver.devices:
            device.total = total
        if change:
            change(driver)
        monkeypatch.setattr(gpu_memory, "Driver", lambda _ptx: driver)
        order = {"mib": 8, "copies": 4, "passes": 1, "seed": 1, **order}
        assert gpu_memory.main({"devices": [d.uuid for d in driver.devices], "checks": checks, **order}) == 0
        assert len(driver.pinned) == 1, "the flag alone stays pinned"
        assert all(list(map(len, d.memory.values())) == [memory_kernels.OUT_BYTES] for d in driver.devices), "device memory is given back"
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return of


def kinds(found: list[Record], kind: str) -> list[Record]:
    return [one for one in found if one["kind"] == kind]


def once(step: str, number: int, offset: int = 0) -> t.Callable[[FakeDriver], None]:
    """Flip a bit of what the n-th such step of the last GPU wrote."""

    def change(driver: FakeDriver) -> None:
        seen = []

        def plant(did: str, address: int, _size: int) -> None:
            if did == step:
                seen.append(address)
                if len(seen) == number:
                    byte = ctypes.c_ubyte.from_address(address + offset)
                    byte.value ^= 4

        driver.devices[-1].plant = plant

    return change


def test_every_check_of_two_gpus_has_its_numbers(run: Run) -> None:
    found = run(["h2d", "d2h", "bidirectional", "h2d_all", "peer", "device", "latency"], devices=2)
    assert not kinds(found, "wrong") and not kinds(found, "fault") and found[-1] == {"kind": "end"}
    rows = kinds(found, "result")
    assert [(r["check"], r["device"]) for r in rows if r["check"] != "peer"] == [
        (check, n) for check in ("h2d", "d2h", "bidirectional", "h2d_all", "device", "latency") for n in (0, 1)
    ]
    assert rows[0]["h2d"] == 55.0 and rows[2]["d2h"] == 54.0 and rows[0]["lowest"] == {"h2d": 55.0}
    assert [(r["device"], r["to"], r["rate"]) for r in rows if r["check"] == "peer"] == [(0, 1, 390.0), (1, 0, 390.0)]
    device = next(r for r in rows if r["check"] == "device")
    assert device["copy"] == 3000.0 and device["read"] == 3000.0
    assert next(r for r in rows if r["check"] == "latency")["read_us"] == 1.2


def test_all_gpus_send_at_once_to_every_other_one(run: Run) -> None:
    def change(driver: FakeDriver) -> None:
        driver.devices[2].rates.update(send=100.0)

    found = run(["peer_all"], devices=3, change=change)
    pairs = [(r["device"], r["to"], r["rate"]) for r in kinds(found, "result")]
    assert pairs == [(0, 1, 390.0), (1, 2, 390.0), (2, 0, 100.0), (0, 2, 390.0), (1, 0, 390.0), (2, 1, 100.0)] and not kinds(found, "wrong")


def test_of_two_ways_at_once_only_the_time_of_both_counts(run: Run) -> None:
    def change(driver: FakeDriver) -> None:
        driver.devices[0].rates.update(h2d=20.0)

    (row,) = kinds(run(["bidirectional"], change=change), "result")
    assert row["h2d"] == 20.0 and row["d2h"] == 54.0


@pytest.mark.parametrize(
    ("check", "step", "number", "where"),
    [
        # Of eight pieces of two warm-up copies and four copies: one early, one in the middle, the last.
        ("h2d", "h2d", 2, "copied from host to GPU"),
        ("h2d", "h2d", 14, "copied from host to GPU"),
        ("h2d", "h2d", 25, "copied from host to GPU"),
        ("d2h", "d2h", 3, "copied from GPU to host"),
        ("d2h", "d2h", 16, "copied from GPU to host"),
        ("device", "copy", 9, "copied inside the GPU's memory"),
        ("peer", "send", 5, "copied from GPU 1 to GPU 0"),
        ("peer_all", "send", 5, "copied from GPU 1 to GPU 0 while all GPUs sent"),
        ("pattern", "fill", 1, "pattern address in address"),
        ("pattern", "fill", 2, "pattern all zeros and all ones"),
        ("pattern", "fill", 37, "pattern walking ones 62"),
    ],
)
def test_one_flipped_bit_of_one_copy_is_found(run: Run, check: str, step: str, number: int, where: str) -> None:
    small = {"total": 40000} if check == "pattern" else {}
    found = run([check], devices=2, change=once(step, number, offset=800 if step != "fill" else 160), **small)
    (wrong,) = kinds(found, "wrong")
    assert (wrong["check"], wrong["device"], wrong["where"], wrong["words"]) == (check, 1, where, 1)
    assert int(wrong["expected"], 16) ^ int(wrong["found"], 16) in (1 << 2, 1 << 10, 1 << 18)
    assert [r["device"] for r in kinds(found, "result") if not check.startswith("peer")] == ([0] if not check.startswith("peer") else [])


def test_a_copy_that_never_arrived_is_found(run: Run) -> None:
    def change(driver: FakeDriver) -> None:
        device = driver.devices[0]
        seen: list[int] = []

        def lost(to: int, source: int, size: int, stream: t.Any) -> None:
            seen.append(to)
            if len(seen) != 6:  # the data of the copy before stays there
                FakeDevice.upload(device, to, source, size, stream)

        device.upload = lost  # type: ignore[method-assign]

    assert kinds(run(["h2d"], change=change), "wrong")


def test_the_sum_of_a_read_and_the_end_of_a_chase_are_held_against_what_they_must_be(run: Run) -> None:
    def change(driver: FakeDriver) -> None:
        device = driver.devices[0]
        device._total = lambda base, n, out: FakeDevice.write(out, [1])  # type: ignore[method-assign]
        device._chase = lambda first, steps, out: FakeDevice.write(out, [first])  # type: ignore[method-assign]

    found = run(["device", "latency"], change=change)
    assert [one["where"] for one in kinds(found, "wrong")] == ["the sum of what was read", "pointers in host memory, followed by the GPU"]


def test_nearly_all_free_memory_is_tested_in_the_parts_that_the_driver_gives(run: Run) -> None:
    def change(driver: FakeDriver) -> None:
        device = driver.devices[0]

        def room(size: int) -> int:
            return FakeDevice.room(device, size if size <= 262144 else 1 << 30)

        device.room = room  # type: ignore[method-assign]
        device.total = 600000

    (row,) = kinds(run(["pattern"], change=change), "result")
    assert row["bytes"] > 0.97 * row["free"] and row["bytes"] > 262144


# Kernels that do not run -----------------------------------------------------------------------------------------------

# Waits for the start of copies; without it they begin a little earlier.
WITHOUT_RESULT = ("gate",)
Drop = t.Callable[[int, str], bool]


def dropping(drop: Drop, launches: list[str], share: float = 0.0) -> t.Callable[[FakeDriver], None]:
    """Let the last GPU run no kernel for which drop(number of the launch, kernel) is true, or only over a share of its words, and report
    no error."""

    def change(driver: FakeDriver) -> None:
        device = driver.devices[-1]

        def launch(kernel: str, *values: int, **options: t.Any) -> None:
            launches.append(kernel)
            if not drop(len(launches) - 1, kernel):
                FakeDevice.launch(device, kernel, *values, **options)
            elif share:
                at = 2 if kernel == "same" else 1
                words = int(values[at] * share) // 2 * 2
                FakeDevice.launch(device, kernel, *values[:at], words, *values[at + 1 :], **options)

        device.launch = launch  # type: ignore[method-assign]

    return change


def refused(found: list[Record]) -> bool:
    """Return True if the last GPU has a defect: wrong data, or a fault that says so."""
    faults = [one for one in kinds(found, "fault") if one["code"] == "wrong_results"]
    return bool(kinds(found, "wrong") or faults) and all(one["device"] == 1 for one in (*kinds(found, "wrong"), *faults))


# The memory of a GPU that each check needs here.
CHECKS = {"h2d": 100000, "h2d_all": 100000, "device": 70000, "latency": 10000, "peer": 100000, "peer_all": 100000, "pattern": 12000}
SMALL: dict[str, t.Any] = {"devices": 2, "mib": 4}


@pytest.mark.parametrize("check", CHECKS)
def test_every_single_launch_that_is_dropped_is_found(run: Run, check: str) -> None:
    launches: list[str] = []
    small = {**SMALL, "total": CHECKS[check]}
    assert not refused(run([check], change=dropping(lambda _number, _kernel: False, launches), **small))
    names = list(launches)
    assert len(names) > 2
    for at, name in enumerate(names):
        if name not in WITHOUT_RESULT:
            drop = functools.partial(operator.eq, at)
            found = run([check], change=dropping(lambda number, _kernel, drop=drop: drop(number), []), **small)  # type: ignore[misc]
            assert refused(found), (at, name)


@pytest.mark.parametrize("kernel", ["fill", "check", "same", "total", "chase", "all"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_kernels_that_never_run_or_not_over_all_memory_are_found(run: Run, kernel: str, share: float) -> None:
    if share and kernel in ("total", "chase"):
        pytest.skip("its result is one number")
    checks = {"fill": ["pattern"], "check": ["device", "pattern"], "same": ["h2d", "peer"], "total": ["device"], "chase": ["latency"]}
    for check in checks.get(kernel, CHECKS):
        change = dropping(lambda _number, name: kernel in (name, "all"), [], share)
        assert refused(run([check], change=change, total=CHECKS[check], **SMALL)), check


@pytest.mark.parametrize("check", ["h2d", "device", "pattern"])
def test_a_comparison_that_sees_no_difference_is_found(run: Run, check: str) -> None:
    """It runs over all words, and takes each for right."""

    def change(driver: FakeDriver) -> None:
        device = driver.devices[-1]
        device._differ = lambda out, read, _expected: FakeDevice._differ(device, out, read, read)  # type: ignore[method-assign]

    found = run([check], change=change, total=CHECKS[check], **SMALL)
    assert refused(found) and "made wrong on purpose" in kinds(found, "fault")[0]["reason"]


@pytest.mark.parametrize("line", range(4, 15))
@pytest.mark.parametrize("largest", [1 << 30, 9000])
def test_an_address_line_that_is_stuck_is_found(run: Run, line: int, largest: int) -> None:
    """Words whose addresses differ in one bit are the same word, in memory of one part or of many."""

    def change(driver: FakeDriver) -> None:
        device = driver.devices[-1]
        device.room = lambda size: FakeDevice.room(device, size if size <= largest else 1 << 30)  # type: ignore[method-assign]

        def alias(step: str, _address: int, _size: int) -> None:
            if step != "fill":
                return
            # All parts one behind the other, as a board has them.
            parts = [(address, len(data)) for address, data in device.memory.items() if len(data) != memory_kernels.OUT_BYTES]
            cells = [address + at for address, size in parts for at in range(0, size - size % 8, 8)]
            low, high = 0, 1 << line - 3
            if high < len(cells):
                device.write(cells[low], device.words(cells[high], 1))

        device.plant = alias

    found = run(["pattern"], change=change, devices=2, total=44000)
    assert refused(found)


@pytest.mark.parametrize("hold", [1, 2])
def test_memory_that_forgets_while_it_holds_a_pattern_is_found(run: Run, monkeypatch: pytest.MonkeyPatch, hold: int) -> None:
    """Once it loses a one, once a zero."""
    monkeypatch.setattr(gpu_memory, "HOLD_S", 1.0)
    drivers: list[FakeDriver] = []
    held: list[float] = []

    def sleep(seconds: float) -> None:
        held.extend([seconds] if seconds else [])
        if seconds and len(held) == hold:
            address = next(at for at, data in drivers[0].devices[0].memory.items() if len(data) != memory_kernels.OUT_BYTES)
            ctypes.c_ubyte.from_address(address + 800).value ^= 1

    monkeypatch.setattr(time, "sleep", sleep)
    (wrong,) = kinds(run(["pattern"], change=drivers.append, total=40000), "wrong")
    assert wrong["where"] == "pattern random, held for 1 s" and wrong["words"] == 1 and len(held) == hold


def test_a_gpu_that_cuda_does_not_see_and_a_host_without_memory_are_faults(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_memory, "available", lambda: 1 << 30)
    (fault,) = kinds(run(["h2d"]), "fault")
    assert fault["code"] == "out_of_memory" and fault["reason"] == "the host has 1.0 GiB of memory to spare, and the copies need 1.0"


def test_words_are_those_of_splitmix64_and_of_the_other_patterns() -> None:
    assert memory_kernels.word("random", 1, 0) == 0xE220A8397B1DCDAF  # the first output behind the state 0
    assert memory_kernels.word("address", 3, 0) == 24 and memory_kernels.word("walking", 65, 1) == 4
    assert memory_kernels.word("constant", 9, 5, memory_kernels.WORD) == memory_kernels.WORD ^ 5


def test_two_passes_walk_through_every_bit() -> None:
    bits = {one.seed for number in (0, 1) for one in gpu_memory.patterns(1, number) if one.kind == "walking"}
    assert bits == set(range(64))


def test_the_kernels_are_well_formed() -> None:
    text = memory_kernels.memory_module(90)
    for name in ("fill", "check", "same", "total", "gate", "chase"):
        body = text[text.index(f".entry {name}(") :].partition("\n}\n")[0]
        labels = re.findall(r"^(\$\w+):", body, re.MULTILINE)
        assert len(labels) == len(set(labels)) and set(re.findall(r"bra (\$\w+)", body)) <= set(labels), name
        assert body.count("{") == body.count("}") + 1


def test_the_packed_text_is_a_whole_program() -> None:
    compile(probe.SOURCES["nvidia"], "gpu_memory", "exec")
    assert probe.SOURCES["nvidia"].count("from __future__") == 1


def test_numa_nodes_are_those_with_processors_and_memory(tmp_path: pathlib.Path) -> None:
    for number, listed, total in ((0, "0-3,8", 64), (1, "4-7", 64), (2, "", 96), (3, "12", 0)):
        node = tmp_path / f"devices/system/node/node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(listed + "\n")
        (node / "meminfo").write_text(f"Node {number} MemTotal:       {total} kB\n")
    assert host_memory.numa_nodes(str(tmp_path)) == {0: {0, 1, 2, 3, 8}, 1: {4, 5, 6, 7}}


def test_memory_to_spare_is_what_the_machine_and_the_control_group_leave(tmp_path: pathlib.Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    8 kB\n")
    assert host_memory.available(str(tmp_path)) == 8192
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("6000\n")
    (tmp_path / "sys/fs/cgroup/memory.current").write_text("1000\n")
    assert host_memory.available(str(tmp_path)) == 5000
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert host_memory.available(str(tmp_path)) == 8192


def test_the_first_difference_is_found() -> None:
    one, other = (ctypes.create_string_buffer(b"x" * 1000) for _ in range(2))
    addresses = ctypes.addressof(one), ctypes.addressof(other)
    assert host_memory.first_difference(*addresses, 1000) is None
    other[777] = b"y"
    assert host_memory.first_difference(*addresses, 1000) == 777
