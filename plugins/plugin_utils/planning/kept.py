# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a run, as its plan keeps them for whoever resumes it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry as planes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.interface import Interface
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import withheld
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import HostSettings, Plan, Variables

# The options of sinks, the addresses of a gateway, a database and a webhook, and what planes name (Plane.hidden) may hold a secret, and a
# run's folder is for everybody: whoever resumes gives them again.
HIDDEN = ("acceptance_sinks", "acceptance_pushgateway", "acceptance_history_url", "acceptance_webhook")
# Whoever resumes says whether he waits (a run that was left to its clusters is collected and judged), whether the controller before is
# certainly gone, and which machines were restarted meanwhile.
TODAYS: Variables = {"acceptance_detach": False, "acceptance_take_over": False, "acceptance_rebooted": []}
# Shown of a value that differs.
SHOWN = 80


def secret(stages: t.Iterable[Interface]) -> frozenset[str]:
    """The variables whose values no file of a run may hold."""
    return frozenset({*HIDDEN, *planes.hidden(), *(name for stage in stages for name, spec in stage.options.items() if spec.get("no_log"))})


def is_withheld(name: str, place: str) -> bool:
    """Return True if a file of a run lacks the place in a variable: a value of an environment of a variable that is partly hidden."""
    return name in planes.partly_hidden() and bool(re.search(rf"\.{withheld.ENVIRONMENT}(?=[.\[])", place))


def public(values: Variables, hidden: t.Collection[str]) -> Variables:
    """Settings without what no file may hold."""
    partly = planes.partly_hidden()
    return {name: withheld.public(value) if name in partly else value for name, value in values.items() if name not in hidden}


def secrets(values: Variables, hidden: t.Collection[str]) -> list[str]:
    """The settings of which a file lacks something: whoever measures has them from the inventory."""
    public_values = public(values, hidden)
    return sorted(name for name, value in values.items() if name not in public_values or public_values[name] != value)


def keep(settings: t.Mapping[str, Variables], hidden: t.Collection[str]) -> HostSettings:
    """Return the settings of all hosts without the variables in `hidden`."""
    sets: list[Variables] = []
    numbers: dict[str, int] = {}
    of: dict[str, int] = {}
    for host, values in settings.items():
        text = json.dumps(public(values, hidden), sort_keys=True, default=str)
        if text not in numbers:
            numbers[text] = len(sets)
            sets.append(json.loads(text))
        of[host] = numbers[text]
    return HostSettings(sets, of)


def settings(written: Plan, planner: t.Any, stages: list[Interface]) -> tuple[dict[str, Variables], list[str]]:
    """The settings of a run that is resumed, by host, and what differs today. How a host is reached is today's, as ansible_host is."""
    saved = written.settings
    notes: list[str] = []
    try:
        today: dict[str, Variables] = planner.settings(stages)
    except RunError as error:
        if saved is None:
            raise
        today = {}
        notes.append(f"today's inventory is not what this run began with, and is passed over: {error}")
    if saved is None:  # a run of an earlier version
        return today, []
    by_host: dict[str, Variables] = {}
    differs: dict[str, list[str]] = {}
    for host, number in saved.of.items():
        saved_values, now = saved.sets[number], today.get(host, {})
        connection = {*planes.of(saved_values, host).connection_variables, *TODAYS}
        todays = {name: now[name] for name in now if name not in saved_values or name in TODAYS or (name in connection and now[name])}
        by_host[host] = {**saved_values, **TODAYS, **todays}
        by_host[host].update(
            {name: withheld.whole(saved_values[name], now.get(name)) for name in planes.partly_hidden() if name in saved_values}
        )
        now = public(now, ())
        for name in sorted({*saved_values, *now}) if now else ():
            saved_text, text_now = _plain(saved_values.get(name)), _plain(now.get(name))
            if name in saved_values and saved_text != text_now and name not in connection:
                words = f"{name} is {_cut(text_now)} in today's inventory, this run goes on with {_cut(saved_text)}"
                differs.setdefault(words, []).append(host)
    for text, hosts in differs.items():
        notes.append(f"{', '.join(hosts[:5])}{' ...' if len(hosts) > 5 else ''}: {text}")
    return by_host, notes


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."


def _plain(value: t.Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
