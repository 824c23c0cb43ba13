# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fuzz target: nccl-tests text and JSON."""

from __future__ import annotations

import pathlib
import re

from ansible_collections.gpufleet.acceptance.plugins.module_utils import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.nccl_tests import parse

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures"
SEEDS = [
    p.read_text()
    for pattern in ("nccl-v*.txt", "g4-*.txt", "mpi-np*.txt", "nccl-v*.json")
    for p in sorted((FIXTURES / "h200-x4").glob(pattern))
]
SEEDS += [p.read_text() for p in sorted((FIXTURES / "h200-x2").iterdir()) if p.suffix != ".rc"]
KEYS = set(parse(""))


NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def check(text: str, healthy: str) -> None:
    """Never an exception, always the same shape, and measured only with the sweep, both last lines and numbers of the text."""
    found = parse(text)
    assert set(found) == KEYS
    assert found["outcome"] in ("measured", "error")
    if found["outcome"] == "error":
        assert found["reason_code"] in reasons.ALL and found["reason"]
        return
    assert found["reason_code"] is None and found["complete"] and found["rows"]
    assert found["out_of_bounds"]["ok"] and found["peak_busbw"]["value"] >= 0
    text = text.replace("\x1b[31m", "")
    if not text.lstrip().startswith("{"):
        assert "Out of bounds" in text and "Avg bus bandwidth" in text and "Rank" in text
    printed = {float(word) for word in NUMBER.findall(text)}
    for row in found["rows"]:
        assert row["size"] in printed and row["count"] in printed
        for half in (row["out_of_place"], row["in_place"]):
            assert half is None or (half["busbw"] >= 0 and not half["wrong"] and {half["busbw"], half["algbw"]} <= printed)
