# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for `dcgmi diag -j` of NVIDIA's DCGM, versions 2 to 4.

The form of version 4 follows DCGM's own schema and header (nvvs/include/NvvsJsonStrings.h), that of 2 and 3 what users published. None was
seen on hardware of ours. Its traps: `Skip` is no pass; a test may say `Pass` and carry a warning that it could not do its work; the exit
status is not 0 for a failed test (226) as for one that never ran; lines of text may stand before the JSON.

Pure functions; nothing here raises for bad text. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError

Parsed = t.Dict[str, t.Any]

LIMIT = 16 << 20
# The name of the root in version 4, and in 2 and 3.
ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
# {word of any version: ours}.
STATUS = {"pass": "pass", "fail": "fail", "warn": "warn", "skip": "skip", "not run": "skip"}
# The worst first: what a test over several GPUs has.
WORST_FIRST = ("fail", "warn", "skip", "pass")
# Versions 2 and 3 list the parts of the test that version 4 calls `software` one by one, under this category.
SOFTWARE = "software"
DEPLOYMENT = "deployment"
# Names of version 3 that are more than the same words in small letters with underscores.
NAMES = {"gpu_memory": "memory", "pulse": "pulse_test", "sm_stress": "sm_stress", "eud_test": "eud"}


def parse(text: t.Any, rc: int = 0, err: str = "") -> Parsed:
    """Read what `dcgmi diag -j` printed on standard output; `rc` is its exit status, `err` its standard error.

    Returns {"outcome": "measured" or "error", "reason_code", "reason", "version", "driver", "tests": {name: {"status": "pass", "warn",
    "fail" or "skip", "results": [{"gpus": DCGM's numbers, "entity": "GPU" or another word, "status", "warnings": texts, "info": texts}]}}}.
    """
    parsed: Parsed = {"outcome": "error", "reason_code": None, "reason": None, "version": None, "driver": None, "tests": {}}
    try:
        root = _root(text, rc, err)
        for category in _list(root, "test_categories"):
            for test in _list(category, "tests", may_be_null=True):
                _read_test(str(category.get("category")), test, parsed["tests"])
        _read_metadata(text, root, parsed)
        _check(root, rc, err, parsed)
    except ReasonedError as error:
        parsed.update(reason_code=error.reason_code, reason=error.reason)
        return parsed
    parsed["outcome"] = "measured"
    return parsed


def parse_discovery(text: t.Any) -> dict[str, int]:
    """Read `dcgmi discovery -l`: {UUID of a GPU: DCGM's number}. Each GPU has some lines of a table, its number in the first."""
    found: dict[str, int] = {}
    number: int | None = None
    for line in text.splitlines() if isinstance(text, str) and len(text) <= LIMIT else ():
        begins = re.match(r"\|\s*(\d{1,4})\s*\|", line)
        number = int(begins.group(1)) if begins else number
        uuid = re.search(r"Device UUID:\s*(GPU-[0-9A-Za-z-]{8,80})", line)
        if uuid and number is not None:
            found[uuid.group(1)] = number
    return found


def _root(text: t.Any, rc: int, err: str) -> Parsed:
    """Return the object that holds the diagnostic."""
    if not isinstance(text, str):
        raise ReasonedError("bad_output", f"found {type(text).__name__}, expected the text that dcgmi printed")
    if len(text) > LIMIT:
        raise ReasonedError("bad_output", f"{len(text)} characters are no output of dcgmi")
    document = _json(text)
    if not isinstance(document, dict):
        words = " ".join(f"{text} {err}".split())[:300]
        if rc:
            raise ReasonedError("tool_failed", f"dcgmi ended with status {rc}{f': {words}' if words else ' and said nothing'}")
        code = "incomplete_output" if "{" in text else "bad_output"
        raise ReasonedError(code, f"dcgmi printed no whole JSON{f': {words}' if words else ''}")
    root = next((document[name] for name in ROOTS if isinstance(document.get(name), dict)), None)
    if root is None:
        raise ReasonedError("bad_output", f"the JSON has neither {' nor '.join(map(repr, ROOTS))}")
    return t.cast("Parsed", root)


def _json(text: str) -> t.Any:
    """Return the JSON that begins at the first line with a brace; None if there is none, or if it is cut."""
    begin = re.search(r"^\s*\{", text, re.MULTILINE)
    if not begin:
        return None
    try:
        value, _end = json.JSONDecoder().raw_decode(text[begin.start() :].lstrip())
    except (ValueError, RecursionError):
        return None
    return value


def _list(of: Parsed, name: str, may_be_null: bool = False) -> list[Parsed]:
    """Return a list of objects. `may_be_null`: null may stand between them, as DCGM 3.1 prints it for a test that it does not have."""
    value = of.get(name, [])
    if may_be_null and isinstance(value, list):
        value = [item for item in value if item is not None]
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ReasonedError("bad_output", f"{name} is no list of objects")
    return value


def _read_test(category: str, test: Parsed, tests: Parsed) -> None:
    """Take in one test with the results of its GPUs."""
    name = test.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ReasonedError("bad_output", f"a test of the category {category[:60]!r} has no name")
    words = re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")[:60]
    is_part = category.strip().lower() == DEPLOYMENT and words != SOFTWARE
    name, prefix = (SOFTWARE, f"{words}: ") if is_part else (NAMES.get(words, words), "")
    results = [_result(name, result, prefix) for result in _list(test, "results")]
    summary = test.get("test_summary")
    if isinstance(summary, dict) and "status" in summary:
        overall = {**_result(name, summary, prefix), "entity": "all"}
        # What the results of the GPUs say already says more.
        if all(WORST_FIRST.index(overall["status"]) < WORST_FIRST.index(result["status"]) for result in results):
            results.append(overall)
    if not results:
        raise ReasonedError("incomplete_output", f"{name} has no result")
    entry = tests.setdefault(name, {"status": "pass", "results": []})
    entry["results"] += results
    entry["status"] = next(word for word in WORST_FIRST if any(result["status"] == word for result in entry["results"]))


def _result(name: str, result: Parsed, prefix: str) -> Parsed:
    status = STATUS.get(str(result.get("status")).strip().lower())
    if status is None:
        raise ReasonedError("bad_output", f"{name} has the status {str(result.get('status'))[:60]!r}, expected Pass, Warn, Fail or Skip")
    numbers = re.findall(r"\d{1,4}", str(result.get("entity_id", result.get("gpu_ids", result.get("gpu_id", "")))))
    return {
        "gpus": [int(number) for number in numbers],
        "entity": str(result.get("entity_group", "GPU"))[:20],
        "status": status,
        "warnings": [prefix + text for text in _texts(result.get("warnings"))],
        "info": [prefix + text for text in _texts(result.get("info"))],
    }


def _texts(value: t.Any) -> list[str]:
    """Return texts of a list, each a text itself or an object with one."""
    values = value if isinstance(value, list) else [value] if value else []
    texts = (item.get("warning", item.get("message")) if isinstance(item, dict) else item for item in values)
    return [" ".join(str(text).split())[:300] for text in texts if text]


def _read_metadata(text: str, root: Parsed, parsed: Parsed) -> None:
    """Take in the versions of DCGM and of the driver, which stand at the root or beside it."""
    document = _json(text)
    metadata = document.get("metadata") if isinstance(document.get("metadata"), dict) else {}
    for key, names in (("version", ("version", "DCGM Version")), ("driver", ("Driver Version Detected", "driver_version"))):
        value = next((place[name] for place in (metadata, root, document) for name in names if isinstance(place.get(name), str)), None)
        parsed[key] = value[:60] if value else None


def _check(root: Parsed, rc: int, err: str, parsed: Parsed) -> None:
    """Raise ReasonedError if the diagnostic did not come to its end, or if it contradicts itself."""
    problem = root.get("runtime_error") or root.get("Warning")
    if problem and not parsed["tests"]:
        raise ReasonedError("tool_failed", f"dcgmi: {' '.join(str(problem).split())[:300]}")
    if not parsed["tests"]:
        raise ReasonedError("bad_output", "the diagnostic ran no test")
    if problem:
        raise ReasonedError("incomplete_output", f"the diagnostic did not come to its end: {' '.join(str(problem).split())[:300]}")
    if rc and all(test["status"] in ("pass", "skip") for test in parsed["tests"].values()):
        words = " ".join(err.split())[:300]
        raise ReasonedError("tool_failed", f"dcgmi ended with status {rc} although no test failed{f': {words}' if words else ''}")
