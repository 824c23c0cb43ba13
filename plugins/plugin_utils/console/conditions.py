# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The conditions of an action, by the conventions of the Kubernetes API: each type once, Unknown until it is decided, with the moment at
which it last became something else.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
# What the API takes at most.
MOST = 32768


def of(phase: str, verdict: str, message: str, before: t.Iterable[PlainData], now: str, generation: int = 0) -> t.List[PlainData]:
    """The conditions of a phase. A reason is one word, a message is for people."""
    ended = phase in actions.ENDED
    admitted = FALSE if phase == actions.REFUSED else UNKNOWN if phase == actions.PENDING else TRUE
    judged = phase == actions.FINISHED
    accepted = (TRUE if verdict == actions.ACCEPTED else FALSE) if judged else FALSE if ended else UNKNOWN
    stated = {
        "Admitted": (admitted, phase if phase in (actions.REFUSED, actions.PENDING) else "Valid"),
        "Running": (TRUE if phase == actions.RUNNING else FALSE, phase),
        "Finished": (TRUE if ended else FALSE, phase),
        "Accepted": (accepted, verdict if judged else phase),
    }
    by_type = {condition.get("type"): condition for condition in before}
    conditions = []
    for type_, (status, reason) in stated.items():
        old = by_type.get(type_, {})
        changed = now if old.get("status") != status else old.get("lastTransitionTime", now)
        condition = {"type": type_, "status": status, "reason": reason, "message": message[:MOST], "lastTransitionTime": changed}
        conditions.append({**condition, **({"observedGeneration": generation} if generation else {})})
    return conditions
