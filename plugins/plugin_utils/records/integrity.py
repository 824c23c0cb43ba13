# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare a run's folder with what the run wrote: the chain of its journal, its raw texts, its reports.

Against a slip of the hand and a quick correction, not against somebody who writes everything anew: without a signature nothing
in the folder can tell that. The fingerprint on a printed and signed report can.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import sys
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import raw, verdict_files
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.forked_worker import ForkedWorker
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.journal import NOT_OF_THIS_PLAN, Chain, Line
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlainData, Plan
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import FileDigest, RawDigest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run, facts_of, has_facts, node_file

MISSING = "missing"
DAMAGED = "damaged"
LISTED = "report.sha256"
# Bytes of a file that are read at once: a run of thousands of nodes has tens of thousands of small ones.
AT_ONCE = 64 << 10


@dataclasses.dataclass
class Evidence:
    """The measurements of a run, each refused that is not what was written. `changed` say what is not, in words; `files` are the files
    that lie there now."""

    records: list[Line]
    notes: list[str]
    changed: list[str]
    files: list[FileDigest]


def gather(run: Run, plan: Plan) -> Evidence:
    """The journal of a run, its chain and its raw texts, as they are now."""
    records, notes, chain = run.journal.examine()
    # An accepted run under the name of another one is not that one.
    changed = [f"plan.json is that of run {plan.run_id}"] if plan.run_id != run.id else []
    notes += run.journal.cuts()
    broken = broken_chain(plan, records, chain)
    lost_end = "" if broken else run.journal.lost_end()
    if lost_end:
        changed.append(lost_end)
    if broken:
        changed.append(f"{broken}: {NOT_JUDGED}")
        doubtful = {_about(record) for record in records[chain.whole :]}
        # What stands before it of the same checks may have been followed by other attempts than those that are there now.
        records = [
            _distrusted(record, broken) if place >= chain.whole or (_about(record) in doubtful and _is_done(record)) else record
            for place, record in enumerate(records)
        ]
    elif records and not chain.chained:
        notes.append("the lines of the journal are not chained, as older versions wrote it: nobody can say whether one was changed")
    digests = _digests(run.dir, sorted({name for name, _sha256 in map(_raw, records) if name}))
    lost = []
    for place, record in enumerate(records):
        name, sha256 = _raw(record)
        if name and digests[name] != sha256:
            problem = f"{name} is {digests[name] if digests[name] in (MISSING, DAMAGED) else 'not what the journal says by its SHA-256'}"
            lost.append(problem)
            records[place] = _without_raw(record, problem)
    if lost:
        hidden_count = len(set(lost)) - 1
        changed.append(sorted(lost)[0] + (f", and {hidden_count} more such files" if hidden_count else ""))
    files: list[FileDigest] = [
        {"path": "plan.json", "bytes": None, "sha256": chain.plan_sha256},
        {"path": run.journal.path.name, "bytes": chain.bytes, "sha256": chain.sha256},
    ]
    files += [{"path": name, "bytes": None, "sha256": sha256} for name, sha256 in digests.items()]
    return Evidence(records, notes, changed, files)


def _digests(folder: pathlib.Path, names: list[str]) -> dict[str, str]:
    half = len(names) // 2

    def of(names: list[str]) -> list[str]:
        return [digest(folder, name) for name in names]

    with ForkedWorker(lambda: [of(names[half:])], len(names)) as worker:
        return dict(zip(names, [*of(names[:half]), *next(worker.parts())], strict=True))


def broken_chain(plan: Plan, records: t.Sequence[Line], chain: Chain) -> str:
    """Return where the journal was changed, in words; empty if it was not, or if its version had no chain."""
    if plan.chained and records and not chain.chained:
        return f"{chain.name} line 1 {NOT_OF_THIS_PLAN}"
    return chain.broken


# What comes of a journal that was changed.
NOT_JUDGED = "this line and all later ones are not judged; measure again in a new run"


def _about(record: Line) -> t.Any:
    """Return the key of a measurement; of any other object what stands in place of one."""
    if isinstance(record, Measurement):
        return record.key
    return json.dumps([record.get(name) for name in ("stage", "check", "variant", "subject")], sort_keys=True)


def _raw(record: Line) -> tuple[str, t.Any]:
    """Return the file with the raw output of a record, empty if it has none, and its digest as the journal says it."""
    if isinstance(record, Measurement):
        return record.raw or "", record.raw_sha256
    return str(record.get("raw") or ""), record.get("raw_sha256")


def _is_done(record: Line) -> bool:
    outcome = record.outcome if isinstance(record, Measurement) else record.get("outcome")
    return outcome in ("measured", "not_applicable")


def _distrusted(record: Line, broken: str) -> Line:
    if not isinstance(record, Measurement):
        return record  # the verdict engine refuses it
    return record.replaced(
        outcome="error", reason_code="tampered", reason=f"{broken}: {NOT_JUDGED}", metrics={}, series=[], context={}, evidence={}, raw=None,
        raw_sha256=None,
    )  # fmt: skip


def _without_raw(record: Line, problem: str) -> Line:
    """An error stays what it is: a lost file makes nothing better."""
    if not isinstance(record, Measurement) or not _is_done(record):
        return record
    return record.replaced(outcome="error", reason_code="raw_changed", reason=problem[:2000], metrics={}, series=[])


def digest(folder: pathlib.Path, name: str, size: int | None = None) -> str:
    """SHA-256 of a file of a run, or of its first `size` bytes; that of a raw text by its reference. MISSING if there is none, DAMAGED if a
    raw text cannot be unpacked."""
    if raw.is_packed(name):
        return _digest_of_text(folder, name)
    if name.startswith("/") or ".." in name.split("/"):
        return MISSING
    try:
        handle = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            hasher, bytes_left = hashlib.sha256(), sys.maxsize if size is None else size
            while part := os.read(handle, min(bytes_left, AT_ONCE)):
                hasher.update(part)
                bytes_left -= len(part)
            return hasher.hexdigest()
        finally:
            os.close(handle)
    except (OSError, ValueError):
        return MISSING


def _digest_of_text(folder: pathlib.Path, reference: str) -> str:
    try:
        return hashlib.sha256(raw.read(folder, reference)).hexdigest()
    except raw.ChangedError:
        return DAMAGED
    except OSError:
        return MISSING


def fingerprint(files: t.Iterable[RawDigest | FileDigest]) -> str:
    """Return one digest for all files: that of the lines that `sha256sum` prints for them."""
    lines = "".join(f"{file['sha256']}  {file['path']}\n" for file in files)
    return hashlib.sha256(lines.encode(errors="backslashreplace")).hexdigest()


def verify(run: Run) -> str:
    """One line that says what is whole. RunError names the first thing that is not."""
    plan = run.plan()
    evidence = gather(run, plan)
    if evidence.changed:
        raise RunError(f"run {run.id} is not whole: {evidence.changed[0]}")
    if evidence.records and not plan.chained:
        raise RunError(f"run {run.id} was made by an older version, whose journal is not chained: nobody can say whether it is whole")
    reports = [path.parent for path in [run.dir / "report.json", *sorted(run.dir.glob("judged/*/report.json"))] if path.is_file()]
    if not reports:
        raise RunError(f"run {run.id} has no report: it was not judged")
    wrong = _node_files(run)
    if wrong:
        raise RunError(f"run {run.id} is not whole: {wrong}")
    now = {file["path"]: file["sha256"] for file in evidence.files}
    last = ""
    for folder in reports:
        where = folder.relative_to(run.dir).as_posix()
        wrong, last = _report(run, folder, now)
        if wrong:
            raise RunError(f"run {run.id} is not whole: {'' if where == '.' else where + '/'}{wrong}")
    texts = sum(file["path"].startswith("raw/") for file in evidence.files)
    counted = f"{len(evidence.records)} measurements, {texts} raw texts, {len(reports)} report{'s' if len(reports) > 1 else ''}"
    return f"run {run.id} is whole: {counted}; fingerprint {last}"


def _node_files(run: Run) -> str:
    """Return what is wrong with the files of `nodes/`, in words; empty if each holds the facts that the journal has of its node.

    The journal's chain covers the facts, so the files need no digests of their own. A file is compared by its content: the last
    measured facts of the node in the order of the journal.
    """
    expected = _facts_in_journal(run)
    present = {path.name for path in (run.dir / "nodes").glob("*.json")}
    for name in sorted({*expected, *present}):
        if name not in expected:
            return f"nodes/{name} is about a node of which the journal has no facts"
        if name not in present:
            return f"nodes/{name} is missing"
        try:
            content = json.loads((run.dir / "nodes" / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            return f"nodes/{name} cannot be read: {error}"
        if content != expected[name]:
            return f"nodes/{name} is not what the journal says{_first_difference(content, expected[name])}"
    return ""


def _facts_in_journal(run: Run) -> dict[str, PlainData]:
    """Return the expected content of each file of `nodes/` by its name."""
    try:
        return {node_file(m["subject"]["id"]): facts_of(m) for m in run.journal.as_data(b'"facts"') if has_facts(m)}
    except OSError:
        return {}


def _first_difference(content: t.Any, expected: PlainData) -> str:
    """Return the first fact in which a file of `nodes/` differs from the journal, in words."""
    in_file, in_journal = (side.get("facts") if isinstance(side, dict) else None for side in (content, expected))
    if not isinstance(in_file, dict) or not isinstance(in_journal, dict):
        return ""
    for name in sorted({*in_file, *in_journal}):
        if in_file.get(name) != in_journal.get(name):
            return f": {name} is {str(in_file.get(name))[:80]}, in the journal {str(in_journal.get(name))[:80]}"
    return ""


def _report(run: Run, folder: pathlib.Path, now: t.Mapping[str, str]) -> tuple[str, str]:
    """Return what is wrong with one report, and its fingerprint."""
    try:
        lines = (folder / LISTED).read_text(encoding="utf-8").splitlines()
        listed = {name: expected for expected, name in (line.split("  ", 1) for line in lines)}
        model = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        files = [*model["files"], *model["raw"]]
        listed_fingerprint = str(model["fingerprint"])
        for name, expected in listed.items():
            if digest(folder, name) != expected:
                return f"{name} is not what was written, by {LISTED}", listed_fingerprint
        unlisted = sorted({path.name for path in folder.glob("report.*")} - {LISTED, *listed})
        if unlisted:
            return f"{unlisted[0]} is not listed in {LISTED}", listed_fingerprint
        for file in files:
            path, size = file["path"], file.get("bytes")
            of_judgement = path in verdict_files.NAMES
            sha256 = digest(folder, path) if of_judgement else digest(run.dir, path, size) if size else now.get(path, MISSING)
            if sha256 != file["sha256"]:
                return f"report.json is about another {path}", listed_fingerprint
    except (OSError, ValueError, TypeError, KeyError) as error:
        return f"report.json or {LISTED} cannot be read: {error}", ""
    if "report.json" not in listed or fingerprint(files) != listed_fingerprint:
        return "report.json: its fingerprint is not that of the files that it lists", listed_fingerprint
    return "", listed_fingerprint
