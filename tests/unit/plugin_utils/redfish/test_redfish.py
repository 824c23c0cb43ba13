# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine's management controller says by Redfish, and what is made of it where it says it badly."""

from __future__ import annotations

import contextlib
import json
import pathlib
import socket
import ssl
import threading
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.redfish import address, parts, reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.redfish.client import Service
from harness import redfish_service as of_service
from harness.redfish_service import BASE, CHASSIS, ENTRIES, PASSWORD, SYSTEM, USER, RedfishService
from rigs.services import free_port

Seen = t.Dict[str, t.Any]


@pytest.fixture
def service(tmp_path: pathlib.Path) -> t.Iterator[RedfishService]:
    with RedfishService(tmp_path) as served:
        yield served


def ask(service: RedfishService, seconds: float = 20.0, **changed: t.Any) -> Seen:
    fields = {"url": service.url, "user": USER, "password": PASSWORD, "ca_path": str(service.cert), **changed}
    seen = reading.observe(Service(deadline=time.monotonic() + seconds, **fields))
    assert PASSWORD not in json.dumps(seen)
    return seen


def told(seen: Seen) -> list[tuple[str, str]]:
    return [(finding["code"], finding["text"].partition("management controller: ")[2]) for finding in seen["context"].get("findings", [])]


def test_a_healthy_machine(service: RedfishService) -> None:
    seen = ask(service)
    assert (seen["outcome"], told(seen)) == ("measured", [])
    assert seen["context"]["looked_for"] == ["8 memory modules", "1 temperatures", "2 fans", "2 power supplies", "1 logs of events"]
    assert seen["context"]["not_looked_for"] == {}
    assert f"{SYSTEM}/LogServices/Audit/Entries" not in service.asked


def test_broken_parts_are_named_as_a_technician_needs_them(service: RedfishService) -> None:
    of_service.break_parts(service.tree)
    seen = ask(service)
    assert (seen["outcome"], seen["reason_code"]) == ("error", "bmc_fault")
    assert told(seen) == [
        ("bmc_event", "memory module DIMM2 (at P0-DIMMC1; serial number 35A1B202): health Warning"),
        ("bmc_event", "temperature Inlet Temp: reading 42 C, beyond its limit UpperThresholdNonCritical 40"),
        ("bmc_fault", "fan FAN2: reading 300 RPM, beyond its limit LowerThresholdCritical 1000"),
        ("bmc_fault", "power supply PSU2 (serial number PS002): health Critical, its input has 0 V"),
        ("bmc_event", "its log has, at 2026-11-24T06:54:01Z: Power Supply: PSU2 input lost (Critical)"),
    ]
    assert seen["context"]["looked_for"][0] == "7 memory modules"


def test_what_newer_services_have_in_place_of_thermal_and_power(service: RedfishService) -> None:
    tree = service.tree
    tree[CHASSIS] = {
        "Name": "Chassis", "ThermalSubsystem": {"@odata.id": f"{CHASSIS}/T"}, "PowerSubsystem": {"@odata.id": f"{CHASSIS}/P"},
        "Sensors": {"@odata.id": f"{CHASSIS}/Sensors"},
    }  # fmt: skip
    tree[f"{CHASSIS}/T"] = {"Fans": {"@odata.id": f"{CHASSIS}/T/Fans"}}
    tree[f"{CHASSIS}/T/Fans"] = of_service.collection(f"{CHASSIS}/T/Fans", ["1"])
    tree[f"{CHASSIS}/T/Fans/1"] = {"Name": "Fan 1", "Status": {"State": "Enabled", "Health": "Critical"}}
    tree[f"{CHASSIS}/P"] = {"PowerSupplies": {"@odata.id": f"{CHASSIS}/P/PowerSupplies"}}
    supply = {"Name": "Bay 1", "Status": of_service.OK, "Location": {"PartLocation": {"ServiceLabel": "PSU 1"}}}
    tree[f"{CHASSIS}/P/PowerSupplies"] = {"Members": [{"@odata.id": "x", **supply}], "Members@odata.nextLink": f"{CHASSIS}/P/Next?$skip=1"}
    broken = {**supply, "Status": {"Health": "Warning", "Conditions": [{"Message": "one of two cords"}]}}
    tree[f"{CHASSIS}/P/Next?$skip=1"] = {"Members": [{"@odata.id": "y", **broken}]}
    tree[f"{CHASSIS}/Sensors"] = of_service.collection(f"{CHASSIS}/Sensors", ["a", "b"])
    hot = {"Name": "CPU", "Reading": 99, "ReadingUnits": "Cel", "Thresholds": {"UpperCritical": {"Reading": 95}}}
    tree[f"{CHASSIS}/Sensors/a"] = {"ReadingType": "Temperature", **hot}
    tree[f"{CHASSIS}/Sensors/b"] = {"ReadingType": "Voltage", **hot}
    assert told(ask(service)) == [
        ("bmc_fault", "temperature CPU: reading 99 Cel, beyond its limit UpperThresholdCritical 95"),
        ("bmc_fault", "sensor CPU: reading 99 Cel, beyond its limit UpperThresholdCritical 95"),
        ("bmc_fault", "fan Fan 1: health Critical"),
        ("bmc_event", "power supply Bay 1 (at PSU 1): health Warning, one of two cords"),
    ]


def test_a_critical_rollup_that_no_part_explains_is_a_fault(service: RedfishService) -> None:
    service.tree[SYSTEM]["Status"]["HealthRollup"] = "Critical"
    seen = ask(service)
    assert seen["reason_code"] == "bmc_fault" and "the health of its parts together is Critical" in seen["reason"]
    service.tree[f"{CHASSIS}/Power"]["PowerSupplies"][0]["Status"]["Health"] = "Critical"
    assert len(told(ask(service))) == 1


def test_a_part_without_a_state_is_not_looked_for(service: RedfishService) -> None:
    service.tree[f"{CHASSIS}/Power"]["PowerSupplies"][1] = {"Name": "PSU2", "Status": {"State": "StandbyOffline"}}
    seen = ask(service)
    assert seen["evidence"]["unreadable"] == ["redfish_power"]
    assert seen["context"]["not_looked_for"]["redfish_power"] == "power supplies: 1 have neither a state nor a reading"


def test_states_beside_the_parts_that_are_usual(service: RedfishService) -> None:
    """A manager, sums of the system, redundancies and subsystems have states of their own."""
    tree = service.tree
    tree[f"{BASE}/Managers/BMC"]["Status"]["Health"] = "Critical"
    tree[SYSTEM].update(PowerState="Off", MemorySummary={"Status": {"HealthRollup": "Critical"}}, ProcessorSummary=None)
    tree[f"{CHASSIS}/Thermal"]["Redundancy"] = [{"Name": "Fans", "Status": {"Health": "Warning"}}]
    assert told(ask(service)) == [
        ("bmc_event", "system System (serial number SN0001): its power is off"),
        ("bmc_event", "redundancy of fans Fans: health Warning"),
        ("bmc_fault", "manager BMC: health Critical"),
    ]
    tree[f"{BASE}/Managers/BMC"]["Status"]["Health"] = "OK"
    assert ("bmc_fault", "memory System: the health of its parts together is Critical, and no part that was read shows why") in told(
        ask(service)
    )


def test_parts_that_are_in_the_newer_place_only(service: RedfishService) -> None:
    """Some services have Thermal and Power beside the subsystems, and fill only one of the two."""
    tree = service.tree
    tree[CHASSIS].update(ThermalSubsystem={"@odata.id": f"{CHASSIS}/T"}, PowerSubsystem={"@odata.id": f"{CHASSIS}/P"})
    del tree[f"{CHASSIS}/Thermal"]["Fans"]
    tree[f"{CHASSIS}/Power"]["PowerSupplies"] = []
    for letter, name in (("T", "Fans"), ("P", "PowerSupplies")):
        folder = f"{CHASSIS}/{letter}/{name}"
        tree[f"{CHASSIS}/{letter}"] = {name: {"@odata.id": folder}}
        tree[folder] = of_service.collection(folder, ["1"])
        tree[f"{folder}/1"] = {"Name": f"{name} 1", "Status": {"State": "Enabled", "Health": "Critical"}}
    words = ["fan Fans 1: health Critical", "power supply PowerSupplies 1: health Critical"]
    assert told(ask(service)) == [("bmc_fault", each) for each in words]


def test_references_with_more_than_an_address_are_followed(service: RedfishService) -> None:
    members = service.tree[f"{BASE}/Systems"]["Members"]
    members[0].update({"@odata.type": "#ComputerSystem.v1_5_0.ComputerSystem", "Name": "System"})
    service.tree[SYSTEM]["Status"]["Health"] = "Critical"
    assert ask(service)["reason_code"] == "bmc_fault"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"Members@odata.count": 32}, "found 8 members, expected the 32 that it counts"),
        ({"Members": [None]}, "found no list Members, expected"),
        ({"Members@odata.nextLink": {"@odata.id": f"{SYSTEM}/Memory/More"}}, "/Memory/More: the service answers with status 404"),
        ({"Members@odata.nextLink": 3}, "refers to '3'"),
    ],
)
def test_half_a_list_is_unknown(service: RedfishService, changed: Seen, words: str) -> None:
    service.tree[f"{SYSTEM}/Memory"].update(changed)
    seen = ask(service)
    assert (seen["outcome"], seen["reason_code"]) == ("error", "bmc_unreadable") and words in seen["reason"], seen


def test_parts_that_are_there_and_not_used(service: RedfishService) -> None:
    tree = service.tree
    tree[f"{SYSTEM}/Memory/DIMM1"].update(CapacityMiB=65536, Status={"State": "Disabled", "Health": "OK"})
    tree[f"{SYSTEM}/Memory/DIMM2"].update(CapacityMiB=0, Status={"State": "Disabled", "Health": "OK"})
    tree[f"{CHASSIS}/Power"]["PowerSupplies"][0]["Status"] = {"State": "Absent", "Health": "Critical"}
    tree[f"{CHASSIS}/Power"]["PowerSupplies"][1]["Status"] = {"State": "UnavailableOffline", "Health": "OK"}
    tree[f"{CHASSIS}/Thermal"]["Fans"][0]["Status"]["Health"] = "CRITICAL"
    assert [(code, words.partition(" (")[0], words.rpartition(": ")[2]) for code, words in told(ask(service))] == [
        ("bmc_event", "memory module DIMM1", "it is there and not used (state Disabled)"),
        ("bmc_fault", "fan FAN1: health Critical, reading 8400 RPM", "health Critical, reading 8400 RPM"),
        ("bmc_fault", "power supply PSU1", "health Critical"),
        ("bmc_event", "power supply PSU2", "it is there and not used (state UnavailableOffline)"),
    ]


def test_a_reading_that_is_no_number_is_unreadable(service: RedfishService) -> None:
    thermal = service.tree[f"{CHASSIS}/Thermal"]
    sensor = thermal["Temperatures"][0]
    for reading_of in (float("nan"), 10**400, "N/A", None):
        sensor.update(ReadingCelsius=reading_of, Status={"State": "Enabled"})
        assert "redfish_temperatures" in ask(service)["evidence"]["unreadable"], reading_of
    # An upper limit that is not set is 0 in some services.
    sensor.update(ReadingCelsius=30, UpperThresholdCritical=0, Status={"State": "Enabled", "Health": "OK"})
    assert told(ask(service)) == []


@pytest.mark.parametrize(
    ("path", "status", "body", "code", "words"),
    [
        (BASE, 503, b"", "bmc_unreadable", "the service answers with status 503"),
        (BASE, 302, b"", "bmc_unreadable", "the service answers with status 302"),
        (f"{CHASSIS}/Power", 500, b"{}", "bmc_unreadable", "/Chassis/1/Power: the service answers with status 500"),
        (f"{CHASSIS}/Power", 200, b'{"PowerSupplies": [', "bmc_unreadable", "the answer is not JSON"),
        (f"{CHASSIS}/Power", 200, b'{"error": {"code": "Base.1.8.GeneralError"}}', "bmc_unreadable", "answers with an error in place of"),
        (f"{CHASSIS}/Power", 200, b"[" * 100_000, "bmc_unreadable", "the answer is not JSON"),
        (f"{CHASSIS}/Thermal", 200, b"[]", "bmc_unreadable", "found a list, expected a resource"),
        (f"{SYSTEM}/Memory", 200, b"{}", "bmc_unreadable", "found no list Members, expected a collection of resources"),
        (f"{SYSTEM}/Memory/DIMM3", 404, b"", "bmc_unreadable", "DIMM3: the service answers with status 404"),
        (ENTRIES, 403, b"", "credentials", "the service does not let this user read it"),
        (BASE, 200, b"{}", "bmc_unreadable", "lists no system, or no part with a state"),
        (BASE, 200, b'{"Systems": {"@odata.id": "//evil.example/x"}}', "bmc_unreadable", "expected a path on itself"),
    ],
)
def test_half_an_answer_is_unknown(service: RedfishService, path: str, status: int, body: bytes, code: str, words: str) -> None:
    service.answers[path] = (status, body)
    seen = ask(service)
    assert (seen["outcome"], seen["reason_code"]) == ("error", code) and words in seen["reason"], seen["reason"]


def test_a_fault_in_half_an_answer_is_a_fault(service: RedfishService) -> None:
    of_service.break_parts(service.tree)
    service.answers[f"{SYSTEM}/Memory"] = (500, b"")
    assert ask(service)["reason_code"] == "bmc_fault"


def test_a_wrong_password(service: RedfishService) -> None:
    seen = ask(service, password="wrong")
    assert (seen["outcome"], seen["reason_code"]) == ("error", "credentials") and "the service refuses the login" in seen["reason"]
    assert len(service.asked) == 2, "a management controller locks a user out who tries too often"


def test_a_certificate_that_nobody_trusts(service: RedfishService) -> None:
    seen = ask(service, ca_path="")
    assert seen["reason_code"] == "bmc_unreadable" and "its certificate is not trusted" in seen["reason"] and not service.asked
    assert ask(service, ca_path="", validate_certs=False)["outcome"] == "measured"


def test_a_service_that_does_not_answer_is_unreadable(service: RedfishService) -> None:
    seen = ask(service, url=f"https://127.0.0.1:{free_port()}")
    assert seen["reason_code"] == "bmc_unreadable" and "Connection refused" in seen["reason"]


def test_without_time_left_nothing_is_asked_and_the_variable_is_named(service: RedfishService) -> None:
    seen = ask(service, seconds=-1)
    assert seen["reason_code"] == "timeout" and "host_health_redfish_timeout" in seen["reason"] and not service.asked


def test_headers_that_never_end(service: RedfishService) -> None:
    """Each byte is in time, so that no limit of the connection ends it."""
    stop = threading.Event()
    seconds = 0.6

    def drip(connection: ssl.SSLSocket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not stop.wait(0.05):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(service.cert, service.key)
        server = threading.Thread(target=lambda: drip(context.wrap_socket(listening.accept()[0], server_side=True)), daemon=True)
        server.start()
        began = time.monotonic()
        seen = ask(service, seconds=seconds, url=f"https://127.0.0.1:{listening.getsockname()[1]}")
        assert seen["reason_code"] == "bmc_unreadable" and "not whole in time" in seen["reason"]
        assert time.monotonic() - began >= 0.5 * seconds and server.is_alive()
        stop.set()
        server.join()


def test_a_log_that_never_ends(service: RedfishService) -> None:
    service.tree[ENTRIES] = {"Members": [{"Id": "1", "Severity": "Warning", "Message": "m"}] * 30, "Members@odata.nextLink": ENTRIES}
    seen = ask(service)
    assert seen["reason_code"] == "bmc_unreadable" and "more than 40 pages" in seen["reason"]


@pytest.mark.parametrize(
    "url", ["http://bmc", "bmc", "https://", "https://me:s3cret@bmc", "https://bmc/x", "https://bmc?a=s3cret", "https://[x"]
)
def test_an_address_that_is_no_https_origin_is_refused_without_its_secrets(url: str) -> None:
    expected = address.problem(url)
    assert expected and "s3cret" not in expected


def test_https_addresses_are_taken() -> None:
    assert [address.problem(url) for url in ("https://bmc", "https://[fd00::1]:8443/", "https://bmc.example/redfish/v1/")] == [None] * 3


@pytest.mark.parametrize(
    "part",
    [{}, {"Status": 3}, {"Status": {"Health": []}}, {"Reading": "x", "Name": 3}, {"Reading": True, "LowerThresholdCritical": 5},
     {"Thresholds": []}, {"Status": {"Conditions": [3], "State": {}}}, {"MemoryLocation": {"Slot": "a"}, "Location": {"PartLocation": []}}],
)  # fmt: skip
def test_a_part_that_is_rubbish_is_no_problem_and_has_a_name(part: t.Dict[str, t.Any]) -> None:
    assert parts.problems("fan", part) == [] and parts.name_of("fan", part)
