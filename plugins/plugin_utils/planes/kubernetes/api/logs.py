# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The framed answer in the log of one pod.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import pathlib
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import frame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects

# The log is written by the container runtime behind the back of the container: the last lines may be a moment late.
LATE_S = (0.3, 1.0, 3.0)
LOG_LIMIT = 16 << 20
LAST_LINES = 5


class Log(t.NamedTuple):
    """`record` is what was framed; where there is none, `reason_code` and `reason`. `last`: the last words beside the frame."""

    record: Object | None
    reason_code: str
    reason: str
    last: str
    foreign: int = 0


def read(client: Client, pod: str, nonce: str, raw: pathlib.Path | None = None) -> Log:
    """The log of the pod at path `pod`, which has ended; what is not of a frame goes to the file `raw`."""
    code, reason, last = "no_result", "", ""
    for pause in (*LATE_S, None):
        reader = frame.Reader(nonce)
        try:
            last = _stream(client, pod, reader, raw)
            return Log(reader.result(), "", "", last, reader.foreign)
        except frame.FrameError as error:
            code, reason = error.reason_code, error.reason
        except KubeError as error:
            code = "pod_deleted" if error.status == 404 else "no_result"
            reason = f"its log cannot be read: {error.reason}"
        if pause is None or code == "forged_frame":
            break
        time.sleep(pause)
    return Log(None, code, reason, last)


def _stream(client: Client, pod: str, reader: frame.Reader, raw: pathlib.Path | None) -> str:
    last: collections.deque[bytes] = collections.deque(maxlen=LAST_LINES)
    kept = 0
    target: t.IO[bytes] | None = None
    try:
        for line in client.lines(f"{pod}/log", container=objects.CONTAINER, line_limit=1 << 16):
            reader.feed(line)
            if frame.TAG in line or not line.strip():
                continue
            last.append(line[:300])
            kept += len(line) + 1
            if raw and kept <= LOG_LIMIT:
                target = target or open(raw, "wb")  # noqa: SIM115
                target.write(line + b"\n")
    finally:
        if target:
            target.close()
    return " | ".join(line.decode("utf-8", "replace").strip() for line in last)[-600:]
