# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Clusters on a bad day in one run with machines that are well: each costs its own nodes only, and says why."""

from __future__ import annotations

import http.server
import json
import os
import pathlib
import socket
import subprocess
import threading
import typing as t
import urllib.parse

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Why the API server refuses pods; empty if it does not.
REFUSED: list[str] = []
MALFORMED = "gpu in ("
SECRET = "hunter2-of-the-proxy"


class Api(http.server.BaseHTTPRequestHandler):
    """An API server with two nodes, cordoned, which allows everything."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        selector = query.get("labelSelector", [""])[0]
        if self.path.startswith("/api/v1/nodes") and selector == MALFORMED:
            message = "unable to parse requirement: found '', expected: identifier"
            self._answer(400, {"kind": "Status", "status": "Failure", "message": message, "reason": "BadRequest", "code": 400})
            return
        if self.path.startswith("/apis/kubeflow.org") or self.path.startswith("/apis/batch.volcano.sh"):
            self._answer(404, {"message": "the server could not find the requested resource", "code": 404})
            return
        names = {"": ["n1", "n2"], "single=1": ["n1"], "single=2": ["n2"]} if self.path.startswith("/api/v1/nodes") else {}
        self._answer(200, {"metadata": {}, "items": [node(name) for name in names.get(selector, [])]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if REFUSED and "/pods" in self.path:
            assert "dryRun=All" in self.path
            self._answer(403, {"kind": "Status", "status": "Failure", "message": REFUSED[0], "reason": "Forbidden", "code": 403})
            return
        self._answer(201, {"metadata": {"name": "made"}, "status": {"allowed": True}})

    def do_DELETE(self) -> None:
        self._answer(200, {})

    def _answer(self, status: int, what: t.Any) -> None:
        data = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_words: t.Any) -> None:
        pass


def node(name: str) -> dict[str, t.Any]:
    devices = {"nvidia.com/gpu": "8"}
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": devices, "capacity": devices}
    metadata = {"name": name, "labels": {"single": name[1]}, "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": {"unschedulable": True}, "status": status}


@pytest.fixture
def api() -> t.Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()


@pytest.fixture
def closed_port() -> t.Iterator[int]:
    """Nobody else can take it, and nobody listens there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


def accept(place: pathlib.Path, inventory: dict[str, t.Any], *more: str) -> tuple[int, str]:
    (place / "inventory.yml").write_text(yaml.safe_dump(inventory))
    paths = str(ROOT / ".collections")
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_COLLECTIONS_PATH": paths, "PYTHONPATH": paths}
    command = ["ansible-playbook", str(ROOT / "acceptance.yml"), "-i", "inventory.yml", "-e", f"acceptance_results_dir={place / 'results'}"]
    command += more
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout + done.stderr


def verdicts(place: pathlib.Path) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """{(stage, first part of the subject or group): [(verdict, reason)]}"""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for path in place.glob("results/*/verdicts.jsonl"):
        for verdict in map(json.loads, path.read_text().splitlines()):
            found.setdefault((verdict["stage"], verdict["subject"]["id"]), []).append((verdict["verdict"], verdict["reason"] or ""))
    return found


def test_each_bad_cluster_costs_its_own_nodes_only(tmp_path: pathlib.Path, api: str, closed_port: int) -> None:
    demo = yaml.safe_load((ROOT / "inventories/demo/group_vars/all.yml").read_text())
    demo.pop("acceptance_stages")
    good = {**demo, "demo_node": str(ROOT / "tests/rigs/simulated/demo/nodes/{{ inventory_hostname }}"), "nccl_fabric_group": ""}
    cluster = {"acceptance_plane": "kubernetes", "acceptance_kube_image": "lab/tester:1", "acceptance_kube_env": {"HTTPS_PROXY": SECRET}}
    clusters = {
        "away": {"acceptance_kube_server": f"http://127.0.0.1:{closed_port}"},
        "empty": {"acceptance_kube_server": api, "acceptance_nodes": {"selector": "empty=1"}},
        "single": {"acceptance_kube_server": api, "acceptance_nodes": {"selector": "single=1", "expected": 1}},
        "short": {"acceptance_kube_server": api, "acceptance_nodes": {"selector": "single=2"}, "nccl_fabric_node_count": 4},
    }
    hosts = {"h200-01": good, "h200-03": good, **{name: {**cluster, **own} for name, own in clusters.items()}}
    stages = ["stack", "nccl_fabric"]
    status, output = accept(tmp_path, {"all": {"hosts": hosts, "vars": {"acceptance_stages": stages}}})
    found = verdicts(tmp_path)
    assert status != 0 and found, output[-3000:]
    for host in ("h200-01", "h200-03"):
        assert {verdict for verdict, _reason in found["stack", host]} <= {"PASS", "WARN"}, found["stack", host]
    said = {
        "away": ("away", "connection refused"),
        "empty": ("empty", "selector empty=1 matches no node"),
        "single": ("single/n1", "found 1 node (single/n1), expected at least two"),
        "short": ("short/n2", "4 nodes were asked for and 1 are in the group"),
    }
    for name, (subject, words) in said.items():
        group, member = found["nccl_fabric", f"nccl_fabric/{name}"], found["nccl_fabric", subject]
        assert {verdict for verdict, _reason in group + member} == {"UNKNOWN"}, (group, member)
        assert all(words in reason for _verdict, reason in group), group
        assert all(words in reason or "is cordoned" in reason for _verdict, reason in member), member
    for path in tmp_path.glob("results/**/*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"acceptance_plane": "kubernetes", "acceptance_nodes": ["n1"]},
            "acceptance_nodes: found ['n1'], expected a mapping; see ansible-doc -t role gpufleet.acceptance.common",
        ),
        ({"nccl_node_sizes": ["16G:8M"]}, "nccl_node_sizes: found '16G:8M', expected the smaller size first: 8M:16G"),
        ({"acceptance_nodes": {"names": ["n1"]}}, "acceptance_nodes has no effect on plane ssh: set acceptance_plane"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_measured(tmp_path: pathlib.Path, variables: dict[str, t.Any], said: str) -> None:
    status, output = accept(tmp_path, {"all": {"hosts": {"lab": variables}}})
    assert status != 0 and said in " ".join(output.split()) and not list(tmp_path.glob("results/*")), output


def test_what_the_plan_reads_of_clusters_is_refused_before_anything_is_measured(tmp_path: pathlib.Path, api: str) -> None:
    cluster = {"acceptance_plane": "kubernetes", "acceptance_kube_image": "lab/tester:1", "acceptance_kube_server": api}
    wrong = {
        "malformed": (
            {"lab": {"acceptance_nodes": {"selector": MALFORMED}}},
            f"acceptance_nodes: selector {MALFORMED!r}: the request is invalid: unable to parse requirement",
        ),
        "twins": (
            {"lab": {"acceptance_nodes": {"selector": "single=1"}}, "again": {"acceptance_nodes": {"names": ["n1"]}}},
            "lab: lab/n1 is the same node as again/n1: two hosts of the inventory select it",
        ),
        "file": ({"lab": {"acceptance_kube_token_file": "/nowhere"}}, "lab: acceptance_kube_token_file: /nowhere: No such file"),
    }
    for name, (hosts, words) in wrong.items():
        place = tmp_path / name
        place.mkdir()
        for more in ([], ["--check"]):
            status, output = accept(place, {"all": {"hosts": {host: {**cluster, **own} for host, own in hosts.items()}}}, *more)
            assert status != 0 and words in " ".join(output.split()) and not list(place.glob("results/*")), output


def test_a_pod_that_the_cluster_refuses_is_told_by_check_mode(tmp_path: pathlib.Path, api: str) -> None:
    REFUSED.append("exceeded quota: gpus, requested: 1, used: 8, limited: 8")
    host = {"acceptance_plane": "kubernetes", "acceptance_kube_image": "lab/tester:1", "acceptance_kube_server": api}
    try:
        status, output = accept(tmp_path, {"all": {"hosts": {"lab": host}}}, "--check", "--tags", "stack")
    finally:
        REFUSED.clear()
    assert status != 0 and REFUSED == [] and "exceeded quota: gpus" in " ".join(output.split()), output


def test_a_list_of_one_needs_no_brackets(tmp_path: pathlib.Path) -> None:
    host = {"nccl_node_sizes": "8M:1G", "ansible_connection": "local"}
    status, output = accept(tmp_path, {"all": {"hosts": {"lab": host}}}, "--check", "--diff", "--tags", "nccl_node")
    assert status == 0 and "gpus=all sizes=8M:1G type=float" in output, output
