# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stage over groups of the nodes behind one inventory host, on any plane on which a host stands for many nodes.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import secrets

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.behind import StageBehindHost
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer


class GroupsBehindHost(StageBehindHost):
    """Runs a stage over the planned groups of the nodes behind its host."""

    def groups(self) -> dict[str, list[str]]:
        """Return {subject of a group: subjects of its nodes} for the groups that are still to be measured."""
        groups = (item["subject"] for item in self.planned.values() if item["subject"]["kind"] == "group")
        return {subject["id"]: subject["members"] for subject in groups if subject["id"] in self.unanswered}

    def why_refused(self, subject: str) -> str | None:
        """Return why the plan has no such group, None if it has."""
        return next((item["refused"] for (_c, _v, s), item in self.planned.items() if s == subject and "refused" in item), None)

    def head_args(self, subject: str) -> PlainData:
        """Return the module's arguments for the head of a group, but for its members. A module of a stage over groups has the options of
        module_utils/groups/membership.py, and "floors" if the stage's description returns any."""
        floors = self.description.floors(self.acting.plan(), self.host)
        return {
            **self.args(),
            "checks": [{"check": c, "variant": v} for c, v, s in self.planned if s == subject],
            "group": subject,
            "token": secrets.token_hex(16),
            **({"floors": floors} if floors else {}),
        }

    def give_up_group(self, subject: str, members: list[str], result: NodeAnswer) -> None:
        """Record the group's own result. Members without a result get the group's reason."""
        self._record(subject, result)
        reason = result.get("reason") or "the group ended without a word of this node"
        for member in [member for member in members if member in self.unanswered]:
            code = result.get("reason_code") or "no_result"
            self._record(member, {**node_messages.refused(code, reason), "ran": result.get("ran") or {}})
