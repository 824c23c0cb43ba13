# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""acceptance.yml over real sshd hosts with simulated GPU tools: what is accepted, what is measured, what is refused."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import subprocess
import xml.etree.ElementTree as ET

import jsonschema
import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import measurement
from harness.fleet_runs import ROOT, Acceptance, Done, run_folder

pytestmark = pytest.mark.fleet
VERDICT = jsonschema.Draft202012Validator(measurement.schema("verdict-v1"))
GOOD = [f"gpu-{number:02d}" for number in range(1, 17)]
DISK = {
    "id": "disk-read", "match": {"stage": "disk", "check": "read"}, "metric": "bandwidth", "value": 5000, "unit": "MiB/s",
    "source": "test", "date": "2026-11", "confidence": "vendor",
}  # fmt: skip


def test_sixteen_healthy_hosts_are_accepted_and_left_as_they_were(healthy: Acceptance) -> None:
    done = healthy.run(GOOD)
    assert done.status == 0, done.output[-3000:]
    assert done.folder and all(done.good(host) for host in GOOD)
    planned = json.loads((done.folder / "plan.json").read_text())["items"]
    judged = {(v["stage"], v["check"], v["variant"], v["subject"]["id"]) for v in done.verdicts}
    assert planned and {(i["stage"], i["check"], i["variant"], i["subject"]["id"]) for i in planned} <= judged
    assert all(v["simulated"] for v in done.verdicts) and all(not list(VERDICT.iter_errors(v)) for v in done.verdicts)
    assert all(measurement.problem(m) is None for m in done.journal)
    assert "PARTIAL" not in done.output
    healthy.nothing_left(*GOOD)


# Faults --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def faulty(acceptance: Acceptance) -> Done:
    """One run over many kinds of trouble, two good hosts among them."""
    for host in acceptance.fleet.hosts:
        acceptance.plant(host)
    acceptance.plant("gpu-03", FAULTS="nccl_hang")
    acceptance.plant("gpu-04", FAULTS="gemm_slow=0.8")
    acceptance.plant("gpu-05", FAULTS="torch_missing")
    (acceptance.fleet.plant("gpu-07") / "bin/all_reduce_perf").chmod(0o644)
    variables = {"gpu-03": {"nccl_node_test_timeout": 6}, "gpu-06": {"nccl_node_binary_dir": "/nonexistent"}, "gpu-08": {"ansible_port": 9}}
    hosts = [*GOOD[:8], "gpu-17", "gpu-18"]
    return acceptance.run(hosts, variables=variables)


def test_the_recap_names_who_is_not_accepted(faulty: Done) -> None:
    """Lost hosts and hosts with a slow GPU alike; the first of them is healthy."""
    recap = faulty.output.partition("PLAY RECAP")[2]
    failed = {line.split()[0] for line in recap.splitlines() if "failed=1" in line}
    assert failed == {"gpu-03", "gpu-04", "gpu-05", "gpu-06", "gpu-07", "gpu-08", "gpu-17", "gpu-18"}
    assert recap.count("failed=0") == 2


@pytest.mark.parametrize(
    ("host", "code", "words"),
    [
        ("gpu-03", "timeout", "6 s"),
        ("gpu-06", "tool_missing", "/nonexistent/all_reduce_perf"),
        ("gpu-07", "tool_not_executable", "not executable"),
        ("gpu-05", "torch_missing", "PyTorch"),
        ("gpu-08", "unreachable", "gpu-08 cannot be reached"),
        ("gpu-17", "no_python", "install python3 or set ansible_python_interpreter"),
        ("gpu-18", "disk_full", "No space left"),
    ],
)
def test_what_keeps_a_host_from_being_measured_is_named(faulty: Done, host: str, code: str, words: str) -> None:
    assert faulty.status != 0 and "UNKNOWN" in faulty.of(host)
    said = [v["reason"] for v in faulty.on(host) if v["reason_code"] == code]
    assert said and all(words in reason for reason in said), faulty.on(host)


def test_a_host_in_trouble_is_nobody_elses(faulty: Done, acceptance: Acceptance) -> None:
    assert faulty.good("gpu-01") and faulty.good("gpu-02"), faulty.output[-3000:]
    assert "FAIL" in faulty.of("gpu-04", "gemm") and "FAIL" not in faulty.of("gpu-04", "nccl_node")
    acceptance.nothing_left(*GOOD[:8], "gpu-17", "gpu-18")


def test_a_host_that_never_answered_is_connected_to_once(faulty: Done) -> None:
    reasons = {m["reason"] for m in faulty.journal if m["target"] == "gpu-08"}
    assert len(reasons) == 1 and {m["stage"] for m in faulty.journal if m["target"] == "gpu-08"} == {
        "stack", "host_health", "gpu_memory", "nic_loopback", "nccl_node", "gemm", "train", "host_health_after",
    }  # fmt: skip


def test_junit_lists_every_verdict(faulty: Done) -> None:
    assert faulty.folder
    suite = ET.parse(faulty.folder / "report.junit.xml").getroot()
    cases = list(suite.iter("testcase"))
    # The whole run is a case too.
    assert len(cases) == len({(c.get("classname"), c.get("name")) for c in cases}) == len(faulty.verdicts) + 1
    bad = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    assert len(bad) == len([v for v in faulty.verdicts if v["verdict"] in ("FAIL", "UNKNOWN")]) + 1


# Which stages --------------------------------------------------------------------------------------------------------


def test_skip_tags_leaves_a_stage_out_and_says_so(healthy: Acceptance) -> None:
    done = healthy.run(GOOD[:2], "--skip-tags", "nccl_node")
    stages = {"stack", "host_health", "gpu_memory", "nic_loopback", "gemm", "train", "host_health_after"}
    assert done.status == 0 and {v["stage"] for v in done.verdicts} == stages
    assert "PARTIAL" in done.output and "nccl_node" in done.output.split("PARTIAL", 1)[1].splitlines()[0]
    assert done.folder and "PARTIAL" in (done.folder / "report.md").read_text()


def test_limit_leaves_hosts_out_and_says_so(healthy: Acceptance) -> None:
    done = healthy.run(GOOD[:3], "--limit", "gpu-01", "--tags", "gemm")
    assert done.status == 0 and {v["subject"]["id"].split("/")[0] for v in done.verdicts} == {"gpu-01"}
    assert "PARTIAL" in done.output and "gpu-02, gpu-03" in done.output


def own_stage(folder: pathlib.Path) -> list[str]:
    """A team's role disk below `folder`; the arguments that name it as a stage beside gemm."""
    role = folder / "roles/disk"
    (role / "defaults").mkdir(parents=True)
    (role / "tasks").mkdir()
    (role / "defaults/main.yml").write_text(yaml.safe_dump({"disk_checks": [{"check": "read", "variant": "size=1G"}]}))
    task = {
        "name": "Measure",
        "gpufleet.acceptance.measure": {
            "checks": "{{ disk_checks }}",
            "argv": ["echo", "bw=5100MiB/s"],
            "metrics": [{"name": "bandwidth", "unit": "MiB/s", "regex": "bw=([0-9]+)MiB/s"}],
        },
    }
    (role / "tasks/main.yml").write_text(yaml.safe_dump([task]))
    stages = ["gemm", {"name": "disk", "role": "disk"}]
    return ["-e", json.dumps({"acceptance_stages": stages, "acceptance_expectations": [DISK]})]


def test_tags_choose_a_stage_of_ones_own(healthy: Acceptance, tmp_path: pathlib.Path) -> None:
    environment = {"ANSIBLE_ROLES_PATH": str(tmp_path / "roles")}
    done = healthy.run(GOOD[:2], *own_stage(tmp_path), "--tags", "disk", environment=environment)
    assert done.status == 0, done.output[-3000:]
    assert {(v["stage"], v["verdict"]) for v in done.verdicts} == {("disk", "PASS")} and len(done.verdicts) == 2
    assert "PARTIAL" in done.output


def test_installed_collection_with_a_stage_of_ones_own(healthy: Acceptance, tmp_path: pathlib.Path) -> None:
    galaxy = str(ROOT / ".venv/bin/ansible-galaxy")
    subprocess.run([galaxy, "collection", "build", "--output-path", tmp_path], cwd=ROOT, check=True, capture_output=True)
    archive = next(tmp_path.glob("gpufleet-acceptance-*.tar.gz"))
    # The checkout on Python's path would count as installed already.
    bare = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    install = [galaxy, "collection", "install", archive, "-p", tmp_path / "here", "--no-deps"]
    subprocess.run(install, cwd=tmp_path, env=bare, check=True, capture_output=True)
    (tmp_path / "ansible.cfg").write_text("[defaults]\n")
    (tmp_path / "work").mkdir()
    environment = {
        "PYTHONPATH": "", "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "here"), "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
        "ANSIBLE_ROLES_PATH": str(tmp_path / "work/roles"),
    }  # fmt: skip
    done = healthy.run(
        GOOD[:1], *own_stage(tmp_path / "work"), playbook="gpufleet.acceptance.acceptance", environment=environment, cwd=tmp_path / "work"
    )
    assert done.status == 0, done.output[-3000:]
    assert {(v["stage"], v["verdict"]) for v in done.verdicts} == {("gemm", "PASS"), ("disk", "PASS")}


def test_the_strategy_of_the_environment_does_not_matter(healthy: Acceptance) -> None:
    healthy.plant("gpu-02", FAULTS="nccl_wrong")
    done = healthy.run(GOOD[:3], environment={"ANSIBLE_STRATEGY": "free"})
    assert done.status != 0 and done.good("gpu-01") and done.good("gpu-03") and "FAIL" in done.of("gpu-02")
    order = [m["stage"] for m in done.journal]
    # No host is ahead of the others.
    stages = ["stack", "host_health", "gpu_memory", "nic_loopback", "nccl_node", "gemm", "train", "host_health_after"]
    assert order == sorted(order, key=stages.index)


def test_more_hosts_than_forks_all_run_at_once(healthy: Acceptance) -> None:
    variables = healthy.gate(*GOOD[:5])
    command = healthy.command(GOOD[:5], "-f", "2", "--tags", "nccl_node", variables=variables)
    running = healthy.start(command)
    healthy.at_gate(running, *GOOD[:5])  # with two forks: none of the five has ended yet
    healthy.open(*GOOD[:5])
    done = healthy.end(command, running)
    assert done.status == 0 and len(done.verdicts) == 5, done.output[-3000:]
    healthy.nothing_left(*GOOD[:5])


# Ways to a host ------------------------------------------------------------------------------------------------------


def test_through_a_jump_host(healthy: Acceptance) -> None:
    fleet = healthy.fleet
    through = f"-F {fleet.ssh_config} -o ProxyJump=gpu-01 -o ControlPath=none"  # or an open direct connection would be used
    done = healthy.run(["gpu-02"], variables={"gpu-02": {"ansible_ssh_common_args": through}})
    assert done.status == 0 and done.good("gpu-02"), done.output[-3000:]
    assert f" from {fleet.address('gpu-01')} " in "".join(healthy.logins("gpu-02"))
    healthy.nothing_left("gpu-01", "gpu-02")


def test_a_login_without_sudo(healthy: Acceptance) -> None:
    tester = {"ansible_user": "tester"}
    done = healthy.run(["gpu-01", "gpu-16"], variables={"gpu-01": tester, "gpu-16": tester})
    assert done.status != 0 and done.good("gpu-01")
    assert done.of("gpu-16") == {"UNKNOWN"} and done.codes("gpu-16") == {"no_sudo"}
    reasons = {v["reason"] for v in done.on("gpu-16")}
    assert len(reasons) == 1 and "acceptance_become=false" in reasons.pop()
    healthy.nothing_left("gpu-01", "gpu-16")


def test_without_root_the_rest_is_measured_and_the_blind_spots_named(healthy: Acceptance) -> None:
    done = healthy.run(["gpu-16"], variables={"gpu-16": {"ansible_user": "tester", "acceptance_become": False}})
    assert done.status == 0 and done.good("gpu-16"), done.output[-3000:]
    unreadable = {word for m in done.journal for word in m["evidence"].get("unreadable", [])}
    assert "xid" in unreadable
    healthy.nothing_left("gpu-16")


# What is never accepted ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--tags", "nope"), "no stage is left"),
        (("--skip-tags", "stack,host_health,gpu_memory,nic_loopback,nccl_node,gemm,train,host_health_after"), "no stage is left"),
        (("--skip-tags", "always"), "would skip the plan and the verdict"),
        (("--start-at-task", "x"), "choose stages with --tags"),
        (("-e", "acceptance_hosts=nobody"), "matches 'nobody': nothing to accept"),
        (("--limit", "nobody"), "no hosts to target"),
        (("-e", '{"acceptance_stages": ["gem"]}'), "unknown stage"),
        (("-e", '{"acceptance_stages": []}'), "expected a list of stages"),
        (("-e", '{"gemm_types": []}'), "gemm_checks"),
        (("-e", '{"acceptance_expectations": {"nope": {"value": 1}}}'), "found id 'nope'"),
        (("-e", '{"acceptance_expectations": {"h200-gemm-bf16": {"value": 2000}}}'), "h200-gemm-bf16"),
        (("-e", '{"acceptance_expectations": {"h200-gemm-bf16": {"unit": "miles"}}}'), "miles"),
        (("-e", '{"acceptance_waivers": [{"subject": "gpu-01"}]}'), "acceptance_waivers[0]"),
        (("-e", '{"acceptance_waivers": [{"subject": "*", "ticket": "T-1", "expires": "9999-12-31"}]}'), "acceptance_waiver_days"),
    ],
)
def test_what_cannot_be_accepted_never_ends_with_0(healthy: Acceptance, arguments: tuple[str, ...], words: str) -> None:
    before = [healthy.logins(host) for host in GOOD[:2]]
    done = healthy.run(GOOD[:2], *arguments)
    assert done.status != 0 and words in " ".join(done.output.split()), done.output[-2000:]
    assert [healthy.logins(host) for host in GOOD[:2]] == before


def test_an_inventory_without_hosts(healthy: Acceptance) -> None:
    done = healthy.run([])
    assert done.status != 0 and done.folder is None, done.output


def test_judged_again_without_touching_a_node(healthy: Acceptance) -> None:
    command = healthy.command(["gpu-01"], "--tags", "gemm")
    first = healthy.end(command, healthy.start(command))
    assert first.status == 0 and first.folder
    before = healthy.logins("gpu-01")
    stricter = '{"acceptance_expectations": {"h200-gemm-bf16": {"value": 900}}}'
    again = healthy.run(
        ["gpu-01"], "-e", f"run_id={first.folder.name}", "-e", stricter, playbook="playbooks/judge.yml", results=first.folder.parent
    )
    assert again.status != 0 and list(first.folder.glob("judged/*/report.html"))
    assert first.of("gpu-01") == {"PASS"} and again.of("gpu-01") == {"FAIL"}
    stands = (first.folder / "verdicts.jsonl").read_text().splitlines()
    assert first.verdicts == [json.loads(line) for line in stands]
    assert healthy.logins("gpu-01") == before and run_folder(first.folder.parent) == first.folder


def test_hardware_without_expectations_is_judged_once_somebody_has_read_the_proposal(healthy: Acceptance, tmp_path: pathlib.Path) -> None:
    healthy.plant("gpu-01", model="NVIDIA A1 Imaginary")
    command = healthy.command(["gpu-01"], "--tags", "gemm")
    first = healthy.end(command, healthy.start(command))
    assert first.status != 0 and first.folder and first.of("gpu-01") == {"UNKNOWN"} and first.codes("gpu-01") == {"no_expectation"}
    assert all("gpufleet.acceptance.baseline" in v["reason"] for v in first.on("gpu-01"))
    proposal = tmp_path / "proposal.yml"
    this_run = ("-e", f"run_id={first.folder.name}")
    again = {"results": first.folder.parent}
    made = healthy.run(["gpu-01"], *this_run, "-e", f"baseline_file={proposal}", playbook="playbooks/baseline.yml", **again)
    assert made.status == 0 and "proposed: true" in proposal.read_text(), made.output
    read_by = ("-e", json.dumps({"acceptance_expectation_files": [str(proposal)]}))
    ignored = healthy.run(["gpu-01"], *this_run, *read_by, playbook="playbooks/judge.yml", **again)
    assert ignored.status != 0 and ignored.of("gpu-01") == {"UNKNOWN"} and str(proposal) in " ".join(ignored.output.split())
    proposal.write_text(proposal.read_text().replace("proposed: true\n", ""))
    used = healthy.run(["gpu-01"], *this_run, *read_by, playbook="playbooks/judge.yml", **again)
    assert used.status == 0 and used.of("gpu-01") == {"PASS"}, used.output


def test_a_known_failure_is_accepted_until_its_waiver_expires(healthy: Acceptance) -> None:
    healthy.plant("gpu-01", FAULTS="nccl_wrong")
    command = healthy.command(["gpu-01", "gpu-02"], "--tags", "nccl_node")
    first = healthy.end(command, healthy.start(command))
    assert first.status != 0 and first.folder and first.of("gpu-01") == {"FAIL"} and first.codes("gpu-01") == {"wrong_results"}
    soon = (datetime.date.today() + datetime.timedelta(days=30)).isoformat()
    slow = ["below_floor"]
    for codes, expires, verdict, accepted in (
        (["wrong_results"], soon, "KNOWN_FAIL", True),
        (slow, soon, "FAIL", False),
        (["wrong_results"], "2020-01-01", "FAIL", False),
    ):
        waiver = {"subject": "gpu-01", "stage": "nccl_node", "ticket": "OPS-1234", "expires": expires, "codes": codes}
        waived = ("-e", f"run_id={first.folder.name}", "-e", json.dumps({"acceptance_waivers": [waiver]}))
        done = healthy.run(["gpu-01", "gpu-02"], *waived, playbook="playbooks/judge.yml", results=first.folder.parent)
        assert (done.status == 0) is accepted and done.of("gpu-01") == {verdict}, done.output


def test_one_gpu_has_no_link_to_measure_and_variables_reach_the_tools(healthy: Acceptance) -> None:
    healthy.plant("gpu-01", gpus=1)
    told = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
    for tool in ("all_reduce_perf", "python3"):
        path = healthy.fleet.plant("gpu-02") / "bin" / tool
        path.write_text(path.read_text().replace("#!/bin/sh\n", "#!/bin/sh\nenv > /opt/simulated/env.${0##*/}\n", 1))
    variables = {"gpu-01": {"acceptance_gpu_count": 1}, "gpu-02": {"nccl_node_env": told, "gemm_env": told, "train_env": told}}
    done = healthy.run(["gpu-01", "gpu-02"], variables=variables)
    assert done.status == 0, done.output[-3000:]
    assert done.of("gpu-01", "nccl_node") == {"SKIPPED"} and done.codes("gpu-01", "nccl_node") == {"single_gpu"}
    for tool in ("all_reduce_perf", "python3"):
        seen = (healthy.fleet.plant("gpu-02") / f"env.{tool}").read_text().splitlines()
        assert {f"{name}={value}" for name, value in told.items()} <= set(seen), tool
