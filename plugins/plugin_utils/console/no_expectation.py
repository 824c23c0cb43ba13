# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collectives of a request that no shipped expectation is for, as far as the hardware is known before the run.

An inventory may have expectations of its own, which nobody knows here: who reads this is told of both.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import matching
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData

# More than a person reads.
MOST = 16


def missing(
    stages: t.Iterable[str],
    settings: t.Mapping[str, t.Any],
    nodes: t.Iterable[str],
    gpus: t.Mapping[str, int],
    models: t.Mapping[str, str],
) -> list[str]:
    """Return each operation without an expectation, like `nccl_node alltoall on 8 x NVIDIA H200`, at most MOST.

    `gpus` has the number of GPUs and `models` the GPU model of the nodes of which they are known. What is not known rules no expectation
    out."""
    hardware = dict.fromkeys((models.get(node), gpus.get(node)) for node in nodes)
    lines: dict[str, None] = {}
    for stage in stages:
        entries = [entry.match for entry in expectations.shipped().entries if entry.match["stage"] == stage]
        for operation in settings.get(f"{stage}_ops") or ():
            for model, count in hardware:
                for number in _numbers(settings.get(f"{stage}_gpus"), count):
                    known = {"check": operation, "gpu": model, "gpus": number}
                    if not any(_can_hold(match, known) for match in entries):
                        words = " x ".join(str(word) for word in (number, model) if word is not None) if model else ""
                        lines[f"{stage} {operation}{f' on {words}' if words else ''}"] = None
    return list(lines)[:MOST]


def _numbers(asked: t.Any, count: int | None) -> list[int | None]:
    """Return the numbers of GPUs that a stage uses on a node with `count` GPUs; None for one that is not known."""
    words = map(str, asked) if isinstance(asked, list) else ["all"]
    return [int(word) if word.isdigit() else count if word == "all" else None for word in words]


def _can_hold(match: t.Mapping[str, t.Any], known: PlainData) -> bool:
    return matching.mismatch({key: value for key, value in match.items() if known.get(key) is not None}, known) is None
