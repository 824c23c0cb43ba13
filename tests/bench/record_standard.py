# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record what level `standard` writes of a node, for runs of thousands of nodes that are made of it (harness/large_run.py).

    python tests/bench/record_standard.py [--hosts 2]

It accepts hosts of the fleet rig (root) with simulated GPU tools, and writes tests/fixtures/standard-level: the plan, and each measurement
as it is before the journal folds it, with its raw text. What belongs to the machine on which the rig stands (its kernel, processors, disks,
programs) is replaced by what a GPU server says; names, UUIDs and numbers of the hosts are replaced when a run is made of them. With
`--run FOLDER` it records the first hosts of a run that is there.
"""

from __future__ import annotations

import argparse
import json
import lzma
import pathlib
import sys
import tempfile
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import raw  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run  # noqa: E402
from harness import large_run  # noqa: E402
from harness.fleet_runs import Acceptance  # noqa: E402
from rigs.fleet.fleet import Fleet  # noqa: E402

Record = t.Dict[str, t.Any]
# Facts of a machine, in place of those of the one on which the rig stands.
MACHINE: Record = {
    "clock_synchronised": "yes", "cpu": "AMD EPYC 9654 96-Core Processor", "cpu_smt": "off", "cpus": 192, "free_disk_gib_/": 812.4,
    "free_disk_gib_/tmp": 812.4, "hugepages": 0, "iommu": "on", "kernel": "6.8.0-79-generic",
    "kernel_command_line": "root=UUID=0a1b2c ro iommu=pt pci=realloc=off quiet", "machine_virtual": "no", "memory_gib": 2267,
    "numa_layout": ["node 0: CPUs 0-95, distances 10 32", "node 1: CPUs 96-191, distances 32 10"], "numa_nodes": 2,
    "os": "Ubuntu 24.04.3 LTS", "python": "3.12.3", "ulimit_memlock": -1, "ulimit_nofile": 1048576, "ulimit_nproc": 9287510,
}  # fmt: skip
BANDWIDTH = {"bandwidth": {"unit": "GB/s", "value": 612.4}, "one_core": {"unit": "GB/s", "value": 24.1}}


def cleaned(record: Record) -> Record:
    """Return a measurement without what belongs to the machine of the rig."""
    record.pop("chain", None)
    context = record["context"]
    context.pop("addresses", None)
    if "facts" in context:
        facts = {name: value for name, value in context["facts"].items() if not name.startswith(("container_", "sysctl_"))}
        context["facts"] = {**facts, **{name: value for name, value in MACHINE.items() if name in facts}}
    if "cpu" in context:
        context["cpu"] = MACHINE["cpu"]
    if record["check"] == "bandwidth":
        record["metrics"] = BANDWIDTH
    if record["check"] == "clock":
        context.update(clock={"error_s": 1e-05, "max_error_s": 0.004, "synchronised": True}, findings=[])
    record["evidence"].pop("others", None)
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--run", type=pathlib.Path)
    options = parser.parse_args()
    if options.run:
        write(options.run, options.hosts)
        return
    fleet = Fleet.reserve()
    try:
        fleet.up(options.hosts)
        with tempfile.TemporaryDirectory() as folder:
            runs = Acceptance(fleet, pathlib.Path(folder))
            try:
                for host in fleet.hosts:
                    runs.plant(host)
                done = runs.run(fleet.hosts)
            finally:
                runs.close()
            if done.status or done.folder is None:
                raise SystemExit(f"the run was not accepted:\n{done.output[-3000:]}")
            write(done.folder, options.hosts)
    finally:
        fleet.down()


def write(folder: pathlib.Path, hosts: int) -> None:
    """Write the recording of the first hosts of the run in a folder."""
    run = Run(folder.parent, folder.name)
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    plan["judging"]["sets"], plan["inventory"] = [], "inventory.yml"
    for settings in plan["settings"]["sets"]:
        settings["acceptance_results_dir"] = "results"
    names = sorted(plan["targets"])
    plan["items"] = [item for item in plan["items"] if item["target"] == names[0]]
    large_run.RECORDING.mkdir(exist_ok=True)
    with lzma.open(large_run.RECORDING / "plan.json.xz", "wt", encoding="utf-8") as target:
        json.dump(plan, target, sort_keys=True)
    with lzma.open(large_run.RECORDING / "records.jsonl.xz", "wt", encoding="utf-8") as target:
        for record in map(cleaned, run.journal.as_data()):
            if record["target"] not in names[:hosts]:
                continue
            reference = record["raw"]
            record["raw_text"] = raw.read(folder, reference).decode() if reference else None
            target.write(json.dumps(record, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
