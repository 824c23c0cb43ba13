# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The comparison of a run with earlier runs while it is judged, before it is in the history itself.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import pathlib
import threading
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.past import Number, PastReport
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.references import Reference
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Plan
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import ComparisonRows
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Judged, Options

# Seconds for which a judgement waits for the comparison.
SECONDS = 20.0

T = t.TypeVar("T")


def results_of(of: Judged) -> pathlib.Path:
    """Return the results folder that contains the folder of a judged run."""
    return of.folder.parent if of.folder.name == of.run_id else of.folder.parents[2]


def with_earlier_runs(
    results: pathlib.Path,
    plan: Plan,
    deciding: t.Mapping[Key, t.Any],
    numbers: t.Iterable[Number],
    options: Options,
    begun: t.Sequence[Reference] = (),
    seconds: float = SECONDS,
    *,
    racks: t.Mapping[str, str] | None = None,
) -> PastReport | None:
    """Return the changes of a run's numbers since the runs before it; None if there is nothing to say. `racks` are those of the nodes, as
    far as the inventory states them. Raises RunError if it fails."""

    def ask() -> PastReport | None:
        # These imports take half a second, so a run without a history does not load them.
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import baselines, store

        with store.Store(store.url_of(results, str(options["url"]))) as history:
            report = baselines.compare(history, plan, deciding, numbers, begun, racks=racks)
        return report if report.compared or report.short or report.left_out else None

    return _answered(ask, seconds) if _is_there(results, options) else None


def with_last_accepted(of: Judged, options: Options, seconds: float = SECONDS) -> ComparisonRows | None:
    """Return the comparison with the last accepted run; None if there is none.

    Raises RunError if the history cannot be read in time.
    """
    results = results_of(of)

    def ask() -> ComparisonRows | None:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import comparing, folders, store

        with store.Store(store.url_of(results, str(options["url"]))) as history:
            changes = comparing.since_accepted(history, folders.of_judged(of))
        if changes is None:
            return None
        # Only the values beyond their scatter. The history has all of them.
        return {**changes, "values": [value for value in changes["values"] if value["beyond"]], "said": comparing.sentences(changes)}

    return _answered(ask, seconds) if _is_there(results, options) else None


def _is_there(results: pathlib.Path, options: Options) -> bool:
    """Return True if there may be a history. The first run then loads no imports."""
    return bool(options["url"]) or (results / "history.db").is_file()


def _answered(ask: t.Callable[[], T], seconds: float) -> T:
    """Return the result of `ask` if it comes in time. Raises RunError for every failure."""
    answer: list[T] = []
    wrong: list[RunError] = []

    def call() -> None:
        try:
            answer.append(ask())
        except Exception as error:
            wrong.append(error if isinstance(error, RunError) else RunError(f"{type(error).__name__}: {error}"))

    thread = threading.Thread(target=call, daemon=True, name="history")
    thread.start()
    thread.join(seconds)
    if wrong:
        raise wrong[0]
    if not answer:
        raise RunError(f"the history did not answer within {seconds:g} s")
    return answer[0]
