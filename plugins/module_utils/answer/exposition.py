# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text that Prometheus reads: metrics with their samples, labels of any text.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

PREFIX = "gpufleet_acceptance_"
TYPE = "text/plain; version=0.0.4; charset=utf-8"


def label(text: str) -> str:
    """Return a text escaped for the quotes of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Exposition:
    """Lines in the order in which they are said; `common` labels stand at every sample."""

    def __init__(self, **common: str) -> None:
        self._common = self._joined(common)
        self._lines: list[str] = []

    def metric(self, name: str, text: str) -> None:
        """The samples that follow are of this metric."""
        self._lines += [f"# HELP {PREFIX}{name} {text}", f"# TYPE {PREFIX}{name} gauge"]

    def sample(self, name: str, value: t.Any, **labels: str) -> None:
        self.line(name, value, self.labels(**labels))

    def labels(self, **labels: str) -> str:
        """Return labels as they are written in a line, for samples of several metrics that share them."""
        return ",".join(filter(None, (self._common, self._joined(labels))))

    def line(self, name: str, value: t.Any, labels: str) -> None:
        self._lines.append(f"{PREFIX}{name}{{{labels}}} {value}")

    @staticmethod
    def _joined(labels: t.Mapping[str, str]) -> str:
        return ",".join([f'{key}="{label(text)}"' for key, text in labels.items()])

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def taken(self) -> str:
        """Return the text added since the last call. The text as a whole is not kept."""
        text, self._lines = self.text() if self._lines else "", []
        return text
