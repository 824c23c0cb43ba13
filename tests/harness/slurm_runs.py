# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks over a Slurm cluster of the rig, for tests."""

from __future__ import annotations

import json
import pathlib
import subprocess
import time
import typing as t

from harness import journals
from harness.fleet_runs import GATE, ROOT, Done, latest, run_folder, wait
from rigs.simulated import nodes
from rigs.slurm.slurm import Slurm

CLUSTER = "rig"
# What runs on a host besides our jobs.
DAEMONS = ("slurmd", "slurmctld", "slurmscriptd", "munged", "sshd", "slurmdbd", "mariadbd")


class Runs:
    """Runs over one cluster, each with a folder of its own."""

    def __init__(self, slurm: Slurm, folder: pathlib.Path) -> None:
        self.slurm = slurm
        self.folder = folder
        self._count = 0

    def start(self, stages: t.Sequence[str], *more: str, **variables: t.Any) -> Controller:
        """Start a controller with a process group of its own. `variables` are those of the cluster."""
        self._count += 1
        folder = self.folder / str(self._count)
        folder.mkdir()
        cluster = {
            "acceptance_plane": "slurm",
            "acceptance_slurm_ssh": ["ssh", "-F", str(self.slurm.fleet.ssh_config), self.slurm.controller],
            "acceptance_gpu_count": 8,
            "acceptance_nodes": {"expected": self.slurm.fleet.hosts},
            "nccl_node_sizes": ["8M:16G"],
            **nodes.tools_at("/opt/simulated/bin"),
            **variables,
        }
        (folder / "inventory.yml").write_text(json.dumps({"all": {"hosts": {CLUSTER: cluster}}}))
        extra = {"acceptance_results_dir": str(folder / "results"), "acceptance_simulated": True, "acceptance_stages": list(stages)}
        argv = [
            str(ROOT / ".venv/bin/ansible-playbook"),
            "acceptance.yml",
            "-i",
            str(folder / "inventory.yml"),
            "-e",
            json.dumps(extra),
            *more,
        ]
        return Controller(argv, folder)

    def run(self, stages: t.Sequence[str], *more: str, **variables: t.Any) -> Done:
        return self.start(stages, *more, **variables).end()

    def at_gate(self, **variables: t.Any) -> tuple[Controller, dict[str, pathlib.Path]]:
        """Start a run whose tool waits on every node for a file `open`, and return when it does, with the folder of that file per node.
        With `acceptance_slurm_nodes_per_job` they share a job."""
        gates = {host: self.slurm.fleet.plant(host) / "gate" for host in self.slurm.fleet.hosts}
        for gate in gates.values():
            gate.mkdir(exist_ok=True)
            for name in ("reached", "open"):
                (gate / name).unlink(missing_ok=True)
            (gate / "all_reduce_perf").write_text(GATE)
            (gate / "all_reduce_perf").chmod(0o755)
        controller = self.start(["nccl_node"], nccl_node_binary_dir="/opt/simulated/gate", **variables)
        wait(lambda: all((gate / "reached").exists() for gate in gates.values()), controller.process)
        assert len(self.slurm.jobs()) == (1 if variables.get("acceptance_slurm_nodes_per_job", 1) > 1 else len(gates))
        return controller, gates

    def nothing_left(self, seconds: float, *own: str) -> None:
        """Wait until no job is in the queue, no process but for those with the words `own`, and no file of a run on the hosts."""
        end = time.monotonic() + seconds
        while left := [*self.slurm.jobs(), *self._left((*DAEMONS, *own))]:
            assert time.monotonic() < end, left
            time.sleep(0.2)

    def _left(self, known: t.Collection[str]) -> list[str]:
        fleet = self.slurm.fleet
        left = []
        for host in fleet.hosts:
            running = [" ".join(argv)[:100] for argv in fleet.processes(host).values()]
            left += [f"{host}: {words}" for words in running if not any(word in words for word in known)]
            left += [f"{host}: {path}" for path in fleet.find(host, "/tmp", "/var/lib", "/root") if "gpufleet" in path]
        return left


class Controller:
    """A run of ansible-playbook."""

    def __init__(self, argv: list[str], folder: pathlib.Path) -> None:
        self.folder = folder
        with open(folder / "output", "w", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                argv,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def output(self) -> str:
        return (self.folder / "output").read_text(encoding="utf-8", errors="replace")

    def end(self, timeout: float = 300) -> Done:
        """Wait for its end."""
        try:
            status = self.process.wait(timeout)
        finally:
            if self.process.poll() is None:
                self.process.kill()
        text = self.output()
        assert "Traceback" not in text, text[-4000:]
        folder = run_folder(self.folder / "results")
        if folder is None or not (folder / "verdicts.jsonl").exists():
            return Done(status, text, folder, [], [])
        return Done(status, text, folder, latest(folder), journals.of(folder))
