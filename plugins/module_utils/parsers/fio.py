# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for the JSON of fio (`--output-format=json`).

fio's exit status says nothing certain: with `continue_on_error` it is 0 after errors. Each job's own counters of errors decide. Names of
the fields: fio 3.0 to 3.41 (stat.c, show_thread_status_json).

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import errno
import json
import os
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, Value, is_absent

# Errors of the kernel that fio names by their numbers, and the reason codes that they mean. fio gives EILSEQ to data that failed its check.
CODES = {
    errno.EILSEQ: "wrong_results", errno.ENOSPC: "disk_full", errno.EDQUOT: "disk_full", errno.EROFS: "read_only", errno.EIO: "file_system",
    errno.ESHUTDOWN: "file_system", errno.EUCLEAN: "file_system", errno.ENXIO: "file_system", errno.ENODEV: "file_system",
    errno.ESTALE: "mount_stale", errno.ENOTCONN: "mount_stale", errno.EACCES: "no_permission", errno.EPERM: "no_permission",
    errno.ENOMEM: "out_of_memory",
}  # fmt: skip
# A rate differs by less than this part from what was counted in its time: fio rounds both.
ROUNDED = 0.01
# Numbers that C prints and JSON does not have; fio prints its averages as they are (json.c, json_print_value).
_NO_NUMBER = re.compile(r"(?<=[:\[,])(\s*)-?(?:nan|inf)\b")
_WORDS = {errno.EILSEQ: "data that was read back is not what was written"}


class Side(t.NamedTuple):
    """One direction of a job. `io_bytes` in bytes, `rate` in bytes/s, `iops` in 1/s, `mean_us` and `p99_us` from the submission of
    a request to its end (completion latency)."""

    io_bytes: Value
    rate: Value
    iops: Value
    mean_us: Value
    p99_us: Value


class FioRun(t.NamedTuple):
    """One run of fio with one group of jobs. `problem` is (reason code, words) if its numbers are no measurement, else None."""

    version: str
    read: Side
    write: Side
    problem: t.Tuple[str, str] | None


def _absent(why: str) -> Side:
    return Side(*[Absent(why)] * 5)


def parse(text: str) -> FioRun:
    """Return what fio printed. Lines before and behind the JSON, such as messages of errors, are skipped."""
    document = _document(text)
    if isinstance(document, str):
        code = "incomplete_output" if document == _CUT else "no_result"
        return FioRun("", _absent(document), _absent(document), (code, document))
    version = document.get("fio version")
    jobs = document.get("jobs")
    if not isinstance(version, str) or not version.startswith("fio-") or not isinstance(jobs, list) or len(jobs) != 1:
        why = "it is not the JSON of one group of fio's jobs"
        return FioRun("", _absent(why), _absent(why), ("bad_output", why))
    job = jobs[0] if isinstance(jobs[0], dict) else {}
    return FioRun(version, _side(job, "read"), _side(job, "write"), _problem(job))


_NOTHING, _CUT = "fio printed no JSON", "the JSON of fio is cut"


def _document(text: str) -> t.Any:
    """Return the JSON object that begins with the first line `{`, or why there is none as text."""
    at = 0 if text.startswith("{") else text.find("\n{") + 1
    if at == 0 and not text.startswith("{"):
        return _NOTHING
    try:
        document, _end = json.JSONDecoder(parse_constant=lambda _name: None).raw_decode(_NO_NUMBER.sub(r"\1null", text[at:]))
    except (ValueError, RecursionError):
        return _CUT
    return document


def _problem(job: dict[str, t.Any]) -> tuple[str, str] | None:
    """Return the first error of a job; None only if its counter of errors is there and is 0."""
    first, total = job.get("error"), job.get("total_err", 0)
    if not _is_count(first) or not _is_count(total):
        return "bad_output", "fio does not say whether its job had errors"
    if first:
        words = _WORDS.get(first) or (os.strerror(first) if first < 4096 else f"error {first}")
        return CODES.get(first, "tool_failed"), f"{words} (fio's error {first}{f', {total} in all' if total else ''})"
    return ("tool_failed", f"fio counted {total} errors and does not say which") if total else None


def _is_count(value: t.Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _side(job: dict[str, t.Any], name: str) -> Side:
    side = job.get(name)
    if not isinstance(side, dict):
        return _absent(f"fio printed no {name}")
    latency = side.get("clat_ns")
    latency = latency if isinstance(latency, dict) else {}
    percentiles = latency.get("percentile")
    percentiles = percentiles if isinstance(percentiles, dict) else {}
    io_bytes = _number(side.get("io_bytes"), f"io_bytes of {name}")
    if not is_absent(io_bytes) and io_bytes == 0:
        return _absent(f"fio did not {name}")  # every number of it is 0
    return Side(
        io_bytes, _rate(_with_bytes(side), "bw_bytes", "io_bytes", name), _rate(side, "iops", "total_ios", name),
        _us(latency.get("mean"), f"clat_ns.mean of {name}"), _us(percentiles.get("99.000000"), f"99th percentile of {name}"),
    )  # fmt: skip


def _with_bytes(side: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return a side with its rate in bytes/s: fio 3.0 and 3.1 have it in KiB/s alone."""
    in_kib: t.Any = side.get("bw")
    is_number = isinstance(in_kib, (int, float)) and not isinstance(in_kib, bool)
    return {**side, "bw_bytes": in_kib * 1024} if is_number and "bw_bytes" not in side else side


def _rate(side: dict[str, t.Any], field: str, counted: str, name: str) -> Value:
    """Return a rate of fio's, in 1/s; Absent unless it is what fio counted in the milliseconds of its runtime (stat.c,
    add_ddir_status_json: 1000 times one by the other)."""
    rate, count = _number(side.get(field), f"{field} of {name}"), _number(side.get(counted), f"{counted} of {name}")
    took_ms = _number(side.get("runtime"), f"runtime of {name}")
    if isinstance(rate, Absent):
        return rate
    if isinstance(count, Absent):
        return count
    if isinstance(took_ms, Absent):
        return took_ms
    if abs(rate * took_ms / 1e3 - count) > ROUNDED * count:
        return Absent(f"{field} of {name} reads {rate:g}, and {counted} {count:g} in {took_ms:g} ms")
    return rate


def _number(value: t.Any, name: str) -> Value:
    """Return a number of fio's as it is; Absent if it is none, negative, or more than anything gives."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1 << 63:
        return Absent(f"{name} is missing" if value is None else f"{name} reads {str(value)[:40]!r}")
    return value


def _us(value: t.Any, name: str) -> Value:
    number = _number(value, name)
    return number if isinstance(number, Absent) else number / 1e3
