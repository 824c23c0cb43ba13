# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The punch list: one row for each cause that a round has found, from its first round until a later one passes what it failed.

A row's state is what the rounds say, and nobody's word: `open`, `done` when every check of it has a valid pass, `waived` while a waiver of
the inventory covers it. Owner, ticket, note and the time of the node's return are the reader's: they write them into the CSV file, and
the next hand-over keeps them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import re
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover import checker
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover.rounds import Round
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover.standing import KNOWN_FAIL, Change, Standing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine.convictions import kind_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine.reason import PART
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import parts, sent_back
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.parts import MACHINE, Part
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats

OPEN, DONE, WAIVED = sent_back.OPEN, "done", "waived"
# Columns that people fill in, and those that a hand-over writes.
THEIRS = ("owner", "ticket", "note", "returned_at")
COLUMNS = (
    "id", "state", *THEIRS, "node", "part", "hardware_id", "slot", "pcie", "serial", "part_number", "cable", "category", "fault",
    "finding", "measured", "required", "action", "action_source", "evidence", "opened_at", "updated_at", "closed_at", "first_run",
    "last_run", "simulated",
)  # fmt: skip
_RETURNED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")
# What programs for tables take for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_SOURCES = {"xid": "docs/xids.md", "xid_own": "docs/xids.md"}
_OUR_SOURCE = "docs/verdicts.md"


@dataclasses.dataclass
class Row:
    """A row, with its values by column, the checks that must pass before it is done, and the raw texts that are its evidence, each with the
    number of its round."""

    values: dict[str, str]
    checks: set[Key]
    evidence: list[tuple[int, str]]
    last_round: int

    @property
    def id(self) -> str:
        """Return its id, the same in each hand-over with the same first round."""
        return self.values["id"]

    @property
    def state(self) -> str:
        """Return open, done or waived."""
        return self.values["state"]


def rows(rounds: t.Sequence[Round], standings: t.Sequence[Standing], theirs: t.Mapping[str, t.Mapping[str, str]]) -> list[Row]:
    """Return the rows of some rounds, the open ones first. `standings` has what the first round says, the first two, and so on; `theirs`
    are the values that people gave, by the ids of the rows."""
    found: list[Row] = []
    for round_, standing in zip(rounds, standings, strict=True):
        for row in found:
            _follow(row, round_, standing)
        for cause in round_.report["causes"]:
            if cause["verdict"] in ("FAIL", "UNKNOWN"):
                _seen(found, round_, cause)
        _waived(found, round_, standing)
    for row in found:
        row.values.update({name: theirs.get(row.id, {}).get(name) or row.values[name] for name in THEIRS})
    return sorted(found, key=lambda row: ((OPEN, WAIVED, DONE).index(row.state), row.values["node"], row.id))


def _follow(row: Row, round_: Round, standing: Standing) -> None:
    """Close a row whose checks all hold after a later round, and open it again where one does not."""
    if row.state == OPEN and not row.checks & standing.bad.keys():
        row.values.update(state=DONE, closed_at=round_.judged_at, updated_at=round_.judged_at, last_run=round_.run.id)


def _seen(found: list[Row], round_: Round, cause: PlainData) -> None:
    checks = _checks(cause)
    about = {(key.stage, key.check) for key in checks}
    hardware = _hardware(round_, cause["subject"])
    for row in found:
        is_same = row.values["hardware_id"] == hardware and row.state != DONE
        if is_same and about & {(key.stage, key.check) for key in row.checks}:
            row.checks |= checks
            row.last_round = round_.number
            row.values.update(updated_at=round_.judged_at, last_run=round_.run.id, **_finding(cause))
            row.values["state"] = OPEN
            row.evidence += _evidence(round_, cause)
            return
    found.append(_row(round_, cause, checks, hardware))


def _checks(cause: PlainData) -> set[Key]:
    named = [*cause["findings"], *cause["explains"]]
    return {Key(one["stage"], one["check"], one["variant"], one["subject"]) for one in named}


def _row(round_: Round, cause: PlainData, checks: set[Key], hardware: str) -> Row:
    node = node_of(cause["subject"])
    found = _parts(round_, cause)
    named = ",".join(sorted(f"{key.stage} {key.check}" for key in checks))
    digest = hashlib.sha256(f"{hardware}\n{named}\n{round_.run.id}".encode(errors="backslashreplace")).hexdigest()
    code = _code(round_, checks)
    values = {
        **dict.fromkeys(COLUMNS, ""), "id": f"P-{digest[:8]}", "state": OPEN, "node": node,
        "part": _named(cause, found), "hardware_id": hardware, "category": kind_of(code, cause["verdict"]),
        "fault": code or cause["verdict"].lower(), "action": " ".join(cause["advice"]),
        "action_source": _SOURCES.get(code or "", _OUR_SOURCE), "opened_at": round_.judged_at, "updated_at": round_.judged_at,
        "first_run": round_.run.id, "last_run": round_.run.id,
        "simulated": "simulated" if cause["simulated"] else "", **_numbers(round_, checks), **_finding(cause),
        **_of_parts(round_, node, found),
    }  # fmt: skip
    return Row(values, checks, _evidence(round_, cause), round_.number)


def _finding(cause: PlainData) -> dict[str, str]:
    return {"finding": str(cause["said"])}


def _code(round_: Round, checks: t.Iterable[Key]) -> str | None:
    codes = [round_.verdicts[key].reason_code for key in sorted(checks) if key in round_.verdicts and round_.verdicts[key].reason_code]
    return codes[0] if codes else None


def _numbers(round_: Round, checks: t.Iterable[Key]) -> dict[str, str]:
    """Return what was measured and what is required, of the first check that has both."""
    for key in sorted(checks):
        verdict = round_.verdicts.get(key)
        if verdict is not None and verdict.value is not None and verdict.floor is not None and verdict.verdict == "FAIL":
            return {"measured": _with_unit(verdict.value, verdict.unit), "required": _with_unit(verdict.floor, verdict.unit)}
    return {}


def _with_unit(value: float, unit: str | None) -> str:
    return f"{formats.number(value)} {unit or ''}".strip()


def _parts(round_: Round, cause: PlainData) -> list[Part]:
    """Return the part that a cause is about, with what is plugged into it, or those of a node that its finding names."""
    subject = str(cause["subject"])
    if "|" in subject:
        return []
    if node_of(subject) == subject:
        return parts.named(round_.parts, subject, [str(cause["said"])])
    return [part for part in (parts.find(round_.parts, subject), parts.plugged(round_.parts, subject)) if part is not None]


def _named(cause: PlainData, found: t.Sequence[Part]) -> str:
    """Return the name of what a cause is about, with the parts of a node that its finding names."""
    subject = str(cause["subject"])
    if node_of(subject) == subject and found:
        return f"{subject} {', '.join(part.name if part.kind != 'optic' else f'{part.name} {part.slot}' for part in found)}"
    return str(cause.get("name") or subject)


def _of_parts(round_: Round, node: str, found: t.Sequence[Part]) -> dict[str, str]:
    """Return where parts are and their numbers, each with its name where they are several; else those of the machine."""
    known = list(found) or [part for part in [round_.parts.get(node, {}).get(MACHINE)] if part is not None]

    # Memory modules all have one name, and what is plugged into ports has, too.
    labels = [part.name if part.kind not in ("dimm", "optic") else part.slot for part in known]

    def told(values: t.Iterable[str]) -> str:
        return "; ".join(f"{label}: {value}" if len(known) > 1 else value for label, value in zip(labels, values, strict=True) if value)

    columns = {"slot": "slot", "pcie": "pci", "serial": "serial", "part_number": "board", "cable": "connected"}
    return {column: told(str(getattr(part, field)) for part in known) for column, field in columns.items()}


def _hardware(round_: Round, subject: str) -> str:
    """Return an id of what a cause is about that survives another name of its node: a UUID, a GUID, a serial number; else the subject."""
    if "|" in subject:
        return subject
    node = node_of(subject)
    if node == subject:
        machine = round_.parts.get(node, {}).get(MACHINE)
        return f"machine {machine.serial}" if machine is not None and machine.serial else subject
    part = parts.find(round_.parts, subject)
    if part is None:
        return subject
    return part.key if part.kind == "gpu" else part.guid or f"{part.model} {part.serial}".strip() if part.serial else part.guid or subject


def _evidence(round_: Round, cause: PlainData) -> list[tuple[int, str]]:
    return [(round_.number, str(finding["raw"])) for finding in cause["findings"] if finding.get("raw")]


def _waived(found: list[Row], round_: Round, standing: Standing) -> None:
    """Add what is waived: it stands on the list with its ticket, for as long as the waiver does."""
    for waiver in round_.report.get("waivers") or ():
        key = Key(waiver["stage"], waiver["check"], waiver["variant"], waiver["subject"])
        deciding = standing.checks.get(key)
        if deciding is None or deciding.verdict.verdict != KNOWN_FAIL:
            continue
        row = next((row for row in found if key in row.checks and row.state != DONE), None)
        if row is None:
            said = f"{waiver['subject']}: {waiver['stage']} {waiver['check']}: {waiver['reason']}"
            cause = {
                "subject": waiver["subject"], "verdict": waiver["of"] or "FAIL", "findings": [waiver], "explains": [], "advice": [],
                "simulated": waiver["simulated"], "said": said,
            }  # fmt: skip
            row = _row(round_, cause, {key}, _hardware(round_, waiver["subject"]))
            found.append(row)
        if not row.checks & standing.bad.keys():
            until = f" until {waiver['expires']}" if waiver["expires"] else ""
            row.values.update(state=WAIVED, ticket=str(waiver["ticket"] or ""), note=f"waived{until}", updated_at=round_.judged_at)


# The file ---------------------------------------------------------------------------------------------------------------------------------


def as_csv(columns: t.Sequence[str], values: t.Iterable[t.Mapping[str, t.Any]]) -> str:
    """Return rows as CSV. What a program for tables would take for a formula gets an apostrophe before it, and each value is one line."""
    target = io.StringIO()
    writer = csv.DictWriter(target, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in values:
        writer.writerow({name: _cell(row.get(name)) for name in columns})
    return target.getvalue()


def _cell(value: t.Any) -> str:
    text = " ".join(formats.plain("" if value is None else value).split())
    return f"'{text}" if text.startswith(_FORMULA) else text


def theirs(text: str, name: str) -> dict[str, dict[str, str]]:
    """Return {id: what people wrote into the file}. Raise RunError if it has not the columns of a punch list, or a time is none."""
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")))
    try:
        return _theirs(reader, name)
    except csv.Error as error:
        raise RunError(f"{name}: line {reader.line_num}: {error}") from error


def _theirs(reader: csv.DictReader[str], name: str) -> dict[str, dict[str, str]]:
    missing = [column for column in ("id", *THEIRS) if column not in (reader.fieldnames or ())]
    if missing:
        raise RunError(f"{name}: the column {missing[0]} is missing; expected a punch list as {', '.join(('id', *THEIRS))}, ...")
    found = {}
    for place, row in enumerate(reader, 2):
        values = {column: (row.get(column) or "").strip().removeprefix("'") for column in THEIRS}
        if values["returned_at"] and not _is_time(values["returned_at"]):
            raise RunError(f"{name}: line {place}: returned_at: found {values['returned_at']!r}, expected a time like 2026-01-01T00:00:00Z")
        found[str(row["id"])] = values
    return found


def _is_time(text: str) -> bool:
    try:
        return bool(_RETURNED.match(text) and time.strptime(text, checker.TIME))
    except ValueError:
        return False


def repaired(values: t.Iterable[Row]) -> dict[str, str]:
    """Return the latest time at which each node came back from a repair, as people wrote it."""
    found: dict[str, str] = {}
    for row in values:
        node, at = row.values["node"], row.values["returned_at"]
        if at:
            found[node] = max(found.get(node, ""), at)
    return found


def unexplained(changes: t.Iterable[Change], listed: t.Iterable[Row]) -> list[Change]:
    """Return the changes of hardware behind which no row of the punch list stands."""
    rows = list(listed)
    return [change for change in changes if not any(_is_behind(row.values, change) for row in rows)]


def _is_behind(row: t.Mapping[str, str], change: Change) -> bool:
    """Return True if a row says why a part was changed: it names the part, its place or its number, or is about the node as a whole. A row
    about a pair is about the RDMA devices at both ends."""
    nodes = row["node"].split("|")
    if change.node not in nodes:
        return False
    changed = [part for part in (change.before, change.after) if part is not None]
    if len(nodes) > 1:
        return any(part.kind == "nic" for part in changed)
    if row["part"] == change.node and row["category"] == PART:
        return True
    # Of several parts each value has the name of its part before it: `GPU 0: module 1; GPU 1: module 2`.
    named = {row["hardware_id"]}
    named |= {text for name in ("slot", "serial") for piece in row[name].split("; ") for text in (piece, piece.partition(": ")[2])}
    return any(text in named for part in changed for text in (part.slot, part.serial, part.key, part.guid) if text)
