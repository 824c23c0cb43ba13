# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The half of the governor and the rdma drill that runs on a guest.

governor_node.py hold            a module in small: a session whose probe holds the governor while a tool runs
governor_node.py walk ARGUMENTS  the same with the probe of stage rdma, which holds it while perftest runs
governor_node.py kill VICTIM S   wait until that module starts, S seconds more, SIGKILL to the victim, see what is left
governor_node.py look            see what is left, as the first session after a reboot does
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import governor
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import perftest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.session import Session

STATE = "/var/lib/gpufleet-acceptance"
MODULE = pathlib.Path("/tmp/drill/module")
LIMIT_S = 60.0


def begin() -> None:
    """Tell the killer who we are."""
    MODULE.with_suffix(".new").write_text(f"{os.getpid()} {process.start_time(os.getpid())}")
    MODULE.with_suffix(".new").rename(MODULE)


def hold() -> None:
    begin()
    session = Session(STATE, "20260101T000000Z-000001", "rdma", 600)
    node = Node(600, ledger=session.ledger)

    def probe() -> t.Iterator[dict[str, t.Any]]:
        with governor.GovernorLease(node, settle_s=0.1) as lease:
            yield lease.summary()
            node.run(["sleep", "600"], timeout=600)

    session.start(probe)
    session.wait(600)
    session.collect()


def walk(arguments: str) -> None:
    begin()
    session = Session(STATE, "20260101T000000Z-000001", "rdma", 600)
    node = Node(600, ledger=session.ledger)
    session.start(lambda: perftest.probe(json.loads(arguments), node))
    session.wait(600)
    found = session.collect()
    MODULE.unlink(missing_ok=True)
    print(json.dumps([[row["outcome"], row["rows"]] for o in found["observations"] if o["check"] == "timetable" for row in o["series"]]))


def kill(victim: str, seconds: float) -> None:
    print("ready", flush=True)
    until(MODULE.exists)
    module, started = (int(word) for word in MODULE.read_text().split())
    sshd = ancestor(module, "/usr/sbin/sshd")
    print("begun", flush=True)
    time.sleep(seconds)
    state = {"switched": "performance" in governors(), "testing": bool(perftests())}
    if victim == "controller":
        pass  # done from outside
    elif victim in ("guardian", "probe"):
        lock = Session(STATE, "", "", 0).lock
        guardian = until(lambda: lock.holder().get("pid"))
        pid = guardian if victim == "guardian" else until(lambda: child(guardian))
        process.kill(pid, process.start_time(pid), signal.SIGKILL)
    else:
        pid = {"module": module, "sshd": sshd}[victim]
        process.kill(pid, process.start_time(pid), signal.SIGKILL)
    struck = time.monotonic()
    if not process.wait_gone(module, started, LIMIT_S):
        raise AssertionError(f"the module outlived its {victim}")
    MODULE.unlink(missing_ok=True)
    look(struck, **state)


def look(since: float, **more: t.Any) -> None:
    """Return what the next session finds, and the state of the machine after it."""
    session = Session(STATE, "20260101T000000Z-000002", "drill", 60)
    session.start(lambda: (), wait_for_lock_s=LIMIT_S)
    took = time.monotonic() - since
    before = governors()
    session.wait(LIMIT_S)
    session.collect()
    tools = perftests() + [pid for pid in pids() if words(pid)[:2] == ["sleep", "600"]]
    left = sorted(os.listdir(STATE)) if os.path.isdir(STATE) else []
    print(json.dumps(dict(more, governors=before, undone=session.undone, took_s=took, tools=tools, left=left)))


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def perftests() -> list[int]:
    return [pid for pid in pids() if words(pid)[:1] == ["ib_write_bw"]]


def governors() -> list[str]:
    return [policy["governor"] for policy in governor.policies(Node(60))]


def child(parent: int) -> int | None:
    found = [pid for pid in process.descendants(parent) if stat(pid)[1:2] == [str(parent)]]
    return found[0] if found else None


def ancestor(pid: int, program: str) -> int:
    while os.readlink(f"/proc/{pid}/exe") != program:
        pid = int(stat(pid)[1])
    return pid


def stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name: state, parent, ..."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def words(pid: int) -> list[str]:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def until(what: t.Callable[[], t.Any]) -> t.Any:
    end = time.monotonic() + LIMIT_S
    while not (found := what()):
        if time.monotonic() > end:
            raise AssertionError("did not happen")
        time.sleep(0.005)
    return found


if __name__ == "__main__":
    {
        "hold": hold,
        "walk": lambda: walk(sys.argv[2]),
        "look": lambda: look(time.monotonic()),
        "kill": lambda: kill(sys.argv[2], float(sys.argv[3])),
    }[sys.argv[1]]()
