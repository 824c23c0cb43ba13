# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The verdict table of the terminal.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import shutil
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.formats import plain

Model = t.Dict[str, t.Any]
COLOURS = {"FAIL": "red", "UNKNOWN": "purple", "WARN": "yellow", "KNOWN_FAIL": "cyan", "SKIPPED": "cyan", "PASS": "green"}
# All nodes are listed up to this many; of a larger fleet only those that are not a plain PASS.
ALL_NODES = 40


def table(model: Model, colour: bool = False) -> list[str]:
    """The table as lines without colour."""
    return [line for line, _colour in coloured(model)]


def coloured(model: Model) -> list[tuple[str, str | None]]:
    """The table as (line, colour name of Ansible's or None): abnormal nodes first, the verdict last."""
    width = max(60, min(shutil.get_terminal_size((120, 40)).columns, 200))
    stages = [s["name"] for s in model["stages"]]
    nodes = model["nodes"]
    shown = nodes if len(nodes) <= ALL_NODES else [n for n in nodes if n["verdict"] not in ("PASS", "SKIPPED")]
    name_width = min(max([4, *(len(plain(n["name"])) for n in shown)]), 40)
    lines: list[tuple[str, str | None]] = [("", None)]
    if model["partial"]:
        stages_out = ", ".join(model["skipped_stages"]) or "none"
        lines.append((f"PARTIAL: left out {len(model['left_out'])} hosts and stages {stages_out}", "yellow"))
    if model["simulated"]:
        lines.append(("SIMULATED: these results come from simulated tools, not from hardware", "yellow"))
    lines.append((f"{'node':{name_width}}  {'verdict':10}  " + "  ".join(f"{s:10}" for s in stages), None))
    for node in shown:
        name, cells = plain(node["name"])[:name_width], "  ".join(f"{node['stages'][s]:10}" for s in stages)
        row = f"{name:{name_width}}  {node['verdict']:10}  {cells}"
        lines.append((row.rstrip(), COLOURS[node["verdict"]]))
        seen: set[str] = set()
        for finding in node["findings"]:
            reason = plain(finding["reason"])
            if reason not in seen and len(seen) < 4:
                seen.add(reason)
                text = f"    {finding['verdict']}: {reason}"
                lines.append((text if len(text) <= 2 * width else text[: 2 * width - 3] + "...", COLOURS[finding["verdict"]]))
    if len(shown) < len(nodes):
        lines.append((f"and {len(nodes) - len(shown)} nodes with PASS", "green"))
    counts = ", ".join(f"{n} {name}" for name, n in model["counts"].items() if n)
    coverage = model["coverage"]
    lines += [(f"note: {plain(note)}", "yellow") for note in model["notes"]]
    lines += [
        ("", None),
        (f"{counts}; {coverage['measured']} of {coverage['planned']} planned checks measured", None),
        (f"{'ACCEPTED' if model['accepted'] else 'NOT ACCEPTED'}: {plain(model['why'])}", "green" if model["accepted"] else "red"),
    ]
    if model.get("path"):
        lines.append((f"report: {model['path']}", None))
    return lines
