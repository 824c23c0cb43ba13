# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a run: their names, and writing them whole.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import itertools
import os
import pathlib
import tempfile
import typing as t
import urllib.parse

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

# Characters of a subject id in the name of a file.
LONGEST_NAME = 130


def file_name(subject: str) -> str:
    """Return a subject id as the name of one file in one folder, whatever characters the id has. A long name ends with its digest: file
    systems take 255 bytes, and callers put a prefix and a suffix around it."""
    name = urllib.parse.quote(subject, safe="")
    if len(name) > LONGEST_NAME:
        return f"{name[:LONGEST_NAME]}~{hashlib.sha256(subject.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    return name if name.strip(".") else name.replace(".", "%2E")


def names(path: pathlib.Path) -> t.Iterator[pathlib.Path]:
    """Yield a path, then the names to try if that file exists. Nothing of a run is overwritten: a line of the journal may name it."""
    yield path
    for count in itertools.count(2):
        yield path.with_name(f"{path.stem}~{count}{path.suffix}")


def new_file(path: pathlib.Path) -> t.IO[bytes]:
    """Open a new file to write, by the first of its names that is free."""
    for place in names(path):
        with contextlib.suppress(FileExistsError):
            return open(place, "xb")
    raise AssertionError("names never end")


def write_atomically(path: pathlib.Path, text: str | t.Iterable[str], mode: int = 0o644, packed: bool = False) -> None:
    """Write a whole file or nothing, by gzip if it is to be `packed`. A large text may come in parts. Raises RunError if the file cannot be
    written."""
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        parts = [text] if isinstance(text, str) else text
        with os.fdopen(handle, "w", encoding="utf-8") as target:
            if packed:
                with gzip.GzipFile("", "wb", fileobj=target.buffer, mtime=0) as member, io.TextIOWrapper(member, "utf-8") as whole:
                    whole.writelines(parts)
            else:
                target.writelines(parts)
            target.flush()
            os.fsync(target.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise RunError(f"{path}: {error.strerror}") from error
        raise
