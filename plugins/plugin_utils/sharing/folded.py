# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A list for the samples of a day, compressed in memory. Items are read back unchanged.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import pickle
import typing as t
import zlib

T = t.TypeVar("T")
# The weight (count of numbers) of items that may stay uncompressed.
LOOSE = 20000


class Folded(t.Generic[T]):
    """A list that grows at its end and is read from its beginning or at its end. An object that several items share is packed once."""

    def __init__(self) -> None:
        self._packed: list[tuple[int, bytes]] = []
        self._loose: list[T] = []
        self._weight = 0

    def append(self, item: T, weight: int = 1) -> bool:
        """Add an item with its weight (count of numbers). Return True if all items are packed now."""
        self._loose.append(item)
        self._weight += weight
        if self._weight >= LOOSE:
            self.fold()
        return not self._loose

    def fold(self) -> None:
        """Pack the items that are not packed yet."""
        if self._loose:
            self._packed.append((len(self._loose), zlib.compress(pickle.dumps(self._loose, pickle.HIGHEST_PROTOCOL), 1)))
            self._loose, self._weight = [], 0

    def __len__(self) -> int:
        return sum(count for count, _part in self._packed) + len(self._loose)

    def __iter__(self) -> t.Iterator[T]:
        for _count, part in self._packed:
            yield from self._unpacked(part)
        yield from self._loose

    @property
    def last(self) -> T:
        return self._loose[-1] if self._loose else self._unpacked(self._packed[-1][1])[-1]

    @staticmethod
    def _unpacked(part: bytes) -> list[T]:
        items: list[T] = pickle.loads(zlib.decompress(part))
        return items
