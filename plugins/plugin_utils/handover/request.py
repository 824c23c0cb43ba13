# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hand-over as playbooks/handover.yml asks for it: from judged runs to the pack, and its signature.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import pathlib
import re
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover import (
    blocks,
    checker,
    contract,
    delivered,
    next_round,
    pack,
    printing,
    public_lists,
    punch_list,
    rounds,
    standing,
    support,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover.rounds import Round
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import raw, sent_back
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import file_name, write_atomically
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.parts import Part
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import page

FOLDER, PUNCH_LIST = sent_back.FOLDER, sent_back.PUNCH_LIST
# The options of the module.
OPTIONS: PlainData = {
    "run_id": {"type": "list", "elements": "str", "required": True},
    "results_dir": {"type": "str", "required": True},
    "name": {"type": "str", "default": ""},
    "blocks": {"type": "raw"},
    "contract": {"type": "str", "default": ""},
    "order": {"type": "str", "default": ""},
    "sign_key": {"type": "str", "default": ""},
    "signer": {"type": "str", "default": ""},
    "role": {"type": "str", "default": ""},
    "pdf": {"type": "bool", "default": True},
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}\Z")
_README = """\
{said}

index.html          the result, the blocks, the punch list, the contract and the inventory on one page
punch_list.csv      one row for each cause: part, place, finding, action, owner, ticket, state
inventory.csv       every machine and part that was seen, with serial number and firmware
coverage.csv        the demands of public lists, by their ids: shown, in part, failed, not looked for
capacity.json       delivered, healthy, held back for repair and accepted, for machines
runs/               each round as it was judged: report, plan, journal, verdicts, raw texts
evidence/           the raw texts behind each row of the punch list
support/            what goes with parts that are sent back: output of their tools, the kernel's log, the maker's bug report

Is it whole, and who signed it? With Python 3.8 and OpenSSH, on any machine:

    tar -xOf {name}.tar {name}/{checker} > verify.py
    python3 verify.py {name}.tar --signers allowed_signers
    python3 verify.py {name}.tar --sign ~/.ssh/id_ed25519 --as "Jane Doe, Example GmbH" --role customer

Take verify.py from the release of gpufleet.acceptance {version}, not from the pack, if you do not trust who gave you the pack: the program
in a pack is only as good as the pack. `allowed_signers` is a file of ssh-keygen(1): a line with a name and a public key for each person
who may sign.
"""


class Made(t.NamedTuple):
    """A pack that was made: its path, what is said about it, and whether the whole is accepted."""

    path: str
    lines: list[str]
    accepted: bool


def make(options: PlainData, groups: t.Mapping[str, t.Sequence[str]], check_mode: bool = False) -> Made:
    """Write the pack that the options ask for, and sign it if they name a key. `groups` are those of the inventory.

    Raise RunError for what cannot be handed over; nothing is written then."""
    if bool(options["sign_key"]) != bool(options["signer"]):
        raise RunError("handover_key, handover_signer: found one of them, expected both: the SSH key that signs, and who signs")
    run_ids = [run_id for given in options["run_id"] for run_id in str(given).replace(",", " ").split()]
    of = rounds.read(str(options["results_dir"]), run_ids)
    folder = pathlib.Path(str(options["results_dir"])) / FOLDER
    name = str(options["name"]) or f"handover-{of[-1].run.id}{f'-round{len(of)}' if len(of) > 1 else ''}"
    if not _NAME.match(name):
        raise RunError(f"handover_name: found {name!r}, expected letters, digits, dots, dashes and underscores")
    whole = _Whole(options, groups, of, folder)
    path = folder / f"{name}.tar"
    if not check_mode:
        created_at = time.strftime(checker.TIME, time.gmtime())
        with pack.Writer(path, name, created_at) as writer:
            whole.write(writer, created_at)
        write_atomically(folder / PUNCH_LIST, whole.punch_list_csv)
        write_atomically(folder / next_round.FILE, whole.next_round_csv)
        if options["sign_key"]:
            try:
                checker.sign(str(path), str(options["sign_key"]), str(options["signer"]), str(options["role"]))
            except checker.Refused as error:
                raise RunError(f"{path} was written, and is not signed: {error}") from error
    return Made(str(path), whole.lines(path, check_mode), whole.accepted)


class _Whole:
    """All that a pack says, from its rounds."""

    def __init__(self, options: PlainData, groups: t.Mapping[str, t.Sequence[str]], of: list[Round], folder: pathlib.Path) -> None:
        self.rounds, self.wants_pdf = of, bool(options["pdf"])
        path = folder / PUNCH_LIST
        theirs = punch_list.theirs(_text(path), str(path)) if path.is_file() else {}
        self.demands = contract.read(_text(pathlib.Path(options["contract"])), str(options["contract"])) if options["contract"] else []
        order = delivered.read_order(_text(pathlib.Path(options["order"])), str(options["order"])) if options["order"] else None
        first = [standing.of(of[:count]) for count in range(1, len(of) + 1)]
        repaired = punch_list.repaired(punch_list.rows(of, first, theirs))
        self.standings = [standing.of(of[:count], repaired) for count in range(1, len(of) + 1)]
        self.standing = self.standings[-1]
        self.rows = punch_list.rows(of, self.standings, theirs)
        known = {row.id for row in self.rows}
        self.kept = {row_id: values for row_id, values in theirs.items() if row_id not in known and any(values.values())}
        nodes = list(self.standing.of_node)
        racks = {node: rack for round_ in of for node, rack in round_.plan.judging.rack.items()}
        members = blocks.members(options["blocks"], groups, nodes, racks)
        self.blocks = blocks.judge(members, of, self.standings)
        self.homeless = blocks.in_none(members, nodes)
        self.traced, self.unasked = contract.trace(self.demands, self.standing)
        self.coverage = public_lists.rows(public_lists.shipped(), self.standing)
        self.inventory = delivered.parts_of(of)
        self.not_seen = delivered.not_seen(self.inventory, nodes)
        self.order = None if order is None else delivered.against_order(self.inventory, order)
        open_nodes = {row.values["node"] for row in self.rows if row.state == punch_list.OPEN}
        self.capacity = blocks.capacity(self.blocks, self.standing, open_nodes, delivered.gpus_of(of))
        self.next_round = next_round.of(self.standing, of, of[-1].run.id)
        self.collected = support.read(folder)
        self.simulated = any(round_.report["simulated"] for round_ in of)

    @property
    def notes(self) -> list[str]:
        """Return what speaks against the whole besides its blocks."""
        words = list(self.standing.notes)
        words += [f"in no block: {', '.join(self.homeless[:8])}{' ...' if len(self.homeless) > 8 else ''}"] if self.homeless else []
        missing = [row["id"] for row in self.traced if row["state"] != contract.MET]
        words += [f"{len(missing)} of {len(self.traced)} demands of the contract are not met ({', '.join(missing[:8])})"] if missing else []
        words += [f"{len(self.order)} differences from the order"] if self.order else []
        loose = punch_list.unexplained(self.standing.changes, self.rows)
        words += [f"{len(loose)} parts changed between rounds and no row of the punch list says why"] if loose else []
        return words

    @property
    def accepted(self) -> bool:
        """Return True if each block is accepted and nothing speaks against the whole."""
        return not self.notes and bool(self.blocks) and all(block.state == blocks.ACCEPTED for block in self.blocks)

    @property
    def word(self) -> str:
        """Return the result in a word."""
        return blocks.ACCEPTED if self.accepted else blocks.NOT_ACCEPTED

    @property
    def said(self) -> str:
        """Return what the pack is about in a line."""
        runs = ", ".join(round_.run.id for round_ in self.rounds)
        count = len(self.rounds)
        accepted = sum(block.state == blocks.ACCEPTED for block in self.blocks)
        mark = ", SIMULATED" if self.simulated else ""
        against = f", {len(self.notes)} more against the whole" if self.notes else ""
        rounds = f"{count} round{'s' if count > 1 else ''} ({runs})"
        return f"{self.word}{mark}: {accepted} of {len(self.blocks)} blocks accepted{against}, {rounds}"[:200]

    @property
    def punch_list_csv(self) -> str:
        """Return the punch list as CSV, with what people wrote about rows of other rounds."""
        others = [
            {**dict.fromkeys(punch_list.COLUMNS, ""), "id": row_id, "state": "of other rounds", **values}
            for row_id, values in self.kept.items()
        ]
        return punch_list.as_csv(punch_list.COLUMNS, [*(row.values for row in self.rows), *others])

    @property
    def next_round_csv(self) -> str:
        """Return the checks of the next round as CSV."""
        return punch_list.as_csv(next_round.COLUMNS, self.next_round)

    def counts(self) -> dict[str, int]:
        """Return how many rows there are of each state."""
        return {state: sum(row.state == state for row in self.rows) for state in (punch_list.OPEN, punch_list.DONE, punch_list.WAIVED)}

    def lines(self, path: pathlib.Path, check_mode: bool) -> list[str]:
        """Return what is said about the pack."""
        counts = self.counts()
        block_lines = [
            f"{block.name}: {block.state}{f' at {block.at}' if block.at else ''}{f': {block.why}' if block.why else ''}"
            for block in self.blocks
        ]
        return [
            self.said, *(f"block {line}" for line in block_lines), *self.notes,
            f"punch list: {counts['open']} open, {counts['done']} done, {counts['waived']} waived ({path.parent / PUNCH_LIST})",
            *([next_round.line(self.next_round, path.parent / next_round.FILE)] if self.next_round else []),
            *support.said(self.rows, self.collected, collection.playbook("support_files")),
            f"pack: {path}{' (not written: check mode)' if check_mode else ''}",
        ]  # fmt: skip

    def write(self, writer: pack.Writer, created_at: str) -> None:
        """Write all files of the pack."""
        version = collection.version()
        program = pathlib.Path(checker.__file__).with_suffix(".py").read_bytes()
        for row in self.rows:
            self._evidence(writer, row)
        for one in dict.fromkeys(one for row in self.rows for one in support.about(row, self.collected)):
            for name in one.files:
                writer.add_file(f"{support.path_in_pack(one)}{name}", one.folder / name)
        rows = [row.values for row in self.rows]
        about = {
            "name": writer.name, "said": self.said, "word": self.word, "accepted": self.accepted, "created_at": created_at,
            "version": version, "notes": self.notes, "simulated": self.simulated,
        }  # fmt: skip
        listed = [self._round(round_) for round_ in self.rounds]
        writer.add("README.txt", _README.format(said=self.said, name=writer.name, checker=checker.CHECKER, version=version))
        writer.add(checker.CHECKER, program)
        changes = [self._change(change) for change in self.standing.changes]
        templates = page.environment(pathlib.Path(__file__).resolve().parent / "templates")
        index = templates.get_template("pack.html.j2").render(
            pack=about, blocks=self.blocks, rounds=listed, punch_list=rows, counts=self.counts(), demands=self.traced, unasked=self.unasked,
            coverage=public_lists.counts(self.coverage), inventory_count=len(self.inventory), not_seen=self.not_seen, changes=changes,
            order=self.order, capacity={**self.capacity["blocks"], "all": self.capacity["total"]},
        )  # fmt: skip
        writer.add("index.html", index)
        if self.wants_pdf:
            for name, document in printing.pdfs(
                {"index.pdf": index, **{f"runs/{round_.run.id}/report.pdf": round_.folder / "report.html" for round_ in self.rounds}}
            ):
                writer.add(name, document)
        writer.add("punch_list.csv", self.punch_list_csv)
        writer.add_json("punch_list.json", rows)
        writer.add("inventory.csv", punch_list.as_csv(delivered.COLUMNS, self.inventory))
        writer.add_json(
            "inventory.json", {"parts": self.inventory, "not_seen": self.not_seen, "changes": changes, "against_order": self.order}
        )
        if self.next_round:
            writer.add(next_round.FILE, self.next_round_csv)
        writer.add_json("capacity.json", self.capacity)
        judged_blocks = {
            block.name: {"state": block.state, "accepted_at": block.at, "why": block.why, "nodes": list(block.nodes)}
            for block in self.blocks
        }  # fmt: skip
        writer.add_json("blocks.json", judged_blocks)
        writer.add_json("rounds.json", listed)
        writer.add_json("expectations.json", {round_.run.id: round_.report.get("expectations") for round_ in self.rounds})
        writer.add_json("waivers.json", {round_.run.id: round_.report.get("waivers") for round_ in self.rounds})
        if self.demands:
            writer.add("contract.csv", punch_list.as_csv(contract.COLUMNS, self.traced))
            writer.add_json("contract.json", {"demands": self.traced, "checks_without_demand": self.unasked})
        writer.add("coverage.csv", punch_list.as_csv(public_lists.COLUMNS, self.coverage))
        for round_ in self.rounds:
            for path in _files(round_.run.dir):
                writer.add_file(f"runs/{round_.run.id}/{path.relative_to(round_.run.dir).as_posix()}", path)
        runs = [round_.run.id for round_ in self.rounds]
        writer.finish({**about, "runs": runs, "blocks": {block.name: block.state for block in self.blocks}})

    def _evidence(self, writer: pack.Writer, row: punch_list.Row) -> None:
        """Add the raw texts of a row, and of its node what is known of its parts: what goes with a part that is sent back."""
        node = row.values["node"]
        folder = f"evidence/{row.id}"
        of_node = [part for part in self.inventory if part["node"] == node]
        files = [support.path_in_pack(one) for one in support.about(row, self.collected)]
        writer.add_json(f"{folder}/row.json", {"row": row.values, "parts": of_node, "support_files": files})
        for place, (number, reference) in enumerate(dict.fromkeys(row.evidence), 1):
            round_ = self.rounds[number - 1]
            writer.add(f"{folder}/{place:02}-{file_name(round_.run.id)}.txt", raw.read(round_.run.dir, reference))
        row.values["evidence"] = " ".join([f"{folder}/", *files])

    def _change(self, change: standing.Change) -> PlainData:
        behind = next((row.id for row in self.rows if not punch_list.unexplained([change], [row])), "")
        return {
            "node": change.node, "slot": change.slot, "round": change.round, "before": _words(change.before), "after": _words(change.after),
            "row": behind,
        }  # fmt: skip

    @staticmethod
    def _round(round_: Round) -> PlainData:
        report = round_.report
        return {
            "number": round_.number, "run": round_.run.id, "planned_at": round_.planned_at, "judged_at": round_.judged_at,
            "word": report["word"], "why": report["why"], "counts": report["counts"], "fingerprint": report.get("fingerprint"),
            "inventory": report["inventory"], "versions": report.get("versions"), "looked_for": report.get("looked_for"),
            "left_out": report.get("left_out"), "skipped_stages": report.get("skipped_stages"),
        }  # fmt: skip


def _words(part: Part | None) -> str:
    return "nothing" if part is None else part.place


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _files(folder: pathlib.Path) -> t.Iterator[pathlib.Path]:
    """Yield the files of a run that its report stands on; those that only its controller needs are left out."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.relative_to(folder).parts[0] != "todo":
            yield path
