# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answers of schedulers in a watch, as lines of JSON for people and other tools. Each part can be read without the others.

    {"form": 0, "series": ["gpu_utilization_ratio{gpu_uuid=GPU-1}", ...]}
    {"at": 12.01, "expected": 2, "answers": [["scheduler-1", 12.02, 0.013, 200, "", 0, [0.93, ...]], ...]}

An answer is [scheduler, time of the request, seconds it took, HTTP status, problem, number of its form, values of the form's series].

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import math
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import SystemSample
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.scraped import ExpositionForm

# Samples of a part. A killed run loses at most one part.
PART = 60
# Decimal places of seconds.
DIGITS = 3


class Watched:
    """Collects samples into parts and passes the text of each part to `keep`."""

    def __init__(self, keep: t.Callable[[str], None]) -> None:
        self._keep = keep
        self._looks = 0
        self._lines: list[str] = []
        self._forms: dict[ExpositionForm, int] = {}

    def add(self, sample: SystemSample) -> None:
        answers = []
        for scrape in sample.scrapes:
            form, values = None, []
            if scrape.exposition:
                form, values = self._form(scrape.exposition.form), [_short(value) for value in scrape.exposition.values]
            answers.append(
                [scrape.scheduler, round(scrape.at, DIGITS), round(scrape.took_s, DIGITS), scrape.status, scrape.problem, form, values]
            )
        self._say({"at": round(sample.at, DIGITS), "expected": sample.expected, "answers": answers})
        self._looks += 1
        if self._looks == PART:
            self.close()

    def close(self) -> None:
        """Pass on the last part."""
        if self._lines:
            self._keep("".join(self._lines))
        self._looks, self._lines, self._forms = 0, [], {}

    def _form(self, form: ExpositionForm) -> int:
        if form not in self._forms:
            self._forms[form] = len(self._forms)
            series = [f"{name}{{{','.join(f'{key}={value}' for key, value in labels.items())}}}" for name, labels in form.series]
            self._say({"form": self._forms[form], "series": series})
        return self._forms[form]

    def _say(self, of: t.Mapping[str, t.Any]) -> None:
        self._lines.append(json.dumps(of, separators=(",", ":")) + "\n")


def _short(value: float) -> float | str:
    """Return a number for JSON: infinity and NaN as text, whole numbers without a fraction."""
    if not math.isfinite(value):
        return str(value)
    return int(value) if value == int(value) and abs(value) < 1e15 else value
