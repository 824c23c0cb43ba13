# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that other programs read have bounds, say what they leave out, and never look better than the run."""

from __future__ import annotations

import collections
import json
import typing as t
from xml.etree import ElementTree

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Word
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats, listing, model
from harness import report_samples as samples


def built(words: t.Mapping[str, t.Mapping[Word, int]]) -> t.Any:
    """Return the report of checks with so many subjects of each verdict."""
    names = [f"n{n:05}" for n in range(max(sum(of.values()) for of in words.values()))]
    verdicts = [
        samples.verdict(name, "gemm", check, word, value=700.0, unit="TFLOPS", floor=600.0, metric="tflops", reason=f"{name}: {word}")
        for check, of in words.items()
        for name, word in zip(names, (word for word, count in of.items() for _one in range(count)), strict=False)
    ]
    return model.build(samples.plan(names, ["gemm"]), samples.judgement(verdicts))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "ROWS", 100)


def test_a_run_of_a_hundred_nodes_is_listed_whole() -> None:
    made = built({"bf16": {"FAIL": 1, "PASS": 99}})
    assert made["unlisted"] is None
    assert [len(check["rows"]) for check in json.loads(formats.as_json(made))["stages"][0]["checks"]] == [100]
    assert "all other subjects" not in formats.junit(made) and "gpufleet_acceptance_unlisted_rows" in formats.prometheus(made)


@pytest.mark.usefixtures("few")
def test_of_a_large_run_all_that_is_not_a_pass_is_listed_and_the_rest_is_counted() -> None:
    made = built({"bf16": {"FAIL": 3, "UNKNOWN": 2, "SKIPPED": 1, "PASS": 100}, "fp8": {"WARN": 4, "PASS": 60}, "tf32": {"PASS": 50}})
    assert made["unlisted"]["rows"] == 210 and made["unlisted"]["of"] == 220 and made["unlisted"]["pairs"] == 0
    said = made["unlisted"]["said"]
    assert "210 of 220 rows (210 PASS)" in said and "verdicts.jsonl" in said and "the journal every number" in said
    read = json.loads(formats.as_json(made))
    assert read["unlisted"] == made["unlisted"]
    checks = {check["check"]: check for check in read["stages"][0]["checks"]}
    assert {name: collections.Counter(row["verdict"] for row in check["rows"]) for name, check in checks.items()} == {
        "bf16": {"FAIL": 3, "UNKNOWN": 2, "SKIPPED": 1}, "fp8": {"WARN": 4}, "tf32": {},
    }  # fmt: skip
    assert {name: (check["unlisted"], check["counts"]["PASS"]) for name, check in checks.items()} == {
        "bf16": (100, 100), "fp8": (60, 60), "tf32": (50, 50),
    }  # fmt: skip
    assert len(read["nodes"]) == 106, "nodes are listed whole"
    assert sum(len(check["rows"]) for check in made["stages"][0]["checks"]) == 220, "the page has them all"

    suite = ElementTree.fromstring(formats.junit(made))[0]
    assert [int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")] == [13, 3, 2, 1] and len(suite) == 13
    counted = {case.attrib["name"]: case for case in suite if "all other subjects" in case.attrib["name"]}
    assert list(counted) == [f"{check}: all other subjects with PASS" for check in ("bf16", "fp8", "tf32")]
    assert [case.find("system-out").text for case in counted.values()] == [f"{count} subjects. {said}" for count in (100, 60, 50)]

    lines = formats.prometheus(made).splitlines()
    assert sum(line.startswith("gpufleet_acceptance_value{") for line in lines) == 10
    assert sum(line.startswith("gpufleet_acceptance_check_summary{") for line in lines) == 9
    assert any(line.startswith("gpufleet_acceptance_check_verdicts{") and 'check="tf32"' in line and line.endswith(" 50") for line in lines)
    assert any(line.startswith("gpufleet_acceptance_unlisted_rows{") and line.endswith(" 210") for line in lines)


@pytest.mark.usefixtures("few")
def test_if_nearly_all_is_bad_the_worst_of_each_check_is_listed_and_what_is_only_counted_stays_bad() -> None:
    made = built({"a": {"UNKNOWN": 300}, "b": {"FAIL": 10, "UNKNOWN": 200}, "c": {"UNKNOWN": 5, "PASS": 7}})
    listed = {check["check"]: collections.Counter(row["verdict"] for row in listing.rows(check)) for check in made["stages"][0]["checks"]}
    assert listed == {"a": {"UNKNOWN": 43}, "b": {"FAIL": 10, "UNKNOWN": 42}, "c": {"UNKNOWN": 5}}
    assert "(415 UNKNOWN, 7 PASS)" in made["unlisted"]["said"]
    suite = ElementTree.fromstring(formats.junit(made))[0]
    assert int(suite.attrib["errors"]) == 43 + 42 + 5 + 2
    messages = [case.find("error").attrib["message"] for case in suite if "all other subjects with UNKNOWN" in case.attrib["name"]]
    assert messages == ["UNKNOWN: 257 subjects", "UNKNOWN: 158 subjects"]


@pytest.mark.usefixtures("few")
def test_of_many_pairs_those_that_are_not_a_pass_are_listed_and_all_nodes() -> None:
    names = [f"n{n:02}" for n in range(20)]
    pairs = [f"{a}|{b}" for a in names for b in names if a < b]
    verdicts = [samples.verdict(name, "rdma", "ports") for name in names]
    for number, pair in enumerate(pairs):
        subject = {"kind": "pair", "id": pair, "members": []}
        verdicts.append(samples.verdict(pair, "rdma", "write_bw", "FAIL" if number % 50 == 0 else "PASS", subject=subject))
    made = model.build(samples.plan(names, ["rdma"]), samples.judgement(verdicts))
    read = json.loads(formats.as_json(made))
    assert collections.Counter(node["kind"] for node in read["nodes"]) == {"node": 20, "pair": 4}
    assert made["unlisted"]["pairs"] == len(pairs) - 4 and f"{len(pairs) - 4} pairs" in made["unlisted"]["said"]
    assert formats.prometheus(made).count("gpufleet_acceptance_node_verdict{") == 24
