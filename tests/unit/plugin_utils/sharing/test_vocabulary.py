# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every word of assertions, over what was seen and over what was not."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import lines, scraped, system, vocabulary
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import (
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    CaseEvidence,
    CasePod,
    Process,
    QuotaChange,
    Scrape,
    SystemSample,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.expressions import Absent, Call
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words import register

SYSTEM = system.load("nvshare")
GIB = 1 << 30


def log(*texts: str) -> list[lines.LogLine]:
    return [lines.LogLine(f"{second:03}", text) for second, text in enumerate(texts, 1)]


def pod(name: str, group: str = "main", phase: str = SUCCEEDED, seconds: float | None = None, **fields: t.Any) -> CasePod:
    said = log("PASS", f"--- {seconds} seconds ---") if seconds is not None else []
    return CasePod(**{"name": name, "group": group, "namespace": "default", "phase": phase, "log": said, **fields})


def client(pod_: str, gpu: str, **metrics: float) -> str:
    labels = f'namespace="default",pod="{pod_}",client_id="{pod_}",gpu_uuid="{gpu}"'
    return "".join(f"nvshare_client_{name}{{{labels}}} {value}\n" for name, value in {"info": 1, **metrics}.items())


def gpu(uuid: str, used: float, whole: float = 16 * GIB, load: float = 0.0) -> str:
    labels = f'{{gpu_uuid="{uuid}",gpu_index="0"}}'
    return (
        f"nvshare_gpu_memory_used_bytes{labels} {used}\nnvshare_gpu_memory_total_bytes{labels} {whole}\n"
        f"nvshare_gpu_utilization_ratio{labels} {load}\n"
    )


def look(
    name: str, *texts: str, expected: int | None = None, processes: t.Sequence[tuple[float | None, float | None]] = ()
) -> SystemSample:
    """A sample in which scheduler sched-N said texts[N]; an empty one did not answer."""
    scrapes = [
        Scrape(f"sched-{n}", f"node-{n}", 0.0, 0.1 * (n + 1), 200, 200, scraped.parse(text, "nvshare_"))
        if text
        else Scrape(f"sched-{n}", f"node-{n}", 0.0, problem="no answer in time")
        for n, text in enumerate(texts)
    ]
    of = [Process(f"sched-{n}", f"node-{n}", 7, rss, fds, "" if rss is not None else "gone") for n, (rss, fds) in enumerate(processes)]
    return SystemSample(name, 0.0, {f"sched-{n}": 0 for n in range(len(texts))}, len(texts) if expected is None else expected, scrapes, of)


def evidence(*pods: CasePod, samples: t.Sequence[SystemSample] = (), **fields: t.Any) -> CaseEvidence:
    found = CaseEvidence(SYSTEM, fields.pop("parameters", {}), list(pods), **fields)
    for sample in samples:
        found.sampled(sample)
    return found


def said(of: CaseEvidence, word: str, *args: str | float) -> float | bool:
    return vocabulary.ask(of)(word, args)


def absent(of: CaseEvidence, word: str, *args: str | float) -> str:
    with pytest.raises(Absent) as caught:
        said(of, word, *args)
    return str(caught.value)


def test_pods_are_counted_by_how_they_ended() -> None:
    of = evidence(pod("a"), pod("b", phase=FAILED), pod("c", phase=PENDING), pod("d", "other", RUNNING, replaced=2))
    found = {word: said(of, word, "all") for word in ("count", "succeeded", "failed", "pending", "running", "replaced")}
    assert found == {"count": 4, "succeeded": 1, "failed": 1, "pending": 1, "running": 1, "replaced": 2}
    assert said(of, "count", "main") == 3
    assert "no pod of gone" in absent(of, "succeeded", "gone")


def test_runtimes_are_of_pods_that_ended_well_and_said_so() -> None:
    of = evidence(pod("a", seconds=10), pod("b", seconds=30), pod("c", "slow", FAILED, 40), pod("d", "dumb"), pod("e", "lost", log=None))
    assert (said(of, "runtime", "main"), said(of, "slowest", "main"), said(of, "fastest", "main")) == (20, 30, 10)
    assert "c is Failed" in absent(of, "runtime", "slow")
    assert "d is Succeeded and says no runtime" in absent(of, "runtime", "dumb")
    assert "could not be read" in absent(of, "runtime", "lost")
    assert "took 0.0 s" in absent(evidence(pod("a", seconds=0.0)), "runtime", "main")


def test_elapsed_needs_every_end() -> None:
    of = evidence(pod("a", made_at=1, ended_at=4), pod("b", made_at=2, ended_at=9), pod("c", "other", made_at=1))
    assert said(of, "elapsed", "main") == 8
    assert "did not end" in absent(of, "elapsed", "other")


def test_lines_are_looked_for_by_the_words_of_the_system() -> None:
    rejected = log("Memory allocation rejected: 1 + 2 = 3 would exceed limit 2 bytes", "PASS")
    of = evidence(pod("a", log=rejected), pod("b", log=log("PASS it")))
    assert (said(of, "logged", "main", "rejected"), said(of, "logged", "main", "passed")) == (1, 2)
    assert said(of, "each_logged", "main", "rejected") == 1
    assert said(evidence(logs={"s": log("Sending UPDATE_LIMIT to client 1")}), "scheduler_logged", "memory_signal") == 1
    assert "could not be read" in absent(evidence(logs={"s": None}), "scheduler_logged", "memory_signal")
    assert "no log of a scheduler" in absent(evidence(), "scheduler_logged", "memory_signal")


PROBES = [f"[NVSHARE][QUOTA_PROBE] elapsed={10 * n}.0s it={it} it_per_sec=1.00" for n, it in enumerate((0, 300, 600, 1400, 2200))]


def test_throughput_between_changes() -> None:
    of = evidence(pod("a", log=log(*PROBES)), changes={"up": QuotaChange("up", "main", "core", 30, 80, 0, {"a": "003"})})
    assert (said(of, "rate", "main", "", "up"), said(of, "rate", "main", "up"), said(of, "rate", "main")) == (30, 80, 55)
    of.changes["full"] = QuotaChange("full", "main", "core", 30, 100, 0, {"a": "003"})
    assert said(of, "rate_inaccuracy", "main", 30.0, "full", "", "full") == pytest.approx(7.5)  # 30 of 80 a second
    assert said(of, "rate_inaccuracy", "main", 100.0, "full", "up") == 0
    assert said(of, "stalls", "main", 10) == 0
    assert said(of, "stalls", "main", 9) == 1
    assert said(evidence(pod("a", log=log(PROBES[0], PROBES[0].replace("=0.0s", "=9.0s")))), "stalls", "main", 10) == 1
    assert "fewer than two probes" in absent(evidence(pod("a")), "stalls", "main", 10)
    assert "no two probes" in absent(evidence(pod("a")), "rate", "main")
    assert "was not made" in absent(of, "rate", "main", "down")
    of.changes["up"].marks.clear()
    assert "was not read" in absent(of, "rate", "main", "up")


def changed(*texts: str, own: t.Sequence[str] = (), mark: str = "001", **fields: t.Any) -> CaseEvidence:
    """A memory quota of pod a that was changed from 4 to 8 GiB when each log had lines up to `mark`."""
    made = QuotaChange("up", "main", "memory", 4 * GIB, 8 * GIB, 0, {"a": mark, "s": mark}, **fields)
    return evidence(pod("a", log=log(*own)), logs={"s": log(*texts)}, changes={"up": made})


RIGHT = "Memory limit changed for pod default/a: 4294967296 -> 8589934592 bytes"


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["started", RIGHT], 1),
        ([RIGHT, "later"], 0),  # it stood there before the change
        (["started", "Sending UPDATE_LIMIT to client 1: 8589934592 bytes (8.00 GiB)"], 0),  # it is sent when a client registers, too
        (["started", '{"nvshare.com/gpu-memory-limit": "8Gi"}'], 0),
        (["started", RIGHT.replace("default/a", "default/b")], 0),
        (["started", RIGHT.replace("-> 8589934592", "-> 6442450944")], 0),
        (["started", RIGHT.replace("4294967296 ->", "0 ->")], 0),
    ],
)
def test_a_change_is_written_after_it_for_that_pod_from_the_old_to_the_new_value(texts: list[str], found: int) -> None:
    assert said(changed(*texts), "transitions", "up") == found
    assert said(changed(*texts), "changes_logged") == found


def test_a_pod_is_told_after_the_change() -> None:
    told = "Memory limit updated: 4294967296 -> 8589934592 bytes"
    assert said(changed(own=["started", told]), "told", "up") == 1
    assert said(changed(own=[told, "later"]), "told", "up") == 0
    asked = "[NVSHARE][ALLOCATION_PROBE] elapsed=1.0s bytes=1073741824"
    of = changed(own=[f"{asked} granted", f"{asked} refused: OutOfMemoryError"])
    assert (said(of, "refused_after", "main", "up"), said(of, "granted_after", "main", "up")) == (1, 0)


def test_a_change_has_the_latency_until_it_was_observed() -> None:
    seen, unseen = changed(seen_s=4.5), changed()
    assert (said(seen, "latency", "up"), said(seen, "observed", "up"), said(seen, "slowest_change")) == (4.5, True, 4.5)
    assert said(unseen, "observed", "up") is False
    assert (said(seen, "changes"), said(seen, "changes_observed"), said(unseen, "changes_observed")) == (1, 1, 0)
    assert "no metric showed" in absent(unseen, "latency", "up")
    assert "no metric showed" in absent(unseen, "slowest_change")
    assert "no quota was changed" in absent(evidence(), "changes")


def test_a_metric_of_pods_needs_one_series_of_each() -> None:
    text = client("a", "GPU-1", memory_quota_bytes=4 * GIB) + client("b", "GPU-1", memory_quota_bytes=8 * GIB)
    of = evidence(pod("a"), pod("b", "other"), pod("c", "third"), samples=[look("mid", text)])
    assert said(of, "metric", "mid", "client_memory_quota_bytes", "main") == 4 * GIB
    lacking = ("mid", "client_memory_quota_bytes")
    assert "has no series of c" in absent(of, "metric", *lacking, "third")
    assert "has no series of c" in absent(of, "lowest", *lacking, "all")
    of.pods.pop()
    assert (said(of, "lowest", *lacking, "all"), said(of, "highest", *lacking, "all")) == (4 * GIB, 8 * GIB)
    assert "2 values" in absent(of, "metric", *lacking, "all")
    twice = client("a", "GPU-1", memory_quota_bytes=1) + client("a", "GPU-2", memory_quota_bytes=2)
    assert "2 values of a" in absent(evidence(pod("a"), samples=[look("mid", twice)]), "metric", *lacking, "main")
    foreign = client("a", "GPU-1", memory_quota_bytes=1).replace('"default"', '"other"')
    assert "no series of a" in absent(evidence(pod("a"), samples=[look("mid", foreign)]), "metric", *lacking, "main")


def test_a_sum_is_of_all_schedulers_or_none() -> None:
    of = evidence(samples=[look("mid", gpu("1", 3), gpu("2", 4)), look("half", gpu("1", 3), ""), look("few", gpu("1", 3), expected=2)])
    assert said(of, "total", "mid", "gpu_memory_used_bytes") == 7
    assert "sched-1 (no answer in time)" in absent(of, "total", "half", "gpu_memory_used_bytes")
    assert "1 of 2 schedulers" in absent(of, "total", "few", "gpu_memory_used_bytes")
    assert "no scheduler has nvshare_client_x" in absent(of, "total", "mid", "client_x")
    assert "was not taken" in absent(of, "total", "end", "gpu_memory_used_bytes")


def test_metrics_that_are_missing() -> None:
    whole = "".join(f"nvshare_{name} 1\n" for name in SYSTEM.required_metrics)
    of = evidence(samples=[look("now", whole, gpu("1", 1)), look("less", whole.replace("nvshare_client_throttled", "x")), look("none", "")])
    assert (said(of, "missing", "now"), said(of, "missing", "less"), said(of, "present", "now", "gpu_memory_used_bytes")) == (0, 1, 2)
    assert "no scheduler answered" in absent(of, "missing", "none")
    everywhere = evidence(samples=[
        look("now", whole, "".join(line for line in whole.splitlines(True) if "client_" not in line)),
        look("less", whole, whole.replace("nvshare_gpu_info", "x")), look("silent", whole, ""),
    ])  # fmt: skip
    assert [said(everywhere, word, "less") for word in ("missing", "missing_somewhere")] == [0, 1]
    assert said(everywhere, "missing_somewhere", "now") == 0
    assert "not every scheduler answered" in absent(everywhere, "missing_somewhere", "silent")
    assert said(everywhere, "missing", "silent") == 0
    everywhere.sampled(look("silent", gpu("1", 1), ""))  # whose may have the rest
    assert "not every scheduler answered" in absent(everywhere, "missing", "silent")
    assert "no scheduler answered" in absent(of, "present", "none", "gpu_info")


def test_the_driver_is_asked_of_the_same_gpu() -> None:
    looks = [look("w", gpu("1", 1, load=load) + client("a", "1"), gpu("9", 1, load=1)) for load in (0.2, 0.4)]
    busy = {"w": {"node-0": {"0": [50.0, 70.0]}, "node-1": {"0": [0.0]}}}
    asked = ("driver_gap", "w", "gpu_utilization_ratio", "main")
    assert said(evidence(pod("a"), samples=looks, busy=busy), *asked) == pytest.approx(30)
    assert "on node-0 has no values of GPU 0" in absent(evidence(pod("a"), samples=looks, busy={"w": {"node-1": {"0": [1.0]}}}), *asked)
    assert "no nvshare_gpu_utilization_ratio of the GPUs" in absent(evidence(pod("b"), samples=looks, busy=busy), *asked)


def test_peaks_are_of_one_gpu() -> None:
    first = look("w", gpu("1", 13 * GIB, load=0.2), gpu("2", 1 * GIB))
    second = look("w", gpu("1", 2 * GIB) + client("a", "1"), gpu("2", 1 * GIB, load=0.7))
    of = evidence(pod("a"), samples=[first, second])
    used = ("w", "gpu_memory_used_bytes", "gpu_memory_total_bytes")
    assert (said(of, "peak_ratio", *used), said(of, "peak_of_sums", *used)) == (13 / 16, 14 / 32)
    assert said(of, "peak", "w", "gpu_utilization_ratio") == 0.7
    assert said(of, "peak_of_gpus", "w", "gpu_utilization_ratio", "main") == 0.2
    empty = evidence(pod("a"), samples=[look("w", "")])
    for word, *args in (("peak", "w", "gpu_utilization_ratio"), ("peak_ratio", *used), ("peak_of_sums", *used)):
        assert "watch w" in absent(empty, word, *args)
    assert "of the GPUs of main" in absent(empty, "peak_of_gpus", "w", "gpu_utilization_ratio", "main")


def test_a_rise_is_that_of_the_pods_own_gpu() -> None:
    before = look("before", gpu("1", 4, load=0.5), gpu("2", 1))
    later = [look("w", gpu("1", load=load, used=9) + client("a", "1"), gpu("2", 8, load=1)) for load in (0.6, 0.9)]
    of = evidence(pod("a"), pod("b", "other"), samples=[before, *later, look("new", gpu("2", 1))])
    assert said(of, "rise_of_gpus", "before", "w", "gpu_utilization_ratio", "main") == pytest.approx(0.4)
    assert said(of, "rise_of_gpus", "before", "w", "gpu_memory_used_bytes", "main") == 5
    assert "of the GPUs of other" in absent(of, "rise_of_gpus", "before", "w", "gpu_memory_used_bytes", "other")
    assert "of GPU 1" in absent(of, "rise_of_gpus", "new", "w", "gpu_memory_used_bytes", "main")


def test_the_mean_of_a_watch_is_of_the_pod_with_most() -> None:
    watch = [look("w", client("a", "1", throttled=1) + client("b", "1", throttled=0)), look("w", client("a", "1", throttled=0))]
    of = evidence(pod("a"), pod("b"), samples=watch)
    assert said(of, "mean_of", "w", "client_throttled", "main") == 0.5
    of.pods.append(pod("c"))
    assert "of every pod" in absent(of, "mean_of", "w", "client_throttled", "main")


def test_memory_is_given_back_by_each_gpu() -> None:
    before, after = look("baseline", gpu("1", 5) + gpu("2", 9)), look("after", gpu("1", 8) + gpu("2", 1))
    of = evidence(samples=[before, after, look("other", gpu("3", 1))])
    assert said(of, "memory_left", "baseline", "after") == 3
    assert "not of the same GPUs" in absent(of, "memory_left", "baseline", "other")
    of.sampled(look("half", gpu("1", 5), ""))
    assert "not every scheduler" in absent(of, "memory_left", "baseline", "half")


def test_clients_and_series_of_pods_that_are_gone() -> None:
    after = look("after", client("a", "1", throttled=0) + client("foreign", "1"))
    of = evidence(pod("a"), samples=[after, look("half", "", gpu("1", 1))])
    assert (said(of, "clients", "after", "main"), said(of, "series_of", "after", "main"), said(of, "client_series", "after")) == (1, 2, 3)
    for word in ("clients", "series_of"):
        assert "not every scheduler" in absent(of, word, "half", "main")


def test_pods_of_one_gpu_are_colocated() -> None:
    text = client("a", "1") + client("b", "1") + client("c", "2")
    of = evidence(pod("a", "one"), pod("b", "two"), pod("c", "three"), pod("d", "four"), samples=[look("mid", text)])
    assert said(of, "colocated", "mid", "one", "two") is True
    assert said(of, "colocated", "mid", "one", "three") is False
    assert said(of, "gpus", "mid", "one") == 1
    assert said(of, "gpus_known", "mid", "all") == 2
    assert "on which GPU d is" in absent(of, "gpus", "mid", "all")
    assert "on which GPU d is" in absent(of, "colocated", "mid", "one", "four")
    assert "knows a pod of four" in absent(of, "gpus_known", "mid", "four")
    elsewhere = client("a", "1") + client("b", "1")  # on one GPU, which this scheduler has not
    of = evidence(pod("a", "one"), pod("b", "two"), samples=[look("mid", gpu("2", 1) + elsewhere, gpu("1", 1))])
    assert "on which GPU a, b is" in absent(of, "colocated", "mid", "one", "two")


def test_a_client_has_the_index_of_its_gpu_or_not() -> None:
    info = 'nvshare_gpu_info{gpu_uuid="1",gpu_index="0"} 1\n'
    clients = "".join(
        f'nvshare_client_info{{namespace="default",pod="{name}",client_id="{name}",gpu_uuid="1",gpu_index="{index}"}} 1\n'
        for name, index in (("a", 0), ("b", -1))
    )
    of = evidence(pod("a", "one"), pod("b", "two"), pod("c", "three"), samples=[look("mid", info + clients)])
    assert [said(of, "indexed", "mid", group) for group in ("one", "two")] == [1, 0]
    assert "on which GPU c is" in absent(of, "indexed", "mid", "all")


def test_a_pattern_that_a_canary_did_not_log_either_counts_nothing() -> None:
    of = evidence(pod("a", "one", log=log("PASS")), pod("b", "two", log=log("all is well")))
    assert (said(of, "logged", "two", "passed"), said(of, "logged", "two", "passed", "one")) == (0, 0)
    assert absent(of, "logged", "one", "passed", "two") == "no pod of two logged a line that matches the pattern passed"


def test_schedulers_that_are_silent_are_counted() -> None:
    of = evidence(samples=[look("now", gpu("1", 1), "", expected=3)])
    found = {word: said(of, word, "now") for word in ("schedulers", "expected_schedulers", "healthy", "answering", "scrapes", "scraped")}
    assert found == {"schedulers": 2, "expected_schedulers": 3, "healthy": 1, "answering": 1, "scrapes": 3, "scraped": 1}
    assert said(of, "scrape_p95", "now") == pytest.approx(0.1)
    assert said(of, "fewest_schedulers", "now") == 2
    assert "offers shared GPUs" in absent(evidence(samples=[look("now", expected=0)]), "expected_schedulers", "now")
    assert "no scheduler answered" in absent(evidence(samples=[look("now", "")]), "scrape_p95", "now")


def test_restarts_are_of_those_that_ran_before() -> None:
    before, after = look("baseline", gpu("1", 1), gpu("2", 1)), look("end", gpu("1", 1), gpu("2", 1))
    assert said(evidence(samples=[before, after]), "restarts") == 0
    after.schedulers = {"sched-0": 1, "another": 0}
    assert said(evidence(samples=[before, after]), "restarts") == 2
    assert "no scheduler ran" in absent(evidence(samples=[look("baseline"), after]), "restarts")


def test_a_process_must_be_read_in_every_look() -> None:
    rounds = [look("round", "x 1", "x 1", processes=[(1000 + 10 * n, 20 + n), (500, 9)]) for n in range(4)]
    of = evidence(samples=rounds)
    found = [said(of, word, "round") for word in ("rss_growth", "fd_growth", "rss_slope", "fd_slope")]
    assert found == [30, 3, pytest.approx(10), pytest.approx(1)]
    assert "looked at once only" in absent(evidence(samples=rounds[:1]), "rss_growth", "round")
    assert "nothing of a trend" in absent(evidence(samples=rounds[:2]), "rss_slope", "round")
    lost = look("round", "x 1", processes=[(None, None)])
    assert "could not be read: gone" in absent(evidence(samples=[*rounds, lost]), "fd_growth", "round")
    assert "0 of 1 schedulers" in absent(evidence(samples=[look("round", "x 1")]), "rss_growth", "round")


def test_shares_and_how_far_they_are_off() -> None:
    of = evidence(pod("a", "full", seconds=246.2), pod("b", "q25", seconds=911.3))
    assert said(of, "share", "full", "q25") == pytest.approx(27.0, abs=0.05)
    assert said(of, "inaccuracy", "full", "q25", 25.0) == pytest.approx(2.0, abs=0.05)
    of.parameters = {"accuracy_relative": 1.0}
    assert said(of, "inaccuracy", "full", "q25", 25.0) == pytest.approx(8.1, abs=0.05)


def test_a_share_is_of_a_gpu_of_the_same_node() -> None:
    def paired(name: str, group: str, node: str, per_s: float) -> CasePod:
        return pod(name, group, node=node, log=paced(1, 20, per_s))

    fulls = [paired("a", "full", "n1", 100), paired("b", "full", "n2", 50)]
    of = evidence(*fulls, paired("c", "main", "n1", 20), paired("d", "main", "n2", 30))
    assert said(of, "greatest_share", "full", "main") == pytest.approx(60, abs=2)
    of.pods[1].node = "n3"
    assert "d or the pod of full on its node printed no two probes" in absent(of, "greatest_share", "full", "main")


def test_a_ladder_of_pods_has_rungs_and_its_worst_drop() -> None:
    ended = [pod("a", "n1", ended_at=10), pod("b", "n2", ended_at=10), pod("c", "n2", ended_at=10)]
    of = evidence(*ended, pod("d", "n4", FAILED, ended_at=20))
    assert (said(of, "rungs"), said(of, "rungs_succeeded"), said(of, "worst_drop")) == (3, 2, 75)
    assert "one group" in absent(evidence(pod("a", ended_at=1)), "worst_drop")
    assert "no pod" in absent(evidence(), "rungs")


def _rung(group: str, took: float, *gpus: str) -> list[CasePod]:
    said = [log(f"--- on {uuid} ---", "PASS", "--- 1.0 seconds ---") if uuid else log("PASS") for uuid in gpus]
    return [pod(f"{group}-{n}", group, ended_at=took, core=50.0, log=lines_) for n, lines_ in enumerate(said)]


def test_how_pods_land_on_gpus_is_no_cliff() -> None:
    few = _rung("n4", 205, "GPU-a", "GPU-b", "GPU-c", "GPU-d")
    assert said(evidence(*few, *_rung("n8", 605, *["GPU-a"] * 6, "GPU-b", "GPU-c")), "worst_drop") == 0
    assert said(evidence(*few, *_rung("n8", 1205, *["GPU-a"] * 6, "GPU-b", "GPU-c")), "worst_drop") == pytest.approx(49, abs=0.5)
    assert said(evidence(*few, *_rung("n8", 605, *["GPU-a", "GPU-b", "GPU-c", "GPU-d"] * 2)), "worst_drop") == pytest.approx(66, abs=0.5)
    # Where one does not say it, pods per second.
    assert said(evidence(*few, *_rung("n8", 605, *["GPU-a"] * 6, "GPU-b", "")), "worst_drop") == pytest.approx(32, abs=0.5)


@pytest.mark.parametrize(
    ("rungs", "drop"),
    [
        ([(12, 8), (20, 8)], None),  # the second pod started 8 s later
        ([(12, 8), (20, 16)], 40),  # and here it worked for longer
        ([(12, 8), (14, 8)], 14),
        ([(12, 8), (20, 8), (40, 36)], 50),  # a cliff behind a late start
    ],
)
def test_pods_that_start_late_are_no_cliff_and_no_proof_that_there_is_none(rungs: list[tuple[float, float]], drop: float | None) -> None:
    said_of = [log("--- on GPU-a ---", "PASS", f"--- {took} seconds ---") for _ended, took in rungs]
    of = evidence(*(pod(f"n{n}", f"n{n}", ended_at=ended, log=said_of[n]) for n, (ended, _took) in enumerate(rungs)))
    of.parameters = {"cliff_max_pct": 30.0}
    if drop is None:
        assert "fell by 40 % from n0 to n1, and by 0 % without the time in which no pod worked" in absent(of, "worst_drop")
    else:
        assert said(of, "worst_drop") == pytest.approx(drop, abs=0.5)


def timed(*texts: tuple[float, str]) -> list[lines.LogLine]:
    return [lines.LogLine(f"2026-02-17T10:00:{second:06.3f}000000", text) for second, text in texts]


def probing(first: float, last: float, begun: float, held: float = 0.0) -> list[lines.LogLine]:
    """The log of a pod that prints a line about its progress every half second, but stands still until `held`."""
    halves = [first + 0.5 * n for n in range(int(2 * (last - first)))]
    probes = [
        (second, f"[NVSHARE][QUOTA_PROBE] elapsed={second}s it={int(10 * second)} it_per_sec=1") for second in halves if second >= held
    ]
    return timed((begun, "--- begun ---"), *probes, (last, "--- on GPU-1 ---"), (last, f"--- {last - begun:.1f} seconds ---"))


def test_a_pod_that_stands_still_while_others_on_its_node_run_is_held_up() -> None:
    healthy = evidence(pod("a", log=probing(1, 30, 0)), pod("b", log=probing(6, 40, 5)))
    assert said(healthy, "held_up", "main") == 0
    waits = evidence(pod("a", log=probing(1, 30, 0)), pod("b", log=probing(6, 40, 5, held=29.9)))
    assert said(waits, "held_up", "main") == 1
    repeats = evidence(pod("a", log=probing(1, 30, 0)), pod("b", log=paced(6, 40, 0, every=0.5)))
    assert said(repeats, "held_up", "main") == 1
    short = evidence(pod("a", log=probing(1, 8, 0)), pod("b", log=probing(6, 20, 5, held=9)))
    assert "ran at the same time for too short a time: 5, 0 lines" in absent(short, "held_up", "main")
    apart = evidence(pod("a", batch=1, log=probing(1, 10, 0)), pod("b", batch=2, log=probing(20, 40, 19)))
    assert "no two pods of main were brought together" in absent(apart, "held_up", "main")
    alone = evidence(*healthy.pods, pod("c", "other", batch=2, log=log("PASS")))
    assert said(alone, "held_up", "all") == 0
    assert "b printed nothing" in absent(evidence(pod("b", log=[])), "held_up", "main")


def paced(first: float, last: float, per_s: float, every: float = 1.0) -> list[lines.LogLine]:
    """The log of a pod that makes so many iterations a second and prints a line about them now and then."""
    at = [first + every * n for n in range(int((last - first) / every) + 1)]
    return timed(*((s, f"[NVSHARE][QUOTA_PROBE] elapsed={s}s it={int(100 + per_s * (s - first))} it_per_sec=1") for s in at))


def test_a_pod_that_is_ahead_while_all_run_leads_whatever_becomes_of_the_others_later() -> None:
    even = evidence(pod("a", log=paced(1, 30, 50)), pod("b", log=paced(6.5, 40, 48)))
    assert said(even, "lead", "main") == pytest.approx(50 / 48, rel=0.02)
    fast = evidence(pod("a", log=paced(1, 30, 85)), pod("b", log=paced(6.5, 40, 15, every=3.0)))
    assert said(fast, "lead", "main") == pytest.approx(85 / 15, rel=0.03)
    short = evidence(pod("a", log=paced(1, 8, 85)), pod("b", log=paced(6.5, 40, 15)))
    assert "for too short a time to compare their speeds" in absent(short, "lead", "main")
    assert "printed no line about its progress" in absent(evidence(*even.pods, pod("c", log=timed((1, "x")))), "lead", "main")
    anew = evidence(pod("a", log=paced(1, 30, 50)), pod("b", log=paced(6.5, 40, -2)))
    assert "a pod of main began anew" in absent(anew, "lead", "main"), "a ratio below 0 is no fair one"


def test_pods_that_were_brought_together_take_equally_long() -> None:
    of = evidence(pod("a", log=probing(1, 11, 1)), pod("b", log=probing(1, 26, 1)), pod("c", batch=2, log=probing(1, 50, 1)))
    assert said(of, "unfairness", "main") == 2.5
    assert "no two pods" in absent(evidence(pod("a", log=probing(1, 11, 1))), "unfairness", "main")


def test_allocations_are_those_before_a_change_and_since_it_was_shown() -> None:
    probe = "[NVSHARE][ALLOCATION_PROBE] elapsed=1s bytes=1 "
    of = evidence(pod("a", log=timed((1, probe + "granted"), (3, probe + "granted"), (5, probe + "refused: x"), (9, probe + "granted"))))
    mark, shown, later = (timed((second, ""))[0].stamp for second in (1.5, 4.0, 8.0))
    of.changes["down"] = QuotaChange("down", "main", "memory", 8, 2, 0.0, {"a": mark}, 2.5, {"a": shown})
    of.changes["up"] = QuotaChange("up", "main", "memory", 2, 8, 9.0, {"a": later}, None, {})
    words = ("granted_before", "refused_before", "granted_since", "refused_since", "granted_after", "refused_after")
    assert [said(of, word, "main", "down") for word in words] == [1, 0, 1, 1, 2, 1]
    assert [said(of, word, "main", "down", "up") for word in ("granted_since", "refused_since")] == [0, 1]
    assert said(of, "refusal_latency", "main", "down") == 3.5
    assert "was refused nothing after up" in absent(of, "refusal_latency", "main", "up")


def test_a_change_is_told_to_nobody_else() -> None:
    told, quiet = timed((2, "Core limit updated dynamically to 30%")), timed((2, "PASS"))
    of = evidence(pod("a", log=quiet), pod("b", "other", log=told), pod("c", "other", log=told))
    of.changes["up"] = QuotaChange("up", "main", "core", 20, 30, 0.0, {"a": "", "b": ""})
    assert (said(of, "told", "up"), said(of, "told_others", "up")) == (0, 1)


def test_what_a_scheduler_counts_without_clients_is_left_over() -> None:
    running = "".join(f'nvshare_scheduler_running_memory_bytes{{gpu_uuid="{n}"}} {value}\n' for n, value in (("1", 5), ("2", 7)))
    stray = 'nvshare_client_memory_quota_bytes{namespace="default",pod="z",gpu_uuid="1"} 1\n'
    looks = [
        look("busy", client("a", "1") + client("b", "2") + running),
        look("left", client("a", "1") + running + stray),
        look("none", stray),
    ]
    of = evidence(pod("a"), pod("b"), samples=looks)
    assert [said(of, "memory_of_nobody", name) for name in ("busy", "left")] == [0, 7]
    assert "no scheduler has nvshare_scheduler_running_memory_bytes" in absent(of, "memory_of_nobody", "none")
    assert [said(of, "orphans", name) for name in ("busy", "left", "none")] == [0, 1, 1]


def test_an_effective_quota_is_scaled_by_the_pods_of_its_own_gpu() -> None:
    def shown(*percents: float) -> SystemSample:
        places = zip("abc", "112", percents, strict=True)
        return look("s", "".join(client(name, place, core_quota_effective_percent=value) for name, place, value in places))

    def pods() -> list[CasePod]:
        return [pod("a", core=80.0), pod("b", core=80.0), pod("c", "other", core=60.0)]

    assert said(evidence(*pods(), samples=[shown(50, 50, 60)]), "effective_gap", "s", "all") == 0
    assert said(evidence(*pods(), samples=[shown(36, 36, 27)]), "effective_gap", "s", "all") == 33
    changed = evidence(*pods(), samples=[shown(50, 50, 40)])
    changed.changes["up"] = QuotaChange("up", "other", "core", 40, 60, 9.0)  # after the sample
    assert said(changed, "effective_gap", "s", "all") == 0
    lacking = client("c", "2") + "".join(client(name, "1", core_quota_effective_percent=1) for name in "ab")
    assert "no effective quota of c is shown" in absent(evidence(*pods(), samples=[look("s", lacking)]), "effective_gap", "s", "all")


def test_speeds_follow_a_quota_at_all_times() -> None:
    def speeds(*per_s: float) -> list[lines.LogLine]:
        """Ten seconds at each speed, a line each second."""
        done = [0.0]
        for speed in per_s:
            done += [done[-1] + speed * n for n in range(1, 11)]
        return timed(*((s, f"[NVSHARE][QUOTA_PROBE] elapsed={s}s it={int(it)} it_per_sec=1") for s, it in enumerate(done)))

    stamps = [timed((s, ""))[0].stamp for s in (0.5, 10.5, 20.5)]
    made = {
        f"c{value}": QuotaChange(f"c{value}", "main", "core", 0, value, float(n), {name: stamps[n] for name in "ab"})
        for n, value in enumerate((30, 60, 90))
    }
    alone, both = client("a", "1") + client("b", "2"), client("a", "1") + client("b", "1")
    pods = [pod("a", log=speeds(30, 60, 90)), pod("b", log=speeds(30, 60, 90))]
    of = evidence(*pods, samples=[look("alone", alone), look("both", both)], changes=made)
    assert said(of, "unsteady", "alone", "main") == pytest.approx(1, abs=0.05)
    pods[1].log = speeds(30, 60, 30)
    assert said(of, "unsteady", "alone", "main") == pytest.approx(3, abs=0.1)
    pods[0].log, pods[1].log = speeds(30, 50, 50), speeds(30, 50, 50)
    assert said(of, "unsteady", "both", "main") == pytest.approx(1, abs=0.05)  # 60 and 90 on one GPU are half of it
    pods[0].log = speeds(30)
    assert "a printed no two probes after c60" in absent(of, "unsteady", "both", "main")
    assert "was changed 0 times" in absent(evidence(*pods, samples=[look("both", both)]), "unsteady", "both", "main")


@pytest.mark.parametrize(("late", "least", "most"), [(0, 0, 0), (5, 0, 5), (25, 15, 25)])
def test_a_speed_lags_behind_the_metrics(late: int, least: float, most: float) -> None:
    made = [25 * s if s < 50 + late else 25 * (50 + late) + 75 * (s - 50 - late) for s in range(110)]
    log_ = timed(*((s / 2, f"[NVSHARE][QUOTA_PROBE] elapsed={s}s it={made[s]} it_per_sec=1") for s in range(0, 110, 10)))
    mark, shown = (timed((s / 2, ""))[0].stamp for s in (42, 50))
    of = evidence(pod("a", log=log_), changes={"up": QuotaChange("up", "main", "core", 25, 75, 40.0, {"a": mark}, 4.0, {"a": shown})})
    assert least <= t.cast(float, said(of, "lag", "main", "up")) <= most + 0.5
    log_[-1] = timed((50, "[NVSHARE][QUOTA_PROBE] elapsed=100s it=7 it_per_sec=1"))[0]
    assert "a began anew after up" in absent(of, "lag", "main", "up")
    of.changes["up"].settled["a"] = timed((50, ""))[0].stamp
    assert "a printed too few probes around up" in absent(of, "lag", "main", "up")


def test_allocations_count_while_the_quota_is_of_a_size() -> None:
    probe = "[NVSHARE][ALLOCATION_PROBE] elapsed=1s bytes=1 "
    of = evidence(pod("a", log=timed(*((s, probe + ("refused: x" if s in (3, 4, 13) else "granted")) for s in range(1, 20)))))
    at = [timed((s, ""))[0].stamp for s in (1.5, 2.5, 6.5, 7.5, 11.5, 12.5)]
    for number, (name, value) in enumerate((("less_1", 2), ("more_1", 6), ("less_2", 2))):
        of.changes[name] = QuotaChange(name, "main", "memory", 0, value, number, {"a": at[2 * number]}, 1.0, {"a": at[2 * number + 1]})
    assert [said(of, word, "main", 2.0) for word in ("refused_at", "granted_at")] == [3, 2 + 6]
    assert [said(of, word, "main", 6.0) for word in ("refused_at", "granted_at")] == [0, 4]
    assert "was not changed to 8" in absent(of, "granted_at", "main", 8.0)


def test_a_pod_with_twice_the_quota_is_faster_on_whatever_gpu() -> None:
    text = "".join(client(name, place) for name, place in zip("abc", "112", strict=True))
    pods = [pod("a", core=80.0, log=paced(1, 20, 67)), pod("b", core=40.0, log=paced(1, 20, 33)), pod("c", core=30.0, log=paced(1, 20, 30))]
    change = QuotaChange("up", "main", "core", 70, 80, -1.0, {"a": "", "b": "", "c": ""})
    of = evidence(*pods, samples=[look("s", text)], changes={"up": change}, parameters={"mix_ratio_min": 1.15})
    assert said(of, "inverted", "s", "all", "up") == 0
    pods[2].log = paced(1, 20, 90)
    assert said(of, "inverted", "s", "all", "up") == 1  # 67 of the first GPU are to 30 of the second as 2 to 1
    pods[2].node = "another"
    assert said(of, "inverted", "s", "all", "up") == 0
    pods[1].log = paced(1, 2, 33)[:1]
    assert "b printed no two probes after up" in absent(of, "inverted", "s", "all", "up")


def test_pods_that_are_shown_with_a_value_are_counted() -> None:
    text = client("a", "1", memory_quota_bytes=4) + client("b", "1", memory_quota_bytes=6) + client("c", "2", memory_quota_bytes=4)
    of = evidence(pod("a"), pod("b"), pod("c"), samples=[look("s", text)])
    assert said(of, "shown_as", "s", "client_memory_quota_bytes", "all", 4.0) == 2


def test_pods_met_in_the_samples_that_show_all_of_them_on_one_gpu() -> None:
    there = [
        look("mid", client("a", "1") + client("b", "1")),
        look("mid", client("a", "1") + client("b", "2")),
        look("mid", client("a", "1")),
    ]
    for one in there:
        one.phases = {"a": RUNNING, "b": RUNNING}
    assert said(evidence(pod("a"), samples=there), "met", "mid") == 1


def test_a_line_that_is_gone_is_not_known_if_the_metrics_show_the_change() -> None:
    of = evidence(pod("a"), pod("b"), logs={"s": []})
    of.changes["up"] = QuotaChange("up", "main", "core", 30, 60, 0.0, seen_s=1.0, written={"a"}, cut={"b": "s"})
    assert "the log of s does not reach back to up" in absent(of, "transitions", "up")
    assert "the log of s does not reach back to up" in absent(of, "changes_logged")
    of.changes["down"] = QuotaChange("down", "main", "core", 60, 30, 5.0, seen_s=1.0, written={"a"})
    assert (said(of, "transitions", "down"), said(of, "changes_logged")) == (1, 0)


def test_a_scheduler_that_had_no_client_yet_need_not_speak_of_any() -> None:
    """The real one makes what it says of itself with the first client of a GPU."""
    idle = "".join(f'nvshare_{name}{{gpu_uuid="2"}} 1\n' for name in SYSTEM.required_metrics if name.startswith("gpu_"))
    busy = "".join(f'nvshare_{name}{{gpu_uuid="1"}} 1\n' for name in SYSTEM.required_metrics)
    lacking = "".join(line for line in busy.splitlines(True) if "scheduler_running_clients" not in line)
    both = lacking + client("b", "2")
    of = evidence(samples=[look("new", busy + client("a", "1"), idle), look("less", busy + client("a", "1"), both),
                           look("blind", busy + client("a", "1"), idle.replace("nvshare_gpu_info", "x"))])  # fmt: skip
    assert [said(of, "missing_somewhere", name) for name in ("new", "less", "blind")] == [0, 1, 1]


@pytest.mark.parametrize("order", [("nan", "4"), ("4", "nan")])
def test_what_is_no_number_is_neither_the_least_nor_the_most(order: tuple[str, str]) -> None:
    looks = [look("s", *(client(name, "1", memory_quota_bytes=float(value)) for name, value in zip("ab", order, strict=True)))]
    of = evidence(pod("a"), pod("b"), samples=looks)
    for word in ("lowest", "highest"):
        assert "is no number" in absent(of, word, "s", "client_memory_quota_bytes", "main")


def test_an_action_was_done_or_says_why_not() -> None:
    of = evidence(actions={"restarted": True, "drained": False, "idle": "nothing had to move"})
    assert (said(of, "done", "restarted"), said(of, "done", "drained")) == (True, False)
    assert "was not done" in absent(of, "done", "other")
    assert "nothing had to move" in absent(of, "done", "idle")


def test_every_word_is_tested_here_and_says_what_it_takes() -> None:
    with open(__file__, encoding="utf-8") as source:
        here = source.read()
    assert [name for name in register.WORDS if f'"{name}"' not in here] == []
    assert vocabulary.problem(Call("nothing", ())) and "is not known" in str(vocabulary.problem(Call("nothing", ())))
    assert vocabulary.problem(Call("count", ("a", "b"))) == "count: found 2 arguments, expected group"
    assert vocabulary.problem(Call("rate", ("a",))) is None
