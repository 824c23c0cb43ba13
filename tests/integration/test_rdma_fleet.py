# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stage rdma over real sshd hosts: all pairs of sixty-four with the simulated perftest, bad ports and paths among them."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import time
import typing as t

import pytest
from harness import journals
from rigs.fleet.fleet import Fleet, Options
from rigs.simulated import pairs

pytestmark = pytest.mark.fleet
ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTS = int(os.environ.get("TEST_PAIR_HOSTS", "64"))
# A state directory that no other run uses; on this host it has no room.
SMALL, FULL = "/var/lib/small", "gpu-06"
VARIABLES: dict[str, t.Any] = {
    "acceptance_stages": ["rdma"], "rdma_governor": "", "rdma_iterations": 1000, "rdma_qps": 1,
    "rdma_test_timeout": 30, "rdma_patience": 30,
}  # fmt: skip


class Run(t.NamedTuple):
    status: int
    output: str
    folder: pathlib.Path
    verdicts: list[dict[str, t.Any]]

    def of(self, stage: str, *words: str) -> set[str]:
        """Subjects of a stage whose worst verdict (a pair has two, one for each direction) is one of these."""
        worst = {v["subject"]["id"]: v["verdict"] for v in reversed(self.verdicts) if v["stage"] == stage}
        return {subject for subject, word in worst.items() if word in words}

    def ways(self, *words: str) -> set[tuple[str, str]]:
        """Return (sender, receiver) of the directions of pairs that have one of these verdicts."""
        found = [v for v in self.verdicts if v["subject"]["kind"] == "pair" and v["verdict"] in words]
        ends = [(*v["subject"]["id"].split("|"), v["variant"]) for v in found]
        return {(a, b) if "direction=forward" in variant else (b, a) for a, b, variant in ends}

    def reason(self, stage: str, subject: str) -> str:
        """Return the reason of the worst verdict."""
        found = next(v for v in self.verdicts if v["stage"] == stage and v["subject"]["id"] == subject)
        return " ".join([found["reason"], *found["findings"]])


def run(fleet: Fleet, results: pathlib.Path, *more: str, playbook: str = "acceptance.yml", **variables: t.Any) -> Run:
    binary = str(ROOT / ".venv/bin/ansible-playbook")
    values = json.dumps({**VARIABLES, "acceptance_results_dir": str(results), **variables})
    command = [binary, playbook, "-i", str(fleet.inventory), "-f", "64", "-e", values, *more]
    done = subprocess.run(
        command, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL, timeout=1500
    )
    assert "Traceback" not in done.stdout
    found = sorted(results.glob("*/plan.json"))
    assert found, done.stdout[-3000:]
    folder = found[-1].parent
    lines = (folder / "verdicts.jsonl").read_text().splitlines()
    return Run(done.returncode, done.stdout, folder, [json.loads(line) for line in lines])


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return the folders that hosts have as /sys."""
    return tmp_path_factory.mktemp("sysfs")


@pytest.fixture(scope="module")
def hosts(rig_fleet: Fleet, trees: pathlib.Path) -> Fleet:
    options = {}
    for number in range(1, HOSTS + 1):
        host = f"gpu-{number:02d}"
        pairs.sysfs(trees / host, [rig_fleet.address(host)], seed=host)
        full = {"state_dir": SMALL, "state_size": "16k"} if host == FULL else {}
        options[host] = Options(overlays=((str(trees / host / "sys/class"), "/sys/class"),), **full)
    rig_fleet.up(HOSTS, options)
    for host in rig_fleet.hosts:
        pairs.planted(rig_fleet.plant(host))
    return rig_fleet


@pytest.fixture
def healthy(hosts: Fleet) -> Fleet:
    planted(hosts)
    return hosts


def planted(fleet: Fleet, *faults: str) -> None:
    for host in fleet.hosts:
        pairs.settings(fleet.plant(host), "seconds 0.3", *faults)


def nothing_left(fleet: Fleet) -> None:
    until = time.monotonic() + 90
    while True:
        left = [f"{h}: {argv}" for h in fleet.hosts for argv in fleet.processes(h).values() if any("ib_" in word for word in argv)]
        states = [fleet.var_lib(h) / where for h in fleet.hosts for where in ("gpufleet-acceptance", "small")]
        left += [str(path) for path in states if list(path.glob("*"))]
        if not left or time.monotonic() > until:
            assert not left
            return
        time.sleep(0.5)


@pytest.mark.long
def test_all_pairs_with_a_slow_port_a_slow_path_and_a_lost_host(healthy: Fleet, tmp_path: pathlib.Path) -> None:
    address = healthy.address
    planted(healthy, f"slow {address('gpu-07')} 0.4", f"pair {address('gpu-03')} {address('gpu-05')} 0.5")
    lost = healthy.hosts[-1]
    healthy.power_off(lost)
    try:
        done = run(healthy, tmp_path)
    finally:
        healthy.power_on(lost)
    assert done.status != 0
    every = healthy.hosts
    bad = {"|".join(sorted((h, "gpu-07"))) for h in every if h not in ("gpu-07", lost)} | {"gpu-03|gpu-05"}
    unknown = {"|".join(sorted((h, lost))) for h in every if h != lost}
    assert done.of("rdma", "FAIL") == bad | {"gpu-07"}
    assert done.of("rdma", "UNKNOWN") == unknown | {lost}
    assert "convicted" in done.reason("rdma", "gpu-07") and "bad row" in done.reason("rdma", "gpu-07")
    assert "bad cell" in done.reason("rdma", "gpu-03|gpu-05") and "convicted" in done.reason("rdma", "gpu-03|gpu-05")
    assert done.of("rdma_ports", "PASS") == set(every) - {lost}
    page = (done.folder / "report.html").read_text()
    assert "Rail 0" in page and "The worst pairs" in page and f"Timetable: {2 * (HOSTS - 1)} rounds" in page
    assert all(
        v["simulated"] for v in done.verdicts if v["stage"] == "rdma" and v["subject"]["kind"] == "pair" and v["verdict"] != "UNKNOWN"
    )
    nothing_left(healthy)


def test_a_sample_is_accepted(healthy: Fleet, tmp_path: pathlib.Path) -> None:
    done = run(healthy, tmp_path, rdma_scope="sample", rdma_partners=3)
    assert done.status == 0, done.output[-3000:]
    assert len([v for v in done.verdicts if v["subject"]["kind"] == "pair"]) == 3 * HOSTS, "each pair in both directions"
    assert "nothing had to be measured again" in json.dumps(journals.of(done.folder))
    nothing_left(healthy)


@pytest.mark.parametrize("op", ["read_bw", "write_bw"])
def test_what_is_bad_one_way_is_found_and_said(healthy: Fleet, tmp_path: pathlib.Path, op: str) -> None:
    """One port sends badly, and one path carries badly from one end; the other directions of the same pairs are good."""
    address = healthy.address
    planted(healthy, f"sends {address('gpu-03')} 0.5", f"way {address('gpu-06')} {address('gpu-05')} 0.5")
    few = healthy.hosts[:8]
    done = run(healthy, tmp_path, "--limit", ",".join(few), rdma_tests=[op])
    assert done.of("rdma", "UNKNOWN") == set() and done.status != 0
    assert {n for n in done.of("rdma", "FAIL") if "|" not in n} == {"gpu-03"}
    assert done.ways("FAIL") == {("gpu-03", n) for n in few if n != "gpu-03"} | {("gpu-06", "gpu-05")}
    assert len(done.ways("PASS", "FAIL")) == 8 * 7
    assert "where it sends" in done.reason("rdma", "gpu-03")
    assert "where gpu-06/nic/mlx5_0/1 sends" in done.reason("rdma", "gpu-05|gpu-06")
    nothing_left(healthy)


def test_of_two_hosts_the_bad_direction_is_not_accepted(healthy: Fleet, tmp_path: pathlib.Path) -> None:
    planted(healthy, f"sends {healthy.address('gpu-02')} 0.5")
    done = run(healthy, tmp_path, "--limit", "gpu-01,gpu-02")
    assert done.status != 0 and done.ways("FAIL") == {("gpu-02", "gpu-01")} and done.ways("PASS") == {("gpu-01", "gpu-02")}


def test_a_node_at_half_rate_is_a_finding_of_its_ports(hosts: Fleet, trees: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Its pairs are as good as ports of 200 Gb/s can be; the same rail of the others runs at 400."""
    planted(hosts)
    rate = trees / "gpu-04/sys/class/infiniband/mlx5_0/ports/1/rate"
    before = rate.read_text()
    rate.write_text("200 Gb/sec (4X HDR)\n")
    try:
        done = run(hosts, tmp_path, "--limit", ",".join(hosts.hosts[:6]))
    finally:
        rate.write_text(before)
    assert done.status != 0 and done.of("rdma_ports", "FAIL") == {"gpu-04"}
    assert "runs at 200 Gb/s, 5 of 6 nodes at 400" in done.reason("rdma_ports", "gpu-04")


def test_more_hosts_than_forks_and_a_resume(healthy: Fleet, tmp_path: pathlib.Path) -> None:
    """Started above forks, collected later; a pair that was not measured is, and its server with it."""
    pairs.settings(healthy.plant("gpu-02"), "seconds 0.3", "version 5.60")
    few = ",".join(healthy.hosts[:6])
    done = run(healthy, tmp_path, "-f", "2", "--limit", few, rdma_scope="ring")
    assert done.of("rdma", "UNKNOWN") == {"gpu-01|gpu-02", "gpu-02|gpu-03", "gpu-02"}
    planted(healthy)
    again = run(healthy, tmp_path, "-f", "2", "--limit", few, "-e", f"run_id={done.folder.name}", playbook="playbooks/resume.yml")
    late = done.folder / "judged"
    assert again.status == 0, again.output[-3000:]
    (folder,) = late.iterdir()
    lines = (folder / "verdicts.jsonl").read_text().splitlines()
    words = {v["subject"]["id"]: v["verdict"] for v in reversed([json.loads(line) for line in lines])}
    assert words["gpu-01|gpu-02"] == "WARN" and set(words.values()) == {"PASS", "WARN"}
    nothing_left(healthy)


def test_what_both_ends_had_finished_is_taken_after_kill_9(healthy: Fleet, tmp_path: pathlib.Path) -> None:
    """Killed in the middle of its rounds: pairs that both ends had finished are given as they were, the others are measured."""
    here = healthy.hosts[:4]
    for host in here:
        pairs.settings(healthy.plant(host), "seconds 4")
    values = json.dumps({**VARIABLES, "acceptance_results_dir": str(tmp_path), "rdma_test_timeout": 60, "rdma_patience": 60})
    more = ["-f", "64", "--limit", ",".join(here), "-e", values]
    binary = str(ROOT / ".venv/bin/ansible-playbook")
    running = subprocess.Popen(
        [binary, "acceptance.yml", "-i", str(healthy.inventory), *more], cwd=ROOT, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 300
    while not all(len(memos(healthy, host)) >= 2 for host in here):
        assert running.poll() is None and time.monotonic() < until
        time.sleep(0.2)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    while any(any("ib_" in word for argv in healthy.processes(host).values() for word in argv) for host in here):
        assert time.monotonic() < until
        time.sleep(0.2)
    sides: dict[tuple[str, ...], dict[str, str]] = {}
    for host in here:
        for memo in memos(healthy, host):
            check, variant, pair = memo["key"][2:5]
            sides.setdefault((check, variant, pair), {})[memo["result"]["role"]] = memo["result"]["started_at"]
    finished = {key: roles["client"] for key, roles in sides.items() if set(roles) == {"client", "server"}}
    assert finished
    planted(healthy)
    run_id = next(tmp_path.glob("*/plan.json")).parent.name
    again = run(healthy, tmp_path, "--limit", ",".join(here), "-e", f"run_id={run_id}", playbook="playbooks/resume.yml")
    assert again.status == 0, again.output[-3000:]
    journal = [m for m in journals.of(again.folder) if m["stage"] == "rdma"]
    assert {m["attempt"] for m in journal} == {1} and {m["outcome"] for m in journal} == {"measured"}
    measured = {(m["check"], m["variant"], m["subject"]["id"]): m for m in journal if m["subject"]["kind"] == "pair"}
    assert len(measured) == 12 and len(journal) == 12 + 4
    assert {key: measured[key]["started_at"] for key in finished} == finished
    new = [m for key, m in measured.items() if key not in finished]
    assert new and min(m["started_at"] for m in new) > max(finished.values())
    for host in here:  # a timetable of both walks: each node has six tests
        (timetable,) = [m for m in journal if m["subject"]["id"] == host]
        assert len({(row["variant"], row["subject"]) for row in timetable["series"]}) == len(timetable["series"]) == 6
    assert again.of("rdma", "PASS", "WARN") >= {f"{a}|{b}" for a in here for b in here if a < b}
    nothing_left(healthy)


def memos(fleet: Fleet, host: str) -> list[dict[str, t.Any]]:
    """Return the checkpoints of a host's walk."""
    for path in fleet.var_lib(host).glob("gpufleet-acceptance/*/rdma.jsonl"):
        lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [one["memo"] for one in map(json.loads, lines) if "memo" in one]
    return []


@pytest.mark.parametrize(("port", "op", "check"), [("1", "write", "write_bw"), ("", "", "read_bw")])
def test_one_pair_in_one_command(healthy: Fleet, tmp_path: pathlib.Path, port: str, op: str, check: str) -> None:
    """What is left empty is as what is left out."""
    command = ["-e", "server=gpu-02", "-e", "client=gpu-05", "-e", "device=mlx5_0", "-e", f"ib_port={port}", "-e", f"op={op}"]
    variables = {name: value for name, value in VARIABLES.items() if name != "acceptance_stages"}
    binary = str(ROOT / ".venv/bin/ansible-playbook")
    values = json.dumps({**variables, "acceptance_results_dir": str(tmp_path)})
    done = subprocess.run(
        [binary, "playbooks/rdma_pair.yml", "-i", str(healthy.inventory), "-e", values, *command],
        cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    found = [m for m in journals.all_in(tmp_path) if m["subject"]["kind"] == "pair"]
    assert [(m["check"], m["subject"]["id"], m["outcome"]) for m in found] == [(check, "gpu-02|gpu-05", "measured")] * 2
    assert {m["context"]["rails"][0]["a"] for m in found} == {"gpu-02/nic/mlx5_0/1", "gpu-05/nic/mlx5_0/1"}, "each served once"
    nothing_left(healthy)


@pytest.mark.long
@pytest.mark.long
def test_a_firewall_that_drops(healthy: Fleet, tmp_path: pathlib.Path) -> None:
    """Nothing is refused and nothing arrives: pairs of that server end at their deadlines, the others are measured."""
    rule = ["INPUT", "-p", "tcp", "--dport", "18515:19026", "-j", "DROP"]
    namespace = ["ip", "netns", "exec", healthy.netns("gpu-02"), "iptables"]
    subprocess.run([*namespace, "-A", *rule], check=True)
    try:
        few = ",".join(healthy.hosts[:4])
        done = run(healthy, tmp_path, "--limit", few, rdma_test_timeout=5, rdma_patience=5, rdma_start_window=15)
    finally:
        subprocess.run([*namespace, "-D", *rule], check=True)
    served = {m["subject"]["id"] for m in journals.of(done.folder)
              if m["subject"]["kind"] == "pair" and m["reason_code"] == "partner"}  # fmt: skip
    assert served and all("gpu-02" in pair for pair in served)
    good = done.of("rdma", "PASS", "WARN")
    assert {"gpu-01|gpu-03", "gpu-01|gpu-04", "gpu-03|gpu-04"} <= good and not good & served
    nothing_left(healthy)


@pytest.mark.long
def test_a_disk_that_is_full(healthy: Fleet, tmp_path: pathlib.Path) -> None:
    """It fills up in mid-run: the node is UNKNOWN with the reason, its pairs count where both sides' words arrived before, the pairs
    of the others count anyway."""
    here = ["gpu-01", "gpu-02", "gpu-05", FULL]
    done = run(healthy, tmp_path, "--limit", ",".join(here), acceptance_state_dir=SMALL)
    assert done.status != 0
    assert done.of("rdma", "PASS", "WARN") >= {"gpu-01|gpu-02", "gpu-01|gpu-05", "gpu-02|gpu-05"}
    unknown = done.of("rdma", "UNKNOWN")
    assert FULL in unknown and all(FULL in subject for subject in unknown)
    assert "No space left" in done.reason("rdma", FULL)
    assert all(v["value"] is None for v in done.verdicts if v["verdict"] == "UNKNOWN")
    nothing_left(healthy)
