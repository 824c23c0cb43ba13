# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

import json
import os
import pathlib
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import heartbeat, live_output
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import live
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.ssh import heartbeats
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import mailbox
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import file_name
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Run:
    run = Run(tmp_path, "20261127T100000Z-aaaaaa")
    run.mailbox.folder.mkdir(parents=True)
    return run


def shown(run: Run, node: str) -> live.Output:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        output = live.look(run, node)
        assert output is not None
        if output.at:
            return output
        time.sleep(0.05)
    raise AssertionError(f"nothing came of {node}")


def host(name: str, output: str, *reach: str) -> heartbeats.Host:
    return heartbeats.Host(name, reach, "", False, "gemm", output)


def test_the_file_of_a_node_differs_by_run_stage_and_host_and_can_be_made_there() -> None:
    paths = {live.path_on_node(*of) for of in (("r", "s", "h"), ("r2", "s", "h"), ("r", "s2", "h"), ("r", "s", "h2"))}
    assert len(paths) == 4 and all(heartbeat.PATH.fullmatch(path) for path in paths)


def test_ssh_hosts_and_other_planes_use_the_same_files_and_times() -> None:
    names = [kind.name.format(target="") for kind in (mailbox.HEARTBEAT, mailbox.LOOK, mailbox.LIVE)]
    assert names == [heartbeats.SUFFIX, heartbeats.LOOK, heartbeats.LIVE]
    assert (heartbeats.LOOKS_S, heartbeats.ANSWER_S, heartbeats.OUTPUT_LIMIT) == (live.LOOKS_S, live.ANSWER_S, live_output.LIMIT)


def test_only_a_node_that_somebody_looks_at_is_fetched(run: Run) -> None:
    fetched: list[str] = []

    def fetch(node: str) -> str | None:
        fetched.append(node)
        return "".join(f"line {number}\n" for number in range(1000)) + "x" * 9999 if node == "c/b" else None

    with live.answering(run.mailbox, "gemm", fetch):
        output = shown(run, "c/b")
        end = time.monotonic() + 120
        while "c/of another host" not in fetched and time.monotonic() < end:
            live.look(run, "c/of another host")
            time.sleep(0.05)
    assert set(fetched) == {"c/b", "c/of another host"}, "of 2,000 nodes none but these"
    assert output.stage == "gemm" and time.time() - output.at < 120 and not output.problem
    assert len(output.lines) == live.LINES and output.lines[-2] == "line 999" and len(output.lines[-1]) == live.CHARACTERS
    assert live.look(run, "c/of another host") == live.Output()


def test_nobody_is_answered_who_looks_no_more(run: Run) -> None:
    live.look(run, "a")
    assert [node for node, _file in live.wanted(run.mailbox)] == ["a"]
    old = time.time() - live.LOOKS_S - 1
    os.utime(run.mailbox.path(mailbox.LOOK, target="a"), (old, old))
    assert not list(live.wanted(run.mailbox)) and not heartbeats.is_due(run.mailbox.folder, "a")


def test_a_reason_is_shown_if_the_output_cannot_be_had(run: Run) -> None:
    def fetch(node: str) -> str:
        if node == "a":
            raise ReasonedError("no_permission", "pods/exec is not allowed")
        raise ZeroDivisionError

    with live.answering(run.mailbox, "gemm", fetch):
        assert shown(run, "a").problem == "pods/exec is not allowed"
        assert shown(run, "b").problem == "ZeroDivisionError"


@pytest.mark.parametrize("wrong", ["", "{}", "[]", '{"stage": 1, "at": "x", "text": "", "problem": ""}', "\x00"])
def test_a_broken_answer_is_said_and_raises_nothing(run: Run, wrong: str) -> None:
    run.mailbox.path(mailbox.LIVE, target="a").write_text(wrong)
    output = live.look(run, "a")
    assert output and not output.lines and output.problem.endswith("in a.live")


def test_a_run_that_nobody_drives_has_none_and_gets_no_file(tmp_path: pathlib.Path) -> None:
    assert live.look(Run(tmp_path, "20261127T100000Z-bbbbbb"), "a") is None and not list(tmp_path.iterdir())


def test_a_machine_shows_the_end_of_the_file_through_its_connection(run: Run, tmp_path: pathlib.Path) -> None:
    (tmp_path / "out").write_bytes(b"x" * 20000 + b"\nlast \xff\n")
    node, folder = "gpu/1", run.mailbox.folder
    stem = file_name(node)
    assert not heartbeats.is_due(folder, stem)
    live.look(run, node)
    assert heartbeats.is_due(folder, stem)
    heartbeats.answer(folder, stem, host(node, str(tmp_path / "out"), "env"))
    output = live.look(run, node)
    assert output and output.stage == "gemm" and output.lines[-1] == "last \ufffd" and not output.problem
    assert not heartbeats.is_due(folder, stem), "the next answer is due in a while"


@pytest.mark.parametrize(
    ("reach", "words"),
    [
        ((), "no tool has run for a second yet"), (("sh", "-c", "exit 255", "ssh"), "h cannot be reached beside Ansible's connection"),
        (("/nowhere/ssh",), "/nowhere/ssh: No such file or directory"),
    ],
)  # fmt: skip
def test_a_machine_without_output_says_why(reach: tuple[str, ...], words: str) -> None:
    assert host("h", "/nowhere/file", *reach).last_output() == ("", words)


def test_a_machine_that_prints_for_ever_fills_nothing() -> None:
    text, problem = host("h", "", "sh", "-c", "yes", "ssh").last_output()
    assert len(text) == live_output.LIMIT and not problem


def test_the_process_that_keeps_probes_alive_answers_for_its_hosts(run: Run, tmp_path: pathlib.Path) -> None:
    (tmp_path / "out").write_text("at work\n")
    file = run.mailbox.path(mailbox.HEARTBEAT, target="a")
    heartbeats.write(file, host("a", str(tmp_path / "out")))
    assert heartbeats.read(file) == host("a", str(tmp_path / "out"))
    keeper = heartbeats.Keeper(run.mailbox.folder, os.getpid(), -1, -1, "")
    live.look(run, "a")
    live.look(run, "no such host")
    keeper._answer()
    for answer in keeper.answering.values():
        t.cast("t.Any", answer).result(20)
    assert list(keeper.answering) == ["a"]
    output = live.look(run, "a")
    assert output and output.lines == ["at work"]


def test_a_heartbeat_file_of_an_earlier_version_is_read(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.heartbeat").write_text(json.dumps({"name": "a", "reach": ["ssh"], "path": "/tmp/x", "outlives": True}))
    assert heartbeats.read(tmp_path / "a.heartbeat") == heartbeats.Host("a", ("ssh",), "/tmp/x", True)
