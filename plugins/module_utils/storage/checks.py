# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of file systems, by their names.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

MOUNT, WRITE, VERIFY, READ, METADATA = "mount", "write", "verify", "read", "metadata"
RANDOM = ("random_read", "random_write")
# In the order in which they are made: what reads needs what was written, and random writes leave nothing that could be checked.
CHECKS = (MOUNT, WRITE, VERIFY, READ, *RANDOM, METADATA)
# Made only where they are named: reads and writes between a GPU and the file system, by a tool of NVIDIA's; the tests of pjdfstest.
GPUDIRECT, POSIX = "gpudirect", "posix"
NAMED = (*CHECKS, GPUDIRECT, POSIX)
# Those that nodes make together, by a timetable.
COHERENT, TOGETHER, CHECKPOINT, MODEL_LOAD = "coherent", "together", "checkpoint", "model_load"
OF_MANY = (COHERENT, TOGETHER, CHECKPOINT, MODEL_LOAD)
# Those of a file system that many nodes share and test at one time: the others would measure each node's share of one server.
OF_SHARED = (MOUNT, VERIFY, METADATA, POSIX)
