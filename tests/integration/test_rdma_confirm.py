# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Long rounds are confirmed by whoever sits at the terminal, before any host is contacted."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import select
import signal
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOBODY = [{"ansible_host": f"127.0.0.{number}", "ansible_port": 1} for number in (2, 3)]


def dialogue(folder: pathlib.Path, answer: bytes) -> str:
    """Return the output of a run at a terminal that gets this answer."""
    inventory = folder / "hosts.json"
    inventory.write_text(json.dumps({"all": {"hosts": {"x1": NOBODY[0], "x2": NOBODY[1]}}}))
    values = {"acceptance_stages": ["rdma"], "rdma_confirm_above": 1, "acceptance_results_dir": str(folder)}
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        binary = str(ROOT / ".venv/bin/ansible-playbook")
        os.execv(binary, [binary, "acceptance.yml", "-i", str(inventory), "-e", json.dumps(values)])
    said, again = b"", 0.0
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.5)[0]:
            try:
                said += os.read(terminal, 4096)
            except OSError:
                break  # the other end is gone
        if b"Go on? [y/N]" in said and time.monotonic() > again:
            os.write(terminal, answer)  # what is typed before it reads may be thrown away
            again = time.monotonic() + 1
    else:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(terminal)
    return said.decode(errors="replace")


@pytest.mark.parametrize(("answer", "goes_on"), [(b"n\r", False), (b"\r", False), (b"y\r", True)])
def test_long_rounds_are_confirmed(tmp_path: pathlib.Path, answer: bytes, goes_on: bool) -> None:
    said = dialogue(tmp_path, answer)
    assert "The rounds of stage rdma take about" in said
    assert ("was not confirmed" in said) != goes_on
    assert bool(list(tmp_path.glob("*/verdicts.jsonl"))) == goes_on
