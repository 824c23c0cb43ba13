# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last lines that a node's tool has printed, for somebody who looks while it runs.

A tool writes them to a file on its node (module_utils/system/live_output.py). Whoever looks leaves a file in the run's mailbox, and what
drives the stage fetches the text of that node and answers in another file. So a node at which nobody looks costs nothing.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import pathlib
import threading
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import live_output
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import mailbox
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import write_atomically
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run

# How long somebody is taken to look after the last time that they did, and the seconds between two answers for a node at least.
LOOKS_S, ANSWER_S = 15.0, 2.0
# How much of a text is shown: its last lines, and characters of a line.
LINES, CHARACTERS = 60, 500
# Nodes that are fetched at the same time for one host.
AT_ONCE = 4


def path_on_node(run_id: str, stage: str, host: str) -> str:
    """Return the path of the file on the nodes of a host. It has the form of heartbeat.PATH."""
    return f"/tmp/gpufleet-acceptance-{hashlib.sha256(f'{run_id} {stage} {host}'.encode()).hexdigest()[:32]}"


# For whoever looks -------------------------------------------------------------------------------------------------------------------


class Output(t.NamedTuple):
    """The last lines of a node's tool. `at` is the time of that by our clock, 0.0 if nothing has come yet; `problem` says why
    nothing comes."""

    stage: str = ""
    at: float = 0.0
    lines: t.Sequence[str] = ()
    problem: str = ""


def look(run: Run, node: str) -> Output | None:
    """Ask for the output of a node, and return the last that came since somebody looks; None if nothing drives the run."""
    box = run.mailbox
    asked, answered = box.path(mailbox.LOOK, target=node), box.path(mailbox.LIVE, target=node)
    if not box.folder.is_dir():
        return None
    try:
        asked.write_text(node, encoding="utf-8")
        if time.time() > answered.stat().st_mtime + LOOKS_S:
            return Output()
        told = json.loads(answered.read_text(encoding="utf-8"))
        lines = [line[:CHARACTERS] for line in str(told["text"]).splitlines() if line.strip()][-LINES:]
        return Output(str(told["stage"]), float(told["at"]), lines, str(told["problem"])[:CHARACTERS])
    except FileNotFoundError:
        return Output()
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Output(problem=f"{type(error).__name__} in {answered.name}")


# For what drives a stage -------------------------------------------------------------------------------------------------------------


def wanted(box: mailbox.Mailbox) -> t.Iterator[tuple[str, pathlib.Path]]:
    """Yield (node, the file for the answer) of all nodes that somebody looks at and whose answer is due."""
    now = time.time()
    for asked in box.folder.glob(mailbox.LOOK.name.format(target="*")):
        with contextlib.suppress(OSError):
            if now > asked.stat().st_mtime + LOOKS_S:
                continue
            node = asked.read_text(encoding="utf-8")
            answer = box.path(mailbox.LIVE, target=node)
            if not answer.exists() or now > answer.stat().st_mtime + ANSWER_S:
                yield node, answer


@contextlib.contextmanager
def answering(box: mailbox.Mailbox, stage: str, fetch: t.Callable[[str], str | None]) -> t.Iterator[None]:
    """Within this context threads answer whoever looks. `fetch` returns the text of a node, None if another host has it, and raises
    ReasonedError if it cannot be had."""
    stop = threading.Event()

    def answer() -> None:
        while not stop.wait(1.0):
            for node, file in list(wanted(box))[:AT_ONCE]:
                text, problem = None, ""
                try:
                    text = fetch(node)
                except ReasonedError as error:
                    text, problem = "", error.reason
                except Exception as error:  # the stage goes on, whoever looks
                    text, problem = "", type(error).__name__
                if text is not None:
                    with contextlib.suppress(RunError):  # the run is over, and its mailbox gone
                        told = {"stage": stage, "at": time.time(), "text": text[-live_output.LIMIT :], "problem": problem}
                        write_atomically(file, json.dumps(told))

    threading.Thread(target=answer, daemon=True).start()
    try:
        yield
    finally:
        stop.set()
