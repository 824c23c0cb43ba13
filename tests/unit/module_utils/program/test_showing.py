# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is shown of a stage that runs on a node."""

from __future__ import annotations

import pathlib
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import showing
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process, session

RUN = "20261121T100000Z-0a1b2c"


def test_checks_that_are_done_and_tools_that_run_are_shown(tmp_path: pathlib.Path) -> None:
    go_on = tmp_path / "go_on"

    def probe() -> t.Iterator[dict[str, t.Any]]:
        yield observation.measured("first", variant="gpus=8", metrics={"busbw": {"value": 480.5, "unit": "GB/s"}})
        tool = ["sh", "-c", f"while [ ! -e {go_on} ]; do sleep 0.1; done"]
        process.run(tool, timeout=60)
        yield observation.measured("second")

    state = str(tmp_path / "state")
    running = session.Session(state, RUN, "stack", 120)
    running.start(probe, wait_for_lock_s=60)
    end = time.monotonic() + 60
    while len(shown := showing.lines(state, RUN, "stack")) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    go_on.touch()
    assert running.wait(60)
    assert shown[0] == "first gpus=8: measured: busbw 480.5 GB/s"
    assert shown[1].startswith("runs for ") and f"sh -c while [ ! -e {go_on} ]" in shown[1] and len(shown) == 2
    running.collect()
    assert showing.lines(state, RUN, "stack") == []
