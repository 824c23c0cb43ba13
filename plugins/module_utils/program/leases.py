# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All kinds of leases, for what gives back what a probe of any other kind has left on a node.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import member, worker
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import folder, governor
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.session import LEASES


def register() -> None:
    """Let sessions of this process undo leases of all kinds."""
    for kind, undo in (("folder", folder.undo), ("governor", governor.undo), ("member", member.undo), ("worker", worker.undo)):
        LEASES.setdefault(kind, undo)
