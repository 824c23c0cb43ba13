# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Localisation against a fabric with injected faults. `ACCEPTANCE_TRIALS=10000` runs more than 1,500 random trials."""

from __future__ import annotations

import json
import os
import random

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise.search import GroupTestResult, Localiser, SearchFinding
from rigs.simulated.fabric import FLOOR, KINDS, Fabric, Fault, play, scenario
from rigs.simulated.noise import SHAPES

NODES = [f"n{i:02d}" for i in range(24)]


def search(fabric: Fabric, **options) -> tuple[Localiser, list[SearchFinding]]:
    session = Localiser(fabric.nodes, gpus=fabric.gpus, **options)
    while tests := session.next_round():
        session.record(fabric.run(tests))
    return session, session.findings()


def subjects(findings: list[SearchFinding], confidence: str = "convicted") -> set[tuple[str, str]]:
    return {(f.kind, f.id) for f in findings if f.confidence == confidence}


def test_random_faults_are_found_and_no_innocent_node_is_convicted():
    trials = [play(scenario(seed)) for seed in range(int(os.environ.get("ACCEPTANCE_TRIALS", "1500")))]
    wrong = [(t.scenario.seed, t.missed, t.innocent) for t in trials if not t.right]
    assert len(wrong) <= len(trials) // 100, wrong
    # A link that fails half of its tests passes ten in a row once in a thousand: that much is left to chance.
    convicted_innocents = [w for w in wrong if w[2]]
    assert len(convicted_innocents) <= len(trials) // 1000, convicted_innocents
    assert {len(t.scenario.faults) for t in trials} == {1, 2, 3, 4, 5}
    assert min(len(t.scenario.nodes) for t in trials) == 4 and max(len(t.scenario.nodes) for t in trials) > 1000


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_fault_is_told_from_the_others(kind):
    for seed in range(25):
        trial = play(scenario(seed, size=96, count=1, kinds=[kind]))
        assert trial.right, (seed, trial.missed, trial.innocent)
        assert trial.rounds <= 6
        assert not [f for f in trial.findings if f.confidence == "unresolved"]


def test_the_published_case_takes_at_most_five_rounds():
    for count in range(1, 6):
        for seed in range(10):
            trial = play(scenario(seed, size=232, count=count, kinds=["node", "gpu", "flapping node", "hang node"]))
            assert trial.right
            assert trial.rounds <= 5
            assert trial.tests - trial.slot_tests < 232 * 231 / 2 / 200


@pytest.mark.parametrize("size", [4, 5, 6, 7, 8, 9, 12, 1024])
def test_faults_in_groups_of_any_size_are_found(size):
    for seed in range(40 if size < 100 else 5):
        trial = play(scenario(seed, size=size))
        assert trial.right, (seed, trial.missed, trial.innocent)


def test_a_mesh_finds_a_path_between_halves_that_both_pass():
    for seed in range(30):
        trial = play(scenario(seed, size=32, count=1, paths="mesh", kinds=["pair"]))
        assert trial.right, (seed, trial.missed, trial.innocent)


def test_random_faults_in_a_mesh_of_paths_are_found():
    trials = [play(scenario(seed, paths="mesh")) for seed in range(150)]
    assert sum(t.right for t in trials) >= 0.99 * len(trials)


def test_a_hang_costs_only_its_own_group():
    fabric = Fabric(NODES, [Fault("node", ("n05",), hang=True)])
    session = Localiser(NODES, gpus=fabric.gpus)
    tests = session.next_round()
    results = fabric.run(tests)
    assert [r.outcome for r in results.values()].count("hang") == 1
    assert [r.outcome for r in results.values()].count("pass") == len(tests) - 1
    session.record(results)
    while tests := session.next_round():
        assert all("n05" in t.nodes for t in tests if fabric.measure(t).outcome == "hang")
        session.record(fabric.run(tests))
    assert subjects(session.findings()) == {("node", "n05")}


def test_a_node_needs_two_good_partners_and_the_evidence_names_them():
    session, findings = search(Fabric(NODES, [Fault("node", ("n07",))]))
    (finding,) = findings
    against = [e for e in finding.evidence if e["outcome"] == "fail"]
    partners = {n for e in against for n in e["nodes"]} - {"n07"}
    assert len(partners) >= 2
    assert all("n07" in e["nodes"] and e["values"] and e["floor"] == FLOOR for e in against)
    assert json.loads(json.dumps(finding.as_dict()))["subject"] == {"kind": "node", "id": "n07", "members": ["n07"]}
    assert session.rounds == 4


def test_a_gpu_is_named_by_its_id():
    _unused, findings = search(Fabric(NODES, [Fault("gpu", ("n07",), slot=3)]))
    assert subjects(findings) == {("gpu", "n07/gpu/GPU-3")}
    assert "7 siblings pass" in findings[0].reason


def test_without_gpus_the_node_is_convicted():
    fabric = Fabric(NODES, [Fault("gpu", ("n07",), slot=3)])
    session = Localiser(NODES)
    while tests := session.next_round():
        assert all(t.gpus is None for t in tests)
        session.record(fabric.run(tests))
    assert subjects(session.findings()) == {("node", "n07")}


def test_a_node_with_one_gpu_is_not_told_from_it():
    _unused, findings = search(Fabric(NODES, [Fault("gpu", ("n07",), slot=0)], slots=1))
    assert subjects(findings) == {("node", "n07")}
    assert [o["id"] for o in findings[0].indistinguishable] == ["n07/gpu/GPU-0"]


def test_a_switch_needs_the_topology():
    leaf = NODES[8:16]
    topology = {n: f"leaf-{i // 8}" for i, n in enumerate(NODES)}
    nodes = [*NODES, *(f"m{i:02d}" for i in range(24))]
    for uplink in (False, True):
        fabric = Fabric(nodes, [Fault("switch", tuple(leaf), leaf="leaf-1", uplink=uplink)])
        _unused, findings = search(
            fabric, topology={**topology, **{n: f"leaf-{3 + i // 8}" for i, n in enumerate(nodes[24:])}}
        )
        assert subjects(findings) == {("switch", "leaf-1")}
        assert set(findings[0].members) == set(leaf)
        assert ("within the leaf they pass" in findings[0].reason) is uplink
    _unused, findings = search(Fabric(nodes, [Fault("switch", tuple(leaf), leaf="leaf-1")]))
    assert subjects(findings) == {("node", n) for n in leaf}


def test_a_leaf_of_four_bad_nodes_or_a_bad_switch():
    topology = {n: f"leaf-{i // 4}" for i, n in enumerate(NODES)}
    _unused, findings = search(Fabric(NODES, [Fault("node", (n,)) for n in NODES[4:8]]), topology=topology)
    assert subjects(findings) == {("switch", "leaf-1")}
    assert {o["id"] for o in findings[0].indistinguishable} == set(NODES[4:8])


def test_two_nodes_cannot_be_told_apart():
    _unused, findings = search(Fabric(["a", "b"], [Fault("node", ("a",))]))
    assert not subjects(findings)
    (finding,) = findings
    assert {o["id"] for o in finding.indistinguishable} == {"a", "b", "a|b"}


def test_a_fault_that_is_gone_is_neither_found_nor_cleared():
    _unused, findings = search(Fabric(NODES, []))
    assert not subjects(findings)
    assert [f.confidence for f in findings] == ["unresolved"]
    assert "not reproduced" in findings[0].reason


def test_one_low_repetition_convicts_nobody():
    """One repetition in a healthy group below the floor costs tests, not an innocent."""
    fabric = Fabric(NODES, [Fault("node", ("n20",))])
    session = Localiser(NODES, gpus=fabric.gpus)
    first = session.next_round()
    results = fabric.run(first)
    unlucky = next(t for t in first if "n03" in t.nodes)
    results[unlucky.id] = GroupTestResult("fail", (FLOOR - 1, *[FLOOR + 20] * 9), FLOOR)
    session.record(results)
    while tests := session.next_round():
        session.record(fabric.run(tests))
    assert subjects(session.findings()) == {("node", "n20")}


def test_a_clearing_that_was_luck_is_taken_back():
    """A flapping node passes its first tests; the group of all still fails, so nothing stays cleared."""
    nodes = NODES[:12]
    fabric = Fabric(nodes, [Fault("node", ("n05",))])
    lucky = Fabric(nodes, [])
    session = Localiser(nodes, gpus=fabric.gpus)
    while tests := session.next_round():
        session.record((lucky if session.rounds <= 2 else fabric).run(tests))
    assert subjects(session.findings()) == {("node", "n05")}


def test_unknown_clears_nobody_and_convicts_nobody():
    fabric = Fabric(NODES, [Fault("node", ("n20",))], broken={"n03": "no sshd on n03"})
    _unused, findings = search(fabric)
    assert subjects(findings) == {("node", "n20")}
    assert subjects(findings, "unresolved") == {("node", "n03")}
    assert "no sshd on n03" in next(f.reason for f in findings if f.id == "n03")


def test_nothing_measured_at_all_ends_and_clears_nobody():
    session = Localiser(NODES)
    while session.next_round():
        session.record({})
    assert session.rounds <= 40
    assert not subjects(session.findings())
    assert {m for f in session.findings() for m in f.members} == set(NODES)


def test_without_a_last_proof_the_rest_is_unresolved():
    fabric = Fabric(NODES, [Fault("node", ("n07",))])
    session = Localiser(NODES, gpus=fabric.gpus)
    while tests := session.next_round():
        results = fabric.run(tests)
        session.record({} if tests[0].purpose == "rest" else results)
    assert subjects(session.findings()) == {("node", "n07")}
    assert subjects(session.findings(), "unresolved") == {("group", "rest")}


def test_a_missing_result_is_unknown():
    fabric = Fabric(NODES, [Fault("node", ("n07",))])
    session = Localiser(NODES, gpus=fabric.gpus)
    while tests := session.next_round():
        results = fabric.run(tests)
        if session.rounds == 1:
            results.pop(tests[0].id)
        session.record(results)
    assert subjects(session.findings()) == {("node", "n07")}
    assert len(session.findings()) == 1


@pytest.mark.parametrize(
    ("values", "outcome"),
    [
        ([380.0] * 10, "pass"),
        ([380.0] * 9, "unknown"),
        ([], "unknown"),
        ([380.0] * 9 + [float("nan")], "unknown"),
        ([380.0] * 9 + [341.9], "unknown"),  # scatter may do that: five more good ones are needed
        ([380.0] * 10 + [341.9] + [380.0] * 5, "pass"),
        ([341.9], "unknown"),
        ([341.9] * 3, "fail"),
        ([341.9, 380.0] * 5, "fail"),
        ([341.9, *[380.0] * 4] * 6, "unknown"),  # neither
        ([342.0] * 10, "pass"),
    ],
)
def test_a_pass_needs_every_repetition(values, outcome):
    assert GroupTestResult.of(values, FLOOR, 10).outcome == outcome


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("wild", [False, True])
def test_scatter_of_3_percent_convicts_nobody(shape, wild):
    """`wild`: faults of nodes, GPUs and paths that share nodes, and that strike in a tenth of the repetitions or more. Of those, two in
    1,500 searches take a path for the bad node at its end, or a GPU for its node; they never name a machine without a fault."""
    count = int(os.environ.get("ACCEPTANCE_TRIALS", "60"))
    mistaken = []
    for seed in range(7000, 7000 + count):
        kinds = [kind for kind in KINDS if kind not in ("switch", "uplink")] if wild else KINDS
        trial = play(scenario(seed, noise=(0.03, shape), wild=wild, kinds=kinds))
        assert not trial.missed or wild, seed
        if trial.innocent:
            mistaken.append(seed)
            faulty = {name for fault in trial.scenario.faults for name in fault.nodes}
            named = [f for f in trial.findings if (f.kind, f.id) in trial.innocent]
            assert wild and all(faulty & set(finding.members) for finding in named), seed
    assert len(mistaken) <= count // 500, mistaken


@pytest.mark.parametrize("kind", ["node", "gpu"])
def test_a_fault_that_strikes_now_and_then_is_not_taken_for_its_parts_or_paths(kind):
    """A group that hangs in a seventh of its repetitions: several GPUs of the node hang alone, and it passes with many partners."""
    for seed in range(40):
        nodes = [f"n{i:02d}" for i in range(24)]
        fault = Fault(kind, ("n07",), slot=0 if kind == "gpu" else -1, share=0.15, hang=True)
        for finding in search(Fabric(nodes, [fault], seed=seed))[1]:
            alike = {(finding.kind, finding.id), *((o["kind"], o["id"]) for o in finding.indistinguishable)}
            # The node stands for its GPUs.
            assert finding.confidence != "convicted" or alike & {fault.subject, ("node", "n07")}, (seed, finding)


def test_what_lies_behind_a_bad_node_is_named():
    _unused, (finding,) = search(Fabric(NODES, [Fault("node", ("n07",)), Fault("pair", ("n07", "n08"))]))
    assert (finding.kind, finding.id) == ("node", "n07")
    assert "n07|n08" in finding.not_looked_at and finding.as_dict()["not_looked_at"] == list(finding.not_looked_at)


@pytest.mark.parametrize("slots", [1, 2, 8])
def test_two_bad_paths_that_meet_convict_no_node(slots):
    for seed in range(40):
        fabric = Fabric(NODES, [Fault("pair", ("n05", "n06")), Fault("pair", ("n06", "n07"))], slots=slots, seed=seed)
        assert subjects(search(fabric, seed=seed)[1]) == {("pair", "n05|n06"), ("pair", "n06|n07")}, seed


def test_a_node_with_two_partners_left_names_the_paths_to_them():
    _unused, (finding, *_rest) = search(Fabric(NODES[:3], [Fault("node", ("n01",))], slots=1))
    assert (finding.kind, finding.id) == ("node", "n01")
    assert {"n00|n01", "n01|n02"} <= {other["id"] for other in finding.indistinguishable}


@pytest.mark.parametrize("paths", ["ring", "mesh"])
def test_the_other_paths_of_both_ends_of_a_bad_path_are_named(paths):
    """One end stays out of the last group, so nobody sees a second bad path there."""
    for seed in range(20):
        faults = [Fault("pair", ("n03", "n04")), Fault("pair", ("n04", "n05")), Fault("pair", ("n02", "n03"))]
        _unused, findings = search(Fabric(NODES, faults, seed=seed, paths=paths), seed=seed, paths=paths)
        assert not [finding for finding in findings if finding.confidence == "convicted" and finding.kind != "pair"]
        told = {one for finding in findings for one in (finding.id, *finding.not_looked_at)}
        assert {"n02|n03", "n03|n04", "n04|n05"} <= told, seed


def test_a_floor_that_is_no_number_passes_nothing():
    assert GroupTestResult.of([380.0] * 10, float("nan"), 10).outcome == "unknown"


@pytest.mark.parametrize(
    ("nodes", "options"),
    [
        (["a"], {}),
        (["a", "a"], {}),
        (["a", "b"], {"repeats": 0}),
        (["a", "b"], {"paths": "tree"}),
        (["a", "b"], {"gpus": {"a": ["x"]}}),
    ],
)
def test_arguments_that_make_no_search_are_refused(nodes, options):
    with pytest.raises(ValueError):
        Localiser(nodes, **options)


def test_results_of_other_tests_are_refused():
    session = Localiser(NODES)
    session.next_round()
    with pytest.raises(ValueError):
        session.record({999: GroupTestResult("pass")})
    with pytest.raises(ValueError):
        session.next_round()


def test_a_conviction_is_taken_back_with_its_witness():
    """n00's first tests were luck: what failed with it as a good partner is innocent once it is convicted."""
    nodes = NODES[:12]
    bad = Fabric(nodes, [Fault("gpu", ("n00",), slot=0), Fault("node", ("n11",), aggregate=True)])
    lucky = Fabric(nodes, [Fault("node", ("n11",), aggregate=True)])
    session = Localiser(nodes, gpus=bad.gpus)
    while tests := session.next_round():
        alone = {t.id for t in tests if t.gpus is None}
        early = session.rounds <= 2
        session.record({t.id: (lucky if early and t.id in alone else bad).measure(t) for t in tests})
    assert subjects(session.findings()) == {("gpu", "n00/gpu/GPU-0"), ("node", "n11")}


@pytest.mark.parametrize("seed", range(60))
def test_whatever_comes_back_a_session_ends_and_convicts_only_with_two_partners(seed):
    """Results without rhyme: no round shares a node, the search ends, no finding claims more than its evidence."""
    rng = random.Random(seed)
    size = rng.randint(2, 40)
    nodes = [f"n{i:02d}" for i in range(size)]
    fabric = Fabric(nodes, [], slots=rng.choice([1, 2, 8]))
    topology = {n: f"leaf-{i // 5}" for i, n in enumerate(nodes)} if rng.random() < 0.5 else None
    weights = rng.choice([(6, 2, 1, 1), (1, 6, 1, 1), (3, 3, 0, 3), (9, 1, 0, 0)])
    session = Localiser(nodes, gpus=fabric.gpus, topology=topology, paths=rng.choice(["ring", "mesh"]), seed=seed)
    while tests := session.next_round():
        fabric.run(tests)  # checks that the tests are disjoint
        outcomes = rng.choices(["pass", "fail", "hang", "unknown"], weights, k=len(tests))
        session.record(
            {t.id: GroupTestResult(o, rng.choice([(), (1.0,), (3.0, 1.0)]), 2.0) for t, o in zip(tests, outcomes, strict=True)}
        )
    assert session.rounds <= 40
    for finding in session.findings():
        json.dumps(finding.as_dict())
        assert set(finding.members) <= set(nodes)
        if finding.kind in ("node", "gpu") and finding.confidence == "convicted":
            against = [e for e in finding.evidence if e["outcome"] in ("fail", "hang")]
            assert len({n for e in against for n in e["nodes"]} - set(finding.members)) >= 2
