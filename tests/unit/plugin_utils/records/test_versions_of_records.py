# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records of other schemas, and runs of other versions, are refused in one sentence that names the versions."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.past import Past
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import folders
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import measurement, versions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats

RUN = "20260101T000000Z-0a1b2c"


@pytest.fixture(autouse=True)
def _ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "version", lambda: "1.0.3")


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"schema": "plan/v1"}, ""),
        ({"schema": "plan/v2", "collection_version": "2.1.0"},
         "found schema plan/v2 of gpufleet.acceptance 2.1.0, expected plan/v1, which gpufleet.acceptance 1.0.3 reads; "
         "update the collection"),
        ({"schema": "plan/v0"},
         "found schema plan/v0, expected plan/v1, which gpufleet.acceptance 1.0.3 reads; read it with the version that wrote it"),
        ({"schema": "report/v2"}, ""), ({"schema": 7}, ""), ({}, ""), ([], ""), (None, ""),
    ],
)  # fmt: skip
def test_a_record_of_another_schema_is_named(record: t.Any, expected: str) -> None:
    assert versions.problem(record, "plan/v1") == expected
    assert versions.problem_of_text(json.dumps(record), "plan/v1") == expected


def test_what_is_no_json_is_of_no_other_version() -> None:
    assert versions.problem_of_text(b"{", "plan/v1") == "" and versions.problem_of_text("[" * 100_000, "plan/v1") == ""


@pytest.mark.parametrize(
    ("version", "remaining", "refused"),
    [("1.0.0", 3, False), ("1.0.9", 3, False), ("1.1.0", 3, True), ("0.1.0", 3, True), ("0.1.0", 0, False), ("", 1, True)],
)
def test_only_versions_that_differ_in_the_last_number_measure_for_one_run(version: str, remaining: int, refused: bool) -> None:
    reason = versions.why_not_resumed(version, remaining)
    assert bool(reason) == refused and (not refused or f"left {remaining} checks unmeasured; 1.0.3 does not measure them" in reason)


def test_a_plan_of_a_newer_version_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / RUN).mkdir()
    (tmp_path / RUN / "plan.json").write_text('{"schema": "plan/v3"}')
    with pytest.raises(RunError, match=rf"^run {RUN}: plan\.json: found schema plan/v3, expected plan/v1.*; update the collection$"):
        Run(tmp_path, RUN).plan()


def test_a_measurement_of_a_newer_version_is_refused() -> None:
    assert "found schema measurement/v2, expected measurement/v1" in (measurement.problem({"schema": "measurement/v2"}) or "")


def test_a_report_of_a_newer_version_is_refused_by_readers_and_console(tmp_path: pathlib.Path) -> None:
    (tmp_path / RUN).mkdir()
    path = tmp_path / RUN / "report.json"
    path.write_text('{\n "schema": "report/v2",\n "accepted": true\n}\n')
    with pytest.raises(RunError, match=r"^report\.json: found schema report/v2, expected report/v1"):
        formats.head(path, ("accepted",))
    for ask in (Past(str(tmp_path)).head, Past(str(tmp_path)).causes):
        with pytest.raises(HistoryError, match=rf"^run {RUN}: report\.json: found schema report/v2"):
            ask(RUN)


def test_verdicts_of_a_newer_version_are_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "verdicts.jsonl").write_text('{"schema": "verdict/v2"}\n')
    with pytest.raises(HistoryError, match=r"^verdicts\.jsonl: found schema verdict/v2, expected verdict/v1"):
        folders._verdicts(tmp_path)
