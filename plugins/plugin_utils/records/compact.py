# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dictionaries of one form, of which a run of thousands of nodes has hundreds of thousands: they share their keys, as Python's objects of
one class do, and take a third of the room and of the time.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t


def form(name: str, keys: t.Iterable[str]) -> t.Callable[..., dict[str, t.Any]]:
    """What makes a dictionary of the values of these keys, given in their order or by their names."""
    made = dataclasses.make_dataclass(name, list(keys), eq=False, repr=False)
    return lambda *values, **named: vars(made(*values, **named))
