# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables in which a run says what it is and what became of it. Extra variables win over what a task registers: whoever gave one of
these by -e would say himself that his fleet is accepted.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

OURS = ("acceptance_judgement", "acceptance_judged_again", "acceptance_quarantined", "acceptance_run", "acceptance_stage")


def problem(extra_vars: t.Container[str]) -> str:
    """Return the error in variables that were given by -e; empty if there is none."""
    names = [name for name in OURS if name in extra_vars]
    return f"{names[0]}: found a value of yours, expected none: the run itself makes it; take it out of -e" if names else ""
