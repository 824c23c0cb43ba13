# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kinds of accelerators that the collection knows. Code that serves every kind asks here and names none.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import amd, ascend, base, nvidia
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

KINDS: dict[str, type[base.Accelerator]] = {kind.kind: kind for kind in (nvidia.Nvidia, ascend.Ascend, amd.Amd)}
# The kind that holds where nothing says which kind a node has.
DEFAULT = next(iter(KINDS.values()))
# Options of probe modules: the tool of each kind.
OPTIONS: dict[str, dict[str, t.Any]] = {kind.option: {"type": "str", "default": kind.tool} for kind in KINDS.values()}
# Patterns of the facts about the libraries of each kind.
LIBRARY_FACTS = tuple(pattern for kind in KINDS.values() for pattern in kind.library_facts)
# {first word of a model's name: its maker}, of words that are no maker.
MAKERS: dict[str, str] = {brand: maker for kind in KINDS.values() for brand, maker in kind.brands.items()}


def make(kind: str, node: Node) -> base.Accelerator:
    """Return the accelerator of a kind on a node, with the tool that the node's settings name."""
    accelerator_class = KINDS[kind]
    return accelerator_class(node, node.tools.get(accelerator_class.option, accelerator_class.tool))


def having(name: str) -> tuple[str, ...]:
    """Return the kinds whose class has a value of this attribute: those that a probe which needs it can measure."""
    return tuple(kind for kind, of in KINDS.items() if getattr(of, name))


def carried_by(backend: str, own: type[base.Accelerator] | None = None) -> type[base.Accelerator] | None:
    """Return the kind whose collectives PyTorch runs by this backend; None if it is of no kind, as gloo is. Several kinds may have a
    backend of one name: `own`, the kind of the node, comes before the others."""
    return next((kind for kind in _first(own) if kind.collectives == backend), None)


def of_torch(device: str, own: type[base.Accelerator] | None = None) -> type[base.Accelerator] | None:
    """Return the kind whose devices have this type in PyTorch; None if it is of no kind, as cpu is. Several kinds may have a type of one
    name: `own`, the kind of the node, comes before the others."""
    return next((kind for kind in _first(own) if kind.torch == device), None)


def of_resource(resource: str) -> type[base.Accelerator]:
    """Return the kind whose device plugin offers a resource, such as `nvidia.com/gpu`, by its own name or as a part of a device
    (`DOMAIN/...`); the default kind if no kind has it."""
    domain = resource.partition("/")[0]
    candidates = [kind for kind in KINDS.values() if kind.resource.partition("/")[0] == domain]
    return next((kind for kind in candidates if kind.resource == resource), candidates[0] if candidates else DEFAULT)


def _first(own: type[base.Accelerator] | None) -> list[type[base.Accelerator]]:
    return [*([own] if own else []), *KINDS.values()]


def hidden() -> dict[str, str]:
    """Return the environment by which a container runtime gives a container no device of any kind."""
    return {name: value for kind in KINDS.values() for name, value in kind.runtime_none.items()}


def shown() -> dict[str, str]:
    """Return the environment by which a container runtime gives a container all devices."""
    return {name: value for kind in KINDS.values() for name, value in kind.runtime_all.items()}
