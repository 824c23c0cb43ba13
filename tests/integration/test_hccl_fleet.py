# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stages stack, hccl_local and hccl over sshd hosts: real MPICH and real SSH between the hosts; NPUs and hccl_test are simulated."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import baseline
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import measurement_of
from harness import journals
from rigs import common
from rigs.fleet.fleet import Fleet
from rigs.simulated import nodes
from rigs.simulated.mpi import build

pytestmark = pytest.mark.fleet
ROOT = pathlib.Path(__file__).resolve().parents[2]
# Three nodes with NPUs and one with GPUs.
HOSTS = 4
GPUS = "gpu-04"
NPUS = 2
TOOLS = "/opt/simulated/bin"
SMI = {
    "acceptance_npu_smi": f"{{{{ 'npu-smi' if inventory_hostname == '{GPUS}' else '{TOOLS}/npu-smi' }}}}",
    "acceptance_nvidia_smi": f"{{{{ '{TOOLS}/nvidia-smi' if inventory_hostname == '{GPUS}' else 'nvidia-smi' }}}}",
}
EXPECTED = [
    {"id": f"test-{stage}", "match": {"stage": stage, "check": "all_reduce", "gpu": "Ascend 910B3", "size": 64 << 20}, "metric": "busbw",
     "value": 158, "unit": "GB/s", "source": "test", "date": "2026-11", "confidence": "measured"}
    for stage in ("hccl_local", "hccl")
]  # fmt: skip


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return build.hccl_test(tmp_path_factory.mktemp("hccl"), str(build.mpich() / "bin/mpicc"))


@pytest.fixture(scope="module")
def fleet(rig_fleet: Fleet) -> t.Iterator[Fleet]:
    rig_fleet.up(HOSTS)
    yield rig_fleet
    for host in rig_fleet.hosts:  # who comes next on these hosts needs no MPICH
        shutil.rmtree(rig_fleet.plant(host) / "mpich", ignore_errors=True)


@pytest.fixture
def npus(fleet: Fleet, tool: pathlib.Path) -> t.Iterator[Fleet]:
    build.plant_npus(fleet, tool, gpus=NPUS)
    nodes.planted(fleet.plant(GPUS), 4)
    yield fleet
    nothing_left(fleet)


def nothing_left(fleet: Fleet) -> None:
    end = time.monotonic() + 60
    while found := [argv for host in fleet.hosts for argv in fleet.processes(host).values() if {"_test", "hydra", "mpirun"} & words(argv)]:
        assert time.monotonic() < end, found
        time.sleep(0.3)


def words(argv: list[str]) -> set[str]:
    line = " ".join(argv)
    return {word for word in ("_test", "hydra", "mpirun") if word in line}


def behave(fleet: Fleet, host: str, **settings: t.Any) -> None:
    (fleet.plant(host) / "hccl.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


# The probe by itself, over two hosts ---------------------------------------------------------------------------------


def ask(fleet: Fleet, **changes: t.Any) -> dict[str, t.Any]:
    """Return the module's answer about the first two hosts, by the SSH that they have."""
    members = [
        {"name": host, "address": fleet.address(host), "hostname": host, "gpus": NPUS, "local": host == "gpu-01"}
        for host in ("gpu-01", "gpu-02")
    ]
    args = {
        "members": members, "checks": [{"check": "all_reduce", "variant": "gpus=all sizes=8K:64M type=fp32"}], "binary_dir": TOOLS,
        "mpirun": f"{build.ON_HOSTS}/bin/mpirun", "test_timeout": 60.0, "timeout": 120.0, "localise": False, **changes,
    }  # fmt: skip
    program = payload.program(payload.request("hccl", payload.options("hccl"), args))
    done = subprocess.run(fleet.ssh("gpu-01", "/usr/bin/python3", "-"), input=program, capture_output=True, check=False, timeout=200)
    (found,) = json.loads(done.stdout.decode() or done.stderr.decode())["observations"]
    return t.cast("dict[str, t.Any]", found)


def test_a_whole_table_over_two_hosts(npus: Fleet) -> None:
    found = ask(npus)
    assert found["outcome"] == "measured", found["reason"]
    assert found["context"]["hosts"] == {"gpu-01": 2, "gpu-02": 2} and found["context"]["launcher"] == "Hydra 4.3.2"
    assert [row["size"] for row in found["series"]] == [8192 << n for n in range(14)]
    assert found["metrics"]["busbw"]["value"] == pytest.approx(159, rel=0.01)
    assert " ".join(found["command"]).endswith("/all_reduce_test -p 2 -b 8K -e 64M -f 2 -d fp32 -o sum -n 20 -w 5")


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        ({"exit": 3}, "rank_died", "rank 2 on gpu-02 ended with status 3"),
        ({"kill": 1}, "rank_died", "rank 2 on gpu-02 was killed (status 137)"),
        ({"wrong": 1}, "wrong_results", "local rank_id 0, check result failed"),
    ],
)
def test_a_rank_that_fails_is_named_at_once(npus: Fleet, fault: dict[str, int], code: str, said: str) -> None:
    behave(npus, "gpu-02", **fault)
    found = ask(npus)
    assert (found["outcome"], found["reason_code"]) == ("error", code) and said in found["reason"], found["reason"]


def test_a_rank_that_leaves_the_others_waiting_is_named(npus: Fleet) -> None:
    """Hydra sees it and ends the others, or one of those crashes at the lost connection, or nobody sees it until the deadline."""
    behave(npus, "gpu-02", leave=1)
    found = ask(npus, test_timeout=8.0)
    assert found["reason_code"] == "rank_died", found["reason"]
    assert found["reason"].startswith("rank 2 on gpu-02 ended with status 0 before") or "wait for them: 2 on gpu-02" in found["reason"]


def test_a_program_that_one_node_lacks_is_named(npus: Fleet) -> None:
    (npus.plant("gpu-02") / "bin/all_reduce_test").unlink()
    found = ask(npus)
    assert found["reason_code"] == "tool_missing" and found["reason"].startswith("gpu-02 does not have"), found["reason"]


def test_a_launcher_of_another_library_is_named(npus: Fleet, tmp_path: pathlib.Path) -> None:
    """MPICH's mpirun starts a program of Open MPI as four that run alone, each with a fine table, and ends with status 0."""
    common.need_packages(build.PACKAGES["openmpi"])
    other = build.hccl_test(tmp_path, "mpicc.openmpi")
    for host in ("gpu-01", "gpu-02"):
        shutil.copy(other, npus.plant(host) / "bin/all_reduce_test")
    found = ask(npus)
    assert (found["outcome"], found["reason_code"]) == ("error", "not_mpi"), found["reason"]


# Whole runs ----------------------------------------------------------------------------------------------------------


def run(fleet: Fleet, results: pathlib.Path, **changes: t.Any) -> tuple[str, list[dict[str, t.Any]], list[dict[str, t.Any]]]:
    """Return the output of the playbook, the verdicts and the journal."""
    variables = {
        "acceptance_results_dir": str(results), "acceptance_stages": ["stack", "hccl"], "acceptance_simulated": True, **SMI,
        "acceptance_expectations": EXPECTED, "acceptance_fabric_address": "{{ ansible_host }}", "stack_python": f"{TOOLS}/python3",
        "hccl_group": f"{{{{ '' if inventory_hostname == '{GPUS}' else 'all' }}}}", "hccl_join_timeout": 60,
        **{f"{stage}_binary_dir": TOOLS for stage in ("hccl", "hccl_local")},
        **{f"{stage}_mpirun": f"{build.ON_HOSTS}/bin/mpirun" for stage in ("hccl", "hccl_local")},
        "hccl_test_timeout": 60, "hccl_timeout": 300, "hccl_repeats": 1, **changes,
    }  # fmt: skip
    argv = [str(ROOT / ".venv/bin/ansible-playbook"), "acceptance.yml", "-i", str(fleet.inventory), "-f", "8", "-e", json.dumps(variables)]
    done = subprocess.run(
        argv, cwd=ROOT, env={**os.environ, "ANSIBLE_TIMEOUT": "20"}, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, stdin=subprocess.DEVNULL, timeout=400,
    )  # fmt: skip
    plans = list(results.glob("*/plan.json"))
    assert plans and "Traceback" not in done.stdout, done.stdout[-3000:]
    verdicts = [json.loads(line) for line in (plans[0].parent / "verdicts.jsonl").read_text().splitlines()]
    return f"status {done.returncode}\n{done.stdout}", verdicts, journals.of(plans[0].parent)


def test_one_report_over_a_mixed_fleet(npus: Fleet, tmp_path: pathlib.Path) -> None:
    output, verdicts, journal = run(npus, tmp_path)
    hccl = {(v["stage"], v["subject"]["id"]): v["verdict"] for v in verdicts if v["stage"] != "stack"}
    nodes_with = ("gpu-01", "gpu-02", "gpu-03")
    assert hccl[("hccl", "hccl")] == "PASS" and {hccl[("hccl_local", host)] for host in nodes_with} == {"PASS"}, output[-3000:]
    assert hccl[("hccl_local", GPUS)] == "SKIPPED" and ("hccl", GPUS) not in hccl
    facts = {m["subject"]["id"]: m["context"]["facts"] for m in journal if m["check"] == "facts"}
    assert facts["gpu-01"]["gpu"] == "Ascend 910B3" and facts[GPUS]["gpu"] == "NVIDIA H200" and facts["gpu-01"]["driver"] == "25.5.1"
    assert output.startswith("status 0\n"), output[-3000:]
    assert all(m["simulated"] for m in journal)


@pytest.mark.long
def test_a_slow_node_is_convicted_by_name(npus: Fleet, tmp_path: pathlib.Path) -> None:
    behave(npus, "gpu-03", slow=0.5)
    output, verdicts, _journal = run(npus, tmp_path, acceptance_stages=["hccl"])
    assert not output.startswith("status 0\n")
    assert {v["subject"]["id"] for v in verdicts if v["check"] == "localise" and v["verdict"] == "FAIL"} == {"gpu-03"}, output[-3000:]
    assert {v["verdict"] for v in verdicts if v["stage"] == "hccl_local" and v["subject"]["id"] == "gpu-03"} == {"FAIL"}


def test_without_an_expectation_nothing_is_accepted_and_one_is_proposed(npus: Fleet, tmp_path: pathlib.Path) -> None:
    _output, verdicts, journal = run(npus, tmp_path, acceptance_stages=["hccl"], acceptance_expectations=[], hccl_ops=["all_gather"])
    found = {v["subject"]["id"]: (v["verdict"], v["reason_code"]) for v in verdicts if v["check"] in ("all_reduce", "all_gather")}
    assert {found[host] for host in ("gpu-01", "gpu-02", "hccl")} == {("UNKNOWN", "no_expectation")}
    measured = [measurement_of({name: value for name, value in m.items() if name != "chain"}) for m in journal]
    (entry,) = baseline.propose(measured, "r", "2026-11-22").entries
    match = {"stage": "hccl", "check": "all_gather", "gpu": "Ascend 910B3", "gpus": NPUS, "nodes": 3, "size": 64 << 20}
    assert match.items() <= entry["match"].items() and entry["value"] == pytest.approx(159, 0.01)
