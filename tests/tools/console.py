#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Open the console over the simulated fleet, with RDMA ports and a fabric. If nothing was measured yet, ask for the run of the demo."""

from __future__ import annotations

import argparse
import pathlib
import sys
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import local  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import local_server  # noqa: E402
from rigs.simulated import laptop_fleet  # noqa: E402

INVENTORY = str(ROOT / "inventories/demo")
DEMO = {"stages": {"names": ["stack", "gpu_memory", "nccl_node", "gemm"]}}


def _inventory(results: pathlib.Path) -> str:
    """Return the inventory of the simulated fleet: that of the demo, with ports and a fabric if this machine can have them."""
    lacking = laptop_fleet.lacking()
    if lacking:
        print(f"without RDMA and collectives between nodes, which end UNKNOWN here: {lacking}", flush=True)
        return INVENTORY
    print("the simulated fleet is made: fourteen nodes with eight RDMA ports each", flush=True)
    return str(laptop_fleet.build(results / local_server.FOLDER / "fleet"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", default=str(local_server.PORT))
    parser.add_argument("--results-dir", default=str(ROOT / "results"))
    arguments = parser.parse_args()
    files = local_server.place(_inventory(pathlib.Path(arguments.results_dir).absolute()), arguments.results_dir)
    if not any(pathlib.Path(files.results).glob("*/report.json")):
        store = local.LocalActions(files.folder, files.inventory)
        demo = {"stages": {**DEMO["stages"], "nodes": [node.name for node in store.known()]}}
        store.create(f"demo-{uuid.uuid4().hex[:6]}", demo, "make console")
        print("nothing was measured here yet: the run of the demo begins now and takes about a minute", flush=True)
    return local_server.main(["--inventory", files.inventory, "--results-dir", files.results, "--port", arguments.port])


if __name__ == "__main__":
    sys.exit(main())
