# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A long watch takes little room, in memory and on disk, and nothing of it is lost by that."""

from __future__ import annotations

import copy
import json
import math
import sys
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import folded, scraped, system, vocabulary, watched
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import (
    SUCCEEDED,
    CaseEvidence,
    CasePod,
    Process,
    Scrape,
    SystemSample,
)

SYSTEM = system.load("nvshare")


def text(number: int) -> str:
    used = 1e9 + number / 3
    labels = '{gpu_uuid="GPU-1",gpu_index="0"}'
    client = f'{{namespace="default",pod="a",client_id="{number // 50}",gpu_uuid="GPU-1"}}'
    return (
        f"nvshare_gpu_memory_used_bytes{labels} {used}\nnvshare_gpu_memory_total_bytes{labels} 1.6e10\n"
        f"nvshare_gpu_utilization_ratio{labels} {(number % 97) / 97}\nnvshare_client_info{client} 1\n"
        f"nvshare_client_throttled{client} {number % 2}\n"
    )


def look(number: int) -> SystemSample:
    at = number * 2.000001
    silent = number % 40 == 7
    said = None if silent else scraped.parse(text(number), "nvshare_")
    one = Scrape("sched-1", "node-1", at, 0.01 + number / 7000, 0 if silent else 200, exposition=said, problem="late" * silent)
    process = Process("sched-1", "node-1", 7, 9000.0 + number, 20.0, ahead_s=math.sin(number))
    return SystemSample("w", at, {"sched-1": number // 60}, 1, [one], [process], {"a": "Running"})


@pytest.fixture
def looks() -> list[SystemSample]:
    return [look(number) for number in range(150)]


@pytest.mark.parametrize("loose", [1, 30, 10**9])
def test_what_was_folded_is_read_back_as_it_was(looks: list[SystemSample], loose: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folded, "LOOSE", loose)
    evidence = CaseEvidence(SYSTEM, {})
    for one in looks:
        evidence.sampled(copy.deepcopy(one))
    kept = evidence.samples["w"]
    assert list(kept) == looks and list(kept) == looks  # as often as one likes
    assert (len(kept), kept.last) == (150, looks[-1])
    kept.fold()
    assert kept.last == looks[-1]


WORDS: list[tuple[str, tuple[t.Any, ...]]] = [
    ("peak", ("w", "gpu_utilization_ratio")), ("peak_of_gpus", ("w", "gpu_utilization_ratio", "main")),
    ("peak_ratio", ("w", "gpu_memory_used_bytes", "gpu_memory_total_bytes")),
    ("peak_of_sums", ("w", "gpu_memory_used_bytes", "gpu_memory_total_bytes")), ("mean_of", ("w", "client_throttled", "main")),
    ("scrapes", ("w",)), ("scraped", ("w",)), ("scrape_p95", ("w",)), ("fewest_schedulers", ("w",)), ("rss_growth", ("w",)),
    ("rss_slope", ("w",)), ("clients", ("w", "main")), ("total", ("w", "gpu_memory_used_bytes")), ("series_of", ("w", "main")),
    ("client_series", ("w",)), ("missing", ("w",)), ("gpus", ("w", "main")),
]  # fmt: skip


@pytest.mark.parametrize(("word", "args"), WORDS)
def test_a_word_says_the_same_of_what_was_folded(looks: list[SystemSample], word: str, args: tuple[t.Any, ...], monkeypatch: t.Any) -> None:
    def said(loose: int) -> t.Any:
        monkeypatch.setattr(folded, "LOOSE", loose)
        evidence = CaseEvidence(SYSTEM, {}, [CasePod("a", "main", "default", phase=SUCCEEDED)])
        for one in looks:
            evidence.sampled(copy.deepcopy(one))
        return vocabulary.ask(evidence)(word, args)

    whole = said(10**9)
    assert [repr(said(loose)) for loose in (1, 100)] == [repr(whole)] * 2


def test_a_day_of_looks_takes_little_room() -> None:
    kept = folded.Folded[SystemSample]()
    for number in range(20 * folded.LOOSE // 100):
        kept.append(look(number), 100)
    kept.fold()
    size = sum(sys.getsizeof(part) for _count, part in kept._packed)
    assert size / len(kept) < 200


def test_each_part_of_a_watchs_file_can_be_read_by_itself(looks: list[SystemSample]) -> None:
    parts: list[str] = []
    file = watched.Watched(parts.append)
    for one in looks:
        file.add(one)
    file.close()
    file.close()
    assert len(parts) == math.ceil(len(looks) / watched.PART)
    found = []
    for part in parts:
        forms: dict[int | None, list[str]] = {None: []}
        for line in map(json.loads, part.splitlines()):
            if "form" in line:
                forms[line["form"]] = line["series"]
                continue
            ((_who, _at, _took, status, problem, form, values),) = line["answers"]
            found.append((line["at"], status, problem, dict(zip(forms[form], values, strict=True))))
    assert [one[0] for one in found] == [round(one.at, 3) for one in looks]
    assert found[7][1:] == (0, "late", {})
    assert found[99][3]["gpu_memory_used_bytes{gpu_uuid=GPU-1,gpu_index=0}"] == 1e9 + 33
    assert found[99][3]["client_throttled{namespace=default,pod=a,client_id=1,gpu_uuid=GPU-1}"] == 1


def test_what_json_cannot_say_is_said_in_words() -> None:
    parts: list[str] = []
    said = scraped.parse("nvshare_a NaN\nnvshare_b +Inf\nnvshare_c -Inf\nnvshare_d 1e300\n", "nvshare_")
    file = watched.Watched(parts.append)
    file.add(SystemSample("w", 1.0, scrapes=[Scrape("s", "n", 1.0, status=200, exposition=said)]))
    file.close()
    assert json.loads(parts[0].splitlines()[1])["answers"][0][-1] == ["nan", "inf", "-inf", 1e300]
