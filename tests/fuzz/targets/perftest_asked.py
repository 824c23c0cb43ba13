# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fuzz target: the lies of the target perftest, read by somebody who knows what was asked for, as the probe does."""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from perftest import ASKED, HEALTHY, LIES, SEEDS, TRUTHS, UNSEEN, check, parse

__all__ = ["HEALTHY", "LIES", "SEEDS", "TRUTHS", "UNSEEN", "accepts", "check"]
STILL_UNSEEN = (
    "time and rate of a latency by duration of about 700 us swapped",
    "a row of a twin", "median and mean swapped", "deviation and a latency swapped", "a sweep cut to one row",
    "size, average or rate of a device below ten messages a second", "the iterations of a bandwidth in both directions",
    "t_min, t_max, a percentile or the deviation as the others admit", "the tables of both sides cut off after their sum",
)  # fmt: skip
UNSEEN = {kind: why for kind, why in UNSEEN.items() if kind in STILL_UNSEEN}


def accepts(text: str, healthy: str) -> bool:
    found, true = parse(text, **ASKED[healthy]), parse(healthy)
    same = all(found["test"] and found["test"][name] == true["test"][name] for name in ("op", "kind", "qps", "bidirectional"))
    return found["outcome"] == "measured" and same and (text == healthy or found != true)
