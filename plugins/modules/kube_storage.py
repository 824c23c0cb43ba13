# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kube_storage
short_description: Say what of a cluster's storage holds up Prometheus
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Looks whether a StorageClass is there, and for old claims and volumes that block an installation or upgrade of Prometheus.
  - Fails where anything is in the way. Nothing is changed or deleted.
  - Used by C(playbooks/observability_preflight.yml).
extends_documentation_fragment: gpufleet.acceptance.kube
options:
  storage_class:
    description: The class that the claims of Prometheus are to have.
    type: str
    default: csi-s3
  claims_namespace:
    description: Namespace of Prometheus and its claims.
    type: str
    default: monitoring
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
- name: Look whether Prometheus can have its volumes
  gpufleet.acceptance.kube_storage:
    kubeconfig: ~/.kube/config
    storage_class: csi-s3
    claims_namespace: monitoring
"""

RETURN = r"""
blocking:
  description: One sentence for each thing that is in the way.
  returned: always
  type: list
  elements: str
"""
