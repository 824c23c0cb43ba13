# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of the system that is played: nvshare, or xpushare as its later versions are called."""

from __future__ import annotations

import os
import pathlib

PREFIX = os.environ.get("SIM_PREFIX") or "nvshare"
FOLDER = pathlib.Path("/var/run") / PREFIX


def variable(name: str, otherwise: str = "") -> str:
    """Return a variable of the system, by its name without the prefix."""
    return os.environ.get(f"{PREFIX.upper()}_{name}", otherwise)
