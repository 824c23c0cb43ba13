# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The switches that a machine hears by LLDP."""

from __future__ import annotations

import json
import pathlib

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
