# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

import os
import pathlib
import stat
import sys
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import launching
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import live_output
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node


def path() -> str:
    return f"/tmp/gpufleet-acceptance-{os.urandom(16).hex()}"


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[live_output.LiveOutput]:
    monkeypatch.setattr(live_output, "WRITE_S", 0.0)
    records: list[t.Any] = []
    file = path()
    made = live_output.new(lambda kind, **fields: records.append((kind, fields)), file)
    assert made and records == [("output", {"path": file})]
    os.unlink(file)
    yield made
    os.close(made.handle)


def text(live: live_output.LiveOutput) -> str:
    return os.pread(live.handle, 1 << 20, 0).decode()


def test_a_tool_that_runs_shows_its_command_and_its_last_whole_lines(live: live_output.LiveOutput) -> None:
    seen: list[str] = []
    node = Node(60.0)
    node.live = live
    program = "import sys, time\nfor n in range(4000): print('line', n)\nsys.stdout.flush(); time.sleep(0.3); sys.exit('last')"
    tick = live.tick
    live.tick = lambda is_last=False: (tick(is_last), seen.append(text(live)))[0]  # type: ignore[method-assign]
    assert node.run([sys.executable, "-c", program], timeout=20).rc == 1
    assert len(text(live)) <= live_output.LIMIT and max(map(len, seen)) <= live_output.LIMIT
    command, first, *_lines, last = text(live).splitlines()
    assert command.startswith(f"$ {sys.executable} -c import sys") and first.startswith("line ") and last == "last"
    assert any(shown.endswith("line 3999\n") for shown in seen), "while it runs"


def test_a_short_query_does_not_hide_the_test_before_it(live: live_output.LiveOutput, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(60.0)
    node.live = live
    node.run(["echo", "the test"], timeout=20)
    monkeypatch.setattr(live_output, "WRITE_S", 30.0)
    node.run(["echo", "a query"], timeout=20)
    assert text(live) == "$ echo the test\nthe test\n"


def test_tools_that_run_together_share_the_file(live: live_output.LiveOutput, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.out").write_bytes(b"x" * live_output.LIMIT + b"\nof a\n")
    one = live.begin(["a"], lambda most: live_output.end_of_file(str(tmp_path / "a.out"), most))
    two = live.begin(["b"], lambda most: live_output.end_of_file(str(tmp_path / "none"), most))
    live.tick()
    assert text(live) == "$ a\nof a\n$ b\n"
    one.end()
    live.tick()
    assert text(live) == "$ b\n"
    two.end()


def test_a_launch_over_nodes_shows_what_its_programs_write_to_files(live: live_output.LiveOutput, tmp_path: pathlib.Path) -> None:
    node = Node(60.0)
    node.live = live
    command = launching.LaunchCommand(["sh", "-c", "echo ranks; echo warning >&2; sleep 0.3"], {})
    launching.run([launching.Job([command], [], 1, 20.0, str(tmp_path / "job"))], node, 1)
    assert text(live).splitlines()[1:] == ["warning", "ranks"]


@pytest.mark.parametrize("wrong", ["", "/etc/passwd", "/tmp/gpufleet-acceptance-../../etc/x", "/nowhere/x"])
def test_no_other_file_is_ever_made(wrong: str) -> None:
    assert live_output.new(lambda *_kind, **_fields: None, wrong) is None


def test_a_file_that_somebody_made_before_is_left_alone() -> None:
    file = pathlib.Path(path())
    file.write_text("another's")
    try:
        assert live_output.new(lambda *_kind, **_fields: None, str(file)) is None
        assert file.read_text() == "another's"
    finally:
        file.unlink()


def test_the_file_is_there_while_a_probe_works_and_goes_with_it(tmp_path: pathlib.Path) -> None:
    file = path()

    def probe(_params: dict[str, t.Any], node: Node) -> t.Iterator[dict[str, t.Any]]:
        node.run(["sh", "-c", "echo working; sleep 1.3"], timeout=20)
        mode = os.stat(file)
        words = pathlib.Path(file).read_text()
        yield observation.measured("a", metrics={}, context={"seen": words, "mode": stat.S_IMODE(mode.st_mode)})

    params = {name: option.get("default") for name, option in runner.COMMON.items()}
    params.update(state_dir=str(tmp_path / "state"), timeout=30.0, checks=[], run={"run_id": "r", "stage": "s", "output": file})
    answer = runner.perform(probe, params, "s")
    seen = answer["observations"][0]["context"]
    assert seen["seen"] == "$ sh -c echo working; sleep 1.3\nworking\n" and seen["mode"] == 0o600
    end = time.monotonic() + 10
    while os.path.exists(file) and time.monotonic() < end:
        time.sleep(0.05)
    assert not os.path.exists(file) and not (tmp_path / "state").exists()
