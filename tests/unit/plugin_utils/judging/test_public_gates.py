# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shipped expectations are at least as strict as the published limits of the same hardware that they name."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands, expectations, gates, physics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectation, Expectations, shipped
from hypothesis import given
from hypothesis import strategies as st

GATES = gates.load()
HELD = [gate for gate in GATES if not gate.not_held]
ENTRIES = shipped().entries
# What the headers of a packet leave of the wire's rate, by link layer, with the largest RDMA MTU.
PAYLOAD = {"Ethernet": 4096 / (4096 + 82), "InfiniBand": 4096 / (4096 + 26)}


@pytest.mark.parametrize("gate", HELD, ids=lambda gate: gate.id)
@given(share=st.floats(0.5, 0.995))
def test_what_a_limit_refuses_does_not_pass(gate: gates.Gate, share: float) -> None:
    judged_by = gates.judging(gate, shipped())
    assert judged_by
    for entry in judged_by.values():
        value = physics.convert(share * gate.share * gate.value, gate.unit, entry.unit)
        assert bands.compare(bands.Reading(value, entry.unit), entry).verdict != "PASS", entry.id
        if gate.refuses:
            value = physics.convert(share * gate.share * gate.refuses, gate.unit, entry.unit)
            assert bands.compare(bands.Reading(value, entry.unit), entry).verdict == "FAIL", entry.id


def test_the_shipped_entries_are_held_to_all_limits() -> None:
    assert not list(gates.lint(ENTRIES, GATES))
    assert len(HELD) >= 35 and all(gate.by and gate.date for gate in GATES)
    assert {"AMD Instinct MI300X", "AMD Instinct MI325X", "AMD Instinct MI350X", "AMD Instinct MI355X", "NVIDIA GB300"} <= {
        name for gate in HELD for name in (gate.match.get("gpu") if isinstance(gate.match.get("gpu"), list) else [gate.match.get("gpu")])
    }


def lint_with(changed: t.Callable[[Expectation], Expectation]) -> list[str]:
    return [finding.text for finding in gates.lint([changed(entry) for entry in ENTRIES], GATES) if finding.level == "error"]


@pytest.mark.parametrize("gate", HELD, ids=lambda gate: gate.id)
def test_an_entry_that_is_softer_is_an_error(gate: gates.Gate) -> None:
    judged_by = gates.judging(gate, shipped())

    def softer(entry: Expectation) -> Expectation:
        if entry.id not in judged_by:
            return entry
        limit = physics.convert(0.99 * gate.share * gate.value, gate.unit, entry.unit)
        return dataclasses.replace(entry, passes=limit, warns=None)

    assert any(f"{gate.id} refuses below" in text for text in lint_with(softer))


def test_an_entry_names_the_limits_of_its_hardware_and_no_others() -> None:
    h100 = "h100-8-all_reduce-nvls-plateau"
    (text,) = lint_with(lambda entry: dataclasses.replace(entry, gates=()) if entry.id == h100 else entry)
    assert text == "gates: found none, expected azure-h100-node, oci-hopper-node: the limits of its hardware"
    (text,) = lint_with(lambda entry: dataclasses.replace(entry, gates=("azure-v100-node",)) if entry.id == "h200-gemm-bf16" else entry)
    assert text.startswith("gates: found azure-v100-node, expected none")
    lost = lint_with(lambda entry: dataclasses.replace(entry, match={**entry.match, "gpus": 7}) if entry.id == h100 else entry)
    assert any("no entry judges its hardware" in one for one in lost)


def test_a_limit_that_is_not_held_says_why() -> None:
    for gate in GATES:
        assert not gate.not_held or len(gate.not_held) > 30
        assert gate.share == 1.0 or gate.why


# Limits of an entry's own -------------------------------------------------------------------------------------------

OWN = {"id": "a", "match": {"stage": "gemm", "check": "bf16"}, "metric": "tflops", "value": 100, "unit": "TFLOPS", "source": "x",
       "date": "2026-11", "confidence": "derived"}  # fmt: skip


@given(value=st.floats(1, 1e6), passes=st.floats(0.5, 1), warns=st.floats(0.1, 1), share=st.floats(0.01, 1.2))
def test_own_limits_decide(value: float, passes: float, warns: float, share: float) -> None:
    entry = expectations.parse({**OWN, "value": value, "passes": passes * value, "warns": warns * passes * value}, "x")
    found = bands.compare(bands.Reading(share * value, "TFLOPS"), entry)
    wanted = "PASS" if share * value >= passes * value else "WARN" if share * value >= warns * passes * value else "FAIL"
    assert found.verdict == wanted and found.floor == passes * value


@pytest.mark.parametrize(
    "own", [{"passes": 101}, {"passes": 0}, {"passes": "x"}, {"passes": 96, "warns": 97}, {"warns": -1}, {"gates": "x"}, {"gates": [1]}]
)
def test_limits_that_make_no_sense_are_refused(own: dict[str, t.Any]) -> None:
    with pytest.raises(expectations.ExpectationError, match=next(reversed(own))):
        expectations.parse({**OWN, **own}, "x")


def test_another_value_has_no_limits_of_the_old_one() -> None:
    changed = expectations.resolve([("run", {"mi300x-8-all_reduce-plateau": {"value": 280}})])
    (entry,) = [one for one in changed.entries if one.id == "mi300x-8-all_reduce-plateau"]
    assert (entry.passes, entry.warns, entry.gates) == (None, None, ()) and bands.limits(entry)[0] == pytest.approx(266)
    noted = expectations.resolve([("run", {"mi300x-8-all_reduce-plateau": {"note": "ours"}})])
    (entry,) = [one for one in noted.entries if one.id == "mi300x-8-all_reduce-plateau"]
    assert entry.passes == 304 and entry.gates == ("amd-mi300-node", "clouds-mi300x-node")


# Rates of wires -----------------------------------------------------------------------------------------------------


def test_a_rate_is_the_wires_less_its_headers() -> None:
    """The MTU in use is a state: no entry is for one, and the smallest chooses no softer number."""
    rates = [entry for entry in ENTRIES if entry.match["stage"] == "rdma" and entry.metric == "bandwidth"]
    assert {entry.match["nic_gbps"] for entry in rates} == {25, 50, 100, 200, 400, 800}
    for entry in rates:
        layers = entry.match.get("link_layer", "Ethernet")
        payload = PAYLOAD["InfiniBand" if layers == "InfiniBand" else "Ethernet"]
        directions = 2 if entry.match["bidirectional"] else 1
        assert entry.value == pytest.approx(entry.match["nic_gbps"] * directions * payload, abs=0.06), entry.id
        assert "mtu" not in entry.match
        # The smallest payload in use gives a WARN: a setting of the network, no broken part.
        of_1024 = entry.match["nic_gbps"] * directions * 1024 / (1024 + (26 if layers == "InfiniBand" else 82))
        if layers != "InfiniBand" and "gpu" not in entry.match:
            assert bands.compare(bands.Reading(of_1024, "Gb/s"), entry).verdict == "WARN", entry.id


def chosen(stage: str, check: str, **context: t.Any) -> dict[t.Any, Expectation]:
    return {one.size: one.expectation for one in Expectations(ENTRIES).choose(stage, check, context)}


def test_numbers_of_racks_have_their_size_and_their_domains() -> None:
    rack: dict[str, t.Any] = {"gpu": "NVIDIA GB200", "gpus": 4, "nvls": True, "mnnvl": True, "algorithm": "auto"}
    for nodes, domains, sizes in ((36, 2, {8 << 30: 792, 16 << 30: 820}), (360, 20, {8 << 30: 381.5, 16 << 30: 405.7})):
        found = chosen("nccl_fabric", "all_reduce", nodes=nodes, nvlink_domains=domains, **rack)
        assert {size: entry.value for size, entry in found.items()} == sizes
        assert not chosen("nccl_fabric", "all_reduce", nodes=nodes, nvlink_domains=domains + 1, **rack)
    assert chosen("nccl_fabric", "all_reduce", nodes=18, nvlink_domains=1, **rack)["plateau"].value == 834.6
    assert not chosen("nccl_fabric", "all_reduce", nodes=18, nvlink_domains=2, **rack)
    between = {**rack, "gpu": "NVIDIA GB300", "nics": 4, "nic_gbps": 400}
    assert chosen("nccl_fabric", "all_reduce", nodes=2, nvlink_domains=2, **between)["plateau"].value == 200


def test_two_nodes_are_held_to_the_algorithm() -> None:
    pair: dict[str, t.Any] = {"gpu": "NVIDIA H100 80GB HBM3", "gpus": 8, "nodes": 2, "mnnvl": False, "nvls": True}
    pair |= {"nics": 8, "nic_gbps": 400}
    verdicts = {}
    for algorithm in ("auto", "nvlstree", "ring"):
        entry = chosen("nccl_fabric", "all_reduce", algorithm=algorithm, **pair)["plateau"]
        verdicts[algorithm] = [bands.compare(bands.Reading(value, "GB/s"), entry).verdict for value in (492, 430, 384, 364, 340)]
    assert verdicts == {
        "auto": ["PASS", "PASS", "WARN", "FAIL", "FAIL"], "nvlstree": ["PASS", "PASS", "FAIL", "FAIL", "FAIL"],
        "ring": ["PASS", "PASS", "PASS", "WARN", "FAIL"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "check", "least"),
    [
        ("NVIDIA B200", "fp8", 2600), ("NVIDIA B300 SXM6 AC", "fp8", 2600), ("NVIDIA GB200", "fp8", 2800), ("NVIDIA GB300", "fp8", 2800),
        ("NVIDIA GB300", "bf16", 1555), ("AMD Instinct MI300X", "bf16", 552), ("AMD Instinct MI325X", "bf16", 554),
        ("AMD Instinct MI350X", "bf16", 956), ("AMD Instinct MI355X", "bf16", 956),
    ],
)  # fmt: skip
def test_products_of_new_gpus(gpu: str, check: str, least: float) -> None:
    (entry,) = chosen("gemm", check, gpu=gpu, shape="8192x8192x8192", backend="torch").values()
    assert bands.compare(bands.Reading(0.995 * least, "TFLOPS"), entry).verdict != "PASS"
    assert bands.compare(bands.Reading(entry.value, "TFLOPS"), entry).verdict == "PASS"
