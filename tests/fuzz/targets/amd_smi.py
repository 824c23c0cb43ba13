# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fuzz target: the JSON of amd-smi in each version, the lines of its sampler, and amdgpu's lines in the kernel's log."""

from __future__ import annotations

import pathlib
import subprocess
import tempfile

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import amd, amd_sampler, amdgpu_log
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import amd_smi

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "rigs/simulated/tools"
SUBCOMMANDS = ("list", "static", "metric", "bad-pages", "process", "partition", "firmware", "topology", "xgmi", "version")
LINES = """amdgpu 0000:c1:00.0: amdgpu: {17} socket: 0, die: 1, 2 new uncorrectable hardware errors detected in umc block
amdgpu 0000:c1:00.0: amdgpu: GPU reset(2) failed
amdgpu: probe of 0000:c1:00.0 failed with error -22
[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=1, emitted seq=3
{"gpu": "0000:05:00.0", "busy": 100.0, "power": 700.0, "speed": 32.0}
{"metric": {"gpu": 0, "usage": {"gfx_activity": {"value": 100, "unit": "%"}}}}
"""


def _said() -> list[str]:
    """Return the output of the simulated tool for each version."""
    found = []
    for smi in (24, 25, 26, 27):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "bin").symlink_to(TOOLS)
            conf = 'NAME="AMD Instinct MI300X" GPUS=2 MEMORY=196592 DRIVER=6.14.14 VBIOS=1 FAULTS="busy bad_pages=2" SMI='
            (pathlib.Path(folder) / "node.conf").write_text(f"{conf}{smi}\n")
            for name in SUBCOMMANDS:
                argv = [f"{folder}/bin/amd-smi", name, "--json"]
                found.append(subprocess.run(argv, capture_output=True, text=True, check=False).stdout)
    return [text for text in found if text]


SEEDS = [*_said(), LINES]


def check(text: str, healthy: str) -> None:
    """Never an exception; a number is finite and not negative, or absent with its reason."""
    records = amd_smi.read(text).records
    amd_smi.failure(text)
    amd_smi.topology(records)
    amd_smi.xgmi(records)
    amd_smi.version(records)
    by_gpu = amd_smi.by_gpu(records)
    for record in by_gpu.values():
        amd_smi.processes(record)
        amd_smi.firmware(record)
        amd_smi.partition(record)
        values = [*amd_smi.bad_pages(record).values(), *amd_smi.static(record).values(), *amd_smi.metric(record).values()]
        for value in values:
            assert value.why if isinstance(value, Absent) else not isinstance(value, (int, float)) or 0 <= value < float("inf")
    names = ("static", "metric", "list", "bad-pages", "process", "partition")
    for read in amd.gathered(dict.fromkeys(names, by_gpu)):
        device = amd.device(read, 0)
        amd.health(device)
        amd.siblings([device, device], 1.0)
    for line in text.splitlines():
        amd_sampler.parse(line)
        amdgpu_log.read(line)
        amdgpu_log.is_load(line)
