# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fuzz target: perftest text and JSON."""

from __future__ import annotations

import pathlib

from ansible_collections.gpufleet.acceptance.plugins.module_utils import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.perftest import parse

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "perftest-rxe"
SEEDS = [
    p.read_text() for name in ("ib_*_n*.txt", "ib_*_D3.*", "ib_*_a_n20.*", "ib_*_bidir.*", "err_*.txt") for p in sorted(FIXTURES.glob(name))
]
KEYS = set(parse(""))


def values(row: dict[str, object]) -> list[float]:
    found: list[float] = []
    for name, value in row.items():
        if isinstance(value, dict):
            found += values({k: v for k, v in value.items() if k != "unit"})
        elif value is not None and name != "side":
            found.append(float(str(value)))
    return found


def check(text: str, healthy: str) -> None:
    """Never an exception, always the same shape, and measured only with numbers that stand in the text beside each other."""
    found = parse(text)
    assert set(found) == KEYS
    assert found["outcome"] in ("measured", "error")
    if found["outcome"] == "error":
        assert found["reason_code"] in reasons.ALL and found["reason"]
        return
    assert found["reason_code"] is None and found["rows"] and found["test"] and found["tool"]
    is_json = text.lstrip().startswith("{")
    assert is_json or text.rindex("-" * 20) > text.rindex("#bytes")
    lines = [
        {float(w) for w in line.split() if w.replace(".", "", 1).isdecimal()} for line in text.split("\n") if line.strip()[:1].isdigit()
    ]
    for row in found["rows"]:
        assert row["bytes"] > 0 and row["iterations"] > 0
        if found["test"]["kind"] == "bw":
            assert row["bw_average"]["value"] > 0 and row["bw_average"]["unit"] in ("Gb/s", "MiB/s")
            assert row["bw_peak"] is None or row["bw_peak"]["value"] > 0
        else:
            assert row["t_avg"] > 0
        if is_json:
            bare = {float(w) for w in text.replace(",", " ").replace(":", " ").split() if w.replace(".", "", 1).isdecimal()}
            assert set(values(row)) <= bare
        else:
            assert any(set(values(row)) <= line for line in lines)
