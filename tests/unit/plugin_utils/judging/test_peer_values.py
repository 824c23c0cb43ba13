# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a part should have follows from its peers, not from itself: PCIe links of GPUs in generated fleets."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nvidia
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import slots
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import gpu_memory
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, peer_values, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import kind_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from harness import records
from harness import report_samples as samples
from hypothesis import given, settings
from hypothesis import strategies as st

CARD = "NVIDIA H100 PCIe"
Link = t.Tuple[int, int]
GOOD: Link = (5, 16)


def records_of(node: str, links: t.Sequence[Link], machine: str) -> list[dict[str, t.Any]]:
    """The measurements of h2d on a node whose GPUs have these links (generation, lanes), as fast as these let them be."""
    gpus = [
        {
            "name": CARD, "uuid": f"GPU-{node}-{n}", "index": n, "virtual": False,
            "pcie": {"gen_max": generation, "width_max": lanes, "width": lanes},
        }
        for n, (generation, lanes) in enumerate(links)
    ]  # fmt: skip
    made = []
    for at in [None, *range(len(links))]:
        of = gpus if at is None else [gpus[at]]
        rates = [0.875 * slots.rate(*link) for link in (links if at is None else [links[at]])]
        subject = node if at is None else f"{node}/gpu/{gpus[at]['uuid']}"
        members = [f"{node}/gpu/{g['uuid']}" for g in gpus] if at is None else []
        made.append(
            {
                **samples.measurement(node, "gpu_memory", "h2d"), "variant": "", "target": node, "series": [], "evidence": {},
                "subject": {"kind": kind_of(subject), "id": subject, "members": members},
                "metrics": {"bandwidth": {"value": round(min(rates), 3), "unit": "GB/s"}},
                "context": {**gpu_memory._hardware("h2d", of, nvidia.Nvidia, machine), "machine": machine, "gpus": len(links)},
                "outcome": "measured", "reason_code": None, "reason": None,
            }
        )  # fmt: skip
    return made


def judged(fleet: t.Sequence[t.Sequence[Link]], machines: t.Sequence[str] = ()) -> list[str]:
    """The verdict of each node."""
    products = [*machines, *["Maker Model"] * (len(fleet) - len(machines))]
    made = [record for n, links in enumerate(fleet) for record in records_of(f"n{n}", links, products[n])]
    items = [{key: r[key] for key in ("stage", "check", "variant", "subject", "target")} for r in made if r["subject"]["kind"] == "node"]
    plan: t.Any = samples.plan([item["target"] for item in items], ["gpu_memory"], items=items)
    found = verdict.judge(plan, made, lambda *_who: expectations.shipped(), stages=registry.shipped().values())
    return [v["verdict"] for v in found.planned]


LOWER: list[Link] = [(5, 8), (5, 4), (4, 16), (3, 16), (5, 1)]


@pytest.mark.parametrize("link", LOWER)
@pytest.mark.parametrize("gpus", [2, 4, 8])
@pytest.mark.parametrize("machines", [1, 2, 8])
def test_one_gpu_with_a_smaller_link_than_its_siblings_is_refused(link: Link, gpus: int, machines: int) -> None:
    bad = [GOOD] * (gpus - 1) + [link]
    found = judged([bad] + [[GOOD] * gpus] * (machines - 1))
    assert found[0] == "FAIL" and set(found[1:]) <= {"PASS"}


@pytest.mark.parametrize("link", LOWER)
@pytest.mark.parametrize("gpus", [1, 8])
def test_one_machine_whose_slots_are_all_worse_than_those_of_its_product_is_refused(link: Link, gpus: int) -> None:
    assert judged([[link] * gpus, *[[GOOD] * gpus] * 3]) == ["FAIL", "PASS", "PASS", "PASS"]


@pytest.mark.parametrize("link", [(5, 8), (4, 16)])
def test_machines_that_are_built_so_are_held_to_their_links(link: Link) -> None:
    assert set(judged([[link] * 8] * 3)) == {"PASS"}, "all slots alike"
    assert set(judged([[link] * 8])) == {"PASS"}, "nobody says more of a machine alone: a WARN of gpu_health"
    assert set(judged([[GOOD] * 8, [link] * 8], ["Maker Model", "Maker Older"])) == {"PASS"}, "another product"


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 8), st.integers(0, 7), st.sampled_from(LOWER), st.sampled_from([GOOD, (4, 16)]))
def test_a_smaller_link_never_makes_a_verdict_better(machines: int, gpus: int, at: int, link: Link, built: Link) -> None:
    fleet = [[built] * gpus for _machine in range(machines)]
    assert set(judged(fleet)) == {"PASS"}
    fleet[0][at % gpus] = link
    worse = slots.rate(*link) < 0.9 * slots.rate(*built) and machines * gpus > 1
    assert judged(fleet)[0] in (("FAIL",) if worse else ("PASS", "UNKNOWN") if machines * gpus == 1 else ("PASS",))


def test_of_peers_that_is_not_of_its_form_selects_nothing() -> None:
    for value in (None, 1, "x", [], {"pcie_gen": 1}, {"rate_gbps": {"model": "m", "now": 4}}, {"pcie_gen": {"model": "m", "now": "x"}}):
        record = records_of("n0", [GOOD], "m")[0]
        record["context"]["of_peers"] = value
        assert all(peer.now is None for peer in peer_values.peers_of(records.measurement(record)))


def test_what_parts_of_a_place_have_is_found_once_for_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anew for each part, the time of judging grew with the square of the nodes."""
    found: list[int] = []
    agreed = peer_values.context_keys.agreed
    monkeypatch.setattr(peer_values.context_keys, "agreed", lambda values: (found.append(len(values)), agreed(values))[1])
    parts = [peer_values.Peer("nic_gbps", "CX-7", "server", f"port {place}", 400.0) for place in range(4)]
    values = peer_values.PeerValues((f"gpu-{node}", part) for node in range(50) for part in parts)
    assert {values.should_be(part) for _node in range(50) for part in parts} == {400.0} and found == [50] * 4
