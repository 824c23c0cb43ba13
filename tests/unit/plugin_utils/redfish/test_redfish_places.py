# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which entries of a log of Redfish are about one part, in which order they came, and words for a health that the schema does not have."""

from __future__ import annotations

import itertools
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.redfish import log, parts

Entry = t.Dict[str, t.Any]


def codes(*given: Entry) -> list[str]:
    entries = [{"Id": str(n), "Created": f"2026-11-24T06:54:{n:02d}Z", **entry} for n, entry in enumerate(given)]
    return [fault.code for fault in log.faults(entries)]


FAULTS = (
    "GPU 3 has fallen off the bus", "GPU board fault", "PCIe fatal error slot 3", "Baseboard failure", "NIC failure",
    "A fatal error was detected on a component at bus 60 device 0 function 0.", "Chassis failure", "Internal error 0x31 was detected",
    "Accelerator 5 is not responding", "GPU_SXM_3 NVLink failure", "Network adapter in slot 3 failed", "System halted",
)  # fmt: skip
GOOD = (
    "GPU 4 is running normally", "System boot completed OK", "BMC firmware is running normally", "GPU firmware is running normally",
    "A component at bus 30 device 0 recovered normally.", "A component at bus 60 device 1 function 0 recovered normally.",
    "The system is operating normally", "GPU 3 firmware is running normally", "GPU 3 temperature is normal", "NIC is online",
    "PCIe slot 4 has recovered", "Network adapter in slot 4 is online", "GPU_SXM_4 NVLink is normal",
    "Power supply 2 is operating normally.",
)  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("severity", ["Critical", "Warning"])
def test_a_good_entry_of_another_part_ends_no_fault(fault: str, severity: str) -> None:
    begun = {"Severity": severity, "Message": fault}
    for good in GOOD:
        assert len(codes(begun, {"Severity": "OK", "Message": good})) == 1, good
    for other in FAULTS:
        assert len(codes(begun, {"Severity": severity, "Message": other})) == 1 + (other != fault), other


@pytest.mark.parametrize(
    ("fault", "end"),
    [
        ("GPU 3 has fallen off the bus", "GPU 3 is running normally"),
        ("GPU_SXM_3 failed", "GPU_SXM_3 has recovered"),
        ("GPU 3 temperature is above its limit", "GPU 3 temperature is within range"),
        ("PCIe slot 3 fatal error", "PCIe slot 3 has recovered"),
        (
            "A fatal error was detected on a component at bus 60 device 0 function 0.",
            "A component at bus 60 device 0 function 0 recovered normally.",
        ),
        ("NIC 2 failed", "NIC 2 is online"),
        ("Chassis intrusion asserted", "Chassis intrusion deasserted"),
        ("GPU board fault - Asserted", "GPU board fault - Deasserted"),
    ],
)
def test_a_good_entry_of_the_same_part_ends_its_fault(fault: str, end: str) -> None:
    begun = {"Severity": "Critical", "Message": fault}
    assert (len(codes(begun)), codes(begun, {"Severity": "OK", "Message": end})) == (1, [])


MOMENTARY = [
    ("Memory - Uncorrectable ECC@DIMMA1 - {}", {}),
    ("CPU1 Status: IERR {}", {}),
    ("Processor CPU0, Thermal Trip - {}", {}),
    ("PCIE_SLOT3: Bus Fatal Error {}", {"SensorType": "Critical Interrupt", "SensorNumber": 9}),
]


@pytest.mark.parametrize(("message", "more"), MOMENTARY)
def test_an_error_that_has_happened_does_not_end_with_its_signal(message: str, more: Entry) -> None:
    begun = {"Severity": "Critical", "Message": message.format("Asserted"), **more}
    for severity in ("OK", "Critical"):
        assert codes(begun, {**begun, "Severity": severity, "Message": message.format("Deasserted")}) == ["bmc_fault"]
        assert codes(begun, {**begun, "Severity": severity, "EntryCode": "Deassert"}) == ["bmc_fault"]
    if more:
        assert codes(begun, {**more, "Severity": "OK", "Message": "Presence detected"}) == ["bmc_fault"]
        assert codes(begun, {**more, "Severity": "OK", "Message": "The part was replaced"}) == []


@pytest.mark.parametrize(
    ("fault", "end"),
    [
        (("RDU0012", "Power supply redundancy is lost."), ("RDU0011", "The power supplies are redundant.")),
        (("FAN0001", "Fan 3 RPM is less than the lower critical threshold."), ("FAN0002", "Fan 3 RPM is within range.")),
        (("PSU0003", "The power input for power supply 2 is lost."), ("PSU0017", "Power supply 2 is operating normally.")),
        (("TMP0119", "The inlet temperature is above the upper limit."), ("TMP0122", "The inlet temperature is within range.")),
        (("PDR1016", "Drive 3 is removed from bay 3."), ("PDR1017", "Drive 3 is installed in bay 3.")),
    ],
)
@pytest.mark.parametrize("registry", ["", "IDRAC.2.8."])
def test_an_event_ends_a_fault_whatever_the_makers_number(fault: tuple[str, str], end: tuple[str, str], registry: str) -> None:
    begun, ended = (
        {"Severity": severity, "MessageId": registry + number, "Message": message}
        for severity, (number, message) in (("Critical", fault), ("OK", end))
    )
    assert (len(codes(begun)), codes(begun, ended)) == (1, [])


@pytest.mark.parametrize("ids", ["rising", "falling"])
def test_entries_of_one_second_are_in_the_order_of_their_ids(ids: str) -> None:
    """The fault and its end have one time; those around them tell whether ids rise or fall with it."""
    messages = [("OK", "System booted", 1), ("Critical", "Power supply 2 failed.", 5), ("OK", "Power supply 2 is operating normally.", 5)]
    messages.append(("OK", "System booted again", 9))
    entries = [
        {"Id": str(number), "Created": f"2026-11-24T06:54:{second:02d}Z", "Severity": severity, "Message": message}
        for number, (severity, message, second) in zip((8, 9, 10, 11) if ids == "rising" else (11, 10, 9, 8), messages, strict=True)
    ]
    for order in itertools.permutations(entries):
        assert log.faults(order) == []
    if ids == "rising":
        assert log.faults(entries[2:0:-1]) == []


@pytest.mark.parametrize(
    "entry",
    [
        {
            "Message": "An uncorrectable machine check exception occurred. Login to the iLO for more",
            "Oem": {"Hpe": {"Categories": ["Hardware"]}},
        },
        {"Message": "Fatal error, see the SSH console"},
        {"Message": "Uncorrectable memory error at DIMM A1 (certificate store)"},
        {"Message": "x: log in for details", "Oem": {"Dell": {"Category": "System Health"}}},
        {"Message": "Power supply 2 failed: remote console has details"},
    ],
)
def test_entries_of_parts_with_words_of_people(entry: Entry) -> None:
    assert codes({"Severity": "Critical", **entry}) == ["bmc_fault"]


@pytest.mark.parametrize(
    ("word", "code"),
    [
        *((word, "bmc_fault") for word in ("Failed", "Error", "NonRecoverable", "Non-Recoverable", "FAULT", "critical", "Fatal")),
        *((word, "bmc_event") for word in ("Frobnicated", "Degraded", "Caution", "Yellow")),
        *((word, None) for word in ("OK", "Good", "Normal", "Unknown", "N/A", "None", "", None, "Informational")),
    ],
)
def test_each_word_for_a_health_has_its_code(word: str | None, code: str | None) -> None:
    for status in ({"State": "Enabled", "Health": word}, word):
        found = parts.problems("fan", {"Name": "F", "Reading": 8000, "Status": status})
        assert [each for each, _words in found] == ([code] if code else []), status
    assert parts.problems("fan", {"Name": "F", "Status": {"State": "Absent", "Health": "NotPresent"}}) == []
    assert parts.problems("fan", {"Name": "F", "Status": "Enabled"}) == [] == parts.problems("fan", {"Name": "F", "Status": "Absent"})


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("LossOfInput", "bmc_fault"),
        ("OutOfRange", "bmc_event"),
        ("Brownout", "bmc_event"),
        ("Normal", None),
        (None, None),
        ("Unknown", None),
    ],
)
def test_each_state_of_a_power_supplys_input_has_its_code(word: str | None, code: str | None) -> None:
    found = parts.problems("power supply", {"Name": "P", "LineInputStatus": word, "Status": {"State": "Enabled", "Health": "OK"}})
    assert [each for each, _words in found] == ([code] if code else [])
