# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Preview of a request: the command that is run on the nodes, and about how long it takes.

What is settled on the nodes only stands in capitals: the peer of a test, the largest size that fits. The commands that were run stand with
each measurement.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import allowed
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import estimate
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry

# More than a person reads.
MOST_COMMANDS = 16
# Ansible itself, and what reaching a node costs it.
START_S, REACH_S = 10.0, 0.2


def settings_of(stages: t.Iterable[str], variables: t.Mapping[str, t.Any]) -> PlainData:
    """With the defaults of the roles. Templates among those are left as they are, nobody here needs one, but for a stage's Python: it is
    that of all stages."""
    defaults: PlainData = {}
    for stage in stages:
        defaults.update(allowed.role(stage)[1])
    defaults.update({name: variables.get("acceptance_python", "") for name in defaults if name.endswith("_python")})
    return {**defaults, **variables}


def shown(stages: t.Sequence[str], variables: t.Mapping[str, t.Any], nodes: t.Sequence[str]) -> t.List[str]:
    """The command of the last stage that has one."""
    shipped = registry.shipped()
    settings = settings_of([name for stage in stages for name in (*shipped[stage].before, stage)], variables)
    commands = (shipped[stage].command(settings, len(nodes)) for stage in reversed(stages))
    return next((command for command in commands if command), [])


class Shown(t.NamedTuple):
    """The commands of stages, of which `more` are left out, and the stages that have no single command, whose program calls several
    tools."""

    commands: t.List[t.List[str]]
    more: int
    without: t.List[str]


def every(stages: t.Sequence[str], variables: t.Mapping[str, t.Any], nodes: t.Sequence[str]) -> Shown:
    """Return the commands of all stages, one for each operation, number of GPUs, type and range of sizes; at most MOST_COMMANDS."""
    shipped = registry.shipped()
    settings = settings_of([name for stage in stages for name in (*shipped[stage].before, stage)], variables)
    commands: t.List[t.List[str]] = []
    without: t.List[str] = []
    for stage in stages:
        axes = [f"{stage}_{axis}" for axis in shipped[stage].command_axes if isinstance(settings.get(f"{stage}_{axis}"), list)]
        of_stage = [
            shipped[stage].command({**settings, **{axis: [value] for axis, value in zip(axes, values, strict=True)}}, len(nodes))
            for values in itertools.product(*(settings[axis] for axis in axes))
        ]
        if not any(of_stage):
            without.append(stage)
        commands += [command for command in of_stage if command]
    commands = [command for number, command in enumerate(commands) if command not in commands[:number]]
    return Shown(commands[:MOST_COMMANDS], len(commands[MOST_COMMANDS:]), without)


def seconds(stages: t.Sequence[str], variables: t.Mapping[str, t.Any], nodes: int) -> float:
    """About how long it takes where nothing hangs, on links of 400 Gb/s."""
    settings = settings_of(stages, variables)
    total = START_S
    for stage in stages:
        total += REACH_S * nodes + registry.shipped()[stage].seconds(settings, nodes, estimate.LAUNCH_S, estimate.GBPS)
    return total
