# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures, measured side by side in one run: python tests/bench/run.py [FIGURE]. One JSON line each, progress on stderr."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/bench"
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from harness import journals  # noqa: E402
from rigs.fleet.fleet import Fleet  # noqa: E402
from rigs.simulated import nodes  # noqa: E402

BIN = pathlib.Path(sys.executable).parent
HOSTS, FORKS, ROUNDS, LONG = (int(os.environ.get(f"BENCH_{n}", d)) for n, d in (("HOSTS", 64), ("FORKS", 16), ("ROUNDS", 3), ("LONG", 20)))


def show(figure: str, value: float | None, unit: str, goal: str, compared_with: str, holds: bool | None) -> None:
    line = {"figure": figure, "value": value, "unit": unit, "goal": goal, "compared_with": compared_with, "holds": holds}
    print(json.dumps(line), flush=True)


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


class Bench:
    """A fleet with instant tools, and commands timed against it with cold connections."""

    def __init__(self, fleet: Fleet, folder: pathlib.Path) -> None:
        self.fleet, self.folder, self.sockets = fleet, folder, folder / "cp"
        fleet.up(HOSTS)
        for number, host in enumerate(fleet.hosts, 1):
            plant = fleet.plant(host)
            nodes.planted(plant / "slow", number)
            for tool in nodes.TOOLS.iterdir():
                shutil.copy(HERE / "instant/replay", plant / "bin" / tool.name)
        self.vars = folder / "vars.json"
        variables = {
            **nodes.tools_at("/opt/simulated/bin"),
            "acceptance_simulated": True,
            "acceptance_results_dir": str(folder / "results"),
            "bench_results": str(folder / "fetched"),
        }
        self.vars.write_text(json.dumps(variables))

    def seconds(self, *argv: str, verdict: bool = False) -> float:
        """Wall time of an Ansible command. A stage may end with 2 (not accepted: no expectation for a simulated size)."""
        self._cold()
        env = {
            **os.environ,
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.sockets),
            "ANSIBLE_FORKS": str(FORKS),
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }
        with open(self.folder / "log", "wb") as log:
            began = time.monotonic()
            rc = subprocess.run(argv, cwd=ROOT, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False).returncode
            took = time.monotonic() - began
        if rc not in ((0, 2) if verdict else (0,)):
            raise SystemExit(f"{' '.join(argv)} ended with {rc}:\n{(self.folder / 'log').read_text(errors='replace')[-3000:]}")
        if verdict:
            self._measured()
        say(f"{took:.2f} s {' '.join(argv[:4])}")
        return took

    def stage(self) -> float:
        return self.seconds(
            str(BIN / "ansible-playbook"),
            "acceptance.yml",
            "-i",
            str(self.fleet.inventory),
            "--tags",
            "nccl_node",
            "-e",
            f"@{self.vars}",
            verdict=True,
        )

    def bare(self) -> float:
        return self.seconds(str(BIN / "ansible"), "-i", str(self.fleet.inventory), "fleet", "-m", "command", "-a", "true")

    def eight(self) -> float:
        return self.seconds(
            str(BIN / "ansible-playbook"), "tests/bench/eight_tasks.yml", "-i", str(self.fleet.inventory), "-e", f"@{self.vars}"
        )

    def tool_takes(self, seconds: int) -> None:
        for host in self.fleet.hosts:
            (self.fleet.plant(host) / "seconds").write_text(str(seconds))

    def _cold(self) -> None:
        self.sockets.mkdir(exist_ok=True)
        for socket in self.sockets.iterdir():
            subprocess.run(["ssh", "-O", "exit", "-o", f"ControlPath={socket}", "x"], capture_output=True, check=False)
        shutil.rmtree(self.sockets, ignore_errors=True)  # a connection that ends takes its own with it

    def _measured(self) -> None:
        """A stage that failed early would be fast: every host must have a measured record."""
        run = max((self.folder / "results").glob("*/journal.jsonl.gz"), key=lambda p: p.stat().st_mtime)
        text = journals.text(run).decode()
        missing = [h for h in self.fleet.hosts if f'"{h}"' not in text]
        if missing or "measured" not in text:
            raise SystemExit(f"not measured: {missing[:5]}; {text[:600]}; {(self.folder / 'log').read_text(errors='replace')[-2000:]}")

    def close(self) -> None:
        self._cold()


@contextlib.contextmanager
def fleet_bench() -> t.Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="gb", ignore_cleanup_errors=True) as folder:
        fleet = Fleet.reserve()
        bench = None
        try:
            bench = Bench(fleet, pathlib.Path(folder))
            say("warming up")
            bench.stage()
            yield bench
        finally:
            if bench:
                bench.close()
            fleet.down()


def stage_overhead() -> None:
    with fleet_bench() as bench:
        pairs = [(bench.bare(), bench.stage()) for _ in range(ROUNDS)]
    bare, stage = (statistics.median(p[i] for p in pairs) for i in (0, 1))
    ratio = stage / bare
    show(
        "stage_overhead",
        round(ratio, 3),
        "ratio",
        "<= 1.00",
        f"ansible -m command -a true, {HOSTS} hosts, forks {FORKS}: {bare:.2f} s against {stage:.2f} s",
        ratio <= 1.00,
    )


def stage_speedup() -> None:
    with fleet_bench() as bench:
        pairs = [(bench.eight(), bench.stage()) for _ in range(ROUNDS)]
    eight, stage = (statistics.median(p[i] for p in pairs) for i in (0, 1))
    ratio = eight / stage
    show(
        "stage_speedup",
        round(ratio, 3),
        "ratio",
        ">= 5.5",
        f"a playbook of 8 tasks, {HOSTS} hosts, forks {FORKS}: {eight:.2f} s against {stage:.2f} s",
        ratio >= 5.5,
    )


def stage_long() -> None:
    with fleet_bench() as bench:
        instant = bench.stage()
        bench.tool_takes(LONG)
        took = bench.stage()
    ratio = took / (LONG + instant)
    show(
        "stage_long",
        round(ratio, 3),
        "ratio",
        "<= 1.25",
        f"{LONG} s + the instant stage of {instant:.2f} s, {HOSTS} hosts, forks {FORKS}: {took:.2f} s",
        ratio <= 1.25,
    )


def localise() -> None:
    subprocess.run([sys.executable, str(HERE / "localise.py")], check=True)


def matrix() -> None:
    subprocess.run([sys.executable, str(HERE / "matrix.py")], check=True)


def regression() -> None:
    subprocess.run([sys.executable, str(HERE / "regression.py")], check=True)


def history() -> None:
    subprocess.run([sys.executable, str(HERE / "history.py")], check=True)


def scrape() -> None:
    subprocess.run([sys.executable, str(HERE / "scrape.py")], check=True)


def console() -> None:
    subprocess.run([sys.executable, str(HERE / "console.py")], check=True)


def sharing() -> None:
    subprocess.run([sys.executable, str(HERE / "sharing.py")], check=True)


def report_scale() -> None:
    subprocess.run([sys.executable, str(HERE / "report_scale.py")], check=True)


def fabric_map() -> None:
    subprocess.run([sys.executable, str(HERE / "fabric_map.py")], check=True)


def storage() -> None:
    subprocess.run([sys.executable, str(HERE / "storage.py")], check=True)


def soak() -> None:
    subprocess.run([sys.executable, str(HERE / "soak.py")], check=True)


def all_pairs() -> None:
    subprocess.run([sys.executable, str(HERE / "all_pairs.py")], check=True)


def kube_stack() -> None:
    subprocess.run([sys.executable, str(HERE / "kube_stack.py")], check=True)


def slurm_stage() -> None:
    subprocess.run([sys.executable, str(HERE / "slurm_stage.py")], check=True)


def gemm_check() -> None:
    subprocess.run([sys.executable, str(HERE / "gemm_check.py")], check=True)


def ddp() -> None:
    subprocess.run([sys.executable, str(HERE / "ddp.py")], check=True)


def gpu_overhead() -> None:
    goal, what = "<= 1.05 x tool + 3 s", "the time of all_reduce_perf itself"
    smi, perf = shutil.which("nvidia-smi"), shutil.which("all_reduce_perf")
    if not smi or subprocess.run([smi, "-L"], capture_output=True, check=False).returncode != 0:
        show("gpu_overhead", None, "s", goal, f"{what}; not measured: no working nvidia-smi", None)
        return
    if not perf:
        show("gpu_overhead", None, "s", goal, f"{what}; not measured: all_reduce_perf is not in PATH", None)
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        variables = {
            "ansible_connection": "local", "ansible_python_interpreter": sys.executable, "acceptance_become": False,
            "acceptance_results_dir": f"{folder}/results", "acceptance_state_dir": f"{folder}/state",
            "nccl_node_binary_dir": str(pathlib.Path(perf).parent), "nccl_node_sizes": ["8M:1G"],
        }  # fmt: skip
        gpus = subprocess.run([smi, "-L"], capture_output=True, text=True, check=True).stdout.count("GPU ")
        began = time.monotonic()
        subprocess.run([perf, "-b", "8M", "-e", "1G", "-f", "2", "-g", str(gpus), "-n", "20", "-w", "5"], check=True, stdout=sys.stderr)
        tool = time.monotonic() - began
        began = time.monotonic()
        done = subprocess.run(
            [
                shutil.which("ansible-playbook") or "ansible-playbook",
                "acceptance.yml", "-i", "gpu-node,", "--tags", "nccl_node", "-e", json.dumps(variables),
            ],
            cwd=ROOT, stdout=sys.stderr, check=False,
        )  # fmt: skip
        took = time.monotonic() - began
    measured = done.returncode in (0, 2)
    show("gpu_overhead", round(took, 2), "s", goal, f"{what}: {tool:.2f} s on {gpus} GPUs", measured and took <= 1.05 * tool + 3)


FIGURES: dict[str, t.Callable[[], None]] = {
    f.__name__: f
    for f in (
        *(stage_overhead, stage_speedup, stage_long, localise, matrix, all_pairs, kube_stack, slurm_stage, gpu_overhead),
        *(gemm_check, ddp, history, regression, scrape, report_scale, console, sharing, soak, fabric_map, storage),
    )
}


def main() -> int:
    names = sys.argv[1:] or list(FIGURES)
    if unknown := [n for n in names if n not in FIGURES]:
        print(f"unknown figure {unknown[0]}; there are {', '.join(FIGURES)}", file=sys.stderr)
        return 2
    for name in names:
        say(name)
        FIGURES[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
