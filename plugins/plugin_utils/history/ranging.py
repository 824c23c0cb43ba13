# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proposes expectations from the accepted runs of a range of days. The history has the names of the runs, their folders the measurements.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import schema, searching
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.identity import Identities, who
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.schema import sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError, Store
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import baseline
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import integrity
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run


def propose(store: Store, results_dir: str, since: str, until: str, date: str) -> baseline.Proposal:
    """Return expectations from the accepted runs between two days, both included. An empty day means from the first or to the last run."""
    names = _accepted(store, since, until)
    used: list[str] = []
    left_out: list[str] = []
    proposal = baseline.propose_of(_measured(results_dir, names, used, left_out), lambda: _source_text(used), date)
    if not used:
        raise HistoryError(f"none of the {len(names)} accepted runs can be read: {left_out[0]}")
    return proposal._replace(left_out=[*left_out, *proposal.left_out])


def _source_text(runs: list[str]) -> str:
    return f"{len(runs)} accepted runs, {runs[0]} to {runs[-1]}" if len(runs) > 1 else f"run {''.join(runs)}"


def _accepted(store: Store, since: str, until: str) -> list[str]:
    """Return the names of the accepted runs between two days, the oldest first. A quick test does not count."""
    first, last = searching.since_when(since), searching.since_when(until, name="until")
    if first and last and first > last:
        raise HistoryError(f"found since {since} and until {until}, expected a first day that is not after the last one")
    run, judgement = schema.run, schema.judgement
    query = sa.select(run.c.name, run.c.planned_at, judgement.c.folder, judgement.c.accepted)
    query = query.join(judgement, judgement.c.run_id == run.c.id).where(~run.c.pruned).order_by(run.c.name, judgement.c.folder)
    with store.reading() as connection:
        rows = [row for row in connection.execute(query) if first <= row.planned_at[:10] <= (last or row.planned_at[:10])]
    judged = {row.name: bool(row.accepted) for row in rows}  # of each the last, which holds
    accepted = [name for name, good in judged.items() if good]
    if not accepted:
        range_words = " ".join(f"{name} {text}" for name, text in (("since", since), ("until", until)) if text)
        count_words = f"{len(judged)} runs are there" if judged else "no run is there"
        raise HistoryError(f"{range_words}: {count_words} in the history {store.where}, expected one that was accepted")
    return accepted


def _measured(results_dir: str, names: t.Iterable[str], used: list[str], left_out: list[str]) -> t.Iterator[baseline.Source]:
    """Yield the measurements of one run after the other. Runs whose folder is missing or was changed are added to `left_out`."""
    for name in names:
        try:
            run = Run(results_dir, name)
            evidence = integrity.gather(run, run.plan())
            if evidence.changed:
                raise RunError(f"it is not what was written: {evidence.changed[0]}")
        except (RunError, OSError, ValueError) as error:
            left_out.append(f"run {name}: {error}")
            continue
        used.append(name)
        measurements = [record for record in evidence.records if isinstance(record, Measurement)]
        identities = Identities(measurements)
        yield baseline.Source(measurements, lambda m, of=identities: of.of(who(m)))  # type: ignore[misc]
