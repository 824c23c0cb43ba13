# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of a journal as records: of each what is judged and shown of it, in as little room as that takes.

This plugin util is PRIVATE to the collection.
"""

# What a reader of JSON makes is of these very types, and a million records are asked.
# pylint: disable=unidiomatic-typecheck

from __future__ import annotations

import json
import operator
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import compact

try:
    import msgspec
except ImportError:  # several times as slow, and the same records
    msgspec = None  # type: ignore[assignment]

Record = t.Dict[str, t.Any]
# measurement/v1 in the order of its schema.
FIELDS = (
    "schema", "run_id", "stage", "check", "variant", "subject", "plane", "target", "attempt", "outcome", "reason_code",
    "reason", "metrics", "series", "context", "evidence", "command", "tool_version", "started_at", "duration_s", "raw",
    "raw_sha256", "simulated",
)  # fmt: skip
values = operator.itemgetter(*FIELDS)
whole = compact.form("Measurement", FIELDS)
_TEXT = frozenset({str, type(None)})
# A text that is longer is one record's own.
_SHORT = 100
# Keys of contexts that only people read, in the journal.
_FOR_PEOPLE = ("gpu_table",)
# What most records say: nothing.
_NO_MEMBERS: list[str] = []
_NO_METRICS: Record = {}
_NO_SERIES: list[Record] = []
_NO_EVIDENCE: Record = {}
_NO_CHANGES: Record = {"changes": [], "unreadable": [], "window": {}}


class Reader:
    """Reads lines, one after the other. Equal parts of its records are one object: nobody may change what a record holds."""

    def __init__(self) -> None:
        self._decode: t.Callable[[bytes], t.Any] = msgspec.json.Decoder().decode if msgspec else json.loads
        known: dict[t.Any, t.Any] = {}
        self._once = known.setdefault  # of equal texts the first
        self._commands: dict[tuple[str, ...], list[str]] = {}
        self._identities: dict[str, Record] = {}
        self._subjects: dict[str, Record] = {}
        self._single: dict[str, list[str]] = {}

    def record(self, line: bytes) -> Record | None:
        """The record of a line; None where it is none."""
        try:
            found = self._decode(line)
        except ValueError:
            try:
                found = json.loads(line)  # it takes more than JSON allows, and has the last word
            except ValueError:
                return None
        return self._lean(found) if isinstance(found, dict) else None

    def _lean(self, record: Record) -> Record:
        """Without its digest, and without the samples that were taken beside the test: what they changed stands beside them, they are most
        of a journal, and people read them there."""
        record.pop("chain", None)
        if len(record) != len(FIELDS):
            return record  # what is no measurement is told so elsewhere
        try:
            (
                schema, run_id, stage, check, variant, subject, plane, target, attempt, outcome, reason_code, reason, metrics, series,
                context, evidence, command, tool_version, started_at, duration_s, raw, raw_sha256, simulated,
            ) = values(record)  # fmt: skip
        except KeyError:
            return record
        once = self._once
        if _TEXT.issuperset(map(type, (schema, run_id, stage, check, variant, plane, target, outcome, tool_version, started_at))):
            schema, run_id, stage, check = once(schema, schema), once(run_id, run_id), once(stage, stage), once(check, check)
            variant, plane, target, outcome = once(variant, variant), once(plane, plane), once(target, target), once(outcome, outcome)
            tool_version, started_at = once(tool_version, tool_version), once(started_at, started_at)
        if type(command) is list and _TEXT.issuperset(map(type, command)):
            command = self._commands.setdefault(tuple(command), command)
        if type(subject) is dict:
            subject = self._subject(subject)
        if metrics == _NO_METRICS:
            metrics = _NO_METRICS
        elif type(metrics) is dict:
            for metric in metrics.values():
                if type(metric) is dict and type(metric.get("unit")) is str:
                    metric["unit"] = once(metric["unit"], metric["unit"])
        if series == _NO_SERIES:
            series = _NO_SERIES
        elif type(series) is list:
            for row in series:
                if type(row) is dict:
                    self._share(row)
        if type(context) is dict:
            self._make_lean(context, _FOR_PEOPLE)
        if type(evidence) is dict:
            if type(evidence.get("window")) is dict:
                evidence["window"] = {}
            evidence = _NO_EVIDENCE if evidence == _NO_EVIDENCE else _NO_CHANGES if evidence == _NO_CHANGES else evidence
        return whole(
            schema, run_id, stage, check, variant, subject, plane, target, attempt, outcome, reason_code, reason, metrics, series, context,
            evidence, command, tool_version, started_at, duration_s, raw, raw_sha256, simulated,
        )  # fmt: skip

    def _subject(self, subject: Record) -> Record:
        """A part of a node is the subject of several records, a pair and a group that of one or two."""
        kind, name, members = subject.get("kind"), subject.get("id"), subject.get("members")
        if type(kind) is not str or type(name) is not str or type(members) is not list:
            return subject
        if members == _NO_MEMBERS:
            subject["members"] = _NO_MEMBERS
        elif kind == "node" and _TEXT.issuperset(map(type, members)):
            subject["members"] = [self._once(member, member) for member in members]
        subject["kind"] = self._once(kind, kind)
        if "|" in name:
            return subject
        subject["id"] = self._once(name, name)
        known = self._subjects.setdefault(name, subject)
        return known if known == subject else subject

    def _make_lean(self, context: Record, for_people: t.Iterable[str]) -> None:
        self._share(context)
        if isinstance(context.get("facts"), dict):  # hundreds, most of them the same on all nodes
            self._share(context["facts"])
        for name in for_people:
            if name in context:
                context[name] = None
        self._identify(context)
        uuids = context.get("gpu_uuids")
        if type(uuids) is list and len(uuids) == 1 and type(uuids[0]) is str:
            context["gpu_uuids"] = self._single.setdefault(uuids[0], uuids)

    def _share(self, of: Record) -> None:
        once = self._once
        for name, value in of.items():
            if type(value) is str and len(value) < _SHORT:
                of[name] = once(value, value)

    def _identify(self, context: Record) -> None:
        """A node says with each record which machine it is and which GPUs it has."""
        told = context.get("identities")
        if not isinstance(told, dict) or len(told) != 1:
            return
        ((node, who),) = told.items()
        known = self._identities.setdefault(node, told)
        if known == told and isinstance(who, dict):
            context["identities"] = known
            uuids = known[node].get("gpu_uuids")
            if uuids is not None and context.get("gpu_uuids") == uuids:
                context["gpu_uuids"] = uuids
