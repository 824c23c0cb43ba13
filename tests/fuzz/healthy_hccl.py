# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The output of hccl_test for healthy runs, computed and rounded as its source does it (there are no recordings).

`run(random)` gives a Run: its text, and what its caller has to say of it: how the sizes grow where it is neither the factor 2 nor
the program's own step, and sometimes operation and ranks.
"""

from __future__ import annotations

import dataclasses
import random
import typing as t

# Those whose sizes are of all ranks: each has a part of whole elements.
SHARED = ("all_gather", "all_gatherv", "reduce_scatter", "reduce_scatterv", "alltoall", "scatter")
OPS = (*SHARED, "all_reduce", "broadcast", "reduce", "alltoallv", "alltoallvc")
ELEMENTS = {"int8": 1, "fp16": 2, "bfp16": 2, "fp32": 4, "int64": 8}
PREFIXES = ("", "", "", "[1,0]<stdout>: ", "[0] ", "0: ")


@dataclasses.dataclass
class Run:
    text: str
    asked: dict[str, t.Any]


def sizes_of(smallest: int, largest: int, factor: float | None, step: int) -> list[int]:
    found, size = [], smallest
    while size <= largest:
        found.append(size)
        size = int(size * factor) if factor else size + step
    return found


def run(r: random.Random) -> Run:
    op, ranks, dtype = r.choice(OPS), r.choice([1, 2, 4, 8, 16, 64, 6, 24, 512]), r.choice(list(ELEMENTS))
    kind = r.choice(["double"] * 5 + ["default"] * 2 + ["factor", "step", "one"])
    smallest = r.choice([8, 64, 1024, 8192, 8192, 1 << 20, 1000, r.randint(1, 1 << 24)])
    largest = max(smallest * 2, r.choice([1 << 16, 64 << 20, 64 << 20, 1 << 30, 4 << 30, r.randint(1 << 10, 1 << 33)]))
    factor: float | None = 2.0
    step = 0
    asked: dict[str, t.Any] = {}
    options = ""
    if kind == "one":
        largest = smallest
    elif kind == "factor":
        factor = r.choice([3.0, 4.0, 8.0, 10.0, 1.5, 1.3])
        smallest = max(smallest, 64)
    elif kind in ("default", "step"):
        factor, smallest = None, max(smallest // ranks, 1) * ranks
        largest = max(largest, smallest + 11 * ranks) // ranks * ranks
        step = -(-((largest - smallest) // 10) // ranks) * ranks
        if kind == "step":
            step = max(ranks, int((largest - smallest) / r.uniform(1, 40)) // ranks * ranks)
    if kind in ("factor", "step") or r.random() < 0.2:
        name, value = ("factor", factor) if factor else ("step", step)
        if r.random() < 0.5:
            asked[name] = value
        elif kind != "one":
            options = f" -{name[0] if factor else 'i'} {value:g}" if factor else f" -i {step}"
    if r.random() < 0.5:
        asked.update(op=op, ranks=ranks)
    lines = [f"+ mpirun -f hosts -n {ranks} ./bin/{op}_test -p 8{options} -d {dtype}"] if options else []
    lines += [f"rank_id: {n}, rank_size: {ranks}, HCCL_TEST_USE_DEVS: (null)" for n in range(min(ranks, 8))] if r.random() < 0.1 else []
    lines.append(f"the minbytes is {smallest}, maxbytes is {largest}, iters is {r.choice([20, 10, 100])}, warmup_iters is 5")
    time_us = r.choice(["aveg_time(us):", "avg_time(us):"])
    lines.append(f"{'data_size(Bytes):':15} | {time_us:12} | {'alg_bandwidth(GB/s):':18} | check_result:")
    part = ELEMENTS[dtype] * (ranks if op in SHARED else 1)
    unit = r.choice([1e3, 1e3, 2**30 / 1e6])
    start, speed = r.uniform(5, 800), 10 ** r.uniform(2, 5.7)  # us, and bytes a us
    for size in sizes_of(smallest, largest, factor, step):
        moved = -(-size // part) * part
        time = (start + moved / speed) * r.uniform(0.9, 1.3)
        lines.append(f"{size:<17} | {time:<14.2f} | {moved / time / unit:<20.5f} | success")
    prefix = r.choice(PREFIXES)
    return Run("".join(f"{prefix}{line}\n" for line in lines), asked)
