# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every counter and state of a disk in every form that a tool gives it: a bad value is found, a value that is not understood is told,
a good one is nothing."""

from __future__ import annotations

import copy
import json
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import smart

Object = t.Dict[str, t.Any]

# Forms of one number, and what is not one.
FORMS: dict[str, t.Callable[[int], t.Any]] = {
    "int": lambda n: n, "float": float, "text": str, "separated": lambda n: f"{n:,}", "unit": lambda n: f"{n} %", "hexadecimal": hex,
    "object": lambda n: {"value": n}, "object with text": lambda n: {"value": str(n), "string": f"{n}"}, "blanks": lambda n: f" {n} ",
}  # fmt: skip
RUBBISH: list[t.Any] = ["", "N/A", "-", "unknown", True, [], [3], {}, {"string": "3"}, {"value": None}, {"value": "x"}, "3 of 5", -1, "nan"]

NVME_CLI: Object = {
    "critical_warning": 0, "temperature": 310, "avail_spare": 100, "spare_thresh": 10, "percent_used": 3,
    "endurance_grp_critical_warning_summary": 0, "media_errors": 0, "critical_comp_time": 0,
}  # fmt: skip
NVME: Object = {
    "device": {"protocol": "NVMe"}, "smart_status": {"passed": True, "nvme": {"value": 0}}, "temperature": {"current": 40},
    "nvme_smart_health_information_log": {
        "critical_warning": 0, "temperature": 40, "available_spare": 100, "available_spare_threshold": 10, "percentage_used": 3,
        "media_errors": 0, "num_err_log_entries": 7, "critical_comp_time": 0,
    },
}  # fmt: skip
SAS: Object = {
    "device": {"protocol": "SCSI"}, "smart_status": {"passed": True}, "temperature": {"current": 30, "drive_trip": 65},
    "scsi_grown_defect_list": 0, "scsi_pending_defects": {"count": 0}, "endurance_used": {"current_percent": 2},
    "scsi_percentage_used_endurance_indicator": 2,
    "scsi_error_counter_log": {
        what: {"total_errors_corrected": 812, "gigabytes_processed": "712.3", "total_uncorrected_errors": 0}
        for what in ("read", "write", "verify")
    },
}  # fmt: skip
ATTRIBUTES = {
    5: "Reallocated_Sector_Ct", 9: "Power_On_Hours", 184: "End-to-End_Error", 187: "Reported_Uncorrect", 197: "Current_Pending_Sector",
    198: "Offline_Uncorrectable",
}  # fmt: skip


def sata(**more: t.Any) -> Object:
    table = [
        {"id": which, "name": name, "value": 100, "worst": 100, "thresh": 10, "when_failed": "", "flags": {"prefailure": which == 5},
         "raw": {"value": 0, "string": "0"}}
        for which, name in ATTRIBUTES.items()
    ]  # fmt: skip
    whole: Object = {"device": {"protocol": "ATA"}, "smart_status": {"passed": True}, "temperature": {"current": 30}}
    return {**whole, "ata_smart_attributes": {"table": table}, "rotation_rate": 7200, **more}


def changed(whole: Object, path: tuple[t.Any, ...], value: t.Any) -> Object:
    """Return a copy with another value at a path; `...` as a value takes it out."""
    whole = copy.deepcopy(whole)
    of: t.Any = whole
    for name in path[:-1]:
        of = of[name]
    if value is ...:
        del of[path[-1]]
    else:
        of[path[-1]] = value
    return whole


def read(whole: Object) -> smart.Smart:
    is_cli = "percent_used" in whole or "avail_spare" in whole
    return smart.nvme_smart_log(json.dumps(whole), 0) if is_cli else smart.smartctl(json.dumps(whole), 0)


LOG = "nvme_smart_health_information_log"
# (answer, path of the number, a bad value, the code of what is found)
COUNTERS: list[tuple[Object, tuple[t.Any, ...], int, str]] = [
    *((NVME_CLI, ("critical_warning",), 1 << bit, "disk_worn" if bit == 1 else "disk") for bit in range(6)),
    *((NVME, (LOG, "critical_warning"), 1 << bit, "disk_worn" if bit == 1 else "disk") for bit in range(6)),
    *((NVME_CLI, ("endurance_grp_critical_warning_summary",), 1 << bit, "disk") for bit in (0, 2, 3)),
    (NVME_CLI, ("media_errors",), 1234567, "disk_worn"),
    (NVME, (LOG, "media_errors"), 1, "disk_worn"),
    (NVME_CLI, ("percent_used",), 105, "disk_worn"),
    (NVME, (LOG, "percentage_used"), 100, "disk_worn"),
    (NVME_CLI, ("avail_spare",), 4, "disk_worn"),
    (NVME, (LOG, "available_spare"), 4, "disk_worn"),
    (NVME, (LOG, "critical_comp_time"), 17, "disk_worn"),
    *((SAS, ("scsi_error_counter_log", what, "total_uncorrected_errors"), 1234, "disk_worn") for what in ("read", "write", "verify")),
    (SAS, ("scsi_grown_defect_list",), 40, "disk_worn"),
    (SAS, ("scsi_pending_defects", "count"), 3, "disk_worn"),
    (SAS, ("endurance_used", "current_percent"), 103, "disk_worn"),
    (SAS, ("scsi_percentage_used_endurance_indicator",), 103, "disk_worn"),
    (SAS, ("temperature", "current"), 66, "disk_worn"),
    *((sata(), ("ata_smart_attributes", "table", row, "raw"), 8, "disk_worn") for row, which in enumerate(ATTRIBUTES) if which != 9),
]  # fmt: skip
IDS = [".".join(map(str, path)) + f"={value}" for _whole, path, value, _code in COUNTERS]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("whole", "path", "value", "code"), COUNTERS, ids=IDS)
def test_a_bad_number_in_every_form(whole: Object, path: tuple[t.Any, ...], value: int, code: str, form: str) -> None:
    found = read(changed(whole, path, FORMS[form](value)))
    assert [one for one, _words in found.problems] == [code] and found.unread == ""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("whole", [NVME_CLI, NVME, SAS, sata()], ids=["nvme-cli", "nvme", "sas", "sata"])
def test_a_good_disk_in_every_form(whole: Object, form: str) -> None:
    def made(value: t.Any, name: str = "") -> t.Any:
        if isinstance(value, dict):
            return {inner: made(cell, inner) for inner, cell in value.items()}
        if isinstance(value, list):
            return [made(cell) for cell in value]
        # The number of an attribute and its raw value stay in their own fields.
        return FORMS[form](value) if isinstance(value, int) and not isinstance(value, bool) and name != "value" else value

    found = read(made(whole))
    assert (found.problems, found.unread) == ([], "")


@pytest.mark.parametrize("rubbish", RUBBISH, ids=repr)
@pytest.mark.parametrize(("whole", "path"), [(whole, path) for whole, path, _value, _code in COUNTERS], ids=IDS)
def test_what_is_there_and_not_understood_is_told(whole: Object, path: tuple[t.Any, ...], rubbish: t.Any) -> None:
    found = read(changed(whole, path, rubbish))
    if path[-1] == "raw" and rubbish == {"string": "3"}:
        assert found.problems  # the text of an attribute is its count
    else:
        assert found.unread and found.is_silent


@pytest.mark.parametrize(
    ("whole", "path"),
    [
        (NVME_CLI, ("media_errors",)), (NVME_CLI, ("percent_used",)), (NVME, (LOG, "media_errors")), (NVME, (LOG, "percentage_used")),
        *((SAS, ("scsi_error_counter_log", what, "total_uncorrected_errors")) for what in ("read", "write", "verify")),
        *((sata(), ("ata_smart_attributes", "table", row, "raw")) for row, which in enumerate(ATTRIBUTES) if which != 9),
        (NVME_CLI, ("critical_warning",)), (sata(), ("ata_smart_attributes", "table")), (NVME, (LOG,)),
    ],
)  # fmt: skip
def test_a_number_that_every_disk_has_and_that_is_missing(whole: Object, path: tuple[t.Any, ...]) -> None:
    found = read(changed(whole, path, ...))
    assert found.unread and found.is_silent


@pytest.mark.parametrize("rubbish", [3, "x", [], True, None])
@pytest.mark.parametrize("name", smart._OBJECTS)
def test_a_part_of_the_answer_that_is_no_object(name: str, rubbish: t.Any) -> None:
    for whole in (NVME, SAS, sata()):
        found = read({**whole, name: rubbish})
        assert found.unread and found.is_silent


def test_attributes_that_could_not_be_read() -> None:
    whole = changed(sata(), ("ata_smart_attributes",), ...)
    assert not smart.smartctl(json.dumps(whole), 0).unread and smart.smartctl(json.dumps(whole), 4).is_silent


def test_the_bits_of_a_critical_warning_by_name() -> None:
    names = ("available_spare", "temp_threshold", "reliability_degraded", "ro", "vmbu_failed", "pmr_ro")
    for bit, name in enumerate(names):
        for value in ({}, {"value": 0}, {"value": 1 << bit}):
            warning = {**value, **{other: int(other == name) for other in names}}
            codes = [code for code, _words in read({**NVME_CLI, "critical_warning": warning}).problems]
            assert codes == ["disk_worn" if bit == 1 else "disk"], warning
    assert read({**NVME_CLI, "critical_warning": {"value": 4}}).problems
    assert read({**NVME_CLI, "critical_warning": 64}).is_silent and read({**NVME_CLI, "critical_warning": 2.5}).is_silent


@pytest.mark.parametrize("no", [0, False])
@pytest.mark.parametrize("yes", [1, True])
def test_the_named_bits_are_numbers_or_true_and_false(no: t.Any, yes: t.Any) -> None:
    names = ("available_spare", "temp_threshold", "reliability_degraded", "ro", "vmbu_failed", "pmr_ro")
    good = read({**NVME_CLI, "critical_warning": {"value": 0, **dict.fromkeys(names, no)}})
    assert (good.problems, good.unread) == ([], "")
    for bit, name in enumerate(names):
        found = read({**NVME_CLI, "critical_warning": {**dict.fromkeys(names, no), name: yes}})
        assert [code for code, _words in found.problems] == ["disk_worn" if bit == 1 else "disk"] and not found.unread


@pytest.mark.parametrize("worn", [{}, {"media_errors": 3}, {"percentage_used": 105}, {"critical_comp_time": 17}])
@pytest.mark.parametrize(("passed", "rc"), [(False, 0), (False, 8), (True, 8)])
def test_a_failed_status_that_the_health_log_does_not_explain(worn: Object, passed: bool, rc: int) -> None:
    whole = {**NVME, "smart_status": {"passed": passed, "nvme": {"value": 0}}, LOG: {**NVME[LOG], **worn}}
    codes = [code for code, _words in smart.smartctl(json.dumps(whole), rc).problems]
    assert codes == ["disk", *(["disk_worn"] if worn else [])]


def test_smartctl_gives_the_critical_warning_twice() -> None:
    status = {"passed": False, "nvme": {"value": 4}}
    found = read(changed({**NVME, "smart_status": status}, (LOG, "critical_warning"), ...))
    assert [code for code, _words in found.problems] == ["disk"]


def test_heat_alone_is_no_failure_of_a_disk() -> None:
    hot = changed({**NVME, "smart_status": {"passed": False, "nvme": {"value": 2}}}, (LOG, "critical_warning"), 2)
    assert [code for code, _words in smart.smartctl(json.dumps(hot), 8).problems] == ["disk_worn"]
    words = {"asc": 11, "ascq": 1, "ie_string": "WARNING: SPECIFIED TEMPERATURE EXCEEDED"}
    assert [code for code, _words in smart.smartctl(json.dumps({**SAS, "smart_status": {"passed": False, "scsi": words}}), 8).problems] == [
        "disk_worn"
    ]


@pytest.mark.parametrize("asc", [0x5D, 0x0B, "0x5d", 93.0])
@pytest.mark.parametrize("words", ["FAILURE PREDICTION THRESHOLD EXCEEDED: ascq=0x32", "", None])
def test_informational_exceptions_of_a_scsi_disk(asc: t.Any, words: str | None) -> None:
    status = {"passed": False, "scsi": {"asc": asc, "ascq": 0x32, **({"ie_string": words} if words is not None else {})}}
    assert [code for code, _words in read({**SAS, "smart_status": status}).problems] == ["disk"]


@pytest.mark.parametrize(
    ("which", "name", "left", "is_worn"),
    [
        (177, "Wear_Leveling_Count", 1, True), (177, "Wear_Leveling_Count", 96, False), (202, "Percent_Lifetime_Remain", 0, True),
        (202, "Percent_Lifetime_Remain", 55, False), (202, "Data_Address_Mark_Errs", 1, False), (231, "SSD_Life_Left", 1, True),
        (231, "Temperature_Celsius", 1, False), (233, "Media_Wearout_Indicator", 1, True), (233, "NAND_GB_Written_TLC", 0, False),
        (233, "", 1, True), (173, "Wear_Leveling_Count", 1, True), (169, "Remaining_Lifetime_Perc", 0, True),
    ],
)  # fmt: skip
def test_wear_of_a_sata_disk(which: int, name: str, left: int, is_worn: bool) -> None:
    for form in FORMS.values():
        row = {"id": which, "name": name, "value": form(left), "raw": {"value": 99999, "string": "99999"}}
        found = read(sata(ata_smart_attributes={"table": [row]}))
        assert bool(found.problems) == is_worn and not found.unread, row


def test_counts_with_other_counts_in_their_upper_bytes() -> None:
    for text, value, count in (("0 (1 2)", 2 << 32, 0), ("8 (0 2)", 8 | 2 << 32, 8), ("12", 12, 12), ("0", 0, 0)):
        row = {"id": 5, "name": "Reallocated_Sector_Ct", "value": 100, "raw": {"value": value, "string": text}}
        assert [words for _code, words in read(sata(ata_smart_attributes={"table": [row]})).problems] == (
            [f"{count} sectors were replaced"] if count else []
        )


def test_an_attribute_at_its_limit_by_the_table_alone() -> None:
    for is_foretold, code in ((True, "disk"), (False, "disk_worn")):
        row = {"id": 3, "name": "Spin_Up_Time", "when_failed": "now", "flags": {"prefailure": is_foretold}, "raw": {"value": 0}}
        assert [found for found, _words in read(sata(ata_smart_attributes={"table": [row]})).problems] == [code]


def _ata_test(status: int) -> Object:
    return {"status": {"value": status, "string": "x", "passed": status < 0x30}}


@pytest.mark.parametrize(
    ("log", "code"),
    [
        ({"ata_smart_self_test_log": {"standard": {"error_count_total": 1, "error_count_outdated": 0}}}, "disk"),
        ({"ata_smart_self_test_log": {"extended": {"error_count_total": "2", "error_count_outdated": 1.0}}}, "disk"),
        ({"ata_smart_self_test_log": {"standard": {"error_count_total": 1, "error_count_outdated": 1}}}, None),
        ({"ata_smart_self_test_log": {"standard": {"count": 0}}}, None),
        *(({"ata_smart_self_test_log": {"standard": {"table": [_ata_test(0xF0), _ata_test(k << 4)]}}}, "disk") for k in range(3, 9)),
        ({"ata_smart_self_test_log": {"standard": {"table": [_ata_test(0), _ata_test(0x70)]}}}, None),
        ({"ata_smart_self_test_log": {"standard": {"table": [_ata_test(0x10), _ata_test(0x20)]}}}, None),
        *(({"scsi_self_test_0": {"result": {"value": k}}}, "disk") for k in range(3, 8)),
        ({"scsi_self_test_0": {"result": {"value": 0}}, "scsi_self_test_1": {"result": {"value": 7}}}, None),
        ({"scsi_self_test_0": {"result": {"value": 15}}, "scsi_self_test_1": {"result": {"value": 7}}}, "disk"),
        *(({"nvme_self_test_log": {"table": [{"self_test_result": {"value": k}}]}}, "disk") for k in (5, 6, 7)),
        *(({"nvme_self_test_log": {"table": [{"self_test_result": {"value": k}}]}}, None) for k in (0, 1, 2, 3, 4, 8, 9)),
    ],
)  # fmt: skip
def test_a_failed_last_self_test_is_a_disk_defect(log: Object, code: str | None) -> None:
    found = read({**NVME, **log})
    assert [one for one, _words in found.problems] == ([code] if code else []) and not found.unread


@pytest.mark.parametrize(
    ("text", "rc", "is_silent"),
    [
        ('{"smartctl": {"messages": [{"string": "Permission denied"}]}}', 2, False),
        ('{"smartctl": {"messages": [{"string": "/dev/sda: Unknown USB bridge [0x1:0x2]"}]}}', 1, False),
        ('{"smartctl": {"messages": [{"string": "DELL or MegaRaid controller, please try adding \'-d megaraid,N\'"}]}}', 2, False),
        ('{"smartctl": {"messages": [{"string": "/dev/sda: Unable to detect device type"}]}}', 1, False),
        ("=======> INVALID ARGUMENT TO -j", 1, False),
        ('{"smartctl": {"messages": [{"string": "Read NVMe Identify Controller failed: Input/output error"}]}}', 2, True),
        ('{"smartctl": {"messages": [{"string": "Smartctl open device: /dev/sda failed: No such device"}]}}', 2, True),
        ('{"smartctl": {"messages": []}}', 2, True),
        ("", 0, True),
        ('{"smart_support": {"available": true, "enabled": false}}', 4, False),
        ('{"smart_support": {"available": true, "enabled": true}}', 4, True),
        ('{"smart_support": {"available": false}}', 4, False),
        ('{"model_name": "QEMU HARDDISK"}', 4, False),
        ('{"device": {"protocol": "NVMe"}}', 4, True),
        ('{"device": {"protocol": "NVMe"}, "smartctl": {"messages": [{"string": "Read failed: NVMe Status 0x2002"}]}}', 4, False),
        ('{"device": {"protocol": "NVMe"}, "smartctl": {"messages": [{"string": "Read failed: NVMe Status 0x4006"}]}}', 4, True),
    ],
)  # fmt: skip
def test_a_disk_that_was_not_asked_and_one_that_does_not_answer(text: str, rc: int, is_silent: bool) -> None:
    found = smart.smartctl(text, rc)
    assert found.unread and found.is_silent == is_silent and not found.problems


def test_nvme_cli_says_why_on_standard_error() -> None:
    assert not smart.nvme_smart_log("", 1, "Permission denied").is_silent
    assert smart.nvme_smart_log("", 1, "failed to get smart log: Input/output error").is_silent
    assert not smart.nvme_smart_log(f"warning: x\n{json.dumps(NVME_CLI)}\n", 0).unread


def test_disks_with_no_limit_of_their_spare_capacity_are_well() -> None:
    assert read({**NVME_CLI, "avail_spare": 0, "spare_thresh": 0}).problems == []
    assert read({**NVME_CLI, "avail_spare": 0, "spare_thresh": 255}).problems == []
