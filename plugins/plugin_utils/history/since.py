# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a report says of the last accepted run. It is asked before the report is written, and so before this run is in the history.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import pathlib
import threading
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Judged, Options

# A verdict does not wait longer for what was before.
SECONDS = 20.0


def results_of(of: Judged) -> pathlib.Path:
    """The results folder that a judged run lies in."""
    return of.folder.parent if of.folder.name == of.run_id else of.folder.parents[2]


def last_accepted(of: Judged, options: Options, seconds: float = SECONDS) -> dict[str, t.Any] | None:
    """{before, said, and what comparing.compare says}; None where nothing is to be compared with. RunError where it cannot be said."""
    results = results_of(of)
    if not options["url"] and not (results / "history.db").is_file():
        return None  # the first run pays for no imports
    answer: list[t.Any] = []

    def ask() -> None:
        try:
            answer.append(_ask(of, results, str(options["url"])))
        except Exception as error:
            answer.append(error if isinstance(error, RunError) else RunError(f"{type(error).__name__}: {error}"))

    thread = threading.Thread(target=ask, daemon=True, name="history")
    thread.start()
    thread.join(seconds)
    if not answer:
        raise RunError(f"the history did not answer within {seconds:g} s")
    if isinstance(answer[0], RunError):
        raise answer[0]
    return t.cast("dict[str, t.Any] | None", answer[0])


def _ask(of: Judged, results: pathlib.Path, url: str) -> dict[str, t.Any] | None:
    # Half a second of imports, which nobody pays who has no history.
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import comparing, folders, store

    with store.Store(store.url_of(results, url)) as history:
        found = comparing.since_accepted(history, folders.of_judged(of))
    if found is None:
        return None
    # The values that say something; all of them are in the history.
    return {**found, "values": [one for one in found["values"] if one["beyond"]], "said": comparing.told(found)}
