# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The raw output of tools: one file for each node, `raw/NODE.txt.gz`, which `zcat` prints, a line about each text before it.

A measurement names its text by the file and the byte at which the text's gzip member begins, `raw/NODE.txt.gz#BYTE`; the line before the
text has the same number. Older versions wrote a file for each text, whose name the measurement has.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import re

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import members
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import AcceptanceError, RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import file_name

# The most that is stored of one text.
LIMIT = 16 << 20
FOLDER = "raw"
_REFERENCE = re.compile(r"(raw/[^/#]+\.txt\.gz)#([0-9]{1,15})\Z")
_HEAD = re.compile(rb"==== #([0-9]+) [^\n]*, ([0-9]+) bytes ====\n")
_HEAD_BYTES = 1024
_AT_ONCE = 64 << 10


class ChangedError(AcceptanceError, ValueError):
    """A text is not what was written."""


def store(run: pathlib.Path, node: str, about: str, text: bytes) -> tuple[str, str]:
    """Append a text to the file of a node, below the folder of a run. Return its reference and its SHA-256; it is on disk then.

    `about` is for people, in the line before the text. Raise RunError if the text cannot be written.
    """
    digest = hashlib.sha256(text)
    path = run / FOLDER / f"{file_name(node)}.txt.gz"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with members.locked(path) as tail:
            begin = tail.end
            head = f"==== #{begin} {about}, {len(text)} bytes ====\n".encode()
            last = b"" if text.endswith(b"\n") else b"\n"
            tail.append(members.part(head + text + last, digest.digest(), begin))
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}; what was measured now is not recorded") from error
    return f"{path.relative_to(run).as_posix()}#{begin}", digest.hexdigest()


def is_packed(reference: str) -> bool:
    """Return True if a reference names a text in the file of a node, and not a file of its own."""
    return _REFERENCE.match(reference) is not None


def file_of(reference: str) -> str:
    """Return the name of the file in which a text is, relative to the folder of its run."""
    packed = _REFERENCE.match(reference)
    return packed[1] if packed else reference


def read(run: pathlib.Path, reference: str) -> bytes:
    """Return the text that a measurement refers to, below the folder of its run.

    Raise FileNotFoundError if there is no such text, ChangedError if it is damaged, another OSError if it cannot be read.
    """
    packed = _REFERENCE.match(reference)
    if packed is None:
        if reference.startswith("/") or ".." in reference.split("/"):
            raise FileNotFoundError(reference)
        return (run / reference).read_bytes()
    begin = int(packed[2])
    with open(run / packed[1], "rb") as source:
        if begin >= os.fstat(source.fileno()).st_size:
            raise FileNotFoundError(reference)
        source.seek(begin)
        try:
            content = members.first(source, LIMIT + _HEAD_BYTES)
        except ValueError as error:
            raise ChangedError(f"{reference}: {error}") from None
    head = _HEAD.match(content, 0, _HEAD_BYTES)
    if head is None or int(head[1]) != begin or head.end() + int(head[2]) > len(content):
        raise ChangedError(f"{reference}: no text begins there")
    return content[head.end() : head.end() + int(head[2])]
