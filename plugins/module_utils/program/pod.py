# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of a test pod: it reads the request from a file, runs the probe under its guardian, and logs the answer as a frame.

    python3 payload.zip REQUEST

REQUEST is JSON: {"guardian": settings of lease/guardian_pod.py}, or

    probe      name of a file in probes/
    params     validated options of its module
    hold       a file to create when the answer is written; the pod then runs on until told to end, for launchers that restart what ends
    message    the file of the termination message, for a container that ends when it has answered
    once       a file to create first, for launchers that restart what fails; if it exists already, nothing is done
    sign       {"path", "within"}: a file that the controller changes as long as it lives

The launcher gives the pod its identity in the environment: GPUFLEET_SECRET and GPUFLEET_POD_UID. For lines and metrics meanwhile see
system/telemetry.py.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import guardian_pod
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import container, telemetry


def main() -> None:
    """Ends with status 0 once the frame is written, whatever the probe saw: a low number is no fault of the pod."""
    nonce = frame.nonce_of(os.environ["GPUFLEET_SECRET"], os.environ[container.IDENTITY])
    # The tools that we start must not be told how to speak for us.
    del os.environ["GPUFLEET_SECRET"]
    if os.environ.get("GPUFLEET_TOOLS"):  # a folder brought along, for what the image lacks
        os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:{os.environ['GPUFLEET_TOOLS']}/bin"
    # The first process of a container has no default for SIGTERM.
    signal.signal(signal.SIGTERM, _told_to_end)
    with open(sys.argv[1], encoding="utf-8") as source:
        request = json.load(source)
    if request.get("once") and not _first_start(request["once"]):
        sys.stdout.write("started again: a probe runs once, and how it ended then is what counts\n")
        return
    if "guardian" in request:
        guardian_pod.main(request["guardian"], nonce)
        return
    if request.get("sign"):
        threading.Thread(target=_end_in_silence, kwargs=request["sign"], daemon=True).start()
    progress = telemetry.of_environment(request)
    answer = runner.answer_or_fault(request)
    if progress:
        progress.end(answer)
    frame.write(answer, nonce, sys.stdout.fileno())
    copied = not os.environ.get("GPUFLEET_RESULTS") or _copy(answer, os.environ["GPUFLEET_RESULTS"])
    if copied and not progress and request.get("message"):  # else there is more to read than the answer
        frame.leave(answer, nonce, request["message"])
    if request.get("hold"):
        open(request["hold"], "w").close()  # what the readiness probe looks for
        while True:
            signal.pause()


def _first_start(path: str) -> bool:
    """Return True at the first start in this pod."""
    try:
        open(path, "x").close()
    except FileExistsError:
        return False
    return True


def _end_in_silence(path: str, within: float) -> None:
    """End this pod, and release its devices, if the file has not changed for `within` seconds: then no controller will fetch the result.
    The time is measured by the pod's own clock, which may differ from the controller's. A missing file counts as unchanged."""
    content, changed = "", time.monotonic()
    while time.monotonic() - changed < within:
        time.sleep(min(1.0, within / 10))
        try:
            with open(path, encoding="utf-8", errors="replace") as source:
                text = source.read(4096)
        except OSError:
            continue  # not there yet, or on its way to be another
        if text != content:
            content, changed = text, time.monotonic()
    sys.stdout.write(f"the controller has not shown itself for {within:.0f} s: this pod ends, and gives back what it holds\n")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGTERM)


def _copy(answer: dict[str, t.Any], folder: str) -> bool:
    """Write the answer to a volume as NODE.POD.json. Return False, and say so in the log, if it cannot be written."""
    path = os.path.join(folder, f"{os.environ.get('GPUFLEET_NODE')}.{os.environ.get('GPUFLEET_POD')}.json")
    try:
        os.makedirs(folder, exist_ok=True)
        with open(f"{path}.new", "w", encoding="utf-8") as target:
            json.dump(answer, target)
        os.replace(f"{path}.new", path)
    except OSError as error:
        sys.stdout.write(f"the copy of the result was not written: {error}\n")
        sys.stdout.flush()
        return False
    return True


def _told_to_end(_number: int, _frame: t.Any) -> None:
    raise SystemExit(143)
