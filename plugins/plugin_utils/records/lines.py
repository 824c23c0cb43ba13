# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of a journal as measurements, with what is judged and shown of them, in little memory.

This plugin util is PRIVATE to the collection.
"""

# The types here are those that a reader of JSON makes, and this code runs for each of hundreds of thousands of records.
# pylint: disable=unidiomatic-typecheck

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    Context,
    MeasuredEvidence,
    Measurement,
    Metric,
    PlainData,
    SeriesRow,
    Subject,
    measurement_of,
)

try:
    import msgspec
except ImportError:
    msgspec = None  # type: ignore[assignment]  # measurement.require() says so

# A measurement as plain data, which `marshal` takes: its fields in their order.
Packed = tuple[t.Any, ...]
# A longer text occurs in one record only.
_SHORT = 100
# Keys of contexts that only people read, in the journal.
_FOR_PEOPLE = ("gpu_table",)
# The empty values that most records have.
_NO_MEMBERS: list[str] = []
_NO_METRICS: dict[str, Metric] = {}
_NO_SERIES: list[SeriesRow] = []
_NO_EVIDENCE: MeasuredEvidence = {}
_NO_CHANGES: MeasuredEvidence = {"changes": [], "unreadable": [], "window": {}}


class LineReader:
    """Reads lines, one after the other. Equal parts of its records are one object, so nobody may change what a record holds."""

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(Measurement).decode
        texts: dict[t.Any, t.Any] = {}
        self._intern = texts.setdefault  # returns the first of equal texts
        self._commands: dict[tuple[str, ...], list[str]] = {}
        self._identities: dict[str, PlainData] = {}
        self._subjects: dict[str, Subject] = {}
        self._single: dict[str, list[str]] = {}

    def record(self, line: bytes) -> Measurement | PlainData | None:
        """Return the measurement in a line, the object in it if that is no measurement, or None if there is none."""
        try:
            measurement = self._decode(line)
            measurement.raise_if_wrong()
        except ValueError:
            # The chain may stand in the line, and Python's reader of JSON accepts more, as numbers of any length.
            try:
                record = json.loads(line)
            except ValueError:
                return None
            if not isinstance(record, dict):
                return None
            record.pop("chain", None)
            try:
                measurement = measurement_of(record)
            except (ValueError, RecursionError):
                return record
        self._intern_and_trim(measurement)
        return measurement

    def _intern_and_trim(self, of: Measurement) -> None:
        """Replace what is equal in many records by one object. Drop the samples that were taken during the test, which are most of a
        journal: what changed is beside them, and people read them in the journal."""
        intern = self._intern
        of.run_id, of.stage, of.check = intern(of.run_id, of.run_id), intern(of.stage, of.stage), intern(of.check, of.check)
        of.variant, of.plane, of.target = intern(of.variant, of.variant), intern(of.plane, of.plane), intern(of.target, of.target)
        of.tool_version, of.started_at = intern(of.tool_version, of.tool_version), intern(of.started_at, of.started_at)
        of.command = self._commands.setdefault(tuple(of.command), of.command)
        of.subject = self._shared_subject(of.subject)
        if of.metrics:
            for metric in of.metrics.values():
                metric.unit = intern(metric.unit, metric.unit)
        else:
            of.metrics = _NO_METRICS
        if of.series:
            for row in of.series:
                self._intern_values(row)
        else:
            of.series = _NO_SERIES
        self._trim_context(of.context)
        evidence = of.evidence
        if type(evidence.get("window")) is dict:
            evidence["window"] = {}
        of.evidence = _NO_EVIDENCE if not evidence else _NO_CHANGES if evidence == _NO_CHANGES else evidence

    def _shared_subject(self, subject: Subject) -> Subject:
        """A part of a node is the subject of several records, a pair and a group that of one or two."""
        if not subject.members:
            subject.members = _NO_MEMBERS
        elif subject.kind == "node":
            subject.members = [self._intern(member, member) for member in subject.members]
        if "|" in subject.id:
            return subject
        first_subject = self._subjects.setdefault(subject.id, subject)
        return first_subject if first_subject == subject else subject

    def _trim_context(self, context: Context) -> None:
        self._intern_values(context)
        if isinstance(context.get("facts"), dict):  # hundreds, most of them the same on all nodes
            self._intern_values(context["facts"])
        for name in _FOR_PEOPLE:
            if name in context:
                context[name] = None
        self._share_identity(context)
        uuids = context.get("gpu_uuids")
        if type(uuids) is list and len(uuids) == 1 and type(uuids[0]) is str:
            context["gpu_uuids"] = self._single.setdefault(uuids[0], uuids)

    def _intern_values(self, of: PlainData) -> None:
        intern = self._intern
        for name, value in of.items():
            if type(value) is str and len(value) < _SHORT:
                of[name] = intern(value, value)

    def _share_identity(self, context: Context) -> None:
        """A node says with each record which machine it is and which GPUs it has."""
        identities = context.get("identities")
        if not isinstance(identities, dict) or len(identities) != 1:
            return
        ((node, identity),) = identities.items()
        first_identity = self._identities.setdefault(node, identities)
        if first_identity == identities and isinstance(identity, dict):
            context["identities"] = first_identity
            uuids = first_identity[node].get("gpu_uuids")
            if uuids is not None and context.get("gpu_uuids") == uuids:
                context["gpu_uuids"] = uuids


_SUBJECT, _METRICS = (Measurement.__struct_fields__.index(name) for name in ("subject", "metrics")) if msgspec else (0, 0)


def pack(measurements: t.Iterable[Measurement]) -> list[Packed]:
    """Return measurements as plain data for another process; what they share stays shared."""
    subjects: dict[int, Packed] = {}
    packed = []
    for measurement in measurements:
        fields = list(msgspec.structs.astuple(measurement))
        subject = measurement.subject
        fields[_SUBJECT] = subjects.get(id(subject)) or subjects.setdefault(id(subject), (subject.kind, subject.id, subject.members))
        fields[_METRICS] = {name: (metric.value, metric.unit) for name, metric in measurement.metrics.items()}
        packed.append(tuple(fields))
    return packed


def unpack(packed: t.Iterable[Packed]) -> t.Iterator[Measurement]:
    """Yield the measurements that `pack` was given."""
    subjects: dict[int, Subject] = {}
    for values in packed:
        fields = list(values)
        subject = fields[_SUBJECT]
        fields[_SUBJECT] = subjects.get(id(subject)) or subjects.setdefault(id(subject), Subject(*subject))
        metrics = fields[_METRICS]
        fields[_METRICS] = {name: Metric(*metric) for name, metric in metrics.items()} if metrics else _NO_METRICS
        yield Measurement(*fields)
