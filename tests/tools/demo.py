#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the acceptance over the demo fleet and hold its verdicts against what was planted there.

Exit status 0 exactly when every planted fault was found by its name, and nothing else was found.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time
import typing as t

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
# {inventory: what is planted in it}. Each is a run of its own: a fleet with the stages of single nodes, and a rack of trays
# with nodes of another vendor beside it.
DEMOS = {"inventories/demo": "planted.yml", "inventories/demo_rack": "planted_rack.yml"}
ACCEPTED = ("PASS", "WARN", "SKIPPED", "KNOWN_FAIL")


def run(results: pathlib.Path, inventory: str) -> int:
    command = ["ansible-playbook", "acceptance.yml", "-i", inventory]
    print(f"$ {' '.join(command)}\n", flush=True)
    return subprocess.run([*command, "-e", f"acceptance_results_dir={results}"], cwd=ROOT, check=False).returncode


def compare(planted: list[dict[str, t.Any]], verdicts: list[dict[str, t.Any]]) -> tuple[list[str], list[str]]:
    """Return the faults that were not found by their name, and the findings that nobody planted. A domain that lacks a tray is no second
    fault."""
    found = [v for v in verdicts if v["verdict"] not in ACCEPTED]
    missed, explained = [], set()
    for fault in planted:
        named = [
            v for v in found
            if v["subject"]["id"].split("/")[0] == fault["node"]
            and all(v[k] == fault[k] for k in ("stage", "verdict", "reason_code") if k in fault)
        ]
        if not named:
            missed.append(f"{fault['node']}: {fault['fault']}")
        # One fault may show in several checks of its node and stage.
        explained.add((fault["node"], fault["stage"]))
    extra = [
        f"{v['subject']['id']}: {v['stage']} {v['check']}: {v['verdict']}: {v['reason']}"
        for v in found
        if (v["subject"]["id"].split("/")[0], v["stage"]) not in explained
        and not (v["subject"]["kind"] == "nvlink_domain" and any(fault["node"] in v["reason"] for fault in planted))
    ]
    return missed, extra


def main() -> int:
    files = (ROOT / "tests/rigs/simulated/demo" / name for name in DEMOS.values())
    planted = [fault for file in files for fault in yaml.safe_load(file.read_text(encoding="utf-8"))]
    results = ROOT / "results"
    before = set(results.glob("*/")) if results.is_dir() else set()
    begin = time.monotonic()
    statuses = [run(results, inventory) for inventory in DEMOS]
    seconds = time.monotonic() - begin
    new = sorted(set(results.glob("*/")) - before)
    reports = [folder / "report.json" for folder in new if (folder / "report.json").is_file()]
    if len(reports) != len(DEMOS):
        print(f"the demo wrote {len(reports)} reports, expected {len(DEMOS)}", file=sys.stderr)
        return 1
    verdicts = [json.loads(line) for report in reports for line in (report.parent / "verdicts.jsonl").read_text().splitlines()]
    missed, extra = compare(planted, verdicts)
    print("\nPlanted in this simulated fleet:")
    for fault in planted:
        mark = "MISSED" if any(m.startswith(fault["node"] + ":") for m in missed) else "found "
        print(f"  {mark}  {fault['node']}: {fault['fault']} ({fault['stage']}: {fault['verdict']})")
    for line in extra:
        print(f"  NOT PLANTED  {line}")
    good = not missed and not extra and all(statuses)
    if not all(statuses):
        print("  a run was accepted although faults are planted in it")
    print(f"{'All and only the planted faults were found' if good else 'The demo FAILED'} ({seconds:.0f} s).")
    for inventory, report in zip(DEMOS, reports, strict=True):
        print(f"Report of {inventory}: {report.with_name('report.html')}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
