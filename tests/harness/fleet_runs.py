# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks over hosts of the fleet rig, for tests and drills: runs, gates that hold a tool in its middle, leftovers."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from harness import journals
from rigs import common
from rigs.fleet.fleet import Fleet
from rigs.simulated import nodes

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What is measured of the machine that the simulated hosts share: other numbers in every run.
MEASURED_HERE = ("host_health", "bandwidth")
# Everything that a host has of its own and that a run could write to.
PLACES = ("/root", "/home", "/tmp", "/var/tmp", "/var/lib", "/run", "/dev/shm")
# A lost host is noticed within 16 s instead of a minute.
SSH_ARGS = "-o ControlMaster=auto -o ControlPersist=30s -o ServerAliveInterval=4 -o ServerAliveCountMax=4"
GATE = """\
#!/bin/sh
echo $$ > /opt/simulated/gate/reached
while [ ! -e /opt/simulated/gate/open ]; do sleep 0.1; done
exec /opt/simulated/bin/${0##*/} "$@"
"""


class Done(t.NamedTuple):
    """A run that has ended, and its verdicts."""

    status: int
    output: str
    folder: pathlib.Path | None
    verdicts: list[dict[str, t.Any]]
    journal: list[dict[str, t.Any]]

    def on(self, host: str, stage: str = "") -> list[dict[str, t.Any]]:
        return [v for v in self.verdicts if v["subject"]["id"].split("/")[0] == host and stage in ("", v["stage"])]

    def of(self, host: str, stage: str = "") -> set[str]:
        return {v["verdict"] for v in self.on(host, stage)}

    def codes(self, host: str, stage: str = "") -> set[str]:
        return {v["reason_code"] for v in self.on(host, stage) if v["reason_code"]}

    def good(self, host: str) -> bool:
        """Judged at all, and nothing worse than a WARN, but what a machine like this one does not show; a node without a verdict is not a
        good one."""
        words = {v["verdict"] for v in self.on(host) if v["reason_code"] not in ("not_visible", "no_rdma_expected")}
        return bool(words) and words <= {"PASS", "WARN"}

    def essence(self) -> dict[tuple[str, ...], tuple[t.Any, ...]]:
        """Return what must be the same whatever happened on the way: key of a verdict -> verdict, reason code, value."""
        return {
            (v["stage"], v["check"], v["variant"], v["subject"]["id"]): (
                v["verdict"], v["reason_code"], None if (v["stage"], v["check"]) == MEASURED_HERE else v["value"]
            )
            for v in self.verdicts
        }


class Acceptance:
    """Runs of the playbooks over hosts of a fleet, from this machine, with ssh connections of their own."""

    def __init__(self, fleet: Fleet, folder: pathlib.Path) -> None:
        self.fleet = fleet
        self.folder = folder
        self.sockets = pathlib.Path(tempfile.mkdtemp(prefix="gf-"))  # a short path: sockets allow 108 characters
        self.before = {host: self._files(host) for host in fleet.hosts}
        self._runs = 0

    def close(self) -> None:
        """End the ssh connections that stay open for the next run."""
        for socket in self.sockets.iterdir():
            subprocess.run(["ssh", "-O", "exit", "-o", f"ControlPath={socket}", "fleet"], check=False, capture_output=True)
        shutil.rmtree(self.sockets, ignore_errors=True)  # a connection that ends takes its own with it

    # Hosts -------------------------------------------------------------------------------------------------------

    def plant(self, host: str, **settings: t.Any) -> None:
        """The host's tools as of a healthy node, or with FAULTS; no gate."""
        shutil.rmtree(self.fleet.plant(host) / "gate", ignore_errors=True)
        (self.fleet.plant(host) / "replays").unlink(missing_ok=True)
        nodes.planted(self.fleet.plant(host), self.fleet.hosts.index(host) + 1, **settings)

    def tool(self, host: str, name: str, script: str) -> None:
        """Replace one of the host's tools."""
        path = self.fleet.plant(host) / "bin" / name
        path.write_text(script)
        path.chmod(0o755)

    def gate(self, *hosts: str) -> dict[str, t.Any]:
        """Hold all_reduce_perf on these hosts until `open`; the variables that make a run use it."""
        for host in hosts:
            gate = self.fleet.plant(host) / "gate"
            gate.mkdir()
            (gate / "all_reduce_perf").write_text(GATE)
            (gate / "all_reduce_perf").chmod(0o755)
        return {host: {"nccl_node_binary_dir": "/opt/simulated/gate"} for host in hosts}

    def at_gate(self, running: subprocess.Popen[str], *hosts: str) -> None:
        """Wait until the tool runs on all of these hosts."""
        wait(lambda: all((self.fleet.plant(h) / "gate/reached").exists() for h in hosts), running)

    def open(self, *hosts: str) -> None:
        for host in hosts:
            (self.fleet.plant(host) / "gate/open").touch()

    def nothing_left(self, *hosts: str, seconds: float = 90, but_results: bool = False) -> None:
        """Wait until no process and no file of a run is on the hosts; `but_results`: what a killed controller did not collect may wait
        there for the resume, held by its guardian."""
        end = time.monotonic() + seconds
        while left := [line for host in hosts for line in (self._but_results(host) if but_results else self.left(host))]:
            assert time.monotonic() < end, left
            time.sleep(0.3)

    def _but_results(self, host: str) -> list[str]:
        left = self.left(host)
        results = [line for line in left if re.fullmatch(rf"{host}: /var/lib/gpufleet-acceptance(/[^/]+(/\w+\.jsonl)?)?", line)]
        kept = any(line.endswith(".jsonl") for line in results)
        guardian = f"{host}: /usr/bin/python3 -c {payload.READ_PROGRAM}"
        return [line for line in left if line not in results and not (kept and line == guardian)]

    def left(self, host: str) -> list[str]:
        """Processes and files that the host did not have before."""
        ours = [" ".join(argv)[:100] for argv in self.fleet.processes(host).values() if "sshd" not in argv[0]]
        return [f"{host}: {what}" for what in (*ours, *sorted(self._files(host) - self.before[host]))]

    def _files(self, host: str) -> set[str]:
        found = self.fleet.find(host, *PLACES)
        # Ansible's own folder stays where there is no pipelining, empty.
        return {line for line in found if not line.endswith(("/.ansible", "/.ansible/tmp")) and not line.startswith("/run/sshd")}

    def restart_sshd(self, host: str) -> None:
        """After it was killed; its logins are counted on."""
        self.fleet.inside(host, "/usr/sbin/sshd", "-E", "/run/sshd.log")

    def logins(self, host: str) -> list[str]:
        """Return the lines of the host's sshd about every login."""
        log = (self.fleet.folder(host) / "log").read_text(errors="replace")
        with contextlib.suppress(common.RigError):
            log += self.fleet.inside(host, "cat", "/run/sshd.log")
        return [line for line in log.splitlines() if line.startswith("Accepted publickey")]

    # Runs --------------------------------------------------------------------------------------------------------

    def command(
        self,
        hosts: t.Iterable[str],
        *more: str,
        playbook: str = "acceptance.yml",
        results: pathlib.Path | None = None,
        variables: dict[str, dict[str, t.Any]] | None = None,
        binary: t.Sequence[str] = (str(ROOT / ".venv/bin/ansible-playbook"),),
    ) -> list[str]:
        """`hosts` are the whole inventory; `variables` are those of single hosts."""
        self._runs += 1
        folder = self.folder / str(self._runs)
        folder.mkdir()
        common.write_inventory(
            folder / "inventory.yml",
            "fleet",
            {
                host: {
                    "ansible_host": self.fleet.address(host),
                    "acceptance_gpu_count": 8,
                    **nodes.tools_at("/opt/simulated/bin"),
                    **(variables or {}).get(host, {}),
                }
                for host in hosts
            },
            self.fleet.key,
            self.fleet.known_hosts,
        )
        extra = {
            "acceptance_results_dir": str(results or folder / "results"),
            "acceptance_simulated": True,
            "nccl_node_sizes": ["8M:16G"],
        }
        return [*binary, playbook, "-i", str(folder / "inventory.yml"), "-f", "16", "-e", json.dumps(extra), *more]

    def environment(self, **more: str) -> dict[str, str]:
        own = {"ANSIBLE_SSH_ARGS": SSH_ARGS, "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.sockets), "ANSIBLE_TIMEOUT": "20"}
        return {**os.environ, **own, **more}

    def start(self, command: list[str], cwd: pathlib.Path = ROOT, **environment: str) -> subprocess.Popen[str]:
        """A controller with a process group of its own; its output lies beside its inventory."""
        with open(self.output(command), "w", encoding="utf-8") as output:
            return subprocess.Popen(
                command, cwd=cwd, env=self.environment(**environment), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, text=True, start_new_session=True,
            )  # fmt: skip

    def end(self, command: list[str], running: subprocess.Popen[str], timeout: float = 600) -> Done:
        """Wait for a controller."""
        try:
            status = running.wait(timeout)
        finally:
            if running.poll() is None:
                running.kill()
        output = self.output(command).read_text(encoding="utf-8", errors="surrogateescape")
        assert "Traceback" not in output, output[-4000:]
        folder = run_folder(results_of(command))
        if folder is None:
            return Done(status, output, None, [], [])
        return Done(status, output, folder, latest(folder), journals.of(folder))

    def run(
        self, hosts: t.Iterable[str], *more: str, environment: dict[str, str] | None = None, cwd: pathlib.Path = ROOT, **options: t.Any
    ) -> Done:
        command = self.command(hosts, *more, **options)
        return self.end(command, self.start(command, cwd, **(environment or {})))

    @staticmethod
    def output(command: list[str]) -> pathlib.Path:
        return pathlib.Path(command[command.index("-i") + 1]).with_name("output")


def results_of(command: list[str]) -> pathlib.Path:
    return pathlib.Path(json.loads(command[command.index("-e") + 1])["acceptance_results_dir"])


def run_folder(results: pathlib.Path) -> pathlib.Path | None:
    """The one run of a results folder."""
    found = list(results.glob("*/plan.json")) if results.is_dir() else []
    assert len(found) <= 1, found
    return found[0].parent if found else None


def latest(folder: pathlib.Path) -> list[dict[str, t.Any]]:
    """The verdicts of a run's last judgement."""
    found = [folder / "verdicts.jsonl", *sorted(folder.glob("judged/*/verdicts.jsonl"))]
    return read(found[-1])


def read(path: pathlib.Path) -> list[dict[str, t.Any]]:
    """A file of JSON lines; what a killed controller has left of one is none."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def wait(until: t.Callable[[], t.Any], running: subprocess.Popen[str] | None = None, seconds: float = 300) -> None:
    """Wait for something, as long as a controller runs at all."""
    end = time.monotonic() + seconds
    while not until():
        assert running is None or running.poll() is None, f"the controller ended with status {running.returncode}"
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
