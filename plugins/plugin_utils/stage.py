# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of a stage: one action per probe module.

Outside a run it is the bare module. Inside one it looks up what the plan wants of this host, runs the module, and writes
what came back, or why nothing did, into the journal. The host stays in the play whatever happens: a host that is lost has
an `unreachable` in the journal, and later stages do not connect to it again.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
import typing as t

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.module_utils import process
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.measurement import Check, Completer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.run import Run, RunError, file_name, write_atomically

PROGRESS_S = 10.0


class StageAction(ActionBase):
    """Runs the module of its own name on this host and journals what it saw."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        planned = task_vars.get("acceptance_run")
        if not planned:
            return dict(self._execute_module(task_vars=task_vars))
        try:
            return StageOnHost(self, planned, task_vars).run()
        except RunError as error:
            return {"failed": True, "msg": str(error)}


class StageOnHost:
    """One stage of one run on one inventory host."""

    def __init__(self, action: StageAction, planned: dict[str, t.Any], task_vars: dict[str, t.Any]) -> None:
        self.action = action
        self.vars = task_vars
        self.controller = os.getppid()
        self.acting = Run(planned["results_dir"], planned["run_id"])
        self.host = str(task_vars["inventory_hostname"])
        self.stage = str(task_vars["acceptance_stage"]["name"])
        self.phase = str(task_vars["acceptance_stage"].get("phase", "all"))
        self.marker = self.acting.dir / "todo" / f"{file_name(self.host)}.{self.stage}.done"

    def run(self) -> dict[str, t.Any]:
        todo = self.acting.todo(self.host).get("stages", {}).get(self.stage)
        if not todo:
            return {"skipped": True, "changed": False, "skip_reason": "not in the plan of this run"}
        if self.phase == "collect" and self.marker.exists():
            return {"skipped": True, "changed": False, "skip_reason": "already measured"}
        attempts: dict[Check, int] = {(check, variant): attempt for check, variant, attempt in todo}
        checks = list(attempts)
        completer = Completer(
            self.acting, self.stage, self.host, "ssh", attempts, bool(self.vars.get("acceptance_simulated"))
        )
        answer = self._answer(checks)
        measurements = interpret(answer, checks, completer)
        if answer.get("state") == "running" and self.phase == "start":
            return {"changed": False, "msg": "started"}
        if not self.acting.is_mine(self.controller):
            return {"failed": True, "msg": f"run {self.acting.id} was taken over by another controller"}
        self._keep_facts(measurements)
        self.acting.journal.append(measurements)
        self._progress()
        if self.phase == "start":
            self.marker.touch()
        facts = answer.get("ansible_facts")
        return {
            "changed": False,
            "msg": "; ".join(sorted({m["reason"] or f"{m['check']} measured" for m in measurements})),
            "outcomes": {f"{m['subject']['id']} {m['check']} {m['variant']}".strip(): m["outcome"] for m in measurements},
            **({"ansible_facts": facts} if facts else {}),
        }

    def _answer(self, checks: list[Check]) -> dict[str, t.Any]:
        """The module's result, or one that says why there is none."""
        lost = self.acting.lost(self.host)
        if lost:
            return {"lost": lost}
        stop = threading.Event()
        threading.Thread(target=self._end_with_controller, args=(stop,), daemon=True).start()
        args = dict(
            self.action._task.args,
            checks=[{"check": check, "variant": variant} for check, variant in checks],
            run={"run_id": self.acting.id, "stage": self.stage, "phase": self.phase},
        )
        try:
            return dict(self.action._execute_module(module_args=args, task_vars=self.vars))
        except AnsibleConnectionFailure as error:
            # Lost in the middle or never reached: either way nobody knows what the node is doing now.
            lost = ("unreachable", one_line(f"{self.host} cannot be reached: {error}"))
            self.acting.lose(self.host, *lost)
            return {"lost": lost}
        except AnsibleError as error:
            return {"failed": True, "msg": str(error)}
        finally:
            stop.set()

    def _end_with_controller(self, stop: threading.Event) -> None:
        """A killed controller does not reach its workers, nor they their ssh: end both, and the node's guardian ends
        the rest."""
        while not stop.wait(0.5):
            if os.getppid() != self.controller:
                for pid in process.descendants(os.getpid()):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)
                os._exit(1)

    def _keep_facts(self, measurements: list[dict[str, t.Any]]) -> None:
        for m in measurements:
            if m["outcome"] == "measured" and "facts" in m["context"]:
                path = self.acting.dir / "nodes" / f"{file_name(self.host)}.json"
                write_atomically(path, json.dumps({"node": self.host, **m["context"]}, indent=1, sort_keys=True) + "\n")

    def _progress(self) -> None:
        """One line every few seconds, whoever of the workers is first to see that it is due."""
        folder = self.acting.dir / "todo"
        count = folder / f"{self.stage}.count"
        with contextlib.suppress(OSError):
            with open(count, "ab") as target:
                target.write(b".")
            now = time.time()
            shown = folder / "shown"
            if not shown.exists():
                shown.touch()
            elif now - shown.stat().st_mtime > PROGRESS_S:
                os.utime(shown)
                Display().display(f"{self.stage}: {count.stat().st_size} of {self._planned()} nodes done")

    def _planned(self) -> str:
        try:
            return str(json.loads((self.acting.dir / "todo" / "totals.json").read_text())[self.stage])
        except (OSError, ValueError, KeyError):
            return "?"


def one_line(text: str, limit: int = 600) -> str:
    """What another program said, as one line."""
    return " ".join(str(text).split())[:limit]


def interpret(answer: dict[str, t.Any], checks: list[Check], completer: Completer) -> list[dict[str, t.Any]]:
    """Every planned check gets a measurement: the module's own, or one that says why there is none."""
    seen = answer.get("observations")
    measurements = [completer.complete(item) for item in seen] if isinstance(seen, list) else []
    have = {(m["check"], m["variant"]) for m in measurements if m["subject"]["kind"] == "node"}
    missing = [check for check in checks if check not in have]
    if missing:
        code, reason, outcome = why_nothing(answer, completer.target)
        measurements += [completer.failure(check, code, reason, outcome) for check in missing]
    return measurements


def why_nothing(answer: dict[str, t.Any], host: str) -> tuple[str, str, str]:
    """Reason code, reason and outcome for a check that the module returned nothing for."""
    if "lost" in answer:
        code, reason = answer["lost"]
        return code, reason, "missing"
    state = answer.get("state")
    if state == "refused":
        return str(answer.get("reason_code")), f"{host}: {one_line(answer.get('reason', ''))}", "error"
    if state == "check_mode":
        return "check_mode", "check mode: nothing was measured", "missing"
    if state == "running":
        return "timeout", f"{host}: the probe is still running after its deadline and could not be ended", "timeout"
    end = answer.get("end")
    if state == "done":
        if answer.get("fault"):
            full = "No space left" in str(answer["fault"])
            return ("disk_full" if full else "module_failed"), f"{host}: {one_line(answer['fault'])}", "error"
        if end == "timeout":
            return "timeout", f"{host}: the stage's deadline passed before this was measured; see its timeout", "timeout"
        if end == "done":
            return "bad_measurement", f"{host}: the probe ended without a word about this check", "error"
        return "interrupted", f"{host}: {one_line(end or 'the probe ended without a result')}", "error"
    return _why_module_failed(answer, host)


def _why_module_failed(answer: dict[str, t.Any], host: str) -> tuple[str, str, str]:
    text = one_line(
        " ".join(str(answer.get(k, "")) for k in ("msg", "module_stderr", "module_stdout", "exception") if answer.get(k))
    )
    low = text.lower()
    for marks, code, hint in _FAILURES:
        if any(mark in low for mark in marks):
            return code, f"{host}: {hint}: {text[:300]}", "error"
    return "module_failed", f"{host}: the module could not run: {text}", "error"


_FAILURES = (
    (("no space left", "disk quota"), "disk_full", "no space left on the node"),
    (
        ("sudo:", "missing sudo password", "incorrect sudo", "become", "privilege", "incorrect su password"),
        "no_sudo",
        "privileges could not be raised; set acceptance_become=false or give the user sudo",
    ),
    (
        ("python: not found", "python3: not found", "no python interpreters",
         "the module interpreter", "python3: no such file", "python: no such file", "bin/python"),
        "no_python",
        "no usable python3 on the node; install python3 or set ansible_python_interpreter",
    ),
)
