# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of one check of the machine: the parts it looked at, those it could not see, and the defects it found.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import findings, observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import tree

# A problem as (reason code, words).
Problem = t.Tuple[str, str]


class CheckReport:
    """Collects the result of one check.

    `looked` are words for what was read. `unseen` is {code: why} of what was not; the stage's variable for required evidence may name the
    codes. What a physical machine shows to root is `demanded`: without it the check is UNKNOWN. A part that is there and does not answer is
    `silent`: without its answer the check is UNKNOWN wherever the probe runs.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self.looked: list[str] = []
        self.unseen: dict[str, str] = {}
        self.demanded: list[str] = []
        self.unanswered: list[str] = []
        self.problems: list[Problem] = []
        self.details: dict[str, t.Any] = {}

    def saw(self, words: str) -> None:
        self.looked.append(words)

    def missed(self, code: str, why: str, demanded: bool = False) -> None:
        """Record what was not looked at. `demanded`: a physical machine shows it to root."""
        self.unseen[code] = why
        if demanded and self.place == tree.BARE_METAL:
            self.demanded.append(why)

    def silent(self, code: str, why: str) -> None:
        """Record a part that does not answer although another witness shows it (a device file, the PCI bus, SMBIOS). `why` names both."""
        self.unseen[code] = why
        self.unanswered.append(why)

    def found(self, code: str, words: str) -> None:
        self.problems.append((code, words))

    def ended(self, code: str, words: str) -> None:
        """Record a fault in a log that a later event has taken back. A second look shows those that came and went since the first one."""
        self.details.setdefault("ended", []).append({"code": code, "text": words})

    def observation(self, check: str, **fields: t.Any) -> dict[str, t.Any]:
        """Return the observation of the check: an error if it found a defect; UNKNOWN if something could not be seen that root sees on a
        physical machine; not applicable if nothing could be seen at all."""
        looked_at = {"place": self.place, "looked_for": self.looked, "not_looked_for": self.unseen}
        context = {**looked_at, **self.details, **fields.pop("context", {})}
        fields = {**fields, "context": context}
        if self.unseen:
            fields["evidence"] = {"window": {}, "changes": [], "unreadable": sorted(self.unseen)}
        observed = findings.observed(check, [("", code, words) for code, words in self.problems], fields)
        if observed["outcome"] != "measured" or (self.looked and not self.demanded and not self.unanswered):
            return observed
        why = "; ".join(self.unseen.values())
        fields["context"] = observed["context"]
        if self.unanswered:
            return observation.failed(check, "no_answer", "; ".join(self.unanswered), **fields)
        if self.demanded:
            root = tree.is_root()
            hint = "" if root else "; only root may read it, see acceptance_become"
            reason = f"a {self.place} should show this: {'; '.join(self.demanded)}{hint}"
            return observation.failed(check, "unsupported" if root else "no_permission", reason, **fields)
        reason = f"nothing that the check reads can be seen in this {self.place}: {why}"
        return observation.failed(check, "not_visible", reason, "not_applicable", **fields)
