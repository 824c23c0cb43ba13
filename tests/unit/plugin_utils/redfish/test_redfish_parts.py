# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of a machine that are missing, stand still, leak, are throttled or cannot be used, as Redfish has them beside their health."""

from __future__ import annotations

import copy
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.redfish import parts, reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.redfish.client import Resource, Service
from harness import redfish_service as of_service
from harness.redfish_service import BASE, CHASSIS, ENTRIES, OK, SYSTEM

Tree = t.Dict[str, Resource]


class Controller(Service):
    def __init__(self, tree: Tree) -> None:
        super().__init__("https://bmc", "reader", "x", float("inf"))
        self.tree = tree

    def get(self, path: str) -> Resource:
        if path.rstrip("/") not in self.tree:
            raise ReasonedError("bmc_unreadable", path)
        return self.tree[path.rstrip("/")]


def told(change: t.Callable[[Tree], t.Any]) -> list[tuple[str, str]]:
    tree = copy.deepcopy(of_service.machine())
    change(tree)
    seen = reading.observe(Controller(tree))
    assert seen.get("reason_code") in (None, "", "bmc_fault"), seen
    return [(finding["code"], finding["text"].partition("management controller: ")[2]) for finding in seen["context"].get("findings", [])]


def add(tree: Tree, owner: str, name: str, *members: Resource) -> None:
    """Give a resource a collection of members."""
    path = f"{owner}/{name}"
    tree[owner][name] = {"@odata.id": path}
    tree[path] = {"Members": [{"@odata.id": f"{path}/{n}", **member} for n, member in enumerate(members)]}


def fan(**changed: t.Any) -> Resource:
    return {"Name": "FAN9", "MemberId": "9", "ReadingUnits": "RPM", "Status": dict(OK), **changed}


@pytest.mark.parametrize(
    ("standing", "code"),
    [
        (fan(Reading=0), "bmc_fault"),
        (fan(Reading=0.0), "bmc_fault"),
        (fan(SpeedPercent={"SpeedRPM": 0}), "bmc_fault"),
        (fan(SpeedPercent={"Reading": 0}), "bmc_fault"),
        (fan(Reading=0, Status={"State": "Enabled"}), "bmc_fault"),
        (fan(Reading=0, Name="PSU2 Fan"), "bmc_event"),
        (fan(Reading=0, Status={"State": "StandbySpare"}), None),
        (fan(Reading=0, Status={"State": "Absent"}), None),
        (fan(Reading=None, Status={"State": "Absent"}), None),
        (fan(Reading=8000), None),
        (fan(Reading=0, LowerThresholdCritical=1000), "bmc_fault"),
        (fan(Reading=0, Status={**OK, "Health": "Critical"}), "bmc_fault"),
    ],
)
def test_a_fan_that_stands_among_fans_that_turn(standing: Resource, code: str | None) -> None:
    found = told(lambda tree: tree[f"{CHASSIS}/Thermal"]["Fans"].append(standing))
    assert [each for each, _words in found] == ([code] if code else [])


def test_fans_that_all_stand_are_a_warning() -> None:
    def stop(tree: Tree) -> None:
        for each in tree[f"{CHASSIS}/Thermal"]["Fans"]:
            each.update(Reading=0, LowerThresholdCritical=None)

    assert [code for code, _words in told(stop)] == ["bmc_event", "bmc_event"]


@pytest.mark.parametrize(
    ("kind", "part", "code"),
    [
        ("leak detector", {"DetectorState": "Critical"}, "bmc_fault"),
        ("leak detector", {"DetectorState": "Warning"}, "bmc_event"),
        ("leak detector", {"DetectorState": "OK"}, None),
        ("leak detector", {"DetectorState": "Critical", "Status": {"State": "Absent"}}, None),
        ("processor", {"Throttled": True}, "bmc_fault"),
        ("processor", {"Throttled": True, "ProcessorType": "CPU"}, "bmc_fault"),
        ("processor", {"Throttled": True, "ProcessorType": "GPU", "ThrottleCauses": ["PowerLimit"]}, "bmc_event"),
        ("processor", {"Throttled": False}, None),
        ("processor", {"Throttled": None, "ThrottleCauses": None}, None),
        ("battery", {"Status": {"State": "Enabled", "Health": "Warning"}}, "bmc_event"),
        ("power supply", {"Status": {"State": "UnavailableOffline"}}, "bmc_event"),
        ("power supply", {"Status": {"State": "Degraded", "Health": "OK"}}, "bmc_event"),
        *(
            ("power supply", {"Status": {"State": word, "Health": "OK"}}, None)
            for word in (
                "Enabled",
                "Absent",
                "StandbyOffline",
                "StandbySpare",
                "Disabled",
                "Deferring",
                "Quiesced",
                "Updating",
                "Starting",
                "InTest",
                "new",
            )
        ),
        ("memory module", {"Status": {"State": "Disabled", "Health": "OK"}, "SerialNumber": "A1"}, "bmc_event"),
        ("memory module", {"Status": {"State": "Disabled", "Health": "OK"}}, None),
        ("memory module", {"Status": dict(OK), "CapacityMiB": 65536, "Enabled": False}, "bmc_event"),
        ("memory module", {"Status": dict(OK), "CapacityMiB": 65536, "Enabled": True}, None),
        ("memory module", {"Status": dict(OK), "Oem": {"Hpe": {"DIMMStatus": "GoodInUse"}}}, None),
        ("memory module", {"Status": dict(OK), "Oem": {"Hpe": {"DIMMStatus": "MapOutError"}}}, "bmc_fault"),
        ("memory module", {"Status": dict(OK), "Oem": {"Hp": {"DIMMStatus": "Degraded"}}}, "bmc_event"),
        ("memory module", {"Status": {"State": "Absent"}, "Oem": {"Hpe": {"DIMMStatus": "NotPresent"}}}, None),
    ],
)
def test_states_beside_the_health(kind: str, part: Resource, code: str | None) -> None:
    assert [found for found, _words in parts.problems(kind, {"Name": "X", **part})] == ([code] if code else [])


def test_where_leaks_batteries_and_processors_are() -> None:
    def change(tree: Tree) -> None:
        tree[CHASSIS]["ThermalSubsystem"] = {"@odata.id": f"{CHASSIS}/T"}
        tree[f"{CHASSIS}/T"] = {"LeakDetection": {"@odata.id": f"{CHASSIS}/T/L"}}
        tree[f"{CHASSIS}/T/L"] = {"Name": "Leaks", "Status": {"Health": "OK"}}
        add(tree, f"{CHASSIS}/T/L", "LeakDetectors", {"Name": "Tray 3", "Status": dict(OK), "DetectorState": "Critical"})
        tree[CHASSIS]["PowerSubsystem"] = {"@odata.id": f"{CHASSIS}/P"}
        tree[f"{CHASSIS}/P"] = {"Name": "Power"}
        add(tree, f"{CHASSIS}/P", "Batteries", {"Name": "BBU", "Status": {"State": "Enabled", "Health": "Critical"}})
        add(tree, SYSTEM, "Processors", {"Name": "CPU1", "Status": dict(OK), "Throttled": True}, {"Name": "CPU2", "Status": dict(OK)})

    assert sorted(told(change)) == [
        ("bmc_fault", "battery BBU: health Critical"),
        ("bmc_fault", "leak detector Tray 3: it reports a leak (state Critical)"),
        ("bmc_fault", "processor CPU1: it is throttled"),
    ]


def test_what_a_rack_has_of_its_own() -> None:
    """Power shelves, coolant and leak detectors of a rack hang at the root of the service and not at a chassis."""
    power, coolant = f"{BASE}/PE", f"{BASE}/TE"
    supply = {"Name": "PSU 4", "Status": {"State": "Enabled", "Health": "Critical"}}
    pump = {"Name": "Pump 2", "Status": {"State": "Enabled", "Health": "Warning"}}

    def change(tree: Tree) -> None:
        tree[BASE].update(PowerEquipment={"@odata.id": power}, ThermalEquipment={"@odata.id": coolant})
        tree[power], tree[coolant] = {"Name": "Power"}, {"Name": "Coolant", "LeakDetection": {"@odata.id": f"{coolant}/L"}}
        tree[f"{coolant}/L"] = {"Name": "Leaks", "Status": dict(OK)}
        leaks = [{"Name": name, "DetectorState": word, "Status": dict(OK)} for name, word in (("Rope", "Warning"), ("Pan", "OK"))]
        add(tree, f"{coolant}/L", "LeakDetectors", *leaks)
        shelves = [{"Name": f"Shelf {n}", "Status": dict(OK)} for n in (1, 2)]
        shelves[1]["PowerSupplies"] = {"@odata.id": f"{power}/2"}
        tree[f"{power}/2"] = {"Members": [{"@odata.id": f"{power}/2/4", **supply}]}
        add(tree, power, "PowerShelves", *shelves)
        add(tree, coolant, "CDUs", {"Name": "CDU 1", "Status": dict(OK), "Pumps": {"@odata.id": f"{coolant}/P"}})
        tree[f"{coolant}/P"] = {"Members": [{"@odata.id": f"{coolant}/P/2", **pump}]}

    assert sorted(told(change)) == [
        ("bmc_event", "leak detector Rope: it reports a leak (state Warning)"),
        ("bmc_event", "pump Pump 2: health Warning"),
        ("bmc_fault", "power supply of a shelf PSU 4: health Critical"),
    ]
    tree = copy.deepcopy(of_service.machine())
    change(tree)
    looked = reading.observe(Controller(tree))["context"]["looked_for"]
    assert {"2 leak detectors", "2 power shelves", "1 power supplies of shelves", "1 coolant units"} <= set(looked)


GONE = {"Severity": "Warning", "EntryCode": "Deassert", "SensorType": "Power Supply", "Message": "Presence detected", "Id": "7"}


@pytest.mark.parametrize(("status", "code"), [({"State": "Absent"}, "bmc_fault"), (OK, "bmc_event")])
def test_a_supply_that_the_log_calls_gone(status: Resource, code: str) -> None:
    """A part that is missing cannot say so itself; one that is listed as present has come back, or another one has gone."""

    def change(tree: Tree) -> None:
        tree[ENTRIES]["Members"] = [dict(GONE)]
        tree[f"{CHASSIS}/Power"]["PowerSupplies"][1]["Status"] = dict(status)

    assert [found for found, _words in told(change)] == [code]


def test_parts_for_the_comparison_of_machines() -> None:
    tree = of_service.machine()
    tree[SYSTEM].update(Manufacturer="Example", Model="GPU-8X")
    tree[f"{CHASSIS}/Power"]["PowerSupplies"][1]["Status"] = {"State": "Absent"}
    context = reading.observe(Controller(tree))["context"]
    assert context["product"] == "Example GPU-8X"
    assert context["parts"]["power supplies"] == {"PSU1 0": True, "PSU2 1": False} and context["parts"]["fans"] == {
        "FAN1 0": True,
        "FAN2 1": True,
    }


def test_a_log_that_was_put_right_and_one_of_logins() -> None:
    def change(tree: Tree) -> None:
        tree[ENTRIES]["Members"] = [
            {"Id": "1", "Created": "2026-11-24T06:54:01Z", "Severity": "Critical", "Message": "Power supply redundancy is lost."},
            {"Id": "2", "Created": "2026-11-24T06:54:02Z", "Severity": "OK", "Message": "The power supplies are redundant."},
            {"Id": "3", "Created": "2026-11-24T06:54:03Z", "Severity": "Warning", "Message": "A login failed"},
            {
                "Id": "4",
                "Created": "2026-11-24T06:54:04Z",
                "Severity": "Critical",
                "Message": "Fan 1 failed",
                "Oem": {"Hpe": {"Repaired": True}},
            },
        ]
        logs = f"{SYSTEM}/LogServices"
        tree[logs]["Members"].append({"@odata.id": f"{logs}/IEL"})
        tree[f"{logs}/IEL"] = {"Id": "IEL", "Name": "iLO Event Log", "Entries": {"@odata.id": f"{logs}/IEL/Entries"}}
        tree[f"{logs}/IEL/Entries"] = {"Members": [{"Id": "1", "Severity": "Critical", "Message": "Fan 2 failed"}]}

    assert told(change) == []


BAD = {"State": "Enabled", "Health": "Critical"}
PREDICTED = {"FailurePredicted": True}


@pytest.mark.parametrize(
    ("name", "part", "code"),
    [
        ("Drives", {"Name": "Disk 3", "Status": BAD}, "bmc_fault"),
        ("Drives", {"Name": "Disk 3", "Status": OK, **PREDICTED}, "bmc_event"),
        ("Drives", {"Name": "Disk 3", "Status": OK}, None),
        ("Drives", {"Name": "Bay 3", "Status": {"State": "Absent"}}, None),
        ("Volumes", {"Name": "Mirror", "Status": {"State": "Enabled", "Health": "Warning"}}, "bmc_event"),
        ("Volumes", {"Name": "Mirror", "Status": BAD}, "bmc_fault"),
        ("Controllers", {"Name": "RAID", "Status": BAD}, "bmc_fault"),
        ("StorageControllers", {"Name": "RAID", "Status": BAD}, "bmc_fault"),
    ],
)
def test_disks_volumes_and_their_controllers(name: str, part: Resource, code: str | None) -> None:
    def change(tree: Tree) -> None:
        add(tree, SYSTEM, "Storage", {"Name": "Storage", "Status": OK})
        storage = f"{SYSTEM}/Storage/0"
        tree[storage] = tree[f"{SYSTEM}/Storage"]["Members"][0] = {"@odata.id": storage, "Name": "Storage", "Status": OK}
        if name in ("Volumes", "Controllers"):
            add(tree, storage, name, part)
        elif name == "Drives":
            tree[storage][name] = [{"@odata.id": f"{storage}/{name}/0"}]
            tree[f"{storage}/{name}/0"] = part
        else:
            tree[storage][name] = [part]

    assert [found for found, _words in told(change)] == ([code] if code else [])


def test_a_voltage_beyond_its_limit() -> None:
    def change(tree: Tree) -> None:
        tree[f"{CHASSIS}/Power"]["Voltages"] = [
            {"Name": "P12V", "Reading": 12.1, "Status": OK}, {"Name": "P5V", "ReadingVolts": 4.1, "Status": BAD},
        ]  # fmt: skip

    assert told(change) == [("bmc_fault", "voltage P5V: health Critical")]


@pytest.mark.parametrize("status", [{"State": "Enabled"}, {"State": "Enabled", "Health": None}, {"State": "Enabled", "Health": "Unknown"}])
@pytest.mark.parametrize("kind", ["PowerSupplies", "Fans", "Memory"])
def test_a_part_that_says_nothing_beside_others_that_do_is_unknown(kind: str, status: Resource) -> None:
    tree = copy.deepcopy(of_service.machine())
    part = {
        "PowerSupplies": tree[f"{CHASSIS}/Power"]["PowerSupplies"][1], "Fans": tree[f"{CHASSIS}/Thermal"]["Fans"][1],
        "Memory": tree[f"{SYSTEM}/Memory/DIMM3"],
    }[kind]  # fmt: skip
    part.update(Status=status)
    part.pop("Reading", None)
    seen = reading.observe(Controller(tree))
    assert (seen["outcome"], seen["reason_code"]) == ("error", "bmc_unreadable") and "others of its kind have" in seen["reason"]
    part.update(Status={"State": "Absent"})
    assert reading.observe(Controller(tree))["outcome"] == "measured"
