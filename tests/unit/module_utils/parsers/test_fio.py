# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded outputs of fio: errors decide and never the exit status, and what is not there is absent."""

from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import is_absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import fio

FIXTURES = pathlib.Path(__file__).resolve().parents[3] / "fixtures" / "storage-fio"


def recorded(name: str) -> str:
    return (FIXTURES / f"{name}.json").read_text()


@pytest.mark.parametrize(
    ("name", "side", "iops"), [("vda-randread", "read", 3234), ("delay-randread", "read", 41), ("iomax-randread", "read", 100)]
)
def test_a_run_without_errors_has_its_numbers(name: str, side: str, iops: int) -> None:
    run = fio.parse(recorded(name))
    assert run.problem is None and run.version == "fio-3.33"
    numbers = getattr(run, side)
    assert round(numbers.iops) == iops and numbers.rate > 0 and numbers.mean_us > 0 and numbers.p99_us >= numbers.mean_us / 2


def test_a_side_on_which_nothing_was_done_is_absent_and_not_zero() -> None:
    run = fio.parse(recorded("vda-randread"))
    assert all(is_absent(value) for value in run.write) and not any(is_absent(value) for value in run.read)


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("error-read", "file_system", "Input/output error"), ("partbad-read", "file_system", "Input/output error"),
        # These four ended with status 0.
        ("partbad-continue", "file_system", "1 in all"), ("flakey-read", "file_system", "666 in all"),
        ("verify-error-fatal0", "wrong_results", "not what was written"), ("verify-error", "wrong_results", "not what was written"),
        ("verify-flakey-w", "wrong_results", "not what was written"), ("full-write", "disk_full", "No space left on device"),
    ],
)  # fmt: skip
def test_an_error_of_a_job_is_a_failure_whatever_the_exit_status_was(name: str, code: str, words: str) -> None:
    problem = fio.parse(recorded(name)).problem
    assert problem and problem[0] == code and words in problem[1]


def test_words_before_and_behind_the_json_are_skipped() -> None:
    text = f"fio: pid=1, err=5\nfio: more\n{recorded('verify-good')}\nbye {{}}\n"
    assert fio.parse(text) == fio.parse(recorded("verify-good"))


@pytest.mark.parametrize(
    "text", ["", "fio: command line only\n", recorded("vda-randread")[:-200], "{}", '{"fio version": "fio-3.33", "jobs": []}', "[" * 9000]
)
def test_what_is_not_whole_has_a_problem_and_no_numbers(text: str) -> None:
    run = fio.parse(text)
    assert run.problem and all(is_absent(value) for value in (*run.read, *run.write))


def test_a_job_that_does_not_say_whether_it_had_errors_is_no_measurement() -> None:
    for change in ({"error": None}, {"error": "0"}, {"error": True}, {"total_err": -1}, {"total_err": "none"}):
        document = json.loads(recorded("vda-randread"))
        document["jobs"][0].update(change)
        problem = fio.parse(json.dumps(document)).problem
        assert problem and problem[0] == "bad_output", change


def test_a_number_that_is_none_is_absent() -> None:
    for value in (None, "3", True, -1, 1e30, float("nan")):
        document = json.loads(recorded("vda-randread"))
        document["jobs"][0]["read"]["iops"] = value
        run = fio.parse(json.dumps(document))
        assert is_absent(run.read.iops), value


@pytest.mark.parametrize(
    ("field", "value"), [("bw_bytes", 1 << 62), ("bw_bytes", 0), ("runtime", None), ("runtime", 0), ("io_bytes", 4096)]
)
def test_a_rate_that_is_not_what_was_moved_in_the_time_is_absent(field: str, value: int | None) -> None:
    document = json.loads(recorded("vda-randread"))
    document["jobs"][0]["read"][field] = value
    assert is_absent(fio.parse(json.dumps(document)).read.rate)


@pytest.mark.parametrize(("field", "value"), [("iops", 1e15), ("total_ios", 3), ("total_ios", "many")])
def test_requests_that_were_not_made_in_the_time_are_absent(field: str, value: object) -> None:
    document = json.loads(recorded("vda-randread"))
    document["jobs"][0]["read"][field] = value
    run = fio.parse(json.dumps(document))
    assert is_absent(run.read.iops) and not is_absent(run.read.rate)


@pytest.mark.parametrize("printed", ["-nan", "nan", "inf", "-inf"])
def test_an_average_that_is_no_number_takes_no_other_number_with_it(printed: str) -> None:
    """fio prints it as C does, which is no JSON."""
    text = recorded("vda-randread")
    run = fio.parse(text.replace('"bw_mean" : ', f'"bw_more" : {printed},\n"bw_mean" : '))
    assert run == fio.parse(text) and run.problem is None
    rate = json.loads(text)["jobs"][0]["read"]["iops"]
    assert is_absent(fio.parse(text.replace(f'"iops" : {rate:f}', f'"iops" : {printed}')).read.iops)


def test_a_rate_of_the_first_versions_is_in_kib() -> None:
    """fio 3.0 and 3.1 have no `bw_bytes`."""
    document = json.loads(recorded("delay-write"))
    side = document["jobs"][0]["write"]
    rate = side.pop("bw_bytes")
    assert fio.parse(json.dumps(document)).write.rate == pytest.approx(rate, rel=0.01)
    side["bw"] = "1024"
    assert is_absent(fio.parse(json.dumps(document)).write.rate)
