# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVLink domains as subjects: the racks whose trays name the same ClusterUUID and CliqueId.

No plan knows the domains of a fleet before its nodes were asked, so they are put together from the facts of the nodes when a run is judged.
Each is a record of its own, with what its trays lack, where they differ, and faults that hit all of them at once.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import calendar
import collections
import dataclasses
import re
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.causes import Blame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import JudgingInputs, Measurement, PlainData, Plan, Subject

CHECK = "nvlink_domain"
KIND: t.Literal["nvlink_domain"] = "nvlink_domain"
# Where a node says which domain it is in, in the context of its facts.
CONTEXT = "link_domain"
TRAYS = "acceptance_nvlink_domain_trays"
# Events are at once if the seconds in which they were logged differ by no more. Clocks of one rack agree to less.
AT_ONCE_S = 1
# From so many trays on, and so large a share of a domain, an event at once is one of the domain.
FEWEST, SHARE = 3, 0.9
NOT_READ = "the switch trays of the rack: their fabric manager, links and leak sensors are read by no check"
_TIME = re.compile(r"\b(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)Z")
# A name and its last number.
_STEM = re.compile(r"(.*?)\d+\D*", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Tray:
    """A node of a rack; `said` is what its facts say of its domain, `domain` is empty if it is in none."""

    node: str
    record: Measurement
    domain: str
    cluster: str
    said: PlainData

    def imex(self, name: str) -> t.Any:
        imex = self.said.get("imex")
        return imex.get(name) if isinstance(imex, dict) else None


@dataclasses.dataclass
class Domain:
    """One NVLink domain. `findings` are [(code, text)], `missing` the nodes that should be in it and are not."""

    id: str
    trays: list[Tray]
    expected: int | None = None
    basis: str = ""
    findings: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    missing: list[str] = dataclasses.field(default_factory=list)
    of_whole: str = ""
    at_once: list[Key] = dataclasses.field(default_factory=list)

    @property
    def nodes(self) -> list[str]:
        return sorted(tray.node for tray in self.trays)


def records(stage: str, deciding: t.Mapping[Key, Measurement], plan: Plan, inputs: JudgingInputs) -> list[Measurement]:
    """Return a record for each NVLink domain of the run, of the check `nvlink_domain` of the stage that finds the facts of nodes."""
    trays = [tray for key, record in deciding.items() if key.stage == stage and (tray := _tray(key, record))]
    if not trays:
        return []
    by_id: dict[str, Domain] = {}
    for tray in sorted(trays, key=lambda tray: tray.node):
        if tray.domain:
            by_id.setdefault(tray.domain, Domain(tray.domain, [])).trays.append(tray)
    domains = sorted(by_id.values(), key=lambda domain: (-len(domain.trays), domain.id))
    asked = {item.subject.id for item in plan.items if item.stage == stage and item.subject.kind == "node"}
    racks = _Racks(trays, asked, inputs)
    for domain in domains:
        domain.expected, domain.basis = _expected(domain, domains, plan)
    for domain in domains:
        _count(domain, domains, racks, plan)
        domain.findings += [*_differing(domain), *_imex(domain)]
        _at_once(domain, deciding)
    return [_record(stage, domain, plan) for domain in domains]


def blames(stage: str, deciding: t.Mapping[Key, Measurement]) -> t.Iterator[Blame]:
    """Yield who is behind a domain that is not whole, and which checks of trays a fault of the domain is behind."""
    for key, record in deciding.items():
        if (key.stage, key.check) != (stage, CHECK) or record.subject.kind != KIND:
            continue
        keys = frozenset(Key(*map(str, words)) for words in record.context.get("at_once") or ())
        missing = record.context.get("missing") or []
        if keys:
            texts = "; ".join(str(finding["text"]) for finding in record.context["findings"])
            yield Blame(key.subject, KIND, texts, own=(key,), explains=keys, whatever=True)
        elif len(record.context.get("findings") or ()) == 1 and missing:
            text = f"NVLink domain {key.subject} has {record.context['findings'][0]['text']}"
            yield Blame(missing[0], "node", text, explains=frozenset((key,)), whatever=True)


def _tray(key: Key, record: Measurement) -> Tray | None:
    said = record.context.get(CONTEXT)
    if record.outcome != "measured" or not isinstance(said, dict):
        return None
    cluster, clique = (str(said.get(name) or "") for name in ("cluster_uuid", "clique"))
    return Tray(key.subject, record, f"{cluster}.{clique or '0'}" if cluster else "", cluster, said)


# The number of trays ----------------------------------------------------------------------------------------------------


class _Racks:
    """The ways by which a node belongs to the rack of a domain: the inventory, the serial number of the chassis, or the name."""

    def __init__(self, trays: t.Sequence[Tray], asked: t.AbstractSet[str], inputs: JudgingInputs) -> None:
        self.tray_of = {tray.node: tray for tray in trays}
        self.nodes = sorted({*asked, *self.tray_of})
        self.rack = inputs.rack

    def others(self, domain: Domain, domains: t.Sequence[Domain]) -> list[str]:
        """Return the nodes of the rack of a domain that are not in it: those in no domain, in a much smaller one, or not measured."""
        large = {other.id for other in domains if 2 * len(other.trays) > (other.expected or 0) and len(other.trays) >= FEWEST}
        own = set(domain.nodes)
        nodes = [node for node in self.nodes if node not in own and not (node in self.tray_of and self.tray_of[node].domain in large)]
        for same in (self._stated, self._chassis, self._named):
            marks = collections.Counter(mark for node in own if (mark := same(node)))
            if marks:
                usual = {mark for mark, count in marks.items() if 2 * count > len(own)}
                found = [node for node in nodes if same(node) in usual]
                # A node that was not measured has no chassis: its name may still tell.
                if found or same is self._stated:
                    return found
        return []

    def _stated(self, node: str) -> str:
        return self.rack.get(node, "")

    def _chassis(self, node: str) -> str:
        return str(self.tray_of[node].said.get("chassis") or "") if node in self.tray_of else ""

    def _named(self, node: str) -> str:
        match = _STEM.fullmatch(node)
        return match.group(1) if match else ""


def _expected(domain: Domain, domains: t.Sequence[Domain], plan: Plan) -> tuple[int | None, str]:
    """Return how many trays a domain should have, and how that is known."""
    for tray in domain.trays:
        stated = _stated(plan, tray.record.target)
        if stated:
            return stated, TRAYS
    designs = {int(count) for tray in domain.trays if isinstance(count := tray.said.get("trays_by_design"), int)}
    if len(designs) == 1:
        return designs.pop(), "product"
    sizes = collections.Counter(len(other.trays) for other in domains if other is not domain)
    return (max(sizes, key=lambda size: (sizes[size], size)), "siblings") if sizes else (None, "")


def _stated(plan: Plan, target: str) -> int:
    settings = plan.settings
    if settings is None or target not in settings.of:
        return 0
    value = settings.sets[settings.of[target]].get(TRAYS)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _count(domain: Domain, domains: t.Sequence[Domain], racks: _Racks, plan: Plan) -> None:
    """Find how many trays a domain lacks, and name those of its rack that are elsewhere."""
    count, expected = len(domain.trays), domain.expected
    if expected is None or count == expected or domain.of_whole:
        return
    number = f"{count} of {expected} trays"
    if count > expected:
        domain.findings.append((CHECK, f"it has {count} trays, expected {expected} ({domain.basis})"))
        return
    others = racks.others(domain, domains)
    if plan.left_out and not others:
        return  # a run over a part of the rack
    elsewhere = [node for node in others if node in racks.tray_of]
    silent = [node for node in others if node not in racks.tray_of]
    domain.missing = elsewhere or silent
    for other in domains:
        if other is not domain and set(other.nodes) <= set(elsewhere):
            other.of_whole = domain.id
    if elsewhere:
        domain.findings.append((CHECK, f"{number}: {'; '.join(_where(domain, racks.tray_of[node]) for node in elsewhere[:4])}"))
    elif silent:
        words = f"{number} are known: {subjects.folded(silent)} of its rack did not tell which domain it is in"
        domain.findings.append(("no_answer", words))
    elif domain.basis == TRAYS:
        domain.findings.append((CHECK, f"{number} ({TRAYS}), and no node of this run is a missing one{_slots(domain, expected)}"))
    else:
        words = f"{number} ({domain.basis}), and the run has no other node of its rack{_slots(domain, expected)}"
        domain.findings.append(("nvlink_domain_small", f"{words}: add the others to the inventory, or set {TRAYS} to what it should have"))


def _where(domain: Domain, tray: Tray) -> str:
    """Return where a tray is that should be in a domain."""
    if not tray.domain:
        return f"{tray.node} is in no NVLink domain"
    if tray.cluster == domain.trays[0].cluster:
        return f"{tray.node} is in another partition of it, {tray.domain}; set {TRAYS} if partitions are wanted"
    return f"{tray.node} is in another NVLink domain, {tray.domain}"


def _slots(domain: Domain, expected: int) -> str:
    """Return which slots of the rack have no tray of the domain, if the trays number them; else an empty text."""
    indexes = {int(index) for index in (str(tray.said.get("tray")) for tray in domain.trays) if index.isdecimal()}
    free = sorted(set(range(expected)) - indexes)
    return f"; no tray has index {', '.join(map(str, free))}" if len(indexes) == len(domain.trays) and len(free) <= FEWEST else ""


# Trays that differ ------------------------------------------------------------------------------------------------------


def _differing(domain: Domain) -> t.Iterator[tuple[str, str]]:
    """Yield what must be the same on all trays of a domain and is not."""
    read: tuple[tuple[str, t.Callable[[Tray], t.Any]], ...] = (
        ("the driver", lambda tray: tray.said.get("driver")),
        ("the version of IMEX", lambda tray: tray.imex("version")),
        ("the list of nodes of IMEX (nodes_config.cfg)", lambda tray: tray.imex("nodes_config") if tray.imex("owner") == "host" else None),
        ("who starts IMEX", lambda tray: tray.imex("owner")),
    )
    for words, value_of in read:
        nodes: dict[str, list[str]] = collections.defaultdict(list)
        for tray in domain.trays:
            value = value_of(tray)
            if value is not None:
                nodes[str(value)].append(tray.node)
        if len(nodes) > 1:
            ranked = sorted(nodes.items(), key=lambda item: (len(item[1]), item[0]))
            texts = [f"{value[:40]} on {subjects.folded(of, 4)}" for value, of in ranked[:4]]
            yield CHECK, f"{words} differs among its trays: {', '.join(texts)}"


def _imex(domain: Domain) -> t.Iterator[tuple[str, str]]:
    """Yield the state of the IMEX domain if it is not up, as the trays see it whose host starts IMEX."""
    states: dict[str, list[Tray]] = collections.defaultdict(list)
    for tray in domain.trays:
        if tray.imex("owner") == "host" and tray.imex("domain"):
            states[str(tray.imex("domain"))].append(tray)
    bad = {state: trays for state, trays in states.items() if state != "UP"}
    if not bad:
        return
    name_of = {str(address): tray.node for tray in domain.trays for address in tray.record.context.get("addresses") or ()}
    unready: dict[str, str] = {}
    broken: collections.Counter[str] = collections.Counter()
    for tray in (tray for trays in bad.values() for tray in trays):
        for node in tray.imex("not_well") or ():
            host = str(node.get("host"))
            if node.get("state") != "READY":
                unready[host] = str(node.get("state"))
            broken.update((node.get("broken") or {}).values())
    seen = ", ".join(f"{state} as {len(trays)} of its trays see it" for state, trays in sorted(bad.items()))
    named = [f"{host}{f' ({name_of[host]})' if host in name_of else ''} is {state}" for host, state in sorted(unready.items())]
    links = [f"{count} connections are {state}" for state, count in broken.most_common(3)]
    text = "; ".join((f"the IMEX domain is {seen}", *named[:4], *links))
    yield "imex", f"{text}: compare versions and nodes_config.cfg of these trays"


# Events at once -----------------------------------------------------------------------------------------------------------


def _at_once(domain: Domain, deciding: t.Mapping[Key, Measurement]) -> None:
    """Find errors that nearly all trays of a domain logged at once: what they share is behind them, and no tray."""
    trays = set(domain.nodes)
    of_record: dict[Key, list[tuple[int, str]]] = {}
    whole: set[Key] = set()
    for key, record in deciding.items():
        if node_of(key.subject) in trays:
            events, is_whole = _events(record)
            if events:
                of_record[key] = events
            if is_whole:
                whole.add(key)
    at: dict[int, set[str]] = collections.defaultdict(set)
    for key, events in of_record.items():
        for second, _text in events:
            for earliest in range(second - AT_ONCE_S, second + 1):
                at[earliest].add(node_of(key.subject))
    begin = max(sorted(at), key=lambda second: len(at[second]), default=-1)
    if begin < 0 or len(at[begin]) < max(FEWEST, SHARE * len(trays)):
        return
    within = {key: [text for second, text in events if begin <= second <= begin + AT_ONCE_S] for key, events in of_record.items()}
    # A record with another finding beside these events has a fault of its own, too.
    domain.at_once = sorted(key for key, texts in within.items() if texts and key in whole and len(texts) == len(of_record[key]))
    example = next(text for texts in within.values() for text in texts)
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begin))
    words = f"{len(at[begin])} of its {len(trays)} trays logged errors within a second of {when}, such as: {example[:300]}"
    domain.findings.append((CHECK, f"{words}; look at the switch trays and their fabric manager before any tray"))


def _events(record: Measurement) -> tuple[list[tuple[int, str]], bool]:
    """Return the errors of a record that were logged at a known time, as (second, text), and whether these are all that it found."""
    findings, changes = record.context.get("findings"), record.evidence.get("changes")
    items = [item for of in (findings, changes) if isinstance(of, list) for item in of if isinstance(item, dict)]
    events = []
    for item in items:
        text = str(item.get("text") or "")
        match = _TIME.search(str(item.get("at") or text))
        if match and item.get("code") in reasons.ALL:
            events.append((calendar.timegm(time.strptime(match.group(1), "%Y-%m-%dT%H:%M:%S")), text))
    return events, len(events) == len(items)


# The record ---------------------------------------------------------------------------------------------------------------


def _record(stage: str, domain: Domain, plan: Plan) -> Measurement:
    first = min((tray.record for tray in domain.trays), key=lambda record: record.key)
    context: PlainData = {
        "trays": len(domain.trays),
        "expected": domain.expected,
        "basis": domain.basis,
        "missing": domain.missing,
        "condition": True,
        "findings": [{"code": code, "part": "", "text": text[:2000]} for code, text in domain.findings],
        "not_looked_for": {"switch_trays": NOT_READ},
    }
    if domain.of_whole:
        context["part_of"] = domain.of_whole
    if domain.at_once:
        context["at_once"] = [list(key) for key in domain.at_once]
    if plan.left_out and domain.expected and len(domain.trays) < domain.expected and not domain.missing:
        context["not_looked_for"]["trays"] = f"the number of trays of NVLink domain {domain.id}: the run leaves hosts out"
    return Measurement(
        schema="measurement/v1", run_id=plan.run_id, stage=stage, check=CHECK, variant="", subject=Subject(KIND, domain.id, domain.nodes),
        plane=first.plane, target=first.target, attempt=1, outcome="measured", reason_code=None, reason=None, metrics={}, series=[],
        context=context, evidence={}, command=[], tool_version=None, started_at=max(tray.record.started_at for tray in domain.trays),
        duration_s=0.0, raw=None, raw_sha256=None, simulated=any(tray.record.simulated for tray in domain.trays),
    )  # fmt: skip
