# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A management controller is that of the machine that it stands for."""

from __future__ import annotations

import typing as t
import uuid

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import smbios
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import key_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.redfish import identity
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.host_health import STAGE
from harness import records
from harness import report_samples as samples

ONE, OTHER = "4c4c4544-0035-4510-8042-b4c04f4d3133", "4c4c4544-0036-4610-8043-b4c04f4d3233"
Machine = t.Dict[str, t.Any]


def machine(uuid: str = "", serial: str = "", *dimms: str) -> Machine:
    return {"uuid": [uuid], "serial": [serial], "dimms": list(dimms)}


def firmware(uuid: str = "", serial: str = "", *dimms: str) -> Machine:
    return {"system": {"uuid": uuid, "serial": serial}, "dimms": [{"slot": f"A{n}", "serial": dimm} for n, dimm in enumerate(dimms)]}


def differs(by_controller: Machine, by_firmware: Machine) -> str | None:
    return identity.difference(identity.by_controller(by_controller), identity.by_firmware(by_firmware))


@pytest.mark.parametrize(
    ("by_controller", "by_firmware", "words"),
    [
        (machine(ONE, "S1", "35A1B200", "35A1B201"), firmware(ONE, "S1", "35A1B200", "35A1B201"), None),
        (machine(ONE, "S1", "35A1B200"), firmware(ONE, "S1", "99A1B200"), None),  # written in another way, and the same UUID
        (machine(ONE, "S1", "00a1b200"), firmware(OTHER, "S2", "A1B200"), None),
        (machine("44454c4c-3500-1045-8042-b4c04f4d3133", "S1"), firmware(ONE, "S2"), None),  # in the other order of bytes
        (machine(ONE, "S1"), firmware(OTHER, "S1"), f"UUID {ONE}"),
        (machine("", "S1"), firmware("", "S2"), "serial number S1 by the management controller, S2 by the firmware of the node"),
        (machine(ONE, "S1", "35A1B200"), firmware(OTHER, "S1", "35A1B299"), "serial numbers of memory modules 35A1B200 by"),
        (machine(ONE, "S1", "35A1B200"), firmware(), None),
        (machine(), firmware(ONE, "S1", "35A1B200"), None),
        # Texts that tell no machine from another.
        (machine("00000000-0000-0000-0000-000000000000", "To be filled by O.E.M."), firmware(ONE, "S1"), None),
        (machine("00020003-0004-0005-0006-000700080009"), firmware(ONE), None),
        (
            machine("03000200-0400-0500-0006-000700080009", "", "35A1B200"),
            firmware("03000200-0400-0500-0006-000700080009", "", "35A1B299"),
            "serial numbers of memory modules",
        ),
        (machine("ffffffff-ffff-ffff-ffff-ffffffffffff", "00000000"), firmware(ONE, "S1"), None),
        ({"uuid": [None, 5, "no uuid"], "serial": {}, "dimms": [None]}, firmware(ONE, "S1", "35A1B200"), None),
        (machine(ONE, "S1", "35A1B200"), {"system": None, "dimms": [None, {"serial": 5}]}, None),
    ],
)
def test_numbers_of_a_machine_are_compared(by_controller: Machine, by_firmware: Machine, words: str | None) -> None:
    found = differs(by_controller, by_firmware)
    assert found is None if words is None else words in str(found)


def judged(machines: t.Mapping[str, tuple[Machine, Machine]]) -> dict[str, tuple[str, str | None, str]]:
    """What the stage says of nodes, {node: (by its controller, by its firmware)}."""
    measured = [
        records.measurement(samples.measurement(node, "host_health", check, context=context))
        for node, (by_controller, by_firmware) in machines.items()
        for check, context in (("redfish", {"machine": by_controller}), ("memory", by_firmware))
    ]
    found = STAGE.opinions({key_of(m): m for m in measured}, measured, lambda *_who: expectations.shipped(), [])
    return {key.subject: (opinion.verdict, opinion.reason_code, opinion.reason) for key, opinion in found}


def test_the_controller_of_a_neighbour_is_unknown() -> None:
    one, other = machine(ONE, "S1", "35A1B200"), machine(OTHER, "S2", "35A1B299")
    said = judged({"a": (one, firmware(ONE, "S1", "35A1B200")), "b": (other, firmware(ONE, "S3", "35A1B255"))})
    assert list(said) == ["b"] and said["b"][:2] == ("UNKNOWN", "identity_changed")
    assert said["b"][2].startswith("host_health_redfish_url leads to another machine: serial numbers of memory modules 35A1B299 by the")


def test_one_controller_under_two_names_is_unknown_for_both() -> None:
    same = machine(ONE, "S1", "35A1B200", "35A1B201")
    said = judged({"a": (same, firmware()), "b": (same, firmware()), "c": (machine(ONE, "S1", "35A1B200", "35A1B255"), firmware())})
    assert {node: opinion[:2] for node, opinion in said.items()} == dict.fromkeys("ab", ("UNKNOWN", "duplicate_identity"))
    assert "the management controllers of a, b list the same memory modules, serial numbers 35A1B200, 35A1B201" in said["a"][2]


@pytest.mark.parametrize(
    ("by_controller", "words"),
    [(machine(ONE, "S1", "35A1B200"), ("FAIL", "bmc_fault")), (machine(OTHER, "S2", "35A1B299"), ("UNKNOWN", "identity_changed"))],
)
def test_a_fault_by_the_controller_of_a_neighbour_is_unknown(by_controller: Machine, words: tuple[str, str]) -> None:
    fault = "power supply PSU2: health Critical"
    broken: dict[str, t.Any] = {"outcome": "error", "reason_code": "bmc_fault", "reason": fault}
    context = {"machine": by_controller, "findings": [{"code": "bmc_fault", "text": fault}]}
    measured = [
        samples.measurement("a", "host_health", "redfish", context=context, **broken),
        samples.measurement("a", "host_health", "memory", context=firmware(ONE, "S1", "35A1B200")),
    ]
    items = [{**{name: m[name] for name in ("stage", "check", "variant", "subject")}, "target": "a"} for m in measured]
    plan = samples.plan("a", ["host_health"], items=items)
    found = verdict.judge(plan, measured, lambda *_who: expectations.shipped(), stages=registry.shipped().values())
    of_redfish = next(v for v in found.verdicts if v.check == "redfish")
    assert (of_redfish.verdict, of_redfish.reason_code) == words and not found.accepted
    assert any("PSU2" in text for text in (of_redfish.reason, *of_redfish.findings))  # whosever it is, it is named


def test_the_machine_in_a_table_of_its_firmware() -> None:
    body = bytes([1, 2, 0, 3]) + uuid.UUID(ONE).bytes_le + b"\x06\0\0"
    table = bytes([1, 4 + len(body)]) + b"\x01\0" + body + b"Maker\0Product\0 CZ3 \0\0"
    assert smbios.system(table) == smbios.System("CZ3", ONE)
    assert smbios.system(table.replace(uuid.UUID(ONE).bytes_le, b"\xff" * 16)) == smbios.System("CZ3", "")
    assert smbios.system(table[:10]) == smbios.System("", "")
