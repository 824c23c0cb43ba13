# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What comes up on a machine between two looks is a finding of the second; what the first found is its own alone."""

from __future__ import annotations

import itertools
import typing as t

import pytest
from unit.plugin_utils.judging.test_verdict import Record, gemm, item, judge, record

STAGES = [{"name": name, "role": f"gpufleet.acceptance.{name}"} for name in ("stack", "host_health", "gemm", "train", "host_health_after")]
FAULTS = {
    "machine_check": "the kernel's log has, at 2026-11-21T00:07:00Z: uncorrected machine check: CPU 4: Machine Check Exception: 5 Bank 7",
    "bmc_fault": "management controller: PS2 Status: Failure detected",
    "disk": "NVMe disk nvme0: it says that it fails",
    "pcie_error": "NIC mlx5_0 0000:31:00.0: fatal PCIe errors since boot: SDES 1",
    "host_memory": "P0-DIMMA1 (mc0 dimm0): 1 uncorrectable memory error since boot: replace the module",
    "nic_fault": "the kernel's log has, at 2026-11-21T00:07:00Z: a NIC's firmware does not answer: mlx5_core 0000:31:00.0: x",
    "file_system": "/var (/dev/sda3) is read-only, and /etc/fstab says that it should not be",
}


def look(stage: str, faults: t.Sequence[tuple[str, str]] = (), check: str = "kernel", **context: t.Any) -> Record:
    """A look that found these faults, as host/check_report.py makes it."""
    grave = [code for code, _words in faults if code in FAULTS]
    seen: Record = {"looked_for": ["x"], "not_looked_for": {}, **context}
    if faults:
        seen["findings"] = [{"code": code, "part": "", "text": words} for code, words in faults]
    failed = {"outcome": "error", "reason_code": grave[0], "reason": "; ".join(words for _code, words in faults)} if grave else {}
    at = "2026-11-21T00:01:00Z" if stage == "host_health" else "2026-11-21T00:30:00Z"
    return record("n1", stage, check, context=seen, started_at=at, **failed)


def verdicts(*records: Record, check: str = "kernel", **options: t.Any) -> tuple[tuple[str, str | None], tuple[str, str | None], t.Any]:
    """Verdict and code of the first look and of the second, whatever the order of the journal."""
    items = [item("n1", stage, check) for stage in ("host_health", "host_health_after")]
    found = [judge(items, list(order), plan={"stages": STAGES}, **options) for order in itertools.permutations(records)]
    assert all(other.verdicts == found[0].verdicts for other in found)
    first, second = found[0].planned
    return (first["verdict"], first["reason_code"]), (second["verdict"], second["reason_code"]), found[0]


GOOD = ("PASS", None)


@pytest.mark.parametrize("code", FAULTS)
def test_a_fault_that_came_up_between_the_looks(code: str) -> None:
    first, second, found = verdicts(look("host_health"), look("host_health_after", [(code, FAULTS[code])]))
    assert (first, second) == (GOOD, ("FAIL", code)) and not found.accepted
    assert "(between them: gemm, train), new since the first look" in found.planned[1]["reason"]


@pytest.mark.parametrize("code", FAULTS)
def test_what_the_first_look_found_stays_its_own(code: str) -> None:
    fault = (code, FAULTS[code])
    first, second, _found = verdicts(look("host_health", [fault]), look("host_health_after", [fault]))
    assert (first, second) == (("FAIL", code), GOOD)


def test_a_known_failure_stays_known_and_a_new_one_is_not_covered() -> None:
    old, new = ("bmc_fault", FAULTS["bmc_fault"]), ("bmc_fault", "management controller: PS1 Status: Failure detected")
    waiver = {"subject": "n1", "codes": ["bmc_fault"], "ticket": "T-1", "expires": "2026-12-01"}
    first, second, _found = verdicts(look("host_health", [old]), look("host_health_after", [old]), waivers=[waiver])
    assert (first[0], second) == ("KNOWN_FAIL", GOOD)
    first, second, _found = verdicts(look("host_health", [old]), look("host_health_after", [old, new]), waivers=[waiver])
    assert (first[0], second[0]) == ("KNOWN_FAIL", "FAIL"), "the other power supply failed under load"


MOMENTS = {
    "a clock read a second later": ("at 2026-11-21T00:07:00Z: x", "at 2026-11-21T00:07:01Z: x", True),
    "the same error again": ("at 2026-11-21T00:07:00Z: x", "at 2026-11-21T00:20:00Z, 2 times since boot: x", False),
    "as often": ("at 2026-11-21T00:07:00Z, 3 times since boot: x", "at 2026-11-21T00:07:00Z, 3 times since boot: x", True),
    "a log that lost older lines": (
        "at 2026-11-21T00:07:00Z, 3 times since boot, 1 of them in the last 24 hours: x",
        "at 2026-11-21T00:07:00Z, 2 times since boot: x",
        True,
    ),
    "a later one after older lines were lost": ("at 2026-11-21T00:07:00Z, 3 times since boot: x", "at 2026-11-21T00:20:00Z: x", False),
    "a counter that rose": ("3 uncorrectable memory errors since boot", "4 uncorrectable memory errors since boot", False),
    "another reading of a sensor": ("Temp_1: 96 degrees C, critical", "Temp_1: 97 degrees C, critical", True),
    "another sensor": ("Temp_1: 96 degrees C, critical", "Temp_2: 96 degrees C, critical", False),
    "an older limit": ("RxErr 300, more than 210", "RxErr 300, more than 211", True),
    "another slot": ("slot 3: link down", "slot 4: link down", False),
    "an event of a log at another time": ("log has, 2026-11-21T00:02:00Z: PS1 lost", "log has, 2026-11-21T00:12:00Z: PS1 lost", False),
}  # fmt: skip


@pytest.mark.parametrize("what", MOMENTS)
def test_a_fault_in_the_words_of_the_first_look_is_not_a_new_one(what: str) -> None:
    old, new, same = MOMENTS[what]
    faults = [("bmc_fault", old)], [("bmc_fault", new)]
    assert (verdicts(look("host_health", faults[0]), look("host_health_after", faults[1]))[1] == GOOD) is same


def test_without_a_first_look_the_second_is_a_whole_one() -> None:
    fault = [("disk", FAULTS["disk"])]
    lost = record("n1", "host_health", "kernel", outcome="missing", reason_code="unreachable", reason="gone")
    for others in ([], [lost]):
        found = judge([item("n1", "host_health_after", "kernel")], [*others, look("host_health_after", fault)], plan={"stages": STAGES})
        (second,) = found.planned
        assert (second["verdict"], second["reason_code"]) == ("FAIL", "disk") and "first look" not in second["reason"]


def test_a_mild_finding_is_a_warning_once() -> None:
    event = ("bmc_event", "management controller: its log has, 2026-11-20T00:00:00Z, before the last boot: PS2 lost input")
    assert verdicts(look("host_health", [event]), look("host_health_after", [event]))[:2] == (("WARN", "bmc_event"), GOOD)
    assert verdicts(look("host_health"), look("host_health_after", [event]))[:2] == (GOOD, ("WARN", "bmc_event"))


def test_a_fault_that_came_and_went_is_worth_a_look() -> None:
    ended = [{"code": "bmc_fault", "text": "its log has, 2026-11-21T00:12:00Z: PS1 lost its input"}]
    old = [{"code": "bmc_fault", "text": "its log has, 2026-11-19T00:12:00Z: PS1 lost its input"}]
    first, second, found = verdicts(look("host_health", ended=old), look("host_health_after", ended=[*old, *ended]))
    assert (first, second) == (GOOD, ("WARN", "fault_passed"))
    assert "it came and went (between them: gemm, train)" in found.planned[1]["reason"]
    assert verdicts(look("host_health", ended=old), look("host_health_after", ended=old))[1] == GOOD
    # It stood at the first look, and was taken back since: the first look has said so.
    assert verdicts(look("host_health", [("bmc_fault", ended[0]["text"])]), look("host_health_after", ended=ended))[1] == GOOD


@pytest.mark.parametrize(("kind", "part", "code"), [("pci", "NIC 0000:31:00.0", "pcie_error"), ("disks", "nvme3", "disk")])
def test_a_device_that_is_gone_at_the_second_look_fails(kind: str, part: str, code: str) -> None:
    first, second, found = verdicts(look("host_health", parts={kind: ["a", part]}), look("host_health_after", parts={kind: ["a", "new"]}))
    assert (first, second) == (GOOD, ("FAIL", code)) and part in found.planned[1]["reason"]


def test_a_part_that_the_management_controller_lists_as_gone() -> None:
    before = look("host_health", parts={"power supplies": {"PS1": True, "PS2": True, "PS3": False}})
    for now, verdict in (
        ({"PS1": True, "PS2": False, "PS3": False}, ("FAIL", "bmc_fault")),
        ({"PS1": True}, ("FAIL", "bmc_fault")),
        ({"PS1": True, "PS2": True, "PS3": True}, GOOD),
    ):
        assert verdicts(before, look("host_health_after", parts={"power supplies": now}))[1] == verdict


KINDS: dict[str, t.Any] = {
    "power supplies": {"PS1": True, "PS2": True}, "fans": {"FAN1": True, "FAN2": False}, "other parts": {"CPU1": True},
    "pci": ["NIC 0000:31:00.0"], "disks": ["nvme0", "sda"],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_parts_that_the_second_look_does_not_show(kind: str) -> None:
    before = look("host_health", parts=KINDS)
    others = {name: parts for name, parts in KINDS.items() if name != kind}
    for seen in ({"parts": others}, {"parts": {**others, kind: None}}, {"parts": {}}, {"parts": "x"}, {}):
        assert verdicts(before, look("host_health_after", **seen))[1] == ("UNKNOWN", "no_answer")
    assert verdicts(look("host_health", parts=others), look("host_health_after", parts=KINDS))[1] == GOOD
    nothing = {"pci": [], "disks": [], "fans": {"FAN1": False}}  # a virtual machine, an empty place
    assert verdicts(look("host_health", parts=nothing), look("host_health_after"))[1] == GOOD


@pytest.mark.parametrize("kind", ["power supplies", "fans", "other parts"])
@pytest.mark.parametrize("listed", [True, False])
def test_a_part_without_a_reading_is_not_known_to_be_gone(kind: str, listed: bool) -> None:
    before = look("host_health", parts={kind: {"P1": True, "P2": True, "P3": False}})
    now = {"P1": True, "P3": False, **({"P2": False} if listed else {})}
    after = look("host_health_after", parts={kind: now}, silent_parts={kind: ["P2", "P3"]})
    first, second, found = verdicts(before, after)
    assert (first, second) == (GOOD, ("UNKNOWN", "no_answer")) and "P2 has no reading any more" in found.planned[1]["reason"]
    of_empty = look("host_health_after", parts={kind: {"P1": True, "P2": True, "P3": False}}, silent_parts={kind: ["P3"]})
    assert verdicts(before, of_empty)[1] == GOOD, "the place was empty at the first look"
    gone = look("host_health_after", parts={kind: {"P1": False, "P2": False}}, silent_parts={kind: ["P2"]})
    assert verdicts(before, gone)[1] == ("FAIL", "bmc_fault"), "the other one says that it is absent"


def test_a_fault_of_redfish_that_stood_at_the_first_look_and_is_over() -> None:
    text = "management controller: PSU2: its input was lost"
    ended = [{"code": "bmc_event", "text": f"{text}, 2026-11-21T00:02:00Z"}]
    assert verdicts(look("host_health", [("bmc_event", text)]), look("host_health_after", ended=ended))[1] == GOOD
    assert verdicts(look("host_health"), look("host_health_after", ended=ended))[1] == ("WARN", "fault_passed")


@pytest.mark.parametrize("code", ["ipmi", "smart", "edac", "aer", "kernel_log", "redfish_power"])
def test_a_part_that_answers_no_more(code: str) -> None:
    silent = look("host_health_after", not_looked_for={code: "no answer in 90 s"})
    assert verdicts(look("host_health"), silent)[1] == ("UNKNOWN", "no_answer")
    assert verdicts(look("host_health", not_looked_for={code: "no tool"}), silent)[1] == GOOD, "nor did it at the first look"
    skipped = {**silent, "outcome": "not_applicable", "reason_code": "not_visible", "reason": "nothing"}
    assert verdicts(look("host_health"), skipped)[1] == ("UNKNOWN", "no_answer")


@pytest.mark.parametrize("code", ["kernel_log_since_boot", "rasdaemon", "clock_offset"])
def test_what_a_healthy_machine_may_not_say_for_a_moment(code: str) -> None:
    assert verdicts(look("host_health"), look("host_health_after", not_looked_for={code: "busy"}))[1] == GOOD


def test_a_second_look_that_came_to_no_end_is_unknown() -> None:
    timeout = record("n1", "host_health_after", "kernel", outcome="timeout", reason_code="timeout", reason="the deadline passed")
    assert verdicts(look("host_health"), timeout)[1] == ("UNKNOWN", "timeout")
    items = [item("n1", stage, "kernel") for stage in ("host_health", "host_health_after")]
    assert judge(items, [look("host_health")], plan={"stages": STAGES}).planned[1]["reason_code"] == "not_run"


def test_each_attempt_of_a_second_look_is_compared() -> None:
    fault = [("disk", FAULTS["disk"])]
    again = {**look("host_health_after", fault), "attempt": 2}
    assert verdicts(look("host_health", fault), look("host_health_after", fault), again)[1] == ("WARN", "later_attempt")


# A run that is resumed -----------------------------------------------------------------------------------------------


def later(of: Record, attempt: int, minute: int) -> Record:
    """A record as a later attempt made it, so many minutes into the second hour of the run."""
    return {**of, "attempt": attempt, "started_at": f"2026-11-21T01:{minute:02}:00Z"}


def loaded(records: t.Sequence[Record], loads: t.Sequence[str] = ("gemm",), **options: t.Any) -> t.Any:
    """The verdict of the second look in a run with loads, whatever the order of the journal."""
    stages = ("host_health", *loads, "host_health_after")
    items = [item("n1", stage, "bf16" if stage in loads else "kernel") for stage in stages]
    found = [judge(items, list(order), plan={"stages": STAGES}, **options) for order in (records, records[::-1])]
    assert found[0].verdicts == found[1].verdicts
    return found[0], (found[0].planned[-1]["verdict"], found[0].planned[-1]["reason_code"])


def load(stage: str = "gemm", attempt: int = 1, at: str = "2026-11-21T00:10:00Z", **fields: t.Any) -> Record:
    return {**gemm("n1", 690.0, attempt=attempt, started_at=at, **fields), "stage": stage}


@pytest.mark.parametrize("last", [{}, {"outcome": "timeout", "reason_code": "timeout", "reason": "x"}])
def test_a_look_that_is_older_than_a_load_is_unknown(last: Record) -> None:
    again = load(attempt=2, at="2026-11-21T01:20:00Z")
    first, second = look("host_health"), look("host_health_after")
    assert loaded([first, load(), second])[1] == GOOD
    found, word = loaded([first, {**load(), **last}, second, {**again, **last}])
    assert word == ("UNKNOWN", "loaded_since") and not found.accepted
    assert loaded([first, {**load(), **last}, second, again, later(second, 2, 40)])[1] == GOOD, "it passed on both"
    skipped = {**again, "outcome": "not_applicable", "reason_code": "not_visible", "reason": "x", "metrics": {}}
    assert loaded([first, load(), second, skipped])[1] == GOOD


@pytest.mark.parametrize("other", ["group", "pair"])
def test_a_load_of_several_nodes_is_one_of_each(other: str) -> None:
    members = ["n0", "n1"] if other == "group" else []
    subject = {"kind": other, "id": "fleet" if members else "n0|n1", "members": members}
    later_load = {**load(attempt=2, at="2026-11-21T01:20:00Z"), "stage": "nccl_fabric", "subject": subject}
    assert loaded([look("host_health"), load(), look("host_health_after"), later_load])[1] == ("UNKNOWN", "loaded_since")


@pytest.mark.parametrize("code", FAULTS)
def test_a_fault_under_load_is_taken_back_by_the_same_loads_only(code: str) -> None:
    bad, good = look("host_health_after", [(code, FAULTS[code])]), later(look("host_health_after"), 2, 40)
    before = [look("host_health"), load(), load("train"), bad]
    both = ("gemm", "train")
    for repeated in ([], [load(attempt=2, at="2026-11-21T01:10:00Z")], [load("train", 2, "2026-11-21T00:20:00Z")]):
        found, word = loaded([*before, *repeated, good], both)
        assert word == ("FAIL", code) and not found.accepted and "on attempt 1" in found.planned[-1]["reason"]
    for outcome in ("not_applicable", "missing"):
        none = {**load("train"), "outcome": outcome, "reason_code": "single_gpu", "reason": "x", "metrics": {}}
        found = loaded([look("host_health"), load(), none, bad, load(attempt=2, at="2026-11-21T01:10:00Z"), good], both)
        assert found[1] == ("WARN", "later_attempt"), "what did not work the machine need not work it again"
    repeated = [load(stage, 2, "2026-11-21T01:10:00Z") for stage in both]
    assert loaded([*before, *repeated, good], both)[1] == ("WARN", "later_attempt")
    lost = {"outcome": "timeout", "reason_code": "timeout", "reason": "x"}
    assert loaded([*before, repeated[0], {**repeated[1], **lost}, good], both)[1] == ("FAIL", code)


@pytest.mark.parametrize("code", FAULTS)
def test_a_fault_that_a_later_look_found_is_not_hidden_by_an_earlier_clean_one(code: str) -> None:
    bad = later(look("host_health_after", [(code, FAULTS[code])]), 2, 40)
    again = load(attempt=2, at="2026-11-21T01:20:00Z")
    assert loaded([look("host_health"), load(), look("host_health_after"), again, bad])[1] == ("FAIL", code)


@pytest.mark.parametrize("code", FAULTS)
def test_a_fault_of_the_first_look_that_was_repaired_is_none_of_the_second(code: str) -> None:
    fault = [(code, FAULTS[code])]
    records = [look("host_health", fault), load(), look("host_health_after", fault)]
    clean = [later(look("host_health"), 2, 10), later(look("host_health_after"), 2, 40)]
    found, word = loaded([*records, *clean])
    assert word == ("WARN", "later_attempt") and found.accepted
    assert loaded([*records, clean[0], later(look("host_health_after", fault), 2, 40)])[1] == ("FAIL", code), "it came back"


PARTS: dict[str, tuple[t.Any, t.Any, str]] = {
    "pci": (["NIC a", "NIC b"], ["NIC a"], "pcie_error"),
    "disks": (["nvme0", "nvme1"], ["nvme0"], "disk"),
    "power supplies": ({"PS1": True, "PS2": True}, {"PS1": True, "PS2": False}, "bmc_fault"),
}


@pytest.mark.parametrize("kind", PARTS)
def test_a_part_that_was_lost_between_two_attempts_stays_lost(kind: str) -> None:
    whole, fewer, code = PARTS[kind]
    fault = [("file_system", FAULTS["file_system"])]
    records = [look("host_health", fault, parts={kind: whole}), load(), look("host_health_after", fault, parts={kind: fewer})]
    again = [later(look("host_health", parts={kind: fewer}), 2, 10), load(attempt=2, at="2026-11-21T01:20:00Z")]
    assert loaded([*records, *again, later(look("host_health_after", parts={kind: fewer}), 2, 40)])[1] == ("FAIL", code)
    assert loaded([*records, *again, later(look("host_health_after", parts={kind: whole}), 2, 40)])[1] == ("WARN", "later_attempt")


def test_what_the_first_attempt_could_read_must_be_read() -> None:
    silent = {"not_looked_for": {"ipmi": "no answer"}}
    fault = [("disk", FAULTS["disk"])]
    records = [look("host_health", fault), load(), look("host_health_after", fault)]
    again = [later(look("host_health", **silent), 2, 10), load(attempt=2, at="2026-11-21T01:20:00Z")]
    assert loaded([*records, *again, later(look("host_health_after", **silent), 2, 40)])[1] == ("UNKNOWN", "no_answer")
