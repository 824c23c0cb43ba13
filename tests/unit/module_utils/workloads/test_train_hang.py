# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage train says where the process of a GPU is that does not go on, before it ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import train

# The process of a GPU: with or without a faulthandler that answers.
CODE = """
import sys
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.stacks import answer_with_stacks
if sys.argv[1] == "armed":
    answer_with_stacks(2)
def spin():
    print("ready", flush=True)
    while True:
        pass
spin()
"""


HOW = [("armed", "it was at spin (<string>:"), ("mute", "in state R"), ("stopped", "stopped by a signal")]


@pytest.mark.parametrize(("how", "words"), HOW)
def test_a_process_that_hangs_is_named_with_its_place_and_ended(monkeypatch: pytest.MonkeyPatch, how: str, words: str) -> None:
    said: list[dict[str, t.Any]] = []
    monkeypatch.setattr(train, "say", lambda **record: said.append(record))
    monkeypatch.setattr(train, "relay", said.append)
    hung = object.__new__(train.GpuProcess)
    hung.number, hung.check, hung.alive = 3, 0, True
    hung.process = subprocess.Popen([sys.executable, "-c", CODE, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with hung.process as process:
        assert process.stdout and process.stdout.readline() == b"ready\n"
        if how == "stopped":
            os.kill(process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        hung.ask_stacks()
        hung.hung("its process said nothing for 60 s", time.monotonic() + (30 if how == "armed" else 0.1))
        assert process.wait(30) == -signal.SIGKILL
    stacks, fault = said
    assert fault["code"] == "timeout" and fault["reason"].startswith("its process said nothing for 60 s and was ended; it was ")
    assert words in fault["reason"], (fault, stacks)
    assert stacks["device"] == 3 and ("in spin" in stacks["text"]) == (how == "armed")
