# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes are taken, left and given back: whose a node is, caps, second runs, and 200 random sequences of what may happen."""

from __future__ import annotations

import random
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.node_control import NodeState
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine import doing, reason, rules
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine.convictions import Conviction, Judged
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from harness.node_service import Cluster

RUN, LATER = "20260101T000000Z-0a1b2c", "20260103T000000Z-0a1b2c"
NOW = reason.began("20260102T000000Z-0a1b2c")
WIDE = rules.Caps(100, 100, 100)
OURS = reason.text_of(reason.Mark(RUN, "part", NOW, "x"))


def convicted(*names: str, rate: bool = False) -> list[Conviction]:
    return [
        Conviction(f"lab/{name}", "FAIL", "part", rate, f"{name} is broken", (Key("gemm", "bf16", "", f"lab/{name}"),)) for name in names
    ]


def fleet(cluster: Cluster, now: int = NOW, **racks: str) -> rules.Fleet:
    states = cluster.nodes_by_name
    return rules.Fleet(states, dict.fromkeys(states, "lab"), {f"lab/{node}": rack for node, rack in racks.items()}, now)


def lab(count: int, **fields: t.Any) -> Cluster:
    return Cluster([f"lab/n{number}" for number in range(count)], **fields)


def done(steps: t.Iterable[rules.Step]) -> dict[str, str]:
    return {step.node.partition("/")[2]: step.do for step in steps}


def quarantined(
    cluster: Cluster, found: list[Conviction], caps: rules.Caps = WIDE, mode: str = "drain", now: int = NOW, **racks: str
) -> doing.Done:
    of = fleet(cluster, now, **racks)
    return doing.carry_out(rules.quarantine(found, of, caps, RUN, mode, lambda _c: False), of, {"lab": cluster}, True)


def test_a_convicted_node_is_drained_once() -> None:
    cluster = lab(3)
    first = quarantined(cluster, convicted("n1"))
    assert first.changed == {"lab/n1": "drained"} and not first.failed
    mark = reason.mark_of(cluster.nodes_by_name["lab/n1"].reason)
    assert mark == reason.Mark(RUN, "part", NOW, "n1 is broken") and [n.name for n in cluster.nodes() if n.held] == ["lab/n1"]
    again = quarantined(cluster, convicted("n1"))
    assert not again.changed and f"in quarantine already, for run {RUN}" in again.lines[0]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"held": True, "reason": "NHC: check_gpu"}, "its reason is not ours: 'NHC: check_gpu'"),
        ({"held": False, "reason": "watch this one"}, "its reason is not ours"),
        ({"held": True}, "somebody has taken it out of service without a reason"),
        ({"held": True, "reason": OURS + " RMA 7"}, "somebody has changed the reason that we wrote"),
        ({"obstacle": "node n1 is down"}, "node n1 is down"),
    ],
)  # fmt: skip
def test_a_node_of_somebody_else_is_left_with_their_words(state: dict[str, t.Any], words: str) -> None:
    cluster = lab(2)
    cluster.put("lab/n1", **state)
    left = quarantined(cluster, convicted("n1"))
    assert not left.changed and not cluster.done and words in left.lines[0] and "n1 is broken" in left.lines[0]
    assert done(rules.undo(fleet(cluster), RUN)).get("n1", "leave") == "leave"


def test_a_node_that_is_gone_is_left() -> None:
    assert "there is no such node" in quarantined(lab(1), convicted("n7")).lines[0]


def test_somebody_who_is_quicker_is_let_be() -> None:
    cluster = lab(2)
    cluster.before = lambda name: cluster.put(name, held=True, reason="mine")
    late = quarantined(cluster, convicted("n1"))
    assert (
        not cluster.done
        and not late.changed
        and late.failed == ["lab/n1: not drained: it has changed meanwhile: its reason is not ours: 'mine'"]
    )


def test_a_change_that_had_no_effect_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = lab(2)
    monkeypatch.setattr(cluster, "drain", lambda *_given: None)
    assert quarantined(cluster, convicted("n1")).failed == ["lab/n1: not drained: it was told to, and is in service, no reason"]


def test_nothing_is_done_that_nobody_confirms() -> None:
    cluster = lab(2)
    of = fleet(cluster)
    shown = doing.carry_out(rules.quarantine(convicted("n1"), of, WIDE, RUN, "drain", lambda _c: False), of, {"lab": cluster}, False)
    assert not cluster.done and shown.changed == {"lab/n1": "drained"} and "would be drained: FAIL, part: n1 is broken" in shown.lines[0]
    assert shown.before == ["lab/n1: in service, no reason\n"] and shown.after[0].startswith(
        "lab/n1: out of service, 'gpufleet.acceptance "
    )


def test_a_rate_waits_for_a_second_run_and_a_comment_does_not() -> None:
    cluster = lab(2)
    slow = convicted("n1", rate=True)
    assert "no second run says so" in quarantined(cluster, slow).lines[0] and not cluster.done
    confirmed = rules.quarantine(slow, fleet(cluster), WIDE, RUN, "drain", lambda _c: True)
    assert done(confirmed) == {"n1": "drain"}
    assert quarantined(cluster, slow, mode="comment").changed == {"lab/n1": "commented"}


def test_a_comment_has_no_effect_and_one_of_somebody_else_stays() -> None:
    cluster = lab(3)
    cluster.put("lab/n2", comment="reserved for the opening")
    cluster.put("lab/n1", held=True, reason="mine")
    commented = quarantined(cluster, convicted("n1", "n2"), mode="comment")
    assert commented.changed == {"lab/n1": "commented"} and cluster.nodes_by_name["lab/n1"].held
    assert "its comment is not ours: 'reserved for the opening'" in commented.lines[1]
    assert not quarantined(cluster, convicted("n1"), mode="comment").changed
    assert done(rules.undo(fleet(cluster), RUN)) == {"n1": "uncomment"}


@pytest.mark.parametrize(("size", "taken"), [(8, 1), (19, 1), (20, 2), (40, 4)])
def test_a_tenth_of_a_cluster_and_one_node_at_least(size: int, taken: int) -> None:
    cluster = lab(size)
    result = quarantined(cluster, convicted(*(f"n{number}" for number in range(6))), rules.Caps(10, 100, 100))
    assert len(result.changed) == taken
    beyond = [line for line in result.lines if "beyond the cap" in line]
    assert len(beyond) == 6 - taken and all(f"at most {taken} may be: would be drained: FAIL" in line for line in beyond)


def test_no_percent_is_none() -> None:
    assert not quarantined(lab(3), convicted("n1"), rules.Caps(0, 100, 100)).changed


def test_nodes_of_earlier_runs_count_and_nodes_of_others_do_not() -> None:
    cluster = lab(20)
    cluster.put("lab/n0", held=True, reason=reason.text_of(reason.Mark(LATER, "use", NOW - 10**6, "x")))
    cluster.put("lab/n1", held=True, reason="mine")
    assert list(quarantined(cluster, convicted("n2", "n3"), rules.Caps(10, 100, 100)).changed) == ["lab/n2"]


def test_a_partition_has_its_own_tenth() -> None:
    cluster = lab(40)
    for number in range(5):
        cluster.put(f"lab/n{number}", partitions=("small",))
    result = quarantined(cluster, convicted("n0", "n1", "n9"), rules.Caps(10, 100, 100))
    assert list(result.changed) == ["lab/n0", "lab/n9"] and "1 of 5 nodes of partition lab/small are in quarantine" in result.lines[1]


def test_one_node_of_a_rack_unless_told() -> None:
    racks = {"n0": "r1", "n1": "r1", "n2": "r2"}
    result = quarantined(lab(10), convicted("n0", "n1", "n2"), rules.Caps(100, 100, 1), **racks)
    assert list(result.changed) == ["lab/n0", "lab/n2"] and "1 of 2 nodes of rack r1" in result.lines[1]
    assert len(quarantined(lab(10), convicted("n0", "n1"), rules.Caps(100, 100, 2), **racks).changed) == 2


def test_so_many_in_an_hour() -> None:
    cluster, caps = lab(40), rules.Caps(100, 5, 100)
    names = [f"n{number}" for number in range(6)]
    assert len(quarantined(cluster, convicted(*names), caps).changed) == 2
    assert "2 nodes were taken in the last hour" in quarantined(cluster, convicted(*names), caps, now=NOW + 3000).lines[2]
    assert len(quarantined(cluster, convicted(*names), caps, now=NOW + 3600).changed) == 2


def test_undo_takes_back_what_is_still_ours_and_of_this_run() -> None:
    cluster = lab(5)
    quarantined(cluster, convicted("n1", "n2", "n3"))
    quarantined(cluster, convicted("n4"), mode="comment")
    cluster.put("lab/n2", reason=cluster.nodes_by_name["lab/n2"].reason + " (bob)")
    cluster.put("lab/n3", held=False, reason="")
    of = fleet(cluster)
    assert not rules.undo(of, LATER)
    result = doing.carry_out(rules.undo(of, RUN), of, {"lab": cluster}, True)
    assert result.changed == {"lab/n1": "resumed", "lab/n4": "comment removed"}
    assert any("lab/n2: left: somebody has changed the reason" in line for line in result.lines)
    assert not cluster.nodes_by_name["lab/n1"].held and cluster.nodes_by_name["lab/n2"].held


@pytest.mark.parametrize(("seconds", "does"), [(0, "resume"), (60, "resume"), (7200, "leave")])
def test_a_node_that_somebody_takes_again_under_our_old_reason_is_theirs(seconds: int, does: str) -> None:
    cluster = lab(2)
    quarantined(cluster, convicted("n1"))
    cluster.put("lab/n1", held_at=NOW + seconds)
    of = fleet(cluster)
    for step in (*rules.undo(of, RUN), *rules.give_back(of, later(n1="PASS"), lambda _run, _node: convicted("n1")[0].checks)):
        assert step.do == does and ("taken it out of service again" in step.why) == (does == "leave")


def later(run: str = LATER, found: t.Sequence[Conviction] = (), **words: str) -> Judged:
    return Judged(run, "", "", list(found), {Key("gemm", "bf16", "", f"lab/{name}"): word for name, word in words.items()}, [], {}, {})


def test_a_node_returns_that_passes_what_convicted_it() -> None:
    cluster = lab(6)
    names = ["n0", "n1", "n2", "n3"]
    quarantined(cluster, convicted(*names))
    checks = {c.node: c.checks for c in convicted("n0", "n1", "n2")}
    judged = later(found=convicted("n2"), n0="PASS", n1="WARN", n2="PASS", n3="PASS")
    steps = {s.node: s for s in rules.give_back(fleet(cluster), judged, lambda _run, node: checks.get(node))}
    assert {name: step.do for name, step in steps.items()} == {
        "lab/n0": "resume", "lab/n1": "leave", "lab/n2": "leave", "lab/n3": "leave",
    }  # fmt: skip
    assert "gemm bf16 is WARN in run" in steps["lab/n1"].why and "convicts it, too" in steps["lab/n2"].why
    assert "-e undo=true" in steps["lab/n3"].why


def test_a_group_that_passes_without_a_node_does_not_give_it_back() -> None:
    cluster = lab(3)
    quarantined(cluster, convicted("n1"))
    key = Key("nccl_fabric", "all_reduce", "", "nccl_fabric/lab")
    for members, does, why in ((["lab/n0", "lab/n2"], "leave", "is PASS of other nodes in run"), (["lab/n0", "lab/n1"], "resume", "")):
        judged = Judged(LATER, "", "", [], {key: "PASS"}, [], {}, {}, {key.subject: members})
        (step,) = rules.give_back(fleet(cluster), judged, lambda _run, _node: [key])
        assert step.do == does and why in step.why


def test_simulated_numbers_give_nobody_back() -> None:
    cluster = lab(2)
    quarantined(cluster, convicted("n1"))
    judged = later(n1="PASS")
    judged.simulated = {"lab/n1"}
    (step,) = rules.give_back(fleet(cluster), judged, lambda _run, _node: convicted("n1")[0].checks)
    assert step.do == "leave" and "simulated tool" in step.why


def test_a_run_from_before_the_quarantine_returns_nobody() -> None:
    cluster = lab(2)
    quarantined(cluster, convicted("n1"), now=reason.began(LATER) + 5)
    (step,) = rules.give_back(fleet(cluster), later(n1="PASS"), lambda _run, _node: convicted("n1")[0].checks)
    assert step.do == "leave" and "since run" in step.why
    assert not rules.give_back(fleet(cluster), later(RUN, n1="PASS"), lambda _run, _node: convicted("n1")[0].checks)


OTHERS = ("NHC: check_gpu", "bob: RMA", "[node_problem] xid", "Not responding")


@pytest.mark.parametrize("seed", range(200))
def test_whatever_happens_no_foreign_reason_is_touched_and_no_cap_exceeded(seed: int) -> None:
    dice = random.Random(seed)
    cluster, caps = lab(dice.randint(1, 40)), rules.Caps(dice.choice((5, 10, 30)), dice.choice((5, 20, 100)), 100)
    names = list(cluster.nodes_by_name)
    limit = rules._share(caps.percent, len(names))
    now = NOW

    def somebody(name: str) -> None:
        state = cluster.nodes_by_name[name]
        what: t.Callable[[], NodeState] = dice.choice((
            lambda: state._replace(held=True, reason=dice.choice(OTHERS)), lambda: state._replace(held=False, reason=""),
            lambda: state._replace(reason=state.reason + " !"), lambda: state._replace(held=not state.held),
            lambda: state._replace(obstacle=dice.choice(("", "is down"))),
        ))  # fmt: skip
        cluster.nodes_by_name[name] = what()

    def ours() -> int:
        return sum(state.held and reason.mark_of(state.reason) is not None for state in cluster.nodes())

    cluster.before = lambda name: somebody(name) if dice.random() < 0.1 else None
    for number in range(20):
        run = f"202601{number % 28 + 1:02}T000000Z-{seed:06x}"
        for name in dice.sample(names, dice.randint(0, min(3, len(names)))):
            somebody(name)
        found = [
            c._replace(is_rate=dice.random() < 0.3)
            for c in convicted(*(name.partition("/")[2] for name in dice.sample(names, len(names) // 2)))
        ]
        before, of = ours(), rules.Fleet(dict(cluster.nodes_by_name), dict.fromkeys(names, "lab"), {}, now)
        action = dice.choice(("drain", "comment", "undo", "return"))
        if action == "undo":
            steps = rules.undo(of, run)
        elif action == "return":
            steps = rules.give_back(of, later(run), lambda _run, _node: [])
        else:
            steps = rules.quarantine(found, of, caps, run, action, lambda _c: dice.random() < 0.5)
        cluster.done.clear()
        doing.carry_out(steps, of, {"lab": cluster}, True)
        drained = [name for what, name, _reason in cluster.done if what == "drain"]
        assert not drained or before + len(drained) <= max(limit, before)
        for what, _name, was in cluster.done:
            assert what == "comment" or was == "" or reason.mark_of(was) is not None
        now += dice.randint(1, 5000)
