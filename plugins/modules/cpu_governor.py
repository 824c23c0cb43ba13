#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cpu_governor
short_description: Switch the CPU frequency governor for a while, and get every old value back
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Switches the governor of every CPU that is online and leaves a guardian process on the node that restores the old
    values, each policy its own, when told to with O(state=restored) and at O(timeout) at the latest.
  - What somebody else or a reboot has changed meanwhile is left as it is, and said.
  - Stages that need a governor take it by themselves as a part of their own session; this module is for use alone.
options:
  governor:
    description: The governor to switch to.
    type: str
    default: performance
  state:
    description:
      - V(held) switches and leaves a guardian. Where every CPU already has the governor, nothing is changed or kept.
      - V(restored) gives back what this module holds, and undoes what any session that was killed has left on the node.
    type: str
    choices: [held, restored]
    default: held
  timeout:
    description: After how many seconds the guardian restores the old values by itself.
    type: float
    default: 3600.0
  state_dir:
    description:
      - Where the ledger lies on the node, as for the stages. The governor's own has C(-governor) at its end.
      - Empty means C(/var/lib/gpufleet-acceptance) for root, else C(~/.gpufleet-acceptance).
    type: path
    default: ""
  root:
    description: Where the file system of the host is mounted.
    type: path
    default: /
requirements:
  - python >= 3.8
attributes:
  check_mode:
    description: Can run in check mode.
    support: full
  diff_mode:
    description: Returns what changed.
    support: full
  idempotent:
    description: Whether a second call does nothing.
    support: full
"""

EXAMPLES = r"""
- name: Full clocks for the next ten minutes
  gpufleet.acceptance.cpu_governor:
    governor: performance
    timeout: 600
  become: true

- name: Give back what was held, or what a killed run or a lost connection has left
  gpufleet.acceptance.cpu_governor:
    state: restored
  become: true
"""

RETURN = r"""
policies:
  description: Governor of each policy (a set of CPUs that share a frequency) after the call.
  returned: always
  type: dict
  sample: {policy0: performance}
outcome:
  description: V(switched), V(already), V(not_switched), V(restored) or V(check_mode).
  returned: always
  type: str
reason_code:
  description: Why it was not switched, or that a session that lives was left alone, from a closed list.
  returned: always
  type: str
reason:
  description: The same as a sentence a person can act on.
  returned: always
  type: str
undone:
  description: What was restored and what was left alone, in words.
  returned: always
  type: list
  elements: str
"""

import contextlib
import glob
import json
import os
import secrets
import signal
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import folder, governor
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import leases
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process, sessions
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.session import Session, default_state_dir

SPEC = {
    "governor": {"type": "str", "default": "performance"},
    "state": {"type": "str", "choices": ["held", "restored"], "default": "held"},
    "timeout": {"type": "float", "default": 3600.0},
    "state_dir": {"type": "path", "default": ""},
    "root": {"type": "path", "default": "/"},
}
# `restored` gives back what any other module has left.
leases.register()
# The switch itself: milliseconds, and a second to settle.
SWITCH_S = 60.0


def _session(state_dir: str, timeout: float = SWITCH_S) -> Session:
    run_id = time.strftime("%Y%m%dT%H%M%SZ-", time.gmtime()) + secrets.token_hex(3)
    return Session(state_dir, run_id, "governor", timeout)


def _hold(params: dict[str, t.Any], own_dir: str) -> dict[str, t.Any]:
    """Leave a guardian that holds the lease; what it said when it took it."""
    session = _session(own_dir, params["timeout"])
    node = Node(params["timeout"], ledger=session.ledger, root=params["root"])

    def probe() -> t.Iterator[dict[str, t.Any]]:
        lease = governor.GovernorLease(node, params["governor"])
        lease.take()
        yield lease.summary()
        while lease.state == "switched":
            time.sleep(60)  # ended by the guardian, who then restores

    session.start(probe)
    until = time.monotonic() + SWITCH_S
    while not session.wait(0.05):
        report = _first_line(session.result_path)
        if report.get("state") == "switched":
            session.detach()
            return dict(report, undone=session.undone)
        if time.monotonic() > until:
            raise ReasonedError("timeout", f"the governor was not switched within {SWITCH_S:.0f} s")
    collected = session.collect()
    if not collected["observations"]:
        raise ReasonedError("module_failed", str(collected["fault"] or collected["end"] or "the guardian was killed"))
    return dict(collected["observations"][0], undone=session.undone)


def _first_line(path: str) -> dict[str, t.Any]:
    try:
        with open(path, encoding="utf-8") as source:
            report: dict[str, t.Any] = json.loads(source.readline())
        return report
    except (OSError, ValueError):
        return {}


def _end(own_session: Session) -> list[str]:
    """Tell the guardian to end, which restores; what came of it."""
    holder = own_session.lock.holder()
    pid, started = holder.get("pid", 0), holder.get("started")
    if not process.is_alive(pid, started):
        return []
    entries = [entry for entry in own_session.ledger.entries() if entry["kind"] == "governor"]
    pending = governor.pending(own_session.ledger)
    process.kill(pid, started, signal.SIGTERM)
    process.wait_gone(pid, started, SWITCH_S)
    # It was written by the guardian; asked again, the lease tells what is left.
    return governor.said(len(pending)) + [word for entry in entries for word in governor.restore(entry)]


def _undo_left(state_dir: str) -> list[str]:
    """Undo what a killed session left. Raise ReasonedError if a session still lives, and leave it alone."""
    if not os.path.isdir(state_dir):
        return []
    session = _session(state_dir)
    folder.take_time()
    session.start(lambda: ())
    session.wait(SWITCH_S)
    session.collect()
    return session.undone


def _forget(own_dir: str) -> None:
    """Remove what a guardian said at its deadline, when nobody listened any more; it sees that and ends at last."""
    for result in glob.glob(os.path.join(own_dir, "*", "governor.jsonl")):
        os.unlink(result)
        os.rmdir(os.path.dirname(result))
    with contextlib.suppress(OSError):
        os.rmdir(own_dir)


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    params = module.params
    node = Node(SWITCH_S, root=params["root"])
    state_dir = params["state_dir"] or default_state_dir()
    own_dir = state_dir.rstrip("/") + sessions.GOVERNORS

    def now() -> dict[str, str]:
        return {policy["name"]: policy["governor"] for policy in governor.policies(node)}

    own_session, old_session = _session(own_dir), _session(state_dir)
    before_change = now()
    answer: dict[str, t.Any] = {"reason_code": None, "reason": None, "undone": []}
    after_change = before_change
    if params["state"] == "restored":
        answer["outcome"] = "restored"
        if module.check_mode:
            answer["outcome"] = "check_mode"
            after_change = {**before_change, **governor.pending(own_session.ledger), **governor.pending(old_session.ledger)}
        else:
            answer["undone"] = _end(own_session) + _undo_left(own_dir)
            _forget(own_dir)
            try:
                answer["undone"] += _undo_left(state_dir)
            except ReasonedError as error:
                answer.update(reason_code=error.reason_code, reason=error.reason)
            after_change = now()
    elif module.check_mode:
        answer["outcome"] = "check_mode"
        after_change = dict.fromkeys(before_change, params["governor"])
    elif before_change and set(before_change.values()) == {params["governor"]}:
        answer["outcome"] = "already"
    else:
        try:
            outcome = _hold(params, own_dir)
            answer.update(outcome=outcome["state"], **{key: outcome[key] for key in ("reason_code", "reason", "undone")})
        except ReasonedError as error:
            answer.update(outcome="not_switched", reason_code=error.reason_code, reason=error.reason)
        after_change = now()
    changed = after_change != before_change or bool(answer["undone"])
    module.exit_json(changed=changed, policies=after_change, diff={"before": before_change, "after": after_change}, **answer)


if __name__ == "__main__":
    main()
