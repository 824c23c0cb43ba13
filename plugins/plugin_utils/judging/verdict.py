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
import datetime
import itertools
import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import (
    bands,
    causes,
    configured,
    drift,
    health,
    identity,
    nodes,
    past,
    peer_comparison,
    single_checks,
    sweeps,
    waiving,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.judgement import Judgement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.waivers import parse as waivers_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.forked_worker import ForkedWorker
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, kind_of, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import parsed
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    FactRules,
    JudgingInputs,
    Measurement,
    Plan,
    Subject,
    Verdict,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Deviation


def judge(
    plan: Plan,
    measurements: t.Iterable[t.Any],
    expected: t.Callable[[str, str], Expectations],
    inputs: JudgingInputs | None = None,
    *,
    stages: t.Iterable[JudgedStage] = (),
    earlier_runs: past.Past | None = None,
    changed: t.Sequence[str] = (),
    warnings: t.Sequence[str] = (),
    today: datetime.date | None = None,
    lending: t.Collection[str] = (),
) -> Judgement:
    """Judge a run.

    `expected(node, target)` returns the expectations of a node, or of anything else that a target measured. `inputs` is the rest of what
    the inventory says; its sets of expectations are not read. `earlier_runs` compares numbers with earlier runs. `changed` says what of the
    evidence is not as it was written: nothing is accepted then. `warnings` are about the run as a whole. `today` is the day on which
    waivers must still be valid. `lending` names the planes on which something other than the inventory decides which GPUs a test gets
    (Plane.lends_devices). Raises WaiverError if a waiver cannot be used.
    """
    engine = Judge(plan, expected, inputs or JudgingInputs(), {stage.name: stage for stage in stages})
    engine.waiving = waiving.Waiving(waivers_of(engine.inputs.waivers), (today or datetime.date.today()).isoformat())
    engine.lending = lending
    engine.changed = changed
    engine.warnings = list(warnings)
    engine.before = earlier_runs
    engine.load(measurements)
    return engine.judge()


class JudgedStage(t.Protocol):
    """The part of a stage's description (stages/base.py) that the engine uses."""

    name: str
    conditions: frozenset[str]
    quick_conditions: frozenset[str]
    gated: bool
    finds_facts: bool
    sees_all_gpus: bool
    same_work: t.Mapping[str, tuple[str, str]]

    def proof(self, rows: list[tuple[Verdict, Measurement]]) -> tuple[str, str]: ...

    def tables(self, records: list[Measurement], expected: t.Callable[[str, str], Expectations]) -> list[Table]: ...

    def opinions(
        self,
        deciding: t.Mapping[Key, Measurement],
        records: list[Measurement],
        expected: t.Callable[[str, str], Expectations],
        tables: list[Table],
    ) -> t.Iterator[tuple[Key, Opinion] | causes.Blame]: ...


# Opinions by key, deviating facts by node, {node whose machine is in doubt: (reason code, words)}, and sentences of the run: of GPUs
# that nobody counted, and of those that MIG parts. Keys and opinions are plain tuples, as marshal takes them.
AmongNodes = tuple[
    list[tuple[tuple[str, ...], tuple[t.Any, ...]]], dict[str, list[Deviation]], dict[str, tuple[str, str]], tuple[list[str], list[str]]
]


class Judge:
    """One judgement, step by step: attempts to one opinion, then fleet, siblings, drift, evidence, parts, waivers."""

    def __init__(
        self,
        plan: Plan,
        expected: t.Callable[[str, str], Expectations],
        inputs: JudgingInputs,
        stages: t.Mapping[str, JudgedStage],
    ) -> None:
        self.plan = plan
        self.inputs = inputs
        self.stages = stages
        self.items = [(item.key, item) for item in plan.items]
        self.planned = {key for key, _item in self.items}
        self.expected = expected
        quick = plan.mode == "quick"
        # A stage without quick conditions keeps its own object: that of gpu_sharing holds every check, which no union would.
        conditions = {
            name: stage.conditions | stage.quick_conditions if quick and stage.quick_conditions else stage.conditions
            for name, stage in stages.items()
        }
        same_work = {(name, check): same_check for name, stage in stages.items() for check, same_check in stage.same_work.items()}
        self.single_checks = single_checks.SingleChecks(self.planned, expected, inputs.required, conditions, same_work)
        self.lending: t.Collection[str] = ()
        self.waiving = waiving.Waiving([], "")
        self.warnings: list[str] = []
        self.before: past.Past | None = None
        self.past_report: past.PastReport | None = None
        self.worse: dict[Key, list[str]] = collections.defaultdict(list)
        self.changed: t.Sequence[str] = ()
        self.notes: list[str] = list(plan.notes)
        self.drift: dict[str, list[Deviation]] = {}
        self.tables: dict[str, list[Table]] = {}
        self.records: dict[Key, list[Measurement]] = collections.defaultdict(list)
        self.deciding: dict[Key, Measurement] = {}
        self.parts: dict[Key, list[Key]] = collections.defaultdict(list)
        self.doubts: dict[str, tuple[str, str]] = {}
        self.blames: list[causes.Blame] = []
        self.asked: dict[Key, list[Subject]] = collections.defaultdict(list)
        for key, item in self.items:
            self.asked[key].append(item.subject)

    def load(self, measurements: t.Iterable[t.Any]) -> None:
        """Sort the measurements by key and attempt, and choose for each key the attempt that counts."""
        for record in measurements:
            self._load_one(record)
        # By key and by attempt: the order of the journal's lines decides nothing.
        self.records = dict(sorted(self.records.items()))
        for key, attempts in self.records.items():
            if len(attempts) > 1:
                attempts.sort(key=lambda m: (m.attempt, m.as_text()))
            self.deciding[key] = self._counting(key, attempts)
            node = node_of(key[3])
            if node != key[3]:
                self.parts[Key(key.stage, key.check, key.variant, node)].append(key)

    def _counting(self, key: Key, attempts: list[Measurement]) -> Measurement:
        """Return the attempt that counts: the last that measured; if none did, the last. Of several with its number the worst, which may
        be an error that is a FAIL."""
        if len(attempts) == 1:
            return attempts[0]
        measured = [m for m in attempts if m.outcome == "measured"] or attempts
        last = [m for m in attempts if m.attempt == measured[-1].attempt]
        if len(last) == 1:
            return last[0]
        worths = [(self.single_checks.worth(key, m), m) for m in last]
        counting = [(worth, m) for worth, m in worths if m.outcome == measured[-1].outcome or worth.verdict == "FAIL"]
        return max(counting, key=lambda worth_and_record: worth_and_record[0].badness)[1]

    def _load_one(self, record: t.Any) -> None:
        measurement = record if isinstance(record, Measurement) else parsed(record)
        if isinstance(measurement, Measurement) and measurement.run_id == self.plan.run_id:
            self.records[measurement.key].append(measurement)
            return
        wrong = f"it is of run {measurement.run_id}" if isinstance(measurement, Measurement) else measurement
        refused = _refused(record, wrong)
        if refused is None:
            self.notes.append(f"a record without stage, check and subject was left out: {wrong}")
            return
        self.records[refused.key].append(refused)

    # Opinions ----------------------------------------------------------------------------------------------------

    def judge(self) -> Judgement:
        chosen: dict[Key, single_checks.Compared] = {}
        opinions: dict[Key, list[Opinion]] = {}
        with ForkedWorker(lambda: [self._among_nodes()], len(self.deciding)) as worker:
            for key, record in self.deciding.items():
                opinion, chosen[key] = self.single_checks.own(key, record)
                opinions[key] = [opinion]
            of_peers = peer_comparison.opinions(self.deciding, chosen, self.inputs.leaf)
            for key, opinion in itertools.chain(of_peers, sweeps.opinions(self.deciding)):
                opinions[key].append(opinion)
            if self.before is not None and self.inputs.regression != "off":
                self.past_report = self.before(self.deciding, peer_comparison.numbers(self.deciding, chosen))
            if self.past_report:
                self.notes += self.past_report.left_out
                for change in self.past_report.changes:
                    if change.regression:
                        self.worse[change.key].append(change.reason)
            of_nodes, self.drift, self.doubts, (unstated, parted) = next(worker.parts())
            self.warnings += unstated
            self.notes += parted
            for key, fields in of_nodes:
                opinions[key].append(Opinion(*fields))
        everything = [record for attempts in self.records.values() for record in attempts]
        for stage in self.stages.values():
            tables = self.tables[stage.name] = stage.tables(everything, self.expected)
            for opinion_or_blame in stage.opinions(self.deciding, everything, self.expected, tables):
                if isinstance(opinion_or_blame, causes.Blame):
                    self.blames.append(opinion_or_blame)
                else:
                    opinions[opinion_or_blame[0]].append(opinion_or_blame[1])
        settled: dict[Key, Opinion] = {}
        for key in sorted(opinions, key=lambda key: key in self.parts):  # parts before what they are parts of
            settled[key] = self._settle(key, opinions[key], settled)
        del opinions, chosen  # of thousands of nodes a lot
        self.notes += self.waiving.unused()
        self.warnings += self.waiving.unbound()
        return self._conclude(settled)

    def _among_nodes(self) -> AmongNodes:
        """Return what a comparison of nodes shows without numbers."""
        telling = {name for name, stage in self.stages.items() if stage.sees_all_gpus}
        facts = {name for name, stage in self.stages.items() if stage.finds_facts}
        machines = identity.Nodes(self.records, telling, facts, self.lending)
        opinions = [
            *self._drift(),
            *configured.opinions(self.deciding, lambda key, record: self.single_checks.own(key, record)[0]),
            *machines.opinions(self.records, self.inputs.stated, self.inputs.stack),
            *health.opinions(self.records, self.deciding),
        ]
        unstated = machines.unstated(self.inputs.stated, self.inputs.stack)
        parted = [f"{node}: {single_checks.set_aside(record)}" for node, record in machines.parted.items()]
        return [(tuple(key), tuple(opinion)) for key, opinion in opinions], self.drift, machines.doubts(), (unstated, parted)

    def _drift(self) -> t.Iterator[tuple[Key, Opinion]]:
        """Yield the deviations of facts, among nodes with the same GPUs and under the same rules, like held against like (drift.Kind).

        A node that is alone with its rules is compared with others of the same GPU, as a WARN.
        """
        pools: dict[str, dict[str, dict[str, Key]]] = collections.defaultdict(lambda: collections.defaultdict(dict))
        for key, record in self.deciding.items():
            if record.outcome == "measured" and isinstance(record.context.get("facts"), dict):
                model, under = (json.dumps(value, sort_keys=True, default=str) for value in (record.context.get("gpu"), self._rules(key)))
                pools[model][under][key[3]] = key
        for pool in pools.values():
            lone = [key for group in pool.values() if len(group) == 1 for key in group.values()]
            companions = [key for group in pool.values() if len(group) > 1 for key in group.values()]
            lone_deviations = self._deviating([*lone, *companions[: drift.COMPARED]], {}) if lone else {}
            for group in pool.values():
                keys = list(group.values())
                rules = self._rules(keys[0])
                for node, facts in self._deviating(keys, rules).items():
                    key = group[node]
                    if len(group) == 1:
                        facts = [*facts, *drift.softened(lone_deviations.get(node, []), rules)]
                    items: list[Deviation] = [
                        {**item, "severity": item.get("severity") or drift.severity(item, rules.get("drift"))} for item in facts
                    ]
                    items = [item for item in items if item["severity"] != "ignore"]
                    if items:
                        self.drift[node] = items
                        yield key, deviations(items)

    def _rules(self, key: Key) -> FactRules:
        """Return the inventory's rules for the facts of a node."""
        return self.inputs.stack.get(self.deciding[key].target) or {}

    def _deviating(self, keys: list[Key], rules: FactRules) -> dict[str, list[Deviation]]:
        """Return the deviating facts of nodes under some rules, also of those that have none."""
        facts = {key[3]: self.deciding[key].context["facts"] for key in keys}
        kinds = {key[3]: self._kind(self.deciding[key]) for key in keys}
        return drift.drift(facts, rules.get("golden"), rules.get("ignore") or (), kinds)

    def _kind(self, record: Measurement) -> drift.Kind:
        """Return the key of the nodes with which the facts of a node are compared."""
        return drift.kind_of(record.context["facts"], record.plane, self.inputs.own_facts.get(record.target) or ())

    def _earlier(self, key: Key) -> t.Iterator[tuple[Key, Opinion]]:
        """Yield the fatal findings of the attempts that do not count: no later attempt takes them back."""
        attempts = self.records[key]
        for record in attempts if len(attempts) > 1 else ():
            if record is self.deciding[key]:
                continue
            fatal = list(self.single_checks.fatal(key, record))
            if record.outcome == "error" and record.reason_code in reasons.FATAL:
                fatal.append((key, Opinion("FAIL", str(record.reason), record.reason_code)))
            for whom, opinion in fatal:
                yield whom, opinion._replace(reason=f"on attempt {record.attempt}, which no other takes back: {opinion.reason}")

    def _settle(self, key: Key, opinions: list[Opinion], settled: dict[Key, Opinion]) -> Opinion:
        """One opinion of a check, with its attempts, its waivers and its evidence; `settled` has those of its parts."""
        record, attempts = self.deciding[key], self.records[key]
        quiet = self.single_checks.quiet(record)
        all_opinions = opinions if quiet else [*opinions, *self.single_checks.health(record)]
        waived_opinions = [self._waived(key, each, settled) if each.verdict == "FAIL" else each for each in all_opinions]
        fatal_opinions = () if quiet else self.single_checks.fatal(key, record)
        fatal = [self.waiving.waive(whom, each) for whom, each in (*fatal_opinions, *self._earlier(key))]
        opinion = bands.worst([*waived_opinions, *fatal] if fatal else waived_opinions)
        if opinion.verdict == "PASS" and (len(attempts) > 1 or record.attempt > 1):
            earlier_attempts = [m for m in attempts if m is not record]
            attempts_words = "; ".join(f"attempt {m.attempt}: {m.reason or m.outcome}" for m in earlier_attempts) or "not recorded"
            reason = f"it passed on attempt {record.attempt} only ({attempts_words}): {opinion.reason}"
            opinion = opinion.but("WARN", "later_attempt", reason)
        opinion = self._with_past(key, self.single_checks.with_evidence(key, record, opinion))
        # A part's verdict can become its node's: say whose it is.
        return opinion if opinion.reason.startswith(key[3]) else opinion.saying(f"{key[3]}: {opinion.reason}")

    def _waived(self, key: Key, opinion: Opinion, settled: dict[Key, Opinion]) -> Opinion:
        """A failure under its waiver, or under those of the parts of a node."""
        parts = {part: (self.deciding[part], settled[part]) for part in self.parts.get(key, ())}
        waived = self.waiving.waive(key, opinion, self.drift.get(key[3], ()))
        return self.waiving.by_parts(key, waived, self.deciding[key].subject.members, parts)

    def _with_past(self, key: Key, opinion: Opinion) -> Opinion:
        """Return an opinion that is at best a WARN for a number worse than its own past; its floor and findings stay."""
        worse = self.worse.get(key)
        if not worse:
            return opinion
        if opinion.verdict == "PASS":
            opinion = opinion.but("WARN", past.REGRESSION, "; ".join(worse))
        else:
            opinion = opinion._replace(reason="; ".join((opinion.reason, *worse)))  # whether it is new is asked first
        return opinion._replace(regressed=True)

    # Conclusion --------------------------------------------------------------------------------------------------

    def _conclude(self, settled: dict[Key, Opinion]) -> Judgement:
        final = {key: self._final(key, opinion) for key, opinion in settled.items() if key not in self.parts}
        for key in self.parts:
            if key in settled:
                parts = [final[part] for part in self.parts[key]]
                final[key] = self._final(key, bands.worst([settled[key], *parts]))
        planned: dict[Key, Verdict] = {}
        for key, item in self.items:
            record = self.deciding.get(key)
            opinion = final.get(key)
            if opinion is None:
                reason = f"{key[3]}: it is in the plan and was never measured; resume the run"
                parts = [final[part] for part in self.parts.get(key, ())]
                opinion = self._final(key, bands.worst([Opinion("UNKNOWN", reason, "not_run"), *parts]))
            missing = self._missing(item.subject, record, self.parts.get(key, ()))
            if missing and record is not None and record.outcome == "measured":
                missing_text = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
                reason = f"{key[3]}: it was not measured whole: nothing came from {missing_text}"
                opinion = bands.worst([opinion, Opinion("UNKNOWN", reason, "incomplete")])
            not_planned = identity.not_as_planned(item.subject, record) if record is not None and record.outcome == "measured" else None
            if not_planned:
                opinion = bands.worst([opinion, Opinion("UNKNOWN", f"{key[3]}: {not_planned}", "incomplete")])
            # What was planned says whom a group consists of, not what was measured.
            subject = item.subject if record is None or item.subject.kind != "node" else record.subject
            planned[key] = self._write(key, subject, opinion)
        covered = {*planned, *(part for key in planned for part in self.parts.get(key, ()))}
        unplanned, extras = [], []
        for key, opinion in final.items():
            if key in planned:
                continue
            unplanned.append(self._write(key, self.deciding[key].subject, opinion))
            if key not in covered:
                unplanned[-1].findings.append("it was not planned and cannot make the run accepted")
                extras.append(unplanned[-1])
        return self._judgement(list(planned.values()), unplanned, extras)

    @staticmethod
    def _missing(planned: Subject, record: Measurement | None, parts: t.Sequence[Key]) -> list[str]:
        """Parts that a node was to have, by the plan or by its own word, of which nothing came."""
        promised = {*planned.members, *(record.subject.members if record else ())}
        if not promised or planned.kind == "group":  # its members are who took part, not parts with numbers of their own
            return []
        return sorted(promised.difference(part[3] for part in parts))

    def _final(self, key: Key, opinion: Opinion) -> Opinion:
        """An opinion, unless nobody knows which machine it is about."""
        all_subjects = [*self.asked.get(key, ()), *(record.subject for record in self.records.get(key, ()))] if self.doubts else ()
        for node in sorted({node for subject in all_subjects for node in subjects.nodes_of(subject)} & set(self.doubts)):
            code, words = self.doubts[node]
            opinion = opinion.but("UNKNOWN", code, f"{node}: {words}")
        if not opinion.findings:
            return opinion
        return opinion._replace(findings=list(dict.fromkeys(opinion.findings)))

    def _write(self, key: Key, subject: Subject, opinion: Opinion) -> Verdict:
        record = self.deciding.get(key)
        attempt, simulated = (record.attempt, record.simulated) if record else (None, False)
        for part in self.parts.get(key, ()):
            simulated = simulated or self.deciding[part].simulated
        return opinion.written(self.plan.run_id, *key[:3], attempt, simulated, subject)

    def _judgement(self, planned: list[Verdict], unplanned: list[Verdict], extras: list[Verdict]) -> Judgement:
        everything = sorted(
            [*planned, *unplanned],
            key=lambda v: (-bands.SEVERITY[v.verdict], v.stage, v.subject.id, v.check, v.variant),
        )
        counts = dict.fromkeys(bands.SEVERITY, 0) | collections.Counter(v.verdict for v in everything)
        planned_counts: collections.Counter[str] = collections.Counter(v.verdict for v in planned)
        # Who is to blame stands first, whoever found it: a plan has no check of the node that a slow group turns out to have. What is bad
        # because of somebody else is not named beside it.
        behind = causes.found(everything, self.blames, self.deciding)
        because = {key: subjects.bearer(c["kind"], c["subject"]) for c in behind for key in c["explains"]}
        failed = {because.get(v.key) or subjects.bearer(v.subject.kind, v.subject.id) for v in everything if v.verdict == "FAIL"}
        unknown = {because.get(v.key) or subjects.bearer(v.subject.kind, v.subject.id) for v in planned if v.verdict == "UNKNOWN"} - failed
        bad = planned_counts["FAIL"] + planned_counts["UNKNOWN"]
        bad_extras = sum(v.verdict == "FAIL" for v in extras)
        warned = counts["WARN"] + len(self.warnings)
        refuse_worse = self.inputs.regression == "refuse"
        worse = {subjects.bearer(v.subject.kind, v.subject.id) for v in everything if v.regressed} if refuse_worse else set()
        refusals = [
            (self.changed, "; ".join(self.changed)),
            (not planned, "the plan is empty: nothing was to be measured"),
            (failed, f"FAIL on {subjects.named(failed)}"),
            (unknown, f"UNKNOWN on {subjects.named(unknown)}"),
            (bad, f"{planned_counts['FAIL']} FAIL and {planned_counts['UNKNOWN']} UNKNOWN of {len(planned)} planned checks"),
            (bad_extras, f"{bad_extras} FAIL of checks that were not planned"),
            (planned and not bad and not self._shown_to_work(planned), self._nothing_shown),
            (self.inputs.warn != "accept" and warned, f"{warned} WARN, and acceptance_warn is {self.inputs.warn}"),
            (worse, f"worse than its own past: {subjects.named(worse)}, and acceptance_regression is {self.inputs.regression}"),
        ]
        refused = [text for refuses, text in refusals if refuses]
        unproven = self._unproven(planned)
        refused += [refusal for refusal, _what in unproven if refusal]
        partial = self.plan.partial
        why = "; ".join(refused)
        if not refused:
            planned_subjects = {subjects.bearer(v.subject.kind, v.subject.id) for v in planned}
            why = f"all {len(planned)} planned checks on {subjects.counted(kind for kind, _name in planned_subjects)} are acceptable"
            why += f", {planned_counts['WARN']} with a WARN to read" if planned_counts["WARN"] else ""
            why += f", {len(self.warnings)} WARN of the run as a whole" if self.warnings else ""
            why += f", {planned_counts['KNOWN_FAIL']} under a waiver" if planned_counts["KNOWN_FAIL"] else ""
        if partial:
            quick = "a quick test is no acceptance" if self.plan.not_proven else ""
            parts = "this run left parts of the fleet or of the stages out" if self._left_out() or not quick else ""
            why += f"; PARTIAL: {' and '.join(filter(None, (quick, parts)))}"
        not_proven = [missing_proof for _refusal, missing_proof in unproven if missing_proof]
        why += "".join(f"; {missing_proof}" for missing_proof in not_proven)
        measured_count = sum(self._done(v) for v in planned)
        return Judgement(
            verdicts=everything,
            planned=planned,
            extras=extras,
            nodes=nodes.judged(everything),
            deciding=self.deciding,
            coverage={
                "planned": len(planned),
                "measured": measured_count,
                "skipped": planned_counts["SKIPPED"],
                "verdicts": {word: planned_counts[word] for word in bands.SEVERITY if planned_counts[word]},
                "ratio": measured_count / len(planned) if planned else 0.0,
                "unknown": [
                    f"{v.subject.id} {v.stage} {v.check}" for v in everything if v.verdict == "UNKNOWN"
                ],
            },
            passed=not refused,
            accepted=not refused and not not_proven and self.plan.mode != "quick",
            why=why,
            counts=counts,
            partial=partial,
            simulated=any(record.simulated for attempts in self.records.values() for record in attempts),
            notes=self.notes,
            drift=self.drift,
            causes=behind,
            warnings=self.warnings,
            tables=self.tables,
            past=self.past_report,
            unproven=not_proven,
            speed_not_proven=self._speed_not_proven(planned),
        )

    def _shown_to_work(self, planned: list[Verdict]) -> bool:
        """Return True if a planned check is a PASS, or was measured and is a WARN in a run that accepts WARN."""
        passed = any(v.verdict == "PASS" for v in planned)
        warned = (v for v in planned if v.verdict == "WARN" and self.inputs.warn == "accept")
        return passed or any(self.deciding[v.key].outcome == "measured" for v in warned)

    @property
    def _nothing_shown(self) -> str:
        words = "PASS or a measured WARN" if self.inputs.warn == "accept" else "PASS"
        return f"no planned check is a {words}: nothing was shown to work"

    def _speed_not_proven(self, planned: list[Verdict]) -> list[str]:
        """Return one text for each stage and GPU model whose speed a quick test did not judge, because no expectation exists."""
        checks: set[tuple[str, str, str]] = set()
        for verdict in planned if self.plan.mode == "quick" else ():
            stage, record = self.stages.get(verdict.stage), self.deciding.get(verdict.key)
            if not stage or record is None or record.outcome != "measured":
                continue
            if verdict.expectation is None and verdict.check in stage.quick_conditions:
                checks.add((verdict.stage, verdict.check, str(record.context.get("gpu") or "this hardware")))
        return [f"the speed of {stage} {check} on {gpu} (no expectation is known)" for stage, check, gpu in sorted(checks)]

    def _unproven(self, planned: list[Verdict]) -> list[tuple[str, str]]:
        """Return, for each stage whose checks prove something together, why the run is refused, and what is not proven."""
        gated = {name: stage for name, stage in self.stages.items() if stage.gated}
        rows: dict[str, list[tuple[Verdict, Measurement]]] = {name: [] for name in gated}
        for verdict in planned if gated else ():
            record = self.deciding.get(verdict.key)
            if record is not None and verdict.stage in gated:
                rows[verdict.stage].append((verdict, record))
        return [stage.proof(rows[name]) for name, stage in gated.items() if rows[name]]

    def _left_out(self) -> bool:
        return bool(self.plan.left_out or self.plan.skipped_stages)

    def _done(self, verdict: Verdict) -> bool:
        record = self.deciding.get(verdict.key)
        return record is not None and record.outcome in ("measured", "not_applicable")


def deviations(items: list[Deviation]) -> Opinion:
    """Return the opinion on the facts in which a node deviates (plugin_utils/judging/drift.py), each with its severity."""
    sentences = []
    for item in sorted(items, key=lambda item: item["severity"] != "fail"):
        basis = {"golden": "the golden value is", "majority": f"{item['agree']} of {item['of']} nodes have"}
        text = f"{basis.get(item['basis'], 'expected')} {item['expected'][:80]}"
        sentences.append(f"{item['item']} is {item['found'][:80]}, {text}")
    shown_facts = "; ".join(sentences[:4]) + (f"; and {len(sentences) - 4} more" if len(sentences) > 4 else "")
    verdict = "FAIL" if any(item["severity"] == "fail" for item in items) else "WARN"
    return Opinion(verdict, shown_facts, "drift", findings=sentences[4:])


def _refused(record: t.Any, wrong: str) -> Measurement | None:
    """Return an error in place of a record that is not a measurement of this run; None if nobody knows what it is about."""
    record = record.as_dict() if isinstance(record, Measurement) else record
    key = _key_of_bad(record)
    if key is None:
        return None
    attempt, simulated = record.get("attempt"), record.get("simulated") is True
    attempt = attempt if isinstance(attempt, int) and not isinstance(attempt, bool) and attempt > 0 else 1
    subject = Subject(t.cast(t.Any, kind_of(key.subject)), key.subject, [])
    return Measurement(
        schema="measurement/v1", run_id="", stage=key.stage, check=key.check, variant=key.variant, subject=subject, plane="",
        target=str(record.get("target") or node_of(key.subject)), attempt=attempt, outcome="error", reason_code="bad_measurement",
        reason=f"the measurement is refused: {wrong}"[:2000], metrics={}, series=[], context={}, evidence={}, command=[], tool_version=None,
        started_at="", duration_s=0.0, raw=None, raw_sha256=None, simulated=simulated,
    )  # fmt: skip


def _key_of_bad(record: t.Any) -> Key | None:
    """Return the key of a record whose other fields may be anything; None if it has none."""
    if not isinstance(record, dict) or not isinstance(record.get("subject"), dict):
        return None
    key = [record.get("stage"), record.get("check"), record.get("variant"), record["subject"].get("id")]
    return Key(*map(str, key)) if all(isinstance(word, str) for word in key) and key[3] else None
