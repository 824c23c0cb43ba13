# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines whose management controller shows a fault that no other check sees, by IPMI and by Redfish, and awkward ones that are well:
judged as those of host.py, three machines at a time."""

from __future__ import annotations

import pathlib
import struct
import time
import typing as t

from drills.host import FAIL, FINE, UNKNOWN, WARN, Plant, Tree, recorded, tried
from harness.machine_tree import MachineTree, smbios
from harness.redfish_service import CHASSIS, ENTRIES, SYSTEM

HEALTHY = recorded("sdr-elist-healthy.txt")
UPTIME_S = 90_000.0


def _sensors(*changes: tuple[str, str], more: str = "") -> t.Callable[[MachineTree], t.Any]:
    """Return what changes the recorded list of sensors; `more` are further lines."""
    text = HEALTHY
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return lambda machine: machine.controller(text + more)


def _line(name: str, reading: str, entity: str = "7.1", state: str = "ok") -> str:
    return f"{name:<16} | 70h | {state:<3} | {entity} | {reading}\n"


def _log(*entries: str, sensors: str = HEALTHY) -> t.Callable[[MachineTree], t.Any]:
    """Return what gives the controller a log: `SENSOR | WORDS | Asserted`, each of the last hour."""

    def write(machine: MachineTree) -> None:
        machine.write("proc/uptime", f"{UPTIME_S:.2f} 1\n")
        begin, form = time.time() - 3600, "%m/%d/%Y | %H:%M:%S UTC"
        lines = [f"{n:4x} | {time.strftime(form, time.gmtime(begin + n))} | {each}" for n, each in enumerate(entries, 1)]
        machine.controller(sensors, "\n".join(lines) + "\n")

    return write


def _raw_log(text: str) -> t.Callable[[MachineTree], t.Any]:
    return lambda machine: machine.controller(HEALTHY, text)


def _silent(words: str, command: str = "sdr sel") -> t.Callable[[MachineTree], t.Any]:
    def write(machine: MachineTree) -> None:
        script = machine.path("bin/ipmitool").read_text().partition("\n")[2]
        machine.tool("ipmitool", f'case " {command} " in *" $1 "*) echo "{words}" >&2; exit 1;; esac; {script}')

    return write


def _without_device(machine: MachineTree) -> None:
    """Leave the controller in the table of the firmware only."""
    machine.path("dev/ipmi0").unlink()
    controller = struct.pack("<BBH", 38, 18, 0x2600) + bytes([1, 0x20, 0x20, 0xFF]) + struct.pack("<QBB", 0xCA3, 0, 0) + b"\0\0"
    end = struct.pack("<BBH", 127, 4, 0xFEFF)
    machine.write("sys/firmware/dmi/tables/DMI", smbios(machine.slots, machine.batch).replace(end, controller + end))


def _entries(*entries: dict[str, t.Any]) -> t.Callable[[Tree], t.Any]:
    dated = [{"Created": f"2026-11-24T06:54:{n:02d}Z", **entry} for n, entry in enumerate(entries)]
    return lambda tree: tree[ENTRIES]["Members"].extend(dated)


def _supply(**changed: t.Any) -> t.Callable[[Tree], t.Any]:
    return lambda tree: tree[f"{CHASSIS}/Power"]["PowerSupplies"][1].update(changed)


def _fan(**changed: t.Any) -> t.Callable[[Tree], t.Any]:
    return lambda tree: tree[f"{CHASSIS}/Thermal"]["Fans"][1].update({"Reading": 0, "LowerThresholdCritical": None, **changed})


def _leak(state: str) -> t.Callable[[Tree], t.Any]:
    def change(tree: Tree) -> None:
        path = f"{CHASSIS}/ThermalSubsystem"
        detector = {"@odata.id": f"{path}/1", "Name": "Tray", "Status": {"State": "Enabled", "Health": "OK"}, "DetectorState": state}
        tree[CHASSIS]["ThermalSubsystem"] = {"@odata.id": path}
        tree[path] = {"LeakDetection": {"@odata.id": f"{path}/LeakDetection"}}
        tree[f"{path}/LeakDetection"] = {"LeakDetectors": {"@odata.id": f"{path}/LeakDetectors"}}
        tree[f"{path}/LeakDetectors"] = {"Members": [detector]}

    return change


def _throttled(tree: Tree) -> None:
    path = f"{SYSTEM}/Processors"
    tree[SYSTEM]["Processors"] = {"@odata.id": path}
    members = [{"@odata.id": f"{path}/{n}", "Name": f"CPU{n}", "Status": {"Health": "OK"}, "Throttled": True} for n in (1, 2)]
    tree[path] = {"Members": members}


PULLED = ("10.2 | Presence detected", "10.2 | ")
UNDATED = "   1 |  Pre-Init  |0000000053| Power Supply #0x51 | Failure detected | Asserted\n"
LOST: dict[str, t.Any] = {"Severity": "Critical", "Message": "Power supply redundancy is lost."}
GONE: dict[str, t.Any] = {"Severity": "Warning", "EntryCode": "Deassert", "SensorType": "Power Supply", "Message": "Presence detected"}
HOT = "Temperature Inlet Temp | Upper Critical going high"

PLANTS = [
    Plant("a controller that does not answer", UNKNOWN, _silent("Could not open device at /dev/ipmi0: No such device")),
    Plant("a controller whose log does not come", UNKNOWN, _silent("Get SEL Info command failed: Timeout", "sel")),
    Plant("a controller whose sensors do not come", UNKNOWN, _silent("Get SDR 0000 command failed: Node busy", "sdr")),
    Plant("a controller that only the firmware shows", UNKNOWN, _without_device),
    Plant("a controller of whose sensors none has a reading", UNKNOWN, lambda m: m.controller(_line("FAN1", "No Reading", state="ns"))),
    Plant("a fault logged before the controller knew the date", FAIL, _raw_log(UNDATED)),
    Plant("a power supply that was pulled out of one of three machines", FAIL, _sensors(PULLED)),
    Plant("a power supply whose sensor is silent on one of three machines", UNKNOWN, _sensors(
        ("51h | ok  | 10.2 | Presence detected", "51h | ns | 10.2 | Disabled"))),
    Plant("a fan whose sensor is silent on one of three machines", UNKNOWN, _sensors(
        ("41h | ok  | 29.5 | 8500 RPM", "41h | ns  | 29.5 | No Reading"))),
    Plant("a fan that stands, without limits", FAIL, _sensors(("8500 RPM", "0 RPM"))),
    Plant("the asserted fault of a power supply", FAIL, _sensors(more=_line("PSU2_FAULT", "State Asserted", "10.2"))),
    Plant("a power supply without input, by its own name", FAIL, _sensors(more=_line("PS2/VINOK", "State Deasserted", "10.2"))),
    Plant("a leak", FAIL, _sensors(more=_line("Leak_Detect_1", "State Asserted"))),
    Plant("both processors throttled", FAIL, _sensors(more=_line("CPU1 Status", "Presence detected, Throttled", "3.1") * 2)),
    Plant("a processor held by PROCHOT", FAIL, _sensors(more=_line("CPU1_PROCHOT", "State Asserted", "3.1"))),
    Plant("a disabled processor", FAIL, _sensors(more=_line("CPU2 Status", "Presence detected, Disabled", "3.2"))),
    Plant("a battery that is low", WARN, _sensors(more=_line("CMOS Battery", "Low", "40.1"))),
    Plant("memory that is not usable", FAIL, _log("System Firmwares #0x06 | No usable system memory | Asserted")),
    Plant("a memory module that was disabled", FAIL, _log("Memory DIMM A1 | Memory Device Disabled | Asserted")),
    Plant("a part that was there and is gone", FAIL, _log("Processor CPU2 | Presence detected | Deasserted")),
    Plant("a card that was there and is gone", FAIL, _log(
        "Add-in Card Riser 2 | Device Present | Asserted", "Add-in Card Riser 2 | Device Absent | Asserted")),
    Plant("redundancy that was lost again", FAIL, _log(
        "Power Supply PS Redundancy | Fully Redundant | Asserted", "Power Supply PS Redundancy | Redundancy Lost | Asserted",
        "Power Supply PS Redundancy | Redundancy Degraded | Deasserted")),
    Plant("a limit that is still exceeded", FAIL, _log(f"{HOT} | Asserted", "Fan FAN1 | Lower Critical going low | Deasserted")),
    Plant("redundancy that is back", FINE, _log(
        "Power Supply PS Redundancy | Redundancy Lost | Asserted", "Power Supply PS Redundancy | Fully Redundant | Asserted")),
    Plant("a critical state that is over", FINE, _log(
        "Temperature Inlet | Transition to Critical from less severe | Asserted", "Temperature Inlet | Transition to OK | Asserted")),
    Plant("a limit that was exceeded and is not", FINE, _log(f"{HOT} | Asserted", f"{HOT} | Deasserted")),
    Plant("a power supply that was pulled out and put back", FINE, _log(
        "Power Supply PSU2 Status | Presence detected | Deasserted", "Power Supply PSU2 Status | Presence detected | Asserted")),
    Plant("dozens of sensors that predict no failure", FINE, _sensors(
        more="".join(_line(f"HDD{n}/FAIL", "Predictive Failure Deasserted") for n in range(48)))),
    Plant("an empty place for a power supply in all machines", FINE, _sensors(PULLED), alike=True),
    Plant("empty places for fans", FINE, _sensors(more="".join(_line(f"FAN{n}", "No Reading", "29.9", "ns") for n in range(3, 9)))),
    Plant("a chassis that was opened, and a log of starts", FINE, _log(
        "Physical Security Chassis Intru | General Chassis intrusion | Asserted",
        "System Boot Initiated | Initiated by power up | Asserted", "OS Boot | C: boot completed | Asserted",
        "Event Logging Disabled SEL | Log area reset/cleared | Asserted")),
    Plant("records in the maker's own form", FINE, _raw_log("   7 | OEM record df | 000000 | 1504ffff\n   8 | OEM record e1 | 00\n")),
    Plant("a power supply that is gone, by Redfish", FAIL, redfish=_supply(Status={"State": "Absent"})),
    Plant("a power supply that is not listed any more", FAIL, redfish=lambda tree: tree[f"{CHASSIS}/Power"]["PowerSupplies"].pop()),
    Plant("an empty place for a power supply in all machines, by Redfish", FINE, redfish=_supply(Status={"State": "Absent"}), alike=True),
    Plant("a presence that was deasserted, and nothing in its place", FAIL, alike=True, redfish=lambda tree: (
        _entries(GONE)(tree), _supply(Status={"State": "Absent"})(tree))),
    Plant("a presence that was deasserted", WARN, redfish=_entries(GONE)),
    Plant("a fan that stands and is called OK", FAIL, redfish=_fan()),
    Plant("a spare fan that stands", FINE, redfish=_fan(Status={"State": "StandbySpare", "Health": "OK"})),
    Plant("a leak, by Redfish", FAIL, redfish=_leak("Critical")),
    Plant("a dry leak detector", FINE, redfish=_leak("OK")),
    Plant("both processors throttled, by Redfish", FAIL, redfish=_throttled),
    Plant("memory that is off, by Redfish", WARN, redfish=lambda tree: tree[f"{SYSTEM}/Memory/DIMM1"].update(
        Status={"State": "Disabled", "Health": "OK"})),
    Plant("redundancy that was lost, by Redfish", WARN, redfish=_entries(LOST)),
    Plant("redundancy that is back, by Redfish", FINE, redfish=_entries(
        LOST, {"Severity": "OK", "Message": "The power supplies are redundant."})),
    Plant("a fault that was repaired", FINE, redfish=_entries({**LOST, "Oem": {"Hpe": {"Repaired": True}}})),
    Plant("a fault that a service provider was told of", WARN, redfish=_entries({**LOST, "ServiceProviderNotified": True})),
    Plant("logins and virtual media in a log of hardware", FINE, redfish=_entries(
        {"Severity": "Warning", "Message": "A login failed"}, {"Severity": "Critical", "Message": "Virtual media was disconnected"})),
]  # fmt: skip


def accepted(folder: pathlib.Path) -> tuple[int, list[str], list[str]]:
    """Return the number of planted faults, the accepted ones, and the good machines that are not accepted as they should be."""
    return tried(folder, "controller", PLANTS)
