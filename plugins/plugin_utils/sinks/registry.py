# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where sinks are found: those of the collection by name, a team's own by the module that holds it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import importlib
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Sink

VARIABLE = "acceptance_sinks"
_COLLECTIONS = "ansible_collections."
# Sinks of the collection that somebody must ask for, by name: the module that holds each. The forms of the report are told of every run.
SHIPPED: dict[str, str] = {}


class Chosen(t.NamedTuple):
    """A sink with its options."""

    sink: Sink
    options: dict[str, t.Any]


def chosen(wanted: t.Any, only: t.Container[str] | None = None) -> list[Chosen]:
    """The sinks of `acceptance_sinks`: names, or {sink, options}. RunError for one that cannot be used. `only`: nothing else is loaded."""
    if not isinstance(wanted, list):
        raise RunError(f"{VARIABLE}: found {wanted!r}, expected a list of sinks")
    found = [_one(name, options, where) for name, options, where in _named(wanted) if only is None or name in only]
    for number, one in enumerate(found):
        if one.sink.name in [other.sink.name for other in found[:number]]:
            raise RunError(f"{VARIABLE}: found two sinks named {one.sink.name!r}, expected each once")
    return found


def telling(wanted: t.Any, event: str) -> list[str]:
    """Which of `acceptance_sinks` want to be told of `event`, as they are named there."""
    return [name for name, options, where in _named(wanted) if _one(name, options, where).sink.wants(event)]


def _named(wanted: list[t.Any]) -> t.Iterator[tuple[str, dict[str, t.Any], str]]:
    for number, item in enumerate(wanted):
        where = f"{VARIABLE}[{number}]"
        whole = {"sink": item} if isinstance(item, str) else item
        if not isinstance(whole, dict) or not isinstance(whole.get("sink"), str) or not set(whole) <= {"sink", "options"}:
            raise RunError(f"{where}: found {type(item).__name__}, expected the name of a sink, or {{sink, options}}")
        if not isinstance(whole.get("options") or {}, dict):
            raise RunError(f"{where}: options: found {type(whole['options']).__name__}, expected a dictionary")
        yield str(whole["sink"]), dict(whole.get("options") or {}), where


def _one(name: str, options: dict[str, t.Any], where: str) -> Chosen:
    if name in SHIPPED:
        module = SHIPPED[name]
    elif "." in name:
        module = name if name.startswith(_COLLECTIONS) else _COLLECTIONS + name
    else:
        known = f"one of {', '.join(SHIPPED)}, or " if SHIPPED else ""
        raise RunError(f"{where}: found {name!r}, expected {known}the module of a collection that holds a SINK")
    try:
        sink = getattr(importlib.import_module(module), "SINK", None)
    except Exception as error:
        raise RunError(f"{where}: {name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(sink, Sink) or not sink.name.isidentifier():
        raise RunError(f"{where}: {name} holds no SINK that is a {Sink.__module__}.Sink with a name")
    validated = ArgumentSpecValidator(dict(sink.options)).validate(options)
    if validated.error_messages:
        raise RunError(f"{where}: sink {sink.name}: {'; '.join(validated.error_messages)}")
    return Chosen(sink, dict(validated.validated_parameters))
