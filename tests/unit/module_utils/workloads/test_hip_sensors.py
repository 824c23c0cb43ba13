# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sensors of AMD GPUs by planted files of the driver. The forms of gpu_metrics are those of the kernel's header: none was recorded."""

from __future__ import annotations

import functools
import pathlib
import struct
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import amd
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import hip_driver, hip_sensors

UUID, WHERE = "GPU-00000000abcdef01", "0000:f5:00.0"
SIZES = {(1, 4): (520, 0), (1, 5): (584, 0), (1, 6): (1664, 32), (1, 7): (2176, 40), (1, 8): (3200, 40)}


def fixed(minor: int, *counters: int) -> bytes:
    """Return a gpu_metrics of a fixed form, of which all but the counters is unknown."""
    size, at = SIZES[1, minor]
    data = bytearray(b"\xff" * size)
    struct.pack_into("<HBB", data, 0, size, 1, minor)
    if at:
        struct.pack_into("<6I", data, at, *counters)
    return bytes(data)


def listed(*counters: int, kind: int = 6, lost: int | None = None) -> bytes:
    """Return a gpu_metrics 1.9: temperature, clocks of eight dies, and the counters, of the type `kind`."""
    counted = [(9 + number, kind, [value]) for number, value in enumerate(counters) if number != lost]
    attributes = [(0, 2, [45]), (33, 2, [2100] * 8), *counted]
    body = b"".join(
        struct.pack("<Q", 1 << 24 | form << 20 | number << 10 | len(values)) + struct.pack(f"<{len(values)}{'BbHhIiQq'[form]}", *values)
        for number, form, values in attributes
    )
    return struct.pack("<HBBi", 8 + len(body), 1, 9, len(attributes)) + body


class Planted:
    """The files of one GPU."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder / "devices" / WHERE
        self.node = folder / "nodes/2"
        self.node.mkdir(parents=True)
        (self.node / "properties").write_text("simd_count 1216\nsimd_per_cu 4\nlocation_id 62720\nmax_engine_clk_fcompute 2100\n")
        self.put("unique_id", "abcdef01")
        self.put("hwmon/hwmon5/power1_input", "745000000")
        self.put("hwmon/hwmon5/power1_cap", "750000000")
        self.put("hwmon/hwmon5/temp1_label", "junction")
        self.put("hwmon/hwmon5/temp1_input", "82000")
        self.put("hwmon/hwmon5/temp2_label", "mem")
        self.put("hwmon/hwmon5/temp2_input", "49000")
        self.put("pp_dpm_sclk", "0: 132Mhz\n1: 1420Mhz *\n2: 1700Mhz")
        self.put("pcie_replay_count", "0")
        self.metrics(fixed(7, 1000, 0, 900, 0, 0, 0))

    def put(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text + "\n")

    def metrics(self, data: bytes) -> None:
        (self.folder / "gpu_metrics").write_bytes(data)


@pytest.fixture
def gpu(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Planted:
    monkeypatch.setattr(hip_driver, "DEVICES", str(tmp_path / "devices"))
    monkeypatch.setattr(hip_driver, "TOPOLOGY", str(tmp_path / "nodes"))
    return Planted(tmp_path)


def test_all_values_are_read(gpu: Planted) -> None:
    sensors = hip_sensors.Sensors()
    gpu.metrics(fixed(7, 2000, 0, 1880, 250, 0, 0))
    throttle = {"hw_prochot": 0.0, "power_limit": 0.98, "socket_thermal": 0.25, "vr_thermal": 0.0, "hbm_thermal": 0.0}
    assert sensors.read(UUID) == {
        "temperature": 82, "power": 745, "power_limit": 750, "sm_clock": 1420, "sm_clock_max": 2100, "throttle": throttle, "replays": 0,
    }  # fmt: skip
    assert set(amd.BAD_THROTTLE) < set(throttle), "the names are those of the judgement"


def test_what_a_driver_does_not_have_is_missing_and_never_zero(gpu: Planted) -> None:
    for path in ("hwmon/hwmon5/temp1_input", "hwmon/hwmon5/power1_input", "hwmon/hwmon5/power1_cap", "pp_dpm_sclk", "pcie_replay_count"):
        gpu.put(path, "N/A")
    (gpu.folder / "gpu_metrics").unlink()
    (gpu.node / "properties").unlink()
    assert hip_sensors.Sensors().read(UUID) == {}
    assert hip_sensors.Sensors().read("GPU-77") == {}


def test_a_gpu_whose_number_only_the_topology_has_is_found(gpu: Planted) -> None:
    (gpu.folder / "unique_id").unlink()
    (gpu.node / "properties").write_text(f"simd_count 1216\nsimd_per_cu 4\nlocation_id 62720\nunique_id {0xABCDEF01}\n")
    assert hip_sensors.Sensors().read(UUID)["power"] == 745


def test_the_largest_number_stands_for_none(gpu: Planted) -> None:
    gpu.put("hwmon/hwmon5/power1_cap", "4294967295")
    assert "power_limit" not in hip_sensors.Sensors().read(UUID)


def test_a_part_has_the_sensors_of_its_gpu_and_looks_of_its_own(gpu: Planted) -> None:
    sensors = hip_sensors.Sensors()
    gpu.metrics(fixed(7, 2000, 0, 1900, 500, 0, 0))
    looks = [sensors.read(f"{UUID}-p{part}") for part in range(8)]
    assert all(look == looks[0] for look in looks) and looks[0]["power"] == 745 and looks[0]["throttle"]["socket_thermal"] == 0.5


FORMS: list[t.Callable[..., bytes]] = [
    *(functools.partial(fixed, minor) for minor in (6, 7, 8)), listed, functools.partial(listed, kind=4),
]  # fmt: skip


@pytest.mark.parametrize("make", FORMS)
def test_counters_are_read_of_every_form_that_has_them(make: t.Callable[..., bytes]) -> None:
    assert hip_sensors.counters(make(5000, 1, 2, 3, 4, 5)) == [5000, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x08", fixed(4), fixed(5), fixed(7, 5000, 1, 2, 3, 4, 0xFFFFFFFF), fixed(7, 5000, 1, 2, 3, 4, 5)[:700],
        fixed(6, 1, 1, 1, 1, 1, 1)[:100], struct.pack("<HBB", 340, 1, 6) + bytes(336), listed(5000, 1, 2, 3, 4, 5, lost=3),
        listed(5000, 1, 2, 3, 4, 5)[:-3],
        listed(5000, 1, 2, 3, 4, (1 << 64) - 1), listed(5000, 1, 2, 3, 4, 5, kind=7)[:8] + b"\xff" * 120, struct.pack("<HBBi", 8, 1, 9, -1),
        struct.pack("<HBB", 200, 2, 3) + bytes(196),
    ],
)  # fmt: skip
def test_counters_of_any_other_form_are_none(data: bytes) -> None:
    assert hip_sensors.counters(data) == []


@pytest.mark.parametrize(
    ("later", "why"),
    [
        ((1000, 0, 900, 0, 0, 0), "no time has passed for the firmware"), ((1050, 0, 950, 0, 0, 0), "too little of it"),
        ((20, 0, 10, 0, 0, 0), "the counters began anew"), ((2000, 0, 2100, 0, 0, 0), "more than the time there was"),
    ],
)  # fmt: skip
def test_shares_that_nobody_can_know_are_missing(gpu: Planted, later: tuple[int, ...], why: str) -> None:
    sensors = hip_sensors.Sensors()
    gpu.metrics(fixed(7, *later))
    assert "throttle" not in sensors.read(UUID), why


def test_a_look_that_failed_hides_nothing(gpu: Planted) -> None:
    sensors = hip_sensors.Sensors()
    gpu.metrics(b"")
    assert "throttle" not in sensors.read(UUID)
    gpu.metrics(fixed(7, 3000, 0, 900, 0, 0, 1000))
    assert sensors.read(UUID)["throttle"]["hbm_thermal"] == 0.5


def test_a_gpu_at_its_power_limit_all_the_time_is_not_more_than_that(gpu: Planted) -> None:
    sensors = hip_sensors.Sensors()
    gpu.metrics(fixed(7, 2000, 0, 1903, 0, 0, 0))
    assert sensors.read(UUID)["throttle"]["power_limit"] == 1.0


def test_a_moment_of_throttling_is_none_and_means_are_of_all_looks(gpu: Planted) -> None:
    sensors = hip_sensors.Sensors()
    looks = []
    for now in ((2000, 1, 900, 0, 0, 0), (3000, 401, 900, 0, 0, 0)):
        gpu.metrics(fixed(7, *now))
        looks.append(sensors.read(UUID)["throttle"])
    assert [look["hw_prochot"] for look in looks] == [0.0, 0.4] and sensors.shares(looks)["hw_prochot"] == 0.2
