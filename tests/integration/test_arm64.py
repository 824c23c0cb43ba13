# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probes run as they are on a Python for arm64, the processor of GB200 and GB300 trays: emulated, over a simulated tray whose memory
is soldered and whose firmware lists no modules."""

from __future__ import annotations

import json
import pathlib
import subprocess
import typing as t

import pytest
from harness import machine_tree
from rigs import arm64, common
from rigs.simulated import rack

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Part number of Arm's Neoverse V2, the core of Grace, as Linux prints it.
CPUINFO = "".join(f"processor\t: {number}\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n\n" for number in range(4))
PROGRAM = """
import json, sys
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import host_health, stack
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
root, tool, python = sys.argv[1:4]
node = Node(300, root=root, tools={"nvidia_smi": tool})
checks = lambda *names: [{"check": name, "variant": ""} for name in names]
settings = {"python": python, "packages": [], "environment": [], "sysctls": [], "disks": ["/"], "gpu_count": 4, "imex": "auto"}
found = list(stack.probe({**settings, "checks": checks("facts", "gpu_health")}, node))
found += host_health.probe({"checks": checks("memory", "pcie", "kernel"), "ras_days": 30.0, "pcie_corrected": 100.0}, node)
print(json.dumps([one for one in found if not one["part"]]))
"""


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, t.Any]:
    """{check: observation} of a healthy tray by an arm64 Python."""
    try:
        interpreter = arm64.python()
    except common.RigError as error:
        pytest.skip(f"no Python for arm64: {error}")
    folder = tmp_path_factory.mktemp("arm64")
    variables = rack.tray(folder / "tray", 1)
    root = variables["acceptance_root"]
    tree = machine_tree.MachineTree(pathlib.Path(root))
    tree.write("proc/cpuinfo", CPUINFO)
    tree.write("sys/firmware/dmi/tables/DMI", machine_tree.smbios({}))
    argv = [*interpreter.argv, "-c", PROGRAM, root, variables["acceptance_nvidia_smi"], "/usr/bin/python3"]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=600, cwd=ROOT,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(ROOT / ".collections"), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return {one["check"]: one for one in json.loads(done.stdout)}


def test_the_stack_of_a_tray_is_read_on_arm64(observed: dict[str, t.Any]) -> None:
    facts = observed["facts"]["context"]["facts"]
    assert facts["architecture"] == "aarch64" and facts["cpu"] == "0xd4f" and facts["memory_gib"]
    assert not [name for name, value in facts.items() if str(value).startswith("unreadable")]
    assert observed["gpu_health"]["outcome"] == "measured" and "findings" not in observed["gpu_health"]["context"]
    assert observed["facts"]["context"]["link_domain"]["cluster_uuid"] == rack.CLUSTER


def test_memory_that_is_soldered_and_not_listed_is_no_fault(observed: dict[str, t.Any]) -> None:
    memory = observed["memory"]
    assert memory["outcome"] == "measured" and not memory["context"].get("findings"), memory
    assert "lists none" in memory["context"]["not_looked_for"]["dmi"]


@pytest.mark.parametrize("check", ["pcie", "kernel"])
def test_the_rest_of_the_machine_is_read_on_arm64(observed: dict[str, t.Any], check: str) -> None:
    assert observed[check]["outcome"] == "measured", observed[check]
