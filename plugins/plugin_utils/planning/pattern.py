# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts that a play's pattern means, where a play's own are not known yet.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible.inventory.manager import InventoryManager


def hosts(pattern: t.Any, groups: t.Mapping[str, list[str]], limit: str | None, loader: t.Any) -> list[str]:
    """Within --limit; the inventory itself is not within the reach of a lookup in a play's `hosts`."""
    inventory = InventoryManager(loader=loader, parse=False)
    for group, members in groups.items():
        inventory.add_group(group)
        for host in members:
            inventory.add_host(host, group=group)
    inventory.subset(limit)
    return [str(host) for host in inventory.list_hosts(pattern)]
