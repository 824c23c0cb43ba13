# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A playbook of somebody else that asks what runs say of its nodes."""

from __future__ import annotations

import json
import pathlib
import subprocess

from harness import history_runs as runs
from harness.fleet_runs import ROOT

PLAY = """
- hosts: all
  gather_facts: false
  connection: ansible.builtin.local
  tasks:
    - name: What the last run says of this node
      gpufleet.acceptance.acceptance_info: {results_dir: "{{ results }}", node: "{{ inventory_hostname }}"}
      register: acceptance
    - name: Only accepted nodes go on
      ansible.builtin.assert:
        that:
          - acceptance.nodes | length > 0
          - acceptance.nodes[0].verdict == 'PASS'
        fail_msg: "{{ acceptance.causes | map(attribute='said') | join('; ') | default('never tested', true) }}"
"""


def play(folder: pathlib.Path, *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "play.yml").write_text(PLAY)
    command = [str(ROOT / ".venv/bin/ansible-playbook"), str(folder / "play.yml"), "-i", "a,b,z,", *more]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_play_lets_only_nodes_go_on_that_were_accepted(tmp_path: pathlib.Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    runs.judged(results, 1, runs.fleet(a=670, b=500))
    before = {path: path.stat().st_mtime_ns for path in results.rglob("*")}
    done = play(tmp_path, "--check", "-e", json.dumps({"results": str(results)}))
    lines = [line for line in done.stdout.splitlines() if line.startswith(("a ", "b ", "z "))]
    assert [("failed=0" in line, "changed=0" in line) for line in lines] == [(True, True), (False, True), (False, True)], done.stdout
    assert "gemm bf16: tflops 500" in done.stdout and "never tested" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in results.rglob("*")} == before


def test_a_wrong_folder_or_option_is_one_sentence(tmp_path: pathlib.Path) -> None:
    done = play(tmp_path, "-e", json.dumps({"results": str(tmp_path / "nowhere")}))
    assert done.returncode and "No such file or directory; expected the folder of all runs" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
