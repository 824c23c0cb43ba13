# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The switches that a machine hears by LLDP."""

from __future__ import annotations

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
    assert lldp.neighbours(HEARD) == {"ens1np0": ("leaf-03", "Ethernet1/7"), "ens2np0.100": ("bb:bb:bb:bb:bb:bb", "swp9")}


def test_neighbours_that_a_real_lldpd_heard() -> None:
    expected = {"ens1np0": ("leaf-03", "Ethernet1/7"), "ens2np0.100": ("leaf-03", "Ethernet8"), "ens3np0": ("leaf-04", "swp9")}
    assert lldp.neighbours(RECORDED.read_text()) == expected


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
    assert lldp.heard((RECORDED.parent / recording).read_text()) == expected
