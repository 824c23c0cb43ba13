# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the convictions of a judged run: the nodes that may be taken out of service for it, the worst first.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine.reason import CLASSES, CONFIGURATION, PART, UNMEASURED, USE
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, PlannedStage, Verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import judged_runs

FAIL, UNKNOWN, PASS = "FAIL", "UNKNOWN", "PASS"
# Reason codes of a number that is too low, or of a time that is too long: another measurement may give another one.
RATES = frozenset({
    *reasons.LOW, "sweep_dip", "bad_rail", "localised", "regression", "straggler", "unsteady", "throttled", "temperature", "power_unused",
    "pcie_speed", "link_slow", "min_bw", "errors_counted", "timeout",
})  # fmt: skip
# Those that somebody repairs without touching hardware, and those that are about who or what uses the node. Any other FAIL is a part's.
CONFIGURATIONS = frozenset({
    "clock_free", "clock_off", "clock_offset", "clock_skew", "clocks_locked", "drift", "driver_too_old", "ecc_off", "fabric", "firmware",
    "floating_image", "gid_changed", "mtu", "name_resolution", "no_address", "no_governor", "no_gid", "no_gpudirect", "no_permission",
    "no_python", "no_sudo", "not_mounted", "not_mpi", "power_limit", "preflight", "rail_order", "settings_differ", "state_dir",
    "tool_missing", "tool_not_executable", "torch_missing", "usage", "versions_differ",
})  # fmt: skip
USES = frozenset({
    "busy_gpu", "busy_host", "busy_run", "disk_full", "disk_space", "foreign_process", "gpu_elsewhere", "loaded_since", "out_of_memory",
    "port_in_use", "xid", "xid_own",
})  # fmt: skip
# Those of an UNKNOWN that says nothing about the node: others use it, or the cluster started no job there.
NOT_ASKED = frozenset({"node_busy", "job_refused"})


class Conviction(t.NamedTuple):
    """A node that a run convicts. `kind` is one of CLASSES, `is_rate` whether nothing but rates speaks against it, `checks` are those that
    it must pass to return, `words` the first cause in a sentence, `is_unasked` whether no probe
    ran there for reasons that are not those of the node, `grounds` the deciding findings, `STAGE CHECK CODE` each."""

    node: str
    verdict: str
    kind: str
    is_rate: bool
    words: str
    checks: tuple[Key, ...]
    simulated: bool = False
    is_unasked: bool = False
    grounds: tuple[str, ...] = ()


@dataclasses.dataclass
class Judged:
    """A judged run: its convictions, the worst first; `words` is the verdict of each check, `unconvicted` are sentences about what is FAIL
    and convicts no node, `racks` those of the nodes as far as stated, `targets` the inventory hosts, `members` the nodes of each
    subject, `simulated` the nodes with numbers of simulated tools, `stages` those of the plan."""

    run: str
    planned_at: str
    judged_at: str
    convictions: list[Conviction]
    words: dict[Key, str]
    unconvicted: list[str]
    racks: t.Mapping[str, str]
    targets: t.Mapping[str, t.Any]
    members: t.Mapping[str, t.Collection[str]] = dataclasses.field(default_factory=dict)
    simulated: t.Collection[str] = ()
    stages: t.Sequence[PlannedStage] = ()

    def of_node(self, node: str) -> list[tuple[Key, str]]:
        """Return the checks that have measured a node, its parts, or pairs and groups with it, and the verdict of each."""
        return self._by_node.get(node, [])

    @functools.cached_property
    def _by_node(self) -> dict[str, list[tuple[Key, str]]]:
        found: dict[str, list[tuple[Key, str]]] = collections.defaultdict(list)
        for key, word in self.words.items():
            for node in self.members.get(key.subject, (node_of(key.subject),)):
                found[node].append((key, word))
        return dict(found)

    def passes(self, node: str, key: Key) -> bool:
        """Return True if a check is PASS, and has measured the node: a group may have been planned without it."""
        return self.words.get(key) == PASS and node in self.members.get(key.subject, (node_of(key.subject),))


def kind_of(code: str | None, verdict: str) -> str:
    """Return the class of a check that is FAIL or UNKNOWN."""
    if code in CONFIGURATIONS:
        return CONFIGURATION
    if code in USES:
        return USE
    return PART if verdict == FAIL else UNMEASURED


def read(results_dir: str, run_id: str) -> Judged:
    """Return what the last judgement of a run convicts. Raise RunError if there is none, or if it is not as it was written."""
    plan = Run.open(results_dir, run_id).plan()
    report = judged_runs.read(results_dir, run_id, ("files",))
    verdicts = {v.key: v for v in judged_runs.verdicts(report) if v.verdict != "SKIPPED"}
    convictions, unconvicted = _convictions(report["causes"], verdicts)
    return Judged(
        run_id, str(report["planned_at"] or plan.created_at), str(report["created_at"]), convictions,
        {key: v.verdict for key, v in verdicts.items()}, unconvicted, plan.judging.rack, plan.targets,
        {v.subject.id: subjects.nodes_of(v.subject) for v in verdicts.values()},
        {row["name"] for row in report["nodes"] if row["simulated"]},
        plan.stages,
    )  # fmt: skip


def _convictions(causes: t.Sequence[PlainData], verdicts: t.Mapping[Key, Verdict]) -> tuple[list[Conviction], list[str]]:
    """Return the convicted nodes in the order of the causes, and sentences about causes that are no node."""
    of_node: dict[str, list[PlainData]] = {}
    unconvicted = []
    # Checks that are bad because of another subject convict nobody else.
    explained = collections.defaultdict(set)
    for cause in causes:
        for check in cause["explains"]:
            explained[Key(check["stage"], check["check"], check["variant"], check["subject"])].add(node_of(cause["subject"]))
        if cause["verdict"] not in (FAIL, UNKNOWN):
            continue
        kind, bearer = subjects.bearer(cause["kind"], cause["subject"])
        if kind == "node":
            of_node.setdefault(bearer, []).append(cause)
        elif cause["verdict"] == FAIL:
            unconvicted.append(f"{cause['said']}: no node is convicted")
    own: dict[str, list[Verdict]] = collections.defaultdict(list)
    for key, verdict in verdicts.items():
        for node in explained[key] if key in explained else {node_of(verdict.subject.id)}:
            own[node].append(verdict)
    convictions = [_conviction(node, listed, own[node]) for node, listed in of_node.items()]
    return sorted(convictions, key=lambda c: (c.verdict != FAIL, c.is_rate)), unconvicted


def _conviction(node: str, causes: t.Sequence[PlainData], verdicts: t.Sequence[Verdict]) -> Conviction:
    word = FAIL if any(cause["verdict"] == FAIL for cause in causes) else UNKNOWN
    deciding = [v for v in verdicts if v.verdict == word]
    kinds = {kind_of(v.reason_code, word) for v in deciding}
    worst = [cause for cause in causes if cause["verdict"] == word]
    more = f" and {len(worst) - 1} more" if len(worst) > 1 else ""
    return Conviction(
        node, word, next((kind for kind in CLASSES if kind in kinds), PART if word == FAIL else UNMEASURED),
        word == FAIL and bool(deciding) and all(v.reason_code in RATES for v in deciding), f"{worst[0]['said']}{more}",
        tuple(sorted(v.key for v in deciding)), any(cause["simulated"] for cause in causes),
        word == UNKNOWN and bool(deciding) and all(v.reason_code in NOT_ASKED for v in deciding),
        tuple(sorted({f"{v.stage} {v.check} {v.reason_code or '-'}" for v in deciding})),
    )  # fmt: skip


def confirmed(first: Conviction, second: Judged) -> bool:
    """Return True if a second run convicts the node by a check that convicts it in the first, whatever its partners were. Numbers of
    simulated tools confirm no others."""
    checks = {(key.stage, key.check) for key in first.checks}
    return any(
        other.node == first.node and other.verdict == FAIL and other.simulated <= first.simulated
        and checks & {(key.stage, key.check) for key in other.checks}
        for other in second.convictions
    )  # fmt: skip
