# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Journals of runs as tests read them, and as tests change them by hand."""

from __future__ import annotations

import gzip
import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import journal, members
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.journal_files import link


def of(folder: pathlib.Path) -> list[dict[str, t.Any]]:
    """Return the measurements of a run, by its folder; none if it has no journal yet."""
    path = journal.path_in(folder)
    return list(journal.Journal(path).as_data()) if path.exists() else []


def all_in(results: pathlib.Path) -> list[dict[str, t.Any]]:
    """Return the measurements of all runs of a results folder, the oldest run first."""
    return [record for plan in sorted(results.glob("*/plan.json")) for record in of(plan.parent)]


def text(path: pathlib.Path) -> bytes:
    """Return the lines of a journal that is whole, as they were written."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def lines(path: pathlib.Path) -> list[bytes]:
    """Return the lines of a journal that is whole, each with its newline."""
    return text(path).splitlines(keepends=True)


def write(path: pathlib.Path, data: bytes) -> None:
    """Write lines in place of a journal, in its form. A last line without a newline is left half-written."""
    if path.suffix != ".gz":
        path.write_bytes(data)
        return
    packed, digest = b"", b"0" * 64
    for line in data.splitlines(keepends=True):
        digest = link(line)[0] or digest
        part = members.part(line, bytes.fromhex(digest.decode()), len(packed))
        packed += part if line.endswith(b"\n") else part[: len(part) // 2]
    path.write_bytes(packed)


def add(path: pathlib.Path, data: bytes) -> None:
    """Write lines behind those of a journal."""
    write(path, text(path) + data)
