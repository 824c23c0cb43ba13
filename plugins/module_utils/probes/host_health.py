# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine beside its accelerators: memory modules, PCI Express, disks, management controller, the kernel's log, the clock, and the
bandwidth of memory.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import (
    bandwidth,
    bmc,
    changes,
    clock,
    kernel,
    memory,
    pci,
    processors,
    rasdaemon,
    storage,
)
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.check_report import CheckReport
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node


def _memory(tree: Tree, report: CheckReport, params: Params) -> None:
    memory.inspect(tree, report)
    kernel.inspect(tree, report, of_memory=True)
    rasdaemon.inspect(tree, report, rasdaemon.MEMORY, params.get("ras_days", 0.0))


def _pcie(tree: Tree, report: CheckReport, params: Params) -> None:
    pci.inspect(tree, report, params["pcie_corrected"])
    kernel.corrected_links(tree, report, params["pcie_corrected"])
    rasdaemon.inspect(tree, report, rasdaemon.PCIE, params.get("ras_days", 0.0), params["pcie_corrected"])


def _kernel(tree: Tree, report: CheckReport, params: Params) -> None:
    kernel.inspect(tree, report, of_memory=False)
    processors.inspect(tree, report)
    rasdaemon.inspect(tree, report, rasdaemon.PROCESSOR, params.get("ras_days", 0.0))


def _clock(tree: Tree, report: CheckReport, _params: Params) -> None:
    clock.inspect(tree.node, report)


def _storage(tree: Tree, report: CheckReport, params: Params) -> None:
    storage.inspect(tree, report)
    rasdaemon.inspect(tree, report, rasdaemon.DISKS, params.get("ras_days", 0.0))


def _bmc(tree: Tree, report: CheckReport, params: Params) -> None:
    bmc.inspect(tree, report, params.get("look") == AFTER)


def _pci_devices(tree: Tree) -> list[str]:
    return [f"{kind} {address}" for address, kind in changes.devices(tree).items()]


# {check: (kind of parts, what lists them)}: parts that a second look must see too. Disks are those of the machine, none of a network.
PARTS: dict[str, tuple[str, t.Callable[[Tree], t.Iterable[str]]]] = {
    "pcie": ("pci", _pci_devices), "storage": ("disks", changes.local_disks),
}  # fmt: skip
# Details of a machine that a second look does not repeat, since they are the same: most of what a record of it holds.
SAME = ("dimms", "disks", "links", "system")
FIRST, AFTER = "first", "after"
# A fault that was taken back long ago is of no use, and a log may have thousands.
MOST_ENDED = 50


# {check that looks for defects: what looks}
LOOKS: dict[str, t.Callable[[Tree, CheckReport, Params], None]] = {
    "memory": _memory, "pcie": _pcie, "storage": _storage, "bmc": _bmc, "kernel": _kernel, "clock": _clock,
}  # fmt: skip
CHECKS = (*LOOKS, bandwidth.CHECK)


def _complete(tree: Tree, report: CheckReport, check: str, which: str) -> None:
    """Add the parts of a check, and leave out what a second look need not repeat."""
    if check in PARTS:
        kind, listed = PARTS[check]
        report.details["parts"] = {kind: sorted(listed(tree))}
    if report.details.get("ended"):
        report.details["ended"] = report.details["ended"][-MOST_ENDED:]
    if which == AFTER:
        report.details = {name: value for name, value in report.details.items() if name not in SAME}


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
            report = CheckReport(place)
            try:
                LOOKS[name](tree, report, params)
                _complete(tree, report, name, params.get("look") or FIRST)
                observed = report.observation(name, variant=variant)
            except Exception as error:  # one bad file must not lose the other checks
                observed = observation.failed(name, "tool_failed", f"{type(error).__name__}: {error}"[:500], variant=variant)
            yield observed
        else:
            yield observation.failed(name, "usage", f"no such check; the checks are {', '.join(CHECKS)}", variant=variant)
