# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The registry of sinks. Shipped sinks have a name; a team's own sink is named by its module.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import importlib
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Sink

VARIABLE = "acceptance_sinks"
_COLLECTIONS = "ansible_collections."
_OURS = "ansible_collections.gpufleet.acceptance.plugins.plugin_utils"
# {name of an optional shipped sink: its module}. The report formats are always active and not listed here.
SHIPPED: dict[str, str] = {
    "history": f"{_OURS}.history.sink",
    **{name: f"{_OURS}.observing.{name}" for name in ("log", "pushgateway", "traces", "webhook")},
}
HISTORY_URL, PUSHGATEWAY = "acceptance_history_url", "acceptance_pushgateway"
WEBHOOK = "acceptance_webhook"
# {option of the sink: its variable}
WEBHOOK_OPTIONS = {name: f"{WEBHOOK}_{name}" for name in ("link", "chat", "template")}
# {variable that enables a sink: (sink, function that returns its options from all variables, None if the sink is not enabled)}.
OWN: dict[str, tuple[str, t.Callable[[t.Mapping[str, t.Any]], dict[str, t.Any] | None]]] = {
    "acceptance_history": ("history", lambda of: {"url": of.get(HISTORY_URL) or ""} if _on(of.get("acceptance_history")) else None),
    "acceptance_log": ("log", lambda of: {} if of.get("acceptance_log") == "json" else None),
    PUSHGATEWAY: ("pushgateway", lambda of: {"url": of[PUSHGATEWAY]} if of.get(PUSHGATEWAY) else None),
    "acceptance_traces": ("traces", lambda of: {} if _on(of.get("acceptance_traces")) else None),
    WEBHOOK: ("webhook", lambda of: {"url": of[WEBHOOK], **_given(of, WEBHOOK_OPTIONS)} if of.get(WEBHOOK) else None),
}
VARIABLES = (VARIABLE, *OWN, HISTORY_URL, *WEBHOOK_OPTIONS.values())


class SinkRequest(t.NamedTuple):
    """A requested sink: its name, its options, and the variable that requests it."""

    name: str
    options: dict[str, t.Any]
    where: str


class ChosenSink(t.NamedTuple):
    """A sink with its options."""

    sink: Sink
    options: dict[str, t.Any]


def requested(values: t.Mapping[str, t.Any]) -> list[SinkRequest]:
    """Return the sinks that the variables of a run request. Raise RunError if a variable has a wrong form."""
    items = values.get(VARIABLE) or []
    if not isinstance(items, list):
        raise RunError(f"{VARIABLE}: found {items!r}, expected a list of sinks")
    requests = []
    for number, item in enumerate(items):
        where = f"{VARIABLE}[{number}]"
        entry = {"sink": item} if isinstance(item, str) else item
        if not isinstance(entry, dict) or not isinstance(entry.get("sink"), str) or not set(entry) <= {"sink", "options"}:
            raise RunError(f"{where}: found {type(item).__name__}, expected the name of a sink, or {{sink, options}}")
        if not isinstance(entry.get("options") or {}, dict):
            raise RunError(f"{where}: options: found {type(entry['options']).__name__}, expected a dictionary")
        requests.append(SinkRequest(str(entry["sink"]), dict(entry.get("options") or {}), where))
    for variable, (name, options_of) in OWN.items():
        options = options_of(values)
        if options is not None:
            requests.append(SinkRequest(name, options, variable))
    return requests


def _given(values: t.Mapping[str, t.Any], names: t.Mapping[str, str]) -> dict[str, t.Any]:
    """Return the options, {option: variable}, whose variable has a value."""
    return {option: values[variable] for option, variable in names.items() if values.get(variable)}


def _on(value: t.Any) -> bool:
    return bool(boolean(value or False, strict=False))


def chosen(requests: t.Sequence[SinkRequest], only: t.Container[str] | None = None) -> list[ChosenSink]:
    """Load the requested sinks, or those of them named in `only`. Raise RunError if a sink cannot be used."""
    sinks = [_load(*request) for request in requests if only is None or request.name in only]
    for number, chosen_sink in enumerate(sinks):
        if chosen_sink.sink.name in [earlier.sink.name for earlier in sinks[:number]]:
            raise RunError(f"{VARIABLE}: found two sinks named {chosen_sink.sink.name!r}, expected each once")
    return sinks


def subscribed(requests: t.Sequence[SinkRequest], event: str) -> list[str]:
    """Return the names of the requested sinks that have a method for an event."""
    return [request.name for request in requests if _load(*request).sink.wants(event)]


def _load(name: str, options: dict[str, t.Any], where: str) -> ChosenSink:
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
    parameters = dict(validated.validated_parameters)
    problem = "; ".join(validated.error_messages) or sink.problem(parameters)
    if problem:
        raise RunError(f"{where}: sink {sink.name}: {problem}")
    return ChosenSink(sink, parameters)
