# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller half of the module of the same name: plane, journal, progress."""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.action import action_of

ActionModule = action_of("fabric_map")
