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
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, Verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import baseline
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.gates import ELSEWHERE, Gate

# {verdict: status in the words of the public code}.
STATUS = {"PASS": "PASS", "FAIL": "FAIL", "SKIPPED": "SKIP", "UNKNOWN": "UNKNOWN", "WARN": "PASS", "KNOWN_FAIL": "FAIL"}

_NO_WORD = re.compile(r"\W")


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
        # What a passed case saw stands in its record: the reason of its verdict is the same for all of them.
        reason = " ".join(str(case.get("cause") if status == "PASS" and case.get("cause") else verdict.reason).split())
        logs = record.context.get("artifacts", "")
        numbers = {**{name: metric.value for name, metric in record.metrics.items()}, **_seen(case)}
        ended = _ended(record)
        summary.append("\t".join((host, suite, str(case.get("id")), status, reason, logs)))
        result = {
            "run_id": run_id, "cluster": host, "suite": suite, "case_id": case.get("id"), "status": status, "summary": reason,
            "start_time": record.started_at, "end_time": ended, "duration_s": record.duration_s, "reason": reason,
            "metrics": numbers, "units": _units(record, case), "profile": case.get("profile"),
            "commit": record.context.get("commit", ""), "images": record.context.get("images", []),
            "scale": record.context.get("scale"), "attempt": record.attempt, "simulated": record.simulated,
            "expressions": case.get("expressions", []), "artifacts": logs,
        }  # fmt: skip
        texts[f"{folder}/result.json"] = json.dumps(result, indent=1, sort_keys=True) + "\n"
        texts[f"{folder}/analysis.txt"] = analysis(status, reason, case)
        texts[f"{folder}/metrics.env"] = "".join(f"{_NO_WORD.sub('_', name)}={value}\n" for name, value in numbers.items())
        texts[f"{folder}/meta.env"] = (
            f"RUN_ID={run_id}\nCLUSTER={host}\nSUITE={suite}\nCASE_ID={case.get('id')}\nSTART_TIME={_plain(record.started_at)}\n"
            f"START_TIME_RFC3339={record.started_at}\nEND_TIME={_plain(ended)}\nSTATUS={status}\nSUMMARY={reason}\n"
        )
        texts[f"{folder}/analysis.env"] = f"STATUS={status}\nSUMMARY={reason}\nDURATION_SEC={int(record.duration_s)}\n"
    texts["case-summary.tsv"] = "\n".join(summary) + "\n"
    lines = ["cluster\tsuite\tselector\tstatus"]
    lines += [f"{host}\t{suite}\tall\t{_worst(statuses)}" for (host, suite), statuses in suites.items()]
    texts["run-summary.tsv"] = "\n".join(lines) + "\n"
    texts["issues.tsv"] = issues(gates, rows)
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


def _seen(case: t.Mapping[str, t.Any]) -> dict[str, float]:
    return {name: number["value"] for name, number in case.get("seen", {}).items()}


def _units(record: Measurement, case: t.Mapping[str, t.Any]) -> dict[str, str]:
    seen = {name: number["unit"] for name, number in case.get("seen", {}).items()}
    return {**{name: metric.unit for name, metric in record.metrics.items()}, **seen}


def issues(gates: t.Sequence[Gate], rows: t.Sequence[tuple[Verdict, Measurement]]) -> str:
    """Return lines of tab-separated values: the failed cases of each gate, the cases of P0 that were skipped or are unknown, and the failed
    and unknown cases of no gate."""
    lines = ["gate\tcase_id\tissue"]
    lines += [f"{gate.name}\t{case}\t{' '.join(why.split())}" for gate in gates for case, why in gate.failed.items()]
    named = {case for gate in gates for case in gate.failed}
    for verdict, record in rows:
        case = record.context.get("case") or {}
        name, status = str(case.get("id")), STATUS[verdict.verdict]
        in_first = gates and gates[0].name in case.get("gates", [])
        if status == "PASS" or name in named or (status == "SKIP" and (record.reason_code == ELSEWHERE or not in_first)):
            continue
        gate = gates[0].name if in_first else (case.get("gates") or ["-"])[0]
        lines.append(f"{gate}\t{name}\t{record.target}: {status}: {' '.join(str(verdict.reason).split())}")
    return "\n".join(lines) + "\n"


def snapshot(run_id: str, rows: t.Sequence[tuple[Verdict, Measurement]]) -> str:
    """Return baseline.json: every case with its status, and the numbers of those that passed. Numbers of an earlier baseline that this run
    was compared with stay."""
    cases: dict[str, dict[str, t.Any]] = {}
    for verdict, record in rows:
        case, context = record.context.get("case") or {}, record.context
        key = baseline.comparison_key(context, record.variant, record.simulated)
        entry = {**key, "status": STATUS[verdict.verdict], "commit": context.get("commit", ""), "metrics": {}}
        if verdict.verdict == "PASS":
            metrics = {name: {"run_id": run_id, **metric.as_dict()} for name, metric in record.metrics.items()}
            entry.update({"metrics": {**metrics, **case.get("baseline", {})}, "seen": case.get("seen", {})})
        cases[f"{record.target} {case.get('id')}"] = entry
    return json.dumps({"run_id": run_id, "cases": cases}, indent=1, sort_keys=True) + "\n"


def _worst(statuses: t.Sequence[str]) -> str:
    return next((word for word in ("FAIL", "UNKNOWN", "PASS") if word in statuses), "SKIP")
