# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many verdicts are compressed, and whoever reads verdicts reads either form."""

from __future__ import annotations

import gzip
import json
import pathlib
import subprocess

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import folders
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import Store, url_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import prepare
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import integrity, verdict_files
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run, facts_of, has_facts, node_file, readable
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import info
from harness import console_memory as memory
from harness import history_runs as runs


@pytest.fixture(params=verdict_files.NAMES)
def judged(request: pytest.FixtureRequest, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(verdict_files, "PACKED_FROM", 2 if request.param == verdict_files.PACKED_NAME else 3)
    run = runs.judged(tmp_path / "results", 1, runs.fleet(a=670.0), acceptance_history=True)
    facts = next(m for m in run.journal.as_data() if has_facts(m))
    (run.dir / "nodes" / node_file("a")).write_text(readable(facts_of(facts)))
    assert [path.name for path in run.dir.glob("verdicts*")] == [request.param]
    return run


def test_a_run_is_verified_imported_and_shown_in_either_form(judged: Run, tmp_path: pathlib.Path) -> None:
    assert "is whole" in integrity.verify(judged)
    assert subprocess.run(["sha256sum", "-c", "report.sha256"], cwd=judged.dir, capture_output=True, check=False).returncode == 0
    with Store(url_of(tmp_path, ""), make=True) as store:
        assert folders.bring(store, str(judged.dir.parent)).new == [judged.id]
    with verdict_files.opened(judged.dir) as lines:
        found = [json.loads(line) for line in lines]
    assert len(found) == 3 and {v["verdict"] for v in found} == {"PASS"} and prepare._unknown(judged) == set()
    assert len(list(info._verdicts(judged.dir, info.Filter()))) == 3
    client = memory.opened(judged.dir.parent).signed_in()
    name = verdict_files.path_in(judged.dir).name
    assert f'/results/{judged.id}/{name}"' in client.get(f"/results/{judged.id}").text
    assert client.get(f"/results/{judged.id}/{name}").content == (judged.dir / name).read_bytes()
    runs.judge(judged)
    (later,) = judged.dir.glob("judged/*/verdicts*")
    assert later.name == name and "2 reports" in integrity.verify(judged)


def test_changed_or_damaged_verdicts_are_named(judged: Run) -> None:
    path = verdict_files.path_in(judged.dir)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(RunError, match=f"report.json is about another {path.name}"):
        integrity.verify(judged)
    if path.name == verdict_files.PACKED_NAME:
        for data in (whole[:-9], whole[:20] + b"xxxx" + whole[24:], b"no gzip"):
            path.write_bytes(data)
            with pytest.raises(OSError, match=r"verdicts|gzip"), verdict_files.opened(judged.dir) as lines:
                list(lines)
        path.write_bytes(gzip.compress(b"no json"))
        with pytest.raises(RunError, match="cannot be read"):
            list(info._verdicts(judged.dir, info.Filter()))
