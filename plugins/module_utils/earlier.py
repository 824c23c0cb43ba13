# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node had finished of a stage when its controller died, and what of it may be taken as the answer.

A session's file begins with what it was asked, and its guardian ends it with the length and the checksum of what stands before. Taken is
what such a whole file says of checks that are asked again as the same attempt: by the same run, of the same stage with the same settings,
on the same machine since the same boot. Everything else is measured again.

What a node alone has finished is its observations. A stage between nodes is no matter of one node: its probe leaves memos beside them,
which no controller is sent, and itself says, when it is asked again, which of them still hold (group.py and the probe perftest).

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import typing as t
import zlib

Record = t.Dict[str, t.Any]


def asked(
    run: Record, checks: t.Sequence[t.Mapping[str, str]], machine_id: str, boot_id: str, settings: t.Mapping[str, t.Any]
) -> Record | None:
    """The first line of a session's file; None where nothing may be taken over: outside a run, and where the probe cannot (no attempts
    are given then). `settings` are all that the measurement depends on besides. Of a stage between nodes the run says them in one word:
    the options of its module are made anew each time that it begins."""
    attempts, between = run.get("attempts"), bool(run.get("settings"))
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
    return {"began": began, "memos": between}


def name_of(check: t.Mapping[str, t.Any]) -> str:
    """A check of a node, or of the pair or group that it speaks for, in one word: of an item of the plan and of an observation."""
    subject = check.get("subject") or {}
    about = subject["id"] if subject.get("kind", "node") != "node" else ""
    return " ".join(filter(None, (check["check"], check.get("variant"), about)))


def memo(of: str, key: t.Any, **what: t.Any) -> Record:
    """What a probe leaves in the session's file for whoever resumes: that what has the name `of` is finished, or this `key` of it."""
    return {"memo": {"of": of, "key": key, **what}}


def is_answer(record: t.Mapping[str, t.Any]) -> bool:
    """Whether a record is for the controller."""
    return "memo" not in record and "began" not in record


def closing(path: str, how: str, undone: list[str]) -> Record:
    """The last line of a session's file, as the guardian writes it."""
    with open(path, "rb") as source:
        data = source.read()
    return {"end": how, "undone": undone, "bytes": len(data), "crc32": zlib.crc32(data)}


def said_something(path: str) -> bool:
    """Whether a session's file holds anything finished. What nodes saw of one another while they were ended one by one is nothing."""
    try:
        with open(path, "rb") as source:
            memos = bool(json.loads(source.readline()).get("memos"))
            return any(line.startswith(b'{"memo"') if memos else not line.startswith(b'{"fault"') for line in source)
    except (OSError, ValueError, AttributeError):
        return False


def take(path: str, now: Record) -> list[Record]:
    """The observations in an earlier file of this session that answer what is asked now; of a stage between nodes the memos about it."""
    found = _whole(path)
    if not found or not isinstance(found[0].get("began"), dict) or bool(found[0].get("memos")) != bool(now.get("memos")):
        return []
    then, wanted = dict(found[0]["began"]), dict(now["began"])
    before, attempts = then.pop("attempts", None) or {}, wanted.pop("attempts")
    if then != wanted or not (wanted["boot_id"] and isinstance(before, dict)):
        return []
    if now.get("memos"):
        same = {name for name, attempt in attempts.items() if attempt is not None and before.get(name) == attempt}
        return [record for record in found[1:-1] if isinstance(record.get("memo"), dict) and record["memo"].get("of") in same]
    observations = [record for record in found[1:-1] if "fault" not in record]
    if any(not isinstance(o.get("check"), str) or o.get("subject") or name_of(o) not in before for o in observations):
        return []  # it speaks of more than it was asked, and nobody could tell what of it is whole
    taken = []
    for name, attempt in attempts.items():
        mine = [o for o in observations if name_of(o) == name]
        if attempt is not None and before.get(name) == attempt and _finished(mine):
            taken += mine
    return taken


def _finished(observations: list[Record]) -> bool:
    """Whether they are all that a check says: the node itself, once, and each of the parts that it names."""
    parts = [o.get("part") or "" for o in observations]
    own = [o for o in observations if not o.get("part")]
    return len(own) == 1 and len(set(parts)) == len(parts) and set(own[0].get("members") or ()) <= set(parts)


def _whole(path: str) -> list[Record]:
    """The records of a file whose guardian has ended it, byte by byte as they were; none where anything is amiss."""
    try:
        with open(path, "rb") as source:
            data = source.read()
    except OSError:
        return []
    lines = data.split(b"\n")
    if len(lines) < 3 or lines.pop():
        return []  # the last line is cut
    before = data[: -len(lines[-1]) - 1]
    try:
        records = [json.loads(line) for line in lines]
    except ValueError:
        return []
    end = records[-1]
    if not all(isinstance(record, dict) for record in records) or "end" not in end:
        return []
    return records if (end.get("bytes"), end.get("crc32")) == (len(before), zlib.crc32(before)) else []
