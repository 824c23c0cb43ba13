# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: console
short_description: Put the console on a cluster
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Makes manifests what they should be by server-side apply, and waits until the resource is served and the pods stand.
  - Takes them away with O(state=absent), the actions first, so that what runs ends and leaves nothing. Claims of volumes stay, for results
    and history are in them; so does the resource while another namespace has actions.
  - Used by the role C(console).
extends_documentation_fragment: gpufleet.acceptance.kube
options:
  state:
    description: Whether the console is to be there.
    type: str
    choices: [present, absent]
    default: present
  manifests:
    description: Objects of the Kubernetes API. What is namespaced goes to O(namespace).
    type: list
    elements: dict
    required: true
  wait:
    description: How many seconds the pods may take to stand. V(0) does not wait.
    type: float
    default: 300
attributes:
  check_mode:
    description: Can run in check mode.
    support: full
    details: The API server is asked without doing it.
  diff_mode:
    description: Returns what changed.
    support: none
  idempotent:
    description: Whether a second call does nothing.
    support: full
"""

EXAMPLES = r"""
- name: Make the resource known
  gpufleet.acceptance.console:
    kubeconfig: ~/.kube/config
    namespace: acceptance
    manifests: "{{ [lookup('ansible.builtin.file', 'crd.yaml') | from_yaml] }}"
"""

RETURN = r"""
done:
  description: What was made, changed or removed.
  returned: always
  type: list
  elements: str
"""
