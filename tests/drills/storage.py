# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of file systems, planted on a random node beside healthy ones: measured by the probe over a stand-in of fio, each node alone and
many together, and judged as in a run."""

from __future__ import annotations

import errno
import json
import pathlib
import random
import shutil
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage import checks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import storage_together
from drills.file_systems import GIB, STAGE, TOGETHER, Change, Disk, Fleet

# How often each fault is planted, each time elsewhere, and how many healthy fleets there are of each stage.
TIMES, HEALTHY = 2, 8
FAIL, WARN, UNKNOWN, PASS = "FAIL", "WARN", "UNKNOWN", "PASS"
LOCAL = (
    ("xfs", "rw,noatime,attr2,inode64", "/dev/nvme0n1"), ("ext4", "rw,relatime", "/dev/md0"),
    ("btrfs", "rw,ssd,space_cache=v2", "/dev/sdb"),
)  # fmt: skip
SHARED = (
    ("nfs4", "rw,relatime,vers=4.2,hard,proto=tcp", "filer-1:/export"), ("lustre", "rw,flock,lazystatfs", "10.0.0.1@o2ib:/fs"),
    ("ceph", "rw,relatime,acl", "10.0.0.2,10.0.0.3:/"), ("beegfs", "rw,relatime", "beegfs_nodev"), ("gpfs", "rw,relatime", "fs1"),
    ("fuse.weka", "rw,user_id=0", "weka-1:/fs"), ("nfs", "rw,vers=3,proto=rdma,port=20049", "[fd00::7]:/export"),
)  # fmt: skip
WAYS = ("write", "read")


class Found(t.NamedTuple):
    """The verdict that a fault must get, with one of the codes, on one of the subjects. `beside` are those that may be UNKNOWN as well; no
    other may be named. With PASS the codes are words that the report must have."""

    verdict: str
    codes: tuple[str, ...]
    at: t.Collection[str]
    beside: t.Collection[str] = ()


Plant = t.Callable[[Fleet, random.Random], Found]


# Fleets ---------------------------------------------------------------------------------------------------------------------


def fleet(source: random.Random, shared: bool, nodes: int, scatter: float) -> Fleet:
    """Return healthy nodes whose rates differ by up to a part of `scatter`, as evenly as healthy ones may: where all but one are alike by
    chance, that one is told from them, and should be."""
    kind, options, origin = source.choice(SHARED if shared else LOCAL)
    base = {check: source.uniform(2, 40) for check in ("write", "verify", "read", "few_write", "few_read")}
    base.update({check: source.uniform(20, 900) for check in checks.RANDOM})
    took = source.uniform(0.005, 0.08)
    parts = {check: _parts(source, nodes, scatter) for check in (*base, checks.METADATA)}
    disks = {}
    for number in range(nodes):
        own = options + (f",clientaddr=10.1.0.{number},addr=10.9.0.{number % 3}" if kind == "nfs4" else "")
        disk = Disk(kind, own, origin, {check: rate * parts[check][number] for check, rate in base.items()})
        disk.metadata_s = took * parts[checks.METADATA][number]
        disk.space["free"] -= source.randrange(GIB)
        disk.echo = {"trips": source.randint(9, 400), "ms": source.uniform(0.3, 30), "most_ms": source.uniform(30, 600)}
        disk.small_ms = source.uniform(0.4, 0.9)
        disks[f"gpu-{number + 1:02}"] = disk
    return Fleet(source, disks, shared)


def _parts(source: random.Random, nodes: int, scatter: float) -> list[float]:
    parts = [1 + scatter * (2 * (place + source.uniform(0.3, 0.7)) / nodes - 1) for place in range(nodes)]
    source.shuffle(parts)
    return parts


def own_disks(source: random.Random) -> Fleet:
    return fleet(source, False, source.randint(8, 12), 0.02)


def few_disks(source: random.Random) -> Fleet:
    return fleet(source, False, source.randint(2, 5), 0.02)


def shared_by_some(source: random.Random) -> Fleet:
    return fleet(source, True, source.randint(4, 8), 0.02)


def crowd(source: random.Random) -> Fleet:
    return fleet(source, source.random() < 0.5, source.randint(8, 12), 0.02)


def either(source: random.Random) -> Fleet:
    return source.choice((own_disks, shared_by_some))(source)


def many(source: random.Random) -> Fleet:
    return fleet(source, True, source.randint(4, 7), 0.2)


def sixteen(source: random.Random) -> Fleet:
    return fleet(source, True, 16, 0.2)


def _one(of: Fleet, source: random.Random) -> tuple[str, Disk]:
    name = source.choice(list(of.disks))
    return name, of.disks[name]


# The mount ------------------------------------------------------------------------------------------------------------------


def full(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    disk.space.update(source.choice(({"free": source.randrange(16 << 20)}, {"free_inodes": 0})))
    return Found(FAIL, ("mount_full",), {name})


def read_only(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    disk.options = "ro" + disk.options.removeprefix("rw")
    return Found(FAIL, ("mount_read_only",), {name})


def stale(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    disk.error = source.choice((errno.ESTALE, errno.ENOTCONN))
    return Found(FAIL, ("mount_stale",), {name})


def shut_down(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    disk.error = source.choice((errno.EIO, errno.ESHUTDOWN, errno.EUCLEAN, errno.ENXIO, errno.ENODEV))
    return Found(FAIL, ("file_system",), {name})


def hangs(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    disk.hangs, of.options["answer_timeout"] = True, 0.5
    return Found(UNKNOWN, ("no_answer",), {name})


def path_missing(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    disk.error = source.choice((errno.ENOENT, errno.ENOTDIR))
    return Found(FAIL, ("mount_missing",), {name})


def not_mounted(of: Fleet, source: random.Random) -> Found:
    """A plain folder is there where the file system should be."""
    name, disk = _one(of, source)
    disk.is_mounted = False
    return Found(FAIL, ("mount_missing",) if of.shared else ("mount_differs",), {name})


def other_kind(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    disk.kind = source.choice([kind for kind, *_more in (SHARED if of.shared else LOCAL) if kind != disk.kind])
    return Found(FAIL, ("mount_differs",), {name})


def other_options(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    disk.options += source.choice((",sync", ",soft", ",nobarrier", ",noexec"))
    return Found(WARN, ("mount_differs",), {name})


def other_server(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    disk.source = source.choice(("filer-2:/export", "filer-1:/other", "10.0.0.9@o2ib:/fs"))
    return Found(WARN, ("mount_differs",), {name})


def other_size(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    disk.space["size"] = int(disk.space["size"] * source.choice((0.01, 0.5, 0.85, 1.2, 4)))
    disk.space["free"] = disk.space["size"] // 2
    return Found(WARN, ("mount_differs",), {name})


def two_differ(of: Fleet, source: random.Random) -> Found:
    of.disks = dict(list(of.disks.items())[:2])
    of.entry.update({} if of.shared else {"gibps_read": 0.1, "gibps_write": 0.1})
    other_kind(of, source)
    return Found(UNKNOWN, ("mount_differs",), of.disks)


# Rates ----------------------------------------------------------------------------------------------------------------------


def slow_disk(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    check = source.choice((*WAYS, *checks.RANDOM))
    disk.rates[check] *= source.uniform(0.2, 0.65)
    return Found(FAIL, ("below_neighbours",), {name})


def slow_metadata(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    disk.metadata_s *= source.uniform(1.6, 20)
    return Found(FAIL, ("below_neighbours",), {name})


def _stated(of: Fleet, part: float) -> None:
    of.entry.update({f"gibps_{way}": part * min(disk.rates[way] for disk in of.disks.values()) for way in WAYS})


def below_stated(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    _stated(of, 0.97)
    way = source.choice(WAYS)
    disk.rates[way] = source.uniform(0.3, 0.85) * of.entry[f"gibps_{way}"]
    return Found(FAIL, ("below_floor", "below_neighbours"), {name})


def little_below_stated(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    _stated(of, 0.97)
    way = source.choice(WAYS)
    disk.rates[way] = source.uniform(0.91, 0.94) * of.entry[f"gibps_{way}"]
    return Found(WARN, ("below_warn", "below_neighbours"), {name})


def all_below_stated(of: Fleet, source: random.Random) -> Found:
    _stated(of, source.uniform(1.2, 4))
    return Found(FAIL, ("below_floor",), of.disks)


def held_to_nothing(of: Fleet, _source: random.Random) -> Found:
    return Found(UNKNOWN, ("no_expectation",), of.disks)


def cached(of: Fleet, source: random.Random) -> Found:
    """Rates of the memory of the machine."""
    _stated(of, 0.9)
    way = source.choice(("tmpfs", "zfs", "journal", "direct"))
    for disk in of.disks.values():
        if way in ("tmpfs", "zfs"):
            disk.kind = way
        elif way == "journal":
            disk.kind, disk.options = "ext4", "rw,relatime,data=journal"
    of.options["direct"] = way != "direct"
    return Found(UNKNOWN, ("unchecked",), of.disks)


# What fio prints ------------------------------------------------------------------------------------------------------------


def error(number: int, status: int | None = None) -> Change:
    """An error of the job, with an exit status of its own if one is given."""

    def change(document: dict[str, t.Any]) -> t.Any:
        document["jobs"][0]["error"] = number
        return None if status is None else (status, json.dumps(document), "")

    return change


def _spoiled(source: random.Random) -> Change:
    """Return what makes an output no measurement."""

    def change(document: dict[str, t.Any]) -> t.Any:
        text, job = json.dumps(document, indent=1), document["jobs"][0]
        no_error = json.dumps({**document, "jobs": [{name: value for name, value in job.items() if name != "error"}]})
        return source.choice(
            (
                (0, "", ""), (0, text[: source.randrange(2, len(text) - 2)], ""), (0, "<html><body>502</body></html>\n", ""),
                (0, "fio: looks to be a deadlock\n", ""), (1, text, "fio: pid=7, got signal=11\n"), (-9, text[:40], "Killed\n"), "hangs",
                (0, json.dumps({**document, "jobs": []}), ""), (0, json.dumps({**document, "jobs": [job, job]}), ""), (0, no_error, ""),
                (0, json.dumps({**document, "fio version": "dd 9.1"}), ""), (0, text.replace('"error": 0', '"error": "none"'), ""),
                (0, text[1:], ""), (127, "", "fio: error while loading shared libraries\n"), (0, "\x00" * 4096, ""),
            )
        )  # fmt: skip

    return change


def _odd_number(source: random.Random) -> Change:
    """Return what makes the number of a run none: of any check, so its rate and its requests."""

    def change(document: dict[str, t.Any]) -> t.Any:
        value = source.choice((float("nan"), float("inf"), 0, -1, -2.5e9, "fast", None, True, 1e300, [], {}))
        for way in WAYS:
            document["jobs"][0][way].update(bw_bytes=value, iops=value)
        return 0, json.dumps(document), ""

    return change


def _fewer(source: random.Random) -> Change:
    """Return what makes a run move fewer bytes than it should, or more."""

    def change(document: dict[str, t.Any]) -> t.Any:
        _moved(document, source.choice((0.0, 0.1, 0.5, 0.99, 2)))
        return 0, json.dumps(document), ""

    return change


def _moved(document: dict[str, t.Any], part: float) -> None:
    """Let a run move so much of its bytes, at the same rate."""
    for way in WAYS:
        side = document["jobs"][0][way]
        side.update({name: side[name] * part for name in ("total_ios", "runtime") if name in side}, io_bytes=int(side["io_bytes"] * part))


def _some_check(of: Fleet, source: random.Random) -> str:
    """Return a check of fio's; of a shared file system what is written for the check of data, too."""
    return source.choice(("write", "verify") if of.shared else ("write", "verify", "read", *checks.RANDOM))


def wrong_data(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    disk.fio["verify"] = error(errno.EILSEQ, source.choice((0, 1)))
    return Found(FAIL, ("wrong_results",), {name})


def broken(of: Fleet, source: random.Random) -> Found:
    """The file system fails under load, with an exit status of 0 or another."""
    name, disk = _one(of, source)
    number, code = source.choice(((errno.EIO, "file_system"), (errno.ESTALE, "mount_stale"), (errno.EUCLEAN, "file_system")))
    disk.fio[_some_check(of, source)] = error(number, source.choice((0, 1)))
    return Found(FAIL, (code,), {name})


def full_under_load(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    number, code = source.choice(((errno.ENOSPC, "disk_full"), (errno.EDQUOT, "disk_full"), (errno.EROFS, "read_only")))
    disk.fio["write"] = error(number, source.choice((0, 1)))
    return Found(UNKNOWN, (code,), {name})


def spoiled(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    disk.fio[_some_check(of, source)] = _spoiled(source)
    return Found(UNKNOWN, ("tool_failed", "incomplete_output", "no_result", "bad_output", "timeout"), {name})


def odd_number(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    # How fast a shared file system is written is no number of its check of data.
    disk.fio["verify" if of.shared else _some_check(of, source)] = _odd_number(source)
    return Found(UNKNOWN, ("tool_failed", "incomplete_output", "no_result", "bad_output"), {name})


def fewer_bytes(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    disk.fio[source.choice(("write", "verify") if of.shared else ("write", "verify", "read"))] = _fewer(source)
    return Found(UNKNOWN, ("incomplete_output", "no_result"), {name})


def no_fio(of: Fleet, source: random.Random) -> Found:
    name, disk = _one(of, source)
    disk.has_fio = False
    return Found(UNKNOWN, ("tool_missing",), {name})


# Many nodes -----------------------------------------------------------------------------------------------------------------


def _curve(of: Fleet) -> str:
    return f"{TOGETHER}/{of.entry['name']}"


def _place(of: Fleet, source: random.Random, first: int = 0) -> tuple[int, str, Disk]:
    index = source.randrange(first, len(of.disks))
    return index, *list(of.disks.items())[index]


def broken_together(of: Fleet, source: random.Random) -> Found:
    """The file system fails for one node while many work: as it writes first, in a step, or in a pattern."""
    _index, name, disk = _place(of, source)
    number, code = source.choice(((errno.EIO, "file_system"), (errno.ESTALE, "mount_stale")))
    runs = ("write", "step_write 1", "step_read 1", "checkpoint_write 1", "checkpoint_read 1")
    disk.fio[source.choice(runs)] = error(number, source.choice((0, 1)))
    return Found(FAIL, (code,), {name}, {_curve(of)})


def apart(of: Fleet, source: random.Random) -> Found:
    """Another file system is mounted at the path of one node."""
    index, name, _disk = _place(of, source)
    for number, disk in enumerate(of.disks.values()):
        disk.blind = set(range(len(of.disks))) - {index} if number == index else {index}
        disk.lacks_checkpoint = disk.blind
    # Nobody can read its checkpoint, and it none of the others.
    return Found(FAIL, ("mount_differs",), {name}, [*of.disks, _curve(of)])


def unseen(of: Fleet, source: random.Random) -> Found:
    index, name, disk = _place(of, source)
    disk.blind = {source.choice([number for number in range(len(of.disks)) if number != index])}
    return Found(UNKNOWN, ("unresolved",), {name})


def wrong_file(of: Fleet, source: random.Random) -> Found:
    """What one node has handed over the one before it reads otherwise."""
    index, _name, _disk = _place(of, source)
    at = source.randrange(1 << 20)
    page = at // 4096 * 4096
    of.handed[index] = source.choice(
        (
            lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], lambda data: data[:at], lambda data: data + b"\0",
            lambda data: b"\0" * len(data), lambda data: data[1:] + data[:1], lambda data: data[:page] + b"\0" * (len(data) - page),
        )
    )  # fmt: skip
    return Found(FAIL, ("wrong_results",), {list(of.disks)[index - 1]})


def torn(of: Fleet, source: random.Random) -> Found:
    _index, name, disk = _place(of, source, 1)
    disk.replaced = source.choice(({"missing": 1, "torn": 0}, {"missing": 0, "torn": 2}, {"missing": 30, "torn": 7}))
    return Found(FAIL, ("file_system",), {name})


def no_locks(of: Fleet, _source: random.Random) -> Found:
    of.locks_hold = False
    return Found(FAIL, ("file_system",), list(of.disks)[1:])


def too_late(of: Fleet, source: random.Random) -> Found:
    _index, name, disk = _place(of, source)
    disk.ready_s = 60.0 + source.uniform(5, 900)
    return Found(UNKNOWN, ("partner",), {name}, [*of.disks, _curve(of)])


def late_data(of: Fleet, source: random.Random) -> Found:
    _index, name, disk = _place(of, source)
    disk.echo = {"trips": 2, "ms": source.uniform(5, 3000), "most_ms": source.uniform(1050, 6000)}
    return Found(WARN, ("late_data",), {name})


def no_echo(of: Fleet, source: random.Random) -> Found:
    _index, name, disk = _place(of, source)
    disk.echo = {"trips": 0}
    return Found(UNKNOWN, ("incomplete",), {name})


def squashed(of: Fleet, source: random.Random) -> Found:
    index, name, disk = _place(of, source)
    owner = source.choice(((65534, 65534), (99, 99), (0, 65534)))
    disk.owner = of.owners[index] = owner
    return Found(WARN, ("mount_differs",), {name})


def mapped(of: Fleet, source: random.Random) -> Found:
    _index, name, disk = _place(of, source)
    disk.sees_next_as = source.choice(((4294967294, 4294967294), (1000, 0)))
    return Found(WARN, ("mount_differs",), {name})


def wrong_checkpoint(of: Fleet, source: random.Random) -> Found:
    _index, name, disk = _place(of, source)
    disk.fio[f"checkpoint_read {source.choice((1, 2))}"] = error(errno.EILSEQ, source.choice((0, 1)))
    return Found(FAIL, ("wrong_results",), {name})


def no_checkpoint(of: Fleet, source: random.Random) -> Found:
    index, name, disk = _place(of, source)
    disk.lacks_checkpoint = {source.choice(((index + 1) % len(of.disks), 0))}
    return Found(UNKNOWN, ("partner",), {name})


def slow_checkpoint(of: Fleet, source: random.Random) -> Found:
    """It was not written or read whole in its time."""
    _index, name, disk = _place(of, source)

    def change(document: dict[str, t.Any]) -> t.Any:
        _moved(document, part)

    part = source.choice((0.05, 0.5, 0.999))
    disk.fio[source.choice(("checkpoint_write 1", "checkpoint_read 1", "checkpoint_read 2"))] = change
    return Found(UNKNOWN, ("timeout",), {name})


def slow_node(of: Fleet, source: random.Random) -> Found:
    _index, name, disk = _place(of, source)
    part = source.uniform(0.05, 0.35)
    for way in source.choice((WAYS, WAYS[:1], WAYS[1:])):
        disk.rates[f"few_{way}"] *= part
    return Found(FAIL, ("below_neighbours",), {name})


def _sum(of: Fleet, way: str) -> float:
    return sum(disk.rates[f"few_{way}"] for disk in of.disks.values())


def _flat(of: Fleet, most: float, ways: t.Iterable[str] = WAYS) -> None:
    """Let all nodes of a step together have `most` at most, in GiB/s: each its part."""
    sizes = storage_together.steps(len(of.disks))
    for index, disk in enumerate(of.disks.values()):
        for number, size in enumerate([size for size in sizes if size > index], 1):
            for way in ways:
                alone = disk.rates[f"few_{way}"]
                disk.rates[f"step_{way} {number}"] = min(alone, most / size)


def flat_below_stated(of: Fleet, source: random.Random) -> Found:
    way = source.choice(WAYS)
    of.entry[f"gibps_{way}_all"] = 0.9 * _sum(of, way)
    _flat(of, source.uniform(0.3, 0.7) * _sum(of, way), [way])
    return Found(FAIL, ("below_floor",), {_curve(of)})


def flat(of: Fleet, source: random.Random) -> Found:
    """Nothing is stated: the report says from how many nodes on the server or its network is the limit."""
    way = source.choice(WAYS)
    _flat(of, source.uniform(0.2, 0.4) * _sum(of, way), [way])
    return Found(PASS, (f"{way}: from ", "the server or its network is the limit"), {_curve(of)})


def little_below_all(of: Fleet, source: random.Random) -> Found:
    way = source.choice(WAYS)
    of.entry[f"gibps_{way}_all"] = _sum(of, way) / source.uniform(0.91, 0.94)
    return Found(WARN, ("below_warn",), {_curve(of)})


def spoiled_step(of: Fleet, source: random.Random) -> Found:
    """No rate in one of the steps of a node."""
    index, name, disk = _place(of, source)
    runs = sum(size > index for size in storage_together.steps(len(of.disks)))
    change = source.choice((_spoiled, _odd_number))(source)
    disk.fio[f"step_{source.choice(WAYS)} {source.randint(1, runs)}"] = change
    codes = ("tool_failed", "incomplete_output", "no_result", "bad_output", "timeout", "incomplete")
    return Found(UNKNOWN, codes, {name, _curve(of)})


def stalled(of: Fleet, source: random.Random) -> Found:
    """A node comes too late to read with all, as writing with all took too long."""
    index, name, disk = _place(of, source)
    runs = sum(size > index for size in storage_together.steps(len(of.disks)))
    disk.stalls[f"step_write {runs}"] = source.uniform(20, 120)
    return Found(UNKNOWN, ("incomplete",), {_curve(of)}, {name})


def memory(of: Fleet, source: random.Random) -> Found:
    of.options["direct"] = False
    way = source.choice(WAYS)
    of.entry[f"gibps_{way}_all"] = 0.5 * _sum(of, way)
    return Found(UNKNOWN, ("unchecked",), {_curve(of)})


def and_the_curve(plant: Plant) -> Plant:
    """A node that measures nothing leaves the sum of all unknown, and what others would see of it."""
    return lambda of, source: plant(of, source)._replace(beside=[*of.disks, _curve(of)])


Make = t.Callable[[random.Random], Fleet]
FAULTS: list[tuple[str, str, Make, Plant]] = [
    (STAGE, "no space or no inode is left", either, full),
    (STAGE, "mounted read-only", either, read_only),
    (STAGE, "a stale mount", either, stale),
    (STAGE, "the file system has shut itself down", either, shut_down),
    (STAGE, "the server does not answer", either, hangs),
    (STAGE, "the path is not there", either, path_missing),
    (STAGE, "nothing is mounted at the path", either, not_mounted),
    (STAGE, "another kind of file system than elsewhere", either, other_kind),
    (STAGE, "other mount options than elsewhere", either, other_options),
    (STAGE, "another server than elsewhere", shared_by_some, other_server),
    (STAGE, "another size than elsewhere", shared_by_some, other_size),
    (STAGE, "two nodes that differ", either, two_differ),
    (STAGE, "a disk slower than its neighbours", own_disks, slow_disk),
    (STAGE, "fewer files in a second than its neighbours", crowd, slow_metadata),
    (STAGE, "a disk below the stated rate", own_disks, below_stated),
    (STAGE, "a disk a little below the stated rate", few_disks, little_below_stated),
    (STAGE, "all disks below the stated rate", own_disks, all_below_stated),
    (STAGE, "rates that nothing is known of", few_disks, held_to_nothing),
    (STAGE, "rates of the page cache", few_disks, cached),
    (STAGE, "other data than was written", either, wrong_data),
    (STAGE, "the file system fails under load", either, broken),
    (STAGE, "the file system is full under load", either, full_under_load),
    (STAGE, "fio prints no measurement", either, spoiled),
    (STAGE, "a rate that is no number", either, odd_number),
    (STAGE, "fio moved other bytes than it should", either, fewer_bytes),
    (STAGE, "fio is not installed", either, no_fio),
    (TOGETHER, "one node has another file system there", many, apart),
    (TOGETHER, "a node does not see the files of another", many, unseen),
    (TOGETHER, "a file is read with other data", many, wrong_file),
    (TOGETHER, "a replaced file is missing or torn", many, torn),
    (TOGETHER, "locks do not hold between nodes", many, no_locks),
    (TOGETHER, "a node is too late", many, too_late),
    (TOGETHER, "data is read late elsewhere", many, late_data),
    (TOGETHER, "the next node answers nothing", many, no_echo),
    (TOGETHER, "the files of a node belong to somebody else", many, squashed),
    (TOGETHER, "a node sees another owner", many, mapped),
    (TOGETHER, "a checkpoint is read with other data", many, wrong_checkpoint),
    (TOGETHER, "a checkpoint is not there", many, no_checkpoint),
    (TOGETHER, "a checkpoint is not whole in its time", many, slow_checkpoint),
    (TOGETHER, "one slow node of 16", sixteen, slow_node),
    (TOGETHER, "a flat sum below the stated one", many, flat_below_stated),
    (TOGETHER, "a flat sum where none is stated", sixteen, flat),
    (TOGETHER, "a sum a little below the stated one", many, little_below_all),
    (TOGETHER, "fio prints no measurement in a step", many, spoiled_step),
    (TOGETHER, "a node stalls and is too late for the step of all", many, stalled),
    (TOGETHER, "sums of the page cache", many, memory),
    (TOGETHER, "no space or no inode is left on a node", many, and_the_curve(full)),
    (TOGETHER, "mounted read-only on a node", many, and_the_curve(read_only)),
    (TOGETHER, "the file system fails for a node", many, broken_together),
    (TOGETHER, "a stale mount on a node", many, and_the_curve(stale)),
    (TOGETHER, "the server does not answer a node", many, and_the_curve(hangs)),
    (TOGETHER, "nothing is mounted on a node", many, and_the_curve(not_mounted)),
]


# Healthy fleets -------------------------------------------------------------------------------------------------------------


def healthy(source: random.Random, number: int) -> tuple[str, Fleet]:
    """Return a healthy fleet, and the stage that measures it."""
    if number % 2 == 0:
        shared = source.random() < 0.4
        few = source.random() < 0.3
        of = fleet(source, shared, source.randint(1, 5) if few else source.randint(6, 14), source.choice((0.005, 0.02, 0.1)))
        if not shared and (few or source.random() < 0.4):
            _stated(of, source.uniform(0.5, 1.02))
        if not shared and not few and source.random() < 0.3:
            # Half of the nodes are of another product, with another disk, mounted otherwise.
            of.makers = {name: ("Maker Model", "Other Thing")[place % 2] for place, name in enumerate(of.disks)}
            _stated(of, 0.3)
            for place, disk in enumerate(of.disks.values()):
                if place % 2:
                    disk.kind, disk.options, disk.source = "ext4", "rw,noatime,discard", "/dev/sdz"
                    disk.rates = {check: rate * 0.4 for check, rate in disk.rates.items()}
        return STAGE, of
    of = fleet(source, True, source.choice((2, 3, 5, 6, 16)), 0.2)
    if source.random() < 0.5:
        _flat(of, source.uniform(0.3, 0.9) * _sum(of, "write"), ["write"])
    elif source.random() < 0.6:
        of.entry.update({f"gibps_{way}_all": source.uniform(0.5, 1.0) * _sum(of, way) for way in WAYS})
    return TOGETHER, of


def judged(stage: str, of: Fleet, folder: pathlib.Path) -> t.Any:
    try:
        return of.judged(folder) if stage == STAGE else of.judged_together(folder)
    finally:
        shutil.rmtree(folder)


def accepted(folder: pathlib.Path, seed: int) -> tuple[int, list[str], list[str]]:
    """Return how many faults were planted, those that were not found as they should be, and what was refused though it is healthy."""
    accepts: list[str] = []
    rejects: list[str] = []
    trials = [(*fault, number) for fault in FAULTS for number in range(TIMES)]
    for stage, what, make, plant, number in trials:
        source = random.Random(f"{seed} {stage} {what} {number}")
        of = make(source)
        found = plant(of, source)
        judgement = judged(stage, of, folder / "trial")
        bad = [verdict for verdict in judgement.verdicts if verdict.verdict not in ("PASS", "SKIPPED")]
        words = "; ".join(f"{v.subject.id} {v.check} {v.verdict} {v.reason_code}" for v in bad[:4]) or "nothing"
        trial = f"{stage}: {what} (seed {seed}, trial {number}): "
        is_found = any(v.verdict in (FAIL, found.verdict) and v.reason_code in found.codes and v.subject.id in found.at for v in bad)
        if found.verdict == PASS:
            told = [said for key, record in judgement.deciding.items() if key.subject in found.at for said in record.context["told"]]
            is_found = any(all(code in said for code in found.codes) for said in told)
        if not is_found or judgement.accepted != (found.verdict in (WARN, PASS)):
            accepts.append(f"{trial}found {words}")
        beside = {UNKNOWN: {*found.at, *found.beside}}
        rejects += [
            f"{trial}{v.subject.id} {v.check} is named: {v.verdict}: {v.reason}"
            for v in bad if v.subject.id not in beside.get(v.verdict, found.at)
        ]  # fmt: skip
    for number in range(2 * HEALTHY):
        source = random.Random(f"{seed} healthy {number}")
        stage, of = healthy(source, number)
        judgement = judged(stage, of, folder / "trial")
        bad = [verdict for verdict in judgement.verdicts if verdict.verdict not in ("PASS", "SKIPPED")]
        if bad or not judgement.accepted:
            words = "; ".join(f"{v.subject.id} {v.check} {v.verdict}: {v.reason}" for v in bad[:2])
            rejects.append(f"{stage}: healthy (seed {seed}, trial {number}): {words or 'not accepted'}")
    return len(trials), accepts, rejects
