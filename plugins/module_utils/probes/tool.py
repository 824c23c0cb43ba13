# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One tool of a team's own on a node: a command line, and where in its output the numbers are.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import math
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """One observation per check of `params["checks"]`, whose command line is `params["argv"]` with `{check}` and the
    variant's keys filled in."""
    for requested in params["checks"]:
        keys = dict(word.split("=", 1) for word in requested["variant"].split() if "=" in word)
        argv = [_fill(word, dict(keys, check=requested["check"])) for word in params["argv"]]
        result = node.run(argv, timeout=params["test_timeout"], env=params["env"], contained=True)
        common: dict[str, t.Any] = {
            "variant": requested["variant"],
            "command": argv,
            "raw": result.raw,
            "started_at": observation.utc(result.started_at),
            "duration_s": result.duration_s,
            "context": {**params["context"], **keys},
        }
        if not params["metrics"]:  # the exit status is the result: it needs no number
            common["context"]["condition"] = True
        check = requested["check"]
        if result.missing:
            code = "tool_missing" if result.missing == "not found" else "tool_not_executable"
            yield observation.failed(check, code, f"{argv[0]}: {result.missing}", **common)
        elif result.timed_out:
            reason = f"{argv[0]} did not end within {result.ended_after(params['test_timeout'])} and was ended"
            yield observation.failed(check, "timeout", reason, "timeout", **common)
        elif result.rc != 0:
            reason = f"{argv[0]} ended with status {result.rc}: {_last_words(result)}"
            yield observation.failed(check, "tool_failed", reason, **common)
        else:
            metrics, wrong = read(result.out, params["metrics"], result.err)
            if wrong:
                suffix = f"; {result.too_much}" if result.too_much else ""
                yield observation.failed(check, "bad_output", wrong + suffix, **common)
            else:
                yield observation.measured(check, metrics=metrics, **common)


def read(text: str, specs: list[dict[str, t.Any]], errors: str = "") -> tuple[dict[str, t.Any], str | None]:
    """The metrics in a tool's output, or what is wrong with it.

    Each of `specs` is {"name", "unit", "regex"} with one group around the number, or {"name", "unit", "json"} with the
    key in the one JSON object that the tool prints. Some tools print their numbers where errors go (dd): `errors` is searched too.
    """
    metrics = {}
    for metric in specs:
        if metric.get("json"):
            try:
                value = json.loads(text)[metric["json"]]
            except (ValueError, KeyError, TypeError):
                return {}, f"{metric['name']}: no number {metric['json']!r} in the JSON that the tool printed"
        else:
            try:
                matches = [match for words in (text, errors) for match in re.findall(metric["regex"], words, re.MULTILINE)]
            except re.error as error:
                return {}, f"{metric['name']}: regex: found {metric['regex']!r}, expected a regular expression: {error}"
            if len(matches) != 1:
                return {}, f"{metric['name']}: {metric['regex']!r} matches {len(matches)} times in the output, expected once"
            value = matches[0]
        try:
            number = float(value)
        except (TypeError, ValueError):
            return {}, f"{metric['name']}: found {value!r}, expected a number"
        if isinstance(value, bool) or not math.isfinite(number):
            return {}, f"{metric['name']}: found {value!r}, expected a number"
        metrics[metric["name"]] = {"value": number, "unit": metric["unit"]}
    return metrics, None


def _fill(word: str, keys: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: keys.get(match.group(1), match.group(0)), word)


def _last_words(result: t.Any) -> str:
    return " ".join((result.err or result.out).split())[-300:]
