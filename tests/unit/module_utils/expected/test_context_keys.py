# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every key of a context that selects anything is in one table, as an identity; no state selects."""

from __future__ import annotations

import ast
import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import context_keys, slots
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands, configured, expectations, peer_comparison
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import nic_loopback
from harness import records
from hypothesis import given, settings
from hypothesis import strategies as st

PLUGINS = pathlib.Path(__file__).resolve().parents[4] / "plugins"
# Code that selects expectations and ceilings, or makes groups of peers.
SELECTING = [
    *sorted((PLUGINS / "plugin_utils/judging").glob("*.py")), *sorted((PLUGINS / "plugin_utils/stages").glob("*.py")),
    *(PLUGINS / "module_utils" / name for name in ("expected/matching.py", "expected/slots.py", "groups/group.py")),
]  # fmt: skip
# Keys of a context that this code reads and that say what a check has found, or which parts it is about: none of them selects.
RESULTS = {
    "absent", "addresses", "at_once", "boots", "case", "condition", "criteria", "curves", "devices", "echo", "fabrics", "facts", "few",
    "findings", "fingerprint", "gaps", "gbps_stated", "gpu_bus", "gpu_places", "gpu_uuids", "identities", "index", "is_mount_point",
    "link", "loaded_h", "locks", "looked_for", "missing", "mount", "not_looked_for", "of_peers", "owners", "part_of", "parts",
    "path", "patterns", "ports", "preflight", "rails", "replaced", "scale", "sees", "series_units", "set_aside", "shared", "silent_parts",
    "size_gib", "sizes", "stated", "suspects", "told", "unseen", "visible", "wanted",
}  # fmt: skip


def read_of_contexts(path: pathlib.Path) -> t.Iterator[str]:
    """Yield the keys that a module reads of something that is called a context."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        base: t.Any = None
        key: t.Any = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
            base, key = node.func.value, node.args[0]
        elif isinstance(node, ast.Subscript):
            base, key = node.value, node.slice
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            base, key = node.comparators[0], node.left
        named = (isinstance(base, ast.Name) and "context" in base.id) or (isinstance(base, ast.Attribute) and base.attr == "context")
        if named and isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value


def test_every_key_that_judging_reads_is_in_the_table() -> None:
    found = {key: path.name for path in SELECTING for key in read_of_contexts(path)}
    assert len(found) > 40
    unknown = {key: file for key, file in found.items() if key not in context_keys.KEYS and key not in RESULTS}
    assert not unknown, "add each to context_keys.KEYS as identity or state, or to the results above"


def test_all_that_selects_is_an_identity() -> None:
    for names in (
        expectations.CONTEXT_KEYS, bands._HARDWARE, bands._OF_NIC, slots.KEYS, configured.SETTINGS, nic_loopback._OF_PORT,
        peer_comparison._OF_NIC,
    ):  # fmt: skip
        assert context_keys.selecting(*names)
    for state in context_keys.STATES:
        with pytest.raises(ValueError, match=state):
            context_keys.selecting("gpu", state)
    with pytest.raises(ValueError, match="never_heard"):
        context_keys.selecting("never_heard")


def test_shipped_expectations_match_identities_only() -> None:
    for entry in expectations.shipped().entries:
        assert context_keys.selecting(*(key for key in entry.match if key != "size")), entry.id


@pytest.mark.parametrize("state", sorted(context_keys.STATES))
@pytest.mark.parametrize("stage", ["nccl_node", "stage_of_a_team"])
def test_a_state_in_a_match_is_refused_by_name(state: str, stage: str) -> None:
    entry = {
        "id": "mine", "match": {"stage": stage, "check": "all_reduce", state: 1}, "metric": "busbw", "value": 1, "unit": "GB/s",
        "source": "own", "date": "2026-11", "confidence": "measured",
    }  # fmt: skip
    with pytest.raises(expectations.ExpectationError, match=rf"match\.{state}"):
        expectations.parse(entry, "here")


def test_the_table_says_where_each_comes_from_and_how_a_wrong_value_is_found() -> None:
    for name, key in context_keys.KEYS.items():
        assert key.nature in (context_keys.IDENTITY, context_keys.STATE), name
        assert key.source and key.why and key.kind in (context_keys.NUMBER, context_keys.WHOLE, context_keys.TEXT, context_keys.FLAG), name
        assert not set(key.judged) - set(reasons.ALL), name
        assert not (key.nature == context_keys.STATE and key.matched), name


values = st.one_of(st.none(), st.booleans(), st.integers(0, 1000), st.sampled_from(["a", "DOWN", "1X"]), st.just([1, 2]))
states = st.dictionaries(st.sampled_from(sorted(context_keys.STATES)), values)
CONTEXTS: list[dict[str, t.Any]] = [
    {"stage": "nic_loopback", "check": "write_bw", "nic": "MT4129", "nic_model": "MT4129 x", "nic_gbps": 400.0, "link_layer": "Ethernet"},
    {"stage": "nccl_node", "check": "all_reduce", "gpu": "NVIDIA H200", "gpus": 8, "nvls": True, "algorithm": "auto", "nodes": 1},
    {
        "stage": "nccl_fabric", "check": "all_reduce", "gpu": "NVIDIA H100 80GB HBM3", "gpus": 8, "nodes": 2, "nics": 8, "nic_gbps": 400,
        "link_layer": "InfiniBand", "nvls": False, "algorithm": "auto", "mnnvl": False,
    },
    {"stage": "gpu_memory", "check": "h2d", "gpu": "NVIDIA H100 80GB HBM3", "pcie_gen": 5, "pcie_width": 16},
]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(CONTEXTS), states, st.sampled_from(["nic", "node", "gpu", "group"]))
def test_no_state_changes_expectation_ceiling_or_peers(context: dict[str, t.Any], changed: dict[str, t.Any], kind: str) -> None:
    subject = {"kind": kind, "id": f"n1/{kind}/x" if kind in ("nic", "gpu") else "n1", "members": []}

    def selected(of: dict[str, t.Any]) -> tuple[t.Any, ...]:
        stage, check = of["stage"], of["check"]
        known = {key: value for key, value in of.items() if key not in ("stage", "check")}
        metrics = {"busbw": {"value": 1e6, "unit": "GB/s"}, "bandwidth": {"value": 1e6, "unit": "Gb/s"}}
        record = records.measurement({"stage": stage, "check": check, "context": known, "subject": subject, "metrics": metrics})
        impossible = bands.impossible(record)
        chosen = [(one.expectation.id, one.size) for one in expectations.shipped().choose(stage, check, known)]
        return peer_comparison.hardware(record), chosen, impossible and impossible.reason

    assert selected({**context, **changed}) == selected(context)
