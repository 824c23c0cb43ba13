# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file with the verdicts of a judgement, a line for each: `verdicts.jsonl`, or `verdicts.jsonl.gz` if there are many.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import pathlib
import typing as t
import zlib

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import write_atomically

NAME, PACKED_NAME = "verdicts.jsonl", "verdicts.jsonl.gz"
# The names that the file may have.
NAMES = (NAME, PACKED_NAME)
# Either name, for people.
WORDS = " or ".join(NAMES)
# More verdicts are compressed: 2,000 nodes have 280 MB of them.
PACKED_FROM = 20_000


def name_for(count: int) -> str:
    """Return the name of a file with so many verdicts."""
    return PACKED_NAME if count > PACKED_FROM else NAME


def path_in(folder: pathlib.Path) -> pathlib.Path:
    """Return the path of the verdicts of a judgement by its folder, whether it has any or not."""
    packed = folder / PACKED_NAME
    return packed if packed.exists() else folder / NAME


def write(folder: pathlib.Path, name: str, lines: t.Iterable[str]) -> str:
    """Write lines into a new folder, by the name of `name_for`. Return the SHA-256 of the file. Raise RunError if it cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / name, lines, packed=name == PACKED_NAME)
    with open(folder / name, "rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


@contextlib.contextmanager
def opened(folder: pathlib.Path) -> t.Iterator[t.Iterator[bytes]]:
    """Open the verdicts of a judgement; the context is their lines. Raise OSError if the file cannot be read or is damaged."""
    path = path_in(folder)
    try:
        with gzip.open(path) if path.name == PACKED_NAME else open(path, "rb") as source:
            yield iter(source)
    except (EOFError, zlib.error) as error:
        raise OSError(f"{path}: {error}") from error
