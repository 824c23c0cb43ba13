# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""W4b: memory of ever other sizes is taken, used and given back: what leaks, leaks here.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import random

if "Adder" not in globals():  # else it stands above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.sharing.adding import (
        ELEMENT_BYTES,
        Adder,
        end,
        run,
        setting,
    )


def main() -> int:
    adder = Adder(int(setting("N", 4000)))
    duration, limit = setting("DURATION_S", 60), int(setting("ITERATIONS", 400))
    largest = adder.n * adder.n * ELEMENT_BYTES
    sizes = random.Random(int(setting("SEED", 1)))
    for _number in range(limit):
        buffers = [adder.allocate(sizes.randint(1, largest)) for _piece in range(4)]
        adder.add()
        adder.synchronize()
        del buffers
        adder.free()
        if adder.elapsed() > duration:
            break
    return end(adder)


if __name__ == "__main__":
    raise SystemExit(run(main))
