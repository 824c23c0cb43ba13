# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: own_probe
short_description: Measure with a probe that a stage of your own brings along
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - The task of a stage whose description (C(files/stage.py) of its role) names a file beside it as C(probe). That file travels to the
    nodes, behind SSH and into pods, and is run there under the guardian, deadline and lock of every probe.
  - It has a function C(probe(params, node)) that yields one observation per check of C(params['checks']), made by C(measured) and
    C(failed) of C(module_utils/answer/observation.py). Standard library only.
  - Where the stage is one over groups of nodes, C(params) also hold what each is told of its group, as
    C(module_utils/groups/membership.py) wants it.
  - Outside an acceptance run there is no such description. Nothing is measured then, as C(fault) says.
extends_documentation_fragment: gpufleet.acceptance.probe
options:
  options:
    description: What the probe is told, as C(params['options']).
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Measure the scratch file system as roles/disk/files/probe.py does
  gpufleet.acceptance.own_probe:
    options: {folder: /scratch, seconds: 10}
"""

RETURN = r"""
observations:
  description: One entry per check, what was measured or why it was not.
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

# None of ours: the description of the stage names it.
PROBE = ""
OPTIONS = {
    "checks": runner.CHECKS,
    "options": {"type": "dict", "default": {}},
}


def _none(params: dict[str, t.Any], node: Node) -> t.Iterator[dict[str, t.Any]]:
    raise RuntimeError("own_probe is the task of a stage of an acceptance run, whose description names the probe")


def main() -> None:
    runner.main(_none, OPTIONS, "own_probe")


if __name__ == "__main__":
    main()
