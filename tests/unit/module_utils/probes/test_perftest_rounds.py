# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that walk their timetables: a process for each, real TCP between them, the simulated perftest, and faults."""

from __future__ import annotations

import json
import os
import pathlib
import resource
import socket
import subprocess
import sys
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import rdma_ports
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import perftest_sides
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import rdma
from harness.records import make_plan, measurement
from rigs.simulated import pairs

WALK = """
import json, sys
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import perftest
params = json.load(open(sys.argv[1]))
for found in perftest.probe(params, Node(params["timeout"], root=sys.argv[2])):
    print(json.dumps(found), flush=True)
"""
# Servers listen on every address: runs of these tests side by side have ports of their own.
PORT = 21000 + os.getpid() % 16 * 500
PORTS: dict[str, t.Any] = {
    "checks": [{"check": "ports", "variant": ""}], "devices": [], "port": None, "network": [], "gid_index": None, "roce_version": 2,
    "address_family": "", "link_local": False,
}  # fmt: skip
SETTINGS: dict[str, t.Any] = {
    "rdma_scope": "all_pairs", "rdma_partners": 2, "rdma_seed": 0, "rdma_pairs": [], "rdma_tests": ["read_bw"], "rdma_size": 65536,
    "rdma_latency_size": 2, "rdma_iterations": 1000, "rdma_latency_iterations": 1000, "rdma_qps": 8, "rdma_bidirectional": False,
    "rdma_duration": 0, "rdma_extra_args": [], "rdma_gpu": False, "rdma_test_timeout": 30, "rdma_patience": 10, "rdma_crossed": False,
    "rdma_rails_together": True, "rdma_start_window": 30, "rdma_tcp_ports": f"{PORT}-{PORT + 499}",
}  # fmt: skip
# Who does not come is waited for so long.
BRIEF = {"rdma_test_timeout": 3, "rdma_patience": 2, "rdma_start_window": 4}


class Nodes:
    """Nodes on one loopback: the port of node N on rail R has the address 127.(1+R).0.(1+N)."""

    def __init__(self, folder: pathlib.Path, count: int = 4, rails: int = 1, seconds: float = 0.2, **settings: t.Any) -> None:
        self.folder = folder
        self.names = [f"n{i}" for i in range(count)]
        self.settings = {**SETTINGS, **settings}
        for number, name in enumerate(self.names, 1):
            pairs.sysfs(folder / name, [f"127.{rail + 1}.0.{number}" for rail in range(rails)], seed=name)
            pairs.conf(folder / name, f"seconds {seconds}")
        self.args: dict[str, t.Any] = {}
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.memlock: dict[str, int] = {}

    def plan(self) -> None:
        """As the stages rdma_ports and rdma do it."""
        seen = []
        for name in self.names:
            (found,) = rdma_ports.probe(PORTS, Node(10, root=str(self.folder / name)))
            seen.append(measurement({**found, "stage": "rdma_ports", "subject": {"id": name}}))
        settings = dict.fromkeys(self.names, self.settings)
        items, _notes = rdma.items({name: name for name in self.names}, settings)
        items = [{**item, "stage": "rdma"} for item in items]
        todos = {n: {"settings": self.settings, "stages": {"rdma": [i for i in items if i["target"] == n]}} for n in self.names}
        run: t.Any = type("Run", (), {"journal": type("Journal", (), {"read": lambda _self: (seen, [])})()})()
        self.args = {node: work.options for node, work in rdma.work(run, make_plan({"items": items}), todos).items()}

    def start(self, *names: str, **changes: t.Any) -> None:
        if not self.args:
            self.plan()
        for name in names or self.args:
            args = {**self.args[name], "begins_in": self.settings["rdma_start_window"], "pause": 0.05, "governor": ""}
            args = {**args, "binary_dir": str(pairs.tools()), **changes}
            path = self.folder / name / "args.json"
            path.write_text(json.dumps(args))
            command = [sys.executable, "-c", WALK, str(path), str(self.folder / name)]
            env = {**os.environ, "SIMULATED_ROOT": str(self.folder / name), "GPUFLEET_TEST": str(self.folder)}
            self.processes[name] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
            if name in self.memlock:
                resource.prlimit(self.processes[name].pid, resource.RLIMIT_MEMLOCK, (self.memlock[name], self.memlock[name]))

    def results(self) -> tuple[dict[str, dict[str, t.Any]], dict[str, dict[str, t.Any]]]:
        """Observations of pairs by subject (and `back` in the direction from the second to the first), of timetables by node; nothing
        may be left running."""
        of_pairs, timetables = {}, {}
        for name, process in self.processes.items():
            for line in process.communicate(timeout=300)[0].splitlines():
                found = json.loads(line)
                if found["check"] == "timetable":
                    timetables[name] = found
                else:
                    back = found["variant"].startswith("direction=back")
                    of_pairs[found["subject"]["id"] + (" back" if back else "")] = found
        assert not self.left()
        return of_pairs, timetables

    def left(self) -> list[str]:
        mark = f"GPUFLEET_TEST={self.folder}".encode()
        found = []
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and mark in pathlib.Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found.append(pathlib.Path(f"/proc/{entry}/cmdline").read_text())
            except OSError:
                continue
        return [command for command in found if command]


def together(port: int) -> None:
    """Wait until both sides of a test have come together."""
    until = time.monotonic() + 60
    while ("local", "", port) not in perftest_sides.connections():
        assert time.monotonic() < until
        time.sleep(0.05)


def outcomes(found: dict[str, dict[str, t.Any]]) -> dict[str, str]:
    return {subject: one["reason_code"] or one["outcome"] for subject, one in sorted(found.items())}


def test_all_pairs_on_two_rails(tmp_path: pathlib.Path) -> None:
    nodes = Nodes(tmp_path, 4, rails=2, rdma_tests=["read_bw", "send_lat"])
    nodes.start()
    found, timetables = nodes.results()
    every = ["n0|n1", "n0|n2", "n0|n3", "n1|n2", "n1|n3", "n2|n3"]
    assert set(found) == {*every, *(f"{pair} back" for pair in every)}
    for one in found.values():
        assert one["outcome"] == "measured" and one["simulated"] and len(one["series"]) == 2
    for timetable in timetables.values():
        assert len(timetable["series"]) == 18 and {row["outcome"] for row in timetable["series"]} == {"measured"}
        assert timetable["context"]["tool_versions"]


def test_the_preset_and_equal_options_on_both_sides(tmp_path: pathlib.Path) -> None:
    nodes = Nodes(tmp_path, 2, rdma_iterations=500000)
    nodes.start()
    found, timetables = nodes.results()
    one, other = found["n0|n1"], found["n0|n1 back"]
    assert [(m["context"]["rails"][0]["a"][:2], m["context"]["direction"]) for m in (one, other)] == [("n0", "forward"), ("n1", "back")]
    words = ["-d", "mlx5_0", "-i", "1", "-x", "3", "-s", "65536", "-n", "500000", "-q", "8", "--noPeak", "--report_gbits", "-p", str(PORT)]
    assert one["command"][1:-1] == words
    row = one["series"][0]
    assert (row["iterations"], row["peak"], row["size"], row["bandwidth"]) == (4_000_000, None, 65536, 392.0)
    texts = [line.split()[5:] for timetable in timetables.values() for line in _raw(timetable) if line.startswith("# round")]
    texts = [[*text[: len(words) - 1], str(PORT)] for text in texts]
    assert texts == [words] * 2  # the server's, which has the same options


@pytest.mark.parametrize("test", ["read_bw", "send_lat"])
def test_json_is_used_where_it_is_json(tmp_path: pathlib.Path, test: str) -> None:
    """More digits than the text, which stays as the raw output. An older version is never asked for it."""
    for folder, version in ((tmp_path / "new", "6.22"), (tmp_path / "old", "6.06")):
        nodes = Nodes(folder, 2, rdma_tests=[test])
        for name in nodes.names:
            pairs.conf(folder / name, "seconds 0.1", "gbps 391.123456", f"version {version}")
        nodes.start()
        one, *_back = nodes.results()[0].values()
        assert one["outcome"] == "measured", one["reason"]
        value = {"read_bw": 391.123456, "send_lat": 3.4}[test]
        assert one["series"][0]["bandwidth" if test == "read_bw" else "latency"] == (value if version == "6.22" else round(value, 2))
        assert "BW average" in one["raw"] or "t_avg" in one["raw"]
        assert ("--out_json" in " ".join(one["command"])) == (version == "6.22") and "MsgSize" not in one["raw"]


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [("json 0.5", "bad_output", "its JSON says 196"), ("count 4", "bad_output", "32 iterations stand in the result, 8000 were asked for")],
)
def test_a_result_that_is_not_what_was_asked_for(tmp_path: pathlib.Path, line: str, code: str, words: str) -> None:
    nodes = Nodes(tmp_path, 2)
    for name in nodes.names:
        pairs.conf(tmp_path / name, "seconds 0.1", "version 6.22", line)
    nodes.start()
    for one in nodes.results()[0].values():
        assert one["reason_code"] == code and words in one["reason"] and not one["metrics"]


def test_both_directions_that_were_not_asked_for(tmp_path: pathlib.Path) -> None:
    """Their sum would be held to the rate of one."""
    nodes = Nodes(tmp_path, 2, rdma_extra_args=["-b"])
    nodes.start()
    found = nodes.results()[0].values()
    assert found and {one["reason_code"] for one in found} == {"bad_output"}
    assert all("the test of both directions is True, expected False" in one["reason"] for one in found)


def test_each_side_uses_the_memory_of_its_own_gpu(tmp_path: pathlib.Path) -> None:
    """Each side uses the GPU of its own node; without a GPU, or a perftest that can use it, nothing is measured with host memory."""
    nodes = Nodes(tmp_path, 2, rdma_gpu=True)
    for slot, name in enumerate(nodes.names, 1):
        pairs.conf(tmp_path / name, "seconds 0.1", "cuda 1")
        pairs.gpu(tmp_path / name, f"0000:{slot}b:00.0")
    nodes.start()
    found, timetables = nodes.results()
    assert set(outcomes(found).values()) == {"measured"} and found["n0|n1"]["variant"].split()[1] == "gpu=true"
    for name, slot in (("n0", "1b"), ("n1", "2b")):
        lines = [line for line in _raw(timetables[name]) if line.startswith("# round")]
        assert lines and all(f"--use_cuda_bus_id=0000:{slot}:00.0" in line for line in lines)


def test_nothing_falls_back_to_the_memory_of_the_host(tmp_path: pathlib.Path) -> None:
    nodes = Nodes(tmp_path, 2, rdma_gpu=True, **BRIEF)
    pairs.gpu(tmp_path / "n0", "0000:1b:00.0")
    nodes.start()
    found, timetables = nodes.results()
    codes = {row["reason_code"] for timetable in timetables.values() for row in timetable["series"]}
    codes |= {one["reason_code"] for one in found.values()}
    assert {"no_gpu", "no_gpudirect"} <= codes and "measured" not in outcomes(found).values()


def _raw(timetable: dict[str, t.Any]) -> list[str]:
    return str(timetable["raw"]).splitlines()


@pytest.mark.parametrize("late", [0.0, 1.5])
def test_nodes_that_start_at_different_times_measure_all_pairs(tmp_path: pathlib.Path, late: float) -> None:
    nodes = Nodes(tmp_path, 3)
    nodes.start("n0", "n1")
    time.sleep(late)
    nodes.start("n2")
    assert set(outcomes(nodes.results()[0]).values()) == {"measured"}


def test_a_partner_that_never_comes_costs_its_own_pairs(tmp_path: pathlib.Path) -> None:
    nodes = Nodes(tmp_path, 4, **BRIEF)
    nodes.plan()
    nodes.start("n0", "n1", "n2")
    found, timetables = nodes.results()
    for subject, word in outcomes(found).items():
        assert word == ("partner" if "n3" in subject else "measured"), found[subject]
    lost = [row for of in timetables.values() for row in of["series"] if row["outcome"] != "measured"]
    assert lost and {row["partner"] for row in lost} == {"n3"}
    window, slot, rounds, test, busy = 4, 5, 6, 3, 60
    assert max(of["duration_s"] for of in timetables.values()) < window + slot * rounds + test + busy


def test_a_partner_that_dies_in_its_round(tmp_path: pathlib.Path) -> None:
    nodes = Nodes(tmp_path, 4, seconds=1.0, **{**BRIEF, "rdma_start_window": 15})
    nodes.start()
    together(PORT)
    nodes.processes["n3"].kill()
    found, _timetables = nodes.results()
    for subject, one in found.items():
        assert one["outcome"] == "measured" or "n3" in subject, one["reason"]
        assert one["outcome"] == "measured" or not one["metrics"]
    others = {"n0|n1", "n0|n2", "n1|n2"}
    assert {subject for subject, word in outcomes(found).items() if word == "measured"} >= others | {f"{pair} back" for pair in others}
    assert list(outcomes(found).values()).count("measured") < 12  # what n3 asked went with it


def test_a_test_that_hangs_is_ended(tmp_path: pathlib.Path) -> None:
    nodes = Nodes(tmp_path, 4, **{**BRIEF, "rdma_test_timeout": 5})
    for name in nodes.names:
        pairs.conf(tmp_path / name, "seconds 0.2", "hang 127.1.0.2")
    nodes.start()
    found, _timetables = nodes.results()
    for subject, one in found.items():
        assert (one["outcome"] == "timeout") == ("n1" in subject), one["reason"]
        if "n1" in subject:
            assert one["context"]["rails"][0]["broke"] and "5 s of its begin" in one["reason"]


def test_a_server_that_dies_in_the_test(tmp_path: pathlib.Path) -> None:
    nodes = Nodes(tmp_path, 2, **BRIEF)
    for name in nodes.names:
        pairs.conf(tmp_path / name, "seconds 0.5", "die 127.1.0.1", "die 127.1.0.2")
    nodes.start()
    for one in nodes.results()[0].values():
        assert one["outcome"] == "error" and not one["metrics"] and not one["context"]["rails"][0]["broke"]


def test_versions_that_cannot_talk(tmp_path: pathlib.Path) -> None:
    nodes = Nodes(tmp_path, 2, **BRIEF)
    pairs.conf(tmp_path / "n1", "seconds 0.2", "version 5.60")
    nodes.start()
    for one in nodes.results()[0].values():
        assert one["outcome"] == "error" and "different versions" in one["reason"]


@pytest.mark.parametrize("low", ["n0", "n1"])
def test_a_memlock_limit_that_is_too_low(tmp_path: pathlib.Path, low: str) -> None:
    """Whichever side it is on: that side says so, the other says that nobody came, and there is no number."""
    nodes = Nodes(tmp_path, 2, **BRIEF)
    nodes.memlock[low] = 1 << 16
    nodes.start()
    found, timetables = nodes.results()
    said = [*found.values(), *(row for of in timetables.values() for row in of["series"])]
    assert not any(one["outcome"] == "measured" for one in said) and not any(one["metrics"] for one in found.values())
    assert any("raise the memlock limit" in one["reason"] for one in said), said


def test_a_missing_perftest_is_named_on_both_sides(tmp_path: pathlib.Path) -> None:
    nodes = Nodes(tmp_path, 2, **BRIEF)
    nodes.start("n0")
    nodes.start("n1", binary_dir=str(tmp_path / "nowhere"))
    for one in nodes.results()[0].values():
        assert one["reason_code"] in ("tool_missing", "partner")


def test_a_tcp_port_in_use_and_a_connection_that_is_nobody(tmp_path: pathlib.Path) -> None:
    nodes = Nodes(tmp_path, 2, **BRIEF)
    nodes.plan()
    server = next(n for n in nodes.names if nodes.args[n]["rounds"][0]["tests"][0]["role"] == "server")
    address = nodes.args[server]["rounds"][0]["tests"][0]["peer"]
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((address, PORT))
        taken.listen()
        nodes.start()
        found, _timetables = nodes.results()
    assert found["n0|n1"]["outcome"] != "measured", "in the first round its server listens there"
    nodes.processes.clear()
    nodes.start(server)
    until = time.monotonic() + 5
    while time.monotonic() < until:  # a port scan takes the one connection that a server accepts
        with socket.socket() as scan:
            if scan.connect_ex((address, PORT)) == 0:
                break
        time.sleep(0.05)
    nodes.start(*[name for name in nodes.names if name != server])
    for one in nodes.results()[0].values():
        assert one["outcome"] == "measured", one["reason"]


def test_what_changed_since_the_plan(tmp_path: pathlib.Path) -> None:
    nodes = Nodes(tmp_path, 4, **BRIEF)
    nodes.plan()
    gids = tmp_path / "n0/sys/class/infiniband/mlx5_0/ports/1/gids/3"
    gids.write_text("0000:0000:0000:0000:0000:ffff:0a0a:0a0a\n")
    (tmp_path / "n1/sys/class/infiniband/mlx5_0").rename(tmp_path / "n1/sys/class/infiniband/mlx5_7")
    (tmp_path / "n2/sys/class/infiniband/mlx5_0/ports/1/state").write_text("1: DOWN\n")
    nodes.start()
    found, timetables = nodes.results()
    assert not any(one["outcome"] == "measured" for one in found.values())
    own = {name: {row["reason_code"] for row in of["series"]} for name, of in timetables.items()}
    assert own["n0"] == {"gid_changed"} and own["n1"] == {"no_rdma"} and own["n2"] == {"port_down"} and own["n3"] == {"partner"}


def test_counters_that_rise_are_evidence(tmp_path: pathlib.Path) -> None:
    nodes = Nodes(tmp_path, 2, seconds=2.5)
    nodes.start()
    together(PORT)
    for name in nodes.names:
        (tmp_path / name / "sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence").write_text("17\n")
    found, timetables = nodes.results()
    assert [c["code"] for c in found["n0|n1"]["evidence"]["changes"]] == ["retransmits"]
    assert not found["n0|n1 back"]["evidence"]["changes"], "it rose in the first direction"
    assert all("out_of_sequence rose from 0 to 17" in of["evidence"]["changes"][0]["text"] for of in timetables.values())


@pytest.mark.parametrize(
    ("settings", "rails"),
    [
        ({"rdma_rails_together": False}, {"0", "1"}),
        ({"rdma_crossed": True}, {"0", "1", "0-1", "1-0"}),
        ({"rdma_crossed": True, "rdma_rails_together": False}, {"0", "1", "0-1", "1-0"}),
        ({"rdma_scope": "ring"}, {"0", "1"}),
        ({"rdma_scope": "sample", "rdma_partners": 1}, {"0", "1"}),
        ({"rdma_scope": "pairs", "rdma_pairs": [["n1", "n2"]]}, {"0", "1"}),
        ({"rdma_scope": "loopback"}, {"0-1", "1-0"}),
        ({"rdma_bidirectional": True}, {"0", "1"}),
    ],
)
def test_the_settings_choose_the_rails_that_are_tested(tmp_path: pathlib.Path, settings: dict[str, t.Any], rails: set[str]) -> None:
    nodes = Nodes(tmp_path, 3, rails=2, seconds=0.1, **settings)
    nodes.start()
    found, _timetables = nodes.results()
    assert found
    for one in found.values():
        assert one["outcome"] == "measured", one["reason"]
        assert {row["rail"] for row in one["series"]} <= rails
    assert {row["rail"] for one in found.values() for row in one["series"]} == rails
    assert len(found) == len({name.split()[0] for name in found}) * (1 if "rdma_bidirectional" in settings else 2)
