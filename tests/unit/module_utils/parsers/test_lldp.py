# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The switches that a machine hears by LLDP."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import lldp
from hypothesis import given
from hypothesis import strategies as st

RECORDED = pathlib.Path(__file__).resolve().parents[3] / "fixtures/lldpd/neighbours.txt"
HEARD = """lldp.ens1np0.via=LLDP
lldp.ens1np0.rid=1
lldp.ens1np0.age=17 days, 09:36:51
lldp.ens1np0.chassis.mac=aa:aa:aa:aa:aa:aa
lldp.ens1np0.chassis.name=leaf-03
lldp.ens1np0.chassis.descr=A switch
of two lines
lldp.ens1np0.chassis.Bridge.enabled=on
lldp.ens1np0.port.ifname=Ethernet1/7
lldp.ens1np0.port.descr=rail 1
lldp.ens2np0.100.chassis.mac=bb:bb:bb:bb:bb:bb
lldp.ens2np0.100.port.descr=swp9
lldp.bond0.chassis.name=leaf-04
lldp.bond0.port.ifname=swp1
lldp.bond0.chassis.name=leaf-05
lldp.bond0.port.ifname=swp1
"""


def test_each_interface_has_the_switch_and_port_that_it_hears() -> None:
    assert lldp.neighbours(HEARD) == {
        "ens1np0": ("leaf-03", "Ethernet1/7", "aa:aa:aa:aa:aa:aa"), "ens2np0.100": ("bb:bb:bb:bb:bb:bb", "swp9", "bb:bb:bb:bb:bb:bb"),
    }


@pytest.mark.parametrize("kind", ["local", "ifname", "ifalias", "ip", "unhandled"])
def test_a_switch_without_a_name_has_its_id_of_any_kind(kind: str) -> None:
    text = f"lldp.eth0.rid=1\nlldp.eth0.chassis.{kind}=10.0.0.3\nlldp.eth0.chassis.mgmt-ip=10.0.0.4\nlldp.eth0.port.{kind}=7\n"
    assert lldp.neighbours(text) == {"eth0": ("10.0.0.3", "7", "10.0.0.3")}


def test_neighbours_that_a_real_lldpd_heard() -> None:
    expected = {"ens1np0": ("leaf-03", "Ethernet1/7"), "ens2np0.100": ("leaf-03", "Ethernet8"), "ens3np0": ("leaf-04", "swp9")}
    assert {name: each[:2] for name, each in lldp.neighbours(RECORDED.read_text()).items()} == expected


def test_two_neighbours_that_send_different_kinds_of_names_are_not_mixed() -> None:
    first = "lldp.eth0.rid=1\nlldp.eth0.chassis.name=leaf-03\n"
    assert lldp.neighbours(f"{first}lldp.eth0.rid=2\nlldp.eth0.port.ifname=swp1\n") == {}


def test_what_a_switch_says_of_itself_is_short_and_on_one_line() -> None:
    (neighbour,) = lldp.neighbours(f"lldp.eth0.chassis.name=  a\tb{'x' * 500}").values()
    assert neighbour.switch.startswith("a bx") and len(neighbour.switch) == lldp.SHOWN and neighbour.port == ""


@given(st.text())
def test_any_text_gives_names_of_one_line(text: str) -> None:
    assert not any("\n" in name for names in lldp.neighbours(text).values() for name in names)


@pytest.mark.parametrize(
    ("recording", "expected"),
    [
        ("healthy-gpu-01.json", {"eth0": [("leaf1", "swp1")]}),
        ("healthy-gpu-01.json0", {"eth0": [("leaf1", "swp1")]}),
        ("wrong-gpu-01.json", {"eth0": [("leaf2", "swp1")]}),
        ("wrong-gpu-02-link-down.json", {}),
        ("healthy-leaf1.json", {"swp1": [("gpu-01", "eth0")], "swp2": [("gpu-02", "eth0")]}),
        ("neighbours.txt", None),
    ],
)
def test_each_form_of_json_says_what_each_interface_hears(recording: str, expected: object) -> None:
    heard = lldp.heard((RECORDED.parent / recording).read_text())
    assert (heard and {name: [each[:2] for each in several] for name, several in heard.items()}) == (expected or heard)
    assert bool(heard) == bool(expected) and (heard is None) == (expected is None)


def chassis(name: str, number: int, *capable: str, says: bool = True) -> dict[str, object]:
    capability = [{"type": kind, "enabled": kind in capable} for kind in ("Bridge", "Router", "Station")] if says else []
    described = {"id": {"type": "mac", "value": f"aa:{number}"}, "capability": capability}
    return {"eth0": {"rid": str(number), "chassis": {name: described}, "port": {"id": {"type": "ifname", "value": f"swp{number}"}}}}


@pytest.mark.parametrize(
    ("several", "names"),
    [
        ([chassis("leaf", 1, "Bridge", "Router"), chassis("vm", 2, "Station"), chassis("dpu", 3)], ["leaf"]),
        ([chassis("leaf", 1, "Bridge"), chassis("vm", 2, says=False)], ["leaf", "vm"]),
        ([chassis("leaf", 1, "Bridge"), chassis("host-with-bridge", 2, "Bridge")], ["leaf", "host-with-bridge"]),
        ([chassis("vm", 1), chassis("dpu", 2)], ["vm", "dpu"]),
    ],
)
def test_the_only_switch_among_neighbours_that_say_what_they_are_is_the_neighbour(several: list[object], names: list[str]) -> None:
    heard = lldp.heard(json.dumps({"lldp": {"interface": several}}))
    assert heard and [each.switch for each in heard["eth0"]] == names and heard["eth0"][0].chassis == "aa:1"


def test_the_end_of_a_line_in_a_description_is_read_as_old_versions_print_it() -> None:
    text = json.dumps({"lldp": {"interface": chassis("leaf", 1, "Bridge")}}).replace('"rid": "1"', '"descr": "Maker\nVersion 1\t"')
    assert "\nVersion" in text and lldp.heard(text) == {"eth0": [("leaf", "swp1", "aa:1")]}


@pytest.mark.parametrize("other", ["leaf-1", "leaf-1.example.com", "leaf-1(FDO1234)"])
def test_a_switch_that_is_heard_by_two_protocols_is_one(other: str) -> None:
    twice = [chassis("leaf-1.example.com", 1, "Bridge"), chassis(other, 2)]
    for each, protocol in zip(twice, ("LLDP", "CDPv2")):
        t.cast("dict[str, t.Any]", each["eth0"])["via"] = protocol
    heard = lldp.heard(json.dumps({"lldp": {"interface": twice}}))
    assert heard == {"eth0": [("leaf-1.example.com", "swp1", "aa:1")]}
    alone = lldp.heard(json.dumps({"lldp": {"interface": twice[1:]}}))
    assert alone == {"eth0": [(other, "swp2", "aa:2")]}


def test_a_neighbour_that_is_listed_twice_is_one() -> None:
    same = [chassis("leaf", 1, says=False), chassis("leaf", 1, says=False)]
    assert lldp.heard(json.dumps({"lldp": {"interface": same}})) == {"eth0": [("leaf", "swp1", "aa:1")]}


def test_the_firmware_of_a_network_card_is_no_second_switch() -> None:
    """It says no name and no capability, its address alone."""
    address = {"id": {"type": "mac", "value": "bb:2"}}
    card = {"eth0": {"chassis": address, "port": {**address, "ttl": "120"}}}
    leaf = chassis("leaf", 1, "Bridge")
    assert lldp.heard(json.dumps({"lldp": {"interface": [card, leaf]}})) == {"eth0": [("leaf", "swp1", "aa:1")]}
    assert lldp.heard(json.dumps({"lldp": {"interface": card}})) == {"eth0": [("bb:2", "bb:2", "bb:2")]}
    silent = lldp.heard(json.dumps({"lldp": {"interface": [card, chassis("leaf", 1, says=False)]}}))
    assert silent and len(silent["eth0"]) == 2, "nobody says that it is a switch"


@pytest.mark.parametrize(
    ("number", "described", "port"),
    [
        ("516", "xe-0/0/4", "xe-0/0/4"), ("731", "et-0/0/12:1", "et-0/0/12:1"), ("516", "to gpu-07 rail 3", "516"),
        ("516", "gpu-07", "516"), ("5", "5", "5"), ("Ethernet8", "xe-0/0/4", "Ethernet8"),
    ],
)  # fmt: skip
def test_the_number_of_a_port_in_snmp_is_not_its_name(number: str, described: str, port: str) -> None:
    heard = chassis("leaf", 1, "Bridge")
    t.cast("dict[str, t.Any]", heard["eth0"])["port"] = {"id": {"type": "local", "value": number}, "descr": described}
    assert lldp.heard(json.dumps({"lldp": {"interface": heard}})) == {"eth0": [("leaf", port, "aa:1")]}
    text = f"lldp.eth0.rid=1\nlldp.eth0.chassis.name=leaf\nlldp.eth0.port.local={number}\nlldp.eth0.port.descr={described}\n"
    assert lldp.neighbours(text)["eth0"].port == port
