# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of a journal: measurements written, and read with what is judged and shown of them, in little memory.

The command of a tool and the identities of its nodes are the same in most measurements of one call, and together most of a line. A value of
these that several measurements of one append have is written once, as a line of its own (shared/v1), before the lines that name it by its
id. A stretch of lines names no value of an earlier stretch, so each stretch can be read by itself.

This plugin util is PRIVATE to the collection.
"""

# The types here are those that a reader of JSON makes, and this code runs for each of hundreds of thousands of records.
# pylint: disable=unidiomatic-typecheck

from __future__ import annotations

import collections
import hashlib
import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    Context,
    JournalLine,
    MeasuredEvidence,
    Measurement,
    Metric,
    PlainData,
    SeriesRow,
    SharedValue,
    Subject,
    measurement_of,
)

try:
    import msgspec
except ImportError:
    msgspec = None  # type: ignore[assignment]  # measurement.require() says so

# A measurement as plain data, which `marshal` takes: its fields in their order.
Packed = tuple[t.Any, ...]
SharedT = t.TypeVar("SharedT", bound=list[str] | PlainData)
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


# A shorter value is no smaller by its id. How much is written into a stretch before the next one begins.
_SHARED_FROM = 100
_STRETCH_BYTES = 1 << 20
_SHARED_BEGIN = b'{"id": "'
_REFERS = b'"shared": {'


def written(measurements: t.Iterable[PlainData]) -> t.Iterator[list[bytes]]:
    """Yield the lines of measurements without newlines, in stretches. Shared values stand in the stretch of those that have them."""
    stretch: list[_LineToWrite] = []
    size, seen = 0, set[str]()
    for measurement in measurements:
        line = _LineToWrite(measurement)
        stretch.append(line)
        size += len(line.rest) + sum(len(text) for text in line.values.values() if text not in seen)
        seen.update(line.values.values())
        if size > _STRETCH_BYTES:
            yield list(_with_shared(stretch))
            stretch, size, seen = [], 0, set()
    if stretch:
        yield list(_with_shared(stretch))


def _with_shared(stretch: t.Sequence[_LineToWrite]) -> t.Iterator[bytes]:
    uses = collections.Counter(text for line in stretch for text in line.values.values())
    ids = {
        text: hashlib.sha256(text.encode()).hexdigest()[:16] for text, count in uses.items() if count > 1 and len(text) > _SHARED_FROM
    }
    for text, shared_id in ids.items():
        yield f'{{"id": "{shared_id}", "schema": "shared/v1", "value": {text}}}'.encode()
    for line in stretch:
        yield line.text(ids)


class _LineToWrite:
    """A measurement to be written. `values` are those that may be shared, as JSON by their names, `rest` is the measurement without
    them."""

    def __init__(self, measurement: PlainData) -> None:
        self._measurement = measurement
        self.values: dict[str, str] = {}
        rest = measurement
        if "shared" not in measurement:
            command, context = measurement.get("command"), measurement.get("context")
            if isinstance(command, list) and command:
                self.values["command"] = _json(command)
                rest = {**rest, "command": []}
            if isinstance(context, dict) and isinstance(context.get("identities"), dict):
                self.values["identities"] = _json(context["identities"])
                rest = {**rest, "context": {name: value for name, value in context.items() if name != "identities"}}
        self.rest = _json(rest)

    def text(self, ids: t.Mapping[str, str]) -> bytes:
        """Return the line, with the ids of the values that are shared."""
        shared = {name: ids[text] for name, text in self.values.items() if text in ids}
        if len(shared) == len(self.values):
            return (f'{self.rest[:-1]}, "shared": {_json(shared)}}}' if shared else self.rest).encode()
        rest = self._measurement
        if "command" in shared:
            rest = {**rest, "command": [], "shared": shared}
        elif "identities" in shared:
            context = {name: value for name, value in rest["context"].items() if name != "identities"}
            rest = {**rest, "context": context, "shared": shared}
        return _json(rest).encode()


def _json(value: t.Any) -> str:
    return json.dumps(value, allow_nan=False, sort_keys=True)


class DataReader:
    """Reads lines, one after the other, as plain data with their shared values; only lines in which one of `marks` stands, if there are
    marks. A line may have its chain."""

    def __init__(self, marks: t.Sequence[bytes] = ()) -> None:
        self._marks = marks
        self._values: dict[str, t.Any] = {}

    def record(self, line: bytes) -> PlainData | None:
        """Return the object in a line; None if there is none, if it is not sought, or if it is a shared value."""
        is_shared = line.startswith(_SHARED_BEGIN)
        if self._marks and not is_shared and not any(mark in line for mark in self._marks):
            return None
        try:
            record = json.loads(line)
        except ValueError:
            return None
        if not isinstance(record, dict):
            return None
        if is_shared and record.get("schema") == "shared/v1":
            self._values[str(record.get("id"))] = record.get("value")
            return None
        return self._complete(record, record.pop("shared")) if isinstance(record.get("shared"), dict) else record

    def _complete(self, record: PlainData, shared: PlainData) -> PlainData | None:
        try:
            if "command" in shared:
                record["command"] = self._values[shared["command"]]
            if "identities" in shared:
                record["context"]["identities"] = self._values[shared["identities"]]
        except (KeyError, TypeError):
            return None
        return record


class LineReader:
    """Reads lines, one after the other. Equal parts of its records are one object, so nobody may change what a record holds."""

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(Measurement).decode
        self._decode_referring = msgspec.json.Decoder(JournalLine).decode
        self._decode_shared = msgspec.json.Decoder(SharedValue).decode
        self._shared: dict[str, list[str] | PlainData] = {}
        texts: dict[t.Any, t.Any] = {}
        self._intern = texts.setdefault  # returns the first of equal texts
        self._commands: dict[tuple[str, ...], list[str]] = {}
        self._identities: dict[str, PlainData] = {}
        self._subjects: dict[str, Subject] = {}
        self._single: dict[str, list[str]] = {}

    def share(self, line: bytes) -> bool:
        """Return True if a line is a shared value, which is kept for the lines that name it."""
        if not line.startswith(_SHARED_BEGIN):
            return False
        try:
            shared = self._decode_shared(line)
        except ValueError:
            try:  # Python's reader of JSON accepts more
                record = json.loads(line)
                record.pop("chain", None)
                shared = msgspec.convert(record, SharedValue)
            except (ValueError, AttributeError, RecursionError):
                return False
        value = shared.value
        if isinstance(value, list):
            value = self._commands.setdefault(tuple(value), value)
        self._shared[shared.id] = value
        return True

    def _value(self, shared_id: str, kind: type[SharedT]) -> SharedT:
        """Return a shared value. Raise ValueError if no line before has it."""
        value = self._shared.get(shared_id)
        if not isinstance(value, kind):
            raise ValueError(f"the line before that holds {shared_id} is missing")
        return value

    def _referring(self, line: bytes) -> Measurement:
        """Return the measurement in a line that has shared values. Raise ValueError if it is none, or if one of the values is missing."""
        *fields, shared = msgspec.structs.astuple(self._decode_referring(line))
        measurement = Measurement(*fields)
        if "command" in shared:
            measurement.command = self._value(shared["command"], list)
        if "identities" in shared:
            measurement.context["identities"] = self._value(shared["identities"], dict)
        return measurement

    def _completed(self, record: PlainData) -> PlainData:
        """Return an object with its shared values. Raise ValueError if one of them is missing."""
        shared = record.get("shared")
        if not isinstance(shared, dict):
            return record
        completed = {name: value for name, value in record.items() if name != "shared"}
        if isinstance(shared.get("command"), str):
            completed["command"] = self._value(shared["command"], list)
        if isinstance(shared.get("identities"), str) and isinstance(record.get("context"), dict):
            completed["context"] = {**record["context"], "identities": self._value(shared["identities"], dict)}
        return completed

    def record(self, line: bytes) -> Measurement | PlainData | None:
        """Return the measurement in a line, the object in it if that is no measurement, or None if there is none."""
        try:
            measurement = self._referring(line) if _REFERS in line else self._decode(line)
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
                measurement = measurement_of(self._completed(record))
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
