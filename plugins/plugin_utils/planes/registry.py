# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the planes are found.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import importlib
import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.base import Plane
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RunError

PACKAGE = __name__.rpartition(".")[0]
VARIABLE = "acceptance_plane"


@functools.lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """The planes of the collection: the folders here."""
    return tuple(sorted(path.parent.name for path in pathlib.Path(__file__).parent.glob("*/plane.py")))


def of(settings: t.Mapping[str, t.Any], host: str) -> Plane:
    """The plane of an inventory host. RunError where it names none: nothing is measured in a way that nobody asked for."""
    return _named(str(settings.get(VARIABLE) or "ssh"), host)


@functools.lru_cache(maxsize=64)
def _named(name: str, host: str) -> Plane:
    # A plane of a team's own is the module of its own collection that holds it.
    module = name if "." in name else f"{PACKAGE}.{name}.plane"
    if "." in name or name in names():
        try:
            plane = getattr(importlib.import_module(module), "PLANE", None)
        except ImportError as error:
            raise RunError(f"{host}: {VARIABLE} {name!r} cannot be loaded: {error}") from error
        if isinstance(plane, Plane):
            return plane
    raise RunError(
        f"{host}: {VARIABLE}: found {name!r}, expected one of {', '.join(names())}, or the module of a collection that holds a PLANE"
    )
