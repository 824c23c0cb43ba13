# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A name is one machine with one set of GPUs for a whole run; whatever else it was is never accepted."""

from __future__ import annotations

import itertools
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import physics
from unit.plugin_utils.judging.test_verdict import NCCL, Record, failed, item, judge, nccl, record


def gpus(count: int, of: str = "x") -> list[str]:
    return [f"GPU-{of}-{n}" for n in range(count)]


def who(count: int | None = 4, machine: str | None = "a" * 32, of: str = "x", **more: t.Any) -> Record:
    known = {"machine_id": machine, "gpu_uuids": None if count is None else gpus(count, of), **more}
    return {name: value for name, value in known.items() if value}


def stack(node: str = "n1", identity: Record | None = None, **fields: t.Any) -> Record:
    seen = {"gpu": "NVIDIA H200", "gpus": fields.pop("gpus", 4), **({"identities": {node: identity}} if identity else {})}
    return record(node, "stack", "cuda", context=seen, **fields)


def test(node: str = "n1", identity: Record | None = None, **fields: t.Any) -> Record:
    seen = {**NCCL, **fields.pop("more", {}), **({"identities": {node: identity}} if identity else {})}
    return nccl(node, context=seen, **fields)


test.__test__ = False  # type: ignore[attr-defined]  # a record, not a test


def both(first: Record, second: Record, **options: t.Any) -> tuple[tuple[str, str | None], tuple[str, str | None], t.Any]:
    """Verdict and code of `stack` and of `nccl_node`, whatever the order of the journal."""
    items = [item("n1", "stack", "cuda"), item("n1")]
    found = judge(items, [first, second], **options)
    again = judge(items, [second, first], **options)
    assert found.verdicts == again.verdicts
    one, two = found.planned
    return (one["verdict"], one["reason_code"]), (two["verdict"], two["reason_code"]), found


GOOD = ("PASS", None)
LOST = ("FAIL", "gpu_lost")
FEW = ("UNKNOWN", "gpu_count")
CHANGED = ("UNKNOWN", "identity_changed")


def test_the_same_machine_in_every_stage_is_accepted() -> None:
    assert both(stack(identity=who()), test(identity=who()))[:2] == (GOOD, GOOD)
    assert both(stack(identity=who(None)), test(identity=who(machine=None)))[:2] == (GOOD, GOOD), "what is not known is not held against it"
    assert both(stack(), test())[2].accepted, "nor where nothing is known at all"


def test_a_stage_that_saw_fewer_gpus_is_not_judged_by_a_smaller_floor() -> None:
    one, two, found = both(stack(identity=who(8), gpus=8), test(identity=who(4)))
    assert (one, two) == (GOOD, LOST) and not found.accepted
    assert "nccl_node all_reduce saw 4 of the 8 GPUs" in found.planned[1]["reason"] and "GPU-x-4" in found.planned[1]["reason"]
    assert both(stack(identity=who(4)), test(identity=who(8)))[:2] == (LOST, GOOD), "whichever stage it was"
    # By their number alone, as where a journal has no identities.
    assert both(stack(gpus=8), test())[:2] == (GOOD, LOST)
    # Whoever asks for some GPUs only sees no others.
    some = test(identity=who(4), variant="gpus=4")
    found = judge([item("n1", "stack", "cuda"), item(variant="gpus=4")], [stack(identity=who(8), gpus=8), some])
    assert [v["verdict"] for v in found.planned] == ["PASS", "PASS"]


def test_a_waiver_without_a_state_does_not_cover_gpus_that_were_lost_during_the_run() -> None:
    waiver = {"subject": "n1", "codes": ["gpu_lost"], "ticket": "T-1", "expires": "2026-12-01"}
    items = [item("n1", "stack", "cuda"), item("n1")]
    records = [stack(identity=who(8), gpus=8), test(identity=who(4))]
    found = judge(items, records, waivers=[waiver])
    assert found.planned[1]["verdict"] == "FAIL" and "this came up during the run: a new failure" in str(found.planned[1]["findings"])
    state = next(text for text in found.planned[1]["findings"] if "a new failure" in text).rpartition("(")[2].rstrip(")")
    assert judge(items, records, waivers=[{**waiver, "state": state}]).planned[1]["verdict"] == "KNOWN_FAIL"


@pytest.mark.parametrize("rule", ["single_gpu", "one_gpu"])
def test_a_skip_for_one_gpu_of_a_node_that_has_more(rule: str) -> None:
    skipped = failed("n1", rule, "not_applicable", context={"gpus": 8, "identities": {"n1": who(8)}})
    assert both(stack(identity=who(8), gpus=8), skipped)[1] == FEW


def test_a_skip_beside_gpus_that_mig_parts_stands() -> None:
    context = {"gpus": 1, "identities": {"n1": who(8)}, "set_aside": {f"GPU-{n}": "x" for n in range(1, 8)}}
    allowed = {"n1": {"mig": "allowed"}}
    found = both(stack(identity=who(8), gpus=8), failed("n1", "one_gpu", "not_applicable", context=context), stated=allowed)
    assert found[1] == ("SKIPPED", "one_gpu")


def test_the_last_gpu_of_eight_is_not_skipped() -> None:
    alone = failed("n1", "single_gpu", "not_applicable", context={"identities": {"n1": who(1)}})
    assert both(stack(identity=who(8), gpus=8), alone)[:2] == (GOOD, LOST)
    assert both(stack(gpus=8), failed("n1", "single_gpu", "not_applicable"))[1] == LOST
    assert both(stack(identity=who(1), gpus=1), alone)[:2] == (FEW, FEW), "no board has one H200"
    stated = {"n1": {"gpu_count": 1}}
    assert both(stack(identity=who(1), gpus=1), alone, stated=stated)[:2] == (GOOD, ("SKIPPED", "single_gpu"))


def fleet(counts: list[int], stated: t.Any = None, rules: t.Any = None, gpu: str = "NVIDIA H200") -> list[tuple[str, str | None]]:
    """Of nodes with so many GPUs each the verdicts of nccl_node."""
    nodes = [f"n{number}" for number in range(len(counts))]
    records = []
    for number, (node, count) in enumerate(zip(nodes, counts, strict=True)):
        more = {"gpu": gpu, "gpus": count, "identities": {node: who(count, f"{number:032x}", node)}}
        measured = test(node, more={**more, "gpus": 4} if count == 4 else more)
        records.append(failed(node, "single_gpu", "not_applicable", context=more) if count == 1 else measured)
    found = judge([item(node) for node in nodes], records, stated=stated, stack=rules)
    return [(v["verdict"], v["reason_code"]) for v in found.planned]


def test_a_node_with_fewer_gpus_than_its_neighbours() -> None:
    skipped = ("SKIPPED", "single_gpu")
    assert fleet([4, 4, 4]) == [GOOD] * 3
    assert fleet([8, 8, 4])[2] == FEW, "most have eight"
    assert fleet([8, 4])[1] == FEW, "nobody knows who is right"
    assert fleet([8, 8, 4, 4])[2:] == [FEW, FEW] and fleet([8, 8, 4, 4, 2])[2:] == [FEW] * 3, "a tie is no majority"
    assert fleet([4, 4, 4, 8])[:3] == [("WARN", "gpu_count")] * 3, "most have four, and one has more"
    assert fleet([1, 1], gpu="NVIDIA L40S") == [skipped] * 2 and fleet([1], gpu="NVIDIA L40S") == [skipped]
    assert fleet([4, 1])[1] == FEW, "one GPU left of four is never skipped"
    assert fleet([8, 8, 4, 1], stated={"n2": {"gpu_count": 4}, "n3": {"gpu_count": 1}})[2:] == [GOOD, skipped]
    assert fleet([8, 8, 4], rules={"n2": {"ignore": ["gpu_count"]}})[2] == GOOD
    assert fleet([8, 8, 4], rules={"n2": {"drift": {"gpu_count": "ignore"}}})[2] == GOOD
    for wide in ({"ignore": ["gpu*"]}, {"ignore": ["*"]}, {"drift": {"gpu_*": "ignore"}}):
        assert fleet([8, 8, 4], rules={f"n{number}": wide for number in range(3)})[2] == FEW, "nobody named the number"


@pytest.mark.parametrize("count", [7, 6, 5, 3, 2, 1])
def test_a_number_of_gpus_that_no_board_has_is_a_finding_by_itself(count: int) -> None:
    nodes = [f"n{number}" for number in range(5)]
    records = [stack(node, who(count, f"{number:032x}", node), gpus=count) for number, node in enumerate(nodes)]
    items = [item(node, "stack", "cuda") for node in nodes]
    alike = judge(items, records)
    assert {(v["verdict"], v["reason_code"]) for v in alike.planned} == {FEW}, "on all nodes alike too"
    assert "stands on boards of 4 or 8" in alike.planned[0]["reason"]
    assert judge(items, records, stated={node: {"gpu_count": count} for node in nodes}).accepted, "unless it was said"
    assert judge(items, records, stack={node: {"ignore": ["gpu_count"]} for node in nodes}).accepted


def test_each_model_on_a_board_has_the_numbers_of_gpus_that_boards_have() -> None:
    for name in ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA B200", "NVIDIA H20-3e", "AMD Instinct MI300X", "NVIDIA H800"):
        assert physics.board(name) == (4, 8), name
    assert physics.board("NVIDIA A100-SXM4-80GB") == physics.board("Tesla V100-SXM2-32GB") == (4, 8, 16)
    assert physics.board("NVIDIA GB200") == physics.board("NVIDIA GB300") == (2, 4)
    slots = ("NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA L40S", "NVIDIA GH200 480GB", "NVIDIA A100-PCIE-40GB")
    for name in (*slots, "NVIDIA H800 PCIe", "NVIDIA A800-PCIE-40GB", "NVIDIA H100 80GB HBM2e", "Ascend 910B3", "NVIDIA A1 Imaginary"):
        assert physics.board(name) == (), name


@pytest.mark.parametrize(
    ("facts", "virtual"),
    [
        ({"machine_vendor": "QEMU", "machine_product": "Standard PC (Q35 + ICH9, 2009)"}, True),
        ({"machine_vendor": "Microsoft Corporation", "machine_product": "Virtual Machine"}, True),
        ({"machine_vendor": "Google", "machine_product": "Google Compute Engine"}, True),
        ({"machine_vendor": "Amazon EC2", "machine_product": "p5.4xlarge"}, True),
        ({"machine_vendor": "Amazon EC2", "machine_product": "p5.metal"}, False),
        ({"machine_vendor": "Supermicro", "machine_product": "SYS-821GE-TNHR"}, False),
        ({"machine_virtual": "yes"}, True),
        ({}, False),
    ],
)
def test_a_virtual_machine_may_have_one_gpu_of_eight(facts: Record, virtual: bool) -> None:
    of = record("n1", "stack", "facts", context={"gpu": "NVIDIA H200", "gpus": 1, "facts": facts, "identities": {"n1": who(1)}})
    alone = failed("n1", "single_gpu", "not_applicable", context={"identities": {"n1": who(1)}})
    found = judge([item("n1", "stack", "facts"), item("n1")], [of, alone])
    assert [v["verdict"] for v in found.planned] == (["PASS", "SKIPPED"] if virtual else ["UNKNOWN", "UNKNOWN"])
    assert found.accepted is virtual and found.warnings == [
        "how many GPUs a node has is not stated; found 1 on 1 node (n1): set acceptance_gpu_count"
    ]


def test_a_count_that_nobody_stated_is_a_warn_of_the_run() -> None:
    items, records = [item("n1"), item("n2")], [test(identity=who()), test("n2", who(machine="b" * 32, of="y"))]
    found = judge(items, records)
    assert found.accepted and found.warnings == [
        "how many GPUs a node has is not stated; found 4 on 2 nodes (n1, n2): set acceptance_gpu_count"
    ]
    assert not judge(items, records, warn="refuse").accepted
    one = judge(items, records, stated={"n1": {"gpu_count": 4}})
    assert "found 4 on 1 node (n2)" in one.warnings[0]
    stated = {n: {"gpu_count": 4} for n in ("n1", "n2")}
    assert judge(items, records, stated=stated, warn="refuse").accepted
    assert judge(items, records, stack={n: {"ignore": ["gpu_count"]} for n in ("n1", "n2")}).warnings == []


def test_a_minority_model_is_a_warn() -> None:
    def models(*names: str, rules: t.Any = None, groups: t.Any = None) -> list[str]:
        nodes = [f"n{number}" for number in range(len(names))]
        seen = [
            record(node, "stack", "cuda", context={"gpu": name, "gpus": 8, "identities": {node: who(8, f"{n:032x}", node)}})
            for n, (node, name) in enumerate(zip(nodes, names, strict=True))
        ]
        stated = {node: {"gpu_count": 8, "groups": (groups or {}).get(node, [])} for node in nodes}
        found = judge([item(node, "stack", "cuda") for node in nodes], seen, stated=stated, stack=rules)
        assert found.accepted
        return [v["verdict"] for v in found.planned]

    h200, h100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3"
    assert models(*[h200] * 9, h100) == ["PASS"] * 9 + ["WARN"]
    assert models(*[h200] * 3, *[h100] * 3) == ["PASS"] * 6, "half and half are two pools"
    assert models(*[h200] * 9, "Ascend 910B3") == ["PASS"] * 10, "accelerators of another maker are another pool"
    assert models(*[h200] * 10) == ["PASS"] * 10 and models(h100) == ["PASS"]
    assert models(*[h200] * 9, h100, rules={"n9": {"golden": {"gpu": h100}}}) == ["PASS"] * 10, "it is meant"
    apart = {"n0": ["h200", "rack1"], "n1": ["h200", "rack1"], "n2": ["h100", "rack1"]}
    assert models(h200, h200, h100, groups=apart) == ["PASS"] * 3, "the inventory has them in groups of their own"
    racks = {"n0": ["rack1"], "n1": ["rack1"], "n2": ["rack2"]}
    assert models(h200, h200, h100, groups=racks) == ["PASS", "PASS", "WARN"], "a rack may have come with other GPUs"
    together = {node: ["rack1"] for node in ("n0", "n1", "n2")}
    assert models(h200, h200, h100, groups=together) == ["PASS", "PASS", "WARN"], "one of its group was exchanged"


def test_the_number_that_the_inventory_states_counts_whatever_a_record_says() -> None:
    few = ("UNKNOWN", "gpu_count")
    assert both(stack(identity=who()), test(identity=who()), stated={"n1": {"gpu_count": 8}})[:2] == (few, few)
    assert both(stack(identity=who()), test(), stated={"n1": {"gpu_count": 8}})[1] == few, "by its number alone"
    assert both(stack(identity=who()), test(identity=who()), stated={"n1": {"gpu_count": 4}})[:2] == (GOOD, GOOD)
    alone = failed("n1", "single_gpu", "not_applicable")
    assert both(stack(gpus=1), alone, stated={"n1": {"gpu_count": 8}})[1] == few


def test_mig_is_skipped_only_where_the_inventory_allows_it() -> None:
    seen = failed("n1", "mig_enabled", "not_applicable")
    found = both(stack(), seen)
    assert found[1] == ("UNKNOWN", "mig_enabled") and "acceptance_mig" in found[2].planned[1]["reason"]
    assert both(stack(), seen, stated={"n1": {"mig": "refused"}})[1] == ("UNKNOWN", "mig_enabled")
    assert both(stack(), seen, stated={"n1": {"mig": "allowed"}})[1] == ("SKIPPED", "mig_enabled")


def test_the_gpus_beside_one_with_mig_are_judged_by_what_all_give() -> None:
    def seen(busbw: float, **stated: t.Any) -> t.Any:
        more = {"gpus": 7, "nvls": True, "gpu_uuids": gpus(8)[1:], "set_aside": {gpus(8)[0]: "GPU 0 (0000:1a:00.0)"}}
        one = test(identity=who(8), more=more, busbw=busbw, size=16 << 30)
        return judge([item("n1", "stack", "cuda"), item("n1")], [stack(identity=who(8), gpus=8), one], stated={"n1": stated})

    good = seen(468.0, mig="allowed", gpu_count=8)
    assert good.accepted and good.planned[1]["verdict"] == "PASS" and good.planned[1]["confidence"] == "derived"
    assert any("MIG is on for GPU 0 (0000:1a:00.0): measured and judged were the other 7 GPUs" in f for f in good.planned[1]["findings"])
    assert any("MIG is on" in note for note in good.notes)
    slow = seen(400.0, mig="allowed", gpu_count=8).planned[1]
    assert (slow["verdict"], slow["reason_code"]) == ("FAIL", "below_floor") and slow["floor"] == pytest.approx(446.7, abs=0.1)
    refused = seen(468.0, mig="refused", gpu_count=8).planned[1]
    assert (refused["verdict"], refused["reason_code"]) == ("UNKNOWN", "mig_enabled")


def test_a_machine_without_gpus_is_skipped_only_where_the_inventory_says_so() -> None:
    """As where it was said when the run was planned, and is not any more when it is judged again."""
    seen = failed("n1", "no_gpu_expected", "not_applicable")
    for stated in (None, {"n1": {"gpu_count": 8}}, {"n1": {"gpu_count": None}}):
        assert both(stack(), seen, stated=stated)[1] == ("UNKNOWN", "gpu_count")
    assert both(stack(gpus=0), seen, stated={"n1": {"gpu_count": 0}})[1] == ("SKIPPED", "no_gpu_expected")


def test_a_test_for_others_is_skipped_only_where_something_of_the_node_was_measured() -> None:
    seen = failed("n1", "other_accelerator", "not_applicable")
    assert both(stack(), seen)[1] == ("SKIPPED", "other_accelerator")
    alone = judge([item()], [seen])
    assert not alone.accepted and (alone.planned[0]["verdict"], alone.planned[0]["reason_code"]) == ("UNKNOWN", "other_accelerator")


@pytest.mark.parametrize(
    "other",
    [who(machine="b" * 32), who(of="y"), who(5, of="y"), who(None, "b" * 32), who(node_info="another"), who(machine="b" * 32, of="y")],
)
def test_a_name_that_was_two_machines_is_unknown_in_everything(other: Record) -> None:
    own = who(node_info="one")
    one, two, found = both(stack(identity=own), test(identity=other))
    assert (one, two) == (CHANGED, CHANGED) and not found.accepted
    assert "stack cuda" in found.planned[0]["reason"] and "nccl_node all_reduce" in found.planned[0]["reason"]
    # In another attempt too, whatever the numbers were.
    items, attempts = [item()], [test(identity=own), test(identity=other, attempt=2)]
    assert all(judge(items, list(of)).planned[0]["reason_code"] == "identity_changed" for of in itertools.permutations(attempts))
    worse = judge(items, [failed("n1", "wrong_results", context={"identities": {"n1": own}}), test(identity=other, attempt=2)])
    assert not worse.accepted


def between(kind: str, name: str, members: list[str], identities: Record) -> tuple[Record, Record]:
    """An item and a record about several nodes."""
    subject = {"kind": kind, "id": name, "members": members}
    seen = {**NCCL, "identities": identities}
    return {**item(), "subject": subject}, {**nccl(context=seen), "subject": subject}


def test_pairs_and_groups_of_a_changed_node_are_unknown() -> None:
    own, other = who(), who(machine="b" * 32, of="y")
    far = who(machine="c" * 32, of="z")
    group, measured = between("group", "all", ["n1", "n2"], {"n1": other, "n2": far})
    pair, about = between("pair", "n1|n2", [], {"n2": far})
    items = [item("n1", "stack", "cuda"), item("n2", "stack", "cuda"), group, pair]
    records = [stack(identity=own), stack("n2", far), measured, about]
    found = judge(items, records)
    assert [v["reason_code"] for v in found.planned] == ["identity_changed", None, "identity_changed", "identity_changed"]
    assert "n1" in found.planned[3]["reason"] and not found.accepted


def test_a_group_is_who_was_planned_and_not_who_it_says_it_is() -> None:
    eight = [f"n{number}" for number in range(8)]
    asked, _record = between("group", "all", eight, {})
    for members, nodes in ((eight[:4], 4), (eight, 4), (eight[:4], None), ([*eight, "n9"], 8), (eight, 9)):
        measured = {**nccl(context={**NCCL, "nodes": nodes}), "subject": {"kind": "group", "id": "all", "members": members}}
        (found,) = judge([asked], [measured]).planned
        assert (found["verdict"], found["reason_code"]) == ("UNKNOWN", "incomplete"), (members, nodes)
        assert found["subject"]["members"] == eight and "planned with 8 members" in found["reason"]
    whole = {**nccl(), "subject": asked["subject"]}
    assert judge([asked], [whole]).accepted
    node = {**nccl(), "subject": {"kind": "node", "id": "all", "members": []}}
    assert judge([asked], [node]).planned[0]["reason_code"] == "incomplete"


@pytest.mark.parametrize(
    ("has", "offers", "words"), [(8, 7, "7 of them allocatable"), (0, 4, "reports no capacity"), (None, 4, "reports no capacity")]
)
def test_a_node_that_offers_fewer_devices_than_it_has(has: t.Any, offers: int, words: str) -> None:
    devices = {"capacity": has, "allocatable": offers, "resource": "nvidia.com/gpu"}
    one, two, found = both(stack(identity=who(devices=devices)), test(identity=who(devices=devices)))
    assert one == two == ("UNKNOWN", "gpu_count") and words in found.planned[0]["reason"]
    assert both(stack(identity=who(devices={**devices, "capacity": offers})), test())[:2] == (GOOD, GOOD)


def test_on_a_cluster_fewer_gpus_are_for_its_device_plugin_to_explain() -> None:
    found = both(stack(identity=who(8), gpus=8), test(identity=who(4), plane="kubernetes"), lending={"kubernetes"})
    assert found[1] == ("UNKNOWN", "gpu_count")


def placed(places: int = 0, on_bus: int = 0, **fields: t.Any) -> Record:
    """The record of the stage that finds facts, of a machine with places for GPUs and a PCI bus that has some."""
    made = stack(**fields)
    if places:
        made["context"]["gpu_places"] = {"number": places, "why": f"a Server has {places}"}
    if on_bus:
        made["context"]["gpu_bus"] = {"count": on_bus}
    return made


@pytest.mark.parametrize(
    ("places", "on_bus", "seen", "expected"),
    [
        (8, 0, 4, FEW), (8, 8, 4, FEW), (0, 8, 4, FEW), (8, 4, 4, FEW), (16, 16, 8, FEW), (8, 8, 7, FEW), (8, 8, 1, FEW),
        (8, 8, 8, GOOD), (4, 4, 4, GOOD), (0, 4, 4, GOOD), (0, 0, 4, GOOD), (1, 1, 1, GOOD), (4, 8, 8, GOOD),
    ],
)  # fmt: skip
def test_a_lone_node_with_fewer_gpus_than_it_has_places_for(places: int, on_bus: int, seen: int, expected: tuple[str, str | None]) -> None:
    """Four of eight stand on a board of four, too: nobody said how many there are to be, but the machine does."""
    made = placed(places, on_bus, identity=who(seen), gpus=seen)
    found = judge([item("n1", "stack", "cuda")], [made])
    (verdict,) = found.planned
    board = ("UNKNOWN", "gpu_count") if seen in (1, 7, 16) else expected
    assert (verdict["verdict"], verdict["reason_code"]) == board
    if expected == FEW:
        assert "GPUs are missing" in verdict["reason"] or "stands on boards" in verdict["reason"]
        stated = judge([item("n1", "stack", "cuda")], [made], stated={"n1": {"gpu_count": seen}})
        assert stated.planned[0]["verdict"] == "PASS", "somebody said that it is meant"


def test_a_job_with_some_gpus_of_its_machine_is_told_so() -> None:
    """Under a device cgroup the others are there and belong to other jobs: nobody looks for missing hardware."""
    made = placed(8, 4, identity=who(4), gpus=4)
    made["context"]["gpu_bus"]["of_others"] = ["0000:14:00.0", "0000:15:00.0", "0000:16:00.0", "0000:17:00.0"]
    (verdict,) = judge([item("n1", "stack", "cuda")], [made]).planned
    assert (verdict["verdict"], verdict["reason_code"]) == FEW
    assert "4 of them are not given to this job or container" in verdict["reason"] and "missing" not in verdict["reason"]


def test_a_number_of_places_that_is_no_count_is_ignored() -> None:
    for places in ({"number": "8"}, {"number": True}, {"number": -1}, {"number": 10**9}, "8", None):
        made = stack(identity=who(4))
        made["context"]["gpu_places"] = places
        assert judge([item("n1", "stack", "cuda")], [made]).planned[0]["verdict"] == "PASS"


def test_a_node_of_which_some_gpus_have_mig_is_not_skipped_without_a_word() -> None:
    seen = failed("n1", "mig_partly", "not_applicable")
    assert both(stack(), seen, stated={"n1": {"mig": "allowed"}})[1] == ("WARN", "mig_partly")
    assert both(stack(), seen)[1] == ("UNKNOWN", "mig_enabled")
