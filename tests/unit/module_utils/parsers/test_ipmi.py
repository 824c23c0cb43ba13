# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of sensors and logs in every form of ipmitool, generated from the tables of IPMI 2.0: each type of sensor, state and wording."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import ipmi_device
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import ipmi, ipmi_states
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.ipmi_states import (
    FAIL,
    GENERIC,
    GOOD,
    NOTE,
    SPECIFIC,
    TYPES,
    WARN,
    State,
)
from harness.fake_bmc import FakeBmc, event
from hypothesis import given
from hypothesis import strategies as st

CODE = {FAIL: "bmc_fault", WARN: "bmc_event"}
# {name of a form of a line of the log: how it is written}; the number is hexadecimal.
FORMS: dict[str, t.Callable[[int, str, str, str], str]] = {
    "elist": lambda n, sensor, words, end: f"{n:4x} | 11/24/26 | 06:54:08 UTC | {sensor} | {words} | {end}",
    "old": lambda n, sensor, words, end: f"{n:4x} | 11/24/2026 | 06:54:08 | {sensor} | {words} | {end}",
    "csv": lambda n, sensor, words, end: f"{n:x},11/24/26,06:54:08 UTC,{sensor},{words},{end}",
    "undated": lambda n, sensor, words, end: f"{n:4x} |  Pre-Init  |{n:010d}| {sensor} | {words} | {end}",
    "undated csv": lambda n, sensor, words, end: f"{n:x}, Pre-Init ,{n:010d},{sensor},{words},{end}",
    "one cell": lambda n, sensor, words, end: f"{n:4x} | Pre-Init Time-stamp   | {sensor} | {words} | {end}",
    "unspecified": lambda n, sensor, words, end: f"{n:4x} | Unspecified | Unspecified | {sensor} | {words} | {end}",
    "since start": lambda n, sensor, words, end: f"{n:4x} | S+ 70/001 | 00:00:53 UTC | {sensor} | {words} | {end}",
    "german": lambda n, sensor, words, end: f"{n:4x} | 24.11.2026 | 06:54:08 UTC | {sensor} | {words} | {end}",
    "english": lambda n, sensor, words, end: f"{n:4x} | 11/24/2026 | 06:54:08 AM UTC | {sensor} | {words} | {end}",
}  # fmt: skip
Row = t.Tuple[int, State, str]
# Each state of each type of sensor in each wording, and each general one with a sensor that has it.
SPECIFIC_ROWS: list[Row] = [(kind, state, words) for kind, rows in SPECIFIC.items() for state in rows.values() for words in state.words]
GENERIC_ROWS: list[Row] = [(0x0B, state, words) for rows in GENERIC.values() for state in rows.values() for words in state.words]


def coded(grade: int) -> list[str]:
    return [CODE[grade]] if grade in CODE else []


def told(*lines: str) -> list[tuple[str, str]]:
    log = ipmi.read_log("\n".join(lines))
    assert log.unread == [], lines
    return [(event.code, event.words) for event in log.events]


def look_up(kind: int, words: str) -> State:
    found = ipmi_states.look_up(words, kind, "X")
    assert found is not None
    return found


def grade(kind: int, state: State, words: str) -> int:
    """Return the grade of a state in the log: that of its table, less for what may never have been there."""
    found = look_up(kind, words)
    assert found.logged == (WARN if state.present is False and kind not in ipmi_states.FIXED else found.logged)
    return found.logged


@pytest.mark.parametrize("form", FORMS)
def test_each_event_is_read_in_each_form(form: str) -> None:
    for kind, state, words in (*SPECIFIC_ROWS, *GENERIC_ROWS):
        for name in ("X", "#0x51"):
            found = told(FORMS[form](0x1A3, f"{TYPES[kind][0]} {name}", words, "Asserted"))
            if state.kind not in ("digital", "limit"):
                assert [code for code, _words in found] == coded(grade(kind, state, words)), (kind, words, found)


@pytest.mark.parametrize("form", FORMS)
def test_each_event_ends_with_its_own_state(form: str) -> None:
    write = FORMS[form]
    for kind, state, words in (*SPECIFIC_ROWS, *GENERIC_ROWS):
        sensor = f"{TYPES[kind][0]} X"
        lines = [write(1, sensor, words, "Asserted"), write(2, sensor, words, "Deasserted")]
        if state.present:
            assert [code for code, _words in told(*lines)] == ["bmc_fault"], (kind, words)
            assert told(*lines, write(3, sensor, words, "Asserted")) == []
        elif look_up(kind, words).is_momentary:
            assert told(*lines) == told(lines[0]) != [], (kind, words)  # the error has happened: that its signal is gone ends nothing
        elif grade(kind, state, words) != GOOD:
            assert told(*lines) == [], (kind, words)


def test_states_that_exclude_each_other_end_each_other() -> None:
    """Controllers log the new state, often never the end of the old one."""
    write = FORMS["elist"]
    kinds = [*GENERIC.values(), *(rows for rows in SPECIFIC.values() if len({state.kind for state in rows.values()}) == 1)]
    counted = 0
    for rows in kinds:
        of_type = next((kind for kind, specific in SPECIFIC.items() if specific is rows), 0x08)
        sensor = f"{TYPES[of_type][0]} X_FAULT"
        for first in rows.values():
            for second in rows.values():
                for words in first.words:
                    for later in second.words:
                        found = told(write(1, sensor, words, "Asserted"), write(2, sensor, later, "Asserted"))
                        alone = told(write(2, sensor, later, "Asserted"))
                        if ipmi_states.may_hold_together(first, second):
                            assert len(found) == 1 and {code for code, _words in found} == {"bmc_fault"}, (words, later)
                        elif first.present and second.present is False:
                            assert [code for code, _words in found] == ["bmc_fault"]
                        else:
                            assert found == alone, (words, later)
                        counted += 1
    assert counted > 300


def test_a_sensor_that_has_lost_its_redundancy_in_two_words() -> None:
    """Intel's boards assert `Redundancy Lost` and one of the non-redundant states, in either order, and take back one of them first."""
    lost, *non_redundant = (GENERIC[0x0B][number] for number in (1, 3, 4, 5))
    for other in non_redundant:
        for kind in ("Power Unit #0x02", "Fan #0x0c"):
            for one, two in ((lost, other), (other, lost)):
                both = [FORMS["elist"](n, kind, state.words[0], "Asserted") for n, state in enumerate((one, two), 1)]
                worse = [state.words[0] for state in (one, two) if state.logged == FAIL]
                (found,) = told(*both)
                assert found in [("bmc_fault", f"{kind}: {words}") for words in worse]
                for gone, left in ((one, two), (two, one)):
                    end = FORMS["elist"](3, kind, gone.words[0], "Deasserted")
                    assert told(*both, end) == [(CODE[left.logged], f"{kind}: {left.words[0]}")]
                    assert told(*both, end, FORMS["elist"](4, kind, left.words[0], "Deasserted")) == []
                for number in (0, 2, 6, 7):  # full, and three that have some redundancy
                    state = GENERIC[0x0B][number]
                    after = FORMS["elist"](3, kind, state.words[0], "Asserted")
                    assert [code for code, _words in told(*both, after)] == coded(state.logged)
                    assert [code for code, _words in told(*both, after, FORMS["elist"](4, kind, lost.words[0], "Deasserted"))] == coded(
                        state.logged
                    )


def test_a_part_that_was_replaced_is_judged_by_what_it_says_now() -> None:
    write = FORMS["elist"]
    for kind, rows in ((0x08, SPECIFIC[0x08]), (0x0D, SPECIFIC[0x0D])):
        sensor = f"{TYPES[kind][0]} X2 Status"
        presence = rows[0].words[0]
        for state in rows.values():
            if state.present is not None or state.logged <= NOTE:
                continue
            fault = write(1, sensor, state.words[0], "Asserted")
            lines = [fault, write(2, sensor, presence, "Deasserted")]
            assert "bmc_fault" in [code for code, _words in told(*lines)], "it is gone"
            lines.append(write(3, sensor, presence, "Asserted"))
            assert told(*lines) == [], (sensor, state)
            assert told(*lines, write(4, sensor, state.words[0], "Deasserted")) == []
            assert told(*lines, write(4, sensor, state.words[0], "Asserted")) == told(fault)
            generic = [write(2, sensor, "Device Absent", "Asserted"), write(3, sensor, "Device Present", "Asserted")]
            assert told(fault, *generic) == []
            assert told(fault, write(2, sensor, presence, "Asserted")) == told(fault), "it was never gone"
            other = sensor.replace("X2", "X1")
            assert told(fault, write(2, other, presence, "Deasserted"), write(3, other, presence, "Asserted")) == told(fault)
    flaps = [write(2, "Processor CPU1", "Presence detected", end) for end in ("Deasserted", "Asserted")]
    error = write(1, "Processor CPU1", "IERR", "Asserted")
    assert told(error, *flaps) == told(error), "the power was off"


@pytest.mark.parametrize(("sensor", "words", "code"), [
    *(("Unknown Leak Rope", words, "bmc_fault") for words in ("Leak detected", "Leakage", "Coolant leak", "Rope leak fault")),
    ("Unknown Leak Rope", "No leak detected", None),
    *(("GPU GPU3", words, "bmc_event") for words in ("Xid 79", "XID: 48", "NVLink link down", "Fallen off the bus", "GPU hang", "Hung")),
    *(("Cooling Pump1", words, "bmc_event") for words in ("Stopped", "Pump runaway", "Rotor stopped")),
    *(("Cooling Pump1", words, None) for words in ("Changed speed", "Started", "Link up")),
])  # fmt: skip
def test_words_of_makers_that_sound_like_a_fault(sensor: str, words: str, code: str | None) -> None:
    begun = FORMS["elist"](1, sensor, words, "Asserted")
    assert [event.code for event in ipmi.events(begun)] == ([code] if code else [])
    assert ipmi.events("\n".join([begun, FORMS["elist"](2, sensor, words, "Deasserted")])) == []


def test_a_late_end_of_an_old_state_ends_no_new_one() -> None:
    write = FORMS["elist"]
    for first, second, good in (
        ("Redundancy Degraded", "Redundancy Lost", "Fully Redundant"),
        ("Transition to Non-critical from OK", "Transition to Critical from less severe", "Transition to OK"),
    ):
        sensor = "Power Unit X"
        lines = [write(1, sensor, good, "Asserted"), write(2, sensor, first, "Asserted"), write(3, sensor, second, "Asserted")]
        for late in ([], [write(4, sensor, first, "Deasserted")], [write(4, sensor, good, "Deasserted")]):
            assert told(*lines, *late) == [("bmc_fault", f"{sensor}: {second}")]
        assert told(*lines, write(5, sensor, good, "Asserted")) == []
        assert [code for code, _words in told(write(1, sensor, good, "Deasserted"))] == ["bmc_event"]


def test_states_of_other_sensors_end_nothing() -> None:
    write = FORMS["elist"]
    lines = [
        write(1, "Power Supply PS Redundancy", "Redundancy Lost", "Asserted"),
        write(2, "Fan Fan Redundancy", "Fully Redundant", "Asserted"),
    ]
    assert [code for code, _words in told(*lines)] == ["bmc_fault"]
    modules = [
        write(n, "Memory ECC", f"Uncorrectable ECC (DIMM {slot})", end) for n, slot, end in ((1, "A1", "Asserted"), (2, "B2", "Deasserted"))
    ]
    assert told(*modules) == [("bmc_fault", "Memory ECC: Uncorrectable ECC (DIMM A1)")]


@pytest.mark.parametrize("side", ["Upper", "Lower"])
@pytest.mark.parametrize("level", range(3))
def test_a_limit_is_crossed_and_crossed_back(side: str, level: int) -> None:
    write = FORMS["elist"]
    away, back = ("high", "low") if side == "Upper" else ("low", "high")
    limit, sensor = f"{side} {ipmi_states.LEVELS[level]}", "Temperature Inlet"
    begun = write(1, sensor, f"{limit} going {away} ", "Asserted")
    assert [code for code, _words in told(begun)] == ["bmc_event" if level == 0 else "bmc_fault"]
    for within in range(level + 1):
        nearer = f"{side} {ipmi_states.LEVELS[within]}"
        assert told(begun, write(2, sensor, f"{nearer} going {away}", "Deasserted")) == []
        assert told(begun, write(2, sensor, f"{nearer} - going {back}", "Asserted")) == []
    for farther in range(level + 1, 3):
        later = write(2, sensor, f"{side} {ipmi_states.LEVELS[farther]} going {away}", "Deasserted")
        assert len(told(begun, later)) == 1
    other_side = "Lower" if side == "Upper" else "Upper"
    assert len(told(begun, write(2, sensor, f"{other_side} Non-critical going {back}", "Deasserted"))) == 1


def test_the_device_is_read_as_ipmitool_is() -> None:
    """The same table serves both: each state of each type by its numbers, and by the words that the device's reader writes."""
    for kind, rows in SPECIFIC.items():
        for number, state in rows.items():
            if number > 14:
                continue
            bmc = FakeBmc()
            bmc.sel = [event(1, kind, 0x99, 0x6F, f"{number:02x}ffff", 1795503248)]
            line = ipmi_device.events(bmc)
            assert f"| {state.words[0]} |" in line
            assert [found.code for found in ipmi.events(line)] == coded(grade(kind, state, state.words[0])), (kind, number)
    for kind, rows in GENERIC.items():
        for number, state in rows.items():
            bmc = FakeBmc()
            bmc.sel = [event(1, 0x08, 0x51, kind, f"{number:02x}ffff", 1795503248)]
            assert [found.code for found in ipmi.events(ipmi_device.events(bmc))] == coded(grade(0x08, state, state.words[0]))
    bmc = FakeBmc()
    bmc.sel = [event(1, 0x0F, 0x06, 0x6F, "a002ff", 1795503248)]
    assert [found.words for found in ipmi.events(ipmi_device.events(bmc))] == ["System Firmwares #0x06: No usable system memory"]


def test_records_of_the_device_that_are_no_events_are_said() -> None:
    bmc = FakeBmc()
    bmc.sel = [b"\1\0\xc1" + bytes(13), b"\2\0\xf0" + bytes(2) + b"Fatal excep", b"\3\0\2\0"]
    log = ipmi.read_log(ipmi_device.events(bmc))
    assert (log.of_maker, [found.words for found in log.events], len(log.unread)) == (1, ["Linux kernel panic: Fatal excep"], 1)


@pytest.mark.parametrize("entity", ["10.2", ""])
def test_each_state_of_a_sensor(entity: str) -> None:
    """`sdr elist` prints no type: the words, the entity and the name tell. A healthy state is no problem under any of them."""
    for kind, state, words in (*SPECIFIC_ROWS, *GENERIC_ROWS):
        if state.kind in ("digital", "limit", "enabled") or kind in (0x0F, 0x11):
            continue
        line = f"X | 50h | ok | {entity} | {words}" if entity else f"X | {words} | ok"
        found = [code for code, _words in ipmi.sensors(line)[0]]
        same = [other for _kind, other, of in (*SPECIFIC_ROWS, *GENERIC_ROWS) if ipmi_states.normal(of) == ipmi_states.normal(words)]
        assert (found[0] if found else None) in {CODE.get(other.now) for other in same}, (words, found)
        if max(other.now for other in same) <= NOTE:
            assert found == [], words
        if entity == "" and min(other.now for other in same) >= WARN:
            assert found, words


@pytest.mark.parametrize(
    ("name", "words", "code"),
    [
        *((name, "State Asserted", "bmc_fault") for name in (
            "PSU2_FAULT", "PS1 Fail", "HDD0/FAIL", "FM0/ERR", "Leak_Detect_1", "LEAKAGE", "CPU1_PROCHOT", "P0_THERMTRIP", "CATERR",
            "MEM_HOT", "CPU Throttle", "PSU1 Failure", "VR Hot", "GPU1_THERM_OVERT", "GPU_OVERT", "GPU2_PWR_BRAKE", "GPU Power Brake",
            "PWRBRK", "GPU3_Hang", "BMC Hung")),
        *((name, "State Deasserted", "bmc_fault") for name in ("PS0/VINOK", "PSU1 AC_OK", "PS2_PWROK")),
        ("SYS_PGOOD", "State Deasserted", "bmc_event"), ("SYS_PGOOD", "State Asserted", None), ("DIMM PG", "State Deasserted", None),
        ("PS1 PG FAIL", "State Deasserted", None), ("PS1 PG FAIL", "State Asserted", "bmc_fault"),
        *((name, "State Asserted", "bmc_event") for name in (
            "SMB_ALERT", "Fan alarm", "SYS/SERVICE", "PS0/SERVICE", "HGX_POWER_BRAKE_N", "GPU1_OVERT_L")),
        *((name, "State Asserted", None) for name in (
            "PS0/VINOK", "PSU1_PRSNT", "PS0/PWROK", "FAILOVER", "OK2RM LED", "INTERRUPT", "HOTSWAP",
            "Service Mode", "SYS/LOCATE", "COVERT", "SYS/OK", "CHANGED")),
        *((name, "State Deasserted", None) for name in ("PSU2_FAULT", "HDD0/FAIL", "FM0/ERR", "Leak_Detect_1", "LED", "P1 PROCHOT",
            "GPU1_THERM_OVERT", "GPU2_PWR_BRAKE", "HGX_POWER_BRAKE_N", "SYS/SERVICE")),
        ("PSU1 Leak", "Limit Exceeded", "bmc_fault"),
        ("Tray", "Leak detected", "bmc_fault"), ("Tray", "No leak detected", None),
        ("VR1", "Limit Exceeded", "bmc_event"), ("CPU1", "Throttled", "bmc_fault"),
        ("DIMM A1", "Throttled", "bmc_event"), ("CMOS Battery", "Low", "bmc_event"), ("CMOS Battery", "Failed", "bmc_event"),
        ("PS1 Status", "Presence detected, AC out-of-range, but present", "bmc_event"), ("X", "Frobnication failure", "bmc_event"),
        ("X", "Frobnicated normally", None), ("Fan Redundancy", "8400 RPM, Fully Redundant", None),
        ("X", "8400 RPM, Redundancy Lost", "bmc_fault"),
        ("CPU1 Status", "Presence detected, Disabled", "bmc_fault"), ("Riser", "Disabled", "bmc_event"),
    ],
)  # fmt: skip
def test_what_a_sensor_means_is_in_its_name(name: str, words: str, code: str | None) -> None:
    entity = "3.1" if name.startswith("CPU") else "25.1" if name == "Riser" else "7.1"
    problems, count = ipmi.sensors(f"{name} | 50h | ok | {entity} | {words}")
    assert ([found for found, _words in problems], count) == ([code] if code else [], 1)


def fan(name: str, speed: str, state: str = "ok", entity: str = "29.1") -> str:
    return f"{name} | 41h | {state} | {entity} | {speed}"


def test_a_fan_that_stands_among_fans_that_turn() -> None:
    others = [fan(f"FAN{n}", "8400 RPM") for n in range(1, 8)]
    for standing, code in (
        (fan("FAN8", "0 RPM"), "bmc_fault"), (fan("FAN8", "0.0 RPM"), "bmc_fault"), (fan("FAN8", "120 RPM"), "bmc_event"),
        (fan("PS2 Fan", "0 RPM", entity="10.2"), "bmc_event"), (fan("FAN8", "0 RPM", "lcr"), "bmc_fault"),
        (fan("FAN8", "No Reading", "ns"), None), (fan("FAN8", "Disabled", "ns"), None), (fan("FAN8", "2000 RPM"), None),
        ("FAN8 | 0 RPM | ok", "bmc_fault"), ("FAN8,0,RPM,ok", "bmc_fault"),
        ("FAN8 | 0.000 | RPM | ok | na | na | na | na | na | na", "bmc_fault"),
    ):  # fmt: skip
        problems = ipmi.sensors("\n".join([*others, standing]))[0]
        assert [found for found, _words in problems] == ([code] if code else []), standing
    stopped = [fan(f"FAN{n}", "0 RPM") for n in range(4)]
    assert {code for code, _words in ipmi.sensors("\n".join(stopped))[0]} == {"bmc_event"}
    assert ipmi.sensors("\n".join([*others, *(fan(f"FAN{n}", "No Reading", "ns") for n in range(8, 12))]))[0] == []


def test_fans_in_percent_and_empty_places_of_them() -> None:
    """iLO has shares of the full speed; an empty place may have 0."""
    lines = [
        "Fan 1 | 07h | ok | 7.1 | 12.94 percent",
        "Fan 2 | 08h | ok | 7.1 | 12.94 percent, Device Present",
        "Fan 3 | 09h | ok | 7.1 | 0 percent",
        "Fan 4 | 0Ah | ok | 7.1 | 0 percent, Device Absent",
        "CPU Load | 0Bh | ok | 3.1 | 0 percent",
    ]
    found = ipmi.list_sensors("\n".join(lines))
    assert [(code, words.partition(":")[0]) for code, words in found.problems] == [("bmc_event", "Fan 3")]
    assert found.parts == {"fans": {"Fan 1": True, "Fan 2": True, "Fan 3": True, "Fan 4": False}}


def test_sensors_of_one_name_are_told_apart_by_their_entity() -> None:
    """iDRAC calls the sensor of each power supply and of each processor `Status`."""
    dell = [
        "Status | 81h | ok | 3.1 | Presence detected",
        "Status | 82h | ok | 3.2 | Presence detected",
        "Status | 85h | ok | 10.1 | Presence detected",
    ]
    for reading, problems in (("", []), ("Presence detected, Power Supply AC lost", [("bmc_fault", "Status 10.2: Power Supply AC lost")])):
        found = ipmi.list_sensors("\n".join([*dell, f"Status | 86h | ok | 10.2 | {reading}"]))
        assert found.problems == problems
        assert found.parts["power supplies"] == {"Status 10.1": True, "Status 10.2": bool(reading)}
        assert found.parts["other parts"] == {"Status 3.1": True, "Status 3.2": True}


def test_presence_of_other_parts() -> None:
    lines = [
        "GPU1 Pres | 11h | ok | 11.1 | Device Absent",
        "GPU2 Pres | 12h | ok | 11.2 | Device Present",
        "CPU1 | 13h | ok | 3.1 | Presence detected",
        "CPU2 | 14h | ok | 3.2 | ",
    ]
    assert ipmi.list_sensors("\n".join(lines)).parts == {
        "other parts": {"GPU1 Pres": False, "GPU2 Pres": True, "CPU1": True, "CPU2": False}
    }


def test_what_makers_add_to_words_and_dates_that_are_none() -> None:
    for words in ("Failure detected", "Failure detected ()", "Failure detected (slot 2)", "Failure detected ; OEM Event Data2 code = 02h"):
        assert [code for code, _words in told(FORMS["elist"](1, "Power Supply PSU2", words, "Asserted"))] == ["bmc_fault"]
    for date in ("00/00/00", "99/99/26", "13/32/2026"):
        (found,) = ipmi.events(f"1 | {date} | 00:00:00 | Power Supply PSU2 | Failure detected | Asserted")
        assert found.when is None


def test_which_supplies_and_fans_are_there() -> None:
    """An empty reading of a sensor, beside one of the same name but for its number that says "present"."""
    supplies = ["PSU{} Status | 5{}h | ok | 10.{} | Presence detected", "PSU{} Fail | 6{}h | ok | 10.{} | "]
    lines = [row.format(n, n, n) for n in range(1, 4) for row in supplies]
    for missing in ("ok | 10.4 | ", "ns | 10.4 | No Reading", "ns | 10.4 | Disabled", "ok | 10.4 | Device Absent"):
        found = ipmi.list_sensors(
            "\n".join([*lines, f"PSU4 Status | 54h | {missing}", fan("FAN1", "8400 RPM"), fan("FAN2", "No Reading", "ns")])
        )
        assert found.problems == [] and found.parts == {
            "power supplies": {**{f"PSU{n} Status": True for n in range(1, 4)}, "PSU4 Status": False},
            "fans": {"FAN1": True, "FAN2": False},
        }


@pytest.mark.parametrize("silent", ["ns | 10.2 | No Reading", "ns | 10.2 | Disabled", "na | 10.2 | "])
def test_a_supply_of_which_all_numbers_are_silent(silent: str) -> None:
    rows = [
        f"PS{n} {what} | {n}{at}h | ok | 10.{n} | {value}"
        for n in (1, 3)
        for at, what, value in ((1, "Power", "300 Watts"), (2, "Volt", "230 Volts"))
    ]
    found = ipmi.list_sensors("\n".join([*rows, f"PS2 Power | 21h | {silent}", f"PS2 Volt | 22h | {silent}"]))
    assert found.parts == {"power supplies": {f"readings of entity 10.{n}": n != 2 for n in (1, 2, 3)}} and found.problems == []
    one_silent = ipmi.list_sensors("\n".join([*rows, "PS1 Temp | 13h | ns | 10.1 | No Reading"]))
    assert all(one_silent.parts["power supplies"].values())


def test_asserted_states_of_sensors_whose_names_say_nothing() -> None:
    """A known type, as in the log: FreeIPMI calls it a warning."""
    for sensor, code in (
        ("Power Supply #0x52", "bmc_event"),
        ("Power Supply PS2 Foo", "bmc_event"),
        ("Processor CPU1", "bmc_event"),
        ("Power Supply PS0/PWROK", None),
        ("Power Supply PS0/OK", None),
        ("Button UID", None),
        ("OEM #0xc0", None),
        ("Power Supply PSU2_FAULT", "bmc_fault"),
        ("Voltage P1V8 PG", None),
    ):
        found = told(FORMS["elist"](1, sensor, "State Asserted", "Asserted"))
        assert [each for each, _words in found] == ([code] if code else []), sensor


def test_records_that_are_no_sensors_are_not_counted() -> None:
    lines = [
        "BMC | 00h | ok | 6.1 | Dynamic MC @ 20h", "FRU | 00h | ns | 7.1 | Logical FRU @00h", "SEL | 72h | ns | 6.1 | Event-Only",
        "X | 00h | ns | 7.1 | Generic Device @20h:A0h.0", "BMC | Static MC @ 20h  | ok", "F | Log FRU @00h 0a.1 | ok",
        "G | Generic @20:A0.0  | ok",
    ]  # fmt: skip
    found = ipmi.list_sensors("\n".join(lines))
    assert (found.problems, found.readable, found.listed, found.unread) == ([], 0, 0, [])


def test_a_machine_with_dozens_of_good_states() -> None:
    """Sun and Oracle have a sensor of the kind 04h for each part."""
    sensors = [f"PART{n}/FAIL | {n:02x}h | ok | 10.{n} | Predictive Failure Deasserted" for n in range(60)]
    assert ipmi.sensors("\n".join(sensors)) == ([], 60)
    write = FORMS["elist"]
    events = [write(n, f"Drive Slot / Bay HDD{n}", "Predictive Failure Deasserted", "Asserted") for n in range(60)]
    assert told(*events) == []


@given(st.text(alphabet="0123456789abcdefABCDEF|,: /.-xPreInitASDeasertdFlupyow", max_size=60))
def test_no_line_of_a_log_is_dropped(line: str) -> None:
    text = " ".join(line.split())
    log = ipmi.read_log(text)
    cells = [cell.strip() for cell in text.split("|")]
    if text and not log.events and not log.unread and not log.of_maker:
        # It was read: a state that is no fault, or the end of one.
        assert (
            any(ipmi_states.look_up(cell, None, "") or ipmi_states.crossed(cell) for cell in (*cells, *text.split(",")))
            or "eassert" in text
        )
    ipmi.list_sensors(text)


@pytest.mark.parametrize("line", [
    "rubbish", "| | |", "zz | 11/24/26 | 06:54:08 | Fan X | Redundancy Lost | Asserted", "1 | 11/24/26", "1,2,3", "SEL has no entries",
    " SEL Record ID          : 0009", "1 | 11/24/26 | 06:54:08 UTC | OEM #0xc1 |  | Asserted",
    "1 | 11/24/26 | 06:54:08 UTC | Fan FAN1 | State 15 of a maker | Asserted",
])  # fmt: skip
def test_a_line_that_cannot_be_read_is_said(line: str) -> None:
    log = ipmi.read_log(line)
    assert (log.events, len(log.unread)) == ([], 1)


def test_times_tell_what_stands_around_an_event() -> None:
    lines = [FORMS["elist"](1, "Fan A", "Redundancy Lost", "Asserted"), FORMS["undated"](2, "Fan B", "Redundancy Lost", "Asserted")]
    dated, undated = ipmi.events("\n".join(lines))
    assert (dated.when, undated.when, undated.after, undated.before) == (1795503248.0, None, 1795503248.0, None)
