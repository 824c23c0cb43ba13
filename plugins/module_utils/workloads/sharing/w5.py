# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""W5: the small matrices for a given time; every few seconds one line says how fast it goes, that of a change of quota too.

    [NVSHARE][QUOTA_PROBE] elapsed=20.004s it=2045 it_per_sec=102.24
    [NVSHARE][ALLOCATION_PROBE] elapsed=20.0s bytes=1073741824 refused: OutOfMemoryError: ...

`it` is of all the time, `it_per_sec` of the time since the line before. Its four matrices are its own from the start: PyTorch gives back
what it keeps when memory is refused, and a sum that needed it again would end the pod where a quota was lowered under what it has.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

if "Adder" not in globals():  # else it stands above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.sharing.adding import (
        AHEAD,
        Adder,
        Progress,
        end,
        refused,
        run,
        say,
        setting,
        words,
    )


def main() -> int:
    adder = Adder(int(setting("N", 14000)))
    duration, every = setting("DURATION_S", 300), setting("PROBE_S", 10)
    request_bytes, progress, sums = int(setting("ALLOCATE_BYTES", 0)), Progress(adder, every), 0
    adder.z, spare = adder.matrix(0), adder.matrix(0)
    while True:
        for _number in range(AHEAD):
            adder.z, spare = adder.torch.add(adder.x, adder.y, out=spare), adder.z
        adder.synchronize()
        sums += AHEAD
        if progress.say(sums) and request_bytes:
            elapsed = f"elapsed={progress.reported_s:.1f}s"
            say(f"[{progress.tag}][ALLOCATION_PROBE] {elapsed} bytes={request_bytes} {outcome(adder, request_bytes)}")
        if adder.elapsed() >= duration:
            return end(adder)


def outcome(adder: Adder, size: int) -> str:
    try:
        adder.allocate(size)
    except RuntimeError as error:
        if not refused(error):
            raise
        return "refused: " + words(error)
    adder.free()
    return "granted"


if __name__ == "__main__":
    raise SystemExit(run(main))
