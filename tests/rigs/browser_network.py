# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A network namespace for a browser. Chromium gives up every request that is under way when an interface comes or goes
(ERR_NETWORK_CHANGED), and rigs make interfaces all the time. In the namespace nothing changes; a SOCKS proxy leads out of it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import threading

_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
PORT = 1080
# The first answers of the protocol (RFC 1928): no login is asked for; connected; the host refused the connection.
_NO_LOGIN, _CONNECTED, _REFUSED = b"\x05\x00", b"\x05\x00\x00\x01" + bytes(6), b"\x05\x05\x00\x01" + bytes(6)
_IPV4, _NAME, _IPV6 = 1, 3, 4

_libc = ctypes.CDLL(None, use_errno=True)


class BrowserNetwork:
    """A namespace with nothing but its loopback, where the proxy listens. Needs root."""

    # What Chromium needs to know: addresses of this machine go through the proxy, too.
    FLAGS = (f"--proxy-server=socks5://127.0.0.1:{PORT}", "--proxy-bypass-list=<-loopback>")

    def __init__(self) -> None:
        self._failure: OSError | None = None
        maker = threading.Thread(target=self._make)  # only the thread moves into the namespace
        maker.start()
        maker.join()
        if self._failure:
            raise self._failure
        threading.Thread(target=self._serve, daemon=True).start()

    def _make(self) -> None:
        try:
            if _libc.unshare(_CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "no network namespace can be made")
            self._namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
                fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))
            self._listener = socket.create_server(("127.0.0.1", PORT), backlog=64)
        except OSError as error:
            self._failure = error

    def enter(self) -> None:
        """Move this process there: between fork and exec of the browser."""
        if _libc.setns(self._namespace, _CLONE_NEWNET):
            os._exit(1)

    def close(self) -> None:
        self._listener.close()
        os.close(self._namespace)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                inside, _address = self._listener.accept()
                threading.Thread(target=self._connect, args=(inside,), daemon=True).start()

    def _connect(self, inside: socket.socket) -> None:
        with inside, contextlib.suppress(OSError, EOFError):
            exactly(inside, exactly(inside, 2)[1])
            inside.sendall(_NO_LOGIN)
            kind = exactly(inside, 4)[3]
            raw = exactly(inside, exactly(inside, 1)[0] if kind == _NAME else 16 if kind == _IPV6 else 4)
            host = raw.decode() if kind == _NAME else socket.inet_ntop(socket.AF_INET6 if kind == _IPV6 else socket.AF_INET, raw)
            (port,) = struct.unpack("!H", exactly(inside, 2))
            try:
                outside = socket.create_connection((host, port))
            except OSError:
                inside.sendall(_REFUSED)
                return
            inside.sendall(_CONNECTED)
            with outside:
                back = threading.Thread(target=_pass_on, args=(outside, inside), daemon=True)
                back.start()
                _pass_on(inside, outside)
                back.join()


def exactly(source: socket.socket, count: int) -> bytes:
    """Return `count` bytes. Raise EOFError if the other side ends before."""
    found = b""
    while len(found) < count:
        piece = source.recv(count - len(found))
        if not piece:
            raise EOFError
        found += piece
    return found


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Pass on what comes until the end of one side, and the end too."""
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RD if end is source else socket.SHUT_WR)


def own_network() -> BrowserNetwork | None:
    """Return a namespace for a browser, None if this user may not make one."""
    with contextlib.suppress(OSError):
        return BrowserNetwork()
    return None
