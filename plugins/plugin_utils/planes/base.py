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
import dataclasses
import json
import os
import re
import signal
import sys
import threading
import time
import typing as t

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.module_utils import process
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.planner import between
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import Check, Completer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run, RunError, file_name, write_atomically
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import manifest

PROGRESS_S = 10.0
# JSON has none of these but line ends.
_CONTROL = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# Asked before the fork: a worker has no terminal.
TERMINAL = sys.stdout.isatty()


class StageAction(ActionBase):
    """Runs the module of its own name on this host and journals what it saw.

    Loaded before Ansible forks, once; what is loaded in a worker is loaded for every host.
    """

    module: str
    spec: dict[str, t.Any]

    # A request of plugin_utils/planes/payload.py that goes to the node in place of the module file.
    request: dict[str, t.Any] | None = None

    def _configure_module(self, *args: t.Any, **kwargs: t.Any) -> t.Any:
        """Everything but the text of the module is as Ansible does it: interpreter, pipelining, become, reading the answer."""
        found = super()._configure_module(*args, **kwargs)
        if self.request is None:
            return found
        program = payload.program(self.request)
        if len(found) == 4:  # core 2.18: style, interpreter line, text, path
            return found[0], found[1], program, found[3]
        return dataclasses.replace(found[0], b_module_data=program), found[1]

    def _parse_returned_data(self, res: dict[str, t.Any], *args: t.Any, **kwargs: t.Any) -> t.Any:
        """Ansible shows what stands around the answer: nothing of it may steer a terminal."""
        shown = {name: _CONTROL.sub("?", res[name]) for name in ("stdout", "stderr") if isinstance(res.get(name), str)}
        return super()._parse_returned_data({**res, **shown}, *args, **kwargs)

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        planned = task_vars.get("acceptance_run")
        if not planned:
            return dict(self._execute_module(task_vars=task_vars))
        try:
            return self._on(planned, task_vars).run()
        except RunError as error:
            return {"failed": True, "msg": str(error)}
        except OSError as error:
            return {"failed": True, "msg": f"run {planned['run_id']} in {planned['results_dir']}: {error}"}

    def _on(self, planned: dict[str, t.Any], task_vars: dict[str, t.Any]) -> StageOnTarget:
        if task_vars.get("acceptance_plane") != "kubernetes":
            return StageOnHost(self, planned, task_vars)
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kube.stages import (
            stage,
            stage_group,
            stage_manifest,
            stage_rdma,
        )

        wanted: type[stage.StageOnCluster] = stage.StageOnCluster
        if task_vars["acceptance_stage"]["role"] == manifest.ROLE:
            wanted = stage_manifest.ManifestOnCluster
        elif self.module in stage_group.MODULES:
            wanted = stage_group.GroupsOnCluster
        elif self.module in stage_rdma.MODULES:
            wanted = stage_rdma.MODULES[self.module]
        return t.cast("StageOnTarget", wanted(self, planned, task_vars))


def action_of(module: str) -> type[StageAction]:
    """The action plugin of a probe module."""
    payload.packed()
    return type("ActionModule", (StageAction,), {"module": module, "spec": payload.options(module)})


class StageOnTarget:
    """One stage of one run on one inventory host, of either plane: what is wanted of it, and where the answers go.

    `action.module` is the probe module of the stage; `planned` is {(check, variant, subject id): item of the todo}.
    """

    def __init__(self, action: StageAction, planned: dict[str, t.Any], task_vars: dict[str, t.Any]) -> None:
        self.action = action
        self.vars = task_vars
        self.controller = os.getppid()
        self.acting = Run(planned["results_dir"], planned["run_id"])
        self.host = str(task_vars["inventory_hostname"])
        self.stage = str(task_vars["acceptance_stage"]["name"])
        self.phase = str(task_vars["acceptance_stage"].get("phase", "all"))
        self.detach = bool(planned.get("detached"))
        todo = self.acting.todo(self.host)
        self.settings: dict[str, t.Any] = todo.get("settings", {})
        items = todo.get("stages", {}).get(self.stage, [])
        self.planned: dict[Check, dict[str, t.Any]] = {(i["check"], i["variant"], i["subject"]["id"]): i for i in items}
        simulated = bool(self.settings.get("acceptance_simulated"))
        plane = self.settings.get("acceptance_plane") or "ssh"
        self.completer = Completer(self.acting, self.stage, self.host, plane, self.planned, simulated)

    def run(self) -> dict[str, t.Any]:
        raise NotImplementedError

    def args(self) -> dict[str, t.Any]:
        """The module's arguments: what the task gives; else what a stage between nodes works out; else the variable of the
        stage (`nccl_node_warmup` for `warmup`) or of all stages (`acceptance_root` for `root`), as the plan has them."""
        own = {k: v for k, v in self.action._task.args.items() if v is not None}
        args: dict[str, t.Any] = {}
        for name in self.action.spec:
            for prefix in (f"{self.stage}_", "acceptance_"):
                if self.settings.get(prefix + name) is not None:
                    args[name] = self.settings[prefix + name]
                    break
        pairs = dict.fromkeys((check, variant) for check, variant, _subject in self.planned)
        args["checks"] = [{"check": check, "variant": variant} for check, variant in pairs]
        return {**args, **self._work(), **own, "run": {"run_id": self.acting.id, "stage": self.stage, "phase": self.phase}}

    def _work(self) -> dict[str, t.Any]:
        module = between(self.stage)
        if module is None:
            return {}

        def make() -> dict[str, dict[str, t.Any]]:
            return dict(module.work(self.acting, self.acting.plan(), self.acting.todos()))

        found = self.acting.share(self.stage, self.host, make)
        if "begins_at" in found:  # one moment for all targets: told as seconds from now, their clocks need not agree with ours
            found["begins_in"] = max(0.0, found.pop("begins_at") - time.time())
        return found

    def keep(self, measurements: list[dict[str, t.Any]]) -> None:
        """Into the journal; RunError where this run belongs to another controller by now."""
        if not self.acting.is_mine(self.controller):
            raise RunError(f"run {self.acting.id} was taken over by another controller")
        self._keep_facts(measurements)
        self.acting.journal.append(measurements)

    def result(self, measurements: list[dict[str, t.Any]]) -> dict[str, t.Any]:
        """What the task returns."""
        return {
            "changed": False,
            "msg": "; ".join(sorted({m["reason"] or f"{m['check']} measured" for m in measurements})),
            "outcomes": {f"{m['subject']['id']} {m['check']} {m['variant']}".strip(): m["outcome"] for m in measurements},
        }

    def _keep_facts(self, measurements: list[dict[str, t.Any]]) -> None:
        for m in measurements:
            if m["outcome"] == "measured" and "facts" in m["context"]:
                node = m["subject"]["id"]
                path = self.acting.dir / "nodes" / f"{file_name(node)}.json"
                write_atomically(path, json.dumps({"node": node, **m["context"]}, indent=1, sort_keys=True) + "\n")

    def progress(self, measurements: list[dict[str, t.Any]]) -> None:
        """One line every few seconds on a terminal, whoever of the workers is first to see that it is due."""
        folder = self.acting.dir / "todo"
        count = folder / f"{self.stage}.count"
        with contextlib.suppress(OSError):
            nodes = {m["subject"]["id"] for m in measurements if (m["check"], m["variant"], m["subject"]["id"]) in self.planned}
            bad = {m["subject"]["id"] for m in measurements if m["outcome"] not in ("measured", "not_applicable")}
            with open(count, "ab") as target:
                target.write(b"".join(b"x" if node in bad else b"." for node in nodes))
            now = time.time()
            shown = folder / f"{self.stage}.shown"
            if not shown.exists():
                shown.write_text(str(now))  # when the first node was done
            elif TERMINAL and now - shown.stat().st_mtime > PROGRESS_S:
                os.utime(shown)
                since = now - float(shown.read_text())
                total = json.loads((folder / "totals").read_text())[self.stage]
                Display().display(progress_line(self.stage, count.read_bytes(), total, since))


class StageOnHost(StageOnTarget):
    """One stage on one machine behind SSH."""

    def run(self) -> dict[str, t.Any]:
        marker = self.acting.dir / "todo" / f"{file_name(self.host)}.{self.stage}.done"
        if not self.planned:
            return {"skipped": True, "changed": False, "skip_reason": "not in the plan of this run"}
        if self.phase == "collect" and marker.exists():
            return {"skipped": True, "changed": False, "skip_reason": "already measured"}
        answer = self._answer()
        if answer.get("state") == "running" and self.phase == "start":
            return {"changed": False, "msg": "started"}
        measurements = interpret(answer, self.completer)
        self.keep(measurements)
        self.progress(measurements)
        if self.phase == "start":
            marker.touch()
        facts = answer.get("ansible_facts")
        return {**self.result(measurements), **({"ansible_facts": facts} if facts else {})}

    def _answer(self) -> dict[str, t.Any]:
        """The module's result, or one that says why there is none."""
        lost = self.acting.lost(self.host)
        if lost:
            return {"lost": lost}
        stop = threading.Event()
        threading.Thread(target=self._end_with_controller, args=(stop,), daemon=True).start()
        try:
            args = self.args()
            check = self.action._task.check_mode
            if "answer" in args:  # a stage between nodes knows it without asking
                return {"state": "check_mode"} if check else dict(args["answer"])
            if not check:
                self.action.request = payload.request(self.action.module, self.action.spec, args)
            return dict(self.action._execute_module(module_args=args, task_vars=self.vars))
        except ValueError as error:
            return {"failed": True, "msg": f"wrong arguments: {error}"}
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


def progress_line(stage: str, done: bytes, total: int, since: float) -> str:
    """`done` has one byte for each node that is done, `x` where nothing was measured; `since` are the seconds since the first one."""
    bad, left = done.count(b"x"), total - len(done)
    line = f"{stage}: {len(done)} of {total} nodes done" + (f", {bad} of them without a result" if bad else "")
    if left:
        line += f", {left} running or waiting"
    if left and len(done) > 1:
        line += f", about {since / (len(done) - 1) * left:.0f} s to go"
    return line


def one_line(text: str, limit: int = 600) -> str:
    """What another program said, as one line of real characters."""
    return " ".join(str(text).encode("utf-8", "replace").decode().split())[:limit]


def last_words(text: str) -> str:
    """What an exception said at last, without the way to it."""
    return text.rstrip().rpartition("\n")[2] if "Traceback (most recent call last)" in text else text


def interpret(answer: dict[str, t.Any], completer: Completer) -> list[dict[str, t.Any]]:
    """Every planned check gets a measurement: the module's own, or one that says why there is none."""
    seen = answer.get("observations")
    measurements = [completer.complete(item) for item in seen] if isinstance(seen, list) else []
    have = {(m["check"], m["variant"], m["subject"]["id"]) for m in measurements}
    missing = [check for check in completer.planned if check not in have]
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
    text = one_line(" ".join(last_words(str(answer[k])) for k in ("msg", "module_stderr", "module_stdout") if answer.get(k)))
    low = f"{text} {answer.get('exception') or ''}".lower()
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
