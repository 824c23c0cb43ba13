# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine as a probe sees it: run a tool, read a file, know how much time is left.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import container, live_output, process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.session import BOOT_ID, LEASES, Ledger

# How a tool that lives in a container is started, by engine: the words before and behind those for devices. Collective libraries
# share memory between their ranks: more than the 64 MiB that a container has of its own. Workloads come on standard input. Engines with
# a daemon outlive the client that started them.
CONTAINERS: dict[str, tuple[list[str], list[str]]] = {
    "docker": (["docker", "run", "--rm", "--interactive"], ["--network", "host", "--ipc", "host"]),
    "podman": (["podman", "run", "--rm", "--interactive"], ["--network", "host", "--ipc", "host"]),
    "enroot": (["enroot", "start"], []),
    "apptainer": (["apptainer", "exec"], []),
}
WITH_DAEMON = ("docker", "podman")
NOT_STARTED = 127


class Node:
    """The node under test, as a probe uses it. `root`: path of the host's file system (elsewhere in a container). `exec`: place of the
    tools under test, {"kind": "host"|"docker"|"podman"|"enroot"|"apptainer", "image": ..., "args": [...]}."""

    def __init__(
        self,
        deadline_s: float,
        ledger: Ledger | None = None,
        root: str = "/",
        exec: dict[str, t.Any] | None = None,
        tools: t.Mapping[str, str] | None = None,
    ) -> None:
        self.end = time.monotonic() + deadline_s
        self.ledger = ledger
        self.root = root
        self.exec = exec or {"kind": "host"}
        # {option: path} of the tool of each kind of accelerators (accelerators/registry.py); one that is missing has its usual name.
        self.tools = dict(tools or {})
        # {engine: words} by which a container gets the accelerators.
        self.devices: t.Mapping[str, t.Sequence[str]] = {}
        # UUIDs of the accelerators that their tool showed when it was last asked; None before.
        self.gpus: list[str] | None = None
        # Checkpoints that a probe between nodes left before (checkpoints.py); None if no resume would read those that it leaves now.
        self.checkpoints: list[dict[str, t.Any]] | None = None
        # Shows what the tools print while they run; None if nobody can look.
        self.live: live_output.LiveOutput | None = None
        self._machine_id: str | None = None
        self._boot: dict[str, t.Any] | None = None

    def identity(self) -> dict[str, t.Any]:
        """Return the identity of this machine, as far as it is known: {"machine_id", "gpu_uuids", "boot_id", "booted"}. A container
        that does not see its node's files does not know the first; the kernel is its node's."""
        if self._machine_id is None:
            inside = self.root == "/" and container.is_inside()
            machine_id = "" if inside else (self.read("/etc/machine-id") or "")[:64]
            self._machine_id = "" if machine_id == "uninitialized" else machine_id  # systemd's word on the first boot of an image
        fields = {"machine_id": self._machine_id, "gpu_uuids": None if self.gpus is None else sorted(self.gpus), **self.boot()}
        return {name: value for name, value in fields.items() if value}

    def boot(self) -> dict[str, t.Any]:
        """Return since when the kernel runs: {"boot_id": its random id of this boot, "booted": seconds since 1970 by its own clock}, both
        from the same /proc; None for what cannot be read."""
        if self._boot is None:
            root = self.root if os.path.exists(self.path(BOOT_ID)) else "/"
            boot_id, stat = ((_text(os.path.join(root, path.lstrip("/"))) or "") for path in (BOOT_ID, "/proc/stat"))
            booted = re.search(r"(?m)^btime (\d+)$", stat)
            self._boot = {"boot_id": boot_id.strip()[:64] or None, "booted": int(booted.group(1)) if booted else None}
        return self._boot

    def remaining(self) -> float:
        """Seconds until this probe's own deadline."""
        return max(0.0, self.end - time.monotonic())

    def path(self, path: str) -> str:
        """A path of the host, wherever its file system is mounted."""
        return path if self.root == "/" else os.path.join(self.root, path.lstrip("/"))

    def read(self, path: str) -> str | None:
        """Return a small file of the host as text without surrounding blanks; None if it cannot be read."""
        try:
            with open(self.path(path), encoding="utf-8", errors="replace") as source:
                return source.read(1 << 20).strip()
        except OSError:
            return None

    def product(self) -> str:
        """Return maker and product of the machine as its firmware has them; empty if they cannot be read."""
        return " ".join(filter(None, (self.read(f"/sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name"))))

    def which(self, name: str) -> str | None:
        return shutil.which(name)

    @property
    def contained(self) -> bool:
        """True if the tools under test are in a container."""
        return bool(self.exec.get("kind", "host") != "host")

    def run(
        self,
        argv: list[str],
        timeout: float = 30.0,
        env: dict[str, str] | None = None,
        merge: bool = False,
        stdin: str | None = None,
        contained: bool = False,
    ) -> process.CommandResult:
        """Run a tool to its end, to `timeout` seconds or to the probe's deadline, whichever is first.

        `contained`: where acceptance_exec says so, the tool is looked for in the container and not on the host.
        """
        timeout = min(timeout, self.remaining())
        if not (contained and self.contained):
            return self._run(argv, argv, timeout, env, merge, stdin)
        with tempfile.TemporaryDirectory(prefix="gpufleet-") as scratch:
            cidfile = os.path.join(scratch, "cid")
            kind = self.exec["kind"]
            if self.ledger and kind in WITH_DAEMON:
                self.ledger.record("container", engine=kind, cidfile=cidfile)
            outside = {f"APPTAINERENV_{name}": value for name, value in (env or {}).items()} if kind == "apptainer" else None
            words = self.container_argv(argv, env or {}, cidfile)
            result = self._run(argv, words, timeout, outside, merge, stdin)
            if kind in WITH_DAEMON and not result.ok:
                end_container({"engine": kind, "cidfile": cidfile})
            if result.missing:  # the engine, not the tool in the container
                result.rc, result.err = NOT_STARTED, f"acceptance_exec: {kind}: {result.missing} on the node"
                result.out, result.missing = result.err if merge else "", None
            return result

    def _run(
        self, shown: list[str], argv: list[str], timeout: float, env: dict[str, str] | None, merge: bool, stdin: str | None
    ) -> process.CommandResult:
        """Run `argv`, and show what it prints as the output of `shown`."""
        tool = self.live.begin(shown) if self.live else None
        try:
            on_output = tool.add if tool else None
            return process.run(argv, timeout, env=env, merge=merge, stdin=stdin, on_start=self.record, on_output=on_output)
        finally:
            if tool:
                tool.end()

    def container_argv(self, argv: list[str], env: dict[str, str], cidfile: str) -> list[str]:
        """Return the command line that runs `argv` in a container. Apptainer gets variables from its own environment: a comma in its --env
        begins the next variable."""
        kind = self.exec["kind"]
        start, options = CONTAINERS[kind]
        words = [*start, *self.devices.get(kind, ()), *options]
        if kind in WITH_DAEMON and cidfile:
            words += ["--cidfile", cidfile]
        if kind != "apptainer":
            words += [word for name, value in sorted(env.items()) for word in ("--env", f"{name}={value}")]
        return [*words, *self.exec.get("args", []), self.exec["image"], *argv]

    def record(self, pid: int) -> None:
        """Put a child that was not started by run() into the ledger."""
        if self.ledger:
            self.ledger.process(pid)

    def python(self, interpreter: str = "") -> str:
        """The interpreter that workloads run under: the named one, else the one we run under, which no container has."""
        return interpreter or (not self.contained and sys.executable) or "python3"


def _text(path: str) -> str | None:
    """Return the text of a file; None if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as source:
            return source.read()
    except OSError:
        return None


def end_container(entry: dict[str, t.Any]) -> str:
    """Remove the container whose id the engine itself recorded, if it ever started. Return what was done."""
    try:
        with open(entry["cidfile"], encoding="ascii") as source:
            cid = source.read().strip()
    except OSError:
        return "container never started"
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run([entry["engine"], "rm", "--force", cid], capture_output=True, timeout=30, check=False)
    return f"removed container {cid[:12]}"


LEASES["container"] = end_container
