# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two sources of events: judged runs of a results folder, and messages of `acceptance_webhook`. Both bring a position up to date.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.observing import events
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.observing.position import Position
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RUN_ID
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import judged_runs

try:
    import msgspec
except ImportError:  # measurement.require() says what is missing
    msgspec = None  # type: ignore[assignment]

# Runs whose findings are known, and not new, when a source begins without a position.
KNOWN_RUNS = 50
# Runs of messages that are remembered.
MOST_SEEN = 2000


class Folder:
    """The judged runs of a results folder. `every`: without a position, the runs that are there already are yielded too."""

    def __init__(self, results_dir: str, position: Position, every: bool = False) -> None:
        self._results_dir, self._position, self._every = results_dir, position, every
        # {run: time of the report that could not be used}
        self._unusable: dict[str, int] = {}

    def look(self) -> list[str]:
        """Add the events of runs that were judged since the last look to the position. Return a sentence for each run that cannot be used.
        Raise RunError if the folder cannot be read or the position cannot be written."""
        position, problems = self._position, []
        run_ids = judged_runs.run_ids(self._results_dir)
        quiet = position.is_new and not self._every
        has_changed = position.is_new
        for place, run_id in reversed(list(enumerate(run_ids))):
            folder = judged_runs.folder_of(self._results_dir, run_id)
            if folder is None or position.seen.get(run_id) == folder.name:
                continue
            if quiet and place >= KNOWN_RUNS:
                position.seen[run_id] = folder.name
                continue
            written_at = (folder / judged_runs.REPORT).stat().st_mtime_ns
            if self._unusable.get(run_id) == written_at:
                continue
            try:
                report = judged_runs.read(self._results_dir, run_id, ("past",))
            except RunError as error:
                # While a run is judged, its report stands alone for a moment: the next look reads it.
                if (folder / judged_runs.DIGESTS).exists():
                    self._unusable[run_id] = written_at
                    problems.append(str(error))
                continue
            made = _of_report(report, position.open)
            position.pending.update({} if quiet else {event["id"]: event for event in made})
            position.seen[run_id] = folder.name
            has_changed = True
        gone = position.seen.keys() - set(run_ids)
        for run_id in gone:
            del position.seen[run_id]
        if has_changed or gone:
            position.save()
        return problems


def _of_report(report: PlainData, known: events.Open) -> list[PlainData]:
    stages = {node["name"]: node["stages"] for node in report["nodes"]}

    def is_over(subject: str, check: str, _remembered: events.Remembered) -> bool:
        if not subject:
            return not report["partial"]
        return stages.get(node_of(subject), {}).get(check.split(" ", 1)[0], "") not in ("", "UNKNOWN")

    run = {**report, "judged_at": report["created_at"]}
    return events.new(run, [*events.findings(report["causes"]), *events.regressions(report.get("past"))], known, is_over)


class Message(t.TypedDict):
    """The fields that a message of `acceptance_webhook` must have."""

    run: str
    inventory: str
    planned_at: str
    judged_at: str
    mode: str
    word: str
    accepted: bool
    why: str
    partial: bool
    simulated: bool
    counts: dict[str, int]
    findings: list[events.Noticed]
    cut: bool


def receive(body: bytes, position: Position) -> None:
    """Add the events of a message to the position, unless it was received before. Raise RunError if it is no message of a run."""
    try:
        message: Message = msgspec.json.decode(body, type=Message)
    except (msgspec.DecodeError, ValueError) as error:
        raise RunError(f"no message of acceptance_webhook: {error}") from error
    if not RUN_ID.match(message["run"]):
        raise RunError("no message of acceptance_webhook: run: expected the id of a run")
    if position.seen.get(message["run"]) == message["judged_at"]:
        return
    # A message lists no nodes: only one about everything says that what it does not name is over.
    whole = not message["partial"] and not message["cut"] and message["mode"] == "run"

    def is_over(_subject: str, _check: str, remembered: events.Remembered) -> bool:
        return whole and remembered["inventory"] == message["inventory"]

    made = events.new(t.cast(PlainData, message), message["findings"], position.open, is_over)
    position.pending.update({event["id"]: event for event in made})
    position.seen[message["run"]] = message["judged_at"]
    for run_id in sorted(position.seen)[:-MOST_SEEN]:
        del position.seen[run_id]
    position.save()
