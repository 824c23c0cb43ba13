# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuses an output of nccl-tests that is not a whole and consistent measurement.

Every size of the header's sweep has a row, every rank stands in the list once, the last lines are there, and the results were checked. All
is of one run: bandwidths follow from sizes, times and the number of ranks (doc/PERFORMANCE.md of nccl-tests has the factors), and the
average of the last lines from the rows, each as far as the printed digits tell.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError

Row = t.Dict[str, t.Any]

SIZES_LIMIT = 1 << 20

WIDTHS = {
    "int8": 1, "uint8": 1, "char": 1, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "half": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "int": 4, "float": 4, "int64": 8, "uint64": 8, "double": 8,
}  # fmt: skip

# busbw / algbw with n ranks (the GetBw function of each test).
FACTORS: dict[str, t.Callable[[int], float]] = {
    "all_reduce": lambda n: 2.0 * (n - 1) / n,
    "all_reduce_bias": lambda n: 2.0 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "alltoallv": lambda n: (n - 1) / n,
    "gather": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "sendrecv": lambda n: 1.0,
    "hypercube": lambda n: 1.0,
}
# A rank's part is rounded down, so a row's size may be a little under the one that was asked for.
ROUNDED = ("all_gather", "reduce_scatter", "alltoall", "alltoallv", "gather", "scatter", "hypercube")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
REDUCING = ("all_reduce", "all_reduce_bias", "reduce", "reduce_scatter")
# In place these do not work and are not checked. (Alone of all that do not reduce, sendrecv prints an operation.)
UNCHECKED_IN_PLACE = ("alltoall", "alltoallv", "sendrecv")
# Two cycles (-N) that agree in all times by a chance of 1 in 10**TELLING, if times vary by 1 %, are one that was copied.
TELLING = 6

_FAILURES = (
    re.compile(r"Test (?:NCCL|CUDA|HIP|MPI) failure [^\n]{0,300}"),
    re.compile(r"Test timeout [^\n]{0,200}"),
    re.compile(r"Invalid number of GPUs:[^\n]{0,200}"),
    re.compile(r"The number of requested GPUs [^\n]{0,200}"),
    re.compile(r"invalid size[^\n]{0,200}"),
    re.compile(r"(?m)^[^\n]{0,100}(?:mpirun|prterun|orterun)[^\n]{0,100}(?:detected|was unable|noticed|could not)[^\n]{0,200}"),
    re.compile(r"There are not enough slots available[^\n]{0,200}|All nodes which are allocated for this job are already filled"),
    re.compile(r"(?m)^[^\n]{0,200}error while loading shared libraries[^\n]{0,200}"),
    re.compile(r"Segmentation fault[^\n]{0,100}"),
)
# Why a launcher did not start it. A launcher that tries again leaves such lines in the log of a whole test.
_LAUNCHES = (
    re.compile(r"(?m)^ssh: [^\n]{0,200}|^[^\n]{0,100}: Permission denied \([^\n]{0,100}|^Host key verification failed[^\n]{0,100}"),
    re.compile(r"(?:ORTE|PRTE) (?:was unable|has lost)[^\n]{0,200}"),
    # Container engines: docker, podman, apptainer, enroot; and ourselves where the engine is not there.
    re.compile(r"(?m)^(?:docker|acceptance_exec): [^\n]{1,300}|^(?:Error|FATAL|\[ERROR\]):? [^\n]{1,300}"),
    re.compile(r"(?m)^[^\n]{0,80}(?:Cannot connect to the Docker daemon|permission denied while trying to connect to the)[^\n]{1,200}"),
)


class BadTable(ReasonedError):
    """The text is not a whole and consistent output of the tool."""


class Header(t.NamedTuple):
    """The threads of each process, the GPUs of each thread, and the sizes in bytes that the header line says."""

    threads: int
    gpus: int
    smallest: int
    largest: int
    step: int
    unit: str


@dataclasses.dataclass
class Layout:
    """The columns of a table. `prefix` and `halves` are the names before the halves and in each, `trailing` the number of those after them;
    `one_is` is the half that a table with one half has."""

    prefix: list[str] = dataclasses.field(default_factory=list)
    halves: list[list[str]] = dataclasses.field(default_factory=list)
    trailing: int = 0
    one_is: str = "out_of_place"
    # Times are in ms, as in version 1.
    milliseconds: bool = False
    # An error in place of the number of wrong values, as up to 2.11.
    delta: bool = False
    # The time is that of the CPU (-C).
    cputime: bool = False
    # Numbers are not rounded, as in JSON.
    exact: bool = False


@dataclasses.dataclass
class Output:
    """One output of a program, as it was read, and the findings of judge() about it."""

    # Without the rows.
    text: str = ""
    headers: list[Header] = dataclasses.field(default_factory=list)
    # The validation option (-c) of each header.
    validation: list[int] = dataclasses.field(default_factory=list)
    # The names of the tests that began or ended.
    names: set[str] = dataclasses.field(default_factory=set)
    op: str | None = None
    nccl_version: str | None = None
    tool_version: str | None = None
    ranks: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    # The list has only the first GPU of each process.
    ranks_partial: bool = False
    # The list names the group of each rank, as since 2.13.4.
    grouped: bool = False
    # The largest size, if the tool reduced it.
    reduced: int | None = None
    layout: Layout = dataclasses.field(default_factory=Layout)
    rows: list[Row] = dataclasses.field(default_factory=list)
    bad_row: BadTable | None = None
    # The numbers of the last lines of each kind, and whether rows come after them.
    footers: list[int] = dataclasses.field(default_factory=list)
    early: bool = False
    out_of_bounds: dict[str, t.Any] | None = None
    avg_busbw: dict[str, t.Any] | None = None
    min_bw_missed: bool = False
    # The last message of NCCL.
    warned: str | None = None
    # By judge().
    world_size: int | None = None
    peak_busbw: dict[str, t.Any] | None = None
    warnings: list[str] = dataclasses.field(default_factory=list)
    complete: bool = False


def judge(output: Output, rc: int, expect_ranks: int | None, expect_max_bytes: int | None) -> None:
    """Raise BadTable for anything that is not a whole and consistent measurement."""
    text, rows, headers = output.text, output.rows, output.headers
    _require_right_results(output)
    if output.min_bw_missed:
        raise BadTable("min_bw", "the average bus bandwidth is below 0.9 of NCCL_TESTS_MIN_BW")
    patterns = _FAILURES if rows and rc == 0 else _FAILURES + _LAUNCHES
    failure = next((m.group(0).strip() for p in patterns if (m := p.search(text))), None)
    if rc != 0:
        if rc in (124, 137, -9, -15, 143):
            raise BadTable("timeout", f"nccl-tests was ended from outside (status {rc})" + (f": {failure}" if failure else ""))
        raise BadTable("tool_failed", f"nccl-tests ended with status {rc}" + (f": {failure}" if failure else ""))
    if "USAGE:" in text and not rows:
        raise BadTable("usage", "nccl-tests printed its usage text: it refused an option")
    if not headers and not rows:
        if failure:
            raise BadTable("tool_failed", failure)
        raise BadTable("bad_output", "this is no output of nccl-tests")
    if failure:
        raise BadTable("tool_failed", failure)
    if output.bad_row:  # what cut it stands in the same line or after it, and says more
        raise output.bad_row
    replaced = re.search(r"invalid (?:type|op) [^\n]{1,80}, defaulting to \S{1,40}", text)
    if replaced:
        raise BadTable("usage", f"another test ran than was asked for: {replaced.group(0)}")
    if "is not a power of 2, skipping" in text:
        raise BadTable("tool_failed", "hypercube needs a number of ranks that is a power of two")
    if not headers:
        raise BadTable("incomplete_output", "the header line with the message sizes is missing")
    zeros = sum(1 for r in output.ranks if r["rank"] == 0)
    if len(headers) > 1 or (zeros > 1 and zeros * headers[0].threads * headers[0].gpus == len(output.ranks)):
        raise BadTable("not_mpi", f"{max(len(headers), zeros)} tests ran alone and printed a table each: the binary is built without MPI")
    if len(output.names) > 1:
        raise BadTable("bad_output", f"outputs of several tests are mixed: {', '.join(sorted(output.names))}")
    if not rows:
        raise BadTable("incomplete_output", "the table has no rows")
    if 0 in output.footers:
        raise BadTable("incomplete_output", "the lines after the table (out of bounds, average) are missing: the output is cut")
    if max(output.footers) > 1 or output.early:
        raise BadTable("bad_output", "the lines after the table (out of bounds, average) stand twice or before its end: outputs are mixed")
    groups = _groups(output, headers[0], expect_ranks)
    output.world_size = sum(groups.values())
    ranks = next(iter(groups.values()))
    laws = _bandwidths(output, ranks, _sweep(output, headers[0], ranks, expect_max_bytes))
    _require_checked(output, laws)
    output.complete = True
    if output.warned:
        output.warnings.append(f"the last that NCCL said: {output.warned}")
    output.peak_busbw = _peak(rows)


def _halves(row: Row) -> list[Row]:
    return [half for half in (row["out_of_place"], row["in_place"]) if half]


def _require_right_results(output: Output) -> None:
    """Raise BadTable if the tool found wrong values."""
    for row in output.rows:
        for half in _halves(row):
            if half["wrong"]:
                raise BadTable("wrong_results", f"{half['wrong']} wrong values at {row['size']} bytes")
    bounds = output.out_of_bounds
    if bounds and not bounds["ok"]:
        raise BadTable("wrong_results", f"{bounds['count']} values are out of bounds")


def _require_checked(output: Output, laws: set[str]) -> None:
    """Raise BadTable unless the tool verified its results in every row in which this test verifies at all. `laws` are the tests whose
    formula holds."""
    if 0 in output.validation:
        raise BadTable("unchecked", "the results were not checked: -c 0 is among the options of nccl-tests; remove it")
    layout = output.layout
    for name in ("out_of_place", "in_place"):
        halves = [row[name] for row in output.rows if row[name]]
        unknown = sum(1 for half in halves if half.get("delta" if layout.delta else "wrong") is None)
        # Some tests print N/A in place, and only there, since 2.13.1.
        may = name == "in_place" and not layout.delta and laws & set(UNCHECKED_IN_PLACE) and all(r["out_of_place"] for r in output.rows)
        if unknown and not (may and unknown == len(halves)):
            where = f"{unknown} of {len(halves)} rows say N/A where the number of wrong values {name.replace('_', ' ')} belongs"
            advice = "remove -c 0 from the options of nccl-tests if it is there"
            raise BadTable("unchecked", f"the results were not checked: {where}; {advice}")


def _groups(output: Output, header: Header, expected: int | None) -> dict[int, int]:
    """Return the number of ranks by group. Raise BadTable unless each rank is there once."""
    listed = output.ranks
    numbers = [r["rank"] for r in listed]
    of_one = header.threads * header.gpus
    if not of_one:
        raise BadTable("rank_mismatch", f"the header says {header.threads} threads of {header.gpus} GPUs: nothing can have run")
    if output.ranks_partial:
        count = len(listed) * of_one
        if expected is not None and expected != count:
            raise BadTable("rank_mismatch", f"{count} ranks took part, {expected} were asked for")
        return {0: count}
    if not numbers:
        raise BadTable("rank_mismatch", "the list of ranks is missing")
    if len(set(numbers)) != len(numbers):
        raise BadTable("rank_mismatch", "a rank is twice in the list: the ranks did not run as one job")
    if sorted(numbers) != list(range(len(numbers))) or len(numbers) % of_one:
        raise BadTable("rank_mismatch", f"the list of ranks is not whole: {len(numbers)} ranks, the last is {max(numbers)}")
    if expected is not None and expected != len(numbers):
        raise BadTable("rank_mismatch", f"{len(numbers)} ranks took part, {expected} were asked for")
    processes: dict[tuple[str, int | None], int] = {}
    for rank in listed:
        processes[rank["host"], rank["pid"]] = processes.get((rank["host"], rank["pid"]), 0) + 1
    odd = next((process for process, count in processes.items() if process[1] is not None and count % of_one), None)
    if odd:
        sentence = f"process {odd[1]} on {odd[0]} has {processes[odd]} ranks, the header says {of_one}"
        raise BadTable("rank_mismatch", f"the list of ranks is not that of this test: {sentence}")
    groups: dict[int, int] = {}
    for rank in listed:
        groups[rank["group"]] = groups.get(rank["group"], 0) + 1
    if len(set(groups.values())) != 1:
        raise BadTable("rank_mismatch", f"the groups have {sorted(set(groups.values()))} ranks: no one number to judge by")
    if expected is not None and len(groups) > 1:
        # NCCL_TESTS_SPLIT is set: the ranks never communicated with other groups, or other nodes.
        raise BadTable("rank_mismatch", f"{expected} ranks were asked for, they ran as {len(groups)} groups of {groups[min(groups)]} each")
    return groups


def _sizes(header: Header, largest: int) -> list[int]:
    sizes: list[int] = []
    size = header.smallest
    while size <= largest and len(sizes) < SIZES_LIMIT:
        sizes.append(size)
        following = size * header.step if header.unit == "factor" else size + header.step
        if following <= size:
            break
        size = following
    return sizes


def _sweep(output: Output, header: Header, ranks: int, requested_bytes: int | None) -> list[str]:
    """Raise BadTable unless every size of the header's sweep has its row, once per type, operation and root. Return the tests that it may
    be."""
    largest, reduced = header.largest, output.reduced
    if reduced is not None and reduced < largest:
        output.warnings.append(f"the largest size was reduced from {largest} to {reduced} bytes: too little memory")
        if requested_bytes is not None and reduced < requested_bytes:
            sizes = f"{requested_bytes} bytes were asked for, the tool reduced the size to {reduced}"
            raise BadTable("reduced_size", f"{sizes}: too little memory")
        if reduced < header.smallest:
            raise BadTable("reduced_size", f"not even the smallest size, {header.smallest} bytes, fitted into memory: {reduced} bytes ran")
        largest = reduced
    if requested_bytes is not None and largest < requested_bytes:
        raise BadTable("reduced_size", f"{requested_bytes} bytes were asked for, the largest size of the sweep is {largest}")
    expected = _sizes(header, largest)
    series: dict[tuple[t.Any, ...], list[Row]] = {}
    for key, of_key in itertools.groupby(output.rows, operator.itemgetter("type", "redop", "root")):
        if key in series:
            raise BadTable("bad_output", f"rows of {key[0]} stand in two places: rows were moved or outputs are mixed")
        series[key] = list(of_key)
    ops = [output.op] if output.op else _candidates(output)
    cycles: dict[int, list[Row]] = {}
    for key, rows in series.items():
        if not expected or len(rows) % len(expected):
            label = " ".join(str(k) for k in key if k not in (None, -1, "none"))
            raise BadTable("incomplete_output", f"{len(rows)} rows for {label}, the header's sweep has {len(expected)} sizes")
        _require_columns(output, key, ranks)
        width = WIDTHS.get(key[0], 8)
        if key[0] in WIDTHS:
            ops = [op for op in ops if _counts(rows[-1], op, width, ranks)] or ops
        element = width * ranks if ops[0] in ROUNDED else width
        for row, size in zip(rows, expected * (len(rows) // len(expected))):
            if row["size"] == size == row["count"] * element:
                continue
            if key[0] in WIDTHS and not any(_counts(row, op, width, ranks) for op in ops):
                raise BadTable("bad_output", f"{row['count']} elements of {key[0]} are not {row['size']} bytes over {ranks} ranks")
            if row["size"] != size and not any(_rounded(size, row["size"], op, width, ranks) for op in ops):
                raise BadTable("incomplete_output", f"the row of {size} bytes is missing: {row['size']} stands in its place")
        if len(rows) > len(expected):
            for number, at in enumerate(range(0, len(rows), len(expected)), start=1):
                cycles.setdefault(number, []).extend(rows[at : at + len(expected)])
    if len({len(rows) for rows in series.values()}) > 1:
        fewest, greatest = (of(len(rows) // len(expected) for rows in series.values()) for of in (min, max))
        raise BadTable("incomplete_output", f"{greatest} cycles of the sweep for one type, operation or root, {fewest} for another")
    if cycles:
        _require_different(cycles, output.layout)
    return ops


def _counts(row: Row, op: str, width: int, n: int) -> bool:
    """Return True if the row's count fits: that of one rank if each rank has a part, else that of the message."""
    missing = row["count"] * (width * n if op in ROUNDED else width) - row["size"]
    return bool(0 <= missing <= (32 * n if op == "alltoallv" else 0))  # each part of alltoallv is rounded down by itself


def _rounded(size: int, printed: int, op: str, width: int, n: int) -> bool:
    """Return True if `op` rounds `size` to `printed` bytes: whole elements, the same for each rank, aligned by newer versions."""
    grains = [width * n, 4 * width * n, 16 * n] if op in ROUNDED else [width]
    if any(printed == size // grain * grain for grain in grains):
        return True
    # Each part of alltoallv is rounded by itself; that of rccl-tests shares out nothing below so many elements.
    return op == "alltoallv" and (0 <= size - printed < 32 * n or (printed == 0 and 2 * size < n * n * width))


def _require_columns(output: Output, key: tuple[t.Any, ...], ranks: int) -> None:
    """Raise BadTable unless the columns fit a test that is known by name: it prints an operation only if it reduces, and a root only if it
    has one."""
    op, (_type, redop, root) = output.op, key
    if op not in FACTORS or output.layout.delta:
        return
    reduces = redop not in (None, "", "none")
    if (reduces != (op in REDUCING) and op != "sendrecv") or (root not in (None, -1)) != (op in ROOTED) or (root or 0) >= ranks:
        raise BadTable("bad_output", f"rows of operation {redop} and root {root} are not of {op} over {ranks} ranks: outputs are mixed")


def _require_different(cycles: dict[int, list[Row]], layout: Layout) -> None:
    """Raise BadTable if two cycles of a sweep measured the same, though they are long enough to tell."""
    first_cycles: dict[tuple[t.Any, ...], int] = {}
    for number, rows in cycles.items():
        halves = [half for row in rows for half in _halves(row)]
        cells = tuple((half["time_us"], half["algbw"], half["busbw"]) for half in halves)
        first = first_cycles.setdefault(cells, number)
        if first != number and sum(_digits(half["time_us"], layout) for half in halves) >= TELLING:
            raise BadTable("bad_output", f"cycle {number} of the sweep repeats cycle {first} to the last digit: rows stand twice")


def _digits(time_us: float, layout: Layout) -> float:
    """Return how many decimal digits of a printed time lie within 1 % of it."""
    last = 1e-6 if layout.exact else 1.0 if layout.milliseconds or time_us >= 1e4 else 0.1 if time_us >= 100 else 0.01
    return max(0.0, math.log10(max(time_us, last) * 0.01 / last)) if time_us < math.inf else 0.0


class _Law(t.NamedTuple):
    """The formula for the bandwidths of a test: algbw = share * size / time, busbw = factor * algbw."""

    op: str
    share: float
    factor: float


def _laws(op: str, n: int, old: bool) -> list[_Law]:
    part = (n - 1) / n
    laws = [_Law(op, part if op == "hypercube" else 1.0, FACTORS[op](n))]
    if old and op in ("all_gather", "reduce_scatter"):  # builds of before June 2020 leave out a rank's own part
        laws.append(_Law(op, part, 1.0))
    return laws


def _bandwidths(output: Output, n: int, ops: t.Iterable[str]) -> set[str]:
    """Raise BadTable unless the bandwidths of each row follow from its size, its time and the number of ranks by the formula of one of
    `ops`, and the average from all rows. Return the tests whose formula holds."""
    op, layout = output.op, output.layout
    if op is not None and op not in FACTORS:
        raise BadTable("bad_output", f"unknown test {op}")
    exact, timed = layout.exact, not layout.cputime  # -C prints the CPU's time beside bandwidths of the whole time
    # Half of the last printed digit. Times have fewer decimals where they are wide.
    digit = 1e-6 if exact else 0.0051
    digit_of_time, of_wide = (1e-6, 1e-6) if exact else (0.51, 1e-6) if layout.milliseconds else (0.0051, 6e-4)
    possible = [law for name in ops for law in _laws(name, n, layout.delta)]
    total, count = 0.0, 0
    for row in output.rows:
        size = row["size"] / 1e3  # GB/s times us
        for half in _halves(row):
            time_us, alg, bus = half["time_us"], half["algbw"], half["busbw"]
            total += bus
            count += 1
            if not (math.isfinite(time_us) and math.isfinite(alg) and math.isfinite(bus)):
                raise BadTable("bad_output", f"the row of {row['size']} bytes holds a value that is not finite")
            if time_us < 0 or alg < 0 or bus < 0:
                raise BadTable("bad_output", f"the row of {row['size']} bytes holds a negative value")
            slack = 1e-6 * bus if exact else _coarse(bus)
            follow = [law for law in possible if abs(bus - alg * law.factor) <= slack + digit + (digit + _coarse(alg)) * law.factor]
            if not follow:
                raise BadTable(
                    "rank_mismatch" if op else "bad_output",
                    f"at {row['size']} bytes the bus bandwidth {bus} GB/s does not follow from {alg} GB/s and {n} ranks",
                )
            wide = of_wide + 0.06 * (time_us >= 1e7)  # 1.2e+07
            times = [time_us, half["hipevt"]] if half.get("hipevt") else [time_us]
            possible = [
                law
                for law in follow
                if not timed
                or any(
                    abs(alg * took - size * law.share)
                    <= (digit + _coarse(alg)) * took + digit_of_time * alg + wide * size + digit * digit_of_time
                    for took in times
                )
            ]
            if not possible:
                numbers = f"at {row['size']} bytes {alg} GB/s do not follow from {time_us} us"
                raise BadTable("bad_output", f"{numbers}: rows were changed or mixed")
    _require_average(output, total / count)
    if op is None:
        # The column `op` of version 1 says nothing: tests that do not reduce print an operation there too.
        output.op = None if layout.milliseconds else _guess(output, {law.factor for law in possible}, n)
    return {law.op for law in possible}


def _require_average(output: Output, mean: float) -> None:
    """Raise BadTable unless the last line's average is that over all rows and both halves, rounded to 6 digits.

    Until 2.11 it is over all threads, of which each took its own time: there it must only be of the same order.
    """
    printed, layout = output.avg_busbw, output.layout
    if printed is None:
        raise BadTable("bad_output", "the average bus bandwidth is not a number")
    off = abs(mean - printed["value"]) - 5.1e-6 * mean
    if layout.delta and output.headers[0].threads > 1:
        off -= 0.5 * mean
    if off <= (2e-6 if layout.exact else 0.0051):
        return
    cells = [half["busbw"] for row in output.rows for half in _halves(row)]
    if layout.exact or off > 0.0051 + sum(map(_coarse, cells)) / len(cells):
        sentence = f"the rows have an average of {mean:.6g} GB/s, the last line says {printed['value']:g}"
        raise BadTable("bad_output", f"{sentence}: rows or last lines of another output are mixed in")


def _candidates(output: Output) -> list[str]:
    """Return the tests that the columns of an unnamed one allow."""
    layout, row = output.layout, output.rows[0]
    prefix = layout.prefix
    if layout.milliseconds:
        return list(FACTORS)
    if layout.delta:  # 2.0 to 2.11 print the columns that a test has
        if "root" in prefix:
            return ["reduce"] if "redop" in prefix else ["broadcast", "gather", "scatter"]
        return ["all_reduce", "reduce_scatter", "alltoall", "alltoallv"] if "redop" in prefix else ["all_gather", "sendrecv", "hypercube"]
    reduces, rooted = row["redop"] not in (None, "", "none"), row["root"] not in (None, -1)
    if rooted:
        return ["reduce"] if reduces else ["broadcast", "gather", "scatter"]
    names = ["all_gather", "hypercube", "alltoall", "alltoallv"]
    if reduces:
        names = ["all_reduce", "all_reduce_bias", "reduce_scatter", "sendrecv"]
    # In 2.13.0 what is not checked in place was counted all the same.
    checked = output.grouped and any(r["in_place"] and r["in_place"]["wrong"] is not None for r in output.rows)
    return [name for name in names if not checked or name not in UNCHECKED_IN_PLACE]


def _coarse(value: float) -> float:
    """Return the rounding error of a bandwidth that is too wide for two decimals: 1234.5, 12345, 1e+06."""
    if value < 1000 or round(value, 1) != value:
        return 0.0
    return 0.06 * value if value >= 1e6 else 0.5 if value >= 1e4 and value == int(value) else 0.05


def _guess(output: Output, factors: set[float], n: int) -> str | None:
    """Return the test that columns and factors prove, else None. Versions before 2.16.7 do not print their name."""
    if n < 2 or len(factors) != 1:
        return None
    rows, layout, factor = output.rows, output.layout, next(iter(factors))
    row = rows[0]
    reduces, rooted = row["redop"] not in (None, "", "none"), row["root"] not in (None, -1)
    halves = {name: [r[name]["wrong"] is not None for r in rows if r[name]] for name in ("out_of_place", "in_place")}
    part = FACTORS["all_gather"](n)  # (n-1)/n; every other factor is at least 1
    if rooted:
        if reduces:
            return "reduce" if factor == 1.0 else None
        return "broadcast" if factor == 1.0 else None  # gather and scatter look alike
    if not layout.delta and any(halves["out_of_place"]) and not any(halves["in_place"]):
        return "sendrecv" if factor == 1.0 else "alltoall"  # alone these two are not checked in place
    if reduces:
        if factor == part:
            return "reduce_scatter"
        # sendrecv prints an operation too and has this factor with two ranks, but from 2.13.4 it is told by its N/A.
        return "all_reduce" if factor > 1.0 or (n == 2 and output.grouped and all(halves["in_place"])) else None
    if row["redop"] is None and "redop" in layout.prefix:
        return "alltoall" if layout.delta else "hypercube" if factor == 1.0 else None
    return "all_gather" if factor == part and (layout.delta or all(halves["in_place"])) else None


def _peak(rows: list[Row]) -> dict[str, t.Any]:
    """Best bus bandwidth of the plateau: rows of at least a quarter of the largest size."""
    best, size = -1.0, max(row["size"] for row in rows)
    smallest = size / 4
    for row in rows:
        if row["size"] >= smallest:
            for half in _halves(row):
                if half["busbw"] > best:
                    best, size = half["busbw"], row["size"]
    return {"value": best, "unit": "GB/s", "size": size}
