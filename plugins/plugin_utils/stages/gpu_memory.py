# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `gpu_memory`: copies between host and GPUs, between GPUs and inside their memory, and a test of that memory.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected.matching import PASS_FROM, WARN_FROM
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import gpu_memory as probe
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, Variables, Verdict, is_number
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Section
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Expected, Stage
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import Range

# How many nodes' matrices, and how many ways from far memory, the report shows.
SHOWN_NODES, SHOWN_WAYS = 3, 20
# Two GPUs have no siblings to be compared with: below this share of the other direction one direction of their link is bad. Two H100 of one
# host differed by 1.3 %.
OTHER_DIRECTION = 0.7
# GB/s of one direction that no PCIe link of 16 lanes reaches (generation 6: 121), and how many GPUs must reach one another equally fast.
FASTER_THAN_PCIE, LEAST_ALIKE = 128.0, 3


class GpuMemory(Stage):
    name = "gpu_memory"
    role = "gpufleet.acceptance.gpu_memory"
    place = 15
    level = "standard"
    # What GPUs share on the way to the host, and which memory is far, differs between machines: these checks are held to the other GPUs of
    # the node and to identical machines, and to an expectation where the inventory has one.
    conditions = frozenset({*probe.TOGETHER, *probe.PEERS, "numa", "latency", "pattern"})
    shown_only = frozenset(probe.UNSTEADY) & conditions
    devices = True
    sees_all_gpus = True
    sees: t.Mapping[str, tuple[str, ...]] = {
        "pcie": (*probe.BETWEEN, *probe.TOGETHER, "numa", "latency"), "device_memory": probe.INSIDE, "nvlink": probe.PEERS,
    }  # fmt: skip
    # A copy of less than 16 MiB measures the call, and one of more than 4 GiB no host pins for eight GPUs.
    ranges: t.Mapping[str, Range] = {"mib": Range(16, 4096, "MiB"), "copies": Range(2, 1000), "passes": Range(1, 1000)}
    requestable = ("tests", "mib", "copies", "passes", "seed")
    quick = {"tests": ["h2d", "d2h", "bidirectional", "device", "pattern"], "copies": 6, "mib": 128, "test_timeout": 75, "timeout": 90}
    not_proven = "copies of all GPUs at once and from far memory"

    def problem(self, settings: Variables) -> str | None:
        unknown = [test for test in settings["gpu_memory_tests"] if test not in probe.CHECKS]
        if unknown:
            return f"gpu_memory_tests: found {unknown[0]!r}, expected {', '.join(probe.CHECKS)}"
        return None

    def opinions(
        self, deciding: t.Mapping[Key, Measurement], records: list[Measurement], expected: Expected, tables: list[Table]
    ) -> t.Iterator[tuple[Key, Opinion]]:
        """Yield an opinion for each GPU that does not reach the others directly although it should, and for each that sends to or receives
        from them more slowly than its siblings. The number of a GPU is that of its slowest copy to another one: if all copies to one GPU
        are slow, all others have the same low number."""
        for key, m in deciding.items():
            if m.stage == self.name and m.check in probe.PEERS and m.outcome == "measured" and m.series:
                for gpu, opinion in (*_indirect_gpus(m), *_slow_gpus(m)):
                    of_gpu = key if gpu is None else _key_of_gpu(key, m, gpu)
                    yield of_gpu if of_gpu in deciding else key, opinion

    def sections(self, rows: list[tuple[Verdict, Measurement]]) -> list[Section]:
        """Return the matrix of copies between GPUs of the nodes with the slowest ones, and the slowest copies from far memory."""
        nodes = [m for _verdict, m in rows if m.stage == self.name and m.outcome == "measured" and m.series]
        sections = []
        for check, how in (("peer", "each pair alone"), ("peer_all", "all GPUs sending at once")):
            slowest = sorted((m for m in nodes if m.check == check), key=lambda m: min(_rates(m, "bandwidth"), default=0.0))
            sections += [_matrix(m, how) for m in slowest[: SHOWN_NODES if check == "peer" else 1]]
        copies = [
            (row[name], m.subject.id, f"GPU {row.get('gpu')} {word} NUMA node {row.get('node')}")
            for m in nodes if m.check == "numa" for row in m.series for name, word in (("h2d", "from"), ("d2h", "to"))
            if is_number(row.get(name))
        ]  # fmt: skip
        if copies:
            table = [[node, copy_text, f"{rate:.1f}"] for rate, node, copy_text in sorted(copies)[:SHOWN_WAYS]]
            lines = [f"Copies from and to the memory of a NUMA node that is not the GPU's own; the {SHOWN_WAYS} slowest of the run."]
            sections.append({"title": "Copies from far memory", "said": lines, "columns": ["node", "way", "GB/s"], "rows": table})
        return sections


def _key_of_gpu(key: Key, m: Measurement, gpu: t.Any) -> Key:
    """Return the key of a GPU in a check of its node, by the place of its rows; that of the node if its UUID is not known."""
    gpus, uuids = list(dict.fromkeys(row.get("gpu") for row in m.series)), m.context.get("gpu_uuids")
    if not isinstance(uuids, list) or len(uuids) != len(gpus):
        return key
    return key._replace(subject=f"{key.subject}/gpu/{uuids[gpus.index(gpu)]}")


def _indirect_gpus(m: Measurement) -> t.Iterator[tuple[t.Any, Opinion]]:
    """Yield the index and an opinion of each GPU whose copies go through the host's memory although they should not; the index is None if
    that holds for all GPUs of the node. What GPUs should do is known by what they are (`board` of a row), or by their siblings; where no
    card of PCIe slots reaches another one directly, as in most virtual machines, nothing is wrong."""
    rows = {(row.get("gpu"), row.get("to")): row for row in m.series if isinstance(row.get("direct"), bool)}
    direct = {way: row["direct"] for way, row in rows.items()}
    boards = [way for way, row in rows.items() if row.get("board") is True]
    gpus = list(dict.fromkeys(gpu for way in direct for gpu in way))
    lacking = [way for way in boards if not direct[way]]
    if lacking and len(lacking) == len(boards):
        yield None, _indirect(m, None, "FAIL", "its NVLinks join all of them")
        return
    alone = [gpu for gpu in gpus if not any(is_direct for way, is_direct in direct.items() if gpu in way)]
    if lacking:
        on_board = {gpu for way in lacking for gpu in way}
        for gpu in [one for one in alone if one in on_board] or sorted(on_board, key=str):
            yield gpu, _indirect(m, gpu, "FAIL", "NVLinks of its board join it with them")
        return
    others = [gpu for gpu in gpus if gpu not in alone]
    if not alone or len(others) <= len(alone):
        return
    near = {way: row.get("near") for way, row in rows.items()}
    among = [way for way in direct if not set(way) & set(alone)]
    connected = all(direct[way] for way in among)
    for gpu in alone:
        own = {near[way] for way in direct if gpu in way}
        if own == {False} and not any(near[way] is False and direct[way] for way in among):
            continue  # it is the only one of its NUMA node, and nothing reaches across
        if connected and (True in own or False in own):
            yield gpu, _indirect(m, gpu, "FAIL", "all others reach one another directly")
        elif connected:
            unknown = "all others reach one another directly; whether its slot is far from theirs is not known"
            yield gpu, _indirect(m, gpu, "UNKNOWN", unknown)
        else:
            yield gpu, _indirect(m, gpu, "WARN", "each of the others reaches one directly")


def _indirect(m: Measurement, gpu: t.Any, verdict: str, why: str) -> Opinion:
    """Return the opinion on a GPU, or on all of a node, that reaches the others through the host's memory only."""
    rates = [float(row["bandwidth"]) for row in m.series if gpu in (None, row.get("gpu"), row.get("to")) and row.get("direct") is not True
             and is_number(row.get("bandwidth"))]  # fmt: skip
    rate = min(rates, default=0.0)
    who = "no GPU reaches another one directly" if gpu is None else f"GPU {gpu} does not reach the other GPUs directly"
    reason = f"{who}: {rate:.4g} GB/s through the host's memory, and {why}"
    return Opinion(verdict, reason, "no_peer_access", rate, "GB/s", metric="bandwidth")


def _slow_gpus(m: Measurement) -> t.Iterator[tuple[t.Any, Opinion]]:
    """Yield the index and an opinion of each GPU that sends or receives more slowly than the others of its node, by the median of its
    copies, if the others reach one another equally fast and faster than PCIe. Where ways are of several kinds, a slow GPU may be one that
    is far away."""
    rates = {
        (row.get("gpu"), row.get("to")): float(row["bandwidth"])
        for row in m.series if row.get("direct") is True and is_number(row.get("bandwidth"))
    }  # fmt: skip
    gpus = list(dict.fromkeys(gpu for gpu, _to in rates))
    if len(gpus) < 2 or len(rates) != len(gpus) * (len(gpus) - 1):
        return
    if len(gpus) == 2:
        (gpu, rate), (_other, other_rate) = sorted(((to, rate) for (_gpu, to), rate in rates.items()), key=lambda way: way[1])
        if m.check == "peer" and rate < OTHER_DIRECTION * other_rate:
            yield gpu, _slow(gpu, "receives", rate, other_rate, "FAIL", OTHER_DIRECTION, "the other direction of the link")
        return
    medians = {
        (gpu, does): statistics.median(rate for way, rate in rates.items() if way[end] == gpu)
        for gpu in gpus for end, does in enumerate(("sends", "receives"))
    }  # fmt: skip
    usual = PASS_FROM * statistics.median(rates.values())
    suspects = {gpu for (gpu, _does), rate in medians.items() if rate < usual}
    among_others = [rate for way, rate in rates.items() if not suspects & set(way)]
    median = statistics.median(among_others) if among_others else 0.0
    are_alike = median > FASTER_THAN_PCIE and min(among_others) >= WARN_FROM * median
    if not are_alike or len(gpus) - len(suspects) < max(LEAST_ALIKE, len(gpus) // 2 + 1):
        return
    for (gpu, does), rate in medians.items():
        if gpu in suspects and rate < PASS_FROM * median:
            yield gpu, _slow(gpu, does, rate, median, "FAIL" if rate < WARN_FROM * median else "WARN")


def _slow(
    gpu: t.Any, does: str, rate: float, usual: float, verdict: str, share: float = PASS_FROM,
    than: str = "the median of the node's other GPUs",
) -> Opinion:  # fmt: skip
    """Return the opinion on a GPU whose rate is below a share of what is usual. Rates are GB/s; `than` says what `usual` is."""
    reason = f"GPU {gpu} {does} at {rate:.5g} GB/s (median of its copies), {rate / usual:.3f} of {than}, {usual:.5g} GB/s"
    return Opinion(
        verdict, reason, "below_siblings", rate, "GB/s", float(f"{share * usual:.9g}"), "fleet", than, "measured",
        metric="bandwidth", expected=usual,
    )  # fmt: skip


def _rates(m: Measurement, name: str) -> list[float]:
    return [float(row[name]) for row in m.series if is_number(row.get(name))]


def _matrix(m: Measurement, how: str) -> Section:
    """Return the table of copies between the GPUs of a node, in GB/s; `*` marks those that go through the host's memory."""
    cells: dict[tuple[str, str], str] = {}
    for row in m.series:
        if is_number(row.get("bandwidth")):
            cells[str(row.get("gpu")), str(row.get("to"))] = f"{row['bandwidth']:.0f}{'' if row.get('direct') else ' *'}"
    ends = [sorted({pair[end] for pair in cells}, key=lambda name: name.zfill(4)) for end in (0, 1)]
    table = [[f"GPU {source}", *(cells.get((source, to), "") for to in ends[1])] for source in ends[0]]
    lines = [f"GB/s from the GPU of the row to that of the column, {how}; * marks a way through the host's memory."]
    columns = ["", *(f"GPU {to}" for to in ends[1])]
    title = f"Copies between the GPUs of {m.subject.id}{', all at once' if m.check == 'peer_all' else ''}"
    return {"title": title, "said": lines, "columns": columns, "rows": table}


STAGE = GpuMemory()
