# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of an inventory as nodes that requests may name: those that are machines themselves. Their groups are their labels,
`group/NAME: "true"`.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import spec
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.actions import NodeInfo, Unavailable
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry as planes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.layers import Layers
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

_ALWAYS = ("all", "ungrouped")
# The variables with expectations of an inventory's own.
_OWN = ("acceptance_expectations", "acceptance_expectation_overlays", "acceptance_expectation_files", "acceptance_node_vars")


def of(inventory: str) -> t.List[NodeInfo]:
    """Every host, in the order of the inventory; one that no request can mean says why."""
    loader = DataLoader()
    try:
        manager = InventoryManager(loader=loader, sources=[inventory])
        variables = VariableManager(loader=loader, inventory=manager)
        own = _Own(loader, manager, variables)
        infos = []
        for host in manager.get_hosts():
            of_host = variables.get_vars(host=host, include_hostvars=False)
            if not _is_a_node(of_host, str(host.name)):
                continue
            gpus = of_host.get("acceptance_gpu_count")
            infos.append(
                NodeInfo(
                    name=str(host.name),
                    gpus=gpus if isinstance(gpus, int) and not isinstance(gpus, bool) else None,
                    labels={f"group/{group.name}": "true" for group in host.get_groups() if group.name not in _ALWAYS},
                    problem=_problem(str(host.name), manager.groups),
                    expectations=own.of(str(host.name), of_host),
                )
            )
    except AnsibleError as error:
        raise Unavailable(f"inventory {inventory}: {error}") from error
    return infos


def expectations_of(inventory: str) -> expectations.Expectations | None:
    """Return the expectations of the one host of an inventory, a cluster; None if it has none of its own, or none that can be read. Those
    of some of its nodes (`acceptance_node_vars`) count as those of all."""
    loader = DataLoader()
    try:
        manager = InventoryManager(loader=loader, sources=[inventory])
        variables = VariableManager(loader=loader, inventory=manager)
        (host,) = manager.get_hosts()
        return _Own(loader, manager, variables).of(str(host.name), variables.get_vars(host=host, include_hostvars=False))
    except (AnsibleError, ValueError):
        return None


class _Own:
    """The expectations that an inventory has for its hosts, as a plan resolves them."""

    def __init__(self, loader: DataLoader, manager: InventoryManager, variables: VariableManager) -> None:
        self._loader = loader
        self._layers = Layers(HostVars(inventory=manager, variable_manager=variables, loader=loader))
        self._resolver = expectations.Resolver()

    def of(self, host: str, of_host: t.Mapping[str, t.Any]) -> expectations.Expectations | None:
        """Return the expectations of a host; None if the inventory has none for it, or none that can be read: its runs say why."""
        if not any(of_host.get(name) for name in _OWN):
            return None
        template = Templar(loader=self._loader, variables=dict(of_host)).template
        try:
            _expectations, overlays, files, of_nodes = (template(of_host.get(name) or []) for name in _OWN)
            layered = [(layer, template(value)) for layer, value in self._layers.of(host, _OWN[0])]
            layered += [("host", entry["expectations"]) for entry in of_nodes if isinstance(entry, dict) and entry.get("expectations")]
            return self._resolver.resolve(layered, overlays, files)
        except (AnsibleError, expectations.ExpectationError, OSError, TypeError, ValueError):
            return None


def _is_a_node(of_host: t.Mapping[str, t.Any], name: str) -> bool:
    """Return True if a host stands for itself, and not for nodes behind it, which no host pattern can choose."""
    try:
        plane = planes.of(of_host, name)
        return not (plane.reachability_domain(name) if plane.nodes_behind is None else plane.nodes_behind)
    except RunError:  # the plan of a run says what is wrong with its plane
        return False


def _problem(name: str, groups: t.Container[str]) -> str:
    if not spec.NAME.match(name):
        return "its name means more than itself in a host pattern"
    return "a group has the same name" if name in groups else ""
