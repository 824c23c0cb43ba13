# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fuzz target: what the ranks of the stage ddp print."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import ddp
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes.ddp import table

WORLD = 4


def _rank(number: int, **more: t.Any) -> dict[str, t.Any]:
    return {"rank": number, "node": f"gpu-0{number // 2 + 1}", **more}


def _text(*records: dict[str, t.Any]) -> str:
    nodes = [{"kind": "node", "node": f"gpu-0{n}", "torch": "2.6.0", "nccl": "2.21.5"} for n in (1, 2)]
    ranks = [{"kind": "rank", **_rank(n), "world": WORLD, "local": n % 2, "uuid": f"GPU-{n}"} for n in range(WORLD)]
    return "[ENV] gpu-01: torch\n" + "".join(json.dumps(record) + "\n" for record in (*nodes, *ranks, *records))


_CHECKED = {
    "kind": "checked", "op": "all_gather", "type": "int32", "elements": 4096, "wrong": 0, "ranks": [], "senders": {}, "unsupported": "",
}  # fmt: skip
_ROW = {"kind": "bandwidth", "op": "all_reduce", "size": 1048576, "time_us": 41.5, "algbw": 25.2, "busbw": 37.9}
_TRAINED = {"kind": "training", "steps": 30, "finite": True, "identical": True, "repeatable": True, "odd": [], "ratio": 0.1}
_PACES = [{"kind": "pace", **_rank(n), "compute_ms": 1.5, "step_ms": 2.5} for n in range(WORLD)]
_ENDS = [{"kind": "end", **_rank(n)} for n in range(WORLD)]
_FAULT = {"kind": "fault", "code": "timeout", "reason": "Timed out", "op": "all_reduce int32", "seq": 5}
HEALTHY_RUN = _text(_CHECKED, _ROW, _TRAINED, *_PACES, *_ENDS)
SEEDS = [
    HEALTHY_RUN,
    _text({**_CHECKED, "wrong": 4, "ranks": [0, 1], "senders": {"2": 4}, "example": "rank 0: element 7 is 1, expected 2"}, *_ENDS),
    _text(*({**_FAULT, **_rank(n)} for n in range(3)), {"kind": "at", **_rank(3), "op": "init_process_group", "seq": 4}),
    _text({"kind": "ended", **_rank(3), "local": 1, "exitcode": -9}, {**_FAULT, **_rank(0), "code": "partner"}),
]


def check(text: str, _healthy: str) -> None:
    """Never an exception; a cause has a reason and a code of ours; rows are numbers; values that are wrong stay wrong."""
    found = ddp.parse(text)
    for ends in ({}, {"gpu-01": 1, "gpu-02": 137}, {"gpu-02": 255}):
        cause = ddp.cause(found, ends, text, WORLD)
        assert cause is None or (cause.code in reasons.ALL and cause.reason and isinstance(cause.reason, str))
        assert cause is not None or set(range(WORLD)) <= found["done"]
    wrong = ddp.wrong(found)
    assert (wrong is None) == (not any(one["wrong"] for one in found["checked"]))
    for row in table(found, None)["rows"]:
        assert isinstance(row["size"], int) and all(isinstance(value, (int, float)) for value in row["in_place"].values())
