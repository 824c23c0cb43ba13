# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The line that people see while a stage runs."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.base import progress_line


@pytest.mark.parametrize(
    ("done", "total", "since", "line"),
    [
        (b".", 4, 0.0, "gemm: 1 of 4 nodes done, 3 running or waiting"),
        (b".x..", 8, 6.0, "gemm: 4 of 8 nodes done, 1 of them without a result, 4 running or waiting, about 8 s to go"),
        (b"....", 4, 6.0, "gemm: 4 of 4 nodes done"),
    ],
)
def test_it_says_done_failing_running_and_the_end(done: bytes, total: int, since: float, line: str) -> None:
    assert progress_line("gemm", done, total, since) == line
