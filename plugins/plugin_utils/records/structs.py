# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of typed records: those of msgspec, or stand-ins with which modules can be imported where it is missing.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

try:
    import msgspec
    from msgspec import UNSET, Meta, Struct, UnsetType, field
except ImportError:  # these modules can be imported all the same; measurement.require() says what is missing
    msgspec = None  # type: ignore[assignment]
    UNSET = UnsetType = None  # type: ignore[assignment,misc]

    class Struct:  # type: ignore[no-redef]
        def __init_subclass__(cls, **_options: t.Any) -> None: ...

    def Meta(**_constraints: t.Any) -> None:  # type: ignore[no-redef]
        return None

    def field(**_options: t.Any) -> t.Any:  # type: ignore[no-redef]
        return None


__all__ = ["UNSET", "Meta", "Struct", "UnsetType", "field", "msgspec"]
