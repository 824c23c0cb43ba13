# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The description of the stage host_health."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import key_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.host_health import STAGE
from harness import records
from harness import report_samples as samples


def judged(rates: list[float], place: str = "physical machine", cores: t.Sequence[int] = ()) -> list[tuple[str, str]]:
    """The opinions on a machine whose NUMA nodes copy memory at these rates, with 8 cores or so many."""
    used = [*cores, *[8] * (len(rates) - len(cores))]
    series = [{"node": n, "cores": used[n], "bandwidth": rate, "one_core": 20.0} for n, rate in enumerate(rates)]
    fields: dict[str, t.Any] = {"series": series, "context": {"place": place}}
    m = records.measurement(samples.measurement("a", "host_health", "bandwidth", **fields))
    found = list(STAGE.opinions({key_of(m): m}, [m], lambda *_who: expectations.shipped(), []))
    assert {opinion.reason_code for _key, opinion in found} <= {"below_siblings"}
    return [(opinion.verdict, opinion.reason) for _key, opinion in found]


@pytest.mark.parametrize(("rate", "verdict"), [(100.0, None), (86.0, None), (80.0, "WARN"), (50.0, "FAIL")])
def test_a_numa_node_is_compared_with_the_others_of_its_machine(rate: float, verdict: str | None) -> None:
    found = judged([100.0, rate, 101.0, 99.0])
    assert [word for word, _reason in found] == ([verdict] if verdict else [])
    assert all(reason.startswith("NUMA node 1 copies memory at ") for _word, reason in found)


@pytest.mark.parametrize("cores", [1, 4, 7])
def test_cores_that_are_not_in_use_take_no_node_out_of_the_comparison(cores: int) -> None:
    ((verdict, reason),) = judged([50.0, 100.0, 100.0, 101.0], cores=[cores])
    assert verdict == "WARN" and f"with {cores} cores" in reason
    assert judged([96.0, 100.0, 100.0, 101.0], cores=[cores]) == []


def test_of_two_nodes_the_slower_one_is_named() -> None:
    assert [reason.split(" copies")[0] for _word, reason in judged([100.0, 50.0])] == ["NUMA node 1"]


def test_nodes_of_virtual_machines_and_lone_nodes_are_not_compared() -> None:
    assert judged([100.0, 50.0], "virtual machine") == [] and judged([100.0]) == []


def test_an_unknown_check_is_refused() -> None:
    assert STAGE.problem({"host_health_tests": ["memory", "fans"]}) == (
        "host_health_tests: found 'fans', expected memory, pcie, storage, bmc, kernel, clock, bandwidth"
    )
    assert STAGE.problem({"host_health_tests": ["memory"]}) is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, None),
        ({"host_health_redfish_url": "http://bmc"}, "host_health_redfish_url: found another text, expected https://HOST or"),
        ({"host_health_redfish_url": "https://u:s3cret@bmc"}, "host_health_redfish_url: found another text, expected https://HOST or"),
        (
            {"host_health_redfish_user": ""},
            "host_health_redfish_user: found nothing, expected the login of a user of https://bmc",
        ),
        ({"host_health_redfish_password": ""}, "host_health_redfish_password: found nothing, expected the login"),
        ({"acceptance_nodes_behind": True}, "host_health_redfish_url: found an address for a host that stands for many nodes"),
    ],
)
def test_variables_of_redfish(changed: dict[str, t.Any], words: str | None) -> None:
    login = {"host_health_redfish_url": "https://bmc", "host_health_redfish_user": "u", "host_health_redfish_password": "s3cret"}
    problem = STAGE.problem({"host_health_tests": ["memory"], **login, **changed})
    assert problem is None if words is None else problem and problem.startswith(words) and "s3cret" not in problem


def test_two_machines_have_no_management_controller_in_common() -> None:
    def items(*urls: str) -> int:
        settings = {f"h{n}": {"host_health_redfish_url": url, "host_health_checks": [("redfish", "")]} for n, url in enumerate(urls)}
        return len(STAGE.items({host: host for host in settings}, settings)[0])

    assert items("https://a", "https://b") == 2 and items("", "") == 2
    with pytest.raises(RunError, match="found https://A for h0 and for h1, expected an address of its own for each machine"):
        items("https://a/", "https://A")
    for url in ("https://a:443", "https://A./redfish/v1"):
        with pytest.raises(RunError, match="for h0 and for h1"):
            items("https://a", url)
