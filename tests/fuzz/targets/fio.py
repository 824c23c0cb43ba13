# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fuzz target: the JSON of fio. Lies are errors that fio counted, and numbers that it does not print."""

from __future__ import annotations

import json
import pathlib
import random
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import fio

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "storage-fio"
SEEDS = [path.read_text() for path in sorted(FIXTURES.glob("*.json"))]
TRUTHS = [text for text in SEEDS if fio.parse(text).problem is None]


def check(text: str, healthy: str) -> None:
    """Never an exception; a problem has a code of ours and words; every number is one, and none is negative."""
    run = fio.parse(text)
    if run.problem:
        assert run.problem[0] in reasons.ALL and run.problem[1]
    else:
        assert run.version.startswith("fio-")
    for value in (*run.read, *run.write):
        assert isinstance(value, Absent) or 0 <= value < 1 << 63


def _changed(text: str, change: t.Callable[[dict[str, t.Any]], None]) -> str:
    document = json.loads(text)
    change(document["jobs"][0])
    return json.dumps(document, indent=2)


def _error(text: str, source: random.Random) -> str | None:
    return _changed(text, lambda job: job.update(error=source.randint(1, 4000)))


def _counted(text: str, source: random.Random) -> str | None:
    return _changed(text, lambda job: job.update(total_err=source.randint(1, 10**6)))


def _silent(text: str, source: random.Random) -> str | None:
    return _changed(text, lambda job: job.pop("error"))


LIES = {"an error": _error, "errors that were passed over": _counted, "no word of errors": _silent}


def accepts(text: str, healthy: str) -> bool:
    return fio.parse(text).problem is None
