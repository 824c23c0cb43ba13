# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A busy host makes a number that is too low UNKNOWN, and nothing else."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands, busy
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from hypothesis import given
from hypothesis import strategies as st
from unit.plugin_utils.judging.test_verdict import failed, gemm, item, judge


class Record(t.NamedTuple):
    evidence: dict[str, t.Any]
    simulated: bool = False


def words(**of: t.Any) -> str | None:
    return busy.words(Record({"others": of}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        # Measured on an H100 machine: idle and under our own load; 16 busy loops.
        ({"processors": 0.01, "of": 16, "stalled": 0.0, "stolen": 0.0}, False),
        ({"processors": 0.06, "of": 16, "stalled": 0.006, "stolen": 0.0}, False),
        ({"processors": 15.01, "of": 16, "stalled": 0.073, "stolen": 0.01}, True),
        ({"processors": 3.04, "of": 16, "stalled": 0.001, "stolen": 0.0}, True),
        # Agents of a cluster on a large node.
        ({"processors": 4.0, "of": 224, "stalled": 0.02}, False),
        ({"processors": 22.5, "of": 224, "stalled": 0.02}, True),
        # One program, where nobody waits, and where tasks wait.
        ({"processors": 1.0, "of": 16, "stalled": 0.01}, False),
        ({"processors": 1.0, "of": 16, "stalled": 0.2}, True),
        ({"processors": 0.2, "of": 16, "stalled": 0.9}, False),  # it is ours that wait
        # Kernels without pressure stall information.
        ({"processors": 1.5, "of": 16}, False),
        ({"processors": 1.6, "of": 16}, True),
        ({"processors": 0.0, "of": 16, "stolen": 0.7}, False),
        ({"processors": 0.0, "of": 16, "stolen": 0.8}, True),
        ({"why": "/proc/stat cannot be read"}, False),
        ({"processors": "many", "of": 16}, False),
        ({"processors": 5.0, "of": 0}, False),
        ({"processors": float("nan"), "of": 16}, False),
    ],
)
def test_others_disturb_a_test_by_processors_waiting_or_steal(of: dict[str, t.Any], expected: bool) -> None:
    assert (words(**of) is not None) == expected


def test_the_programs_are_named() -> None:
    said = words(processors=15.9, of=16, stalled=0.93, programs=["16 x python3 (15.9 processors)"])
    assert said == (
        "other programs used 15.9 of the machine's 16 processors, and tasks waited for a processor in 93 % of the time: "
        "16 x python3 (15.9 processors)"
    )
    assert str(words(processors=15.9, of=16)).endswith("programs that cannot be seen from here")
    assert words(processors=0.0, of=16, stolen=4.0) == "the hypervisor took 4.0 of the machine's 16 processors for others"


@given(
    verdict=st.sampled_from(sorted(bands.SEVERITY)),
    code=st.sampled_from([None, *sorted(reasons.ALL)]),
    clause=st.sampled_from([None, "other programs used 15.9 of the machine's 16 processors: x"]),
)
def test_it_never_makes_a_verdict_better(verdict: str, code: str | None, clause: str | None) -> None:
    (after,) = busy.doubted([Opinion(verdict, "a reason", code, 188.0, "TFLOPS")], clause)
    if clause and verdict in ("FAIL", "WARN") and code in busy.NUMBERS:
        assert (after.verdict, after.reason_code, after.value) == ("UNKNOWN", "busy_host", 188.0)
        assert after.reason.startswith("a reason; but while it was measured other programs used") and "a reason" in after.findings
    else:
        assert (after.verdict, after.reason_code) == (verdict, code)
    assert after.verdict not in ("PASS", "SKIPPED", "KNOWN_FAIL") or after.verdict == verdict


def test_a_busy_host_excuses_no_reason_code_of_a_defect() -> None:
    assert not busy.NUMBERS & {*reasons.FATAL, *reasons.DEFECTS, *reasons.MILD, *reasons.ERRORS}


OTHERS = {"processors": 15.0, "of": 16, "programs": ["16 x python3 (15.0 processors)"]}
BUSY = {"window": {}, "changes": [], "unreadable": [], "others": OTHERS}
QUIET = {**BUSY, "others": {"processors": 0.02, "of": 16, "stalled": 0.001, "stolen": 0.0, "programs": []}}
GEMM = item("n1", "gemm", "bf16")


def verdicts(*records: dict[str, t.Any]) -> dict[str, tuple[str, str | None]]:
    return {v["subject"]["id"]: (v["verdict"], v["reason_code"]) for v in judge([GEMM], list(records)).verdicts}


@pytest.mark.parametrize(
    ("tflops", "quiet", "busy_too"),
    [
        (700, ("PASS", None), ("PASS", None)),
        (650, ("WARN", "below_warn"), ("UNKNOWN", "busy_host")),
        (500, ("FAIL", "below_floor"), ("UNKNOWN", "busy_host")),
    ],
)
def test_a_number_of_a_node_and_of_its_parts(tflops: float, quiet: t.Any, busy_too: t.Any) -> None:
    for evidence, expected in ((QUIET, quiet), (BUSY, busy_too), ({**BUSY, "others": {"why": "no /proc"}}, quiet)):
        part = gemm("n1/gpu/GPU-0", tflops)
        node = gemm("n1", tflops, evidence=evidence, members=["gpu/GPU-0"])
        found = verdicts({**node, "subject": {**node["subject"], "members": ["n1/gpu/GPU-0"]}}, part)
        assert found["n1"] == expected and found["n1/gpu/GPU-0"] == expected


def test_wrong_results_and_defects_of_a_busy_host_stay_what_they_are() -> None:
    wrong = {**failed("n1", "wrong_results"), "stage": "gemm", "check": "bf16", "evidence": BUSY}
    assert verdicts(wrong)["n1"] == ("FAIL", "wrong_results")
    lost = {**BUSY, "changes": [{"code": "ecc", "part": "", "text": "an uncorrectable error", "before": 0, "after": 1}]}
    assert verdicts(gemm("n1", 500, evidence=lost))["n1"] == ("FAIL", "ecc")


def test_a_simulated_number_is_not_slowed_by_others() -> None:
    assert busy.words(t.cast(t.Any, Record(BUSY))) and busy.words(t.cast(t.Any, Record(BUSY, simulated=True))) is None
