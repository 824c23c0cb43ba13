# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs of kwok pods: the kubelet that every kwok node claims to have, as far as the API server asks it for logs, and the termination
messages for which kwok asks (modules/kwok/main.go).

What a pod has written is what `log(pod)` of /rig/answer.py says, a function from the pod's object to text, and its message what
`message(pod)` says; without that file it is the pod's name, and no message. The file is read again when it changes.
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
_loaded: dict[int, dict[str, t.Any]] = {}
_own = threading.local()


def answer(what: str, pod: dict[str, t.Any], otherwise: str) -> str:
    try:
        moment = ANSWER.stat().st_mtime_ns
    except FileNotFoundError:
        return otherwise
    if moment not in _loaded:
        names: dict[str, t.Any] = {}
        exec(compile(ANSWER.read_text(), str(ANSWER), "exec"), names)
        _loaded[moment] = names
    return str(_loaded[moment][what](pod)) if what in _loaded[moment] else otherwise


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


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two packets

    def say(self, text: t.Callable[[], str]) -> None:
        try:
            status, body = 200, text().encode()
        except Exception:
            status, body = 500, traceback.format_exc().encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: t.Any) -> None:
        pass


class Kubelet(Answers):
    def do_GET(self) -> None:
        words = self.path.split("?")[0].strip("/").split("/")
        if len(words) == 4 and words[0] == "containerLogs":
            self.say(lambda: answer("log", fetch(words[1], words[2]), f"{words[2]}\n"))
        else:
            self.send_error(404)


class Messages(Answers):
    def do_POST(self) -> None:
        pod = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.say(lambda: answer("message", pod, ""))


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 1024


def main() -> None:
    messages = Server(("127.0.0.1", 10252), Messages)
    threading.Thread(target=messages.serve_forever, daemon=True).start()
    server = Server(("127.0.0.1", 10251), Kubelet)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("/rig/apiserver.crt", "/rig/apiserver.key")
    # The handshake belongs to the connection's own thread.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()


if __name__ == "__main__":
    main()
