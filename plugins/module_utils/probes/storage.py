# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""File systems that the inventory names: how they are mounted, that data comes back as it was written, and how fast they are.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import common_start
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage import alone, together
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage.checks import OF_MANY, OF_SHARED
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import told
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node


def default_checks(params: Params) -> list[dict[str, str]]:
    """Return the checks of a call that names none."""
    return [
        {"check": check, "variant": observation.variant(storage=entry["name"])}
        for entry in params["storage"] for check in params["tests"] if not entry.get("shared") or check in OF_SHARED
    ]  # fmt: skip


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """Yield an observation of the node for each check {"check": one of CHECKS, "variant": "storage=NAME"}."""
    if params.get("timetables") or params.get("meeting"):
        yield from _together(params, node)
        return
    for entry in params["storage"]:
        variant = observation.variant(storage=entry["name"])
        wanted = [check["check"] for check in params["checks"] if check["variant"] == variant]
        if wanted:
            yield from alone.StorageTest(params, node, entry, wanted).observations()


def _together(params: Params, node: Node) -> t.Iterator[Observation]:
    """Yield the checks of many nodes, which begin together: at the moment that is told from outside, or that the first of them says."""
    try:
        if params.get("meeting"):
            message = told.message(node, **params["meeting"])
            if message is None:
                raise ReasonedError("timeout", f"which nodes work together was not told within {params['meeting']['within']:.0f} s")
            params = {**params, **{name: message[name] for name in ("timetables", "first", "own_name")}}
        if not any(params["own_name"] in table["nodes"] for table in params["timetables"]):
            raise ReasonedError("partner", "no other node takes part")
        first = params.get("first")
        if first and first["node"] == params["own_name"]:
            first = {**first, "address": ""}
        with common_start.Beginning(first, params["begins_in"], min(params["ask_timeout"], node.remaining())) as begin:
            yield from _by_timetables({**params, "begin": begin}, node)
    except ReasonedError as error:
        yield from (_not_made(check, error.reason_code, error.reason) for check in params["checks"])


def _by_timetables(params: Params, node: Node) -> t.Iterator[Observation]:
    entries = {entry["name"]: entry for entry in params["storage"]}
    own_tables = [table for table in params["timetables"] if params["own_name"] in table["nodes"]]
    tables = {observation.variant(storage=table["storage"]): table for table in own_tables}
    yield from (_not_made(check, "partner", "no other node takes part") for check in params["checks"] if check["variant"] not in tables)
    for variant, timetable in tables.items():
        wanted = [check["check"] for check in params["checks"] if check["variant"] == variant and check["check"] in OF_MANY]
        if wanted:
            yield from together.TogetherTest(params, node, entries[timetable["storage"]], wanted, timetable).observations()


def _not_made(check: t.Mapping[str, str], code: str, words: str) -> Observation:
    return observation.failed(check["check"], code, words, variant=check["variant"])
