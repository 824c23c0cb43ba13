# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fleet
short_description: The hosts of an acceptance run, or a refusal to run at all
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Used in the C(hosts) line of the acceptance plays. Returns its pattern unchanged where the run can end with a verdict.
  - Ansible ends with status 0 where a pattern matches no host, where C(--skip-tags always) leaves no task, and where
    C(--start-at-task) or C(--step) leave tasks out. An acceptance run must not, so all of these are refused here.
  - Ansible leaves the hosts of an inventory source out that it cannot read, with a warning. Such a source is refused, too. To know it,
    an inventory of several sources, or of a folder, is read twice; C(any_unparsed_is_failed) in C(ansible.cfg) spares that.
  - Roles of stages may lie in C(roles/) beside the inventory. Ansible looks beside the playbook, which is a folder of the collection.
options:
  _terms:
    description: The host pattern.
    required: true
"""

EXAMPLES = r"""
- name: Accept the fleet
  hosts: "{{ lookup('gpufleet.acceptance.fleet', acceptance_hosts | default('all')) }}"
  tasks: []
"""

RETURN = r"""
_raw:
  description: The pattern that was given.
  type: list
  elements: str
"""

import pathlib
import typing as t

from ansible import constants, context
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import interruption
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import pattern as patterns
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import reserved, sources


class LookupModule(LookupBase):
    def run(self, terms: list[str], variables: dict[str, t.Any] | None = None, **kwargs: t.Any) -> list[str]:
        pattern = terms[0] if terms else "all"
        arguments = context.CLIARGS
        look_beside((variables or {}).get("ansible_inventory_sources") or ())
        if any(arguments.get(listing) for listing in ("listhosts", "listtasks", "listtags", "syntax")):
            return [pattern]
        for option, name in (("start_at_task", "--start-at-task"), ("step", "--step")):
            if arguments.get(option):
                raise AnsibleLookupError(f"{name} would leave parts of the acceptance out; choose stages with --tags instead")
        # Of a play as a whole only what was given from outside is known.
        if reserved.problem(variables or {}):
            raise AnsibleLookupError(reserved.problem(variables or {}))
        skipped = set(arguments.get("skip_tags") or ())
        if skipped & {"always", "tagged"}:
            raise AnsibleLookupError(
                f"--skip-tags {','.join(sorted(skipped))} would skip the plan and the verdict; name the stages to skip"
            )
        inventories = [str(source) for source in (variables or {}).get("ansible_inventory_sources") or ()]
        interruption.install()
        sources.refuse_unread(inventories, self._loader)
        if not patterns.hosts(pattern, (variables or {}).get("groups") or {}, arguments.get("subset"), self._loader):
            limit = f" within --limit {arguments['subset']}" if arguments.get("subset") else ""
            where = ", ".join(inventories) or "the inventory"
            raise AnsibleLookupError(f"no host of {where} matches {pattern!r}{limit}: nothing to accept; -i names the inventory")
        return [pattern]


def look_beside(inventories: t.Iterable[str]) -> None:
    """Let Ansible find roles beside these inventories too. This is the first that a play evaluates, in the process of which all others
    are copies."""
    for source in inventories:
        roles = pathlib.Path(source).absolute().parent / "roles"
        if pathlib.Path(source).exists() and str(roles) not in constants.DEFAULT_ROLES_PATH:
            constants.DEFAULT_ROLES_PATH.append(str(roles))
