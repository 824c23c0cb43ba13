# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Days under load by a simulated clock: one simulated node per planted fault among healthy ones, with a controller that is killed in
the middle and a run that is resumed."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import time
import typing as t

import yaml
from rigs.simulated import nodes

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOURS, LEG_MINUTES, SAMPLE_SECONDS = 60, 720, 1800
HEALTHY = 8
# All nodes have a warm row of GPUs.
ROWS = "soak_rows"

# Faults of a node -> what the mistake would be called. `warn`: a WARN is enough.
FAULTS: list[tuple[str, str]] = [
    ("soak_fan=30", "a fan dies in hour 30"),
    ("soak_noon", "a GPU throttles at each noon"),
    ("soak_dimm", "a memory module of the machine corrects more errors each hour"),
    ("soak_lap=40", "the result of a GPU changes in one lap"),
    ("soak_reboot=24", "the node is started anew in hour 24"),
    ("soak_hot warn", "all GPUs of a node are hotter than those of its neighbours"),
    ("soak_hot_gpu=7", "a GPU of the warm row is hotter than those of its neighbours in its slot"),
    ("soak_hot_gpu=1", "a GPU of the cool row is as hot as those of the warm row"),
    ("soak_wavers", "the rate of a GPU wavers"),
    ("soak_held", "a clock is held down, and no reason is named"),
    ("soak_odd", "a GPU computes other bits than all others, in every lap"),
    ("soak_ecc=30", "an uncorrectable memory error in hour 30"),
    ("replays", "PCIe replays are counted"),
    ("xid=79,_GPU_has_fallen_off_the_bus.", "the driver logs an Xid"),
    ("xid=31,_MMU_Fault", "the driver logs an Xid of an application"),
    ("soak_crash", "the workload crashes"),
    ("soak_cut", "the output is cut"),
    ("soak_missing", "a GPU without a result"),
    ("soak_no_cuda", "the driver does not start"),
    ("soak_no_rates", "a GPU does not tell its rates"),
    ("soak_no_sensors", "a GPU does not tell its temperature"),
    ("soak_words", "sensors that say words"),
    ("soak_slow=0.89", "a GPU is more than 10 % slower than its siblings"),
    ("soak_hang", "the workload never ends"),
]
# The same of nodes with AMD GPUs, which are loaded for a day in one leg.
INSTINCT, AMD_HEALTHY, AMD_HOURS = "AMD Instinct MI300X", 2, 24
AMD_FAULTS: list[tuple[str, str]] = [
    ("soak_slow=0.89", "a GPU is more than 10 % slower than its siblings"),
    ("soak_lap=12", "the result of a GPU changes in one lap"),
    ("soak_noon", "the heat of its memory holds a GPU back at noon"),
    ("soak_ras=12", "corrected memory errors of a GPU rise from hour 12 on"),
    ("soak_ue=12", "an uncorrectable memory error in hour 12, and the load goes on"),
    ("soak_deferred=12", "bad data in hour 12 that nobody has used yet"),
    ("xgmi_rising", "errors of an XGMI link rise"),
    ("amd_log=GPU_reset_begin!", "a reset while the load goes on"),
]


def fleet(folder: pathlib.Path) -> tuple[dict[str, t.Any], dict[str, tuple[str, bool]]]:
    """Return the inventory, and what is planted: {node: (what, True if a WARN is enough)}."""
    hosts: dict[str, t.Any] = {}
    planted: dict[str, tuple[str, bool]] = {}
    folder.mkdir(parents=True)

    def amd(name: str, faults: str, gpus: int = 8) -> None:
        made = nodes.local(folder / name, len(hosts) + 1, model=INSTINCT, faults=faults, kernel_log="", SLEEP=1)
        hosts[name] = {**made, "soak_hours": AMD_HOURS, "soak_leg_minutes": 60 * AMD_HOURS, "acceptance_gpu_count": gpus}

    for number in range(HEALTHY):
        hosts[f"healthy-{number + 1:02d}"] = nodes.local(folder / f"healthy-{number + 1:02d}", len(hosts) + 1, faults=ROWS, SLEEP=1)
    for words, what in FAULTS:
        fault, _blank, grade = words.partition(" ")
        name = f"bad-{fault.split('=')[0].replace('_', '-')}-{len(hosts):02d}"
        log = "" if fault.startswith("xid") else None
        hosts[name] = nodes.local(folder / name, len(hosts) + 1, faults=f"{ROWS} {fault}", kernel_log=log, SLEEP=1)
        planted[name] = what, grade == "warn"
        if fault == "soak_hang":
            hosts[name].update(soak_hours=0.001, soak_timeout=10)
        if fault == "soak_dimm":
            controller = folder / name / "root/sys/devices/system/edac/mc/mc0"
            controller.mkdir(parents=True)
            (controller / "ce_count").write_text("0\n")
    for number in range(AMD_HEALTHY):
        amd(f"healthy-amd-{number + 1:02d}", ROWS)
    # Nobody else has its product: what is usual in its slots is not known.
    amd("healthy-amd-cpx", "partition=CPX/NPS4", gpus=64)
    for fault, what in AMD_FAULTS:
        name = f"bad-amd-{fault.split('=')[0].replace('_', '-')}-{len(hosts):02d}"
        amd(name, f"{ROWS} {fault}")
        planted[name] = what, False
    variables = {
        "acceptance_gpu_count": 8, "soak_leg_minutes": LEG_MINUTES, "soak_sample_seconds": SAMPLE_SECONDS,
    }  # fmt: skip
    return {"all": {"hosts": hosts, "vars": variables}}, planted


def _play(folder: pathlib.Path, playbook: str, *more: str) -> subprocess.Popen[bytes]:
    command = ["ansible-playbook", playbook, "-i", str(folder / "inventory.yml"), "-e", f"acceptance_results_dir={folder}/results", *more]
    environment = dict(os.environ, ANSIBLE_FORKS="16", ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"))
    with open(folder / "log", "ab") as log:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def run(folder: pathlib.Path, inventory: dict[str, t.Any], kill: bool) -> tuple[int, list[dict[str, t.Any]]]:
    """Return the exit status and the verdicts of a soak, whose controller is killed in the middle if `kill`."""
    (folder / "inventory.yml").write_text(yaml.safe_dump(inventory))
    running = _play(folder, "playbooks/soak.yml", "-e", f"hours={HOURS}")
    if kill:
        # Those with one leg may be done, and then have nothing on their nodes any more.
        several = {name: host for name, host in inventory["all"]["hosts"].items() if "healthy" in name and "soak_hours" not in host}
        hosts = [pathlib.Path(host["acceptance_state_dir"]) for host in several.values()]

        def loaded(state: pathlib.Path) -> bool:
            return any('"memo"' in path.read_text() for path in state.glob("*/soak.jsonl"))

        while not all(map(loaded, hosts)) and running.poll() is None:
            time.sleep(0.2)
        if running.poll() is not None:
            raise SystemExit(f"the soak ended before its controller could be killed: {(folder / 'log').read_text()[-4000:]}")
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        (results,) = folder.glob("results/*/plan.json")
        running = _play(folder, "playbooks/resume.yml", "-e", f"run_id={results.parent.name}")
    status = running.wait()
    lines = [line for path in folder.glob("results/*/verdicts.jsonl") for line in path.read_text().splitlines()]
    if not lines:
        raise SystemExit((folder / "log").read_text()[-4000:])
    return status, [json.loads(line) for line in lines]


def accepted(folder: pathlib.Path) -> tuple[int, list[str], list[str]]:
    """Return how many faults were planted, those that were accepted, and what was refused though it is healthy."""
    inventory, planted = fleet(folder / "nodes")
    _status, found = run(folder, inventory, kill=True)
    by_node: dict[str, set[str]] = {}
    for verdict in found:
        by_node.setdefault(verdict["subject"]["id"].split("/")[0], set()).add(verdict["verdict"])
    accepts = [
        f"soak: {node}: {what}: {', '.join(sorted(by_node.get(node, set())))}"
        for node, (what, warn) in planted.items()
        if not by_node.get(node, set()) & ({"FAIL", "UNKNOWN", "WARN"} if warn else {"FAIL", "UNKNOWN"})
    ]
    rejects = [
        f"soak: {v['subject']['id']}: {v['check']}: {v['verdict']}: {v['reason']}"
        for v in found
        if v["subject"]["id"].split("/")[0] not in planted and v["verdict"] not in ("PASS", "SKIPPED")
    ]
    hours = {v["variant"] for v in found if v["subject"]["id"].startswith("healthy")}
    asked = {f"hours={HOURS}", f"hours={AMD_HOURS}"}
    rejects += [] if hours == asked else [f"soak: {asked} were asked for: {hours}"]
    left = [str(path) for path in (folder / "nodes").glob("*/state/*")]
    rejects += [f"soak: left on a node: {path}" for path in left]
    return len(planted), accepts, rejects
