# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options of the probe modules that run perftest."""

    DOCUMENTATION = r"""
options:
  binary_dir:
    description: Folder of the tools of perftest. Empty takes them from the path.
    type: path
    default: ""
"""
