# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared parts of the rigs: root, packages, recorded processes, links, keys, the wait for sshd.

A rig keeps all it makes under STATE/<rig> and ends only processes it recorded there, checked by boot and start time. Links and namespaces
are the machine's: the alias of a rig's bridge says whose they are, and who finds another's leaves them alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import typing as t

STATE = pathlib.Path("/var/tmp/gpufleet-acceptance-rig")
CACHE = pathlib.Path(os.environ.get("GPUFLEET_RIG_CACHE", os.path.expanduser("~/.cache/gpufleet-acceptance/rigs")))


class RigError(Exception):
    """The rig could not be made, in words for the person who asked for it."""


class NotOurs(RigError):
    """A rig of the same name stands on this machine, and its files are elsewhere."""


def run(*argv: t.Any, **options: t.Any) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run([str(a) for a in argv], check=False, capture_output=True, text=True, **options)
    if done.returncode:
        raise RigError(f"{' '.join(str(a) for a in argv)}: exit {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def need_root(rig: str) -> None:
    if os.geteuid():
        raise RigError(f"the {rig} rig makes namespaces, links and mounts: run it as root")


def need_packages(packages: dict[str, str]) -> None:
    """`packages`: file that must be there (or command on the PATH) -> Debian package that brings it."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = sorted(
        {
            package
            for what, package in packages.items()
            if not (os.path.exists(what) if what.startswith("/") else shutil.which(what, path=path))
        }
    )
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise RigError(f"missing, and no apt-get to install them with: {', '.join(missing)}")
    print(f"installing {', '.join(missing)}", file=sys.stderr)
    # Somebody else may be installing something: another rig, or the system its updates.
    apt = ("apt-get", "-q", "-o", "DPkg::Lock::Timeout=300")
    install = (*apt, "install", "-y", "--no-install-recommends", *missing)
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    try:
        run(*install, env=environment)
    except RigError:  # package lists absent or out of date
        run(*apt, "update")
        run(*install, env=environment)


@contextlib.contextmanager
def locked(path: pathlib.Path, holder: str = "") -> t.Iterator[None]:
    """Hold the lock of a rig, so that one process at a time changes it. `holder` says in words for whom a person waits, if anybody."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="ascii") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if holder:
                print(f"waiting for {holder}", file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


class Instance(t.Protocol):
    """A rig of which several stand side by side."""

    state: pathlib.Path

    def down(self) -> None: ...


Rig = t.TypeVar("Rig", bound=Instance)
_reserved: dict[pathlib.Path, t.IO[str]] = {}


def reserve(rigs: t.Iterable[Rig]) -> Rig:
    """The first that nobody else uses, ours until it is released or this process ends. For tests, which may run side by side."""
    for rig in rigs:
        rig.state.mkdir(parents=True, exist_ok=True)
        handle = open(rig.state / "reserved", "a", encoding="ascii")  # noqa: SIM115 - held while we live
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            continue
        try:
            rig.down()  # what a killed owner left
        except NotOurs:
            handle.close()
            continue
        _reserved[rig.state] = handle
        return rig
    raise RigError("all instances of this rig are in use")


def release(rig: Instance) -> None:
    """Let others reserve an instance that was taken down."""
    _reserved.pop(rig.state).close()


# Processes ---------------------------------------------------------------------------------------------------------


def start_time(pid: int) -> str | None:
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rsplit(")", 1)[1].split()
    return None if fields[0] == "Z" else fields[19]


def _boot() -> str:
    return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def record(path: pathlib.Path, pid: int) -> None:
    path.write_text(f"{pid} {start_time(pid)} {_boot()}\n")


def recorded(path: pathlib.Path) -> int | None:
    """The recorded process, if it is still the same one."""
    try:
        pid, started, boot = path.read_text().split()
    except (OSError, ValueError):
        return None
    return int(pid) if boot == _boot() and start_time(int(pid)) == started else None


def end(paths: t.Iterable[pathlib.Path], number: int = signal.SIGKILL) -> None:
    """End recorded processes, wait until they are gone, forget them."""
    waiting = []
    for path in paths:
        pid = recorded(path)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            waiting.append((path, pid))
        else:
            path.unlink(missing_ok=True)
    until = time.monotonic() + 20
    for path, pid in waiting:
        while recorded(path) is not None:
            with contextlib.suppress(ChildProcessError):  # ours, if this very process started it
                os.waitpid(pid, os.WNOHANG)
            if time.monotonic() > until:
                raise RigError(f"process {pid} ({path}) does not end")
            time.sleep(0.02)
        path.unlink(missing_ok=True)


# Links -------------------------------------------------------------------------------------------------------------


def ip_batch(lines: t.Sequence[str], netns: str | None = None) -> None:
    if lines:
        inside = ["-n", netns] if netns else []
        run("ip", *inside, "-batch", "-", input="\n".join(lines) + "\n")


def links() -> set[str]:
    return {link["ifname"] for link in json.loads(run("ip", "-j", "link"))}


def signed(bridge: str, state: pathlib.Path) -> str:
    """The line of a batch that makes a bridge ours."""
    return f"link set {bridge} alias {state}"


def refuse_what_is_not_ours(bridge: str, state: pathlib.Path) -> None:
    """NotOurs where the bridge is that of a rig whose files are elsewhere."""
    for link in json.loads(run("ip", "-j", "link")):
        if link["ifname"] == bridge and link.get("ifalias") not in (None, str(state)):
            raise NotOurs(f"{bridge} is the bridge of the rig in {link['ifalias']}: end it from there, or take another instance")


# SSH ---------------------------------------------------------------------------------------------------------------


def make_key(path: pathlib.Path, comment: str) -> str:
    """Make an ed25519 key unless it is there; its public half."""
    if not path.exists():
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path)
    return path.with_name(path.name + ".pub").read_text().strip()


def mac(address: str) -> str:
    """The Ethernet address for an IPv4 address: the same each time a host is made, as neighbour tables go on sending to the one
    that they know for eight seconds."""
    return "02:67:" + ":".join(f"{int(byte):02x}" for byte in address.split("."))


def answers_ssh(address: str, timeout: float = 1.0) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=timeout) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def write_inventory(
    path: pathlib.Path, group: str, hosts: dict[str, dict[str, t.Any]], key: pathlib.Path, known_hosts: pathlib.Path
) -> None:
    """A YAML inventory of one group, reached with this key and these known hosts only."""
    variables = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(key),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={known_hosts} -o StrictHostKeyChecking=yes"
        " -o IdentitiesOnly=yes",
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    # Scalars of JSON are scalars of YAML.
    lines = ["---", f"# Written by the {group} rig; not to be edited.", "all:", "  children:", f"    {group}:"]
    lines.append("      hosts:")
    for name, values in hosts.items():
        lines.append(f"        {name}:")
        lines += [f"          {variable}: {json.dumps(value)}" for variable, value in values.items()]
    lines.append("      vars:")
    lines += [f"        {name}: {json.dumps(value)}" for name, value in variables.items()]
    path.write_text("\n".join(lines) + "\n")
    config = "".join(f"Host {name}\n  HostName {values['ansible_host']}\n" for name, values in hosts.items())
    path.with_name("ssh_config").write_text(
        f"{config}Host *\n  User root\n  IdentityFile {key}\n  IdentitiesOnly yes\n  BatchMode yes\n"
        f"  UserKnownHostsFile {known_hosts}\n  StrictHostKeyChecking yes\n"
    )
