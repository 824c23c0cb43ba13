# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node as a member of a group: it lets the group's head log in during a test, and removes every trace afterwards.

A group has a token, and each member a folder named after it:

    /tmp/gpufleet-TOKEN/said/hello    the description of the member, and a beat every BEAT_S; the head reads it over SSH and holds a
                                      lock on it as long as it lives

By the lock a member knows that the head has come, and that it is gone: finished, dead, or its connection lost. The lease is recorded in
the node's ledger before anything is made. It covers the folder, the line of the ephemeral key in authorized_keys (which sshd accepts from
the head only, and only until it expires), and every process with the token in its environment, as all ranks of the group have it.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import tempfile
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process, session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

_TOKEN = re.compile(r"^[0-9a-f]{32}$")
_KEY = re.compile(r"^ssh-ed25519 [A-Za-z0-9+/=]{40,100}$")
# The check of a node that is one of a group: that it takes part.
CHECK = "member"
POLL_S = 0.2
# How often a member says something to a head that holds on: where the connection was cut, saying it is how the node comes to know.
BEAT_S = 2.0
# A membership is given back in sweeps until QUIET of them in a row find nothing: a command over SSH that was let in just before may begin
# late and make the folder again. SWEEPS is the most.
SWEEP_S, SWEEPS, QUIET = 0.5, 10, 2


def folder(token: str) -> str:
    """Return the folder in which members and head of a group keep their files. Raise ValueError for anything that is not a token."""
    if not _TOKEN.match(token):
        raise ValueError("token: expected 32 hexadecimal digits")
    return f"/tmp/gpufleet-{token[:16]}"


def _hello(within: str) -> str:
    """Return the path of the hello. It has a folder of its own, which is renamed into place with the file in it: flock(1) creates and locks
    a file that is missing."""
    return f"{within}/said/hello"


def reading(token: str) -> list[str]:
    """The command by which the head, over SSH, reads a member's hello and then holds the lock until its own end closes. It carries the
    token, so that it ends with the membership at the latest."""
    path = _hello(folder(token))
    return ["env", f"{session.MARK}={token}", "flock", "--shared", path, "tail", "-n", "+1", "-f", path]


class Member:
    """One member of a group: `with Member(...) as member: member.greet({...}); member.wait(...)`.

    `key` is {"public": "ssh-ed25519 AAAA...", "from": [addresses of the head], "seconds": how long it is good for}, None where nodes
    reach one another already.
    """

    def __init__(self, node: Node, token: str, key: dict[str, t.Any] | None = None) -> None:
        self.node = node
        self.token = token
        self.folder = folder(token)
        self.key = key
        self._lease: dict[str, t.Any] = {}

    def __enter__(self) -> Member:
        self._lease = {"folder": self.folder, "mark": self.token, "key": "", "file": ""}
        line = ""
        if self.key:
            line = authorization(self.token, self.key["public"], self.key["from"], self.key["seconds"])
            path = os.path.realpath(os.path.join(pwd.getpwuid(os.geteuid()).pw_dir, ".ssh", "authorized_keys"))
            self._lease.update(key=self.key["public"], file=path, made=not os.path.isdir(os.path.dirname(path)))
        if self.node.ledger:
            self.node.ledger.record("member", **self._lease)
        os.mkdir(self.folder, 0o700)
        if line:
            _add_line(self._lease["file"], line)
        return self

    def __exit__(self, *_exception: object) -> None:
        undo(self._lease)

    def greet(self, words: dict[str, t.Any]) -> None:
        """Say hello, whole or not at all."""
        new = f"{self.folder}/new"
        os.mkdir(new, 0o700)
        with open(f"{new}/hello", "w", encoding="utf-8") as target:
            target.write(json.dumps(words) + "\n")
        os.rename(new, os.path.dirname(_hello(self.folder)))

    def wait(self, seconds: float) -> str | None:
        """Wait until the head has come and gone. Return None then, else a reason: the head did not come within `seconds`, or it stayed to
        the deadline."""
        until = time.monotonic() + min(seconds, self.node.remaining())
        came, beat = False, 0.0
        while self.node.remaining() > 0:
            has_head = self._held()
            if has_head and time.monotonic() > beat:
                beat = time.monotonic() + BEAT_S
                with open(_hello(self.folder), "a", encoding="utf-8") as hello:
                    hello.write("\n")
            if came and not has_head:
                return None
            came = came or has_head
            if not came and time.monotonic() > until:
                return f"the head of the group did not come within {seconds:.0f} s"
            time.sleep(POLL_S)
        return "the head of the group was still there at the deadline" if came else "the head of the group did not come"

    def _held(self) -> bool:
        with open(_hello(self.folder), encoding="utf-8") as hello:
            try:
                fcntl.flock(hello, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


def undo(entry: dict[str, t.Any]) -> str:
    """Give a membership back from its ledger record. Safe to repeat."""
    actions = []
    if entry["key"]:  # first, so that nobody comes in any more
        try:
            if _remove_line(entry["file"], entry["key"]):
                actions.append(f"removed our key from {entry['file']}")
        except OSError as error:
            actions.append(f"our key is NOT removed from {entry['file']}, where it expires: {error.strerror}")
        if entry["made"]:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(entry["file"]))
    is_ours = entry["folder"] == folder(entry["mark"])
    ended, existed = 0, is_ours and os.path.isdir(entry["folder"])
    quiet = 0 if existed or actions else QUIET - 1
    for _sweep in range(SWEEPS):
        processes = process.with_environment(session.MARK, entry["mark"])
        for pid, began in processes:
            process.kill(pid, began, signal.SIGKILL)
        for pid, began in processes:
            process.wait_gone(pid, began, 5)
        clean = not processes and not (is_ours and os.path.isdir(entry["folder"]))
        if is_ours:
            shutil.rmtree(entry["folder"], ignore_errors=True)
        ended += len(processes)
        quiet = quiet + 1 if clean else 0
        if quiet >= QUIET:
            break
        time.sleep(SWEEP_S)
    if ended:
        actions.append(f"ended {ended} processes of the group")
    if existed:
        actions.append(f"removed {entry['folder']}")
    return "; ".join(actions) or "nothing was left of a group"


# authorized_keys -----------------------------------------------------------------------------------------------------


def authorization(token: str, public: str, sources: t.Iterable[str], seconds: float, current_s: float | None = None) -> str:
    """Return a line of authorized_keys that is good for `sources` and `seconds` (sshd reads the time as the machine's own).

    Its command runs what the head asks for only while the member's folder exists, and with the token in its environment. So a command
    that begins after the membership has ended leaves nothing behind, and `undo` finds one that began before.

    Raises ValueError for a token, a key or a source that could carry more than it should.
    """
    if not _KEY.match(public):
        raise ValueError("key: expected an ed25519 key without a comment")
    addresses = sorted({address for source in sources for address in _addresses(source)})
    if not addresses:
        raise ValueError("key: expected at least one address that it may come from")
    until = time.strftime("%Y%m%d%H%M%S", time.localtime((time.time() if current_s is None else current_s) + seconds + 60))
    checked = (
        f"[ -d {folder(token)} ] || exit 75; {session.MARK}={token}; export {session.MARK}; "
        'command=$SSH_ORIGINAL_COMMAND; unset SSH_ORIGINAL_COMMAND; exec "${SHELL:-/bin/sh}" -c "$command"'
    )
    command = f"exec /bin/sh -c '{checked}'".replace('"', '\\"')
    return f'restrict,command="{command}",from="{",".join(addresses)}",expiry-time="{until}" {public} gpufleet-acceptance'


def _addresses(source: str) -> list[str]:
    """Addresses of a name or an address."""
    try:
        infos = socket.getaddrinfo(source, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{source}: {error}") from error
    return [str(info[4][0]).partition("%")[0] for info in infos]


def _add_line(path: str, line: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(os.path.dirname(path), 0o700)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        size = os.fstat(handle).st_size
        cut = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        os.write(handle, ("\n" * cut + line + "\n").encode())
    finally:
        os.close(handle)


def _remove_line(path: str, key: str) -> bool:
    """Take the lines with this key out and leave the rest as it is; a file of which nothing is left goes."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as source:
            lines = source.readlines()
            original = os.fstat(source.fileno())
    except OSError:
        return False
    remaining = [line for line in lines if key not in line]
    if len(remaining) == len(lines):
        return False
    if not remaining:
        os.unlink(path)
        return True
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".authorized_keys-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as target:
            target.writelines(remaining)
            os.fchmod(handle, stat.S_IMODE(original.st_mode))
            os.fchown(handle, original.st_uid, original.st_gid)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return True
