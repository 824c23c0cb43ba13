#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Open the console over the demo fleet; where nothing was measured yet, the demo run is asked for first, by whoever opens it."""

from __future__ import annotations

import argparse
import pathlib
import sys
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import local  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import local_server  # noqa: E402

INVENTORY = str(ROOT / "inventories/demo")
DEMO = {"stages": {"names": ["stack", "gpu_memory", "nccl_node", "gemm"]}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", default=str(local_server.PORT))
    parser.add_argument("--results-dir", default=str(ROOT / "results"))
    given = parser.parse_args()
    of = local_server.place(INVENTORY, given.results_dir)
    if not any(pathlib.Path(of.results).glob("*/report.json")):
        kept = local.LocalActions(of.folder, of.inventory)
        demo = {"stages": {**DEMO["stages"], "nodes": [node.name for node in kept.known()]}}
        kept.create(f"demo-{uuid.uuid4().hex[:6]}", demo, "make console")
        print("nothing was measured here yet: the run of the demo begins now and takes about a minute", flush=True)
    return local_server.main(["--inventory", of.inventory, "--results-dir", of.results, "--port", given.port])


if __name__ == "__main__":
    sys.exit(main())
