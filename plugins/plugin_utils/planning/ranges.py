# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ranges of the numbers in an inventory. Ansible's argument specs know types and choices, but no ranges.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import math
import typing as t

# A value above a year is a misplaced unit (milliseconds, for example). It also keeps sums of deadlines within what clocks and the
# Kubernetes API (int64 seconds, int32 in some fields) take.
YEAR_S = 366 * 86400.0
# The largest int of C, which nccl-tests, perftest and HCCL Test read their options into.
INT_MAX = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers from `least` (itself excluded if `above`) to `most`. `unit` stands behind them in a message."""

    least: float
    most: float
    unit: str = ""
    above: bool = False

    def __contains__(self, value: float) -> bool:
        """Return True if a number lies in the range. NaN lies in none."""
        return (self.least < value if self.above else self.least <= value) and value <= self.most

    def __str__(self) -> str:
        begin = f"more than {_plain(self.least)}" if self.above else f"at least {_plain(self.least)}"
        end = f" and at most {_plain(self.most)}" if self.most < INT_MAX else ""
        return f"{begin}{end}{f' {self.unit}' if self.unit else ''}"


TIMEOUT = Range(0, YEAR_S, "seconds", above=True)
SECONDS = Range(0, YEAR_S, "seconds")
PORT = Range(1, 65535)
COUNT = Range(1, INT_MAX)
NONE_OR_MORE = Range(0, INT_MAX)
ANY = Range(-(2.0**63), 2.0**63)

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
    "acceptance_detach_keep": SECONDS,
    "acceptance_waiver_days": Range(1, 3660, "days"),
    "acceptance_kube_metrics_port": Range(0, 65535),
    "rdma_partners": COUNT,
    "rdma_size": Range(1, INT_MAX, "bytes"),
    "rdma_latency_size": Range(1, INT_MAX, "bytes"),
    "rdma_iterations": COUNT,
    "rdma_latency_iterations": COUNT,
    "rdma_qps": Range(1, 16384),  # MAX_QP_NUM_TO_TEST of perftest
    "rdma_duration": SECONDS,
    "rdma_patience": SECONDS,
    "rdma_start_window": SECONDS,
    "rdma_confirm_above": SECONDS,
    "rdma_again_limit": NONE_OR_MORE,
    "rdma_ports_port": Range(1, 255),  # a port number of an RDMA device is one byte
    "rdma_ports_gid_index": Range(0, 65535),
    "rdma_ports_roce_version": Range(1, 2),
    "rdma_ports_rails": NONE_OR_MORE,
    "rdma_ports_gbps": Range(0, 100_000, "Gb/s", above=True),
    "gpu_sharing_scale": Range(0, 1, above=True),
    "gpu_sharing_deadline": TIMEOUT,
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


def _plain(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:g}"
