# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a judged run convicts."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine import convictions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Subject, Verdict
from harness import history_runs as runs


def test_every_code_that_has_a_class_exists() -> None:
    assert not (convictions.RATES | convictions.CONFIGURATIONS | convictions.USES) - set(reasons.ALL)
    assert not convictions.CONFIGURATIONS & convictions.USES and not convictions.RATES & {*reasons.FATAL, *convictions.USES}


def test_a_slow_node_is_convicted_of_a_rate_and_a_silent_one_of_nothing_known(tmp_path: pathlib.Path) -> None:
    machines = runs.fleet(a=670, b=500, c=670)
    machines["c"].silent = True
    runs.judged(tmp_path, 1, machines)
    judged = convictions.read(str(tmp_path), runs.run_id(1))
    slow, silent = judged.convictions
    assert (slow.node, slow.verdict, slow.kind, slow.is_rate) == ("b", "FAIL", "part", True) and "500" in slow.words
    assert Key("gemm", "bf16", runs.VARIANT, "b") in slow.checks and all(key.stage == "gemm" for key in slow.checks)
    assert (silent.node, silent.verdict, silent.kind, silent.is_rate) == ("c", "UNKNOWN", "unmeasured", False)
    assert judged.words[Key("gemm", "bf16", runs.VARIANT, "a")] == "PASS" and set(judged.targets) == {"a", "b", "c"}


def test_a_second_run_confirms_by_the_same_check(tmp_path: pathlib.Path) -> None:
    runs.judged(tmp_path, 1, runs.fleet(a=670, b=500))
    runs.judged(tmp_path, 2, runs.fleet(a=670, b=510))
    runs.judged(tmp_path, 3, runs.fleet(a=500, b=670))
    (conviction,) = convictions.read(str(tmp_path), runs.run_id(1)).convictions
    assert convictions.confirmed(conviction, convictions.read(str(tmp_path), runs.run_id(2)))
    assert not convictions.confirmed(conviction, convictions.read(str(tmp_path), runs.run_id(3)))


def test_verdicts_that_somebody_has_changed_convict_nobody(tmp_path: pathlib.Path) -> None:
    run = runs.judged(tmp_path, 1, runs.fleet(a=670, b=500))
    path = run.dir / "verdicts.jsonl"
    path.write_text(path.read_text().replace("FAIL", "PASS"))
    with pytest.raises(RunError, match="is not what was written"):
        convictions.read(str(tmp_path), run.id)


def test_a_run_without_a_judgement_convicts_nobody(tmp_path: pathlib.Path) -> None:
    run = runs.measured(tmp_path, 1, runs.fleet(a=670))
    with pytest.raises(RunError, match="it was not judged"):
        convictions.read(str(tmp_path), run.id)


def verdict(check: str, subject: str, kind: t.Any, word: t.Any, code: str | None) -> Verdict:
    nothing = dict.fromkeys(("value", "unit", "floor", "layer", "source", "confidence"))
    about = Subject(kind, subject, [])
    return Verdict("verdict/v1", runs.run_id(1), "rdma", check, "", about, word, "because", code, **t.cast("t.Any", nothing))


def cause(subject: str, kind: str, word: str, explains: t.Sequence[Verdict] = ()) -> dict[str, t.Any]:
    listed = [{"stage": v.stage, "check": v.check, "variant": v.variant, "subject": v.subject.id} for v in explains]
    return {"subject": subject, "kind": kind, "verdict": word, "said": f"{subject} is bad", "explains": listed, "simulated": False}


def convicted(causes: list[dict[str, t.Any]], verdicts: t.Sequence[Verdict]) -> tuple[list[convictions.Conviction], list[str]]:
    return convictions._convictions(causes, {v.key: v for v in verdicts})


def test_a_port_is_convicted_for_the_pairs_that_it_makes_slow_and_its_partners_are_not() -> None:
    pairs = [verdict("bw", pair, "pair", "FAIL", "below_floor") for pair in ("a|b", "b|c")]
    partner = verdict("bw", "a", "node", "FAIL", "below_floor")
    causes = [cause("b/nic/mlx5_0/1", "nic", "FAIL", [*pairs, partner])]
    (conviction,), unconvicted = convicted(causes, [*pairs, partner])
    assert conviction.node == "b" and conviction.is_rate and {key.subject for key in conviction.checks} == {"a|b", "b|c", "a"}
    assert not unconvicted


def test_a_pair_and_a_switch_convict_no_node() -> None:
    pair = verdict("bw", "a|b", "pair", "FAIL", "below_floor")
    found, unconvicted = convicted([cause("a|b", "pair", "FAIL"), cause("leaf-1", "switch", "FAIL")], [pair])
    assert not found and unconvicted == ["a|b is bad: no node is convicted", "leaf-1 is bad: no node is convicted"]


@pytest.mark.parametrize(
    ("codes", "word", "is_unasked"),
    [(["node_busy"], "UNKNOWN", True), (["node_busy", "no_result"], "UNKNOWN", False), (["node_busy"], "FAIL", False)],
)
def test_a_node_that_others_use_was_not_asked(codes: list[str], word: str, is_unasked: bool) -> None:
    verdicts = [verdict(f"check-{code}", "a", "node", word, code) for code in codes]
    (conviction,), _unconvicted = convicted([cause("a", "node", word)], verdicts)
    assert conviction.is_unasked == is_unasked


def test_defects_come_before_rates_and_waived_nodes_not_at_all() -> None:
    verdicts = [
        verdict("bw", "a", "node", "FAIL", "below_floor"), verdict("gpu_health", "b/gpu/1", "gpu", "FAIL", "ecc"),
        verdict("bw", "b", "node", "FAIL", "below_floor"), verdict("facts", "c", "node", "FAIL", "drift"),
        verdict("facts", "d", "node", "UNKNOWN", "busy_gpu"), verdict("facts", "e", "node", "KNOWN_FAIL", "drift"),
    ]  # fmt: skip
    words = {"a": "FAIL", "b": "FAIL", "b/gpu/1": "FAIL", "c": "FAIL", "d": "UNKNOWN", "e": "KNOWN_FAIL"}
    found, _unconvicted = convicted([cause(name, "node", word) for name, word in words.items()], verdicts)
    assert [(c.node, c.kind, c.is_rate) for c in found] == [
        ("b", "part", False), ("c", "configuration", False), ("a", "part", True), ("d", "use", False),
    ]  # fmt: skip
    assert found[0].words == "b is bad and 1 more"
