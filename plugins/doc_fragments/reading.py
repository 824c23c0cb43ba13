# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Attributes of modules that only read, and of modules that do nothing in check mode."""

    DOCUMENTATION = r"""
attributes:
  check_mode:
    description: Can run in check mode.
    support: full
  diff_mode:
    description: Returns what changed.
    support: none
"""

    ACTING = r"""
attributes:
  check_mode:
    description: Can run in check mode.
    support: none
  diff_mode:
    description: Returns what changed.
    support: none
"""
