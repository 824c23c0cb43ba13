# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disks, controllers, arrays and file systems in every state and wording, on the tree of a machine."""

from __future__ import annotations

import errno
import os
import pathlib
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import arrays, file_systems
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import host_health
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.machine_tree import DISK, MachineTree

Found = t.Dict[str, t.Any]


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> MachineTree:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}/root/bin:/usr/bin:/bin")
    machine = MachineTree(tmp_path / "root")
    machine.disk((pathlib.Path(__file__).parents[3] / "fixtures/host-health/smartctl-nvme-good.json").read_text())
    return machine


def ask(machine: MachineTree) -> Found:
    (found,) = host_health.probe({"checks": [{"check": "storage", "variant": ""}]}, Node(60, root=str(machine.root)))
    return found


def codes(found: Found) -> list[str]:
    return [one["code"] for one in found["context"].get("findings", [])]


def verdict(found: Found) -> tuple[str, str | None]:
    return found["outcome"], found["reason_code"]


def test_a_healthy_machine_has_nothing(machine: MachineTree) -> None:
    found = ask(machine)
    assert verdict(found) == ("measured", None) and not codes(found) and not found["context"]["not_looked_for"]


def test_each_disk_is_listed_as_a_technician_finds_it(machine: MachineTree) -> None:
    for name, content in (("model", "Example 7T"), ("serial", "S6CK1"), ("firmware_rev", "A1"), ("address", "0000:81:00.0")):
        machine.write(f"sys/class/nvme/nvme0/{name}", f"{content}\n")
    (listed,) = ask(machine)["context"]["disks"]
    assert listed == {"disk": "nvme0", "model": "Example 7T", "serial": "S6CK1", "firmware": "A1", "pci": "0000:81:00.0"}
    (again,) = host_health.probe({"checks": [{"check": "storage", "variant": ""}], "look": "after"}, Node(60, root=str(machine.root)))
    assert "disks" not in again["context"]


# Controllers and disks ------------------------------------------------------------------------------------------------------

ON_BUS = "0000:50:00.0"


@pytest.mark.parametrize("code", ["0x010400", "0x010601", "0x010700", "0x010802"])
@pytest.mark.parametrize(
    ("driver", "outcome"), [(None, "error"), ("vfio-pci", "measured"), ("uio_pci_generic", "measured"), ("megaraid_sas", "measured")]
)
def test_a_controller_that_no_driver_has_taken(machine: MachineTree, code: str, driver: str | None, outcome: str) -> None:
    machine.pci([ON_BUS], code, driver, vendor="0x144d", device="0xa80a")
    found = ask(machine)
    assert found["outcome"] == outcome
    if driver is None:
        assert found["reason_code"] == "no_answer" and ON_BUS in found["reason"]
    assert ("disks" in found["context"]["not_looked_for"]) == (driver != "megaraid_sas")


@pytest.mark.parametrize(
    ("code", "vendor", "device"),
    [
        ("0x010700", 0x1000, 0x00B2), ("0x010700", 0x1000, 0x02B2), ("0x010400", 0x1000, 0x02B0), ("0x010802", 0x15B3, 0x6001),
        ("0x020700", 1, 1),
    ],
)  # fmt: skip
def test_functions_of_the_bus_that_have_no_disks(machine: MachineTree, code: str, vendor: int, device: int) -> None:
    machine.pci([ON_BUS], code, None, vendor=hex(vendor), device=hex(device))
    assert verdict(ask(machine)) == ("measured", None)


@pytest.mark.parametrize(("code", "outcome"), [("0x010601", "measured"), ("0x010700", "measured"), ("0x010802", "error")])
def test_a_controller_of_a_virtual_machine_that_no_driver_has_taken(machine: MachineTree, code: str, outcome: str) -> None:
    """Emulators add a SATA controller that kernels for clouds have no driver for."""
    machine.write("proc/cpuinfo", "flags : fpu hypervisor\n")
    machine.pci([ON_BUS], code, None, vendor="0x8086", device="0x2922")
    found = ask(machine)
    assert found["outcome"] == outcome and "disks" in found["context"]["not_looked_for"]


def test_disks_of_a_fabric_are_those_of_another_machine(machine: MachineTree) -> None:
    for name, content in (("transport", "tcp"), ("state", "connecting")):
        machine.write(f"sys/class/nvme/nvme9/{name}", f"{content}\n")
    found = ask(machine)
    assert verdict(found) == ("measured", None) and "SMART of 1 of 1 disks" in found["context"]["looked_for"]


def test_a_virtual_function_without_a_driver(machine: MachineTree) -> None:
    machine.pci([ON_BUS], "0x010802", None, vendor="0x144d", device="0xa80a", **{"physfn/class": "0x010802"})
    assert verdict(ask(machine)) == ("measured", None)


def test_a_driver_that_took_a_disk_and_shows_none(machine: MachineTree) -> None:
    machine.pci([ON_BUS], "0x010802", "nvme", vendor="0x144d", device="0xa80a")
    assert verdict(ask(machine)) == ("error", "no_answer")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("live", ("measured", None)), ("dead", ("error", "disk")), ("deleting", ("error", "disk")),
        ("deleting (no IO)", ("error", "disk")), ("resetting", ("error", "no_answer")), ("connecting", ("error", "no_answer")),
        ("new", ("error", "no_answer")), ("", ("error", "no_answer")),
    ],
)  # fmt: skip
def test_the_state_of_an_nvme_disk(machine: MachineTree, state: str, expected: tuple[str, str | None]) -> None:
    machine.write("sys/class/nvme/nvme0/state", f"{state}\n")
    assert verdict(ask(machine)) == expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("running", ("measured", None)), ("offline", ("error", "disk")), ("transport-offline", ("error", "disk")),
        ("blocked", ("error", "no_answer")), ("quiesce", ("error", "no_answer")),
    ],
)  # fmt: skip
def test_each_state_of_a_scsi_disk_has_its_outcome(machine: MachineTree, state: str, expected: tuple[str, str | None]) -> None:
    machine.write("sys/block/sda/device/state", f"{state}\n")
    machine.write("sys/block/sda/size", "2048\n")
    machine.write("sys/block/sda/removable", "0\n")
    assert verdict(ask(machine)) == expected
    machine.write("sys/block/sda/removable", "1\n")
    assert verdict(ask(machine)) == ("measured", None)


@pytest.mark.parametrize(("name", "size"), [("nvme0n1", "0"), ("nvme0c0n1", "0"), (None, "")])
def test_a_disk_that_shows_no_space(machine: MachineTree, name: str | None, size: str) -> None:
    machine.path("sys/class/nvme/nvme0/nvme0n1/size").unlink()
    machine.path("sys/class/nvme/nvme0/nvme0n1").rmdir()
    if name:
        machine.write(f"sys/class/nvme/nvme0/{name}/size", f"{size}\n")
    assert verdict(ask(machine)) == ("error", "no_answer")
    machine.write("sys/class/nvme/nvme0/nvme3c0n1/size", "2048\n")  # a path of a disk that has another number as a whole
    assert verdict(ask(machine)) == ("measured", None)


def test_a_scsi_disk_without_space(machine: MachineTree) -> None:
    for name, content in (("device/state", "running"), ("size", "0"), ("removable", "0")):
        machine.write(f"sys/block/sda/{name}", f"{content}\n")
    assert verdict(ask(machine)) == ("error", "no_answer")


def test_removable_media_and_optical_drives_are_no_disks_of_the_machine(machine: MachineTree) -> None:
    for name in ("sda", "sr0", "vda", "loop0", "zram0"):
        machine.write(f"sys/block/{name}/size", "0\n")
        machine.write(f"sys/block/{name}/removable", "1\n" if name in ("sda", "sr0") else "0\n")
    (machine.root / "sys/devices/pci0000:00/usb1/sdb/device").mkdir(parents=True)
    (machine.root / "sys/block/sdb").symlink_to(machine.root / "sys/devices/pci0000:00/usb1/sdb")
    found = ask(machine)
    assert verdict(found) == ("measured", None) and "SMART of 1 of 1 disks" in found["context"]["looked_for"]


def test_a_disk_that_does_not_answer_its_tool(machine: MachineTree) -> None:
    machine.tool("smartctl", """echo '{"smartctl": {"messages": [{"string": "open failed: Input/output error"}]}}'; exit 2""")
    found = ask(machine)
    assert verdict(found) == ("error", "no_answer") and "Input/output error" in found["reason"]
    machine.tool("smartctl", """echo '{"smartctl": {"messages": [{"string": "Permission denied"}]}}'; exit 2""")
    found = ask(machine)
    assert verdict(found) == ("measured", None) and "Permission denied" in found["context"]["not_looked_for"]["smart"]
    assert not any("SMART" in words for words in found["context"]["looked_for"])


def test_an_old_smartctl_beside_nvme_cli(machine: MachineTree) -> None:
    machine.tool("smartctl", "echo '=======> INVALID ARGUMENT TO -j'; exit 1")
    machine.tool("nvme", """echo '{"critical_warning": {"value": 4}, "media_errors": "0", "percent_used": 3}'""")
    found = ask(machine)
    assert verdict(found) == ("error", "disk") and "SMART of 1 of 1 disks" in found["context"]["looked_for"]


# Arrays ---------------------------------------------------------------------------------------------------------------------

HEALTHY_ARRAYS = [
    "md0 : active raid1 sdb1[1] sda1[0]\n      976630464 blocks super 1.2 [2/2] [UU]\n      bitmap: 0/8 pages [0KB], 65536KB chunk\n",
    "md0 : active raid0 nvme1n1[1] nvme0n1[0]\n      7501212672 blocks super 1.2 512k chunks\n",
    "md0 : active raid1 sdb1[1] sda1[0]\n      976 blocks [2/2] [UU]\n      [=>...]  resync = 12.6% (1/8) finish=9.1min speed=99K/sec\n",
    "md0 : active raid1 sdb1[1] sda1[0]\n      976 blocks [2/2] [UU]\n      [=>...]  check = 12.6% (1/8) finish=9.1min speed=99K/sec\n",
    "md127 : active (auto-read-only) raid1 sdb1[1] sda1[0]\n      976 blocks [2/2] [UU]\n      \tresync=PENDING\n",
    "md0 : active raid5 sdd1[3] sdc1[2] sdb1[1](S) sda1[0](W)\n      976 blocks level 5, 512k chunk, algorithm 2 [3/3] [UUU]\n",
    "md127 : inactive sdb[1](S) sda[0](S)\n      5928 blocks super external:imsm\n       \n",
    "md126 : active raid1 sda[1] sdb[0]\n      976 blocks super external:/md127/0 [2/2] [UU]\n",
    "",
]  # fmt: skip
BROKEN_ARRAYS = [
    "md0 : active raid1 sda1[0]\n      976630464 blocks super 1.2 [2/1] [U_]\n",
    "md0 : active raid1 sdb1[1](F) sda1[0]\n      976630464 blocks super 1.2 [2/1] [U_]\n",
    "md0 : active raid1 sdc1[2] sdb1[1](F) sda1[0]\n      976630464 blocks super 1.2 [2/2] [UU]\n",
    "md0 : active raid1 sdc1[2] sda1[0]\n      976 blocks [2/1] [U_]\n      [>....]  recovery =  0.5% (5/9) finish=99.1min speed=8K/sec\n",
    "md0 : active raid1 sdc1[2] sda1[0]\n      976 blocks [2/1] [U_]\n      \tresync=DELAYED\n",
    "md0 : inactive sdc1[0](S)\n      976630464 blocks super 1.2\n       \n",
    "md0 : inactive raid1 sda1[0]\n      976630464 blocks super 1.2\n",
    "md_data : active (auto-read-only) raid6 sdd1[3] sda1[0]\n      976 blocks level 6, 512k chunk, algorithm 2 [4/2] [U__U]\n",
    "md0 : broken raid0 nvme1n1[1] nvme0n1[0]\n      7501212672 blocks super 1.2 512k chunks\n",
    "md126 : active raid1 sda[1]\n      976 blocks super external:/md127/0 [2/1] [_U]\n",
    "md126 : inactive sda[1]\n      976 blocks super external:-md127/0\n",
]  # fmt: skip


@pytest.mark.parametrize(("text", "is_broken"), [*((text, False) for text in HEALTHY_ARRAYS), *((text, True) for text in BROKEN_ARRAYS)])
def test_an_array_that_is_broken_or_degraded_is_a_defect(machine: MachineTree, text: str, is_broken: bool) -> None:
    machine.write("proc/mdstat", f"Personalities : [raid1] [raid6]\n{text}\nunused devices: <none>\n")
    found = ask(machine)
    assert (verdict(found), codes(found)) == ((("error", "disk"), ["disk"]) if is_broken else (("measured", None), []))
    assert len(arrays.mdstat(text)) == bool(text)


def test_one_broken_array_among_healthy_ones(machine: MachineTree) -> None:
    for broken in BROKEN_ARRAYS:
        healthy = HEALTHY_ARRAYS[1].replace("md0", "md9")
        machine.write("proc/mdstat", f"Personalities : [raid1]\n{healthy}{broken}unused devices: <none>\n")
        assert codes(ask(machine)) == ["disk"], broken


@pytest.mark.parametrize(
    ("files", "is_broken"),
    [
        ({"degraded": "1"}, True), ({"degraded": "0", "array_state": "clean"}, False), ({"array_state": "inactive"}, True),
        ({"array_state": "inactive", "metadata_version": "external:imsm"}, False), ({"array_state": "broken"}, True),
        ({"array_state": "clear"}, False), ({"array_state": "read-auto"}, False),
    ],
)  # fmt: skip
def test_states_of_arrays_by_sysfs(machine: MachineTree, files: dict[str, str], is_broken: bool) -> None:
    for name, content in files.items():
        machine.write(f"sys/block/md0/md/{name}", f"{content}\n")
    assert codes(ask(machine)) == (["disk"] if is_broken else [])


@pytest.mark.parametrize("state", ["ONLINE", "DEGRADED", "FAULTED", "SUSPENDED", "UNAVAIL"])
def test_a_zfs_pool_that_is_not_online_is_a_defect(machine: MachineTree, state: str) -> None:
    machine.write("proc/spl/kstat/zfs/tank/state", f"{state}\n")
    assert codes(ask(machine)) == ([] if state == "ONLINE" else ["disk"])


# File systems ---------------------------------------------------------------------------------------------------------------

ROOT_MOUNT = "/dev/sda2 / ext4 rw,relatime 0 0\n"


@pytest.mark.parametrize("device", ["/dev/sdb1", "UUID=6a7b", "LABEL=data", "PARTUUID=1-2", "/dev/mapper/vg-data", "/dev/disk/by-id/x"])
@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("defaults", "file_system"), ("rw,noatime", "file_system"), ("defaults,nofail", "not_mounted"), ("noauto", None),
        ("defaults,noauto,x-systemd.automount", None), ("nofail,x-systemd.device-timeout=5", "not_mounted"),
        ("defaults,nofail,comment=cloudconfig", None), ("defaults,_netdev", "not_mounted"),
    ],
)  # fmt: skip
def test_an_entry_that_is_not_mounted(machine: MachineTree, device: str, options: str, code: str | None) -> None:
    machine.write("etc/fstab", f"# comment\nUUID=1 / ext4 defaults 0 1\n{device} /data xfs {options} 0 2\n")
    found = ask(machine)
    assert codes(found) == ([code] if code else [])
    for place in ("/data", "/data/"):
        machine.write("proc/mounts", ROOT_MOUNT + "/dev/sdb1 /data xfs rw 0 0\n")
        machine.write("etc/fstab", f"UUID=1 / ext4 defaults 0 1\n{device} {place} xfs {options} 0 2\n")
        assert codes(ask(machine)) == []


@pytest.mark.parametrize(
    "line",
    [
        "UUID=2 none swap sw 0 0", "UUID=2 swap swap defaults 0 0", "/dev/sr0 /media/cdrom0 udf,iso9660 user,noauto 0 0",
        "/dev/sr0 /mnt/cd iso9660 ro 0 0", "proc /proc proc defaults 0 0", "tmpfs /tmp tmpfs size=2G 0 0", "/dev/fd0 /floppy auto rw 0 0",
        "# /dev/sdb1 /data xfs defaults 0 0", "rubbish", "", "/srv /mnt/srv none bind 0 0",
    ],
)  # fmt: skip
def test_entries_that_are_no_file_system_of_a_disk(machine: MachineTree, line: str) -> None:
    machine.write("etc/fstab", f"UUID=1 / ext4 defaults 0 1\n{line}\n")
    assert codes(ask(machine)) == []


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre", "beegfs", "cifs", "virtiofs", "fuse.juicefs", "daos"])
def test_a_file_system_of_the_network_that_is_not_mounted(machine: MachineTree, kind: str) -> None:
    machine.write("etc/fstab", f"server:/x /shared {kind} defaults 0 0\n")
    found = ask(machine)
    assert (found["outcome"], codes(found)) == ("measured", ["not_mounted"])


def test_a_backslash_that_is_no_escape_is_part_of_a_place(machine: MachineTree) -> None:
    machine.write("etc/fstab", "UUID=1 / ext4 defaults 0 1\nserver:/x /shared\\089 nfs defaults 0 0\n")
    assert codes(ask(machine)) == ["not_mounted"]


def test_places_with_blanks_and_symbolic_links(machine: MachineTree) -> None:
    machine.path("real").mkdir()
    machine.path("link").symlink_to(machine.path("real"))
    machine.write("etc/fstab", "UUID=2 /link ext4 defaults 0 0\nUUID=3 /a\\040b ext4\n")
    machine.write("proc/mounts", f"{ROOT_MOUNT}/dev/sdb1 /real ext4 rw 0 0\n/dev/sdc1 /a\\040b ext4 rw 0 0\n")
    assert codes(ask(machine)) == []


def test_the_fstab_of_a_container_is_not_that_of_the_host(machine: MachineTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFLEET_POD_UID", "1")
    machine.write("proc/mounts", "overlay / overlay rw 0 0\n")
    machine.write("etc/fstab", "UUID=2 /data ext4 defaults 0 0\n")
    assert codes(ask(machine)) == []
    machine.write("proc/mounts", f"overlay / overlay rw 0 0\n/dev/sda1 {machine.root} ext4 ro 0 0\n")
    assert codes(ask(machine)) == ["file_system"]
    machine.write("proc/1/mounts", f"{ROOT_MOUNT}/dev/sdb1 /data ext4 rw 0 0\n")
    assert codes(ask(machine)) == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ESHUTDOWN, errno.EUCLEAN, errno.ENXIO, errno.EACCES, errno.ENOENT])
@pytest.mark.parametrize("call", ["stat", "statvfs"])
def test_a_file_system_that_has_shut_down(machine: MachineTree, monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    machine.write("proc/mounts", ROOT_MOUNT + "/dev/sdb1 /data xfs rw 0 0\n")
    whole = types.SimpleNamespace(f_blocks=100, f_bavail=50, f_files=100, f_favail=50)

    def refused(path: str) -> t.Any:
        if path.endswith("/data"):
            raise OSError(number, os.strerror(number))
        return whole

    fake = types.SimpleNamespace(**{name: getattr(os, name) for name in ("path", "stat", "statvfs", "strerror")})
    fake.stat, fake.statvfs = (lambda _path: whole), (lambda _path: whole)
    setattr(fake, call, refused)
    monkeypatch.setattr(file_systems, "os", fake)
    assert codes(ask(machine)) == ([] if number in (errno.EACCES, errno.ENOENT) else ["file_system"])


def test_errors_that_file_systems_have_counted(machine: MachineTree) -> None:
    machine.write("sys/fs/ext4/sda2/errors_count", "0\n")
    of = "sys/fs/btrfs/1-2-3/devinfo/1"
    counts = "write_errs {}\nread_errs 0\nflush_errs 0\ncorruption_errs {}\ngeneration_errs 0\n"
    machine.write(f"{of}/error_stats", counts.format(0, 0))
    machine.write(f"{of}/missing", "0\n")
    assert codes(ask(machine)) == []
    machine.write(f"{of}/error_stats", counts.format(3, 1))
    assert codes(ask(machine)) == ["disk_worn"]
    machine.write(f"{of}/missing", "1\n")
    machine.write("sys/fs/ext4/sda2/errors_count", "5\n")
    assert sorted(codes(ask(machine))) == ["disk_worn", "file_system", "file_system"]


def test_the_disk_of_the_tree_has_a_driver(machine: MachineTree) -> None:
    machine.driver(DISK, None)
    assert verdict(ask(machine)) == ("error", "no_answer")
