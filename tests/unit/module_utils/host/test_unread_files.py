# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No file of a healthy machine that is gone, empty or unreadable leaves the checks as if it read well: each is named as not read, or stands
in NOT_ASKED with the reason why nothing is lost."""

from __future__ import annotations

import os
import pathlib
import re
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import host_health
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import kernel_log
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.machine_tree import MachineTree

CHECKS = ("memory", "pcie", "kernel", "storage")
FORMS: dict[str, bytes | None] = {
    "missing": None, "empty": b"", "N/A": b"N/A\n", "negative": b"-1\n", "bytes": b"\xff\xfe\x00zz\n",
}  # fmt: skip
ANY = tuple(FORMS)
# {pattern of a path: (forms in which nothing is said, why)}.
NOT_ASKED: dict[str, tuple[tuple[str, ...], str]] = {
    r"dev/kmsg": (("N/A", "negative", "bytes"), "a line that is no record of the kernel; without a line the log was not read"),
    r"etc/fstab": (ANY, "a machine may have none"),
    r"proc/(cpuinfo|stat|uptime)": (ANY, "they make limits stricter, or say nothing of a part"),
    r"proc/interrupts": (ANY, "a second witness of machine checks, beside the log"),
    r"proc/mdstat": (ANY, "sysfs is the second witness"),
    r"sys/block/md\d+/md/.*": (ANY, "mdstat is the first witness"),
    r"proc/spl/kstat/zfs/.*/state": (("missing",), "before OpenZFS 0.8 there is none; then it is named, where the pool has other files"),
    r"proc/spl/kstat/zfs/.*/io": (ANY, "only whether it is there"),
    r"sys/class/dmi/.*|sys/bus/pci/slots/.*": (ANY, "names for people"),
    r"sys/.*/nvme/?.*/(model|serial|address|transport)": (ANY, "names for people; a disk without one of them is local"),
    r"sys/.*/(class|node_guid|distance|dimm_label|dimm_location|physical_package_id|control)": (ANY, "the kernel has them in memory"),
    r"sys/devices/system/node/.*": (ANY, "the table of modules is the first witness"),
    r"sys/.*/package_throttle_count": (("missing", "negative"), "not all processors have one"),
    r"sys/fs/(ext4|btrfs)/.*": (("missing",), "older kernels have none"),
    # Those of an accelerator are told under load; those of ports above a device are judged with it.
    r"sys/devices/pci.*/0000:(15|16|17):.*_link_speed": (ANY, "that of an accelerator is told under load"),
    r"sys/devices/pci[^/]*/0000:(30|40):00.0/[a-z_]*_link_speed": (ANY, "of a root port, whose device is asked"),
}  # fmt: skip


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> MachineTree:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}/root/bin:/usr/bin:/bin")
    made = MachineTree(tmp_path / "root")
    made.write("proc/stat", "btime 1790000000\n")
    made.write("proc/mdstat", "md0 : active raid1 sda1[0] sdb1[1]\n      1000 blocks super 1.2 [2/2] [UU]\n")
    for name, text in (("array_state", "clean"), ("degraded", "0"), ("metadata_version", "1.2")):
        made.write(f"sys/block/md0/md/{name}", f"{text}\n")
    made.write("proc/interrupts", " MCE:          0          0   Machine check exceptions\n")
    for cpu in (0, 1):
        made.write(f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle/package_throttle_count", "0\n")
        made.write(f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", f"{cpu}\n")
    made.write("proc/spl/kstat/zfs/tank/state", "ONLINE\n")
    made.write("proc/spl/kstat/zfs/tank/io", "1\n")
    made.write("sys/fs/ext4/sda2/errors_count", "0\n")
    made.write("sys/fs/btrfs/u1/devinfo/1/missing", "0\n")
    made.write("sys/fs/btrfs/u1/devinfo/1/error_stats", "write_errs 0\nread_errs 0\n")
    return made


def said(machine: MachineTree) -> list[t.Any]:
    """What all checks say of the machine."""
    params = {"checks": [{"check": check, "variant": ""} for check in CHECKS], "pcie_corrected": 100.0, "ras_days": 30.0}
    found = host_health.probe(params, Node(60, root=str(machine.root)))
    return [(one["outcome"], one["context"].get("findings"), sorted(one["context"]["not_looked_for"])) for one in found]


def test_each_file_that_cannot_be_read_is_named_as_not_read(machine: MachineTree) -> None:
    healthy = said(machine)
    assert all(outcome == "measured" and not findings for outcome, findings, _unseen in healthy)
    unsaid = []
    for path in sorted(path for path in machine.root.rglob("*") if path.is_file() and not path.is_symlink()):
        name, content = str(path.relative_to(machine.root)), path.read_bytes()
        excused = {form for pattern, (forms, _why) in NOT_ASKED.items() if re.fullmatch(pattern, name) for form in forms}
        for form, text in FORMS.items():
            if form in excused:
                continue
            if text is None:
                path.unlink()
            else:
                path.write_bytes(text)
            if said(machine) == healthy:
                unsaid.append((name, form))
            path.write_bytes(content)
    assert unsaid == []


@pytest.mark.parametrize("place", ["/dev/null", "/dev/zero"])
def test_another_device_in_place_of_the_log_is_no_log(place: str) -> None:
    assert kernel_log.at_start(place) is None and kernel_log.at_end(place) is None
    assert kernel_log.since_boot(place, lambda text: (text, text)) is None


def test_a_log_without_a_line_was_not_read(machine: MachineTree) -> None:
    machine.write("dev/kmsg", "")
    params = {"checks": [{"check": "kernel", "variant": ""}], "pcie_corrected": 100.0, "ras_days": 30.0}
    (found,) = host_health.probe(params, Node(60, root=str(machine.root)))
    assert found["outcome"] == "error" and "kernel_log" in found["context"]["not_looked_for"]


@pytest.mark.parametrize("state", ["", "N/A", "strange"])
def test_an_array_that_only_sysfs_lists_and_that_tells_no_state_is_unknown(machine: MachineTree, state: str) -> None:
    machine.write("proc/mdstat", "Personalities : [raid1]\n")
    machine.write("sys/block/md0/md/array_state", state)
    params = {"checks": [{"check": "storage", "variant": ""}], "pcie_corrected": 100.0, "ras_days": 30.0}
    (found,) = host_health.probe(params, Node(60, root=str(machine.root)))
    assert (found["outcome"], found["reason_code"]) == ("error", "no_answer") and "md0 does not say its state" in found["reason"]
