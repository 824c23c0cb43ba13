# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The body of every probe module: from its arguments to observations.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import os
import time
import typing as t
import zlib

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import leases
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import checkpoints, heartbeat, probing
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.machine import Machine
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.session import Session, boot_id

Probe = probing.Probe

CHECKS: dict[str, t.Any] = {
    "type": "list",
    "elements": "dict",
    "options": {"check": {"type": "str", "required": True}, "variant": {"type": "str", "default": ""}},
}

# Options that every probe module has; documented in doc_fragments/probe.py.
COMMON: dict[str, dict[str, t.Any]] = {
    "timeout": {"type": "float", "default": 600.0},
    "state_dir": {"type": "path", "default": ""},
    "lock_wait": {"type": "float", "default": 0.0},
    "root": {"type": "path", "default": "/"},
    **registry.OPTIONS,
    "exec": {
        "type": "dict",
        "default": {"kind": "host"},
        "options": {
            "kind": {"type": "str", "default": "host", "choices": ["host", "docker", "podman", "enroot", "apptainer"]},
            "image": {"type": "str"},
            "args": {"type": "list", "elements": "str", "default": []},
        },
        "required_if": [("kind", kind, ["image"]) for kind in ("docker", "podman", "enroot", "apptainer")],
    },
    "run": {
        "type": "dict",
        "default": {},
        "options": {
            "run_id": {"type": "str"},
            "stage": {"type": "str"},
            "phase": {"type": "str", "default": "all", "choices": ["all", "start", "collect"]},
            "grace": {"type": "float", "default": 1.0},
            "attempts": {"type": "dict", "default": {}},
            "settings": {"type": "str", "default": ""},
            "continues": {"type": "bool", "default": False},
            "heartbeat": {"type": "str", "default": ""},
            "interpreters": {"type": "dict", "default": {}},
            "driver": {"type": "str", "default": ""},
            "by": {"type": "str", "default": ""},
            "host": {"type": "str", "default": ""},
            "output": {"type": "str", "default": ""},
        },
    },
}

# Whichever module runs next on a node gives back what any other has left.
leases.register()

RAW_LIMIT = 1 << 20
# How long after its deadline the guardian may need to end everything.
GUARDIAN_GRACE_S = 30.0
# How often a collection begins a probe again that was cut off, before it takes what there is.
MOST_RESTARTS = 20
# How long one collection of a probe waits that goes on, in seconds.
CALL_S = 300.0
# The result of a probe that has none yet.
RUNNING: dict[str, t.Any] = {"observations": [], "end": None, "fault": None, "running": True}


def main(
    probe: Probe,
    options: dict[str, dict[str, t.Any]],
    default_stage: str,
    default_checks: t.Callable[[dict[str, t.Any]], list[dict[str, str]]] | None = None,
) -> None:
    """A probe module: its arguments from Ansible, its answer to Ansible.

    `default_checks` makes the list of checks from the other options where a module is used alone.
    """
    from ansible.module_utils.basic import AnsibleModule  # a pod has no Ansible

    module = AnsibleModule(argument_spec=dict(options, **COMMON), supports_check_mode=True)
    params = dict(module.params)
    if default_checks and not params["checks"]:
        params["checks"] = default_checks(params)
    if module.check_mode:
        params = {name: value for name, value in params.items() if name not in COMMON}
        module.exit_json(changed=False, observations=[], state="check_mode", would_run=params)
    module.exit_json(**perform(probe, params, default_stage))


def answer(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """perform() for a request that came without Ansible: {"probe", "source"} as system/probing.py has them, {"params": validated options};
    one without a probe asks to look()."""
    if not request["probe"]:
        return look(request["params"])
    return perform(probing.of(request), request["params"], request["probe"])


def answer_or_fault(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """answer(), or an answer with the fault: whatever went wrong must reach the controller as one line, not as silence."""
    try:
        return answer(request)
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"[:500]
        return {"state": "done", "observations": [], "end": None, "fault": fault, "undone": []}


def perform(probe: Probe, params: dict[str, t.Any], default_stage: str) -> dict[str, t.Any]:
    """Run `probe` under a guardian and return what it saw: {"observations": [...], "state": "done"|"running"|"refused",
    "end", "fault", "undone", "clock": [begin, end] by the clock of the node}.

    `params` are the validated options of a probe module, COMMON among them."""
    began = time.time()
    params = dict(params)
    # A request of an earlier version has no tools of kinds that came later: they have their usual names.
    common = {**{name: of["default"] for name, of in registry.OPTIONS.items()}, **{n: params.pop(n) for n in COMMON if n in params}}
    run = common["run"] or {}
    session = _session(common, default_stage)
    phase, continues = run.get("phase") or "all", bool(run.get("continues"))

    def start() -> None:
        node = _node(common, session)
        header = _header(params, common, node)

        def measure() -> t.Iterable[dict[str, t.Any]]:
            node.live = session.output
            return signed(_remaining(probe, params, node, session.finished, header), node)

        session.start(measure, common["lock_wait"], header, detachable=phase != "all")

    def restart() -> None:
        start()
        session.detach()

    try:
        if phase == "collect":
            result = _collected(session, common["timeout"], restart if continues else None)
        elif phase == "start" and continues and session.is_running():
            result = _running(session)
            heartbeat.beat(result["heartbeat"])  # its controller may have no other way to say that it has heard of it
        else:
            require_interpreters(run.get("interpreters") or {}, common["exec"]["kind"])
            start()
            result = _await(session, phase, common["timeout"], run.get("grace") or 0.0, continues)
    except ReasonedError as error:
        return _refused(error)
    for observation in result["observations"]:
        _pack(observation)
    return {
        "changed": False,
        "observations": result["observations"],
        "state": "running" if result["running"] else "done",
        "end": result["end"],
        "fault": result["fault"],
        "undone": session.undone,
        "clock": [began, time.time()],
        **({"heartbeat": result["heartbeat"]} if result.get("heartbeat") else {}),
    }


def require_interpreters(interpreters: dict[str, str], kind: str) -> None:
    """Raise ReasonedError for the variables of a run, {name: path}, that name a Python which this node does not have: no stage of the run
    begins then. `kind`: where tools run; the files of a container are not looked at."""
    if kind != "host":
        return
    wrong = [f"{name}: found {path}, which {_why_no_program(path)}" for name, path in sorted(interpreters.items()) if _why_no_program(path)]
    if wrong:
        raise ReasonedError("tool_missing", f"{'; '.join(wrong)}; expected a Python on this node. Nothing was measured there")


def _why_no_program(path: str) -> str:
    """Return why a path cannot be run as a program, empty if it can."""
    if not os.path.exists(path):
        return "does not exist"
    return "" if os.path.isfile(path) and os.access(path, os.X_OK) else "cannot be run"


def look(common: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return, as "finished", the keys of the checkpoints that a perform() of the same attempt would find. Nothing is measured."""
    session = _session(common, "")
    header = _header({}, common, _node(common, session))
    try:
        finished = session.look(header, common["lock_wait"]) if header else []
    except ReasonedError as error:
        return _refused(error)
    return {"changed": False, "observations": [], "state": "done", "finished": [record["memo"]["key"] for record in finished]}


def _session(common: dict[str, t.Any], default_stage: str) -> Session:
    run = common["run"] or {}
    session = Session(
        common["state_dir"],
        run.get("run_id") or time.strftime("%Y%m%dT%H%M%SZ-", time.gmtime()) + os.urandom(3).hex(),
        run.get("stage") or default_stage,
        common["timeout"] + GUARDIAN_GRACE_S,
        Machine.of_session(common["root"]),
    )
    session.known_heartbeat = run.get("heartbeat") or ""
    session.output_path = run.get("output") or ""
    session.driven = {name: run[name] for name in ("driver", "by", "host") if run.get(name)}
    return session


def _node(common: dict[str, t.Any], session: Session) -> Node:
    tools = {name: common[name] for name in registry.OPTIONS}
    node = Node(common["timeout"], session.ledger, common["root"], common["exec"], tools)
    node.devices = registry.DEFAULT.container
    return node


def _refused(error: ReasonedError) -> dict[str, t.Any]:
    return {"changed": False, "observations": [], "state": "refused", "reason_code": error.reason_code, "reason": error.reason}


def _header(params: dict[str, t.Any], common: dict[str, t.Any], node: Node) -> dict[str, t.Any] | None:
    """Return the header of the session's file, None outside a run."""
    checks = params.get("checks") or []
    settings = {**params, "checks": [], "root": common["root"], "exec": common["exec"], "tools": node.tools}
    return checkpoints.header(common["run"] or {}, checks, str(node.identity().get("machine_id") or ""), boot_id(), settings)


def _remaining(
    probe: Probe, params: dict[str, t.Any], node: Node, finished: list[dict[str, t.Any]], header: dict[str, t.Any] | None
) -> t.Iterable[dict[str, t.Any]]:
    """Run the probe for the checks that the node has not finished before. A probe between nodes gets the checkpoints that it left."""
    if header and header.get("memos"):
        node.checkpoints = [record["memo"] for record in finished]
        return probe(params, node)
    if not finished:
        return probe(params, node)
    names = {checkpoints.name_of(observation) for observation in finished}
    checks = [check for check in params["checks"] if checkpoints.name_of(check) not in names]
    return probe({**params, "checks": checks}, node) if checks else ()


def signed(observations: t.Iterable[dict[str, t.Any]], node: Node) -> t.Iterator[dict[str, t.Any]]:
    """Yield each observation with the identity of the machine that made it: a name may be another machine in the next stage."""
    for observation in observations:
        if not checkpoints.is_result(observation):
            yield observation
            continue
        yield {**observation, "context": {**observation["context"], "identity": node.identity()}}


def _await(session: Session, phase: str, timeout: float, grace: float, continues: bool) -> dict[str, t.Any]:
    if phase == "all":
        session.wait(timeout + 2 * GUARDIAN_GRACE_S)
        return session.collect()
    if not session.wait(grace):
        session.detach()
        return _running(session)
    # What was cut off that early is begun again by the collection.
    return _running(session) if continues and session.was_cut_off() else session.collect()


def _collected(session: Session, timeout: float, restart: t.Callable[[], None] | None) -> dict[str, t.Any]:
    """Return the result of a detached probe when it has ended. `restart` begins one again that was cut off; None if it does not go on.

    One that goes on is waited for CALL_S seconds at most, so that no connection has to last for days.
    """
    began = time.monotonic()
    restarts = 0
    while time.monotonic() < began + (CALL_S if restart else timeout + 2 * GUARDIAN_GRACE_S):
        session.end_without_output()  # its beats would keep the probe alive for nobody
        if session.is_running():
            heartbeat.beat(session.heartbeat_path())
            time.sleep(min(5.0, 0.1 + (time.monotonic() - began) / 100))
        elif restart and restarts < MOST_RESTARTS and session.was_cut_off():
            restarts += 1
            restart()
        else:
            break
    return _running(session) if restart and session.is_running() else session.collect()


def _running(session: Session) -> dict[str, t.Any]:
    return {**RUNNING, "heartbeat": session.heartbeat_path()}


def _pack(observation: dict[str, t.Any]) -> None:
    """Raw output travels compressed: large module results are slow for the controller."""
    raw = observation.pop("raw", None)
    if raw is None:
        return
    data = raw.encode("utf-8", "replace")
    if len(data) > RAW_LIMIT:
        half = RAW_LIMIT // 2
        data = data[:half] + b"\n[... %d bytes left out ...]\n" % (len(data) - RAW_LIMIT) + data[-half:]
    observation["raw_z"] = base64.b64encode(zlib.compress(data, 6)).decode("ascii")
