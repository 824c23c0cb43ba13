# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict engine: plan, measurements, expectations and waivers in, verdicts and acceptance out. It runs nothing.

Of everything that speaks of one check the worst decides, in the order PASS, SKIPPED, WARN, KNOWN_FAIL, UNKNOWN, FAIL; a
node's verdict includes those of its parts. What was not properly measured is never a PASS.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import json
import math
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import (
    bands,
    causes,
    configured,
    drift,
    expectations,
    hops,
    identity,
    nodes,
    past,
    physics,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectation, Expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.waivers import Waiver
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.waivers import parse as waivers_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.forms import Cause, NodeVerdict, number
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, key_of, kind_of, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import problem, well_formed

Record = dict[str, t.Any]
Verdict = dict[str, t.Any]
# Numbers of a measurement with the expectations that they were held to; None where one of them cannot be.
Compared = list[tuple[Expectation, bands.Reading]] | None

# Findings of a health check that are only worth a look.
MILD_FINDINGS = ("foreign_process", "firmware", "floating_image", "settings_differ", "not_repeatable")


@dataclasses.dataclass
class Judgement:
    """What a run is worth. `why` is one sentence.

    `verdicts` are verdict/v1 of everything, the worst first; `planned` those of the plan's items in its order;
    `extras` those of what was measured and not planned. `nodes` are the verdicts of whole nodes, pairs and groups, the worst first.
    `deciding` is of each key the measurement that was judged. `counts` counts all verdicts. `coverage` is {"planned", "measured" (or
    not applicable), "skipped", "ratio", "unknown": [text]}. `drift` is {node: deviating facts with their severity}. `causes` are
    what lies behind the verdicts that are no PASS, what was convicted first. `warnings` are of the run as a whole, and count as WARN.
    `simulated`: whether any number came from a simulated tool. `tables` are by stage those of its pairs. `past` is what became of its
    numbers since earlier runs, None where nobody said it.
    """

    verdicts: list[Verdict]
    planned: list[Verdict]
    extras: list[Verdict]
    nodes: list[NodeVerdict]
    deciding: t.Mapping[Key, Record]
    coverage: dict[str, t.Any]
    accepted: bool
    why: str
    counts: dict[str, int]
    partial: bool
    simulated: bool
    notes: list[str]
    drift: dict[str, list[dict[str, t.Any]]]
    causes: list[Cause] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)
    tables: dict[str, list[Table]] = dataclasses.field(default_factory=dict)
    past: past.Told | None = None


def judge(
    plan: dict[str, t.Any],
    measurements: t.Iterable[t.Any],
    expected: t.Callable[[str, str], Expectations],
    waivers: t.Sequence[t.Any] | None = None,
    warn: str = "accept",
    stack: t.Mapping[str, dict[str, t.Any]] | None = None,
    *,
    stated: identity.Stated | None = None,
    today: datetime.date | None = None,
    required: t.Mapping[str, t.Mapping[str, t.Sequence[str]]] | None = None,
    stages: t.Iterable[Stage] = (),
    leaf: t.Mapping[str, str] | None = None,
    changed: t.Sequence[str] = (),
    warnings: t.Sequence[str] = (),
    before: past.Past | None = None,
    regression: str = "warn",
) -> Judgement:
    """Judge a run.

    `plan` has run_id, items ({stage, check, variant, subject, target}), partial, notes. `expected(node, target)` are the
    expectations of a node, or of anything else that a target measured. `waivers` as in plugin_utils/waivers.py.
    `stack[target]` is {"golden", "ignore", "drift"}, `stated[target]` what the inventory says of its machines,
    {"gpu_count", "mig"}. `leaf` is the leaf switch of each node, as far as known. `today` is the day on which waivers must still hold.
    `required[target]` names by stage what must have been readable while it measured, {"nccl_node": ["xid"]}. `changed` says what of the
    evidence itself is not what was written: nothing is accepted then. `warnings` are about the run as a
    whole. `before` knows earlier runs, and `regression` is acceptance_regression. WaiverError for a waiver that cannot be used.
    """
    court = _Court(plan, expected, stack or {}, required or {}, {stage.name: stage for stage in stages})
    court.waivers = waivers_of(list(waivers or []))
    court.today = (today or datetime.date.today()).isoformat()
    court.warn = warn
    court.stated = stated or {}
    court.leaf = leaf or {}
    court.changed = changed
    court.warnings = list(warnings)
    court.before, court.regression = before, regression
    court.hear(measurements)
    return court.judge()


class Stage(t.Protocol):
    """What the engine asks of the description of a stage (stages/base.py)."""

    name: str
    conditions: frozenset[str]

    def tables(self, records: list[Record], expected: t.Callable[[str, str], Expectations]) -> list[Table]: ...

    def opinions(
        self, deciding: t.Mapping[Key, Record], records: list[Record], expected: t.Callable[[str, str], Expectations], tables: list[Table]
    ) -> t.Iterator[tuple[Key, Opinion] | causes.Blame]: ...


class _Court:
    """One judgement, step by step: attempts to one opinion, then fleet, siblings, drift, evidence, parts, waivers."""

    def __init__(
        self,
        plan: dict[str, t.Any],
        expected: t.Callable[[str, str], Expectations],
        stack: t.Mapping[str, dict[str, t.Any]],
        required: t.Mapping[str, t.Mapping[str, t.Sequence[str]]],
        stages: t.Mapping[str, Stage],
    ) -> None:
        self.plan = plan
        self.stages = stages
        self.planned = {key_of(item) for item in plan["items"]}
        self.expected = expected
        self.stack = stack
        self.required = required
        self.waivers: list[Waiver] = []
        self.used: set[Waiver] = set()
        self.today = ""
        self.warn = "accept"
        self.warnings: list[str] = []
        self.before: past.Past | None = None
        self.regression = "warn"
        self.told: past.Told | None = None
        self.worse: dict[Key, list[str]] = collections.defaultdict(list)
        self.stated: identity.Stated = {}
        self.leaf: t.Mapping[str, str] = {}
        self.changed: t.Sequence[str] = ()
        self.notes: list[str] = list(plan.get("notes") or [])
        self.drift: dict[str, list[dict[str, t.Any]]] = {}
        self.tables: dict[str, list[Table]] = {}
        self.records: dict[Key, list[Record]] = collections.defaultdict(list)
        self.deciding: dict[Key, Record] = {}
        self.parts: dict[Key, list[Key]] = collections.defaultdict(list)
        self.machines = identity.Nodes({})
        self.doubts: dict[str, tuple[str, str]] = {}
        self.blames: list[causes.Blame] = []
        self.asked: dict[Key, list[dict[str, t.Any]]] = collections.defaultdict(list)
        for item in plan["items"]:
            self.asked[key_of(item)].append(item["subject"])

    def hear(self, measurements: t.Iterable[t.Any]) -> None:
        """Take the measurements in, by what they are about."""
        for record in measurements:
            self._take(record)
        # By key and by attempt: the order of the journal's lines decides nothing.
        self.records = dict(sorted(self.records.items()))
        for key, attempts in self.records.items():
            if len(attempts) > 1:
                attempts.sort(key=lambda m: (m["attempt"], json.dumps(m, sort_keys=True, default=str)))
            self.deciding[key] = self._counting(key, attempts)
            node = node_of(key[3])
            if node != key[3]:
                self.parts[key._replace(subject=node)].append(key)
        self.machines = identity.Nodes(self.records)

    def _counting(self, key: Key, attempts: list[Record]) -> Record:
        """The attempt that counts is the last that measured; where none did, the last. Of several with its number the worst."""
        done = [m for m in attempts if m["outcome"] == "measured"] or attempts
        last = [m for m in done if m["attempt"] == done[-1]["attempt"]]
        return max(last, key=lambda m: self._alone(key, m).badness) if len(last) > 1 else last[0]

    def _alone(self, key: Key, record: Record) -> Opinion:
        """What one record is worth without any other."""
        heard = [self._own(key, record)[0], *self._health(record), *(one for _whom, one in self._fatal(key, record))]
        return self._with_evidence(key, record, bands.worst(heard))

    def _take(self, record: t.Any) -> None:
        wrong = None if well_formed(record) else problem(record) or "it has a number that is none"
        if wrong is None and record["run_id"] != self.plan["run_id"]:
            wrong = f"it is of run {record['run_id']}"
        if wrong is None:
            self.records[key_of(record)].append(record)
            return
        bad = _key_of_bad(record)
        if bad is None:
            self.notes.append(f"a record without stage, check and subject was left out: {wrong}")
            return
        attempt = record.get("attempt")
        self.records[bad].append(
            {
                **dict(zip(("stage", "check", "variant"), bad, strict=False)),
                "target": str(record.get("target") or node_of(bad.subject)),
                "subject": {"kind": kind_of(bad.subject), "id": bad.subject, "members": []},
                "attempt": attempt if isinstance(attempt, int) and not isinstance(attempt, bool) and attempt > 0 else 1,
                "outcome": "error",
                "reason_code": "bad_measurement",
                "reason": f"the measurement is refused: {wrong}"[:2000],
                "metrics": {},
                "series": [],
                "context": {},
                "evidence": {},
                "command": [],
                "tool_version": None,
                "duration_s": None,
                "raw": None,
                "simulated": record.get("simulated") is True,
            }
        )

    # Opinions ----------------------------------------------------------------------------------------------------

    def judge(self) -> Judgement:
        chosen: dict[Key, Compared] = {}
        opinions: dict[Key, list[Opinion]] = {}
        for key, record in self.deciding.items():
            opinion, chosen[key] = self._own(key, record)
            opinions[key] = [opinion]
        for key, opinion in self._against_others(chosen):
            opinions[key].append(opinion)
        if self.before is not None and self.regression != "off":
            self.told = self.before(self.deciding, self._numbers(chosen))
        if self.told:
            self.notes += self.told.left_out
            for change in self.told.changes:
                if change.regression:
                    self.worse[change.key].append(change.reason)
        for key, opinion in self._drift():
            opinions[key].append(opinion)
        for key, opinion in configured.opinions(self.deciding, lambda key, record: self._own(key, record)[0]):
            opinions[key].append(opinion)
        for key, opinion in self.machines.opinions(self.records, self.stated, self.stack):
            opinions[key].append(opinion)
        everything = [record for attempts in self.records.values() for record in attempts]
        for stage in self.stages.values():
            tables = self.tables[stage.name] = stage.tables(everything, self.expected)
            for said in stage.opinions(self.deciding, everything, self.expected, tables):
                if isinstance(said, causes.Blame):
                    self.blames.append(said)
                else:
                    opinions[said[0]].append(said[1])
        settled: dict[Key, Opinion] = {}
        for key in sorted(opinions, key=lambda key: key in self.parts):  # parts before what they are parts of
            settled[key] = self._settle(key, opinions[key], settled)
        self.notes += self._unused()
        return self._conclude(settled)

    def _own(self, key: Key, record: Record) -> tuple[Opinion, Compared]:
        outcome, code, reason = record["outcome"], record["reason_code"], record["reason"]
        if outcome == "measured":
            expected = self.expected(node_of(key[3]), record["target"])
            if not record["metrics"] and (self._is_condition(record) or not record["series"]):
                return self._without_number(record, expected if self._is_planned(key) else None), []
            opinion, compared = measured(key, record, expected)
            if opinion.reason_code == "no_expectation" and self._of_stage(record) and not expected.choose(record):
                # Its numbers are shown, and laid beside those of siblings and neighbours.
                done = f"{record['check']} was done and is as it should be"
                opinion = dataclasses.replace(opinion, verdict="PASS", reason_code=None, reason=done)
            return opinion, compared
        if outcome == "not_applicable" and code in reasons.SKIP_RULES:
            return Opinion("SKIPPED", f"rule {code}: {reason}", code), []
        if outcome == "error" and code in reasons.FATAL:
            return Opinion("FAIL", f"{reason} ({reasons.FATAL[code]})", code), []
        return Opinion("UNKNOWN", str(reason), code), []

    def _without_number(self, record: Record, expected: Expectations | None) -> Opinion:
        """A check that was measured and has no number: a PASS where it is about a condition, and nobody expects a number of it."""
        stage, check = record["stage"], record["check"]
        if self._of_stage(record):
            return Opinion("PASS", f"{check} was done and is as it should be")
        mine = [e for e in expected.entries if e.match["stage"] == stage] if expected else []
        wanted = next((e for e in mine if bands.accepts(e, record) is None), None)
        if wanted:
            reason = f"it has no number, and {wanted.id} ({wanted.layer}) expects {wanted.metric} of it"
        elif self._is_condition(record):
            return Opinion("PASS", f"{check} was done and is as it should be")
        else:
            reason = "it has no number, and does not say that it needs none, by {condition: true} in its context"
        return Opinion("UNKNOWN", reason, "no_number")

    def _of_stage(self, record: Record) -> bool:
        """Whether its stage says that its check is about a condition."""
        stage = self.stages.get(record["stage"])
        return stage is not None and record["check"] in stage.conditions

    def _is_condition(self, record: Record) -> bool:
        return self._of_stage(record) or record["context"].get("condition") is True

    def _is_planned(self, key: Key) -> bool:
        """Whether it, or the node that it is a part of, is in the plan."""
        return key in self.planned or key._replace(subject=node_of(key.subject)) in self.planned

    def _against_others(self, chosen: dict[Key, Compared]) -> t.Iterator[tuple[Key, Opinion]]:
        """WARN and FAIL of those that are far worse than identical subjects, or than the other GPUs of their node."""
        alike: dict[t.Any, list[tuple[Key, float]]] = collections.defaultdict(list)
        nodes: dict[t.Any, list[tuple[Key, float]]] = collections.defaultdict(list)
        for key, record in self.deciding.items():
            if record["outcome"] != "measured" or record["context"].get("comparable") is False:
                continue
            compared = chosen[key]
            if compared is None:  # what cannot be is no yardstick
                continue
            look = hardware(record)
            for metric, size, unit, better, value in _comparable(record, compared):
                what = (*key[:3], metric, size, unit, better)
                alike[(what, record["subject"]["kind"], look)].append((key, value))
                if record["subject"]["kind"] == "gpu":
                    nodes[(what, node_of(key[3]))].append((key, value))
        for (what, kind, _look), group in alike.items():
            pairs = {hops.nodes_of(key[3]): (key, value) for key, value in group} if kind == "pair" else {}
            if what[6] == "lower" and any(a != b for a, b in pairs):  # a latency: pairs with as many hops are its neighbours
                for pair, word, median, others in hops.outliers({p: v for p, (_key, v) in pairs.items()}, self.leaf):
                    yield pairs[pair][0], _outlier(what, pairs[pair][1], (word, median), "below_neighbours", others)
                continue
            centre = bands.centre([value for _key, value in group])
            if centre is None:
                continue
            for key, value in group:
                verdict = bands.against_neighbours(value, centre, what[6])
                if verdict:
                    others = f"the median of {len(group)} identical subjects"
                    yield key, _outlier(what, value, (verdict, centre.median), "below_neighbours", others)
        for (what, _node), group in nodes.items():
            if what[6] != "higher":
                continue
            for key, value in group:
                found = bands.against_siblings(value, [v for k, v in group if k != key])
                if found:
                    yield key, _outlier(what, value, found, "below_siblings", "the median of its node's other GPUs")

    def _numbers(self, chosen: dict[Key, Compared]) -> t.Iterator[past.Number]:
        """Numbers to hold against earlier ones: those with an expectation for all sizes, and the one that stands for the check."""
        for key, record in self.deciding.items():
            compared = chosen[key]
            if record["outcome"] != "measured" or record["context"].get("comparable") is False or compared is None:
                continue
            better = {expectation.metric: expectation.better for expectation, found in compared if found.size is None}
            metric = primary(record)
            if metric is not None:
                better.setdefault(metric, better_of(record["metrics"][metric]["unit"]))
            for name, way in better.items():
                m = record["metrics"][name]
                yield past.Number(key, record, name, m["unit"], float(m["value"]), way)

    def _drift(self) -> t.Iterator[tuple[Key, Opinion]]:
        """Deviations of facts, among nodes with the same GPUs and under the same rules."""
        groups: dict[str, dict[str, Key]] = collections.defaultdict(dict)
        for key, record in self.deciding.items():
            if record["outcome"] == "measured" and isinstance(record["context"].get("facts"), dict):
                alike = [self.stack.get(record["target"]) or {}, record["context"].get("gpu")]
                groups[json.dumps(alike, sort_keys=True, default=str)][key[3]] = key
        for group in groups.values():
            first, *_others = group.values()
            rules = self.stack.get(self.deciding[first]["target"]) or {}
            facts = {node: self.deciding[key]["context"]["facts"] for node, key in group.items()}
            for node, found in drift.drift(facts, rules.get("golden"), rules.get("ignore") or ()).items():
                items = [dict(item, severity=drift.severity(item, rules.get("drift"))) for item in found]
                items = [item for item in items if item["severity"] != "ignore"]
                if items:
                    self.drift[node] = items
                    yield group[node], deviations(items)

    def _health(self, record: Record) -> t.Iterator[Opinion]:
        """What a check found beside its numbers, but for what is fatal."""
        findings = record["context"].get("findings") or []
        for finding in findings if isinstance(findings, list) else [{"text": "the findings are not of their form"}]:
            code, text = _coded(finding)
            if code not in reasons.FATAL and record["outcome"] == "measured":
                known = code if code in reasons.ALL else "health"
                yield Opinion("WARN" if code in MILD_FINDINGS else "FAIL", text, known)

    def _fatal(self, key: Key, record: Record) -> t.Iterator[tuple[Key, Opinion]]:
        """Wrong results, lost GPUs and memory errors that an attempt found beside its result, whatever that is, each with the key of
        the part that it is about."""
        findings, changes = record["context"].get("findings"), record["evidence"].get("changes")
        for items, when in ((findings, ""), (changes, " while the test ran")):
            for item in items if isinstance(items, list) else ():
                code, text = _coded(item)
                if code in reasons.FATAL:
                    part = item.get("part")
                    whom = f"{key[3]}/{part}" if part and isinstance(part, str) else key[3]
                    yield key._replace(subject=whom), Opinion("FAIL", text + when, code)

    def _earlier(self, key: Key) -> t.Iterator[tuple[Key, Opinion]]:
        """What is fatal in the attempts that do not count: none after it takes it back."""
        for record in self.records[key]:
            if record is self.deciding[key]:
                continue
            found = list(self._fatal(key, record))
            if record["outcome"] == "error" and record["reason_code"] in reasons.FATAL:
                found.append((key, Opinion("FAIL", str(record["reason"]), record["reason_code"])))
            for whom, one in found:
                yield whom, dataclasses.replace(one, reason=f"on attempt {record['attempt']}, which no other takes back: {one.reason}")

    def _settle(self, key: Key, opinions: list[Opinion], settled: dict[Key, Opinion]) -> Opinion:
        """One opinion of a check, with its attempts, its waivers and its evidence; `settled` has those of its parts."""
        record, attempts = self.deciding[key], self.records[key]
        own = [self._by_parts(key, self._waive(key, one), settled) for one in (*opinions, *self._health(record))]
        fatal = [self._waive(whom, one) for whom, one in (*self._fatal(key, record), *self._earlier(key))]
        opinion = bands.worst([*own, *fatal])
        if opinion.verdict == "PASS" and (len(attempts) > 1 or record["attempt"] > 1):
            others = [m for m in attempts if m is not record]
            said = "; ".join(f"attempt {m['attempt']}: {m['reason'] or m['outcome']}" for m in others) or "not recorded"
            reason = f"it passed on attempt {record['attempt']} only ({said}): {opinion.reason}"
            opinion = opinion.but("WARN", "later_attempt", reason)
        opinion = self._with_past(key, self._with_evidence(key, record, opinion))
        # A part's verdict can become its node's: say whose it is.
        said = opinion.reason if opinion.reason.startswith(key[3]) else f"{key[3]}: {opinion.reason}"
        return dataclasses.replace(opinion, reason=said)

    def _with_evidence(self, key: Key, record: Record, opinion: Opinion) -> Opinion:
        evidence = record["evidence"]
        changes = evidence.get("changes") or []
        unreadable = evidence.get("unreadable") or []
        if not isinstance(changes, list) or not isinstance(unreadable, list):
            changes, unreadable = [{"text": "the evidence is not of its form"}], ["evidence"]
        texts = [_coded(change)[1] for change in changes]
        if unreadable:
            note = f"evidence that could not be read: {', '.join(map(str, unreadable))}"
            opinion = dataclasses.replace(opinion, findings=[*opinion.findings, note])
        if texts and opinion.verdict == "PASS":
            opinion = opinion.but("WARN", "evidence", f"it passed, but during the test: {'; '.join(texts)}")
        elif texts:
            opinion = dataclasses.replace(opinion, findings=[*opinion.findings, *texts])
        missing = self._missing(key, record)
        if missing and opinion.severity < bands.SEVERITY["UNKNOWN"]:
            reason = f"{key.stage}_required_evidence: it could not be read while the test ran: {', '.join(missing)}; see acceptance_become"
            opinion = opinion.but("UNKNOWN", "evidence_unreadable", reason)
        return opinion

    def _with_past(self, key: Key, opinion: Opinion) -> Opinion:
        """What has become worse than its own past is at best a WARN; its floor, and all else that was said of it, stays."""
        worse = self.worse.get(key)
        if not worse:
            return opinion
        if opinion.verdict == "PASS":
            opinion = opinion.but("WARN", past.REGRESSION, "; ".join(worse))
        else:
            opinion = dataclasses.replace(opinion, reason="; ".join((opinion.reason, *worse)))  # whether it is new is asked first
        return dataclasses.replace(opinion, regressed=True)

    def _missing(self, key: Key, record: Record) -> list[str]:
        """What the stage requires to have been readable on a node, and was not. Its parts were measured in the same window."""
        codes = self.required.get(record["target"], {}).get(key.stage, ())
        if not codes or record["outcome"] != "measured" or record["subject"]["kind"] != "node" or key not in self.planned:
            return []
        evidence = record["evidence"]
        window, changes, unreadable = (evidence.get(name) for name in ("window", "changes", "unreadable"))
        gathered = isinstance(window, dict) and isinstance(changes, list) and isinstance(unreadable, list)
        return [code for code in codes if not gathered or code in t.cast("list[t.Any]", unreadable)]

    # Conclusion --------------------------------------------------------------------------------------------------

    def _conclude(self, settled: dict[Key, Opinion]) -> Judgement:
        self.doubts = self.machines.doubts()
        final = {key: self._final(key, opinion) for key, opinion in settled.items() if key not in self.parts}
        for key in self.parts:
            if key in settled:
                parts = [final[part] for part in self.parts[key]]
                final[key] = self._final(key, bands.worst([settled[key], *parts]))
        planned: dict[Key, Verdict] = {}
        for item in self.plan["items"]:
            key = key_of(item)
            record = self.deciding.get(key)
            opinion = final.get(key)
            if opinion is None:
                reason = f"{key[3]}: it is in the plan and was never measured; resume the run"
                parts = [final[part] for part in self.parts.get(key, ())]
                opinion = self._final(key, bands.worst([Opinion("UNKNOWN", reason, "not_run"), *parts]))
            promised = {*item["subject"]["members"], *(record["subject"]["members"] if record else ())}
            if item["subject"]["kind"] == "group":  # its members are who took part, not parts with numbers of their own
                promised = set()
            missing = sorted(promised - {part[3] for part in self.parts.get(key, ())})
            if missing and record is not None and record["outcome"] == "measured":
                some = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
                reason = f"{key[3]}: it was not measured whole: nothing came from {some}"
                opinion = bands.worst([opinion, Opinion("UNKNOWN", reason, "incomplete")])
            other = identity.not_as_planned(item, record) if record is not None and record["outcome"] == "measured" else None
            if other:
                opinion = bands.worst([opinion, Opinion("UNKNOWN", f"{key[3]}: {other}", "incomplete")])
            # What was planned says whom a group consists of, not what was measured.
            subject = item["subject"] if record is None or item["subject"]["kind"] != "node" else record["subject"]
            planned[key] = self._write(key, subject, opinion)
        covered = {*planned, *(part for key in planned for part in self.parts.get(key, ()))}
        others, extras = [], []
        for key, opinion in final.items():
            if key in planned:
                continue
            others.append(self._write(key, self.deciding[key]["subject"], opinion))
            if key not in covered:
                others[-1]["findings"].append("it was not planned and cannot make the run accepted")
                extras.append(others[-1])
        return self._judgement(list(planned.values()), others, extras)

    def _final(self, key: Key, opinion: Opinion) -> Opinion:
        """An opinion, unless nobody knows which machine it is about."""
        about = [*self.asked.get(key, ()), *(record["subject"] for record in self.records.get(key, ()))] if self.doubts else ()
        for node in sorted({node for subject in about for node in subjects.nodes_of(subject)} & set(self.doubts)):
            code, words = self.doubts[node]
            opinion = opinion.but("UNKNOWN", code, f"{node}: {words}")
        if not opinion.findings:
            return opinion
        return dataclasses.replace(opinion, findings=list(dict.fromkeys(opinion.findings)))

    # Waivers -----------------------------------------------------------------------------------------------------

    def _waive(self, key: Key, opinion: Opinion) -> Opinion:
        """A failure under the waiver that names its code. Each is waived by itself, so that a known one hides no other."""
        if opinion.verdict != "FAIL":
            return opinion
        mine = [w for w in self.waivers if w.covers(key[3], key[0], key[1])]
        waiver = self._naming(mine, (opinion.reason_code,))
        if waiver is None:
            others = [f"waiver {w.ticket} does not name {opinion.reason_code}, only {', '.join(w.codes)}" for w in mine]
            return dataclasses.replace(opinion, findings=[*opinion.findings, *others])
        self.used.add(waiver)
        if waiver.expires < self.today:
            reason = f"{opinion.reason}; its waiver {waiver.ticket} expired on {waiver.expires}"
            changed = opinion.but("FAIL", "expired_waiver", reason)
            return dataclasses.replace(changed, ticket=waiver.ticket, expires=waiver.expires)
        return _known(opinion, waiver, opinion.reason)

    @staticmethod
    def _naming(of: t.Iterable[Waiver], codes: t.Iterable[str | None]) -> Waiver | None:
        """The waiver that names one of the codes; of several the one that holds longest."""
        naming = [w for w in of if set(codes) & set(w.codes)]
        return max(naming, key=lambda w: (w.expires, w.ticket), default=None)

    def _by_parts(self, key: Key, opinion: Opinion, settled: dict[Key, Opinion]) -> Opinion:
        """A node's number is that of its slowest part: where that part is waived and the others alone would not be too slow, the node
        is a known failure too."""
        promised = set(self.deciding[key]["subject"]["members"])
        names = {part[3]: part for part in self.parts.get(key, ())}
        if opinion.verdict != "FAIL" or opinion.reason_code not in reasons.LOW or not promised or promised - set(names):
            return opinion
        if opinion.value is None or opinion.expected is None or opinion.floor is None:
            return opinion
        values, waived = {}, {}
        for name, part in names.items():
            value = self._number(part, opinion)
            if value is None:
                return opinion
            values[name] = value
            waiver = self._naming((w for w in self.waivers if w.covers(name, *key[:2])), reasons.LOW)
            if settled[part].verdict == "KNOWN_FAIL" and waiver and waiver.expires >= self.today:
                waived[name] = waiver
        lower = opinion.floor > opinion.expected
        limit = bands.floors(opinion.expected, "lower" if lower else "higher")[1]
        others = [value for name, value in values.items() if name not in waived]
        slow = [name for name in waived if math.isclose(values[name], opinion.value, rel_tol=1e-6)]
        if not slow or any(value > limit if lower else value < limit for value in others):
            return opinion
        return _known(opinion, waived[slow[0]], f"{opinion.reason}; that is its part {slow[0]}, and the others are fast enough")

    def _number(self, part: Key, opinion: Opinion) -> float | None:
        """A part's number of the metric that an opinion is about, in its unit."""
        try:
            found = bands.reading(self.deciding[part], str(opinion.metric), None)
            return physics.convert(found.value, found.unit, str(opinion.unit)) if found else None
        except ValueError:
            return None

    def _unused(self) -> t.Iterator[str]:
        """Waivers that cover nothing in this run; of a wide one, which stands for many subjects, only where it covers none of them."""
        groups: dict[Waiver, list[Waiver]] = collections.defaultdict(list)
        for waiver in self.waivers:
            groups[dataclasses.replace(waiver, subject="") if waiver.wide else waiver].append(waiver)
        for group in groups.values():
            if not self.used.intersection(group):
                w = group[0]
                about = " ".join(word for word in (w.stage, w.check) if word != "*") or "any check"
                subjects = ", ".join(one.subject for one in group[:4]) + (" ..." if len(group) > 4 else "")
                yield f"waiver {w.ticket} covers nothing in this run: {about} on {subjects}, {', '.join(w.codes)}"

    def _write(self, key: Key, subject: dict[str, t.Any], opinion: Opinion) -> Verdict:
        record = self.deciding.get(key)
        related = [*([record] if record else []), *(self.deciding[part] for part in self.parts.get(key, ()))]
        about = {
            "run_id": self.plan["run_id"],
            **dict(zip(("stage", "check", "variant"), key, strict=False)),
            "subject": subject,
            "attempt": record["attempt"] if record else None,
            "simulated": any(m["simulated"] for m in related),
        }
        return opinion.write(about)

    def _judgement(self, planned: list[Verdict], others: list[Verdict], extras: list[Verdict]) -> Judgement:
        everything = sorted(
            [*planned, *others],
            key=lambda v: (-bands.SEVERITY[v["verdict"]], v["stage"], v["subject"]["id"], v["check"], v["variant"]),
        )
        counts = dict.fromkeys(bands.SEVERITY, 0) | collections.Counter(v["verdict"] for v in everything)
        mine = collections.Counter(v["verdict"] for v in planned)
        # Who is to blame stands first, whoever found it: a plan has no check of the node that a slow group turns out to have. What is bad
        # because of somebody else is not named beside it.
        behind = causes.found(everything, self.blames, self.deciding)
        because = {key: subjects.bearer({"kind": c["kind"], "id": c["subject"]}) for c in behind for key in c["explains"]}
        failed = {because.get(key_of(v)) or subjects.bearer(v["subject"]) for v in everything if v["verdict"] == "FAIL"}
        unknown = {because.get(key_of(v)) or subjects.bearer(v["subject"]) for v in planned if v["verdict"] == "UNKNOWN"} - failed
        bad = mine["FAIL"] + mine["UNKNOWN"]
        bad_extras = sum(v["verdict"] == "FAIL" for v in extras)
        warned = counts["WARN"] + len(self.warnings)
        worse = {subjects.bearer(v["subject"]) for v in everything if v["regressed"]} if self.regression == "refuse" else set()
        refusals = [
            (self.changed, "; ".join(self.changed)),
            (not planned, "the plan is empty: nothing was to be measured"),
            (failed, f"FAIL on {subjects.named(failed)}"),
            (unknown, f"UNKNOWN on {subjects.named(unknown)}"),
            (bad, f"{mine['FAIL']} FAIL and {mine['UNKNOWN']} UNKNOWN of {len(planned)} planned checks"),
            (bad_extras, f"{bad_extras} FAIL of checks that were not planned"),
            (planned and not bad and not mine["PASS"], "no planned check is a PASS: nothing was shown to work"),
            (self.warn != "accept" and warned, f"{warned} WARN, and acceptance_warn is {self.warn}"),
            (worse, f"worse than its own past: {subjects.named(worse)}, and acceptance_regression is {self.regression}"),
        ]
        refused = [text for refuses, text in refusals if refuses]
        partial = bool(self.plan.get("partial"))
        why = "; ".join(refused)
        if not refused:
            about = {subjects.bearer(v["subject"]) for v in planned}
            why = f"all {len(planned)} planned checks on {subjects.counted(kind for kind, _name in about)} are acceptable"
            why += f", {mine['WARN']} with a WARN to read" if mine["WARN"] else ""
            why += f", {len(self.warnings)} WARN of the run as a whole" if self.warnings else ""
            why += f", {mine['KNOWN_FAIL']} under a waiver" if mine["KNOWN_FAIL"] else ""
        if partial:
            quick = "a quick test is no acceptance" if self.plan.get("not_proven") else ""
            parts = "this run left parts of the fleet or of the stages out" if self._left_out() or not quick else ""
            why += f"; PARTIAL: {' and '.join(filter(None, (quick, parts)))}"
        done = sum(self._done(v) for v in planned)
        return Judgement(
            verdicts=everything,
            planned=planned,
            extras=extras,
            nodes=nodes.judged(everything),
            deciding=self.deciding,
            coverage={
                "planned": len(planned),
                "measured": done,
                "skipped": mine["SKIPPED"],
                "ratio": done / len(planned) if planned else 0.0,
                "unknown": [
                    f"{v['subject']['id']} {v['stage']} {v['check']}" for v in everything if v["verdict"] == "UNKNOWN"
                ],
            },
            accepted=not refused,
            why=why,
            counts=counts,
            partial=partial,
            simulated=any(record["simulated"] for attempts in self.records.values() for record in attempts),
            notes=self.notes,
            drift=self.drift,
            causes=behind,
            warnings=self.warnings,
            tables=self.tables,
            past=self.told,
        )

    def _left_out(self) -> bool:
        return bool(self.plan.get("left_out") or self.plan.get("skipped_stages"))

    def _done(self, verdict: Verdict) -> bool:
        record = self.deciding.get(key_of(verdict))
        return record is not None and record["outcome"] in ("measured", "not_applicable")


# Rules -----------------------------------------------------------------------------------------------------------


def measured(key: Key, record: Record, expected: Expectations) -> tuple[Opinion, Compared]:
    """A measured check against all expectations of its hardware: the worst decides. And what was compared."""
    wrong = bands.impossible(record)
    opinions: list[Opinion] = [wrong] if wrong else []
    compared = []
    chosen = expected.choose(record)
    for expectation, size in chosen:
        try:
            found = bands.reading(record, expectation.metric, size)
        except bands.Unusable as error:
            opinions.append(Opinion("UNKNOWN", str(error), "bad_measurement", metric=expectation.metric))
            continue
        if found is not None:
            opinions.append(bands.compare(found, expectation))
            compared.append((expectation, found))
    if opinions:
        return bands.worst(opinions), None if wrong else compared
    value: dict[str, t.Any] = {}
    metric = primary(record)
    if metric is not None:
        found = bands.reading(record, metric, None)
        if found:
            value = {"metric": metric, "value": found.value, "unit": found.unit}
    if chosen:
        sizes = [row["size"] for row in record["series"] if number(row.get("size"))]
        ends = f"the run ends at {bands.human(int(max(sizes)))}" if sizes else "the run has no message sizes"
        ids = ", ".join(sorted({c.expectation.id for c in chosen})[:3])
        reason = f"{ends} and has none of the sizes of {ids}: only its correctness was judged, its bandwidth is unknown"
        return Opinion("UNKNOWN", reason, "no_expectation", **value), []
    context = record["context"]
    what = [f"{context['gpus']} x {context['gpu']}" if "gpu" in context and "gpus" in context else context.get("gpu")]
    what += [f"{k} {context[k]}" for k in ("nodes", "nics", "nic_gbps", "nvls", "algorithm", "shape") if k in context]
    on = f" on {', '.join(map(str, filter(None, what)))}" if any(what) else ""
    name = " ".join(filter(None, key[:3]))
    advice = "set it in acceptance_expectations or run playbooks/baseline.yml"
    return Opinion("UNKNOWN", f"no expectation for {name}{on}; {advice}", "no_expectation", **value), []


def _known(opinion: Opinion, waiver: Waiver, said: str) -> Opinion:
    changed = opinion.but("KNOWN_FAIL", "waived", f"known failure, {waiver.ticket}, until {waiver.expires}: {said}")
    return dataclasses.replace(changed, of="FAIL", ticket=waiver.ticket, expires=waiver.expires)


def deviations(items: list[dict[str, t.Any]]) -> Opinion:
    """An opinion of the facts in which a node deviates (plugin_utils/judging/drift.py), each with its severity."""
    said = []
    for item in sorted(items, key=lambda item: item["severity"] != "fail"):
        basis = {"golden": "the golden value is", "majority": f"{item['agree']} of {item['of']} nodes have"}
        text = f"{basis.get(item['basis'], 'expected')} {item['expected'][:80]}"
        said.append(f"{item['item']} is {item['found'][:80]}, {text}")
    shown = "; ".join(said[:4]) + (f"; and {len(said) - 4} more" if len(said) > 4 else "")
    verdict = "FAIL" if any(item["severity"] == "fail" for item in items) else "WARN"
    return Opinion(verdict, shown, "drift", findings=said[4:])


def primary(record: Record) -> str | None:
    """The metric that stands for a check."""
    metrics = [name for name, m in record["metrics"].items() if isinstance(m, dict) and number(m.get("value"))]
    found = [name for name in bands.PRIMARY if name in metrics]
    return found[0] if found else metrics[0] if len(metrics) == 1 else None


def hardware(record: Record) -> str:
    """What makes subjects identical: everything that can select an expectation."""
    context = record["context"]
    return repr([record["simulated"], *((k, context[k]) for k in expectations.CONTEXT_KEYS if k in context and context[k] is not None)])


def _comparable(
    record: Record, compared: list[tuple[Expectation, bands.Reading]]
) -> t.Iterator[tuple[str, int | None, str, str, float]]:
    """Numbers to lay beside the neighbours': those with an expectation, else the one that stands for the check."""
    if compared:
        for expectation, found in compared:
            try:
                value = physics.convert(found.value, found.unit, expectation.unit)
            except ValueError:
                continue
            yield expectation.metric, found.size, expectation.unit, expectation.better, value
        return
    metric = primary(record)
    if metric is not None:
        found = record["metrics"][metric]
        yield metric, None, found["unit"], better_of(found["unit"]), float(found["value"])


def better_of(unit: str) -> str:
    """Which way a number is better where no expectation says it."""
    return "lower" if physics.UNITS.get(unit, ("",))[0] == "time" else "higher"


def _outlier(what: tuple[t.Any, ...], value: float, found: tuple[str, float], code: str, others: str) -> Opinion:
    verdict, median = found
    _stage, _check, _variant, metric, size, unit, better = what
    at = f" at {bands.human(size)}" if size else ""
    floor = bands.floors(median, better)[0]
    reason = f"{metric} {value:.5g} {unit}{at} is {value / median:.3f} of {others}, {median:.5g}"
    return Opinion(
        verdict, reason, code, value, unit, floor, "fleet", others, "measured", metric=metric, expected=median
    )


def _key_of_bad(record: t.Any) -> Key | None:
    if not isinstance(record, dict) or not isinstance(record.get("subject"), dict):
        return None
    key = [record.get("stage"), record.get("check"), record.get("variant"), record["subject"].get("id")]
    return Key(*map(str, key)) if all(isinstance(word, str) for word in key) and key[3] else None


def _coded(item: t.Any) -> tuple[str, str]:
    """Code and text of a finding or a change."""
    if not isinstance(item, dict):
        return "", str(item)
    return str(item.get("code") or ""), str(item.get("text") or item.get("code") or "something without a text")
