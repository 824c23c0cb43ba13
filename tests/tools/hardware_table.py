#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes docs/hardware.md, what is expected of which hardware, from the shipped tables: python tests/tools/hardware_table.py"""

from __future__ import annotations

import pathlib
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands, gates  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import (  # noqa: E402
    Expectation,
    shipped,
)

PAGE = ROOT / "docs" / "hardware.md"
HEAD = """# What is expected of which hardware

Written from `roles/common/files/expectations/` by `tests/tools/hardware_table.py`; change the tables, not this page. Each entry there
has its source and date. PASS is 0.95 of a value, WARN 0.90 (of a time: the value divided by these). **measured**: somebody published
this number; **vendor**: a datasheet; **derived**: from another number or from link rates, with the efficiency that the source states.
`passes` and `warns` stand where a row has limits of its own. **held against** names the published limits of the same hardware, which
are listed at the end with who uses them; a lint fails where a row passes what one of them refuses. A dash: none is known.
A number with `?` says nothing where it is missed (UNKNOWN), since how the machine is wired is not told. What no row is about is
UNKNOWN until `acceptance_expectations` or `playbooks/baseline.yml` says what to expect.

This project has measured H100 and H200 only. It has never measured any **AMD Instinct** GPU, any **Ascend** NPU, or any rack (GB200,
GB300): their stages ran on simulated nodes, and their numbers are those that others have published, or derived from them.
"""
# (stages, GPUs, what is missing and why), for which nobody has published a number that holds for every good machine.
NOT_COVERED = [
    ("nccl_node", "GH200", "one GPU per node: there is no link to measure"),
    (
        "nccl_node",
        "H200 NVL; H100 NVL and H100 PCIe with more than two GPUs; A100 PCIe",
        "bridges connect some GPUs only, and which is not told",
    ),
    ("nccl_node", "B300 and A100 with other operations than all_reduce", "not published"),
    ("all", "MI300A, MI308X, and AMD Instinct GPUs in another partition mode than SPX", "not published for this shape of a test"),
    (
        "nccl_fabric",
        "GPUs behind PCIe (L40S, T4, RTX PRO 6000, H100 PCIe and NVL, H200 NVL) below what one slot gives",
        "UNKNOWN, not FAIL: how they are wired is not told",
    ),
    (
        "nccl_fabric",
        "V100, A800, H800, H20, MI300X and EFA below the rate of their NICs",
        "UNKNOWN, not FAIL: nobody shows that they fill them",
    ),
    (
        "nccl_fabric",
        "800G with GPUs in PCIe 5.0 slots; NICs of mixed rates that the PCI tree does not tell from those of storage",
        "not known",
    ),
    (
        "gemm",
        "GH200, H200 NVL, T4; FP8 of H20, L40S, H100 PCIe and NVL, RTX PRO 6000; FP64 but of H100 and H200",
        "not published",
    ),
    ("train", "training itself on all but H200", "not published; the products of `compute` are held to those of `gemm`"),
    (
        "gpu_memory",
        "links of fewer than 8 lanes; all GPUs at once, far memory, between GPUs, latency",
        "not published, or healthy machines differ too much: held to the other GPUs of the node and to identical machines",
    ),
    (
        "nic_loopback",
        "all ports at once; ports of RoCE, and reads, above 0.7 of their rate",
        "not published, or what ports share differs: held to the other ports of the node and to identical machines",
    ),
    ("ddp, hccl, storage", "all", "not published: `playbooks/baseline.yml` proposes from your own nodes"),
]
STAGES = {
    "nccl_node": "NCCL within a node (GB/s, bus bandwidth)",
    "nccl_fabric": "NCCL between nodes (GB/s, bus bandwidth)",
    "gemm": "Matrix products of 8192 x 8192 x 8192 (dense TFLOPS per GPU)",
    "train": "Training (dense TFLOPS per GPU)",
    "gpu_memory": "Copies and memory of a GPU (GB/s)",
    "nic_loopback": "An RDMA port against itself",
    "rdma": "RDMA between two ports",
}
SHORT = ("NVIDIA ", "Tesla ", "AMD Instinct ")


def text() -> str:
    """The whole page."""
    entries = shipped().entries
    parts = [HEAD, coverage(entries)]
    for stage in [*STAGES, *sorted({e.match["stage"] for e in entries} - set(STAGES))]:
        parts.append(table(STAGES.get(stage, stage), [e for e in entries if e.match["stage"] == stage]))
    parts.append(limits())
    missing = "".join(f"| {stage} | {what} | {why} |\n" for stage, what, why in NOT_COVERED)
    parts.append(f"## What is not covered\n\n| stage | hardware | why |\n|---|---|---|\n{missing}")
    return "\n".join(parts)


def coverage(entries: t.Sequence[Expectation]) -> str:
    """Return the table of GPUs by stages, with the kinds of the entries of each."""
    stages = [stage for stage in STAGES if stage not in ("rdma", "nic_loopback")]
    rows = []
    for name in sorted({name for e in entries for name in several(e.match.get("gpu"))}):
        mine = [e for e in entries if name in several(e.match.get("gpu"))]
        rows.append(f"| {short(name)} | {' | '.join(kinds([e for e in mine if e.match['stage'] == stage]) for stage in stages)} |\n")
    anyone = "Any GPU between nodes is besides held to the NICs that it can use; ports of RDMA are held to their rate, whatever the GPU.\n"
    return f"## At a glance\n\n{anyone}\n| GPU | {' | '.join(stages)} |\n|{'---|' * (len(stages) + 1)}\n{''.join(rows)}"


def kinds(entries: t.Sequence[Expectation]) -> str:
    """The checks of some entries, each with its confidence; a dash if there are none."""
    found: dict[str, set[str]] = {}
    for e in entries:
        for check in several(e.match.get("check")):
            found.setdefault(check, set()).add("?" if e.missed == "unknown" else e.confidence)
    said = {check: next(word for word in ("measured", "vendor", "derived", "?") if word in of) for check, of in found.items()}
    by_word: dict[str, list[str]] = {}
    for check, word in said.items():
        by_word.setdefault(word, []).append(check)
    return "; ".join(f"{', '.join(sorted(checks))} ({word})" for word, checks in sorted(by_word.items())) or "-"


def table(title: str, entries: t.Sequence[Expectation]) -> str:
    rows = sorted({row(e) for e in entries})
    return f"## {title}\n\n| GPU | check | for | value | confidence | held against |\n|---|---|---|---|---|---|\n{''.join(rows)}"


def limits() -> str:
    """Return the table of published limits."""
    rows = []
    for gate in gates.load():
        both = f", refuses below {gate.refuses:g}" if gate.refuses else ""
        how = f"our test gives {gate.share:g} of it: {gate.why}" if gate.why else f"not held: {gate.not_held}" if gate.not_held else ""
        rows.append(f"| `{gate.id}` | {gate.value:g} {gate.unit}{both} | {gate.by} | {gate.date} | {gate.confidence} | {how} |\n")
    head = "| limit | passes from | who uses it | date | confidence | remark |\n|---|---|---|---|---|---|\n"
    return f"## Published limits\n\n{head}{''.join(rows)}"


def row(e: Expectation) -> str:
    """One entry as a line of a table."""
    left = {k: v for k, v in e.match.items() if k not in ("stage", "check", "op", "gpu", "size", "mnnvl")}
    sizes = [one for one in e.sizes if one is not None]
    said = [f"{key} {words(value)}" for key, value in left.items() if not (key == "algorithm" and "auto" in several(value))]
    said += [f"at {span(sizes)}"] if sizes else []
    gpus = ", ".join(short(name) for name in several(e.match.get("gpu"))) or "any"
    check = words(e.match.get("check", e.match.get("op", "")))
    doubt = "?" if e.missed == "unknown" else ""
    own = "".join(f", {word} {number:g}" for word, number in (("passes", e.passes), ("warns", e.warns)) if number is not None)
    held = ", ".join(f"`{gate}`" for gate in e.gates) or "-"
    return f"| {gpus} | {check} | {'; '.join(said)} | {e.value:g}{doubt} {e.unit}{own} | {e.confidence} | {held} |\n"


def several(value: t.Any) -> list[t.Any]:
    """The values of a key of a match; none if it is not there."""
    return [] if value is None else value if isinstance(value, list) else [value]


def words(value: t.Any) -> str:
    return ", ".join("yes" if one is True else "no" if one is False else str(one) for one in several(value))


def span(sizes: t.Sequence[t.Any]) -> str:
    """Message sizes in words; many as a range."""
    shown = [bands.human(one) if isinstance(one, int) else str(one) for one in sizes]
    return ", ".join(shown) if len(shown) < 5 else f"{shown[0]} to {shown[-1]}"


def short(name: str) -> str:
    """A product name without its vendor."""
    for word in SHORT:
        name = name.removeprefix(word)
    return name


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
