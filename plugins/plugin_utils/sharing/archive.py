# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The results of a matrix as the public test code lays them out: TSVs, and result.json, analysis.txt and meta.env for each case. The files
are derived from the journal and written again whenever the run is judged.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import datetime
import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, Verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import baseline
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.gates import Gate

# {verdict: status in the words of the public code}.
STATUS = {"PASS": "PASS", "FAIL": "FAIL", "SKIPPED": "SKIP", "UNKNOWN": "UNKNOWN", "WARN": "PASS", "KNOWN_FAIL": "FAIL"}


def files(run_id: str, rows: t.Sequence[tuple[Verdict, Measurement]], gates: t.Sequence[Gate]) -> dict[str, str]:
    """Return {path below the archive: text}. `rows` has the verdict and the measurement of each case."""
    texts: dict[str, str] = {}
    summary = ["cluster\tsuite\tcase_id\tstatus\tsummary\tcase_log_dir"]
    suites: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for verdict, record in rows:
        case = record.context.get("case") or {}
        host, suite = record.target, case.get("suite", "?")
        status = STATUS[verdict.verdict]
        folder = f"{host}/{suite}/{case.get('id', record.check)}"
        suites[host, suite].append(status)
        reason = " ".join(str(verdict.reason).split())
        logs = record.context.get("artifacts", "")
        ended = _ended(record)
        summary.append("\t".join((host, suite, str(case.get("id")), status, reason, logs)))
        result = {
            "run_id": run_id, "cluster": host, "suite": suite, "case_id": case.get("id"), "status": status, "summary": reason,
            "start_time": record.started_at, "end_time": ended, "duration_s": record.duration_s, "reason": reason,
            "metrics": {name: metric.value for name, metric in record.metrics.items()}, "profile": case.get("profile"),
            "scale": record.context.get("scale"), "attempt": record.attempt, "simulated": record.simulated,
            "expressions": case.get("expressions", []), "artifacts": logs,
        }  # fmt: skip
        texts[f"{folder}/result.json"] = json.dumps(result, indent=1, sort_keys=True) + "\n"
        texts[f"{folder}/analysis.txt"] = analysis(status, reason, case)
        texts[f"{folder}/metrics.env"] = "".join(f"{name}={metric.value}\n" for name, metric in record.metrics.items())
        texts[f"{folder}/meta.env"] = (
            f"RUN_ID={run_id}\nCLUSTER={host}\nSUITE={suite}\nCASE_ID={case.get('id')}\nSTART_TIME={_plain(record.started_at)}\n"
            f"START_TIME_RFC3339={record.started_at}\nEND_TIME={_plain(ended)}\nSTATUS={status}\nSUMMARY={reason}\n"
        )
        texts[f"{folder}/analysis.env"] = f"STATUS={status}\nSUMMARY={reason}\nDURATION_SEC={int(record.duration_s)}\n"
    texts["case-summary.tsv"] = "\n".join(summary) + "\n"
    lines = ["cluster\tsuite\tselector\tstatus"]
    lines += [f"{host}\t{suite}\tall\t{_worst(statuses)}" for (host, suite), statuses in suites.items()]
    texts["run-summary.tsv"] = "\n".join(lines) + "\n"
    texts["issues.tsv"] = issues(gates)
    texts["baseline.json"] = snapshot(run_id, rows)
    return texts


def _ended(record: Measurement) -> str:
    began = datetime.datetime.fromisoformat(record.started_at.replace("Z", "+00:00"))
    return (began + datetime.timedelta(seconds=float(record.duration_s or 0))).strftime("%Y-%m-%dT%H:%M:%SZ")


def _plain(moment: str) -> str:
    """Return a time as the public code writes it."""
    return moment.replace("T", " ").rstrip("Z")


def analysis(status: str, reason: str, case: t.Mapping[str, t.Any]) -> str:
    """Return the text of one case: operation, sampling, the expressions with their numbers, the conclusion."""
    lines = [f"STATUS={status}", f"SUMMARY={reason}", ""]
    lines += ["Operation:", *(f"  {text}" for text in case.get("operation", [])), "Sampling:"]
    lines += [*(f"  {text}" for text in case.get("sampling", [])), "Judged by:"]
    word = {True: "holds", False: "does not hold", None: "not known"}
    lines += [f"  {expression['said']}: {word[expression['holds']]}" for expression in case.get("expressions", [])]
    return "\n".join([*lines, f"Conclusion: {status}: {case.get('cause', reason)}"]) + "\n"


def issues(gates: t.Sequence[Gate]) -> str:
    """Return the failed cases of each gate as lines of tab-separated values."""
    lines = ["gate\tcase_id\tissue"]
    lines += [f"{gate.name}\t{case}\t{' '.join(why.split())}" for gate in gates for case, why in gate.failed.items()]
    return "\n".join(lines) + "\n"


def snapshot(run_id: str, rows: t.Sequence[tuple[Verdict, Measurement]]) -> str:
    """Return baseline.json: the numbers of the cases that passed. Numbers of an earlier baseline that this run was compared with stay."""
    cases: dict[str, dict[str, t.Any]] = {}
    for verdict, record in rows:
        if verdict.verdict == "PASS" and record.metrics:
            case, context = record.context.get("case") or {}, record.context
            metrics = {name: {"run_id": run_id, **metric.as_dict()} for name, metric in record.metrics.items()}
            key = baseline.comparison_key(context, record.variant, record.simulated)
            cases[f"{record.target} {case.get('id')}"] = {**key, "metrics": {**metrics, **case.get("baseline", {})}}
    return json.dumps({"run_id": run_id, "cases": cases}, indent=1, sort_keys=True) + "\n"


def _worst(statuses: t.Sequence[str]) -> str:
    return next((word for word in ("FAIL", "UNKNOWN", "PASS") if word in statuses), "SKIP")
