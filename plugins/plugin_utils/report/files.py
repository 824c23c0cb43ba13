# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forms of a report, each a sink that writes a file.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import integrity
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import write_atomically
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Report
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats, model, page
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks import telling
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Judged, Options, Sink
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.registry import ChosenSink


class Form(Sink):
    """One form of the report: a text made of the model, at once or in parts."""

    def __init__(self, name: str, file: str, make: t.Callable[[Report], str | t.Iterable[str]]) -> None:
        self.name = name
        self.file = file
        self.make = make

    def judged(self, of: Judged, options: Options) -> None:
        write_atomically(of.folder / self.file, self.make(of.report))


class OfStages(Sink):
    """Files of stages beside the forms of the report, each in a folder with the stage's name."""

    name = "stages"

    def judged(self, of: Judged, options: Options) -> None:
        for path, text in model.files_of_stages(of.plan, of.judgement).items():
            place = of.folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(place, text)


# The page for people first.
SINKS = (
    Form("html", "report.html", page.render),
    Form("markdown", "report.md", formats.markdown),
    Form("json", "report.json", formats.json_parts),
    Form("junit", "report.junit.xml", formats.junit_parts),
    Form("prometheus", "report.prom", formats.prometheus_parts),
)


def write(of: Judged, run: pathlib.Path) -> tuple[list[pathlib.Path], list[str]]:
    """All forms, each whole or not at all: their paths, and what went wrong. RunError where there is no report.json: a run without it
    is not judged."""
    notes = telling.judged([ChosenSink(form, {}) for form in (*SINKS, OfStages())], of, run, None)
    paths = [of.folder / form.file for form in SINKS if (of.folder / form.file).exists()]
    if not any(path.name == "report.json" for path in paths):
        raise RunError(f"{of.folder}: the report could not be written: {'; '.join(notes)}")
    digests = [f"{integrity.digest(of.folder, path.name)}  {path.name}\n" for path in paths]
    write_atomically(of.folder / integrity.LISTED, "".join(digests))
    return paths, notes
