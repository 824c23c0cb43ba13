# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface between the verdict engine and earlier runs. The engine knows no history itself.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement

# A reason code: it has become worse than its own past, whatever its floor says.
REGRESSION = "regression"


class Number(t.NamedTuple):
    """A number of a check that was measured; of a sweep that at a message `size`."""

    key: Key
    record: Measurement
    metric: str
    unit: str
    value: float
    better: str
    size: int | None = None


class Change(t.NamedTuple):
    """The change of a number, or with an empty `subject` of all numbers of its check: history/series.py has the words. `sentence` names
    the check, `reason` does not."""

    kind: str
    subject: str
    stage: str
    check: str
    variant: str
    metric: str
    simulated: bool
    sentence: str
    reason: str
    regression: bool

    @property
    def key(self) -> Key:
        return Key(self.stage, self.check, self.variant, self.subject)


@dataclasses.dataclass
class PastReport:
    """`compared` numbers have a past that is long enough, `short` ones have not. `left_out` says in words which were not looked at, and
    what of the past was not."""

    changes: list[Change] = dataclasses.field(default_factory=list)
    compared: int = 0
    short: int = 0
    left_out: list[str] = dataclasses.field(default_factory=list)


# By what was measured (of each key the attempt that is judged) and its numbers; None where there is nothing to compare with.
Past = t.Callable[[t.Mapping[Key, t.Any], t.Iterable[Number]], "PastReport | None"]
