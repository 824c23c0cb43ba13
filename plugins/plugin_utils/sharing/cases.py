# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cases of the matrix: data in, checked cases out. A case that could not be judged is refused before anything runs.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing as t

import yaml
from ansible_collections.gpufleet.acceptance.plugins.module_utils import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import actions, expressions, shapes, vocabulary
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.system import System

FILES = collection.ROOT / "roles" / "gpu_sharing" / "files"
# In the order in which a whole matrix runs.
SUITES = ("functional", "combination", "performance", "metrics", "stability")
STRICT, FAITHFUL = "strict", "faithful"
PROFILES = (STRICT, FAITHFUL)
GATES = ("P0", "P1", "P2")
CLUSTERS = ("c1", "c2")

Object = t.Dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Assertion:
    """`that` must hold; `cause` is what it means where it does not. `always`: of every case of its suite, whatever is skipped."""

    that: str
    cause: str
    gates: tuple[str, ...]
    needs: tuple[str, ...] = ()
    always: bool = False


@dataclasses.dataclass(frozen=True)
class Case:
    """One case in one profile. `skips` are (rule, expression): where one holds nothing is asserted. `metrics` are {name: (expression,
    unit)}, `limits` those of them that are held to the baseline, {name: (lower or higher is better, the parameter that says by how much
    it may be worse)}. `node` names the variable that must say which node it is about; `crowded`: it is about how
    pods fare that are on the GPUs all at once."""

    id: str
    suite: str
    letter: str
    title: str
    profile: str
    clusters: tuple[str, ...]
    gates: tuple[str, ...]
    needs: tuple[str, ...]
    destructive: bool
    soak: bool
    node: str
    crowded: bool
    steps: tuple[actions.Step, ...]
    skips: tuple[tuple[str, str], ...]
    assertions: tuple[Assertion, ...]
    metrics: t.Mapping[str, tuple[str, str]]
    limits: t.Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)

    @property
    def beside(self) -> bool:
        """Return True if the case's pods must run when others begin or are disturbed."""
        return self.crowded or actions.beside(self.steps)

    @property
    def check(self) -> str:
        """Its name in plan, journal and verdicts."""
        return self.id.lower().replace("-", "_")


def shipped(profile: str) -> list[Case]:
    """The cases of the collection."""
    return [case for suite in SUITES for case in load(str(FILES / "cases" / f"{suite}.yml"), profile)]


def load(path: str, profile: str) -> list[Case]:
    """The cases of one file. RunError names file, case, and what is wrong."""
    where = pathlib.Path(path).expanduser()
    try:
        given = yaml.safe_load(where.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        raise RunError(f"gpu_sharing_suites: {where}: {said}; expected a file of cases") from error
    shapes.check("gpu-sharing-cases-v1", given, str(where))
    return [_case(item, given, profile, str(where)) for item in given["cases"]]


def _case(item: Object, suite: Object, profile: str, where: str) -> Case:
    named = f"{where}: {item['id']}"
    gates = tuple(item["gates"])
    always = suite.get("always", {}).get(profile, []) if item.get("always", True) else []
    steps = _of(item["steps"], profile)
    metrics = item.get("metrics", {}) if profile == STRICT else {}
    found = Case(
        id=item["id"], suite=suite["suite"], letter=suite["letter"], title=item["title"], profile=profile,
        clusters=tuple((item.get("faithful_clusters") if profile == FAITHFUL else None) or item["clusters"]),
        gates=gates, needs=tuple(item.get("needs", ())), destructive=bool(item.get("destructive")), soak=bool(item.get("soak")),
        node=item.get("node", ""), crowded=bool(item.get("crowded")), steps=tuple(steps),
        skips=tuple((one["rule"], one["when"]) for one in item.get("skip", {}).get(profile, [])),
        assertions=(
            *(_assertion(one, gates) for one in item["assert"][profile]),
            *(dataclasses.replace(_assertion(one, gates), always=True) for one in always),
        ),
        metrics={name: (one["of"], one["unit"]) for name, one in metrics.items()},
        limits={name: (one["better"], one["within"]) for name, one in metrics.items() if "within" in one},
    )  # fmt: skip
    _check(found, named)
    return found


def _of(steps: t.Any, profile: str) -> list[Object]:
    return t.cast("list[Object]", steps[profile] if isinstance(steps, dict) else steps)


def _assertion(given: t.Any, gates: tuple[str, ...]) -> Assertion:
    if isinstance(given, str):
        return Assertion(given, "", gates)
    return Assertion(given["that"], given.get("cause", ""), tuple(given.get("gates", gates)), tuple(given.get("needs", ())))


def _check(case: Case, where: str) -> None:
    """Check what the schema cannot express: expressions are valid, and every name in them is made by the case's own steps."""
    made = actions.names(case.steps)
    made.samples |= {vocabulary.BASELINE, vocabulary.END}
    made.groups.add("all")
    texts = [one.that for one in case.assertions] + [when for _rule, when in case.skips] + [of for of, _unit in case.metrics.values()]
    for text in texts:
        try:
            called = expressions.calls(expressions.parse(text))
        except expressions.ExpressionError as error:
            raise RunError(f"{where}: {error}") from error
        for call in called:
            wrong = vocabulary.problem(call) or _unmade(call, made)
            if wrong:
                raise RunError(f"{where}: {text}: {wrong}")
    if actions.does(case.steps, actions.DISTURBING) and not case.destructive:
        raise RunError(f"{where}: it disturbs the cluster; expected destructive: true")
    if actions.does(case.steps, actions.OF_NODE) and not case.node:
        raise RunError(f"{where}: it drains a node and does not say which; expected node: drain_node or stress_node")
    for rule, _when in case.skips:
        if rule not in reasons.SKIP_RULES:
            raise RunError(f"{where}: skip: found rule {rule!r}, expected one of {', '.join(sorted(reasons.SKIP_RULES))}")
    if all(one.always for one in case.assertions):
        raise RunError(f"{where}: nothing is asserted; a case that cannot fail proves nothing")


_MADE = {vocabulary.GROUP: "groups", vocabulary.SAMPLE: "samples", vocabulary.CHANGE: "changes", vocabulary.ACTION: "done"}


def _unmade(call: expressions.Call, made: actions.Names) -> str | None:
    for kind, arg in zip(vocabulary.WORDS[call.word].kinds, call.args, strict=False):
        if kind in _MADE and arg != "":
            known: set[str] = getattr(made, _MADE[kind])
            if not any(re.fullmatch(re.sub(r"\{\w+\}", r"\\w+", one), str(arg)) for one in known):
                return f"no step makes the {kind} {arg}; known are {', '.join(sorted(known)) or 'none'}"
        if kind == vocabulary.NUMBER and not isinstance(arg, float) and not re.fullmatch(r"[a-z]\w*", str(arg)):
            return f"found {arg!r}, expected a number"
    return None


def unknown_words(case: Case, system: System, parameters: t.Mapping[str, t.Any]) -> str | None:
    """Return the names of a case that neither the system's description nor the parameters define, in words."""
    texts = [one.that for one in case.assertions if not lacking(one.needs, system)]
    for text in [*texts, *(when for _rule, when in case.skips), *(of for of, _unit in case.metrics.values())]:
        tree = expressions.parse(text)
        for name in expressions.names(tree):
            if name not in parameters:
                return f"{case.id}: {text}: {name} is not defined; see gpu_sharing_parameters"
        for call in expressions.calls(tree):
            for kind, arg in zip(vocabulary.WORDS[call.word].kinds, call.args, strict=False):
                if kind == vocabulary.PATTERN and arg not in system.patterns:
                    return f"{case.id}: {text}: system {system.name} has no pattern {arg}"
    for _better, name in case.limits.values():
        if name not in parameters:
            return f"{case.id}: its metrics name {name}, which is not defined; see gpu_sharing_parameters"
    for name in actions.parameters(case.steps):
        if name not in parameters:
            return f"{case.id}: its steps name {name}, which is not defined; see gpu_sharing_parameters"
    return None


def fitted(case: Case, system: System) -> Case:
    """A case as a system can run it."""
    return dataclasses.replace(case, steps=actions.within(case.steps, system.has))


def lacking(needs: t.Iterable[str], system: System) -> list[str]:
    """Return the abilities that the system lacks."""
    return sorted(set(needs) - system.has)


def chosen(cases: t.Sequence[Case], wanted: t.Sequence[str], suites: t.Sequence[str], smoke: t.Sequence[str] | None) -> list[Case]:
    """The cases that somebody asks for, in their order. RunError for one that is not there."""
    known = {case.id: case for case in cases}
    unknown = sorted({name.upper() for name in wanted} - set(known))
    if unknown:
        raise RunError(f"gpu_sharing_cases: found {unknown[0]!r}, expected some of {', '.join(known)}")
    named = sorted({case.suite for case in cases})
    strange = sorted(set(suites) - set(named))
    if strange:
        raise RunError(f"gpu_sharing_suite: found {strange[0]!r}, expected some of {', '.join(named)}")
    ids = {name.upper() for name in wanted}
    found = [case for case in cases if (not ids or case.id in ids) and (not suites or case.suite in suites)]
    if smoke is not None:
        found = [case for case in found if case.id in smoke]
    if not found:
        raise RunError("gpu_sharing_cases, gpu_sharing_suite and gpu_sharing_smoke: found no case that all of them ask for")
    return found
