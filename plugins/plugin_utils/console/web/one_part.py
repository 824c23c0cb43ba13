# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a part: where it is and was, its problems and their causes, and its numbers, at whatever node they were measured.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import ordering, standing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.drawing import draw, url
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.past import Past
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.request_context import RequestContext, RequestRefused
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.hardware import SWITCH, FoundPart
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.searching import FoundVerdict, Query, literally
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.causes import GOOD
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import keys
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import parts as seen_parts
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import CauseRow

__all__ = ["NAMED_ONLY", "SWITCH", "about", "listed", "named", "part"]

if t.TYPE_CHECKING:
    from starlette.responses import Response

# Verdicts that are read, and of those the ones that the page shows.
ROWS, SHOWN = 2000, 200
# The newest nodes of a part whose findings are looked through for its name, and the newest runs whose causes are.
NODES, RUNS_WITH_CAUSES = 3, 5
# The most parts of a list of those with one name, and of an answer to a program.
PARTS, LISTED = 100, 20
# Kinds of parts that no check has as its subject: findings about them are those of their node.
NAMED_ONLY = ("dimm", "disk", "optic")


class Shown(t.NamedTuple):
    """The verdicts of a part, the newest first; the problems of those that are bad and stand; and causes that name it, each with
    its run."""

    rows: list[FoundVerdict]
    broken: list[standing.Problem]
    causes: list[tuple[str, CauseRow]]


def part(ask: RequestContext) -> Response:
    """Answer with the page of a part, or with a list if several have this name."""
    name = ask.one("name").strip()[:200]
    found = named(ask, name)
    if not found:
        raise RequestRefused(404, "error_no_part")
    if len(found) > 1:
        return draw(ask, "parts", name=name, parts=found[:PARTS], cut=len(found) > PARTS)
    (one,) = found
    known = about(ask.console.past, one)
    query = {"part": one.address}
    return draw(
        ask, "part", one=one, uuid=one.part.key.partition("/")[2] if one.kind == "gpu" else "", broken=known.broken,
        causes=known.causes, rows=ordering.verdicts(known.rows[:SHOWN], ask.one("sort")), sort=ask.one("sort"), cut=len(known.rows) > SHOWN,
        history=url("/history", query), curves=url("/history/curves", query) if any(row["numbers"] for row in known.rows) else "",
    )  # fmt: skip


def named(ask: RequestContext, name: str) -> list[FoundPart]:
    """Return the parts with this name, in which a node of a cluster may have the name that requests have for it."""
    found = ask.console.past.parts(name)
    node, _blank, rest = name.partition(" ")
    if found or not rest:
        return found
    state, _problem = ask.console.fleet.state()
    return ask.console.past.parts(f"{state.measured_as(node)} {rest}") if state else []


def listed(past: Past, found: t.Sequence[FoundPart]) -> list[PlainData]:
    """Return parts as plain data, for programs."""
    return [
        {
            **{field: getattr(one.part, field) for field in ("name", "model", "serial", "guid", "pci", "slot", "board", "connected")},
            "kind": one.kind, "address": one.address, "node": one.node,
            "places": [stay._asdict() for stay in one.stays],
            "causes": [{"run": run, "verdict": cause["verdict"], "said": cause["said"]} for run, cause in about(past, one).causes],
        }
        for one in found[:LISTED]
    ]  # fmt: skip


def about(past: Past, one: FoundPart) -> Shown:
    """Return the verdicts and causes of a part."""
    if one.kind in NAMED_ONLY:
        rows, stands = _naming(past, one)
    else:
        rows = past.search(Query(part=one.address), limit=ROWS).rows
        stands = standing.of_node(rows, lambda _key: True)
    causes = list(_causes(past, one, rows))
    broken = [row for row in stands if row["verdict"] not in GOOD]
    return Shown(rows, standing.problems(broken, lambda run: [cause for of_run, cause in causes if of_run == run]), causes)


def _naming(past: Past, one: FoundPart) -> tuple[list[FoundVerdict], list[FoundVerdict]]:
    """Return the findings of nodes that name a part while it was there, and those of them that stand."""
    rows: list[FoundVerdict] = []
    stands: list[FoundVerdict] = []
    for node in list(dict.fromkeys(stay.node for stay in one.stays))[:NODES]:
        every = past.search(Query(node=literally(node)), limit=ROWS).rows
        stays = [(stay.since, stay.until) for stay in one.stays if stay.node == node]
        bad = [row for row in every if row["verdict"] not in GOOD and any(since <= row["run"] <= until for since, until in stays)]
        rows += [row for row in bad if _is_named(one, row["reason"] or "")]
        if node == one.node:
            stands = [row for row in standing.of_node(every, lambda _key: True) if row in rows]
    return rows, stands


def _is_named(one: FoundPart, text: str) -> bool:
    own = one.part.serial if one.address == one.part.serial else ""
    return bool(own and own in text) or seen_parts.names(one.part, [text])


def _causes(past: Past, one: FoundPart, rows: t.Iterable[FoundVerdict]) -> t.Iterator[tuple[str, CauseRow]]:
    """Yield the causes that are about a part, of the newest runs in which it has a bad verdict."""
    bad = [row for row in rows if row["verdict"] not in GOOD]
    subjects = {row["subject"] for row in bad}
    for run in list(dict.fromkeys(row["run"] for row in bad))[:RUNS_WITH_CAUSES]:
        with contextlib.suppress(HistoryError):  # without them the verdicts are shown all the same
            for cause in past.causes(run):
                is_of_node = cause["subject"] in subjects and keys.node_of(cause["subject"]) == cause["subject"]
                if cause["subject"] in subjects and (not is_of_node or one.kind not in NAMED_ONLY or _is_named(one, cause["said"])):
                    yield run, cause
