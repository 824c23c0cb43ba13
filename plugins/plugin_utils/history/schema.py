# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of the history.

What was measured lies by run, so that a run is added at the end of each table and taken away as a whole; `placement` knows in which runs
a node was, and so where its numbers are. Texts that many rows share stand once. A subject is either simulated or real: the two
never have a row in common.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

try:
    import sqlalchemy as sa
except ImportError:
    sa = None  # type: ignore[assignment]  # store.py says so

__all__ = ["sa"]  # the others of this room have it from here

# The migrations in their order; a new database is made whole, by the tables below.
REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008")

if sa is not None:
    METADATA = sa.MetaData()

    def _table(name: str, *columns: sa.schema.SchemaItem) -> sa.Table:
        return sa.Table(name, METADATA, *columns, sqlite_with_rowid=any(getattr(column, "name", "") == "id" for column in columns))

    def _key(name: str, of: str = "") -> sa.Column[int]:
        references = [sa.ForeignKey(of)] if of else []
        return sa.Column(name, sa.Integer, *references, primary_key=True, autoincrement=False)

    def _text(name: str, nullable: bool = False) -> sa.Column[str]:
        return sa.Column(name, sa.Text, nullable=nullable)

    def _int(name: str, of: str = "") -> sa.Column[int]:
        return sa.Column(name, sa.Integer, *([sa.ForeignKey(of)] if of else []), nullable=False)

    def _bool(name: str) -> sa.Column[bool]:
        return sa.Column(name, sa.Boolean, nullable=False)

    def _number(name: str, nullable: bool = True) -> sa.Column[float]:
        return sa.Column(name, sa.Double, nullable=nullable)

    # Names of subjects, models of GPUs, versions of tools.
    word = _table("word", _key("id"), _text("text"), sa.UniqueConstraint("text"))

    # `scope` is {targets, stages, left_out, skipped_stages} as JSON. `pruned`: its numbers are in `month` only. `inventory` is the last
    # part of its name, empty where an older version kept none.
    run = _table(
        "run", _key("id"), _text("name"), _text("planned_at"), _text("mode"), _bool("partial"), _bool("simulated"), _bool("pruned"),
        _text("scope"), _text("collection_version"), _text("ansible_version"), _text("python_version"), _text("journal_sha256"),
        _text("inventory"),
        sa.UniqueConstraint("name"),
    )  # fmt: skip

    # `folder` is where it lies in the run's, empty for the first; the last by that name holds. `word` is what it comes to, for people:
    # a quick test that passed is not `accepted`, and no yardstick, nor is a run that proved nothing of what had to be.
    judgement = _table(
        "judgement", _key("id"), _int("run_id", "run.id"), _text("folder"), _text("digest"), _text("judged_at"), _bool("accepted"),
        _text("why"), _text("counts"), _int("planned"), _int("measured"), _text("word"),
        sa.UniqueConstraint("run_id", "folder"),
    )  # fmt: skip

    subject = _table(
        "subject", _key("id"), _text("kind"), _text("identity"), _bool("simulated"),
        sa.UniqueConstraint("identity", "simulated"),
    )  # fmt: skip

    # Under which name a subject was in a run, and at which node; a pair is at both of its ends, a group at itself.
    placement = _table(
        "placement", _key("run_id", "run.id"), _key("subject_id", "subject.id"), _key("node_id", "subject.id"), _int("name_id", "word.id"),
        _int("model_id", "word.id"),
    )  # fmt: skip
    sa.Index("placement_node", placement.c.node_id, placement.c.run_id, placement.c.subject_id)
    sa.Index("placement_subject", placement.c.subject_id, placement.c.run_id)
    sa.Index("placement_name", placement.c.name_id, placement.c.subject_id)

    check = _table(
        "check_of", _key("id"), _text("stage"), _text("check"), _text("variant"), sa.UniqueConstraint("stage", "check", "variant")
    )
    quantity = _table(
        "quantity", _key("id"), _int("check_id", "check_of.id"), _text("metric"), _text("unit"),
        sa.UniqueConstraint("check_id", "metric", "unit"),
    )  # fmt: skip

    # Of each check the attempt that was judged.
    measurement = _table(
        "measurement", _key("run_id", "run.id"), _key("subject_id", "subject.id"), _key("check_id", "check_of.id"), _int("attempt"),
        _text("outcome"), _text("reason_code", True), _text("started_at"), _number("duration_s"), _int("tool_id", "word.id"),
    )  # fmt: skip
    metric = _table(
        "metric", _key("run_id", "run.id"), _key("subject_id", "subject.id"), _key("quantity_id", "quantity.id"),
        _number("value", nullable=False),
    )  # fmt: skip
    # What was measured at each message size: the rows as JSON, compressed.
    sweep = _table(
        "sweep", _key("run_id", "run.id"), _key("subject_id", "subject.id"), _key("check_id", "check_of.id"),
        sa.Column("rows", sa.LargeBinary, nullable=False),
    )  # fmt: skip

    # What a verdict was made by; empty where there is none.
    basis = _table(
        "basis", _key("id"), _text("metric"), _text("unit"), _text("layer"), _text("source"), _text("confidence"), _text("dated"),
        _text("expectation"),
        sa.UniqueConstraint("metric", "unit", "layer", "source", "confidence", "dated", "expectation"),
    )  # fmt: skip
    # `reason` of what is no PASS. `regressed`: worse than its own past, whatever the verdict is.
    verdict = _table(
        "verdict", _key("judgement_id", "judgement.id"), _key("subject_id", "subject.id"), _key("check_id", "check_of.id"),
        _text("verdict"), _number("value"), _number("floor"), _number("expected"), _int("basis_id", "basis.id"),
        _text("reason_code", True), _text("reason", True), _bool("regressed"),
    )  # fmt: skip
    _BAD = verdict.c.verdict != "PASS"
    sa.Index("verdict_bad", verdict.c.verdict, verdict.c.judgement_id, sqlite_where=_BAD, postgresql_where=_BAD)
    _WORSE = sa.text("regressed")
    sa.Index("verdict_worse", verdict.c.regressed, verdict.c.judgement_id, sqlite_where=_WORSE, postgresql_where=_WORSE)

    # The facts of a node as JSON, compressed: what many nodes and runs share is kept once.
    sheet = _table("sheet", _key("id"), _text("digest"), sa.Column("facts", sa.LargeBinary, nullable=False), sa.UniqueConstraint("digest"))
    fact = _table("fact", _key("run_id", "run.id"), _key("subject_id", "subject.id"), _int("sheet_id", "sheet.id"))

    # The parts that a node had in a run, as JSON in a sheet, and the names by which parts are found in sheets (hardware.py).
    hardware = _table("hardware", _key("run_id", "run.id"), _key("subject_id", "subject.id"), _int("sheet_id", "sheet.id"))
    sa.Index("hardware_sheet", hardware.c.sheet_id)
    part_name = _table("part_name", sa.Column("text", sa.Text, primary_key=True), _key("sheet_id", "sheet.id"))

    # What is left of the numbers of runs that were taken out by their age.
    month = _table(
        "month", _key("subject_id", "subject.id"), _key("quantity_id", "quantity.id"), sa.Column("month", sa.Text, primary_key=True),
        _number("median", nullable=False), _number("least", nullable=False), _number("most", nullable=False), _int("runs"),
    )  # fmt: skip

    # What holds rows of one run, and of one judgement.
    OF_RUN = (placement, measurement, metric, sweep, fact, hardware)
    # What stays of a run whose numbers were taken out: where its subjects and their parts were.
    LASTING = (placement, hardware)
