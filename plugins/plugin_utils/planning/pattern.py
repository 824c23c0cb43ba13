# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts that a play's pattern means, where a play's own are not known yet.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager, split_host_pattern

# What Ansible reads in a pattern, at its beginning or anywhere; and what is a template wherever a name stands in one.
_SPECIAL = re.compile(r"^[!&~]|[*?\[]|{[{%#]")


def hosts(pattern: t.Any, groups: t.Mapping[str, list[str]], limit: str | None, loader: t.Any) -> list[str]:
    """Within --limit; the inventory itself is not within the reach of a lookup in a play's `hosts`."""
    inventory = InventoryManager(loader=loader, parse=False)
    for group, members in groups.items():
        inventory.add_group(group)
        for host in members:
            inventory.add_host(host, group=group)
    inventory.subset(limit)
    names = [str(host) for host in inventory.list_hosts(pattern)]
    for name in names:
        # The hosts that are not accepted are failed by their names: one that names nobody would leave the exit status at 0.
        if _SPECIAL.search(name) or split_host_pattern(name) != [name]:
            raise AnsibleError(
                f"the inventory has a host {name!r}; expected a name that Ansible does not read as a pattern or a template; if it is a "
                "line of a file that is no inventory, keep that file outside the inventory's folder"
            )
    return names
