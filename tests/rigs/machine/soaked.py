# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs in the guest: a soak with simulated GPUs and its state on the guest's disk. It begins in the first boot and goes on in the next."""

from __future__ import annotations

import json
import pathlib
import subprocess
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import soak
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner

DISK, PLACE = "/dev/nvme0n1", pathlib.Path("/run/disk")
# Laid there by the outer machine (nodes.planted).
NODE = PLACE / "node"
RUN = "20260101T000000Z-000001"
HOURS = 4
# Seconds of a simulated leg that shall not end before the power is cut.
LONG_S = 1000


def mount() -> None:
    PLACE.mkdir()
    subprocess.run(["modprobe", "ext4"], check=True)
    subprocess.run(["mount", "-t", "ext4", DISK, str(PLACE)], check=True)


def _file() -> pathlib.Path:
    return PLACE / "state" / RUN / "soak.jsonl"


def is_begun() -> bool:
    """Return True in the boots behind the first."""
    return _file().exists()


def _legs_last(seconds: int) -> None:
    conf = NODE / "node.conf"
    conf.write_text(f'{conf.read_text()}SLEEP="{seconds}"\n')


def _perform(phase: str) -> dict[str, t.Any]:
    """Do what the module `soak` does on a node."""
    params = {
        "hours": HOURS, "leg_minutes": 60.0, "sample_seconds": 300.0, "mib": 256, "memory_percent": 80.0, "seed": 1, "jitter_percent": 3.0,
        "temperature_spread": 8.0, "temperature_slots": 16.0, "temperature_fleet": 10.0, "throttled_percent": 0.0, "power_percent": 90.0,
        "errors": 0, "reboots": 0, "loopback": False, "loopback_devices": [], "loopback_binary_dir": "", "loopback_tcp_port": 18515,
        "gpu_count": 8, "mig": "refused", "python": str(NODE / "bin/python3"), "env": {},
    }  # fmt: skip
    checks = soak.default_checks(params)
    run = {"run_id": RUN, "stage": "soak", "phase": phase, "grace": 0.0, "settings": "x", "continues": True}
    common = {
        "timeout": 3600.0, "state_dir": str(PLACE / "state"), "lock_wait": 0.0, "root": "/", "exec": {"kind": "host"},
        "nvidia_smi": str(NODE / "bin/nvidia-smi"), "npu_smi": "npu-smi", "run": {**run, "attempts": {c["check"]: 1 for c in checks}},
    }  # fmt: skip
    return runner.perform(soak.probe, {**params, **common, "checks": checks}, "soak")


def begin() -> None:
    """Begin the soak and wait for its first leg; another one is under way then, which lasts."""
    _perform("start")
    while '"memo"' not in _file().read_text():
        time.sleep(0.2)
    _legs_last(LONG_S)


def go_on() -> None:
    """Begin the soak again, wait for its end, and print a line `SOAKED {check: observation of the node}`."""
    _legs_last(0)
    _perform("start")
    answer = _perform("collect")
    while answer["state"] == "running":
        answer = _perform("collect")
    found = {seen["check"]: seen for seen in answer["observations"] if not seen["part"]}
    for seen in found.values():
        seen.pop("raw_z", None)
        seen["context"].pop("curves", None)
    print("SOAKED", json.dumps(found or answer), flush=True)
