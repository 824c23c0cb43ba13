# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The log of one pod: the result in it, and its other lines.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import contextlib
import pathlib
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import marks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError, Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import new_file
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer

# Pauses in seconds before a log is read again. The container runtime may write the last lines a moment late.
LATE_S = (0.3, 1.0, 3.0)
LOG_LIMIT = 16 << 20
LAST_LINES = 5
# A longer line comes in pieces.
LINE_LIMIT = 1 << 16
# The most characters of a line that people are shown.
SHOWN = 500
# The kubelet's text, with status 200, in place of the log of a container that it has removed.
_REMOVED = "unable to retrieve container logs"


Raw = t.Callable[[], pathlib.Path]


class ResultReader(t.Protocol):
    """Finds a result in the lines of a log. module_utils/answer/frame.py has one, and so has each reader of another form of results."""

    foreign: int

    def feed(self, line: bytes) -> None:
        """Read one line."""

    def result(self) -> Object | None:
        """Return the result, None if none is wanted. Raise ReasonedError unless the log holds it whole, and once."""


class PodLog(t.NamedTuple):
    """The result in a log, or reason code and reason why a required result is missing. `last` has the last other lines, and `foreign`
    counts the frames of other pods."""

    record: NodeAnswer | None
    reason_code: str
    reason: str
    last: str
    foreign: int = 0


def read(
    client: Client,
    pod: str,
    reader: t.Callable[[], ResultReader],
    raw: Raw | None = None,
    restarts: bool = False,
    container: str = marks.CONTAINER,
) -> PodLog:
    """Read the log of a pod that has ended, at path `pod`, with a new `reader()` for each attempt. Other lines are written to the file that
    `raw()` names, which is created when it is needed. `restarts`: read the log of the container's first end, because it was or will be
    started again."""
    code, reason, last = "no_result", "", ""
    with contextlib.closing(_RawFile(raw)) as raw_file:
        for pause in (*LATE_S, None):
            try:
                if restarts:
                    result_reader, last = _first(client, pod, reader, raw_file, container)
                else:
                    result_reader, last = _stream(client, pod, reader(), raw_file, container=container)
                return PodLog(t.cast(NodeAnswer | None, result_reader.result()), "", "", last, result_reader.foreign)
            except KubeError as error:
                code, reason = "no_result", f"its log cannot be read: {error.reason}"
                if error.status == 404:
                    name = pod.rpartition("/")[2]
                    code, reason = "pod_deleted", f"somebody deleted pod {name} before its log was read; a resume measures again"
            except ReasonedError as error:
                code, reason = error.reason_code, error.reason
            if pause is None or code == "forged_frame":
                break
            time.sleep(pause)
    return PodLog(None, code, reason, last)


def lines(client: Client, pod: str, container: str | None = marks.CONTAINER, **query: t.Any) -> t.Iterator[bytes]:
    """Yield the lines of the log of the pod at path `pod`. `container` None means its only container, whatever its name."""
    return client.lines(f"{pod}/log", line_limit=LINE_LIMIT, container=container, **query)


def words(client: Client, pod: str, container: str = marks.CONTAINER, **query: t.Any) -> t.Iterator[str]:
    """Yield the lines of a log that are for people, without frames and empty lines."""
    for line in lines(client, pod, container, **query):
        if _is_for_people(line):
            yield line.decode("utf-8", "replace")[:SHOWN]


def _is_for_people(line: bytes) -> bool:
    return frame.TAG not in line and bool(line.strip())


class _RawFile:
    """The file for lines that are no frame. It is created with the first line, and written anew if the log is read again."""

    def __init__(self, raw: Raw | None) -> None:
        self._raw = raw
        self._file: t.IO[bytes] | None = None
        self._size = 0

    def begin(self) -> None:
        self._size = 0
        if self._file:
            self._file.seek(0)
            self._file.truncate()

    def line(self, line: bytes) -> None:
        self._size += len(line) + 1
        if self._raw and self._size <= LOG_LIMIT:
            self._file = self._file or new_file(self._raw())
            self._file.write(line + b"\n")

    def close(self) -> None:
        if self._file:
            self._file.close()


def _first(client: Client, pod: str, reader: t.Callable[[], ResultReader], raw_file: _RawFile, container: str) -> tuple[ResultReader, str]:
    """Read the log of the previous container, or of the current one if there is no previous. The previous log is requested before and after
    the current one, because a restart may come in between."""
    first: tuple[ResultReader, str] | None = None
    for previous in (True, False, True):
        try:
            streamed = _stream(client, pod, reader(), raw_file, container=container, previous=previous)
        except KubeError as error:
            if not previous or error.status != 400:
                raise
            continue
        if previous and streamed[1].startswith(_REMOVED):
            continue
        first = streamed
        if previous:
            break
    return t.cast("tuple[ResultReader, str]", first)


def _stream(client: Client, pod: str, reader: ResultReader, raw_file: _RawFile, **query: t.Any) -> tuple[ResultReader, str]:
    last: collections.deque[bytes] = collections.deque(maxlen=LAST_LINES)
    begun = False
    for line in lines(client, pod, **query):
        reader.feed(line)
        if _is_for_people(line):
            if not begun:
                raw_file.begin()
                begun = True
            last.append(line[:300])
            raw_file.line(line)
    return reader, " | ".join(line.decode("utf-8", "replace").strip() for line in last)[-600:]
