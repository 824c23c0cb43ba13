# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A worker of a group whose head enters it by sshd, which runs for the length of the stage; beside it, what this node does itself.

The image's own settings of sshd take no part: they differ from image to image, and a login that lacks the container's environment
finds neither mpirun's helpers nor the libraries that the image was made for.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import member
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import probing, process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

CHECK = "worker"
NO_SSHD = "the node or image has no sshd: install openssh-server in it"
START_S = 20.0
# How the name of the folder for the files of sshd begins.
PREFIX = "gpufleet-worker-"
# Words of sshd's log.
_LISTENS, _IN_USE = "Server listening on", "already in use"
# Not for ranks: these belong to the process that has them.
_OWN = ("HOME", "HOSTNAME", "PWD", "OLDPWD", "SHLVL", "TERM", "USER", "LOGNAME", "SHELL", "_")
_OWN_PREFIXES = ("GPUFLEET_", "SSH_", "PET_")
# Nor what an operator says of a rendezvous of its own (PyTorchJob, with PET_*): torchrun would take for its options what ours does not set.
_OF_OPERATOR = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
_PROGRAMS = ("sshd", "/usr/sbin/sshd", "/usr/local/sbin/sshd")
# More groups than one start at the same time while a fault is searched.
_LIMITS = {"MaxStartups": "512", "MaxSessions": "256", "LoginGraceTime": "30"}


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """Start sshd on a node of a group and yield the observations of the member, or why the worker cannot be entered. `params`: {"port",
    "authorized_keys": path, or "public_key": the key itself, "work": the request of what the node does itself as a member, or None,
    "optional": True if the head may have another way in than sshd}.

    Without a member's half the worker stays to its deadline.
    """
    if params.get("optional") and sshd() is None:
        yield from _without_sshd(params["work"], node)
        return
    with _folder(node) as folder:
        try:
            child = _start(params, node, folder)
        except ReasonedError as error:
            yield observation.failed(member.CHECK if params["work"] else CHECK, error.reason_code, error.reason)
            return
        try:
            if params["work"]:
                yield from probing.of(params["work"])(params["work"]["params"], node)
            while not params["work"] and node.remaining() > 0 and child.poll() is None:
                time.sleep(0.5)
        finally:
            process.end(child)


def _without_sshd(work: t.Any, node: Node) -> t.Iterator[Observation]:
    """Yield the observations of the member. If the head did not come, it has an sshd itself and looked for one here."""
    for item in probing.of(work)(work["params"], node):
        if item["check"] == member.CHECK and item["reason_code"] == "partner":
            item = {**item, "reason_code": "tool_missing", "reason": f"{item['reason']}, which has an sshd itself; {NO_SSHD}"}
        yield item


@contextlib.contextmanager
def _folder(node: Node) -> t.Iterator[str]:
    """A folder for the files of sshd. It is in the ledger first, since a probe may be killed."""
    lease = {"folder": os.path.join(tempfile.gettempdir(), f"{PREFIX}{os.urandom(8).hex()}")}
    if node.ledger:
        node.ledger.record("worker", **lease)
    os.mkdir(lease["folder"], 0o700)
    try:
        yield lease["folder"]
    finally:
        undo(lease)


def undo(entry: dict[str, t.Any]) -> str:
    """Remove the folder of a ledger record. Safe to repeat."""
    folder = str(entry["folder"])
    if not os.path.basename(folder).startswith(PREFIX) or not os.path.isdir(folder):
        return ""
    shutil.rmtree(folder, ignore_errors=True)
    return f"removed {folder}"


def sshd() -> str | None:
    """Return the path of sshd on this node, None if it has none."""
    return next((located for name in _PROGRAMS if (located := shutil.which(name))), None)


def _start(params: dict[str, t.Any], node: Node, folder: str) -> subprocess.Popen[bytes]:
    """sshd, once it can be entered."""
    program = sshd()
    if program is None:
        raise ReasonedError("tool_missing", NO_SSHD)
    key = f"{folder}/host_key"
    keygen = node.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key])
    if not keygen.ok:
        raise ReasonedError("tool_missing", f"ssh-keygen: {keygen.missing or ' '.join(keygen.err.split())[-200:]}")
    with contextlib.suppress(OSError):  # compiled in; most images lack it
        os.makedirs("/run/sshd", 0o755, exist_ok=True)
    keys = params.get("authorized_keys") or f"{folder}/authorized_keys"
    if "public_key" in params:
        with open(keys, "w", encoding="ascii") as target:
            target.write(f"{params['public_key']}\n")
    path = f"{folder}/sshd_config"
    with open(path, "w", encoding="utf-8") as target:
        target.write(config(params["port"], key, keys, dict(os.environ)))
    with open(f"{folder}/log", "wb") as log:
        child = process.spawn([program, "-D", "-e", "-f", path], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    node.record(child.pid)
    until = time.monotonic() + START_S
    log_text = ""
    while time.monotonic() < until and child.poll() is None and _IN_USE not in log_text:
        time.sleep(0.05)
        log_text = _last_words(f"{folder}/log")
        # That something answers on the port does not mean that it is ours: with the node's network it may be anybody's.
        if _LISTENS in log_text and _IN_USE not in log_text:
            with contextlib.suppress(OSError), socket.create_connection(("localhost", params["port"]), timeout=2):
                return child
    process.end(child)
    log_text = _last_words(f"{folder}/log")
    if _IN_USE in log_text:
        advice = f"set {params.get('port_variable') or 'another one'}"
        raise ReasonedError("port_in_use", f"port {params['port']} of this node is in use: {advice} ({log_text})")
    raise ReasonedError("tool_failed", f"sshd does not listen on port {params['port']}: {log_text or 'it printed nothing'}")


def _last_words(path: str) -> str:
    """The last words of sshd as one line."""
    with open(path, encoding="utf-8", errors="replace") as log:
        return " ".join(log.read(8192).split())[-600:]


def config(port: int, host_key: str, authorized_keys: str, environment: dict[str, str]) -> str:
    """sshd_config(5): only the group's key, and the container's environment for every login."""
    lines = {
        "Port": str(port),
        "HostKey": host_key,
        "AuthorizedKeysFile": authorized_keys,
        # It may be mounted, in a folder that belongs to another user.
        "StrictModes": "no",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
        "UseDNS": "no",
        "PrintMotd": "no",
        "PidFile": "none",
        **_LIMITS,
    }
    passed = {
        name: value
        for name, value in sorted(environment.items())
        if name not in (*_OWN, *_OF_OPERATOR) and not name.startswith(_OWN_PREFIXES) and not set('"\\\n') & set(name + value)
    }
    if passed:
        lines["SetEnv"] = " ".join(f'"{name}={value}"' for name, value in passed.items())
    return "".join(f"{name} {value}\n" for name, value in lines.items())
