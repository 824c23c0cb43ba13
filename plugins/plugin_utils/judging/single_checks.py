# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The opinion on one measurement by itself, without any other.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import xids
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands, physics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Chosen, Expectation, Expectations, SameWork
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlainData, is_number

# Numbers of a measurement with the expectations that they were held to; None where one of them cannot be.
Compared = list[tuple[Expectation, bands.Reading]] | None

# Findings of a health check that are only worth a look.
MILD_FINDINGS = ("foreign_process", "firmware", "floating_image", "settings_differ")
# Findings that leave open whether the machine computes right. The workload of `ddp` makes PyTorch refuse operations of its own that are not
# deterministic. The reductions of NCCL, gloo or HCCL are not covered by this, so other bits in a second training are UNKNOWN and no FAIL.
UNSURE_FINDINGS = ("not_repeatable", "no_answer")


# Codes of evidence that mean another reason code, by themselves or by their words: older journals say `xid` of every error in the
# kernel's log.
MEANINGS: dict[str, t.Callable[[str], str]] = {"remap": lambda _words: "ecc", "xid": xids.code_in}
# What stays a FAIL where it came up while a test ran: a later test, which begins with it, cannot show that it is gone.
BROKEN = frozenset({*reasons.FATAL, *reasons.DEFECTS})
# The number that is shown of a condition with several; the first that a measurement has. None of them is compared.
SHOWN = ("jitter", "highest", "power")
# How its reason ends.
DURING = " (seen while the test ran)"


class SingleChecks:
    """Judges one record by itself: by its outcome, its expectations, its findings and its evidence."""

    def __init__(
        self,
        planned: t.Collection[Key],
        expected: t.Callable[[str, str], Expectations],
        required: t.Mapping[str, t.Mapping[str, t.Sequence[str]]],
        is_condition: t.Callable[[str, str], bool],
        same_work: SameWork | None = None,
    ) -> None:
        self.planned = planned
        self.expected = expected
        self.required = required
        self.is_condition = is_condition  # by stage and check
        self.same_work = same_work

    def opinion_alone(self, key: Key, record: Measurement) -> Opinion:
        """Return the opinion on one record without any other."""
        opinions = [self.own(key, record)[0], *self.health(record), *(fatal_opinion for _whom, fatal_opinion in self.fatal(key, record))]
        return self.with_evidence(key, record, bands.worst(opinions))

    def own(self, key: Key, record: Measurement) -> tuple[Opinion, Compared]:
        """Return the opinion on a record's outcome and numbers, and the expectations they were compared with."""
        outcome, code, reason = record.outcome, record.reason_code, record.reason
        if outcome == "measured":
            expected = self.expected(node_of(key[3]), record.target)
            if not record.metrics and (self._is_condition(record) or not record.series):
                return self._without_number(record, expected if self._is_planned(key) else None), []
            opinion, compared = measured(key, record, expected, self.same_work)
            without = opinion.reason_code == "no_expectation" and self._of_stage(record)
            if without and not expected.choose(record.stage, record.check, record.context, self.same_work):
                # Its numbers are shown, and laid beside those of siblings and neighbours.
                opinion = opinion._replace(verdict="PASS", reason_code=None, reason=no_fault(record.check), **_shown(record, opinion))
            return opinion, compared
        if outcome == "not_applicable" and code in reasons.SKIP_RULES:
            return Opinion("SKIPPED", f"rule {code}: {reason}", code), []
        if outcome == "not_applicable" and code in reasons.SKIP_WARNS:
            return Opinion("WARN", f"{reason} ({reasons.ALL[code]})", code), []
        if outcome == "error" and (code in reasons.FATAL or (code in reasons.DEFECTS and self._has_found_defect(record, code))):
            return Opinion("FAIL", f"{reason} ({reasons.ALL[code]})", code), []
        return Opinion("UNKNOWN", str(reason), code), []

    @staticmethod
    def _has_found_defect(record: Measurement, code: str) -> bool:
        """Return True if a check has found the defect that its reason code names, and did not merely fail to look."""
        findings = record.context.get("findings")
        return any(coded(finding)[0] == code for finding in (findings if isinstance(findings, list) else ()))

    def _without_number(self, record: Measurement, expected: Expectations | None) -> Opinion:
        """A check that was measured and has no number: a PASS where it is about a condition, and nobody expects a number of it."""
        stage, check = record.stage, record.check
        if self._of_stage(record):
            return Opinion("PASS", no_fault(check))
        stage_entries = [e for e in expected.entries if e.match["stage"] == stage] if expected else []
        lacking = next((e for e in stage_entries if bands.accepts(e, record) is None), None)
        if lacking:
            reason = f"it has no number, and {lacking.id} ({lacking.layer}) expects {lacking.metric} of it"
        elif self._is_condition(record):
            return Opinion("PASS", no_fault(check))
        else:
            reason = "it has no number, and does not say that it needs none, by {condition: true} in its context"
        return Opinion("UNKNOWN", reason, "no_number")

    def _of_stage(self, record: Measurement) -> bool:
        """Return True if the stage declares the check as a condition."""
        return self.is_condition(record.stage, record.check)

    def _is_condition(self, record: Measurement) -> bool:
        return self._of_stage(record) or record.context.get("condition") is True

    def _is_planned(self, key: Key) -> bool:
        """Return True if the key, or the node that it is a part of, is in the plan."""
        return key in self.planned or key._replace(subject=node_of(key.subject)) in self.planned

    @staticmethod
    def quiet(record: Measurement) -> bool:
        """Return True if the record has no findings and its evidence is complete and empty (the common case)."""
        evidence = record.evidence
        return not (record.context.get("findings") or evidence.get("changes") or evidence.get("unreadable"))

    def health(self, record: Measurement) -> t.Iterator[Opinion]:
        """Yield the opinions on a check's findings except fatal ones, and on a state of the machine that is unknown after it."""
        findings = record.context.get("findings") or []
        for finding in findings if isinstance(findings, list) else [{"text": "the findings are not of their form"}]:
            code, text = coded(finding)
            if code not in reasons.FATAL and (record.outcome == "measured" or code in reasons.DEFECTS or code in reasons.MILD):
                known_code = code if code in reasons.ALL else "health"
                mild = "WARN" if code in MILD_FINDINGS or code in reasons.MILD else "FAIL"
                yield Opinion("UNKNOWN" if code in UNSURE_FINDINGS else mild, text, known_code)
        for code, text in _doubts(record):
            yield Opinion("UNKNOWN", f"{text}{DURING}", code)

    def fatal(self, key: Key, record: Measurement) -> t.Iterator[tuple[Key, Opinion]]:
        """Yield the findings that no later attempt takes back, whatever the result: wrong results, lost GPUs and memory
        errors, and any defect that came up while it measured. Each with the key of the part that it is about."""
        findings, changes = record.context.get("findings"), record.evidence.get("changes")
        for items, grave, read, when in ((findings, reasons.FATAL, coded, ""), (changes, BROKEN, meant, DURING)):
            for item in items if isinstance(items, list) else ():
                code, text = read(item)
                if code in grave:
                    part = item.get("part")
                    whom = f"{key[3]}/{part}" if part and isinstance(part, str) else key[3]
                    yield key._replace(subject=whom), Opinion("FAIL", text + when, code)

    def with_evidence(self, key: Key, record: Measurement, opinion: Opinion) -> Opinion:
        """An opinion, with what is known of the time in which it was measured."""
        if record.context.get("set_aside") and record.outcome == "measured" and key[3] == node_of(key[3]):
            opinion = opinion._replace(findings=[*opinion.findings, set_aside(record)])
        if not self.quiet(record):
            opinion = self._with_changes(record, opinion)
        missing = self._missing(key, record)
        if missing and opinion.severity < bands.SEVERITY["UNKNOWN"]:
            reason = f"{key.stage}_required_evidence: it could not be read while the test ran: {', '.join(missing)}; see acceptance_become"
            opinion = opinion.but("UNKNOWN", "evidence_unreadable", reason)
        return opinion

    @staticmethod
    def _with_changes(record: Measurement, opinion: Opinion) -> Opinion:
        """Return an opinion with the changes of the evidence during the measurement, and with the evidence that could not be read."""
        evidence = record.evidence
        changes = evidence.get("changes") or []
        unreadable = evidence.get("unreadable") or []
        if not isinstance(changes, list) or not isinstance(unreadable, list):
            changes, unreadable = [{"text": "the evidence is not of its form"}], ["evidence"]
        texts = [coded(change)[1] for change in changes]
        if unreadable:
            note = f"evidence that could not be read: {', '.join(map(str, unreadable))}"
            opinion = opinion._replace(findings=[*opinion.findings, note])
        if texts and opinion.verdict == "PASS":
            opinion = opinion.but("WARN", "evidence", f"it passed, but during the test: {'; '.join(texts)}")
        elif texts:
            opinion = opinion._replace(findings=[*opinion.findings, *texts])
        return opinion

    def _missing(self, key: Key, record: Measurement) -> list[str]:
        """Return the required evidence of the stage that could not be read on a node. Its parts were measured in the same window."""
        codes = self.required.get(record.target, {}).get(key.stage, ())
        if not codes or record.outcome != "measured" or record.subject.kind != "node" or key not in self.planned:
            return []
        evidence = record.evidence
        window, changes, unreadable = (evidence.get(name) for name in ("window", "changes", "unreadable"))
        gathered = isinstance(window, dict) and isinstance(changes, list) and isinstance(unreadable, list)
        return [code for code in codes if not gathered or code in t.cast("list[t.Any]", unreadable)]


def measured(key: Key, record: Measurement, expected: Expectations, same_work: SameWork | None = None) -> tuple[Opinion, Compared]:
    """A measured check against all expectations of its hardware: the worst decides. And what was compared."""
    wrong = bands.impossible(record)
    opinions: list[Opinion] = [wrong] if wrong else []
    compared = []
    chosen = expected.choose(record.stage, record.check, record.context, same_work)
    chosen = chosen or _of_whole_node(record, expected, same_work) or _of_slots(record)
    for choice in chosen:
        expectation, size = choice
        try:
            reading = bands.reading(record, expectation.metric, size)
        except bands.Unusable as error:
            opinions.append(Opinion("UNKNOWN", str(error), "bad_measurement", metric=expectation.metric))
            continue
        if reading is not None:
            opinions.append(bands.held(reading, expectation, record.context))
            compared.append((expectation, reading))
            displaced = expected.displaced(record.stage, record.check, record.context, choice)
            if displaced and physics.far_softer(expectation, displaced):
                opinions.append(_too_soft(expectation, displaced))
    if opinions:
        return bands.worst(opinions), None if wrong else compared
    value: PlainData = {}
    metric = primary(record)
    if metric is not None:
        reading = bands.reading(record, metric, None)
        if reading:
            value = {"metric": metric, "value": reading.value, "unit": reading.unit}
    if chosen:
        sizes = [row["size"] for row in record.series if is_number(row.get("size"))]
        ends = f"the run ends at {bands.human(int(max(sizes)))}" if sizes else "the run has no message sizes"
        ids = ", ".join(sorted({c.expectation.id for c in chosen})[:3])
        reason = f"{ends} and has none of the sizes of {ids}: only its correctness was judged, its bandwidth is unknown"
        return Opinion("UNKNOWN", reason, "no_expectation", **value), []
    context = record.context
    hardware = [f"{context['gpus']} x {context['gpu']}" if "gpu" in context and "gpus" in context else context.get("gpu")]
    hardware += [f"{k} {context[k]}" for k in ("nodes", "nics", "nic_gbps", "nvls", "algorithm", "shape") if k in context]
    on = f" on {', '.join(map(str, filter(None, hardware)))}" if any(hardware) else ""
    name = " ".join(filter(None, key[:3]))
    advice = "set it in acceptance_expectations or run gpufleet.acceptance.baseline"
    return Opinion("UNKNOWN", f"no expectation for {name}{on}; {advice}", "no_expectation", **value), []


def _doubts(record: Measurement) -> t.Iterator[tuple[str, str]]:
    """Yield code and text of what came up while a record was measured and leaves open what it is worth."""
    changes = record.evidence.get("changes")
    for change in changes if isinstance(changes, list) else ():
        code, text = meant(change)
        if code in reasons.ERRORS and code not in BROKEN:
            yield code, text


def is_doubted_by_window(record: Measurement) -> bool:
    """Return True if something came up while a record was measured by which it is UNKNOWN, whatever it measured."""
    return any(_doubts(record))


def no_fault(check: str) -> str:
    """Return the reason for a PASS of a check that has no number to hold against a floor."""
    return f"{check} was checked, and no fault was found"


def _shown(record: Measurement, opinion: Opinion) -> PlainData:
    """Return the number that the report shows of a condition with several, none of which is compared with anything: metric, value, unit."""
    name = next((name for name in SHOWN if name in record.metrics and is_number(record.metrics[name].value)), None)
    if opinion.metric is not None or name is None:
        return {}
    return {"metric": name, "value": record.metrics[name].value, "unit": record.metrics[name].unit}


def set_aside(record: Measurement) -> str:
    """Return the sentence that names the GPUs that a number leaves out because MIG is on."""
    aside = record.context["set_aside"]
    names = ", ".join(map(str, aside.values())) if isinstance(aside, dict) else str(aside)
    return f"MIG is on for {names[:200]}: measured and judged were the other {record.context.get('gpus')} GPUs"


def _of_whole_node(record: Measurement, expected: Expectations, same_work: SameWork | None) -> list[Chosen]:
    """The expectations for all GPUs of a node, for a measurement without those that MIG parts. Each GPU sends at the rate of its own links
    however many take part, so a ring's bus bandwidth stays; where the switch reduces, busbw counts 2(n-1)/n of what a GPU sends."""
    context = record.context
    aside, many = context.get("set_aside"), context.get("gpus")
    if not isinstance(aside, dict) or not aside or not is_number(many) or many < 2:
        return []
    all_gpus = many + len(aside)
    in_switch = context.get("nvls") and record.check == "all_reduce"
    share = (many - 1) / many * all_gpus / (all_gpus - 1) if in_switch else 1.0
    how = f"of {all_gpus} GPUs, for the {many} that are whole{f' by 2(n-1)/n: x {share:.4f}' if in_switch else ''}"
    chosen = expected.choose(record.stage, record.check, {**context, "gpus": all_gpus}, same_work)
    return [
        Chosen(dataclasses.replace(e, value=float(f"{e.value * share:.5g}"), confidence="derived", source=f"{e.source}; {how}"), size)
        for e, size in chosen
    ]


# From this message size on a ring that goes over the network is at its bandwidth, GPUs with little memory have no larger one.
_LARGE = 1 << 30


def _of_slots(record: Measurement) -> list[Chosen]:
    """The number of a group whose GPUs are in PCIe slots, at its largest message size, if no table has a number for so many NICs."""
    derived = bands.of_ring(record.context) if record.check == "all_reduce" and record.subject.kind == "group" else None
    largest = max((int(row["size"]) for row in record.series if is_number(row.get("size"))), default=0)
    return [Chosen(derived, largest)] if derived is not None and largest >= _LARGE else []


def _too_soft(entry: Expectation, shipped: Expectation) -> Opinion:
    """The opinion on a number that was held to an expectation far softer than the shipped one that it displaces."""
    reason = (
        f"{entry.origin}: {entry.value:g} {entry.unit} displaces {shipped.value:g} {shipped.unit} of shipped {shipped.id} here, and no "
        "note says why so much less is healthy: name the hardware that it is for in its match, or give it a note"
    )
    return Opinion("UNKNOWN", reason, "soft_expectation", metric=entry.metric, expectation=entry.id, layer=entry.layer)


def primary(record: Measurement) -> str | None:
    """The metric that stands for a check."""
    metrics = [name for name, m in record.metrics.items() if is_number(m.value)]
    names = [name for name in bands.PRIMARY if name in metrics]
    return names[0] if names else metrics[0] if len(metrics) == 1 else None


def better_of(unit: str) -> str:
    """Return `higher` or `lower`, which is better for a number without an expectation."""
    return "lower" if physics.UNITS.get(unit, ("",))[0] == "time" else "higher"


def coded(item: t.Any) -> tuple[str, str]:
    """Code and text of a finding or a change."""
    if not isinstance(item, dict):
        return "", str(item)
    return str(item.get("code") or ""), str(item.get("text") or item.get("code") or "something without a text")


def meant(change: t.Any) -> tuple[str, str]:
    """The reason code that a change of evidence means, and its text."""
    code, text = coded(change)
    return MEANINGS[code](text) if code in MEANINGS else code, text
