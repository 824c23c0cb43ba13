# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One command over a fleet of two kinds, GPUs and NPUs: real PyTorch over gloo, real MPICH and SSH; devices and hccl_test are simulated."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import typing as t

import pytest
import yaml
from rigs import common, pytorch
from rigs.fleet.fleet import Fleet
from rigs.simulated import nodes
from rigs.simulated.mpi import build
from test_ddp_fleet import SMALL as SMALL_DDP
from test_train_fleet import ANY_PACE
from test_train_fleet import SMALL as SMALL_TRAIN

pytestmark = pytest.mark.fleet
ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = "/opt/simulated/bin"
GPUS, NPUS = ("gpu-01", "gpu-02"), ("gpu-03", "gpu-04")
COMMON = {"unit": "GB/s", "source": "test", "date": "2026-11", "confidence": "measured"}
EXPECTED = [
    {"id": "gloo", "match": {"stage": "ddp", "check": "all_reduce", "size": 256 << 10}, "metric": "busbw", "value": 0.0001, **COMMON},
    *(
        {"id": stage, "match": {"stage": stage, "check": "all_reduce", "gpu": "Ascend 910B3", "size": 64 << 20}, "metric": "busbw",
         "value": 158, **COMMON}
        for stage in ("hccl_local", "hccl")
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def fleet(rig_fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Fleet]:
    common.need_packages(pytorch.PACKAGES)
    tool = build.hccl_test(tmp_path_factory.mktemp("hccl"), str(build.mpich() / "bin/mpicc"))
    rig_fleet.up(4)
    build.plant_npus(rig_fleet, tool, gpus=2)
    for number, host in enumerate(GPUS, 1):  # they have nothing of an NPU's
        for name in ("bin", "mpich"):
            shutil.rmtree(rig_fleet.plant(host) / name)
        nodes.planted(rig_fleet.plant(host), number, gpus=2)
        (rig_fleet.plant(host) / "bin/npu-smi").unlink()
    for host in NPUS:
        (rig_fleet.plant(host) / "bin/nvidia-smi").unlink()
    for host in rig_fleet.hosts:  # a resolver that is not there costs ten seconds for each connection
        rig_fleet.inside(host, "sh", "-c", "echo nameserver 127.0.0.1 > /etc/resolv.conf")
    yield rig_fleet
    for host in rig_fleet.hosts:
        shutil.rmtree(rig_fleet.plant(host) / "mpich", ignore_errors=True)


def cluster(fleet: Fleet, folder: pathlib.Path, **of_npus: t.Any) -> pathlib.Path:
    """An inventory as docs/hccl.md has it, of two groups; what is the same for both is said once."""
    rig = yaml.safe_load(fleet.inventory.read_text())["all"]["children"]["fleet"]
    both = {
        **rig["vars"], "acceptance_results_dir": str(folder / "results"), "acceptance_simulated": True,
        "acceptance_fabric_address": "{{ ansible_host }}", "acceptance_gpu_count": 2, "acceptance_nvidia_smi": f"{TOOLS}/nvidia-smi",
        "acceptance_npu_smi": f"{TOOLS}/npu-smi", "stack_python": f"{TOOLS}/python3", **SMALL_TRAIN, "train_types": [],
        "acceptance_expectations": [*EXPECTED, ANY_PACE],
        **{f"ddp_{name}": value for name, value in SMALL_DDP.items()}, "ddp_straggler_percent": 1000.0,
    }  # fmt: skip
    hccl = {f"{stage}_{what}": where for stage in ("hccl", "hccl_local")
            for what, where in (("binary_dir", TOOLS), ("mpirun", f"{build.ON_HOSTS}/bin/mpirun"))}  # fmt: skip
    groups = {
        "h200": {"hosts": {host: rig["hosts"][host] for host in GPUS}, "vars": {"hccl_group": ""}},
        "atlas": {"hosts": {host: rig["hosts"][host] for host in NPUS}, "vars": {**hccl, "ddp_group": "", **of_npus}},
    }
    (folder / "cluster.yml").write_text(yaml.safe_dump({"all": {"children": groups, "vars": both}}))
    return folder / "cluster.yml"


def accept(inventory: pathlib.Path, *stages: str) -> tuple[int, str, dict[str, t.Any], list[dict[str, t.Any]]]:
    """Status, output, report and verdicts of the one command."""
    argv = [str(ROOT / ".venv/bin/ansible-playbook"), "acceptance.yml", "-i", str(inventory)]
    done = subprocess.run(
        [*argv, "-e", json.dumps({"acceptance_stages": stages})], cwd=ROOT, env={**os.environ, "ANSIBLE_TIMEOUT": "20"}, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL, timeout=600,
    )  # fmt: skip
    assert list(inventory.parent.glob("results/*/report.json")), done.stdout[-3000:]
    (report,) = inventory.parent.glob("results/*/report.json")
    verdicts = [json.loads(line) for line in report.with_name("verdicts.jsonl").read_text().splitlines()]
    return done.returncode, done.stdout, json.loads(report.read_text()), verdicts


def test_one_report_over_a_mixed_fleet_that_trains(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    status, output, report, verdicts = accept(cluster(fleet, tmp_path), "stack", "train", "ddp", "hccl")
    bad = [(v["subject"]["id"], v["check"], v["reason"]) for v in verdicts if v["verdict"] not in ("PASS", "WARN", "SKIPPED")]
    assert status == 0 and report["accepted"] and not bad, (bad, output[-3000:])
    of = {(v["subject"]["id"].partition("/")[0], v["stage"]) for v in verdicts if v["verdict"] in ("PASS", "WARN")}
    assert of >= {(host, stage) for host in (*GPUS, *NPUS) for stage in ("stack", "train")}
    assert of >= {("ddp", "ddp"), ("hccl", "hccl")} | {(host, "ddp") for host in GPUS} | {(host, "hccl") for host in NPUS}
    assert of >= {(host, "hccl_local") for host in NPUS} and not of & {(host, "ddp") for host in NPUS}
    skipped = {(v["subject"]["id"], v["stage"], v["reason_code"]) for v in verdicts if v["verdict"] == "SKIPPED"}
    assert skipped == {(host, "hccl_local", "other_accelerator") for host in GPUS}


def test_whoever_forgets_that_there_are_two_kinds_is_told(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    """All in one group by default: nobody is accepted by numbers of the other half, and the report says what to write."""
    status, output, _report, verdicts = accept(cluster(fleet, tmp_path, ddp_group="all"), "stack", "ddp")
    assert status != 0 and {v["verdict"] for v in verdicts if v["subject"]["id"] == "ddp"} == {"UNKNOWN"}
    said = " ".join(output.split())
    assert "nodes with other accelerators want ddp_group: '' or a group of their own" in said, output[-3000:]
    assert "training with ddp_backend gloo: of NVIDIA GPUs or AMD GPUs only, and this node has 2 Ascend 910B3" in said
