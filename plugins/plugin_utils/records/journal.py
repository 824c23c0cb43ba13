# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal of a run: append, read, repair, and its end.

Each line is a measurement with one more field, `chain`: the SHA-256 of the `chain` of the line before (of plan.json for the first line)
followed by the line without that field. A line that was changed, added or removed breaks the chain. A value that many measurements of one
append have is a line of its own before them (records/lines.py).

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import forked_worker, journal_files, lines
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import write_atomically
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.journal_files import link, linked
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.lines import LineReader
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlainData

# The name of a journal, and that of one that a version before 1.0 began.
NAME, PLAIN_NAME = "journal.jsonl.gz", "journal.jsonl"
# What is wrong with a line whose `chain` does not follow from the line before, or, for the first line, from plan.json.
WAS_CHANGED = "was changed, or a line before it is missing"
NOT_OF_THIS_PLAN = "does not fit to plan.json: one of the two was changed, or lines before it are missing"

# What a line of a journal is read as: a measurement, or any object that is none, which the verdict engine refuses.
Line = Measurement | PlainData


@dataclasses.dataclass
class Chain:
    """The state of a journal's chain. `chained`: the journal has digests. `whole`: how many of the first records follow each from the one
    before. `broken`: the line that does not follow, in words. `sha256` and `bytes` are of the whole lines as they were read,
    `plan_sha256` is what the chain begins with, `name` that of the journal's file."""

    plan_sha256: str
    name: str
    chained: bool = True
    whole: int = 0
    broken: str = ""
    sha256: str = ""
    bytes: int = 0


def _is_whole(records: list[Line], notes: list[str], chain: Chain) -> bool:
    """Return True if each line that was read is a measurement, and follows from the one before."""
    return not notes and chain.whole == len(records) and all(isinstance(record, Measurement) for record in records)


def path_in(folder: pathlib.Path) -> pathlib.Path:
    """Return the path of the journal of a run by the folder of the run."""
    plain = folder / PLAIN_NAME
    return plain if plain.exists() and not (folder / NAME).exists() else folder / NAME


class Journal:
    """The journal in one file: one JSON line per measurement, on disk the moment it arrives."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._file = journal_files.of(path)

    def append(self, measurements: t.Iterable[PlainData]) -> None:
        """Write measurements to the end. They are on disk then. Raise RunError if they cannot be written; none of them is there then."""
        try:
            self._keep(self._file.append(list(measurements), self._begin()))
        except OSError as error:
            raise RunError(f"{self.path}: {error.strerror}; what was measured now is not recorded") from error

    def _begin(self) -> bytes:
        try:
            plan = (self.path.parent / "plan.json").read_bytes()
        except OSError:
            plan = b""
        return hashlib.sha256(plan).hexdigest().encode()

    def read(self) -> tuple[list[Measurement], list[str]]:
        """Return all measurements, and a note for each line that is not a whole record."""
        records, notes, _chain = self.examine()
        return [record for record in records if isinstance(record, Measurement)], notes

    def as_data(self, *marks: bytes) -> t.Iterator[PlainData]:
        """Yield the measurements, complete and as plain data, of the lines in which one of `marks` stands; of all lines without marks. What
        is no object is left out. Raise OSError if the journal cannot be read."""
        reader = lines.DataReader(marks)
        for block in self._file.blocks():
            for line in block.lines:
                record = reader.record(line)
                if record is not None:
                    yield record

    def blocks(self, first: int) -> t.Iterator[tuple[list[bytes], int]]:
        """Yield the whole lines from a byte on which a block begins, block by block, each with the byte behind it. Raise OSError if the
        journal cannot be read."""
        for block in self._file.blocks(first):
            yield [line for line in block.lines if line.endswith(b"\n")], block.end

    def examine(self) -> tuple[list[Line], list[str], Chain]:
        """Return all records, a note for each line that is not a whole record, and what the chain says."""
        try:
            middle, digest_before = self._file.middle()
        except OSError:
            middle, digest_before = 0, None
        halves = self._in_halves(middle, digest_before) if digest_before else None
        return halves or self._read(self._begin())[:3]

    def _read(
        self, last: bytes, first: int = 0, end: int | None = None
    ) -> tuple[list[Line], list[str], Chain, hashlib._Hash, bytes]:
        """The same of the lines from a byte to another one, of which the first follows a line with the digest `last`; and the digests of
        all of them and of the last one."""
        records: list[Line] = []
        notes: list[str] = []
        reader = LineReader()
        chain, digest = Chain(last.decode(), self.path.name), hashlib.sha256()
        number = following = 0
        try:
            for block in self._file.blocks(first, end):
                digest.update(block.packed)
                chain.bytes += len(block.packed)
                for line in block.lines:
                    number += 1
                    its_link, content = link(line)
                    shared = reader.share(content)
                    record = None if shared else reader.record(content)
                    if record is not None:
                        records.append(record)
                    elif not shared:
                        if line.strip():
                            size = len(line.rstrip(b"\n"))
                            notes.append(f"{self.path.name} line {number} is not a whole record and was left out ({size} bytes)")
                        continue
                    if chain.broken or not chain.chained:
                        continue
                    if its_link and its_link == linked(last, content):
                        last = its_link
                        following += 1
                        chain.whole += not shared
                    elif not its_link and not following:
                        chain.chained = False
                    else:
                        chain.broken = f"{self.path.name} line {number} {WAS_CHANGED if first or number > 1 else NOT_OF_THIS_PLAN}"
                if block.torn:
                    notes.append(block.torn)
                elif block.damaged:
                    notes.append(block.damaged)
                    chain.broken = chain.broken or f"{block.damaged}, after line {number}"
                elif block.digest and block.digest != last and not chain.broken:
                    chain.broken = f"{self.path.name} line {number} {WAS_CHANGED}"
        except OSError as error:
            raise RunError(f"{self.path}: {error.strerror}") from error
        chain.sha256 = digest.hexdigest()
        return records, notes, chain, digest, last

    # A large journal is read by two processes.

    def _in_halves(self, middle: int, digest_before: bytes) -> tuple[list[Line], list[str], Chain] | None:
        """All of it; None where anything is not as it was written, for which whoever reads line by line has the words."""
        size = self.path.stat().st_size

        def latter() -> t.Iterator[list[t.Any]]:
            records, wrong, its_chain, _digest, _last = self._read(digest_before, middle, size)
            if not _is_whole(records, wrong, its_chain):
                yield []
                return
            yield ["whole"]
            for number in range(0, len(records), forked_worker.BATCH):
                yield lines.pack(t.cast("list[Measurement]", records[number : number + forked_worker.BATCH]))

        with forked_worker.ForkedWorker(latter) as worker:
            lines_read, notes, chain, digest, last = self._read(self._begin(), 0, middle)
            if last != digest_before or not _is_whole(lines_read, notes, chain):
                return None
            parts = worker.parts()
            if not next(parts):
                return None
            for part in parts:
                lines_read += lines.unpack(part)
        chain.whole = len(lines_read)
        with open(self.path, "rb", buffering=0) as source:
            source.seek(middle)
            while chain.bytes < size and (data := source.read(min(size - chain.bytes, 1 << 20))):
                digest.update(data)
                chain.bytes += len(data)
        chain.sha256 = digest.hexdigest()
        return lines_read, notes, chain

    # The end of the journal. The chain cannot tell that whole lines are missing there.

    @property
    def _end_path(self) -> pathlib.Path:
        return self.path.parent / "journal.end"

    @property
    def _cuts_path(self) -> pathlib.Path:
        return self.path.parent / "journal.cuts"

    def mark_end(self, lines: int, size: int) -> None:
        """Record how many measurements and bytes the journal had when it was judged, and the digest of its last line."""
        marked = {"lines": lines, "bytes": size, "chain": self._file.digest_at(size)}
        write_atomically(self._end_path, json.dumps(marked) + "\n")

    def lost_end(self) -> str:
        """Return in words what the journal has lost since it was last judged; empty if nothing, or if it was never judged."""
        try:
            marked = json.loads(self._end_path.read_text(encoding="utf-8"))
            lines, size, digest = int(marked["lines"]), int(marked["bytes"]), str(marked["chain"])
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, TypeError, KeyError):
            return f"{self._end_path.name} cannot be read, so nobody can say whether {self.path.name} is whole"
        now = self.path.stat().st_size
        if now < size:
            return (
                f"{self.path.name} has {now} bytes, and had {size} with {lines} measurements when it was judged: its end is lost"
            )
        if self._file.digest_at(size) != digest:
            return (
                f"{self.path.name} does not have the line with which it ended when it was judged (measurement {lines}): its end was "
                "replaced"
            )
        return ""

    def cuts(self) -> list[str]:
        """Return a note for each half-written end that was cut off this journal."""
        try:
            return self._cuts_path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []

    def repair(self) -> list[str]:
        """Cut off a half-written end, as a killed controller leaves it. Return what was cut, and keep it for `cuts`."""
        try:
            return self._keep(self._file.repair())
        except OSError as error:
            raise RunError(f"{self.path}: {error.strerror}") from error

    def _keep(self, notes: list[str]) -> list[str]:
        """Add notes to those of `cuts`."""
        if notes:
            with open(self._cuts_path, "a", encoding="utf-8") as target:
                target.writelines(note + "\n" for note in notes)
        return notes
