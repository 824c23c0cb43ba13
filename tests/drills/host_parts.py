# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines whose disks, arrays, file systems, PCIe links or memory modules have a fault, or only look as if: beside the plants of `host`,
those of parts that do not answer, of tools in other versions, and of faults that all machines have alike."""

from __future__ import annotations

import contextlib
import json
import pathlib
import sqlite3
import time
import typing as t

from drills.host import FAIL, FINE, UNKNOWN, WARN, Plant, recorded, tried
from harness.machine_tree import DISK, GPU, NIC, SLOTS, UNKNOWN_SIZE, MachineTree, smbios

GIB64 = 65536
DAY = 86400
MakeWorse = t.Callable[[MachineTree], t.Any]
HEALTH: dict[str, t.Any] = {
    "critical_warning": 0, "available_spare": 100, "available_spare_threshold": 10, "percentage_used": 3, "media_errors": 0,
}  # fmt: skip
OUTDATED = {"error_count_total": 1, "error_count_outdated": 1}
SAS: dict[str, t.Any] = {"device": {"protocol": "SCSI"}, "smart_status": {"passed": True}, "temperature": {"current": 30, "drive_trip": 65}}


def _nvme_cli(**log: t.Any) -> MakeWorse:
    """Leave nvme-cli as the only tool, with this health log."""
    whole = {"critical_warning": 0, "avail_spare": 100, "spare_thresh": 10, "percent_used": 3, "media_errors": 0, **log}

    def write(machine: MachineTree) -> None:
        machine.path("bin/smartctl").unlink()
        machine.write("log", json.dumps(whole))
        machine.tool("nvme", f'cat "{machine.root}/log"')

    return write


def _smartctl(report: dict[str, t.Any], rc: int = 0) -> MakeWorse:
    return lambda machine: machine.disk(json.dumps(report), rc)


def _nvme(**log: t.Any) -> MakeWorse:
    return _smartctl({"smart_status": {"passed": True}, "nvme_smart_health_information_log": {**HEALTH, **log}})


def _sas(**more: t.Any) -> MakeWorse:
    return _smartctl({**SAS, **more})


def _sata(*rows: dict[str, t.Any], **more: t.Any) -> MakeWorse:
    return _smartctl({"smart_status": {"passed": True}, "ata_smart_attributes": {"table": list(rows)}, **more})


def _message(text: str) -> MakeWorse:
    return _smartctl({"smartctl": {"messages": [{"string": text}]}}, 2)


def _file(path: str, content: str) -> MakeWorse:
    return lambda machine: machine.write(path, content)


def _mdstat(text: str) -> MakeWorse:
    return _file("proc/mdstat", f"Personalities : [raid1]\n{text}\nunused devices: <none>\n")


def _fstab(line: str) -> MakeWorse:
    return _file("etc/fstab", f"UUID=1 / ext4 defaults 0 1\n{line}\n")


def _on_bus(code: str, driver: str | None = None, vendor: str = "0x144d", device: str = "0xa80a") -> MakeWorse:
    return lambda machine: machine.pci(["0000:50:00.0"], code, driver, vendor=vendor, device=device)


def _no_namespace(machine: MachineTree) -> None:
    machine.path("sys/class/nvme/nvme0/nvme0n1/size").unlink()
    machine.path("sys/class/nvme/nvme0/nvme0n1").rmdir()


def _behind_vmd(lanes: int) -> MakeWorse:
    """A disk behind Intel's Volume Management Device, whose link is x4."""

    def write(machine: MachineTree) -> None:
        machine.pci(["0000:80:05.5"], "0x010400", "vmd", "pci0000:80")
        port, disk = "10000:00:02.0", "10000:01:00.0"
        each = {"max_link_width": 4, "max_link_speed": "16.0 GT/s PCIe", "current_link_speed": "16.0 GT/s PCIe"}
        machine.pci([port, disk], "0x010802", "nvme", "pci0000:80/0000:80:05.5/pci10000:00", **each, current_link_width=lanes)
        machine.device(port, **each, current_link_width=lanes)
        machine.device(disk, **{"nvme/nvme1/model": "x"})

    return write


def _nics_without_ports(*lanes: int) -> MakeWorse:
    """Identical NICs with as many lanes, at a root that does not say what its slots can do."""

    def write(machine: MachineTree) -> None:
        for number, width in enumerate(lanes):
            ids = {"vendor": "0x15b3", "device": "0x1021", "subsystem_vendor": "0x15b3", "subsystem_device": "0x23"}
            machine.pci([f"000{number + 1}:01:00.0"], "0x020700", "mlx5_core", **ids, current_link_width=width, max_link_width=16)

    return write


def _siblings(*counts: int) -> MakeWorse:
    """GPUs with as many corrected PCIe errors, on a machine that has been up for 400 days."""

    def write(machine: MachineTree) -> None:
        machine.write("proc/uptime", f"{400 * DAY}.00 1.00\n")
        for number, count in enumerate(counts):
            address = f"0000:a{number}:00.0"
            machine.pci([address], "0x030200", "nvidia", vendor="0x10de", device="0x2330", current_link_width=16, max_link_width=16)
            machine.errors(address, correctable=count)

    return write


def _rasdaemon(table: str, days_ago: float, up_days: float = 400.0, **row: t.Any) -> MakeWorse:
    """An event in rasdaemon's database, on a machine whose log has lost its beginning."""

    def write(machine: MachineTree) -> None:
        path = machine.path("var/lib/rasdaemon/ras-mc_event.db")
        path.parent.mkdir(parents=True)
        machine.write("proc/stat", f"btime {int(time.time() - up_days * DAY)}\n")
        machine.write("proc/uptime", f"{up_days * DAY:.2f} 1.00\n")
        machine.write("dev/kmsg", "6,90000000,34000000000000,-;usb 1-1: new device\n")
        stamp = time.strftime("%Y-%m-%d %H:%M:%S +0000", time.gmtime(time.time() - days_ago * DAY))
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, timestamp, {', '.join(row)})")
            database.execute(f"INSERT INTO {table} VALUES (1, ?, {', '.join('?' * len(row))})", (stamp, *row.values()))
            database.commit()

    return write


def _throttled(*counts: int) -> MakeWorse:
    def write(machine: MachineTree) -> None:
        for number, count in enumerate(counts):
            machine.write(f"sys/devices/system/cpu/cpu{number}/thermal_throttle/package_throttle_count", f"{count}\n")
            machine.write(f"sys/devices/system/cpu/cpu{number}/topology/physical_package_id", f"{number}\n")

    return write


def _memory(changed: dict[str, tuple[int, int]], gib: int = 512) -> MakeWorse:
    def write(machine: MachineTree) -> None:
        machine.dimms(changed)
        machine.write("proc/meminfo", f"MemTotal: {int(gib * 0.98 * (1 << 20))} kB\n")

    return write


def _asset(text: str) -> MakeWorse:
    """The firmware's text for the asset tag of all modules."""
    return lambda m: m.write("sys/firmware/dmi/tables/DMI", smbios(dict.fromkeys(SLOTS, (GIB64, 4800)), m.batch, asset=text))


def _two_per_channel(machine: MachineTree) -> None:
    slots = {f"P{cpu}-DIMM{letter}{slot}": (32768, 3600) for cpu in (0, 1) for letter in "ABCD" for slot in (1, 2)}
    banks = {slot: f"P{slot[1]} CHANNEL {slot[7]}" for slot in slots}
    machine.write("sys/firmware/dmi/tables/DMI", smbios(slots, machine.batch, banks))


def _virtual(machine: MachineTree) -> None:
    machine.write("proc/cpuinfo", "flags : fpu hypervisor\n")
    slots = {f"RAM slot #{number}": ((16384 if number < 3 else 0), 0) for number in range(64)}
    machine.write("sys/firmware/dmi/tables/DMI", smbios(slots, machine.batch, dict.fromkeys(slots, "")))


def _contained(machine: MachineTree) -> None:
    machine.write(".dockerenv", "")
    machine.path("sys/firmware/dmi/tables/DMI").unlink()
    machine.path("dev/kmsg").unlink()
    _fstab("UUID=2 /data xfs defaults 0 2")(machine)
    _message("Smartctl open device: /dev/nvme0 failed: No such device")(machine)


def _usb_and_optical(machine: MachineTree) -> None:
    for name in ("sda", "sr0", "vda", "loop0"):
        machine.write(f"sys/block/{name}/size", "0\n")
        machine.write(f"sys/block/{name}/removable", "1\n" if name in ("sda", "sr0") else "0\n")


PLANTS = [
    # Disks
    Plant("a critical warning as an object", FAIL, _nvme_cli(critical_warning={"value": 4, "reliability_degraded": 1})),
    Plant("a critical warning by the names of its bits", FAIL, _nvme_cli(critical_warning={"available_spare": 0, "ro": 1})),
    Plant("a critical warning as text", FAIL, _nvme_cli(critical_warning="0x1")),
    Plant("wear as a float", WARN, _nvme_cli(percent_used=105.0)),
    Plant("media errors with separators", WARN, _nvme_cli(media_errors="1,234")),
    Plant("media errors that are not understood", UNKNOWN, _nvme_cli(media_errors="many")),
    Plant("a critical warning that is missing", UNKNOWN, _nvme_cli(critical_warning=None)),
    Plant("a health log without media errors", UNKNOWN, _smartctl({"nvme_smart_health_information_log": {"critical_warning": 0}})),
    Plant("an endurance group that is critical", FAIL, _nvme(endurance_grp_critical_warning_summary=4)),
    Plant("uncorrected errors of a SAS disk", WARN, _sas(scsi_error_counter_log={"read": {"total_uncorrected_errors": 40}})),
    Plant("grown defects of a SAS disk", WARN, _sas(scsi_grown_defect_list=77)),
    Plant("a worn SAS disk", WARN, _sas(scsi_percentage_used_endurance_indicator=120)),
    Plant("a SAS disk beyond its trip temperature", WARN, _sas(temperature={"current": 66, "drive_trip": 65})),
    Plant("a SAS disk that foretells its failure", FAIL, _sas(smart_status={"passed": False, "scsi": {"asc": 93, "ascq": 16}})),
    Plant("counters of a SAS disk that are not understood", UNKNOWN, _sas(scsi_grown_defect_list="not available")),
    Plant("errors that a SATA disk could not correct", WARN, _sata({"id": 187, "name": "Reported_Uncorrect", "raw": {"value": 12}})),
    Plant("end-to-end errors of a SATA disk", WARN, _sata({"id": 184, "name": "End-to-End_Error", "raw": {"value": 2.0}})),
    Plant("reallocated sectors", WARN, _sata({"id": 5, "name": "Reallocated_Sector_Ct", "raw": {"value": 8, "string": "8 (0 2)"}})),
    Plant("a worn SATA disk", WARN, _sata({"id": 233, "name": "Media_Wearout_Indicator", "value": 1, "raw": {"value": 0}})),
    Plant("an attribute that is at its limit", FAIL, _sata({"id": 3, "when_failed": "now", "flags": {"prefailure": True}})),
    Plant("a self-test that failed", FAIL, _sata(ata_smart_self_test_log={"standard": {"error_count_total": 1}})),
    Plant("a disk that does not answer", UNKNOWN, _message("Read NVMe Identify Controller failed: Input/output error")),
    Plant("a disk that the kernel has given up", FAIL, _file("sys/class/nvme/nvme0/state", "dead\n")),
    Plant("a disk that is being reset", UNKNOWN, _file("sys/class/nvme/nvme0/state", "resetting\n")),
    Plant("a disk without a namespace", UNKNOWN, _no_namespace),
    Plant("a disk on the bus without a driver", UNKNOWN, lambda m: m.driver(DISK, None)),
    Plant("a RAID controller without a driver", UNKNOWN, _on_bus("0x010400")),
    Plant("a SAS controller without a driver", UNKNOWN, _on_bus("0x010700")),
    Plant("spare capacity 0 of 0", FINE, _nvme(available_spare=0, available_spare_threshold=0)),
    Plant("a disk whose numbers are floats", FINE, _nvme_cli(critical_warning=0.0, percent_used=3.0, media_errors="0")),
    Plant("a disk that one may not ask", FINE, _message("Permission denied")),
    Plant("a USB bridge", FINE, _message("/dev/sda: Unknown USB bridge [0x0781:0x5583]")),
    Plant("USB sticks, optical drives and virtio disks", FINE, _usb_and_optical),
    Plant("a disk that was given to a virtual machine", FINE, _on_bus("0x010802", "vfio-pci")),
    Plant("the management of a PCIe switch", FINE, _on_bus("0x010700", None, "0x1000", "0x00b2")),
    Plant("a self-test that a later one outdated", FINE, _sata(ata_smart_self_test_log={"standard": OUTDATED})),
    # Arrays and file systems
    Plant("an array that is inactive", FAIL, _mdstat("md0 : inactive sdc1[0](S)\n      976 blocks super 1.2\n")),
    Plant("an array that rebuilds", FAIL, _mdstat("md0 : active raid1 c[2] a[0]\n   976 blocks [2/1] [U_]\n   recovery =  0.5% (5/9)\n")),
    Plant("an array with a failed disk and a spare", FAIL, _mdstat("md0 : active raid1 c[2] b[1](F) a[0]\n   976 blocks [2/2] [UU]\n")),
    Plant("a broken array", FAIL, _mdstat("md0 : broken raid0 b[1] a[0]\n   976 blocks super 1.2 512k chunks\n")),
    Plant("a pool that is degraded", FAIL, _file("proc/spl/kstat/zfs/tank/state", "DEGRADED\n")),
    Plant("a disk of /etc/fstab that is not mounted", FAIL, _fstab("UUID=2 /data xfs defaults 0 2")),
    Plant("a disk with nofail that is not mounted", WARN, _fstab("UUID=2 /data xfs defaults,nofail 0 2")),
    Plant("a network's file system that is not mounted", WARN, _fstab("server:/home /home nfs4 defaults 0 0")),
    Plant("ext4 with errors since its last check", FAIL, _file("sys/fs/ext4/sda2/errors_count", "5\n")),
    Plant("btrfs with errors of a disk", WARN, _file("sys/fs/btrfs/1-2/devinfo/1/error_stats", "write_errs 0\ncorruption_errs 4\n")),
    Plant("the container of firmware RAID", FINE, _mdstat("md127 : inactive b[1](S) a[0](S)\n   5928 blocks super external:imsm\n")),
    Plant("an array that synchronises", FINE, _mdstat("md0 : active raid1 b[1] a[0]\n   976 blocks [2/2] [UU]\n   resync = 1.0%\n")),
    Plant("entries that nobody mounts", FINE, _fstab("UUID=2 /data xfs noauto 0 0\nUUID=3 none swap sw 0 0\n/dev/sr0 /cd iso9660 ro 0 0")),
    # PCIe
    Plant("a disk behind VMD with one of four lanes", FAIL, _behind_vmd(1)),
    Plant("a disk behind VMD", FINE, _behind_vmd(4)),
    Plant("a NIC with 8 lanes where an identical one has 16", FAIL, _nics_without_ports(16, 8)),
    Plant("NICs with 8 lanes in slots that say nothing", WARN, _nics_without_ports(8, 8)),
    Plant("many corrected PCIe errors beside siblings", WARN, _siblings(30_000, 0, 4, 0)),
    Plant("corrected PCIe errors that all siblings have", FINE, _siblings(3000, 3100, 2900, 3050)),
    Plant("counters of PCIe errors that cannot be read", UNKNOWN, lambda m: m.device(NIC, aer_dev_fatal="SDES many")),
    Plant("counters of PCIe errors that are missing", UNKNOWN, lambda m: m.path(f"sys/bus/pci/devices/{GPU}/aer_dev_fatal").unlink()),
    # rasdaemon
    Plant("a memory error of last week, 400 days up", FAIL, _rasdaemon("mc_event", 7, err_type="Uncorrected", label="P1-DIMMB1")),
    Plant("a deferred memory error since boot", FAIL, _rasdaemon("mc_event", 7, err_type="Deferred", label="P1-DIMMB1")),
    Plant("a machine check since boot", FAIL, _rasdaemon("mce_record", 7, status=0xBD80000000100134 - 2**64, bank=7)),
    Plant("a fatal PCIe error since boot", FAIL, _rasdaemon("aer_event", 7, dev_name=GPU, err_type="Uncorrected (Fatal)")),
    Plant("a poisoned packet since boot", FAIL, _rasdaemon("aer_event", 7, err_type="Uncorrected (Non-Fatal)", err_msg="Poisoned TLP")),
    Plant("a fatal error by the firmware since boot", FAIL, _rasdaemon("non_standard_event", 7, severity="Fatal", fru_text="CPU0")),
    Plant("an extended log of a memory error", FAIL, _rasdaemon("extlog_event", 7, severity=0, fru_text="P1-DIMMB1")),
    Plant("a page with an error since boot", FAIL, _rasdaemon("memory_failure_event", 7, pfn="0x1", action_result="Recovered")),
    Plant("a disk error since boot", FAIL, _rasdaemon("disk_errors", 7, dev="8:0", error="critical medium error", rwbs="R")),
    Plant("firmware of a NIC that stopped", FAIL, _rasdaemon("devlink_event", 7, driver_name="mlx5_core", reporter_name="fw_fatal")),
    Plant("a memory error of a month ago, before boot", WARN, _rasdaemon("mc_event", 20, 1, err_type="Uncorrected", label="P1-DIMMB1")),
    Plant("a severity that nobody knows", UNKNOWN, _rasdaemon("mc_event", 7, err_type="Terrible", label="P1-DIMMB1")),
    Plant("many corrected errors before the restart", WARN, _rasdaemon("mc_event", 3, 1, err_type="Corrected", label="A", err_count=900)),
    Plant("a discard that a disk refused", FINE, _rasdaemon("disk_errors", 7, dev="8:0", error="critical target error", rwbs="D")),
    Plant("an unreadable disc", FINE, _rasdaemon("disk_errors", 7, dev="11:0", error="I/O error", rwbs="R")),
    Plant("a few corrected memory errors of the past", FINE, _rasdaemon("mc_event", 7, err_type="Corrected", label="A", err_count=3)),
    # Processors
    Plant("a machine check that the log has lost", FAIL, _file("proc/interrupts", " MCE:   1   1   Machine check exceptions\n")),
    Plant("a processor that throttles", WARN, _throttled(5000, 0)),
    Plant("processors that throttle alike", FINE, _throttled(5000, 4000)),
    Plant("polls and thresholds", FINE, _file("proc/interrupts", " THR:  9999  0  Threshold\n MCE:  0  0  Machine check exceptions\n")),
    # Memory
    Plant("20 million corrected memory errors", WARN, lambda m: m.edac(3, corrected=20_000_000)),
    Plant("a counter of memory errors that is missing", UNKNOWN, lambda m: m.path("sys/devices/system/edac/mc/mc0/ue_count").unlink()),
    Plant("a module of unknown size", FAIL, _memory({SLOTS[2]: (UNKNOWN_SIZE, 4800)})),
    Plant("a table of modules that is cut", FAIL, lambda m: m.write("sys/firmware/dmi/tables/DMI", smbios(m.slots, m.batch)[:600])),
    Plant("a module that the firmware has mapped out", WARN, _asset("Mapped Out")),
    Plant("a NUMA node with less memory", WARN, _file("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 201326592 kB\n")),
]  # fmt: skip

# What all machines have alike, which no comparison between them shows.
ALIKE = [
    Plant("one module less on one processor", WARN, _memory({SLOTS[6]: (0, 0)}, 448)),
    Plant("one module less on both processors", WARN, _memory({SLOTS[3]: (0, 0), SLOTS[7]: (0, 0)}, 384)),
    Plant("modules rated 4800 at 3200", WARN, _memory(dict.fromkeys(SLOTS, (GIB64, 3200)))),
    Plant("modules of unknown size", UNKNOWN, _memory(dict.fromkeys(SLOTS, (UNKNOWN_SIZE, 4800)))),
    Plant("disks without a namespace", UNKNOWN, _no_namespace),
    Plant("modules a grade below their rating", FINE, _memory(dict.fromkeys(SLOTS, (GIB64, 4400)))),
    Plant("two modules on each channel", FINE, _two_per_channel),
    Plant("virtual machines with 3 of 64 slots filled", FINE, _virtual),
    Plant("containers without /dev", FINE, _contained),
    Plant("half of the modules", FINE, _memory({SLOTS[number]: (0, 0) for number in (2, 3, 6, 7)}, 256)),
    Plant("good disks by nvme-cli", FINE, _nvme_cli()),
    Plant("good disks by smartctl", FINE, lambda m: m.disk(recorded("smartctl-nvme-good.json"))),
]


def accepted(folder: pathlib.Path) -> tuple[int, list[str], list[str]]:
    """Return the number of planted faults, the accepted ones, and the good machines that are not accepted as they should be."""
    return tried(folder, "parts", (*PLANTS, *(plant._replace(alike=True) for plant in ALIKE)))
