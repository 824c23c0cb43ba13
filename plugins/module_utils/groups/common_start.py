# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A common beginning of nodes whose programs start at different times: the first node says how many seconds are left.

Pods start when their images are there, and tasks of a job when the prologs of their nodes are done, so nobody can tell them a moment
before. No two clocks are compared: the first node answers with seconds, and who has asked adds them to its own clock. An answer is signed
with a word that only these nodes know, so nobody else says when they begin.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import hmac
import itertools
import secrets
import socket
import threading
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError

# Seconds between two questions, for which one is waited at most, and by which an answer may be inexact; bytes of a line.
AGAIN_S, ASK_S, EXACT_S, LINE = 0.5, 3.0, 1.0, 256
# The first node answers at its port, or at the first one behind it that is free among so many; the others ask at all of them in turn.
PLACES = 4


class Beginning:
    """The moment at which the nodes begin, by time.monotonic(), as a context.

    `first` is {"address", "port", "token"} of the first node. Without an address this is the first node itself: it begins in `begins_in`
    seconds, and answers the others until then and until the context ends. Another node asks for up to `within` seconds. None: nobody is
    asked, and the nodes begin in `begins_in` seconds. Entering raises ReasonedError (port_in_use, partner).
    """

    def __init__(self, first: t.Mapping[str, t.Any] | None, begins_in: float, within: float) -> None:
        self.first, self.within = first, within
        self.begin = time.monotonic() + begins_in
        self._over = threading.Event()
        self._serving: threading.Thread | None = None

    def __enter__(self) -> float:
        if self.first is not None and self.first["address"]:
            self.begin = _asked(self.first["address"], self.first["port"], self.first["token"], self.within)
        elif self.first is not None:
            listener = _listener(self.first["port"])
            self._serving = threading.Thread(target=self._serve, args=[listener, self.first["token"]], daemon=True)
            self._serving.start()
        return self.begin

    def __exit__(self, kind: t.Any, *_what: t.Any) -> None:
        if self._serving:
            if kind is None:  # with nothing to do here itself, the node still tells the others
                time.sleep(max(0.0, self.begin - time.monotonic()))
            self._over.set()
            self._serving.join()

    def _serve(self, listener: socket.socket, token: str) -> None:
        listener.settimeout(AGAIN_S)
        with listener:
            while not self._over.is_set():
                with contextlib.suppress(OSError, RuntimeError):  # nobody came, or there is no room for a thread: it is asked again
                    threading.Thread(target=self._answer, args=[listener.accept()[0], token], daemon=True).start()

    def _answer(self, connection: socket.socket, token: str) -> None:
        with connection, contextlib.suppress(OSError):
            question = _line(connection).strip()
            left = f"{self.begin - time.monotonic():.3f}"
            connection.sendall(f"{left} {_signed(token, question, left)}\n".encode())


def _signed(token: str, question: bytes, left: str) -> str:
    return hmac.new(token.encode(), question + b" " + left.encode(), "sha256").hexdigest()


def _listener(port: int) -> socket.socket:
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    problem = ""
    for place in range(port, port + PLACES):
        try:
            return socket.create_server(("", place), family=family, dualstack_ipv6=dual, backlog=1024)
        except OSError as error:
            problem = error.strerror or str(error)
    raise ReasonedError("port_in_use", f"TCP ports {port} to {port + PLACES - 1}, on which the other nodes ask when they begin: {problem}")


def _line(connection: socket.socket) -> bytes:
    """Return a line of at most LINE bytes. Raises TimeoutError after ASK_S, also if a stranger sends it byte by byte."""
    end, line = time.monotonic() + ASK_S, b""
    while not line.endswith(b"\n") and len(line) < LINE:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError("no whole line in time")
        connection.settimeout(left)
        piece = connection.recv(LINE - len(line))
        if not piece:
            break
        line += piece
    connection.settimeout(ASK_S)
    return line


def _asked(address: str, port: int, token: str, within: float) -> float:
    end, said = time.monotonic() + within, dict.fromkeys(range(port, port + PLACES), "no answer")
    for place in itertools.cycle(said):
        if time.monotonic() >= end:
            break
        try:
            with socket.create_connection((address, place), ASK_S) as connection:
                question = secrets.token_hex(16).encode()
                asked_at = time.monotonic()
                connection.sendall(question + b"\n")
                left, _space, sign = _line(connection).decode("ascii", "replace").strip().partition(" ")
                took_s = time.monotonic() - asked_at
            is_first = hmac.compare_digest(sign.encode(), _signed(token, question, left).encode())
            if is_first and took_s <= EXACT_S:
                return asked_at + took_s / 2 + float(left)
            said[place] = "its answer took too long" if is_first else "another program answers there"
        except OSError as error:
            said[place] = error.strerror or str(error) or type(error).__name__
        if place == port + PLACES - 1:
            time.sleep(AGAIN_S)
    where = f"the first node, at {address} ports {port} to {port + PLACES - 1}"
    problems = "; ".join(dict.fromkeys(said.values()))
    raise ReasonedError("partner", f"{where}, did not say within {within:.0f} s when the nodes begin: {problems}")
