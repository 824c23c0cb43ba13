# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells a process in a container that a plane started for it from one on the machine itself.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os

# A plane sets it in the environment of such a container, to what tells the container from all others.
IDENTITY = "GPUFLEET_POD_UID"


def is_inside() -> bool:
    """Return True in a container of a plane: its files, processes and network are not the machine's."""
    return bool(os.environ.get(IDENTITY))
