# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: retested
short_description: The hosts that are measured again before nodes are taken out of service
version_added: 1.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Used in the C(hosts) line of the play that measures again the nodes against which nothing but rates speaks. See C(docs/quarantine.md).
options:
  _terms:
    description: The host pattern of the run.
    required: true
"""

EXAMPLES = r"""
- name: Measure again
  hosts: "{{ query('gpufleet.acceptance.retested', acceptance_hosts | default('all')) }}"
  tasks: []
"""

RETURN = r"""
_raw:
  description: Their names, or a pattern that matches no host.
  type: list
  elements: str
"""

import typing as t

from ansible import context
from ansible.plugins.lookup import LookupBase
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import pattern as patterns

NOBODY = "all:!all"


class LookupModule(LookupBase):
    def run(self, terms: list[str], variables: dict[str, t.Any] | None = None, **kwargs: t.Any) -> list[str]:
        pattern, known_variables = terms[0] if terms else "all", variables or {}
        arguments = context.CLIARGS
        if any(arguments.get(listing) for listing in ("listhosts", "listtasks", "listtags", "syntax")):
            return [pattern]
        # Only hosts of the play know what its task has registered, each the same.
        for host in patterns.hosts(pattern, known_variables.get("groups") or {}, arguments.get("subset"), self._loader):
            result = known_variables["hostvars"][host].get("acceptance_quarantined") or {}
            again = result.get("again") or {}
            return sorted(again.get("nodes") or ()) or [NOBODY]
        return [NOBODY]
