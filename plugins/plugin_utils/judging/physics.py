# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What hardware cannot exceed, and the lint of expectations against it.

Rates are of one direction, in GB/s (10^9 bytes) per GPU unless a name says otherwise; TFLOPS are dense.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

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
# An entry this far under another one for the very same thing accepts a node that lost half its links: a B200 gate of
# 440 GB/s in use elsewhere is 0.53 of the 838 that a healthy node gives.
FAR_UNDER = 0.6


class Gpu(t.NamedTuple):
    """NVLink links per GPU and their rate; PCIe generation and lanes; dense peak TFLOPS by type (datasheets)."""

    links: int
    link_rate: float
    pcie: tuple[int, int]
    peak: dict[str, float]


_VOLTA = {"fp16": 125.0, "fp32": 15.7}
_AMPERE = {"bf16": 312.0, "fp16": 312.0, "tf32": 156.0, "fp32": 19.5}
_HOPPER = {"bf16": 989.5, "fp16": 989.5, "tf32": 494.7, "fp8": 1979.0, "fp32": 67.0}
_HOPPER_PCIE = {"bf16": 756.5, "fp16": 756.5, "tf32": 378.0, "fp8": 1513.0, "fp32": 51.0}
_HOPPER_NVL = {"bf16": 835.5, "fp16": 835.5, "tf32": 417.5, "fp8": 1671.0, "fp32": 60.0}
_H20 = {"bf16": 148.0, "fp16": 148.0, "tf32": 74.0, "fp8": 296.0, "fp32": 44.0}
_B200 = {"bf16": 2250.0, "fp16": 2250.0, "tf32": 1125.0, "fp8": 4500.0, "fp32": 75.0}
_GB200 = {"bf16": 2500.0, "fp16": 2500.0, "tf32": 1250.0, "fp8": 5000.0, "fp32": 80.0}

# By the product name that nvidia-smi prints; the first pattern that matches the whole name counts.
GPUS: tuple[tuple[str, Gpu], ...] = (
    (r"(Tesla|NVIDIA) V100-SXM.*", Gpu(6, 25.0, (3, 16), _VOLTA)),
    (r"(Tesla|NVIDIA) V100-PCIE.*", Gpu(0, 0.0, (3, 16), {"fp16": 112.0, "fp32": 14.0})),
    (r"(Tesla|NVIDIA) T4", Gpu(0, 0.0, (3, 16), {"fp16": 65.0, "fp32": 8.1})),
    (r"NVIDIA A100-SXM.*", Gpu(12, 25.0, (4, 16), _AMPERE)),
    (r"NVIDIA A100.*PCIe?.*|NVIDIA A100-PCIE.*", Gpu(12, 25.0, (4, 16), _AMPERE)),
    (r"NVIDIA A800.*", Gpu(8, 25.0, (4, 16), _AMPERE)),
    (r"NVIDIA H100 PCIe", Gpu(12, 25.0, (5, 16), _HOPPER_PCIE)),
    (r"NVIDIA H100 NVL", Gpu(12, 25.0, (5, 16), _HOPPER_NVL)),
    (r"NVIDIA H200 NVL", Gpu(18, 25.0, (5, 16), _HOPPER_NVL)),
    (r"NVIDIA (H100|H200|GH200).*", Gpu(18, 25.0, (5, 16), _HOPPER)),
    (r"NVIDIA H800.*", Gpu(8, 25.0, (5, 16), _HOPPER)),
    (r"NVIDIA H20(-3e)?", Gpu(18, 25.0, (5, 16), _H20)),
    (r"NVIDIA (GB200|GB300).*", Gpu(18, 50.0, (6, 16), _GB200)),
    (r"NVIDIA (B200|B300).*", Gpu(18, 50.0, (6, 16), _B200)),
    (r"NVIDIA L40S", Gpu(0, 0.0, (4, 16), {"bf16": 362.0, "fp16": 362.0, "tf32": 183.0, "fp8": 733.0, "fp32": 91.6})),
    # Seven xGMI links of 64 GB/s in a full mesh.
    (r"AMD Instinct MI300X.*", Gpu(7, 64.0, (5, 16), {"bf16": 1307.0, "fp16": 1307.0, "fp8": 2615.0, "fp32": 163.0})),
)

# GT/s per lane and the share that is payload (128b/130b, FLIT).
_PCIE = {3: (8.0, 128 / 130), 4: (16.0, 128 / 130), 5: (32.0, 128 / 130), 6: (64.0, 242 / 256)}
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
    """What is known of a GPU by its product name."""
    return next((spec for pattern, spec in GPUS if isinstance(name, str) and re.fullmatch(pattern, name)), None)


def pcie(generation: int, lanes: int) -> float:
    """Payload of a PCIe link in one direction, GB/s: rate x lanes x coding."""
    rate, coding = _PCIE[generation]
    return rate * lanes * coding / 8


def link_rate(spec: Gpu) -> float:
    """What one GPU can send at once, GB/s: all its NVLinks, or its PCIe slot where it has none."""
    return spec.links * spec.link_rate if spec.links else pcie(*spec.pcie)


def collective(rate: float, ranks: int | None, op: str, in_switch: bool) -> float:
    """The highest busbw over links of `rate` GB/s.

    Bus bandwidth is defined so that a ring reaches the link rate. Only an all_reduce is let above it, where the switch
    reduces: each rank then sends S bytes instead of 2(n-1)/n S. Everything else is bound by what one rank must receive.
    """
    if op != "all_reduce" or not in_switch:
        return rate
    return rate * (2 * (ranks - 1) / ranks if ranks else 2.0)


def limits(match: dict[str, t.Any], metric: str) -> tuple[float, str, str] | None:
    """The physical limit (value, unit, how it comes about) of what an expectation's `match` describes, None if unknown.

    Where a key is a list, the limit is the largest of its members'.
    """
    found = [limit for limit in (_limit(case, metric) for case in _cases(match)) if limit]
    return max(found, key=lambda limit: limit[0]) if found else None


def _cases(match: dict[str, t.Any]) -> t.Iterator[dict[str, t.Any]]:
    listed = next((k for k in match if k != "size" and isinstance(match[k], list)), None)
    if listed is None:
        yield match
        return
    for value in match[listed]:
        yield from _cases({**match, listed: value})


def _limit(match: dict[str, t.Any], metric: str) -> tuple[float, str, str] | None:
    if metric == "tflops":
        spec, kind = gpu(match.get("gpu")), match.get("type") or match.get("check")
        if spec is None or kind not in spec.peak:
            return None
        return spec.peak[kind], "TFLOPS", f"dense {kind} peak of {match['gpu']}"
    if metric == "bandwidth" and isinstance(match.get("nic_gbps"), (int, float)):
        directions = 2 if match.get("bidirectional") else 1
        ways = "both directions" if directions == 2 else "one direction"
        return match["nic_gbps"] * directions, "Gb/s", f"line rate of {match['nic_gbps']} Gb/s, {ways}"
    if metric != "busbw":
        return None
    op = match.get("op") or match.get("check") or ""
    algorithm = str(match.get("algorithm") or "auto").lower()
    in_switch = bool(match.get("nvls")) or algorithm in IN_SWITCH
    nodes, gpus, nics, speed = (match.get(k) for k in ("nodes", "gpus", "nics", "nic_gbps"))
    ranks = gpus * (nodes or 1) if gpus else None
    spec = gpu(match.get("gpu"))
    bounds = []
    if spec is not None:
        generation, lanes = spec.pcie
        how = f"{spec.links} links x {spec.link_rate:g} GB/s" if spec.links else f"PCIe {generation}.0 x{lanes}"
        bounds.append((collective(link_rate(spec), ranks, op, in_switch), how))
    if nics and speed:
        # Rings leave and enter a node through all its NICs together. NVLSTree and SHARP may exceed that rate.
        over = in_switch and algorithm != "nvls"
        bounds.append((collective(nics * speed / 8, ranks, op, over), f"{nics} NICs x {speed:g} Gb/s"))
    if not bounds:
        return None
    value, how = min(bounds)
    kind = "reduced in the switch, 2(n-1)/n x " if in_switch and op == "all_reduce" else ""
    return value, "GB/s", f"{kind}{how}"


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something the lint says of one entry; `level` is `error` (physically wrong, ambiguous) or `note`."""

    level: str
    origin: str
    id: str
    text: str

    def __str__(self) -> str:
        return f"{self.level}: {self.origin}: {self.text}"


def lint(entries: t.Iterable[t.Any]) -> list[Finding]:
    """Compare expectations with physics and with each other.

    Errors: a value above the limit of its algorithm; one under 0.3 of it without a `note` that says why; one under 0.6
    of another entry with the very same match; two entries of one layer that are equally specific and can both match.
    """
    entries = list(entries)
    findings = [found for entry in entries for found in _against_limit(entry)]
    return [*findings, *_against_each_other(entries)]


def _against_limit(entry: t.Any) -> t.Iterator[Finding]:
    limit = limits(entry.match, entry.metric)
    if limit is None:
        if entry.metric in ("busbw", "tflops", "bandwidth"):
            yield Finding("note", entry.origin, entry.id, "no physical limit is known to compare with")
        return
    bound, unit, how = limit
    value = convert(entry.value, entry.unit, unit)
    found = f"value: found {entry.value:g} {entry.unit}, expected"
    if value > bound * (1 + 1e-9):
        yield Finding("error", entry.origin, entry.id, f"{found} at most {bound:g} {unit} ({how})")
    elif value < ABSURD * bound and not entry.note:
        least = f"at least {ABSURD * bound:g} {unit}, {ABSURD:g} of the limit ({how})"
        yield Finding("error", entry.origin, entry.id, f"{found} {least}, or a note that says why it is healthy")


def _against_each_other(entries: list[t.Any]) -> t.Iterator[Finding]:
    groups: dict[tuple[t.Any, ...], list[t.Any]] = {}
    for entry in entries:
        groups.setdefault((entry.match.get("stage"), entry.metric, entry.better), []).append(entry)
    for group in groups.values():
        for number, one in enumerate(group):
            for other in group[:number]:
                if one.match == other.match:
                    yield from _same_thing(one, other)
                elif one.rank == other.rank and len(one.match) == len(other.match) and _overlap(one.match, other.match):
                    text = f"match: as specific as {other.id}, and both can match one measurement"
                    yield Finding("error", one.origin, one.id, text)


def _same_thing(one: t.Any, other: t.Any) -> t.Iterator[Finding]:
    if one.rank == other.rank:
        text = f"match: found the same as in {other.id}, expected one entry for one thing"
        yield Finding("error", one.origin, one.id, text)
    low, high = sorted((one, other), key=lambda e: convert(e.value, e.unit, one.unit))
    share = convert(low.value, low.unit, high.unit) / high.value
    if one.better == "higher" and share < FAR_UNDER and not low.note:
        found = f"value: found {low.value:g} {low.unit}, {share:.2f} of the {high.value:g} of {high.id}"
        text = f"{found} for the same thing; expected at least {FAR_UNDER:g}, or a note that says why it is healthy"
        yield Finding("error", low.origin, low.id, text)


def _overlap(one: dict[str, t.Any], other: dict[str, t.Any]) -> bool:
    """Whether some measurement could match both."""

    def members(value: t.Any) -> set[tuple[str, str]]:
        return {(type(v).__name__, str(v)) for v in (value if isinstance(value, list) else [value])}

    return all(members(one[k]) & members(other[k]) for k in set(one) & set(other))
