# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stage ddp over sshd hosts: real torchrun and real PyTorch over gloo, two nodes with two ranks each, and faults that are planted."""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import signal
import subprocess
import time
import typing as t

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import ddp, nccl_group
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.agent import MARK, PLANTED
from ansible_collections.gpufleet.acceptance.plugins.modules.ddp import OPTIONS
from ansible_collections.gpufleet.acceptance.plugins.modules.nccl_fabric import OPTIONS as FABRIC
from harness import journals
from rigs import common, pytorch
from rigs.fleet.fleet import Fleet
from rigs.simulated import nodes

pytestmark = pytest.mark.fleet
ROOT = pathlib.Path(__file__).resolve().parents[2]
# Small enough for four ranks on two cores, beside other tests. A CPU's pace scatters.
SMALL = {
    "backend": "gloo", "python": pytorch.PYTHON, "elements": 4096, "rounds": 1, "types": ["int64", "float32"], "sizes": "64K:256K",
    "collectives": ["all_reduce", "all_gather", "broadcast", "all_to_all"], "iterations": 3, "warmup": 1, "fill_seconds": 0.0, "steps": 20,
    "width": 32, "batch": 32, "straggler_percent": 100.0,
}  # fmt: skip
CHECKS = ("collectives", "all_reduce", "training", "pace")
Observation = t.Dict[str, t.Any]


@pytest.fixture(scope="module")
def fleet(rig_fleet: Fleet) -> Fleet:
    common.need_packages(pytorch.PACKAGES)
    rig_fleet.up(2)
    for host in rig_fleet.hosts:  # a resolver that is not there costs ten seconds for each connection
        rig_fleet.inside(host, "sh", "-c", "echo nameserver 127.0.0.1 > /etc/resolv.conf")
    return rig_fleet


def train(fleet: Fleet, planted: dict[str, t.Any] | None = None, ipv6: bool = False, **options: t.Any) -> list[Observation]:
    """Return the answer of the head of a group that reaches its nodes by SSH: this test is the head."""
    address = fleet.address6 if ipv6 else fleet.address
    members = [{"name": host, "address": address(host), "hostname": host, "gpus": 2} for host in fleet.hosts]
    env = {PLANTED: json.dumps(planted)} if planted else {}
    wanted = {**SMALL, "members": members, "ssh_args": ["-F", str(fleet.ssh_config)], "env": env, "join_timeout": 90.0, "localise": False,
              "collective_timeout": 40.0, **options}  # fmt: skip
    validated = ArgumentSpecValidator(OPTIONS).validate(wanted)
    assert not validated.error_messages, validated.error_messages
    params = validated.validated_parameters
    params["checks"] = ddp.default_checks(params)
    return list(ddp.probe(params, Node(300)))


def of(seen: list[Observation], check: str) -> Observation:
    return next(one for one in seen if one["check"] == check)


def nothing_left(fleet: Fleet, seconds: float = 60) -> None:
    """No process of a group, and no file of one, on any host."""
    until = time.monotonic() + seconds
    while True:
        running = [" ".join(argv)[:120] for host in fleet.hosts for argv in fleet.processes(host).values() if "sshd" not in argv[0]]
        files = [line for host in fleet.hosts for line in fleet.find(host, "/tmp", "-mindepth", "1")]
        if not running and not files:
            return
        assert time.monotonic() < until, (running, files)
        time.sleep(0.3)


@pytest.mark.parametrize("ipv6", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("rendezvous", ["c10d", pytest.param("static", marks=pytest.mark.long)])
def test_a_healthy_group_trains(fleet: Fleet, rendezvous: str, ipv6: bool) -> None:
    seen = train(fleet, ipv6=ipv6, rendezvous=rendezvous, straggler_percent=1000.0)  # others may be busy on these cores
    assert {one["check"]: one["outcome"] for one in seen} == dict.fromkeys(CHECKS, "measured"), seen
    assert {(row["op"], row["wrong"]) for row in of(seen, "collectives")["series"]} == {(op, 0) for op in SMALL["collectives"]}
    rows = of(seen, "all_reduce")["series"]
    assert [row["size"] for row in rows] == [64 << 10, 256 << 10] and all(row["busbw"] > 0 for row in rows)
    trained = of(seen, "training")["context"]["training"]
    assert trained["identical"] and trained["repeatable"] and trained["ratio"] < 0.7 and not of(seen, "training")["simulated"]
    pace = of(seen, "pace")["series"]
    assert [row["rank"] for row in pace] == [0, 1, 2, 3] and {row["node"] for row in pace} == set(fleet.hosts)
    raw = of(seen, "training")["raw"]
    assert all(f"[{tag}]" in raw for tag in ("ENV", "COMPUTE", "TRAIN", "DDP", "RESULT"))
    agents = [json.loads(line) for line in raw.splitlines() if line.startswith('{"kind":"agent"')]
    assert {one["node"]: 0 < one["seconds"] <= of(seen, "training")["duration_s"] for one in agents} == dict.fromkeys(fleet.hosts, True)
    nothing_left(fleet)


# What is planted, the reason's code, and what the reason has to name.
FAULTS: list[tuple[dict[str, t.Any], str, list[str]]] = [
    ({"kind": "kill", "rank": 3}, "rank_died", ["rank 3 on gpu-02", "signal 9"]),
    ({"kind": "agent", "rank": 2}, "agent_lost", ["gpu-02"]),
    ({"kind": "agent", "rank": 0}, "agent_lost", ["gpu-01"]),
    ({"kind": "hang", "rank": 3}, "rank_hung", ["rank 3 on gpu-02", "all_reduce int64", "operation"]),
    ({"kind": "stop", "rank": 1}, "rank_hung", ["rank 1 on gpu-01", "all_reduce int64"]),
    ({"kind": "raise", "rank": 2}, "tool_failed", ["rank 2 on gpu-02", "this rank raises"]),
    ({"kind": "memory", "rank": 1}, "out_of_memory", ["rank 1 on gpu-01"]),
    ({"kind": "size", "rank": 3}, "rank_mismatch", ["elements of a tensor 4097 on rank 3 on gpu-02"]),
    ({"kind": "absent", "node": "gpu-02"}, "rendezvous", ["gpu-02 did not come"]),
    ({"kind": "version", "node": "gpu-02"}, "versions_differ", ["PyTorch is", "0.4.1 on gpu-02"]),
    ({"kind": "nnodes", "node": "gpu-02"}, "rank_mismatch", ["--nnodes is", "3 on gpu-02"]),
]


# The others say the same by other words.
SHORT = ("kill", "agent", "hang", "absent")


@pytest.mark.parametrize(
    ("planted", "code", "words"),
    [
        pytest.param(*fault, id="-".join(map(str, fault[0].values())), marks=() if fault[0]["kind"] in SHORT else pytest.mark.long)
        for fault in FAULTS
    ],
)
def test_a_fault_is_named(fleet: Fleet, planted: dict[str, t.Any], code: str, words: list[str]) -> None:
    soon = {"collective_timeout": 12.0}
    few = {"absent": {"join_timeout": 10.0}, "hang": soon, "stop": soon}.get(planted["kind"], {})
    seen = train(fleet, planted, sizes="64K:64K", steps=4, **few)
    group = [one for one in seen if one["check"] != "localise"]
    assert {(one["check"], one["reason_code"]) for one in group} == {(check, code) for check in CHECKS}, seen
    reason = of(seen, "training")["reason"]
    assert all(word in reason for word in words), reason
    assert all(one["simulated"] for one in group if MARK in (one["raw"] or ""))
    if code in ("rank_died", "rank_hung", "out_of_memory"):
        assert [one["subject"]["id"].partition("/")[0] for one in seen if one["check"] == "localise"] == [words[0].rpartition(" ")[2]]
    nothing_left(fleet)


@pytest.mark.parametrize("op", ["all_reduce", "all_to_all"])
def test_wrong_values_are_found_and_whose_they_are(fleet: Fleet, op: str) -> None:
    seen = train(fleet, {"kind": "wrong", "rank": 2, "at": op}, sizes="64K:64K", steps=4)
    assert of(seen, "collectives")["reason_code"] == "wrong_results" and op in of(seen, "collectives")["reason"]
    if op == "all_to_all":  # of a sum nobody can tell who spoilt it
        assert of(seen, "localise")["subject"]["id"] == "gpu-02/gpu/slot-0"


@pytest.mark.long
def test_the_node_that_spoils_sums_is_searched(fleet: Fleet) -> None:
    """Of a wrong sum nobody can tell who spoilt it; of smaller and smaller groups one can."""
    fleet.up(4)
    try:
        few = {"sizes": "64K:64K", "steps": 4, "repeats": 1, "gpus": "1", "collectives": ["all_reduce"], "localise": True}
        seen = train(fleet, {"kind": "wrong", "node": "gpu-03", "at": "all_reduce"}, **few)
        found = [one for one in seen if one["check"] == "localise"]
        assert of(seen, "collectives")["reason_code"] == "wrong_results"
        assert [(one["subject"]["id"], one["context"]["confidence"]) for one in found] == [("gpu-03", "convicted")], [
            (one["reason"], one["context"]["tested"]) for one in found
        ]
        nothing_left(fleet)
    finally:
        fleet.up(2)


def test_a_slow_rank_is_named(fleet: Fleet) -> None:
    seen = train(fleet, {"kind": "slow", "rank": 1}, sizes="64K:64K")
    slow = of(seen, "localise")
    assert slow["subject"]["id"] == "gpu-01/gpu/slot-1" and slow["context"]["findings"][0]["code"] == "straggler", seen
    assert {one["outcome"] for one in seen} == {"measured"}


@pytest.mark.long
def test_a_rank_that_goes_its_own_way_is_named(fleet: Fleet) -> None:
    seen = train(fleet, {"kind": "diverge", "rank": 3}, sizes="64K:64K")
    assert of(seen, "training")["reason_code"] == "wrong_results" and "after step 3" in of(seen, "training")["reason"]
    # On a busy machine another rank may be slow besides.
    found = [one for one in seen if one["check"] == "localise" and one["context"]["findings"][0]["code"] == "wrong_results"]
    assert [one["subject"]["id"] for one in found] == ["gpu-02/gpu/slot-1"], seen


def test_a_port_that_somebody_has_is_named(fleet: Fleet) -> None:
    first, *_others = fleet.hosts
    holder = f"{pytorch.PYTHON} -c 'import socket, sys; s = socket.create_server((\"\", 29500)); print(1, flush=True); sys.stdin.read()'"
    held = subprocess.Popen(["ssh", "-F", str(fleet.ssh_config), first, holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with held:
        assert held.stdin and held.stdout and held.stdout.readline() == b"1\n"
        seen = train(fleet, sizes="64K:64K", steps=4)
        held.stdin.close()
    assert {one["reason_code"] for one in seen} == {"port_in_use"} and "29500" in of(seen, "training")["reason"], seen


def test_bandwidth_between_nodes_without_nccl_tests(fleet: Fleet) -> None:
    """Stage nccl_fabric with nccl_fabric_tool: torch. gloo by the check's own words, as there is no GPU."""
    members = [{"name": host, "address": fleet.address(host), "hostname": host, "gpus": 1} for host in fleet.hosts]
    wanted = {"members": members, "ssh_args": ["-F", str(fleet.ssh_config)], "tool": "torch", "python": pytorch.PYTHON, "iterations": 3}
    params = ArgumentSpecValidator(FABRIC).validate(wanted).validated_parameters
    params["checks"] = [{"check": "all_reduce", "variant": "backend=gloo gpus=all sizes=64K:128K type=float"}]
    (seen,) = nccl_group.probe(params, Node(200))
    assert seen["outcome"] == "measured" and [row["size"] for row in seen["series"]] == [64 << 10, 128 << 10], seen["reason"]
    assert seen["context"]["hosts"] == dict.fromkeys(fleet.hosts, 1) and seen["metrics"]["busbw"]["value"] > 0
    nothing_left(fleet)


def command(fleet: Fleet, results: pathlib.Path, *more: str, playbook: str = "acceptance.yml", **changes: t.Any) -> list[str]:
    """A run of the stage over hosts that are planted as nodes with two GPUs."""
    for number, host in enumerate(fleet.hosts, 1):
        nodes.planted(fleet.plant(host), number, gpus=2)
    expected = {"id": "gloo", "match": {"stage": "ddp", "check": "all_reduce", "size": 256 << 10}, "metric": "busbw", "value": 0.0001,
                "unit": "GB/s", "source": "test", "date": "2026-11", "confidence": "measured"}  # fmt: skip
    variables = {
        "acceptance_results_dir": str(results), "acceptance_stages": ["ddp"], "acceptance_simulated": True,
        "acceptance_fabric_address": "{{ ansible_host }}", "acceptance_expectations": [expected], **nodes.tools_at("/opt/simulated/bin"),
        **{f"ddp_{name}": value for name, value in SMALL.items()}, "ddp_straggler_percent": 1000.0,  # others may be busy on these cores
        **changes,
    }  # fmt: skip
    return [str(ROOT / ".venv/bin/ansible-playbook"), playbook, "-i", str(fleet.inventory), "-e", json.dumps(variables), *more]


Records = t.List[t.Dict[str, t.Any]]


def run(fleet: Fleet, results: pathlib.Path, *more: str, playbook: str = "acceptance.yml", **changes: t.Any) -> tuple[Records, Records]:
    """Verdicts and journal of a run that is accepted."""
    done = subprocess.run(
        command(fleet, results, *more, playbook=playbook, **changes), cwd=ROOT, env={**os.environ, "ANSIBLE_TIMEOUT": "20"}, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip
    plans = list(results.glob("*/plan.json"))
    assert len(plans) == 1 and done.returncode == 0, done.stdout[-3000:]
    verdicts = [json.loads(line) for line in (plans[0].parent / "verdicts.jsonl").read_text().splitlines()]
    journal = journals.of(plans[0].parent)
    assert {v["verdict"] for v in verdicts} == {"PASS"}, done.stdout[-3000:]
    return verdicts, journal


def test_a_run_of_the_stage(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    verdicts, _journal = run(fleet, tmp_path, ddp_results_dir="/root/reports")
    assert {v["check"] for v in verdicts} == {*CHECKS, "member"}
    left = json.loads(fleet.inside(fleet.hosts[0], "cat", "/root/reports/ddp_tests_result.json"))
    assert left["ok"] and left["world"] == 4
    fleet.inside(fleet.hosts[0], "rm", "-r", "/root/reports")
    nothing_left(fleet)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "rank", "words"),
    [
        ("hang", 3, ["rank 3 on gpu-02 did not come to all_reduce int64", ", at break_here ("]),
        ("stop", 1, ["rank 1 on gpu-01 is stopped (state T)"]),
    ],
)
def test_a_hang_in_a_run_is_looked_at_before_it_is_ended(
    fleet: Fleet, tmp_path: pathlib.Path, kind: str, rank: int, words: list[str]
) -> None:
    planted = {"ddp_env": {PLANTED: json.dumps({"kind": kind, "rank": rank})}, "ddp_collective_timeout": 20, "ddp_localise": True}
    done = subprocess.run(
        command(fleet, tmp_path, **planted), cwd=ROOT, env={**os.environ, "ANSIBLE_TIMEOUT": "20"}, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip
    (plan,) = tmp_path.glob("*/plan.json")
    journal = journals.of(plan.parent)
    group = next(one for one in journal if one["check"] == "all_reduce")
    assert done.returncode != 0 and group["reason_code"] == "rank_hung", group["reason"]
    assert all(word in group["reason"] for word in words), group["reason"]
    assert group["context"]["hang"]["ranks"] == 4 and group["context"]["hang"]["silent"] == [], group["context"]["hang"]
    (found,) = [one for one in journal if one["check"] == "localise"]
    node = rank // 2 + 1
    assert found["subject"]["id"] == f"gpu-0{node}/gpu/GPU-{node:08}-0000-4000-8000-{rank % 2:012}" and words[-1] in found["reason"]
    raw = gzip.decompress((plan.parent / "raw" / "gpu-01.txt.gz").read_bytes()).decode()  # of the head: the group's and the finding's
    assert "evidence of the hang" in raw and raw.count('{"kind":"hang"') == 2 * 2 and ('"state":"T"' in raw) == (kind == "stop")
    nothing_left(fleet)


@pytest.mark.long
def test_a_node_that_freezes_in_the_midst_of_a_run_is_named(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    """As a guest that is paused: its connections stay, and it says nothing on any."""
    running = subprocess.Popen(
        command(fleet, tmp_path, ddp_steps=1000000, ddp_collective_timeout=20), cwd=ROOT, env={**os.environ, "ANSIBLE_TIMEOUT": "20"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    until = time.monotonic() + 200
    while sum("ddp.py" in " ".join(argv) for argv in fleet.processes("gpu-02").values()) < 2:
        assert running.poll() is None and time.monotonic() < until
        time.sleep(0.3)
    time.sleep(15)
    fleet.freeze("gpu-02")
    try:
        output, _nothing = running.communicate(timeout=400)
    finally:
        fleet.thaw("gpu-02")
    (plan,) = tmp_path.glob("*/plan.json")
    group = next(one for one in journals.of(plan.parent) if one["check"] == "training")
    assert running.returncode != 0 and group["reason_code"] in ("rank_hung", "lost_node"), (group["reason"], output[-3000:])
    assert group["reason"].startswith("gpu-02 "), group["reason"]
    nothing_left(fleet, 150)


def test_what_the_head_had_finished_is_taken_after_kill_9(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    """Of two launches the first is done when the controller is killed: the resume gives what it gave, and measures the other."""
    twice = {"ddp_gpus": [1, 2]}
    running = subprocess.Popen(
        command(fleet, tmp_path, **twice), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 240
    while (text := said(fleet, fleet.hosts[0])).count('{"memo"') < len(CHECKS):
        assert running.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    finished = [one["memo"]["observations"] for one in map(json.loads, text.splitlines()) if "memo" in one]
    assert [[one["check"] for one in of] for of in finished] == [[check] for check in CHECKS]
    run_id = next(tmp_path.glob("*/plan.json")).parent.name
    _verdicts, journal = run(fleet, tmp_path, "-e", f"run_id={run_id}", playbook="playbooks/resume.yml", **twice)
    group = {(m["check"], m["variant"]): m for m in journal if m["subject"]["kind"] == "group"}
    assert len(group) == 2 * len(CHECKS) and {m["attempt"] for m in journal} == {1}
    for (before,) in finished:
        taken = group.pop((before["check"], before["variant"]))
        assert all(taken[key] == before[key] for key in ("started_at", "duration_s", "series"))
    assert {m["variant"].split()[1] for m in group.values()} == {"gpus=2"}
    assert min(m["started_at"] for m in group.values()) > finished[0][0]["started_at"]
    nothing_left(fleet)


def said(fleet: Fleet, host: str) -> str:
    """Return the output of a host's session of the stage."""
    found = list(fleet.var_lib(host).glob("gpufleet-acceptance/*/ddp.jsonl"))
    try:
        return found[0].read_text() if found else ""
    except FileNotFoundError:
        return ""
