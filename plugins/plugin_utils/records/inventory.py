# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The name of the inventory of a run: the last part of its path.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import os

from ansible import context
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Plan


def of_today() -> str:
    """The inventories of this process by their last names, as `cluster` or `cluster,lab`."""
    sources = context.CLIARGS.get("inventory") or ()
    return ",".join(os.path.basename(os.path.normpath(str(path).strip(","))) for path in sources) or "default"


def of_plan(plan: Plan) -> str:
    """Return the inventory of a run's plan. A plan of an older version does not say it: it is judged with the run's own inventory."""
    return str(plan.inventory or of_today())
