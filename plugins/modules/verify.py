# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: verify
short_description: Say whether the folder of a run, or a hand-over pack, is as it was written
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Follows the chain of the journal, computes the SHA-256 of plan, raw texts, verdicts and reports, and fails naming the first
    thing that is not what was written.
  - Of a pack checks each file, the archive around them, and the signatures, and fails if it is not signed.
  - Used by C(playbooks/verify.yml). Runs on the controller and connects to no host.
  - Who can write the folder can write all of it anew, consistently. Only the fingerprint on a signed report tells that.
extends_documentation_fragment:
  - gpufleet.acceptance.reading
  - gpufleet.acceptance.runs
options:
  run_id:
    description: The run.
    type: str
    default: ""
  pack:
    description: An archive that C(playbooks/handover.yml) has made, instead of a run.
    type: path
    version_added: 1.1.0
  signers:
    description: File of allowed signers, as ssh-keygen(1) has them. A signature by any other key is refused.
    type: path
    version_added: 1.1.0
"""

EXAMPLES = r"""
- name: Is the run whole
  gpufleet.acceptance.verify:
    run_id: 20260101T000000Z-0a1b2c
    results_dir: results
  run_once: true

- name: Is the pack whole, and who signed it
  gpufleet.acceptance.verify:
    pack: handover-20260101T000000Z-0a1b2c.tar
    signers: allowed_signers
    results_dir: results
  run_once: true
"""

RETURN = r"""
msg:
  description: One line that says what is whole, with the fingerprint or the signatures, or the first thing that is not.
  returned: always
  type: str
"""
