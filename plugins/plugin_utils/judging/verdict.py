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
import itertools
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import (
    bands,
    boots,
    busy,
    causes,
    clocks,
    configured,
    deviating,
    health,
    identity,
    loads,
    nodes,
    past,
    peer_comparison,
    second_look,
    single_checks,
    sweeps,
    waiving,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.acceptance import Acceptance
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.attempts import Attempts
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.judgement import Judgement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.waivers import parse as waivers_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.forked_worker import ForkedWorker
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    JudgingInputs,
    Measurement,
    Plan,
    Subject,
    Verdict,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Deviation

# Reason codes of what ends a probe before it has measured all checks of its stage.
CUT_SHORT = frozenset({"disk_full", "interrupted", "module_failed"})


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
    places: Places | None = None,
) -> Judgement:
    """Judge a run.

    `expected(node, target)` returns the expectations of a node, or of anything else that a target measured. `inputs` is the rest of what
    the inventory says; its sets of expectations are not read. `earlier_runs` compares numbers with earlier runs. `changed` says what of the
    evidence is not as it was written: nothing is accepted then. `warnings` are about the run as a whole. `today` is the day on which
    waivers must still be valid. `lending` names the planes on which something other than the inventory decides which GPUs a test gets
    (Plane.lends_devices). `places` are those of the nodes in the network, as far as a map of it is known. Raises WaiverError if a waiver
    cannot be used.
    """
    engine = Judge(plan, expected, inputs or JudgingInputs(), {stage.name: stage for stage in stages})
    engine.waiving = waiving.Waiving(waivers_of(engine.inputs.waivers), (today or datetime.date.today()).isoformat())
    engine.lending = lending
    engine.places = places
    engine.changed = changed
    engine.warnings = list(warnings)
    engine.before = earlier_runs
    engine.attempts.load(measurements)
    engine.reduce_second_looks()
    for stage in engine.stages.values():
        engine.attempts.add(stage.derived(engine.attempts.deciding, plan, engine.inputs))
    engine.notes += engine.attempts.notes
    return engine.judge()


class Places(t.Protocol):
    """The places of nodes in the network (cabling/places.py)."""

    @property
    def leaf(self) -> t.Mapping[str, str]: ...

    @property
    def run(self) -> str: ...

    def words(self, subject: str) -> str: ...


# Opinions that convict a subject by tests between nodes.
LOCATED = frozenset({"bad_rail", "localised"})


class JudgedStage(t.Protocol):
    """The part of a stage's description (stages/base.py) that the engine uses."""

    name: str
    quick_conditions: frozenset[str]
    gated: bool
    finds_facts: bool
    sees_all_gpus: bool
    same_work: t.Mapping[str, tuple[str, str]]
    looks_after: str
    loads: bool

    def is_condition(self, check: str, quick: bool) -> bool: ...

    def proof(self, rows: list[tuple[Verdict, Measurement]]) -> tuple[str, str]: ...

    def derived(self, deciding: t.Mapping[Key, Measurement], plan: Plan, inputs: JudgingInputs) -> list[Measurement]: ...

    def tables(self, records: list[Measurement], expected: t.Callable[[str, str], Expectations]) -> list[Table]: ...

    def opinions(
        self,
        deciding: t.Mapping[Key, Measurement],
        records: list[Measurement],
        expected: t.Callable[[str, str], Expectations],
        tables: list[Table],
    ) -> t.Iterator[tuple[Key, Opinion] | causes.Blame]: ...


# Opinions by key, deviating facts by node, {node whose machine is in doubt: (reason code, words)}, and sentences of the run: of GPUs
# that nobody counted, of those that MIG parts, and of restarts. Keys and opinions are plain tuples, as marshal takes them.
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
        same_work = {(name, check): same_check for name, stage in stages.items() for check, same_check in stage.same_work.items()}
        self.single_checks = single_checks.SingleChecks(self.planned, expected, inputs.required, self._is_condition, same_work)
        self.lending: t.Collection[str] = ()
        self.places: Places | None = None
        self.waiving = waiving.Waiving([], "")
        self.warnings: list[str] = []
        self.before: past.Past | None = None
        self.past_report: past.PastReport | None = None
        self.worse: dict[Key, list[str]] = collections.defaultdict(list)
        self.changed: t.Sequence[str] = ()
        self.notes: list[str] = list(plan.notes)
        self.drift: dict[str, list[Deviation]] = {}
        self.tables: dict[str, list[Table]] = {}
        self.attempts = Attempts(plan.run_id, self.single_checks)
        self.doubts: dict[str, tuple[str, str]] = {}
        self.misattributed: dict[Key, tuple[str, str]] = {}  # checks that another machine answered: (reason code, words)
        self.blames: list[causes.Blame] = []
        self.cut_short: dict[tuple[str, str, str], Measurement] | None = None  # by stage, target and node, once they are needed
        self.looks: dict[Key, list[Opinion]] = {}  # of second looks, beside that of the attempt that counts
        self.clean_looks: set[Key] = set()  # second looks that found nothing on any attempt
        self.asked: dict[Key, list[Subject]] = collections.defaultdict(list)
        for key, item in self.items:
            self.asked[key].append(item.subject)

    def _is_condition(self, stage: str, check: str) -> bool:
        return stage in self.stages and self.stages[stage].is_condition(check, self.plan.mode == "quick")

    def reduce_second_looks(self) -> None:
        """Leave in the records of each second look what the first look has not found."""
        names = [str(entry["name"]) for entry in self.plan.stages]
        for stage in [stage for stage in self.stages.values() if stage.looks_after]:
            whole_run = stage.looks_after in names and stage.name in names
            between = names[names.index(stage.looks_after) + 1 : names.index(stage.name)] if whole_run else []
            working = [name for name in between if name not in self.stages or self.stages[name].loads]
            keys = [key for key in self.attempts.records if key.stage == stage.name]
            if keys:
                everything = itertools.chain.from_iterable(self.attempts.records.values())
                worked = loads.Loads(everything, self.stages.values())
            for key in keys:
                firsts = self.attempts.records.get(key._replace(stage=stage.looks_after), ())
                attempts = self.attempts.records[key]
                smaller = [second_look.reduced(record, second_look.seen_before(record, firsts), working) for record in attempts]
                if all(record.outcome == "measured" and self.single_checks.quiet(record) for record in attempts):
                    self.clean_looks.add(key)
                self.attempts.records[key] = smaller
                # An attempt counts that measured as a whole, or that did but for what the first look has found.
                counting = self.attempts.deciding[key], self.attempts.counting(key, smaller)
                last = max(n for n in range(len(smaller)) if attempts[n] is counting[0] or smaller[n] is counting[1])
                self.attempts.deciding[key] = smaller[last]
                self.looks[key] = list(self._of_looks(key, worked))

    def _of_looks(self, key: Key, worked: loads.Loads) -> t.Iterator[Opinion]:
        """Yield what the attempts of a second look say beside the one that counts: a fault that came up under load is not gone before all
        loads were repeated, and nobody has looked at what a load behind the last look did."""
        deciding = self.attempts.deciding[key]
        for record in self.attempts.records[key]:
            opinion = self.single_checks.opinion_alone(key, record)
            if record is not deciding and opinion.verdict == "FAIL" and not worked.repeated(record, deciding, self.planned):
                yield opinion._replace(reason=f"on attempt {record.attempt}, after which not all loads were repeated: {opinion.reason}")
        load = worked.behind(deciding)
        if load:
            name = " ".join(filter(None, load[:2]))
            yield Opinion("UNKNOWN", f"{name} worked the machine after this look: resume the run, which looks again", "loaded_since")

    # Opinions ----------------------------------------------------------------------------------------------------

    def judge(self) -> Judgement:
        chosen: dict[Key, single_checks.Compared] = {}
        opinions: dict[Key, list[Opinion]] = {}
        with ForkedWorker(lambda: [self._among_nodes()], len(self.attempts.deciding)) as worker:
            for key, record in self.attempts.deciding.items():
                opinion, chosen[key] = self.single_checks.own(key, record)
                opinions[key] = [opinion, *self.looks.get(key, ())]
            of_peers = peer_comparison.opinions(self.attempts.deciding, chosen, self._leaf())
            for key, opinion in itertools.chain(of_peers, sweeps.opinions(self.attempts.deciding)):
                opinions[key].append(opinion)
            if self.before is not None and self.inputs.regression != "off":
                self.past_report = self.before(self.attempts.deciding, peer_comparison.numbers(self.attempts.deciding, chosen))
            if self.past_report:
                self.notes += self.past_report.left_out
                for change in self.past_report.changes:
                    if change.regression:
                        self.worse[change.key].append(change.reason)
            of_nodes, self.drift, self.doubts, (unstated, notes) = next(worker.parts())
            self.warnings += unstated
            self.notes += notes
            for key, fields in of_nodes:
                opinions[key].append(Opinion(*fields))
        everything = [record for attempts in self.attempts.records.values() for record in attempts]
        for stage in self.stages.values():
            tables = self.tables[stage.name] = stage.tables(everything, self.expected)
            for opinion_or_blame in stage.opinions(self.attempts.deciding, everything, self.expected, tables):
                if isinstance(opinion_or_blame, causes.Blame):
                    place = self.places.words(opinion_or_blame.culprit) if self.places else ""
                    said = "; ".join(filter(None, (opinion_or_blame.said, place)))
                    self.blames.append(dataclasses.replace(opinion_or_blame, said=said))
                    continue
                key, opinion = opinion_or_blame
                if opinion.verdict == "UNKNOWN" and opinion.reason_code in identity.DOUBTS:
                    self.misattributed[key] = opinion.reason_code, opinion.reason
                else:
                    opinions[key].append(opinion)
        settled: dict[Key, Opinion] = {}
        for key in sorted(opinions, key=lambda key: key in self.attempts.parts):  # parts before what they are parts of
            settled[key] = self._settle(key, opinions[key], settled)
        del opinions, chosen  # of thousands of nodes a lot
        self.notes += self.waiving.unused()
        self.warnings += self.waiving.unbound()
        return self._conclude(settled)

    def _leaf(self) -> t.Mapping[str, str]:
        """Return the leaf switch of each node, as the inventory has it, else as the map of this run has it."""
        if self.inputs.leaf or self.places is None or self.places.run:
            return self.inputs.leaf
        return self.places.leaf

    def _among_nodes(self) -> AmongNodes:
        """Return what a comparison of nodes shows without numbers."""
        telling = {name for name, stage in self.stages.items() if stage.sees_all_gpus}
        facts = {name for name, stage in self.stages.items() if stage.finds_facts}
        machines = identity.Nodes(self.attempts.records, telling, facts, self.lending)
        starts = boots.Boots(self.attempts.records)
        facts_compared = deviating.FactComparison(self.attempts.deciding, self.inputs)
        opinions = [
            *facts_compared.opinions(),
            *configured.opinions(self.attempts.deciding, lambda key, record: self.single_checks.own(key, record)[0]),
            *machines.opinions(self.attempts.records, self.inputs.stated, self.inputs.stack),
            *health.opinions(self.attempts.records, self.attempts.deciding),
            *clocks.opinions(self.attempts.deciding),
            *starts.opinions(),
            *starts.stale(self.attempts.deciding),
        ]
        unstated = machines.unstated(self.inputs.stated, self.inputs.stack)
        notes = [*(f"{node}: {single_checks.set_aside(record)}" for node, record in machines.parted.items()), *starts.notes()]
        return [(tuple(key), tuple(opinion)) for key, opinion in opinions], facts_compared.deviating, machines.doubts(), (unstated, notes)

    def _settle(self, key: Key, opinions: list[Opinion], settled: dict[Key, Opinion]) -> Opinion:
        """One opinion of a check, with its attempts, its waivers and its evidence; `settled` has those of its parts."""
        record, attempts = self.attempts.deciding[key], self.attempts.records[key]
        quiet = self.single_checks.quiet(record)
        if any(each.verdict in ("FAIL", "WARN") for each in opinions):  # of a part its node has the evidence
            whole = self.attempts.deciding.get(key._replace(subject=node_of(key.subject)))
            opinions = busy.doubted(opinions, busy.words(record) or busy.words(whole))
        all_opinions = opinions if quiet else [*opinions, *self.single_checks.health(record)]
        waived_opinions = [self._waived(key, each, settled) if each.verdict == "FAIL" else each for each in all_opinions]
        fatal_opinions = () if quiet else self.single_checks.fatal(key, record)
        fatal = [self.waiving.waive(whom, each) for whom, each in (*fatal_opinions, *self.attempts.earlier_fatal(key))]
        opinion = bands.worst([*waived_opinions, *fatal] if fatal else waived_opinions)
        each_passed = len(attempts) > 1 and key in self.clean_looks  # a resume that works the machine looks again
        if opinion.verdict == "PASS" and (len(attempts) > 1 or record.attempt > 1) and not each_passed:
            earlier_attempts = [m for m in attempts if m is not record]
            attempts_words = "; ".join(f"attempt {m.attempt}: {m.reason or m.outcome}" for m in earlier_attempts) or "not recorded"
            reason = f"it passed on attempt {record.attempt} only ({attempts_words}): {opinion.reason}"
            opinion = opinion.but("WARN", "later_attempt", reason)
        opinion = self._with_past(key, self.single_checks.with_evidence(key, record, opinion))
        if self.places is not None and opinion.reason_code in LOCATED:
            about = opinion.reason.partition(": ")[0].split()  # a part, or its kind and the part
            place = (self.places.words(about[-1]) if 0 < len(about) <= 2 else "") or self.places.words(key[3])
            opinion = opinion._replace(reason="; ".join(filter(None, (opinion.reason, place))))
        # A part's verdict can become its node's: say whose it is.
        return opinion if opinion.reason.startswith(key[3]) else opinion.saying(f"{key[3]}: {opinion.reason}")

    def _waived(self, key: Key, opinion: Opinion, settled: dict[Key, Opinion]) -> Opinion:
        """A failure under its waiver, or under those of the parts of a node."""
        parts = {part: (self.attempts.deciding[part], settled[part]) for part in self.attempts.parts.get(key, ())}
        waived = self.waiving.waive(key, opinion, self.drift.get(key[3], ()))
        return self.waiving.by_parts(key, waived, self.attempts.deciding[key].subject.members, parts)

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
        final = {key: self._final(key, opinion) for key, opinion in settled.items() if key not in self.attempts.parts}
        for key in self.attempts.parts:
            if key in settled:
                parts = [final[part] for part in self.attempts.parts[key]]
                final[key] = self._final(key, bands.worst([settled[key], *parts]))
        planned: dict[Key, Verdict] = {}
        for key, item in self.items:
            record = self.attempts.deciding.get(key)
            opinion = final.get(key)
            if opinion is None:
                reason = f"{key[3]}: it is in the plan and was never measured; resume the run"
                parts = [final[part] for part in self.attempts.parts.get(key, ())]
                opinion = self._final(key, bands.worst([Opinion("UNKNOWN", reason, "not_run"), *parts]))
            missing = self._missing(item.subject, record, self.attempts.parts.get(key, ()))
            if missing and record is not None and record.outcome == "measured":
                missing_text = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
                code, why = self._cut_short(key, record.target)
                reason = f"{key[3]}: it was not measured whole: nothing came from {missing_text}{why}"
                opinion = bands.worst([opinion, Opinion("UNKNOWN", reason, code)])
            not_planned = identity.not_as_planned(item.subject, record) if record is not None and record.outcome == "measured" else None
            if not_planned:
                opinion = bands.worst([opinion, Opinion("UNKNOWN", f"{key[3]}: {not_planned}", "incomplete")])
            # What was planned says whom a group consists of, not what was measured.
            subject = item.subject if record is None or item.subject.kind != "node" else record.subject
            planned[key] = self._write(key, subject, opinion)
        covered = {*planned, *(part for key in planned for part in self.attempts.parts.get(key, ()))}
        unplanned, derived, extras = [], [], []
        for key, opinion in final.items():
            if key in planned:
                continue
            unplanned.append(self._write(key, self.attempts.deciding[key].subject, opinion))
            if key in self.attempts.derived:
                derived.append(unplanned[-1])
            elif key not in covered:
                unplanned[-1].findings.append("it was not planned and cannot make the run accepted")
                extras.append(unplanned[-1])
        return self._judgement(list(planned.values()), derived, unplanned, extras)

    @staticmethod
    def _missing(planned: Subject, record: Measurement | None, parts: t.Sequence[Key]) -> list[str]:
        """Parts that a node was to have, by the plan or by its own word, of which nothing came."""
        promised = {*planned.members, *(record.subject.members if record else ())}
        if not promised or planned.kind == "group":  # its members are who took part, not parts with numbers of their own
            return []
        return sorted(promised.difference(part[3] for part in parts))

    def _cut_short(self, key: Key, target: str) -> tuple[str, str]:
        """Return the reason code of a check whose parts are missing, and words about it: those of what ended the probe before it had
        measured all checks of its stage, if other checks of the stage say so."""
        if self.cut_short is None:
            self.cut_short = {
                (another.stage, record.target, node_of(another.subject)): record
                for another, record in self.attempts.deciding.items()
                if record.outcome == "error" and record.reason_code in CUT_SHORT
            }
        cause = self.cut_short.get((key.stage, target, node_of(key.subject)))
        return (str(cause.reason_code), f": {cause.reason}") if cause else ("incomplete", "")

    def _final(self, key: Key, opinion: Opinion) -> Opinion:
        """Return an opinion, or UNKNOWN if it is not known which machine it is about: a fault may be that of another machine."""
        if key in self.misattributed:
            code, words = self.misattributed[key]
            opinion = opinion.but("UNKNOWN", code, f"{key[3]}: {words}")
        all_subjects = [*self.asked.get(key, ()), *(record.subject for record in self.attempts.records.get(key, ()))] if self.doubts else ()
        for node in sorted({node for subject in all_subjects for node in subjects.nodes_of(subject)} & set(self.doubts)):
            code, words = self.doubts[node]
            opinion = opinion.but("UNKNOWN", code, f"{node}: {words}")
        if not opinion.findings:
            return opinion
        return opinion._replace(findings=list(dict.fromkeys(opinion.findings)))

    def _write(self, key: Key, subject: Subject, opinion: Opinion) -> Verdict:
        record = self.attempts.deciding.get(key)
        attempt, simulated = (record.attempt, record.simulated) if record else (None, False)
        for part in self.attempts.parts.get(key, ()):
            simulated = simulated or self.attempts.deciding[part].simulated
        return opinion.written(self.plan.run_id, *key[:3], attempt, simulated, subject)

    def _judgement(
        self, planned: list[Verdict], derived: list[Verdict], unplanned: list[Verdict], extras: list[Verdict]
    ) -> Judgement:
        everything = sorted(
            [*planned, *unplanned],
            key=lambda v: (-bands.SEVERITY[v.verdict], v.stage, v.subject.id, v.check, v.variant),
        )
        deciding = self.attempts.deciding
        found_causes = causes.found(everything, self.blames, deciding)
        acceptance = Acceptance(self.plan, self.inputs, self.stages, deciding, self.changed, self.warnings)
        return Judgement(
            verdicts=everything,
            planned=planned,
            extras=extras,
            nodes=nodes.judged(everything),
            deciding=deciding,
            counts=dict.fromkeys(bands.SEVERITY, 0) | collections.Counter(v.verdict for v in everything),
            partial=self.plan.partial,
            simulated=any(record.simulated for attempts in self.attempts.records.values() for record in attempts),
            notes=self.notes,
            drift=self.drift,
            causes=found_causes,
            warnings=self.warnings,
            tables=self.tables,
            past=self.past_report,
            **acceptance.decide(planned, derived, everything, extras, found_causes)._asdict(),
        )
