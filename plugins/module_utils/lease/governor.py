# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPU frequency governor, switched as a lease: every policy's own value comes back, whoever dies.

A policy is a set of CPUs that share one frequency. The interface is the same for acpi-cpufreq, intel_pstate and
amd-pstate (Documentation/admin-guide/pm/cpufreq.rst of Linux); where a driver in active mode also has an energy
preference, a switch to `performance` changes it too, and it is part of the lease.

Restoring is compare-and-swap per policy: what somebody else, or a reboot, has changed since stays as it is.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import errno
import glob
import os
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

CPUS = "/sys/devices/system/cpu"
GOVERNOR = "scaling_governor"
PREFERENCE = "energy_performance_preference"
# After the switch, until clocks are up.
SETTLE_S = 1.0


def policies(node: Node) -> list[dict[str, t.Any]]:
    """Every policy with a CPU online: [{"name", "path", "cpus", "driver", "governor", "available", "preference"}].

    A machine without cpufreq, as virtual machines are, has none.
    """
    paths = glob.glob(node.path(f"{CPUS}/cpufreq/policy[0-9]*"))
    if not paths:  # before Linux 4.3, a folder of the first CPU with links from the others
        paths = list({os.path.realpath(path) for path in glob.glob(node.path(f"{CPUS}/cpu[0-9]*/cpufreq"))})
    policy_list = []
    for path in paths:
        governor = _read(path, GOVERNOR)
        if governor is None:
            continue  # all its CPUs are offline
        policy_list.append({
            "name": _name(path),
            "path": path,
            "cpus": _read(path, "affected_cpus") or "",
            "driver": _read(path, "scaling_driver") or "",
            "governor": governor,
            "available": (_read(path, "scaling_available_governors") or "").split(),
            "preference": _read(path, PREFERENCE),
        })
    return sorted(policy_list, key=lambda policy: int("".join(c for c in policy["name"] if c.isdigit())))


class GovernorLease:
    """A governor for as long as a probe needs it.

    `state` is `switched`, `already` (nothing had to be changed) or `not_switched`, and then `reason_code` and `reason`
    say why; the probe goes on without, marked so by `summary()`.
    """

    def __init__(self, node: Node, governor: str = "performance", settle_s: float = SETTLE_S) -> None:
        if node.ledger is None:
            raise ValueError("a governor is only changed under a ledger")
        self.node = node
        self.ledger = node.ledger
        self.governor = governor
        self.settle_s = settle_s
        self.state = "not_switched"
        self.reason_code: str | None = None
        self.reason: str | None = None
        self.before: list[dict[str, t.Any]] = []
        self.given_back: list[str] = []
        self._entry: dict[str, t.Any] = {}

    def __enter__(self) -> GovernorLease:
        self.take()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.give_back()

    def take(self) -> None:
        """Record, switch, wait until it settled. Either every policy is switched or none."""
        self.before = policies(self.node)
        if not self.before:
            return self._refuse("no_cpufreq", "no CPU frequency control here, as on most virtual machines")
        changes = [policy for policy in self.before if policy["governor"] != self.governor]
        if not changes:
            self.state = "already"
            return None
        for policy in changes:
            if policy["available"] and self.governor not in policy["available"]:
                offered = " ".join(policy["available"])
                return self._refuse(
                    "no_governor", f"{policy['name']} has no governor {self.governor}; its driver offers: {offered}"
                )
        self._entry = {
            "boot_id": session.boot_id(),
            "governor": self.governor,
            "policies": [[policy["path"], policy["governor"], policy["preference"]] for policy in changes],
        }
        try:
            self.ledger.record("governor", governor=self.governor, policies=self._entry["policies"])
        except OSError as error:
            code = "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "state_dir"
            self._entry = {}
            return self._refuse(code, f"the old governors cannot be recorded: {os.strerror(error.errno or 0)}")
        for policy in changes:
            try:
                _write(policy["path"], GOVERNOR, self.governor)
            except OSError as error:
                if _read(policy["path"], GOVERNOR) is None:
                    continue  # went offline meanwhile
                self.give_back()
                codes = {errno.EROFS: "read_only", errno.EACCES: "no_permission", errno.EPERM: "no_permission"}
                return self._refuse(
                    codes.get(error.errno or 0, "no_governor"),
                    f"{policy['path']}/{GOVERNOR} does not take {self.governor}: {os.strerror(error.errno or 0)}",
                )
        self.state = "switched"
        time.sleep(self.settle_s)
        return None

    def give_back(self) -> list[str]:
        """Restore now; the guardian and the janitor, who do the same, will find nothing to do."""
        if self._entry:
            self.given_back = restore(self._entry)
            self._entry = {}
        return self.given_back

    def summary(self) -> dict[str, t.Any]:
        """For the context of a measurement."""
        counted: dict[str, int] = {}
        for policy in self.before:
            counted[policy["governor"]] = counted.get(policy["governor"], 0) + 1
        return {
            "wanted": self.governor,
            "state": self.state,
            "reason_code": self.reason_code,
            "reason": self.reason,
            "driver": self.before[0]["driver"] if self.before else None,
            "before": counted,
            "given_back": self.given_back,
        }

    def _refuse(self, code: str, reason: str) -> None:
        self.reason_code, self.reason = code, reason


def restore(entry: dict[str, t.Any]) -> list[str]:
    """Undo a ledger record of kind `governor`; what was done and what was left alone, in words. Safe to repeat."""
    if entry.get("boot_id") != session.boot_id():
        return ["governors are left alone: the machine was rebooted since they were switched"]
    restored = 0
    words = []
    for path, governor, preference in entry["policies"]:
        now = _read(path, GOVERNOR)
        name = _name(path)
        if now == governor:
            continue
        if now is None:
            words.append(f"{name} is not restored to {governor}: its CPUs are offline")
        elif now != entry["governor"]:
            run_governor = entry["governor"]
            words.append(
                f"{name} is left at {now}: it was changed from {run_governor}, which the run had set; before the run it was {governor}"
            )
        else:
            try:
                _write(path, GOVERNOR, governor)
                _restore_preference(path, preference, entry["governor"])
                restored += 1
            except OSError as error:
                target = f"{governor} with {preference}" if preference else governor
                words.append(f"{name} is NOT restored to {target}: {os.strerror(error.errno or 0)}")
    return [*said(restored), *words]


def said(restored: int) -> list[str]:
    return [f"restored the governor of {restored} {'policy' if restored == 1 else 'policies'}"] if restored else []


def pending(ledger: session.Ledger) -> dict[str, str]:
    """Return {policy: governor} that a restore would write now."""
    return {
        _name(path): governor
        for entry in ledger.entries()
        if entry["kind"] == "governor" and entry.get("boot_id") == session.boot_id()
        for path, governor, _preference in entry["policies"]
        if _read(path, GOVERNOR) == entry["governor"]
    }


def undo(entry: dict[str, t.Any]) -> str:
    """Undo an entry of the ledger; the guardian and the janitor call it."""
    return "; ".join(restore(entry)) or "governors were as before"


session.LEASES["governor"] = undo


def _restore_preference(path: str, preference: str | None, run_preference: str) -> None:
    """The energy preference follows the governor into `performance` and, with some drivers, not back."""
    now = _read(path, PREFERENCE)
    if preference is not None and now not in (None, preference) and now == run_preference:
        _write(path, PREFERENCE, preference)


def _name(path: str) -> str:
    """policyN, or cpuN before Linux 4.3."""
    name = os.path.basename(path)
    return name if name.startswith("policy") else os.path.basename(os.path.dirname(path))


def _read(path: str, name: str) -> str | None:
    try:
        with open(os.path.join(path, name), encoding="ascii", errors="replace") as source:
            return source.read().strip()
    except OSError:
        return None


def _write(path: str, name: str, value: str) -> None:
    # As the shell's > does it: a plain file would keep the end of a longer value, sysfs does not care.
    handle = os.open(os.path.join(path, name), os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(handle, value.encode("ascii"))
    finally:
        os.close(handle)
