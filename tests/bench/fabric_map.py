# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figure `fabric_map`: the time of reading, judging and drawing the fabric of 1,024 hosts, without the tools that discover it.
Generated fabric.

    python tests/bench/fabric_map.py [--hosts 1024] [--rails 8]

One JSON line; the time is that of the processor, of one process.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import infiniband  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import judgement, picture, reading  # noqa: E402
from harness.fat_tree import FatTree  # noqa: E402

GOAL_S = 10.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=1024)
    parser.add_argument("--rails", type=int, default=8)
    arguments = parser.parse_args()
    tree = FatTree(arguments.hosts, arguments.rails, 32, 32, 32)
    text, records = tree.text(), tree.measured()
    began = time.process_time()
    infiniband.discovery(text)
    fabric = reading.read(records).fabric
    findings = judgement.findings(fabric, judgement.Wanted(nodes=tree.hosts))
    drawn = picture.draw(fabric, findings)
    took = time.process_time() - began
    line = {
        "figure": "fabric_map.judged", "value": round(took, 2), "unit": "s", "goal": f"at most {GOAL_S:g} for 1,024 hosts",
        "compared_with": f"{arguments.hosts} hosts with {arguments.rails} ports, {len(fabric.links) // 2} links, {len(findings)} findings, "
        f"picture of {len(drawn) // 1024} KiB",
        "holds": took <= GOAL_S and not findings,
    }  # fmt: skip
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
