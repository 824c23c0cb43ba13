# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container images of the rig."""

from __future__ import annotations

import pathlib

PAUSE = "gpufleet.invalid/pause:1"
TESTER = "gpufleet.invalid/tester:1"
BARE = "gpufleet.invalid/bare:1"


def archives(programs: pathlib.Path) -> list[tuple[str, pathlib.Path]]:
    return []
