# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the layer of the inventory in which a variable was set.

Ansible merges layers away before anybody sees them; a verdict has to say whether a floor came from the group, from the
host or from the command line. All use of Ansible's inner workings for that stands here.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible.inventory.group import Group
from ansible.inventory.helpers import sort_groups
from ansible.inventory.host import Host
from ansible.vars.plugins import get_vars_from_inventory_sources, get_vars_from_path
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Variables


class Layers:
    """Variables of hosts by layer: `group` (the most general first), `host`, `run` (those of the play, and extra variables)."""

    def __init__(self, hostvars: t.Any, play: t.Any = None) -> None:
        self._inventory = hostvars._inventory
        self._manager = hostvars._variable_manager
        self._loader = hostvars._loader
        self.of_play: Variables = play.get_vars() if play else {}
        self._scope: t.Mapping[str, t.Any] = {}
        if play and (self.of_play or play.get_vars_files()):
            # Ansible would make these lists anew for each host.
            names = [host.name for host in self._inventory.get_hosts(play.hosts)]
            self._scope = {"play": play, "_hosts": names, "_hosts_all": names}
        self._groups: dict[str, Variables] = {}
        self._sizes: dict[str, int] = {}

    def of(self, host_name: str, name: str) -> list[tuple[str, t.Any]]:
        """Every value that `name` was given for a host, as (layer, raw value), weakest first."""
        host = self._inventory.get_host(host_name)
        values = []
        for group in sort_groups(host.get_groups()):
            if group.name not in self._groups:
                self._groups[group.name] = {**group.vars, **self._files(group)}
            if name in self._groups[group.name]:
                values.append(("group", self._groups[group.name][name]))
        host_values = {**host.vars, **self._files(host)}
        if name in host_values:
            values.append(("host", host_values[name]))
        values += [("run", of_run[name]) for of_run in (self.of_play, self._manager.extra_vars) if name in of_run]
        return values

    def groups(self, host_name: str) -> list[str]:
        """Return the groups of a host that say something of it: those with several hosts, and not all of the inventory."""
        if not self._sizes:
            self._sizes = {group.name: len(group.get_hosts()) for group in self._inventory.groups.values()}
        names = [group.name for group in self._inventory.get_host(host_name).get_groups()]
        return sorted(name for name in names if name != "ungrouped" and 1 < self._sizes[name] < self._sizes["all"])

    def variables(self, host_name: str) -> Variables:
        """All variables of a host, merged and not yet templated."""
        return t.cast(Variables, self._manager.get_vars(
            host=self._inventory.get_host(host_name), include_hostvars=False, **self._scope
        ))

    def matching(self, pattern: t.Any) -> list[str]:
        """Names of the hosts a pattern stands for, whatever --limit says."""
        return [h.name for h in self._inventory.get_hosts(pattern, ignore_limits=True, ignore_restrictions=True)]

    def _files(self, entity: Host | Group) -> Variables:
        beside_inventory = get_vars_from_inventory_sources(self._loader, self._inventory._sources, [entity], "task")
        beside_playbook = get_vars_from_path(self._loader, self._loader.get_basedir(), [entity], "task")
        return {**beside_inventory, **beside_playbook}
