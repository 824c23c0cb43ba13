# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Proposes expectations from what a run, or the accepted runs of some days, measured."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.observation import utc
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import baseline
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import integrity, verdict_files
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import write_atomically
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, Plan
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        args = self._task.args
        try:
            proposal, folder = self._proposed({name: str(value or "") for name, value in args.items()})
            text = proposal.text
            path = pathlib.Path(str(args.get("file") or folder / "expectations.yml"))
            old_text = path.read_text(encoding="utf-8") if path.is_file() else ""
            if not self._task.check_mode:
                write_atomically(path, text)
        except (RunError, OSError, ValueError) as error:
            return {"failed": True, "msg": str(error)}
        for line in said(proposal, str(path)):
            Display().display(line)
        return {
            "changed": old_text != text,
            "path": str(path),
            "count": len(proposal.entries),
            "diff": {"before": old_text, "after": text, "before_header": str(path), "after_header": str(path)},
        }

    @staticmethod
    def _proposed(args: dict[str, str]) -> tuple[baseline.Proposal, pathlib.Path]:
        """From one run, or the accepted ones of a range; and the folder that it is written to unless somebody says where."""
        days = {name: args[name] for name in ("since", "until") if args.get(name)}
        if args.get("run_id") and days:
            raise RunError(f"found run_id {args['run_id']} and {' '.join(map(' '.join, days.items()))}, expected a run or a range of days")
        if days:
            from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import ranging, store

            results = args["results_dir"]
            with store.Store(store.url_of(results, args.get("url", ""))) as history:
                return ranging.propose(history, results, args.get("since", ""), args.get("until", ""), utc()[:10]), pathlib.Path(results)
        run = Run.open(args["results_dir"], args.get("run_id", ""))
        plan = run.plan()
        evidence = integrity.gather(run, plan)
        if evidence.changed:
            raise RunError(f"run {run.id} is not what was written: {evidence.changed[0]}")
        doubt = _doubt(run, plan)
        if doubt and args.get("unaccepted", "").lower() not in ("true", "yes", "1"):
            raise RunError(f"run {run.id} {doubt}: slow nodes propose slow values; if that is intended, set -e baseline_unaccepted=true")
        measurements = [record for record in evidence.records if isinstance(record, Measurement)]
        return baseline.propose(measurements, run.id, utc()[:10]), run.dir


def _doubt(run: Run, plan: Plan) -> str:
    """Return why the numbers of a run are no yardstick; empty if it was accepted, or only lacks expectations, which is what a proposal
    is for. The newest judgement of the run counts."""
    if plan.mode == "quick":
        return "is a quick test"
    reports = [run.dir / "report.json", *sorted(run.dir.glob("judged/*/report.json"))]
    newest = next((path for path in reversed(reports) if path.is_file()), None)
    if newest is None:
        return "was not judged"
    try:
        report = json.loads(newest.read_text(encoding="utf-8"))
        if report["accepted"]:
            return ""
        with verdict_files.opened(newest.parent) as lines:
            bad = [v for v in map(json.loads, lines) if v["verdict"] in ("FAIL", "UNKNOWN")]
        if bad and all(v["reason_code"] == "no_expectation" for v in bad):
            return ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"has no judgement that can be read ({newest.parent.name}: {error})"
    return "was not accepted"


def said(proposal: baseline.Proposal, path: str) -> list[str]:
    """Return the lines about a proposal that people need to know."""
    lines = [f"left out: {line}" for line in proposal.left_out]
    lines += [f"commented out: {line}" for line in proposal.under]
    few = [entry["id"] for entry in proposal.entries if entry["confidence"] == "derived"]
    if few:
        lines.append(
            f"of {', '.join(few[:5])}{' ...' if len(few) > 5 else ''} too few groups were measured to compare them: "
            "a slow group proposes a slow value; hold it against what its NICs can give"
        )
    if proposal.entries:
        lines.append(
            f"{path}: {len(proposal.entries)} expectations; read it, remove its 'proposed: true', and name it in "
            "acceptance_expectation_files"
        )
    else:
        why = "" if proposal.left_out or proposal.under else ": the run has no numbers without errors"
        lines.append(f"{path}: nothing can be proposed{why}")
    return lines
