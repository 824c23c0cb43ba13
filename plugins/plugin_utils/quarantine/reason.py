# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reason that stands at a quarantined node: written by us, and recognised as ours only if nobody has changed it.

    gpufleet.acceptance 20260101T000000Z-0a1b2c part 20260101T101500Z 1f0c9a3e: gpu-03 GPU 7: uncorrectable memory errors

Run, class, time of the quarantine, and a digest of all the rest. Names of checks may be among the words, and nothing depends on them: a
check that is renamed leaves no node behind.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import calendar
import contextlib
import hashlib
import re
import time
import typing as t

# How a reason of ours begins. A prefix that is replaced one day stays here behind the new one, so that its nodes are still given back.
PREFIXES = ("gpufleet.acceptance",)
# Bytes of a reason. slurmdbd keeps 255 (`reason tinytext` of its event table, src/plugins/accounting_storage/mysql).
LIMIT = 240
# The classes of a conviction: what there is to repair.
PART, CONFIGURATION, USE, UNMEASURED = CLASSES = ("part", "configuration", "use", "unmeasured")

_FORM = re.compile(
    rf"(?:{'|'.join(map(re.escape, PREFIXES))}) (?P<run>\d{{8}}T\d{{6}}Z-[0-9a-f]{{6}}) (?P<kind>[a-z]+) (?P<at>\d{{8}}T\d{{6}}Z)"
    r" (?P<digest>[0-9a-f]{8}): (?P<words>.*)"
)
_TIME = "%Y%m%dT%H%M%SZ"


class Mark(t.NamedTuple):
    """The content of a reason of ours: the run, the class, the time of the quarantine (seconds since 1970), and the cause in words."""

    run: str
    kind: str
    at: int
    words: str


def text_of(mark: Mark) -> str:
    """Return the reason for a node. Words that are too long are cut; characters that a shell, a table or a terminal would take for
    something else are left out."""
    at = time.strftime(_TIME, time.gmtime(mark.at))
    room = LIMIT - len(f"{PREFIXES[0]} {mark.run} {mark.kind} {at} 01234567: ")
    words = "".join(c if c.isascii() and c.isprintable() and c not in "\"'\\|`$" else " " for c in mark.words)
    words = " ".join(words.split())
    words = words if len(words) <= room else f"{words[: room - 3].rstrip()}..."
    return f"{PREFIXES[0]} {mark.run} {mark.kind} {at} {_digest(mark.run, mark.kind, at, words)}: {words}"


def mark_of(text: str) -> Mark | None:
    """Return what a reason says if it is ours and as we wrote it, else None."""
    match = _FORM.fullmatch(text)
    if match is None or match["digest"] != _digest(match["run"], match["kind"], match["at"], match["words"]):
        return None
    try:
        at = calendar.timegm(time.strptime(match["at"], _TIME))
    except ValueError:
        return None
    return Mark(match["run"], match["kind"], at, match["words"])


def is_changed(text: str) -> bool:
    """Return True if a reason begins like one of ours and is none any more."""
    return text.startswith(PREFIXES) and mark_of(text) is None


def began(run: str) -> int:
    """Return when a run began, by its id, in seconds since 1970, 0 if the id has no time."""
    with contextlib.suppress(ValueError):
        return calendar.timegm(time.strptime(run.partition("-")[0], _TIME))
    return 0


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]
