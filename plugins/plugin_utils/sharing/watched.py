# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answers of schedulers in a watch, as lines of JSON for people and other tools, in parts that can be read without the others.

    {"form": 0, "series": ["gpu_utilization_ratio{gpu_uuid=GPU-1}", ...]}
    {"at": 12.01, "expected": 2, "answers": [["scheduler-1", 12.02, 0.013, 200, "", 0, [0.93, ...]], ...]}

An answer is who gave it, when it was asked, how long that took, its status, what was wrong, its form, and the values of that form's series.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import math
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import SystemSample
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.scraped import ExpositionForm

# Looks of a part: what a kill can cost.
PART = 60
# Seconds are said to the millisecond.
DIGITS = 3


class Watched:
    """Looks become parts; `keep` takes the text of each."""

    def __init__(self, keep: t.Callable[[str], None]) -> None:
        self._keep = keep
        self._looks = 0
        self._lines: list[str] = []
        self._forms: dict[ExpositionForm, int] = {}

    def add(self, sample: SystemSample) -> None:
        answers = []
        for one in sample.scrapes:
            form, values = None, []
            if one.exposition:
                form, values = self._form(one.exposition.form), [_short(value) for value in one.exposition.values]
            answers.append([one.scheduler, round(one.at, DIGITS), round(one.took_s, DIGITS), one.status, one.problem, form, values])
        self._say({"at": round(sample.at, DIGITS), "expected": sample.expected, "answers": answers})
        self._looks += 1
        if self._looks == PART:
            self.close()

    def close(self) -> None:
        """Hand over what is not yet."""
        if self._lines:
            self._keep("".join(self._lines))
        self._looks, self._lines, self._forms = 0, [], {}

    def _form(self, form: ExpositionForm) -> int:
        if form not in self._forms:
            self._forms[form] = len(self._forms)
            named = [f"{name}{{{','.join(f'{key}={value}' for key, value in labels.items())}}}" for name, labels in form.series]
            self._say({"form": self._forms[form], "series": named})
        return self._forms[form]

    def _say(self, of: t.Mapping[str, t.Any]) -> None:
        self._lines.append(json.dumps(of, separators=(",", ":")) + "\n")


def _short(value: float) -> float | str:
    """JSON has neither infinity nor what is no number."""
    if not math.isfinite(value):
        return str(value)
    return int(value) if value == int(value) and abs(value) < 1e15 else value
