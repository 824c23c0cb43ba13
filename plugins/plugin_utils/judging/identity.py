# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the machine and the GPUs behind a name, by everything that a run has recorded of it.

A node is one machine with one set of GPUs for the whole run: a stage that saw fewer GPUs is not judged by a smaller floor, and what
was another machine in another stage is not judged at all.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry as accelerators
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import hypervisor
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import drift, physics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    FactRules,
    Measurement,
    PlainData,
    StatedHardware,
    Subject,
)

# What the inventory says of the nodes of each target.
Stated = t.Mapping[str, StatedHardware]

# Reason codes of UNKNOWN where it is open which machine was measured.
DOUBTS = frozenset({"identity_changed", "duplicate_identity"})
_SOME_GPUS = re.compile(r"(?:^| )gpus=\d+(?: |$)")
MEMBER = "member"
# How the reason ends of a node that had more GPUs in another stage of the run.
IN_THIS_RUN = " in the same run"
SHOWN = 4
# A word of a group's name that may be that of a product: h100, mi300x, gb200.
_PRODUCT = re.compile(r"(?=[a-z0-9]*[a-z])(?=[a-z0-9]*[0-9]{2})[a-z0-9]{3,}")


class View(t.NamedTuple):
    """The identity of one node in one record. `whole`: it asked for all GPUs of the node, and so must have seen them all."""

    key: Key
    attempt: int
    plane: str
    target: str
    ids: t.Mapping[str, str]  # kind of identity -> value
    gpus: t.FrozenSet[str]
    many: int
    model: str
    whole: bool
    devices: t.Mapping[str, t.Any]

    @property
    def words(self) -> str:
        attempt_text = f" (attempt {self.attempt})" if self.attempt > 1 else ""
        return f"{self.key[0]} {self.key[1]}{attempt_text}"


# Kinds of identity of a machine. By the API of its cluster a node is known under others than it knows itself.
_IDS = {"machine_id": "machine-id", "node_info": "node of the API"}


def _names(group: str, model: str) -> bool:
    """Return True if the name of a group of the inventory has a word of the name of a GPU."""
    return bool({*_PRODUCT.findall(group.lower())} & {*_PRODUCT.findall(model.lower())})


class Nodes:
    """All views of a run by node. `telling` names the stages whose context tells of all GPUs of a node (a team's own may mean anything by
    the same words), `facts` those that find facts, `lending` the planes on which a device plugin decides which GPUs a test gets."""

    def __init__(
        self, records: t.Mapping[Key, t.Sequence[Measurement]], telling: t.Collection[str], facts: t.Collection[str],
        lending: t.Collection[str] = (),
    ) -> None:  # fmt: skip
        self.telling, self.facts, self.lending = telling, facts, lending
        self.views: dict[str, list[View]] = collections.defaultdict(list)
        self.virtual: set[str] = set()
        # {node: (places for GPUs, what tells it)} by what the machine is, and {node: GPUs that its PCI bus has}.
        self.places: dict[str, tuple[int, str]] = {}
        self.on_bus: dict[str, int] = {}
        self.of_others: dict[str, int] = {}
        self.parted: dict[str, Measurement] = {}
        known_identities: dict[int, Identity] = {}
        partial_stages = {key[0] for key in records if _SOME_GPUS.search(key[2])}
        for key, attempts in records.items():
            for record in attempts:
                for node, view in _views(key, record, partial_stages, known_identities, self.telling):
                    self.views[node].append(view)
                if key[3] == node_of(key[3]) and record.context.get("set_aside") and record.outcome == "measured":
                    self.parted.setdefault(key[3], record)
                self._take_hardware(node_of(key[3]), record.context)
                if _is_virtual(record.context.get("facts")):
                    self.virtual.add(node_of(key[3]))

    def _take_hardware(self, node: str, context: PlainData) -> None:
        """Take in what the stage that finds facts says of the places and the PCI bus of a machine."""
        places, bus = context.get("gpu_places"), context.get("gpu_bus")
        if isinstance(places, dict) and _is_count(places.get("number")):
            self.places[node] = (places["number"], str(places.get("why"))[:200])
        if isinstance(bus, dict) and _is_count(bus.get("count")):
            self.on_bus[node] = max(bus["count"], self.on_bus.get(node, 0))
        if isinstance(bus, dict) and isinstance(bus.get("of_others"), list):
            self.of_others[node] = len(bus["of_others"])

    def doubts(self) -> dict[str, tuple[str, str]]:
        """Nodes of which nobody knows which machine they are, {node: (reason code, words)}: everything of them is UNKNOWN."""
        doubts = {node: ("identity_changed", words) for node, views in self.views.items() if (words := _changed(views))}
        for node, words in self._twice().items():
            doubts.setdefault(node, ("duplicate_identity", words))
        return doubts

    def _twice(self) -> dict[str, str]:
        """Nodes that share a GPU or a machine-id with another: {node: what is twice}."""
        owners: dict[str, set[str]] = collections.defaultdict(set)
        for node, views in self.views.items():
            for gpus, machine in {(view.gpus, view.ids.get("machine_id")) for view in views}:
                for name in (*(f"GPU {uuid}" for uuid in gpus), *([f"machine-id {machine}"] if machine else [])):
                    owners[name].add(node)
        twice: dict[str, str] = {}
        for identity, nodes in sorted(owners.items()):
            for node in nodes if len(nodes) > 1 else ():
                names = ", ".join(sorted(nodes)[:SHOWN])
                twice.setdefault(node, f"{identity} stands under {names}: one machine would be measured twice")
        return twice

    def opinions(
        self, records: t.Mapping[Key, t.Sequence[Measurement]], stated: Stated, rules: t.Mapping[str, FactRules]
    ) -> t.Iterator[tuple[Key, Opinion]]:
        """Yield opinions on single checks: fewer GPUs than elsewhere in the run, than the node offers its cluster, or than its
        neighbours have; and skips that the inventory does not allow."""
        for node, views in self.views.items():
            yield from _fewer_than_before(node, views, self.lending)
            yield from _withdrawn(node, views)
            yield from _other_than_stated(node, views, stated)
        yield from self._fewer_than_neighbours(stated, rules)
        yield from self._not_a_whole_board(stated, rules)
        yield from self._fewer_than_places(stated, rules)
        yield from self._another_model(stated, rules)
        of_all_gpus = ((key, attempts[-1]) for key, attempts in records.items() if key[0] in self.telling)
        measured = {node_of(key[3]) for key, record in of_all_gpus if record.outcome == "measured"}
        for key, attempts in records.items():
            last = attempts[-1]
            hardware = stated.get(last.target) or {}
            rule = last.reason_code if last.outcome == "not_applicable" else None
            aside = last.outcome == "measured" and last.context.get("set_aside")
            if (rule in ("mig_enabled", "mig_partly") or aside) and hardware.get("mig") != "allowed":
                reason = "MIG is on, and the inventory does not say that it may be: set acceptance_mig: allowed if that is intended"
                yield key, Opinion("UNKNOWN", reason, "mig_enabled")
            elif _skipped_as_one(last) and not _SOME_GPUS.search(key[2]) and _count(self.views[node_of(key[3])]) > 1:
                reason = f"it was skipped as a node with one GPU, and the run saw {_count(self.views[node_of(key[3])])} of this node"
                yield key, Opinion("UNKNOWN", reason, "gpu_count")
            elif rule == "no_gpu_expected" and hardware.get("gpu_count") != 0:
                reason = "it was skipped as a machine without GPUs, and the inventory does not say that it is one: acceptance_gpu_count: 0"
                yield key, Opinion("UNKNOWN", reason, "gpu_count")
            elif rule == "other_accelerator" and node_of(key[3]) not in measured:
                reason = "it was skipped as a test for other accelerators, and none for its own was done: add stack, or one of them"
                yield key, Opinion("UNKNOWN", reason, "other_accelerator")

    def _fewer_than_neighbours(self, stated: Stated, rules: t.Mapping[str, FactRules]) -> t.Iterator[tuple[Key, Opinion]]:
        """Nodes with fewer GPUs than most others with the same GPU have; where the inventory says how many, that counts."""
        for model, counts in self._counts().items():
            usual_count, of = collections.Counter(counts.values()).most_common(1)[0]
            for node, count in counts.items():
                views = [view for view in self.views[node] if view.whole and view.many and view.key[0] not in self.facts]
                if not views or any(_said_otherwise(view.target, stated, rules) for view in views):
                    continue
                advice = "a GPU is missing; if that is intended, set acceptance_gpu_count"
                if count < usual_count and 2 * of > len(counts):
                    words = f"{node} has {count} GPUs and {of} of {len(counts)} nodes with {model} have {usual_count}: {advice}"
                    opinion = Opinion("UNKNOWN", words, "gpu_count")
                elif count < max(counts.values()):
                    larger = sum(another > count for another in counts.values())
                    words = f"{node} has {count} GPUs and {larger} of {len(counts)} nodes with {model} have more: {advice}"
                    # As many as most others have, it may be the larger ones that differ; without a majority nobody knows who is right.
                    usual = count == usual_count and 2 * of > len(counts)
                    opinion = Opinion("WARN" if usual and count > 1 else "UNKNOWN", words, "gpu_count")
                else:
                    continue
                for key in dict.fromkeys(view.key for view in views):
                    yield key, opinion

    def _counts(self) -> dict[str, dict[str, int]]:
        """Return the number of GPUs of each node, {model: {node: count}}, as far as both are known."""
        alike: dict[str, dict[str, int]] = collections.defaultdict(dict)
        for node, views in self.views.items():
            model = next((view.model for view in views if view.model), "")
            count = _count(views)
            if model and count:
                alike[model][node] = count
        return alike

    def _not_a_whole_board(self, stated: Stated, rules: t.Mapping[str, FactRules]) -> t.Iterator[tuple[Key, Opinion]]:
        """Machines with a number of GPUs that no board of their model has, where nobody said how many they are to have. A virtual machine
        may be given some of a board's GPUs."""
        for model, counts in self._counts().items():
            board_sizes = physics.board(model)
            for node, count in counts.items() if board_sizes else ():
                views = [view for view in self.views[node] if view.whole and view.many]
                if count in board_sizes or node in self.virtual or any(_said_otherwise(view.target, stated, rules) for view in views):
                    continue
                boards = " or ".join(map(str, board_sizes))
                words = (
                    f"{node} has {count} GPUs, and {model} stands on boards of {boards}: GPUs are missing; if that is intended, set "
                    "acceptance_gpu_count (of a virtual machine the stage stack tells it)"
                )
                for key in dict.fromkeys(view.key for view in views):
                    yield key, Opinion("UNKNOWN", words, "gpu_count")

    def _fewer_than_places(self, stated: Stated, rules: t.Mapping[str, FactRules]) -> t.Iterator[tuple[Key, Opinion]]:
        """Machines with fewer GPUs than they have places for, by their product, board or NVSwitches, or than their PCI bus has, where
        nobody said how many they are to have. What a pod was given may be fewer than the bus of its node has."""
        for node, views in self.views.items():
            count, (places, why) = _count(views), self.places.get(node, (0, ""))
            on_bus = self.on_bus.get(node, 0)
            telling = [view for view in views if view.whole and view.many]
            if not telling or count >= max(places, on_bus) or any(_said_otherwise(view.target, stated, rules) for view in telling):
                continue
            tells = why if count < places else f"its PCI bus has {on_bus}"
            others = self.of_others.get(node, 0)
            missing = f"{others} of them are not given to this job or container" if others else "GPUs are missing"
            words = f"{node} has {count} GPUs, and {tells}: {missing}; if that is intended, set acceptance_gpu_count"
            for key in dict.fromkeys(view.key for view in telling):
                yield key, Opinion("UNKNOWN", words, "gpu_count")

    def _another_model(self, stated: Stated, rules: t.Mapping[str, FactRules]) -> t.Iterator[tuple[Key, Opinion]]:
        """Nodes with another GPU than more than half of their pool: a machine of another pool, or a GPU that was exchanged. A pool are the
        nodes with accelerators of one maker and the same acceptance_gpu_count. A node of a group of the inventory whose name has its model,
        and that has no node of the usual one, is of a pool of its own: somebody has set these machines apart. A rack is no such group."""

        def groups(node: str) -> set[str]:
            return set((stated.get(self.views[node][0].target) or {}).get("groups") or ())

        pools: dict[tuple[str, t.Any], dict[str, list[str]]] = collections.defaultdict(lambda: collections.defaultdict(list))
        for model, counts in self._counts().items():
            for node in counts:
                stated_count = (stated.get(self.views[node][0].target) or {}).get("gpu_count")
                pools[_maker(model), stated_count][model].append(node)
        for models in pools.values():
            nodes = sum(map(len, models.values()))
            usual = max(models, key=lambda model: len(models[model]))
            of_usual = {group for node in models[usual] for group in groups(node)}
            differing = [
                (model, node)
                for model, of in models.items()
                for node in of
                if model != usual and not any(_names(group, model) for group in groups(node) - of_usual)
            ]
            for model, node in differing if 2 * len(models[usual]) > nodes else ():
                views = self.views[node]
                if any(drift.named("gpu", rules.get(view.target) or {}) for view in views):
                    continue
                advice = "if that is intended, set stack_golden: {gpu: ...}"
                words = f"{node} has {model}, {len(models[usual])} of {nodes} nodes have {usual}; {advice}"
                key = min((view.key for view in views if view.many), key=lambda key: (key[0] not in self.facts, key))
                yield key, Opinion("WARN", words, "drift")

    def unstated(self, stated: Stated, rules: t.Mapping[str, FactRules]) -> list[str]:
        """Return a line for the run if nobody said how many GPUs some nodes are to have: what was found was held to nothing."""
        nodes_by_count: dict[int, list[str]] = collections.defaultdict(list)
        for node, views in sorted(self.views.items()):
            count = _count(views)
            if count and not any(_said_otherwise(view.target, stated, rules) for view in views):
                nodes_by_count[count].append(node)
        if not nodes_by_count:
            return []
        parts = []
        for count, nodes in sorted(nodes_by_count.items()):
            names = ", ".join(nodes[:SHOWN]) + (", ..." if len(nodes) > SHOWN else "")
            parts.append(f"{count} on {len(nodes)} node{'s' if len(nodes) > 1 else ''} ({names})")
        return [f"how many GPUs a node has is not stated; found {' and '.join(parts)}: set acceptance_gpu_count"]


def _is_count(number: t.Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 < number < 1000


def _count(views: t.Iterable[View]) -> int:
    """Return the number of GPUs of a node, by the stage that saw most of those that measure all GPUs."""
    return max((view.many for view in views if view.whole), default=0)


def _maker(model: str) -> str:
    """Return the maker of a model, by the first word of its name, which on older models is a brand."""
    maker = model.partition(" ")[0]
    return accelerators.MAKERS.get(maker, maker)


def _is_virtual(facts: t.Any) -> bool:
    """Return True if the facts of a node say that it is a virtual machine."""
    if not isinstance(facts, dict):
        return False
    return facts.get("machine_virtual") == "yes" or hypervisor.by_dmi(
        str(facts.get("machine_vendor") or ""), str(facts.get("machine_product") or "")
    )


def not_as_planned(planned: Subject, record: Measurement) -> str | None:
    """Return in words that a record is about other nodes than the plan asked for, whatever it says of itself; None if it is not."""
    subject_measured = record.subject
    if planned.kind != subject_measured.kind:
        return f"it was planned as a {planned.kind} and measured as a {subject_measured.kind}"
    if planned.kind != "group":
        return None
    missing = sorted(set(planned.members) - set(subject_measured.members))
    nodes = record.context.get("nodes")
    if not missing and not set(subject_measured.members) - set(planned.members) and nodes in (None, len(planned.members)):
        return None
    took = len(subject_measured.members) if missing or nodes is None else nodes
    without = f": without {', '.join(missing[:SHOWN])}{' ...' if len(missing) > SHOWN else ''}" if missing else ""
    return f"it was planned with {len(planned.members)} members and measured with {took}{without}"


# One node ----------------------------------------------------------------------------------------------------------------------------


class Identity(t.NamedTuple):
    """The fields of the identity of a node in one record."""

    ids: t.Mapping[str, str]
    gpus: t.FrozenSet[str]
    devices: t.Mapping[str, t.Any]


def _identity(who: PlainData) -> Identity:
    uuids, devices = who.get("gpu_uuids"), who.get("devices")
    gpus = frozenset(uuid for uuid in uuids if isinstance(uuid, str)) if isinstance(uuids, list) else frozenset()
    return Identity({kind: str(who[kind])[:128] for kind in _IDS if who.get(kind)}, gpus, devices if isinstance(devices, dict) else {})


def _views(
    key: Key, record: Measurement, partial_stages: t.Collection[str], known_identities: dict[int, Identity], telling: t.Collection[str]
) -> t.Iterator[tuple[str, View]]:
    """`known_identities` holds what was told by the identities before: most records of a node have the same object (records/lines.py)."""
    context, subject = record.context, record.subject
    identities = context.get("identities")
    identity_of = {node: who for node, who in identities.items() if isinstance(who, dict)} if isinstance(identities, dict) else {}
    node = node_of(key[3])
    about_node = subject.kind == "node" and key[0] in telling
    if subject.kind in ("node", "gpu", "nic"):
        identity_of.setdefault(node, {})
    for name, who in identity_of.items():
        own_identity = about_node and name == node
        tells = own_identity or "gpu_uuids" in who
        # Without an identity, as in old journals, what the probe itself said of its node.
        if name == node and not ("machine_id" in who and "gpu_uuids" in who):
            says = _identity({**{k: context.get(k) for k in ("machine_id", "gpu_uuids")}, **who})
            if isinstance(context.get("set_aside"), dict):  # GPUs that MIG parts are there too
                says = says._replace(gpus=says.gpus | {str(uuid) for uuid in context["set_aside"]})
        else:
            says = known_identities.get(id(who)) or known_identities.setdefault(id(who), _identity(who))
        count = context.get("gpus") if own_identity else None
        if own_identity and _skipped_as_one(record) and not _SOME_GPUS.search(key[2]):
            count = 1
        # A pod of a group that asks for some GPUs of its node sees no others.
        all_gpus = tells and not _SOME_GPUS.search(key[2]) and not (key[1] == MEMBER and key[0] in partial_stages)
        all_gpus = all_gpus and subject.kind not in ("gpu", "nic")
        number = isinstance(count, int) and not isinstance(count, bool)
        yield str(name), View(
            key, record.attempt, record.plane, record.target, says.ids, says.gpus,
            len(says.gpus) or (t.cast(int, count) if number else 0), str(context.get("gpu") or "") if own_identity else "", all_gpus,
            says.devices,
        )  # fmt: skip


def _skipped_as_one(record: Measurement) -> bool:
    """Return True if a check was skipped because its node has one GPU, others that MIG parts aside."""
    skipped = record.outcome == "not_applicable" and record.reason_code in ("single_gpu", "one_gpu")
    return skipped and not record.context.get("set_aside")


def _changed(views: list[View]) -> str | None:
    """Return in words that views are of two machines, or of two sets of GPUs of which neither contains the other; None if not."""
    for kind, name in _IDS.items():
        views_by_id: dict[str, list[View]] = collections.defaultdict(list)
        for view in views:
            if kind in view.ids:
                views_by_id[view.ids[kind]].append(view)
        if len(views_by_id) > 1:
            sightings = "; ".join(f"{_stages(of)} saw {name} {value}" for value, of in views_by_id.items())
            return f"it was not one machine in this run: {sightings}"
    sets: dict[t.FrozenSet[str], list[View]] = collections.defaultdict(list)
    for view in views:
        if view.gpus:
            sets[view.gpus].append(view)
    largest = max(sets, key=len, default=frozenset())
    strange = next((gpus for gpus in sets if not gpus <= largest), None)
    if strange is None:
        return None
    strange_gpus = ", ".join(sorted(strange - largest)[:SHOWN])
    return f"its GPUs were not the same in this run: {_stages(sets[strange])} saw {strange_gpus}, which {_stages(sets[largest])} did not"


def _fewer_than_before(node: str, views: list[View], lending: t.Collection[str]) -> t.Iterator[tuple[Key, Opinion]]:
    """A stage that saw fewer GPUs of a node than another one did: they cannot have gone and be right."""
    fullest = max(views, key=lambda view: (view.many, len(view.gpus)), default=None)
    for view in views:
        if fullest is None or not view.whole or not 0 < view.many < fullest.many:
            continue
        missing = sorted(fullest.gpus - view.gpus) if view.gpus else []
        missing_text = f" ({', '.join(missing[:SHOWN])}{' ...' if len(missing) > SHOWN else ''} missing)" if missing else ""
        words = f"{view.words} saw {view.many} of the {fullest.many} GPUs of {node}{missing_text} that {fullest.words} saw{IN_THIS_RUN}"
        # What a cluster gives to a pod is for its device plugin to say: it withdraws what it holds for unhealthy.
        yield view.key, Opinion("UNKNOWN", words, "gpu_count") if view.plane in lending else Opinion("FAIL", words, "gpu_lost")


def _withdrawn(node: str, views: list[View]) -> t.Iterator[tuple[Key, Opinion]]:
    """A node that offers its cluster fewer devices than it has."""
    for view in views:
        has, offers = view.devices.get("capacity"), view.devices.get("allocatable")
        if has != offers:
            yield view.key, Opinion("UNKNOWN", withdrawn(node, has, offers, view.devices.get("resource")), "gpu_count")


def _other_than_stated(node: str, views: list[View], stated: Stated) -> t.Iterator[tuple[Key, Opinion]]:
    """A node with another number of GPUs than the inventory says, whatever its probe made of it."""
    for view in views:
        stated_count = (stated.get(view.target) or {}).get("gpu_count")
        if stated_count is not None and view.whole and view.many and view.many != stated_count:
            words = f"{view.words} saw {view.many} GPUs of {node}, acceptance_gpu_count says {stated_count}"
            yield view.key, Opinion("UNKNOWN", words, "gpu_count")


def withdrawn(node: str, capacity: t.Any, allocatable: t.Any, resource: t.Any) -> str:
    """Return in words what a difference of capacity and allocatable devices means."""
    if not capacity:
        return f"node {node} has {allocatable} allocatable {resource} and reports no capacity: no device plugin has registered it"
    return f"node {node} has {capacity} {resource} and {allocatable} of them allocatable: its device plugin holds the rest for unhealthy"


def _said_otherwise(target: str, stated: Stated, rules: t.Mapping[str, FactRules]) -> bool:
    """Return True if the inventory states the number of GPUs of a target, or allows nodes to differ in it."""
    fact_rules = rules.get(target) or {}
    return (stated.get(target) or {}).get("gpu_count") is not None or drift.named("gpu_count", fact_rules)


def _stages(views: t.Iterable[View]) -> str:
    """Return the stages of views, or their checks if they are of one stage."""
    checks = list(dict.fromkeys(view.words for view in views))
    stages = list(dict.fromkeys(words.partition(" ")[0] for words in checks))
    return ", ".join((stages if len(stages) > 1 else checks)[:SHOWN])
