# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the stage rdma plans, and the timetables that it writes."""

from __future__ import annotations

import collections
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import todo
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import key_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import rdma, rdma_again
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import StageWork
from harness.records import make_plan, measurement
from hypothesis import given
from hypothesis import strategies as st

SETTINGS: dict[str, t.Any] = {
    "rdma_scope": "all_pairs", "rdma_partners": 2, "rdma_seed": 0, "rdma_pairs": [], "rdma_tests": ["read_bw"], "rdma_size": 65536,
    "rdma_latency_size": 2, "rdma_iterations": 500000, "rdma_latency_iterations": 1000, "rdma_qps": 8, "rdma_bidirectional": False,
    "rdma_duration": 0, "rdma_extra_args": [], "rdma_gpu": False, "rdma_test_timeout": 60, "rdma_patience": 10, "rdma_crossed": False,
    "rdma_rails_together": True, "rdma_confirm_above": 3600, "rdma_start_window": 0, "rdma_tcp_ports": "18515-19026",
}  # fmt: skip


def names(count: int) -> list[str]:
    return [f"n{i:03d}" for i in range(count)]


def ports(number: int, rails: int, down: t.Collection[int] = ()) -> list[dict[str, t.Any]]:
    return [
        {
            "device": f"mlx5_{rail}", "port": 1, "state": "DOWN" if rail in down else "ACTIVE", "link_layer": "Ethernet",
            "rate_gbps": 400.0, "nic": "MT4129", "address": None,
            "gid": {"index": 3, "address": f"10.{rail}.{number // 256}.{number % 256}"},
        }
        for rail in range(rails)
    ]  # fmt: skip


def timetables(
    count: int,
    rails: int = 2,
    known: dict[str, t.Any] | None = None,
    finished: dict[str, t.Any] | None = None,
    before: t.Sequence[dict[str, t.Any]] = (),
    **settings: t.Any,
) -> dict[str, dict[str, t.Any]]:
    """The options of each node."""
    return {node: work.options for node, work in works(count, rails, known, finished, before, **settings).items()}


def works(
    count: int,
    rails: int = 2,
    known: dict[str, t.Any] | None = None,
    finished: dict[str, t.Any] | None = None,
    before: t.Sequence[dict[str, t.Any]] = (),
    **settings: t.Any,
) -> dict[str, StageWork]:
    nodes = names(count)
    own = {**SETTINGS, **settings}
    items, _notes = rdma.items({n: n for n in nodes}, dict.fromkeys(nodes, own))
    items = [{**item, "stage": "rdma"} for item in items]
    todos = {n: {"settings": own, "stages": {"rdma": [i for i in items if i["target"] == n]}} for n in nodes}
    book = {n: ports(i, rails) for i, n in enumerate(nodes)} if known is None else known
    records = [
        *before,
        *(
            {"stage": "rdma_ports", "outcome": "measured", "subject": {"id": n}, "context": {"devices": [], "ports": p}}
            for n, p in book.items()
        ),
    ]
    run: t.Any = type("Run", (), {"journal": type("Journal", (), {"read": lambda _self: (list(map(measurement, records)), [])})()})()
    for node, keys in (finished or {}).items():
        todos[node]["finished"] = keys
    return rdma.work(run, make_plan({"items": items}), todos)


def test_the_plan_lists_pairs_and_says_what_they_take() -> None:
    nodes = names(64)
    settings = {**SETTINGS, "rdma_tests": ["read_bw", "send_lat"]}
    items, notes = rdma.items({n: n for n in nodes}, dict.fromkeys(nodes, settings))
    subjects = collections.Counter(item["subject"]["kind"] for item in items)
    assert subjects == {"node": 64, "pair": 3 * 2016}, "a bandwidth in both directions, a latency once"
    assert all(item["target"] in item["subject"]["id"].split("|") for item in items)
    text = " ".join(notes)
    assert "63 rounds, 2016 pairs, 3 tests of each on every rail: read_bw in both directions, send_lat" in text
    assert "262.1 GB on a rail in each direction" in text
    assert rdma.expected_seconds(63, rdma.kinds(settings), settings, 400) == pytest.approx(63 * (2 * (5.24 + 1) + 3), rel=0.01)
    assert "262.1 GB" in text and "5.24 s at 400 Gb/s, 10.5 s at 200 Gb/s, 21 s at 100 Gb/s" in text


@given(st.integers(2, 24), st.integers(1, 4), st.booleans(), st.booleans())
def test_both_sides_have_the_same_rounds(count: int, rails: int, together: bool, crossed: bool) -> None:
    found = timetables(count, rails, rdma_rails_together=together, rdma_crossed=crossed)
    sides: dict[tuple[t.Any, ...], list[tuple[str, dict[str, t.Any]]]] = collections.defaultdict(list)
    met = set()
    for node, args in found.items():
        for planned in args["rounds"]:
            assert len({test["partner"] for test in planned["tests"]}) == 1  # one partner a round
            for test in planned["tests"]:
                sides[planned["round"], test["a"], test["b"]].append((node, test))
                met.add(test["subject"])
    assert len(met) == count * (count - 1) // 2
    for both in sides.values():
        (one, a), (other, b) = both
        assert {a["role"], b["role"]} == {"server", "client"} and (a["partner"], b["partner"]) == (other, one)
        assert all(a[name] == b[name] for name in ("kind", "tcp_port", "peer", "rail", "subject"))
        assert (a["gid"], a["peer_gid"]) == (b["peer_gid"], b["gid"])
    used = collections.Counter((number, a.split("/")[0], both[0][1]["tcp_port"]) for (number, a, _b), both in sides.items())
    assert set(used.values()) == {1}  # no server has a TCP port twice in a round
    assert len(sides) == 2 * len(met) * (rails * rails if crossed else rails)


def test_options_are_equal_and_never_endless() -> None:
    found = timetables(2, rdma_tests=["write_bw", "read_lat"], rdma_bidirectional=True)
    assert found["n000"]["kinds"] == found["n001"]["kinds"]
    bandwidth, latency = found["n000"]["kinds"]
    assert bandwidth["options"] == ["-s", "65536", "-n", "500000", "-q", "8", "--noPeak", "--report_gbits", "-b"]
    assert (bandwidth["iterations"], bandwidth["qps"], bandwidth["bytes"]) == (500_000, 8, 65536)
    assert latency["options"] == ["-s", "2", "-n", "1000"]
    assert "run_infinitely" not in str(found)


def test_of_several_gids_the_one_in_the_network_of_the_partner() -> None:
    """Each port's best GID is in a network that the other does not have: both take the one that both are in."""
    known = {f"n{i:03d}": ports(i, 1) for i in range(3)}
    for node, best, other in (("n000", "192.0.2.1", "10.9.0.1"), ("n001", "10.9.0.2", "192.0.3.2"), ("n002", "192.0.3.3", "fd00::3")):
        known[node][0]["gid"] = {"index": 3, "address": best}
        known[node][0]["gid_others"] = [{"index": 5, "address": other}]
    tests = [test for args in timetables(3, known=known).values() for planned in args["rounds"] for test in planned["tests"]]
    chosen = {(test["subject"], test["a"][:4] if test["role"] == "server" else test["b"][:4]): test for test in tests}
    assert {key: (test["gid_index"], test["gid"]) for key, test in chosen.items()} == {
        ("n000|n001", "n000"): (5, "10.9.0.1"), ("n000|n001", "n001"): (3, "10.9.0.2"),
        ("n000|n002", "n000"): (3, "192.0.2.1"), ("n000|n002", "n002"): (3, "192.0.3.3"),
        ("n001|n002", "n001"): (5, "192.0.3.2"), ("n001|n002", "n002"): (3, "192.0.3.3"),
    }  # fmt: skip
    for test in tests:
        server = test["a"][:4]
        assert test["peer"] == chosen[test["subject"], server]["gid"]


def test_ports_that_are_down_and_nodes_that_are_unknown() -> None:
    known = {"n000": ports(0, 2), "n001": ports(1, 2, down=[0]), "n002": ports(2, 2, down=[0, 1])}
    found = timetables(4, known=known)
    tests = {test["subject"]: test["rail"] for args in found.values() for planned in args["rounds"] for test in planned["tests"]}
    assert tests == {"n000|n001": "1"}
    absent = {item["subject"]["id"]: item["reason_code"] for args in found.values() for item in args["absent"]}
    assert absent == {
        "n000|n002": "port_down", "n001|n002": "port_down", "n000|n003": "partner", "n001|n003": "partner", "n002|n003": "partner",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rdma_scope": "pairs"}, "expected pairs of hosts of this run"),
        ({"rdma_scope": "pairs", "rdma_pairs": [["n000", "elsewhere"]]}, "elsewhere"),
        ({"rdma_scope": "pairs", "rdma_pairs": [["n000", "n000"]]}, "expected a pair of two nodes"),
    ],
)
def test_pairs_that_cannot_be_tested_are_refused(settings: dict[str, t.Any], words: str) -> None:
    with pytest.raises(RunError, match=words):
        timetables(3, **settings)


@pytest.mark.parametrize("ports", ["", "18515", "18515-", "19026-18515", "80-90", "18515-70000", "a-b", "18515-19026-20000", 18515, None])
def test_tcp_ports_that_are_no_range_are_refused(ports: t.Any) -> None:
    said = rdma.STAGE.problem({**SETTINGS, "rdma_tcp_ports": ports})
    assert said == f"rdma_tcp_ports: found {ports}, expected FIRST-LAST, two ports from 1024 to 65535"
    assert rdma.STAGE.problem(SETTINGS) is None


def test_one_machine_has_only_loopback_tests() -> None:
    with pytest.raises(RunError, match="at least two"):
        timetables(1)
    assert timetables(1, rdma_scope="loopback")["n000"]["rounds"][0]["tests"][0]["rail"] == "0-1"


def test_pairs_stay_within_the_machines_and_within_each_cluster() -> None:
    settings = {"n0": SETTINGS, "n1": SETTINGS, **{name: {**SETTINGS, "acceptance_realm": name} for name in ("k8s", "away")}}
    nodes = {"n0": "n0", "n1": "n1", "k8s/a": "k8s", "k8s/b": "k8s", "away": "away"}
    items, notes = rdma.items(nodes, settings)
    assert {i["subject"]["id"]: i["target"] for i in items if i["subject"]["kind"] == "pair"} == {"n0|n1": "n0", "k8s/a|k8s/b": "k8s"}
    assert "between two clusters" in notes[0] and any("away, which is alone" in note for note in notes)
    chosen = {**SETTINGS, "rdma_scope": "pairs", "rdma_pairs": [["k8s/b", "k8s/a"], ["n0", "k8s/a"]]}
    items, notes = rdma.items(nodes, {name: {**one, **chosen, **_realm(one)} for name, one in settings.items()})
    assert {i["subject"]["id"] for i in items if i["subject"]["kind"] == "pair"} == {"k8s/a|k8s/b"}
    assert any("['n0', 'k8s/a'] is not measured" in note for note in notes)


def _realm(settings: dict[str, t.Any]) -> dict[str, t.Any]:
    return {name: value for name, value in settings.items() if name == "acceptance_realm"}


def test_a_cluster_is_told_the_timetables_of_its_nodes() -> None:
    own = {**SETTINGS, "acceptance_realm": "k8s"}
    nodes = {"k8s/a": "k8s", "k8s/b": "k8s"}
    items = [{**item, "stage": "rdma"} for item in rdma.items(nodes, {"k8s": own})[0]]
    records = [
        {"stage": "rdma_ports", "outcome": "measured", "subject": {"id": n}, "context": {"devices": [], "ports": ports(i, 1)}}
        for i, n in enumerate(nodes)
    ]
    run: t.Any = type("Run", (), {"journal": type("Journal", (), {"read": lambda _self: (list(map(measurement, records)), [])})()})()
    told = rdma.work(run, make_plan({"items": items}), {"k8s": {"settings": own, "stages": {"rdma": items}}})["k8s"]
    assert told.starts_in == 32.0 and set(told.per_node) == set(nodes)
    sides = {node: part["rounds"][0]["tests"][0] for node, part in told.per_node.items()}
    assert {side["role"] for side in sides.values()} == {"server", "client"}
    (server,) = [node for node, side in sides.items() if side["role"] == "server"]
    assert {side["peer"] for side in sides.values()} == {server}  # its address is told when its pod runs


WALK = [4, "0a", "read_bw", "direction=forward qps=8 size=65536", "n000|n001", "0", "n000/nic/mlx5_0/1", "n001/nic/mlx5_0/1"]


def keys_of(args: dict[str, t.Any]) -> set[tuple[str, ...]]:
    tests = [one for planned in args["rounds"] for one in planned["tests"]]
    return {(args["kinds"][one["kind"]]["variant"], one["subject"], one["rail"]) for one in tests}


def test_what_both_ends_have_finished_is_left_out_on_both() -> None:
    whole = timetables(3)
    found = timetables(3, finished={"n000": [[*WALK, "server"]], "n001": [[*WALK, "client"]]})
    gone = {(WALK[3], "n000|n001", "0")}
    for node in ("n000", "n001"):
        assert keys_of(whole[node]) - keys_of(found[node]) == gone, "its other rail is measured"
    assert keys_of(whole["n002"]) == keys_of(found["n002"])
    assert found["n001"]["finished"] == [{"check": "read_bw", "variant": WALK[3], "subject": "n000|n001", "tests": 1}]
    assert not found["n000"]["finished"] and found["n002"]["rounds_before"] == 5
    assert found["n000"]["walk"] == found["n001"]["walk"] != whole["n000"]["walk"]


@pytest.mark.parametrize(
    "finished",
    [
        {"n000": [[*WALK, "server"]]},
        {"n000": [[*WALK, "server"]], "n001": [[4, "0b", *WALK[2:], "client"]]},  # of another walk
        {"n000": [[*WALK, "server"], [*WALK, "client"]]},  # one speaks for both
        {"n000": [[*WALK, "server"]], "n002": [[*WALK, "client"]]},
        {"n000": [[*WALK, "server"]], "n001": [[*WALK[:7], "n001/nic/mlx5_1/1", "client"]]},
        {"n000": [["4", *WALK[1:], "server"], None, [], {}, [*WALK]], "n001": "rubbish"},
    ],
)
def test_what_one_end_alone_says_is_measured_again(finished: dict[str, t.Any]) -> None:
    whole, found = timetables(3), timetables(3, finished=finished)
    assert all(keys_of(whole[node]) == keys_of(found[node]) and not found[node]["finished"] for node in whole)


def of_attempt_1(subject: str, check: str = "timetable", variant: str = "", **more: t.Any) -> dict[str, t.Any]:
    about: dict[str, t.Any] = {"kind": "pair" if "|" in subject else "node", "id": subject, "members": []}
    common = {"stage": "rdma", "check": check, "variant": variant, "subject": about, "attempt": 1, "outcome": "measured"}
    return {**common, "context": {}, "series": [], **more}


RAIL = {"rail": "0", "a": WALK[6], "b": WALK[7], "walk": WALK[1], "outcome": "measured"}
# What the client of a pair had delivered when the controller was lost, and what its server saw.
ASKED = [of_attempt_1("n000|n001", "read_bw", str(WALK[3]), context={"rails": [RAIL]}), of_attempt_1("n001")]
SERVED = {**RAIL, "check": "read_bw", "variant": WALK[3], "subject": "n000|n001", "role": "server", "started_at": "", "duration_s": 1,
          "rows": [], "changes": [], "round": 4}  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "again"),
    [
        (None, True),  # the server's timetable was not delivered
        ([], True),  # or without a word of this test
        ([{**SERVED, "outcome": "error", "reason": "it was ended"}], True),
        ([{**SERVED, "walk": "0b"}], True),  # of another walk
        ([SERVED], False),
    ],
)
def test_a_number_that_no_server_has_seen_is_left_to_do(rows: list[dict[str, t.Any]] | None, again: bool) -> None:
    nodes = names(2)
    items, _notes = rdma.items({n: n for n in nodes}, dict.fromkeys(nodes, SETTINGS))
    of_server = [] if rows is None else [of_attempt_1("n000", series=rows)]
    left = todo.remaining(make_plan({"items": items}), list(map(measurement, [*ASKED, *of_server])), [rdma.STAGE])
    pairs = {i["variant"]: i["attempt"] for of in left.values() for i in of["rdma"] if i["subject"]["kind"] == "pair"}
    assert pairs.get(str(WALK[3])) == (2 if again else None)
    assert pairs["direction=back qps=8 size=65536"] == 1


@pytest.mark.parametrize("walk", ["0a", "0b"])
def test_a_pair_is_measured_again_unless_its_server_still_tells_what_it_saw(walk: str) -> None:
    whole = timetables(2, rails=1)
    work = works(2, rails=1, before=ASKED, finished={"n000": [[4, walk, *WALK[2:], "server"]]})
    found = {node: one.options for node, one in work.items()}
    key = (str(WALK[3]), "n000|n001", "0")
    assert all(key in keys_of(whole[node]) for node in whole)
    told = walk == WALK[1]
    assert [key in keys_of(found[node]) for node in ("n000", "n001")] == [not told] * 2
    assert work["n001"].keep == ([("read_bw", WALK[3], "n000|n001")] if told else [])


def test_a_node_with_only_undelivered_results_keeps_its_timetable() -> None:
    """Only the result that one server has was not delivered: the client is done, and the server is asked for it."""
    sides = {one["role"]: one for of in timetables(2, rails=1, rdma_tests=["read_lat"]).values() for one in of["rounds"][0]["tests"]}
    server, client = sides["client"]["partner"], sides["server"]["partner"]
    rail = {**RAIL, "a": sides["client"]["a"], "b": sides["client"]["b"]}
    before = [of_attempt_1("n000|n001", "read_lat", "size=2", context={"rails": [rail]}), of_attempt_1(client)]
    memo = [4, WALK[1], "read_lat", "size=2", "n000|n001", "0", rail["a"], rail["b"], "server"]
    found = works(2, rails=1, before=before, finished={server: [memo]}, rdma_tests=["read_lat"])
    assert found[client].answer == {"state": "done", "end": "done", "observations": []}
    assert found[client].keep == [("read_lat", "size=2", "n000|n001"), ("timetable", "", client)]
    assert not found[server].options["rounds"] and found[server].answer is None, "it is asked for its own"


def test_a_pair_measured_again_brings_its_server() -> None:
    nodes = names(3)
    items, _notes = rdma.items({n: n for n in nodes}, dict.fromkeys(nodes, SETTINGS))
    left = {key_of(item) for item in items if item["subject"]["id"] == "n000|n001"}
    assert {(key.check, key.subject) for key in rdma.complete(items, left)} == {("timetable", "n000"), ("timetable", "n001")}


def test_rdma_again_without_rdma_is_refused() -> None:
    with pytest.raises(RunError, match="rdma_again without rdma"):
        rdma_again.items({"n0": "n0"}, {"n0": {}})


def test_rounds_above_the_limit_ask_for_confirmation() -> None:
    settings = {n: {**SETTINGS, "rdma_confirm_above": 600} for n in names(128)}
    asked = rdma.question({n: n for n in settings}, settings)
    assert asked and "26 min" in asked
    assert rdma.question({n: n for n in names(12)}, settings) is None


@pytest.mark.parametrize("scope", [{}, {"rdma_scope": "ring"}, {"rdma_scope": "sample", "rdma_partners": 2}])
@pytest.mark.parametrize("test", ["read_bw", "write_bw", "send_bw"])
@pytest.mark.parametrize("count", [2, 3, 4, 12])
def test_every_node_sends_to_and_receives_from_each_of_its_partners(count: int, test: str, scope: dict[str, t.Any]) -> None:
    """Who asks fetches (read) or brings (write, send): the roles are swapped so that data goes both ways over every rail."""
    if scope.get("rdma_scope") == "sample" and count < 3:
        scope = {**scope, "rdma_partners": 1}
    found = timetables(count, rdma_tests=[test], **scope)
    ways = collections.Counter()
    for node, args in found.items():
        for planned in args["rounds"]:
            for one in planned["tests"]:
                if one["role"] == "client":
                    sender, receiver = (one["a"], one["b"]) if test == "read_bw" else (one["b"], one["a"])
                    ways[sender, receiver] += 1
                    kind = args["kinds"][one["kind"]]
                    first, _second = one["subject"].split("|")
                    assert kind["variant"].startswith(f"direction={'forward' if sender.startswith(first) else 'back'} ")
                    assert one["b"].startswith(node)
    assert ways and set(ways.values()) == {1} and set(ways) == {(b, a) for a, b in ways}


def test_what_goes_both_ways_by_itself_is_measured_once() -> None:
    kinds = rdma.kinds({**SETTINGS, "rdma_tests": ["read_bw", "read_lat", "atomic_bw", "send_lat"], "rdma_bidirectional": True})
    assert [(kind["check"], kind["direction"]) for kind in kinds] == [
        ("read_bw", None), ("read_lat", None), ("atomic_bw", None), ("send_lat", None)
    ]  # fmt: skip
    assert all(" direction=" not in " " + kind["variant"] for kind in kinds)


def test_each_direction_is_planned_for_whoever_asks_in_it() -> None:
    nodes = {n: f"host-{n}" for n in names(4)}
    settings = {target: {**SETTINGS, "rdma_tests": ["write_bw", "send_lat"]} for target in nodes.values()}
    items, _notes = rdma.items(nodes, settings)
    of = {(i["subject"]["id"], i["check"], i["variant"]): i["target"] for i in items if i["subject"]["kind"] == "pair"}
    assert len(of) == 6 * 3
    assert of["n000|n001", "write_bw", "direction=forward qps=8 size=65536"] == "host-n000", "it brings what it sends"
    assert of["n000|n001", "write_bw", "direction=back qps=8 size=65536"] == "host-n001"


def test_within_a_node_data_goes_both_ways_too() -> None:
    rounds = timetables(1, rdma_scope="loopback")["n000"]["rounds"]
    assert [{(x["a"], x["b"]) for x in planned["tests"]} for planned in rounds] == [
        {("n000/nic/mlx5_0/1", "n000/nic/mlx5_1/1")}, {("n000/nic/mlx5_1/1", "n000/nic/mlx5_0/1")}
    ]  # fmt: skip


def test_one_direction_that_is_left_is_measured_alone() -> None:
    nodes = names(3)
    items, _notes = rdma.items({n: n for n in nodes}, dict.fromkeys(nodes, SETTINGS))
    left = next(i for i in items if i["subject"]["id"] == "n000|n001" and "direction=back" in i["variant"])
    keys = {key_of(left)} | rdma.complete(items, {key_of(left)})
    todo: dict[str, t.Any] = {}
    for item in items:
        if key_of(item) in keys:
            todo.setdefault(item["target"], {}).setdefault("rdma", []).append(item.todo(2))
    records = [
        {"stage": "rdma_ports", "outcome": "measured", "subject": {"id": n}, "context": {"devices": [], "ports": ports(i, 1)}}
        for i, n in enumerate(nodes)
    ]
    run: t.Any = type("Run", (), {"journal": type("Journal", (), {"read": lambda _self: (list(map(measurement, records)), [])})()})()
    told = rdma.work(run, make_plan({"items": items}), {target: {"settings": SETTINGS, "stages": of} for target, of in todo.items()})
    tests = [(node, x["role"]) for node, work in told.items() for planned in work.options["rounds"] for x in planned["tests"]]
    assert sorted(tests) == [("n000", "client"), ("n001", "server")], "n001 sends, and is read from"
