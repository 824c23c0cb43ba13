# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fuzz target: hccl_test text."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.acceptance.plugins.module_utils import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.hccl_test import parse


def output(sizes: list[int], prefix: str = "", check: str = "success", unit: float = 1e3) -> str:
    """As the program prints it (there are no recordings): a plausible sweep over `sizes`."""
    lines = [
        f"the minbytes is {sizes[0]}, maxbytes is {sizes[-1]}, iters is 20, warmup_iters is 5",
        "data_size(Bytes): | aveg_time(us): | alg_bandwidth(GB/s): | check_result:",
    ]
    for size in sizes:
        time = 60 + size / 25000
        lines.append(f"{size:<17} | {time:<14.2f} | {size / time / unit:<20.5f} | {check}")
    return "".join(f"{prefix}{line}\n" for line in lines)


DOUBLED = [8192 << n for n in range(14)]
SEEDS = [
    output(DOUBLED), output([n << 20 for n in range(1, 12)], check="NULL"), output(DOUBLED, "[1,0]<stdout>: "),
    output(DOUBLED, unit=2**30 / 1e6), output(DOUBLED).replace("524288 ", "local rank_id 3, check result failed, 524288 "),
]  # fmt: skip
KEYS = set(parse(""))


def check(text: str, healthy: str) -> None:
    """Never an exception, always the same shape, and measured only with rows that stand in the text, up to the largest size."""
    found = parse(text, op="all_reduce", ranks=8)
    assert set(found) == KEYS
    assert found["outcome"] in ("measured", "error")
    if found["outcome"] == "error":
        assert found["reason_code"] in reasons.ALL and found["reason"]
        return
    assert found["reason_code"] is None and found["complete"] and found["rows"] and "failed" not in text
    lines = [
        {float(w) for w in re.findall(r"\d+(?:\.\d+)?", line)} for line in text.replace("\x1b[31m", "").replace("\r", "\n").split("\n")
    ]
    for row in found["rows"]:
        half = row["out_of_place"]
        assert half["time_us"] > 0 and half["algbw"] >= 0 and not half["wrong"]
        assert any({float(row["size"]), half["time_us"], half["algbw"]} <= line for line in lines)
    sizes = [row["size"] for row in found["rows"]]
    assert sizes == sorted(set(sizes)) and found["peak_busbw"]["value"] >= 0
