# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters of `nvidia-smi nvlink -e` of all generations: each has a class, and each class its verdict."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nvidia
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import is_absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nvidia_smi, nvlink_counters
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.nvlink_counters import (
    FAILED,
    LOST,
    NOISE,
    RATE,
    RESENT,
    RETRAINED,
)

# {name as nvidia-smi prints it: (class, what a healthy link prints)}, as users published them, by generation.
V100 = {"Replay Errors": (RESENT, "0"), "Recovery Errors": (RETRAINED, "0"), "CRC Errors": (RESENT, "0")}
H100 = {
    **V100, "CRC Flit Errors": (RESENT, "0"), "CRC Data Errors": (RESENT, "0"), "ECC Errors": (RESENT, "0"), "Data Tx Errors": (LOST, "0"),
    "Data Rx Errors": (LOST, "0"),
}  # fmt: skip
B300 = {
    "Tx packets": (NOISE, "81234"), "Tx bytes": (NOISE, "99887766"), "Rx packets": (NOISE, "81234"), "Rx bytes": (NOISE, "99887766"),
    "Malformed packet Errors": (LOST, "0"), "Buffer overrun Errors": (LOST, "0"), "Rx Errors": (LOST, "0"), "Rx remote Errors": (LOST, "0"),
    "Rx General Errors": (LOST, "0"), "Local link integrity Errors": (LOST, "0"), "Tx discards": (LOST, "0"),
    "Link recovery successful events": (RETRAINED, "0"), "Link recovery failed events": (FAILED, "0"),
    "Total link recovery events": (RETRAINED, "0"), "Effective Errors": (LOST, "0"), "Effective BER": (RATE, "15e-255"),
    "Symbol Errors": (LOST, "0"), "Symbol BER": (RATE, "15e-255"), "Raw BER Lane 0": (NOISE, "2061"), "Raw BER Total": (NOISE, "1037"),
    "Raw Errors Lane 0": (NOISE, "82"), "Raw Errors Lane 1": (NOISE, "4"), "PLR Xmit Retry Blocks": (RESENT, "0"),
    **{f"FEC Errors - {number}": (NOISE, "36140749276" if not number else "3") for number in range(16)},
}  # fmt: skip
GENERATIONS = {"v100": V100, "h100": H100, "b300": B300}
UUIDS = [f"GPU-00000000-0000-4000-8000-00000000000{number}" for number in range(8)]


def printed(counters: t.Mapping[str, tuple[str, str]], changes: t.Mapping[str, str] = {}, links: int = 18, gpus: int = 8) -> str:
    """What `nvlink -e` prints; the changes are on the third link of the second GPU."""
    lines = []
    for number, uuid in enumerate(UUIDS[:gpus]):
        lines.append(f"GPU {number}: NVIDIA X (UUID: {uuid})")
        for link in range(links):
            here = changes if (number, link) == (min(1, gpus - 1), min(2, links - 1)) else {}
            lines += [f"\t Link {link}: {name}: {here.get(name, healthy)}" for name, (_kind, healthy) in counters.items()]
    return "\n".join(lines) + "\n"


def problems(text: str, days: float = 1.0) -> dict[str, list[str]]:
    gpus = [{"uuid": uuid, "name": "NVIDIA X"} for uuid in UUIDS]
    counters = nvidia_smi.parse_nvlink_errors(text)
    found = {uuid: [code for code, _words in of] for uuid, of in nvidia.link_problems(gpus, counters, days).items()}
    failed = [uuid for uuid, of in counters.items() if nvidia._counted(of, FAILED)]
    return {**found, **{uuid: ["nvlink"] for uuid in failed}}


EVERY = [(name, counter) for name, counters in GENERATIONS.items() for counter in counters]


@pytest.mark.parametrize(("generation", "counter"), EVERY)
def test_every_counter_has_its_class(generation: str, counter: str) -> None:
    counters = GENERATIONS[generation]
    kind = counters[counter][0]
    read = nvlink_counters.read(f"\t Link 0: {counter}: 7\n")
    assert [nvlink_counters.kind_of(name) for name in read] == ([] if kind == NOISE else [kind])
    assert problems(printed(counters)) == {}, "a healthy node"
    if kind == RATE:
        assert problems(printed(counters, {counter: "15e-9"})) == {UUIDS[1]: ["nvlink_error"]}
        assert problems(printed(counters, {counter: "3e-16"})) == {}
    elif kind == NOISE:
        assert problems(printed(counters, {counter: "9999999999"})) == {}
    elif kind == FAILED:
        assert problems(printed(counters, {counter: "1"}), 400.0) == {UUIDS[1]: ["nvlink"]}
    else:
        assert problems(printed(counters, {counter: "90000"}), 400.0) == {UUIDS[1]: ["nvlink_error"]}
        assert problems(printed(counters, {counter: "300"}), 400.0) == {UUIDS[1]: ["nvlink_error"]}, "the others have none"
        assert problems(printed(counters, {counter: "3"})) == {}


@pytest.mark.parametrize("form", ["N/A", "Unknown Error", "Not Supported", "", "-1", "18446744073709551615", "nan"])
@pytest.mark.parametrize("counter", ["Replay Errors", "Recovery Errors", "CRC Errors"])
def test_a_counter_that_cannot_be_read_is_not_0(counter: str, form: str) -> None:
    name = next(iter(nvlink_counters.read(f"Link 0: {counter}: 0")))
    read = nvidia_smi.parse_nvlink_errors(printed(V100, {counter: form}))
    assert is_absent(read[UUIDS[1]][name]) and read[UUIDS[0]][name] == 0
    assert problems(printed(V100, {counter: form})) == {UUIDS[1]: ["unreadable_state"]}
    nobody = printed({**V100, counter: (RESENT, form)})
    assert problems(nobody) == {}, "a driver that prints it for no GPU"


@pytest.mark.parametrize("line", ["Link 0: Frobnicated packet Errors: 50", "Link 0: Rx poisoned: 50", "Link 0: Something failed: 50"])
def test_an_error_of_a_name_that_no_table_has_is_seen(line: str) -> None:
    read = nvlink_counters.read(line)
    assert list(read.values()) == [50] and {nvlink_counters.kind_of(name) for name in read} == {LOST}
    assert problems(f"GPU 0: X (UUID: {UUIDS[0]})\n\t{line}\n") == {UUIDS[0]: ["nvlink_error"]}


@pytest.mark.parametrize("between", [" ", ", ", ": "])
@pytest.mark.parametrize("name", ["CRC error count", "CRC Errors", "CRC error counter"])
def test_a_lane_has_its_counter_however_it_is_named(between: str, name: str) -> None:
    assert nvlink_counters.read(f"\t Link 0{between}Lane 0: {name}: 12\n\t Link 0{between}Lane 1: {name}: 1\n") == {"crc": 13}


@pytest.mark.parametrize("name", ["Link downed counter", "Link Downed", "Link down events", "Link down count"])
def test_a_link_that_went_down(name: str) -> None:
    assert nvlink_counters.read(f"Link 0: {name}: 6") == {"link_downed": 6} and nvlink_counters.kind_of("link_downed") == RETRAINED
    assert problems(printed({**B300, name: (RETRAINED, "0")}, {name: "60"})) == {UUIDS[1]: ["nvlink_error"]}


@pytest.mark.parametrize("end", ["", " count", " counter", " counters", " counts"])
@pytest.mark.parametrize(("name", "read"), [("Replay", "replay"), ("Recovery error", "recovery"), ("Rx discard", "discards")])
def test_names_that_end_in_a_word_for_a_counter(name: str, read: str, end: str) -> None:
    assert nvlink_counters.read(f"Link 0: {name}{end}: 6") == {read: 6}


def test_the_same_on_all_gpus_is_held_to_the_time() -> None:
    assert len(problems(printed({**B300, "Link recovery successful events": (RETRAINED, "20")}), 1.0)) == 8
    assert problems(printed({**V100, "Replay Errors": (RESENT, "100")}), 400.0) == {}
