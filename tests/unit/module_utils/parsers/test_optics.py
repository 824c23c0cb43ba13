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


def changed(**sections: dict[str, object]) -> optics.Optics:
    """Return what mlxlink says with some fields of its sections changed."""
    tree = json.loads(json.dumps(MLXLINK))
    for name, fields in sections.items():
        tree["result"]["output"].setdefault(name.replace("_", " "), {}).update(fields)
    return optics.mlxlink(json.dumps(tree))


ZEROS = {
    "Temperature [C]": "0 [0..0]", "Voltage [mV]": "0 [0..0]", "Bias Current [mA]": "0,0,0,0 [0..0]",
    "Rx Power Current [dBm]": "0,0,0,0 [0..0]", "Tx Power Current [dBm]": "0,0,0,0 [0..0]",
}  # fmt: skip
FLAGS = {"Rx LOS [per lane]": {"values": ["1", "0", "1", "1"]}, "Rx CDR LOL [per lane]": {"values": ["1", "1", "1", "1"]}}


@pytest.mark.parametrize(
    "kind",
    [
        {"Cable Type": "Passive copper cable"}, {"Cable Technology": "Copper cable, passive, unequalized"},
        {"Cable Technology": "Copper cable unequalized"}, {"Cable Technology": "Passive"},
    ],
)  # fmt: skip
def test_flags_and_zeros_of_a_passive_cable_are_no_alarms_and_no_values(kind: dict[str, str]) -> None:
    """MFT 4.35 prints both for a cable whose link is up; 0 dBm would be a milliwatt."""
    module = changed(Module_Info={**ZEROS, **FLAGS, **kind})
    assert module.values == {} and module.faulty == {} and module.unread == ["the module has no diagnostics, as a passive cable"]
    assert module.link["raw_ber"] == pytest.approx(3e-9) and modules._problems(module) == ([], [])


def test_an_active_cable_keeps_its_flags_and_zeros_without_a_voltage_are_no_values() -> None:
    active = changed(Module_Info={**FLAGS, "Cable Technology": "Copper cable, linear active equalizers"})
    assert active.faulty and modules._problems(active)[0][0][0] == "nic_fault"
    assert changed(Module_Info=ZEROS).values == {}


@pytest.mark.parametrize(("opcode", "is_advice"), [("0", False), ("1023", False), ("N/A", False), ("2", True)])
def test_that_mlxlink_knows_nothing_is_no_advice(opcode: str, is_advice: bool) -> None:
    module = changed(Troubleshooting_Info={"Status Opcode": opcode, "Recommendation": "Info not available"})
    assert ("advice" in module.link) is is_advice


def test_what_mlxlink_could_not_read_is_named() -> None:
    tree = json.loads(json.dumps(MLXLINK))
    del tree["result"]["output"]["Physical Counters and BER Info"]
    tree["status"] = {"code": 1, "message": "Showing BER via PPCNT raised the following exception: no answer\n"}
    unread = optics.mlxlink(json.dumps(tree)).unread
    assert unread[0] == "mlxlink prints no bit error rates" and "Showing BER via PPCNT raised" in unread[1]


def test_a_value_and_its_limits_under_one_key_are_both_read() -> None:
    """As ethtool 6.15 prints them: the first one is the value."""
    text = """[ {"identifier": 17, "vendor_name": "Maker", "vendor_sn": "A1",
        "extended_identifier": {"value": 207, "description": "a", "description": "b"},
        "module_temperature": 56.98, "module_voltage": 3.259, "laser_tx_bias_current": [ 7,8 ],
        "module_temperature": {"high_alarm_threshold": 80, "low_alarm_threshold": -10},
        "module_voltage": {"high_alarm_threshold": 3.5} } ]"""
    module = optics.ethtool(text)
    assert module.values == {"temperature": [56.98], "voltage": [3.259], "bias": [7, 8]}
    assert module.limits == {"temperature": {"high alarm": 80, "low alarm": -10}, "voltage": {"high alarm": 3.5}}


def test_powers_in_dbm_alone_are_converted_and_a_wrong_unit_is_no_value() -> None:
    text = QSFP.replace("1.3924 mW / 1.44 dBm", "1.44 dBm").replace("0.0000 mW / -inf dBm", "-inf dBm")
    module = optics.ethtool(text.replace("0.0467 mW / -13.31 dBm", "-13.31 dBm"))
    assert module.values["tx_power"] == [pytest.approx(1.3932, abs=1e-4)] and module.values["rx_power"] == [0.972, 0]
    assert module.limits["rx_power"] == {"low alarm": pytest.approx(0.0467, abs=1e-4)} and module.unread == []
    assert isinstance(optics.ethtool(QSFP.replace("3.2350 V", "3.2350 mA")).values["voltage"][0], Absent)


@pytest.mark.parametrize("identifier", ["0xff (reserved or unknown)", "0x00 (no module present, unknown, or unspecified)"])
def test_a_memory_that_cannot_be_read_is_no_module_with_alarms(identifier: str) -> None:
    """It reads 0xff or 0 throughout: 130 mA, 6.5 V, and all flags on."""
    text = f"\tIdentifier : {identifier}\n\tLaser bias current : 130.046 mA\n\tLaser bias current high alarm : On\n"
    module = optics.ethtool(text)
    assert module.alarms == [] and module.values == {}
    assert module.unread == [f"the memory of the module cannot be read: its identifier is {identifier}"]
    assert optics.ethtool(json.dumps([{"identifier": 255, "vendor_name": "x"}])).vendor == ""


COPPER = """\tIdentifier                                : 0x11 (QSFP28)
\tTransmitter technology                    : 0xa0 (Copper cable unequalized)
\tVendor SN                                 : C1
\tModule temperature                        : 0.00 degrees C / 32.00 degrees F
\tModule voltage                            : 0.0000 V
\tAlarm/warning flags implemented           : No
\tLaser tx bias current (Channel 1)         : 0.000 mA
\tTransmit avg optical power (Channel 1)    : 0.0000 mW / -inf dBm
\tRcvr signal avg optical power(Channel 1)  : 0.0001 mW / -40.00 dBm
"""


@pytest.mark.parametrize("technology", ["0xa0 (Copper cable unequalized)", "0xb0 (Copper cable passive equalized)", "0x00 (850 nm VCSEL)"])
def test_zeros_of_a_cable_that_measures_nothing_are_no_values(technology: str) -> None:
    module = optics.ethtool(COPPER.replace("0xa0 (Copper cable unequalized)", technology))
    assert module.serial == "C1" and module.values == {} and module.unread == ["the module has no diagnostics, as a passive cable"]


def test_a_value_beside_a_voltage_that_is_not_told_is_kept() -> None:
    module = optics.ethtool(COPPER.replace("0xa0 (Copper cable unequalized)", "0x00 (850 nm VCSEL)").replace("0.000 mA", "33.410 mA"))
    assert module.values == {"bias": [33.41]}
    warm = optics.ethtool(QSFP.replace("3.2350 V", "0.0000 V"))
    assert warm.values["voltage"] == [0] and warm.values["temperature"] == [30.5]


def four_of_eight(first: int = 1, dark_rx: str = "0.0000 mW / -inf dBm", flag: str = "Off") -> str:
    """A module with eight electrical and four optical lanes, such as 400GBASE-DR4."""
    lines = ["Identifier : 0x18 (QSFP-DD)", "Vendor SN : D1", "Module temperature : 60.00 degrees C", "Module voltage : 3.2000 V"]
    for lane in range(8):
        lit = lane < 4
        lines += [
            f"Laser tx bias current (Channel {lane + first}) : {'80.000' if lit else '0.000'} mA",
            f"Transmit avg optical power (Channel {lane + first}) : {'1.5000 mW / 1.76 dBm' if lit else '0.0001 mW / -40.00 dBm'}",
            f"Rcvr signal avg optical power (Channel {lane + first}) : {'1.8000 mW / 2.55 dBm' if lit else dark_rx}",
            f"Laser tx power low alarm (Channel {lane + first}) : {'Off' if lit else flag}",
        ]
    lines += ["Laser bias current low alarm threshold : 10.000 mA", "Laser output power low alarm threshold : 0.4000 mW / -3.98 dBm"]
    return "\n".join([*lines, "Laser rx power low alarm threshold : 0.1288 mW / -8.90 dBm"])


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("flag", ["Off", "On"])
def test_lanes_that_a_module_of_ethernet_does_not_have_are_not_dark(first: int, flag: str) -> None:
    module = optics.ethtool(four_of_eight(first, flag=flag))
    assert module.unlit() == {4, 5, 6, 7} and modules._problems(module, is_ethernet=True) == ([], [])
    assert modules._problems(module)[0][0][0] == "nic_fault", "InfiniBand may have trained down"


def test_a_lane_with_light_from_the_other_end_and_none_of_its_own_is_dark() -> None:
    module = optics.ethtool(four_of_eight(dark_rx="1.2000 mW / 0.79 dBm"))
    assert module.unlit() == set() and modules._problems(module, is_ethernet=True)[0][0][0] == "nic_fault"


def test_a_module_that_is_dark_throughout_has_no_lanes_that_are_missing() -> None:
    text = four_of_eight().replace("80.000 mA", "0.000 mA").replace("1.5000 mW", "0.0000 mW").replace("1.8000 mW", "0.0000 mW")
    module = optics.ethtool(text)
    assert module.unlit() == set() and modules._problems(module, is_ethernet=True)[0][0][0] == "nic_fault"


def test_the_width_of_a_link_of_ethernet_excuses_no_dark_lanes() -> None:
    dark = {
        "Bias Current [mA]": "7,7,0,0 [5..9]", "Tx Power Current [dBm]": "1,1,-40,-40 [-5..5]",
        "Rx Power Current [dBm]": "1,1,-40,-40 [-12..5]", "Rx LOS [per lane]": "0,0,1,1",
    }  # fmt: skip
    whole = changed(Module_Info=dark)
    assert modules._problems(whole, is_ethernet=True) == ([], [])
    narrow = changed(Module_Info=dark, Operational_Info={"Width": "2x"})
    problems, unused = modules._problems(narrow, is_ethernet=True)
    assert problems == [] and len(unused) == 4, "judged with those of all nodes"


def limited(temperature: str, power: str) -> str:
    """A module of SFP with limits of two of its values, high and low."""
    lines = ["Identifier : 0x03 (SFP)", "Vendor SN : S1", "Laser output power : 5.7000 mW / 7.56 dBm", "Module voltage : 0.2287 V"]
    lines += ["Module temperature : 1.00 degrees C", "Laser output power low alarm : On"]
    for name, unit, pair in (("Module temperature", "degrees C", temperature), ("Laser output power", "mW", power)):
        high, low = pair.split("..")
        lines += [f"{name} high alarm threshold : {high} {unit}", f"{name} low alarm threshold : {low} {unit}"]
    return "\n".join(lines)


def test_limits_that_contradict_each_other_are_of_another_page() -> None:
    """A driver that cannot turn the page has the name of the maker in place of diagnostics, and reads alarms in it."""
    module = optics.ethtool(limited("3.02..7.06", "0.8224..0.8224"))
    assert (module.serial, module.values, module.limits, module.alarms) == ("S1", {}, {}, [])
    assert module.unread[0].startswith("the limits of its temperature and tx power contradict each other")
    for temperature, power in (("80.00..-10.00", "0.8224..0.8224"), ("80.00..-10.00", "0.0000..0.0000"), ("0.00..0.00", "0.0000..0.0000")):
        assert optics.ethtool(limited(temperature, power)).alarms == ["laser output power low alarm"]
