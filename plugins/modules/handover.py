# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: handover
short_description: Make and sign the archive with which an acceptance is handed over
version_added: 1.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - One archive with the reports, the punch list, the inventory, the capacity, the evidence and a manifest of all files.
  - Only judged runs that are as they were written are handed over. No node is touched.
  - Used by C(playbooks/handover.yml). See C(docs/handover.md).
options:
  run_id:
    description:
      - The judged runs, each a round of the acceptance; the times of their plans order them. An entry may be several ids with commas
        between them.
    type: list
    elements: str
    required: true
  results_dir:
    description: Folder of all runs. The archive goes to its folder C(handover), beside the punch list.
    type: str
    required: true
  name:
    description: Name of the archive, without C(.tar). By default it is made of the last run's id.
    type: str
    default: ""
  blocks:
    description:
      - The blocks that are accepted each by itself, as a dictionary of lists of groups or hosts of the inventory, or of names or patterns
        of nodes.
      - By default the racks, or the fleet as one.
    type: raw
  contract:
    description: File with the demands of the contract, in YAML.
    type: str
    default: ""
  order:
    description: File with the order or packing list, in CSV.
    type: str
    default: ""
  sign_key:
    description: SSH key that signs the archive, a private key or the public half of a key of an agent.
    type: str
    default: ""
  signer:
    description: Who signs.
    type: str
    default: ""
  role:
    description: As what the signer signs, such as V(vendor) or V(customer).
    type: str
    default: ""
  pdf:
    description: Whether to add the pages as PDF where the controller has Chromium.
    type: bool
    default: true
attributes:
  check_mode:
    description: Can run in check mode.
    support: full
    details: Says what would be handed over, and writes nothing.
  diff_mode:
    description: Returns what changed.
    support: none
  idempotent:
    description: Whether a second call does nothing.
    support: none
    details: An archive is never written over.
"""

EXAMPLES = r"""
- name: Hand over two rounds
  gpufleet.acceptance.handover:
    run_id:
      - 20260101T000000Z-0a1b2c
      - 20260105T000000Z-3d4e5f
    results_dir: results
    sign_key: ~/.ssh/id_ed25519
    signer: Jane Doe, Example GmbH
    role: vendor
  run_once: true
"""

RETURN = r"""
pack:
  description: Path of the archive.
  returned: success
  type: str
accepted:
  description: Whether every block is accepted, and nothing speaks against the whole.
  returned: success
  type: bool
lines:
  description: The result, the blocks, and what speaks against them, as it is shown.
  returned: success
  type: list
  elements: str
"""
