# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Physical limits of hardware, and the lint of expectations against them.

Rates are of one direction, in GB/s (10^9 bytes) per GPU unless a name says otherwise; TFLOPS are dense.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nccl
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import matching, slots
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Context, Match, is_number

# Exact factors to the base unit of each kind: bytes per second, seconds, FLOPS ...
UNITS: dict[str, tuple[str, float]] = {
    "GB/s": ("rate", 1e9),
    "MB/s": ("rate", 1e6),
    "GiB/s": ("rate", float(1 << 30)),
    "MiB/s": ("rate", float(1 << 20)),
    "Gb/s": ("rate", 1.25e8),
    "Mb/s": ("rate", 1.25e5),
    "TFLOPS": ("flops", 1e12),
    "GFLOPS": ("flops", 1e9),
    "us": ("time", 1e-6),
    "ms": ("time", 1e-3),
    "s": ("time", 1.0),
    "W": ("power", 1.0),
    "C": ("temperature", 1.0),
    "MHz": ("frequency", 1e6),
    "B": ("bytes", 1.0),
    "count": ("count", 1.0),
    "percent": ("percent", 1.0),
    "Mpps": ("packets", 1e6),
}

# Below this share of the physical limit a value is no healthy number of anything, unless its `note` says why.
ABSURD = 0.3
# How far above the datasheet a measured value may lie before it is no number of this hardware, by metric, and why.
# busbw: the driver counts NVLink 4 and 5 at 26.5625 and 53.125 GB/s per link, where the datasheet says 25 and 50.
# tflops: datasheets give tensor cores at 1830 MHz (Hopper), and the clock goes up to 1980.
# bandwidth: perftest takes the time from the processor's clock, whose frequency it estimates; it prints two decimals.
ABOVE = {"busbw": 0.0625, "tflops": 0.10, "bandwidth": 0.02, "read": 0.02}
# An RDMA message crosses PCIe on both sides, each some 0.1 us one way; the fastest adapters need 0.6 us for all of it.
LEAST_LATENCY_US = 0.1
# RDMA in software: what the port says of its rate is an invention.
SOFTWARE_NICS = ("rdma_rxe", "siw")
# What an entry's source says of another entry's value: `[id value]`, after `as ` or `0.96 x ` that is its own value too.
CITED = re.compile(r"(?:\b(as|[0-9.]+ x) )?\[([A-Za-z0-9][A-Za-z0-9_.:+-]*) ([0-9.]+)\]")
# An entry this far under another one for the very same thing accepts a node that lost half its links: a B200 gate of
# 440 GB/s in use elsewhere is 0.53 of the 838 that a healthy node gives.
FAR_UNDER = 0.6


class Gpu(t.NamedTuple):
    """NVLink links per GPU and their rate; PCIe generation and lanes; dense peak TFLOPS by type (datasheets)."""

    links: int
    link_rate: float
    pcie: tuple[int, int]
    peak: dict[str, float]


# fp64 is that of the tensor cores where they have it. Where a datasheet rounds a cut fp64 to one digit (T4, H20, H800, L40S, B300) it is
# no limit.
_VOLTA = {"fp16": 125.0, "fp32": 15.7, "fp64": 7.8}
_AMPERE = {"bf16": 312.0, "fp16": 312.0, "tf32": 156.0, "fp32": 19.5, "fp64": 19.5}
_H800 = {"bf16": 989.5, "fp16": 989.5, "tf32": 494.7, "fp8": 1979.0, "fp32": 67.0}
_HOPPER = {**_H800, "fp64": 67.0}
_HOPPER_PCIE = {"bf16": 756.5, "fp16": 756.5, "tf32": 378.0, "fp8": 1513.0, "fp32": 51.0, "fp64": 51.0}
_HOPPER_NVL = {"bf16": 835.5, "fp16": 835.5, "tf32": 417.5, "fp8": 1671.0, "fp32": 60.0, "fp64": 60.0}
_H20 = {"bf16": 148.0, "fp16": 148.0, "tf32": 74.0, "fp8": 296.0, "fp32": 44.0}
_B300 = {"bf16": 2250.0, "fp16": 2250.0, "tf32": 1125.0, "fp8": 4500.0, "fp32": 75.0}
_B200 = {**_B300, "fp64": 40.0}
_GB300 = {"bf16": 2500.0, "fp16": 2500.0, "tf32": 1250.0, "fp8": 5000.0, "fp32": 80.0}
_GB200 = {**_GB300, "fp64": 40.0}
_RTX_PRO_6000 = {"bf16": 503.8, "fp16": 503.8, "tf32": 251.9, "fp8": 1007.6, "fp32": 125.0}
_L40S = {"bf16": 362.0, "fp16": 362.0, "tf32": 183.0, "fp8": 733.0, "fp32": 91.6}
_MI300X = {"bf16": 1307.0, "fp16": 1307.0, "tf32": 653.7, "fp8": 2615.0, "fp32": 163.4, "fp64": 163.4}
_MI350X = {"bf16": 2300.0, "fp16": 2300.0, "fp8": 4600.0, "fp32": 144.2, "fp64": 72.1}
_MI355X = {"bf16": 2500.0, "fp16": 2500.0, "fp8": 5000.0, "fp32": 157.3, "fp64": 78.6}

# By the product name that nvidia-smi prints; the first pattern that matches the whole name counts.
GPUS: tuple[tuple[str, Gpu], ...] = (
    (r"(Tesla|NVIDIA) V100-SXM.*", Gpu(6, 25.0, (3, 16), _VOLTA)),
    (r"(Tesla|NVIDIA) V100S-PCIE.*", Gpu(0, 0.0, (3, 16), {"fp16": 130.0, "fp32": 16.4, "fp64": 8.2})),
    (r"(Tesla|NVIDIA) V100-PCIE.*", Gpu(0, 0.0, (3, 16), {"fp16": 112.0, "fp32": 14.0, "fp64": 7.0})),
    (r"(Tesla|NVIDIA) T4", Gpu(0, 0.0, (3, 16), {"fp16": 65.0, "fp32": 8.1})),
    (r"NVIDIA A100-SXM.*", Gpu(12, 25.0, (4, 16), _AMPERE)),
    (r"NVIDIA A100.*PCIe?.*|NVIDIA A100-PCIE.*", Gpu(12, 25.0, (4, 16), _AMPERE)),
    (r"NVIDIA A800.*", Gpu(8, 25.0, (4, 16), _AMPERE)),
    (r"NVIDIA (H100|H800) PCIe", Gpu(12, 25.0, (5, 16), _HOPPER_PCIE)),
    (r"NVIDIA H100 NVL", Gpu(12, 25.0, (5, 16), _HOPPER_NVL)),
    (r"NVIDIA H200 NVL", Gpu(18, 25.0, (5, 16), _HOPPER_NVL)),
    (r"NVIDIA (H100|H200|GH200).*", Gpu(18, 25.0, (5, 16), _HOPPER)),
    (r"NVIDIA H800.*", Gpu(8, 25.0, (5, 16), _H800)),
    (r"NVIDIA H20(-3e)?", Gpu(18, 25.0, (5, 16), _H20)),
    (r"NVIDIA GB200.*", Gpu(18, 50.0, (6, 16), _GB200)),
    (r"NVIDIA GB300.*", Gpu(18, 50.0, (6, 16), _GB300)),
    (r"NVIDIA B200.*", Gpu(18, 50.0, (6, 16), _B200)),
    (r"NVIDIA B300.*", Gpu(18, 50.0, (6, 16), _B300)),
    (r"NVIDIA L40S", Gpu(0, 0.0, (4, 16), _L40S)),
    (r"NVIDIA RTX PRO 6000 Blackwell.*", Gpu(0, 0.0, (5, 16), _RTX_PRO_6000)),
    # Seven xGMI links of 64 GB/s, later 76.5, in a full mesh.
    (r"AMD Instinct MI3(00|25)X.*", Gpu(7, 64.0, (5, 16), _MI300X)),
    (r"AMD Instinct MI350X.*", Gpu(7, 76.5, (5, 16), _MI350X)),
    (r"AMD Instinct MI355X.*", Gpu(7, 76.5, (5, 16), _MI355X)),
)

# Checks of copies between host and GPU.
HOST_COPIES = ("h2d", "d2h", "bidirectional", "h2d_all", "d2h_all", "bidirectional_all", "numa")
# Bandwidth of a GPU's memory, GB/s (datasheets): what is read and written together cannot be more.
MEMORY: tuple[tuple[str, float], ...] = (
    (r"(Tesla|NVIDIA) V100S-PCIE.*", 1134.0),
    (r"(Tesla|NVIDIA) V100-(SXM|PCIE).*", 900.0),
    (r"(Tesla|NVIDIA) T4", 320.0),
    (r"NVIDIA A[18]00.*40GB.*", 1555.0),
    (r"NVIDIA A[18]00-SXM.*80GB", 2039.0),
    (r"NVIDIA A[18]00.*80GB.*", 1935.0),
    (r"NVIDIA (H100|H800) PCIe|NVIDIA H100 80GB HBM2e", 2039.0),
    (r"NVIDIA H100 NVL", 3938.0),
    (r"NVIDIA (H100|H800)( 80GB HBM3)?", 3352.0),
    (r"NVIDIA H20", 4000.0),
    (r"NVIDIA (H200.*|H20-3e)", 4800.0),
    (r"NVIDIA GH200 144G.*", 4900.0),
    (r"NVIDIA GH200.*", 4000.0),
    (r"NVIDIA G?B[23]00.*", 8000.0),
    (r"NVIDIA L40S", 864.0),
    (r"NVIDIA RTX PRO 6000 Blackwell.*", 1792.0),
    (r"AMD Instinct MI300X.*", 5300.0),
    (r"AMD Instinct MI325X.*", 6000.0),
    (r"AMD Instinct MI35[05]X.*", 8000.0),
)

# How many GPUs stand on the boards of a model, by its product name: HGX and OAM baseboards have 4 or 8 (HGX A100 and DGX-2 join two of
# them), trays of Grace superchips 4 or 2 (NVL72 compute tray, NVL2). Cards for slots, and a GH200 alone, come in any number.
BOARDS: tuple[tuple[str, tuple[int, ...]], ...] = (
    (r"NVIDIA (H100|H200) (PCIe|NVL)|NVIDIA H100 80GB HBM2e|NVIDIA H800 PCIe|NVIDIA A800.*(PCIe?|40GB Active).*", ()),
    (r"NVIDIA (A100-SXM|A800-SXM).*|(Tesla|NVIDIA) V100-SXM.*", (4, 8, 16)),
    (r"NVIDIA GB[23]00.*", (2, 4)),
    (r"NVIDIA (H100|H200|H800|H20|B100|B200|B300)\b.*|AMD Instinct MI3[0-9]{2}X.*", (4, 8)),
)

# Names, beside those of the tables, that nvidia-smi prints of products which may stand in an inventory: no misspellings of one another.
PRODUCTS = (
    "NVIDIA H100 NVL", "NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM2e", "NVIDIA H100 64GB HBM2", "NVIDIA H200 NVL", "NVIDIA H800 PCIe",
    "NVIDIA GH200 480GB", "NVIDIA GH200 144G HBM3e", "NVIDIA A800 80GB PCIe", "NVIDIA A100-SXM-64GB", "NVIDIA A10", "NVIDIA A10G",
    "NVIDIA A16", "NVIDIA A2", "NVIDIA A30", "NVIDIA A40", "NVIDIA L2", "NVIDIA L4", "NVIDIA L20", "NVIDIA L40", "NVIDIA L40S",
    "Tesla T4", "Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB", "Tesla V100-SXM3-32GB", "Tesla V100S-PCIE-32GB", "NVIDIA RTX A6000",
    "Tesla V100-SXM2-32GB-LS", "Tesla P100-SXM2-16GB", "Tesla P100-PCIE-16GB", "Tesla P4", "Tesla P40", "NVIDIA A10M", "NVIDIA B100",
    "NVIDIA A100-PCIE-80GB", "NVIDIA A800-PCIE-40GB", "NVIDIA B300", "NVIDIA GH200 96GB HBM3", "NVIDIA RTX A5000", "AMD Instinct MI250X",
    "NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "AMD Instinct MI325X", "AMD Instinct MI355X",
    "AMD Instinct MI350X",
)  # fmt: skip

# Wider algorithms: the switch reduces, so a GPU sends its data once where a ring sends it twice.
IN_SWITCH = {"nvls", "nvlstree", "sharp", "collnet", "collnetdirect", "collnetchain"}


def convert(value: float, unit: str, to: str) -> float:
    """`value` of `unit` in `to`. ValueError where they do not measure the same thing or one is unknown."""
    if unit not in UNITS or to not in UNITS:
        raise ValueError(f"unknown unit {unit if unit not in UNITS else to!r}")
    (kind, factor), (kind_to, factor_to) = UNITS[unit], UNITS[to]
    if kind != kind_to:
        raise ValueError(f"{unit} cannot be compared with {to}")
    return value if unit == to else value * factor / factor_to


def gpu(name: t.Any) -> Gpu | None:
    """Return the specification of a GPU by its product name, or None."""
    return _gpu(name) if isinstance(name, str) else None


@functools.lru_cache(maxsize=256)
def _gpu(name: str) -> Gpu | None:
    return next((spec for pattern, spec in GPUS if re.fullmatch(pattern, name)), None)


@functools.lru_cache(maxsize=256)
def board(name: str) -> tuple[int, ...]:
    """Return the numbers of GPUs that a machine with this product can have, by its boards; empty if any number is possible."""
    return next((counts for pattern, counts in BOARDS if re.fullmatch(pattern, name)), ())


def link_rate(spec: Gpu) -> float:
    """Return the rate at which one GPU can send, in GB/s: all its NVLinks, or its PCIe slot without NVLink."""
    return spec.links * spec.link_rate if spec.links else slots.rate(*spec.pcie)


def collective(rate: float, ranks: int | None, op: str, in_switch: bool) -> float:
    """The highest busbw over links of `rate` GB/s.

    Bus bandwidth is defined so that a ring reaches the link rate. Only an all_reduce is let above it, where the switch
    reduces: each rank then sends S bytes instead of 2(n-1)/n S. Everything else is bound by what one rank must receive.
    """
    if op != "all_reduce" or not in_switch:
        return rate
    return rate * (2 * (ranks - 1) / ranks if ranks else 2.0)


def limits(match: Match, metric: str) -> tuple[float, str, str] | None:
    """The physical limit (value, unit, how it comes about) of what an expectation's `match` describes, None if unknown.

    Where a key is a list, the limit is the largest of its members'.
    """
    of_cases = [limit for limit in (_limit(case, metric) for case in _cases(match)) if limit]
    return max(of_cases, key=lambda limit: limit[0]) if of_cases else None


def _cases(match: Match) -> t.Iterator[Match]:
    listed = next((k for k in match if k != "size" and isinstance(match[k], list)), None)
    if listed is None:
        yield match
        return
    for value in match[listed]:
        yield from _cases({**match, listed: value})


def _limit(match: Match, metric: str) -> tuple[float, str, str] | None:
    if metric == "tflops":
        spec, kind = gpu(match.get("gpu")), match.get("type") or match.get("check")
        if spec is None or kind not in spec.peak:
            return None
        return spec.peak[kind], "TFLOPS", f"dense {kind} peak of {match['gpu']}"
    if metric == "bandwidth" and match.get("loopback"):
        return _slot_of_nic(match)
    if metric == "bandwidth" and is_number(match.get("nic_gbps")):
        directions = 2 if match.get("bidirectional") else 1
        direction_text = "both directions" if directions == 2 else "one direction"
        return match["nic_gbps"] * directions, "Gb/s", f"line rate of {match['nic_gbps']} Gb/s, {direction_text}"
    if metric in ("bandwidth", "read"):
        return _host_or_memory(match)
    if metric != "busbw":
        return None
    op = match.get("op") or match.get("check") or ""
    algorithm = str(match.get("algorithm") or "auto").lower()
    in_switch = bool(match.get("nvls")) or algorithm in IN_SWITCH
    nodes, gpus, nics, speed = (_positive(match.get(k)) for k in ("nodes", "gpus", "nics", "nic_gbps"))
    ranks = int(gpus) * int(nodes or 1) if gpus else None
    spec = gpu(match.get("gpu"))
    bounds = []
    if spec is not None:
        generation, lanes = spec.pcie
        how = f"{spec.links} links x {spec.link_rate:g} GB/s" if spec.links else f"PCIe {generation}.0 x{lanes}"
        bounds.append((collective(link_rate(spec), ranks, op, in_switch), how))
    if nics and speed and not across(match):
        # Rings leave and enter a node through all its NICs together. NVLSTree and SHARP may exceed that rate.
        over = in_switch and algorithm != "nvls"
        bounds.append((collective(nics * speed / 8, ranks, op, over), f"{nics} NICs x {speed:g} Gb/s"))
    if not bounds:
        return None
    value, how = min(bounds)
    kind = "reduced in the switch, 2(n-1)/n x " if in_switch and op == "all_reduce" else ""
    return value, "GB/s", f"{kind}{how}"


def _slot_of_nic(match: Match) -> tuple[float, str, str] | None:
    """Return the limit of a port that sends to itself, over no wire: its PCIe link, one direction."""
    generation, lanes = match.get("pcie_gen"), match.get("pcie_width")
    if generation not in slots.PCIE or not is_number(lanes):
        return None
    return 8 * slots.rate(int(generation), int(lanes)), "Gb/s", f"PCIe {generation:g}.0 x{lanes:g}"


def _host_or_memory(match: Match) -> tuple[float, str, str] | None:
    """Return the limit of copies between host and GPU, one direction, or of those inside a GPU's memory."""
    generation, lanes, name, check = (match.get(key) for key in ("pcie_gen", "pcie_width", "gpu", "check"))
    if check in HOST_COPIES and generation in slots.PCIE and is_number(lanes):
        return slots.rate(int(generation), int(lanes)), "GB/s", f"PCIe {generation:g}.0 x{lanes:g}"
    spec = gpu(name)
    if check in ("peer", "peer_all") and spec and spec.links:
        return link_rate(spec), "GB/s", f"{spec.links} links x {spec.link_rate:g} GB/s"
    if check == "device" and isinstance(name, str):
        memory_rate = next((rate for pattern, rate in MEMORY if re.fullmatch(pattern, name)), None)
        return (memory_rate, "GB/s", f"memory of {name}") if memory_rate else None
    return None


def _positive(value: t.Any) -> float | None:
    return value if is_number(value) and value > 0 else None


def across(context: Context) -> bool:
    """Return True if NVLink connects the nodes: then no NIC is a limit."""
    told_mnnvl = context.get("mnnvl")
    return told_mnnvl if isinstance(told_mnnvl, bool) else isinstance(context.get("gpu"), str) and nccl.mnnvl([context["gpu"]])


def ceiling(context: Context, metric: str) -> tuple[float, str, str] | None:
    """Return the value that no measurement can exceed, as limits() does, with its uncertainty; None if nothing is known.

    An expectation is held to the algorithm that it names. A measurement may have been made by any that NCCL is free to choose there:
    switches that reduce, and between nodes ways on which each node receives everything once.
    """
    ceilings = []
    for case in _cases(context):
        if metric == "busbw":
            limit = _any_algorithm(case)
        elif metric == "bandwidth" and not _is_wire(case):
            limit = None
        else:
            limit = _limit(case, metric)
        if limit is None:
            return None
        ceilings.append(limit)
    if not ceilings:
        return None
    value, unit, how = max(ceilings, key=lambda limit: limit[0])
    if metric == "bandwidth" and context.get("bonded"):
        value, how = 2 * value, f"{how}, twice for a bond"
    above = ABOVE.get(metric, 0.0)
    return value * (1 + above), unit, f"{how}; {100 * above:g} % more for its uncertainty"


def _any_algorithm(context: Context) -> tuple[float, str, str] | None:
    """The highest busbw by whatever algorithm is not ruled out."""
    algorithm = str(context.get("algorithm") or "auto").lower()
    gpus, nodes = _positive(context.get("gpus")), _positive(context.get("nodes")) or 1
    name = context.get("gpu")
    nvls_least = nccl.nvls_from(name) if isinstance(name, str) else None
    # `nvls` says what settings and GPU count let us expect, not what NCCL did: only an algorithm that was asked for rules it out.
    reduces = (nvls_least is not None or bool(context.get("nvls"))) and algorithm not in ("ring", "tree")
    node = _limit({**{k: v for k, v in context.items() if k != "nics"}, "nvls": reduces}, "busbw")
    nics, speed = _positive(context.get("nics")), _positive(context.get("nic_gbps"))
    if nodes < 2 or not nics or not speed or across(context) or not _is_wire(context):
        return node
    ranks = gpus * nodes if gpus else None
    rate = nics * speed / 8 * (2 if context.get("bonded") else 1)
    factor = 1.0 if algorithm == "ring" else 2 * (ranks - 1) / ranks if ranks else 2.0
    wire = (rate * factor, "GB/s", f"{'' if factor == 1.0 else '2(n-1)/n x '}{nics:g} NICs x {speed:g} Gb/s")
    return min(wire, node) if node else wire


def _is_wire(context: Context) -> bool:
    """Return True if the rate of a port is that of its wire. EFA, whose link layer is unspecified, says less than it has; software says
    anything."""
    return context.get("link_layer") in (None, "InfiniBand", "Ethernet") and context.get("nic") not in SOFTWARE_NICS


@dataclasses.dataclass(frozen=True)
class LintFinding:
    """Something the lint says of one entry; `level` is `error` (physically wrong, ambiguous) or `note`."""

    level: str
    origin: str
    id: str
    text: str

    def __str__(self) -> str:
        return f"{self.level}: {self.origin}: {self.text}"


def lint(entries: t.Iterable[t.Any]) -> list[LintFinding]:
    """Compare expectations with physics and with each other.

    Errors: a value above the limit of its algorithm; one under 0.3 of it without a `note` that says why; one under 0.6
    of another entry with the very same match, or of one of a weaker layer that it displaces for some measurement; two entries of one layer
    that are equally specific and can both match; one whose source cites a value that the other entry does not have.
    """
    entries = list(entries)
    findings = [finding for entry in entries for finding in _against_limit(entry)]
    return [*findings, *_citations(entries), *_against_each_other(entries)]


def _citations(entries: list[t.Any]) -> t.Iterator[LintFinding]:
    """`[id value]` in a source: the other entry has that value; `as [id value]` and `0.96 x [id value]`: so has this one."""
    values: dict[str, list[float]] = {}
    for entry in entries:
        values.setdefault(entry.id, []).append(entry.value)
    for entry in entries:
        for how, name, text in CITED.findall(entry.source):
            cited = float(text)
            if cited not in values.get(name, ()):
                values_text = ", ".join(f"{value:g}" for value in values[name]) if name in values else "no such entry"
                yield LintFinding("error", entry.origin, entry.id, f"source: found {name} cited with {cited:g}, it has {values_text}")
            factor = float(how.split()[0]) if how.endswith(" x") else 1.0
            if how and abs(entry.value - factor * cited) > 0.003 * entry.value:
                text = f"source: found {how} [{name} {cited:g}], which is {factor * cited:g}, for the value {entry.value:g}"
                yield LintFinding("error", entry.origin, entry.id, text)


def _against_limit(entry: t.Any) -> t.Iterator[LintFinding]:
    limit = limits(entry.match, entry.metric)
    if limit is None:
        if entry.metric in ("busbw", "tflops", "bandwidth"):
            yield LintFinding("note", entry.origin, entry.id, "no physical limit is known to compare with")
        return
    bound, unit, how = limit
    value = convert(entry.value, entry.unit, unit)
    problem = f"value: found {entry.value:g} {entry.unit}, expected"
    if value > bound * (1 + 1e-9):
        yield LintFinding("error", entry.origin, entry.id, f"{problem} at most {bound:g} {unit} ({how})")
    elif value < ABSURD * bound and not entry.note:
        floor_text = f"at least {ABSURD * bound:g} {unit}, {ABSURD:g} of the limit ({how})"
        yield LintFinding("error", entry.origin, entry.id, f"{problem} {floor_text}, or a note that says why it is healthy")


def _against_each_other(entries: list[t.Any]) -> t.Iterator[LintFinding]:
    groups: dict[tuple[t.Any, ...], list[t.Any]] = {}
    for entry in entries:
        groups.setdefault((entry.match.get("stage"), entry.metric, entry.better), []).append(entry)
    for group in groups.values():
        for place, entry in enumerate(group):
            for earlier in group[:place]:
                if entry.match == earlier.match:
                    yield from _same_thing(entry, earlier)
                elif entry.rank == earlier.rank and len(entry.match) == len(earlier.match) and overlap(entry.match, earlier.match):
                    text = f"match: as specific as {earlier.id}, and both can match one measurement"
                    yield LintFinding("error", entry.origin, entry.id, text)
                elif entry.rank != earlier.rank and set(entry.sizes) & set(earlier.sizes) and overlap(entry.match, earlier.match):
                    yield from _displaced(*sorted((entry, earlier), key=lambda each: each.rank))


def _displaced(weaker: t.Any, stronger: t.Any) -> t.Iterator[LintFinding]:
    """An error if an entry that wins over one of a weaker layer, whatever else its match says, is far softer and no note says why. One that
    does not say for which hardware it is may be for other hardware: what it is used for decides, when a run is judged (far_softer())."""
    names_hardware = all(key in stronger.match for key in ("gpu", "nic_gbps") if key in weaker.match)
    if not names_hardware or not far_softer(stronger, weaker):
        return
    ratio = convert(stronger.value, stronger.unit, weaker.unit) / weaker.value
    lower = stronger.better == "lower"
    limit = f"at most {1 / FAR_UNDER:.2f}" if lower else f"at least {FAR_UNDER:g}"
    displaced_text = f"the {weaker.value:g} {weaker.unit} of {weaker.layer} {weaker.id}"
    text = (
        f"value: found {stronger.value:g} {stronger.unit}, {ratio:.2f} of {displaced_text}, "
        f"which it displaces; expected {limit} of it, a match that is not about the same, or a note that says why it is healthy"
    )
    yield LintFinding("error", stronger.origin, stronger.id, text)


def far_softer(entry: t.Any, than: t.Any) -> bool:
    """Return True if an entry accepts far less than another one for the same measurement, and no note says why that is healthy."""
    ratio = convert(entry.value, entry.unit, than.unit) / than.value
    return not entry.note and (ratio > 1 / FAR_UNDER if entry.better == "lower" else ratio < FAR_UNDER)


def _same_thing(entry: t.Any, twin: t.Any) -> t.Iterator[LintFinding]:
    if entry.rank == twin.rank:
        text = f"match: found the same as in {twin.id}, expected one entry for one thing"
        yield LintFinding("error", entry.origin, entry.id, text)
    low, high = sorted((entry, twin), key=lambda e: convert(e.value, e.unit, entry.unit))
    share = convert(low.value, low.unit, high.unit) / high.value
    if entry.better == "higher" and share < FAR_UNDER and not low.note:
        problem = f"value: found {low.value:g} {low.unit}, {share:.2f} of the {high.value:g} of {high.id}"
        text = f"{problem} for the same thing; expected at least {FAR_UNDER:g}, or a note that says why it is healthy"
        yield LintFinding("error", low.origin, low.id, text)


def overlap(match_a: Match, match_b: Match) -> bool:
    """Return True if some measurement could match both."""

    def members(value: t.Any) -> set[tuple[bool, t.Any]]:
        # Not by the name of the type: Ansible's text and numbers are of classes of their own.
        values = value if isinstance(value, list) else [value]
        return {(isinstance(v, bool), v if isinstance(v, (int, float)) else str(v)) for v in values}

    match_a, match_b = _implied(_of_usable(match_a, match_b)), _implied(_of_usable(match_b, match_a))
    return all(members(match_a[k]) & members(match_b[k]) for k in set(match_a) & set(match_b))


def _of_usable(match: Match, opposite: Match) -> Match:
    """Return a match as `opposite` is compared with it: if that one is about usable NICs (matching.about_usable_nics), and this one names
    its GPUs, its `nics` are those that they can use for certain."""
    if not matching.about_usable_nics(opposite) or not {"gpu", "nics", "nic_gbps"} <= set(match):
        return match
    hardware = {key: match[key] for key in slots.KEYS if key in match}
    usable_nics = [slots.usable(case) for case in _cases({"gpus": [1, 2, 4, 8], **hardware})]
    return {**match, "nics": sorted({usable.certain for usable in usable_nics if usable})}


def _implied(match: Match) -> Match:
    """A match with what its GPUs mean."""
    if "gpu" not in match or "mnnvl" in match:
        return match
    names = match["gpu"] if isinstance(match["gpu"], list) else [match["gpu"]]
    return {**match, "mnnvl": sorted({nccl.mnnvl([str(name)]) for name in names})}
