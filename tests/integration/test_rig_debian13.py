# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The second controller: Python 3.13 and ansible-core 2.21, with the fleet in reach."""

from __future__ import annotations

import pathlib
import subprocess

import pytest
from rigs.fleet.fleet import Fleet

pytestmark = pytest.mark.fleet


def test_a_module_runs_from_debian_13(rig_fleet: Fleet, root: pathlib.Path) -> None:
    rig_fleet.up(1)
    chroot = root / "tests/rigs/debian13/chroot"

    def run(*argv: str) -> str:
        return subprocess.run([chroot, "run", *argv], check=True, capture_output=True, text=True).stdout

    assert run("python", "-c", "import sys; print(*sys.version_info[:2])") == "3 13\n"
    assert "core 2.21" in run("ansible", "--version")
    inventory = str(rig_fleet.inventory)
    answer = run("ansible", "gpu-01", "-i", inventory, "-m", "gpufleet.acceptance.cpu_governor", "-a", "state=restored")
    assert "outcome: restored" in answer
    mounts = pathlib.Path("/proc/mounts").read_text()
    assert "debian13" not in mounts
