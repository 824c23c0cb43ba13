# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of gzip members that are only appended to: the journal of a run, and the raw output of a node.

A part of such a file is one gzip member with its content, and behind it a seal: a gzip member without content, of a fixed length,
whose header (the extra field of RFC 1952) holds the byte at which the part begins and a digest that its writer chose. `zcat` prints the
contents of all parts. Seals tell where the last whole part ends without reading the file, and where the next part begins behind a
damaged one.

A writer that was killed, or that met a full disk, leaves a part without its seal at the end. That part counts as never written: readers
leave it out, and the next writer cuts it off.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import itertools
import os
import pathlib
import re
import struct
import typing as t
import zlib

# The header of a seal up to what it holds: deflate, FEXTRA, no time, unknown system, the extra field and its subfield `GA`.
_HELD = struct.Struct("<Q32sI")
_MAGIC = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff" + struct.pack("<H2sH", 4 + _HELD.size, b"GA", _HELD.size)
_NOTHING = b"\x03\0" + bytes(8)  # an empty deflate stream, its CRC and its length
SEAL_BYTES = len(_MAGIC) + _HELD.size + len(_NOTHING)
# The most that a part may hold when it is unpacked. More is no part of ours.
LIMIT = 64 << 20
_LEVELS = (6, 9, 1)
_AT_ONCE = 1 << 20


class Seal(t.NamedTuple):
    """The end of a part: the byte at which the part begins, its digest, and the byte behind the seal."""

    begin: int
    digest: bytes
    end: int


class Part(t.NamedTuple):
    """A stretch of a file. `content` is None if it is damaged, or if it is not sealed at the end of the file (`torn`). `packed` are its
    bytes as they stand in the file."""

    begin: int
    end: int
    content: bytes | None
    digest: bytes
    packed: bytes
    torn: bool = False


def part(content: bytes, digest: bytes, begin: int) -> bytes:
    """Return the bytes of a part that begins at the byte `begin` of its file."""
    held = _HELD.pack(begin, digest, 0)[:-4]
    return _member(content) + _MAGIC + held + struct.pack("<I", zlib.crc32(held)) + _NOTHING


def _member(content: bytes) -> bytes:
    """Return a gzip member in which no seal can be found, whatever a node puts into its output: what cannot be made smaller stands in it as
    it is, so blocks are ended within each beginning of a seal in the content."""
    cuts = [found.start() + len(_MAGIC) // 2 for found in re.finditer(re.escape(_MAGIC), content)]
    for level in _LEVELS:
        packer = zlib.compressobj(level, wbits=31)
        packed = b""
        for begin, end in itertools.pairwise([0, *cuts]):
            packed += packer.compress(content[begin:end]) + packer.flush(zlib.Z_FULL_FLUSH)
        packed += packer.compress(content[cuts[-1] if cuts else 0 :]) + packer.flush()
        if _MAGIC not in packed:
            return packed
    raise ValueError("a seal stands in the content at every level of compression")


def first(source: t.IO[bytes], limit: int = LIMIT) -> bytes:
    """Return the content of the gzip member that begins where a file stands. Raise ValueError if it is damaged, cut, or larger than
    `limit`."""
    reader, contents, size = zlib.decompressobj(31), [], 0
    while not reader.eof:
        data = reader.unconsumed_tail or source.read(_AT_ONCE >> 4)
        if not data:
            raise ValueError("its end is missing")
        try:
            contents.append(reader.decompress(data, limit + 1 - size))
        except zlib.error as error:
            raise ValueError(f"it cannot be unpacked: {error}") from None
        size += len(contents[-1])
        if size > limit:
            raise ValueError(f"it has more than {limit} bytes")
    return b"".join(contents)


def _seal_at(data: bytes, at: int, of_file: int) -> Seal | None:
    """Return the seal at an index of `data`, which stands at the byte `of_file` of its file; None if there is none."""
    end = at + SEAL_BYTES
    if at < 0 or not data.startswith(_MAGIC, at) or data[end - len(_NOTHING) : end] != _NOTHING:
        return None
    begin, digest, check = _HELD.unpack_from(data, at + len(_MAGIC))
    held = data[at + len(_MAGIC) : end - len(_NOTHING) - 4]
    return Seal(begin, digest, of_file + end) if check == zlib.crc32(held) and begin < of_file + at else None


def _next_seal(data: bytes, start: int, of_file: int) -> Seal | None:
    at = data.find(_MAGIC, start)
    while at >= 0:
        seal = _seal_at(data, at, of_file)
        if seal:
            return seal
        at = data.find(_MAGIC, at + 1)
    return None


def seal_that_ends_at(path: pathlib.Path, end: int) -> Seal | None:
    """Return the seal that ends at a byte of a file, None if there is none. Raise OSError if the file cannot be read."""
    if end < SEAL_BYTES:
        return None
    with open(path, "rb") as source:
        source.seek(end - SEAL_BYTES)
        return _seal_at(source.read(SEAL_BYTES), 0, end - SEAL_BYTES)


def seal_behind(path: pathlib.Path, start: int) -> Seal | None:
    """Return the first seal that begins at a byte of a file or later, None if there is none. Raise OSError if the file cannot be read."""
    with open(path, "rb") as source:
        source.seek(start)
        data = b""
        while more := source.read(_AT_ONCE):
            searched = max(0, len(data) - SEAL_BYTES)
            data += more
            seal = _next_seal(data, searched, start)
            if seal:
                return seal
    return None


def parts(path: pathlib.Path, first: int = 0, end: int | None = None) -> t.Iterator[Part]:
    """Yield the parts of a file from the beginning of one to the end of another, and damaged stretches in place of those that are not
    whole. Raise OSError if the file cannot be read."""
    at, data, of_data = first, b"", first  # `data` are the bytes of the file from `of_data` on
    searched = 0
    with open(path, "rb") as source:
        source.seek(first)
        while True:
            seal = _next_seal(data, searched, of_data)
            if seal is None:
                data, of_data = data[at - of_data :], at
                searched = max(0, len(data) - SEAL_BYTES)
                left = _AT_ONCE if end is None else min(_AT_ONCE, end - at - len(data))
                more = source.read(left) if left > 0 else b""
                if more:
                    data += more
                    continue
                if data:
                    yield Part(at, at + len(data), None, b"", data, torn=True)
                return
            whole_begin = seal.begin if at <= seal.begin else seal.end
            if whole_begin > at:  # the seal before this part is damaged, or the bytes were not written here
                yield Part(at, whole_begin, None, b"", data[at - of_data : whole_begin - of_data])
            if whole_begin < seal.end:
                packed = data[whole_begin - of_data : seal.end - of_data]
                yield Part(whole_begin, seal.end, _content(packed), seal.digest, packed)
            at = seal.end
            searched = at - of_data


def _content(packed: bytes) -> bytes | None:
    """Return the content of a sealed part, None if it is damaged."""
    try:
        reader = zlib.decompressobj(31)
        content = reader.decompress(packed, LIMIT)
        return content if reader.eof and len(reader.unused_data) == SEAL_BYTES else None
    except zlib.error:
        return None


@dataclasses.dataclass
class Tail:
    """The end of a file that is locked for writing. `end` is the byte behind its last whole part, `digest` that of this part (None if there
    is none), `cut` how many bytes of a torn part were cut off."""

    path: pathlib.Path
    end: int
    digest: bytes | None
    cut: int
    _handle: int

    def append(self, data: bytes) -> None:
        """Write parts to the end, on disk when this returns. Raise OSError if they cannot be written; the file is as before then."""
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._handle, data[written:], self.end + written)
            os.fsync(self._handle)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, self.end)
            raise
        self.end += len(data)


@contextlib.contextmanager
def locked(path: pathlib.Path, create: bool = True) -> t.Iterator[Tail]:
    """Lock a file for writing and cut off a torn part at its end. Raise OSError if it cannot be opened."""
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        size = os.fstat(handle).st_size
        seal = _last_seal(handle, size)
        end = seal.end if seal else 0
        if end < size:
            os.ftruncate(handle, end)
            os.fsync(handle)
        yield Tail(path, end, seal.digest if seal else None, size - end, handle)
    finally:
        os.close(handle)


def _last_seal(handle: int, size: int) -> Seal | None:
    """Return the last seal of a file, None if it has none."""
    begin, length = size, SEAL_BYTES
    while begin > 0:
        begin = max(0, begin - length)
        data = os.pread(handle, length + SEAL_BYTES, begin)
        at = data.rfind(_MAGIC)
        while at >= 0:
            seal = _seal_at(data, at, begin)
            if seal:
                return seal
            at = data.rfind(_MAGIC, 0, at + len(_MAGIC) - 1)
        length = _AT_ONCE
    return None
