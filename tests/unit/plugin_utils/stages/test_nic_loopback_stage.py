# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the stage nic_loopback says of the ports of nodes together, and what the verdict engine makes of its numbers."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import kind_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import measurement_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.nic_loopback import STAGE
from harness import report_samples as samples

HARDWARE = {
    "nic": "MT4129", "nic_gbps": 400.0, "link_layer": "Ethernet", "pcie_gen": 5, "pcie_width": 16, "loopback": True, "op": "write",
}  # fmt: skip
Record = t.Dict[str, t.Any]


def record(subject: str, check: str, value: float | None, **more: t.Any) -> Record:
    """A measurement of a node or of one of its ports, in Gb/s or, of a latency, us."""
    node = subject.split("/", maxsplit=1)[0]
    metric, unit = ("latency", "us") if "_lat" in check else ("bandwidth", "Gb/s")
    context = {**HARDWARE, **({"comparable": False} if check.endswith("_all") else {}), **more.pop("context", {})}
    return {
        **samples.measurement(node, "nic_loopback", check), "subject": {"kind": kind_of(subject), "id": subject, "members": []},
        "metrics": {} if value is None else {metric: {"value": value, "unit": unit}}, "context": context, "series": [], "evidence": {},
        "outcome": "measured", "reason_code": None, "reason": None, "target": node, "variant": "", **more,
    }  # fmt: skip


def ports(node: str, check: str, values: list[float], uplinks: list[str] | None = None, **context: t.Any) -> list[Record]:
    """A check of a node and its ports, each behind a root port of its own unless `uplinks` says otherwise."""
    where = uplinks or [f"0000:{number}0:01.0" for number in range(len(values))]
    each = [
        record(f"{node}/nic/mlx5_{number}/1", check, value, context={**context, "uplink": where[number]})
        for number, value in enumerate(values)
    ]
    whole = record(node, check, min(values), context=context)
    return [{**whole, "subject": {**whole["subject"], "members": [one["subject"]["id"] for one in each]}}, *each]


def judged(records: list[Record]) -> dict[tuple[str, str], tuple[str, str | None]]:
    """{(subject, check): (verdict, reason code)} by the shipped expectations."""
    items = [{key: r[key] for key in ("stage", "check", "variant", "subject", "target")} for r in records if r["subject"]["kind"] == "node"]
    nodes = list(dict.fromkeys(item["target"] for item in items))
    plan: t.Any = samples.plan(nodes, ["nic_loopback"], items=items)
    found = verdict.judge(plan, records, lambda *_who: expectations.shipped(), stages=registry.shipped().values())
    return {(v["subject"]["id"], v["check"]): (v["verdict"], v["reason_code"]) for v in found.verdicts}


def words(found: dict[tuple[str, str], tuple[str, str | None]]) -> set[str]:
    return {word for word, _code in found.values()}


@pytest.mark.parametrize(
    ("values", "context", "expected"),
    [
        ([392.0] * 4, {}, "PASS"),
        ([350.0] * 4, {}, "PASS"),  # of RoCE nobody knows better
        ([360.0] * 4, {"link_layer": "InfiniBand"}, "WARN"),
        ([350.0] * 4, {"link_layer": "InfiniBand"}, "FAIL"),
        ([300.0] * 4, {"link_layer": "InfiniBand"}, "FAIL"),
        ([196.0] * 4, {}, "FAIL"),
        ([392.0, 392.0, 392.0, 340.0], {}, "FAIL"),  # the other ports of the node
        ([392.0, 392.0, 392.0, 368.0], {}, "WARN"),
        ([600.0] * 4, {}, "UNKNOWN"),  # more than PCIe 5.0 x16 carries
        ([420.0] * 4, {}, "PASS"),  # no wire is passed
        ([24.0] * 4, {"nic_gbps": 33.0}, "UNKNOWN"),
    ],
)
def test_bandwidth_of_one_port(values: list[float], context: Record, expected: str) -> None:
    assert judged(ports("a", "write_bw", values, **context))["a", "write_bw"][0] == expected


def test_ports_of_two_kinds_are_not_compared_with_each_other() -> None:
    records = ports("a", "write_bw", [392.0, 392.0, 392.0, 96.0])
    records[4]["context"].update(nic_gbps=100.0, nic="MT4125")
    records[0]["context"].update(nic_gbps=100.0, nic="MT4125")
    assert words(judged(records)) == {"PASS"}


@pytest.mark.parametrize(("value", "expected"), [(1.2, "PASS"), (4.2, "PASS"), (5.0, "FAIL")])
def test_latency_has_a_high_limit(value: float, expected: str) -> None:
    found = judged(ports("a", "write_lat", [value, value], placement="behind 2 bridges"))
    assert words(found) == {expected}


def together(node: str, values: list[float], uplinks: list[str] | None = None, alone: float = 392.0) -> list[Record]:
    return [*ports(node, "write_bw", [alone] * len(values), uplinks), *ports(node, "write_bw_all", values, uplinks)]


SHARED = ["0000:10:01.0"] * 2 + ["0000:20:01.0"] * 2 + ["0000:30:01.0"] * 2 + ["0000:40:01.0"] * 2


@pytest.mark.parametrize(
    ("values", "uplinks", "expected"),
    [
        ([392.0] * 8, SHARED, {"PASS"}),
        ([196.0] * 8, SHARED, {"PASS"}),  # each two share a link, by design
        ([150.0, 242.0] * 4, SHARED, {"PASS"}),  # and share it unevenly
        ([196.0] * 6 + [98.0] * 2, SHARED, {"PASS", "FAIL"}),
        ([196.0] * 6 + [170.0] * 2, SHARED, {"PASS", "WARN"}),
        ([392.0, 392.0, 196.0, 196.0], ["0000:10:01.0", "0000:20:01.0", "0000:30:01.0", "0000:30:01.0"], {"PASS"}),
        ([392.0] * 4, None, {"PASS"}),
        ([392.0, 392.0, 392.0, 196.0], None, {"PASS", "FAIL"}),
        ([392.0, 196.0], None, {"PASS", "WARN"}),  # nobody is like it, and it has a way of its own
    ],
)
def test_all_ports_at_once(values: list[float], uplinks: list[str] | None, expected: set[str]) -> None:
    found = judged(together("a", values, uplinks))
    assert {word for (who, check), (word, _code) in found.items() if check == "write_bw_all" and "/nic/" in who} == expected
    assert {word for (_who, check), (word, _code) in found.items() if check == "write_bw"} == {"PASS"}


def test_identical_machines_are_compared_group_by_group() -> None:
    """One of eight machines whose first two ports share half of what those of the others share."""
    rates = [98.0 if number == 3 else 196.0 for number in range(8)]
    records = [one for number, rate in enumerate(rates) for one in together(f"n{number}", [rate, rate], SHARED[:2])]
    found = judged(records)
    bad = {who for (who, _check), (word, _code) in found.items() if word == "FAIL"}
    assert bad == {"n3", "n3/nic/mlx5_0/1", "n3/nic/mlx5_1/1"} and found["n3", "write_bw_all"] == ("FAIL", "below_siblings")


def test_a_number_that_is_missing_leaves_its_group_out() -> None:
    records = together("a", [392.0, 392.0, 392.0, 100.0])
    del records[-1]["metrics"]["bandwidth"]
    assert "FAIL" not in words(judged(records))


# Nodes without ports -------------------------------------------------------------------------------------------------


def seen(node: str, count: int, machine: str = "M1", wanted: int | None = None) -> Record:
    about = {"machine": machine, "wanted": wanted, "ports": [{"port": f"nic/mlx5_{n}/1"} for n in range(count)]}
    if count:
        return record(node, "ports", None, context=about)
    reason = {"outcome": "not_applicable", "reason_code": "no_rdma_expected", "reason": "the node has no RDMA device"}
    return record(node, "ports", None, context={"machine": machine}, **reason)


@pytest.mark.parametrize(
    ("counts", "machines", "expected"),
    [
        ([8, 8, 8], "MMM", ["PASS", "PASS", "PASS"]),
        ([8, 8, 7], "MMM", ["PASS", "PASS", "UNKNOWN"]),
        ([8, 8, 0], "MMM", ["PASS", "PASS", "UNKNOWN"]),
        ([8, 0], "MM", ["PASS", "UNKNOWN"]),
        ([8, 8, 0], "MML", ["PASS", "PASS", "SKIPPED"]),
        ([0, 0, 0], "MMM", ["SKIPPED", "SKIPPED", "SKIPPED"]),
        ([8, 2, 2, 2], "MMMM", ["PASS", "PASS", "PASS", "PASS"]),
    ],
)
def test_fewer_ports_than_machines_of_the_same_product(counts: list[int], machines: str, expected: list[str]) -> None:
    found = judged([seen(f"n{n}", count, machine) for n, (count, machine) in enumerate(zip(counts, machines, strict=True))])
    assert [found[f"n{n}", "ports"][0] for n in range(len(counts))] == expected
    assert {code for verdict, code in found.values() if verdict == "UNKNOWN"} <= {"no_rdma"}


def with_states(node: str, *states: str | None, **more: t.Any) -> Record:
    ports = [{"port": f"nic/mlx5_{n}/1", "state": state} for n, state in enumerate(states)]
    return record(node, "ports", None, context={"machine": "M", "wanted": None, "ports": ports, **more})


def test_a_port_that_is_down_is_a_fault_where_other_machines_have_it_up() -> None:
    up, down = ("ACTIVE", "ACTIVE"), ("ACTIVE", "DOWN")
    assert judged([with_states("a", *down)])["a", "ports"] == ("WARN", "port_unused")
    assert judged([with_states(node, *down) for node in "abc"])["a", "ports"] == ("WARN", "port_unused")
    found = judged([with_states("a", *up), with_states("b", *up), with_states("c", *down)])
    assert found["c", "ports"] == ("FAIL", "port_down") and found["a", "ports"] == ("PASS", None)
    # A port whose state cannot be read was not measured either.
    assert judged([with_states("a", "ACTIVE", None)])["a", "ports"] == ("WARN", "port_unused")
    # A node can send anything.
    assert judged([with_states("a", *up, ports=["x", 3, None, {"state": []}])])["a", "ports"][0] in ("PASS", "WARN")
    # The probe itself has the finding of a port that is in use.
    assert judged([with_states("a", *down, devices_stated=True)])["a", "ports"] == ("PASS", None)


def test_the_inventory_says_how_many_ports_are_right() -> None:
    assert judged([seen("a", 8), seen("b", 2, wanted=2)])["b", "ports"] == ("PASS", None)


def test_the_report_shows_what_ports_lose() -> None:
    rows = [(t.cast(t.Any, None), measurement_of(one)) for one in together("a", [196.0, 190.0, 392.0], SHARED[1:4])]
    (found,) = STAGE.sections(rows)
    assert found["rows"] == [
        ["a", "mlx5_0 port 1", "write_bw", "392", "196", "0000:10:01.0"],
        ["a", "mlx5_1 port 1, mlx5_2 port 1", "write_bw", "784", "582", "0000:20:01.0"],
    ]
