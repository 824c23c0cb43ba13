# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module in a port, as ethtool and mlxlink print it. No machine with a module was at hand: the texts are typed in the forms of the
tools' sources."""

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import optics
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import modules

QSFP = """	Identifier                                : 0x11 (QSFP28)
	Vendor name                               : Maker
	Vendor PN                                 : SR4
	Vendor SN                                 : A1
	Module temperature                        : 30.50 degrees C / 86.90 degrees F
	Module voltage                            : 3.2350 V
	Laser tx bias current (Channel 1)         : 6.750 mA
	Laser tx bias current (Channel 2)         : 6.700 mA
	Transmit avg optical power (Channel 1)    : 1.3924 mW / 1.44 dBm
	Rcvr signal avg optical power(Channel 1)  : 0.9720 mW / -0.12 dBm
	Rcvr signal avg optical power(Channel 2)  : 0.0000 mW / -inf dBm
	Laser rx power high alarm       (Chan 1)  : Off
	Laser rx power low alarm        (Chan 1)  : Off
	Laser rx power low alarm        (Chan 2)  : On
	Laser rx power low warning      (Chan 2)  : On
	Module temperature high warning           : Off
	Laser rx power low alarm threshold        : 0.0467 mW / -13.31 dBm
	Module temperature high alarm threshold   : 80.00 degrees C / 176.00 degrees F
"""
MLXLINK = {
    "status": {"code": 0, "message": "success"},
    "result": {
        "output": {
            "Operational Info": {"State": "Active", "Speed": "IB-NDR", "Width": "4x", "FEC": "RS-FEC"},
            "Troubleshooting Info": {"Status Opcode": "0", "Recommendation": "No issue was observed"},
            "Module Info": {
                "Vendor Name": "Maker", "Vendor Part Number": "SR4", "Vendor Serial Number": "A1",
                "Temperature [C]": "45 [-10..80]", "Voltage [mV]": "3250 [3000..3600]",
                "Rx Power Current [dBm]": "0,-10 [-12..5]", "Tx Power Current [dBm]": "N/A", "Rx LOS [per lane]": "0,1",
            },
            "Physical Counters and BER Info": {
                "Raw Physical BER": "3E-9", "Effective Physical BER": "15E-255", "Link Down Counter": "2",
            },
        }
    },
}  # fmt: skip


def test_values_limits_and_alarms_of_ethtool_are_read_for_each_lane() -> None:
    module = optics.ethtool(QSFP)
    assert (module.vendor, module.part, module.serial) == ("Maker", "SR4", "A1")
    assert module.values == {"temperature": [30.5], "voltage": [3.235], "bias": [6.75, 6.7], "tx_power": [1.3924], "rx_power": [0.972, 0]}
    assert module.limits == {"rx_power": {"low alarm": 0.0467}, "temperature": {"high alarm": 80}}
    assert module.alarms == ["laser rx power low alarm"] and module.warnings == ["laser rx power low warning"] and module.unread == []


def test_the_json_of_ethtool_says_the_same() -> None:
    tree = {
        "identifier": 17, "vendor_name": "Maker", "vendor_pn": "SR4", "vendor_sn": "A1", "module_temperature": 30.5,
        "laser_tx_bias_current": [6.75, 6.7], "rx_power": {"values": [0.972, 0], "type": "Rcvr signal avg optical power"},
        "laser_rx_power_low_alarm": [False, True], "module_temperature_high_warning": False,
        "laser_rx_power": {"low_alarm_threshold": 0.0467, "units": "mW"},
    }  # fmt: skip
    module = optics.ethtool(json.dumps([tree]))
    assert module.values == {"temperature": [30.5], "bias": [6.75, 6.7], "rx_power": [0.972, 0]}
    assert module.alarms == ["laser rx power low alarm"] and module.limits == {"rx_power": {"low alarm": 0.0467}}


def test_a_passive_cable_has_no_values_and_says_so() -> None:
    module = optics.ethtool("\tIdentifier : 0x11 (QSFP28)\n\tVendor SN : C1\n")
    assert module.serial == "C1" and module.values == {} and module.unread == ["the module has no diagnostics, as a passive cable"]


@pytest.mark.parametrize("text", ["", "netlink error: Operation not supported\n", "{", "[]"])
def test_a_text_without_a_module_is_no_healthy_module(text: str) -> None:
    assert optics.ethtool(text).unread and not optics.ethtool(text).values


def test_a_value_that_is_no_number_is_absent_and_named() -> None:
    module = optics.ethtool(QSFP.replace("30.50 degrees C / 86.90 degrees F", "n/a"))
    assert isinstance(module.values["temperature"][0], Absent) and module.unread == ["module temperature reads 'n/a'"]


def test_mlxlink_says_powers_in_dbm_and_rates_of_errors() -> None:
    module = optics.mlxlink(json.dumps(MLXLINK))
    assert module.values == {"temperature": [45.0], "voltage": [3.25], "rx_power": [1.0, 0.1]}
    assert module.limits["temperature"] == {"low alarm": -10, "high alarm": 80} and module.faulty == {"Rx LOS [per lane]": [1]}
    assert module.link["raw_ber"] == pytest.approx(3e-9) and module.link["link_downed"] == 2 and module.link["fec"] == "RS-FEC"
    assert module.link["effective_ber"] == pytest.approx(0)


def test_an_error_of_mlxlink_is_named() -> None:
    failed = json.dumps({"status": {"code": 1, "message": "Device is not found"}})
    assert optics.mlxlink(failed).unread == ["mlxlink says 'Device is not found'"]


@pytest.mark.parametrize(
    ("width", "los", "power", "is_unused"),
    [
        ("2x", "0,0,1,1", "1,1,-40,-40", True), ("2x", "0,1,1,1", "1,1,-40,-40", False), ("4x", "0,0,1,1", "1,1,-40,-40", False),
        # As many lanes as the link leaves over, and not the same ones.
        ("2x", "0,0,1,1", "-40,-40,1,1", False), ("N/A", "0,0,1,1", "1,1,-40,-40", False),
    ],
)  # fmt: skip
def test_lanes_that_a_link_does_not_use_are_not_judged_by_the_node(width: str, los: str, power: str, is_unused: bool) -> None:
    """As at an end of a splitter cable, or of a link that trained down: the node alone does not know."""
    tree = json.loads(json.dumps(MLXLINK))
    output = tree["result"]["output"]
    output["Operational Info"]["Width"] = width
    output["Module Info"].update({"Rx Power Current [dBm]": f"{power} [-12..5]", "Rx LOS [per lane]": los})
    problems, unused = modules._problems(optics.mlxlink(json.dumps(tree)))
    words = ["Rx LOS [per lane]", "rx power 0.0001 mW (low alarm 0.0631)"]
    assert unused == (words if is_unused else [])
    assert [code for code, _text in problems] == ([] if is_unused else ["nic_fault"])


def test_a_lane_that_is_left_over_excuses_no_other_alarm() -> None:
    tree = json.loads(json.dumps(MLXLINK))
    output = tree["result"]["output"]
    output["Operational Info"]["Width"] = "2x"
    dark = {"Rx Power Current [dBm]": "1,1,-40,-40 [-12..5]", "Rx LOS [per lane]": "0"}
    output["Module Info"].update({**dark, "Temperature [C]": "95 [-10..80]"})
    problems, unused = modules._problems(optics.mlxlink(json.dumps(tree)))
    assert unused and [code for code, _text in problems] == ["nic_fault"] and "temperature 95" in problems[0][1]


@pytest.mark.parametrize(
    ("words", "wired"),
    [
        ("Channels implemented [1_2],Channels not implemented [3_4]/Far end is unspecified", 2),
        ("Channels implemented [1,2,3,4]/Cable with single far-end with 4 channels implemented", 4),
        ("OSFP to OSFP", None), ("N/A", None), (None, None),
    ],
)  # fmt: skip
def test_the_lanes_that_a_module_has_wired_are_read(words: str | None, wired: int | None) -> None:
    tree = json.loads(json.dumps(MLXLINK))
    tree["result"]["output"]["Module Info"]["Cable Breakout"] = words
    assert optics.mlxlink(json.dumps(tree)).wired == wired
