# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPU governor of a cluster's node, held by a pod that outlives the one that needs it.

    test pod ---TCP: a key, then its life---> guardian pod ---lease---> /sys of the node
                                                           ---ledger--> state directory of the node

A client with the key gets the governor switched, and the result as a line of JSON. The governor stays switched as long as the connection
is open. When the client closes it, dies or vanishes, on SIGTERM and at the deadline, every policy gets its own value back, and a client
that still listens gets a second line. If the guardian itself is killed, the kubelet starts it again, and it undoes the leases in its
ledger. Sessions over SSH (system/session.py) and playbooks/restore.yml use the same ledger and do the same.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import select
import signal
import socket
import sys
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import governor
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.machine import CONTAINED, Machine
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.session import Session

# The pod has a network of its own, in which no other program listens.
PORT = 18514
# A side that vanishes without a word is noticed after IDLE_S + TRIES * AGAIN_S seconds, whatever was on its way to it.
IDLE_S, AGAIN_S, TRIES = 2, 2, 3
LINE_LIMIT = 1 << 14
# Seconds that the guardian waits for the first line of a connection, and between two looks whether it was told to end.
KEY_S, TICK_S = 2.0, 0.5
# Patience of the test pod: with a guardian that is about to listen, about to switch (the machine, the lock, a second for the clocks),
# about to give back.
CONNECT_S, ANSWER_S, END_S = 10.0, 15.0, 5.0


def main(settings: PlainData, key: str) -> None:
    """Guard until SIGTERM or the deadline. `settings`: {"governor", "state_dir": path in this pod, "machine": path of the node's root in
    this pod, "run_id", "stage", "timeout" in seconds, "port"}, and "root" for a tree that stands in for /sys."""
    guardian = GovernorGuardian(settings, key)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, guardian.end)
    guardian.restore()
    dual = socket.has_dualstack_ipv6()
    with socket.create_server(("", settings["port"]), family=socket.AF_INET6 if dual else socket.AF_INET, dualstack_ipv6=dual) as listener:
        guardian.serve(listener, settings["timeout"])


class Link:
    """Lines of JSON to and from a peer that may vanish."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(END_S)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, IDLE_S),
            (socket.TCP_KEEPINTVL, AGAIN_S),
            (socket.TCP_KEEPCNT, TRIES),
            (socket.TCP_USER_TIMEOUT, (IDLE_S + AGAIN_S * TRIES) * 1000),
        ):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        self.connection = connection
        self._heard = b""

    def fileno(self) -> int:
        return self.connection.fileno()

    def say(self, record: PlainData) -> None:
        with contextlib.suppress(OSError):  # who is not there is noticed by what comes from him
            self.connection.sendall(json.dumps(record).encode() + b"\n")

    def hear(self, seconds: float) -> PlainData | None:
        """Return the next record; None if none comes within `seconds`. Raise EOFError if the peer is gone, or if it sends anything else."""
        end = time.monotonic() + seconds
        while b"\n" not in self._heard:
            if not select.select([self.connection], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            try:
                piece = self.connection.recv(4096)
            except OSError as error:
                raise EOFError(os.strerror(error.errno or 0)) from error
            if not piece or len(self._heard) > LINE_LIMIT:
                raise EOFError("it has closed the connection")
            self._heard += piece
        line, _newline, self._heard = self._heard.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise EOFError("it speaks another language")
        return message

    def close(self) -> None:
        self.connection.close()


class GovernorGuardian:
    """The guardian in its pod, for one test pod at a time. `settings` and `key` as in main()."""

    def __init__(self, settings: PlainData, key: str) -> None:
        self.key = key
        self.governor = settings["governor"]
        machine = Machine(settings["machine"], CONTAINED)
        self.session = Session(settings["state_dir"], settings["run_id"], settings["stage"], settings["timeout"], machine)
        self.node = Node(settings["timeout"], ledger=self.session.ledger, root=settings.get("root") or "/")
        self.peer: Link | None = None
        self.lease: governor.GovernorLease | None = None
        self.told_to_end = False

    def end(self, _number: int, _frame: t.Any) -> None:
        """Handler of signals; between two calls of the system, so that a restore is never cut."""
        self.told_to_end = True

    def restore(self) -> None:
        """Give back what a killed guardian has left. If the node is taken, its holder has already done so."""
        if not os.path.exists(self.session.ledger.path):
            return
        try:
            _log(*self._acquire())
            self.session.release()
        except ReasonedError as error:
            _log(error.reason)

    def serve(self, listener: socket.socket, timeout: float) -> None:
        """Serve one test pod at a time until told to end, for at most `timeout` seconds."""
        end = time.monotonic() + timeout
        while not self.told_to_end and time.monotonic() < end:
            watched: list[t.Any] = [listener, self.peer] if self.peer else [listener]
            ready = select.select(watched, [], [], TICK_S)[0]
            if self.peer and self.peer in ready:
                try:
                    self.peer.hear(0)
                except EOFError as error:
                    self._let_go(f"the test pod is gone: {error}")
            if listener in ready:
                with contextlib.suppress(OSError):  # who came has left already
                    self._admit(Link(listener.accept()[0]))
        self._let_go("it was told to end" if self.told_to_end else "its deadline passed")

    def _admit(self, link: Link) -> None:
        try:
            message = link.hear(KEY_S) or {}
        except EOFError:
            message = {}
        if not hmac.compare_digest(str(message.get("key")).encode(), self.key.encode()):
            _log("a connection without the key was refused")
            link.say(not_switched(self.governor, "no_permission", "this is not the key"))
        elif self.peer:
            link.say(not_switched(self.governor, "busy_run", "another test pod holds the governor"))
        else:
            self.peer = link
            answer = self._take()
            _log(f"governor {answer['wanted']}: {answer['state']} {answer['reason'] or ''}")
            link.say(answer)
            return
        link.close()

    def _acquire(self) -> list[str]:
        """Take the node and undo what is left there. Raise ReasonedError if the node cannot be taken."""
        try:
            self.session.acquire(0.0)
        except OSError as error:
            self.session.machine.release()
            reason = f"state directory {self.session.state_dir}: {os.strerror(error.errno or 0)}"
            raise ReasonedError("state_dir", reason) from error
        except ReasonedError:
            self.session.machine.release()
            raise
        try:
            # Without a process: its number means nothing outside of this pod.
            self.session.lock.sign(run_id=self.session.run_id, stage=self.session.stage)
            # Processes and containers of others have other numbers and places in here.
            return self.session.ledger.undo(only="governor")
        except OSError as error:
            self.session.release()
            raise ReasonedError("state_dir", f"{self.session.ledger.path}: {os.strerror(error.errno or 0)}") from error

    def _take(self) -> PlainData:
        try:
            _log(*self._acquire())
        except ReasonedError as error:
            return not_switched(self.governor, error.reason_code, error.reason)
        self.lease = governor.GovernorLease(self.node, self.governor)
        self.lease.take()
        return self.lease.summary()

    def _let_go(self, why: str) -> None:
        given_back: list[str] = []
        if self.lease:
            given_back = self.lease.give_back()
            self.session.ledger.undo(only="governor")
            self.session.release()
            self.lease = None
        _log(why, *given_back)
        if self.peer:
            self.peer.say({"ended": why, "given_back": given_back})
            self.peer.close()
            self.peer = None


class Held:
    """The test pod's side, used as a governor.GovernorLease is: the governor for as long as a probe needs it.

    `settings`: {"governor", "address", "port", "key"} of its guardian, or {"governor", "reason_code", "reason"} if there is none.
    Lost while it is held, `summary()` says `lost` from then on.
    """

    def __init__(self, settings: PlainData) -> None:
        self.settings = settings
        self._link: Link | None = None
        self._summary = not_switched(settings["governor"], settings.get("reason_code"), settings.get("reason"))

    def __enter__(self) -> Held:
        if "address" in self.settings:
            self._summary = self._ask()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._listen()
        if self._link:
            with contextlib.suppress(OSError):
                self._link.connection.shutdown(socket.SHUT_WR)
            self._listen(END_S)
            if self._link:
                self._lose(f"it did not say within {END_S:.0f} s that it gave the governor back")

    def summary(self) -> PlainData:
        """Return the present state, in the form of governor.GovernorLease.summary()."""
        self._listen()
        return self._summary

    def _ask(self) -> PlainData:
        requested, where = self.settings["governor"], (self.settings["address"], self.settings["port"])
        end = time.monotonic() + CONNECT_S
        while True:
            try:
                self._link = Link(socket.create_connection(where, timeout=max(0.1, end - time.monotonic())))
                break
            except OSError as error:
                if time.monotonic() > end:
                    return not_switched(requested, "unreachable", f"its guardian at {where[0]}:{where[1]} cannot be reached: {error}")
                time.sleep(0.1)  # it may be about to listen
        self._link.say({"key": self.settings["key"]})
        try:
            answer = self._link.hear(ANSWER_S)
            reason = f"its guardian did not answer within {ANSWER_S:.0f} s"
        except EOFError as error:
            answer, reason = None, f"its guardian went before it had answered: {error}"
        if answer is None:
            self._link.close()
            self._link = None
        return answer or not_switched(requested, "guardian_lost", reason)

    def _listen(self, seconds: float = 0.0) -> None:
        """Take the guardian's last message, if there is one."""
        if self._link:
            try:
                message = self._link.hear(seconds)
            except EOFError as error:
                self._lose(f"its guardian is gone: {error}")
                return
            if message is not None and seconds:
                self._close({"given_back": message.get("given_back") or []})
            elif message is not None:
                self._lose(f"its guardian has given it back: {message.get('ended')}", message.get("given_back") or [])

    def _lose(self, reason: str, given_back: t.Sequence[str] = ()) -> None:
        lost = {"state": "lost", "reason_code": "guardian_lost", "reason": reason, "given_back": list(given_back)}
        self._close(lost if self._summary["state"] == "switched" else {})

    def _close(self, change: PlainData) -> None:
        self._summary = {**self._summary, **change}
        if self._link:
            self._link.close()
            self._link = None


def not_switched(requested: str, code: str | None, reason: str | None) -> PlainData:
    """Return the summary of a governor that was not switched, in the form of governor.GovernorLease.summary()."""
    return {
        "wanted": requested, "state": "not_switched", "reason_code": code, "reason": reason, "driver": None, "before": {}, "given_back": [],
    }  # fmt: skip


def _log(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
