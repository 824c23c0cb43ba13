# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cases of the matrix: YAML in, checked cases out. A case that cannot be judged is refused before anything runs.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing as t

import yaml
from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import actions, expressions, shapes, vocabulary
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import BASELINE, END
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.system import System
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words import register

FILES = collection.ROOT / "roles" / "gpu_sharing" / "files"
# The order in which a whole matrix runs, and the suite beyond it, which runs only if it or its cases are named.
SUITES = ("functional", "combination", "performance", "metrics", "stability")
ROBUSTNESS = "robustness"
STRICT, FAITHFUL = "strict", "faithful"
PROFILES = (STRICT, FAITHFUL)
GATES = ("P0", "P1", "P2")
CLUSTERS = ("c1", "c2")

Object = t.Dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Assertion:
    """An expression that must hold. `cause` explains a failure. `always`: asserted in every case of the suite, also if it is skipped."""

    expression: str
    cause: str
    gates: tuple[str, ...]
    needs: tuple[str, ...] = ()
    always: bool = False


@dataclasses.dataclass(frozen=True)
class Case:
    """One case in one profile. `skips` are (rule, expression): if an expression holds, the case is skipped under its rule. `metrics` are
    {name: (expression, unit)}; `limits` are {name: ("lower" or "higher" is better, the parameter with the allowed deviation)} for metrics
    that are compared with the baseline. `node` is the variable that must name the case's node. `crowded`: all pods must share the GPUs
    at the same time."""

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
    def needs_running_pods(self) -> bool:
        """Return True if pods of the case must still run when later steps come."""
        return self.crowded or actions.needs_running_pods(self.steps)

    @property
    def check(self) -> str:
        """The case's check name in plan, journal and verdicts."""
        return self.id.lower().replace("-", "_")


def shipped(profile: str) -> list[Case]:
    """Return the cases of the matrix."""
    return [case for suite in SUITES for case in load(str(FILES / "cases" / f"{suite}.yml"), profile)]


def beyond(profile: str) -> list[Case]:
    """Return the cases of the collection that do not belong to the matrix."""
    return load(str(FILES / "cases" / f"{ROBUSTNESS}.yml"), profile)


def load(path: str, profile: str) -> list[Case]:
    """Return the cases of one file. Raise RunError that names the file, the case and the fault."""
    file = pathlib.Path(path).expanduser()
    try:
        document = yaml_load(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        message = " ".join(str(error).split())
        raise RunError(f"gpu_sharing_suites: {file}: {message}; expected a file of cases") from error
    shapes.check("gpu-sharing-cases-v1", document, str(file))
    return [_case(item, document, profile, str(file)) for item in document["cases"]]


def _case(item: Object, suite: Object, profile: str, where: str) -> Case:
    label = f"{where}: {item['id']}"
    gates = tuple(item["gates"])
    always = suite.get("always", {}).get(profile, []) if item.get("always", True) else []
    steps = _steps_of(item["steps"], profile)
    metrics = item.get("metrics", {}) if profile == STRICT else {}
    case = Case(
        id=item["id"], suite=suite["suite"], letter=suite["letter"], title=item["title"], profile=profile,
        clusters=tuple((item.get("faithful_clusters") if profile == FAITHFUL else None) or item["clusters"]),
        gates=gates, needs=tuple(item.get("needs", ())), destructive=bool(item.get("destructive")), soak=bool(item.get("soak")),
        node=item.get("node", ""), crowded=bool(item.get("crowded")), steps=tuple(steps),
        skips=tuple((skip["rule"], skip["when"]) for skip in item.get("skip", {}).get(profile, [])),
        assertions=(
            *(_assertion(assertion, gates) for assertion in item["assert"][profile]),
            *(dataclasses.replace(_assertion(assertion, gates), always=True) for assertion in always),
        ),
        metrics={name: (metric["of"], metric["unit"]) for name, metric in metrics.items()},
        limits={name: (metric["better"], metric["within"]) for name, metric in metrics.items() if "within" in metric},
    )  # fmt: skip
    _check(case, label)
    return case


def _steps_of(steps: t.Any, profile: str) -> list[Object]:
    return t.cast("list[Object]", steps[profile] if isinstance(steps, dict) else steps)


def _assertion(item: t.Any, gates: tuple[str, ...]) -> Assertion:
    if isinstance(item, str):
        return Assertion(item, "", gates)
    return Assertion(item["that"], item.get("cause", ""), tuple(item.get("gates", gates)), tuple(item.get("needs", ())))


def _check(case: Case, where: str) -> None:
    """Raise RunError for a fault that the schema cannot express, such as an expression that names what no step of the case makes."""
    names = actions.names(case.steps)
    names.samples |= {BASELINE, END}
    names.groups.add("all")
    texts = (
        [assertion.expression for assertion in case.assertions]
        + [when for _rule, when in case.skips]
        + [of for of, _unit in case.metrics.values()]
    )
    for text in texts:
        try:
            called = expressions.calls(expressions.parse(text))
        except expressions.ExpressionError as error:
            raise RunError(f"{where}: {error}") from error
        for call in called:
            wrong = vocabulary.problem(call) or _unmade(call, names)
            if wrong:
                raise RunError(f"{where}: {text}: {wrong}")
    if actions.does(case.steps, actions.DISTURBING) and not case.destructive:
        raise RunError(f"{where}: it disturbs the cluster; expected destructive: true")
    if actions.does(case.steps, actions.OF_NODE) and not case.node:
        raise RunError(f"{where}: it drains a node and does not say which; expected node: drain_node or stress_node")
    for rule, _when in case.skips:
        if rule not in reasons.SKIP_RULES:
            raise RunError(f"{where}: skip: found rule {rule!r}, expected one of {', '.join(sorted(reasons.SKIP_RULES))}")
    if all(assertion.always for assertion in case.assertions):
        raise RunError(f"{where}: nothing is asserted; a case that cannot fail proves nothing")


_MADE = {register.GROUP: "groups", register.SAMPLE: "samples", register.CHANGE: "changes", register.ACTION: "actions"}


def _unmade(call: expressions.Call, names: actions.Names) -> str | None:
    for kind, arg in zip(register.WORDS[call.word].kinds, call.args, strict=False):
        if kind in _MADE and arg != "":
            made_names: set[str] = getattr(names, _MADE[kind])
            if not any(re.fullmatch(re.sub(r"\{\w+\}", r"\\w+", pattern), str(arg)) for pattern in made_names):
                return f"no step makes the {kind} {arg}; known are {', '.join(sorted(made_names)) or 'none'}"
        if kind == register.NUMBER and not isinstance(arg, float) and not re.fullmatch(r"[a-z]\w*", str(arg)):
            return f"found {arg!r}, expected a number"
    return None


def unknown_words(case: Case, system: System, parameters: t.Mapping[str, t.Any]) -> str | None:
    """Return a sentence about the first name of a case that neither the system's description nor the parameters define, None if all are."""
    texts = [assertion.expression for assertion in case.assertions if not lacking(assertion.needs, system)]
    for text in [*texts, *(when for _rule, when in case.skips), *(of for of, _unit in case.metrics.values())]:
        tree = expressions.parse(text)
        for name in expressions.names(tree):
            if name not in parameters:
                return f"{case.id}: {text}: {name} is not defined; see gpu_sharing_parameters"
        for call in expressions.calls(tree):
            for kind, arg in zip(register.WORDS[call.word].kinds, call.args, strict=False):
                if kind == register.PATTERN and arg not in system.patterns:
                    return f"{case.id}: {text}: system {system.name} has no pattern {arg}"
    for _better, name in case.limits.values():
        if name not in parameters:
            return f"{case.id}: its metrics name {name}, which is not defined; see gpu_sharing_parameters"
    for name in actions.parameters(case.steps):
        if name not in parameters:
            return f"{case.id}: its steps name {name}, which is not defined; see gpu_sharing_parameters"
    return None


def fitted(case: Case, system: System) -> Case:
    """Return a case with the steps that the system supports."""
    return dataclasses.replace(case, steps=actions.supported_steps(case.steps, system.has))


def lacking(needs: t.Iterable[str], system: System) -> list[str]:
    """Return the abilities that the system lacks."""
    return sorted(set(needs) - system.has)


def chosen(cases: t.Sequence[Case], requested: t.Sequence[str], suites: t.Sequence[str], smoke: t.Sequence[str] | None) -> list[Case]:
    """Return the requested cases in the order of `cases`; without a request, all but those beyond the matrix. Raise RunError if a requested
    case or suite does not exist."""
    by_id = {case.id: case for case in cases}
    unknown = sorted({name.upper() for name in requested} - set(by_id))
    if unknown:
        raise RunError(f"gpu_sharing_cases: found {unknown[0]!r}, expected some of {', '.join(by_id)}")
    known_suites = sorted({case.suite for case in cases})
    strange = sorted(set(suites) - set(known_suites))
    if strange:
        raise RunError(f"gpu_sharing_suite: found {strange[0]!r}, expected some of {', '.join(known_suites)}")
    ids = {name.upper() for name in requested}
    selection = [case for case in cases if (not ids or case.id in ids) and (not suites or case.suite in suites)]
    if not ids and not suites:
        selection = [case for case in selection if case.suite != ROBUSTNESS]
    if smoke is not None:
        selection = [case for case in selection if case.id in smoke]
    if not selection:
        raise RunError("gpu_sharing_cases, gpu_sharing_suite and gpu_sharing_smoke: found no case that all of them ask for")
    return selection
