# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dark lanes of modules: a splitter cable is good and a link that trained down is not, and the width at which a link runs does not tell
which of them it is."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import judgement, lanes, reading
from harness import records
from harness.fat_tree import FatTree

HOST = "gpu-0002"


def module(width: int = 4, dark: bool = False, wired: int | None = None) -> dict[str, t.Any]:
    unused = {"unused": {"words": ["Rx LOS [per lane]"], "width": width, "wired": wired}} if dark else {}
    return {"port": "mlx5_0/1", "link": {"width": f"{width}x"}, **unused}


def found(
    tree: FatTree, modules: dict[str, dict[str, t.Any]], wider: t.Sequence[int] = (), has_asked: bool = True
) -> list[tuple[str, str]]:
    """Return what follows from modules. `wider`: the lanes that both ends of the link of HOST say they can."""
    measured = tree.measured()
    for record in measured:
        for fabric in record.context.get("fabrics", ()):
            fabric["wider"] = [[tree.port_guid(HOST, 1), 1, most] for most in wider]
            if not has_asked:
                fabric["not_looked_for"] = {"iblinkinfo": "iblinkinfo is not installed"}
    for host, row in modules.items():
        subject = {"kind": "node", "id": host, "members": []}
        fields = {"stage": "fabric_map", "check": "optics", "subject": subject, "target": host, "context": {"modules": [row]}}
        measured.append(records.measurement(fields))
    fabric = reading.read(measured).fabric
    assert not fabric.unread
    yielded = list(lanes.findings(fabric, measured))
    assert all(finding.ends[0] == (HOST, "mlx5_0/1") for finding in yielded)
    return [(finding.verdict, finding.code) for finding in yielded]


def small(rate: str = "4xHDR") -> FatTree:
    tree = FatTree(2, per_leaf=2, uplinks=2)
    tree.rates[f"{HOST}:1"] = rate
    return tree


def test_dark_lanes_of_a_link_that_could_have_them_are_a_fault() -> None:
    assert found(small("2xHDR"), {HOST: module(2, dark=True)}, wider=[4]) == [("FAIL", "nic_fault")]


def test_dark_lanes_of_a_link_that_has_all_that_its_ends_can_use_are_none() -> None:
    assert found(small("2xHDR"), {HOST: module(2, dark=True)}) == []


def test_dark_lanes_of_which_nobody_tells_whose_they_are_are_unknown() -> None:
    assert found(small("2xHDR"), {HOST: module(2, dark=True)}, has_asked=False) == [("UNKNOWN", "unresolved")]
    ethernet = small()
    ethernet.cables.pop(f"{HOST}:1")
    assert found(ethernet, {HOST: module(2, dark=True)}) == [("UNKNOWN", "unresolved")]


@pytest.mark.parametrize(
    ("wired", "width", "verdicts"),
    [(2, 2, []), (2, 1, [("FAIL", "nic_fault")]), (4, 2, [("UNKNOWN", "unresolved")]), (1, 1, []), (1, 2, [])],
)
def test_lanes_that_the_module_has_not_wired_need_no_light(wired: int, width: int, verdicts: list[tuple[str, str]]) -> None:
    """A module with all lanes may be at a fibre that is split."""
    assert found(small(), {HOST: module(width, True, wired)}, has_asked=False) == verdicts


@pytest.mark.parametrize(("others", "verdicts"), [(2, []), (4, [("FAIL", "nic_fault")]), (1, [("UNKNOWN", "unresolved")])])
def test_links_of_the_same_kind_tell_how_many_lanes_a_link_should_have(others: int, verdicts: list[tuple[str, str]]) -> None:
    tree = FatTree(8, per_leaf=4)
    modules = {host: module(others) for host in tree.hosts}
    modules[HOST] = module(2, dark=True)
    assert found(tree, modules, has_asked=False) == verdicts


def test_both_ends_of_a_link_are_believed_before_others_of_its_kind() -> None:
    tree = FatTree(8, per_leaf=4)
    modules = {host: module(2) for host in tree.hosts}
    modules[HOST] = module(2, dark=True)
    assert found(tree, modules, wider=[4]) == [("FAIL", "nic_fault")]


def test_a_link_with_fewer_lanes_than_both_of_its_ends_can_use_is_slow() -> None:
    """Alone of its kind, or one of two: nothing else tells it. Where all of a kind are so, somebody may want it."""
    def judged(tree: FatTree, hosts: t.Collection[str]) -> list[tuple[str, str]]:
        measured = tree.measured()
        for record in measured:
            for fabric in record.context.get("fabrics", ()):
                fabric["wider"] = [[tree.port_guid(host, 1), 1, 4] for host in hosts]
        fabric = reading.read(measured).fabric
        return [(each.verdict, each.code) for each in judgement.findings(fabric, judgement.Wanted(nodes=tree.hosts))]

    assert judged(small("2xHDR"), [HOST]) == [("FAIL", "link_slow")]
    assert judged(small("2xHDR"), []) == [("UNKNOWN", "unresolved")]
    tree = FatTree(4, per_leaf=2, uplinks=2)
    tree.rates.update({f"{host}:1": "2xHDR" for host in tree.hosts})
    assert judged(tree, tree.hosts) == [("WARN", "link_slow")] * 4 and judged(tree, []) == []


def test_a_module_of_another_form_than_the_probes_is_not_read() -> None:
    subject = {"kind": "node", "id": HOST, "members": []}
    for rows in ([{"unused": {"words": "x", "width": 2}}], [{"port": 1}], ["x"], "x"):
        fields = {"stage": "fabric_map", "check": "optics", "subject": subject, "target": HOST, "context": {"modules": rows}}
        record = records.measurement(fields)
        fabric = reading.read([record]).fabric
        assert fabric.unread and list(lanes.findings(fabric, [record])) == []
