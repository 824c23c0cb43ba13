# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kinds of accelerators that the collection knows. Code that serves every kind asks here and names none.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import ascend, base, nvidia
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node

KINDS: dict[str, type[base.Accelerator]] = {kind.kind: kind for kind in (nvidia.Nvidia, ascend.Ascend)}
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


def carried_by(backend: str) -> type[base.Accelerator] | None:
    """Return the kind whose collectives PyTorch runs by this backend; None if it is of no kind, as gloo is."""
    return next((kind for kind in KINDS.values() if kind.collectives == backend), None)


def of_torch(device: str) -> type[base.Accelerator] | None:
    """Return the first kind whose devices have this type in PyTorch; None if it is of no kind, as cpu is."""
    return next((kind for kind in KINDS.values() if kind.torch == device), None)


def hidden() -> dict[str, str]:
    """Return the environment by which a container runtime gives a container no device of any kind."""
    return {name: value for kind in KINDS.values() for name, value in kind.runtime_none.items()}


def shown() -> dict[str, str]:
    """Return the environment by which a container runtime gives a container all devices."""
    return {name: value for kind in KINDS.values() for name, value in kind.runtime_all.items()}
