# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes with parts that are sent back is collected for the punch list's open rows of parts, and handed over with them."""

from __future__ import annotations

import base64
import json
import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover import punch_list, support
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine import reason
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import sent_back
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

HEADER = "id,state,node,category\n"


def record(name: str, content: bytes = b"text", why: str = "") -> dict[str, t.Any]:
    return {"file": name, "content": base64.b64encode(content).decode(), "complete": not why, "why": why}


def row(**values: str) -> punch_list.Row:
    given = {"node": "a", "category": "part", "state": "open", "opened_at": "2026-01-01T00:00:00Z", "closed_at": "", "id": "P-1", **values}
    return punch_list.Row({**dict.fromkeys(punch_list.COLUMNS, ""), **given}, set(), [], 1)


def test_only_nodes_with_an_open_row_of_a_part_are_asked(tmp_path: pathlib.Path) -> None:
    (tmp_path / "handover").mkdir()
    rows = "P-1,open,a,part\nP-2,done,b,part\nP-3,open,c,configuration\nP-4,open,d|e,part\nP-5,waived,f,part\n"
    (tmp_path / "handover/punch_list.csv").write_text(HEADER + rows)
    found = {host: sent_back.nodes(str(tmp_path), host) for host in "abcdef"}
    assert found == {"a": ["a"], "b": [], "c": [], "d": ["d"], "e": ["e"], "f": []}
    with pytest.raises(RunError, match="expected the punch list of a hand-over"):
        sent_back.nodes(str(tmp_path / "nowhere"), "a")
    assert (sent_back.OPEN, sent_back.PART) == (punch_list.OPEN, reason.PART), "as a hand-over writes them"


def test_files_are_kept_with_their_digests_and_what_is_missing(tmp_path: pathlib.Path) -> None:
    answer = [record("smi.xml"), record("incomplete-x.gz", b"\x1f\x8b", "it was\nended"), {"not_collected": "kernel.log", "why": "no"}]
    path, words = support.keep(tmp_path, "a", answer, 100)
    assert words == ["incomplete-x.gz: it was ended", "kernel.log: no"] and (path / "smi.xml").read_bytes() == b"text"
    (one,) = support.read(tmp_path)
    assert (one.node, one.folder) == ("a", path) and set(one.files) == {"index.json", "smi.xml", "incomplete-x.gz"}
    (path / "smi.xml").write_text("other")
    with pytest.raises(RunError, match=r"smi\.xml: it is not as it was collected"):
        support.read(tmp_path)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ([record("../../etc/passwd")], "no name of a support file"), ([record("a"), record("a")], "there twice"),
        ([record("index.json")], "no name of a support file"), ([record("a", b"x" * 101)], "101 bytes, more than 100"),
        ([{**record("a"), "content": "%%"}], "not in Base64"), ("text", "another form"), (None, "another form"),
        ([{"why": "x"}], "another form"),
        ([record(str(number)) for number in range(100)], "another form"), ([{**record("a"), "not_collected": "b"}], "another form"),
    ],
)  # fmt: skip
def test_what_a_node_makes_up_is_one_error_and_leaves_nothing(tmp_path: pathlib.Path, answer: t.Any, problem: str) -> None:
    with pytest.raises(RunError, match=problem):
        support.keep(tmp_path, "a", answer, 100)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()] and not support.read(tmp_path)


def test_files_belong_to_the_rows_that_were_open_when_they_were_collected(tmp_path: pathlib.Path) -> None:
    one = support.Collected("a", "2026-01-02T00:00:00Z", tmp_path, ())
    assert support.about(row(), [one]) == [one] and support.about(row(node="a|b"), [one]) == [one]
    assert not support.about(row(closed_at="2026-01-01T12:00:00Z"), [one]), "the part that came in its place"
    assert not support.about(row(category="use"), [one]) and not support.about(row(node="b"), [one])
    assert support.said([row()], [], "playbooks/support_files.yml") == [
        "1 open rows of parts without support files: playbooks/support_files.yml collects them"
    ] and not support.said([row()], [one], "")


def test_an_index_of_another_hand_is_one_error(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "support/a/now"
    folder.mkdir(parents=True)
    for index in ({"files": [{"file": "../x", "sha256": ""}]}, {"files": 7}, []):
        (folder / "index.json").write_text(json.dumps(index))
        with pytest.raises(RunError, match="collect again"):
            support.read(tmp_path)
