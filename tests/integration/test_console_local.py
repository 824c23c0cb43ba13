# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The console of a laptop: actions in a file, a worker that is killed, real runs of the playbooks over simulated machines."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.local import LocalActions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import live
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from harness import journals
from rigs.simulated import nodes

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = "import sys; from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import worker; worker.work(*sys.argv[1:4], 3)"
# One good machine, one whose results are wrong, two more good ones.
FAULTS = {"gpu-01": "", "gpu-02": "nccl_wrong", "gpu-03": "", "gpu-04": ""}
MARK = "GPUFLEET_CONSOLE_TEST"
STAGES = ["stack", "nccl_node"]


class Console:
    """A folder, an inventory and one worker at a time."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.results = folder / "console", folder / "results"
        inventory = {name: nodes.local(folder / name, number, faults=faults) for number, (name, faults) in enumerate(FAULTS.items(), 1)}
        self.inventory = folder / "inventory.json"
        self.inventory.write_text(json.dumps({"all": {"hosts": inventory}}))
        self.token = f"{os.getpid()}.{time.monotonic_ns()}"
        self.actions = LocalActions(self.folder, str(self.inventory))
        self.worker: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        path = os.pathsep.join([str(ROOT / ".collections"), os.environ.get("PYTHONPATH", "")])
        words = [sys.executable, "-c", WORK, str(self.folder), str(self.inventory), str(self.results)]
        with open(self.folder / "worker.log", "ab") as log:
            self.worker = subprocess.Popen(
                words, cwd=ROOT, env={**os.environ, MARK: self.token, "PYTHONPATH": path}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self, runs_too: bool) -> None:
        """kill -9 to the worker, and to all that it has begun."""
        assert self.worker is not None
        self.worker.kill()
        self.worker.wait()
        if runs_too:
            for pid, _started in process.with_environment(MARK, self.token):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        if self.worker is not None:
            self.worker.terminate()
            self.worker.wait()
        for pid, _started in process.with_environment(MARK, self.token):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait(self, true: t.Callable[[], t.Any], seconds: float = 400) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, (self.folder / "worker.log").read_text() + repr(self.all())
            time.sleep(0.2)

    def all(self) -> dict[str, actions.Status]:
        return {action.name: action.status for action in self.actions.list(actions.Filters()).actions}

    def phase(self, name: str) -> str:
        return self.actions.get(name).status.phase

    def runs(self) -> set[str]:
        return {path.name for path in self.results.iterdir() if path.is_dir()} if self.results.exists() else set()


@pytest.fixture
def console(tmp_path: pathlib.Path) -> t.Iterator[Console]:
    found = Console(tmp_path)
    try:
        yield found
    finally:
        found.stop()


def measure(*names: str, stages: t.Sequence[str] = STAGES, **more: t.Any) -> dict[str, t.Any]:
    variables = {"variables": {"nccl_node_sizes": "8M:16G"}} if "nccl_node" in stages else {}
    return {"stages": {"names": list(stages), "nodes": list(names), **variables}, **more}


def test_each_action_ends_once_with_its_verdict_though_the_console_is_killed(console: Console) -> None:
    wanted = {}
    for number, names in enumerate((["gpu-01", "gpu-02"], ["gpu-02", "gpu-03"], ["gpu-03", "gpu-04"], ["gpu-01"], ["gpu-02"], ["gpu-04"])):
        stages = STAGES if len(names) > 1 else ["nccl_node"]
        name = console.actions.create(f"a-{number}", measure(*names, stages=stages), "me").name
        wanted[name] = actions.NOT_ACCEPTED if "gpu-02" in names else actions.ACCEPTED
    dice = random.Random(14)
    for _blow in range(5):
        console.start()
        time.sleep(dice.uniform(1, 7))
        console.kill(runs_too=dice.random() < 0.5)
    console.start()
    console.wait(lambda: all(status.phase in actions.ENDED for status in console.all().values()))
    found = console.all()
    assert {name: status.verdict for name, status in found.items()} == wanted, found
    assert {status.phase for status in found.values()} == {actions.FINISHED}
    # Exactly one run each, judged once, and nothing else in the results.
    assert console.runs() == {status.run_id for status in found.values()} and len(console.runs()) == len(wanted)
    for name, status in found.items():
        folder = console.results / status.run_id
        assert (folder / "report.json").is_file() and not (folder / "judged").exists()
        done, planned = map(int, status.progress.split("/"))
        assert done == planned and status.counts and status.link == f"/runs/{name}"
        assert [c["type"] for c in status.conditions] == list(actions.CONDITIONS)
    accepted = {c["type"]: c["status"] for c in found["a-2"].conditions}
    assert accepted == {"Admitted": "True", "Running": "False", "Finished": "True", "Accepted": "True"}


def test_one_waits_for_another_and_what_is_cancelled_leaves_nothing(console: Console) -> None:
    (console.folder.parent / "gpu-01/node.conf").write_text(nodes.conf(1, SLEEP=60))
    console.actions.create("first", measure("gpu-01", stages=["nccl_node"]), "me")
    console.actions.create("second", measure("gpu-01", "gpu-03", stages=["stack"]), "me")
    console.actions.create("third", measure("gpu-03", stages=["stack"]), "me")
    console.actions.create("later", measure("gpu-04", stages=["stack"], suspend=True), "me")
    console.start()
    console.wait(lambda: console.phase("first") == actions.RUNNING and console.phase("third") == actions.QUEUED)
    second, third = console.actions.get("second").status, console.actions.get("third").status
    assert second.waiting_for == "first (running) on gpu-01" and second.queue_position == 1
    assert third.waiting_for == "second (waits, too) on gpu-03" and third.queue_position == 2
    assert console.phase("later") == actions.SUSPENDED
    assert {node.name: tuple(node.used_by) for node in console.actions.nodes()}["gpu-01"] == ("first",)
    run_id = console.actions.get("first").status.run_id
    console.wait((console.results / run_id / "plan.json").exists)
    console.actions.set("first", cancel=True)
    with pytest.raises(actions.Conflict, match="stays so"):
        console.actions.set("first", cancel=False)
    console.wait(lambda: console.phase("first") == actions.CANCELLED)
    console.wait(lambda: {console.phase("second"), console.phase("third")} == {actions.FINISHED})
    assert not list((console.folder.parent / "gpu-01/state").glob("*.json")), "its guardian has given everything back"
    console.actions.set("later", suspend=False)
    console.actions.delete("second")
    console.wait(lambda: console.phase("later") == actions.FINISHED and "second" not in console.all())
    assert len(console.runs()) == 4, "what was measured stays when the action goes"


def test_a_run_shows_what_its_tool_prints_and_a_suspended_one_leaves_its_nodes_and_goes_on(console: Console) -> None:
    node = console.folder.parent / "gpu-01"
    (node / "node.conf").write_text(nodes.conf(1, SLEEP=60))
    console.actions.create("first", measure("gpu-01", stages=["stack", "nccl_node"]), "me")
    console.start()
    console.wait(lambda: console.actions.get("first").status.progress.partition("/")[0] not in ("", "0"))
    run_id = console.actions.get("first").status.run_id
    run, seen = Run(console.results, run_id), list[str]()

    def shows_the_tool() -> bool:
        output = live.look(run, "gpu-01")
        seen[:] = output.lines if output and output.stage == "nccl_node" else ()
        return bool(seen)

    console.wait(shows_the_tool)
    assert seen[0].startswith("$ ") and "all_reduce_perf" in seen[0], seen
    file = live.path_on_node(run_id, "nccl_node", "gpu-01")
    assert os.path.exists(file)
    console.actions.set("first", suspend=True)
    console.wait(lambda: console.phase("first") == actions.SUSPENDED)
    console.wait(lambda: not os.path.exists(file))
    assert not list((node / "state").glob("*.json")) and not (console.results / run_id / "report.json").exists()
    (node / "node.conf").write_text(nodes.conf(1))
    console.actions.set("first", suspend=False)
    console.wait(lambda: console.phase("first") == actions.FINISHED)
    assert console.actions.get("first").status.run_id == run_id and console.runs() == {run_id}
    records = journals.of(console.results / run_id)
    assert {record["attempt"] for record in records if record["stage"] == "stack"} == {1}, "what was measured is kept"


def test_another_worker_is_refused_and_a_bad_inventory_is_one_sentence(console: Console) -> None:
    console.start()
    console.actions.create("one", measure("gpu-01", stages=["stack"]), "me")
    console.wait(lambda: console.phase("one") == actions.FINISHED)
    first = console.worker
    console.start()
    assert console.worker is not None and console.worker.wait(60) != 0
    assert "another console works there" in (console.folder / "worker.log").read_text()
    console.worker = first
