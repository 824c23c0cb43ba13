# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A console over a run in which nodes say what an attacker would, wherever a page shows any of it."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import fleet, notes, open_problems, saved_forms
from harness import console_memory as memory
from harness import history_runs as runs

TEXTS = (
    "</script><script>window.harm=1</script>", "'\"><img src=x onerror=window.harm=1>", "{{ 7 * 7 }}", "=cmd|' /C calc'!A0", "@SUM(1)",
    "a\r\nset-cookie: x=1", "\x1b[2J\u202egnp", "javascript:alert(1)", "../../../etc/passwd",
)  # fmt: skip
NODE = "b"
PAGES = ("/", "/?part=lists", f"/results/{runs.run_id(2)}", f"/node?name={NODE}", "/start", "/start?template=saved", "/runs/mine",
         "/runs", "/history")


def opened(results: pathlib.Path, **given: t.Any) -> memory.Opened:
    """A console in which everything that comes from nodes is hostile: causes, parts, switches, the log; and so is a template."""
    runs.judged(results, 1, runs.fleet(a=672.0, b=671.0), acceptance_history=True)
    run = runs.judged(results, 2, runs.fleet(a=672.0, b=400.0), acceptance_history=True)
    with open(run.dir / "report.json", "a", encoding="utf-8") as report:
        report.write(f'\n "causes": {json.dumps([*map(_cause, TEXTS)])}\n')
    run.journal.append({"subject": {"id": NODE}, "context": _parts(text)} for text in TEXTS)
    folder = results / saved_forms.FOLDER
    folder.mkdir(parents=True)
    fields = [[name, text] for name in ("nodes", "labels", "device", "variables", "kind", "stage") for text in TEXTS]
    (folder / "saved.json").write_text(json.dumps({"fields": fields, "who": TEXTS[0]}))
    for number, text in enumerate(TEXTS):
        note = results / notes.FOLDER / run.id / f"{number}.json"
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps(notes.Note(text, text, text, text)._asdict()))
    log = results / "logs/uid-1/log"
    log.parent.mkdir(parents=True)
    log.write_text("\n".join(TEXTS))
    console = memory.opened(results, memory=memory.Memory([actions.NodeInfo(NODE, 8, 8)]), **{"logs": str(results / "logs"), **given})
    status = actions.Status(phase=actions.RUNNING, run_id=run.id, progress="1/2")
    console.actions.put(actions.Action("mine", "", {"rdma": {"nodes": [NODE]}}, status, "", uid="uid-1"))
    return console


def state() -> fleet.FleetState:
    """What the home page shows, with hostile text in every place."""
    nodes = {text: fleet.NodeState(text, {text: "FAIL"}, 1.0, text, True, (text,)) for text in TEXTS}
    causes = tuple(open_problems.CauseLine(text, text, "FAIL", text, True) for text in TEXTS)
    lines = [fleet.WorseLine(text, node, text, "PASS", "FAIL") for text in TEXTS for node in ("", text)]
    without_cause = tuple(open_problems.WithoutCause("FAIL", (text,)) for text in TEXTS)
    return fleet.FleetState(nodes, causes, tuple(fleet.WorseSince(text, text, lines) for text in TEXTS), 1, without_cause=without_cause)


def _cause(text: str) -> dict[str, t.Any]:
    check = {"stage": text, "check": text, "variant": text, "verdict": "FAIL", "subject": text}
    finding = {**check, "reason": text, "evidence": [text], "raw": text, "command": text, "also": [text]}
    return {
        "subject": f"{NODE}/gpu/{text}", "kind": "gpu", "verdict": "FAIL", "convicted": True, "whole": True, "said": text, "name": text,
        "simulated": True, "advice": [text], "findings": [finding], "explains": [check],
    }  # fmt: skip


def _parts(text: str) -> dict[str, t.Any]:
    gpu = {"uuid": text, "index": text, "serial": text, "name": text, "bdf": text}
    device = {"device": text, "part_number": text, "serial_number": text, "pci": text}
    port = {"device": text, "switch": text, "switch_port": text}
    return {"gpu_table": [gpu], "devices": [device], "ports": [port], "present": [text]}
