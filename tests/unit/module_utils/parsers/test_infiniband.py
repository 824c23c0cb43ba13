# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tools of infiniband-diags print about a fabric."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import infiniband

RECORDED = pathlib.Path(__file__).resolve().parents[3] / "fixtures/infiniband"
LEAF_1, LEAF_2, LEAF_3, SPINE_1 = "fc6a1c0300020010", "fc6a1c0300020020", "fc6a1c0300020030", "fc6a1c0300030010"
GPU_06 = "a088c20300010060"


def text(fabric: str, tool: str = "ibnetdiscover") -> str:
    return (RECORDED / fabric / f"{tool}.txt").read_text()


GENERAL = """hw_dev_rev:  0x00a0
hw_dev_id:   0xd2f2
hw_uptime:   0x000494ba
fw_version:  31.2012.1024
fw_build_id: 0x0000
fw_date:     05/08/2024
fw_psid:     'MT_0000000612'
fw_ini_ver:  7
sw_version:  00.00.00
"""


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (GENERAL, "31.2012.1024 of 05/08/2024"),
        (GENERAL.replace("05/08/2024", "00/00/0000"), "31.2012.1024"),
        (GENERAL.replace("31.2012.1024", "00.00.00"), None),
        (GENERAL.replace("fw_version", "sw_version"), None),
        ("", None),
    ],
)
def test_the_firmware_of_a_switch_is_its_version_with_the_day_of_its_build(text: str, version: str | None) -> None:
    assert infiniband.firmware(text) == version


def test_the_routes_of_each_switch_are_those_that_its_table_counts() -> None:
    dumped = (RECORDED / "healthy/dump_fts.txt").read_text()
    tables = infiniband.routes(dumped)
    # ibtracert of the same fabric goes from leaf-1 by port 8, and from spine-2 by port 8, to gpu-16.
    assert len(tables) == 6 and tables["fc6a1c0300020010"][2] == 8 and tables["fc6a1c0300030020"][2] == 8
    assert {len(table) for table in tables.values()} == {22}
    cut = infiniband.routes(dumped.replace("0x0001 005 \n", "", 1))
    assert len(cut) == 5 and len(infiniband.routes(dumped[:2000])) < 6 and infiniband.routes("") == {}


def test_a_table_of_routes_of_which_a_part_was_not_answered_is_left_out() -> None:
    """dump_fts prints the part before once more in its place."""
    dumped = (RECORDED / "healthy/dump_fts.txt").read_text()
    said = f"SubnGet(LFT) failed on switch 'MF0;leaf-1:MQM9700/U1' Lid 7 Node GUID 0x{LEAF_1} SMA LID 7; MAD status 0x6e AM 0x1\n"
    assert infiniband.routes(dumped).keys() - infiniband.routes(dumped, said).keys() == {LEAF_1}


def test_a_switch_has_its_lid_and_an_adapter_none_of_its_own() -> None:
    devices = infiniband.discovery(text("healthy")).devices
    assert devices["fc6a1c0300020040"].lid == 10 and devices[GPU_06].lid == 0
    assert devices[GPU_06].port_lids.keys() == {1} and devices["a088c20300010100"].port_lids == {1: 2}


def test_a_recorded_fabric_is_read_whole() -> None:
    fabric = infiniband.discovery(text("healthy"))
    assert fabric.unread == [] and len(fabric.devices) == 22 and len(fabric.links) == 64
    leaf, host = fabric.devices[LEAF_1], fabric.devices[GPU_06]
    assert (leaf.kind, leaf.name, leaf.ports) == (infiniband.SWITCH, "MF0;leaf-1:MQM9700/U1", 8)
    assert (host.kind, host.name, host.port_guids) == (infiniband.ADAPTER, "gpu-06 HCA-1", {1: "a088c20300010061"})
    assert fabric.links[GPU_06, 1] == ((LEAF_2, 2), 4, "HDR") and infiniband.gbps(4, "HDR") == 212.5


def test_links_that_trained_down_keep_their_rate_at_both_ends() -> None:
    fabric = infiniband.discovery(text("slow"))
    assert fabric.unread == []
    assert fabric.links[GPU_06, 1][1:] == fabric.links[LEAF_2, 2][1:] == (4, "SDR")
    assert fabric.links[LEAF_1, 5][1:] == fabric.links[SPINE_1, 1][1:] == (1, "HDR")


@pytest.mark.parametrize("fabric", ["healthy", "missing", "swapped", "slow", "counters", "unlinked"])
def test_a_text_without_one_line_of_a_cable_is_no_whole_fabric(fabric: str) -> None:
    lines = text(fabric).splitlines()
    for number in [number for number, line in enumerate(lines) if line.startswith("[")]:
        assert infiniband.discovery("\n".join(lines[:number] + lines[number + 1 :])).unread


@pytest.mark.parametrize("end", [0, 200, 400, 1000, 4000, -200, -3])
def test_a_cut_text_is_no_whole_fabric(end: int) -> None:
    assert infiniband.discovery(text("healthy")[:end]).unread


def test_a_speed_that_is_not_known_is_named() -> None:
    assert "'4xQXR'" in infiniband.discovery(text("healthy").replace("4xHDR", "4xQXR")).unread[0]


@pytest.mark.parametrize("rate", ["4x???", "??HDR"])
def test_a_rate_that_the_tool_does_not_know_is_named_with_its_port(rate: str) -> None:
    """A tool that is older than a speed prints question marks."""
    unread = infiniband.discovery(text("healthy").replace("4xHDR", rate)).unread
    assert unread[0].startswith("port 1 of MF0;leaf-4:MQM9700/U1 has the rate ") and rate in unread[0]


def test_a_cable_between_two_adapters_is_a_link() -> None:
    """At an adapter the tool prints the other adapter's GUID behind a space (ibnetdiscover.c, out_ca_port)."""
    said = "".join(
        f"vendid=0x2c9\ndevid=0x1021\nsysimgguid=0x{own}0\ncaguid=0x{own}0\nCa\t1 \"H-{own:0>15}0\"\t\t# \"{name} mlx5_0\"\n"
        f'[1]({own}0) \t"H-{far:0>15}0"[1] ({far}0) \t\t# lid {own} lmc 0 "{other} mlx5_0" lid {far} 4xNDR\n\n'
        for own, far, name, other in (("1", "2", "gpu-1", "gpu-2"), ("2", "1", "gpu-2", "gpu-1"))
    )
    fabric = infiniband.discovery(said)
    assert fabric.unread == [] and fabric.links["0000000000000010", 1] == (("0000000000000020", 1), 4, "NDR")
    assert fabric.devices["0000000000000020"].port_lids == {1: 2}


def test_a_port_without_a_link_has_no_rate() -> None:
    ports, unread = infiniband.states(text("missing", "iblinkinfo-l"))
    assert unread == [] and len(ports) == 63
    assert ports[LEAF_3, 6] == (None, None, "Down", "Polling", None, None)
    assert ports["a088c20300010061", 1] == (4, 53.125, "Active", "LinkUp", None, None)


def test_a_link_whose_ends_could_be_faster_says_it() -> None:
    ports, _unread = infiniband.states(text("slow", "iblinkinfo-l"))
    assert {port.could_gbps for port in ports.values()} == {None, 10.0}
    assert ports["a088c20300010061", 1].could_gbps == 10.0


def test_a_link_at_fdr10_has_its_own_rate_although_the_tool_prints_that_of_qdr() -> None:
    line = text("healthy", "iblinkinfo-l").splitlines()[0]
    for printed, lane, could in (("10.0 Gbps (FDR10)", 10.3125, None), ("10.0 Gbps", 10.0, 10.3125)):
        words = "Could be FDR10 (Found link at QDR but expected speed is FDR10)" if could else ""
        ports, unread = infiniband.states(line.replace("53.125 Gbps", printed).replace("Could be 12X ", words))
        assert unread == [] and [(port.lane_gbps, port.could_gbps) for port in ports.values()] == [(lane, could)]


def test_a_link_without_a_known_other_end_is_named_and_is_no_port_without_a_link() -> None:
    line = text("healthy", "iblinkinfo-l").splitlines()[0]
    ports, unread = infiniband.states(f'{line.partition("==>")[0]}==>      "Port not available"\n')
    assert ports == {} and len(unread) == 1 and unread[0].endswith("has a link whose other end is not known")


@pytest.mark.parametrize(
    ("words", "lanes"),
    [("Could be 4X ", 4), ("Could be 12X ", 4), ("Could be 4X Could be 106.25 Gbps ", 4), ("Could be 1X ", None), ("", None)],
)
def test_a_link_whose_ends_could_have_more_lanes_says_it(words: str, lanes: int | None) -> None:
    """The recorded fabric has links of 4 lanes between ends that say 12: more than 4 are in no connector."""
    line = text("healthy", "iblinkinfo-l").splitlines()[0]
    ports, unread = infiniband.states(line.replace("4X", "2X").replace("Could be 12X ", words))
    assert unread == [] and [port.could_width for port in ports.values()] == [lanes]
    assert {port.could_width for port in infiniband.states(text("healthy", "iblinkinfo-l"))[0].values()} == {None}


def test_devices_that_do_not_answer_are_named() -> None:
    said = "src/query_smp.c:241; umad (DR path slid 0; dlid 0; 0,1,3 Attr 0x11:0) bad status 110; Connection timed out\n"
    assert infiniband.unanswered(said * 2) == ["the device at DR path slid 0; dlid 0; 0,1,3 does not answer (110; Connection timed out)"]
    extended = said.replace("0x11", "0xff90")
    assert infiniband.unanswered(f"{extended}mad (DR path 0,1 Attr 0x15:0) bad status 0x1c\n") == []


def test_a_line_of_states_that_is_not_understood_is_named() -> None:
    assert infiniband.states("0x12 something\n")[1] == ["the line '0x12 something' is not understood"]


def test_counters_are_those_of_ports_and_not_of_whole_switches() -> None:
    found = infiniband.errors(text("counters", "ibqueryerrors"))
    assert found.unread == "" and found.counters == {
        ("a088c20300010091", 1): {"SymbolErrorCounter": 65535},
        (LEAF_1, 2): {"PortRcvErrors": 300},
        (LEAF_1, 5): {"SymbolErrorCounter": 1200, "LinkDownedCounter": 7},
    }


def test_without_its_summary_no_port_is_known_to_be_clean() -> None:
    assert infiniband.errors("").unread == "the summary of ibqueryerrors is missing"
    lines = text("counters", "ibqueryerrors").splitlines()
    missing = infiniband.errors("\n".join(line for line in lines if "port 2:" not in line))
    assert missing.unread == "ibqueryerrors counts 3 ports with errors and lists 2"


def test_ports_whose_counters_were_not_told_are_no_clean_ports() -> None:
    """ibqueryerrors counts them as checked (ibqueryerrors.c, print_errors)."""
    said = text("counters", "ibqueryerrors") + "##          3 PMA query failures\n"
    found = infiniband.errors(said)
    assert found.unanswered == 3 and found.unread.startswith("3 queries for counters failed") and len(found.counters) == 3
    warned = "ibwarn: [9] query_cap_mask: classportinfo query failed on gpu-01 HCA-1, Lid 4 port 1\n"
    assert infiniband.errors(said, warned).unanswered == 2 and infiniband.errors(said, warned * 3).unread == ""


def test_the_subnet_manager_is_the_one_that_answers() -> None:
    assert infiniband.manager(text("healthy", "sminfo")) == ("a088c20300010011", 1, "MASTER")
    assert infiniband.manager("ibwarn: [1] sminfo: query failed") is None


@pytest.mark.parametrize(
    ("text", "is_said"),
    [
        ("ibwarn: [7] mad_rpc: _do_madrpc failed; dport (Lid 1)\n/usr/sbin/sminfo: iberror: failed: query\n", True),  # recorded
        ("sminfo: iberror: query failed\n", True),
        ("/usr/sbin/sminfo: iberror: failed: Failed to open 'mlx5_0' port '1'\n", False),  # recorded
        ("sminfo: iberror: failed: query resp was not SMINFO\n", False),
        ("sminfo: error while loading shared libraries: libibmad.so.5\n", False),
        ("", False),
    ],
)
def test_that_no_manager_answers_is_told_from_a_query_that_was_not_made(text: str, is_said: bool) -> None:
    assert infiniband.says_no_manager(text) is is_said
