# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated fleet of `make console`, wherever the checkout and its virtual environment are, and with the operations of its form."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import typing as t

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.local import LocalActions
from rigs.simulated import laptop_fleet

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORDS = "import json, os, socket; print(json.dumps([socket.gethostname(), os.listdir('/tmp')]))"


def test_a_node_finds_its_python_behind_links_below_tmp(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is if `.venv` of a worktree below /tmp is a link to that of another one: each node has a /tmp of its own."""
    if why := laptop_fleet.lacking():
        pytest.skip(why)
    with contextlib.ExitStack() as folders:
        linking, linked, unneeded = (pathlib.Path(folders.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))) for _each in range(3))
        (linked / "venv/bin").mkdir(parents=True)
        (linked / "venv/bin/python").symlink_to(os.path.realpath(sys.executable))
        (linking / "venv").symlink_to(f"../{linked.name}/venv")
        monkeypatch.setattr(sys, "executable", str(linking / "venv/bin/python"))
        fleet = laptop_fleet.build(tmp_path / "fleet").parent
        done = subprocess.run([fleet / "h200-01/python", "-c", WORDS], check=False, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        name, below_tmp = json.loads(done.stdout)
        assert name == "h200-01"
        assert {linking.name, linked.name} <= set(below_tmp)
        assert unneeded.name not in below_tmp


WORK = "import sys; from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import worker; worker.work(*sys.argv[1:4], 3)"
WHERE: dict[str, dict[str, t.Any]] = {
    "nodes": {"nodes": ["h200-01", "h200-03", "h200-05"]},
    "pool": {"pool": {"matchLabels": {"group/trial": "true"}}},
}
OPERATIONS = [("rdma", "read"), ("rdma", "write"), ("rdma", "send")]
OPERATIONS += [("collective", name) for name in ("all_reduce", "all_gather", "broadcast", "reduce_scatter")]


@pytest.mark.long
def test_operations_of_requests_are_measured_over_nodes_and_over_a_pool(tmp_path: pathlib.Path) -> None:
    """Nothing is planted on these parts of the nodes: what is not PASS has no expectation. The fourteen runs take 70 s."""
    if why := laptop_fleet.lacking():
        pytest.skip(why)
    inventory = laptop_fleet.build(tmp_path / "fleet").with_name("trial.yml")
    described = yaml.safe_load(inventory.with_name("hosts.yml").read_text())
    described["all"]["children"]["trial"] = {"hosts": dict.fromkeys(("h100-01", "h100-03", "h100-04"))}
    inventory.write_text(yaml.safe_dump(described))
    folder, results = tmp_path / "console", tmp_path / "results"
    store = LocalActions(folder, str(inventory))
    for kind, operation in OPERATIONS:
        for where, nodes in WHERE.items():
            store.create(f"{kind}-{operation.replace('_', '-')}-{where}", {kind: {"operation": operation, **nodes}}, "me")
    path = os.pathsep.join([str(ROOT / ".collections"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", WORK, str(folder), str(inventory), str(results)]
    with open(folder / "worker.log", "ab") as log:
        worker = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )  # fmt: skip
    try:
        end = time.monotonic() + 850
        while any(action.status.phase not in actions.ENDED for action in store.list(actions.Filters()).actions):
            assert time.monotonic() < end and worker.poll() is None, (folder / "worker.log").read_text()[-3000:]
            time.sleep(0.5)
    finally:
        worker.terminate()
        worker.wait()
    every = store.list(actions.Filters()).actions
    assert len(every) == len(OPERATIONS) * len(WHERE) and {action.status.phase for action in every} == {actions.FINISHED}
    for action in every:
        lines = (results / action.status.run_id / "verdicts.jsonl").read_text().splitlines()
        bad = [verdict for verdict in map(json.loads, lines) if verdict["verdict"] not in ("PASS", "SKIPPED")]
        assert {verdict["reason_code"] for verdict in bad} <= {"no_expectation"}, (action.name, bad)
