# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal of a run: append, read, repair, and its end.

Each line is a measurement with one more field, `chain`: the SHA-256 of the `chain` of the line before (of plan.json for the first line)
followed by the line without that field. A line that was changed, added or removed breaks the chain.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import forked_worker, lines
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import write_atomically
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.lines import LineReader
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlainData

# What is wrong with a line whose `chain` does not follow from the line before, or, for the first line, from plan.json.
WAS_CHANGED = "was changed, or a line before it is missing"
NOT_OF_THIS_PLAN = "does not fit to plan.json: one of the two was changed, or lines before it are missing"

# What a line of a journal is read as: a measurement, or any object that is none, which the verdict engine refuses.
Line = Measurement | PlainData

# The field `chain` at the end of a line.
_LINK = re.compile(rb'(?:, )?"chain": "([0-9a-f]{64})"\}\n?\Z')
_LINK_BYTES = 96
# Where it begins in whole lines of ours, so many bytes before their end.
_END = len(', "chain": ""}\n') + 64
# More than any line has: measurement.RECORD_LIMIT and what JSON makes of it.
_TAIL_BYTES = 16 << 20


def _link(line: bytes) -> tuple[bytes | None, bytes]:
    """The digest at the end of a line, and the line without it."""
    link = _LINK.match(line, max(0, len(line) - _END)) or _LINK.search(line, max(0, len(line) - _LINK_BYTES))
    return (link[1], line[: link.start()] + b"}") if link else (None, line)


def _linked(digest_before: bytes, record: bytes) -> bytes:
    """The digest of a record after a line with the digest `digest_before`, both as they stand in the file."""
    return hashlib.sha256(digest_before + record).hexdigest().encode()


@dataclasses.dataclass
class Chain:
    """The state of a journal's chain. `chained`: the journal has digests. `whole`: how many of the first records follow each from the one
    before. `broken`: the line that does not follow, in words. `sha256` and `bytes` are of the whole lines as they were read,
    `plan_sha256` is what the chain begins with."""

    plan_sha256: str
    chained: bool = True
    whole: int = 0
    broken: str = ""
    sha256: str = ""
    bytes: int = 0


def _whole(records: list[Line], notes: list[str], chain: Chain) -> bool:
    """Return True if each line that was read is a measurement, and follows from the one before."""
    return not notes and chain.whole == len(records) and all(isinstance(record, Measurement) for record in records)


class Journal:
    """The journal in one file: one JSON line per measurement, on disk the moment it arrives."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def append(self, measurements: t.Iterable[PlainData]) -> None:
        records = [json.dumps(m, allow_nan=False, sort_keys=True).encode() for m in measurements]
        with self._locked(os.O_RDWR | os.O_APPEND | os.O_CREAT) as handle:
            end = os.fstat(handle).st_size
            # A line that a full disk or a dead controller cut must not swallow the next one.
            cut = end and os.pread(handle, 1, end - 1) != b"\n"
            data = (b"\n" if cut else b"") + b"".join(self._lines(records, self._last(handle, end)))
            try:
                while data:
                    data = data[os.write(handle, data) :]
                os.fsync(handle)
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.ftruncate(handle, end)
                raise RunError(f"{self.path}: {error.strerror}; what was measured now is not recorded") from error

    def _lines(self, records: list[bytes], last: bytes | None) -> t.Iterator[bytes]:
        for record in records:
            if last is not None:
                last = _linked(last, record)
                record = record[:-1] + (b', "chain": "' if len(record) > 2 else b'"chain": "') + last + b'"}'
            yield record + b"\n"

    def _last(self, handle: int, end: int) -> bytes | None:
        """The digest of the last whole line; None in a journal of a version that had none."""
        if not end:
            return self._begin()
        digest, _record = _link(os.pread(handle, _LINK_BYTES, max(0, end - _LINK_BYTES)))
        if digest:
            return digest
        # The last line is a cut one, or has no digest.
        tail_at = max(0, end - _TAIL_BYTES)
        for line in reversed(os.pread(handle, end - tail_at, tail_at).splitlines()):
            digest, _record = _link(line)
            if digest or LineReader().record(line) is not None:
                return digest
        return self._begin() if not tail_at else None

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

    def examine(self) -> tuple[list[Line], list[str], Chain]:
        """Return all records, a note for each line that is not a whole record, and what the chain says."""
        middle, digest_before = self._middle()
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
        chain, digest, at = Chain(last.decode()), hashlib.sha256(), first
        try:
            with open(self.path, "rb") as source:
                source.seek(first)
                for number, line in enumerate(source, 1):
                    at += len(line)
                    if end is not None and at > end:
                        break
                    if line.endswith(b"\n"):  # a cut one may be taken off yet
                        digest.update(line)
                        chain.bytes += len(line)
                    link, content = _link(line)
                    record = reader.record(content)
                    if record is None:
                        if line.strip():
                            size = len(line.rstrip(b"\n"))
                            notes.append(f"{self.path.name} line {number} is not a whole record and was left out ({size} bytes)")
                        continue
                    records.append(record)
                    if chain.broken or not chain.chained:
                        continue
                    if link and link == _linked(last, content):
                        last, chain.whole = link, chain.whole + 1
                    elif not link and not chain.whole:
                        chain.chained = False
                    else:
                        chain.broken = f"{self.path.name} line {number} {WAS_CHANGED if first or number > 1 else NOT_OF_THIS_PLAN}"
        except OSError as error:
            raise RunError(f"{self.path}: {error.strerror}") from error
        chain.sha256 = digest.hexdigest()
        return records, notes, chain, digest, last

    # A large journal is read by two processes.

    def _middle(self) -> tuple[int, bytes | None]:
        """Return where the second half of a large journal begins, and the digest of the line before; None if it cannot be divided."""
        try:
            with open(self.path, "rb") as source:
                size = os.fstat(source.fileno()).st_size
                if size < forked_worker.MIN_BYTES:
                    return 0, None
                source.seek(size // 2)
                source.readline()
                middle = source.tell()
                source.seek(middle - _LINK_BYTES)
                return middle, _link(source.read(_LINK_BYTES))[0]
        except OSError:
            return 0, None

    def _in_halves(self, middle: int, digest_before: bytes) -> tuple[list[Line], list[str], Chain] | None:
        """All of it; None where anything is not as it was written, for which whoever reads line by line has the words."""
        size = self.path.stat().st_size

        def latter() -> t.Iterator[list[t.Any]]:
            records, wrong, its_chain, _digest, _last = self._read(digest_before, middle, size)
            if not _whole(records, wrong, its_chain):
                yield []
                return
            yield ["whole"]
            for number in range(0, len(records), forked_worker.BATCH):
                yield lines.pack(t.cast("list[Measurement]", records[number : number + forked_worker.BATCH]))

        with forked_worker.ForkedWorker(latter) as worker:
            lines_read, notes, chain, digest, last = self._read(self._begin(), 0, middle)
            if last != digest_before or not _whole(lines_read, notes, chain):
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
        """Record how many lines and bytes the journal had when it was judged, and the digest of its last line."""
        write_atomically(self._end_path, json.dumps({"lines": lines, "bytes": size, "chain": self._digest_at(size)}) + "\n")

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
            return f"{self.path.name} has {now} bytes, and had {size} in {lines} lines when it was judged: its end is lost"
        if self._digest_at(size) != digest:
            return f"{self.path.name} does not have the line with which it ended when it was judged (line {lines}): its end was replaced"
        return ""

    def _digest_at(self, end: int) -> str:
        """Return the digest of the line that ends at this byte; empty if it has none."""
        with open(self.path, "rb") as source:
            source.seek(max(0, end - _LINK_BYTES))
            link = _link(source.read(min(end, _LINK_BYTES)))[0]
        return link.decode() if link else ""

    def cuts(self) -> list[str]:
        """Return a note for each half-written line that `repair` has cut off this journal."""
        try:
            return self._cuts_path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []

    def repair(self) -> list[str]:
        """Cut off a half-written last line, as a killed controller leaves it. Return what was cut, and keep it for `cuts`."""
        with self._locked(os.O_RDWR) as handle:
            size = os.fstat(handle).st_size
            tail_at = max(0, size - _TAIL_BYTES)
            tail = os.pread(handle, size - tail_at, tail_at)
            complete_bytes = tail.rfind(b"\n") + 1
            if complete_bytes == len(tail):
                return []
            note = f"{self.path.name}: a half-written last line of {len(tail) - complete_bytes} bytes was cut off"
            with open(self._cuts_path, "a", encoding="utf-8") as notes:
                notes.write(note + "\n")
            os.ftruncate(handle, tail_at + complete_bytes)
            os.fsync(handle)
            return [note]

    @contextlib.contextmanager
    def _locked(self, flags: int) -> t.Iterator[int]:
        try:
            handle = os.open(self.path, flags, 0o644)
        except OSError as error:
            raise RunError(f"{self.path}: {error.strerror}") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)
