# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kube_cleanup
short_description: Remove what runs have left on a Kubernetes cluster
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Removes every object of a run, or what nobody will come for, from the namespace. Objects are found by their labels; nothing else
    is touched.
extends_documentation_fragment: gpufleet.acceptance.kube
options:
  run_id:
    description:
      - The run whose objects are removed, even where its controller still lives.
      - Without it those are removed whose controller on this machine is gone, or whose deadline is over.
    type: str
    default: ""
  all:
    description: Remove the objects of all runs, even where their controllers still live.
    type: bool
    default: false
    version_added: 1.1.0
attributes:
  check_mode:
    description: Can run in check mode.
    support: full
    details: Says what would be removed.
  diff_mode:
    description: Returns what changed.
    support: none
    details: The objects are listed in the result.
  idempotent:
    description: Whether a second call does nothing.
    support: full
"""

EXAMPLES = r"""
- name: Remove what a run has left
  gpufleet.acceptance.kube_cleanup:
    kubeconfig: ~/.kube/config
    namespace: acceptance
    run_id: 20260101T000000Z-0a1b2c
"""

RETURN = r"""
removed:
  description: What was removed, in words.
  returned: always
  type: list
  elements: str
left:
  description: Objects that were still being deleted in the end.
  returned: always
  type: list
  elements: str
"""
