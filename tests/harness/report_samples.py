# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs to report on: a healthy fleet with a few faults of any size, and one whose nodes send whatever could do harm."""

from __future__ import annotations

import random
import types
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import causes, nodes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_table import Cell
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import key_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Plan
from harness import records
from harness.records import make_plan

RUN = "20261121T061718Z-65e3c5"
PARTS = {"FAIL": 0, "UNKNOWN": 0, "WARN": 0, "KNOWN_FAIL": 0, "SKIPPED": 0, "PASS": 0}

# Each does harm somewhere when it is shown as it came: HTML, attributes, scripts, Markdown, XML, labels, terminals.
HOSTILE = [
    "<script>window.harm=1</script>",
    "</script><script>window.harm=1</script>",
    "<img src=x onerror=window.harm=1>",
    "<img src=http://192.0.2.1/beacon>",
    '"><svg onload=window.harm=1>',
    "' onmouseover='window.harm=1",
    "<a href='javascript:window.harm=1'>click</a>",
    "{{ 7 * 7 }}{% raw %}",
    "](javascript:window.harm=1) [x](http://192.0.2.1/)",
    "| a | b |\n|---|---|\n# heading\n```\ncode",
    "http://192.0.2.1/link www.example.org",
    "\x1b[2J\x1b]0;title\x07\x1b[31mred",
    "\x00\x08\x0b\x1f\x7f\x9b\ufffe\uffff\ud800",
    "right\u202eto left\u2066 zero\u200bwidth",
    'quote " backslash \\ newline \n "} 1\nforged_metric 1',
    "&lt;b&gt; &amp; ]]> <!-- --> <![CDATA[",
    "=cmd()|' /C calc'!A0",
    "節点-漢字-é-🙂",
]


def verdict(node: str, stage: str, check: str, word: str = "PASS", part: str = "", **fields: t.Any) -> dict[str, t.Any]:
    subject = {"kind": "gpu" if part else "node", "id": f"{node}/gpu/{part}" if part else node, "members": []}
    return {
        "schema": "verdict/v1", "run_id": RUN, "stage": stage, "check": check, "variant": "", "subject": subject,
        "verdict": word, "value": None, "unit": None, "floor": None, "layer": None, "source": None, "confidence": None,
        "reason_code": None, "reason": f"{node}: as it should be", "metric": None, "expected": None, "date": None,
        "expectation": None, "attempt": 1, "simulated": False, "regressed": False, "findings": [], "ticket": None, "expires": None,
        "of": None,
        **fields,
    }  # fmt: skip


def measurement(node: str, stage: str, check: str, **fields: t.Any) -> dict[str, t.Any]:
    return {
        "schema": "measurement/v1", "run_id": RUN, "stage": stage, "check": check, "variant": "",
        "subject": {"kind": "node", "id": node, "members": []}, "plane": "ssh", "target": node, "attempt": 1,
        "outcome": "measured", "reason_code": None, "reason": None, "metrics": {}, "series": [], "context": {}, "evidence": {},
        "command": ["tool", "-n", "20"], "tool_version": "2.19.6", "started_at": "2026-11-21T06:17:28Z", "duration_s": 12.3,
        "raw": f"raw/{node}/{stage}-{check}-1.txt", "raw_sha256": "a" * 64, "simulated": False, **fields,
    }  # fmt: skip


def plan(nodes: t.Iterable[str], stages: t.Iterable[str], **fields: t.Any) -> Plan:
    given = {
        "schema": "plan/v1", "run_id": RUN, "created_at": "2026-11-21T06:17:18Z", "collection_version": "0.1.0",
        "ansible_version": "2.19.14", "python_version": "3.11.7", "mode": "run", "partial": False, "left_out": [],
        "skipped_stages": [], "stages": [{"name": s, "role": s} for s in stages], "items": [], "sample": {}, "notes": [],
        "targets": {n: {"plane": "ssh"} for n in nodes}, **fields,
    }  # fmt: skip
    return make_plan(given)


def judgement(
    given_verdicts: list[dict[str, t.Any]], measurements: t.Iterable[dict[str, t.Any]] = (), **fields: t.Any
) -> types.SimpleNamespace:
    """Return the judgement of the verdict engine, as far as a report reads it."""
    verdicts = [records.verdict(one) for one in given_verdicts]
    deciding = {key_of(m): records.measurement(m) for m in measurements}
    simulated = any(of.simulated for of in (*verdicts, *deciding.values()))
    counts = {word: sum(v.verdict == word for v in verdicts) for word in PARTS}
    accepted = bool(verdicts) and not counts["FAIL"] and not counts["UNKNOWN"]
    words = {word: count for word, count in counts.items() if count}
    measured = len(verdicts) - counts["UNKNOWN"]
    coverage = {"planned": len(verdicts), "measured": measured, "skipped": 0, "verdicts": words, "ratio": 1.0, "unknown": []}
    coverage["not_measured"] = [f"{v.subject.id} {v.stage} {v.check}: UNKNOWN (timeout)" for v in verdicts if v.verdict == "UNKNOWN"]
    given = {"verdicts": verdicts, "accepted": accepted, "why": "because", "counts": counts, "coverage": coverage, "notes": []}
    given["passed"] = fields.get("accepted", accepted)
    of = {"nodes": nodes.judged(verdicts), "deciding": deciding, "simulated": simulated, "drift": {}, "warnings": [], "tables": {}}
    of |= {"past": None, "unproven": [], "speed_not_proven": []}
    of["causes"] = causes.found(verdicts, [], deciding)
    return types.SimpleNamespace(**{**given, **of, **fields})


def fleet(size: int, checks: int, seed: int = 1) -> tuple[Plan, types.SimpleNamespace]:
    """`size` x `checks` verdicts with a number each: 2 % WARN, 1 % FAIL, some without a value."""
    rng = random.Random(seed)
    names = [f"node{n:04}" for n in range(1, size + 1)]
    stages = [f"stage{s}" for s in range((checks + 4) // 5)]
    verdicts, measurements = [], []
    for i in range(checks):
        stage, check = stages[i // 5], f"check{i}"
        for name in names:
            value, word = rng.gauss(478, 3), "PASS"
            dice = rng.random()
            if dice < 0.01:
                value, word = value * 0.8, "FAIL"
            elif dice < 0.03:
                value, word = value * 0.93, "WARN"
            given: dict[str, t.Any] = {"value": value, "unit": "GB/s", "floor": 455.0, "layer": "shipped", "metric": "busbw"}
            if dice > 0.999:
                given, word = {"reason_code": "timeout"}, "UNKNOWN"
            reason = f"{name}: busbw {value:.1f} GB/s" if word != "PASS" else f"{name}: as it should be"
            expected = {"expectation": f"e{i}", "expected": 479.0, "source": "vendor", "date": "2026-11", "confidence": "vendor"}
            verdicts.append(verdict(name, stage, check, word, reason=reason, **expected, **given))
            metrics = {"busbw": {"value": value, "unit": "GB/s"}, "avg_busbw": {"value": 300.0, "unit": "GB/s"}}
            measurements.append(measurement(name, stage, check, metrics=metrics))
    return plan(names, stages), judgement(verdicts, measurements)


def hostile() -> tuple[Plan, types.SimpleNamespace]:
    """Every text that a node can send is one of HOSTILE, in every place a report shows."""
    words = list(PARTS)
    verdicts, measurements, drift = [], [], {}
    for i, text in enumerate(HOSTILE):
        given = {
            "value": 400.0 + i, "unit": "GB/s", "floor": 455.0, "layer": "shipped", "metric": "busbw", "reason": f"{text}: {text}",
            "findings": [text], "source": text, "expectation": text, "expected": 480.0, "date": "2026-11", "ticket": text,
            "expires": "2027-01-01", "simulated": i % 2 == 0, "variant": text,
        }  # fmt: skip
        verdicts.append(verdict(text, "nccl_node", "all_reduce", words[i % len(words)], **given))
        verdicts.append(verdict(text, "nccl_node", "all_reduce", "FAIL", part=text, **given))
        verdicts.append(verdict(text, "stack", "facts", "WARN", reason=text))
        measurements.append(
            measurement(
                text, "nccl_node", "all_reduce", variant=text, command=[text, text], tool_version=text, raw=text,
                evidence={"changes": [{"code": "xid", "text": text}], "unreadable": [text]},
                metrics={"avg_busbw": {"value": 1.0, "unit": text}, text: {"value": 2.0, "unit": text}},
            )
        )  # fmt: skip
        item = {"item": text, "found": text, "expected": text, "basis": "majority", "agree": 3, "of": 4, "severity": "fail"}
        drift[text] = [{**item, "agreeing": [text], "differing": [text]}]
    of = plan(HOSTILE, ["stack", "nccl_node"], partial=True, left_out=HOSTILE, skipped_stages=["gemm"])
    of.targets["idle\x1b[2J<b>"] = {"plane": "ssh"}
    of.sample = {"nccl_node": {"seed": 7, "nodes": HOSTILE, "of": 40}}
    return of, judgement(verdicts, measurements, notes=HOSTILE, drift=drift, why=" ".join(HOSTILE))


def pairs(size: int, rails: int = 2, seed: int = 1) -> list[Cell]:
    """All pairs of `size` nodes on each rail: node 3 slow on rail 0, one bad path, one link that broke, one not measured."""
    rng = random.Random(seed)
    cells = []
    for rail in range(rails):
        ports = [f"n{n:04}/nic/mlx5_{rail}/1" for n in range(size)]
        for i, a in enumerate(ports):
            for j in range(i + 1, size):
                value = rng.gauss(391, 1)
                if rail == 0 and 3 in (i, j):
                    value = 190.0
                elif (i, j) == (5, 9):
                    value = 300.0
                cells.append(Cell(a, ports[j], str(rail), value, floor=380.0))
        cells[-1] = Cell(*ports[-2:], str(rail), None, "failed", reason="the client lost its link", floor=380.0)
        cells[-2] = Cell(ports[-3], ports[-1], str(rail), None, "unknown", reason="<b>partner never came</b>", floor=380.0)
    return cells


def charts() -> list[dict[str, t.Any]]:
    """Return the charts of a case that failed and of one that passed, as a stage's description gives them."""
    rates = [{"name": f"pod-{n}", "x": [10, 20, 30, 40], "y": [100 + n, 101, 290, 300]} for n in range(2)]
    expected = {"name": "by the quota", "x": [25, 50, 100], "y": [984, 492, 246], "expected": True}
    took = [{"name": "measured", "x": [25, 50, 100], "y": [911, 440, 246], "dots": True}, expected]
    pods = [{"name": group, "x": ["node-1 GPU-1", "node-1 GPU-2"], "y": [2, 1], "bars": True} for group in ("first", "second")]
    throughput = {"title": "Throughput over time", "x": "seconds", "y": "iterations/s", "curves": rates, "moments": [[20, "80 %"]]}
    duration = {"title": "Duration against quota", "x": "compute quota (%)", "y": "s", "curves": took, "moments": []}
    mapping = {"title": "Pods on GPUs", "x": "GPU", "y": "pods", "curves": pods, "moments": []}
    return [
        {"of": "ONE on a", "verdict": "FAIL", "simulated": False, **throughput},
        {"of": "ONE on b", "verdict": "PASS", "simulated": True, **duration},
        {"of": "ONE on b", "verdict": "PASS", "simulated": True, **mapping},
    ]
