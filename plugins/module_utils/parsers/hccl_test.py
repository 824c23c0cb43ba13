# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for hccl_test (CANN's {all_reduce,all_gather,..}_test). It returns the same shape as the parser for nccl-tests.

There is no footer, the exit status of a failed test is often 0, and a wrong result of one rank stands in a line of its own
while the table says success. So a text counts as measured only when its first row is the smallest size, its rows go on to the
largest one, every result was checked, and no line tells of a failure.

How the sizes grow is not printed, so that rows of which every other one is missing look like a sweep of its own. Taken are the
factor 2 of everybody's command line and the program's own default, a tenth of the range; who runs it with others has to say so
(or has the command line in the text).

What ties a text to its run: the sizes, iterations and warm-up that it prints are those that were asked for, so are the options of each
command line in it, its rows take no longer than the launch did, and its sizes hold whole elements of the type for each rank. Nothing but
plausibility ties a row to the others: size, time and bandwidth of a row of another run of the same sizes, about as fast, prove each other
too. Times that leap between neighbouring sizes are an error.

The bandwidth is the algorithm's, size / time. The column says GB/s; there are versions that divide by 2^30, and each row
proves which it is, since size and time stand beside it. Sizes are bytes per rank (all_gather and reduce_scatter: of all).

Pure functions; nothing here raises for bad text. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.launched import plain
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.nccl_checks import FACTORS

Row = t.Dict[str, t.Any]
Parsed = t.Dict[str, t.Any]

LIMIT = 16 << 20
# Bytes per microsecond of one printed unit.
UNITS = {"GB/s": 1e3, "GiB/s": 2**30 / 1e6}
# The same factors busbw / algbw as NCCL's; the tests with sizes of their own per rank move as much.
SAME = {"all_gatherv": "all_gather", "reduce_scatterv": "reduce_scatter", "alltoallvc": "alltoall"}
# How many times less than the next smaller size's time a size may take, and how many times more than its share: of any two sizes, and
# of two that are judged. An average of 20 iterations under STALL_US may be one stall of the system.
JUMPS, JUDGED_JUMPS = (5.0, 5.0), (1.6, 2.0)
STALL_US = 1000.0
# Spelt aveg_time by the program, avg_time in its documentation.
COLUMNS = {
    "data_size(Bytes)": "size", "aveg_time(us)": "time", "avg_time(us)": "time", "alg_bandwidth(GB/s)": "algbw",
    "check_result": "check",
}  # fmt: skip

_SWEEP = re.compile(r"the minbytes is (\d{1,20}), maxbytes is (\d{1,20}), iters is (\d{1,10}), warmup_iters is (\d{1,10})")
# With the digits that the program prints, in every version.
_TIME = re.compile(r"\d{1,20}\.\d{2}")
_BANDWIDTH = re.compile(r"\d{1,20}\.\d{5}")
# A command line in the text, as a shell or a script writes it: the operation, and the options after it.
_COMMAND = re.compile(r"\b(all_gatherv?|all_reduce|alltoall(?:vc?)?|broadcast|reduce|reduce_scatterv?|scatter)_test\b([^\n]{0,2000})")
_OPTION = re.compile(r"(?<!\S)(?:-([fic]) ?|--(stepfactor|stepbytes|check)[ =])(\d{1,20}(?:\.\d{1,9})?)(?!\S)")
# Options of such a line that say what stands in the output: sizes, iterations, type, NPUs of a node; and how many ranks were launched.
_STATED = re.compile(r"(?<!\S)(?:-([benwdp]) ?|--(minbytes|maxbytes|iters|warmup_iters|datatype|npus)[ =])([A-Za-z0-9]{1,20})(?!\S)")
_LONG = {"minbytes": "b", "maxbytes": "e", "iters": "n", "warmup_iters": "w", "datatype": "d", "npus": "p"}
_LAUNCHED = re.compile(r"\bmpi(?:run|exec)\b[^\n]{0,500}?\s-(?:n|np) (\d{1,7})\b[^\n]{0,1000}_test\b")
_BYTES = re.compile(r"(\d{1,20})([KMGT]?)B?", re.IGNORECASE)
# Bytes of an element, by the names that -d takes.
TYPES = {
    "int8": 1, "uint8": 1, "fp8": 1, "hif8": 1, "fp16": 2, "bfp16": 2, "int16": 2, "uint16": 2, "fp32": 4, "int32": 4, "uint32": 4,
    "fp64": 8, "int64": 8, "uint64": 8, "int128": 16,
}  # fmt: skip
# What a clock that was read before and after the launch may be off.
CLOCK_S = 0.5
_RANKS = re.compile(r"\brank_size: (\d{1,7})\b")
# Bytes of an element; a rank's part is rounded to whole ones. How many ranks are tried where nobody says how many there were.
_ELEMENTS = (1, 2, 4, 8, 16)
_MOST_RANKS = 1024
_WRONG = (
    re.compile(r"(?:local rank_id|rank id) \d{1,7}, check result failed[^\n]{0,200}"),
    re.compile(r"(?:check|result) buf\[\d{1,20}\] [^\n]{0,200}"),
    re.compile(r"total err is [1-9]\d{0,19}"),
)
_FAILURES = (
    re.compile(r"Alloc memory size is larger than free memory[^\n]{0,200}"),
    re.compile(r"memory allocation error[^\n]{0,200}"),
    re.compile(r"Process \d{1,7} HcclGetRootInfo failed[^\n]{0,100}"),
    re.compile(r"(?m)^\s{0,8}E[A-Z]\d{4}: [^\n]{0,200}"),
    re.compile(r"(?:hccl|acl) interface return err [^\n]{0,300}"),
    re.compile(r"Process \d{1,7} received invalid data from root process \d{1,7}"),
    re.compile(r"(?m)^(?:Error: ?|invalid (?:size|option)|Check whether HCCL_|non-option ARGV)[^\n]{0,200}"),
    re.compile(r"\[\w{1,60}\]\[\d{1,6}\] [^\n]{0,100}failed[^\n]{0,100}"),
    re.compile(r"(?:set_device_sat_mode|hccl_op_base) [^\n]{0,30}failed[^\n]{0,150}"),
    re.compile(r"(?:Get ddr memory info|aclrtGetSocName|setenv HCCL_OP_RETRY_ENABLE) failed"),
    re.compile(r"no match datatype|hccl_test is null"),
    re.compile(r"This is an error in \w{1,60}"),
    re.compile(r"(?m)^[^\n]{0,100}(?:mpirun|prterun|orterun)[^\n]{0,100}(?:detected|was unable|noticed|could not)[^\n]{0,200}"),
    re.compile(r"BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES|There are not enough slots available[^\n]{0,200}"),
    re.compile(r"(?m)^[^\n]{0,200}error while loading shared libraries[^\n]{0,200}"),
    re.compile(r"Segmentation fault[^\n]{0,100}"),
    re.compile(r"(?m)^[^\n]{0,300}\bfailed\b[^\n]{0,200}"),
)


class _BadOutput(ReasonedError):
    """The text is not a whole and consistent output of the tool."""


def parse(
    text: t.Any, rc: int = 0, op: str | None = None, ranks: int | None = None, factor: float | None = None, step: int | None = None,
    asked_sizes: t.Sequence[int] | None = None, iterations: int | None = None, warmup: int | None = None, dtype: str | None = None,
    seconds: float | None = None,
) -> Parsed:
    """Read what one hccl_test program printed and its exit status `rc`. Never raises.

    The output says neither the operation nor the number of ranks: with `op` (all_reduce, ...) and `ranks` the bus bandwidths are
    computed, else they are None. `factor` (-f) or `step` (-i, bytes) is how the sizes were asked to grow; without them by 2, or as the
    program does where it is not told; `asked_sizes` are the ends of the sweep, `iterations`, `warmup` and `dtype` (fp32, ...) the options
    that were asked for, `seconds` how long the launch took. What they contradict is the output of another run. Results that were not
    checked are an error, `unchecked`, with their rows.

    Rows as of nccl_tests: size in bytes, out_of_place with time_us, algbw, busbw (in `bandwidth_unit`) and wrong (0, or None where
    it was not checked), in_place None. `peak_algbw` and `peak_busbw` are the best of the rows of at least a quarter of the largest
    size, with value, unit and size.
    """
    result: Parsed = {
        "outcome": "error", "reason": None, "reason_code": None, "op": op, "complete": False, "warnings": [], "nccl_version": None,
        "tool_version": None, "ranks": [], "rows": [], "peak_busbw": None, "avg_busbw": None, "out_of_bounds": None,
        "peak_algbw": None, "bandwidth_unit": None, "iterations": None, "world_size": ranks,
    }  # fmt: skip
    try:
        if isinstance(rc, bool) or not isinstance(rc, int):
            raise _BadOutput("bad_output", f"exit status {rc!r} is not a number")
        if not isinstance(text, str) or len(text) > LIMIT:
            raise _BadOutput("bad_output", "hccl_test printed no text of a sane size")
        text = plain(text, re.compile(r"the minbytes is \d|data_size\(Bytes\)"))
        sweeps = [tuple(int(n) for n in sweep) for sweep in _SWEEP.findall(text)]
        checks = _table(text, result)
        options = _options(text, op, ranks, {"f": factor, "i": step})
        _judge(text, rc, result, sweeps, checks, options)
        _of_this_run(text, result["rows"], sweeps[0], {"n": iterations, "w": warmup, "d": dtype}, options["ranks"], seconds)
        for requested, actual in zip(asked_sizes or (), sweeps[0]):
            if abs(actual - requested) > 0.01 * requested + 16 * (ranks or 1):  # some versions round to multiples of the ranks
                raise _BadOutput("reduced_size", f"a sweep of {sweeps[0][0]} to {sweeps[0][1]} bytes, where {requested} were asked for")
        _bandwidths(result, options["ranks"], TYPES.get(dtype or ""))
        result["complete"] = True
        if "NULL" in checks or options["c"] == 0 or "No verification is performed" in text:
            raise _BadOutput("unchecked", "the results were not checked (-c 0, or values that overflow)")
        result["outcome"] = "measured"
    except _BadOutput as bad:
        result["reason_code"], result["reason"] = bad.reason_code, bad.reason
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, ZeroDivisionError) as error:
        result["reason_code"], result["reason"] = "bad_output", f"not readable: {type(error).__name__}: {error}"[:300]
    return result


def _options(text: str, op: str | None, ranks: int | None, options: dict[str, float | None]) -> dict[str, t.Any]:
    """Return the options of the run, from the caller and the text: {"ranks", "f", "i", "c"}. Raises _BadOutput where they say different
    things."""
    merged: dict[str, t.Any] = {**options, "ranks": ranks, "c": None}
    for operation, arguments in _COMMAND.findall(text):
        if op is not None and operation != op:
            raise _BadOutput("bad_output", f"the text is that of {operation}, expected {op}")
        for short, long, value in _OPTION.findall(arguments):
            name = short or {"stepfactor": "f", "stepbytes": "i", "check": "c"}[long]
            if merged[name] is not None and merged[name] != float(value):
                raise _BadOutput("bad_output", f"the command line says -{name} {value}, expected {merged[name]:g}")
            merged[name] = float(value)
    for count in set(_RANKS.findall(text)):
        if merged["ranks"] not in (None, int(count)):
            raise _BadOutput("rank_mismatch", f"{count} ranks took part, expected {merged['ranks']}")
        merged["ranks"] = int(count)
    return merged


def _of_this_run(
    text: str, rows: list[Row], sweep: tuple[int, ...], asked: dict[str, t.Any], ranks: int | None, seconds: float | None
) -> None:
    """Raise _BadOutput for the output of another run: its iterations, or an option of a command line in it, are not those that were asked
    for or that it prints, or its rows tell of more time than the launch took. `asked` are the options -n, -w and -d."""
    smallest, largest, iterations, warmup = sweep
    printed: dict[str, t.Any] = {"b": smallest, "e": largest, "n": iterations, "w": warmup}
    for name in ("n", "w"):
        if asked[name] and asked[name] != printed[name]:
            what = "iterations" if name == "n" else "iterations of warm-up"
            raise _BadOutput("bad_output", f"it ran {printed[name]} {what}, {asked[name]} were asked for: this is another run")
    for _operation, arguments in _COMMAND.findall(text):
        for short, long, value in _STATED.findall(arguments):
            name = short or _LONG[long]
            expected = ranks if name == "p" else asked["d"] if name == "d" else printed[name]
            if expected is not None and not _agrees(name, value, expected):
                raise _BadOutput("bad_output", f"a command line says -{name} {value}, and the run had {expected}: they are of several runs")
    for count in _LAUNCHED.findall(text):
        if ranks is not None and int(count) != ranks:
            raise _BadOutput("rank_mismatch", f"a command line launches {count} ranks, expected {ranks}")
    told = sum(row["out_of_place"]["time_us"] for row in rows) * iterations / 1e6
    if seconds is not None and told > seconds + CLOCK_S:
        raise _BadOutput("bad_output", f"its rows took {told:.3g} s, and the launch {seconds:.3g} s: they are of another run")


def _agrees(name: str, value: str, expected: t.Any) -> bool:
    """Return True if the value of an option is what the run had: -p is the most NPUs of a node, of `expected` ranks in all."""
    if name == "d":
        return value.lower() == str(expected).lower()
    if name in "be":
        size = _BYTES.fullmatch(value)
        number = int(size.group(1)) * 1024 ** " KMGT".index(size.group(2).upper() or " ") if size else None
        return number is not None and abs(number - int(expected)) <= 0.01 * number + 16 * _MOST_RANKS
    if not value.isdigit():
        return False
    if name == "p":
        return int(value) >= int(expected) or (int(value) > 0 and int(expected) % int(value) == 0)
    return int(value) == int(expected)


def _table(text: str, result: Parsed) -> list[str]:
    """Fill the rows; return the last column of each. Raise _BadOutput for several headers: they are of several tests."""
    names: list[str] = []
    checks = []
    for line in text.split("\n"):
        if "|" not in line:
            continue
        words = [word.strip() for word in line.split("|")]
        if "data_size" in line:
            if names:
                raise _BadOutput("not_mpi", "several tables: the ranks did not run as one job, or outputs are mixed")
            names = [COLUMNS.get(word.rstrip(":"), word) for word in words]
            if sorted(names) != sorted(set(COLUMNS.values())):
                raise _BadOutput("bad_output", f"the table's header is not known: {line.strip()[:150]}")
        elif names and words[0][:1].isdigit():
            if len(words) != len(names):
                raise _BadOutput("incomplete_output", f"a row has {len(words)} cells, its header {len(names)}: {line.strip()[:150]}")
            row = dict(zip(names, words))
            if row["check"] not in ("success", "failed", "NULL"):
                raise _BadOutput("incomplete_output", f"a row is cut: {line.strip()[:150]}")
            if not row["size"].isdigit() or not _TIME.fullmatch(row["time"]) or not _BANDWIDTH.fullmatch(row["algbw"]):
                raise _BadOutput("bad_output", f"a row holds a cell that is no number of its column: {line.strip()[:150]}")
            checks.append(row["check"])
            result["rows"].append(
                {
                    "size": int(row["size"]), "count": None, "type": None, "redop": None, "root": None,
                    "out_of_place": {
                        "time_us": float(row["time"]), "algbw": float(row["algbw"]), "busbw": None,
                        "wrong": 0 if row["check"] == "success" else None,
                    },
                    "in_place": None,
                }
            )  # fmt: skip
    return checks


def _judge(text: str, rc: int, result: Parsed, sweeps: list[tuple[int, ...]], checks: list[str], options: dict[str, t.Any]) -> None:
    """Raises _BadOutput for anything that is not a whole and consistent measurement."""
    rows = result["rows"]
    if "failed" in checks:
        raise _BadOutput("wrong_results", f"wrong values at {rows[checks.index('failed')]['size']} bytes")
    wrong = next((match.group(0) for pattern in _WRONG if (match := pattern.search(text))), None)
    if wrong:
        raise _BadOutput("wrong_results", f"wrong values: {wrong.strip()}")
    failure = next((match.group(0).strip() for pattern in _FAILURES if (match := pattern.search(text))), None)
    if rc in (124, 137, 143, -9, -15):
        raise _BadOutput("timeout", f"hccl_test was ended from outside (status {rc})" + (f": {failure}" if failure else ""))
    if failure:
        raise _BadOutput("tool_failed", failure)
    if "USAGE: ./test" in text and not rows:
        raise _BadOutput("usage", "hccl_test printed its usage text: it refused an option")
    if rc != 0:
        raise _BadOutput("tool_failed", f"hccl_test ended with status {rc}")
    if not sweeps and not rows:
        raise _BadOutput("bad_output", "this is no output of hccl_test")
    if not sweeps:
        raise _BadOutput("incomplete_output", "the line with the message sizes is missing")
    if len(sweeps) > 1:
        raise _BadOutput("not_mpi", f"{len(sweeps)} tests ran alone or are mixed in one output")
    if not rows:
        raise _BadOutput("incomplete_output", "the table has no rows")
    smallest, largest, result["iterations"], _warmup = sweeps[0]
    _sweep([row["size"] for row in rows], smallest, largest, options)


def _sweep(sizes: list[int], smallest: int, largest: int, options: dict[str, t.Any]) -> None:
    """Raises _BadOutput unless there is a row of every size from the smallest to the largest."""
    if sizes[0] != smallest:
        raise _BadOutput("incomplete_output", f"the row of {smallest} bytes is missing: the table begins with {sizes[0]}")
    if sizes[-1] > largest:
        raise _BadOutput("bad_output", f"a row has {sizes[-1]} bytes, the largest size is {largest}")
    pairs = list(zip(sizes, sizes[1:]))
    if any(b <= a for a, b in pairs):
        raise _BadOutput("bad_output", "the sizes do not grow")
    if len(sizes) == 1 and smallest != largest and not options["f"] and not options["i"]:
        raise _BadOutput("incomplete_output", f"one row where the sizes go from {smallest} to {largest} bytes")
    factor: float = options["f"] or (0.0 if options["i"] else 2.0)
    # Sizes are cut to whole bytes, and rounded up to a multiple of the ranks by some versions.
    rounding = (1 + factor) * max(_ELEMENTS) * (options["ranks"] or _MOST_RANKS)
    multiplied = bool(factor) and all(abs(b - a * factor) <= max(1 + a / sizes[0], min(0.02 * b, rounding)) for a, b in pairs)
    step: float = 0.0 if options["f"] else options["i"] or _default_step(sizes, largest, options["ranks"] or 0)
    added = bool(step) and all(abs(b - a - step) <= max(1, 0.1 * step) for a, b in pairs)
    if not multiplied and not added:
        growth = f"by the factor {factor:g}" if factor else f"by {step:g} bytes"
        hint = "" if options["f"] or options["i"] else " or the program's own step: say with which factor or step it ran"
        raise _BadOutput("incomplete_output", f"rows are missing: the sizes {', '.join(map(str, sizes[:4]))} .. do not grow {growth}{hint}")
    if (not multiplied or int(sizes[-1] * factor) <= largest) and (not added or sizes[-1] + step <= largest):
        raise _BadOutput("incomplete_output", f"the rows end at {sizes[-1]} bytes, the largest size is {largest}: the output is cut")


def _default_step(sizes: list[int], largest: int, ranks: int) -> float:
    """Return the step of the rows if it is the program's default, a tenth of the range, which some versions round to multiples of the
    ranks; else 0."""
    step = sizes[1] - sizes[0] if len(sizes) > 1 else 0
    default_step = (largest - sizes[0]) / 10
    return step if abs(step - default_step) <= 0.1 * default_step + ranks else 0


def _bandwidths(result: Parsed, ranks: int | None, element: int | None) -> None:
    rows = result["rows"]
    op: str | None = result["op"]
    fitting = [unit for unit in UNITS if _follow(result["rows"], UNITS[unit], ranks, element)]
    if not fitting:
        raise _BadOutput("bad_output", "the bandwidths do not follow from sizes and times")
    _one_run(rows)
    unit = result["bandwidth_unit"] = fitting[0]
    if unit == "GiB/s":
        result["warnings"].append("this version prints 2^30 bytes a second under GB/s")
    factor = FACTORS.get(SAME.get(op, op)) if op is not None else None
    if op is not None and factor is None:
        raise _BadOutput("bad_output", f"unknown test {op}")
    largest = max(row["size"] for row in rows)
    plateau = [row for row in rows if row["size"] * 4 >= largest]
    if factor and ranks:
        for row in rows:
            row["out_of_place"]["busbw"] = row["out_of_place"]["algbw"] * factor(ranks)
        best = max(plateau, key=lambda row: row["out_of_place"]["busbw"])
        result["peak_busbw"] = {"value": best["out_of_place"]["busbw"], "unit": unit, "size": best["size"]}
    best = max(plateau, key=lambda row: row["out_of_place"]["algbw"])
    result["peak_algbw"] = {"value": best["out_of_place"]["algbw"], "unit": unit, "size": best["size"]}


def _one_run(rows: list[Row]) -> None:
    """Raise _BadOutput if the times of two neighbouring sizes cannot be those of one undisturbed run.

    A larger message takes no less time than a smaller one, and no more than its size says. The smallest size is left out, as it pays
    for the first use of a connection, and times under STALL_US, which one stall of the system multiplies. What scatter, a change of the
    algorithm or a full buffer do is far below these bounds; they are tighter between two of the largest sizes, which are judged.
    """
    largest = rows[-1]["size"]
    for small, large in zip(rows[1:], rows[2:]):
        small_us, large_us = small["out_of_place"]["time_us"], large["out_of_place"]["time_us"]
        drop_limit, rise_limit = JUDGED_JUMPS if small["size"] * 4 >= largest else JUMPS
        linear = small_us * large["size"] / small["size"]
        if max(small_us, large_us) >= STALL_US and not small_us / drop_limit <= large_us <= linear * rise_limit:
            raise _BadOutput(
                "bad_output",
                f"{large['size']} bytes took {large_us:g} us and {small['size']} bytes {small_us:g} us: the rows are of several runs, "
                f"or the run was disturbed; run it again",
            )


def _follow(rows: list[Row], per_us: float, ranks: int | None, element: int | None) -> bool:
    """Return True if every bandwidth is moved bytes / time, as far as the printed digits show (two of the time, five of the
    bandwidth). The bytes are those of whole elements of every rank, one and the same part in all rows; `element` are the bytes of one, if
    the type is known."""
    for row in rows:
        if row["out_of_place"]["time_us"] <= 0.005:
            raise _BadOutput("bad_output", f"the time at {row['size']} bytes is 0: nothing was measured")
    elements = (element,) if element else _ELEMENTS
    parts = {e * r for r in (range(1, _MOST_RANKS + 1) if ranks is None else (1, ranks)) for e in elements}
    cut = set(elements)
    for size, low, high in (_moved(row, per_us) for row in rows):
        parts = {part for part in parts if low <= -(-size // part) * part <= high}
        cut = {part for part in cut if low <= size // part * part <= high}
    return bool(parts or cut)


def _moved(row: Row, per_us: float) -> tuple[int, float, float]:
    """A row's size, and between what the bytes lie that its time and bandwidth tell."""
    time, printed = row["out_of_place"]["time_us"], row["out_of_place"]["algbw"]
    low = (printed - 5.1e-6) * per_us * (time - 0.00501)
    high = (printed + 5.1e-6) * per_us * (time + 0.00501)
    return row["size"], low, high
