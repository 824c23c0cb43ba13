# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns the answer of a node, or its absence, into a measurement for every planned check.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import Check, Completer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer


def one_line(text: str, limit: int = 600) -> str:
    """Return the text of another program in one line, without invalid characters."""
    return " ".join(str(text).encode("utf-8", "replace").decode().split())[:limit]


def last_words(text: str) -> str:
    """Return the last line of a traceback, any other text unchanged."""
    return text.rstrip().rpartition("\n")[2] if "Traceback (most recent call last)" in text else text


def interpret(
    answer: NodeAnswer, completer: Completer, sender: str = "", planned: t.Collection[Check] | None = None
) -> list[PlainData]:
    """Return the measurements of an answer, with one that gives the reason for each planned check that the answer lacks.

    `sender` is the subject id of the node that answered and `planned` are its checks; without them, the target and all its checks.
    """
    observations = answer.get("observations")
    measurements = [completer.complete(item, sender) for item in observations] if isinstance(observations, list) else []
    have = {(m["check"], m["variant"], m["subject"]["id"]) for m in measurements}
    missing = [check for check in (completer.planned if planned is None else planned) if check not in have]
    if missing:
        code, reason, outcome = why_nothing(answer, sender or completer.target)
        ran = answer.get("ran")
        context = ran if isinstance(ran, dict) else {}
        measurements += [completer.failure(check, code, reason, outcome, context=dict(context)) for check in missing]
    return measurements


def with_observations(answer: NodeAnswer, change: t.Callable[[PlainData], PlainData]) -> NodeAnswer:
    """Return a copy of an answer with `change` applied to each observation. What is not an observation stays as it was sent."""
    observations = answer.get("observations")
    if not isinstance(observations, list):
        return answer
    return {**answer, "observations": [change(item) if isinstance(item, dict) else item for item in observations]}


def why_nothing(answer: NodeAnswer, host: str) -> tuple[str, str, str]:
    """Return reason code, reason and outcome of a check for which the module returned nothing."""
    if "lost" in answer:
        code, reason = answer["lost"]
        return code, reason, "missing"
    state = answer.get("state")
    if state == "refused":
        return str(answer.get("reason_code")), _with_host(host, one_line(answer.get("reason", ""))), "error"
    if state == "check_mode":
        return "check_mode", "check mode: nothing was measured", "missing"
    if state == "running":
        return "timeout", f"{host}: the probe is still running after its deadline and could not be ended", "timeout"
    end = answer.get("end")
    if state == "done":
        fault = answer.get("fault")
        if fault:
            return ("disk_full" if "No space left" in str(fault) else "module_failed"), f"{host}: {one_line(fault)}", "error"
        if end == "timeout":
            return "timeout", f"{host}: the stage's deadline passed before this was measured; see its timeout", "timeout"
        if end == "done":
            return "bad_measurement", f"{host}: the probe ended without a word about this check", "error"
        return "interrupted", f"{host}: {one_line(end or 'the probe ended without a result')}", "error"
    return _why_module_failed(answer, host)


def _with_host(host: str, words: str) -> str:
    """Return a reason that names its host once: an error of a cluster begins with the name of the cluster already."""
    return words if words.startswith(f"{host}: ") else f"{host}: {words}"


def _why_module_failed(answer: NodeAnswer, host: str) -> tuple[str, str, str]:
    text = one_line(" ".join(last_words(str(text)) for text in map(answer.get, ("msg", "module_stderr", "module_stdout")) if text))
    low = f"{text} {answer.get('exception') or ''}".lower()
    for marks, code, hint in _FAILURES:
        if any(mark in low for mark in marks):
            return code, f"{host}: {hint}: {text[:300]}", "error"
    return "module_failed", f"{host}: the module could not run: {text}", "error"


_FAILURES = (
    (("no space left", "disk quota"), "disk_full", "no space left on the node"),
    (
        ("sudo:", "missing sudo password", "incorrect sudo", "become", "privilege", "incorrect su password"),
        "no_sudo",
        "privileges could not be raised; set acceptance_become=false or give the user sudo",
    ),
    (
        ("python: not found", "python3: not found", "no python interpreters",
         "the module interpreter", "python3: no such file", "python: no such file", "bin/python",
         # Programs that stand for each version of Python, and have none of them.
         "pyenv: python", "no version is set for command python"),
        "no_python",
        "no usable python3 on the node; install python3 or set ansible_python_interpreter",
    ),
)
