# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The numbers of a request that no expectation is for, shipped or of the inventory, as far as they are known before the run.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import matching
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry

# More than a person reads.
MOST = 16
# Keys of a context that the name of a check, or a verdict's unit, does not tell a reader.
_SHOWN = ("shape", "size")


def missing(
    stages: t.Iterable[str],
    settings: t.Mapping[str, t.Any],
    nodes: t.Iterable[str],
    gpus: t.Mapping[str, int],
    models: t.Mapping[str, str],
    own: t.Mapping[str, expectations.Expectations],
) -> list[str]:
    """Return each number without an expectation, like `nccl_node alltoall on 8 x NVIDIA H200`, at most MOST.

    `gpus` has the number of GPUs and `models` the GPU model of the nodes of which they are known, `own` the expectations of the nodes for
    which the inventory has some. What is not known rules no expectation out."""
    kinds = {(models.get(node), gpus.get(node), id(own.get(node))): own.get(node) for node in nodes}
    lines: dict[str, None] = {}
    for stage in stages:
        contexts = registry.shipped()[stage].judged_contexts(dict(settings))
        for context in contexts:
            for (model, count, _id), of_node in kinds.items():
                entries = [e.match for e in (of_node or expectations.shipped()).entries if e.match["stage"] == stage]
                for number in _numbers(settings.get(f"{stage}_gpus"), count):
                    known = {**context, "gpu": model, "gpus": number}
                    if not any(_can_hold(match, known) for match in entries):
                        lines[_line(stage, context, number if f"{stage}_gpus" in settings else None, model)] = None
    return list(lines)[:MOST]


def _line(stage: str, context: PlainData, number: int | None, model: str | None) -> str:
    about = " ".join(f"{key}={context[key]}" for key in _SHOWN if context.get(key) is not None)
    words = " x ".join(str(word) for word in (number, model) if word is not None) if model else ""
    return f"{stage} {context['check']}{f' {about}' if about else ''}{f' on {words}' if words else ''}"


def _numbers(asked: t.Any, count: int | None) -> list[int | None]:
    """Return the numbers of GPUs that a stage uses on a node with `count` GPUs; None for one that is not known."""
    words = map(str, asked) if isinstance(asked, list) else ["all"]
    return [int(word) if word.isdigit() else count if word == "all" else None for word in words]


def _can_hold(match: t.Mapping[str, t.Any], known: PlainData) -> bool:
    size = known.get("size")
    if size is not None and not {None, matching.PLATEAU, size} & set(matching.sizes(match)):
        return False
    return matching.mismatch({key: value for key, value in match.items() if known.get(key) is not None}, known) is None
