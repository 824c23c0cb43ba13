# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: plane
short_description: What the plane of a host says of itself
version_added: 1.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Returns attributes of the plane that C(acceptance_plane) of the host names, so that a play need not know the planes by name.
options:
  _terms:
    description:
      - The attributes. V(console_role) is the role that installs the console behind a host, empty if there is none.
    choices: [console_role]
    required: true
"""

EXAMPLES = r"""
- name: Install the console where there is one
  ansible.builtin.include_role:
    name: "{{ lookup('gpufleet.acceptance.plane', 'console_role') }}"
  when: lookup('gpufleet.acceptance.plane', 'console_role') != ''
"""

RETURN = r"""
_raw:
  description: The values of the attributes.
  type: list
  elements: str
"""

import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

ATTRIBUTES = ("console_role",)


class LookupModule(LookupBase):
    def run(self, terms: list[str], variables: dict[str, t.Any] | None = None, **kwargs: t.Any) -> list[str]:
        of_host = variables or {}
        unknown = [term for term in terms if term not in ATTRIBUTES]
        if unknown:
            raise AnsibleLookupError(f"plane: found {unknown[0]!r}, expected one of {', '.join(ATTRIBUTES)}")
        name = self._templar.template(of_host.get(registry.VARIABLE))
        try:
            plane = registry.of({registry.VARIABLE: name}, str(of_host.get("inventory_hostname", "")))
        except RunError as error:
            raise AnsibleLookupError(str(error)) from error
        return [str(getattr(plane, term)) for term in terms]
