# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's log as a file: who wrote a line, where it begins, what is lost."""

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import kernel_log


def texts(path: pathlib.Path) -> list[str]:
    log = kernel_log.at_start(str(path))
    assert log
    found = [line.text for line in log.lines()]
    log.close()
    return found


def test_lines_of_others_are_left_out(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("4,7,8000000,-;from the kernel\n SUBSYSTEM=pci\n12,8,9000000,-;from a process\n6,9,9000001,c;with; a semicolon\nbare\n")
    assert texts(path) == ["from the kernel", "with; a semicolon", "bare"]
    log = kernel_log.at_start(str(path))
    assert log
    first, *_others, bare = log.lines()
    assert (first.sequence, first.seconds) == (7, 8.0) and first.when().endswith("Z") and bare.when() == "at an unknown time"
    log.close()


def test_a_line_longer_than_a_read_is_whole(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("".join(f"4,{n},{n},-;{'x' * 3000}{n}\n" for n in range(20)))
    assert [text[-2:] for text in texts(path)] == [f"{n}"[-2:].rjust(2, "x") for n in range(20)]


def test_a_log_opened_at_its_end_reads_only_later_lines(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("4,0,0,-;old\n")
    log = kernel_log.at_end(str(path))
    assert log
    with path.open("a") as more:
        more.write("4,1,1,-;new\n")
    assert [line.text for line in log.lines()] == ["new"] and not log.lost
    log.close()


def test_overwritten_lines_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    log = kernel_log.KernelLog(-1)
    pieces = iter([BrokenPipeError(), b"4,9,9,-;left\n", BlockingIOError()])

    def read(_handle: int, _size: int) -> bytes:
        piece = next(pieces)
        if isinstance(piece, OSError):
            raise piece
        return piece

    monkeypatch.setattr(os, "read", read)
    assert [line.text for line in log.lines()] == ["left"] and log.lost


def test_a_kernel_log_that_is_missing_is_none(tmp_path: pathlib.Path) -> None:
    assert kernel_log.at_start(str(tmp_path / "none")) is None and kernel_log.at_end(str(tmp_path / "none")) is None
