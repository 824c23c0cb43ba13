# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hand-made runs: an accepted run, changed in one thing each, and judged again. What an honest controller could have written has a
whole chain; what somebody has done to the folder afterwards has not."""

from __future__ import annotations

import copy
import hashlib
import json
import pathlib
import shutil
import typing as t

import msgspec
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import conclude
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import integrity, members
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from harness import journals

Record = dict[str, t.Any]
Change = t.Callable[[list[Record]], list[Record]]
NODE = "healthy-03"
SKIPPED = {"outcome": "not_applicable", "reason_code": "check_mode", "reason": "it was skipped", "metrics": {}}


def of(stage: str, node: str = NODE) -> t.Callable[[Record], bool]:
    return lambda record: record["stage"] == stage and record["subject"]["id"] == node


def edited(match: t.Callable[[Record], bool], edit: t.Callable[[Record], t.Any]) -> Change:
    """Every record that matches, changed in place."""

    def change(records: list[Record]) -> list[Record]:
        mine = [record for record in records if match(record)]
        assert mine, "the run has no such record"
        for record in mine:
            edit(record)
        return records

    return change


def repeated(match: t.Callable[[Record], bool], **first: t.Any) -> Change:
    """A bad attempt before the good one."""

    def change(records: list[Record]) -> list[Record]:
        found = []
        for record in records:
            if match(record):
                found.append({**copy.deepcopy(record), "metrics": {}, "series": [], **first})
                record = {**record, "attempt": 2}
            found.append(record)
        return found

    return change


def busbw(factor: float, unit: str = "GB/s") -> t.Callable[[Record], None]:
    def edit(record: Record) -> None:
        for metric in record["metrics"].values():
            if metric["unit"] == "GB/s" and metric["value"] is not None:
                metric.update(value=metric["value"] * factor, unit=unit)
        record["context"]["series_units"] = {**record["context"]["series_units"], "algbw": unit, "busbw": unit}
        for row in record["series"]:
            row.update({name: row[name] * factor for name in ("algbw", "busbw") if row.get(name) is not None})

    return edit


def tenfold(record: Record) -> None:
    for metric in record["metrics"].values():
        if metric["unit"] == "TFLOPS":
            metric["value"] *= 10


def respaced(folder: pathlib.Path) -> None:
    path = folder / "plan.json"
    path.write_text(path.read_text().replace('"partial": false', '"partial":  false'))


def identity(**changes: t.Any) -> t.Callable[[Record], None]:
    def edit(record: Record) -> None:
        for who in record["context"]["identities"].values():
            who.update(changes)

    return edit


def fatal(code: str) -> Record:
    return {"outcome": "error", "reason_code": code, "reason": f"planted: {code}"}


HONEST: list[tuple[str, Change]] = [
    ("wrong results are washed by a resume", repeated(of("nccl_node"), **fatal("wrong_results"))),
    ("a lost GPU is washed by a resume", repeated(of("gemm"), **fatal("gpu_lost"))),
    ("memory errors are washed by a resume", repeated(of("gemm"), **fatal("ecc"))),
    ("busbw of 3,824 GB/s: Gb/s taken for GB/s", edited(of("nccl_node"), busbw(8))),
    ("busbw a hundred times too high", edited(of("nccl_node"), busbw(100))),
    ("the unit of another prefix", edited(of("nccl_node"), busbw(1, "MB/s"))),
    ("6,800 TFLOPS", edited(of("gemm"), tenfold)),
    ("numbers without metrics", edited(of("nccl_node"), lambda r: r.update(metrics={}, series=[]))),
    ("another machine from gemm on", edited(of("gemm"), identity(machine_id="f" * 32))),
    ("other GPUs from gemm on", edited(of("gemm"), identity(gpu_uuids=[f"GPU-{n}" for n in range(8)]))),
    ("a record of another run", edited(of("gemm"), lambda r: r.update(run_id="20200101T000000Z-abcdef"))),
    ("a record about another check", edited(of("nccl_node"), lambda r: r.update(check="all_gather"))),
    ("a node that was never measured", lambda records: [r for r in records if not r["subject"]["id"].startswith(NODE)]),
    ("a stage that was never measured", lambda records: [r for r in records if r["stage"] != "gemm"]),
    ("only the node was measured, not its GPUs", lambda records: [r for r in records if f"{NODE}/gpu" not in r["subject"]["id"]]),
    ("a skip by no rule", edited(of("gemm"), lambda r: r.update(SKIPPED))),
]  # fmt: skip


def _line(edit: t.Callable[[list[str]], list[str]]) -> t.Callable[[pathlib.Path], None]:
    def change(folder: pathlib.Path) -> None:
        path = folder / "journal.jsonl.gz"
        lines = [line.decode() for line in journals.lines(path)]
        journals.write(path, "".join(edit(lines)).encode())

    return change


def _raw(edit: t.Callable[[pathlib.Path], t.Any]) -> t.Callable[[pathlib.Path], None]:
    return lambda folder: edit(folder / "raw" / f"{NODE}.txt.gz")


def _with_other_numbers(path: pathlib.Path) -> None:
    """Write all texts of a node anew, as the collection writes them."""
    texts = [part.content or b"" for part in members.parts(path)]
    path.unlink()
    for text in texts:
        with members.locked(path) as tail:
            tail.append(members.part(text.replace(b".4", b".5"), hashlib.sha256(text).digest(), tail.end))


TAMPERED: list[tuple[str, t.Callable[[pathlib.Path], None]]] = [
    ("an edited line of the journal", _line(lambda lines: [line.replace('"duration_s": ', '"duration_s": 1') for line in lines])),
    ("a line was taken out", _line(lambda lines: lines[:3] + lines[4:])),
    ("lines in another order", _line(lambda lines: lines[::-1])),
    ("a better line was added", _line(lambda lines: [*lines, lines[-1].replace('"attempt": 1', '"attempt": 2')])),
    ("the tool's output was edited", _raw(_with_other_numbers)),
    ("the tool's output was deleted", _raw(lambda path: path.unlink())),
    ("the plan was edited", respaced),
]  # fmt: skip


def _facts(edit: t.Callable[[pathlib.Path], t.Any]) -> t.Callable[[pathlib.Path], None]:
    return lambda folder: edit(folder / "nodes" / f"{NODE}.json")


# What no verdict is made from, and verify names.
EDITED: list[tuple[str, t.Callable[[pathlib.Path], None]]] = [
    ("a driver version edited in the facts of a node", _facts(lambda path: path.write_text(path.read_text().replace("580.", "570.")))),
    ("the facts of a node were deleted", _facts(lambda path: path.unlink())),
    ("facts of a node that was not measured", _facts(lambda path: path.with_name("other.json").write_text("{}"))),
]  # fmt: skip


def whole_run(run: Run) -> bool:
    """Return True if verify finds nothing."""
    try:
        return bool(integrity.verify(run))
    except RunError:
        return False


def accepted(accepted_run: pathlib.Path, place: pathlib.Path) -> tuple[int, list[str]]:
    """Return the number of runs that were made of an accepted one, and the accepted ones among them."""
    wrong = []
    records, _notes = Run(accepted_run.parent, accepted_run.name).journal.read()
    if not judged(_copy(accepted_run, place / "as it was")):
        wrong.append("the run that nobody changed is refused")
    for number, (what, change) in enumerate(HONEST):
        run = _copy(accepted_run, place / f"honest-{number}")
        run.journal.path.write_text("")
        # Each by itself: records that were read share what they say alike, and an edit is of the one alone.
        run.journal.append(change([msgspec.to_builtins(record) for record in records]))
        if judged(run):
            wrong.append(what)
    for number, (what, tamper) in enumerate(TAMPERED):
        run = _copy(accepted_run, place / f"tampered-{number}")
        before = _digest(run.dir)
        tamper(run.dir)
        assert _digest(run.dir) != before, what
        if judged(run):
            wrong.append(what)
    for number, (what, edit) in enumerate(EDITED):
        place_of = place / f"edited-{number}"
        shutil.copytree(accepted_run, place_of / accepted_run.name)
        run = Run(place_of, accepted_run.name)
        if not whole_run(run):
            wrong.append("verify finds something in a run that nobody changed")
        edit(run.dir)
        if whole_run(run):
            wrong.append(what)
    return len(HONEST) + len(TAMPERED) + len(EDITED), wrong


def _copy(run: pathlib.Path, place: pathlib.Path) -> Run:
    shutil.copytree(run, place / run.name, ignore=shutil.ignore_patterns("report*", "verdicts.jsonl", "judged", "todo"))
    return Run(place, run.name)


def _digest(folder: pathlib.Path) -> list[tuple[str, bytes]]:
    return sorted((str(path), path.read_bytes()) for path in folder.rglob("*") if path.is_file())


def judged(run: Run) -> bool:
    """Return True if a run is accepted."""
    return bool(conclude.judge({}, None, None, {"acceptance_run": {"results_dir": str(run.dir.parent), "run_id": run.id}})["accepted"])


def whole(results: pathlib.Path) -> pathlib.Path:
    """The one run of a folder, which was accepted."""
    (report,) = results.glob("*/report.json")
    assert json.loads(report.read_text())["accepted"], "the healthy run is not accepted"
    return report.parent
