# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entries of logs in the forms of DMTF's registries and of makers: what is a fault, what ends it, and what is not about a part at all."""

from __future__ import annotations

import itertools
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import ipmi_states
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.redfish import log, parts, registries

Entry = t.Dict[str, t.Any]


def entries(*given: Entry) -> list[Entry]:
    """Return entries with a time, one a second."""
    return [{"Id": str(n), "Created": f"2026-11-24T06:54:{n:02d}Z", **entry} for n, entry in enumerate(given)]


def codes(*given: Entry) -> list[str]:
    return [fault.code for fault in log.faults(entries(*given))]


def by_key(key: str, severity: str, argument: str = "X1", registry: str = "Environmental.1.4") -> Entry:
    return {"MessageId": f"{registry}.{key}", "Severity": severity, "Message": f"{argument}: {key}.", "MessageArgs": [argument]}


def test_what_a_registry_says_that_a_message_ends() -> None:
    for key, cleared in registries.CLEARS.items():
        for other in cleared:
            fault, end = by_key(other, "Critical"), by_key(key, "OK")
            assert codes(fault) == ["bmc_fault"], other
            left = log.faults(entries(fault, end))
            assert not [found for found in left if other in found.words], (key, other)
            assert len(log.faults(entries(fault, by_key(key, "OK", "X2")))) >= 1, "of another part"
            assert [found for found in log.faults(entries(end, fault)) if other in found.words], "before the fault"
    unrelated = [key for key in registries.CLEARS if "DriveFailure" not in registries.CLEARS[key] and key != "DriveFailure"]
    assert all("bmc_fault" in codes(by_key("DriveFailure", "Critical"), by_key(key, "OK")) for key in unrelated)


@pytest.mark.parametrize("quantity", ["Temperature", "Voltage", "Current", "Power", "FluidLevel", "Pressure", "Reading"])
def test_the_last_message_about_a_reading_says_where_it_is(quantity: str) -> None:
    normal = "SensorReadingNormalRange" if quantity == "Reading" else f"{quantity}Normal"
    limits = [
        f"{quantity}{way}{side}{level}Threshold"
        for way, side in (("Above", "Upper"), ("Below", "Lower"))
        for level in ("Caution", "Critical", "Fatal")
    ]
    for key in (*limits, f"{quantity}Warning", f"{quantity}Critical"):
        fault = by_key(key, "Critical")
        assert codes(fault) == ["bmc_fault"]
        assert codes(fault, by_key(normal, "OK")) == []
        assert codes(fault, by_key(f"{quantity}NoLongerCritical", "Warning")) == ["bmc_event"]
        assert codes(fault, by_key("HumidityNormal", "OK")) == ["bmc_fault"]


@pytest.mark.parametrize(
    ("fault", "end"),
    [
        ("PowerSupplyFailed", "PowerSupplyRecovered"),
        ("PowerSupplyPowerLost", "PowerSupplyPowerRestored"),
        ("PowerUnitRedundancyLost", "PowerUnitRedundancyRegained"),
        ("FanRedundancyLost", "FanRedundancyRegained"),
        ("PowerSupplyFanFailed", "PowerSupplyFanRecovered"),
        ("PowerSupplyFailurePredicted", "PowerSupplyPredictedFailureRecovered"),
        ("SensorThresholdCriticalHighGoingHigh", "SensorThresholdCriticalHighGoingLow"),
        ("SensorThresholdWarningLowGoingLow", "SensorThresholdWarningLowGoingHigh"),
    ],
)
def test_keys_of_registries_without_clearing_logic(fault: str, end: str) -> None:
    """Those of OpenBMC."""
    begun, ended = by_key(fault, "Critical", "PSU1", "OpenBMC.0.6"), by_key(end, "OK", "PSU1", "OpenBMC.0.6")
    assert (codes(begun), codes(begun, ended)) == (["bmc_fault"], [])
    assert codes(begun, by_key("FirmwareActivationCompleted", "OK", "PSU1", "OpenBMC.0.6")) == ["bmc_fault"]
    other = by_key("SensorThresholdCriticalLowGoingHigh", "OK", "PSU1", "OpenBMC.0.6")
    assert codes(begun, other) == ["bmc_fault"]


# (maker, fault, its end, what ends nothing), by messages.
WORDS = [
    ("Dell", "Power supply redundancy is lost.", "The power supplies are redundant.", "Power supply 2 is operating normally."),
    (
        "Dell",
        "The input power for power supply 2 has been lost.",
        "The input power for power supply 2 has been restored.",
        "The input power for power supply 1 has been restored.",
    ),
    (
        "Dell",
        "The power input for power supply 2 is lost.",
        "Power supply 2 is operating normally.",
        "Power supply 1 is operating normally.",
    ),
    ("Dell", "Power supply 2 failed.", "Power supply 2 is operating normally.", "The power supplies are redundant."),
    ("Dell", "Power supply 2 is absent.", "Power supply 2 is present.", "Power supply 1 is present."),
    ("Dell", "Fan 3 RPM is less than the lower critical threshold.", "Fan 3 is operating normally.", "Fan 4 is operating normally."),
    ("Dell", "CPU 1 is throttled.", "CPU 1 is operating correctly.", "CPU 2 is operating correctly."),
    (
        "Dell",
        "The system inlet temperature is greater than the upper warning threshold.",
        "The system inlet temperature is within range.",
        "Fan 1 is operating normally.",
    ),
    (
        "Lenovo",
        "Power Supply PSU 2 has Failed.",
        "Power Supply PSU 2 has returned to OK status.",
        "Power Supply PSU 1 has returned to OK status.",
    ),
    ("Lenovo", "PSU 2 has lost input.", "PSU 2 has returned to a Normal Input State.", "PSU 1 has returned to a Normal Input State."),
    ("Lenovo", "Redundancy Power Unit has been reduced.", "Redundancy Power Unit has been restored.", "Fan 1 has been restored."),
    (
        "Supermicro",
        "[PS-0010] Power Supply 2, Failure detected - Assertion",
        "[PS-0010] Power Supply 2, Failure detected - Deassertion",
        "[PS-0010] Power Supply 1, Failure detected - Deassertion",
    ),
    (
        "Supermicro",
        "FAN2 Lower Critical - going low Asserted",
        "FAN2 Lower Critical - going low Deasserted",
        "FAN1 Lower Critical - going low Deasserted",
    ),
    ("HPE", "System Power Supply: Input Power Loss (Bay 2)", "System Power Supply: Input Power restored (Bay 2)", "Server reset."),
    (
        "IPMI",
        "PSU2 Status: Failure detected asserted",
        "PSU2 Status: Failure detected deasserted",
        "PSU2 Status: Presence detected asserted",
    ),
]


@pytest.mark.parametrize(("maker", "fault", "end", "neither"), WORDS)
@pytest.mark.parametrize("severity", ["Critical", "Warning"])
def test_words_of_makers(maker: str, fault: str, end: str, neither: str, severity: str) -> None:
    begun: Entry = {"Severity": severity, "Message": fault}
    code = {"Critical": "bmc_fault", "Warning": "bmc_event"}[severity]
    assert codes(begun) == [code], maker
    assert codes(begun, {"Severity": "OK", "Message": end}) == [], maker
    assert codes(begun, {"Severity": "OK", "Message": neither}) == [code], maker
    assert codes({"Severity": "OK", "Message": end}, begun) == [code], "an end that comes first"
    # The newest first, as iDRAC lists them, with and without times.
    newest_first = entries(begun, {"Severity": "OK", "Message": end})[::-1]
    assert log.faults(newest_first) == []


def test_entries_of_one_sensor_are_about_one_part() -> None:
    begun: Entry = {"Severity": "Critical", "Message": "PSU2 input lost", "SensorType": "Power Supply", "SensorNumber": 81}
    assert codes(begun, {**begun, "Severity": "OK", "Message": "a new wording"}) == []
    assert codes(begun, {**begun, "Severity": "OK", "Message": "a new wording", "SensorNumber": 80}) == ["bmc_fault"]
    assert codes(begun, {**begun, "EntryCode": "Deassert"}) == [] == codes(begun, {**begun, "EntryCode": [{"Member": "Deassert"}]})
    origin = {"Links": {"OriginOfCondition": {"@odata.id": "/redfish/v1/Chassis/1/PowerSubsystem/PowerSupplies/2"}}}
    begun = {**by_key("ResourceStatusChangedCritical", "Critical", "a"), **origin}
    assert codes(begun, {**by_key("ResourceStatusChangedOK", "OK", "b"), **origin}) == []
    assert codes(begun, by_key("ResourceStatusChangedOK", "OK", "a")) == ["bmc_fault"]


def test_states_of_sensors_end_each_other() -> None:
    """`EntryCode` has the states of IPMI's log (LogEntry, LogEntryCode)."""
    counted = 0
    for rows in (ipmi_states.GENERIC[kind] for kind in (0x04, 0x05, 0x06, 0x07, 0x0B)):
        for bad, good in itertools.product(rows.values(), rows.values()):
            if bad.logged > ipmi_states.NOTE and good.logged == ipmi_states.GOOD:
                begun = {"Severity": "Warning", "SensorType": "Power Supply", "Message": "PSU redundancy", "EntryCode": bad.words[0]}
                assert codes(begun) == ["bmc_event"], bad
                for severity in ("OK", "Warning"):
                    assert codes(begun, {**begun, "Severity": severity, "EntryCode": good.words[-1]}) == [], (bad, good)
                counted += 1
    assert counted > 12


@pytest.mark.parametrize(("side", "level"), ipmi_states.LIMITS)
def test_limits_that_are_crossed_and_crossed_back(side: str, level: str) -> None:
    away, back = ("high", "low") if side == "Upper" else ("low", "high")
    begun = {
        "Severity": "Critical",
        "SensorType": "Temperature",
        "SensorNumber": 7,
        "Message": "x",
        "EntryCode": f"{side} {level} - going {away}",
    }
    assert codes(begun) == ["bmc_fault"]
    for severity in ("OK", "Warning"):
        assert codes(begun, {**begun, "Severity": severity, "EntryCode": f"{side} {level} - going {back}"}) == []
    assert codes(begun, {**begun, "SensorNumber": 8, "EntryCode": f"{side} {level} - going {back}"}) == ["bmc_fault"]


@pytest.mark.parametrize(
    "entry",
    [
        {"EntryCode": "Deassert", "Message": "Presence detected"},
        {"EntryCode": [{"Member": "Deassert"}], "Message": "PSU2 Presence"},
        {"EntryCode": "Device Absent", "Message": "PSU2"},
        {"Message": "PSU2 Presence detected - Deasserted"},
        {"Message": "PSU2 Presence Deasserted"},
        {"Message": "Power supply 2 is absent."},
        {"Message": "PSU 2 has been removed from the container"},
        {"MessageId": "Power.1.2.PowerSupplyRemoved", "MessageArgs": ["PSU2"], "Message": "Power supply PSU2 was removed."},
    ],
)
def test_a_part_that_was_there_and_is_gone(entry: Entry) -> None:
    """A controller may call it a warning, and the word of the entry is that of an end."""
    gone = {"Severity": "Warning", "SensorType": "Power Supply", **entry}
    (found,) = log.faults(entries(gone))
    assert (found.code, found.is_missing, found.about) == ("bmc_event", True, "power supply")
    assert parts.event(gone) is not None
    back = {key: value for key, value in gone.items() if key != "Severity"}
    back["Severity"] = "OK"
    if "EntryCode" in back:
        back["EntryCode"] = "Device Present" if back["EntryCode"] == "Device Absent" else "Assert"
    for gone_word, word in (
        ("Deasserted", "Asserted"),
        ("is absent", "is present"),
        ("removed from", "added to"),
        ("PowerSupplyRemoved", "PowerSupplyInserted"),
    ):
        back = {key: value.replace(gone_word, word) if isinstance(value, str) else value for key, value in back.items()}
    if back != {**gone, "Severity": "OK"}:
        assert log.faults(entries(gone, back)) == []


@pytest.mark.parametrize(
    ("marks", "is_fault"),
    [
        ({}, True),
        ({"Resolved": True}, False),
        ({"Resolved": False}, True),
        ({"ServiceProviderNotified": True}, True),
        ({"Oem": {"Hpe": {"Repaired": True}}}, False),
        ({"Oem": {"Hp": {"Repaired": True}}}, False),
        ({"Oem": {"Hpe": {"Repaired": False}}}, True),
        ({"Oem": {"Hpe": {"Severity": "Repaired"}}}, False),
        ({"Oem": {"Acme": {"Cleared": True}}}, False),
        ({"Resolved": "true"}, False),
        ({"Oem": {"Acme": {"Status": "Cleared"}}}, False),
        ({"Oem": {"Huawei": {"Status": "Asserted"}}}, True),
        ({"Oem": {"Huawei": {"Status": "Deasserted"}}}, False),
        ({"Oem": {"Acme": {"Status": "Open"}}}, True),
        ({"Resolution": "Repaired by replacing it"}, True),
        ({"Oem": None}, True),
        ({"Oem": {"Hpe": None}}, True),
        ({"Oem": {"Hpe": {"Repaired": "no"}}}, True),
        ({"EntryCode": "Deassert"}, False),
        ({"Severity": "OK"}, False),
        ({"Severity": None, "MessageSeverity": "Critical"}, True),
        ({"Severity": "critical"}, True),
        ({"Severity": None, "Oem": {"Hpe": {"Severity": "Caution"}}}, True),
        ({"Severity": "Informational"}, False),
    ],
)
def test_marks_of_an_entry(marks: Entry, is_fault: bool) -> None:
    entry = {"EntryType": "Oem", "Created": "2026-03-01T04:05:06Z", "Severity": "Critical", "Message": "Drive failure in bay 3", **marks}
    assert (parts.event(entry) is not None) == is_fault


@pytest.mark.parametrize(
    "entry",
    [
        {"Message": "A login failed"},
        {"Message": "User admin logged in from 10.0.0.1"},
        {"Message": "Invalid password for user root"},
        {"Message": "Session expired"},
        {"MessageId": "OpenBMC.0.6.InvalidLoginAttempted", "Message": "Invalid Login: user x"},
        {"MessageId": "AccountSecurity.1.0.AccountLocked", "Message": "The user account is locked"},
        {"Message": "Virtual media was disconnected"},
        {"Message": "The SSL certificate expires soon"},
        {"Message": "x", "Oem": {"Dell": {"Category": "Audit"}}},
        {"Message": "SNMP trap failed"},
        {"Message": "x", "Oem": {"Hpe": {"Categories": ["Security"]}}},
        {"Message": "Unauthorized access"},
        {"Message": "Browser login failure"},
    ],
)
def test_entries_of_people_are_not_about_a_part(entry: Entry) -> None:
    assert codes({"Severity": "Warning", **entry}) == [] == codes({"Severity": "Critical", **entry})


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        *(({"Id": name}, True) for name in ("SEL", "IML", "EventLog", "PlatformLog", "ActiveLog", "FaultList", "Sel")),
        *(({"Id": "Log1", "Name": name}, True) for name in ("Health Event Log", "System Event Log Service", "Event Log Service")),
        ({"Id": "x", "LogEntryType": "SEL"}, True),
        ({"Id": "IML", "Name": "Integrated Management Log"}, True),
        *(({"Id": name}, False) for name in ("IEL", "SL", "Audit", "AuditLog", "Journal", "PostCodes", "Dump", "HostLogger", "Lclog")),
        *(
            ({"Id": "Log2", "Name": name}, False)
            for name in ("iLO Event Log", "Audit Event Log", "Security Event Log", "Maintenance Event Log", "Login Event Log")
        ),
    ],
)
def test_which_logs_are_of_hardware(service: Entry, expected: bool) -> None:
    assert log.is_of_hardware(service) == expected


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"Severity": []},
        {"EntryCode": []},
        {"EntryCode": [{}]},
        {"MessageArgs": [None], "MessageId": "A.1.0.FanFailed"},
        {"Links": []},
        {"Links": {"OriginOfCondition": "x"}},
        {"SensorNumber": "7"},
        {"Created": 3},
        {"Oem": {"x": 3}},
    ],
)
def test_rubbish_of_an_entry(entry: Entry) -> None:
    assert log.faults([entry, {**entry, "Severity": "Critical"}]) is not None
