# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates: forms of requests that were saved under a name, for everybody who uses the console.

Each is a file of its own in the results folder, so that several consoles over one volume share them without a lock.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.actions import NAME, Unavailable
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import forms
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import files
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

FOLDER = pathlib.PurePath(".console", "templates")
# The most templates, and bytes of one: a list of 5,000 nodes fits.
MOST, MOST_BYTES = 200, 1024 * 1024
# What is saved of a form: all but the name of one run, a search, and ticks, which become the list of nodes.
SAVED = frozenset({*forms.FIELDS, "stage"} - {"name", "q"})


@dataclasses.dataclass(frozen=True)
class SavedForm:
    name: str
    fields: list[tuple[str, str]]
    who: str


class SavedForms:
    """The templates of a results folder."""

    def __init__(self, results: pathlib.Path) -> None:
        self._folder = results / FOLDER

    def all(self) -> list[SavedForm]:
        """Return the templates by name. Files that are none, or cannot be read, are left out."""
        try:
            paths = sorted(self._folder.glob("*.json"))[:MOST]
        except OSError:
            return []
        return [saved for path in paths if NAME.match(path.stem) and (saved := _read(path)) is not None]

    def one(self, name: str) -> SavedForm | None:
        """Return the template of a name; None if there is none."""
        return _read(self._folder / f"{name}.json") if NAME.match(name) else None

    def save(self, name: str, fields: forms.Fields, who: str) -> None:
        """Save a form, in place of one of the same name. Raise Unavailable if the results folder cannot be written."""
        kept = [field for field in fields if field[0] in SAVED - {"nodes"} and field[1]]
        nodes = forms.nodes_of(fields)
        content = {"fields": [*kept, *([("nodes", "\n".join(nodes))] if nodes else [])], "who": who}
        path = self._folder / f"{name}.json"
        if not path.exists() and len(self.all()) >= MOST:
            raise Unavailable(f"there are {MOST} templates; remove one first")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            files.write_atomically(path, json.dumps(content))
        except (OSError, RunError) as error:
            raise Unavailable(f"the template cannot be saved: {error}") from error

    def remove(self, name: str) -> None:
        """Remove a template, which may be gone already."""
        try:
            (self._folder / f"{name}.json").unlink(missing_ok=True)
        except OSError as error:
            raise Unavailable(f"the template cannot be removed: {error}") from error


def _read(path: pathlib.Path) -> SavedForm | None:
    try:
        with open(path, "rb") as source:
            content = json.loads(source.read(MOST_BYTES))
        fields = [(str(name), str(value)) for name, value in content["fields"]]
        return SavedForm(path.stem, [field for field in fields if field[0] in SAVED], str(content["who"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
