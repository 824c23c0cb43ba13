# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser of a scheduler's /metrics: text in, series out.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import array
import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None  # type: ignore[assignment]  # parse() says so

SIMULATED = observation.SIMULATED_MARK


class ExpositionSeries(t.NamedTuple):
    """One line of an exposition. Its name has no system prefix."""

    name: str
    labels: dict[str, str]
    value: float


class ExpositionForm:
    """The series of an answer without their values. Most answers of a scheduler share one form."""

    __slots__ = ("_hash", "_places", "series")

    def __init__(self, series: t.Iterable[tuple[str, dict[str, str]]] = ()) -> None:
        self.series = tuple(series)
        self._hash: int | None = None
        self._places: dict[str, list[int]] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExpositionForm) and self.series == other.series

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple((name, *sorted(labels.items())) for name, labels in self.series))
        return self._hash

    def __reduce__(self) -> tuple[t.Any, ...]:
        return ExpositionForm, (self.series,)

    def places(self, name: str) -> t.Sequence[int]:
        """Return the indexes of a metric's series among the values."""
        if self._places is None:
            self._places = {}
            for place, (metric_name, _labels) in enumerate(self.series):
                self._places.setdefault(metric_name, []).append(place)
        return self._places.get(name, ())


@dataclasses.dataclass
class SystemExposition:
    """The series of one system in one answer, stored compactly. `wrong` says why the text is no exposition; it then has no series."""

    form: ExpositionForm
    values: array.array[float]
    simulated: bool
    wrong: str = ""

    @property
    def series(self) -> list[ExpositionSeries]:
        return [ExpositionSeries(name, labels, value) for (name, labels), value in zip(self.form.series, self.values, strict=True)]

    def of(self, name: str) -> list[ExpositionSeries]:
        return [ExpositionSeries(name, self.form.series[place][1], self.values[place]) for place in self.form.places(name)]


def _nothing(simulated: bool, wrong: str) -> SystemExposition:
    return SystemExposition(ExpositionForm(), array.array("d"), simulated, wrong)


def parse(text: str, prefix: str, only: t.Collection[str] | None = None) -> SystemExposition:
    """Return the series whose names begin with `prefix`, without the prefix. `only`: keep these names alone. Never raises: `wrong` says why
    a text could not be read."""
    simulated = SIMULATED in text
    if text_string_to_metric_families is None:
        return _nothing(simulated, "the controller lacks the Python package prometheus_client")
    series: list[tuple[str, dict[str, str]]] = []
    values = array.array("d")
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name
                if name.startswith(prefix) and (only is None or name[len(prefix) :] in only):
                    series.append((name[len(prefix) :], dict(sample.labels)))
                    values.append(float(sample.value))
    except (ValueError, KeyError, IndexError) as error:
        return _nothing(simulated, f"{type(error).__name__}: {error}"[:200])
    return SystemExposition(ExpositionForm(series), values, simulated)
