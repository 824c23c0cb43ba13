# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a command in a running container, like `kubectl exec`.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import json
import time
import typing as t
import urllib.parse

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData

try:
    import websocket
except ImportError:
    websocket = None  # type: ignore[assignment]  # run() says so

# The first byte of each message is the number of its stream. The last message has the status of the command.
PROTOCOL = "v4.channel.k8s.io"
STDOUT, STDERR, STATUS = 1, 2, 3
OUTPUT_LIMIT = 1 << 22


class Ended(t.NamedTuple):
    """The exit status of a command, None if unknown, and its output."""

    status: int | None
    out: str
    err: str


def run(client: Client, pod: str, container: str, argv: t.Sequence[str], timeout: float) -> Ended:
    """Run `argv` in a container of the pod at path `pod`. If it does not end within `timeout` seconds, return its output so far with status
    None. Raise KubeError if it cannot be started."""
    if websocket is None:
        raise KubeError("cluster_unreachable", "the controller's Python lacks the package websocket-client; see requirements.txt")
    server, tls, headers, proxy = client.transport()
    query = [("container", container)] if container else []
    query += [("stdout", "true"), ("stderr", "true"), *(("command", word) for word in argv)]
    url = f"ws{server.removeprefix('http')}{pod}/exec?{urllib.parse.urlencode(query)}"
    through = urllib.parse.urlsplit(proxy)
    by_proxy: PlainData = {"http_proxy_host": through.hostname, "http_proxy_port": through.port, "proxy_type": "http"}
    proxy_options = by_proxy if proxy else {"http_no_proxy": ["*"]}
    try:
        link = websocket.create_connection(
            url, timeout=timeout, sslopt={"context": tls}, header=headers, subprotocols=[PROTOCOL], suppress_origin=True, **proxy_options
        )
    except (websocket.WebSocketException, OSError) as error:
        status = getattr(error, "status_code", 0) or 0
        code = "no_permission" if status == 403 else "cluster_unreachable"
        words = f"status {status}" if status else type(error).__name__
        raise KubeError(code, f"{client.name}: {argv[0]} could not be run in {pod.rsplit('/', 1)[-1]}: {words}", status) from None
    with contextlib.closing(link):
        return _followed(link, time.monotonic() + timeout)


def _followed(link: t.Any, end: float) -> Ended:
    streams: dict[int, bytearray] = {STDOUT: bytearray(), STDERR: bytearray(), STATUS: bytearray()}
    with contextlib.suppress(websocket.WebSocketException, OSError):
        while time.monotonic() < end and len(streams[STDOUT]) < OUTPUT_LIMIT:
            link.settimeout(max(0.1, end - time.monotonic()))
            message = link.recv()
            message = message.encode() if isinstance(message, str) else message
            if not message:
                break
            streams.get(message[0], bytearray()).extend(message[1:])
            if message[0] == STATUS:
                break
    return Ended(_status(bytes(streams[STATUS])), *(bytes(streams[stream]).decode("utf-8", "replace") for stream in (STDOUT, STDERR)))


def _status(text: bytes) -> int | None:
    """Return the exit status from the kubelet's status message, None if it has none."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        ending = json.loads(text)
        if ending["status"] == "Success":
            return 0
        causes = (ending.get("details") or {}).get("causes") or []
        return next((int(cause["message"]) for cause in causes if cause.get("reason") == "ExitCode"), None)
    return None
