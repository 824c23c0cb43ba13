# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forms of what the controller sends to a node and of what comes back, on any plane.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Facts, PlainData, Variables


class NodeWork(t.TypedDict):
    """The work of a node: the name of a probe (a file in module_utils/probes/) with its validated options, and the `source` of a probe that
    is a team's own. `keep`: under which name and how long the node keeps its answer, if nobody waits for it (program/keeping.py)."""

    probe: str
    params: Variables
    source: t.NotRequired[str]
    keep: t.NotRequired[PlainData]


class NodeAnswer(t.TypedDict, total=False):
    """The answer of a node (module_utils/program/runner.py), or what the controller has in its place.

    `state` is done, running, refused or check_mode; `end` says how the probe's session ended, `fault` which error the probe raised, and
    `undone` which leases were undone. A refused node has `reason_code` and `reason`. `observations` are as the node sent them: nothing in
    them is trusted before records/measurement.py has completed them. `finished` has the keys of checkpoints. `heartbeat`
    is the heartbeat file of a probe that is `running`. `clock` is when the node began and ended, by its own clock.

    The controller adds `lost`, (reason code, reason), for a node that it did not reach, and `ran`, the facts of the pod that ran the probe.
    Ansible adds the rest.
    """

    state: str
    end: str | None
    fault: str | None
    undone: list[str]
    reason_code: str
    reason: str
    observations: list[PlainData]
    finished: list[t.Any]
    clock: list[float]
    heartbeat: str
    lost: tuple[str, str]
    ran: PlainData
    changed: bool
    failed: bool
    rc: int
    msg: str
    exception: t.Any
    module_stderr: str
    module_stdout: str
    ansible_facts: Facts


def refused(reason_code: str, reason: str) -> NodeAnswer:
    """Return the answer of a node, or in place of one, that measures nothing for a reason."""
    return {"state": "refused", "reason_code": reason_code, "reason": reason}
