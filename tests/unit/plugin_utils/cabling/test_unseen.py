# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node cannot tell of a fabric that the run has seen is UNKNOWN; where there is no such fabric nothing is said."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import unseen
from harness import records

LEAF = [["leaf-1", "swp1"]]


def port(device: str, heard: t.Any = (), state: str = "ACTIVE") -> dict[str, t.Any]:
    return {"device": device, "port": 1, "state": state, "link_layer": "Ethernet", "netdev": f"net-{device}", "heard": list(heard)}


def found(nodes: dict[str, dict[str, t.Any]]) -> dict[tuple[str, str], tuple[str, str | None]]:
    made = []
    for node, checks in nodes.items():
        for check, fields in checks.items():
            subject = {"kind": "node", "id": node, "members": []}
            made.append(records.measurement({"stage": "fabric_map", "check": check, "subject": subject, "target": node, **fields}))
    yielded = unseen.findings({record.key: record for record in made})
    return {(key.subject, key.check): (finding.verdict, finding.code) for key, finding in yielded}


def ports(*each: dict[str, t.Any], **context: t.Any) -> dict[str, t.Any]:
    return {"context": {"ports": list(each), **context}}


UNREAD = {"outcome": "not_applicable", "reason_code": "not_visible", "reason": "no module can be read"}


def test_a_node_that_hears_nothing_is_unknown_where_others_hear_their_switches() -> None:
    said = found({"a": {"ports": ports(port("mlx5_0", LEAF))}, "b": {"ports": ports(port("mlx5_0"))}})
    assert said == {("b", "ports"): ("UNKNOWN", "cable_unknown")}


def test_ports_with_other_names_are_unknown_too_on_a_node_that_hears_nothing_at_all() -> None:
    assert found({"a": {"ports": ports(port("mlx5_0", LEAF))}, "b": {"ports": ports(port("bnxt_re0"))}})


def test_where_no_node_hears_a_switch_there_is_no_such_fabric_unless_it_is_required() -> None:
    assert not found({"a": {"ports": ports(port("mlx5_0"))}, "b": {"ports": ports(port("mlx5_0"))}})
    assert found({"a": {"ports": ports(port("mlx5_0"), required=True)}}) == {("a", "ports"): ("UNKNOWN", "cable_unknown")}


def test_a_port_that_hears_no_switch_on_any_node_and_one_that_is_down_say_nothing() -> None:
    silent = {name: {"ports": ports(port("mlx5_0", LEAF), port("storage"), port("mlx5_3", state="DOWN"))} for name in "ab"}
    assert not found(silent)


def test_neighbours_that_a_tool_told_in_a_form_that_cannot_be_read_are_unknown_on_one_node_too() -> None:
    said = found({"a": {"ports": ports(port("mlx5_0"), unread={"lldp": "lldpctl: ?"}), "optics": UNREAD}, "b": {"ports": ports()}})
    assert said == {("a", "ports"): ("UNKNOWN", "incomplete_output")}
    down = ports(port("mlx5_0", state="DOWN"), unread={"lldp": "lldpctl: ?"})
    assert found({"a": {"ports": down}}) == {}


def test_modules_of_one_node_that_cannot_be_read_are_unknown_where_others_can() -> None:
    linked = ports(port("mlx5_0", LEAF))
    assert found({"a": {"optics": {}, "ports": linked}, "b": {"optics": UNREAD, "ports": linked}}) == {
        ("b", "optics"): ("UNKNOWN", "no_answer")
    }
    assert not found({"a": {"optics": UNREAD, "ports": linked}, "b": {"optics": UNREAD, "ports": linked}})


def test_a_node_without_an_active_port_need_not_have_a_module() -> None:
    down = ports(port("mlx5_0", state="DOWN"))
    assert not found({"a": {"optics": {}, "ports": ports(port("mlx5_0", LEAF))}, "b": {"optics": UNREAD, "ports": down}})


def test_a_look_of_which_a_tool_cannot_be_read_is_unknown_and_one_without_the_tool_is_not() -> None:
    def look(unread: dict[str, str]) -> dict[str, t.Any]:
        return {"discovery": {"context": {"fabrics": [{"through": "mlx5_0/1", "unread": unread}]}}}

    bad = look({"ibqueryerrors": "ibqueryerrors: the summary of ibqueryerrors is missing"})
    assert found({"a": bad, "b": look({})}) == {("a", "discovery"): ("UNKNOWN", "incomplete_output")}


def in_fabric(number: int) -> dict[str, t.Any]:
    guid = f"{number:016x}"
    one = {"device": "mlx5_0", "port": 1, "state": "ACTIVE", "link_layer": "InfiniBand", "guid": guid, "heard": []}
    return {"ports": {"context": {"ports": [one]}}}


def discovered(*numbers: int) -> dict[str, t.Any]:
    devices = [[f"d{number}", "CA", "x", 1, "", "", [[1, f"{number:016x}"]]] for number in numbers]
    return {"context": {"fabrics": [{"devices": devices, "links": []}]}}


ELSEWHERE = {"outcome": "not_applicable", "reason_code": "no_rdma_expected", "reason": "the node has no InfiniBand port"}
UNTOLD = {"outcome": "not_applicable", "reason_code": "not_visible", "reason": "ibnetdiscover is not installed"}


def test_ports_in_no_fabric_that_was_discovered_are_unknown() -> None:
    first = {**in_fabric(1), "discovery": discovered(1, 2)}
    assert not found({"a": first, "b": in_fabric(2)})
    assert found({"a": first, "b": in_fabric(3)}) == {("b", "ports"): ("UNKNOWN", "cable_unknown")}


def test_a_fabric_that_nobody_looks_at_as_the_first_nodes_are_not_in_it_is_unknown() -> None:
    login = {"discovery": ELSEWHERE, "ports": ports(port("eth"))}
    assert found({"login": login, "b": in_fabric(3)}) == {("b", "ports"): ("UNKNOWN", "cable_unknown")}
    assert not found({"login": login, "a": {"ports": ports(port("eth"))}})
    assert not found({"a": {**in_fabric(1), "discovery": UNTOLD}, "b": in_fabric(3)}), "the discovery itself says that it has no tools"
