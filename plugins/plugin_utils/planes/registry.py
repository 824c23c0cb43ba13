# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The registry of planes.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import importlib
import pathlib
import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.base import Plane
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

PACKAGE = __name__.rpartition(".")[0]
VARIABLE = "acceptance_plane"
# The plane of a host that sets no acceptance_plane.
DEFAULT = "ssh"
# Attributes of a team's plane under their old names, which this release still takes, with a warning: {old name: name}.
RENAMED = {
    "ways": "connection_variables", "realm": "reachability_domain", "foreign": "unsupported_variables", "detains": "why_not_detachable",
    "foresees": "preflight",
}  # fmt: skip


@functools.lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """Return the names of the planes of the collection: the folders here."""
    return tuple(sorted(path.parent.name for path in pathlib.Path(__file__).parent.glob("*/plane.py")))


@functools.lru_cache(maxsize=1)
def shipped() -> dict[str, Plane]:
    """Return the planes of the collection by name."""
    return {name: _load(name, name) for name in names()}


def unsupported_variables(plane: Plane, variables: t.Iterable[str]) -> list[str]:
    """Return the variables that have no effect on a plane, sorted: those that it names itself and, if it is a shipped one, those that only
    other shipped planes have. A plane of a team's own may use any."""
    variables = list(variables)
    prefixes = tuple(start for foreign in shipped().values() if foreign is not plane for start in foreign.variables)
    is_shipped = plane.name in shipped()
    of_others = [name for name in variables if is_shipped and name.startswith(prefixes) and not name.startswith(plane.variables)]
    return sorted({*plane.unsupported_variables(variables), *of_others})


def hidden() -> frozenset[str]:
    """Return the variables of planes whose values no file of a run may hold."""
    secret = {name for plane in _loaded() for name, spec in plane.options.items() if spec.get("no_log")}
    return frozenset({*secret, *(name for plane in _loaded() for name in plane.hidden)})


def partly_hidden() -> frozenset[str]:
    """Return the variables of planes of which a file of a run may hold all but the values of an environment."""
    return frozenset(name for plane in _loaded() for name in plane.partly_hidden)


def lending() -> frozenset[str]:
    """Return the names of the planes on which something else than the inventory decides which GPUs a test gets."""
    return frozenset(name for name, plane in shipped().items() if plane.lends_devices)


def require_manifest(manifest: t.Any, where: str) -> None:
    """Raise RunError if no shipped plane can put a stage's manifest on nodes."""
    problems = [plane.manifest_problem(manifest) for plane in shipped().values()]
    if None not in problems:
        raise RunError(f"{where}: {next(filter(None, problems), 'no plane of the collection takes manifests')}")


def chosen_by(variables: t.Mapping[str, t.Any]) -> list[str]:
    """Return the nodes that the variables of a run name, on any plane."""
    return next((nodes for plane in shipped().values() if (nodes := plane.chosen_by(variables))), [])


def of(settings: t.Mapping[str, t.Any], host: str) -> Plane:
    """Return the plane of an inventory host. Raise RunError if acceptance_plane names no plane."""
    return _load(str(settings.get(VARIABLE) or DEFAULT), host)


# The planes of a team's own that hosts have named in this process, by module.
_OWN: dict[str, Plane] = {}


def _loaded() -> list[Plane]:
    return [*shipped().values(), *_OWN.values()]


@functools.lru_cache(maxsize=64)
def _load(name: str, host: str) -> Plane:
    # A plane of a team's own is the module of its own collection that holds it.
    module = name if "." in name else f"{PACKAGE}.{name}.plane"
    if "." in name or name in names():
        try:
            plane = getattr(importlib.import_module(module), "PLANE", None)
        except ImportError as error:
            raise RunError(f"{host}: {VARIABLE} {name!r} cannot be loaded: {error}") from error
        if isinstance(plane, Plane):
            _take_old_names(plane, module)
            if "." in name:
                _OWN[module] = plane
            return plane
    raise RunError(
        f"{host}: {VARIABLE}: found {name!r}, expected one of {', '.join(names())}, or the module of a collection that holds a PLANE"
    )


def _take_old_names(plane: Plane, module: str) -> None:
    for old, new in RENAMED.items():
        if hasattr(plane, old):
            setattr(plane, new, getattr(plane, old))
            Display().warning(f"plane {module}: found the attribute {old}, expected {new}; the next release does not know {old}")
