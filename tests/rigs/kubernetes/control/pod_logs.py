# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs of kwok pods: the kubelet that every kwok node claims to have, as far as the API server asks it for logs.

What a pod has written is what `log(pod)` of /rig/answer.py says, a function from the pod's object to text; without that file
it is the pod's name. The file is read again when it changes.
"""

from __future__ import annotations

import http.client
import http.server
import json
import pathlib
import socketserver
import ssl
import threading
import traceback
import typing as t

ANSWER = pathlib.Path("/rig/answer.py")
_loaded: dict[int, t.Callable[[dict[str, t.Any]], str]] = {}
_own = threading.local()


def answer(pod: dict[str, t.Any]) -> str:
    try:
        moment = ANSWER.stat().st_mtime_ns
    except FileNotFoundError:
        return f"{pod['metadata']['name']}\n"
    if moment not in _loaded:
        names: dict[str, t.Any] = {}
        exec(compile(ANSWER.read_text(), str(ANSWER), "exec"), names)
        _loaded[moment] = names["log"]
    return _loaded[moment](pod)


def fetch(namespace: str, name: str) -> dict[str, t.Any]:
    """The pod's object, over one kept connection per thread."""
    for _again in range(2):
        if not hasattr(_own, "connection"):
            server = json.loads(pathlib.Path("/rig/admin.kubeconfig").read_text())["clusters"][0]["cluster"]["server"]
            context = ssl.create_default_context(cafile="/rig/ca.crt")
            context.load_cert_chain("/rig/kubelet-client.crt", "/rig/kubelet-client.key")
            _own.connection = http.client.HTTPSConnection(server.removeprefix("https://"), timeout=30, context=context)
        try:
            _own.connection.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
            return json.loads(_own.connection.getresponse().read())
        except (OSError, http.client.HTTPException):
            del _own.connection
    raise ConnectionError("the API server does not answer")


class Kubelet(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two packets

    def do_GET(self) -> None:
        words = self.path.split("?")[0].strip("/").split("/")
        status, text = 404, "not found\n"
        if len(words) == 4 and words[0] == "containerLogs":
            try:
                status, text = 200, answer(fetch(words[1], words[2]))
            except Exception:
                status, text = 500, traceback.format_exc()
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: t.Any) -> None:
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 1024


def main() -> None:
    server = Server(("127.0.0.1", 10251), Kubelet)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("/rig/apiserver.crt", "/rig/apiserver.key")
    # The handshake belongs to the connection's own thread.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()


if __name__ == "__main__":
    main()
