# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Quarantine over real control planes, for the drill and its short version: what others do to nodes, and what must hold then."""

from __future__ import annotations

import collections
import json
import pathlib
import random
import re
import time
import typing as t
import unittest.mock

import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.node_control import NodeControl, NodeState
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine import convictions, doing, reason, request
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from harness import history_runs as runs
from harness.fleet_runs import ROOT
from rigs import common
from rigs.kubernetes.kubernetes import CONTROL, Kubernetes
from rigs.slurm.slurm import Slurm

HOST = "rig"
PODS = "/api/v1/namespaces/default/pods"
OTHERS = ("NHC: check_gpu", "bob: RMA 4711", "[node_problem] xid 79", "20261127 swap of gpu-03")
# A shell that reaches the machine of the client commands as ssh does, at a tenth of the time: its last argument is the command.
DOOR = """\
#!/bin/sh
for last; do :; done
exec nsenter -t {pid} -m -u -i -n -p -r -w -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c "$last"
"""


class World:
    """Nodes behind a real control plane. Nodes have their names there, without the host's."""

    names: list[str]
    variables: t.Mapping[str, t.Any]

    def state(self) -> dict[str, tuple[bool, str, str]]:
        """Return {node: (out of service, reason, comment)}, as an administrator sees it."""
        raise NotImplementedError

    def hold(self, node: str, words: str) -> None:
        """Take a node out of service as another tool does."""
        raise NotImplementedError

    def release(self, node: str) -> None:
        """Give a node back as an administrator does."""
        raise NotImplementedError

    def reword(self, node: str, words: str) -> None:
        """Change the reason of a node and nothing else."""
        raise NotImplementedError

    def clean(self, node: str) -> None:
        """Make a node as new."""
        raise NotImplementedError

    def touch(self, node: str) -> None:
        """Change something of a node that has nothing to do with quarantine."""

    def stop(self, hard: bool) -> None:
        """Stop the control plane. A hard stop may lose what it has been told last."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the control plane, and return when it answers."""
        raise NotImplementedError

    def work(self) -> set[str]:
        """Return the jobs or pods that are running, at least one on each node the first time."""
        raise NotImplementedError

    def rest(self) -> None:
        """Remove the jobs or pods of work()."""
        raise NotImplementedError


class SlurmWorld(World):
    def __init__(self, slurm: Slurm, folder: pathlib.Path) -> None:
        self.slurm, self.names = slurm, list(slurm.fleet.hosts)
        door = folder / "door"
        door.write_text(DOOR.format(pid=slurm.fleet._init(slurm.controller)))
        door.chmod(0o755)
        self.variables = {"acceptance_plane": "slurm", "acceptance_slurm_ssh": [str(door)]}

    def state(self) -> dict[str, tuple[bool, str, str]]:
        found = {}
        for text in self.slurm.client("scontrol", "show", "nodes").split("\n\n"):
            fields = {name: value.strip() for name, value in re.findall(r"^ *(NodeName|Comment|Reason)=(.*)$", text, re.MULTILINE)}
            if fields.get("NodeName"):
                states = re.search(r" State=(\S+)", text)
                held = states is not None and "DRAIN" in states[1]
                words = re.sub(r" \[\S+@\S+\]$", "", fields.get("Reason", ""))
                found[fields["NodeName"].split()[0]] = (held, words, fields.get("Comment", ""))
        return found

    def _update(self, node: str, *words: str) -> None:
        self.slurm.client("scontrol", "update", f"nodename={node}", *words)

    def hold(self, node: str, words: str) -> None:
        self._update(node, "state=drain", f"reason={words}")

    def release(self, node: str) -> None:
        until = time.monotonic() + 30
        while self.state()[node][0]:
            try:
                self._update(node, "state=resume")
            except common.RigError:  # as long as slurmctld does not know the state of a node after its restart
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def reword(self, node: str, words: str) -> None:
        self._update(node, f"reason={words}")

    def clean(self, node: str) -> None:
        if self.state()[node][:2] != (False, ""):
            self.hold(node, "clean")
            self.release(node)
        self._update(node, "comment=")

    def stop(self, hard: bool) -> None:
        (pid,) = (pid for pid, argv in self.slurm.fleet.processes(self.slurm.controller).items() if argv[0].endswith("slurmctld"))
        common.run("kill", "-9" if hard else "-15", str(pid))
        while pathlib.Path(f"/proc/{pid}").exists():
            time.sleep(0.02)

    def start(self) -> None:
        self.slurm.client("slurmctld")
        until = time.monotonic() + 60
        while True:
            try:
                self.slurm.client("scontrol", "ping")
                states = self.slurm.states()
                if states and not any(word.startswith(("unk", "down")) or "*" in word for word in states.values()):
                    return
            except common.RigError:
                pass
            if time.monotonic() > until:
                raise common.RigError("slurmctld is not back after 60 s")
            time.sleep(0.1)

    def work(self) -> set[str]:
        if not self.slurm.jobs():
            for name in self.names:
                self.slurm.client("sbatch", "-J", "work", "-w", name, "-n1", "-o", "/dev/null", "--wrap", "sleep 3600")
            while sum(" RUNNING " in line for line in self.slurm.jobs()) < len(self.names):
                time.sleep(0.1)
            # A slurmctld that is killed before it has saved its jobs knows them no more. It saves some seconds after a change.
            changed_at = time.time()
            self.slurm.client("scontrol", "update", f"jobid={self.slurm.jobs()[0].split()[0]}", "priority=1")
            while self._saved_at() <= changed_at:
                time.sleep(0.1)
        return {line.split()[0] for line in self.slurm.jobs() if " RUNNING " in line}

    def _saved_at(self) -> float:
        """Return when slurmctld has saved its jobs last, 0 if it has not."""
        found = self.slurm.fleet.find(self.slurm.controller, "/var/lib/slurm/ctld", "-name", "job_state", "-printf", "%T@\\n")
        return float(found[0]) if found else 0.0

    def rest(self) -> None:
        self.slurm.client("scancel", "-n", "work")
        self.slurm.until_idle(*self.names)


class KubernetesWorld(World):
    def __init__(self, cluster: Kubernetes) -> None:
        self.cluster = cluster
        self.names = sorted(item["metadata"]["name"] for item in cluster.api.items("/api/v1/nodes"))
        roles = list(yaml.safe_load_all((ROOT / "files/rbac/quarantine.yaml").read_text(encoding="utf-8")))
        self.variables = {"acceptance_plane": "kubernetes", "acceptance_kube_kubeconfig": str(cluster.user("quarantine", roles))}

    def _patch(self, node: str, body: t.Any) -> None:
        self.cluster.api.request("PATCH", f"/api/v1/nodes/{node}", body, "application/merge-patch+json")

    def state(self) -> dict[str, tuple[bool, str, str]]:
        found = {}
        for item in self.cluster.api.items("/api/v1/nodes"):
            noted = item["metadata"].get("annotations") or {}
            words = (noted.get(f"gpufleet.acceptance/{name}") or "" for name in ("quarantine", "quarantine-comment"))
            found[item["metadata"]["name"]] = (bool(item["spec"].get("unschedulable")), *words)
        return t.cast("dict[str, tuple[bool, str, str]]", found)

    def hold(self, node: str, words: str) -> None:
        noted = {"gpufleet.acceptance/quarantine": words if self.state()[node][1] else None, "example.org/why": words}
        self._patch(node, {"metadata": {"annotations": noted}, "spec": {"unschedulable": True}})

    def release(self, node: str) -> None:
        self._patch(node, {"spec": {"unschedulable": None}})  # as kubectl uncordon: our annotation stays

    def reword(self, node: str, words: str) -> None:
        self._patch(node, {"metadata": {"annotations": {"gpufleet.acceptance/quarantine": words}}})

    def clean(self, node: str) -> None:
        noted = dict.fromkeys(("gpufleet.acceptance/quarantine", "gpufleet.acceptance/quarantine-comment", "example.org/why"))
        label = {"gpufleet.acceptance/quarantined": None}
        self._patch(node, {"metadata": {"annotations": noted, "labels": label}, "spec": {"unschedulable": None}})

    def touch(self, node: str) -> None:
        self._patch(node, {"metadata": {"annotations": {"example.org/seen": str(time.monotonic_ns())}}})

    def stop(self, hard: bool) -> None:
        self.cluster.kill(CONTROL, "kube-apiserver")

    def start(self) -> None:
        self.cluster.start(CONTROL, "kube-apiserver")
        self.cluster._wait_api()

    def work(self) -> set[str]:
        for name in self.names if not self._pods() else ():
            image = {"name": "main", "image": "gpufleet.invalid/bare:1"}
            spec = {"nodeName": name, "containers": [image], "tolerations": [{"operator": "Exists"}], "terminationGracePeriodSeconds": 0}
            metadata = {"name": f"work-{name}", "labels": {"work": "others"}}
            self.cluster.api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        return {item["metadata"]["uid"] for item in self._pods() if not item["metadata"].get("deletionTimestamp")}

    def _pods(self) -> list[dict[str, t.Any]]:
        found: list[dict[str, t.Any]] = self.cluster.api.items(f"{PODS}?labelSelector=work%3Dothers")
        return found

    def rest(self) -> None:
        for item in self._pods():
            self.cluster.api.delete(f"{PODS}/{item['metadata']['name']}")


class Disturbed(NodeControl):
    """A control of nodes that others are quicker than: `meanwhile(node)` is called right before a node is read for a change."""

    def __init__(self, inner: NodeControl, meanwhile: t.Callable[[str], None], touch: t.Callable[[str], None]) -> None:
        self.inner, self.meanwhile, self.touch = inner, meanwhile, touch

    def nodes(self) -> list[NodeState]:
        return self.inner.nodes()

    def read(self, name: str) -> NodeState | None:
        self.meanwhile(name)
        state = self.inner.read(name)
        self.touch(name)
        return state

    def drain(self, node: NodeState, reason: str) -> None:
        self.inner.drain(node, reason)

    def resume(self, node: NodeState) -> None:
        self.inner.resume(node)

    def comment(self, node: NodeState, text: str) -> None:
        self.inner.comment(node, text)


class Sequence:
    """A random sequence of what happens to the nodes of a world; `told` has a line for each step."""

    def __init__(self, world: World, results: pathlib.Path, seed: int, restarts: bool = True) -> None:
        self.world, self.results, self.seed, self.restarts = world, results, seed, restarts
        self.dice = random.Random(seed)
        self.told: list[str] = []
        self.drained = self.resumed = 0
        self.clock = time.time()
        self.percent = self.dice.choice((10, 25, 50))
        self.hourly = self.dice.choice((10, 50, 100))
        self.sick: dict[str, str] = {}
        self.runs: list[str] = []
        # Of each node: when it was given back last, and what each run has found.
        self.back: dict[str, float] = {}
        # When we saw a node out of service last: what others take and give back between two looks of ours is not known.
        self.seen: dict[str, float] = {}
        self.found: dict[str, dict[str, str]] = {}
        self.taken: collections.deque[tuple[float, str]] = collections.deque()
        self.wrong: list[str] = []
        self.chance = 0.0

    def play(self, steps: int) -> list[str]:
        """Return what is wrong, a sentence for each."""
        self.results.mkdir()
        for name in self.world.names:
            self.world.clean(name)
        self.jobs = self.world.work()
        clock = unittest.mock.Mock(time=lambda: self.clock)
        with unittest.mock.patch.object(request, "time", clock), unittest.mock.patch.object(doing, "time", clock):
            self._run()
            for _number in range(steps):
                self.clock += self.dice.randint(2, 3000)
                self.dice.choice((self._run, self._somebody, self._ours, self._ours, self._repair, self._restart))()
                if len(self.wrong) > 5:
                    break
        return self.wrong

    def _run(self, most: int = 3) -> None:
        """Measure and judge all nodes, some of which, at most `most`, have broken or were repaired since."""
        for name in self.dice.sample(self.world.names, min(self.dice.randint(0, most), len(self.world.names))):
            self.sick[name] = self.dice.choice(("", "silent", "slow"))
        run = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(self.clock))}-{self.seed % (1 << 24):06x}"
        machines = {}
        for number, name in enumerate(self.world.names, 1):
            sick = self.sick.get(name)
            tflops = 500.0 if sick == "slow" else 670.0
            machines[f"{HOST}/{name}"] = runs.Machine(f"{number:032x}", {number: tflops}, silent=sick == "silent")
        self.clock += 60
        with unittest.mock.patch.object(runs, "run_id", lambda _day: run):
            runs.judged(self.results, 1, machines)
        self.runs.append(run)
        self.found[run] = dict(self.sick)
        self.told.append(f"run {run}: { ({name: what for name, what in self.sick.items() if what}) }")

    def _somebody(self) -> None:
        self.told.append(self._foreign(self.dice.choice(self.world.names)))

    def _foreign(self, name: str) -> str:
        held, words, _comment = self.world.state()[name]
        act = self.dice.choice(("hold", "release", "reword"))
        if act == "hold":
            other = self.dice.choice(OTHERS)
            self.world.hold(name, other)
            return f"somebody takes {name}: {other}"
        if act == "release" and held:
            self.world.release(name)
            if name in self.seen:
                self.back[name] = self.seen.pop(name)
            return f"somebody gives {name} back"
        if act == "reword" and reason.mark_of(words):
            self.world.reword(name, f"{words} (bob)"[:250])
            return f"somebody changes the reason of {name}"
        return f"nobody touches {name}"

    def _repair(self) -> None:
        """Break some nodes and take them; repair them at times, measure them again, and ask for their return."""
        self.sick = dict.fromkeys(self.dice.sample(self.world.names, 2), self.dice.choice(("silent", "slow")))
        self._run(0)
        self._run(0)
        self._ours("take", self.runs[-2])
        for name in self.dice.sample(sorted(self.sick), self.dice.randint(1, 2)):
            self.sick[name] = ""
        self._run(0)
        self._ours("return", self.dice.choice(self.runs[-2:]))

    def _restart(self) -> None:
        """Ask for something while the control plane is down, and again when it is back."""
        if self.dice.random() < 0.6 or not self.restarts:
            return
        before, hard = self.world.state(), self.dice.random() < 0.5
        self.world.stop(hard)
        self.told.append(f"the control plane stops{', hard' if hard else ''}")
        try:
            with unittest.mock.patch(f"{KUBE}.PATIENCE_S", 0.5), unittest.mock.patch(f"{KUBE}.FIRST_S", 0.5):
                options = self._options(up=False)
                try:
                    done = self._carry_out(options, up=False)
                    if done.changed and options["confirm"]:
                        self.wrong.append(f"step {len(self.told)}: {done.changed} although nobody answers")
                except RunError as error:
                    self.told.append(f"while nobody answers: {error}")
        finally:
            self.world.start()
        if not hard and self.world.state() != before:
            self.wrong.append(f"step {len(self.told)}: changed while nobody answered: {before} {self.world.state()}")
        self._ours()

    def _options(self, what: str = "", up: bool = True) -> dict[str, t.Any]:
        what = what or self.dice.choice(("take", "take", "take", "take", "undo"))
        run = self.dice.choice(self.runs[:-1] or self.runs) if self.dice.random() < 0.4 else self.runs[-1]
        marks = [mark.run for _held, words, _comment in self.world.state().values() if (mark := reason.mark_of(words))] if up else []
        run = self.dice.choice(marks) if marks and what == "undo" and self.dice.random() < 0.7 else run
        second = self.dice.choice(["", *self.runs[-2:]])
        return {
            **{name: of.get("default") for name, of in request.OPTIONS.items()},
            "run_id": run, "results_dir": str(self.results), "percent": self.percent, "percent_per_hour": self.hourly,
            "unknown": self.dice.random() < 0.8, "confirm": self.dice.random() < 0.9,
            "mode": self.dice.choice(("drain", "drain", "comment")),
            "by_run": self.dice.random() < 0.2, "undo": what == "undo", "return": what == "return",
            "second_run": second if what == "take" and second != run else "",
        }  # fmt: skip

    def _carry_out(self, options: dict[str, t.Any], up: bool = True) -> doing.Done:
        hosts = request.Hosts([HOST], lambda _host, name: self.world.variables.get(name))
        others: list[str] = []
        state = self.world.state() if up and options["confirm"] else {}
        held = {f"{HOST}/{name}" for name, (is_held, _words, _comment) in state.items() if is_held}

        def look(name: str) -> None:
            if name in held:
                self.seen[name.removeprefix(f"{HOST}/")] = self.clock

        def meanwhile(name: str) -> None:
            if self.dice.random() < self.chance:
                look(name)
                held.discard(name)
                others.append(self._foreign(name.removeprefix(f"{HOST}/")))
                self.before = self.world.state()

        def touch(name: str) -> None:
            if self.dice.random() < 0.3:
                self.world.touch(name.removeprefix(f"{HOST}/"))

        hosts.controls[HOST] = Disturbed(hosts.controls[HOST], meanwhile, touch)
        try:
            done = request.carry_out(options, hosts, False)
            for line in done.lines:
                look(line.partition(": ")[0])
            return done
        finally:
            words = {name: value for name, value in options.items() if value and name not in ("results_dir", "percent", "percent_per_hour")}
            self.told.append(f"ours: {json.dumps(words)}{''.join(f'; meanwhile {line}' for line in others)}")

    def _ours(self, what: str = "", run: str = "") -> None:
        """Ask for something, while others may be quicker, and look at all that must hold."""
        options = self._options(what)
        if run:
            second = self.runs[-1] if what == "take" else ""
            options.update(run_id=run, second_run=second, confirm=True, mode="drain", unknown=True, by_run=False)
        self.chance = self.dice.choice((0.0, 0.0, 0.3))
        self.before = self.world.state()
        held_before = self._held(self.before)
        try:
            done = self._carry_out(options)
        except RunError as error:
            self.wrong.append(f"step {len(self.told)}: {error}")
            return
        finally:
            self.chance = 0.0
        self.told += [f"  {line}" for line in done.lines]
        after = self.world.state()
        for name, was in self.before.items():
            problem = self._problem(name, was, after[name], options)
            if problem:
                self.wrong.append(f"step {len(self.told)}: {name}: {problem}: {was} -> {after[name]}")
        taken = self._held(after) - held_before
        limit = max(1, len(self.world.names) * self.percent // 100)
        if taken and len(self._held(after)) > max(limit, len(held_before)):
            self.wrong.append(f"step {len(self.told)}: {len(self._held(after))} nodes are ours, at most {limit} may be")
        self.taken += [(self.clock, name) for name in taken]
        hourly = max(1, len(self.world.names) * self.hourly // 100)
        if taken and len({name for at, name in self.taken if self.clock - at < 3600}) > hourly:
            self.wrong.append(f"step {len(self.told)}: more than {hourly} nodes in an hour: {list(self.taken)}")
        if not self.jobs <= self.world.work():
            self.wrong.append(f"step {len(self.told)}: jobs were ended: {self.jobs - self.world.work()}")

    def _held(self, state: t.Mapping[str, tuple[bool, str, str]]) -> set[str]:
        return {name for name, (held, words, _comment) in state.items() if held and reason.mark_of(words)}

    def _problem(self, name: str, was: tuple[bool, str, str], now: tuple[bool, str, str], options: dict[str, t.Any]) -> str:
        """Return what of a change of a node must not be, empty if all is well."""
        if was == now:
            return ""
        if not options["confirm"]:
            return "changed although nobody confirmed it"
        if was[:2] != now[:2] and ((was[1] and not reason.mark_of(was[1])) or (was[0] and not was[1])):
            return "the state of somebody else was touched"
        if was[2] != now[2] and was[2] and not reason.mark_of(was[2]):
            return "the comment of somebody else was touched"
        if now[0] and not was[0]:
            self.drained += 1
            self.seen[name] = self.clock
            return self._wrongly_taken(name, now[1], options)
        if was[0] and not now[0]:
            self.resumed += 1
            self.seen.pop(name, None)
            self.back[name] = self.clock
            return self._wrongly_given_back(name, was[1], options)
        return ""

    def _wrongly_taken(self, name: str, words: str, options: dict[str, t.Any]) -> str:
        run = options["run_id"]
        mark = reason.mark_of(words)
        later = [self.found[other].get(name) for other in self.runs if other > run]
        if mark is None or mark.run != run:
            return "drained with another reason than ours"
        if options["mode"] != "drain" or options["undo"] or options["return"]:
            return "drained although nobody asked for it"
        if not self.found[run].get(name):
            return "a good node was drained"
        if later and not later[-1]:
            return "drained although the last run finds it good"
        if self.back.get(name, 0) >= reason.began(run):
            return "drained for a run that began before it was given back"
        if self.found[run][name] == "slow" and self.found.get(options["second_run"], {}).get(name) != "slow":
            return "drained for a rate that no second run confirms"
        if self.found[run][name] == "slow" and self.back.get(name, 0) >= reason.began(options["second_run"]):
            return "drained for a second run that began before it was given back"
        return ""

    def _wrongly_given_back(self, name: str, words: str, options: dict[str, t.Any]) -> str:
        mark, run = reason.mark_of(words), options["run_id"]
        if mark is None:
            return "given back although its reason is not ours"
        if options["undo"]:
            return "" if mark.run == run else "undone for another run"
        if not options["return"]:
            return "given back although nobody asked for it"
        bad = [other for other in self.runs if other >= run and self.found[other].get(name) == "slow"]
        return f"given back although run {bad[-1]} convicts it" if bad or self.found[run].get(name) else ""


KUBE = f"{convictions.__name__.rpartition('.quarantine')[0]}.planes.kubernetes.api.client"
