# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stage nccl_fabric over sshd hosts: real mpirun, real SSH between the hosts, a real MPI program that stands in for nccl-tests."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import time
import typing as t

import pytest
from rigs.fleet.fleet import Fleet
from rigs.simulated import nodes
from rigs.simulated.mpi import build

pytestmark = pytest.mark.fleet
HOSTS = 6
ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = ("all_reduce_perf", "mpirun", "orted", "hydra", "nvidia-smi", "python3", "flock", "sleep")
EXPECTED = {
    "id": "test-fabric", "match": {"stage": "nccl_fabric", "check": "all_reduce", "gpus": 2, "size": 1073741824}, "metric": "busbw",
    "value": 375, "unit": "GB/s", "source": "test", "date": "2026-11", "confidence": "measured",
}  # fmt: skip


class Done(t.NamedTuple):
    status: int
    output: str
    folder: pathlib.Path
    verdicts: list[dict[str, t.Any]]
    journal: list[dict[str, t.Any]]

    def of(self, subject: str, check: str = "") -> set[str]:
        return {v["verdict"] for v in self.verdicts if v["subject"]["id"] == subject and check in ("", v["check"])}

    def reason(self, subject: str, check: str = "") -> str:
        return "; ".join(v["reason"] for v in self.verdicts if v["subject"]["id"] == subject and check in ("", v["check"]))

    def convicted(self) -> set[str]:
        return {v["subject"]["id"] for v in self.verdicts if v["check"] == "localise" and v["verdict"] == "FAIL"}

    def group(self) -> dict[str, t.Any]:
        return next(m for m in self.journal if m["subject"]["id"] == "nccl_fabric" and m["check"] == "all_reduce")

    def raw(self) -> str:
        return (self.folder / self.group()["raw"]).read_text()


@pytest.fixture(scope="module")
def openmpi(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return build.build("openmpi", tmp_path_factory.mktemp("mpi"))


@pytest.fixture(scope="module")
def fleet(rig_fleet: Fleet, openmpi: pathlib.Path) -> Fleet:
    rig_fleet.up(HOSTS)
    return rig_fleet


@pytest.fixture
def healthy(fleet: Fleet, openmpi: pathlib.Path) -> t.Iterator[Fleet]:
    build.plant(fleet, openmpi)
    yield fleet
    nothing_left(fleet)


def command(fleet: Fleet, results: pathlib.Path, *more: str, playbook: str = "acceptance.yml", **changes: t.Any) -> list[str]:
    variables = {
        "acceptance_results_dir": str(results),
        "acceptance_stages": ["nccl_fabric"],
        "acceptance_simulated": True,
        "acceptance_fabric_address": "{{ ansible_host }}",
        "acceptance_expectations": [EXPECTED],
        "nccl_fabric_gpus": [2],
        "nccl_fabric_sizes": ["256M:1G"],
        "nccl_fabric_binary_dir": "/opt/simulated/bin",
        "nccl_fabric_binary_suffix": "_mpi",
        "nccl_fabric_mpirun": "/usr/bin/mpirun.openmpi",
        "nccl_fabric_mpi_args": ["--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0"],
        "nccl_fabric_join_timeout": 20,
        "nccl_fabric_test_timeout": 30,
        "nccl_fabric_timeout": 400,
        "nccl_fabric_repeats": 1,
        **nodes.tools_at("/opt/simulated/bin"),
        **changes,
    }
    binary = str(ROOT / ".venv/bin/ansible-playbook")
    return [binary, playbook, "-i", str(fleet.inventory), "-f", "16", "-e", json.dumps(variables), *more]


def run(fleet: Fleet, results: pathlib.Path, *more: str, **changes: t.Any) -> Done:
    done = subprocess.run(
        command(fleet, results, *more, **changes), cwd=ROOT, env={**os.environ, "ANSIBLE_TIMEOUT": "5"}, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL, timeout=500,
    )  # fmt: skip
    return finish(results, done.returncode, done.stdout)


def finish(results: pathlib.Path, status: int, output: str) -> Done:
    plans = sorted(results.glob("*/plan.json"))
    assert plans and "Traceback" not in output, output[-3000:]
    folder = plans[-1].parent
    lines = [(folder / name).read_text().splitlines() for name in ("verdicts.jsonl", "journal.jsonl")]
    return Done(status, output, folder, *([json.loads(line) for line in each] for each in lines))


def left(fleet: Fleet) -> list[str]:
    found = []
    for host in fleet.hosts:
        for argv in fleet.processes(host).values():
            line = " ".join(argv)
            if any(word in line for word in OURS) and "mkfifo" not in line:
                found.append(f"{host}: {line[:100]}")
        listed = fleet.inside(host, "find", "/tmp", "/dev/shm", "/root", "-mindepth", "1", "-not", "-path", "/root/.ansible*")
        found += [f"{host}: {line}" for line in listed.split() if line not in KEPT]
        found += [f"{host}: {path.name}" for path in fleet.var_lib(host).glob("gpufleet-acceptance")]
        keys = fleet.inside(host, "cat", "/root/.ssh/authorized_keys")
        if "gpufleet" in keys:
            found.append(f"{host}: a key of ours")
    return found


KEPT = {f"/root/.ssh{name}" for name in ("", "/id_ed25519", "/id_ed25519.pub", "/authorized_keys", "/known_hosts")}


def nothing_left(fleet: Fleet, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while found := left(fleet):
        if time.monotonic() > end:
            assert not found
        time.sleep(0.5)


def test_a_healthy_group_is_accepted(healthy: Fleet, tmp_path: pathlib.Path) -> None:
    done = run(healthy, tmp_path)
    assert done.status == 0, done.output[-3000:]
    assert done.of("nccl_fabric") == {"PASS"} and not done.convicted()
    assert all(done.of(host) == {"PASS"} for host in healthy.hosts), done.output[-3000:]
    group = done.group()
    assert group["subject"]["members"] == healthy.hosts and group["simulated"]
    assert group["context"]["hosts"] == dict.fromkeys(healthy.hosts, 2)
    assert group["context"]["world_size"] == 12 and group["context"]["launcher"].startswith("Open MPI 4")
    assert [row["size"] for row in group["series"]] == [256 << 20, 512 << 20, 1 << 30]
    assert not [line for line in done.output.splitlines() if "PRIVATE KEY" in line]
