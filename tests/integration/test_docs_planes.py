# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/planes.md, followed to the letter: its plane measures nodes and groups, and each playbook does on it what the page says."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

import pytest
from harness import journals
from harness.pages import files_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNKNOWN_RUN = "20260101T000000Z-0a1b2c"
# A stage whose tool waits until somebody opens its gate.
HOLD_DEFAULTS = "hold_checks: [{check: hold}]\nhold_folder: ''\n"
HOLD_TASK = """
- name: Wait at the gate
  gpufleet.acceptance.measure:
    argv: [sh, -c, "echo > {{ hold_folder }}/reached; while [ ! -e {{ hold_folder }}/gate ]; do sleep 0.1; done; echo rate=95"]
    metrics: [{name: rate, unit: GB/s, regex: 'rate=([0-9]+)'}]
"""


class Place:
    """A folder with the files of docs/planes.md and docs/stages.md, and a stage `hold`."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        files_of("docs/stages.md", folder)
        files_of("docs/planes.md", folder)
        for name, text in (("defaults", HOLD_DEFAULTS), ("tasks", HOLD_TASK)):
            path = folder / "roles/hold" / name / "main.yml"
            path.parent.mkdir(parents=True)
            path.write_text(text)
        variables = folder / "group_vars/all.yml"
        text = variables.read_text().replace("acceptance_expectations:\n", "  - {name: hold, role: hold}\nacceptance_expectations:\n")
        expected = "{id: hold, match: {stage: hold}, metric: rate, value: 95, unit: GB/s, source: x, date: 2026-11, confidence: measured}"
        variables.write_text(f"{text}  - {expected}\n")
        self.given = {
            "acceptance_processes_folder": str(folder / "processes"), "acceptance_results_dir": str(folder / "results"),
            "hold_folder": str(folder), "ansible_python_interpreter": sys.executable,
        }  # fmt: skip

    def start(self, playbook: str, *more: str) -> subprocess.Popen[str]:
        paths = f"{ROOT / '.collections'}:{self.folder / 'collections'}"
        environment = {
            **os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_COLLECTIONS_PATH": paths, "PYTHONPATH": paths,
        }  # fmt: skip
        command = ["ansible-playbook", str(ROOT / playbook), "-i", "inventory", "-e", "@group_vars/all.yml"]
        return subprocess.Popen(
            [*command, "-e", json.dumps(self.given), *more], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, playbook: str, *more: str) -> tuple[int, str]:
        running = self.start(playbook, *more)
        output, _nothing = running.communicate(timeout=300)
        return running.returncode, output

    def begin(self, playbook: str, *more: str) -> tuple[subprocess.Popen[str], str]:
        """Start a playbook whose stage `hold` waits, and return it with the id of its run."""
        running = self.start(playbook, *more)
        self.wait(lambda: (self.folder / "reached").exists() or running.poll() is not None)
        assert running.poll() is None, running.communicate()
        return running, self.run_id

    @staticmethod
    def wait(until: t.Callable[[], bool], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < end
            time.sleep(0.1)

    @property
    def run_id(self) -> str:
        (plan,) = (self.folder / "results").glob("*/plan.json")
        return plan.parent.name

    @property
    def verdicts(self) -> dict[tuple[str, str, str], str]:
        written = [line for path in self.folder.glob("results/*/verdicts.jsonl") for line in path.read_text().splitlines()]
        return {(v["stage"], v["check"], v["subject"]["id"]): v["verdict"] for v in map(json.loads, written)}

    def left(self) -> list[str]:
        """Return what the plane has left: files but the nodes themselves, and processes that were begun in its folder."""
        folder = self.folder / "processes"
        files = [str(path) for path in folder.rglob("*") if path.is_file() and path.name != "machine-id"]
        processes = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                processes.append(path.read_bytes().decode(errors="replace"))
        return files + [words for words in processes if str(folder) in words]


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Place:
    return Place(tmp_path)


def test_nodes_and_a_group_are_measured_and_nothing_is_left(place: Place) -> None:
    status, output = place.run("acceptance.yml", "--tags", "copy,memory,gather")
    assert status == 0, output[-3000:]
    nodes = {(stage, stage, f"box/{name}") for stage in ("copy", "memory") for name in "ab"}
    members = {("gather", "member", f"box/{name}") for name in "ab"}
    assert set(place.verdicts) == nodes | members | {("gather", "gather", "gather/box")} and set(place.verdicts.values()) == {"PASS"}
    assert {m["plane"] for m in journals.all_in(place.folder / "results")} == {"processes"}
    assert "box: 2 nodes of this machine" in output
    status, output = place.run("playbooks/logs.yml", "-e", f"run_id={place.run_id}", "-e", "node=b", "-e", "tail=1")
    assert status == 0 and "copy.b" in output and "| copy began as process" in output and "copy.a" not in output, output
    assert place.run("playbooks/cleanup.yml", "-e", f"run_id={place.run_id}")[0] == 0 and not place.left()


def test_a_detached_run_goes_on_is_shown_and_collected(place: Place) -> None:
    detach = ("-e", "acceptance_detach=true")
    status, output = place.run("acceptance.yml", "--tags", "gather", *detach)
    assert status != 0 and "acceptance_detach: stage gather runs between nodes" in " ".join(output.split())
    status, output = place.run("acceptance.yml", "--tags", "hold", *detach)
    run_id = place.run_id
    assert status != 0 and f"DETACHED: run {run_id} works on 2 nodes" in output, output[-3000:]
    place.wait((place.folder / "reached").exists)
    assert place.run("playbooks/restore.yml")[0] == 0  # a detached run is not one whose controller was killed
    status, output = place.run("playbooks/status.yml", "-e", f"run_id={run_id}")
    assert status == 0 and output.count(f"box: run {run_id}: hold runs since") == 2, output
    (place.folder / "gate").touch()
    status, output = place.run("playbooks/resume.yml", "-e", f"run_id={run_id}")
    assert status == 0 and set(place.verdicts.values()) == {"PASS"}, output[-3000:]


def test_stop_ends_a_run_that_lives_and_refuses_one_that_no_host_has(place: Place) -> None:
    running, run_id = place.begin("acceptance.yml", "--tags", "hold")
    status, output = place.run("playbooks/stop.yml", "-e", f"run_id={UNKNOWN_RUN}")
    assert status != 0 and "expected a run that has something on one of these hosts" in " ".join(output.split()), output
    status, output = place.run("playbooks/stop.yml", "-e", f"run_id={run_id}", "--check")
    assert status == 0 and running.poll() is None
    status, output = place.run("playbooks/stop.yml", "-e", f"run_id={run_id}")
    assert status == 0 and output.count(": ended") == 2, output
    output, _nothing = running.communicate(timeout=120)
    assert running.returncode != 0 and set(place.verdicts.values()) == {"UNKNOWN"}, output[-3000:]
    assert not place.left()


def test_restore_ends_what_a_killed_controller_has_left(place: Place) -> None:
    running, _run_id = place.begin("acceptance.yml", "--tags", "hold")
    assert place.run("playbooks/restore.yml")[0] == 0
    status, output = place.run("playbooks/status.yml")
    assert output.count("hold runs since") == 2, "its controller lives"
    running.send_signal(signal.SIGKILL)
    running.wait()
    status, output = place.run("playbooks/restore.yml")
    assert status == 0 and output.count(": ended") == 2, output
    assert place.run("playbooks/cleanup.yml", "-e", f"run_id={place.run_id}")[0] == 0
    place.wait(lambda: not place.left())


def test_variables_of_the_plane_are_validated_and_other_hosts_have_none(place: Place) -> None:
    status, output = place.run("acceptance.yml", "--tags", "copy", "-e", '{"acceptance_processes_wait": "long"}')
    assert status != 0 and "acceptance_processes_wait: found 'long', expected a number" in " ".join(output.split()), output
    hosts = place.folder / "inventory/hosts.yml"
    hosts.write_text(hosts.read_text().replace("      acceptance_plane: ansible_collections.site.own.plugins.plugin_utils.processes\n", ""))
    status, output = place.run("acceptance.yml", "--tags", "copy")
    assert status != 0 and "unknown variable acceptance_processes_folder" in " ".join(output.split()), output
