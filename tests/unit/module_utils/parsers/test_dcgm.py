# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of `dcgmi diag -j` in the forms of versions 3 and 4, and what is no result."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import dcgm
from harness.dcgm_output import PASS, v3, v4


def test_version_4_with_its_warnings_and_metadata() -> None:
    warning = {"error_category": 8, "error_id": 29, "error_severity": 5, "warning": "A  double bit error\nwas found."}
    parsed = dcgm.parse(v4({"memory": [PASS, {"status": "Fail", "warnings": [warning]}], "pcie": [PASS, PASS]}), rc=226)
    assert parsed["outcome"] == "measured" and (parsed["version"], parsed["driver"]) == ("4.2.3", "570.148.08")
    assert {name: test["status"] for name, test in parsed["tests"].items()} == {"memory": "fail", "pcie": "pass"}
    assert parsed["tests"]["memory"]["results"][1] == {
        "gpus": [1], "entity": "GPU", "status": "fail", "warnings": ["A double bit error was found."], "info": [],
    }  # fmt: skip


def test_version_3_has_its_deployment_as_software_and_the_names_of_version_4() -> None:
    parsed = dcgm.parse(v3(GPU_Memory=[{"gpu_id": "0", "status": "Skip"}], Diagnostic=[{"gpu_id": "0", "status": "Pass"}]))
    assert parsed["outcome"] == "measured" and parsed["version"] == "3.3.5"
    assert {name: test["status"] for name, test in parsed["tests"].items()} == {"software": "pass", "memory": "skip", "diagnostic": "pass"}
    assert [result["gpus"] for result in parsed["tests"]["software"]["results"]] == [[0, 1], [0, 1]]


def _document(tests: t.Any) -> str:
    categories = [{"category": "Deployment", "tests": tests}]
    return json.dumps({"DCGM GPU Diagnostic": {"test_categories": categories, "version": "3.1.0"}})


def test_null_between_tests_is_no_test() -> None:
    """DCGM 3.1 prints it."""
    tests = [{"name": name, "results": [{"gpu_ids": "0,1", "status": "PASS"}]} for name in ("Denylist", "NVML Library")]
    parsed = dcgm.parse(_document([tests[0], None, tests[1], None]))
    assert parsed["outcome"] == "measured" and parsed["tests"] == dcgm.parse(_document(tests))["tests"]
    assert dcgm.parse(_document([None, None]))["reason_code"] == "bad_output", "no test"
    for other in (3, "x", [], False):
        assert dcgm.parse(_document([*tests, other]))["reason_code"] == "bad_output"
    assert dcgm.parse(_document([{**tests[0], "results": [None]}]))["reason_code"] == "bad_output", "a result that is missing"


@pytest.mark.parametrize(
    ("text", "rc", "code", "words"),
    [
        ("", 1, "tool_failed", "status 1 and said nothing"),
        ("Error: unable to establish a connection to the specified host: localhost", 255, "tool_failed", "unable to establish"),
        (v4({"memory": [PASS]})[:200], 0, "incomplete_output", "no whole JSON"),
        (v4({"memory": [PASS]})[:200], -9, "tool_failed", "status -9"),
        ("all is well", 0, "bad_output", "no whole JSON: all is well"),
        ("[1]", 0, "bad_output", "no whole JSON"),
        ('{"DCGM": {}}', 0, "bad_output", "neither 'DCGM Diagnostic'"),
        ('{"DCGM Diagnostic": {"test_categories": []}}', 0, "bad_output", "ran no test"),
        ('{"DCGM Diagnostic": {"test_categories": 3}}', 0, "bad_output", "no list of objects"),
        ('{"DCGM Diagnostic": {"runtime_error": "no GPU"}}', 1, "tool_failed", "no GPU"),
        (v4({"memory": [PASS]}, runtime_error="it was stopped"), 0, "incomplete_output", "did not come to its end: it was stopped"),
        (v4({"memory": [{"status": "Splendid"}]}), 0, "bad_output", "has the status 'Splendid'"),
        (v4({"memory": [PASS]}), 3, "tool_failed", "status 3 although no test failed"),
        (7, 0, "bad_output", "found int"),
    ],
)
def test_what_is_no_result_has_its_reason(text: t.Any, rc: int, code: str, words: str) -> None:
    parsed = dcgm.parse(text, rc)
    assert (parsed["outcome"], parsed["reason_code"]) == ("error", code) and words in parsed["reason"]
