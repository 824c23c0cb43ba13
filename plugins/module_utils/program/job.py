# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of a job on a node: the probe runs under its guardian, and its answer is a frame on standard output.

Whoever started the job sends bytes to its standard input as long as it lives. At the end of standard input, or SILENCE_S seconds after the
last byte, the probe ends and gives back what it has changed. The first line says that the job runs; it has the number of the job and the
name of the node.

A detached job has nobody who waits. Its request has `keep`, {"file", "seconds"}: the answer is kept on the node (keeping.py), and another
job fetches it there, whose request has keeping.KEPT in place of a probe. A third one, with keeping.COLLECTED, removes it.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import keeping, runner
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import machine, process

SILENCE_S = 45.0
# How long a guardian may take to give back what was changed. Whatever starts jobs kills the processes that a job leaves.
GIVE_BACK_S = 25.0
LOOK_S = 0.1
BEGUN = "gpufleet-job/1"
# srun breaks lines of 1024 bytes and more into several where it labels them with the number of the task.
LINE_LIMIT = 1000


def main(request: dict[str, t.Any], nonce: str, number: str, name: str) -> None:
    """Run the request, which is that of runner.answer(), in a process of its own, and end it if nobody waits for its answer. `number` is
    that of the job, `name` that of the node."""
    params, keep = request["params"], request.get("keep")
    folder = keeping.folder_of(params.get("state_dir") or "")
    keeping.remove_expired(folder)
    params["state_dir"] = params.get("state_dir") or state_dir()
    if params.get("job_steps"):
        params["job_steps"]["job"] = number
    os.environ[machine.JOB_NUMBER] = number or "?"
    process.prctl(process.PR_SET_CHILD_SUBREAPER, 1)  # the guardian becomes our child, to be waited for
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))
    if not keep:
        os.write(1, f"{BEGUN} {nonce} begun {number} {name}\n".encode())
    child = os.fork()
    if child == 0:
        _answer_and_exit(request, nonce, folder)
    _watch(child, told, not keep)


def state_dir() -> str:
    """Return the folder for the state of a user's probe, empty for root, who has one of the machine. A home may be shared by all nodes, and
    one lock for them all would let one node measure at a time."""
    return "" if os.geteuid() == 0 else f"/tmp/gpufleet-acceptance-{os.geteuid()}"


def _watch(child: int, told: t.Sequence[int], listens: bool) -> None:
    """Wait for the child and for what it leaves to us, at most GIVE_BACK_S after its end. Tell the child to end if we are told to, or if
    standard input, to which it `listens` unless it is detached, ends or is silent."""
    heard = time.monotonic()
    is_open, is_told, ended_at = listens, False, 0.0
    while not ended_at or time.monotonic() < ended_at + GIVE_BACK_S:
        with contextlib.suppress(OSError):  # a signal
            if is_open and select.select([0], [], [], LOOK_S)[0]:
                is_open = bool(os.read(0, 65536))
                heard = time.monotonic()
            elif not is_open:
                time.sleep(LOOK_S)
        try:
            pid, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == child:
            ended_at = time.monotonic()
        if not ended_at and not is_told and (told or (listens and (not is_open or time.monotonic() > heard + SILENCE_S))):
            is_told = True
            os.kill(child, signal.SIGTERM)


def _answer_and_exit(request: dict[str, t.Any], nonce: str, folder: str) -> None:
    """Does not return: the guardian ends the probe when this process is gone before its answer."""
    try:
        signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(143))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        params, keep = request["params"], request.pop("keep", None)
        if request["probe"] == keeping.KEPT:
            answer = keeping.fetch(params["nonce"], folder, params["file"], params["job"])
        elif request["probe"] == keeping.COLLECTED:
            answer = keeping.remove(folder, params["file"])
        else:
            answer = runner.answer_or_fault(request)
        if keep:
            keeping.keep(answer, nonce, folder, keep["file"], keep["seconds"])
        else:
            frame.write(answer, nonce, 1, LINE_LIMIT)
    finally:
        os._exit(0)
