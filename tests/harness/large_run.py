# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of a run of thousands of nodes at level `standard`, as the planner and the planes leave it: plan, chained journal, raw texts.

It is made of a recorded run of a few hosts (tests/fixtures/standard-level, by tests/bench/record_standard.py): each node has all records of
one of them, 194 lines of the journal, with its own name, UUIDs, serials and identity, and numbers of its own. Seeded. Two nodes of a
hundred have a slow GPU, one slow collectives, one of a thousand says nothing after its first stages.
"""

from __future__ import annotations

import json
import lzma
import pathlib
import random
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import raw
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from harness import report_samples as samples

Record = t.Dict[str, t.Any]
RECORDING = pathlib.Path(__file__).resolve().parents[1] / "fixtures/standard-level"
# Nodes whose records go into the journal at once.
TOGETHER = 100
# How the numbers of healthy nodes scatter, as a part of each.
SCATTER = 0.005
SPEEDS, TIMES = frozenset({"GB/s", "TFLOPS", "samples/s", "tokens/s", "steps/s"}), frozenset({"us", "ms", "ns"})
ROW_SPEEDS, ROW_TIMES = ("busbw", "busbw_in_place", "busbw_out_of_place", "algbw"), ("time_us",)
SILENT_FROM = ("gpu_memory", "nccl_node", "gemm", "train")


class Made(t.NamedTuple):
    run: Run
    records: int
    numbers: int


class Host(t.NamedTuple):
    """A recorded host: what is its own in its records, and the records as text."""

    name: str
    machine: str
    boot: str
    records: list[str]


def make(results: pathlib.Path, nodes: int, seed: int = 1) -> Made:
    run = Run(results, samples.RUN)
    run.make()
    names = [f"node{number:05}" for number in range(1, nodes + 1)]
    hosts = _recorded()
    plan = _plan(names, hosts[0].name)
    (run.dir / "plan.json").write_text(json.dumps(plan, sort_keys=True))
    rng, records, numbers = random.Random(seed), 0, 0
    for first in range(0, nodes, TOGETHER):
        chunk: list[Record] = []
        for number in range(first, min(first + TOGETHER, nodes)):
            chunk += _of_node(run.dir, number, names[number], hosts[number % len(hosts)], rng)
        run.journal.append(chunk)
        records += len(chunk)
        numbers += sum(len(one["metrics"]) + sum(isinstance(v, float) for row in one["series"] for v in row.values()) for one in chunk)
    return Made(run, records, numbers)


def _recorded() -> list[Host]:
    """Return the recorded hosts."""
    lines: dict[str, list[str]] = {}
    known: dict[str, Record] = {}
    with lzma.open(RECORDING / "records.jsonl.xz", "rt", encoding="utf-8") as source:
        for line in source:
            record = json.loads(line)
            lines.setdefault(record["target"], []).append(line)
            known.setdefault(record["target"], record["context"]["identities"][record["target"]])
    return [Host(name, known[name]["machine_id"], known[name]["boot_id"], lines[name]) for name in sorted(lines)]


def _plan(names: list[str], host: str) -> Record:
    """Return the recorded plan with these nodes in place of its hosts: what the plan says of each host it says of each node."""
    with lzma.open(RECORDING / "plan.json.xz", "rt", encoding="utf-8") as source:
        plan = json.load(source)
    hosts = set(plan["targets"])

    def of_nodes(value: t.Any) -> t.Any:
        if not isinstance(value, dict):
            return value
        if set(value) == hosts:
            return dict.fromkeys(names, value[host])
        return {key: of_nodes(one) for key, one in value.items()}

    items = [item for item in plan["items"] if item["target"] == host]
    plan = {**of_nodes({**plan, "items": []}), "run_id": samples.RUN}
    plan["items"] = [json.loads(json.dumps(item).replace(host, name)) for item in items for name in names]
    plan["judging"]["sets"] = [expectations.shipped().dump()]
    return t.cast(Record, plan)


def _of_node(folder: pathlib.Path, number: int, name: str, host: Host, rng: random.Random) -> t.Iterator[Record]:
    """Everything that was measured of one node."""
    own = int(host.name.rpartition("-")[2])
    swaps = (
        (host.name, name), (f"GPU-{own:08x}-", f"GPU-{number:08x}-"), (host.machine, f"{number:032x}"),
        (host.boot, f"{number:08x}-0000-4000-8000-000000000000"), (f"165{own:05}", f"165{number:05}"),
    )  # fmt: skip
    dice = rng.random()
    silent, slow_link, slow_gpu = dice < 0.001, dice < 0.011, dice < 0.031
    references: dict[str, tuple[str, str]] = {}
    for line in host.records:
        for old, new in swaps:
            line = line.replace(old, new)
        record: Record = json.loads(line)
        text, reference = record.pop("raw_text"), record["raw"]
        if silent and record["stage"] in SILENT_FROM:
            continue
        if text is not None:
            if reference not in references:
                references[reference] = raw.store(folder, name, f"{record['stage']}, attempt 1", text.encode())
            record["raw"], record["raw_sha256"] = references[reference]
        record["run_id"] = samples.RUN
        factor = rng.gauss(1.0, SCATTER)
        if slow_link and record["stage"] == "nccl_node":
            factor *= 0.8
        if slow_gpu and record["stage"] == "gemm" and record["subject"]["id"].endswith(("000003", name)):
            factor *= 0.88
        _vary(record, factor)
        yield record


def _vary(record: Record, factor: float) -> None:
    """Make a measurement faster by a factor."""
    for metric in record["metrics"].values():
        if metric["unit"] in SPEEDS:
            metric["value"] *= factor
        elif metric["unit"] in TIMES:
            metric["value"] /= factor
    for row in record["series"]:
        for key in ROW_SPEEDS:
            if isinstance(row.get(key), float):
                row[key] *= factor
        for key in ROW_TIMES:
            if isinstance(row.get(key), float):
                row[key] /= factor
