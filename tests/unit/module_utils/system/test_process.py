# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real children, real signals."""

from __future__ import annotations

import os
import time

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process


def test_a_result_has_output_errors_and_status() -> None:
    result = process.run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout=10)
    assert (result.rc, result.out, result.err) == (3, "out\n", "err\n")
    assert not result.ok and not result.timed_out


def test_merged_output_keeps_its_order() -> None:
    result = process.run(["sh", "-c", "echo a; echo b >&2; echo c"], timeout=10, merge=True)
    assert result.out == "a\nb\nc\n"


def test_standard_input_and_environment() -> None:
    assert process.run(["cat"], timeout=10, stdin="text").out == "text"
    assert process.run(["sh", "-c", "echo $GPUFLEET"], timeout=10, env={"GPUFLEET": "x"}).out == "x\n"


def test_deadline_ends_the_whole_group_and_keeps_what_was_printed() -> None:
    pids: list[int] = []
    result = process.run(
        ["sh", "-c", "trap '' TERM; echo begun; sleep 100 & sleep 100"], timeout=3, on_start=pids.append
    )
    assert result.timed_out and result.out == "begun\n" and result.rc is not None and result.rc < 0
    assert not process.descendants(pids[0]) and process.start_time(pids[0]) is None


def test_a_child_left_in_the_background_is_ended_and_does_not_hold_us() -> None:
    result = process.run(["sh", "-c", "sleep 100 & echo $!"], timeout=50)
    assert result.ok and not result.timed_out
    assert process.wait_gone(int(result.out), process.start_time(int(result.out)), 60)


def test_a_program_that_cannot_be_started_says_why(tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert process.run(["/no/such/tool"], timeout=1).missing == "not found"
    plain = tmp_path / "tool"
    plain.write_text("#!/bin/sh\n")
    assert process.run([str(plain)], timeout=1).missing == "not executable"


def test_endless_output_is_counted_and_not_kept() -> None:
    result = process.run(["sh", "-c", "head -c 3000000 /dev/zero"], timeout=30, limit=1000)
    assert len(result.out) == 1000 and result.dropped == 2999000 and result.ok


def test_a_pid_alone_is_not_a_process() -> None:
    started = process.start_time(os.getpid())
    assert started is not None and process.is_alive(os.getpid(), started)
    assert not process.is_alive(os.getpid(), started + 1)
    assert not process.is_alive(os.getpid(), None)


def test_a_child_whose_parent_is_killed_before_it_asks_for_the_signal_does_not_live_on() -> None:
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            me = os.getpid()
            if os.fork() == 0:
                while os.getppid() == me:
                    time.sleep(0.01)
                process.die_with(me)
                os.write(writing, b"lives")
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(parent, 0)
    with open(reading, "rb") as said:
        assert said.read() == b""
