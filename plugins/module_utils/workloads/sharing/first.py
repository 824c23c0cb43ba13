# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks for GPUFLEET_W_ALLOCATE_BYTES of the GPU's memory before it does anything else, and says what came of it.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import time

if "Adder" not in globals():  # else it stands above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.sharing.adding import refused, run, say, setting, words


# A quota that comes late still finds the pod: a real scheduler ends by SIGPIPE when it tells one that is gone.
STAYS_S = 2.0


def main() -> int:
    import torch

    size, tag = int(setting("ALLOCATE_BYTES", 1 << 30)), os.environ.get("GPUFLEET_W_TAG", "NVSHARE")
    answer = "granted"
    try:
        torch.empty((size,), dtype=torch.uint8, device=os.environ.get("GPUFLEET_W_DEVICE", "cuda"))
    except RuntimeError as error:
        if not refused(error):
            raise
        answer = "refused: " + words(error)
    say(f"[{tag}][ALLOCATION_PROBE] elapsed=0.0s bytes={size} {answer}")
    time.sleep(STAYS_S)
    return 0


if __name__ == "__main__":
    raise SystemExit(run(main))
