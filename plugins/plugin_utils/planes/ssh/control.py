# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine out of service: what has to be done for that is known to a program of the operator, the hook (docs/quarantine.md).

The hook runs on the controller: `HOOK show HOST`, `HOOK drain HOST REASON`, `HOOK resume HOST`, `HOOK comment HOST TEXT`.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import subprocess
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.node_control import NodeControl, NodeState
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

VARIABLE = "acceptance_quarantine_hook"
ANSWER_S = 120.0
FORM = '{"held": true or false, "reason": text, "comment": text}'


def hook_of(host: str, value: t.Any) -> tuple[str, ...]:
    """Return the words of the hook, none if there is no hook. Raise RunError if the variable is wrong."""
    if not isinstance(value or [], list) or not all(isinstance(word, str) and word for word in value or ()):
        raise RunError(f"{host}: {VARIABLE}: found {value!r}, expected a program and its arguments as a list of texts")
    return tuple(value or ())


class HookControl(NodeControl):
    def __init__(self, host: str, hook: t.Sequence[str]) -> None:
        self.host = host
        self.hook = tuple(hook)

    def nodes(self) -> list[NodeState]:
        return [self.read(self.host)]

    def read(self, name: str) -> NodeState:
        text = self._call("show")
        try:
            answer = json.loads(text)
            held, reason, comment = answer["held"], answer.get("reason") or "", answer.get("comment") or ""
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            held = reason = comment = None
        if not isinstance(held, bool) or not isinstance(reason, str) or not isinstance(comment, str):
            raise RunError(f"{self.host}: {self.hook[0]} show: found {text[:200]!r}, expected {FORM}")
        return NodeState(self.host, held, reason, comment)

    def drain(self, node: NodeState, reason: str) -> None:
        self._call("drain", reason)

    def resume(self, node: NodeState) -> None:
        self._call("resume")

    def comment(self, node: NodeState, text: str) -> None:
        self._call("comment", text)

    def _call(self, what: str, *more: str) -> str:
        argv = [*self.hook, what, self.host, *more]
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=ANSWER_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise RunError(f"{self.host}: {argv[0]} {what} did not end in {ANSWER_S:.0f} s") from error
        except OSError as error:
            raise RunError(f"{self.host}: {VARIABLE}: {argv[0]}: {error.strerror}") from error
        if done.returncode:
            words = " ".join(done.stderr.split())[-300:] or f"exit status {done.returncode}"
            raise RunError(f"{self.host}: {argv[0]} {what} fails: {words}")
        return done.stdout
