# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ranges of the numbers in an inventory. Ansible's argument specs know types and choices, but no ranges.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import math
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry as planes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import (
    ANY,
    COUNT,
    INT_MAX,
    NONE_OR_MORE,
    PORT,
    SECONDS,
    TIMEOUT,
    YEAR_S,
    Range,
)

# The range of a variable by the end of its name, the longest end that fits. Zero has a meaning of its own where it is allowed
# (no limit, all, off): the argument spec says which.
BY_END = {
    "_timeout": TIMEOUT,
    "_seconds": SECONDS,
    "_seed": ANY,
    "_port": PORT,
    "_iterations": NONE_OR_MORE,
    "_warmup": NONE_OR_MORE,
    "_factor": Range(2, INT_MAX),
    "_node_count": NONE_OR_MORE,
    "_world_size": NONE_OR_MORE,
    "_gpus": NONE_OR_MORE,
    "_repeats": COUNT,
    "_parallel": COUNT,
    "_rounds": COUNT,
    "_elements": COUNT,
    "_steps": COUNT,
    "_width": COUNT,
    "_batch": COUNT,
    "_minutes": Range(0, YEAR_S / 60, "minutes"),
    "_percent": Range(0, INT_MAX, "percent"),  # a rank may take several times as long as another
    "acceptance_lock_wait": SECONDS,
    "acceptance_gpu_count": NONE_OR_MORE,
    "acceptance_nvlink_domain_trays": Range(1, 72, "nodes"),
    "acceptance_bug_report_mib": Range(1, 256, "MiB"),
    "acceptance_detach_keep": SECONDS,
    "acceptance_waiver_days": Range(1, 3660, "days"),
    **{name: of_plane for plane in planes.shipped().values() for name, of_plane in plane.ranges.items()},
    **{f"{stage.name}_{name}": of_stage for stage in registry.shipped().values() for name, of_stage in stage.ranges.items()},
}

# The ends that hold for the variables of a stage of a user's own.
OF_ANY_STAGE = ("_timeout", "_seconds")


def of(name: str, shipped: bool = True) -> Range | None:
    """Return the range of a variable, None if its name has none. A stage that is not `shipped` has its own names, of which only the
    deadlines mean what they mean in ours."""
    end = max((end for end in (BY_END if shipped else OF_ANY_STAGE) if name.endswith(end)), key=len, default=None)
    return BY_END[end] if end else None


def problem(
    options: t.Mapping[str, t.Mapping[str, t.Any]], values: t.Mapping[str, t.Any], role: str, shipped: bool = True
) -> str | None:
    """Return what is wrong with the first number that is out of its range, None if all are within. `options` are the argument specs of
    a role, `values` its validated variables. Numbers without a range have to be finite."""
    for name, spec in options.items():
        allowed = of(name, shipped)
        kind = spec.get("elements") if spec.get("type") == "list" else spec.get("type")
        if kind not in ("int", "float") or values.get(name) is None:
            continue
        for value in values[name] if isinstance(values[name], list) else [values[name]]:
            if not math.isfinite(value) or (allowed is not None and value not in allowed):
                return f"{name}: found {value:g}, expected {allowed or 'a finite number'}; see ansible-doc -t role {role}"
    return None
