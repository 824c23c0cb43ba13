# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The home page: the fleet as a heat map of nodes by stages, what is broken, and what runs and waits. Its filters are in the address.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import api, fleet
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.drawing import draw
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.request_context import RequestContext
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import searching
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData

if t.TYPE_CHECKING:
    from starlette.responses import Response

# Up to so many nodes are a table with a name in each row; more are a picture.
MOST_ROWS = 100
SHOWN = 8
NOT_MEASURED = "none"
# Nodes can be narrowed to those of which the last measurement is older than so many days.
OLDER_DAYS = (1, 7, 30, 90)
DAY_S = 86400


def home(ask: RequestContext) -> Response:
    state, problem = ask.console.fleet.state()
    infos, problem = _infos(ask, problem)
    name_part, stage, verdict, label = (ask.one(name).strip() for name in ("q", "stage", "verdict", "by"))
    measured = state.nodes if state else {}
    before_s = time.time() - int(ask.one("older")) * DAY_S if ask.one("older") in map(str, OLDER_DAYS) else None
    every = [measured.get(name) or fleet.NodeState(name) for name in sorted({*measured, *infos} - _covered(infos, measured))]
    stages = fleet.stages_of(every)
    shown_stages = [stage] if stage in stages else stages
    chosen = [
        node for node in every
        if name_part in node.name and (not verdict or (node.verdict(stage) or NOT_MEASURED) == verdict)
        and (before_s is None or node.judged_at < before_s)
    ]  # fmt: skip
    # While only the lists beside the picture are asked for, which change more often, a large picture is left out.
    is_picture = len(chosen) > MOST_ROWS
    groups = _groups(chosen, infos, label)
    walls = [] if ask.one("part") else [fleet.wall(name, nodes, shown_stages) for name, nodes in groups.items() if is_picture]
    return draw(
        ask, "home", state=state, problem=problem, stages=stages, shown_stages=shown_stages, groups=groups, walls=walls,
        is_picture=is_picture, count=len(chosen), all=len(every), labels=fleet.groupings(infos.values()),
        words=[*WORST_FIRST, NOT_MEASURED], older=OLDER_DAYS, counts=collections.Counter(node.verdict() or NOT_MEASURED for node in every),
        worse=[node for node in every if node.worse],
        all_simulated=bool(measured) and all(node.simulated for node in measured.values()), age=_age, runs=_runs(ask), most=SHOWN,
        **{phase.lower(): _actions(ask, phase) for phase in (actions.RUNNING, actions.QUEUED)},
    )  # fmt: skip


def _infos(ask: RequestContext, problem: str) -> tuple[dict[str, actions.NodeInfo], str]:
    """Return the nodes that requests may name, and a problem, the given one first."""
    try:
        return {info.name: info for info in ask.console.actions.nodes()}, problem
    except actions.ActionError as error:
        return {}, problem or str(error)


def _covered(infos: t.Container[str], measured: t.Mapping[str, fleet.NodeState]) -> set[str]:
    """Return the nodes of a cluster that were measured under a longer name."""
    return {fleet.requested(name) for name in measured if name not in infos and fleet.requested(name) not in measured}


def _groups(
    nodes: t.Iterable[fleet.NodeState], infos: t.Mapping[str, actions.NodeInfo], label: str
) -> dict[str, list[fleet.NodeState]]:
    groups: dict[str, list[fleet.NodeState]] = collections.defaultdict(list)
    for node in nodes:
        info = infos.get(node.name) or infos.get(fleet.requested(node.name))
        groups[fleet.group_of(info, label)].append(node)
    return dict(sorted(groups.items()))


def _actions(ask: RequestContext, phase: str) -> list[PlainData]:
    try:
        page = ask.console.actions.list(actions.Filters(namespace=ask.namespace, phase=phase, limit=SHOWN))
    except actions.ActionError:
        return []  # the page of all actions says why
    return [api.shown(action) for action in page.actions]


def _runs(ask: RequestContext) -> list[searching.JudgedRun]:
    try:
        return ask.console.past.runs(limit=5)
    except HistoryError:
        return []


def _age(ask: RequestContext, judged_at: float) -> str:
    """How long ago a node was measured, in the largest unit that fits."""
    seconds = max(0.0, time.time() - judged_at)
    for unit, length in (("days", 86400), ("hours", 3600)):
        if seconds >= length:
            return ask.words(f"age_{unit}", n=int(seconds // length))
    return ask.words("age_minutes", n=int(seconds // 60))
