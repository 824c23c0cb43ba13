# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: refused
short_description: The hosts of an acceptance run that are not accepted
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Used in the C(hosts) line of the last acceptance play, which fails these hosts and no other.
  - Where the run was not judged, or a refused run blames no host of the play, nobody is taken for accepted.
options:
  _terms:
    description: The host pattern of the run.
    required: true
"""

EXAMPLES = r"""
- name: Fail the hosts that are not accepted
  hosts: "{{ query('gpufleet.acceptance.refused', acceptance_hosts | default('all')) }}"
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
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import pattern as patterns
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import reserved

# A play needs a pattern, and one that names nothing makes Ansible warn.
NOBODY = "all:!all"


class LookupModule(LookupBase):
    def run(self, terms: list[str], variables: dict[str, t.Any] | None = None, **kwargs: t.Any) -> list[str]:
        pattern, known_variables = terms[0] if terms else "all", variables or {}
        arguments = context.CLIARGS
        if any(arguments.get(listing) for listing in ("listhosts", "listtasks", "listtags", "syntax")):
            return [pattern]
        # Of a play as a whole only what was given from outside is known.
        if reserved.problem(known_variables):
            raise AnsibleLookupError(reserved.problem(known_variables))
        hosts = patterns.hosts(pattern, known_variables.get("groups") or {}, arguments.get("subset"), self._loader)
        for host in hosts:
            of_host = known_variables["hostvars"][host]
            run, judged = of_host.get("acceptance_run"), of_host.get("acceptance_judgement")
            if run and not run.get("run_id"):  # check mode: there is no run
                return [NOBODY]
            # A host that was measured again for a quarantine knows the later run, too.
            quarantined = of_host.get("acceptance_quarantined") or {}
            if judged and (not run or judged["run_id"] in (run["run_id"], quarantined.get("run_id"))):
                if judged["passed"]:
                    return [NOBODY]
                refused = set(judged["refused"])
                return [host for host in hosts if host in refused] or hosts
        raise AnsibleLookupError("the run was not judged: nothing is accepted")
