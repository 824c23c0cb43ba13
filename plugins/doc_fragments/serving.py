# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options of the modules that answer until somebody ends them."""

    DOCUMENTATION = r"""
options:
  seconds:
    description: When to end. V(0) for never.
    type: float
    default: 0
"""
