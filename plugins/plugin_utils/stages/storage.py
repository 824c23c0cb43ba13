# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `storage`: the file systems that `acceptance_storage` names, on every node.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import re
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage import checks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands, peer_comparison
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import form
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    Measurement,
    PlainData,
    PlanItem,
    Variables,
    Verdict,
    is_number,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Section
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.subjects import counted
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import base
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import Range

VARIABLE = "acceptance_storage"
_FORM = "{name, path, shared, mounted, gibps_read, gibps_write, gibps_read_all, gibps_write_all}"
# Rates that an entry may state, and the checks that are held to them.
_STATED = (checks.READ, checks.WRITE)
# Checks whose numbers are rates of the file system itself, past the page cache.
_RATES = (*_STATED, *checks.RANDOM, checks.GPUDIRECT)
# Folders of the kernel's own, in which nothing is stored.
_NO_STORAGE = ("/dev", "/proc", "/sys")
# Two nodes that differ do not tell which of them is wrong.
_MAJORITY_OF = 3
# The size of a shared file system changes by less than this part while nodes look at it, also where it is what is used and free.
SIZE_DIFFERS = 0.1
# Of `metadata` for one file, on a local file system: a million took 400 s.
FILE_S = 0.0004
# How many nodes of each file system the report shows, the slowest first.
SHOWN = 20
_COLUMNS = (
    (checks.WRITE, "write (GiB/s)"), (checks.READ, "read (GiB/s)"),
    ("random_read", "random reads /s"), ("random_write", "random writes /s"), (checks.METADATA, "files /s"),
)  # fmt: skip


# The form of what a node says of a mount.
_is_mount = form.with_keys(place=form.is_text, kind=form.is_text, source=form.is_text, options=form.list_of(form.is_text))


class Storage(base.Stage):
    name = "storage"
    role = "gpufleet.acceptance.storage"
    place = 45
    level = "full"
    optional = True
    # Rates are held to what the inventory states, to expectations or to other nodes; where there are none of them, opinions() says so.
    conditions = frozenset(checks.NAMED)
    sees: t.Mapping[str, tuple[str, ...]] = {"storage": (checks.MOUNT, checks.VERIFY)}
    ranges: t.Mapping[str, Range] = {
        "gib": Range(0.05, 65536, "GiB"), "share": Range(0, 50, "percent", above=True), "seconds": Range(1, 3600, "seconds"),
        "jobs": Range(1, 256), "depth": Range(1, 1024), "nodes": Range(1, 1 << 20), "files": Range(1, 10_000_000),
    }  # fmt: skip

    def isolation(self, settings: Variables) -> base.Isolation:
        return {"host_root": False, "on_gpu_nodes": False}

    def problem(self, settings: Variables) -> str | None:
        unknown = [test for test in settings["storage_tests"] if test not in checks.NAMED]
        if unknown:
            return f"storage_tests: found {unknown[0]!r}, expected {', '.join(checks.NAMED)}"
        seconds, limit = float(settings.get("storage_seconds", 0)), float(settings.get("storage_test_timeout", 0))
        if 0 < limit <= seconds:
            return f"storage_test_timeout: found {limit:g}, expected more than the {seconds:g} s of storage_seconds"
        rates = sum(check.get("check") in _RATES for check in settings.get(f"{self.name}_checks") or ())
        deadline = float(settings.get("storage_timeout", 0))
        if 0 < deadline <= seconds * rates:
            return f"storage_timeout: found {deadline:g}, expected more than {seconds * rates:g}: storage_seconds for each of {rates} rates"
        return entries_problem(settings.get(VARIABLE) or [])

    def lacks(self, fault: str, measurement: Measurement) -> str | None:
        """Disks take no part where the data stays in memory."""
        unlike = measurement.context.get("unlike")
        return f"no disk took part: {unlike}" if unlike and measurement.outcome == "measured" else super().lacks(fault, measurement)

    def items(self, nodes: base.Nodes, settings: base.Settings) -> tuple[t.Sequence[PlanItem | PlainData], list[str]]:
        items, notes = super().items(nodes, settings)
        without = sorted({target for target in nodes.values() if not settings[target][f"{self.name}_checks"]})
        if without:
            more = f" and {len(without) - 3} more" if len(without) > 3 else ""
            bare = not any(settings[target].get(VARIABLE) for target in without)
            reason = f"{VARIABLE} names no file system there" if bare else "storage_tests names no check that is made on its file systems"
            notes.append(f"stage {self.name}: skipped on {', '.join(without[:3])}{more}: {reason}")
        return items, notes

    def by_number(self, nodes: base.Nodes) -> Variables:
        """Return how many nodes may write to a shared file system at one time."""
        return {"nodes": max(1, len(nodes))}

    def seconds(self, settings: Variables, nodes: int, launch_s: float, gbps: float) -> float:
        """Return the time of all checks: each writes or reads for `storage_seconds` at most, the first piece comes on top; `metadata` takes
        longer where it has many files."""
        made = [check for check, _variant in settings.get(f"{self.name}_checks") or ()]
        each_s = float(settings["storage_seconds"])
        more_s = max(0.0, FILE_S * float(settings.get("storage_files") or 0) - each_s)
        return each_s * len(made) + more_s * made.count(checks.METADATA)

    def opinions(
        self, deciding: t.Mapping[Key, Measurement], records: list[Measurement], expected: base.Expected, tables: list[Table]
    ) -> t.Iterator[tuple[Key, Opinion]]:
        """Yield an opinion for each rate that is below what the inventory states, or that can be held to nothing, and for each node that
        mounts a file system in another way than the others."""
        own_records = {key: record for key, record in deciding.items() if key.stage == self.name and record.outcome == "measured"}
        yield from _rates(own_records, expected)
        by_storage: dict[tuple[str, str], dict[Key, Measurement]] = collections.defaultdict(dict)
        for key, record in own_records.items():
            if key.check == checks.MOUNT and not _is_mount(record.context.get("mount")):
                yield key, Opinion("UNKNOWN", "the node does not say how the file system is mounted", "bad_measurement")
            elif key.check == checks.MOUNT:
                machine = "" if record.context.get("shared") else str(record.context.get("machine"))
                by_storage[str(record.context.get("storage")), machine][key] = record
        for (name, _machine), of_storage in by_storage.items():
            yield from _mounts(name, of_storage)
            yield from _sizes(name, of_storage)

    def sections(self, rows: list[tuple[Verdict, Measurement]]) -> list[Section]:
        """Return, for each file system, what was tested as it, and a table of the nodes, those that read slowest first."""
        values: dict[str, dict[str, dict[str, float]]] = collections.defaultdict(lambda: collections.defaultdict(dict))
        places: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for _verdict, m in rows:
            if m.stage != self.name:
                continue
            number, name = _number(m), str(m.context.get("storage"))
            if number is not None:
                values[name][m.subject.id][m.check] = number
            if m.check == checks.MOUNT and _is_mount(m.context.get("mount")):
                places[name][_place(m.context)] += 1
        sections = []
        for name in sorted(values.keys() | places.keys()):
            by_node = values[name]
            slowest = sorted(by_node.items(), key=lambda of: (of[1].get(checks.READ, 0.0), of[0]))[:SHOWN]
            table = [[node, *(f"{of[check]:.4g}" if check in of else "" for check, _words in _COLUMNS)] for node, of in slowest]
            said = [f"Tested was {place}, on {counted(['node'] * nodes)}." for place, nodes in places[name].most_common(SHOWN)]
            if len(by_node) > 1:
                said.append(f"The {len(table)} of {len(by_node)} nodes that read slowest.")
            columns = ["node", *(words for _check, words in _COLUMNS)]
            sections.append(Section(title=f"File system {name}", said=said, columns=columns, rows=table))
        return sections


def entries_problem(entries: t.Any) -> str | None:
    """Return the first error in a value of acceptance_storage, None if there is none."""
    if not isinstance(entries, list):
        return f"{VARIABLE}: found {entries!r}, expected a list of {_FORM}"
    names: list[str] = []
    paths: list[str] = []
    for number, entry in enumerate(entries):
        where = f"{VARIABLE}[{number}]"
        if not isinstance(entry, dict):
            return f"{where}: found {entry!r}, expected {_FORM}"
        unknown = sorted(set(map(str, entry)) - set(re.findall(r"\w+", _FORM)))
        if unknown:
            return f"{where}: found the key {unknown[0]!r}, expected {_FORM}"
        problem = _entry_problem(where, entry)
        if problem:
            return problem
        for what, value, seen in (("name", entry["name"], names), ("path", entry["path"].rstrip("/"), paths)):
            if value in seen:
                return f"{where}: {what}: found {value!r} a second time, expected another one for each entry"
            seen.append(value)
    return None


def _entry_problem(where: str, entry: t.Mapping[str, t.Any]) -> str | None:
    name, path = entry.get("name"), entry.get("path")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", name):
        rest = "as a text: put it between quotes" if is_number(name) else "a letter or digit first, 63 of them at most"
        return f"{where}: name: found {name!r}, expected letters, digits, '_', '.' and '-', {rest}"
    is_path = isinstance(path, str) and path.startswith("/") and path.isprintable() and "\\" not in path
    parts = str(path).strip("/").split("/") if is_path else [""]
    if not isinstance(path, str) or any(part in ("", ".", "..") for part in parts):
        return f"{where}: path: found {path!r}, expected the absolute path of a folder below /, on a file system to be tested"
    if any(path == folder or path.startswith(f"{folder}/") for folder in _NO_STORAGE) and not f"{path}/".startswith("/dev/shm/"):
        return f"{where}: path: found {path!r}, expected a folder of a file system; devices are never written to"
    for key in ("shared", "mounted"):
        if not isinstance(entry.get(key, False), bool):
            return f"{where}: {key}: found {entry[key]!r}, expected true or false"
    for rate in _STATED:
        if entry.get("shared") and f"gibps_{rate}" in entry:
            return f"{where}: gibps_{rate}: found with shared: true, expected gibps_{rate}_all: its rates are those of all nodes"
        if not entry.get("shared") and f"gibps_{rate}_all" in entry:
            return f"{where}: gibps_{rate}_all: found without shared: true, expected gibps_{rate}"
        for key in (f"gibps_{rate}", f"gibps_{rate}_all"):
            stated = entry.get(key, 1)
            if not is_number(stated) or not 0 < stated < 1e6:
                return f"{where}: {key}: found {stated!r}, expected GiB/s as a number above 0"
    return None


def _rates(own_records: t.Mapping[Key, Measurement], expected: base.Expected) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield an opinion for each rate that is not one of the file system, for each sequential one below the stated one, and for each that
    nothing says anything of."""
    alike: dict[tuple[str, str, str], int] = collections.Counter()
    rates = {key: record for key, record in own_records.items() if key.check in _RATES}
    for key, record in rates.items():
        alike[key.check, key.variant, peer_comparison.hardware(record)] += 1
    for key, record in rates.items():
        stated = record.context.get("stated")
        value = stated.get(key.check) if isinstance(stated, dict) else None
        if record.context.get("comparable") is False:
            unlike = record.context.get("unlike") or "they did not go past the memory of the machine"
            yield key, Opinion("UNKNOWN", f"rates of {record.context.get('storage')} say nothing of its disks: {unlike}", "unchecked")
        elif key.check not in _STATED:
            continue  # held to an expectation or to other nodes, if there are any
        elif is_number(value) and value > 0:
            opinion = _held(key, record, float(value))
            if opinion.verdict != "PASS":
                yield key, opinion
        elif not expected(node_of(key.subject), record.target).choose(key.stage, key.check, record.context):
            count = alike[key.check, key.variant, peer_comparison.hardware(record)]
            if count <= bands.NEIGHBOURS:
                reason = (
                    f"no expectation for {key.check} of {record.context.get('storage')}, and {count - 1} other nodes to compare with, "
                    f"{bands.NEIGHBOURS} are needed: set gibps_{key.check} in {VARIABLE}"
                )
                yield key, Opinion("UNKNOWN", reason, "no_expectation")


def _held(key: Key, record: Measurement, value: float) -> Opinion:
    """Return the opinion on a rate that the inventory states, in GiB/s."""
    name = f"{VARIABLE}: gibps_{key.check} of {record.context.get('storage')}"
    entry = Expectation(
        id=f"stated-{key.check}", match={"stage": key.stage, "check": key.check}, metric="bandwidth", value=value, unit="GiB/s",
        source=name, date="", confidence="vendor", layer="host", rank=2, origin=name,
    )  # fmt: skip
    try:
        reading = bands.reading(record, "bandwidth", None)
    except bands.Unusable as error:
        return Opinion("UNKNOWN", str(error), "bad_measurement", metric="bandwidth")
    if reading is None:
        return Opinion("UNKNOWN", f"it has no bandwidth, and {name} expects {value:g} GiB/s", "no_number")
    return bands.held(reading, entry, record.context)


def _mounts(name: str, of_storage: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield an opinion for each node that has another kind of file system at a path than most nodes (FAIL), or other mount options or
    another server (WARN). Without a majority all nodes are named."""
    kinds = {key: _kind(record.context) for key, record in of_storage.items()}
    for key, reason, certain in _differing(kinds, name, "is on"):
        yield key, Opinion("FAIL" if certain else "UNKNOWN", reason, "mount_differs")
    for kind in set(kinds.values()):
        options = {key: _options(record.context) for key, record in of_storage.items() if kinds[key] == kind}
        for key, reason, _certain in _differing(options, name, "is mounted with"):
            yield key, Opinion("WARN", reason, "mount_differs")


def _sizes(name: str, of_storage: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield WARN for each node to which a shared file system says another size than to most: quotas of folders show as its size."""
    known = {key: record.context.get("size_gib") for key, record in of_storage.items() if record.context.get("shared")}
    sizes = {key: float(size) for key, size in known.items() if is_number(size) and size > 0}
    if len(sizes) < _MAJORITY_OF:
        return
    middle = statistics.median(sizes.values())
    for key, size in sizes.items():
        if abs(size - middle) > SIZE_DIFFERS * middle:
            words = f"{name} has {size:.4g} GiB here, {middle:.4g} GiB on most nodes: another quota, or another file system"
            yield key, Opinion("WARN", words, "mount_differs", size, "GiB")


def _differing(values: t.Mapping[Key, str], name: str, verb: str) -> t.Iterator[tuple[Key, str, bool]]:
    """Yield (key, reason, whether a majority says what is right) for each value that is not that of more than half of all."""
    counts = collections.Counter(values.values())
    if len(counts) < 2:
        return
    usual, count = max(sorted(counts.items()), key=lambda of: of[1])
    certain = 2 * count > len(values) and len(values) >= _MAJORITY_OF
    for key, value in values.items():
        if certain and value != usual:
            yield key, f"{name} {verb} {value} here, on {count} of {len(values)} nodes with {usual}", True
        elif not certain:
            others = "; ".join(f"{other} on {many}" for other, many in sorted(counts.items()) if other != value)
            yield key, f"{name} {verb} {value} here, and elsewhere with {others}: no majority says which is right", False


def _kind(context: PlainData) -> str:
    kind = str(context["mount"].get("kind"))
    return f"{kind}{', mounted there' if context.get('is_mount_point') else ', a folder of another file system'}"


def _place(context: PlainData) -> str:
    """Return what was tested as a file system: its kind, and where it is mounted."""
    place, path = context["mount"].get("place"), context.get("path")
    return f"{context['mount'].get('kind')} mounted at {place}{'' if context.get('is_mount_point') else f', of which {path} is a folder'}"


def _options(context: PlainData) -> str:
    """Return the mount options; of a file system of a network with its server."""
    mount = context["mount"]
    options = ",".join(map(str, mount.get("options") or ()))
    return f"{options} from {mount.get('source')}" if context.get("shared") else options


def _number(m: Measurement) -> float | None:
    """Return the number of a check that the report shows."""
    metric = next((m.metrics[name] for name in ("bandwidth", "iops", "operations") if name in m.metrics), None)
    return float(metric.value) if m.outcome == "measured" and metric is not None and is_number(metric.value) else None


STAGE = Storage()
