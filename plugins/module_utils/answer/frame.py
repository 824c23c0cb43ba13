# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A result in the log of a pod: framed, so that what is cut, mixed or foreign cannot be taken for it.

    gpufleet-frame/1 NONCE open BYTES SHA256 LINES
    gpufleet-frame/1 NONCE 0 BASE64
    gpufleet-frame/1 NONCE 1 BASE64
    gpufleet-frame/1 NONCE close

BASE64 is a piece of the zlib-compressed JSON text; BYTES and SHA256 are of that text. The nonce is made of a secret that
was given at launch and the pod's uid: a frame of another pod, or of an earlier run, does not carry it.

A frame that is small enough is the container's termination message too, which comes with the pod's status: then nobody has to read
the log.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import typing as t
import zlib

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError

TAG = b"gpufleet-frame/1 "
# A write of this size to a pipe is atomic (POSIX PIPE_BUF on Linux), so that no other process gets into a line. Log files
# of container runtimes hold lines of up to 16 KiB in one piece.
LINE_LIMIT = 4096
RESULT_LIMIT = 8 << 20
# What the kubelet takes of a termination message; of a longer one it keeps the end.
MESSAGE_LIMIT = 4096


def nonce_of(secret: str, uid: str) -> str:
    """The nonce of one pod: 32 hexadecimal digits."""
    return hmac.new(secret.encode(), uid.encode(), hashlib.sha256).hexdigest()[:32]


def lines(record: dict[str, t.Any], nonce: str, limit: int = LINE_LIMIT) -> list[bytes]:
    """Return `record` as the lines of a frame, each with its newline and at most `limit` bytes. Raise ValueError if it is larger than
    RESULT_LIMIT."""
    text = json.dumps(record, allow_nan=False, default=str).encode()
    if len(text) > RESULT_LIMIT:
        raise ValueError(f"the result has {len(text)} bytes, more than {RESULT_LIMIT}")
    packed = zlib.compress(text, 6)
    room = (limit - 100) // 4 * 3
    pieces = [packed[at : at + room] for at in range(0, len(packed), room)]
    head = TAG + nonce.encode() + b" "
    digest = hashlib.sha256(text).hexdigest()
    framed = [head + f"open {len(text)} {digest} {len(pieces)}".encode()]
    framed += [head + str(number).encode() + b" " + base64.b64encode(piece) for number, piece in enumerate(pieces)]
    return [line + b"\n" for line in [*framed, head + b"close"]]


def write(record: dict[str, t.Any], nonce: str, handle: int, limit: int = LINE_LIMIT) -> None:
    """Write a frame, in lines of at most `limit` bytes, to a file descriptor. A newline comes first, as another process may have written
    half a line."""
    for line in [b"\n", *lines(record, nonce, limit)]:
        while line:
            line = line[os.write(handle, line) :]


def leave(record: dict[str, t.Any], nonce: str, path: str) -> bool:
    """Write the frame as a termination message, into the file that the kubelet reads when the container has ended. Return False if it is
    too long, or if the file is missing."""
    message = b"".join(lines(record, nonce))
    if len(message) > MESSAGE_LIMIT:
        return False
    try:
        handle = os.open(path, os.O_WRONLY | os.O_TRUNC)
    except OSError:
        return False
    try:
        return os.write(handle, message) == len(message)
    except OSError:
        return False
    finally:
        os.close(handle)


def left(message: str, nonce: str) -> dict[str, t.Any] | None:
    """Return the record in a termination message; None unless it is this frame and nothing else: the log has it in full."""
    reader = Reader(nonce)
    message_lines = message.encode("utf-8", "replace").splitlines()
    for line in message_lines:
        reader.feed(line)
    if reader.foreign or not all(line.startswith(TAG) for line in message_lines):
        return None
    try:
        return reader.result()
    except ReasonedError:
        return None


class Reader:
    """Finds the frame of one nonce in a log that is fed line by line. Keeps no more than that frame."""

    def __init__(self, nonce: str) -> None:
        self._nonce = nonce.encode()
        self._header: tuple[int, str, int] | None = None
        self._pieces: list[bytes] = []
        self._kept = 0
        self._closed = False
        self._wrong = ""
        self._result: dict[str, t.Any] | None = None
        self.foreign = 0

    def feed(self, line: bytes) -> None:
        """One line of the log, with or without its newline."""
        at = line.find(TAG)
        if at < 0:
            return
        words = line[at + len(TAG) :].split()
        if len(words) < 2:
            self._wrong = self._wrong or "a line of the frame is cut"
        elif words[0] != self._nonce:
            self.foreign += words[1] == b"open"
        elif words[1] == b"open":
            self._open(words)
        elif words[1] == b"close":
            self._close()
        else:
            self._add(words)

    def _open(self, words: list[bytes]) -> None:
        if self._header:
            self._wrong = self._wrong or "it holds more than one frame"
            return
        try:
            size, count = int(words[2]), int(words[4])
            self._header = (size, words[3].decode(), count)
        except (IndexError, ValueError):
            self._wrong = self._wrong or "the frame's first line is not of its form"
            return
        if size > RESULT_LIMIT:
            self._wrong = f"the frame claims {size} bytes, more than {RESULT_LIMIT}"

    def _add(self, words: list[bytes]) -> None:
        if self._wrong:
            return
        if self._header is None or self._closed or words[1] != str(len(self._pieces)).encode() or len(words) != 3:
            self._wrong = f"line {len(self._pieces)} of the frame is missing or mixed with other output"
            return
        try:
            piece = base64.b64decode(words[2], validate=True)
        except (binascii.Error, ValueError):
            self._wrong = f"line {len(self._pieces)} of the frame is cut or mixed with other output"
            return
        self._kept += len(piece)
        if self._kept > RESULT_LIMIT + (1 << 16):
            self._wrong = f"the frame holds more than {RESULT_LIMIT} bytes"
            self._pieces = []
            return
        self._pieces.append(piece)

    def _close(self) -> None:
        self._closed = True
        if self._wrong or self._header is None:
            self._wrong = self._wrong or "the frame's first line is missing"
            return
        size, digest, count = self._header
        if count != len(self._pieces):
            self._wrong = f"{len(self._pieces)} of the frame's {count} lines are there"
            return
        try:
            text = zlib.decompressobj().decompress(b"".join(self._pieces), RESULT_LIMIT + 1)
        except zlib.error:
            text = b""
        self._pieces = []
        if len(text) != size or hashlib.sha256(text).hexdigest() != digest:
            self._wrong = "the frame's checksum does not fit its content"
            return
        try:
            record = json.loads(text)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            self._wrong = "the frame holds no JSON object"
            return
        self._result = record

    @property
    def is_whole(self) -> bool:
        """True if the log, as far as it was fed, holds the frame whole, and once."""
        return self._result is not None and not self._wrong

    def result(self) -> dict[str, t.Any]:
        """Return the record. Raise ReasonedError unless the log holds it whole, and once."""
        if self._wrong:
            raise ReasonedError("incomplete_output", f"the log is damaged: {self._wrong}")
        if self._result is not None:
            return self._result
        if self._header:
            progress = f"{len(self._pieces)} of the frame's {self._header[2]} lines"
            raise ReasonedError("incomplete_output", f"the log is cut: it ends after {progress}")
        if self.foreign:
            raise ReasonedError("forged_frame", "the log holds a result that is not this pod's: its nonce is another")
        raise ReasonedError("no_result", "the log holds no result")
