# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The console's API from its own document alone, by a program that knows nothing else of it."""

from __future__ import annotations

import pathlib
import subprocess

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import auth, settings
from harness import console_memory as memory
from harness import history_runs as runs
from rigs import api_tester

TOKEN = "a-token-of-a-program"


def test_the_api_keeps_what_its_document_promises(tmp_path: pathlib.Path) -> None:
    for day in (1, 2):
        runs.judged(tmp_path / "results", day, runs.fleet(a=672.0, b=671.0), acceptance_history=True)
    quick = settings.CallLimits(rate=1e6, burst=10**6, changes=1e6, changes_burst=10**6)
    login = auth.LocalLogin("tester", lambda _code: None, TOKEN)
    console = memory.opened(tmp_path / "results", login, hosts=frozenset(), limits=quick)
    with memory.serving(console.app) as port:
        address = f"http://127.0.0.1:{port}/api/v1/openapi.json"
        options = ["--checks", ",".join(api_tester.CHECKS), "--max-examples", "10", "--exclude-path", "/api/v1/changes", "--seed", "1"]
        done = subprocess.run(
            [api_tester.program(), "run", address, "--header", f"Authorization: Bearer {TOKEN}", *options],
            cwd=tmp_path, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:]
    assert "Tested: 13" in done.stdout, done.stdout[-3000:]
