# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Floors between nodes are those of the NICs that the GPUs can use, in a run and by the filter."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import slots
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import single_checks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bandwidth import bandwidth_verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import (
    ExpectationError,
    Expectations,
    parse,
    resolve,
    shipped,
)
from harness import records

H100, L40S = "NVIDIA H100 80GB HBM3", "NVIDIA L40S"
OWN = {
    "id": "mine", "match": {"stage": "nccl_fabric", "check": "all_reduce", "gpu": L40S, "nics": 4, "nic_gbps": 200, "size": "plateau"},
    "metric": "busbw", "value": 22, "unit": "GB/s", "source": "own fleet", "date": "2026-11", "confidence": "measured",
}  # fmt: skip


def record(gpu: str, gpus: int, nics: int, gbps: float, value: float, **context: t.Any) -> dict[str, t.Any]:
    return {
        "stage": "nccl_fabric", "check": "all_reduce", "variant": "", "outcome": "measured", "reason_code": None, "reason": None,
        "metrics": {"busbw": {"value": value, "unit": "GB/s"}}, "series": [{"size": 16 << 30, "busbw": value}],
        "subject": {"kind": "group", "id": "g", "members": []},
        "context": {
            "op": "all_reduce", "gpu": gpu, "gpus": gpus, "nodes": 2, "nics": nics, "nic_gbps": gbps, "link_layer": "InfiniBand",
            "mnnvl": False, "nvls": False, "algorithm": "auto", "series_units": {"busbw": "GB/s"}, **context,
        },
    }  # fmt: skip


def verdict(seen: dict[str, t.Any], known: Expectations | None = None) -> tuple[str, str | None]:
    """By a run's verdict, which is that of the filter with the same entry."""
    known = known or shipped()
    opinion, _compared = single_checks.measured((seen["stage"], seen["check"], "", "g"), records.measurement(seen), known)
    for chosen in known.choose(seen["stage"], seen["check"], seen["context"]):
        entry = chosen.expectation
        keys = ("id", "match", "metric", "value", "unit", "source", "date", "confidence", "better", "missed", "note", "layer")
        by_filter = bandwidth_verdict(seen, {key: getattr(entry, key) for key in keys})
        assert (by_filter["verdict"], by_filter["reason_code"]) == (opinion.verdict, opinion.reason_code)
    return opinion.verdict, opinion.reason_code


@pytest.mark.parametrize(
    ("gpu", "gpus", "nics", "gbps", "value", "wanted"),
    [
        (L40S, 8, 4, 200, 22.0, "PASS"),  # what a ring through slots gives
        (L40S, 8, 4, 200, 18.0, "PASS"),
        (L40S, 8, 4, 200, 15.0, "UNKNOWN"),  # nobody says how the GPUs are connected
        (L40S, 8, 4, 200, 3.0, "UNKNOWN"),
        (L40S, 8, 4, 200, 23.8, "PASS"),  # what a slot gives: no healthy machine has more
        (L40S, 8, 4, 200, 60.0, "UNKNOWN"),  # more than a slot gives
        ("Tesla T4", 4, 2, 100, 6.0, "UNKNOWN"),
        ("Tesla T4", 4, 2, 100, 9.1, "PASS"),
        ("Tesla T4", 4, 1, 50, 5.9, "PASS"),  # the NIC is the limit
        ("Tesla T4", 4, 1, 50, 4.0, "UNKNOWN"),
        ("NVIDIA H100 PCIe", 8, 8, 400, 45.0, "PASS"),
        ("NVIDIA H100 PCIe", 8, 8, 400, 30.0, "UNKNOWN"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 8, 4, 400, 38.0, "PASS"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 8, 4, 400, 25.0, "UNKNOWN"),
        ("NVIDIA A1 Imaginary", 8, 8, 400, 200.0, "UNKNOWN"),
        ("NVIDIA A800-SXM4-80GB", 8, 8, 200, 158.0, "UNKNOWN"),
        (H100, 1, 8, 400, 47.0, "PASS"),
        (H100, 1, 8, 400, 30.0, "FAIL"),
        (H100, 4, 8, 400, 190.0, "PASS"),
        (H100, 4, 8, 400, 150.0, "FAIL"),
        (H100, 8, 8, 400, 375.0, "PASS"),
        (H100, 8, 8, 400, 190.0, "FAIL"),
        (H100, 8, 10, 400, 375.0, "PASS"),
        (H100, 8, 10, 400, 190.0, "FAIL"),
        (H100, 4, 4, 400, 188.0, "PASS"),
        (H100, 4, 4, 400, 150.0, "UNKNOWN"),  # NICs that two GPUs share
        (H100, 4, 4, 400, 40.0, "FAIL"),
        ("NVIDIA A100-SXM4-80GB", 8, 4, 100, 47.0, "PASS"),
        ("NVIDIA A100-SXM4-80GB", 8, 4, 100, 38.0, "FAIL"),
        ("Tesla V100-SXM2-16GB", 8, 4, 100, 40.0, "UNKNOWN"),
        ("NVIDIA B300 SXM6 AC", 8, 8, 800, 710.0, "PASS"),
        ("NVIDIA B300 SXM6 AC", 8, 8, 800, 400.0, "FAIL"),
        ("NVIDIA H200", 8, 16, 200, 380.0, "PASS"),
        ("NVIDIA H200", 8, 16, 200, 300.0, "UNKNOWN"),
    ],
)
def test_no_floor_is_above_what_the_gpus_can_use(gpu: str, gpus: int, nics: int, gbps: int, value: float, wanted: str) -> None:
    assert verdict(record(gpu, gpus, nics, gbps, value))[0] == wanted


def test_a_number_that_may_be_all_that_there_is_says_what_to_do() -> None:
    seen = records.measurement(record(L40S, 8, 4, 200, 15.0))
    opinion, _compared = single_checks.measured(("nccl_fabric", "all_reduce", "", "g"), seen, shipped())
    assert opinion.reason_code == "path_unknown"
    assert "what GPUs in slots reach depends on switches" in opinion.reason and "acceptance_expectations" in opinion.reason


IN_SLOTS = [
    L40S, "Tesla T4", "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA A40", "NVIDIA L4",
]  # fmt: skip


@pytest.mark.parametrize("gpu", IN_SLOTS)
@pytest.mark.parametrize("path", [*slots.PATHS, None])
@pytest.mark.parametrize("nics", [1, 2, 4, 8])
@pytest.mark.parametrize("gbps", [25, 50, 100, 200, 400])
def test_groups_of_gpus_in_slots_are_held_to_what_slots_and_nics_carry(gpu: str, path: str | None, nics: int, gbps: int) -> None:
    """A healthy number is accepted however the GPUs are connected; half of it is a fault if the way is known to be short, and is never
    accepted."""
    slot = slots.of(gpu)
    assert slot is not None
    healthy = min(0.96 * nics * gbps / 8, 0.6 * slots.rate(slot.generation, slot.lanes))
    for share, wanted in ((1.0, {"PASS"}), (0.97, {"PASS"}), (0.5, {"FAIL"} if path == slots.SWITCH else {"UNKNOWN"})):
        seen = record(gpu, 8, nics, gbps, round(share * healthy, 3), nic_path=path)
        opinion, _compared = single_checks.measured(("nccl_fabric", "all_reduce", "", "g"), records.measurement(seen), shipped())
        assert {opinion.verdict} == wanted, opinion.reason
        assert opinion.confidence == "derived" and (opinion.verdict != "UNKNOWN" or opinion.reason_code == "path_unknown")


def test_the_way_from_gpus_to_nics_is_that_of_the_tree() -> None:
    root, other = "/sys/devices/pci0000:00/0000:00:01.0", "/sys/devices/pci0000:80/0000:80:01.0"
    behind = f"{root}/0000:01:00.0"
    for gpu, nic, wanted in (
        (f"{behind}/0000:02:00.0/0000:03:00.0", f"{behind}/0000:02:04.0/0000:04:00.0", slots.SWITCH),
        (f"{root}/0000:01:00.0", "/sys/devices/pci0000:00/0000:00:02.0/0000:05:00.0", slots.HOST_BRIDGE),
        (f"{root}/0000:01:00.0", f"{other}/0000:81:00.0", slots.FAR),
        ("/sys/devices/pci10000:e0/10000:e0:01.0/10000:e1:00.0", "/sys/devices/pci10000:e0/10000:e0:01.0/10000:e1:00.1", slots.SWITCH),
    ):
        assert slots.path(gpu, nic) == wanted
    near, far = f"{behind}/0000:02:00.0/0000:03:00.0", f"{other}/0000:81:00.0"
    nics = [f"{behind}/0000:02:04.0/0000:04:00.0"]
    assert slots.farthest([near], nics) == slots.SWITCH and slots.farthest([near, far], nics) == slots.FAR
    assert slots.farthest([near], []) is None and slots.farthest([], nics) is None


def test_gpus_with_nvlink_and_unknown_ones_have_no_ring_of_slots() -> None:
    for gpu in (H100, "NVIDIA B200", "NVIDIA A100-SXM4-80GB", "NVIDIA A1 Imaginary"):
        assert slots.ring(record(gpu, 8, 8, 400, 1.0)["context"]) is None
    assert slots.ring({**record(L40S, 8, 4, 200, 1.0)["context"], "link_layer": "unknown"}) is None


@pytest.mark.parametrize(("value", "wanted"), [(22.0, "PASS"), (20.2, "WARN"), (15.0, "FAIL")])
def test_who_knows_the_machine_says_so_by_its_gpu(value: float, wanted: str) -> None:
    assert verdict(record(L40S, 8, 4, 200, value), resolve([("group", [OWN])]))[0] == wanted


def test_a_floor_of_ones_own_is_missed_whatever_the_tables_know_of_the_gpu() -> None:
    match = {key: value for key, value in OWN["match"].items() if key != "gpu"}
    own = resolve([("group", [{**OWN, "match": {**match, "nics": 2}, "value": 46}])])
    assert verdict(record("NVIDIA A1 Imaginary", 8, 2, 200, 20.0), own) == ("FAIL", "below_floor")


def test_the_filter_refuses_a_floor_for_more_nics_than_can_be_used() -> None:
    entry = next(one for one in shipped().entries if one.id == "fabric-8x400g-all_reduce")
    given = {key: getattr(entry, key) for key in ("id", "match", "metric", "value", "unit", "source", "date", "confidence")}
    found = bandwidth_verdict(record(H100, 1, 8, 400, 47.0), given)
    assert (found["verdict"], found["reason_code"]) == ("UNKNOWN", "no_expectation")
    assert "nics 8, not nics 1" in found["reason"]
    assert bandwidth_verdict(record(H100, 8, 8, 400, 190.0), given)["verdict"] == "FAIL"


@pytest.mark.parametrize("match", [{"gpu": H100, "gpus": 8}, {"gpu": H100}, {"gpus": 8}, {}])
def test_no_entry_softens_the_floor_of_nics_that_can_be_used(match: dict[str, t.Any]) -> None:
    soft = {**OWN, "value": 200, "match": {**OWN["match"], "nics": 8, "nic_gbps": 400, **match}}
    if "gpu" not in match:
        del soft["match"]["gpu"]
    with pytest.raises(ExpectationError, match="fabric-8x400g-all_reduce"):
        resolve([("group", [soft])])


def test_what_an_entry_says_of_a_missed_number() -> None:
    entry = {**OWN, "missed": "unknown"}
    assert verdict(record(L40S, 8, 4, 200, 15.0), Expectations([parse(entry, "here")])) == ("UNKNOWN", "path_unknown")
    assert verdict(record(L40S, 8, 4, 200, 21.5), Expectations([parse(entry, "here")])) == ("PASS", None)
    changed = resolve([("group", [entry]), ("host", {"mine": {"value": 24}})])
    assert next(one for one in changed.entries if one.id == "mine").missed == "fail", "a number of one's own stands for itself"
