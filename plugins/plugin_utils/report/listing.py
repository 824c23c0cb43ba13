# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of a large run that report.json, JUnit and Prometheus list.

Programs that read these files give up on hundreds of megabytes. Every row stands in the verdicts of the run and, with all of its numbers,
in the journal. So a run of more than ROWS rows lists those that are not PASS, the worst first, at most ROWS, and counts the others.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import verdict_files
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import (
    CheckRows,
    NodeRow,
    Report,
    Row,
    StageRows,
    Unlisted,
)

# Some 100 nodes of the standard level have so many rows.
ROWS = 20_000
GOOD = "PASS"


def leave_out(checks: t.Mapping[str, list[CheckRows]], nodes: list[NodeRow]) -> Unlisted | None:
    """Set `unlisted` of each check, {stage: checks}. Return what is left out; None if all is listed."""
    groups = [group for of_stage in checks.values() for group in of_stage]
    total = sum(len(group["rows"]) for group in groups)
    if total > ROWS:
        for group, count in zip(groups, _listed([group["counts"] for group in groups]), strict=True):
            group["unlisted"] = len(group["rows"]) - count
    left_out = sum((unlisted(group) for group in groups), collections.Counter[str]())
    pairs = len(nodes) - sum(1 for _node in _nodes(nodes))
    if not left_out and not pairs:
        return None
    words = ", ".join(f"{left_out[word]} {word}" for word in WORST_FIRST if left_out[word])
    parts = [f"{left_out.total()} of {total} rows ({words})"] if left_out else []
    parts += [f"{pairs} pairs"] if pairs else []
    said = f"Not listed in this file: {' and '.join(parts)}. {verdict_files.WORDS} has every verdict, the journal every number of the run."
    return {"rows": left_out.total(), "of": total, "pairs": pairs, "said": said}


def rows(group: CheckRows) -> list[Row]:
    """Return the rows of a check that are listed."""
    return group["rows"][: len(group["rows"]) - group["unlisted"]] if group["unlisted"] else group["rows"]


def unlisted(group: CheckRows) -> collections.Counter[str]:
    """Return {verdict: number} of the rows of a check that are not listed."""
    return collections.Counter(row["verdict"] for row in group["rows"][len(group["rows"]) - group["unlisted"] :])


def stage(of: StageRows) -> StageRows:
    """Return a stage with the listed rows of its checks only."""
    return {**of, "checks": [{**group, "rows": rows(group)} for group in of["checks"]]}


def nodes(model: Report) -> t.Iterator[NodeRow]:
    """Yield the nodes, switches and groups, and the pairs that are listed."""
    return _nodes(model["nodes"])


def _nodes(rows: list[NodeRow]) -> t.Iterator[NodeRow]:
    room = ROWS
    for row in rows:  # the worst first
        if row["kind"] != "pair" or len(rows) <= ROWS:
            yield row
        elif row["verdict"] != GOOD and room > 0:
            room -= 1
            yield row


def _listed(counts: list[dict[str, int]]) -> list[int]:
    """Return how many rows of each check are listed, from {verdict: number of rows} of each. If a verdict has more rows than there is room
    for, its checks share the room."""
    listed = [0] * len(counts)
    room = ROWS
    for word in WORST_FIRST:
        if word == GOOD:
            continue
        wanted = [of.get(word, 0) for of in counts]
        shares = _shares(wanted, room)
        listed = [before + share for before, share in zip(listed, shares, strict=True)]
        if shares != wanted:
            break
        room -= sum(shares)
    return listed


def _shares(wanted: list[int], room: int) -> list[int]:
    """Return how much of `room` each gets: all that it wants, or the same as the others that want more."""
    shares = [0] * len(wanted)
    left = len(wanted)
    for index in sorted(range(len(wanted)), key=wanted.__getitem__):
        shares[index] = min(wanted[index], room // left)
        room -= shares[index]
        left -= 1
    return shares
