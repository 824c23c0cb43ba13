# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The measurements of a run by key and attempt, and the attempt that counts of each.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import configured, peer_values
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.single_checks import SingleChecks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, kind_of, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import parsed
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, Subject


class Attempts:
    """The measurements of one run.

    `records` are all, by key and in the order of their attempts; `deciding` is the attempt that counts of each key; `parts` are the keys of
    the parts of a node, by the key that a check of the whole node would have. `derived` are the keys of records that follow from those of
    nodes. `notes` are sentences about records that were left out.
    """

    def __init__(self, run_id: str, checks: SingleChecks) -> None:
        self.run_id, self.checks = run_id, checks
        self.records: dict[Key, list[Measurement]] = collections.defaultdict(list)
        self.deciding: dict[Key, Measurement] = {}
        self.parts: dict[Key, list[Key]] = collections.defaultdict(list)
        self.derived: set[Key] = set()
        self.notes: list[str] = []

    def load(self, measurements: t.Iterable[t.Any]) -> None:
        """Sort the measurements by key and attempt, and choose for each key the attempt that counts."""
        for record in measurements:
            self._load_one(record)
        # By key and by attempt: the order of the journal's lines decides nothing.
        self.records = dict(sorted(self.records.items()))
        for attempts in self.records.values():
            if len(attempts) > 1:
                attempts.sort(key=lambda m: (m.attempt, m.as_text()))
        peer_values.complete(self.records)
        configured.complete(self.records)
        for key, attempts in self.records.items():
            self.deciding[key] = self.counting(key, attempts)
            node = node_of(key[3])
            if node != key[3]:
                self.parts[Key(key.stage, key.check, key.variant, node)].append(key)

    def add(self, derived: t.Iterable[Measurement]) -> None:
        """Add records that follow from those of nodes, each of a subject that no plan can name."""
        for record in derived:
            self.records[record.key] = [record]
            self.deciding[record.key] = record
            self.derived.add(record.key)

    def counting(self, key: Key, attempts: list[Measurement]) -> Measurement:
        """Return the attempt that counts: the last that measured; if none did, the last. Of several with its number the worst, which may
        be an error that is a FAIL."""
        if len(attempts) == 1:
            return attempts[0]
        measured = [m for m in attempts if m.outcome == "measured"] or attempts
        last = [m for m in attempts if m.attempt == measured[-1].attempt]
        if len(last) == 1:
            return last[0]
        opinions = [(self.checks.opinion_alone(key, m), m) for m in last]
        counting = [(opinion, m) for opinion, m in opinions if m.outcome == measured[-1].outcome or opinion.verdict == "FAIL"]
        return max(counting, key=lambda opinion_and_record: opinion_and_record[0].badness)[1]

    def _load_one(self, record: t.Any) -> None:
        measurement = record if isinstance(record, Measurement) else parsed(record)
        if isinstance(measurement, Measurement) and measurement.run_id == self.run_id:
            self.records[measurement.key].append(measurement)
            return
        wrong = f"it is of run {measurement.run_id}" if isinstance(measurement, Measurement) else measurement
        refused = _refused(record, wrong)
        if refused is None:
            self.notes.append(f"a record without stage, check and subject was left out: {wrong}")
            return
        self.records[refused.key].append(refused)

    def earlier_fatal(self, key: Key) -> t.Iterator[tuple[Key, Opinion]]:
        """Yield the fatal findings of the attempts that do not count: no later attempt takes them back."""
        attempts = self.records[key]
        for record in attempts if len(attempts) > 1 else ():
            if record is self.deciding[key]:
                continue
            fatal = list(self.checks.fatal(key, record))
            if record.outcome == "error" and record.reason_code in reasons.FATAL:
                fatal.append((key, Opinion("FAIL", str(record.reason), record.reason_code)))
            for whom, opinion in fatal:
                yield whom, opinion._replace(reason=f"on attempt {record.attempt}, which no other takes back: {opinion.reason}")


def _refused(record: t.Any, wrong: str) -> Measurement | None:
    """Return an error in place of a record that is not a measurement of this run; None if nobody knows what it is about."""
    record = record.as_dict() if isinstance(record, Measurement) else record
    key = _key_of_bad(record)
    if key is None:
        return None
    attempt, simulated = record.get("attempt"), record.get("simulated") is True
    attempt = attempt if isinstance(attempt, int) and not isinstance(attempt, bool) and attempt > 0 else 1
    subject = Subject(t.cast(t.Any, kind_of(key.subject)), key.subject, [])
    return Measurement(
        schema="measurement/v1", run_id="", stage=key.stage, check=key.check, variant=key.variant, subject=subject, plane="",
        target=str(record.get("target") or node_of(key.subject)), attempt=attempt, outcome="error", reason_code="bad_measurement",
        reason=f"the measurement is refused: {wrong}"[:2000], metrics={}, series=[], context={}, evidence={}, command=[], tool_version=None,
        started_at="", duration_s=0.0, raw=None, raw_sha256=None, simulated=simulated,
    )  # fmt: skip


def _key_of_bad(record: t.Any) -> Key | None:
    """Return the key of a record whose other fields may be anything; None if it has none."""
    if not isinstance(record, dict) or not isinstance(record.get("subject"), dict):
        return None
    key = [record.get("stage"), record.get("check"), record.get("variant"), record["subject"].get("id")]
    return Key(*map(str, key)) if all(isinstance(word, str) for word in key) and key[3] else None
