# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a node's observations to measurement/v1.

A node can send anything; what leaves here fits the schema or is an error that says so.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import json
import re
import typing as t
import zlib

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation, reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import model, raw, versions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlainData, TodoItem, measurement_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run

try:
    import jsonschema
except ImportError:
    jsonschema = None  # require() says so before anything is measured

SCHEMAS = collection.ROOT / "roles" / "common" / "files" / "schemas"
# The facts of one node, the largest record there is, have some 50 KB.
RECORD_LIMIT = 4 << 20
_CHECK = re.compile(r"^[a-z][a-z0-9_]{0,62}$")

# What is planned for a target: (check, variant, subject id).
Check = t.Tuple[str, str, str]


def schema(name: str) -> PlainData:
    """A schema of the collection: `measurement-v1` or `verdict-v1`."""
    return t.cast(PlainData, json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8")))


_VALIDATOR = jsonschema.Draft202012Validator(schema("measurement-v1")) if jsonschema else None


def require() -> None:
    """Raise RunError if the controller lacks a package that checks the nodes' answers."""
    for package, is_there in (("jsonschema", _VALIDATOR is not None), ("msgspec", model.HAS_MSGSPEC)):
        if not is_there:
            raise RunError(f"the controller's Python lacks the package {package}; install the collection's requirements.txt")


def problem(record: t.Any) -> str | None:
    """Return why a record is not a measurement/v1, or None."""
    try:
        size = len(json.dumps(record, allow_nan=False))
    except (TypeError, ValueError) as error:
        return f"it cannot be written as JSON: {error}"[:300]
    if size > RECORD_LIMIT:
        return f"it has {size} bytes, more than {RECORD_LIMIT}"
    measurement = parsed(record)
    return measurement if isinstance(measurement, str) else None


def parsed(record: t.Any) -> Measurement | str:
    """Return a record as a measurement, or in words why it is none. A line of a journal may have its chain."""
    if isinstance(record, dict) and "chain" in record:
        record = {name: value for name, value in record.items() if name != "chain"}
    try:
        return measurement_of(record)
    except (ValueError, RecursionError) as error:
        other_version = versions.problem(record, "measurement/v1")
        if other_version:
            return other_version
        # The schema says more clearly which field is wrong and what was found there.
        wrong = next(_VALIDATOR.iter_errors(record), None) if _VALIDATOR else None
        return f"{'.'.join(map(str, wrong.absolute_path)) or 'record'}: {wrong.message}"[:300] if wrong else str(error)[:300]


# Seconds by which a clock is off that are worth a correction (times are written in whole seconds), and the key of the context that has
# them.
SKEW_S, SKEW = 1.0, "clock_skew_s"


class Completer:
    """Turns one target's observations of one stage into measurements of a run.

    `planned` is {(check, variant, subject id): item of the todo}. What is about a subject other than the one that sent it is taken only
    where the plan wants it from this target, or where it is about nodes of a group that the plan wants from it: a finding. A finding
    has a check of its own: whoever heads a group cannot do what the plan asked of its members. `announced` is {node, its target or
    "*": when somebody said that it was restarted}.
    """

    def __init__(
        self, run: Run, stage: str, target: str, plane: str, planned: dict[Check, TodoItem], simulated: bool = False,
        announced: t.Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.run = run
        self.stage = stage
        self.target = target
        self.plane = plane
        self.planned = planned
        self.simulated = simulated
        self.announced = announced or {}
        # By how many seconds the clock of the target is at least ahead of ours, negative if behind.
        self.skew_s = 0.0
        self._checks = {check for check, _variant, _subject in planned}
        # {(node, digest): (reference, SHA-256)} of the raw texts that are stored.
        self._stored: dict[tuple[str, bytes], tuple[str, str]] = {}
        self._groups = [item["subject"] for item in planned.values() if item["subject"]["kind"] == "group"]

    def complete(self, observed: t.Any, sender: str = "", by_node: bool = True) -> PlainData:
        """One observation -> one measurement. `sender` is the node that made it, where that is not the target itself. `by_node`: False if
        the controller made it."""
        if not isinstance(observed, dict):
            observed = {}
        sender = sender or self.target
        fields = {name: observed.get(name, default) for name, default in observation.FIELDS.items()}
        subject = self._subject(sender, fields.pop("part"), fields.pop("members"), fields.pop("subject"))
        fields["context"] = self._identified(fields["context"], sender, subject)
        if by_node and abs(self.skew_s) > SKEW_S:
            self._by_our_clock(fields, subject)
        check = (str(fields["check"]), str(fields["variant"]), str(subject["id"]))
        item = self.planned.get(check) or self.planned.get((*check[:2], sender))
        attempt = item.get("attempt", 1) if item else 1
        reference, digest = self._store(sender, observed.get("raw_z"), attempt)
        fields.pop("raw")
        measurement = {
            "schema": "measurement/v1",
            "run_id": self.run.id,
            "stage": self.stage,
            "subject": subject,
            "plane": self.plane,
            "target": self.target,
            "attempt": attempt,
            "raw": reference,
            "raw_sha256": digest,
            **fields,
        }
        measurement["simulated"] = bool(fields["simulated"] or self.simulated)
        wrong = problem(measurement)
        finding = check[0] not in self._checks and wrong is None and self._in_a_group(subject)
        if wrong is None and isinstance(observed.get("subject"), dict) and check not in self.planned and not finding:
            wrong = f"{subject['kind']} {subject['id']} was not planned for it"
        if wrong is None:
            return measurement
        check, variant = fields["check"], fields["variant"]
        is_named = isinstance(check, str) and _CHECK.match(check) and isinstance(variant, str) and len(variant) <= 512
        return self.failure(
            (check, variant, sender) if is_named else ("unknown", "", sender),
            "bad_measurement",
            f"what {sender} sent is refused: {wrong}",
        )

    def _by_our_clock(self, fields: PlainData, subject: PlainData) -> None:
        """Set the time of a measurement to our clock, and say how far the clock of its node is off."""
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            began = datetime.datetime.strptime(fields["started_at"], "%Y-%m-%dT%H:%M:%SZ") - datetime.timedelta(seconds=self.skew_s)
            fields["started_at"] = began.strftime("%Y-%m-%dT%H:%M:%SZ")
        if subject["kind"] == "node" and isinstance(fields["context"], dict):
            fields["context"] = {**fields["context"], SKEW: round(self.skew_s, 1)}

    def _identified(self, context: t.Any, sender: str, subject: PlainData) -> t.Any:
        """The context with `identities`, {node: what it was known by}: of who made it and, where a head speaks for a group, of its members;
        nobody else is spoken for."""
        if not isinstance(context, dict):
            return context
        context = dict(context)
        own_identity, sent = context.pop("identity", None), context.pop("identities", None)
        members = {m for group in self._groups for m in group["members"]} if subject["kind"] == "group" else set()
        identities = {node: who for node, who in sent.items() if node in members} if isinstance(sent, dict) else {}
        if own_identity and sender not in [group["id"] for group in self._groups]:
            identities[sender] = own_identity
        if self.announced:
            identities = {node: self._announced(node, who) for node, who in identities.items()}
        return {**context, "identities": identities} if identities else context

    def _announced(self, node: str, who: t.Any) -> t.Any:
        """Return the identity of a node with when its restart was announced, if it was."""
        announced = next((self.announced[name] for name in (node, node.partition("/")[0], "*") if name in self.announced), "")
        return {**who, "announced": announced} if announced and isinstance(who, dict) else who

    def _in_a_group(self, subject: PlainData) -> bool:
        """Return True if a subject consists of members of one group that this target measures."""
        nodes = set(subject["members"]) if subject["kind"] in ("pair", "group", "switch") else {node_of(subject["id"])}
        return bool(nodes) and any(nodes <= set(group["members"]) for group in self._groups)

    def failure(
        self, check: Check, reason_code: str, reason: str, outcome: str = "error", **fields: t.Any
    ) -> PlainData:
        """A measurement that the controller itself makes: nothing usable came from the node."""
        if reason_code not in reasons.ALL:
            reason_code = "bad_measurement"
        subject = self.planned[check]["subject"] if check in self.planned else None
        node = subject is None or subject["kind"] == "node"
        failed = observation.failed(
            check[0], reason_code, reason[:2000], outcome=outcome, variant=check[1], subject=None if node else subject, **fields
        )
        return self.complete(failed, check[2] if node else "", by_node=False)

    def _subject(self, sender: str, part: t.Any, members: t.Any, whole_subject: t.Any) -> PlainData:
        if isinstance(whole_subject, dict):
            return {"kind": whole_subject.get("kind"), "id": whole_subject.get("id"), "members": whole_subject.get("members") or []}
        kind = part.split("/")[0] if isinstance(part, str) and part else "node"
        return {
            "kind": kind,
            "id": f"{sender}/{part}" if part else sender,
            "members": [f"{sender}/{m}" for m in members] if isinstance(members, list) else members,
        }

    def _store(self, sender: str, packed: t.Any, attempt: int) -> tuple[str | None, str | None]:
        """Store raw output, once for all checks of one call of a tool; return its reference (records/raw.py) and its SHA-256."""
        if not isinstance(packed, str):
            return None, None
        try:
            data = zlib.decompressobj().decompress(base64.b64decode(packed), raw.LIMIT)
        except (ValueError, zlib.error):
            return None, None
        text = (sender, hashlib.sha256(data).digest())
        if text not in self._stored:
            self._stored[text] = raw.store(self.run.dir, sender, f"{self.stage}, attempt {attempt}", data)
        return self._stored[text]
