# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The output of nccl-tests and rccl-tests for healthy runs: every version, test and option, from nanoseconds to minutes, computed and
rounded as the tools do it.

`output(random)` gives a text, or the JSON of one.
"""

from __future__ import annotations

import dataclasses
import json
import random
import typing as t

VERSIONS = [
    (1, 0, 0), (2, 0, 0), (2, 9, 0), (2, 10, 1), (2, 11, 0), (2, 13, 0), (2, 13, 1), (2, 13, 3), (2, 13, 4), (2, 13, 11), (2, 14, 1),
    (2, 15, 0), (2, 16, 6), (2, 16, 7), (2, 17, 2), (2, 17, 3), (2, 17, 8), (2, 18, 3), (2, 19, 2), (2, 19, 6), (2, 20, 0),
]  # fmt: skip
WIDTHS = {"int8": 1, "f8e4m3": 1, "half": 2, "bfloat16": 2, "int32": 4, "float": 4, "double": 8, "uint64": 8}
REDUCING = ("all_reduce", "reduce_scatter", "reduce")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
WHOLE = ("all_reduce", "broadcast", "reduce", "sendrecv")
GPUS = ("NVIDIA H200", "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-32GB", "AMD Instinct MI300X", "NVIDIA GB200")


@dataclasses.dataclass
class Run:
    """A run, drawn by `draw`."""

    version: tuple[int, int, int]
    op: str
    processes: int
    threads: int
    gpus: int
    hosts: int
    groups: int
    sizes: list[int]
    step: str
    types: list[str]
    redops: list[str]
    roots: list[int]
    cycles: int
    amd: bool
    cputime: bool
    stamps: bool
    each: bool
    graph: bool
    algorithms: bool
    halves: tuple[str, ...]
    hipevt: bool
    speed: float
    latency: float

    @property
    def ranks(self) -> int:
        return self.processes * self.threads * self.gpus // self.groups


def draw(r: random.Random) -> Run:
    version = r.choice(VERSIONS)
    amd = version >= (2, 17, 4) and r.random() < 0.2
    ops = ["all_reduce", "all_gather", "broadcast", "reduce_scatter", "reduce"]
    ops += ["alltoall", "gather", "scatter", "sendrecv", "hypercube"] if version >= (2, 9, 0) else []
    ops += ["alltoallv"] if version >= (2, 19, 0) else []
    op = r.choice(ops)
    hosts = r.choice([1, 1, 1, 2, 4, 16])
    each = r.choice([1, 2, 4, 8])
    processes, gpus = (hosts * each, 1) if r.random() < 0.5 else (hosts, each)
    threads = r.choice([1, 1, 1, 2]) if version >= (2, 13, 0) or r.random() < 0.3 else 1
    if version < (2, 0, 0):
        processes, hosts = 1, 1  # under MPI every process prints a header of its own
    groups = r.choice([1, 1, 1, 2]) if version >= (2, 13, 4) and processes % 2 == 0 and op != "hypercube" else 1
    if op == "hypercube" and processes * threads * gpus == 1:
        gpus = 2
    smallest = r.choice([1, 4, 8, 100, 1024, 1 << 20, 8 << 20, 32 << 20, 1000003])
    if r.random() < 0.75:
        factor = r.choice([2, 2, 2, 4, 16])
        sizes, step = [smallest * factor**n for n in range(r.choice([1, 2, 4, 8, 12]))], f"{factor}(factor)"
        sizes = [size for size in sizes if size <= 64 << 30]
    else:
        by = r.choice([1, 512, 1 << 20, 999999])
        sizes, step = [smallest + by * n for n in range(r.choice([1, 2, 5, 20]))], f"{by}(bytes)"
    new = version >= (2, 13, 0)
    reduces = op in REDUCING or (op == "sendrecv" and new)
    halves: tuple[str, ...] = ("out_of_place", "in_place")
    if amd and op not in ("alltoall", "alltoallv", "sendrecv"):
        halves = r.choice([halves, halves, ("out_of_place",), ("in_place",)])
    if version < (2, 0, 0) and op == "broadcast":
        halves = ("out_of_place",)
    ranks = processes * threads * gpus // groups
    return Run(
        version, op, processes, threads, gpus, hosts, groups, sizes, step,
        types=r.choice([["float"], ["float"], [r.choice(list(WIDTHS))], ["int8", "half", "double"]]),
        redops=(r.choice([["sum"], ["sum"], ["prod"], ["sum", "max", "min"]]) if reduces else ["none"]),
        roots=(r.choice([[0], [ranks - 1], list(range(min(ranks, 4)))]) if op in ROOTED else [-1]),
        cycles=r.choice([1, 1, 1, 2, 3]) if version >= (2, 13, 11) else 1,
        amd=amd,
        cputime=version >= (2, 13, 4) and r.random() < 0.1,
        stamps=version >= (2, 17, 8) and r.random() < 0.1,
        each=version >= (2, 19, 2) and not amd and r.random() < 0.1,
        graph=new and r.random() < 0.1,
        algorithms=amd and r.random() < 0.3,
        halves=halves,
        hipevt=amd and r.random() < 0.2,
        speed=10 ** r.uniform(-2, 4.2),
        latency=10 ** r.uniform(-1, 3.5),
    )  # fmt: skip


def counts(run: Run, size: int, width: int) -> tuple[int, int]:
    """Bytes and elements that a row prints for a size of the sweep."""
    whole, n = size // width, run.ranks
    if run.op in WHOLE:
        return whole * width, whole
    part = whole // n
    if run.version >= (2, 13, 11):
        part -= part % (16 // width)
    elif run.op == "hypercube" or (run.version >= (2, 10, 0) and run.op in ("all_gather", "reduce_scatter")):
        part -= part % 4
    if run.op == "alltoallv":  # farther peers get more, each a multiple of 16 bytes
        total = part * n * width
        return sum(total * at // (n * (n - 1) // 2) // 16 * 16 for at in range(n)) if n > 1 else total, part
    return part * n * width, part


def bandwidths(run: Run, size: int, count: int, width: int, seconds: float) -> tuple[float, float]:
    """algbw and busbw, unrounded."""
    n, op = run.ranks, run.op
    if (run.version <= (2, 0, 0) and op in ("all_gather", "reduce_scatter")) or op == "hypercube":
        base = count * width * (n - 1) / 1e9 / seconds
        return base, base
    base = size / 1e9 / seconds
    if op in ("all_reduce",):
        return base, base * (2 * (n - 1)) / n
    return base, base if op in WHOLE else base * (n - 1) / n


def wide(value: float, width: int) -> str:
    """As since 2.17.3: two decimals, fewer where the cell is too small for them."""
    for form in (".2f", ".1f", ".0f"):
        text = f"{value:{width}{form}}"
        if len(text) <= width:
            return text
    return f"{value:{width}.{1 if width >= 7 else 0}e}"


def cells(run: Run, us: float, alg: float, bus: float) -> list[str]:
    if run.version < (2, 0, 0):
        return [f"{us / 1e3:7.3f}", f"{alg:5.2f}", f"{bus:5.2f}"]
    if run.version < (2, 17, 3):
        return [f"{us:7.{0 if us >= 1e4 else 1 if us >= 100 else 2}f}", f"{alg:6.2f}", f"{bus:6.2f}"]
    return [wide(us, 7), wide(alg, 6), wide(bus, 6)]


def measured(run: Run, r: random.Random) -> tuple[list[dict[str, t.Any]], float]:
    """Rows with unrounded numbers, and the average that the last line prints."""
    rows, total, taken = [], 0.0, 0
    for kind in run.types:
        width = WIDTHS[kind]
        for redop in run.redops:
            for root in run.roots:
                for _cycle in range(run.cycles):
                    for asked in run.sizes:
                        size, count = counts(run, asked, width)
                        row: dict[str, t.Any] = {"size": size, "count": count, "type": kind, "redop": redop, "root": root}
                        for name in run.halves:
                            us = (run.latency + size / 1e3 / run.speed) * r.lognormvariate(0, 0.05)
                            alg, bus = bandwidths(run, size, count, width, us / 1e6)
                            total, taken = total + bus, taken + 1
                            if run.version <= (2, 11, 0) and run.threads > 1:  # other threads' own times are in the average, too
                                total, taken = total + bus * r.uniform(0.9, 1.1), taken + 1
                            checked = run.version < (2, 13, 1) or name != "in_place" or run.op not in ("alltoall", "alltoallv", "sendrecv")
                            row[name] = {"us": r.uniform(0.5, us) if run.cputime else us, "alg": alg, "bus": bus, "checked": checked}
                        rows.append(row)
    return rows, total / taken


def output(r: random.Random) -> str:
    run = draw(r)
    rows, average = measured(run, r)
    if run.version >= (2, 17, 3) and not run.amd and run.groups == 1 and r.random() < 0.15:
        return as_json(run, rows, average, r)
    lines = [*head(run, r), *table(run, rows, r)]
    lead = " " if run.version < (2, 0, 0) else "# "
    lines += [f"{lead}Out of bounds values : 0 OK", f"{lead}Avg bus bandwidth    : {average:g} {r.choice(['', '', 'OK'])}"]
    if run.amd and run.version < (2, 17, 8):
        lines.insert(-2, "# Errors with asterisks indicate errors that have exceeded the maximum threshold.")
    lines += ["#"] + ([f"# Collective test concluded: {run.op}_perf"] if run.version >= (2, 16, 7) else [])
    lines.append(r.choice(["", "", '# error: Missing "iommu=pt" from kernel command line']) if run.version >= (2, 13, 4) else "")
    return launched(lines, run, r)


def head(run: Run, r: random.Random) -> list[str]:
    lines, new = [], run.version
    if new >= (2, 17, 4):
        text = ".".join(map(str, new))
        tool, library = ("rccl", "rccl") if run.amd else ("nccl", "nccl")
        lines.append(f"# {tool}-tests version {text} {library}-headers=22809 {library}-library=22809")
    if new >= (2, 16, 7):
        lines.append(f"# Collective test starting: {run.op}_perf")
    smallest, largest = run.sizes[0], run.sizes[-1]
    if "bytes" not in run.step and r.random() < 0.2:
        largest += 1 if largest > 1 else 0  # between two sizes
    lines += [f"# Reducing maxBytes to {largest} due to memory limitation"] if new >= (2, 10, 0) and r.random() < 0.05 else []
    told = largest * 2 if len(lines) and lines[-1].startswith("# Red") else largest
    start = f"nThread {run.threads} nGpus {run.gpus} minBytes {smallest} maxBytes {told} step: {run.step} warmup iters: 5 iters: 20"
    checks = f"validation: {r.choice([1, 1, 1, 3, 20])}"
    if new < (2, 0, 0):
        return [*lines, f"{start} {checks} ", "# NCCL Tests compiled with NCCL 2.28", "# Using devices", *ranks(run, r), ""]
    if new < (2, 13, 0):
        lines.append(f"# {start} {checks} ")
    else:
        more = " unalign: 0" if new >= (2, 18, 2) else ""
        lines.append(f"# {start} agg iters: 1 {checks} graph: {2 if run.graph else 0}{more}")
    if r.random() < 0.1:
        lines.append("# Blocking Enabled: wait for completion and barrier after each collective ")
    if run.each:
        lines.append("# Per-Iteration Report: CUDA event timing; i_* uses max over process rows ")
    return [*lines, "#", "# Using devices", *ranks(run, r), "#"]


def ranks(run: Run, r: random.Random) -> list[str]:
    lines, name = [], r.choice(GPUS)
    here = run.processes // run.hosts
    for process in range(run.processes):
        host = f"gpu-{process // here:02d}"
        group = process % run.groups
        for at in range(run.threads * run.gpus):
            device = process % here * run.threads * run.gpus + at
            rank = process * run.threads * run.gpus + at
            bdf = f"[0x{16 + device:02x}]" if run.version < (2, 15, 0) else f"[0000:{16 + device:02x}:00]"
            told = "" if run.version < (2, 0, 0) else f" Pid {4000 + process:6d}"
            if run.version >= (2, 13, 4):
                lines.append(f"#  Rank {rank:2d} Group {group:2d}{told} on {host:>10} device {device:2d} {bdf} {name}")
            else:
                lines.append(f"#   Rank {rank:2d}{told} on {host:>10} device {device:2d} {bdf} {name}")
    return lines


def table(run: Run, rows: list[dict[str, t.Any]], r: random.Random) -> list[str]:
    new = run.version
    wrong = "#wrong" if new >= (2, 13, 0) else "error" if new >= (2, 0, 0) else "res"
    half = ["cputime" if run.cputime else "time", *(["hipevt"] if run.hipevt else []), "algbw", "busbw", wrong]
    half += ["i_min", "i_max", "i_p99", "i_cv%"] if run.each else []
    names = ["size", "count", "type", "redop", "root"]
    if new < (2, 0, 0):
        names = ["bytes", "N", "type"] + ["op"] * (run.op in REDUCING)
    elif new < (2, 13, 0):
        names = names[:3] + ["redop"] * (run.op in REDUCING or run.op == "alltoall") + ["root"] * (run.op in ROOTED)
    end = ["algo", "proto", "nchannels"] * run.algorithms + ["timestamp"] * run.stamps
    caption = " ".join(f"{name.replace('_', '-'):>30}" for name in run.halves)
    lines = [f"# {caption}", "# " + "  ".join(f"{word:>7}" for word in [*names, *half * len(run.halves), *end])]
    lines += ["#        (B)    (elements)                               (us)  (GB/s)  (GB/s)"] if new >= (2, 0, 0) else []
    for number, row in enumerate(rows):
        prefix = {"size": row["size"], "bytes": row["size"], "count": row["count"], "N": row["count"], "type": row["type"]}
        none = "none" if new >= (2, 13, 4) and run.op != "hypercube" else ""
        redop = row["redop"] if row["redop"] != "none" else none
        prefix.update(redop=redop, op=redop, root=row["root"])
        words = [f"{prefix[name]:>12}" for name in names]
        for name in run.halves:
            one = row[name]
            told = cells(run, one["us"], one["alg"], one["bus"])
            if run.hipevt:
                told.insert(1, wide(one["us"] * 0.9, 7))
            told.append("N/A" if not one["checked"] else "0" if new >= (2, 13, 0) else f"{r.choice([0, 1e-7, 2.4e-4]):7.0e}")
            words += [*told, *([wide(one["us"] * part, 7) for part in (0.9, 1.2, 1.1)] + ["3.20"] if run.each else [])]
        words += ["2026-11-21 04:30:14"] * run.stamps + ["RING", "SIMPLE", "24"] * run.algorithms
        if run.amd and run.cycles > 1 and number % len(run.sizes) == 0:
            lines.append(f"# Testing {number // len(run.sizes) % run.cycles + 1} cycle.")
        lines.append("  ".join(words) + " ")
    return lines


def launched(lines: list[str], run: Run, r: random.Random) -> str:
    """With what a launcher and NCCL's own log add."""
    if r.random() < 0.15:
        debug = "gpu-00:4000:4042 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
        for _line in range(r.randint(1, 5)):
            lines.insert(r.randrange(len(lines) + 1), debug)
    if r.random() < 0.25:
        tags = ["[1,0]<stdout>:", "[1,0]<stdout>: ", "[0] ", "0: ", "2026-11-21T04:30:14.123456789Z ", "[job,0][gpu-01:77]<stdout>: "]
        tag = r.choice(tags)
        lines = [tag + line for line in lines]
    return r.choice(["\n", "\n", "\n", "\r\n"]).join(lines) + "\n"


def as_json(run: Run, rows: list[dict[str, t.Any]], average: float, r: random.Random) -> str:
    misspelt = run.version <= (2, 17, 8)
    number, _open, unit = run.step.partition("(")
    config: dict[str, t.Any] = {
        "nthreads": run.threads, "ngpus": run.gpus, "minimum_bytes": run.sizes[0], "maximum_bytes": run.sizes[-1],
        f"step_{unit.rstrip(')')}": int(number), "validation": 1,
        "devices": [
            {
                "rank": at * run.threads * run.gpus, "group": 0, "pid": 4000 + at, "hostname": f"gpu-{at * run.hosts // run.processes:02d}",
                "device": 0, "device_hex": "0000:10:00", "device_info": "NVIDIA H200",
            }
            for at in range(run.processes)
        ],
    }  # fmt: skip
    results = []
    for row in rows:
        halves = {
            name: {
                "cpu_time" if run.cputime else "time": round(row[name]["us"], 6), "alg_bw": round(row[name]["alg"], 6),
                "bus_bw": round(row[name]["bus"], 6), "nwrong": 0.0 if row[name]["checked"] else None,
            }
            for name in run.halves
        }  # fmt: skip
        redop = "" if run.op == "hypercube" else row["redop"]
        results.append({**{k: row[k] for k in ("size", "count", "type")}, "redop": redop, "root": f"{row['root']:6d}", **halves})
    whole = {
        "version": 2, "args": [f"/opt/{run.op}_perf", "-g", str(run.gpus)], "nccl_version": 22809, "config": config, "results": results,
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidith" if misspelt else "average_bus_bandwidth": {
            "bandwidith" if misspelt else "bandwidth": round(average, 6), "okay": r.choice(["true", "unchecked"]),
        },
        "errors": [], "end_time": "2026-11-21 04:31:14",
    }  # fmt: skip
    return json.dumps(whole, indent=r.choice([None, 1]))
