# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The states of sensors and the events of IPMI 2.0 (tables 42-1, 42-2 and 42-3) with what each is worth.

The numbers are those of the tables. The first words of a state are ipmitool's (include/ipmitool/ipmi_sel.h), behind them those of other
versions and of FreeIPMI (libfreeipmi/spec/ipmi-sensor-and-event-code-tables-spec.c). Grades follow FreeIPMI's
etc/freeipmi_interpret_sel.conf and freeipmi_interpret_sensor.conf; a state that tells of no part is a note here.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

# What a state is worth: the part is well; nothing about the health of a part; worth a look; the part has failed.
GOOD, NOTE, WARN, FAIL = range(4)
_GRADES = {"g": GOOD, "n": NOTE, "w": WARN, "f": FAIL}


class State(t.NamedTuple):
    """A state of a sensor. `now` is its grade where a sensor reads it, `logged` where the log has it. Of the states with the same `kind`
    a sensor has one at a time; `present` is whether the state says that a part is there, None if it says neither. `is_momentary` is True
    for an error that happened: that its signal is gone afterwards tells nothing of the part."""

    words: tuple[str, ...]
    now: int
    logged: int
    kind: str
    present: bool | None = None
    is_momentary: bool = False


def _table(kind: str, rows: t.Mapping[int, str]) -> dict[int, State]:
    """Return the states of a row of a table, {number: "grades words|other words"}. The grades are those of a sensor and of the log, then
    `+` or `-` for a part that is there or not, or `!` for an error of a moment. All states are of `kind`; where that is "",
    each is of its own."""
    states = {}
    for number, row in rows.items():
        grades, _blank, words = row.partition(" ")
        every = tuple(words.split("|"))
        present = {"+": True, "-": False}.get(grades[2:])
        own = kind or ("presence" if present is not None else normal(every[0]))
        states[number] = State(every, _GRADES[grades[0]], _GRADES[grades[1]], own, present, grades[2:] == "!")
    return states


def normal(words: str) -> str:
    """Return words in the form in which they are compared: versions differ in case, hyphens and blanks."""
    return " ".join(re.findall(r"[a-z0-9]+", words.lower()))


# Table 42-1: the limits of a sensor. Each is crossed in two directions, of which one ends what the other began.
THRESHOLD = 0x01
LEVELS = ("Non-critical", "Critical", "Non-recoverable")
LIMITS = tuple((side, level) for side in ("Lower", "Upper") for level in LEVELS)

# Table 42-2, {kind of event: {number: state}}: of each kind a sensor has one state at a time.
GENERIC: dict[int, dict[int, State]] = {
    0x02: _table("usage", {0: "nn Transition to Idle", 1: "nn Transition to Active", 2: "nn Transition to Busy"}),
    0x03: _table("digital", {0: "gg State Deasserted", 1: "nn State Asserted"}),
    0x04: _table("predicted", {0: "gg Predictive Failure Deasserted|No failure predicted", 1: "ww Predictive Failure Asserted"}),
    0x05: _table("limit", {0: "gg Limit Not Exceeded", 1: "ww Limit Exceeded"}),
    0x06: _table("performance", {0: "gg Performance Met", 1: "ww Performance Lags"}),
    0x07: _table("severity", {
        0: "gg Transition to OK", 1: "ww Transition to Non-critical from OK", 2: "ff Transition to Critical from less severe",
        3: "ff Transition to Non-recoverable from less severe", 4: "ww Transition to Non-critical from more severe",
        5: "ff Transition to Critical from Non-recoverable", 6: "ff Transition to Non-recoverable", 7: "nn Monitor", 8: "nn Informational",
    }),
    0x08: _table("presence", {0: "nf- Device Absent|Device Removed/Device Absent", 1: "gg+ Device Present|Device Inserted/Device Present"}),
    0x09: _table("enabled", {0: "nn Device Disabled", 1: "gg Device Enabled"}),
    0x0A: _table("availability", {
        0: "gg Transition to Running", 1: "nn Transition to In Test", 2: "nn Transition to Power Off", 3: "gg Transition to On Line",
        4: "ww Transition to Off Line", 5: "nn Transition to Off Duty", 6: "ww Transition to Degraded", 7: "nn Transition to Power Save",
        8: "ff Install Error",
    }),
    0x0B: _table("redundancy", {
        0: "gg Fully Redundant|Redundancy Regained|Fully Redundant (formerly \"Redundancy Regained\")", 1: "ff Redundancy Lost",
        2: "ww Redundancy Degraded",
        3: "ww Non-Redundant: Sufficient from Redundant|Non-redundant:Sufficient Resources from Redundant",
        4: "ww Non-Redundant: Sufficient from Insufficient|Non-redundant:Sufficient Resources from Insufficient Resources",
        5: "ff Non-Redundant: Insufficient Resources", 6: "ww Redundancy Degraded from Fully Redundant",
        7: "ww Redundancy Degraded from Non-Redundant",
    }),
    0x0C: _table("acpi", {number: f"nn D{number} Power State" for number in range(4)}),
}  # fmt: skip

# A sensor that has entered one of the non-redundant states has lost its redundancy too (table 42-2, state 1: "entered any non-redundant
# state, including Non-redundant: Insufficient Resources"); Intel's boards log both. "Degraded" says that there is some redundancy.
_LOST, _NOT_REDUNDANT = GENERIC[0x0B][1], tuple(GENERIC[0x0B][number] for number in (3, 4, 5))

# Errors of firmware by the second byte of an event of state 0. Parts that a server does without are notes.
FIRMWARE_ERRORS = (
    "Unspecified", "No system memory installed", "No usable system memory", "Unrecoverable IDE device failure",
    "Unrecoverable system-board failure", "Unrecoverable diskette failure", "Unrecoverable hard-disk controller failure",
    "Unrecoverable PS/2 or USB keyboard failure", "Removable boot media not found", "Unrecoverable video controller failure",
    "No video device selected", "BIOS corruption detected", "CPU voltage mismatch", "CPU speed mismatch failure",
)  # fmt: skip
_UNNEEDED = (5, 7, 8, 9, 10)
_PROGRESS = (
    "Memory initialization", "Hard-disk initialization", "Secondary CPU Initialization", "User authentication",
    "User-initiated system setup", "USB resource configuration", "PCI resource configuration", "Option ROM initialization",
    "Video initialization", "Cache initialization", "SMBus initialization", "Keyboard controller initialization",
    "Management controller initialization", "Docking station attachment", "Enabling docking station", "Docking station ejection",
    "Disabling docking station", "Calling operating system wake-up vector", "System boot initiated", "Motherboard initialization",
    "reserved", "Floppy initialization", "Keyboard test", "Pointing device test", "Primary CPU initialization", "Unspecified",
)  # fmt: skip

# Table 42-3, {type of sensor: {number: state}}.
SPECIFIC: dict[int, dict[int, State]] = {
    0x05: _table("", {
        0: "nn General Chassis intrusion", 1: "nn Drive Bay intrusion", 2: "nn I/O Card area intrusion", 3: "nn Processor area intrusion",
        4: "nn System unplugged from LAN|LAN Leash Lost (system is unplugged from LAN)|LAN Leash Lost", 5: "nn Unauthorized dock",
        6: "nn FAN area intrusion",
    }),
    0x06: _table("", {
        0: "nn Front Panel Lockout violation attempted|Secure Mode (Front Panel Lockout) Violation attempt",
        1: "nn Pre-boot password violation - user password", 2: "nn Pre-boot password violation - setup password",
        3: "nn Pre-boot password violation - network boot password", 4: "nn Other pre-boot password violation",
        5: "nn Out-of-band access password violation",
    }),
    0x07: _table("", {
        0: "ff! IERR", 1: "ff! Thermal Trip", 2: "ff! FRB1/BIST failure", 3: "ff! FRB2/Hang in POST failure",
        4: "ff! FRB3/Processor startup/init failure|FRB3/Processor startup failure|FRB3/Processor Startup/Initialization failure",
        5: "ww Configuration Error", 6: "ff! SM BIOS Uncorrectable CPU-complex Error",
        7: "gg+ Presence detected|Processor Presence detected",
        8: "ff Disabled|Processor disabled", 9: "nn Terminator presence detected", 10: "fw Throttled|Processor Automatically Throttled",
        11: "ff! Uncorrectable machine check exception|Machine Check Exception (Uncorrectable)|Machine Check Exception",
        12: "ww Correctable machine check error",
    }),
    0x08: _table("", {
        0: "gg+ Presence detected", 1: "ff Failure detected|Power Supply Failure detected", 2: "ww Predictive failure",
        3: "ff Power Supply AC lost|Power Supply input lost (AC/DC)|Power Supply input lost",
        4: "ff AC lost or out-of-range|Power Supply input lost or out-of-range",
        5: "ww AC out-of-range, but present|Power Supply input out-of-range, but present",
        6: "ww Config Error|Configuration error|Config Error: Vendor Mismatch|Config Error: Revision Mismatch"
           "|Config Error: Processor Missing|Config Error: Power Supply Rating Mismatch|Config Error: Voltage Rating Mismatch",
        7: "nn Power Supply Inactive|Power Supply Inactive (in standby state)",
    }),
    0x09: _table("", {
        0: "nn Power off/down|Power Off/Power Down", 1: "nn Power cycle", 2: "ww 240VA power down", 3: "nn Interlock power down",
        4: "ff AC lost|AC lost/Power input lost", 5: "ff Soft-power control failure|Soft Power Control Failure",
        6: "ff Failure detected|Power Unit Failure detected", 7: "ww Predictive failure",
    }),
    0x0C: _table("", {
        0: "ww Correctable ECC|Correctable ECC/other correctable memory error|Correctable memory error",
        1: "ff! Uncorrectable ECC|Uncorrectable ECC/other uncorrectable memory error|Uncorrectable memory error", 2: "ff! Parity",
        3: "ff! Memory Scrub Failed|Memory Scrub Failed (stuck bit)", 4: "ff Memory Device Disabled",
        5: "ww Correctable ECC logging limit reached|Correctable memory error logging limit reached"
           "|Correctable ECC/other correctable memory error logging limit reached",
        6: "gg+ Presence Detected", 7: "ww Configuration Error", 8: "gg Spare", 9: "ww Throttled|Memory Automatically Throttled",
        10: "ff Critical Overtemperature",
    }),
    0x0D: _table("", {
        0: "gg+ Drive Present|Drive Presence", 1: "ff Drive Fault", 2: "ww Predictive Failure", 3: "gg Hot Spare",
        4: "nn Parity Check In Progress|Consistency Check / Parity Check in progress", 5: "ff In Critical Array", 6: "ff In Failed Array",
        7: "wn Rebuild In Progress|Rebuild/Remap in progress",
        8: "ww Rebuild Aborted|Rebuild/Remap Aborted (was not completed normally)|Rebuild/Remap Aborted",
    }),
    # ipmitool's words are those of the second byte of the event.
    0x0F: _table("", {
        0: "ww System Firmware Error|System Firmware Error (POST Error)|Unknown Error",
        1: "ww System Firmware Hang|Unknown Hang",
        2: "nn System Firmware Progress|Unknown Progress|" + "|".join(_PROGRESS),
        **{0x100 + byte: ("nn " if byte in _UNNEEDED else "ff ") + words for byte, words in enumerate(FIRMWARE_ERRORS) if byte},
    }),
    0x10: _table("", {
        0: "ww Correctable memory error logging disabled", 1: "ww Event logging disabled|Event `Type' Logging Disabled",
        2: "nn Log area reset/cleared", 3: "ww All event logging disabled", 4: "ww Log full|SEL Full",
        5: "nn Log almost full|SEL Almost Full",
        6: "ww Correctable Machine Check Error Logging Disabled",
    }),
    0x11: _table("", {
        0: "nw BIOS Reset|BIOS Watchdog Reset", 1: "nw OS Reset|OS Watchdog Reset", 2: "nw OS Shut Down|OS Watchdog Shut Down",
        3: "nw OS Power Down|OS Watchdog Power Down", 4: "nw OS Power Cycle|OS Watchdog Power Cycle",
        5: "nw OS NMI/Diag Interrupt|OS Watchdog NMI/Diagnostic Interrupt", 6: "nw OS Expired|OS Watchdog Expired, status only",
        7: "nw OS pre-timeout Interrupt|OS Watchdog pre-timeout Interrupt, non-NMI",
    }),
    0x12: _table("", {
        0: "nn System Reconfigured", 1: "nn OEM System boot event", 2: "ff! Undetermined system hardware failure",
        3: "nn Entry added to auxiliary log", 4: "nn PEF Action", 5: "nn Timestamp Clock Sync|Timestamp Clock Synch",
    }),
    0x13: _table("", {
        0: "ww NMI/Diag Interrupt|Front Panel NMI/Diagnostic Interrupt", 1: "ww Bus Timeout", 2: "ff! I/O Channel check NMI",
        3: "ww Software NMI", 4: "ff! PCI PERR", 5: "ff! PCI SERR", 6: "ww EISA failsafe timeout|EISA Fail Safe Timeout",
        7: "ww Bus Correctable error", 8: "ff! Bus Uncorrectable error", 9: "ff! Fatal NMI", 10: "ff! Bus Fatal Error",
        11: "ww Bus Degraded",
    }),
    0x14: _table("", {
        0: "nn Power Button pressed", 1: "nn Sleep Button pressed", 2: "nn Reset Button pressed", 3: "nn FRU Latch|FRU latch open",
        4: "nn FRU Service|FRU service request button",
    }),
    0x19: _table("", {0: "ff Soft Power Control Failure", 1: "ff! Thermal Trip"}),
    0x1B: _table("cable", {
        0: "gg+ Connected|Cable/Interconnect is connected",
        1: "ww Config Error|Configuration Error - Incorrect cable connected / Incorrect interconnection|Configuration Error",
    }),
    0x1D: _table("", {
        0: "nn Initiated by power up", 1: "nn Initiated by hard reset", 2: "nn Initiated by warm reset", 3: "nn User requested PXE boot",
        4: "nn Automatic boot to diagnostic", 5: "nn OS initiated hard reset|OS / run-time software initiated hard reset",
        6: "nn OS initiated warm reset|OS / run-time software initiated warm reset", 7: "nn System Restart",
    }),
    # The machine has booted since: it answers.
    0x1E: _table("", {
        0: "nn No bootable media", 1: "nn Non-bootable disk in drive|Non-bootable diskette left in drive", 2: "nn PXE server not found",
        3: "nn Invalid boot sector", 4: "nn Timeout waiting for selection|Timeout waiting for user selection of boot source",
    }),
    0x1F: _table("", {
        0: "nn A: boot completed", 1: "nn C: boot completed", 2: "nn PXE boot completed", 3: "nn Diagnostic boot completed",
        4: "nn CD-ROM boot completed", 5: "nn ROM boot completed",
        6: "nn boot completed - device not specified|boot completed - boot device not specified", 7: "nn Installation started",
        8: "nn Installation completed", 9: "nn Installation aborted", 10: "nn Installation failed",
    }),
    0x20: _table("", {
        0: "nw! Error during system startup|Critical stop during OS load / initialization", 1: "nw! Run-time critical stop",
        2: "nn OS graceful stop", 3: "nn OS graceful shutdown", 4: "nn PEF initiated soft shutdown", 5: "nn Agent not responding",
    }),
    0x21: _table("", {
        0: "ff Fault Status|Fault Status asserted", 1: "nn Identify Status|Identify Status asserted",
        2: "gg+ Device Installed|Slot / Connector Device installed/attached", 3: "nn Ready for Device Installation",
        4: "nn Ready for Device Removal", 5: "nn Slot Power is Off", 6: "nn Device Removal Request", 7: "nn Interlock|Interlock asserted",
        8: "ww Slot is Disabled", 9: "nn Spare Device",
    }),
    0x22: _table("acpi", {
        0: "nn S0/G0: working|S0/G0", 1: "nn S1: sleeping with system hw & processor context maintained",
        2: "nn S2: sleeping, processor context lost", 3: "nn S3: sleeping, processor & hw context lost, memory retained",
        4: "nn S4: non-volatile sleep/suspend-to-disk", 5: "nn S5/G2: soft-off", 6: "nn S4/S5: soft-off", 7: "nn G3: mechanical off",
        8: "nn Sleeping in S1/S2/S3 state", 9: "nn G1: sleeping", 10: "nn S5: entered by override", 11: "nn Legacy ON state",
        12: "nn Legacy OFF state", 14: "nn Unknown",
    }),
    0x23: _table("", {
        0: "nw Timer expired", 1: "nw Hard reset", 2: "nw Power down", 3: "nw Power cycle",
        **{number: "nn reserved" for number in range(4, 8)}, 8: "nw Timer interrupt",
    }),
    0x24: _table("", {
        0: "nn Platform generated page", 1: "nn Platform generated LAN alert", 2: "nn Platform Event Trap generated",
        3: "nn Platform generated SNMP trap, OEM format|Platform generated SNMP trap",
    }),
    0x25: _table("presence", {0: "gg+ Present|Entity Present", 1: "nf- Absent|Entity Absent", 2: "ww Disabled|Entity Disabled"}),
    0x27: _table("heartbeat", {0: "nn Heartbeat Lost|LAN Heartbeat Lost", 1: "gg Heartbeat|LAN Heartbeat"}),
    0x28: _table("", {
        0: "ww Sensor access degraded or unavailable|Sensor access degraded",
        1: "ww Controller access degraded or unavailable|Controller access degraded", 2: "ff Management controller off-line",
        3: "ff Management controller unavailable", 4: "ww Sensor failure", 5: "ww FRU failure",
    }),
    0x29: _table("", {0: "ww Low|battery low|Battery low (predictive failure)", 1: "ww Failed|battery failed", 2: "gg+ Presence Detected"}),
    0x2B: _table("", {
        0: "nn Hardware change detected", 1: "nn Firmware or software change detected", 2: "ff Hardware incompatibility detected",
        3: "ww Firmware or software incompatibility detected", 4: "ff Invalid or unsupported hardware version",
        5: "ww Invalid or unsupported firmware or software version", 6: "nn Hardware change success",
        7: "nn Firmware or software change success",
    }),
    0x2C: _table("fru", {
        0: "nf- Not Installed|FRU Not Installed", 1: "nn Inactive|FRU Inactive", 2: "nn Activation Requested",
        3: "nn Activation in Progress", 4: "gg+ Active|FRU Active", 5: "nn Deactivation Requested", 6: "nn Deactivation in Progress",
        7: "ff Communication lost|FRU Communication Lost",
    }),
}  # fmt: skip

# {type of sensor: its names in events}, ipmitool's first (lib/ipmi_strings.c), then those of older versions and of FreeIPMI.
TYPES: dict[int, tuple[str, ...]] = {
    0x01: ("Temperature",), 0x02: ("Voltage",), 0x03: ("Current",), 0x04: ("Fan",), 0x05: ("Physical Security",),
    0x06: ("Platform Security", "Platform Security Violation Attempt"), 0x07: ("Processor",), 0x08: ("Power Supply",),
    0x09: ("Power Unit",), 0x0A: ("Cooling Device",), 0x0B: ("Other", "Other Units Based Sensor"), 0x0C: ("Memory",),
    0x0D: ("Drive Slot / Bay", "Drive Slot"), 0x0E: ("POST Memory Resize",),
    0x0F: ("System Firmwares", "System Firmware", "System Firmware Progress"), 0x10: ("Event Logging Disabled",),
    0x11: ("Watchdog1", "Watchdog 1"), 0x12: ("System Event",), 0x13: ("Critical Interrupt",), 0x14: ("Button", "Button/Switch"),
    0x15: ("Module / Board", "Module/Board"), 0x16: ("Microcontroller", "Microcontroller/Coprocessor"), 0x17: ("Add-in Card",),
    0x18: ("Chassis",), 0x19: ("Chip Set",), 0x1A: ("Other FRU",), 0x1B: ("Cable / Interconnect", "Cable/Interconnect"),
    0x1C: ("Terminator",), 0x1D: ("System Boot Initiated",), 0x1E: ("Boot Error",), 0x1F: ("OS Boot",),
    0x20: ("OS Critical Stop", "OS Stop/Shutdown"), 0x21: ("Slot / Connector", "Slot/Connector"), 0x22: ("System ACPI Power State",),
    0x23: ("Watchdog2", "Watchdog 2"), 0x24: ("Platform Alert",), 0x25: ("Entity Presence",), 0x26: ("Monitor ASIC", "Monitor ASIC/IC"),
    0x27: ("LAN",), 0x28: ("Management Subsys Health", "Management Subsystem Health"), 0x29: ("Battery",), 0x2A: ("Session Audit",),
    0x2B: ("Version Change",), 0x2C: ("FRU State",),
}  # fmt: skip
# Parts without which the machine is another one than was bought: one that the log calls absent has gone. Of others, such as a slot or an
# entity, controllers log the same at every start for what was never there.
FIXED = (0x04, 0x07, 0x08, 0x09, 0x0A, 0x0C)
FAN, PROCESSOR, SUPPLY, POWER_UNIT, MEMORY, DRIVE, BATTERY, WATCHDOG, ENTITY = 0x04, 0x07, 0x08, 0x09, 0x0C, 0x0D, 0x29, 0x23, 0x25
# The type of a sensor by its name, and by the entity that it belongs to (table 43-13), where a tool prints no type.
_BY_NAME = (
    (WATCHDOG, r"watch ?dog|wdt"), (FAN, r"fan"), (SUPPLY, r"psu|ps ?\d|power ?supply|pwr ?supply"),
    (POWER_UNIT, r"(?:pwr|power) ?unit|redundancy"), (BATTERY, r"batt|bbu|cmos|rtc|vbat"), (MEMORY, r"dimm|mem|ecc"),
    (DRIVE, r"drive|disk|hdd|ssd|nvme|bay"), (PROCESSOR, r"cpu|proc"), (0x10, r"\bsel\b|event log"),
)  # fmt: skip
_BY_ENTITY = {
    3: PROCESSOR, 4: DRIVE, 8: MEMORY, 10: SUPPLY, 19: POWER_UNIT, 20: SUPPLY, 26: DRIVE, 29: FAN, 30: FAN, 32: MEMORY, 40: BATTERY,
}  # fmt: skip

# Types of sensors whose asserted state FreeIPMI calls a warning or critical.
_ASSERTED = (0x01, 0x02, 0x03, FAN, PROCESSOR, SUPPLY, POWER_UNIT, 0x0A, MEMORY, 0x13, 0x15)

# What a digital sensor means is in its name: makers have `PSU2_FAULT`, `LEAK_DETECT`, `CPU1_PROCHOT` and `PS0/VINOK`, `PRSNT`, `PWROK`.
_BAD_NAME = re.compile(
    r"fault|(?<![a-z])fail(?!over|safe)(?:ed|ure|s)?(?![a-z])|fail$|(?<![a-z])err(?:or|ors|s)?(?![a-z])|leak|therm_?\s*trip|cat_?\s*err"
    r"|ierr|mc_?err|(?<![a-z])trip(?![a-z])|broken|power_?\s*lost|ac_?\s*lost|(?<![a-z])h[au]ng(?![a-z])"
)
_HOT_NAME = re.compile(
    r"proc_?\s*hot|throttl|(?<![a-z])(?:vr|mem|dimm|cpu|vrm)?_?hot(?![a-z])|over_?\s*(?:temp|heat|volt|curr)"
    r"|(?<![a-z])overt(?![a-z])|po?we?r_?\s*(?:brake|brk)"
)
# NVIDIA's signals, of which the level may be listed in place of the meaning: low if it is the fault.
_INVERTED_NAME = re.compile(r"(?:overt|brake|brk|hang)[\w ]*[_ ][nl]$")
# Sun's and Oracle's SYS/SERVICE is the lamp that calls for a technician.
_ALERT_NAME = re.compile(r"alert|alarm|warn|degraded|predict|(?<![a-z])service(?:[_ ]led)?$")
_PRESENT_NAME = re.compile(r"prsnt|present|presence|installed|inserted")
_GOOD_NAME = re.compile(r"(?<![a-z])(?:v?in_?\s*ok|ac_?\s*ok|dc_?\s*ok|pwr_?\s*ok|power_?\s*ok|vin_?\s*good)")
# Deasserted may be the good state of these: iDRAC has so for each `PG` of a voltage.
_POWER_GOOD_NAME = re.compile(r"(?<![a-z])(?:p(?:wr|ower)?_?\s*good|pgood)")
# Names of what is asserted on a machine that is well.
_NEUTRAL_NAME = re.compile(
    r"failover|failsafe|hot_?\s*swap|(?<![a-z])(?:ok\d?\w*|pg|pwrgd|good|ready|enabled?|active|act|online|led|locate|uid|id|on|mode|cfg)"
    r"(?![a-z])"
)


def _by_words() -> dict[str, list[tuple[int | None, State]]]:
    """Return {words in their normal form: [(type of sensor, None for a general kind; state)]}."""
    found: dict[str, list[tuple[int | None, State]]] = {}
    for states in GENERIC.values():
        for state in states.values():
            for words in state.words:
                found.setdefault(normal(words), []).append((None, state))
    for kind, states in SPECIFIC.items():
        for state in states.values():
            for words in state.words:
                found.setdefault(normal(words), []).append((kind, state))
    return found


_STATES = _by_words()
_TYPE_NAMES = sorted(((name, kind) for kind, names in TYPES.items() for name in names), key=lambda pair: -len(pair[0]))
_CROSSED = {
    normal(f"{side} {level} going {way}"): (side, LEVELS.index(level), (side == "Upper") == (way == "high"))
    for side, level in LIMITS
    for way in ("low", "high")
}


def type_of(sensor: str) -> tuple[int | None, str]:
    """Return the type of a sensor of an event, `Power Supply PSU2 Status`, and its name without the type."""
    for name, kind in _TYPE_NAMES:
        if sensor.lower().startswith(name.lower()) and not sensor[len(name) : len(name) + 1].isalnum():
            return kind, sensor[len(name) :].strip()
    return None, sensor


def guessed_type(name: str, entity: str = "") -> int | None:
    """Return the type of a sensor by its entity, `10.2`, else by its name; None if neither tells."""
    number = entity.partition(".")[0].strip()
    by_name = next((kind for kind, pattern in _BY_NAME if re.search(pattern, name.lower())), None)
    if by_name in (WATCHDOG, BATTERY, FAN):
        return by_name  # a fan of a power supply is a fan
    return _BY_ENTITY.get(int(number), by_name) if number.isdigit() else by_name


def may_hold_together(one: State, other: State) -> bool:
    """Return True for two states of one kind of which the later does not replace the earlier."""
    lost = [state for state in (one, other) if state.words == _LOST.words]
    return len(lost) == 1 and any(state.words == row.words for state in (one, other) for row in _NOT_REDUNDANT)


def crossed(words: str) -> tuple[str, int, bool] | None:
    """Return side, level and whether the reading went beyond it, of an event of a sensor with limits; None for other words."""
    return _CROSSED.get(normal(words))


def look_up(words: str, kind: int | None, name: str) -> State | None:
    """Return the state that `words` name, of a sensor of a type (None if unknown) and a name; None if no table has them. Of several
    states with these words it is that of the type, else that of an entity of any type, else the worst."""
    found = _STATES.get(normal(words))
    if not found:
        return None
    own = [state for of, state in found if of == kind and of is not None] or [state for of, state in found if of == ENTITY]
    general = [state for of, state in found if of is None]
    state = (own or general or sorted((state for _of, state in found), key=lambda state: -max(state.now, state.logged)))[0]
    return _named(state, name, kind) if state.kind in ("digital", "limit") else _of_part(state, kind)


def _of_part(state: State, kind: int | None) -> State:
    """Return a state that says that a part is missing or off with its grade for a part of this type."""
    if state.kind == "enabled" and state.now == NOTE and kind in FIXED:
        return state._replace(now=WARN, logged=WARN)
    return state if state.present is not False or kind in FIXED else state._replace(logged=WARN)


def _named(state: State, name: str, kind: int | None) -> State:
    """Return a state of a digital sensor with the grades that the name of the sensor gives it."""
    name = name.lower()
    is_on = normal(state.words[0]) in ("state asserted", "limit exceeded")
    if is_on and state.kind == "digital" and _PRESENT_NAME.search(name):
        return state._replace(now=GOOD, logged=GOOD, present=True)
    if _PRESENT_NAME.search(name):
        return state._replace(present=False, logged=WARN) if state.kind == "digital" else state
    if state.kind == "digital" and _GOOD_NAME.search(name):
        return state._replace(now=GOOD, logged=GOOD) if is_on else state._replace(now=FAIL, logged=FAIL)
    if not is_on:
        return state._replace(now=WARN, logged=WARN) if state.kind == "digital" and _POWER_GOOD_NAME.search(name) else state
    if _POWER_GOOD_NAME.search(name):
        return state
    if _INVERTED_NAME.search(name):
        return state._replace(now=WARN, logged=WARN)
    if _BAD_NAME.search(name):
        return state._replace(now=FAIL, logged=FAIL)
    if _HOT_NAME.search(name):
        return state._replace(now=FAIL, logged=WARN)
    is_alert = _ALERT_NAME.search(name) or (state.kind == "digital" and kind in _ASSERTED and not _NEUTRAL_NAME.search(name))
    return state._replace(now=WARN, logged=WARN) if is_alert else state
