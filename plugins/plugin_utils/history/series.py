# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Input and output of the search for changes: plain data, no store and no measurement.

Pure. This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import enum
import typing as t

# {run: {place: {fact: value}}}: a place is a node, or a subject that has facts of its own.
Facts = t.Mapping[str, t.Mapping[str, t.Mapping[str, t.Any]]]
Key = tuple[str, str]  # subject, check


@dataclasses.dataclass(frozen=True)
class Point:
    """One judged number of one run. `time` is in ISO 8601, UTC, and orders the runs."""

    run: str
    time: str
    value: float | None


@dataclasses.dataclass(frozen=True)
class Today:
    """Today's number of a subject, which is compared with earlier ones.

    `check` is everything that must be equal for two numbers to be comparable (stage, check, variant, metric); `model` is equal for
    identical subjects. `places` are the subject and the places that contain it, the nearest first: (("gpu", id), ("node", id)); for a path
    its two ports and nodes.
    """

    subject: str
    check: str
    point: Point
    places: tuple[tuple[str, str], ...] = ()
    model: str = ""
    better: str = "higher"
    unit: str = ""
    label: str = ""

    @property
    def key(self) -> Key:
        return self.subject, self.check

    @property
    def node(self) -> str:
        return next((name for kind, name in self.places if kind == "node"), "")


class ChangeKind(enum.StrEnum):
    NOTHING = "nothing"
    HICCUP = "hiccup"
    DROP = "drop"
    STEP = "step"
    DRIFT = "drift"
    SCATTER = "scatter"
    FLAPPING = "flapping"
    IMPROVEMENT = "improvement"
    SHORT = "short_history"
    UNUSABLE = "unusable"


ALARMS = frozenset((ChangeKind.STEP, ChangeKind.DRIFT, ChangeKind.SCATTER, ChangeKind.FLAPPING, ChangeKind.DROP))
EVERYBODY = "everybody"


@dataclasses.dataclass(frozen=True)
class Attribution:
    """The place or fact that explains a change. `kind` is "gpu", "node", "port" ... as in `places`, "everybody", or "" without a change.
    `fact`, `value` and `run` are the fact that changed, its new value and the run of that change."""

    kind: str = ""
    name: str = ""
    fact: str = ""
    value: str = ""
    run: str = ""


@dataclasses.dataclass(frozen=True)
class SeriesChange:
    """The change of one subject in one check; of all `members` if `subject` is empty.

    `reference` is its own median of `runs` runs since `reference_since`; `level` its median since run `onset`; `change` is level against
    reference in percent, negative where it became worse, whatever is better. `ignored` values were no numbers above zero.
    """

    subject: str
    check: str
    kind: ChangeKind
    attribution: Attribution
    sentence: str
    change: float | None = None
    value: float | None = None
    reference: float | None = None
    runs: int = 0
    reference_since: str = ""
    level: float | None = None
    onset: str = ""
    onset_time: str = ""
    ignored: int = 0
    members: tuple[str, ...] = ()

    @property
    def alarm(self) -> bool:
        return self.kind in ALARMS
