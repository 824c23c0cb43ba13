# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with the stand-in, if anything: a file that is read again whenever somebody asks, so that it may change while all runs."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

FILE = pathlib.Path(__file__).resolve().parent / "defect.json"
_known: dict[str, t.Any] = {"when": 0, "is": {}}


def defect() -> dict[str, t.Any]:
    """{"name": ..., and what it needs besides}, or nothing."""
    try:
        when = FILE.stat().st_mtime_ns
        if when != _known["when"]:
            _known.update({"when": when, "is": json.loads(FILE.read_text())})
    except FileNotFoundError:
        _known.update({"when": 0, "is": {}})
    found: dict[str, t.Any] = _known["is"]
    nodes = found.get("nodes")
    return {} if nodes and os.environ.get("NODE_NAME") not in nodes else found


def planted(*names: str) -> bool:
    return defect().get("name") in names


def number(name: str, otherwise: float) -> float:
    return float(defect().get(name, otherwise))
