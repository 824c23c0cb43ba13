# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of a stage on this node: the checks that it has finished, and the tools that run, as lines of text. Nothing is
changed.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import checkpoints, process, session

# Of a command, so many characters are shown.
COMMAND_LIMIT = 200


def lines(state_dir: str, run_id: str, stage: str) -> list[str]:
    """Return a line for each check that is finished and for each tool that runs, but not for what a tool has started itself."""
    folder = state_dir or session.default_state_dir()
    finished = [_finished(record) for record in _records(session.result_path(folder, run_id, stage))]
    marks = [entry["mark"] for entry in session.Ledger(folder).entries() if entry["kind"] == "session"]
    running = {pid: started for mark in marks for pid, started in process.with_environment(session.MARK, mark)}
    below = {child for pid in running for child in process.descendants(pid)}
    return [*finished, *filter(None, (_running(pid, started) for pid, started in sorted(running.items()) if pid not in below))]


def _records(path: str) -> t.Iterator[dict[str, t.Any]]:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as source:
        for line in source:
            with contextlib.suppress(ValueError):  # it is being written
                record = json.loads(line)
                if isinstance(record, dict) and checkpoints.is_result(record) and "check" in record:
                    yield record


def _finished(record: dict[str, t.Any]) -> str:
    name = " ".join(str(word) for word in (record["check"], record.get("variant"), record.get("part")) if word)
    numbers = record.get("metrics") or {}
    values = ", ".join(f"{metric} {value.get('value')} {value.get('unit')}" for metric, value in sorted(numbers.items()))
    return ": ".join(str(word) for word in (name, record.get("outcome"), record.get("reason") or values) if word)


def _running(pid: int, started: int) -> str:
    """Return a line about a process, empty if it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as source:
            words = source.read().rstrip(b"\0").decode("utf-8", "replace").replace("\0", " ")
        with open("/proc/uptime", encoding="ascii") as source:
            age = float(source.read().split()[0]) - started / os.sysconf("SC_CLK_TCK")
    except OSError:
        return ""
    shown = words if len(words) <= COMMAND_LIMIT else f"{words[: COMMAND_LIMIT - 3]}..."
    return f"runs for {max(0.0, age):.0f} s: {shown}" if words else ""


def main(state_dir: str, run_id: str, stage: str, node: str, tail: int) -> None:
    """Print the last lines, each behind the name of the node."""
    found = lines(state_dir, run_id, stage) or ["nothing of the stage is on the node"]
    for line in found[-tail:] if tail else found:
        sys.stdout.write(f"{node}: {json.dumps(line)}\n")
    sys.stdout.flush()
