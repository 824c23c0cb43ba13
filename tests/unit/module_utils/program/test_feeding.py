# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program between a controller and its commands, run as it is sent: over pipes, from its text."""

from __future__ import annotations

import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import feeding

TEXT = pathlib.Path(feeding.__file__).read_text(encoding="utf-8")
# It prints how long the text is that it was given, and then lives until its standard input ends.
COUNTING = """import sys
length = int(sys.stdin.buffer.readline()); text = sys.stdin.buffer.read(length)
print("noise"); print("12: other"); print(" 3: gpufleet-x", len(text), text[-3:].decode(), flush=True)
sys.stdin.buffer.read(); print("gpufleet-x end", flush=True)
"""


class Feeder:
    """The program, and what a controller does with it."""

    def __init__(self, files: int = 256, **changed: float) -> None:
        text = TEXT + "".join(f"\n{name} = {value}" for name, value in changed.items()) + "\nmain()\n"
        limited = ["bash", "-c", f'ulimit -Sn {files}; exec "$@"', "-", sys.executable, "-c", text]
        self.process = subprocess.Popen(limited, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def order(self, **order: t.Any) -> None:
        stdin = t.cast("t.IO[str]", self.process.stdin)
        stdin.write(json.dumps(order) + "\n")
        stdin.flush()

    def news(self) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", json.loads(t.cast("t.IO[str]", self.process.stdout).readline() or "{}"))


@pytest.fixture
def feeders() -> t.Iterator[t.Callable[..., Feeder]]:
    made: list[Feeder] = []

    def make(**changed: float) -> Feeder:
        made.append(Feeder(**changed))
        return made[-1]

    yield make
    for feeder in made:
        feeder.process.kill()
        feeder.process.wait()
        for stream in (feeder.process.stdin, feeder.process.stdout):
            with contextlib.suppress(OSError):
                t.cast("t.IO[str]", stream).close()


def test_a_command_gets_common_and_own_text_and_its_lines_come_back(feeders: t.Callable[..., Feeder]) -> None:
    feeder = feeders()
    feeder.order(common="c" * 300_000)
    feeder.order(start="n1", argv=[sys.executable, "-c", COUNTING], own="own")
    assert feeder.news() == {"line": "n1", "text": " 3: gpufleet-x 300003 own"}
    feeder.order(end="n1")
    ended = feeder.news()
    assert ended == {"line": "n1", "text": "gpufleet-x end"}  # it could end in order
    ended = feeder.news()
    assert (ended["ended"], ended["status"], ended["dropped"]) == ("n1", 0, len("noise\n12: other\n"))


def test_a_command_that_takes_no_notice_is_signalled(feeders: t.Callable[..., Feeder]) -> None:
    feeder = feeders(ORDERLY_S=0.5, KILL_S=1.0)
    feeder.order(common="")
    feeder.order(start="told", argv=["bash", "-c", "echo gpufleet-up; exec sleep 60"], own="")
    assert feeder.news()["line"] == "told"
    feeder.order(end="told")
    assert feeder.news()["status"] == -signal.SIGTERM
    feeder.order(start="killed", argv=["bash", "-c", "trap '' TERM; sleep 60 & echo gpufleet-up; wait; wait"], own="")
    assert feeder.news()["line"] == "killed"
    feeder.order(end="killed")
    assert feeder.news()["status"] == -signal.SIGKILL


def test_a_command_that_waits_for_its_turn_is_signalled_at_once(feeders: t.Callable[..., Feeder]) -> None:
    feeder = feeders()
    feeder.order(common="")
    feeder.order(start="n1", argv=["sleep", "60"], own="")
    feeder.order(end="n1")
    assert feeder.news()["status"] in (-1, -signal.SIGTERM)  # before it was started, or as it ran


def test_much_output_and_long_lines_are_dropped_and_counted(feeders: t.Callable[..., Feeder]) -> None:
    feeder = feeders()
    script = "head -c 30000000 /dev/zero; echo; yes gpufleet | head -c 40000000; echo said >&2; exit 3"
    feeder.order(common="")
    feeder.order(start="n1", argv=["bash", "-c", script], own="")
    lines = 0
    while "ended" not in (news := feeder.news()):
        lines += "line" in news
    assert lines == 0 and news["status"] == 3 and news["words"] == "said\n" and news["dropped"] > 69_000_000


def test_a_command_may_print_as_much_as_all_its_answers(feeders: t.Callable[..., Feeder]) -> None:
    feeder = feeders(PASSED_LIMIT=100)
    feeder.order(common="")
    for tasks, passed in ((1, 7), (3, 20)):  # of lines with 15 bytes
        feeder.order(start="n", argv=["bash", "-c", "for n in {1..20}; do echo gpufleet-lines-; done"], own="", tasks=tasks)
        lines = 0
        while "ended" not in feeder.news():
            lines += 1
        assert lines == passed


def test_the_end_of_standard_input_ends_all_after_the_last_command(feeders: t.Callable[..., Feeder], tmp_path: pathlib.Path) -> None:
    feeder = feeders(ORDERLY_S=0.5, KILL_S=1.0)
    feeder.order(common="")
    feeder.order(**{"finally": ["touch", str(tmp_path / "cancelled")]})
    for name in ("n1", "n2"):
        feeder.order(start=name, argv=["bash", "-c", "trap '' TERM; echo gpufleet-up; sleep 60"], own="")
    assert {feeder.news()["line"] for _ in range(2)} == {"n1", "n2"}
    t.cast("t.IO[str]", feeder.process.stdin).close()
    assert feeder.process.wait(60) == 0 and (tmp_path / "cancelled").exists()


@pytest.mark.parametrize(("how", "is_due"), [("kill -9 $$", True), ("exit 3", False)])
def test_the_last_command_runs_behind_one_that_was_killed(
    feeders: t.Callable[..., Feeder], tmp_path: pathlib.Path, how: str, is_due: bool
) -> None:
    feeder = feeders()
    feeder.order(common="")
    feeder.order(**{"finally": ["touch", str(tmp_path / "cancelled")]})
    feeder.order(start="n1", argv=["bash", "-c", how], own="")
    assert feeder.news()["ended"] == "n1"
    t.cast("t.IO[str]", feeder.process.stdin).close()
    assert feeder.process.wait(30) == 0 and (tmp_path / "cancelled").exists() == is_due


def test_silence_ends_all(feeders: t.Callable[..., Feeder]) -> None:
    feeder = feeders(SILENCE_S=1.0)
    feeder.order(common="")
    feeder.order(start="n1", argv=["sleep", "60"], own="")
    assert feeder.process.wait(30) == 0


def test_standard_input_of_commands_ends_with_it(feeders: t.Callable[..., Feeder], tmp_path: pathlib.Path) -> None:
    feeder = feeders()
    feeder.order(common="")
    feeder.order(start="n1", argv=["bash", "-c", f"echo $$ > {tmp_path}/pid; echo gpufleet-up; exec cat"], own="")
    feeder.news()
    feeder.process.kill()
    proc = pathlib.Path("/proc") / (tmp_path / "pid").read_text().strip() / "cmdline"
    until = time.monotonic() + 20
    while proc.exists() and b"cat" in proc.read_bytes():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_as_many_commands_run_as_the_hard_limit_of_open_files_lets(feeders: t.Callable[..., Feeder]) -> None:
    """Login machines let a process have 1024 open files unless it asks for more; each command takes three. Jobs get the limit."""
    feeder = feeders(files=32)
    feeder.order(common="")
    for number in range(30):
        feeder.order(start=str(number), argv=["bash", "-c", "echo gpufleet-$(ulimit -Sn); exec cat"], own="")
    assert [feeder.news().get("text") for _number in range(30)] == ["gpufleet-32"] * 30


def test_a_program_that_is_missing_has_ended(feeders: t.Callable[..., Feeder]) -> None:
    feeder = feeders()
    feeder.order(common="")
    feeder.order(start="n1", argv=["/no/srun"], own="")
    assert feeder.news() == {"ended": "n1", "status": 127, "words": "/no/srun: No such file or directory", "dropped": 0}
