# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoints of a stage on a node: what the node had finished when its controller died, and which of it a resume may use.

A session's file begins with a header, which says what was asked for, and its guardian ends it with a trailer: the length and the checksum
of all lines before. A resume uses a file only if it is whole, and only for checks that are asked for again as the same attempt, by the same
run, for the same stage with the same settings, on the same machine since the same boot. Everything else is measured again.

A stage of single nodes has finished the observations in its file. In a stage between nodes no node can tell by itself what is finished:
its probe leaves checkpoints in the file, which no controller is sent, and decides itself which of them still hold when it is asked again
(group.py and the probe perftest). In the file they have the key "memo", and the header of such a stage has "memos".

A stage of single nodes that continues (`continues` of the run) leaves checkpoints too, of what it has done so far. They hold for each later
attempt of the run, after a reboot, and in a file that nobody has ended: the node may have been cut off at any moment.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import typing as t
import zlib

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import PlainData


def header(
    run: PlainData, checks: t.Sequence[t.Mapping[str, str]], machine_id: str, boot_id: str, settings: t.Mapping[str, t.Any]
) -> PlainData | None:
    """Return the first line of a session's file, None if no resume may use the file: outside a run, or if the probe leaves no checkpoints
    (the run gives no attempts then).

    `settings` are all options that the measurement depends on besides `checks`. For a stage between nodes the run gives their digest: the
    options of its module are made anew each time that it begins.
    """
    attempts, between, continues = run.get("attempts"), bool(run.get("settings")), bool(run.get("continues"))
    if not attempts or not run.get("run_id") or not (checks or between):
        return None
    text = json.dumps(settings, sort_keys=True, default=str)
    began = {
        "run_id": run["run_id"],
        "stage": run.get("stage"),
        "machine_id": machine_id,
        "boot_id": boot_id,
        "settings": run["settings"] if between else zlib.crc32(text.encode("utf-8", "replace")),
        "attempts": attempts if between else {name_of(check): attempts.get(name_of(check)) for check in checks},
    }
    if continues:
        began.update(boot_id="", attempts={})
    return {"began": began, "memos": between, **({"continues": True} if continues else {})}


def name_of(check: t.Mapping[str, t.Any]) -> str:
    """Return the name of a check of a node, or of the pair or group that the node speaks for. `check` is an item of the plan or an
    observation."""
    subject = check.get("subject") or {}
    subject_id = subject["id"] if subject.get("kind", "node") != "node" else ""
    return " ".join(filter(None, (check["check"], check.get("variant"), subject_id)))


def checkpoint(name: str, key: t.Any, **content: t.Any) -> PlainData:
    """Return the record by which a probe says that the check `name`, or the part `key` of it, is finished."""
    return {"memo": {"of": name, "key": key, **content}}


def is_result(record: t.Mapping[str, t.Any]) -> bool:
    """Return True if a record is for the controller."""
    return "memo" not in record and "began" not in record


def trailer(path: str, how: str, undone: list[str]) -> PlainData:
    """Return the last line of a session's file, as the guardian writes it. `how`: how the session ended."""
    with open(path, "rb") as source:
        data = source.read()
    return {"end": how, "undone": undone, "bytes": len(data), "crc32": zlib.crc32(data)}


def has_finished(path: str) -> bool:
    """Return True if a session's file holds anything finished. In a stage between nodes only checkpoints count: its observations may be
    what nodes saw of one another while they were ended one by one."""
    try:
        with open(path, "rb") as source:
            between = bool(json.loads(source.readline()).get("memos"))
            return any(line.startswith(b'{"memo"') if between else not line.startswith(b'{"fault"') for line in source)
    except (OSError, ValueError, AttributeError):
        return False


def load(path: str, requested: PlainData) -> list[PlainData]:
    """Return the observations in an earlier file of a session that answer what is asked for now, by the header `now`; for a stage between
    nodes the checkpoints of these checks. Empty if the file cannot be used."""
    if requested.get("continues"):
        return _continued(path, requested)
    records = _read_whole(path)
    if not records or not isinstance(records[0].get("began"), dict) or bool(records[0].get("memos")) != bool(requested.get("memos")):
        return []
    earlier, current = dict(records[0]["began"]), dict(requested["began"])
    earlier_attempts, attempts = earlier.pop("attempts", None) or {}, current.pop("attempts")
    if earlier != current or not (current["boot_id"] and isinstance(earlier_attempts, dict)):
        return []
    if requested.get("memos"):
        same = {name for name, attempt in attempts.items() if attempt is not None and earlier_attempts.get(name) == attempt}
        return [record for record in records[1:-1] if isinstance(record.get("memo"), dict) and record["memo"].get("of") in same]
    observations = [record for record in records[1:-1] if "fault" not in record]
    if any(not isinstance(o.get("check"), str) or o.get("subject") or name_of(o) not in earlier_attempts for o in observations):
        return []  # the file has more than was asked for: no check in it is known to be complete
    usable = []
    for name, attempt in attempts.items():
        of_check = [o for o in observations if name_of(o) == name]
        if attempt is not None and earlier_attempts.get(name) == attempt and _is_complete(of_check):
            usable += of_check
    return usable


def _continued(path: str, requested: PlainData) -> list[PlainData]:
    """Return the checkpoints of a probe that continues, up to the first line that is not whole."""
    records = _read_begun(path)
    if not records or records[0] != requested:
        return []
    return [record for record in records if isinstance(record.get("memo"), dict)]


def is_cut_off(path: str) -> bool:
    """Return True if the file is that of a probe that continues and that was ended before it was done."""
    records = _read_begun(path)
    if not records or not records[0].get("continues"):
        return False
    end = next((record["end"] for record in records if "end" in record), None)
    return end in (None, "interrupted", "connection lost", "controller lost")


def _read_begun(path: str) -> list[PlainData]:
    """Return the records of a file up to the first line that is none; empty if there is no file."""
    records: list[PlainData] = []
    try:
        with open(path, "rb") as source:
            for line in source:
                record = json.loads(line)
                if not line.endswith(b"\n") or not isinstance(record, dict):
                    break
                records.append(record)
    except (OSError, ValueError):
        pass
    return records


def _is_complete(observations: list[PlainData]) -> bool:
    """Return True if these are all observations of a check: the node's own, once, and each of the parts that it names."""
    parts = [o.get("part") or "" for o in observations]
    of_node = [o for o in observations if not o.get("part")]
    return len(of_node) == 1 and len(set(parts)) == len(parts) and set(of_node[0].get("members") or ()) <= set(parts)


def _read_whole(path: str) -> list[PlainData]:
    """Return the records of a file that its guardian has ended, and that is still what was written; empty for any other file."""
    try:
        with open(path, "rb") as source:
            data = source.read()
    except OSError:
        return []
    lines = data.split(b"\n")
    if len(lines) < 3 or lines.pop():
        return []  # the last line is cut
    content = data[: -len(lines[-1]) - 1]
    try:
        records = [json.loads(line) for line in lines]
    except ValueError:
        return []
    end = records[-1]
    if not all(isinstance(record, dict) for record in records) or "end" not in end:
        return []
    return records if (end.get("bytes"), end.get("crc32")) == (len(content), zlib.crc32(content)) else []
