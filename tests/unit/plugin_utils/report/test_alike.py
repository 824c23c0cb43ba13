# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Causes that say the same of many nodes are one line of the terminal."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.subjects import folded
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import model, terminal
from harness import report_samples as samples


def lines(verdicts: list[dict[str, t.Any]], width: int = 200) -> list[str]:
    nodes = list(dict.fromkeys(v["subject"]["id"].split("/")[0] for v in verdicts))
    made = model.build(samples.plan(nodes, ["stack", "gemm"]), samples.judgement(verdicts))
    return [line for line, _colour in terminal.coloured(made, width)]


def refused(nodes: t.Iterable[str], reason: str, stage: str = "stack", check: str = "facts", **fields: t.Any) -> list[dict[str, t.Any]]:
    return [samples.verdict(n, stage, check, "FAIL", reason=reason.format(node=n, number=int(n[-2:])), **fields) for n in nodes]


def named(count: int) -> list[str]:
    return [f"gpu-{number:02}" for number in range(1, count + 1)]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["gpu-02", "gpu-01", "gpu-04"], "gpu-[01-02,04]"),
        (["gpu-01"], "gpu-01"),
        ([f"n{n}" for n in (8, 9, 10, 11)], "n[8-11]"),
        ([f"n{n:02}" for n in (8, 9, 10, 11)], "n[08-11]"),
        (["lab/r1-n01.x", "lab/r1-n02.x", "lab/r2-n01.x"], "lab/r1-n[01-02].x, lab/r2-n01.x"),
        (["a", "b", "a"], "a, b"),
        ([f"n{n}" for n in range(0, 40, 2)], "n[0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30] and 4 more"),
        ([f"n{n}x{n}" for n in range(20)], ", ".join(sorted(f"n{n}x{n}" for n in range(20))[:16]) + " and 4 more"),
    ],
)
def test_names_are_folded_to_ranges(names: list[str], text: str) -> None:
    assert folded(names) == text


def test_fifty_nodes_with_one_cause_are_one_line_and_one_row() -> None:
    shown = lines(refused(named(50), "{node}: driver is 550.54, expected 580.159"))
    assert shown[1] == "FAIL    gpu-[01-50] (50 nodes): stack facts: driver is 550.54, expected 580.159"
    assert [line.split()[:2] for line in shown if line.startswith("gpu-")] == [["gpu-[01-50]", "FAIL"]]
    assert len(shown) == 10


def test_names_addresses_and_measured_numbers_of_nodes_do_not_part_them() -> None:
    shown = lines(refused(named(50), "{node} cannot be reached: ssh: connect to host 10.0.0.{number} port 22: no route to {node}"))
    assert shown[
        1
    ] == "FAIL    gpu-[01-50] (50 nodes): stack facts: the node cannot be reached: ssh: connect to host its address port 22: " + (
        "no route to the node"
    )
    shown = lines(refused(named(50), "{node}: memory runs at {number}.5 GB/s, floor 900 GB/s; 4 of 8 links"))
    assert "gpu-[01-50] (50 nodes): stack facts: memory runs at 1.5 to 50.5 GB/s, floor 900 GB/s; 4 of 8 links" in shown[1]


@pytest.mark.parametrize(
    "reason",
    ["Xid {number}", "port {number} is down", "version 580.{number}", "version 580.{number}.1", "{number} of 8 links", "GPU-{number}a"],
)
def test_another_event_part_or_version_is_another_cause(reason: str) -> None:
    assert sum(line.startswith("FAIL") for line in lines(refused(named(6), reason))) == 6


def test_two_slow_gpus_are_named_one_by_one_and_many_together() -> None:
    def slow(count: int) -> list[str]:
        verdicts = [
            v
            for n in named(count)
            for v in refused([n], "{node}: tflops {number}.5 TFLOPS, floor 636.5 TFLOPS", "gemm", "bf16", part="GPU-7")
        ]
        return [line for line in lines(verdicts) if line.startswith(("FAIL", "     "))]

    assert slow(2) == [f"FAIL    gpu-0{n} GPU-7: gemm bf16: tflops {n}.5 TFLOPS, floor 636.5 TFLOPS" for n in (1, 2)]
    together, parts = slow(14)
    assert together == "FAIL    gpu-[01-14] (14 GPUs of 14 nodes): gemm bf16: tflops 1.5 to 14.5 TFLOPS, floor 636.5 TFLOPS"
    assert parts.strip().startswith("gpu-01 GPU-7, gpu-02 GPU-7") and parts.endswith("gpu-12 GPU-7 and 2 more")


def test_the_report_keeps_each_with_its_own_sentence() -> None:
    verdicts = refused(named(50), "{node}: memory runs at {number}.5 GB/s")
    made = model.build(samples.plan(named(50), ["stack"]), samples.judgement(verdicts))
    assert len({cause["said"] for cause in made["causes"]}) == 50
