# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory hosts that fail in a run that is not accepted."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import refused
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Verdict
from harness import records
from harness import report_samples as samples
from harness.records import make_plan

Record = dict[str, t.Any]
PLAN = make_plan({
    "targets": {"a": {}, "b": {}, "c": {}, "lab": {}},
    "items": [
        *({"subject": {"kind": "node", "id": name, "members": []}, "target": name} for name in ("a", "b", "c")),
        *({"subject": {"kind": "node", "id": f"lab/{name}", "members": []}, "target": "lab"} for name in ("n1", "n2")),
    ],
})


def verdict(subject: str, word: str, kind: str = "node", members: t.Sequence[str] = ()) -> Verdict:
    about = {"kind": kind, "id": subject, "members": list(members)}
    return records.verdict(samples.verdict("a", "s", "c", word, subject=about))


def of(*planned: Verdict, extras: t.Sequence[Verdict] = (), passed: bool = False, causes: t.Sequence[Record] = ()) -> t.Any:
    return types.SimpleNamespace(verdicts=[*planned, *extras], planned=list(planned), passed=passed, causes=list(causes))


@pytest.mark.parametrize(
    ("verdicts", "failed"),
    [
        ([verdict("b", "FAIL"), verdict("a", "PASS")], ["b"]),
        ([verdict("c/gpu/GPU-1", "FAIL", "gpu"), verdict("a", "UNKNOWN")], ["a", "c"]),
        ([verdict("lab/n2", "UNKNOWN"), verdict("lab/n1", "PASS")], ["lab"]),
        ([verdict("a|c", "FAIL", "pair", ["a", "c"])], ["a", "c"]),
        ([verdict("fabric", "UNKNOWN", "group", ["a", "lab/n1"])], ["a", "lab"]),
        ([verdict("a", "WARN"), verdict("b", "FAIL")], ["b"]),
        ([verdict("a", "KNOWN_FAIL")], ["a", "b", "c", "lab"]),  # nobody is to blame: nobody is accepted
        ([], ["a", "b", "c", "lab"]),
    ],
)
def test_hosts_whose_nodes_or_parts_are_not_accepted_have_failed(verdicts: list[Verdict], failed: list[str]) -> None:
    assert refused.targets(PLAN, of(*verdicts)) == failed
    assert refused.targets(PLAN, of(*verdicts, passed=True)) == []


def test_what_was_found_beside_the_plan_counts_where_it_fails() -> None:
    assert refused.targets(PLAN, of(extras=[verdict("a", "FAIL"), verdict("b", "UNKNOWN")])) == ["a"]


def test_where_warnings_refuse_they_are_blamed() -> None:
    judged = of(verdict("a", "WARN"), verdict("b", "FAIL"))
    assert refused.targets(PLAN, judged, "refuse") == ["a", "b"]


def test_a_run_that_is_refused_as_a_whole_accepts_nobody() -> None:
    assert refused.targets(PLAN, of(verdict("b", "FAIL")), whole_run=True) == ["a", "b", "c", "lab"]


@pytest.mark.parametrize(("kind", "culprit", "failed"), [("nic", "c/nic/mlx5_0/1", ["c"]), ("switch", "leaf-1", ["a", "c"])])
def test_of_a_pair_that_is_low_because_of_a_port_only_the_ports_node_fails(kind: str, culprit: str, failed: list[str]) -> None:
    pair = verdict("a|c", "FAIL", "pair", ["a", "c"])
    cause = {"kind": kind, "subject": culprit, "explains": [pair.key]}
    assert refused.targets(PLAN, of(pair, causes=[cause])) == failed
