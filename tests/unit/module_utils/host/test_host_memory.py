# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory modules in the slot names of many makers, and counters of memory errors in every form."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import memory, population
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.smbios import Dimm
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import host_health
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.machine_tree import SLOTS, UNKNOWN_SIZE, MachineTree
from harness.machine_tree import smbios as table_of
from hypothesis import given
from hypothesis import strategies as st

Found = t.Dict[str, t.Any]
GIB64 = 65536


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> MachineTree:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return MachineTree(tmp_path / "root")


def ask(machine: MachineTree) -> Found:
    (found,) = host_health.probe({"checks": [{"check": "memory", "variant": ""}], "ras_days": 30.0}, Node(60, root=str(machine.root)))
    return found


def told(found: Found) -> list[tuple[str, str]]:
    return [(one["code"], one["text"]) for one in found["context"].get("findings", [])]


def dimm(locator: str, bank: str = "", mib: int | None = GIB64, rated: int | None = 4800, speed: int | None = 4800) -> Dimm:
    return Dimm(locator, bank, mib, rated if mib != 0 else None, speed if mib != 0 else None, "Maker", "35A1B200" if mib else "", "M", 34)


# {a maker's way of naming slots: function of (processor, channel, slot of the channel, slots of a channel) -> (locator, bank)}.
LETTERS = "ABCDEFGHIJKLMNOP"
NAMES: dict[str, t.Callable[[int, int, int, int], tuple[str, str]]] = {
    "P1-DIMMA1": lambda cpu, channel, slot, _deep: (
        f"P{cpu + 1}-DIMM{LETTERS[channel]}{slot + 1}", f"P{cpu}_Node0_Channel{channel}_Dimm{slot}",
    ),
    "DIMM 0, P0 CHANNEL A": lambda cpu, channel, slot, _deep: (f"DIMM {slot}", f"P{cpu} CHANNEL {LETTERS[channel]}"),
    "DIMM_P0_A0": lambda cpu, channel, slot, _deep: (f"DIMM_P{cpu}_{LETTERS[channel]}{slot}", f"BANK {channel}"),
    "CPU0_DIMM_A1": lambda cpu, channel, slot, _deep: (f"CPU{cpu}_DIMM_{LETTERS[channel]}{slot + 1}", f"NODE {cpu}"),
    "CPU0_C0D0": lambda cpu, channel, slot, _deep: (f"CPU{cpu}_C{channel}D{slot}", f"NODE {cpu}"),
    "PROC 1 DIMM 3": lambda cpu, channel, slot, deep: (f"PROC {cpu + 1} DIMM {channel * deep + slot + 1}", ""),
    "A1 to B16": lambda cpu, channel, slot, deep: (f"{LETTERS[cpu]}{channel * deep + slot + 1}", ""),
    "DIMM010": lambda cpu, channel, slot, _deep: (f"DIMM{cpu}{channel}{slot}", f"SOCKET {cpu} CHANNEL {channel} DIMM {slot}"),
    "DIMM 1, NODE 1": lambda cpu, channel, slot, deep: (
        f"DIMM {channel * deep + slot + 1}", f"NODE {cpu + 1} CHANNEL {channel} DIMM {slot}",
    ),
}  # fmt: skip


def machine_of(names: str, cpus: int, channels: int, deep: int, filled: t.Callable[[int, int, int], bool]) -> list[Dimm]:
    places = [(cpu, channel, slot) for cpu in range(cpus) for channel in range(channels) for slot in range(deep)]
    return [dimm(*NAMES[names](*place, deep), mib=GIB64 if filled(*place) else 0) for place in places]


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize(("channels", "deep"), [(4, 1), (8, 1), (8, 2), (6, 2)])
def test_a_slot_that_is_empty_beside_its_siblings(names: str, channels: int, deep: int) -> None:
    for cpus in (1, 2):
        whole = machine_of(names, cpus, channels, deep, lambda _cpu, _channel, slot: slot == 0)
        assert population.unbalanced(whole) == []
        for cpu in range(cpus):
            poor = machine_of(names, cpus, channels, deep, lambda p, c, s, cpu=cpu: s == 0 and (p, c) != (cpu, channels - 1))
            if cpus > 1 or channels - 1 not in (3, 5):
                (words,) = population.unbalanced(poor)
                assert "empty" in words or deep == 1
    if deep == 1:
        alike = machine_of(names, 2, channels, deep, lambda _p, c, _s: c != channels - 1)
        assert population.unbalanced(alike), "one channel is empty on both processors"


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize(("channels", "deep", "fill"), [(8, 2, 4), (12, 1, 8), (12, 1, 6), (6, 1, 3), (8, 1, 2), (12, 2, 12), (8, 2, 16)])
def test_populations_that_makers_allow_are_balanced(names: str, channels: int, deep: int, fill: int) -> None:
    whole = machine_of(names, 2, channels, deep, lambda _cpu, channel, slot: slot * channels + channel < fill)
    if names == "DIMM010" and channels > 10:
        return  # it has one digit for the channel
    assert population.unbalanced(whole) == []


def test_a_processor_that_is_not_there_and_machines_of_one_module() -> None:
    one_processor = machine_of("P1-DIMMA1", 2, 8, 1, lambda cpu, _c, _s: cpu == 0)
    assert population.unbalanced(one_processor) == []
    assert population.unbalanced([dimm("DIMM 0")]) == [] == population.unbalanced([])
    assert population.unbalanced([dimm("A1"), dimm("B1")]) == []  # letters of channels


@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=12), st.sampled_from([0, None, GIB64])), max_size=20))
def test_modules_of_unknown_names_are_read_without_an_exception(slots: list[tuple[str, str, int | None]]) -> None:
    modules = [dimm(*slot) for slot in slots]
    population.unbalanced(modules)
    population.slow(modules)
    assert len(population.sockets(modules)) == len(population.channels(modules)) == len(modules)


@pytest.mark.parametrize(
    ("rated", "speed", "deep", "is_slow"),
    [
        (4800, 3200, 1, True), (4800, 3200, 2, True), (4800, 4800, 1, False), (4800, 4400, 2, False), (4800, 3600, 2, False),
        (4800, 3600, 1, True), (5600, 4800, 1, False), (3200, 2933, 1, False), (3200, 2666, 1, False), (3200, 2133, 1, True),
        (6400, 4400, 2, False), (6400, 5200, 1, False), (4800, None, 1, False), (None, 3200, 1, False), (4800, 2400, 1, True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("names", [name for name in NAMES if name not in ("PROC 1 DIMM 3", "A1 to B16")])
def test_modules_far_below_their_rated_speed_are_slow(names: str, rated: int | None, speed: int | None, deep: int, is_slow: bool) -> None:
    slots = [slot._replace(rated=rated, speed=speed) for slot in machine_of(names, 2, 8, deep, lambda *_place: True)]
    found = population.slow(slots)
    assert (list(found) == [(rated, speed)] and len(found[rated, speed]) == len(slots)) if is_slow else not found


def test_one_module_less_on_one_processor(machine: MachineTree) -> None:
    machine.dimms({SLOTS[6]: (0, 0)})
    machine.write("proc/meminfo", f"MemTotal: {int(448 * 0.98 * (1 << 20))} kB\n")
    found = ask(machine)
    assert found["outcome"] == "measured"
    assert told(found) == [("dimm_unbalanced", "processor 0 has 4, processor 1 has 3 memory modules; empty: DIMM P1-DIMMC1 (P1 CHANNEL C)")]


def test_one_module_less_on_both_processors(machine: MachineTree) -> None:
    machine.dimms({SLOTS[3]: (0, 0), SLOTS[7]: (0, 0)})
    machine.write("proc/meminfo", f"MemTotal: {int(384 * 0.98 * (1 << 20))} kB\n")
    assert [code for code, _text in told(ask(machine))] == ["dimm_unbalanced"] * 2


def test_modules_that_are_all_slow_are_one_finding(machine: MachineTree) -> None:
    machine.dimms(dict.fromkeys(SLOTS, (GIB64, 3200)))
    assert told(ask(machine)) == [
        ("dimm_slow", "DIMM P0-DIMMA1 (P0 CHANNEL A), serial number 35A1B200 and 7 more: runs at 3200 MT/s and is rated 4800")
    ]


def test_a_module_of_unknown_size_is_there(machine: MachineTree) -> None:
    machine.dimms({SLOTS[2]: (UNKNOWN_SIZE, 4800)})
    found = ask(machine)
    assert (found["outcome"], found["reason_code"]) == ("error", "no_answer") and SLOTS[2] in found["reason"]
    assert "unknown size" in memory.dimms(Tree(Node(60, root=str(machine.root))))[2].words()
    assert [code for code, _text in told(found)] == []


@pytest.mark.parametrize("text", ["Disabled", "Not Usable", "DIMM disabled", "Mapped Out", "MAP-OUT", "Failed", "faulty", "Deconfigured"])
def test_a_module_that_the_firmware_does_not_use(machine: MachineTree, text: str) -> None:
    machine.write("sys/firmware/dmi/tables/DMI", table_of(dict.fromkeys(SLOTS, (GIB64, 4800)), asset=text))
    found = told(ask(machine))
    assert [code for code, _words in found] == ["dimm_lost"] * 8 and text in found[0][1]


@pytest.mark.parametrize("text", ["Enabled", "Not Disabled", "asset", "Unknown", "P1_AssetTag"])
def test_a_module_whose_texts_say_nothing_bad(machine: MachineTree, text: str) -> None:
    machine.write("sys/firmware/dmi/tables/DMI", table_of(dict.fromkeys(SLOTS, (GIB64, 4800)), asset=text))
    assert told(ask(machine)) == []


def test_a_module_without_a_speed_among_others(machine: MachineTree) -> None:
    machine.dimms({SLOTS[5]: (GIB64, 0)})
    assert [code for code, _text in told(ask(machine))] == ["dimm_lost"]
    machine.dimms(dict.fromkeys(SLOTS, (GIB64, 0)))
    found = ask(machine)
    assert told(found) == [] and "dimm_speed" in found["context"]["not_looked_for"]


def test_the_modules_of_a_virtual_machine_are_no_slots(machine: MachineTree) -> None:
    """VMware lists 64 slots, of which as many are filled as the size needs."""
    machine.write("proc/cpuinfo", "flags : fpu hypervisor\n")
    slots = {f"RAM slot #{number}": ((16384 if number < 3 else 0), 0) for number in range(64)}
    machine.write("sys/firmware/dmi/tables/DMI", table_of(slots, banks=dict.fromkeys(slots, "")))
    found = ask(machine)
    assert found["outcome"] == "measured" and told(found) == []


@pytest.mark.parametrize(
    ("gib", "is_poor"), [((256, 256), False), ((252, 256), False), ((192, 256), True), ((256, 224), True), ((256, 0), True)]
)
def test_a_numa_node_with_far_less_memory_is_unbalanced(machine: MachineTree, gib: tuple[int, int], is_poor: bool) -> None:
    for node, size in enumerate(gib):
        machine.write(f"sys/devices/system/node/node{node}/meminfo", f"Node {node} MemTotal: {size << 20} kB\n")
    machine.write("sys/devices/system/node/node2/meminfo", "Node 2 MemTotal: 100663296 kB\n")  # the memory of a GPU
    machine.write("sys/devices/system/node/node2/cpulist", "\n")
    assert [code for code, _text in told(ask(machine))] == (["dimm_unbalanced"] if is_poor else [])


# Counters of errors ---------------------------------------------------------------------------------------------------------

FORMS: dict[str, t.Callable[[int], str]] = {"int": str, "hexadecimal": hex, "separated": "{:,}".format, "blanks": "  {} \n".format}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("kind", "code"), [("ce", "host_memory_corrected"), ("ue", "host_memory")])
@pytest.mark.parametrize("count", [1, 20_000_000])
def test_error_counters_of_memory_are_read_in_every_form(machine: MachineTree, kind: str, code: str, count: int, form: str) -> None:
    of = "sys/devices/system/edac/mc/mc1"
    machine.write(f"{of}/dimm1/dimm_{kind}_count", FORMS[form](count))
    machine.write(f"{of}/{kind}_count", FORMS[form](count))
    found = told(ask(machine))
    assert [one for one, _text in found] == [code] and str(count) in found[0][1]


@pytest.mark.parametrize("content", ["", "N/A", "-1", "x", None])
@pytest.mark.parametrize("name", ["dimm1/dimm_ce_count", "dimm1/dimm_ue_count", "ce_count", "ue_count"])
def test_a_counter_that_cannot_be_read_is_not_zero(machine: MachineTree, name: str, content: str | None) -> None:
    path = machine.path(f"sys/devices/system/edac/mc/mc1/{name}")
    path.unlink() if content is None else path.write_text(content)
    found = ask(machine)
    assert (found["outcome"], found["reason_code"]) == ("error", "no_answer") and path.name in found["reason"]
    machine.edac(0, uncorrected=1)
    assert ask(machine)["reason_code"] == "host_memory"


def test_an_older_kernel_counts_by_controller(machine: MachineTree) -> None:
    for module in machine.path("sys/devices/system/edac/mc").glob("mc*/dimm*"):
        for kind in ("ce", "ue"):
            (module / f"dimm_{kind}_count").unlink()
    assert ask(machine)["outcome"] == "measured"
    machine.write("sys/devices/system/edac/mc/mc1/ue_count", "2\n")
    assert ask(machine)["reason"].startswith("a module of memory controller mc1: 2 uncorrectable")


def test_an_error_of_a_controller_one_of_whose_modules_cannot_be_read(machine: MachineTree) -> None:
    machine.write("sys/devices/system/edac/mc/mc1/dimm1/dimm_ue_count", "x\n")
    machine.write("sys/devices/system/edac/mc/mc1/ue_count", "2\n")
    assert ask(machine)["reason_code"] == "host_memory"


def test_a_storm_of_one_module_and_of_all(machine: MachineTree) -> None:
    for number in range(8):
        machine.edac(number, corrected=1000)
    assert all("where most modules have 1000" in text for _code, text in told(ask(machine)) if "DIMM" in text)


def test_only_counters_that_were_read_can_rise(machine: MachineTree) -> None:
    tree = Tree(Node(60, root=str(machine.root)))
    before = memory.counted(tree)
    machine.write("sys/devices/system/edac/mc/mc1/dimm1/dimm_ce_count", "x\n")
    machine.edac(0, corrected=3)
    assert [change["before"] for change in memory.risen(before, memory.counted(tree))] == [0]
