# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe of a request: a file of probes/, or one that a team's stage brought along.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import importlib
import linecache
import sys
import types
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

ROOMS = __name__.rsplit(".", 2)[0]
Probe = t.Callable[[t.Dict[str, t.Any], Node], t.Iterable[t.Dict[str, t.Any]]]


def of(request: dict[str, t.Any]) -> Probe:
    """Return the probe of a request: {"probe": as module_of() takes it}, or {"probe": name of a team's own, "source": its text}."""
    if "source" in request:
        return _own(request["probe"], request["source"])
    probe: Probe = importlib.import_module(module_of(request["probe"])).probe
    return probe


def module_of(name: str) -> str:
    """Return the full name of the module of a probe: `nccl_node` is a test, in probes/; `groups.head` stands in another room."""
    return f"{ROOMS}.{name}" if "." in name else f"{ROOMS}.probes.{name}"


def _own(name: str, source: str) -> Probe:
    """Return a probe from its text. The text is compiled where it runs, so that an error in it is a fault of the probe."""

    def probe(params: dict[str, t.Any], node: Node) -> t.Iterator[dict[str, t.Any]]:
        module = types.ModuleType(f"gpufleet_probe_{name}")
        # As an import leaves it: dataclasses look for their module, a traceback for its line.
        sys.modules[module.__name__] = module
        file = f"{name}.py"
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        exec(compile(source, file, "exec", 0, True), module.__dict__)
        yield from module.probe(params, node)

    return probe
