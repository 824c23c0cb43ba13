# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files in which a journal lies: lines with a chain of digests, packed as gzip members, or plain as older versions wrote them.

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

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import forked_worker, lines, members
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData

# The field `chain` at the end of a line.
_LINK = re.compile(rb'(?:, )?"chain": "([0-9a-f]{64})"\}\n?\Z')
_LINK_BYTES = 96
# Where it begins in whole lines of ours, so many bytes before their end.
_END = len(', "chain": ""}\n') + 64
# More than any line has: measurement.RECORD_LIMIT and what JSON makes of it.
_TAIL_BYTES = 16 << 20
_AT_ONCE = 1 << 20
# How many times as large as a packed journal its lines are, at least.
_PACKED_TIMES = 16


def link(line: bytes) -> tuple[bytes | None, bytes]:
    """Return the digest at the end of a line, and the line without it."""
    found = _LINK.match(line, max(0, len(line) - _END)) or _LINK.search(line, max(0, len(line) - _LINK_BYTES))
    return (found[1], line[: found.start()] + b"}") if found else (None, line)


def linked(digest_before: bytes, record: bytes) -> bytes:
    """Return the digest of a record after a line with the digest `digest_before`, both as they stand in the file."""
    return hashlib.sha256(digest_before + record).hexdigest().encode()


def _chained(record: bytes, digest_before: bytes) -> tuple[bytes, bytes]:
    """Return the line of a record after a line with the digest `digest_before`, and its own digest."""
    digest = linked(digest_before, record)
    return record[:-1] + (b', "chain": "' if len(record) > 2 else b'"chain": "') + digest + b'"}\n', digest


@dataclasses.dataclass
class Block:
    """Lines that are read at once. `packed` are their bytes in the file, without a last line that is cut, and `end` is the byte behind
    them. `digest` is that of the last line by its seal, if the file has seals. `damaged` says in words that lines are lost here, `torn`
    that they were not written to their end."""

    lines: list[bytes]
    packed: bytes
    end: int
    digest: bytes | None = None
    damaged: str = ""
    torn: str = ""


class JournalFile(t.Protocol):
    """A file with the lines of a journal. Each method raises OSError if the file cannot be read or written."""

    path: pathlib.Path

    def append(self, records: list[PlainData], first_digest: bytes) -> list[str]:
        """Write records to the end, on disk when this returns; `first_digest` is what the chain begins with. Return a note for what a
        writer before had left half-written, if it was cut off."""

    def repair(self) -> list[str]:
        """Cut off what a killed writer has left half-written at the end. Return a note for it."""

    def blocks(self, first: int = 0, end: int | None = None) -> t.Iterator[Block]:
        """Yield the lines from one byte to another, which each end a block or line."""

    def middle(self) -> tuple[int, bytes | None]:
        """Return where the second half of a large file begins, and the digest of the line before; None if it cannot be divided."""

    def digest_at(self, end: int) -> str:
        """Return the digest of the line that ends at this byte; empty if it has none."""


def of(path: pathlib.Path) -> JournalFile:
    """Return the file of a journal by its name."""
    return PackedFile(path) if path.suffix == ".gz" else PlainFile(path)


class PackedFile:
    """Lines in gzip members, one or more for each append. The seal of a member holds the digest of its last line."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def append(self, records: list[PlainData], first_digest: bytes) -> list[str]:
        stretches = list(lines.written(records))
        with members.locked(self.path) as tail:
            digest = tail.digest.hex().encode() if tail.digest else first_digest
            data = b""
            for stretch in stretches:
                content = []
                for record in stretch:
                    line, digest = _chained(record, digest)
                    content.append(line)
                data += members.part(b"".join(content), bytes.fromhex(digest.decode()), tail.end + len(data))
            tail.append(data)
            return self._cut(tail.cut)

    def repair(self) -> list[str]:
        with members.locked(self.path, create=False) as tail:
            return self._cut(tail.cut)

    def _cut(self, size: int) -> list[str]:
        return [f"{self.path.name}: a half-written end of {size} bytes was cut off"] if size else []

    def blocks(self, first: int = 0, end: int | None = None) -> t.Iterator[Block]:
        for part in members.parts(self.path, first, end):
            where = f"{self.path.name}: the bytes {part.begin} to {part.end - 1}"
            if part.torn:
                yield Block([], b"", part.begin, torn=f"{where} are not whole and were left out")
            elif part.content is None:
                yield Block([], part.packed, part.end, damaged=f"{where} are damaged")
            else:
                yield Block(part.content.splitlines(keepends=True), part.packed, part.end, part.digest.hex().encode())

    def middle(self) -> tuple[int, bytes | None]:
        size = self.path.stat().st_size
        seal = None if size < forked_worker.MIN_BYTES // _PACKED_TIMES else members.seal_behind(self.path, size // 2)
        return (seal.end, seal.digest.hex().encode()) if seal else (0, None)

    def digest_at(self, end: int) -> str:
        seal = members.seal_that_ends_at(self.path, end)
        return seal.digest.hex() if seal else ""


class PlainFile:
    """Lines as they are, as versions before 1.0 wrote them. A run that has such a file goes on with it."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def append(self, records: list[PlainData], first_digest: bytes) -> list[str]:
        texts = [json.dumps(record, allow_nan=False, sort_keys=True).encode() for record in records]
        with self._locked(os.O_RDWR | os.O_APPEND | os.O_CREAT) as handle:
            end = os.fstat(handle).st_size
            # A line that a full disk or a dead controller cut must not swallow the next one.
            cut = end and os.pread(handle, 1, end - 1) != b"\n"
            data = (b"\n" if cut else b"") + b"".join(self._lines(texts, self._last(handle, end, first_digest)))
            try:
                while data:
                    data = data[os.write(handle, data) :]
                os.fsync(handle)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(handle, end)
                raise
        return []

    def _lines(self, records: list[bytes], last: bytes | None) -> t.Iterator[bytes]:
        for record in records:
            if last is None:
                yield record + b"\n"
            else:
                line, last = _chained(record, last)
                yield line

    def _last(self, handle: int, end: int, first_digest: bytes) -> bytes | None:
        """Return the digest of the last whole line; None in a journal of a version that had none."""
        if not end:
            return first_digest
        digest, _record = link(os.pread(handle, _LINK_BYTES, max(0, end - _LINK_BYTES)))
        if digest:
            return digest
        # The last line is a cut one, or has no digest.
        tail_at = max(0, end - _TAIL_BYTES)
        for line in reversed(os.pread(handle, end - tail_at, tail_at).splitlines()):
            digest, _record = link(line)
            if digest or lines.LineReader().record(line) is not None:
                return digest
        return first_digest if not tail_at else None

    def repair(self) -> list[str]:
        with self._locked(os.O_RDWR) as handle:
            size = os.fstat(handle).st_size
            tail_at = max(0, size - _TAIL_BYTES)
            tail = os.pread(handle, size - tail_at, tail_at)
            complete_bytes = tail.rfind(b"\n") + 1
            if complete_bytes == len(tail):
                return []
            os.ftruncate(handle, tail_at + complete_bytes)
            os.fsync(handle)
            return [f"{self.path.name}: a half-written last line of {len(tail) - complete_bytes} bytes was cut off"]

    def blocks(self, first: int = 0, end: int | None = None) -> t.Iterator[Block]:
        at = first
        with open(self.path, "rb") as source:
            source.seek(first)
            while found := source.readlines(_AT_ONCE):
                while end is not None and found and at + sum(map(len, found)) > end:
                    found.pop()
                if not found:
                    return
                whole = found if found[-1].endswith(b"\n") else found[:-1]  # a cut one may be taken off yet
                packed = b"".join(whole)
                at += len(packed)
                yield Block(found, packed, at)

    def middle(self) -> tuple[int, bytes | None]:
        with open(self.path, "rb") as source:
            size = os.fstat(source.fileno()).st_size
            if size < forked_worker.MIN_BYTES:
                return 0, None
            source.seek(size // 2)
            source.readline()
            middle = source.tell()
            source.seek(middle - _LINK_BYTES)
            return middle, link(source.read(_LINK_BYTES))[0]

    def digest_at(self, end: int) -> str:
        with open(self.path, "rb") as source:
            source.seek(max(0, end - _LINK_BYTES))
            digest = link(source.read(min(end, _LINK_BYTES)))[0]
        return digest.decode() if digest else ""

    @contextlib.contextmanager
    def _locked(self, flags: int) -> t.Iterator[int]:
        handle = os.open(self.path, flags, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)
