# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parser for nvbandwidth over recordings of version 0.8 on an H100, and over texts of other versions and of broken runs."""

from __future__ import annotations

import json
import pathlib
import random

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.nvbandwidth import parse

RECORDED = pathlib.Path(__file__).resolve().parents[3] / "fixtures/nvbandwidth-h100"
ALL = (RECORDED / "all.txt").read_text()
# Two GPUs, as version 0.10 prints them, with a test that has three matrices.
TWO = """nvbandwidth Version: v0.10.0
Built from Git version: v0.10.0

CUDA Runtime Version: 13.2 (13020)
CUDA Driver Version (API): 13.2 (13020)
Driver Version: 595.71.05

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     55.37     55.36

SUM host_to_device_memcpy_ce 110.73
COEFFICIENT_OF_VARIATION host_to_device_memcpy_ce 0.00

Running device_to_device_bidirectional_memcpy_read_ce.
memcpy CE GPU(row) <-> GPU(column) Read1 bandwidth (GB/s)
           0         1
 0       N/A    392.00
 1    391.00       N/A

SUM device_to_device_bidirectional_memcpy_read_ce_read1 783.00

memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)
           0         1
 0       N/A    784.00
 1    782.00       N/A

SUM device_to_device_bidirectional_memcpy_read_ce_total 1566.00

NOTE: The reported results may not reflect the full capabilities of the platform.
Performance can vary with software drivers, hardware clocks, and system topology.
"""


def recorded(name: str) -> dict[str, object]:
    error = RECORDED / f"{name}.err"
    rc = int((RECORDED / f"{name}.rc").read_text())
    return parse((RECORDED / f"{name}.txt").read_text(), rc, err=error.read_text() if error.is_file() else "")


@pytest.mark.parametrize(("name", "tests"), [("all", 18), ("all-json", 18), ("all-mean", 18), ("verbose", 1), ("h2d", 1), ("small", 18)])
def test_whole_recordings_are_measured(name: str, tests: int) -> None:
    found = recorded(name)
    assert (found["outcome"], found["reason"]) == ("measured", None)
    assert found["version"] == "v0.8" and len(found["tests"]) == tests
    assert found["devices"] == [{"index": 0, "name": "NVIDIA H100 80GB HBM3", "bdf": "00000000:00:06"}]


def test_text_and_json_say_the_same() -> None:
    text, told = recorded("all"), recorded("all-json")
    assert set(text["tests"]) == set(told["tests"]) and text["waived"] == told["waived"] == 17
    assert text["tests"]["host_to_device_memcpy_ce"]["matrix"] == [[52.67]] and text["tests"]["host_device_latency_sm"]["unit"] == "ns"


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("badtest", "usage", "ERROR: Testcase nonsense not found!"),
        ("badopt", "usage", "Invalid Arguments"),
        ("killed", "tool_failed", "nvbandwidth ended with status 137 and said nothing"),
        ("nogpu", "tool_failed", "nvbandwidth ended with status 1: [CUDA_ERROR_NO_DEVICE] no CUDA-capable device is detected"),
        ("nomem", "tool_failed", "nvbandwidth ended with status 1"),
        ("list", "incomplete_output", "its last lines are missing"),
    ],
)
def test_traps_of_the_program_are_no_measurement(name: str, code: str, words: str) -> None:
    found = recorded(name)
    assert (found["outcome"], found["reason_code"]) == ("error", code) and words in str(found["reason"])


def test_several_gpus_and_several_matrices_of_a_test() -> None:
    found = parse(TWO)
    assert (found["outcome"], found["reason"]) == ("measured", None)
    assert found["tests"]["host_to_device_memcpy_ce"]["matrix"] == [[55.37, 55.36]]
    assert found["tests"]["device_to_device_bidirectional_memcpy_read_ce_total"]["matrix"] == [[None, 784.0], [782.0, None]]


def test_the_recording_of_two_gpus_has_their_matrices() -> None:
    found = recorded("two-gpus")
    assert (found["outcome"], found["reason"]) == ("measured", None) and len(found["devices"]) == 2
    assert found["tests"]["device_to_device_memcpy_write_ce"]["matrix"] == [[None, 397.44], [397.44, None]]
    assert found["tests"]["device_to_device_bidirectional_memcpy_read_ce_total"]["sum"] == 1563.01
    assert len(found["tests"]) == 20


def test_the_json_of_two_gpus_has_three_matrices_in_one() -> None:
    """It lists them one below the other, with the sum of the last."""
    found, text = recorded("two-gpus-json"), recorded("two-gpus")
    assert (found["outcome"], found["reason"]) == ("measured", None) and len(found["tests"]) == 20
    for name in ("read_ce_read1", "read_ce_read2", "read_ce_total", "write_ce_write1", "write_ce_total"):
        test = f"device_to_device_bidirectional_memcpy_{name}"
        assert found["tests"][test]["sum"] == pytest.approx(text["tests"][test]["sum"], rel=0.01)
    wrong = (RECORDED / "two-gpus-json.txt").read_text().replace("390.825", "340.825")
    assert parse(wrong)["reason_code"] == "bad_output" and "of two ways" in str(parse(wrong)["reason"])


def test_an_old_version_has_its_note_at_the_beginning() -> None:
    text = (
        "nvbandwidth Version: v0.5\nBuilt from Git version: v0.5\n\nNOTE: This tool reports current measured bandwidth on your system.\n"
        "\nCUDA Runtime Version: 12040\n\nDevice 0: NVIDIA A10\n\nRunning host_to_device_memcpy_ce.\n"
        "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n           0\n 0     25.17\n\nSUM host_to_device_memcpy_ce 25.17\n"
    )
    assert parse(text)["outcome"] == "measured"


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("SUM host_to_device_memcpy_ce 110.73\n", "", "bad_output"),
        ("110.73", "120.73", "bad_output"),
        ("55.37     55.36", "55.37", "bad_output"),
        ("55.37     55.36", "-1.00    111.73", "bad_output"),
        ("55.37     55.36", "nan     55.36", "bad_output"),
        ("55.37     55.36", " 0.00    110.73", "bad_output"),
        ("NOTE: The reported", "", "incomplete_output"),
        ("nvbandwidth Version: v0.10.0\n", "", "bad_output"),
        ("SUM device", " Invalid value when checking the pattern at 0x7f\nSUM device", "wrong_results"),
        ("SUM device", "[CUDA_ERROR_ECC_UNCORRECTABLE] uncorrectable\nSUM device", "tool_failed"),
        ("SUM device_to_device_bidirectional_memcpy_read_ce_total", "SUM host_to_device_memcpy_ce", "bad_output"),
    ],
)
def test_what_is_broken_is_no_measurement(old: str, new: str, code: str) -> None:
    found = parse(TWO.replace(old, new, 1))
    assert (found["outcome"], found["reason_code"]) == ("error", code), found["reason"]


def test_status_and_needed_tests() -> None:
    assert parse(TWO, 1, err="boom")["reason"] == "nvbandwidth ended with status 1: boom"
    assert parse(TWO, tests=["device_to_host_memcpy_ce"])["reason_code"] == "unsupported"
    assert parse(TWO, tests=["host_to_device_memcpy_ce"])["outcome"] == "measured"
    assert parse(None)["reason_code"] == parse("")["reason_code"] == "bad_output"
    assert parse(TWO + TWO)["reason"] == "the text has the outputs of several runs"


@pytest.mark.parametrize("status", ["Not Found", "Error", "Running", "Failed", None, 3])
def test_a_test_of_the_json_that_did_not_pass_is_no_measurement(status: object) -> None:
    root = json.loads((RECORDED / "all-json.txt").read_text())
    root["nvbandwidth"]["testcases"][0]["status"] = status
    assert parse(json.dumps(root))["outcome"] == "error"


def test_a_cut_text_is_never_measured() -> None:
    told = (RECORDED / "all-json.txt").read_text()
    last = ALL.index("NOTE: The reported")
    assert parse((RECORDED / "killed.txt").read_text())["reason_code"] == "incomplete_output"
    for cut in range(0, last, 37):
        assert parse(ALL[:cut])["outcome"] == "error", cut
    for cut in range(0, len(told.rstrip()) - 1, 97):
        assert parse(told[:cut])["outcome"] == "error", cut


def test_a_changed_digit_is_noticed_in_most_places() -> None:
    source, wrong = random.Random(3), 0
    places = [n for n, char in enumerate(TWO) if char.isdigit() and TWO.index("Running") < n < TWO.index("NOTE")]
    for place in places:
        digit = source.choice([d for d in "0123456789" if d != TWO[place]])
        found = parse(TWO[:place] + digit + TWO[place + 1 :])
        before = parse(TWO)["tests"]
        wrong += found["outcome"] == "measured" and found["tests"] != before
    # A column's or a row's number, a last digit within the rounding, and the coefficient of variation are not held by anything.
    assert wrong <= 12


OLD = """nvbandwidth Version: v0.2
Built from Git version:

NOTE: This tool reports current measured bandwidth on your system.
Additional system-specific tuning may be required to achieve maximal peak bandwidth.

CUDA Runtime Version: 12000
CUDA Driver Version: 12020
Driver Version: 535.161.08

Device 0: NVIDIA H100 80GB HBM3

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
          0
0     55.63

SUM host_to_device_memcpy_ce 55.63

Waiving device_to_device_memcpy_read_ce.

"""


def test_versions_up_to_0_4_say_waiving_with_the_name() -> None:
    """nvbandwidth.cpp, runTestcase, of the tags v0.1 to v0.4."""
    read = parse(OLD)
    assert read["outcome"] == "measured" and read["waived"] == 1 and list(read["tests"]) == ["host_to_device_memcpy_ce"]
    assert [device["name"] for device in read["devices"]] == ["NVIDIA H100 80GB HBM3"]
    needed = parse(OLD, tests=["device_to_device_memcpy_read_ce"])
    assert (needed["outcome"], needed["reason_code"]) == ("error", "unsupported"), "what was waived has not passed"
    alone = OLD.replace(OLD[OLD.index("Running") : OLD.index("Waiving")], "")
    assert parse(alone)["waived"] == 1 and parse(alone)["tests"] == {}
    cut = OLD.replace(OLD[OLD.index("memcpy CE") : OLD.index("Waiving")], "")
    assert parse(cut)["reason_code"] == "incomplete_output"
