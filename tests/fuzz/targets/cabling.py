# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fuzz target: what tools print about the InfiniBand fabric, the neighbours of an interface (LLDP) and the module in a port."""

from __future__ import annotations

import pathlib
import random
import re

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import infiniband, lldp, optics

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures"
# Forms of ethtool 6.1 and mlxlink 4.2x; no machine with a module was at hand, so values are typed.
ETHTOOL = """\tIdentifier                                : 0x11 (QSFP28)
\tVendor name                               : Maker
\tVendor PN                                 : SR4
\tVendor SN                                 : A1
\tModule temperature                        : 30.56 degrees C / 87.01 degrees F
\tModule voltage                            : 3.2350 V
\tLaser tx bias current (Channel 1)         : 6.750 mA
\tTransmit avg optical power (Channel 1)    : 1.3924 mW / 1.44 dBm
\tRcvr signal avg optical power(Channel 1)  : 0.0000 mW / -inf dBm
\tLaser rx power low alarm        (Chan 1)  : On
\tModule temperature high warning           : Off
\tLaser rx power low alarm threshold        : 0.0467 mW / -13.31 dBm
"""
JSON = """[ {"identifier": 17, "vendor_name": "Maker", "vendor_pn": "SR4", "vendor_sn": "A1", "module_temperature": 56.75,
"rcvr_signal_avg_optical_power": [0.0388, 0.041], "laser_rx_power_low_alarm": [true, false],
"laser_rx_power": {"low_alarm_threshold": 0.05, "units": "mW"}} ]"""
MLXLINK = """{"result": {"output": {"Operational Info": {"FEC": "RS", "Speed": "IB-NDR", "Width": "4x"}, "Module Info":
{"Vendor Name": "Maker", "Vendor Serial Number": "A1", "Temperature [C]": "45 [-10..80]", "Rx Power Current [dBm]": "1.2,0.9 [-10.3..5]",
"Rx LOS [per lane]": "0,0"}, "Physical Counters and BER Info": {"Effective Physical BER": "15E-255", "Raw Physical BER": "3E-9",
"Link Down Counter": "0"}}}, "status": {"code": 0, "message": "success"}}"""

DISCOVERED = [path.read_text() for path in sorted((FIXTURES / "infiniband").glob("*/ibnetdiscover.txt"))]
SEEDS = [
    *(path.read_text() for path in sorted((FIXTURES / "infiniband").glob("*/*.txt"))),
    *(path.read_text() for path in sorted((FIXTURES / "lldpd").glob("*"))),
    ETHTOOL, JSON, MLXLINK,
]  # fmt: skip
TRUTHS = DISCOVERED


def check(text: str, healthy: str) -> None:
    """Never an exception; a number is finite or absent with its reason; a link of a whole fabric leads back."""
    found = infiniband.discovery(text)
    if not found.unread:
        for end, far in found.links.items():
            assert found.links[far.end].end == end and infiniband.gbps(far.width, far.speed) > 0
    for state in infiniband.states(text)[0].values():
        assert state.lane_gbps is None or state.lane_gbps > 0
    for counted in infiniband.errors(text).counters.values():
        assert all(count >= 0 for count in counted.values())
    infiniband.manager(text)
    infiniband.firmware(text)
    infiniband.routes(text)
    lldp.neighbours(text)
    lldp.heard(text)
    for module in (optics.ethtool(text), optics.mlxlink(text)):
        lanes = [*module.values.values(), [value for limits in module.limits.values() for value in limits.values()]]
        for value in (*(value for listed in lanes for value in listed), *module.link.values()):
            assert value.why if isinstance(value, Absent) else isinstance(value, str) or -1e9 < value < 1e24


def _dropped(text: str, source: random.Random) -> str | None:
    """Return the fabric without one of the two lines of a cable: a cable that is there does not vanish quietly."""
    lines = [number for number, line in enumerate(text.splitlines()) if line.startswith("[")]
    number = source.choice(lines)
    return "\n".join(line for at, line in enumerate(text.splitlines()) if at != number)


def _moved(text: str, source: random.Random) -> str | None:
    """Return the fabric with another port at the far end of one link."""
    lines = text.splitlines()
    number = source.choice([number for number, line in enumerate(lines) if line.startswith("[")])
    lines[number] = re.sub(r'"\[(\d+)\]', lambda match: f'"[{int(match.group(1)) + source.randint(1, 5)}]', lines[number], count=1)
    return "\n".join(lines)


LIES = {
    "half a cable": _dropped,
    "moved": _moved,
    "cut": lambda text, source: text[: source.randrange(200, len(text) - 60)],
}


def accepts(text: str, healthy: str) -> bool:
    return not infiniband.discovery(text).unread
