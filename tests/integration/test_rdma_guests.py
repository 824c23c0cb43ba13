# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stage rdma over soft-RoCE guests with real perftest: a slow link, a port that is down, governors that differ, and faults in mid-run.

Emulated processors vary by a factor of four: what counts as healthy here is far below that, and a slow link far below what counts.
"""

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
from rigs.rdma.rdma import GOVERNORS, Guests

pytestmark = pytest.mark.rdma
ROOT = pathlib.Path(__file__).resolve().parents[2]
HEALTHY = {
    "id": "soft-roce", "match": {"stage": "rdma", "check": "write_bw"}, "metric": "bandwidth", "unit": "Gb/s", "date": "2026-11",
    "value": 0.004, "source": "soft-RoCE under emulation on a busy machine, a tenth of the least", "confidence": "measured",
    "note": "the rate of soft-RoCE is that of an emulated processor",
}  # fmt: skip
# A busy machine may stop a guest for part of a second in the middle of a test: on a healthy path a test misses its floor after 1.4 s. With
# eight small messages on their way a slow link loses no packet: soft-RoCE may hang where much is sent again.
VARIABLES: dict[str, t.Any] = {
    "acceptance_stages": ["rdma"], "rdma_tests": ["write_bw"], "rdma_size": 8192, "rdma_iterations": 80, "rdma_qps": 1,
    "rdma_extra_args": ["--tx-depth", "8"], "rdma_rails_together": False, "rdma_test_timeout": 90, "rdma_patience": 30,
    "acceptance_expectations": [HEALTHY],
}  # fmt: skip
# An emulated processor's clock cannot always be read well enough for a report.
FLAKES = ("clock rate",)
Judged = t.Dict[t.Tuple[str, str], t.Dict[str, t.Any]]


def command(guests: Guests, results: pathlib.Path, playbook: str = "acceptance.yml", *more: str, **variables: t.Any) -> list[str]:
    values = json.dumps({**VARIABLES, "acceptance_results_dir": str(results), **variables})
    return [str(ROOT / ".venv/bin/ansible-playbook"), playbook, "-i", str(guests.inventory), "-e", values, *more]


def latest(results: pathlib.Path) -> tuple[pathlib.Path, Judged]:
    folder = sorted(results.glob("*/plan.json"))[-1].parent
    judged = [folder, *sorted((folder / "judged").glob("*"))][-1]
    verdicts = [json.loads(line) for line in (judged / "verdicts.jsonl").read_text().splitlines()]
    # The worst are first: of a pair the worse of its directions.
    return judged, {(v["stage"], v["subject"]["id"]): v for v in reversed(verdicts)}


def run(guests: Guests, results: pathlib.Path, **variables: t.Any) -> tuple[pathlib.Path, Judged]:
    """Return a run in which no emulated clock kept a test from its number: resumed for a pair, made anew for a test asked again."""
    for _attempt in range(3):
        folder, verdicts = resumed(guests, results, **variables)
        again = [m for m in journals.of(sorted(results.glob("*/plan.json"))[-1].parent) if m["stage"] == "rdma_again"]
        if not any(flake in (row.get("reason") or "") for m in again for row in m["series"] for flake in FLAKES):
            break
    return folder, verdicts


def resumed(guests: Guests, results: pathlib.Path, **variables: t.Any) -> tuple[pathlib.Path, Judged]:
    """Return a run, resumed as long as nothing but an emulated clock keeps a pair from its number."""
    words = command(guests, results, **variables)
    for _attempt in range(8):
        done = subprocess.run(words, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1200)
        assert "Traceback" not in done.stdout
        folder, verdicts = latest(results)
        if not any(flake in (folder / "verdicts.jsonl").read_text() for flake in FLAKES):
            break
        name = sorted(results.glob("*/plan.json"))[-1].parent.name
        words = command(guests, results, "playbooks/resume.yml", "-e", f"run_id={name}", **variables)
    return folder, verdicts


LOOK = """
cat /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor; echo --; ls -d /var/lib/gpufleet* 2>/dev/null; echo --
cat /proc/[0-9]*/comm 2>/dev/null | grep -E '^ib_(write|read|send|atomic)_'; true
"""


def as_born(guests: Guests) -> None:
    """Every governor as the guest was born with, no state directory, no perftest left."""
    until = time.monotonic() + 180
    while True:
        looks = {g: [part.split() for part in guests.inside(g, "sh", "-c", LOOK).split("--")] for g in guests.hosts}
        wrong = {g: look for i, (g, look) in enumerate(looks.items()) if set(look[0]) != {GOVERNORS[i]} or look[1] or look[2]}
        if not wrong or time.monotonic() > until:
            assert not wrong
            return
        time.sleep(1)


def test_a_slow_link_a_downed_port_and_governors_that_differ(rig_rdma: Guests, tmp_path: pathlib.Path) -> None:
    rig_rdma.slow("rdma-02", 1, "3mbit")  # less than the floor, and yet a test in two seconds
    rig_rdma.link_down("rdma-04", 0)
    try:
        folder, verdicts = run(rig_rdma, tmp_path)
    finally:
        rig_rdma.fast("rdma-02", 1)
        rig_rdma.link_up("rdma-04", 0)
    failed = {key for key, v in verdicts.items() if v["verdict"] == "FAIL"}
    slow = {("rdma", pair) for pair in ("rdma-01|rdma-02", "rdma-02|rdma-03", "rdma-02|rdma-04")}
    said = "\n".join(f"{' '.join(key)}: {v['verdict']}, {v['reason']}" for key, v in verdicts.items())
    assert failed == {("rdma_ports", "rdma-04"), ("rdma", "rdma-02"), *slow}, said
    assert not {key for key, v in verdicts.items() if v["verdict"] == "UNKNOWN"}
    assert "mlx5_0 port 1: the port is DOWN" in verdicts["rdma_ports", "rdma-04"]["reason"]
    convicted = verdicts["rdma", "rdma-02"]["reason"]
    assert "rdma-02/nic/mlx5_1/1" in convicted and "bad row" in convicted and "convicted" in convicted
    page = (folder / "report.html").read_text()
    assert "Rail 0" in page and "Rail 1" in page and "The worst pairs" in page
    measured = journals.of(sorted(tmp_path.glob("*/plan.json"))[-1].parent)
    switched = {m["target"]: m["context"]["governor"]["state"] for m in measured if m["stage"] == "rdma" and m["check"] == "timetable"}
    assert switched == {"rdma-01": "switched", "rdma-02": "switched", "rdma-03": "switched", "rdma-04": "already"}
    as_born(rig_rdma)


def test_ports_against_themselves(rig_rdma: Guests, tmp_path: pathlib.Path) -> None:
    """Both soft-RoCE ports of each guest by real perftest; one that is down is named, and governors are given back. A latency is not asked
    for: on one emulated processor both sides wait for each other's turn."""
    variables = {
        "acceptance_stages": ["nic_loopback"], "nic_loopback_tests": ["write_bw", "write_bw_all"], "nic_loopback_qps": 1,
        "nic_loopback_duration": 2, "nic_loopback_test_timeout": 90, "acceptance_hosts": "rdma-03,rdma-04",
        "acceptance_expectations": [{**HEALTHY, "match": {"stage": "nic_loopback", "check": "write_bw"}}],
    }  # fmt: skip
    rig_rdma.link_down("rdma-04", 0)
    try:
        folder, _worst = run(rig_rdma, tmp_path, **variables)
    finally:
        rig_rdma.link_up("rdma-04", 0)
    verdicts = [json.loads(line) for line in (folder / "verdicts.jsonl").read_text().splitlines()]
    words = {(v["check"], v["subject"]["id"]): (v["verdict"], v["reason_code"]) for v in verdicts}
    said = "\n".join(f"{v['check']} {v['subject']['id']}: {v['verdict']}, {v['reason']}" for v in verdicts)
    assert words["ports", "rdma-04"] == ("FAIL", "port_down") and words["ports", "rdma-03"] == ("PASS", None), said
    measured = [("write_bw", "rdma-04/nic/mlx5_1/1")]
    measured += [(check, f"rdma-03/nic/mlx5_{port}/1") for check in ("write_bw", "write_bw_all") for port in (0, 1)]
    assert {words[key][0] for key in measured} <= {"PASS", "WARN"}, said  # an attempt after the first is a WARN
    assert words["write_bw_all", "rdma-04"] == ("SKIPPED", "one_port"), said
    journal = journals.of(sorted(tmp_path.glob("*/plan.json"))[-1].parent)
    held = {m["target"]: m["context"]["governor"]["state"] for m in journal if m["check"] == "write_bw" and m["outcome"] == "measured"}
    assert held == {"rdma-03": "switched", "rdma-04": "already"}
    as_born(rig_rdma)


def start(guests: Guests, results: pathlib.Path, **variables: t.Any) -> subprocess.Popen[str]:
    words = command(guests, results, **variables)
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)


def when_switched(guests: Guests, guest: str) -> None:
    until = time.monotonic() + 120
    while set(guests.governors(guest)) != {"performance"}:
        assert time.monotonic() < until, "the governor was never switched"
        time.sleep(0.5)


def when_measuring(guests: Guests, guest: str) -> None:
    """Until both sides of a test on the guest have come together."""
    until = time.monotonic() + 120
    ours = "( sport >= :18515 and sport <= :19026 ) or ( dport >= :18515 and dport <= :19026 )"
    while "ESTAB" not in guests.inside(guest, "ss", "-tnH", ours):
        assert time.monotonic() < until, "no test began"
        time.sleep(0.5)


# Deadlines as short as emulated processors bear.
SHORT: dict[str, t.Any] = {"rdma_start_window": 20, "rdma_test_timeout": 20, "rdma_patience": 10, "rdma_rails_together": True}


@pytest.mark.long
def test_a_guest_that_dies_in_mid_run(rig_rdma: Guests, tmp_path: pathlib.Path) -> None:
    """The dead guest is UNKNOWN with its pairs, the others are measured; after its reboot its ledger is closed with a word."""
    going = start(rig_rdma, tmp_path, **SHORT)
    when_switched(rig_rdma, "rdma-03")
    rig_rdma.power_off("rdma-03")
    try:
        output = going.communicate(timeout=400)[0]
    finally:
        rig_rdma.power_on("rdma-03")
    assert "NOT ACCEPTED" in output
    _folder, verdicts = latest(tmp_path)
    for (stage, subject), v in verdicts.items():
        if stage == "rdma" and "rdma-03" in subject:
            assert v["value"] if v["verdict"] in ("PASS", "WARN") else v["value"] is None, v  # before its death, if at all
        elif stage == "rdma":
            assert v["verdict"] in ("PASS", "WARN"), v
    assert verdicts["rdma", "rdma-03"]["verdict"] == "UNKNOWN"
    restored = subprocess.run(
        command(rig_rdma, tmp_path, "playbooks/restore.yml", "-v"), cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, timeout=200
    )
    assert "the machine was rebooted since they were switched" in restored.stdout
    as_born(rig_rdma)


@pytest.mark.long
def test_a_port_that_goes_down_and_a_path_that_drops_in_mid_run(rig_rdma: Guests, tmp_path: pathlib.Path) -> None:
    """Nobody is told: perftest would wait for ever on both sides. The rail has no number, the pair is no pass, the other rail has
    its number."""
    pairs = {"rdma_scope": "pairs", "rdma_pairs": [["rdma-01", "rdma-02"], ["rdma-03", "rdma-04"]], "rdma_duration": 12}
    going = start(rig_rdma, tmp_path, **{**SHORT, **pairs, "rdma_rails_together": False, "rdma_test_timeout": 40})
    when_measuring(rig_rdma, "rdma-02")
    rig_rdma.lose("rdma-02", 0)
    when_measuring(rig_rdma, "rdma-04")
    rig_rdma.link_down("rdma-04", 0)
    try:
        output = going.communicate(timeout=400)[0]
    finally:
        rig_rdma.heal("rdma-02", 0)
        rig_rdma.link_up("rdma-04", 0)
    assert "NOT ACCEPTED" in output
    folder, _worst = latest(tmp_path)
    verdicts = [json.loads(line) for line in (folder / "verdicts.jsonl").read_text().splitlines()]
    for pair in ("rdma-01|rdma-02", "rdma-03|rdma-04"):
        both = {v["variant"].split()[0]: v for v in verdicts if v["subject"]["id"] == pair}
        assert len(both) == 2 and all(v["verdict"] in ("UNKNOWN", "FAIL") and v["value"] is None for v in both.values()), both
        first = both["direction=forward"]["reason"]
        assert "rail 0: " in first and "rail 1: " not in first, first
    as_born(rig_rdma)


@pytest.mark.long
def test_a_controller_that_is_killed_and_a_governor_of_somebody_else(rig_rdma: Guests, tmp_path: pathlib.Path) -> None:
    going = start(rig_rdma, tmp_path)
    when_switched(rig_rdma, "rdma-02")
    when_switched(rig_rdma, "rdma-01")
    rig_rdma.set_governor("rdma-01", "ondemand")
    os.kill(going.pid, signal.SIGKILL)
    try:
        until = time.monotonic() + 60
        while set(rig_rdma.governors("rdma-02")) == {"performance"}:
            assert time.monotonic() < until
            time.sleep(1)
        assert rig_rdma.governors("rdma-01") == ["ondemand"]  # not ours any more
    finally:
        going.communicate(timeout=60)
        rig_rdma.set_governor("rdma-01", GOVERNORS[0])
    as_born(rig_rdma)
