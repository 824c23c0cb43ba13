# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files, folders and scripts that an inventory is read from.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import typing as t

from ansible import constants
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager


def refuse_unread(sources: t.Sequence[str], loader: t.Any) -> None:
    """Raise AnsibleError if Ansible could not read one of the sources of the inventory, or one file of a source that is a folder.

    Ansible leaves the hosts of such a source out with a warning, unless `any_unparsed_is_failed` is set as in the `ansible.cfg` of a
    checkout: the rest would be accepted as the whole fleet. Which sources it has read is out of a lookup's reach, so they are read once
    more. A single file need not be: if it cannot be read, there is no host.
    """
    if constants.INVENTORY_ANY_UNPARSED_IS_FAILED or (len(sources) < 2 and not any(map(os.path.isdir, sources))):
        return
    constants.INVENTORY_ANY_UNPARSED_IS_FAILED = True
    try:
        InventoryManager(loader=loader, sources=list(sources))
    except AnsibleError as error:
        raise AnsibleError(f"{error}; its hosts would be missing from the acceptance: repair it, or do not name it with -i") from None
    finally:
        constants.INVENTORY_ANY_UNPARSED_IS_FAILED = False
