# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node says of the fabric that it is plugged into, with recorded and with missing tools."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import fabric_map
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import node as nodes
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.process import CommandResult

FIXTURES = pathlib.Path(__file__).resolve().parents[3] / "fixtures"
OPTIONS = {"devices": [], "required": False, "optional": False, "watch": 0.0, "tool_timeout": 5.0}
ALL = ("ibnetdiscover", "iblinkinfo", "ibqueryerrors", "sminfo", "lldpctl")


class RecordedNode(nodes.Node):
    """A node below a folder, whose tools print what the recordings of one fabric have."""

    def __init__(self, root: pathlib.Path, tools: t.Collection[str], fabric: str = "healthy") -> None:
        super().__init__(60.0, root=str(root))
        self.there, self.fabric = tools, fabric
        self.changed: dict[str, str] = {}
        self.errors: dict[str, str] = {}
        self.firmware: t.Callable[[int], str] = lambda _lid: ""
        self.asked: list[str] = []

    def which(self, name: str) -> str | None:
        return name if name in self.there else None

    def run(self, argv: list[str], *_more: t.Any, **_others: t.Any) -> CommandResult:
        files = {"iblinkinfo": "iblinkinfo-l", "sminfo": "sminfo"}
        result = CommandResult(argv)
        result.rc, result.err = 0, self.errors.get(argv[0], "")
        if argv[0] in self.changed:
            result.out = self.changed[argv[0]]
        elif argv[0] == "vendstat":
            self.asked.append(argv[-1])
            version = self.firmware(int(argv[-1]))
            result.out, result.rc = (f"fw_version:  {version}\n", 0) if version else ("vendstat: method 1, attribute 1 failure", 255)
        elif argv[0] == "lldpctl":
            result.out = (FIXTURES / "lldpd/healthy-gpu-01.json").read_text()
        else:
            folder = "healthy" if argv[0] == "sminfo" else self.fabric
            result.out = (FIXTURES / "infiniband" / folder / f"{files.get(argv[0], argv[0])}.txt").read_text()
        return result


def plant(root: pathlib.Path, layer: str = "InfiniBand", state: str = "4: ACTIVE", managed: bool = True) -> pathlib.Path:
    port = root / "sys/class/infiniband/mlx5_0/ports/1"
    (port / "gids").mkdir(parents=True)
    values = {"state": state, "phys_state": "5: LinkUp", "link_layer": layer, "rate": "200 Gb/sec (4X HDR)", "sm_lid": "0x1"}
    for name, value in values.items():
        (port / name).write_text(value)
    (port / "gids/0").write_text("fe80:0000:0000:0000:a088:c203:0001:0021")
    if layer == "Ethernet":
        (port / "gid_attrs/ndevs").mkdir(parents=True)
        (port / "gid_attrs/types").mkdir(parents=True)
        (port / "gid_attrs/ndevs/0").write_text("eth0")
        (port / "gid_attrs/types/0").write_text("RoCE v2")
    if managed:
        (root / "dev/infiniband").mkdir(parents=True)
        (root / "dev/infiniband/umad0").touch()
    return root


def seen(node: RecordedNode, check: str, **options: t.Any) -> dict[str, t.Any]:
    (found,) = fabric_map.probe({**OPTIONS, **options, "checks": [{"check": check, "variant": ""}]}, node)
    return t.cast("dict[str, t.Any]", found)


def test_a_fabric_is_discovered_whole_with_its_counters_and_its_subnet_manager(tmp_path: pathlib.Path) -> None:
    found = seen(RecordedNode(plant(tmp_path), ALL, "counters"), "discovery")
    (fabric,) = found["context"]["fabrics"]
    assert found["outcome"] == "measured" and len(fabric["devices"]) == 22 and len(fabric["links"]) == 32
    assert len(fabric["errors"]) == 3 and fabric["rose"] == [] and fabric["manager_lid"] == 1
    assert list(fabric["not_looked_for"]) == ["vendstat", "dump_fts"] and "not installed" in fabric["not_looked_for"]["vendstat"]


def test_states_of_ports_that_are_cut_at_the_end_of_a_line_are_not_all(tmp_path: pathlib.Path) -> None:
    node = RecordedNode(plant(tmp_path), ALL)
    lines = (FIXTURES / "infiniband/healthy/iblinkinfo-l.txt").read_text().splitlines(keepends=True)
    node.changed["iblinkinfo"] = "".join(lines[:60])
    (fabric,) = seen(node, "discovery")["context"]["fabrics"]
    assert "iblinkinfo: 4 of 64 ports with a cable are not listed" in fabric["not_looked_for"]["iblinkinfo"]
    node.changed["iblinkinfo"] = "".join(lines)
    (fabric,) = seen(node, "discovery")["context"]["fabrics"]
    assert "iblinkinfo" not in fabric["not_looked_for"] and fabric["wider"] == []


@pytest.mark.parametrize(
    ("text", "silent", "state"),
    [
        ("sminfo: sm lid 1 sm guid 0xa088c20300010011, activity count 5 priority 0 state 2 SMINFO_STANDBY\n", True, "STANDBY"),
        ("sminfo: iberror: failed: query\n", True, ""), ("sminfo: error while loading shared libraries\n", False, ""),
    ],
)  # fmt: skip
def test_a_subnet_manager_that_waits_or_does_not_answer_is_none(text: str, silent: bool, state: str, tmp_path: pathlib.Path) -> None:
    node = RecordedNode(plant(tmp_path), ALL)
    node.changed["sminfo"] = text
    (fabric,) = seen(node, "discovery")["context"]["fabrics"]
    assert (fabric["manager_lid"], fabric["manager_silent"], fabric["manager_state"]) == (None, silent, state)
    assert ("sminfo" in fabric["not_looked_for"]) != silent, "one that is known not to answer was looked for"


def test_counters_of_errors_that_cannot_be_read_are_told_from_a_tool_that_is_missing(tmp_path: pathlib.Path) -> None:
    node = RecordedNode(plant(tmp_path), ALL)
    node.changed["ibqueryerrors"] = "## Summary: 22 nodes checked, 0 bad nodes found\n"
    (fabric,) = seen(node, "discovery")["context"]["fabrics"]
    assert fabric["unread"] == {"ibqueryerrors": "ibqueryerrors: the summary of ibqueryerrors is missing"}
    (fabric,) = seen(RecordedNode(tmp_path, ("ibnetdiscover",)), "discovery")["context"]["fabrics"]
    assert fabric["unread"] == {} and "ibqueryerrors" in fabric["not_looked_for"]


def test_counters_that_healthy_links_have_are_not_asked_for(tmp_path: pathlib.Path) -> None:
    node, asked = RecordedNode(plant(tmp_path), ALL), []
    run = node.run
    node.run = lambda argv, *more, **others: asked.append(argv) or run(argv, *more, **others)  # type: ignore[method-assign, func-returns-value]
    seen(node, "discovery")
    (options, again) = [argv for argv in asked if argv[0] == "ibqueryerrors"]
    assert options == again and options[1:3] == ["-s", "PortXmitWait,PortRcvSwitchRelayErrors"]


def test_errors_that_were_found_stand_beside_ports_that_did_not_answer(tmp_path: pathlib.Path) -> None:
    """A port that answers the second time alone has not counted all of its errors in between."""
    node = RecordedNode(plant(tmp_path), ALL)
    whole = (FIXTURES / "infiniband/counters/ibqueryerrors.txt").read_text()
    without = whole.replace("3 ports have errors", "2 ports have errors") + "##          1 PMA query failures\n"
    looks = iter(["".join(line for line in without.splitlines(keepends=True) if "port 2:" not in line), whole])
    run = node.run

    def answers(argv: list[str], *more: t.Any, **others: t.Any) -> CommandResult:
        if argv[0] == "ibqueryerrors":
            node.changed["ibqueryerrors"] = next(looks)
        return run(argv, *more, **others)

    node.run = answers  # type: ignore[method-assign]
    (fabric,) = seen(node, "discovery")["context"]["fabrics"]
    assert len(fabric["errors"]) == 3 and fabric["rose"] == []
    assert fabric["unread"]["ibqueryerrors"].startswith("ibqueryerrors: 1 queries for counters failed")


def test_the_routes_of_all_switches_are_read(tmp_path: pathlib.Path) -> None:
    (fabric,) = seen(RecordedNode(plant(tmp_path), (*ALL, "dump_fts")), "discovery")["context"]["fabrics"]
    assert len(fabric["routes"]) == 6 and "dump_fts" not in fabric["not_looked_for"]


def test_the_firmware_of_each_switch_that_tells_it_is_read(tmp_path: pathlib.Path) -> None:
    node = RecordedNode(plant(tmp_path), (*ALL, "vendstat"))
    node.firmware = lambda lid: "" if lid == 10 else "31.2012.1024"
    (fabric,) = seen(node, "discovery")["context"]["fabrics"]
    assert len(fabric["firmware"]) == 5 and set(fabric["firmware"].values()) == {"31.2012.1024"}
    assert "1 of 6 switches did not tell their firmware, MF0;leaf-4" in fabric["not_looked_for"]["vendstat"]


def test_switches_that_do_not_tell_their_firmware_are_not_all_asked(tmp_path: pathlib.Path) -> None:
    node = RecordedNode(plant(tmp_path), (*ALL, "vendstat"))
    (fabric,) = seen(node, "discovery")["context"]["fabrics"]
    assert len(node.asked) == 3 and fabric["firmware"] == {}
    assert "6 of 6 switches did not tell their firmware" in fabric["not_looked_for"]["vendstat"]


def test_ports_without_a_link_say_why(tmp_path: pathlib.Path) -> None:
    (fabric,) = seen(RecordedNode(plant(tmp_path), ALL, "missing"), "discovery")["context"]["fabrics"]
    assert ["fc6a1c0300020030", 6, "Down", "Polling"] in fabric["down"]


def test_a_cut_discovery_is_no_fabric(tmp_path: pathlib.Path) -> None:
    node = RecordedNode(plant(tmp_path), ALL)
    node.changed["ibnetdiscover"] = (FIXTURES / "infiniband/healthy/ibnetdiscover.txt").read_text()[:3000]
    found = seen(node, "discovery")
    assert (found["outcome"], found["reason_code"]) == ("error", "incomplete_output")


def test_a_device_that_does_not_answer_makes_no_whole_fabric(tmp_path: pathlib.Path) -> None:
    """It and its cables are missing at both ends, and the tool ends with 0."""
    node = RecordedNode(plant(tmp_path), ALL)
    node.errors["ibnetdiscover"] = "query_smp.c:241; umad (DR path slid 0; dlid 0; 0,1 Attr 0x11:0) bad status 110; Connection timed out\n"
    found = seen(node, "discovery")
    assert found["reason_code"] == "incomplete_output" and "0,1 does not answer" in found["reason"]


def test_tools_beside_the_discovery_that_are_missing_are_named(tmp_path: pathlib.Path) -> None:
    found = seen(RecordedNode(plant(tmp_path), ("ibnetdiscover",)), "discovery")
    assert found["outcome"] == "measured"
    assert {"iblinkinfo", "ibqueryerrors", "sminfo"} < set(found["context"]["not_looked_for"])


@pytest.mark.parametrize(
    ("tools", "managed", "required", "outcome", "code"),
    [
        ((), True, False, "error", "tool_missing"),
        ((), True, True, "error", "tool_missing"),
        (ALL, False, False, "error", "no_permission"),
    ],
)
def test_missing_tools_and_rights_are_said(
    tools: tuple[str, ...], managed: bool, required: bool, outcome: str, code: str, tmp_path: pathlib.Path
) -> None:
    found = seen(RecordedNode(plant(tmp_path, managed=managed), tools), "discovery", required=required)
    assert (found["outcome"], found["reason_code"]) == (outcome, code) and found["reason"]


@pytest.mark.parametrize(("tools", "managed", "words"), [((), True, "infiniband-diags"), (ALL, False, "umad")])
def test_in_a_level_a_node_without_tools_or_rights_is_skipped_with_the_reason(
    tools: tuple[str, ...], managed: bool, words: str, tmp_path: pathlib.Path
) -> None:
    found = seen(RecordedNode(plant(tmp_path, managed=managed), tools), "discovery", optional=True)
    assert (found["outcome"], found["reason_code"]) == ("not_applicable", "not_visible") and words in found["reason"]


def test_a_node_whose_infiniband_ports_are_all_down_discovers_nothing(tmp_path: pathlib.Path) -> None:
    assert seen(RecordedNode(plant(tmp_path, state="1: DOWN"), ALL), "discovery")["reason_code"] == "port_down"


def test_ports_have_their_guids_and_the_subnet_manager_that_they_know(tmp_path: pathlib.Path) -> None:
    (port,) = seen(RecordedNode(plant(tmp_path), ALL), "ports")["context"]["ports"]
    assert (port["guid"], port["sm_lid"], port["state"]) == ("a088c20300010021", 1, "ACTIVE")


def test_an_ethernet_port_has_the_switch_that_it_hears(tmp_path: pathlib.Path) -> None:
    found = seen(RecordedNode(plant(tmp_path, "Ethernet"), ALL), "ports")
    assert found["context"]["ports"][0]["heard"] == [["leaf1", "swp1", "3a:b1:38:98:fa:28"]] and found["context"]["not_looked_for"] == {}


def test_without_lldpd_the_switches_are_not_known_and_that_is_said(tmp_path: pathlib.Path) -> None:
    found = seen(RecordedNode(plant(tmp_path, "Ethernet"), ()), "ports")
    assert found["context"]["ports"][0]["heard"] == [] and "install lldpd" in found["context"]["not_looked_for"]["lldp"]


def test_modules_that_no_tool_can_read_are_skipped_with_the_reason(tmp_path: pathlib.Path) -> None:
    found = seen(RecordedNode(plant(tmp_path), ()), "optics")
    assert (found["outcome"], found["reason_code"]) == ("not_applicable", "not_visible") and "mlx5_0 port 1" in found["reason"]


def test_modules_that_are_required_and_cannot_be_read_are_unknown(tmp_path: pathlib.Path) -> None:
    found = seen(RecordedNode(plant(tmp_path), ()), "optics", required=True)
    assert (found["outcome"], found["reason_code"]) == ("error", "no_answer")


def test_a_module_that_raises_an_alarm_is_a_finding_of_its_port(tmp_path: pathlib.Path) -> None:
    node = RecordedNode(plant(tmp_path, "Ethernet"), ("ethtool",))
    node.changed["ethtool"] = (
        "\tIdentifier : 0x11 (QSFP28)\n\tVendor SN : A1\n\tModule temperature : 82.00 degrees C / 179.60 degrees F\n"
        "\tModule temperature high alarm threshold : 80.00 degrees C / 176.00 degrees F\n"
    )
    (finding,) = seen(node, "optics")["context"]["findings"]
    assert (finding["code"], finding["part"]) == ("nic_fault", "nic/mlx5_0/1") and "temperature 82 C (high alarm 80)" in finding["text"]


def test_a_module_in_use_that_says_words_for_numbers_is_not_known(tmp_path: pathlib.Path) -> None:
    words = "\tIdentifier : 0x11 (QSFP28)\n\tVendor SN : A1\n\tModule temperature : err\n\tModule voltage : 3.3000 V\n"
    for state, codes in (("4: ACTIVE", ["no_answer"]), ("1: DOWN", [])):
        node = RecordedNode(plant(tmp_path / state, "Ethernet", state), ("ethtool",))
        node.changed["ethtool"] = words
        assert [finding["code"] for finding in seen(node, "optics")["context"]["findings"]] == codes


def test_a_module_of_which_some_values_cannot_be_read_says_so(tmp_path: pathlib.Path) -> None:
    node = RecordedNode(plant(tmp_path, "Ethernet"), ["ethtool"])
    node.changed["ethtool"] = "Identifier : 0x18\nVendor SN : X\nModule temperature : 45,00 degrees C\nModule voltage : 3.3 V\n"
    found = seen(node, "optics")
    assert found["outcome"] == "measured" and "reads '45,00 degrees C'" in found["context"]["not_looked_for"]["modules"]


def test_a_node_without_rdma_hardware_is_in_no_fabric(tmp_path: pathlib.Path) -> None:
    assert {seen(RecordedNode(tmp_path, ALL), check)["reason_code"] for check in ("ports", "optics", "discovery")} == {"no_rdma_expected"}


def test_an_lldpctl_without_json_is_asked_for_its_other_form(tmp_path: pathlib.Path) -> None:
    node = RecordedNode(plant(tmp_path, "Ethernet"), ALL)
    node.changed["lldpctl"] = "lldp.eth0.rid=1\nlldp.eth0.chassis.mac=aa:1\nlldp.eth0.chassis.name=leaf1\nlldp.eth0.port.ifname=swp1\n"
    found = seen(node, "ports")["context"]
    assert found["ports"][0]["heard"] == [["leaf1", "swp1", "aa:1"]] and found["not_looked_for"] == {}
    node.changed["lldpctl"] = "LLDP neighbors:\nInterface: eth0\n"
    found = seen(node, "ports")["context"]
    assert found["ports"][0]["heard"] == [] and "Interface: eth0" in found["not_looked_for"]["lldp"] == found["unread"]["lldp"]
    node.changed["lldpctl"] = ""
    found = seen(node, "ports")["context"]
    assert "no neighbour is heard at eth0" in found["not_looked_for"]["lldp"] and "unread" not in found


MODULE = """\tIdentifier : 0x11 (QSFP28)
\tVendor SN : A1
\tModule temperature : 30.50 degrees C / 86.90 degrees F
\tModule voltage : 3.2350 V
\tLaser rx power low alarm (Chan 1) : On
"""


@pytest.mark.parametrize(
    ("second", "code"),
    [(MODULE, "nic_fault"), (MODULE.replace("On", "Off"), "nic_event"), ("", "nic_fault"), (MODULE.replace("A1", "B2"), "nic_fault")],
)
def test_an_alarm_that_is_over_when_the_module_is_looked_at_again_is_a_warning(second: str, code: str, tmp_path: pathlib.Path) -> None:
    node = RecordedNode(plant(tmp_path, "Ethernet"), ("ethtool",))
    looks, run = iter([MODULE, second]), node.run

    def answers(argv: list[str], *more: t.Any, **others: t.Any) -> CommandResult:
        node.changed["ethtool"] = next(looks)
        return run(argv, *more, **others)

    node.run = answers  # type: ignore[method-assign]
    found = seen(node, "optics")["context"]
    assert [finding["code"] for finding in found["findings"]] == [code] and next(looks, None) is None
    assert ("which was over at once" in found["findings"][0]["text"]) is (code == "nic_event")
