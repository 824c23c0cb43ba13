# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The register of words: each is a function of the evidence of a case, and is marked with the kinds of its arguments.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.expressions import Value

# Kinds of arguments: what an argument names.
GROUP, SAMPLE, CHANGE, PATTERN, METRIC, NUMBER, ACTION = "group", "sample", "change", "pattern", "metric", "number", "action"


@dataclasses.dataclass(frozen=True)
class Word:
    """A word: its function, and the kind of each argument. The arguments from index `optional` on may be left out. `unit`: that of its
    number, "" for a count; a word about a metric has that of the metric's name."""

    of: t.Callable[..., Value]
    kinds: tuple[str, ...]
    optional: int
    unit: str


WORDS: dict[str, Word] = {}
_F = t.TypeVar("_F", bound=t.Callable[..., t.Any])


def word(*kinds: str, optional: int = 0, unit: str = "") -> t.Callable[[_F], _F]:
    def register(of: _F) -> _F:
        WORDS[of.__name__] = Word(of, kinds, len(kinds) - optional, unit)
        return of

    return register
