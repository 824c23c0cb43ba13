# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""acceptance.yml over real sshd hosts with simulated GPU tools."""

from __future__ import annotations

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time
import typing as t

import jsonschema
import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import measurement
from rigs.fleet.fleet import Fleet, Options
from rigs.simulated import nodes

pytestmark = pytest.mark.fleet
HOSTS = 16
ROOT = pathlib.Path(__file__).resolve().parents[2]
VERDICT = jsonschema.Draft202012Validator(measurement.schema("verdict-v1"))
OURS = ("all_reduce_perf", "nvidia-smi", "python3", "sleep")


class Done(t.NamedTuple):
    status: int
    output: str
    folder: pathlib.Path | None
    verdicts: list[dict[str, t.Any]]

    def of(self, host: str) -> set[str]:
        return {v["verdict"] for v in self.verdicts if v["subject"]["id"].split("/")[0] == host}

    def good(self, host: str) -> bool:
        """Judged at all, and nothing worse than a WARN; a node without a verdict is not a good one."""
        return bool(self.of(host)) and self.of(host) <= {"PASS", "WARN"}

    def codes(self, host: str) -> set[str]:
        return {v["reason_code"] for v in self.verdicts if v["subject"]["id"].split("/")[0] == host and v["reason_code"]}


@pytest.fixture(scope="module")
def fleet(rig_fleet: Fleet) -> Fleet:
    rig_fleet.up(HOSTS, {"gpu-15": Options(python=False), "gpu-16": Options(state_size="16k")})
    return rig_fleet


@pytest.fixture
def healthy(fleet: Fleet) -> Fleet:
    for number, host in enumerate(fleet.hosts):
        nodes.planted(fleet.plant(host), number + 1)
    return fleet


def plant(fleet: Fleet, host: str, **settings: t.Any) -> None:
    nodes.planted(fleet.plant(host), fleet.hosts.index(host) + 1, **settings)


def command(fleet: Fleet, results: pathlib.Path, playbook: str, *more: str) -> list[str]:
    variables = {
        "acceptance_results_dir": str(results),
        "acceptance_simulated": True,
        "acceptance_gpu_count": 8,
        "nccl_node_sizes": ["8M:16G"],
        "nccl_node_test_timeout": 20,
        **nodes.tools_at("/opt/simulated/bin"),
    }
    binary = str(ROOT / ".venv/bin/ansible-playbook")
    return [binary, playbook, "-i", str(fleet.inventory), "-f", "16", "-e", json.dumps(variables), *more]


def finish(results: pathlib.Path, status: int, output: str) -> Done:
    found = sorted(results.glob("*/plan.json"))
    folder = found[-1].parent if found else None
    lines = (folder / "verdicts.jsonl").read_text().splitlines() if folder and (folder / "verdicts.jsonl").exists() else []
    assert "Traceback" not in output
    return Done(status, output, folder, [json.loads(line) for line in lines])


def run(fleet: Fleet, results: pathlib.Path, *more: str, playbook: str = "acceptance.yml", **environment: str) -> Done:
    done = subprocess.run(
        command(fleet, results, playbook, *more), cwd=ROOT, env={**os.environ, **environment}, check=False, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL, timeout=600,
    )  # fmt: skip
    return finish(results, done.returncode, done.stdout)


def nothing_left(fleet: Fleet, hosts: t.Iterable[str], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while True:
        left = [
            f"{host}: {' '.join(argv)[:80]}"
            for host in hosts
            for argv in fleet.processes(host).values()
            if any(word in " ".join(argv) for word in OURS) and "mkfifo" not in " ".join(argv)
        ]
        left += [f"{host}: state" for host in hosts if list(fleet.var_lib(host).glob("gpufleet-acceptance/*"))]
        if not left or time.monotonic() > end:
            assert not left
            return
        time.sleep(0.5)


def test_a_healthy_fleet_is_accepted_and_left_as_it_was(healthy: Fleet, tmp_path: pathlib.Path) -> None:
    done = run(healthy, tmp_path, "--limit", "gpu-01:gpu-02:gpu-03:gpu-04:gpu-05:gpu-06:gpu-07:gpu-08")
    assert done.status == 0, done.output[-3000:]
    assert done.folder and all(done.good(host) for host in healthy.hosts[:8])
    planned = json.loads((done.folder / "plan.json").read_text())["items"]
    judged = {(v["stage"], v["check"], v["variant"], v["subject"]["id"]) for v in done.verdicts}
    assert planned and {(i["stage"], i["check"], i["variant"], i["subject"]["id"]) for i in planned} <= judged
    assert all(v["simulated"] for v in done.verdicts) and all(not list(VERDICT.iter_errors(v)) for v in done.verdicts)
    journal = [json.loads(line) for line in (done.folder / "journal.jsonl").read_text().splitlines()]
    assert all(measurement.problem(m) is None for m in journal)
    assert "PARTIAL" in done.output and "gpu-09" in (done.folder / "plan.json").read_text()
    nothing_left(healthy, healthy.hosts)


def test_a_fleet_with_faults(healthy: Fleet, tmp_path: pathlib.Path) -> None:
    plant(healthy, "gpu-09", FAULTS="nccl_hang")
    plant(healthy, "gpu-10", FAULTS="nccl_garbage")
    plant(healthy, "gpu-11", FAULTS="gemm_slow=0.8")
    plant(healthy, "gpu-12", FAULTS="nccl_html")
    healthy.cut("gpu-13")
    try:
        limit = "gpu-01:" + ":".join(healthy.hosts[8:])
        done = run(healthy, tmp_path, "-e", "nccl_node_test_timeout=6", "--limit", limit, ANSIBLE_TIMEOUT="5")
    finally:
        healthy.heal("gpu-13")
    assert done.status != 0
    assert done.good("gpu-01") and done.good("gpu-14"), done.output[-3000:]
    assert "timeout" in done.codes("gpu-09") and "bad_output" in done.codes("gpu-10") | done.codes("gpu-12")
    assert "FAIL" in done.of("gpu-11")
    assert done.of("gpu-13") == {"UNKNOWN"} and done.codes("gpu-13") == {"unreachable"}
    assert done.codes("gpu-15") == {"no_python"}, done.codes("gpu-15")
    # A result that does not fit on the disk is not measured; one that fits may be.
    assert "disk_full" in done.codes("gpu-16") and "UNKNOWN" in done.of("gpu-16"), done.codes("gpu-16")
    assert done.folder and "<script>alert" not in (done.folder / "report.html").read_text()
    nothing_left(healthy, [h for h in healthy.hosts if h != "gpu-16"])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kill_9_of_the_controller_and_resume(healthy: Fleet, tmp_path: pathlib.Path, seed: int) -> None:
    plant(healthy, "gpu-02", FAULTS="nccl_wrong", SLEEP=2)
    limit = ("--limit", "gpu-01:gpu-02:gpu-03:gpu-04")
    source = random.Random(seed)
    running = subprocess.Popen(
        command(healthy, tmp_path, "acceptance.yml", *limit), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    while not list(tmp_path.glob("*/controller.json")):
        assert running.poll() is None
        time.sleep(0.05)
    time.sleep(source.uniform(0.5, 8))
    if source.random() < 0.5:
        os.killpg(running.pid, signal.SIGKILL)
    else:
        running.kill()
    running.wait()
    nothing_left(healthy, healthy.hosts[:4])
    run_id = next(tmp_path.glob("*/plan.json")).parent.name
    with open(tmp_path / run_id / "journal.jsonl", "ab") as journal:
        journal.write(b'{"half": "written')
    done = run(healthy, tmp_path, "-e", f"run_id={run_id}", *limit, playbook="playbooks/resume.yml")
    assert "half-written" in done.output and done.status != 0
    assert done.of("gpu-02") >= {"FAIL"} and all(done.good(h) for h in ("gpu-01", "gpu-03", "gpu-04"))
    assert not [v for v in done.verdicts if v["verdict"] == "UNKNOWN"]
    nothing_left(healthy, healthy.hosts[:4])


def test_a_second_run_on_a_held_node_is_refused_by_name(healthy: Fleet, tmp_path: pathlib.Path) -> None:
    plant(healthy, "gpu-01", SLEEP=12)
    first = subprocess.Popen(
        command(healthy, tmp_path / "first", "acceptance.yml", "--limit", "gpu-01", "--tags", "nccl_node"), cwd=ROOT,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    while not list(healthy.var_lib("gpu-01").glob("gpufleet-acceptance/*/nccl_node.jsonl")):
        assert first.poll() is None
        time.sleep(0.1)
    second = run(healthy, tmp_path / "second", "--limit", "gpu-01", "--tags", "nccl_node")
    assert second.status != 0 and second.codes("gpu-01") == {"busy_run"}
    assert first.wait() == 0
    name = next((tmp_path / "first").glob("*/plan.json")).parent.name
    assert name in second.verdicts[0]["reason"]


def test_more_hosts_than_forks_are_started_and_collected(healthy: Fleet, tmp_path: pathlib.Path) -> None:
    for host in healthy.hosts[:6]:
        plant(healthy, host, SLEEP=3)
    done = run(healthy, tmp_path, "-f", "2", "--tags", "nccl_node", "--limit", ":".join(healthy.hosts[:6]))
    assert done.status == 0, done.output[-3000:]
    assert len(done.verdicts) == 6
    nothing_left(healthy, healthy.hosts[:6])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--tags", "nope"), "no stage is left"),
        (("--skip-tags", "always"), "would skip the plan and the verdict"),
        (("--start-at-task", "x"), "choose stages with --tags"),
        (("-e", "acceptance_hosts=nobody"), "no host matches"),
        (("--limit", "nobody"), "no hosts to target"),
        (("-e", '{"acceptance_stages": ["gem"]}'), "unknown stage"),
        (("-e", '{"acceptance_expectations": {"nope": {"value": 1}}}'), "found id 'nope'"),
        (("-e", '{"acceptance_expectations": {"h200-gemm-bf16": {"value": 2000}}}'), "h200-gemm-bf16"),
        (("-e", '{"acceptance_expectations": {"h200-gemm-bf16": {"unit": "miles"}}}'), "miles"),
        (("-e", "acceptance_results_dir=/proc/nope"), "acceptance_results_dir"),
        (("-e", '{"acceptance_waivers": [{"subject": "gpu-01"}]}'), "acceptance_waivers[0]"),
        (("--check", "--limit", "gpu-01"), "NOT ACCEPTED"),
    ],
)
def test_what_cannot_be_accepted_never_ends_with_0(healthy: Fleet, tmp_path: pathlib.Path, arguments: tuple[str, ...], words: str) -> None:
    done = run(healthy, tmp_path, *arguments)
    assert done.status != 0 and words in " ".join(done.output.split()), done.output[-2000:]


def test_all_hosts_down(healthy: Fleet, tmp_path: pathlib.Path) -> None:
    for host in healthy.hosts[:2]:
        healthy.cut(host)
    try:
        done = run(healthy, tmp_path, "--limit", "gpu-01:gpu-02", ANSIBLE_TIMEOUT="4")
    finally:
        for host in healthy.hosts[:2]:
            healthy.heal(host)
    assert done.status != 0 and {v["verdict"] for v in done.verdicts} == {"UNKNOWN"} and done.folder
    assert (done.folder / "report.html").exists()


def test_judged_again_without_touching_a_node(healthy: Fleet, tmp_path: pathlib.Path) -> None:
    first = run(healthy, tmp_path, "--limit", "gpu-01", "--tags", "gemm")
    assert first.status == 0 and first.folder
    healthy.cut("gpu-01")
    try:
        stricter = '{"acceptance_expectations": {"h200-gemm-bf16": {"value": 900}}}'
        again = run(healthy, tmp_path, "-e", f"run_id={first.folder.name}", "-e", stricter, playbook="playbooks/judge.yml")
    finally:
        healthy.heal("gpu-01")
    assert again.status != 0 and list(first.folder.glob("judged/*/report.html"))
    assert first.verdicts == again.verdicts  # the first judgement stands as it was


def test_installed_collection_with_a_stage_of_a_team(healthy: Fleet, tmp_path: pathlib.Path) -> None:
    galaxy = str(ROOT / ".venv/bin/ansible-galaxy")
    subprocess.run([galaxy, "collection", "build", "--output-path", tmp_path], cwd=ROOT, check=True, capture_output=True)
    archive = next(tmp_path.glob("gpufleet-acceptance-*.tar.gz"))
    # The checkout on Python's path would count as installed already.
    bare = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    install = [galaxy, "collection", "install", archive, "-p", tmp_path / "here", "--no-deps"]
    subprocess.run(install, cwd=tmp_path, env=bare, check=True, capture_output=True)
    (tmp_path / "ansible.cfg").write_text("[defaults]\n")
    role = tmp_path / "work/roles/disk"
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
    stages = {"acceptance_stages": ["gemm", {"name": "disk", "role": "disk"}]}
    entry = {
        "id": "disk-read", "match": {"stage": "disk", "check": "read"}, "metric": "bandwidth", "value": 5000, "unit": "MiB/s",
        "source": "test", "date": "2026-11", "confidence": "vendor",
    }  # fmt: skip
    arguments = command(healthy, tmp_path / "results", "gpufleet.acceptance.acceptance", "--limit", "gpu-01")
    done = subprocess.run(
        [*arguments, "-e", json.dumps({**stages, "acceptance_expectations": [entry]})], cwd=tmp_path / "work", check=False,
        capture_output=True, text=True, stdin=subprocess.DEVNULL,
        env={
            **bare, "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "here"), "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
            "ANSIBLE_ROLES_PATH": str(tmp_path / "work/roles"),
        },
    )  # fmt: skip
    found = finish(tmp_path / "results", done.returncode, done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert {(v["stage"], v["verdict"]) for v in found.verdicts} == {("gemm", "PASS"), ("disk", "PASS")}
    shutil.rmtree(tmp_path / "here")
