# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The old place of answer/reasons.py, for stages of a team's own that were written for version 0.1.0. 1.1 does not have it.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import sys

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons

sys.modules[__name__] = reasons
