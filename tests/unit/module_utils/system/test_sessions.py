# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What sessions that are over have left on a node, told to whoever asks."""

from __future__ import annotations

import os
import pathlib

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process, sessions
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.session import Ledger, Lock


def test_what_ended_sessions_left_is_told_and_what_a_living_one_holds_is_not(tmp_path: pathlib.Path) -> None:
    state, own = tmp_path / "state", tmp_path / "state-governor"
    assert sessions.pending(str(state)) == []
    for place in (state, own):
        place.mkdir()
    ledger = Ledger(str(state))
    ledger.process(os.getpid())
    ledger.record("folder", path="/scratch/.x", token="x", left=True)
    ledger.record("member", folder="/tmp/y")
    ledger.record("output", path="/tmp/z")
    Ledger(str(own)).record("governor", governor="performance", policies=[])
    assert sessions.pending(str(state)) == ["folder /scratch/.x, which could not be removed", "member /tmp/y", "output /tmp/z", "governor"]
    lock = Lock(str(state))
    assert lock.try_acquire()
    lock.sign(run_id="r", pid=os.getpid(), started=process.start_time(os.getpid()))
    assert sessions.pending(str(state)) == ["governor"]


def test_a_ledger_that_cannot_be_read_is_not_an_empty_one(tmp_path: pathlib.Path) -> None:
    (tmp_path / "ledger.jsonl").mkdir()
    assert sessions.pending(str(tmp_path)) == [f"what {tmp_path}/ledger.jsonl says, which cannot be read: Is a directory"]
