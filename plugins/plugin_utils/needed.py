# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that a run needs of the collection, loaded once before it begins: what begins it, what measures in it, and what ends it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import compiled

with compiled.cached():
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import conclude
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import action
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import prepare
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry

registry.shipped()

__all__ = ["action", "conclude", "prepare"]
