# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is drawn of a case stands in its evidence; where there is nothing, nothing is drawn."""

from __future__ import annotations

import json
import pathlib
import sys
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import (
    cases,
    conclusion,
    drawn,
    engine,
    lines,
    parameters,
    scraped,
    system,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import (
    SUCCEEDED,
    CaseEvidence,
    CasePod,
    Process,
    QuotaChange,
    Scrape,
    SystemSample,
)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from memory import Memory

SYSTEM = system.load("nvshare")


def probing(name: str, *counts: int) -> CasePod:
    said = [f"[NVSHARE][QUOTA_PROBE] elapsed={10 * n}.0s it={count} it_per_sec=1.00" for n, count in enumerate(counts)]
    return CasePod(name, "main", "default", log=[lines.LogLine(f"{n:06}", text) for n, text in enumerate(said)])


def test_throughput_over_time_has_the_moments_of_changes() -> None:
    change = QuotaChange("up", "main", "core", 30, 80, 100.0, {"a": "000002"})
    late = QuotaChange("more", "main", "memory", None, 6 << 30, 100.0, {"a": ""})
    of = CaseEvidence(SYSTEM, {}, [probing("a", 0, 100, 200, 500, 800), probing("b", 0)], changes={"up": change, "more": late})
    found = drawn.throughput(of)
    assert found is not None
    assert [(one["name"], one["x"], one["y"]) for one in found["curves"]] == [("a", [10, 20, 30, 40], [10, 10, 30, 30])]
    assert found["moments"] == [[20, "80 %"], [0, "6 GiB"]]
    assert drawn.throughput(CaseEvidence(SYSTEM, {}, [probing("b", 0, 1)])) is None


def test_a_long_curve_has_fewer_points_and_the_same_work() -> None:
    found = drawn.throughput(CaseEvidence(SYSTEM, {}, [probing("a", *(7 * n for n in range(2161)))]))
    assert found is not None
    (curve,) = found["curves"]
    assert len(curve["x"]) <= drawn.POINTS + 1 and curve["x"][-1] == 21600 and set(curve["y"]) == {0.7}


def test_duration_stands_against_quota_beside_what_the_quotas_say() -> None:
    def ended(name: str, core: float | None, seconds: float, phase: str = SUCCEEDED) -> CasePod:
        return CasePod(name, name, "default", core=core, phase=phase, log=[lines.LogLine("1", f"--- {seconds} seconds ---")])

    pods = [ended("a", 25, 911.3), ended("b", 50, 440.2), ended("c", 100, 246.2), ended("d", None, 1), ended("e", 75, 1, "Failed")]
    found = drawn.by_quota(CaseEvidence(SYSTEM, {}, pods))
    assert found is not None
    measured, expected = found["curves"]
    assert (measured["x"], measured["y"]) == ([25, 50, 100], [911.3, 440.2, 246.2])
    assert (expected["x"], expected["y"]) == ([25, 50, 100], [984.8, 492.4, 246.2])
    assert drawn.by_quota(CaseEvidence(SYSTEM, {}, pods[:1])) is None


def round_of(rss: float | None, clients: int, schedulers: int = 1) -> SystemSample:
    said = scraped.parse("".join(f'nvshare_client_info{{pod="{n}"}} 1\n' for n in range(clients)) + "nvshare_gpu_info 1\n", "nvshare_")
    names = [f"sched-{n}" for n in range(schedulers)]
    of = [Process(name, "node", 7, None if rss is None else rss * (n + 1), 20.0) for n, name in enumerate(names)]
    return SystemSample(
        "round", 0.0, dict.fromkeys(names, 0), 1, [Scrape(name, "node", 0.0, status=200, exposition=said) for name in names], of
    )


def test_schedulers_are_drawn_over_the_rounds() -> None:
    of = CaseEvidence(SYSTEM, {})
    for rss, clients in ((1024.0, 0), (2048.0, 2), (None, 4), (4096.0, 6)):
        of.sampled(round_of(rss, clients))
    memory, files, series = drawn.rounds(of)
    assert (memory["curves"][0]["x"], memory["curves"][0]["y"], memory["y"]) == ([1, 2, 4], [1, 2, 4], "MiB")
    assert files["curves"][0]["y"] == [20] * 4 and series["curves"][0]["y"] == [0, 2, 4, 6]
    assert "looks round" in memory["title"]


def test_of_many_schedulers_those_are_drawn_that_grow_most() -> None:
    of = CaseEvidence(SYSTEM, {})
    for rss in (1000.0, 2000.0, 3000.0):
        of.sampled(round_of(rss, 1, schedulers=12))
    memory = next(drawn.rounds(of))
    assert [one["name"] for one in memory["curves"]] == sorted(f"sched-{n}" for n in range(4, 12))


def test_each_pod_is_drawn_on_its_gpu() -> None:
    of = CaseEvidence(SYSTEM, {}, [CasePod("a", "one", "default"), CasePod("b", "one", "default"), CasePod("c", "two", "default")])
    for pods in (("a", "b", "c"), ("a",)):
        text = "".join(f'nvshare_client_info{{pod="{pod}",gpu_uuid="GPU-{pod == "c"}"}} 1\n' for pod in (*pods, "foreign"))
        scrape = Scrape("s", "node-1", 0.0, status=200, exposition=scraped.parse(text, "nvshare_"))
        of.sampled(SystemSample(f"s{len(pods)}", 0.0, scrapes=[scrape]))
    found = drawn.mapping(of)
    assert found is not None
    assert [(one["name"], one["x"], one["y"]) for one in found["curves"]] == [
        ("one", ["node-1 GPU-False", "node-1 GPU-True"], [2, 0]), ("two", ["node-1 GPU-False", "node-1 GPU-True"], [0, 1]),
    ]  # fmt: skip
    assert drawn.charts(CaseEvidence(SYSTEM, {})) == []


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("FUNC-012", ["Throughput over time"]), ("FUNC-008", ["Duration against quota"]),
        ("LEAK-001", ["Memory of schedulers over the looks round", "Open files of schedulers over the looks round",
                      "Series of clients of schedulers over the looks round"]),
        ("PERF-004", ["Throughput over time", "Duration against quota", "Pods on GPUs"]), ("FUNC-006", []),
    ],
)  # fmt: skip
def test_the_charts_of_a_case_stand_in_its_record(name: str, titles: list[str]) -> None:
    case = next(one for one in cases.shipped(cases.STRICT) if one.id == name)
    settled = parameters.settle("c1", 1, {"placement_tries": 60, "leak_rounds": 5})
    store: t.Callable[[str, str], None] = lambda _path, _text: None  # noqa: E731
    found = conclusion.conclude(case, engine.CaseRun(case, SYSTEM, settled, Memory(SYSTEM), store).run())
    assert found.status == conclusion.PASS, found.cause
    seen = conclusion.observed(found, case, {"kind": "group", "id": "x", "members": []}, {}, "2026-01-01T00:00:00Z", 1.0, "")
    drawings = seen["context"]["case"].get("charts", [])
    assert [chart["title"] for chart in drawings] == titles
    assert len(json.dumps(drawings)) < 60000
