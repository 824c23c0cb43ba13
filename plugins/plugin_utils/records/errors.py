# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The error that a user reads as one sentence.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations


class RunError(Exception):
    """A run cannot be made, opened, written or judged. The text is one sentence for the user."""
