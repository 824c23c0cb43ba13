# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Expectations: shipped tables, the users' changes over them, and the choice of the one that a measurement is held to.

A set of expectations is the shipped tables and, over them, what the inventory says, weakest first (shipped < group <
host < run). For each metric and message size of a measurement the strongest layer that says anything decides, and
within one layer the entry with the most keys in `match`.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import functools
import json
import pathlib
import re
import typing as t

import yaml
from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import context_keys, matching, slots
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import physics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import AcceptanceError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    Context,
    ExpectationData,
    JudgingInputs,
    Match,
    PlainData,
    is_number,
)

FILES = collection.ROOT / "roles" / "common" / "files"
VARIABLE = "acceptance_expectations"
LAYERS = ("shipped", "group", "host", "run")
CONFIDENCE = ("measured", "vendor", "derived")
REQUIRED = ("id", "match", "metric", "value", "unit", "source", "date", "confidence")
# What a required key holds.
MEANING = {
    "id": "a short name without blanks",
    "match": "a dictionary with at least the stage, like {stage: nccl_node, check: all_reduce, gpu: NVIDIA H200, gpus: 8, size: plateau}",
    "metric": "the name of a metric, like busbw",
    "value": "a positive number",
    "unit": "a unit of the metric",
    "source": "a text that says where the number comes from",
    "date": "YYYY-MM or YYYY-MM-DD in quotes",
    "confidence": f"one of {', '.join(CONFIDENCE)}",
}
OPTIONAL = ("better", "missed", "passes", "warns", "gates", "note", "proposed")
# What it means that a number does not reach the value of an entry.
MISSED = ("fail", "unknown")
# Keys of a measurement's context that may select an expectation, and what their values are: identities only. A stage of a user's own may
# use any others but states.
CONTEXT_KEYS = context_keys.MATCHED
# Checks that do the same work as checks of another stage, {(stage, check): (other stage, context key that names the other check)}. They
# are held to the other stage's expectations where there is none of their own (Stage.same_work).
SameWork = t.Mapping[t.Tuple[str, str], t.Tuple[str, str]]
# The kind of unit that goes with a metric that we know.
METRIC_KINDS = {
    "busbw": "rate",
    "algbw": "rate",
    "bandwidth": "rate",
    "tflops": "flops",
    "time_ms": "time",
    "latency": "time",
}

# What makes an entry's number: whoever changes one of these says something of his own.
NUMBER = {"match", "metric", "value", "unit", "better"}
# Numbers in the unit of the value that take the place of its shares (bands.limits): the least (of a time the most) that passes, and that
# is a WARN and no FAIL.
OWN_LIMITS = ("passes", "warns")
# Keys of a match that say for what hardware and what test an entry is; the others say how NCCL or a library was set.
SCOPE = {"check", *CONTEXT_KEYS} - {"algorithm", "proto", "precision", "backend", "placement"}
# An entry below this share of a shipped one is named as softer; healthy machines of a kind differ by as much.
NOTICED = 0.98
# A list of (layer, value), weakest first; a value is a list of entries, or a dict of ids with what to change of each
# (None takes the entry out).
Layered = t.Sequence[tuple[str, t.Any]]


class ExpectationError(AcceptanceError, ValueError):
    """An expectation that cannot be used: names the file or variable, the key, what was found and what is expected."""


@dataclasses.dataclass(frozen=True)
class Expectation:
    """One number of one kind of hardware. `rank` orders the layers, the weakest has 0.

    `missed` is `unknown` if the hardware reaches the value only in some machines that the match cannot tell from others, as GPUs behind
    PCIe trees of any kind: a number that reaches it is a PASS, and one that does not says nothing.

    `passes` and `warns` are the least numbers that are a PASS and a WARN, where these are not the usual shares of the value, as a maker's
    limit for this hardware is stricter. `gates` are the ids of the published limits that the entry was held against (gates.py); empty if
    none is known.
    """

    id: str
    match: Match
    metric: str
    value: float
    unit: str
    source: str
    date: str
    confidence: str
    better: str = "higher"
    missed: str = "fail"
    passes: float | None = None
    warns: float | None = None
    gates: t.Sequence[str] = ()
    note: str = ""
    layer: str = "shipped"
    rank: int = 0
    origin: str = ""

    @property
    def sizes(self) -> list[t.Any]:
        """Message sizes it holds for: bytes, `plateau`, or None for a metric that is not of a sweep."""
        return matching.sizes(self.match)


class Chosen(t.NamedTuple):
    """An expectation and the one message size for which it was chosen."""

    expectation: Expectation
    size: int | str | None


class Expectations:
    """A resolved set, shared by all hosts with the same overrides."""

    def __init__(self, entries: t.Iterable[Expectation], notes: t.Iterable[str] = ()) -> None:
        self.entries = tuple(entries)
        self.notes = tuple(notes)  # what to say of proposals that nobody has confirmed, and of entries that displace others
        self._by_stage: dict[str, list[Expectation]] = {}
        for entry in self.entries:
            self._by_stage.setdefault(entry.match["stage"], []).append(entry)
        keys = {stage: _keys(of_stage) - {"stage", "check", "size"} for stage, of_stage in self._by_stage.items()}
        self._keys = {stage: tuple(sorted(of_stage)) for stage, of_stage in keys.items()}
        self._cache: dict[t.Any, list[Chosen]] = {}
        self._shipped: dict[t.Any, dict[tuple[str, t.Any], Expectation]] = {}

    def choose(self, stage: str, check: str, context: Context, same_work: SameWork | None = None) -> list[Chosen]:
        """Return the expectations that hold for a check on the hardware of `context`, one per metric and message size: those of the check
        itself, else those of the check that does the same work."""
        chosen = self._held(stage, check, context)
        if not chosen and same_work and (stage, check) in same_work:
            same_check, named_by = same_work[stage, check]
            return self._held(same_check, context.get(named_by), context)
        return chosen

    def _held(self, stage: str, check: t.Any, context: Context) -> list[Chosen]:
        keys = self._keys.get(stage)
        if keys is None:
            return []
        cache_key = (stage, check, repr(list(map(context.get, keys))))
        if cache_key not in self._cache:
            self._cache[cache_key] = self._choose(stage, check, context)
        return self._cache[cache_key]

    def _choose(self, stage: str, check: t.Any, context: Context) -> list[Chosen]:
        by_size = matching.choose(self._by_stage.get(stage, ()), {**context, "stage": stage, "check": check})
        return [Chosen(entry, size) for (_metric, size), entry in by_size.items()]

    def displaced(self, stage: str, check: str, context: Context, chosen: Chosen) -> Expectation | None:
        """Return the shipped expectation in whose place a user's one was chosen; None if there is none."""
        if chosen.expectation.layer == "shipped":
            return None
        key = (stage, check, repr(list(map(context.get, self._keys[stage]))))
        if key not in self._shipped:
            entries = [entry for entry in self._by_stage[stage] if entry.layer == "shipped"]
            self._shipped[key] = matching.choose(entries, {**context, "stage": stage, "check": check})
        return self._shipped[key].get((chosen.expectation.metric, chosen.size))

    def dump(self) -> list[ExpectationData]:
        """Return the entries as they stand in plan.json."""
        return [t.cast(ExpectationData, dataclasses.asdict(e)) for e in self.entries]

    @classmethod
    def load(cls, dumped: list[ExpectationData]) -> Expectations:
        """Return the set of the entries in a plan.json."""
        return cls(Expectation(**t.cast("dict[str, t.Any]", {**e, "gates": tuple(e.get("gates") or ())})) for e in dumped)


def _keys(entries: t.Iterable[Expectation]) -> set[str]:
    """The keys of a context that decide which of some entries hold."""
    keys = {key for entry in entries for key in entry.match}
    return keys | set(slots.KEYS) if "nics" in keys else keys


def of_run(inputs: JudgingInputs) -> t.Callable[[str, str], Expectations]:
    """The expectations of a node, or of anything else that a target measured, of the `judging` of a plan."""
    sets = [Expectations.load(dumped) for dumped in inputs.sets]
    nothing = Expectations([])
    of = inputs.of

    def expected(node: str, target: str) -> Expectations:
        number = of.get(node, of.get(target))
        return nothing if number is None else sets[number]

    return expected


# Files ---------------------------------------------------------------------------------------------------------------


def read(path: pathlib.Path | str) -> tuple[list[PlainData], list[str]]:
    """Entries of a file, and one line per proposal in it that is ignored. The file is a list of entries, or
    {proposed: bool, expectations: [entries]} as playbooks/baseline.yml writes it."""
    name = str(path)
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        content = yaml_load(text)  # with the loader in C, where PyYAML has it: the shipped tables are most of a plan's time without
    except OSError as error:
        raise ExpectationError(f"{name}: {error.strerror}; expected a file with expectations") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())[:200]
        raise ExpectationError(f"{name}: found no valid YAML ({problem}), expected a list of expectations") from error
    if content is None:
        content = []
    if isinstance(content, dict):
        extra = sorted(set(map(str, content)) - {"proposed", "expectations"})
        if extra or not isinstance(content.get("expectations"), list):
            problem = f"unknown key {extra[0]!r}" if extra else "no list under 'expectations'"
            raise ExpectationError(f"{name}: found {problem}, expected {{proposed, expectations: [...]}} or a list")
        if not isinstance(content.get("proposed", False), bool):
            raise ExpectationError(f"{name}: proposed: found {content['proposed']!r}, expected true or false")
        if content.get("proposed"):
            count = len(content["expectations"])
            return [], [f"{name}: {count} proposed expectations are ignored until 'proposed: true' is removed"]
        content = content["expectations"]
    if not isinstance(content, list):
        raise ExpectationError(f"{name}: found {type(content).__name__}, expected a list of expectations")
    return content, []


@functools.lru_cache(maxsize=16)
def shipped(overlays: tuple[str, ...] = ()) -> Expectations:
    """The tables of the collection, and over them the chosen overlays, in order."""
    paths = sorted((FILES / "expectations").glob("*.yml"))
    shipped_names = sorted(p.stem for p in (FILES / "overlays").glob("*.yml"))
    for name in overlays:
        if name not in shipped_names:
            raise ExpectationError(
                f"acceptance_expectation_overlays: found {name!r}, expected one of {', '.join(shipped_names) or 'none'}"
            )
    base = [(0, path) for path in paths] + [(n, FILES / "overlays" / f"{o}.yml") for n, o in enumerate(overlays, 1)]
    entries: dict[str, Expectation] = {}
    ignored: list[str] = []
    for rank, path in base:
        content, unused = read(path)
        read_entries, proposed = _list(content, f"{path.parent.name}/{path.name}", "shipped", rank)
        ignored += unused + proposed
        twice = sorted(set(read_entries) & set(entries))
        if twice and rank == 0:
            raise ExpectationError(f"{path}: id: found {twice[0]!r} in two tables, expected each id once")
        entries.update(read_entries)
    return Expectations(entries.values(), ignored)


# Layers --------------------------------------------------------------------------------------------------------------


class Resolver:
    """Resolves each distinct set of overrides once; 2,000 hosts share one or two."""

    def __init__(self) -> None:
        self._known: dict[str, Expectations] = {}

    def resolve(self, layered: Layered, overlays: t.Iterable[str] = (), files: t.Iterable[str] = ()) -> Expectations:
        """Return the expectations of one host. `files` come right over the shipped tables and count as layer `group`.

        ExpectationError where anything in it is invalid or above what physics allows.
        """
        overlays, files = tuple(overlays), tuple(files)
        key = json.dumps([layered, overlays, files], default=str)
        if key not in self._known:
            self._known[key] = _resolve(layered, overlays, files)
        return self._known[key]


def resolve(layered: Layered, overlays: t.Iterable[str] = (), files: t.Iterable[str] = ()) -> Expectations:
    """Resolver.resolve without its memory."""
    return Resolver().resolve(layered, overlays, files)


def _resolve(layered: Layered, overlays: tuple[str, ...], files: tuple[str, ...]) -> Expectations:
    base = shipped(overlays)
    entries = {e.id: e for e in base.entries}
    ignored = list(base.notes)
    rank = len(overlays)
    for path in files:
        rank += 1
        content, unused = read(path)
        read_entries, proposed = _list(content, str(path), "group", rank)
        ignored += unused + proposed
        entries.update(read_entries)
    for layer, value in layered:
        rank += 1
        if layer not in LAYERS:
            raise ExpectationError(f"{VARIABLE}: found layer {layer!r}, expected one of {', '.join(LAYERS)}")
        where = f"{VARIABLE} ({layer})"
        if isinstance(value, list):
            read_entries, proposed = _list(value, where, layer, rank)
            ignored += proposed
            entries.update(read_entries)
        elif isinstance(value, dict):
            _change(entries, value, where, layer, rank)
        elif value is not None:
            raise ExpectationError(
                f"{where}: found {value!r}, expected a list of expectations or a dictionary of ids with what to change"
            )
    user_entries = [e for e in entries.values() if e.rank > len(overlays)]
    for finding in lint_own(user_entries, base.entries):
        raise ExpectationError(f"{finding.origin}: {finding.text}")
    return Expectations(entries.values(), [*ignored, *displacing(user_entries, base.entries), *softening(user_entries, base.entries)])


def displacing(user_entries: t.Iterable[Expectation], base: t.Iterable[Expectation]) -> t.Iterator[str]:
    """A line for each of a user's entries that takes over more hardware or tests than the shipped ones that it displaces: one that forgot
    `gpu`, more often than not. One for the hardware and tests of a shipped entry has forgotten nothing."""
    base = list(base)
    for entry in user_entries:
        displaced_entries = []
        has_model = False
        for displaced in base:
            same = (entry.metric, entry.match["stage"]) == (displaced.metric, displaced.match["stage"]) and displaced.id != entry.id
            if same and set(entry.sizes) & set(displaced.sizes) and physics.overlap(entry.match, displaced.match):
                wider = _wider(entry, displaced)
                if wider:
                    displaced_entries.append((displaced, wider))
                has_model = has_model or not wider
        if displaced_entries and not has_model:
            keys = sorted({key for _other, wider in displaced_entries for key in wider})
            examples = ", ".join(f"{displaced.id} ({displaced.value:g} {displaced.unit})" for displaced, _wider in displaced_entries[:4])
            hidden_count = f" and {len(displaced_entries) - 4} more" if len(displaced_entries) > 4 else ""
            note = f"{entry.origin}: {entry.value:g} {entry.unit} holds for more than what it displaces (any {', '.join(keys)})"
            yield f"{note}: {examples}{hidden_count}"


def _wider(entry: Expectation, displaced: Expectation) -> list[str]:
    """Return the keys in which an entry holds for more hardware or tests than another. A check says what its operation and type are."""
    scope = SCOPE - ({"op", "type"} if "check" in entry.match else set())
    return sorted(key for key in scope & set(displaced.match) if not _within(entry.match.get(key), displaced.match[key]))


def softening(user_entries: t.Iterable[Expectation], base: t.Iterable[Expectation]) -> t.Iterator[str]:
    """Yield a line for each entry of a user that accepts less than a shipped one which it displaces, and holds for no more than that one
    (displacing() names the others)."""
    base = list(base)
    for entry in user_entries:
        softened = []
        for stricter in base:
            same = (entry.metric, entry.better, entry.match["stage"]) == (stricter.metric, stricter.better, stricter.match["stage"])
            alike = same and set(entry.sizes) & set(stricter.sizes) and physics.overlap(entry.match, stricter.match)
            if not alike or _wider(entry, stricter):
                continue
            ratio = physics.convert(entry.value, entry.unit, stricter.unit) / stricter.value
            if (1 / ratio if entry.better == "lower" else ratio) < NOTICED:
                softened.append(f"{ratio:.2f} of the {stricter.value:g} {stricter.unit} of shipped {stricter.id}")
        if softened:
            hidden_count = f" and {len(softened) - 2} more" if len(softened) > 2 else ""
            why = f": {entry.note}" if entry.note else ""
            yield f"{entry.origin}: {entry.value:g} {entry.unit} is softer than shipped, {', '.join(softened[:2])}{hidden_count}{why}"


def _within(value: t.Any, wider_value: t.Any) -> bool:
    """Return True if an entry whose key has `value` holds for no more than one whose key has `wider_value`."""
    narrow, allowed = (item if isinstance(item, list) else [item] for item in (value, wider_value))
    return value is not None and all(any(matching.same(item, value_allowed) for value_allowed in allowed) for item in narrow)


def lint_own(user_entries: t.Sequence[Expectation], base: t.Iterable[Expectation]) -> list[physics.LintFinding]:
    """Return the errors of the lint in a user's expectations, compared with the shipped ones."""
    if not user_entries:
        return []
    origins = {e.origin for e in user_entries}
    findings = physics.lint([*base, *user_entries])
    return [f for f in findings if f.level == "error" and f.origin in origins]


def _list(raw: list[t.Any], where: str, layer: str, rank: int) -> tuple[dict[str, Expectation], list[str]]:
    """Entries of one list by id, and a line per proposal among them."""
    entries: dict[str, Expectation] = {}
    ignored = []
    for index, item in enumerate(raw):
        entry = parse(item, f"{where}, entry {index + 1}", layer, rank)
        if item.get("proposed"):
            ignored.append(f"{where}: {entry.id} is ignored until its 'proposed: true' is removed")
        elif entry.id in entries:
            raise ExpectationError(f"{where}, entry {index + 1}: id: found {entry.id!r} a second time, expected each id once")
        else:
            entries[entry.id] = entry
    return entries, ignored


def _change(entries: dict[str, Expectation], changes: dict[t.Any, t.Any], where: str, layer: str, rank: int) -> None:
    for name, change in changes.items():
        if name not in entries:
            raise ExpectationError(f"{where}: found id {name!r}, expected an id of a known expectation{_meant(str(name), entries)}")
        if change is None:
            del entries[name]
            continue
        if not isinstance(change, dict) or "id" in change:
            raise ExpectationError(f"{where}: {name}: found {change!r}, expected keys to change, or null")
        old = entries[name]
        keys = (*REQUIRED, "better", "missed", "note", *OWN_LIMITS, "gates")
        merged = {k: getattr(old, k) for k in keys if getattr(old, k) not in ("", None)}
        if set(change) & NUMBER:
            # Another number, or the same of something else, is not what was measured, and no note of the old one excuses it.
            for key in ("note", "missed", *OWN_LIMITS, "gates"):
                merged.pop(key, None)
            merged.update(
                source=f"set in {where}, in place of {old.value:g} {old.unit} of {old.layer} {old.id}",
                date=datetime.date.today().isoformat(),
                confidence="derived",
            )
        entries[name] = parse({**merged, **change}, f"{where}: {name}", layer, rank)


def _meant(name: str, ids: t.Collection[str]) -> str:
    """Return the ids that a misspelt one may stand for, in words; those that begin alike if none is near."""
    near = difflib.get_close_matches(name, ids, 3, 0.75)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    alike = sorted(known_id for known_id in ids if name.split("-", maxsplit=1)[0] in known_id)[:5]
    return f", like {', '.join(alike)}" if alike else "; a list of whole entries makes new ones"


# Validation ----------------------------------------------------------------------------------------------------------

_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.:+-]{0,127}$")
_NAME = re.compile(r"^[a-z][a-z0-9_]{0,62}$")
_DATE = re.compile(r"^[0-9]{4}-(0[1-9]|1[0-2])(-(0[1-9]|[12][0-9]|3[01]))?$")


def parse(raw: t.Any, where: str, layer: str = "run", rank: int = 0) -> Expectation:
    """One entry, strictly. `where` names the file or variable in the ExpectationError."""

    def refuse(key: str, value: t.Any, expected: str) -> t.NoReturn:
        raise ExpectationError(f"{where}: {key}: found {value!r}, expected {expected}")

    if not isinstance(raw, dict):
        refuse("entry", raw, f"a dictionary with {', '.join(REQUIRED)}")
    if isinstance(raw.get("id"), str) and raw["id"] not in where:
        where = f"{where} `{raw['id'][:128]}`"
    for key in raw:
        if key not in REQUIRED + OPTIONAL:
            near = difflib.get_close_matches(str(key), REQUIRED + OPTIONAL, 1)
            suggestion = f"did you mean `{near[0]}`? " if near else ""
            raise ExpectationError(f"{where}: unknown key `{key}`; {suggestion}The keys are {', '.join(REQUIRED + OPTIONAL)}")
    for key in REQUIRED:
        if raw.get(key) is None:
            expected = f"one of {', '.join(_units(raw.get('metric')))}" if key == "unit" else MEANING[key]
            raise ExpectationError(f"{where}: key `{key}` is missing; expected {expected}")
    for key in ("source", "note"):
        if not isinstance(raw.get(key, ""), str) or (key == "source" and not raw[key].strip()):
            refuse(key, raw[key], "text")
    if not isinstance(raw["id"], str) or not _ID.match(raw["id"]):
        refuse("id", raw["id"], "a short name without blanks")
    if not isinstance(raw["metric"], str) or not _NAME.match(raw["metric"]):
        refuse("metric", raw["metric"], "the name of a metric, like busbw")
    if not is_number(raw["value"]) or raw["value"] <= 0:
        refuse("value", raw["value"], "a positive number")
    kind = METRIC_KINDS.get(raw["metric"])
    units = _units(raw["metric"])
    if raw["unit"] not in units:
        refuse("unit", raw["unit"], f"one of {', '.join(units)}")
    better = raw.get("better", "lower" if kind == "time" else "higher")
    if better not in ("higher", "lower"):
        refuse("better", better, "higher or lower")
    if kind is not None and (kind == "time") != (better == "lower"):
        refuse("better", better, "lower for a time and higher for everything else")
    if raw.get("missed", "fail") not in MISSED:
        refuse("missed", raw["missed"], " or ".join(MISSED))
    limits = _own_limits(raw, better, refuse)
    gates = raw.get("gates", [])
    if not isinstance(gates, (list, tuple)) or not all(isinstance(gate, str) and _ID.match(gate) for gate in gates):
        refuse("gates", gates, "a list of ids of published limits")
    if raw["confidence"] not in CONFIDENCE:
        refuse("confidence", raw["confidence"], f"one of {', '.join(CONFIDENCE)}")
    date = raw["date"].isoformat() if isinstance(raw["date"], datetime.date) else raw["date"]
    if not isinstance(date, str) or not _DATE.match(date):
        refuse("date", raw["date"], "YYYY-MM or YYYY-MM-DD in quotes")
    if not isinstance(raw.get("proposed", False), bool):
        refuse("proposed", raw["proposed"], "true or false")
    return Expectation(
        id=raw["id"],
        match=_match(raw["match"], refuse),
        metric=raw["metric"],
        value=float(raw["value"]),
        unit=raw["unit"],
        source=raw["source"].strip(),
        date=date,
        confidence=raw["confidence"],
        better=better,
        missed=raw.get("missed", "fail"),
        **limits,
        gates=tuple(gates),
        note=raw.get("note", ""),
        layer=layer,
        rank=rank,
        origin=where,
    )


def _own_limits(raw: PlainData, better: str, refuse: t.Callable[[str, t.Any, str], t.NoReturn]) -> dict[str, float]:
    """Return `passes` and `warns` of an entry where it has them: from its value on each is softer than the one before."""
    limits: dict[str, float] = {}
    stricter, name = raw["value"], "value"
    for key in OWN_LIMITS:
        limit = raw.get(key)
        if limit is None:
            continue
        if not is_number(limit) or limit <= 0 or (limit < stricter if better == "lower" else limit > stricter):
            refuse(key, limit, f"a positive number, at {'least' if better == 'lower' else 'most'} its {name} {stricter:g}")
        limits[key] = float(limit)
        stricter, name = limit, key
    return limits


def _units(metric: t.Any) -> list[str]:
    """Return the units that a metric may have; all of them for one that is not ours."""
    kind = METRIC_KINDS.get(metric) if isinstance(metric, str) else None
    return [unit for unit, (of, _factor) in physics.UNITS.items() if kind in (None, of)]


def _match(raw: t.Any, refuse: t.Callable[[str, t.Any, str], t.NoReturn]) -> Match:
    """Return the match with its values as a measurement's context has them: a template of the inventory may have made text of a number."""
    if not isinstance(raw, dict) or not isinstance(raw.get("stage"), str) or not _NAME.match(raw["stage"]):
        refuse("match", raw, "a dictionary with at least the stage")
    allowed = ("stage", "check", "size", *CONTEXT_KEYS)
    typed = {}
    for key, value in raw.items():
        if not isinstance(key, str) or not _NAME.match(key) or (raw["stage"] in stages() and key not in allowed):
            refuse(f"match.{key}", value, f"no such key; the keys are {', '.join(allowed)}")
        if key in context_keys.STATES:
            refuse(f"match.{key}", value, "a key of what the hardware is: this one is a state, which selects nothing")
        values = value if isinstance(value, list) else [value]
        if not values or (key == "stage" and isinstance(value, list)):
            refuse(f"match.{key}", value, "one value" if key == "stage" else "at least one value")
        for item in values:
            if key == "size":
                if item != matching.PLATEAU and not (isinstance(item, int) and not isinstance(item, bool) and item > 0):
                    refuse("match.size", item, "a number of bytes, or plateau")
            elif not isinstance(item, (str, bool)) and not is_number(item):
                refuse(f"match.{key}", item, "text, a number, true or false")
        kind = "text" if key == "check" else CONTEXT_KEYS.get(key) if raw["stage"] in stages() else None
        typed_values = [_typed(item, kind) for item in values] if kind else values
        if None in typed_values:
            refuse(f"match.{key}", values[typed_values.index(None)], kind or "")
        typed[key] = typed_values if isinstance(value, list) else typed_values[0]
    return typed


def _typed(value: t.Any, kind: str) -> t.Any:
    """A value as what its key holds, None where it is something else."""
    words = {"true": True, "false": False}
    if kind == "text":
        return value if isinstance(value, str) and value.strip() else None
    if kind == "true or false":
        return value if isinstance(value, bool) else words.get(str(value).lower()) if isinstance(value, str) else None
    if isinstance(value, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
        value = float(value)
    if not is_number(value) or value < 0 or (kind == "a whole number" and value != int(value)):
        return None
    return int(value) if value == int(value) else value


@functools.lru_cache(maxsize=1)
def stages() -> frozenset[str]:
    """The stages of the collection: its roles. Their measurements have known keys and no others."""
    return frozenset(path.parent.name for path in (collection.ROOT / "roles").glob("*/tasks"))
