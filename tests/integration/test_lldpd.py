# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The switch and port of each interface, as a real lldpd hears them."""

from __future__ import annotations

import os

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import lldp
from rigs.lldp import LEAVES, Lldp

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
EXPECTED = {"ens1np0": ("leaf-03", "Ethernet1/7"), "ens2np0.100": ("leaf-03", "Ethernet8"), "ens3np0": ("leaf-04", "swp9")}


def test_each_interface_has_its_switch_and_port_and_one_with_two_switches_none() -> None:
    def is_settled(text: str) -> bool:
        both = all(f"lldp.bond0.chassis.name={leaf}\n" in text for leaf in LEAVES)
        return both and "=Ethernet1/7\n" in text and "ifname=Ethernet8\n" in text and "ens3np0.port.descr=swp9\n" in text

    with Lldp() as rig:
        text = rig.until(is_settled)
    heard = lldp.neighbours(text)
    assert {interface: (neighbour.switch, neighbour.port) for interface, neighbour in heard.items()} == EXPECTED
    ids = {leaf: {neighbour.chassis for neighbour in heard.values() if neighbour.switch == leaf} for leaf in LEAVES}
    assert all(map(len, ids.values())) and len(set.union(*ids.values())) == len(LEAVES)

