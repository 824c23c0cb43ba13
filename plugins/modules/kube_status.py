# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kube_status
short_description: Show what runs are doing on a Kubernetes cluster
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Shows each pod of a run with its node and its state, what to do about one that is stuck, and the last lines of its log.
extends_documentation_fragment: gpufleet.acceptance.kube
options:
  run_id:
    description: The run; all where it is not given.
    type: str
    default: ""
  stage:
    description: Only this stage.
    type: str
    default: ""
  node:
    description: Only this node.
    type: str
    default: ""
  tail:
    description: How many last lines of each log are shown; V(0) for none.
    type: int
    default: 0
  previous:
    description: Show the log of the container that ran before the present one.
    type: bool
    default: false
  follow:
    description: For how many seconds the logs are followed on the terminal, of at most 16 pods.
    type: float
    default: 0
attributes:
  check_mode:
    description: Can run in check mode.
    support: full
  diff_mode:
    description: Returns what changed.
    support: none
    details: Changes nothing.
  idempotent:
    description: Whether a second call does nothing.
    support: full
"""

EXAMPLES = r"""
- name: Show a run
  gpufleet.acceptance.kube_status:
    kubeconfig: ~/.kube/config
    namespace: acceptance
    run_id: 20260101T000000Z-0a1b2c
    tail: 100
"""

RETURN = r"""
runs:
  description: One line for each run that has something on the cluster.
  returned: always
  type: list
  elements: str
pods:
  description: The pods.
  returned: always
  type: list
  elements: dict
  contains:
    pod:
      description: Name of the pod.
      type: str
    node:
      description: Its node.
      type: str
    stage:
      description: Its stage.
      type: str
    phase:
      description: Its phase.
      type: str
    words:
      description: Why it does not go on, in the API's words.
      type: str
    advice:
      description: What to do about that.
      type: str
    log:
      description: The last lines of its log, without results.
      type: list
      elements: str
"""
