# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine beside its accelerators: memory modules, PCI Express, disks, management controller, the kernel's log, the clock, and the
bandwidth of memory.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import bandwidth, bmc, clock, kernel, memory, pci, rasdaemon, storage
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.look import Look
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.plain_data import Observation, Params


def _memory(tree: Tree, look: Look, params: Params) -> None:
    memory.look(tree, look)
    kernel.look(tree, look, of_memory=True)
    rasdaemon.look(tree, look, rasdaemon.MEMORY, params["ras_days"])


def _pcie(tree: Tree, look: Look, params: Params) -> None:
    pci.look(tree, look, params["pcie_corrected"])
    rasdaemon.look(tree, look, rasdaemon.PCIE, params["ras_days"])


def _kernel(tree: Tree, look: Look, params: Params) -> None:
    kernel.look(tree, look, of_memory=False)
    rasdaemon.look(tree, look, rasdaemon.PROCESSOR, params["ras_days"])


def _clock(tree: Tree, look: Look, _params: Params) -> None:
    clock.look(tree.node, look)


def _storage(tree: Tree, look: Look, _params: Params) -> None:
    storage.look(tree, look)


def _bmc(tree: Tree, look: Look, _params: Params) -> None:
    bmc.look(tree, look)


# {check that looks for defects: what looks}
LOOKS: dict[str, t.Callable[[Tree, Look, Params], None]] = {
    "memory": _memory, "pcie": _pcie, "storage": _storage, "bmc": _bmc, "kernel": _kernel, "clock": _clock,
}  # fmt: skip
CHECKS = (*LOOKS, bandwidth.CHECK)


def default_checks(params: Params) -> list[dict[str, str]]:
    """Return the checks of a call that names none."""
    return [{"check": name, "variant": ""} for name in params["tests"]]


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """Yield one observation for each of `params["checks"]`."""
    tree = Tree(node)
    place = tree.place()
    for check in params["checks"]:
        name, variant = check["check"], check["variant"]
        if name == bandwidth.CHECK:
            yield bandwidth.measure(tree, variant)
        elif name in LOOKS:
            look = Look(place)
            try:
                LOOKS[name](tree, look, params)
                observed = look.observation(name, variant=variant)
            except Exception as error:  # one bad file must not lose the other checks
                observed = observation.failed(name, "tool_failed", f"{type(error).__name__}: {error}"[:500], variant=variant)
            yield observed
        else:
            yield observation.failed(name, "usage", f"no such check; the checks are {', '.join(CHECKS)}", variant=variant)
