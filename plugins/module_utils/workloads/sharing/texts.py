# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workloads of the GPU-sharing matrix as pods are given them: each one text that needs Python 3.8 and PyTorch, and nothing else.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import packing
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.sharing import (
    adding,
    connecting,
    first,
    hold,
    w1,
    w2,
    w3,
    w4a,
    w4b,
    w5,
)

MODULES = (connecting, first, hold, w1, w2, w3, w4a, w4b, w5)
# File name -> text.
TEXTS = {f"{module.__name__.rpartition('.')[2]}.py": packing.packed(adding, module) for module in MODULES}
