# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The registry of sinks: those of the collection by name, a team's own by the module that holds it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import importlib
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Sink

VARIABLE = "acceptance_sinks"
_COLLECTIONS = "ansible_collections."
_OURS = "ansible_collections.gpufleet.acceptance.plugins.plugin_utils"
# Sinks of the collection that somebody must ask for, by name: the module that holds each. The forms of the report are told of every run.
SHIPPED: dict[str, str] = {
    "history": f"{_OURS}.history.sink",
    **{name: f"{_OURS}.observing.{name}" for name in ("log", "pushgateway", "traces")},
}
HISTORY_URL, PUSHGATEWAY = "acceptance_history_url", "acceptance_pushgateway"
# Those that have a variable of their own: the sink's options of that and the other variables, None where it asks for nothing.
OWN: dict[str, tuple[str, t.Callable[[t.Mapping[str, t.Any]], dict[str, t.Any] | None]]] = {
    "acceptance_history": ("history", lambda of: {"url": of.get(HISTORY_URL) or ""} if _on(of.get("acceptance_history")) else None),
    "acceptance_log": ("log", lambda of: {} if of.get("acceptance_log") == "json" else None),
    PUSHGATEWAY: ("pushgateway", lambda of: {"url": of[PUSHGATEWAY]} if of.get(PUSHGATEWAY) else None),
    "acceptance_traces": ("traces", lambda of: {} if _on(of.get("acceptance_traces")) else None),
}
VARIABLES = (VARIABLE, *OWN, HISTORY_URL)


class SinkRequest(t.NamedTuple):
    """A sink that somebody asks for: its name, its options, and where that is said."""

    name: str
    options: dict[str, t.Any]
    where: str


class ChosenSink(t.NamedTuple):
    """A sink with its options."""

    sink: Sink
    options: dict[str, t.Any]


def asked(values: t.Mapping[str, t.Any]) -> list[SinkRequest]:
    """Return the sinks that the variables of a run name: names, or {sink, options}, and the variables of shipped sinks. RunError if they
    are in no form that we know."""
    wanted = values.get(VARIABLE) or []
    if not isinstance(wanted, list):
        raise RunError(f"{VARIABLE}: found {wanted!r}, expected a list of sinks")
    found = []
    for number, item in enumerate(wanted):
        where = f"{VARIABLE}[{number}]"
        whole = {"sink": item} if isinstance(item, str) else item
        if not isinstance(whole, dict) or not isinstance(whole.get("sink"), str) or not set(whole) <= {"sink", "options"}:
            raise RunError(f"{where}: found {type(item).__name__}, expected the name of a sink, or {{sink, options}}")
        if not isinstance(whole.get("options") or {}, dict):
            raise RunError(f"{where}: options: found {type(whole['options']).__name__}, expected a dictionary")
        found.append(SinkRequest(str(whole["sink"]), dict(whole.get("options") or {}), where))
    for variable, (name, options_of) in OWN.items():
        options = options_of(values)
        if options is not None:
            found.append(SinkRequest(name, options, variable))
    return found


def _on(value: t.Any) -> bool:
    return bool(boolean(value or False, strict=False))


def chosen(wanted: t.Sequence[SinkRequest], only: t.Container[str] | None = None) -> list[ChosenSink]:
    """The sinks that are asked for. RunError for one that cannot be used. `only`: nothing else is loaded."""
    found = [_one(*one) for one in wanted if only is None or one.name in only]
    for number, one in enumerate(found):
        if one.sink.name in [other.sink.name for other in found[:number]]:
            raise RunError(f"{VARIABLE}: found two sinks named {one.sink.name!r}, expected each once")
    return found


def telling(wanted: t.Sequence[SinkRequest], event: str) -> list[str]:
    """Which of them want to be told of `event`, as they are named."""
    return [one.name for one in wanted if _one(*one).sink.wants(event)]


def _one(name: str, options: dict[str, t.Any], where: str) -> ChosenSink:
    if name in SHIPPED:
        module = SHIPPED[name]
    elif "." in name:
        module = name if name.startswith(_COLLECTIONS) else _COLLECTIONS + name
    else:
        raise RunError(f"{where}: found {name!r}, expected one of {', '.join(SHIPPED)}, or the module of a collection that holds a SINK")
    try:
        sink = getattr(importlib.import_module(module), "SINK", None)
    except Exception as error:
        raise RunError(f"{where}: {name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(sink, Sink) or not sink.name.isidentifier():
        raise RunError(f"{where}: {name} holds no SINK that is a {Sink.__module__}.Sink with a name")
    validated = ArgumentSpecValidator(dict(sink.options)).validate(options)
    given = dict(validated.validated_parameters)
    problem = "; ".join(validated.error_messages) or sink.problem(given)
    if problem:
        raise RunError(f"{where}: sink {sink.name}: {problem}")
    return ChosenSink(sink, given)
