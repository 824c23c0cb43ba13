# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_sharing
short_description: Run the cases of the GPU-sharing matrix on a cluster
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - The task of the stage C(gpu_sharing). It makes pods that share GPUs, changes their quotas while they run, looks at every scheduler of
    the system under test, and holds what it saw to what each case asserts.
  - Everything is done on the controller, through the cluster's API. The variables of role C(gpu_sharing) say which cases, of which system.
  - Outside an acceptance run there is no plan of cases, and the module fails.
extends_documentation_fragment: gpufleet.acceptance.probe
"""

EXAMPLES = r"""
- name: Run the cases of GPU sharing
  gpufleet.acceptance.gpu_sharing:
"""

RETURN = r"""
observations:
  description: One entry per case, what it found or why it found nothing.
  returned: always
  type: list
  elements: dict
state:
  description: V(done), V(running), V(refused) or V(check_mode).
  returned: always
  type: str
undone:
  description: What an earlier session that was killed had left on the node and this one put right.
  returned: when not in check mode
  type: list
  elements: str
"""

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

# Nothing runs on a node: the controller asks the cluster.
PROBE = ""
OPTIONS = {"checks": runner.CHECKS}


def _none(params: dict[str, t.Any], node: Node) -> t.Iterator[dict[str, t.Any]]:
    raise RuntimeError("gpu_sharing is the task of a stage of an acceptance run over clusters")


def main() -> None:
    runner.main(_none, OPTIONS, "gpu_sharing")


if __name__ == "__main__":
    main()
