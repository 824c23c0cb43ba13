# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated fleet of `make console`, wherever the checkout and its virtual environment are."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest
from rigs.simulated import laptop_fleet

WORDS = "import json, os, socket; print(json.dumps([socket.gethostname(), os.listdir('/tmp')]))"


def test_a_node_finds_its_python_behind_links_below_tmp(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is if `.venv` of a worktree below /tmp is a link to that of another one: each node has a /tmp of its own."""
    if why := laptop_fleet.lacking():
        pytest.skip(why)
    with contextlib.ExitStack() as folders:
        linking, linked, unneeded = (pathlib.Path(folders.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))) for _each in range(3))
        (linked / "venv/bin").mkdir(parents=True)
        (linked / "venv/bin/python").symlink_to(os.path.realpath(sys.executable))
        (linking / "venv").symlink_to(f"../{linked.name}/venv")
        monkeypatch.setattr(sys, "executable", str(linking / "venv/bin/python"))
        fleet = laptop_fleet.build(tmp_path / "fleet").parent
        done = subprocess.run([fleet / "h200-01/python", "-c", WORDS], check=False, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        name, below_tmp = json.loads(done.stdout)
        assert name == "h200-01"
        assert {linking.name, linked.name} <= set(below_tmp)
        assert unneeded.name not in below_tmp
