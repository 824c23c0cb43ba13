# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a pack: files one behind another, then the manifest. checker.py has the form.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import calendar
import hashlib
import json
import os
import pathlib
import time
import types
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover import checker
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData

_AT_ONCE = 1 << 20


class Writer:
    """A pack that is being written, as a context. The file appears under its name when it is whole, and not at all if anything fails."""

    def __init__(self, path: pathlib.Path, name: str, created_at: str) -> None:
        self.path, self.name = path, name
        self.at = calendar.timegm(time.strptime(created_at, checker.TIME))
        self._part = path.with_name(f".{path.name}.{os.getpid()}")
        self._files: list[PlainData] = []

    def __enter__(self) -> Writer:
        if self.path.exists():
            raise RunError(f"{self.path}: it exists; a pack is never written over, so name another with handover_name")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._target = open(self._part, "xb")
        except OSError as error:
            raise RunError(f"{error.filename}: {error.strerror}; expected a folder that can be written") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: types.TracebackType | None) -> None:
        try:
            if kind is None:
                checker.write_end(self._target)
                self._target.flush()
                os.fsync(self._target.fileno())
                # A link is refused if the name was taken meanwhile.
                os.link(self._part, self.path)
        except OSError as failed:
            raise RunError(f"{self.path}: {failed.strerror}") from failed
        finally:
            self._target.close()
            self._part.unlink(missing_ok=True)

    def add(self, path: str, content: str | bytes) -> None:
        """Add a file with this content."""
        data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
        checker.write_file(self._target, self.name, path, data, self.at)
        self._listed(path, len(data), hashlib.sha256(data).hexdigest())

    def add_json(self, path: str, value: t.Any) -> None:
        """Add a file with data as JSON."""
        self.add(path, json.dumps(value, indent=1, sort_keys=True, default=str) + "\n")

    def add_file(self, path: str, source: pathlib.Path) -> None:
        """Add a copy of a file. Raise RunError if it cannot be read, or if somebody writes to it meanwhile."""
        try:
            with open(source, "rb") as opened:
                size = os.fstat(opened.fileno()).st_size
                self._target.write(checker.header(self.name, path, size, self.at))
                digest, left = hashlib.sha256(), size
                while left and (chunk := opened.read(min(left, _AT_ONCE))):
                    digest.update(chunk)
                    self._target.write(chunk)
                    left -= len(chunk)
                if left or opened.read(1):
                    raise RunError(f"{source}: it changed while it was read; wait until the run has ended")
        except OSError as error:
            raise RunError(f"{source}: {error.strerror}") from error
        self._target.write(bytes(-size % checker.BLOCK))
        self._listed(path, size, digest.hexdigest())

    def finish(self, fields: PlainData) -> None:
        """Write the manifest: no file can be added behind it."""
        manifest = {"schema": checker.PACK_SCHEMA, "name": self.name, **fields, "files": self._files}
        text = json.dumps(manifest, indent=1, sort_keys=True, default=str).encode(errors="backslashreplace") + b"\n"
        checker.write_file(self._target, self.name, checker.MANIFEST, text, self.at)

    def _listed(self, path: str, size: int, digest: str) -> None:
        if not checker.is_path(path):
            raise RunError(f"{path!r}: no pack has a file of this name: rename or remove it, and judge the run again if it is one of a run")
        self._files.append({"path": path, "bytes": size, "sha256": digest})
