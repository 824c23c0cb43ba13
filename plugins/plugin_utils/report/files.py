# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forms of a report as files.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import hashlib
import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import integrity
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import write_atomically
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats, page

Model = t.Dict[str, t.Any]


def write(out: pathlib.Path, model: Model) -> list[pathlib.Path]:
    """All formats into `out`, each whole or not at all; returns their paths, the page for people first."""
    made = {
        "report.html": page.render,
        "report.md": formats.markdown,
        "report.json": formats.as_json,
        "report.junit.xml": formats.junit,
        "report.prom": formats.prometheus,
    }
    digests = []
    for name, make in made.items():
        text = make(model)
        write_atomically(out / name, text)
        digests.append(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n")
    write_atomically(out / integrity.LISTED, "".join(digests))
    return [out / name for name in made]
