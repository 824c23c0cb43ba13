# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From measurements of pairs and ports to verdicts, through the verdict engine."""

from __future__ import annotations

import copy
import itertools
import json
import random
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.places import Places
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import heatmap, page
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import model as report
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import directions, rdma_matrix, registry
from harness.records import make_plan, measurement
from hypothesis import given
from hypothesis import strategies as st

RUN = "20260101T000000Z-0a1b2c"
CHECK, VARIANT = "read_bw", "qps=8 size=65536"
SHIPPED = expectations.shipped()
Record = t.Dict[str, t.Any]


def nodes(count: int = 6) -> list[str]:
    return [f"n{i:x}" for i in range(count)]


def port(node: str, rail: int = 0) -> str:
    return f"{node}/nic/mlx5_{rail}/1"


def record(stage: str, subject: str, kind: str, seen: Record, target: str) -> Record:
    seen = {name: value for name, value in seen.items() if name not in ("part", "members")}
    return {
        **seen, "schema": "measurement/v1", "run_id": RUN, "stage": stage, "plane": "ssh", "target": target, "attempt": 1,
        "subject": {"kind": kind, "id": subject, "members": []}, "raw": None, "raw_sha256": None,
    }  # fmt: skip


def side(a: str, b: str, role: str, value: float | None, **changes: t.Any) -> Record:
    test = {"op": "read", "kind": "bw", "qps": 8, "mtu": 4096, "connection": "RC"}
    test.update({"local_gid": a, "remote_gid": b} if role == "server" else {"local_gid": b, "remote_gid": a})
    rows = [] if value is None else [{"size": 65536, "iterations": 4000000, "bandwidth": value}]
    return {
        "check": CHECK, "variant": VARIANT, "subject": "|".join(sorted((a, b))), "rail": "0", "a": port(a), "b": port(b), "role": role,
        "partner": b if role == "server" else a, "outcome": "measured" if rows else "error", "reason_code": None if rows else "tool_failed",
        "reason": None if rows else "the link was lost", "broke": not rows, "started_at": observation.utc(), "duration_s": 5.0,
        "rows": rows, "test": test, "tool_version": "6.06", "changes": [], "round": 0, **changes,
    }  # fmt: skip


def run(
    values: t.Callable[[str, str], float | None],
    names: list[str],
    again: t.Sequence[tuple[str, str]] = (),
    rates: t.Mapping[str, float] | None = None,
) -> list[Record]:
    """All pairs in both directions; what `again` names (who sends, who receives) was measured again with the same value.

    `rates`: of each node's port. Of a read the server sends.
    """
    records, series = [], {name: [] for name in names}
    for a, b in itertools.permutations(names, 2):
        value, variant = values(a, b), directions.with_direction(VARIANT, directions.direction_of(a, b))
        client = side(a, b, "client", value, variant=variant)
        series[a].append(side(a, b, "server", value, variant=variant))
        series[b].append(client)
        context = {
            "op": "read", "bidirectional": False, "nic_gbps": min((rates or {}).get(a, 400.0), (rates or {}).get(b, 400.0)),
            "series_units": {"bandwidth": "Gb/s"},
            "rails": [{name: client[name] for name in ("rail", "a", "b", "outcome", "reason_code", "reason", "broke", "test")}],
        }  # fmt: skip
        rows = [{**row, "rail": "0", "a": port(a), "b": port(b)} for row in client["rows"]]
        common: Record = {"variant": variant, "context": context, "series": rows, "tool_version": "6.06", "command": ["ib_read_bw"]}
        if value is None:
            seen = observation.failed(CHECK, "tool_failed", "the link was lost", **common)
        else:
            seen = observation.measured(CHECK, metrics={"bandwidth": {"value": value, "unit": "Gb/s"}}, **common)
        records.append(record("rdma", "|".join(sorted((a, b))), "pair", seen, b))
    records += [record("rdma", n, "node", observation.measured("timetable", series=rows), n) for n, rows in series.items()]
    repeated: dict[str, list[Record]] = {name: [] for name in names}
    for a, b in again:
        variant = directions.with_direction(VARIANT, directions.direction_of(a, b))
        repeated[b].append(side(a, b, "client", values(a, b), variant=variant, subject=""))
    return records + [record("rdma_again", n, "node", observation.measured("timetable", series=rows), n) for n, rows in repeated.items()]


def judge(records: list[Record], places: t.Any = None) -> verdict.Judgement:
    items = [{**{k: r[k] for k in ("stage", "check", "variant", "target")}, "subject": r["subject"]} for r in records]
    plan = make_plan({"run_id": RUN, "items": items})
    stages = [registry.shipped()[name] for name in dict.fromkeys(r["stage"] for r in records)]  # what did not run has no say
    return verdict.judge(plan, records, lambda _node, _target: SHIPPED, stages=stages, places=places)


def words(judgement: verdict.Judgement, stage: str = "rdma") -> dict[str, str]:
    """By subject, the worst of its directions."""
    found = [v for v in judgement.verdicts if v["stage"] == stage]  # the worst first
    return {v["subject"]["id"]: v["verdict"] for v in reversed(found)}


def each_way(judgement: verdict.Judgement) -> dict[tuple[str, str], str]:
    """By who sends and who receives."""
    pairs = [v for v in judgement.verdicts if v["subject"]["kind"] == "pair"]
    ends = [(*v["subject"]["id"].split("|"), v) for v in pairs]
    return {(a, b) if "direction=forward" in v["variant"] else (b, a): v["verdict"] for a, b, v in ends}


def test_a_matrix_of_good_numbers_passes_every_pair() -> None:
    assert set(words(judge(run(lambda _a, _b: 388.0, nodes()))).values()) == {"PASS"}


@pytest.mark.parametrize("value", [100.0, None])
def test_a_bad_row_is_a_port_and_convicted_only_when_it_fails_again(value: float | None) -> None:
    def values(a: str, b: str) -> float | None:
        return value if "n2" in (a, b) else 388.0

    first = judge(run(values, nodes()))
    assert words(first)["n2"] == "UNKNOWN" and words(first)["n1"] == "PASS"
    table = rdma_matrix.tables(list(map(measurement, run(values, nodes()))), lambda _n, _t: SHIPPED)[0].diagnose()
    assert table
    again = [(a.split("/")[0], b.split("/")[0]) for a, b, _rail in table.again]
    second = judge(run(values, nodes(), again))
    assert words(second)["n2"] == "FAIL" and words(second)["n1"] == "PASS"
    ((code, reason),) = [(v["reason_code"], v["reason"]) for v in second.verdicts if v["subject"]["id"] == "n2" and v["stage"] == "rdma"]
    assert code == "bad_rail" and "n2/nic/mlx5_0/1" in reason and "bad row" in reason and "convicted" in reason
    assert words(second)["n1|n2"] == ("FAIL" if value else "UNKNOWN")


def test_a_bad_cell_is_a_path() -> None:
    def values(a: str, b: str) -> float:
        return 100.0 if {a, b} == {"n1", "n4"} else 388.0

    table = rdma_matrix.tables(list(map(measurement, run(values, nodes()))), lambda _n, _t: SHIPPED)[0].diagnose()
    assert table
    again = [(a.split("/")[0], b.split("/")[0]) for a, b, _rail in table.again]
    found = judge(run(values, nodes(), again))
    assert {name for name, word in words(found).items() if word != "PASS"} == {"n1|n4"}
    both = [v for v in found.verdicts if v["subject"]["id"] == "n1|n4"]
    assert len(both) == 2 and all("bad cell" in " ".join([one["reason"], *one["findings"]]) for one in both)


@pytest.mark.parametrize(("sender", "receiver"), [("n1", "n4"), ("n4", "n1")])
def test_a_path_that_is_bad_one_way_is_bad_in_that_direction(sender: str, receiver: str) -> None:
    def values(a: str, b: str) -> float:
        return 100.0 if (a, b) == (sender, receiver) else 388.0

    table = rdma_matrix.tables(list(map(measurement, run(values, nodes()))), lambda _n, _t: SHIPPED)[0].diagnose()
    assert table and (port(sender), port(receiver), "0") in table.again and (port(receiver), port(sender), "0") not in table.again
    found = judge(run(values, nodes(), [(a.split("/")[0], b.split("/")[0]) for a, b, _rail in table.again]))
    assert {ends: word for ends, word in each_way(found).items() if word != "PASS"} == {(sender, receiver): "FAIL"}
    (one,) = [v for v in found.verdicts if v["verdict"] == "FAIL"]
    assert f"where {port(sender)} sends" in " ".join([one["reason"], *one["findings"]])


@pytest.mark.parametrize("count", [2, 3, 4, 12])
@pytest.mark.parametrize("sends", [True, False])
def test_no_node_that_is_bad_one_way_is_accepted(count: int, sends: bool) -> None:
    """Whichever it is: with three nodes and more it is convicted, and of two nobody passes who was in that direction."""
    for bad in nodes(count):

        def values(a: str, b: str, bad: str = bad) -> float:
            return 200.0 if bad == (a if sends else b) else 388.0

        found = rdma_matrix.tables(list(map(measurement, run(values, nodes(count)))), lambda _n, _t: SHIPPED)[0].diagnose()
        assert found
        again = [(a.split("/")[0], b.split("/")[0]) for a, b, _rail in found.again]
        judgement = judge(run(values, nodes(count), again))
        assert not judgement.accepted
        if count > 2:
            assert words(judgement)[bad] == "FAIL" and {words(judgement)[n] for n in nodes(count) if n != bad} == {"PASS"}
            (one,) = [v for v in judgement.verdicts if v["subject"]["id"] == bad and v["stage"] == "rdma"]
            assert f"where it {'sends' if sends else 'receives'}" in one["reason"]
        failed = {ends for ends, word in each_way(judgement).items() if word != "PASS"}
        assert failed == {(a, b) for a, b in itertools.permutations(nodes(count), 2) if bad == (a if sends else b)}


def test_of_a_write_the_client_is_the_sender() -> None:
    """Of a write it is the client's data that moves: the same fault is found from numbers with the roles swapped."""

    def written(one: Record) -> Record:
        found = {**one, "check": one["check"].replace("read", "write"), "context": dict(one["context"])}
        if "direction=" in one["variant"]:
            other = "back" if "forward" in one["variant"] else "forward"
            found["variant"] = directions.with_direction(directions.without_direction(one["variant"]), other)
        return {**found, "series": [{**row, **({"check": "write_bw"} if "check" in row else {})} for row in one["series"]]}

    records = run(lambda a, _b: 200.0 if a == "n2" else 388.0, nodes())
    (table,) = rdma_matrix.tables([measurement(written(r)) for r in records if r["subject"]["kind"] == "pair"], lambda _n, _t: SHIPPED)
    found = table.diagnose()
    assert found and [f.id for f in found.findings] == [port("n2")] and "where it receives" in found.findings[0].reason


def test_a_journal_of_one_direction_is_read_as_it_was() -> None:
    """Runs from before directions were measured apart have one cell for a pair, whoever sent."""
    old = []
    for one in run(lambda a, b: 100.0 if "n2" in (a, b) else 388.0, nodes()):
        if "direction=back" not in one["variant"]:
            rows = [row for row in one["series"] if "direction=back" not in row.get("variant", "")]
            old.append({**one, "variant": directions.without_direction(one["variant"]), "series": rows})
    (table,) = rdma_matrix.tables(list(map(measurement, old)), lambda _n, _t: SHIPPED)
    found = table.diagnose()
    assert not table.directed and len(table.cells) == 15 and found and [f.id for f in found.findings] == [port("n2")]


def server_row(records: list[Record], node: str, client: str) -> Record:
    (timetable,) = [r for r in records if r["stage"] == "rdma" and r["subject"]["id"] == node]
    (row,) = [row for row in timetable["series"] if row["role"] == "server" and row["partner"] == client]
    return t.cast(Record, row)


@pytest.mark.parametrize(
    ("change", "word", "code", "text"),
    [
        ({"rows": [{"size": 65536, "iterations": 1, "bandwidth": 388.0}]}, "UNKNOWN", "sides_differ", "sizes and iterations"),
        ({"test": {"op": "write", "kind": "bw"}}, "UNKNOWN", "sides_differ", "different tests"),
        ({"test": None}, "UNKNOWN", "sides_differ", "does not say which test it ran"),
        ({"outcome": "error", "reason": "the port is in use"}, "UNKNOWN", "incomplete", "its server n0 has none: the port is in use"),
        ({"tool_version": "6.22"}, "WARN", "sides_differ", "perftest is 6.06 here and 6.22 on n0"),
        ({"changes": [{"code": "retransmits", "text": "out_of_sequence rose from 0 to 4"}]}, "WARN", "evidence", "out_of_sequence rose"),
    ],
)
def test_the_server_has_a_say(change: Record, word: str, code: str, text: str) -> None:
    records = run(lambda _a, _b: 388.0, nodes(3))
    server_row(records, "n0", "n1").update(change)
    found = judge(records)
    assert words(found) == {**dict.fromkeys(words(found), "PASS"), "n0|n1": word}
    assert {ends for ends, of in each_way(found).items() if of != "PASS"} == {("n0", "n1")}
    (one,) = [v for v in found.verdicts if v["subject"]["id"] == "n0|n1" and "forward" in v["variant"]]
    assert one["reason_code"] == code and text in one["reason"]


@pytest.mark.parametrize("name", ["op", "kind", "qps", "mtu", "connection", "local_gid", "remote_gid"])
def test_two_ends_that_ran_tests_with_one_difference_are_unknown(name: str) -> None:
    records = run(lambda _a, _b: 388.0, nodes(3))
    server_row(records, "n0", "n1")["test"][name] = "another"
    found = judge(records)
    (one,) = [v for v in found.verdicts if v["subject"]["id"] == "n0|n1" and "forward" in v["variant"]]
    assert (one["verdict"], one["reason_code"], found.accepted) == ("UNKNOWN", "sides_differ", False) and "another" in one["reason"]


def test_a_pair_whose_server_has_no_timetable_is_unknown() -> None:
    records = [r for r in run(lambda _a, _b: 388.0, nodes(3)) if r["subject"]["id"] != "n0"]
    assert words(judge(records))["n0|n1"] == "UNKNOWN"


def test_the_heat_map_is_in_the_report() -> None:
    records = run(lambda a, b: 100.0 if "n2" in (a, b) else 388.0, nodes())
    judged = judge(records)
    plan = make_plan({
        "run_id": RUN, "created_at": observation.utc(), "mode": "run", "partial": False, "left_out": [], "skipped_stages": [], "notes": [],
        "stages": [{"name": "rdma", "role": "r"}], "targets": {n: {"plane": "ssh"} for n in nodes()}, "items": [], "sample": {},
        "collection_version": "1", "ansible_version": "1", "python_version": "3",
    })  # fmt: skip
    model = report.build(plan, judged)
    (matrix,) = model["stages"][0]["matrices"]
    assert (matrix["rails"][0]["tests"], matrix["rails"][0]["below"], len(matrix["worst"])) == (30, 10, 10)
    assert matrix["directed"] and matrix["title"] == f"{CHECK} {VARIANT}"
    text = page.render(model)
    assert "Rail 0" in text and "Timetable: 1 rounds" in text


def port_facts(node: str, **changes: t.Any) -> Record:
    number = int(node[1:], 16)
    one: Record = {
        "device": "mlx5_0", "port": 1, "state": "ACTIVE", "rate_gbps": 400.0, "width": 4, "speed": "NDR",
        "mtu": 9000, "prefix": 24, "gid": {"index": 3, "address": f"10.0.0.{number}"},
        "gids": [{"address": f"10.0.0.{number}", "type": "RoCE v2"}], **changes,
    }  # fmt: skip
    device = {
        "device": "mlx5_0",
        "guid": changes.get("guid", f"0000:0000:0000:00{number + 1:02d}"),
        "firmware": changes.get("firmware", "28"),
        "board": changes.get("board", "x"),
        "part_number": changes.get("part_number"),
        "type": changes.get("type"),
        "pci": "0000:1a:00.0",
    }
    more = [{**one, "device": f"mlx5_{rail}", "gid": None, "gids": []} for rail in range(1, changes.get("rails", 1))]
    devices = [{**device, "device": p["device"], "guid": f"{device['guid']}:{rail}"} for rail, p in enumerate([one, *more])]
    context = {"devices": devices, "ports": [one, *more], "findings": [], "wanted": changes.get("wanted", {})}
    seen = observation.measured("ports", context=context)
    return record("rdma_ports", node, "node", seen, node)


@pytest.mark.parametrize(
    ("part", "word"),
    [("MCX75310AAS-NEAT", "WARN"), ("MCX715105AS-WEAT", "WARN"), ("MCX75310AAS-HEAT", "PASS"), ("0H3X6V", "PASS"), (None, "PASS")],
)
def test_a_fleet_whose_ports_all_run_below_their_part_number(part: str | None, word: str) -> None:
    fleet = [port_facts(n, rate_gbps=200.0, part_number=part) for n in nodes(4)]
    assert {v["verdict"] for v in judge(fleet).planned} == {word}
    said = [port_facts(n, rate_gbps=200.0, part_number=part, wanted={"gbps": [200.0]}) for n in nodes(4)]
    assert {v["verdict"] for v in judge(said).planned} == {"PASS"}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "WARN"),
        ({"part_number": "MCX75310AAS-HEAT"}, "PASS"),
        ({"rate_gbps": 400.0}, "PASS"),
        ({"link_layer": "Ethernet"}, "PASS"),
        ({"most_gbps": 200}, "PASS"),
        ({"rails": 2}, "PASS"),
        ({"type": "MT4123"}, "PASS"),
        ({"type": "MT9999"}, "PASS"),
        ({"wanted": {"gbps": [200.0]}}, "PASS"),
    ],
)
def test_a_fleet_of_infiniband_ports_that_all_run_below_their_chip(changes: Record, word: str) -> None:
    """With the part numbers of a machine's maker, which tell nothing. Two ports of one adapter are sold at half of the rate."""
    known = {"rate_gbps": 200.0, "part_number": "0H3X6V", "type": "MT4129", "link_layer": "InfiniBand"}
    found = judge([port_facts(n, **{**known, **changes}) for n in nodes(4)]).planned
    assert {v["verdict"] for v in found} == {word}
    assert word == "PASS" or all("its chip MT4129 can do 400" in v["reason"] for v in found)


@pytest.mark.parametrize(
    ("changes", "word", "code"),
    [
        ({}, "PASS", None),
        ({"mtu": 1500}, "FAIL", "mtu"),
        ({"firmware": "27"}, "WARN", "firmware"),
        ({"gid": {"index": 3, "address": "10.0.7.9"}}, "FAIL", "rail_order"),
        ({"guid": "0000:0000:0000:0001"}, "FAIL", "duplicate_identity"),
        ({"rate_gbps": 200.0}, "FAIL", "link_slow"),
        ({"rate_gbps": None}, "WARN", "link_slow"),
        ({"most_gbps": 400}, "PASS", None),
        ({"most_gbps": 800}, "WARN", "link_slow"),
        ({"most_gbps": 800, "wanted": {"gbps": [400.0]}}, "PASS", None),
        ({"part_number": "MCX75310AAS-NEAT"}, "PASS", None),
        ({"rate_gbps": 200.0, "board": "another"}, "FAIL", "link_slow"),
        ({"rate_gbps": 200.0, "wanted": {"gbps": [200.0]}}, "PASS", None),
        ({"rate_gbps": 800.0, "board": "another", "firmware": None}, "WARN", "link_slow"),
        ({"width": 8, "speed": "HDR"}, "WARN", "link_slow"),
        ({"rails": 2}, "FAIL", "rail_order"),
        ({"rails": 2, "wanted": {"rails": 2}}, "PASS", None),
        ({"gids": [{"address": "10.0.0.0", "type": "RoCE v2"}]}, "FAIL", "duplicate_identity"),
    ],
)
def test_ports_beside_those_of_other_nodes(changes: Record, word: str, code: str | None) -> None:
    found = judge([*(port_facts(n) for n in nodes(4)), port_facts("n7", **changes)])
    (one,) = [v for v in found.verdicts if v["subject"]["id"] == "n7"]
    assert (one["verdict"], one["reason_code"]) == (word, code)
    others = {v["verdict"] for v in found.verdicts if v["subject"]["id"] not in ("n0", "n7")}
    assert others == {"PASS"}


def of_ports(*records: Record) -> dict[str, tuple[str, str | None]]:
    return {v["subject"]["id"]: (v["verdict"], v["reason_code"]) for v in judge(list(records)).verdicts}


def test_a_port_that_shows_what_the_boards_of_most_could_do() -> None:
    """Most are slower than the same board is on one node: the majority is not right for being one."""
    found = of_ports(port_facts("n0"), *(port_facts(f"n{i:x}", rate_gbps=200.0) for i in range(1, 6)))
    assert found == {"n0": ("WARN", "link_slow"), **dict.fromkeys((f"n{i}" for i in range(1, 6)), ("UNKNOWN", "link_slow"))}
    told = of_ports(port_facts("n0"), *(port_facts(f"n{i:x}", rate_gbps=200.0, wanted={"gbps": [200.0]}) for i in range(1, 6)))
    assert set(told.values()) == {("PASS", None)}


@pytest.mark.parametrize("count", [2, 4, 12])
def test_two_halves_of_a_fleet_at_different_rates(count: int) -> None:
    """Of one board the slower half is not accepted until the inventory says that it is right; of two boards each is what it is."""
    half = count // 2
    fast = [port_facts(f"n{i:x}") for i in range(half)]

    def slow(**changes: t.Any) -> list[Record]:
        return [port_facts(f"n{i:x}", rate_gbps=200.0, **changes) for i in range(half, count)]

    one = of_ports(*fast, *slow())
    assert [one[f"n{i:x}"] for i in range(count)] == [("PASS", None)] * half + [("UNKNOWN", "link_slow")] * half
    assert {word for word, _code in of_ports(*fast, *slow(board="another")).values()} == {"PASS"}
    assert {word for word, _code in of_ports(*fast, *slow(most_gbps=200)).values()} == {"PASS"}, "they cannot do more"
    assert of_ports(*fast, *slow(most_gbps=400)) == one
    assert {word for word, _code in of_ports(*fast, *slow(wanted={"gbps": [200.0]})).values()} == {"PASS"}


def test_two_nodes_with_different_numbers_of_rails() -> None:
    found = of_ports(port_facts("n0", rails=8), port_facts("n1", rails=2))
    assert set(found.values()) == {("UNKNOWN", "rail_order")}
    told = of_ports(port_facts("n0", rails=8, wanted={"rails": 8}), port_facts("n1", rails=2, wanted={"rails": 2}))
    assert set(told.values()) == {("PASS", None)}


def test_what_the_inventory_says_of_others_is_no_excuse() -> None:
    """Two nodes of which nothing is said are held against ten of which it is."""
    told = [port_facts(f"n{i:x}", wanted={"gbps": [400.0], "rails": 1}) for i in range(10)]
    found = of_ports(*told, *(port_facts(n, rate_gbps=200.0, board="another", rails=2) for n in ("na", "nb")))
    assert found["na"] == found["nb"] == ("FAIL", "link_slow")
    assert {found[f"n{i:x}"] for i in range(10)} == {("PASS", None)}
    alone = of_ports(*told[:1], port_facts("na", rails=2))
    assert alone == {"n0": ("PASS", None), "na": ("UNKNOWN", "rail_order")}


def test_a_rail_that_met_nobody_was_not_measured() -> None:
    def known(node: str, **changes: t.Any) -> Record:
        return port_facts(node, wanted={"rails": changes.get("rails", 1)}, **changes)

    names = nodes(3)
    clean = judge([*run(lambda _a, _b: 388.0, names), *map(known, names)])
    assert set(words(clean).values()) == {"PASS"}
    more = known("n0", rails=2)
    more["context"]["ports"][1]["gid"] = {"index": 3, "address": "10.0.9.9"}
    found = judge([*run(lambda _a, _b: 388.0, names), more, known("n1"), known("n2")])
    assert words(found) == {**words(clean), "n0": "UNKNOWN"}
    (reason,) = [v["reason"] for v in found.verdicts if v["subject"]["id"] == "n0" and v["stage"] == "rdma"]
    assert "had no partner" in reason and "n0/nic/mlx5_1/1" in reason


def mixed(slow: t.Collection[str], value: t.Callable[[str, str, float], float | None], again: bool = True) -> list[Record]:
    """A run over 12 nodes, of which `slow` have ports of 200 Gb/s, with what was measured again; its last pairs are theirs."""
    names = nodes(12)
    rates = {n: 200.0 if n in slow else 400.0 for n in names}

    def values(a: str, b: str) -> float | None:
        return value(a, b, min(rates[a], rates[b]))

    facts = [port_facts(n, rate_gbps=rates[n], board=f"of {rates[n]:g}", wanted={"gbps": [rates[n]]}) for n in names]
    records = [*run(values, names, rates=rates), *facts]
    (table,) = rdma_matrix.tables(list(map(measurement, records)), lambda _n, _t: SHIPPED)
    found = table.diagnose()
    asked = [(a.split("/")[0], b.split("/")[0]) for a, b, _rail in found.again] if found and again else []
    return [*run(values, names, asked, rates=rates), *facts]


def good(_a: str, _b: str, rate: float) -> float:
    return 0.97 * rate


@pytest.mark.parametrize("slow", [nodes(6), nodes(12)[6:], nodes(12)[::2], ["n0", "nb"], nodes(12)])
def test_a_healthy_fleet_of_two_rates_is_accepted(slow: list[str]) -> None:
    assert set(words(judge(mixed(slow, good))).values()) == {"PASS"}


@pytest.mark.parametrize("bad", ["n0", "n5", "nb"])
def test_a_node_at_half_of_its_rate_is_convicted_wherever_it_stands(bad: str) -> None:
    """Its ports say 400, its pairs give 200: good enough only for the floor of somebody else's pair."""

    def value(a: str, b: str, rate: float) -> float:
        return 0.97 * (200.0 if bad in (a, b) else rate)

    assert words(judge(mixed([], value)))[bad] == "FAIL"
    others = [n for n in nodes(12) if n != bad]
    assert words(judge(mixed(others[:6], value)))[bad] == "FAIL"


def test_each_rail_of_a_pair_is_held_to_its_own_rate() -> None:
    """A pair as a whole is held to its slowest rail; 195 of 400 Gb/s is bad beside a rail of 200 too."""
    names = nodes(3)
    records = run(lambda _a, _b: 388.0, names)
    for one in records:
        if one["subject"]["kind"] == "pair":
            (rail,), (row,) = one["context"]["rails"], one["series"]
            ends = {"rail": "1", "a": port(rail["a"][:2], 1), "b": port(rail["b"][:2], 1)}
            one["context"].update(rails=[rail, {**rail, **ends}], nic_gbps=200.0)
            row["bandwidth"] = 195.0 if one["subject"]["id"] == "n0|n1" else 388.0
            one["series"] = [row, {**row, **ends, "bandwidth": 195.0}]
            one["metrics"]["bandwidth"]["value"] = 195.0
        else:
            one["series"] += [{**row, "rail": "1", "a": port(row["a"][:2], 1), "b": port(row["b"][:2], 1)} for row in one["series"]]
    for node in names:
        of = port_facts(node, rails=2, wanted={"rails": 2, "gbps": [400.0, 200.0]})
        of["context"]["ports"][1].update(rate_gbps=200.0)
        records.append(of)
    found = words(judge(records))
    assert (found["n0|n1"], found["n0|n2"], found["n1|n2"]) == ("FAIL", "PASS", "PASS")
    for one in records:  # 388 is possible on the rail of 400, and on no rail of 200
        if one["subject"]["id"] == "n1|n2":
            one["series"][1]["bandwidth"] = 388.0
    unreal = judge(records)
    pair = [v for v in unreal.verdicts if v["subject"]["id"] == "n1|n2"]
    assert len(pair) == 2 and {(v["verdict"], v["reason_code"]) for v in pair} == {("UNKNOWN", "above_physics")}
    assert all("rail 1" in v["reason"] for v in pair)


def resumed(records: list[Record], rng: random.Random) -> list[Record]:
    """Some pairs and their timetables had a first attempt that failed."""
    found = []
    for one in records:
        if one["stage"] == "rdma" and rng.random() < 0.1:
            lost = {"outcome": "error", "reason_code": "lost_node", "reason": "it was lost", "metrics": {}, "series": []}
            found.append({**one, **lost, "context": {}})
            one = {**one, "attempt": 2}
        found.append(one)
    return found


@pytest.mark.parametrize("seed", range(24))
def test_no_order_of_the_journal_decides(seed: int) -> None:
    """Fleets of two rates with bad ports and paths, suspects measured again and attempts that failed: the whole judgement."""
    rng = random.Random(seed)
    names = nodes(12)
    slow = rng.choice([[], names[:6], names[6:], rng.sample(names, rng.randint(1, 11))])
    weak, a_pair = rng.choice([None, *names]), set(rng.sample(names, 2))

    def value(a: str, b: str, rate: float) -> float | None:
        chance = random.Random(f"{seed} {a} {b}").random()
        if weak in (a, b) or {a, b} == a_pair:
            return 0.4 * rate
        return None if chance < 0.02 else rate * (0.95 + 0.03 * chance)

    if rng.random() < 0.3:  # ports that the inventory says nothing of
        records = [r for r in mixed(slow, value) if r["stage"] != "rdma_ports"]
        records += [port_facts(n, rate_gbps=200.0 if n in slow else 400.0) for n in names]
    else:
        records = mixed(slow, value)
    records = resumed(records, rng)
    for one in records:
        one.setdefault("started_at", "2026-11-21T04:30:14Z")
    first = judge(records)
    for _unused in range(6):
        rng.shuffle(records)
        again = judge(records)
        # The plan lists what was measured: its order is that of the journal here, and nobody's business.
        order = {json.dumps([v.subject.id, v.stage, v.variant]): v for v in again.planned}
        assert order == {json.dumps([v.subject.id, v.stage, v.variant]): v for v in first.planned}
        assert again.verdicts == first.verdicts
        assert (again.accepted, again.why, again.counts, again.nodes) == (first.accepted, first.why, first.counts, first.nodes)
        assert again.tables == first.tables


def paths(value: t.Any, path: tuple[t.Any, ...] = ()) -> t.Iterator[tuple[t.Any, ...]]:
    """Where a record can be changed: every key and index below its context, series and evidence."""
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from paths(inner, (*path, key))


BASE = [*run(lambda _a, _b: 388.0, nodes(3)), port_facts("n0"), port_facts("n1"), port_facts("n2")]
PLACES = [(i, (name, *path)) for i, r in enumerate(BASE) for name in ("context", "series", "evidence") for path in paths(r[name])]


@given(st.sampled_from(PLACES), st.sampled_from([None, "x", -1, 1e300, [], {}, [[]], [{}], {"a": 1}, True, "n0/nic/a/1"]))
def test_whatever_a_node_says_there_is_a_verdict(place: tuple[int, tuple[t.Any, ...]], value: t.Any) -> None:
    records = copy.deepcopy(BASE)
    number, path = place
    inside: t.Any = records[number]
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    found = judge(records)
    assert len(found.planned) == len(BASE)
    assert all(map(heatmap.of_table, found.tables["rdma"]))


# Causes --------------------------------------------------------------------------------------------------------------


def whole(values: t.Callable[[str, str], float | None], names: list[str]) -> list[Record]:
    """A run with all that the diagnosis asked for."""
    again: list[tuple[str, str]] = []
    while True:
        records = run(values, names, again)
        found = [table.diagnose() for table in rdma_matrix.tables(list(map(measurement, records)), lambda _n, _t: SHIPPED)]
        more = [(a.split("/")[0], b.split("/")[0]) for diagnosis in found if diagnosis for a, b, _rail in diagnosis.again]
        if not more:
            return records
        again += more


@pytest.mark.parametrize(
    ("slow", "words"),
    [
        (lambda a, b: a == "n2", "slow in one direction, where it sends"),
        (lambda a, b: b == "n2", "slow in one direction, where it receives"),
        (lambda a, b: "n2" in (a, b), "slow (read_bw 200 Gb/s by the median, least 352.9)"),
    ],
)
def test_one_bad_port_is_one_cause_with_its_pairs(slow: t.Callable[[str, str], bool], words: str) -> None:
    found = judge(whole(lambda a, b: 200.0 if slow(a, b) else 388.0, nodes()))
    (cause,) = found.causes
    assert (cause["subject"], cause["convicted"]) == (port("n2"), True)
    assert cause["said"].startswith(f"n2 mlx5_0 port 1: {words}") and cause["said"].endswith("; 5 pairs are low because of it")
    assert {key.subject for key in cause["explains"]} == {"n0|n2", "n1|n2", "n2|n3", "n2|n4", "n2|n5"}
    assert found.why.startswith("FAIL on 1 node (n2);"), "pairs are no nodes, and stand under their cause"


def test_a_bad_path_besides_a_bad_port_stands_by_itself() -> None:
    found = judge(whole(lambda a, b: 200.0 if a == "n2" or (a, b) == ("n4", "n5") else 388.0, nodes()))
    assert [(c["subject"], len(c["explains"])) for c in found.causes] == [(port("n2"), 5), ("n4|n5", 0)]
    assert "one direction, where n4 mlx5_0 port 1 sends" in found.causes[1]["said"]
    assert found.why.startswith("FAIL on 1 node (n2) and 1 pair (n4|n5);")


def test_a_link_that_breaks_is_said_to() -> None:
    (cause,) = judge(whole(lambda a, b: None if "n2" in (a, b) else 388.0, nodes())).causes
    assert "its link breaks" in cause["said"] and "5 pairs were not measured because of it" in cause["said"]


def test_counters_of_a_port_are_one_line_whatever_pairs_it_was_in() -> None:
    records = run(lambda _a, _b: 388.0, nodes())
    rose = {"code": "link_errors", "part": "nic/mlx5_0/1", "text": "mlx5_0 port 1: symbol_error rose from 1 to 5", "before": 1, "after": 5}
    for one in records:
        if one["subject"]["kind"] == "pair" and one["context"]["rails"][0]["b"] == port("n3"):  # the client's own
            one["evidence"] = {"changes": [rose], "unreadable": []}
        elif (one["stage"], one["subject"]["id"]) == ("rdma", "n3"):
            one["evidence"] = {"changes": [rose], "unreadable": []}
            for row in one["series"]:
                row["changes"] = [rose] if row["role"] == "server" else []
    found = judge(records)
    (cause,) = found.causes
    assert cause["subject"] == port("n3") and cause["verdict"] == "WARN" and found.accepted
    assert cause["said"] == "n3 mlx5_0 port 1: error counters rose in 10 tests: symbol_error; 5 pairs are a WARN because of it"


def test_a_convicted_port_and_path_are_said_with_the_switches_that_they_are_plugged_into() -> None:
    names = nodes(8)
    switch = {port(name): (f"leaf-{1 + number // 4}", str(1 + number % 4)) for number, name in enumerate(names)}
    mapped = Places({}, switch, {"leaf-1": {"spine-1"}, "leaf-2": {"spine-1"}})
    again = [(a, "n2") for a in names if a != "n2"] + [("n2", a) for a in names if a != "n2"]
    found = judge(run(lambda a, b: 100.0 if "n2" in (a, b) else 388.0, names, again), mapped)
    place = "n2 mlx5_0/1 is plugged into port 3 of leaf-1"
    assert [place in cause["said"] for cause in found.causes] == [True]
    reasons = {v["subject"]["id"]: v["reason"] for v in found.verdicts if v["verdict"] == "FAIL" and v["stage"] == "rdma"}
    assert reasons["n2"].endswith(place)
    path = judge(whole(lambda a, b: 100.0 if {a, b} == {"n1", "n5"} else 388.0, names), mapped)
    assert "port 2 of leaf-1; n5 mlx5_0/1 is plugged into port 2 of leaf-2" in path.causes[0]["said"]
