# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report for machines and plain text: JSON, Markdown, JUnit XML, Prometheus. Each escapes what a node can send.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import re
import typing as t
from xml.etree import ElementTree

Model = t.Dict[str, t.Any]
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe\uffff]|[\ud800-\udfff]")


def plain(text: t.Any) -> str:
    """A string without control characters, which no format may pass on: they are shown as their codes."""
    return _CONTROL.sub(lambda m: f"\\x{ord(m.group(0)):02x}", str(text))


def as_json(model: Model) -> str:
    """report/v1."""
    return json.dumps({k: v for k, v in model.items() if k != "verdicts"}, indent=1, sort_keys=True, default=str) + "\n"


def cell(text: t.Any) -> str:
    """Text as the content of a Markdown table cell or line: nothing in it is markup."""
    flat = " ".join(plain(text).split())
    return re.sub(r"([\\`*_{}\[\]()<>#+!|~&$@:-])", r"\\\1", flat).replace("\\:", ":").replace("\\-", "-")


def markdown(model: Model) -> str:
    """The report as one Markdown page."""
    lines = [
        f"# {'ACCEPTED' if model['accepted'] else 'NOT ACCEPTED'}: run {cell(model['run_id'])}",
        "",
        cell(model["why"]),
        "",
    ]
    if model["simulated"]:
        lines += ["**SIMULATED: some of these results come from simulated tools, not from hardware.**", ""]
    if model["partial"]:
        lines += [f"**PARTIAL: left out {len(model['left_out'])} hosts; stages {cell(', '.join(model['skipped_stages']) or 'none')}**", ""]
    coverage = model["coverage"]
    lines += [
        f"Coverage: {coverage['measured']} of {coverage['planned']} planned checks measured. "
        + ", ".join(f"{n} {name}" for name, n in model["counts"].items()),
        "",
        "| node | verdict | " + " | ".join(cell(s["name"]) for s in model["stages"]) + " |",
        "|---|---|" + "---|" * len(model["stages"]),
    ]
    for node in model["nodes"]:
        mark = " (simulated)" if node["simulated"] else ""
        lines.append(f"| {cell(node['name'])}{mark} | {node['verdict']} | " + " | ".join(node["stages"].values()) + " |")
    abnormal = [n for n in model["nodes"] if n["findings"]]
    if abnormal:
        lines += ["", "## Abnormal nodes", ""]
        for node in abnormal:
            lines += [f"- **{cell(node['name'])}**"]
            lines += [f"  - {f['verdict']} {cell(f['stage'])} {cell(f['check'])}: {cell(f['reason'])}" for f in node["findings"]]
    if model["expectations"]:
        lines += ["", "## Expectations used", "", "| check | value | layer | source | date | confidence |", "|---|---|---|---|---|---|"]
        lines += [
            f"| {cell(e['stage'])} {cell(e['check'])} {cell(e['metric'])} | {e['expected']} {cell(e['unit'])} | {cell(e['layer'])} "
            f"| {cell(e['source'])} | {cell(e['date'])} | {cell(e['confidence'])} |"
            for e in model["expectations"]
        ]
    lines += [""] + [f"Note: {cell(note)}" for note in model["notes"]]
    return "\n".join(lines).rstrip() + "\n"


def junit(model: Model) -> str:
    """One test case per verdict; FAIL is a failure, UNKNOWN an error, SKIPPED and KNOWN_FAIL are skipped."""
    root = ElementTree.Element("testsuites", name=plain(model["run_id"]))
    for stage in model["stages"]:
        rows = [(group, row) for group in stage["checks"] for row in group["rows"]]
        suite = ElementTree.SubElement(
            root, "testsuite", name=plain(stage["name"]), tests=str(len(rows)),
            failures=str(sum(r["verdict"] == "FAIL" for _g, r in rows)), errors=str(sum(r["verdict"] == "UNKNOWN" for _g, r in rows)),
            skipped=str(sum(r["verdict"] in ("SKIPPED", "KNOWN_FAIL") for _g, r in rows)),
        )  # fmt: skip
        for group, row in rows:
            name = f"{group['check']} {group['variant']}".strip() + (" (simulated)" if row["simulated"] else "")
            case = ElementTree.SubElement(
                suite, "testcase", name=plain(name), classname=plain(row["subject"]), time=f"{row['duration_s'] or 0:.3f}"
            )
            tag = {"FAIL": "failure", "UNKNOWN": "error", "SKIPPED": "skipped", "KNOWN_FAIL": "skipped"}.get(row["verdict"])
            if tag:
                ElementTree.SubElement(case, tag, message=plain(row["reason"])[:2000])
            elif row["verdict"] == "WARN":
                ElementTree.SubElement(case, "system-out").text = "WARN: " + plain(row["reason"])
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def prometheus(model: Model) -> str:
    """Metrics for the text file collector of node_exporter."""

    def labels(**values: t.Any) -> str:
        escaped = (f'{k}="{_label(v)}"' for k, v in values.items())
        return "{" + ",".join(escaped) + "}"

    run = model["run_id"]
    lines = [
        "# HELP gpufleet_acceptance_accepted Whether the run was accepted.",
        "# TYPE gpufleet_acceptance_accepted gauge",
        f"gpufleet_acceptance_accepted{labels(run_id=run, simulated=str(model['simulated']).lower())} {int(model['accepted'])}",
        "# HELP gpufleet_acceptance_verdicts Number of verdicts.",
        "# TYPE gpufleet_acceptance_verdicts gauge",
        *(f"gpufleet_acceptance_verdicts{labels(run_id=run, verdict=name)} {n}" for name, n in model["counts"].items()),
        "# HELP gpufleet_acceptance_coverage_ratio Measured of planned checks.",
        "# TYPE gpufleet_acceptance_coverage_ratio gauge",
        f"gpufleet_acceptance_coverage_ratio{labels(run_id=run)} "
        f"{model['coverage']['measured'] / model['coverage']['planned'] if model['coverage']['planned'] else 0}",
        "# HELP gpufleet_acceptance_node_accepted Whether nothing speaks against a node.",
        "# TYPE gpufleet_acceptance_node_accepted gauge",
        *(
            f"gpufleet_acceptance_node_accepted{labels(run_id=run, node=n['name'])} {int(n['verdict'] not in ('FAIL', 'UNKNOWN'))}"
            for n in model["nodes"]
        ),
        "# HELP gpufleet_acceptance_value What a check measured, in its unit.",
        "# TYPE gpufleet_acceptance_value gauge",
    ]
    for stage in model["stages"]:
        for group in stage["checks"]:
            for row in group["rows"]:
                if row["value"] is not None:
                    of = labels(
                        run_id=run, stage=stage["name"], check=group["check"], variant=group["variant"], subject=row["subject"],
                        metric=row["metric"], unit=row["unit"], verdict=row["verdict"],
                    )  # fmt: skip
                    lines.append(f"gpufleet_acceptance_value{of} {row['value']}")
    return "\n".join(lines) + "\n"


def _label(value: t.Any) -> str:
    return plain(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
