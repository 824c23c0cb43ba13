# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options that name the folder of runs."""

    DOCUMENTATION = r"""
options:
  results_dir:
    description: Folder of all runs.
    type: str
    required: true
"""
