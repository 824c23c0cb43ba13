# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts of pods and schedulers: what is read of them, and what is not taken for a number."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import dmon, lines, quantities, scraped

FIXTURES = pathlib.Path(__file__).resolve().parents[4] / "tests" / "fixtures"

LOG = [
    "2026-02-17T10:00:00.1Z [NVSHARE][QUOTA_PROBE] elapsed=10.0s it=1000 it_per_sec=100.00",
    "2026-02-17T10:00:10.1Z [NVSHARE][QUOTA_PROBE] elapsed=20.0s it=2000 it_per_sec=100.00",
    "2026-02-17T10:00:20.1Z [NVSHARE][QUOTA_PROBE] elapsed=30.0s it=5000 it_per_sec=166.67",
    "2026-02-17T10:00:30.1Z [NVSHARE][QUOTA_PROBE] elapsed=40.0s it=8000 it_per_sec=200.00",
    "2026-02-17T10:00:31.000000001Z PASS",
    "2026-02-17T10:00:31.000000002Z --- 41.25 seconds ---",
]


def test_a_rate_is_of_the_intervals_and_not_since_the_start() -> None:
    log = lines.lines_of(LOG)
    change = log[1].stamp
    assert lines.rate(log, "", change) == 100
    assert lines.rate(log, change) == 300
    assert lines.rate(log, log[3].stamp) is None


def test_a_rate_is_a_mean_where_a_pod_runs_and_stands_still_in_turns() -> None:
    """As the real system lets it: at 30 percent for the first 1.2 of each 4 seconds, at 100 iterations in a second of these."""
    ran = [1.2 * (second // 4) + min(1.2, second % 4) for second in (10, 20, 30, 40)]
    said = (f"[NVSHARE][QUOTA_PROBE] elapsed={10 * n}.0s it={100 * s:.0f} it_per_sec=1.00" for n, s in enumerate(ran, 1))
    log = [lines.LogLine(f"{n:03}", text) for n, text in enumerate(said)]
    assert [round(rate) for _elapsed, rate in lines.rates(lines.probes(log))] == [24, 36, 24]
    assert lines.rate(log) == pytest.approx(28)


def test_what_came_after_is_told_by_the_same_log_alone() -> None:
    log = [*lines.lines_of(LOG), lines.LogLine("", "of a time that nobody knows")]
    assert [line.text for line in lines.after(log, log[3].stamp)] == ["PASS", "--- 41.25 seconds ---"]
    assert lines.after(log, "") == log[:6]
    assert log[0].stamp == "2026-02-17T10:00:00.100000000"


def test_the_last_runtime_counts() -> None:
    assert lines.runtime(lines.lines_of([*LOG, "2026-02-17T10:00:32Z --- 43 seconds ---"])) == 43
    assert lines.runtime(lines.lines_of(LOG[:5])) is None


def test_probes_that_go_back_make_no_rate() -> None:
    backwards = [lines.Probe("1", 10, 500), lines.Probe("2", 20, 400), lines.Probe("3", 20, 500)]
    assert lines.rates(backwards) == []


TEXT = """# simulated by gpufleet.acceptance
# TYPE nvshare_client_info gauge
nvshare_client_info{namespace="default",pod="xpf-1",client_id="1a",gpu_uuid="GPU-1",gpu_index="0"} 1
# TYPE nvshare_scheduler_messages_total counter
nvshare_scheduler_messages_total{type="REQ_LOCK"} 7
# TYPE process_open_fds gauge
process_open_fds 12
"""


@pytest.mark.parametrize(
    ("file", "gpus", "most"), [("h200-x4/dmon.txt", 4, 100), ("sharing-h200/dmon-w2.txt", 2, 100), ("sharing-h200/dmon-idle.txt", 2, 0)]
)
def test_a_driver_says_how_busy_each_gpu_was(file: str, gpus: int, most: float) -> None:
    found = dmon.busy((FIXTURES / file).read_text())
    assert list(found) == [str(n) for n in range(gpus)]
    assert len({len(seconds) for seconds in found.values()}) == 1
    assert max(value for seconds in found.values() for value in seconds) <= most


def test_a_gpu_whose_utilisation_the_driver_does_not_print_has_none() -> None:
    head = "# gpu  pwr  sm\n# Idx  W  %\n"
    assert dmon.busy(head + "  0  -  7\n  1  9  -\n  0  9  8  9\nNo devices\n") == {"0": [7.0]}
    assert dmon.busy("# gpu  mem\n  0  7\n") == dmon.busy("") == dmon.busy("  0  7  8\n") == {}


def test_an_exposition_is_the_series_of_the_system() -> None:
    found = scraped.parse(TEXT, "nvshare_")
    assert [(one.name, one.value) for one in found.series] == [("client_info", 1), ("scheduler_messages_total", 7)]
    assert found.of("client_info")[0].labels["pod"] == "xpf-1"
    assert found.simulated and not found.wrong
    assert not scraped.parse(TEXT.partition("\n")[2], "nvshare_").simulated
    assert [one.name for one in scraped.parse(TEXT, "nvshare_", {"client_info"}).series] == ["client_info"]


@pytest.mark.parametrize("text", ['nvshare_x{a="1" 2', "nvshare_x one", "nvshare_x{a=1} 1"])
def test_what_is_no_exposition_has_no_series(text: str) -> None:
    found = scraped.parse(f"nvshare_good 1\n{text}\n", "nvshare_")
    assert not found.series and found.wrong


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("4Gi", 4 << 30), ("1.5Gi", 3 << 29), ("512Mi", 512 << 20), ("7", 7), (3, 3), ("2G", 2e9), ("8B", 8), ("8 Ki", 8192),
        ("500m", 0.5), ("2k", 2000), ("1Pi", 1 << 50),
    ],
)  # fmt: skip
def test_amounts_of_memory_are_read_in_bytes(text: str | int, bytes_: float) -> None:
    assert quantities.number_of(text) == bytes_


@pytest.mark.parametrize("text", ["", "4GiB", "-1Gi", "Gi", "four", None, True, "i", "3i", "nan", "inf", "1e999", "B"])
def test_a_text_that_is_no_amount_of_memory_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="expected a number or an amount"):
        quantities.number_of(text)
