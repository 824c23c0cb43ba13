# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of what quarantine has done to nodes: a JSON line for each change, in the results folder,
and for each node that was out of service when it was about to be changed.

Nothing is done to a node because the record says so: what stands at the node decides that. The record only keeps nodes from being taken for
an old run after they were given back, and knows which checks somebody has confirmed.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

NAME = "quarantine.jsonl"
SCHEMA = "quarantine/v1"
# What an entry says was done if nothing was: the node was out of service when it was looked at.
SEEN = "seen"


class Entry(t.NamedTuple):
    """A change of a node: what was done (`drain`, `resume`, `comment`, `uncomment`, or SEEN), for which run, in seconds since 1970.
    `grounds` are the findings that it was drained for, `by_run` is True if no person but a run asked for it, `undone` if it takes back a
    drain."""

    at: int
    node: str
    do: str
    run: str
    grounds: tuple[str, ...] = ()
    by_run: bool = False
    undone: bool = False


class Ledger:
    """The record in one results folder."""

    def __init__(self, results_dir: str) -> None:
        self.path = pathlib.Path(results_dir) / NAME
        self.entries = list(self._read())

    def _read(self) -> t.Iterator[Entry]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise RunError(f"{self.path}: {error}; expected the record of what quarantine has done") from error
        for number, line in enumerate(text.splitlines(), 1):
            try:
                fields = json.loads(line)
                if fields.pop("schema") != SCHEMA:
                    raise ValueError("another schema")
                entry = Entry(**{**fields, "grounds": tuple(map(str, fields["grounds"]))})
                if not isinstance(entry.at, int) or not all(isinstance(text, str) for text in (entry.node, entry.do, entry.run)):
                    raise ValueError("another type")
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise RunError(
                    f"{self.path} line {number}: found {line[:80]!r}, expected what quarantine has written. A node that was given back "
                    "might be taken again for an old run: mend the line, or move the file away to go on without it"
                ) from error
            yield entry

    def write(self, entry: Entry) -> None:
        """Append a change. It is on disk then. Raise RunError if it cannot be written."""
        line = json.dumps({"schema": SCHEMA, **entry._asdict()}, sort_keys=True) + "\n"
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(f"{self.path}: {error.strerror}; expected a file that can be written") from error
        self.entries.append(entry)

    def last(self, node: str, do: str) -> Entry | None:
        """Return the last change of a kind of a node, None if there was none."""
        return max((entry for entry in self.entries if entry.node == node and entry.do == do), key=lambda entry: entry.at, default=None)

    def drained_since(self, at: int) -> set[str]:
        """Return the nodes that were drained since a time, whatever has become of them."""
        return {entry.node for entry in self.entries if entry.do == "drain" and entry.at > at}

    def confirmed(self) -> set[str]:
        """Return the findings for which a person has had a node drained, and has not undone it."""
        undone = {(entry.node, entry.run) for entry in self.entries if entry.undone}
        drained = [entry for entry in self.entries if entry.do == "drain" and not entry.by_run and (entry.node, entry.run) not in undone]
        return {ground for entry in drained for ground in entry.grounds}
