# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defects of a system that shares GPUs, and the cases of the matrix that are meant to see each."""

from __future__ import annotations

import dataclasses
import typing as t


@dataclasses.dataclass(frozen=True)
class Defect:
    what: str
    seen: frozenset[str]  # each of these cases must not pass
    # These may fail or pass, for it touches what they use beside what they are for; all others must pass as on a healthy system.
    may: frozenset[str] = frozenset()
    with_it: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    last: bool = False  # of the nodes has it, and no other
    leaves: bool = False  # something in the schedulers that is there when the defect is not any more
    eviction: bool = False  # a budget that lets nobody go
    # The cluster on which its cases can see it; both if empty.
    only: str = ""
    # Whether it is seen hangs on where pods land, or the cases may accept it: counted apart.
    by_chance: bool = False
    # Nothing is wrong, and it can only not be seen that all is well: a FAIL is a false alarm.
    unknown: bool = False


def cases(text: str) -> frozenset[str]:
    """`FUNC-1 2 COMBO-3` as the cases' whole names."""
    suite, found = "", []
    for word in text.split():
        if "-" in word:
            suite, _, word = word.partition("-")
        found.append(f"{suite}-{int(word):03d}")
    return frozenset(found)


ALL = cases(
    "FUNC-1 2 3 4 5 6 7 8 9 10 11 12 COMBO-1 2 3 4 5 6 7 8 PERF-1 2 3 4 5 6 7 8 MET-1 2 3 4 5 6 7 8 "
    "STAB-1 2 3 4 LEAK-1 2 3 4 5 FAIL-1 2 3 4"
)
# Those of the suite robustness, which are for both clusters and run only if they are named.
BEYOND = cases("ROBUST-1 2 3 4 5 6 7 8 9 10 11 12 13")
# Those of the matrix for the two clusters.
OF = {"c1": ALL - cases("PERF-6 STAB-2 FAIL-4"), "c2": ALL - cases("FUNC-3 4 COMBO-1 5 PERF-5 STAB-1 FAIL-3")}
# What changes while pods run.
CORE_CHANGES = cases("FUNC-12 COMBO-4 6 8 PERF-7 MET-5 STAB-3")
MEMORY_CHANGES = cases("FUNC-10 11 COMBO-4 5 8 MET-5 STAB-4")
MEMORY = MEMORY_CHANGES | cases("FUNC-7 COMBO-1 3 7 MET-3 4 FAIL-1")
# Those whose pods are refused memory beside what they are for.
REFUSED = MEMORY_CHANGES | cases("FUNC-7 COMBO-3 FAIL-1")
# Those of which a pod needs more than its memory quota, and nothing else is asked.
QUOTA_ONLY = cases("FUNC-6 COMBO-1 ROBUST-8")
# Those with so few pods on a GPU that none has to wait for another, whatever a defect of waiting says.
FEW = cases("FUNC-1 6 10 11 MET-1 2 4 PERF-7 COMBO-4")
# Those that pass only if a refused canary is seen.
CANARY = cases("FUNC-7")
SHARED = cases("FUNC-2 3 8 9 12 COMBO-2 3 6 7 8 PERF-3 4 7 8 STAB-1 2 3")
# Those that ask no scheduler for its metrics: whatever those say, they pass.
BLIND = cases("FUNC-1 6 7 8 COMBO-1 PERF-1 3 5 6 8 STAB-2 LEAK-1 2 FAIL-2 3")
SEEING = ALL - BLIND
CORE = SHARED | CORE_CHANGES | cases("MET-2 4 5 8 FAIL-1 2")

DEFECTS: dict[str, Defect] = {
    # The part of the GPU
    "core_ignored": Defect("a core quota is told and not kept", cases("FUNC-8 PERF-3 7"), CORE),
    "core_too_much": Defect("20 points more than the quota", cases("FUNC-8 12 COMBO-6 PERF-3"), CORE),
    "core_too_little": Defect("20 points less than the quota", cases("FUNC-8 12 COMBO-6 PERF-3"), CORE),
    "core_inverted": Defect("what is left of the quota is given", cases("FUNC-8 PERF-3 7"), CORE),
    "core_annotation_ignored": Defect("no core annotation is heeded", cases("FUNC-8 12 PERF-3 7 MET-4 5"), CORE),
    "core_sum_unscaled": Defect("quotas of more than a whole GPU are all given", cases("COMBO-3"), CORE),
    "core_update_ignored": Defect("a core quota changes only at the start", CORE_CHANGES),
    "core_logged_only": Defect("a change of core is logged and nothing else", CORE_CHANGES),
    "core_told_only": Defect("a change of core is told everywhere and not given", cases("PERF-7 COMBO-4 STAB-3"), CORE),
    "core_metric_stale": Defect("a change of core is given, metrics say the old one", cases("FUNC-12 PERF-7 MET-5"), CORE_CHANGES),
    "log_rotated": Defect("a kubelet takes the line of a change of core away", cases("STAB-3"), CORE_CHANGES, unknown=True),
    "core_lifted_on_update": Defect("the first change of core lifts the quota", cases("FUNC-12 COMBO-6"), CORE),
    "core_wrong_pod": Defect("a change of core reaches another pod", cases("FUNC-12 PERF-7 MET-5"), CORE_CHANGES),
    "core_update_kills": Defect("a change of core ends the pod", cases("FUNC-12 COMBO-6 PERF-7 MET-5"), CORE_CHANGES),
    "update_late": Defect("changes take a minute", cases("FUNC-10 11 12 PERF-7 MET-5"), CORE_CHANGES | MEMORY_CHANGES, {"seconds": 60}),
    "starvation": Defect("the last of several on a GPU gets nearly nothing", cases("FUNC-2"), ALL - cases("MET-1 7")),
    "cliff": Defect("more than one on a GPU block each other for good", cases("PERF-8"), ALL, {"clients": 1}),
    "deadlock": Defect("nobody is ever given the GPU", cases("FUNC-1 PERF-1 MET-1 7"), ALL),
    "third_waits": Defect("the third client of a GPU waits for others", cases("FUNC-3 COMBO-8 STAB-1 ROBUST-9"), ALL - FEW, only="c1"),
    "newest_waits": Defect("the newest client of a GPU waits", cases("FUNC-2 STAB-1 ROBUST-9"), ALL - FEW),
    "four_clients": Defect("a scheduler serves four clients at most", cases("FUNC-3 COMBO-8 ROBUST-9"), ALL - FEW),
    "lower_waits": Defect("a client waits for one with a higher quota", cases("FUNC-9 PERF-4 COMBO-2 3 8"), ALL - FEW),
    "uneven": Defect("of several on a GPU the first gets 85 percent", cases("FUNC-2 STAB-1"), ALL - FEW),
    "oversub_lifts_core": Defect("with oversubscription no core quota is kept", cases("COMBO-2 6"), CORE),
    "memory_lifts_core": Defect("beside a memory quota no core quota is kept", cases("COMBO-3"), CORE),
    "core_scaled": Defect("three quarters of each quota are given, of 100 percent too", cases("PERF-3"), CORE),
    "waiter_forgotten": Defect("who once waits for memory waits for ever", cases("ROBUST-10"), cases("FUNC-3 PERF-8 STAB-1 2")),
    "removal_ignored": Defect("a core quota stays when its annotation is removed", cases("ROBUST-13")),
    "deleted_keeps_lock": Defect("who is killed takes the GPU with it", cases("ROBUST-12"), ALL),
    "core_fourth_change": Defect("the fourth change of core and later ones are told and not given", cases("STAB-3")),
    "core_drifts": Defect("a pod gets 2 points more with each second", cases("STAB-3"), CORE),
    "memory_change_lifts_core": Defect("a change of memory lifts the core quota", cases("COMBO-4"), CORE | MEMORY_CHANGES),
    "core_ignored_on_one": Defect("on one node a core quota is told and not kept", cases("ROBUST-11"), CORE, last=True),
    "core_first_gpu_only": Defect("core quotas are kept on the first GPU only", cases("COMBO-8"), CORE),
    "core_first_client_only": Defect("only the first client of a GPU is held to its core quota", cases("COMBO-8"), CORE),
    "core_sum_of_all_gpus": Defect("the quotas of all GPUs are added up", cases("COMBO-8"), cases("COMBO-3 7")),
    "told_other_gpu": Defect("a change is told to a pod of another GPU", cases("COMBO-8"), CORE_CHANGES | MEMORY_CHANGES),
    # Memory
    "memory_ignored": Defect("no memory quota is kept", cases("FUNC-6 7 11 COMBO-1"), REFUSED),
    "memory_ignored_on_one": Defect("on one node no memory quota is kept", cases("FUNC-6 ROBUST-11"), REFUSED | QUOTA_ONLY, last=True),
    "memory_raise_not_kept": Defect("a raised quota is told and shown, not kept", cases("FUNC-10 COMBO-4 5"), cases("STAB-4")),
    "memory_cut_late": Defect("grants beyond a lowered quota go on for a while", cases("FUNC-11"), MEMORY_CHANGES),
    "library_quota_small": Defect("the library keeps 4.6 % less than the quota", cases("FUNC-7 COMBO-1")),
    "memory_fourth_change": Defect("the fourth change of memory and later ones are told and not kept", cases("STAB-4")),
    "core_change_lifts_memory": Defect("a change of core lifts the memory quota", cases("COMBO-4"), CORE_CHANGES),
    "mebi_ignored": Defect("a memory quota in Mi is none", cases("COMBO-4")),
    "memory_first_gpu_only": Defect("memory quotas are kept on the first GPU only", cases("COMBO-8"), REFUSED | QUOTA_ONLY),
    "memory_shown_of_all": Defect("a change of memory is shown of all pods of the node", cases("COMBO-8"), MEMORY_CHANGES),
    "refusal_kills_others": Defect("a refused allocation ends the pods beside it", cases("COMBO-8"), REFUSED | QUOTA_ONLY),
    "core_lifts_memory": Defect("beside a core quota no memory quota is kept", cases("COMBO-3 7 8"), MEMORY),
    "oversub_quota_large": Defect("with oversubscription 10 % more than the quota is granted", cases("COMBO-1")),
    "quota_late": Defect("the first quota comes a moment after the start", cases("ROBUST-8")),
    "memory_env_ignored": Defect("the quota of a pod's environment is not kept", cases("FUNC-6"), CANARY),
    "memory_annotation_ignored": Defect("no memory annotation is heeded", cases("COMBO-1 MET-4 5 FUNC-10 11"), MEMORY),
    "memory_quartered": Defect("a quarter of the quota is granted", cases("COMBO-3 7 8"), MEMORY),
    "memory_update_ignored": Defect("a memory quota changes only at the start", MEMORY_CHANGES),
    "memory_logged_only": Defect("a change of memory is logged and nothing else", MEMORY_CHANGES),
    "memory_told_only": Defect("a change of memory is only shown", cases("FUNC-10 11 COMBO-4 STAB-4"), MEMORY_CHANGES),
    "memory_lifted_on_update": Defect("the first change of memory lifts the quota", cases("FUNC-10 11"), MEMORY_CHANGES),
    "memory_wrong_pod": Defect("a change of memory reaches another pod", cases("FUNC-10 11 MET-5"), MEMORY_CHANGES),
    "memory_update_kills": Defect("a change of memory ends the pod", cases("FUNC-10 11 MET-5"), MEMORY_CHANGES),
    "zombie_on_update": Defect("a change of memory leaves a second client", cases("STAB-4"), ALL, leaves=True),
    "oom_not_raised": Defect("more than the GPU holds is granted without oversubscription", cases("FUNC-4")),
    "oom_lenient": Defect("a fifth more than the GPU holds is granted without oversubscription", cases("FUNC-4")),
    "oversub_off_by_one": Defect("the last allocation is not counted", cases("FUNC-4")),
    "oom_silent": Defect("who is refused memory dies without a word", cases("FUNC-4 6 COMBO-1"), REFUSED),
    "oom_hangs": Defect("who is refused memory waits for ever", cases("FUNC-4 6 COMBO-1"), REFUSED),
    "oom_unlogged": Defect("the refusal stands in no log", cases("FUNC-6 COMBO-1"), REFUSED),
    "oversub_refused": Defect("oversubscription has no effect", cases("ROBUST-3"), cases("FUNC-5 MET-8")),
    "oversub_kills": Defect("oversubscription ends the pod", cases("ROBUST-3"), cases("FUNC-5 MET-8")),
    "oversub_crash": Defect("oversubscription ends the scheduler", cases("FUNC-5")),
    "limit_lifted_by_oversub": Defect("oversubscription lifts the quota", cases("COMBO-1 5 8")),
    "limit_ends_oversub": Defect("with oversubscription every quota is nothing", cases("COMBO-7 8"), MEMORY | cases("STAB-4")),
    # What it leaves behind
    "ghost_clients": Defect("clients stay when their pods are gone", cases("LEAK-4"), ALL, leaves=True),
    "rss_leak": Defect("memory of each client stays", cases("LEAK-1"), cases("STAB-1 2"), leaves=True),
    "fd_leak": Defect("files of each client stay open", cases("LEAK-2"), cases("STAB-1 2"), leaves=True),
    "series_leak": Defect("each client leaves series", cases("LEAK-5"), ALL, leaves=True),
    "quota_series_stay": Defect("quota series of dead pods stay", cases("STAB-4 LEAK-4 5"), ALL, leaves=True),
    "running_memory_stays": Defect("memory of dead pods is counted as running", cases("LEAK-3 4 FAIL-4"), cases("MET-3"), leaves=True),
    "memory_lost": Defect("memory of the GPU does not come back", cases("LEAK-3"), ALL, leaves=True),
    # Metrics
    "endpoint_down": Defect("no endpoint listens", cases("MET-1 2 3 4 5 6 7 8"), SEEING),
    "one_scheduler_silent": Defect("the endpoint of one node does not listen", cases("MET-1 2 7"), SEEING, last=True),
    "endpoint_500": Defect("the endpoint answers with errors", cases("MET-1 2 3 4 5 6 7 8"), SEEING),
    "endpoint_flaps": Defect("every third answer is an error", cases("MET-7"), SEEING),
    "unhealthy": Defect("metrics come, the scheduler says that it is ill", cases("MET-1 7"), cases("FAIL-1 4")),
    "scrape_hangs": Defect("the endpoint never answers", cases("MET-1 7"), SEEING | cases("STAB-1 2 LEAK-1 2")),
    "scrape_slow": Defect("an answer takes 6 s", cases("MET-7"), SEEING, {"seconds": 6}),
    "scrape_leaks": Defect("each look at the metrics leaves files open", cases("MET-7"), SEEING | cases("LEAK-2 STAB-2"), leaves=True),
    "scrape_costs": Defect("each look at the metrics stops the work for a while", cases("PERF-2"), SEEING, {"stall": 0.1}),
    "metrics_frozen": Defect("metrics never change", cases("MET-3 4 5 6"), SEEING),
    "metrics_truncated": Defect("half of the metrics come", cases("MET-2"), SEEING),
    "metric_missing": Defect("one of the required metrics is missing", cases("MET-2"), with_it={"metric": "client_core_window_limit_ms"}),
    "metric_missing_on_one": Defect("it is missing on one node only", cases("MET-2"), with_it={"metric": "gpu_info"}, last=True),
    "nvml_down": Defect("nothing is known of the GPUs", cases("MET-2 3 6 8"), SEEING),
    "used_in_mib": Defect("used memory is in MiB", cases("MET-3 8"), cases("LEAK-3 FAIL-4")),
    "gpus_swapped": Defect("what is read of a GPU is shown of another one", cases("MET-3 6 8"), cases("LEAK-3 FAIL-4")),
    "client_other_gpu": Defect("clients are shown on another GPU of their node", cases("MET-3 6 8 ROBUST-7"), SHARED),
    "allocated_of_gpu": Defect("a pod is shown with the memory of all pods on its GPU", cases("MET-3")),
    "quota_of_newest": Defect("all pods are shown with the quotas of the newest", cases("MET-4 COMBO-3 7 8"), CORE | MEMORY),
    "utilization_stuck": Defect("GPUs are always busy", cases("MET-6")),
    "utilization_zero": Defect("GPUs are never busy", cases("MET-6")),
    "quota_in_mib": Defect("the memory quota is in MiB", cases("MET-4 5 FUNC-10 11 COMBO-3"), MEMORY),
    "quota_garbage": Defect("the memory quota is a number that nobody set", cases("MET-4 5 FUNC-10 11 COMBO-3"), MEMORY),
    "core_as_ratio": Defect("the core quota is from 0 to 1", cases("MET-4 5 PERF-7 COMBO-3"), CORE),
    "exceeded_never": Defect("an exceeded quota is not shown", cases("FUNC-11")),
    "exceeded_sticks": Defect("a quota that was exceeded once is so for ever", cases("COMBO-5")),
    "exceeded_always": Defect("a quota is shown as exceeded that is not", cases("FUNC-11")),
    "throttled_always": Defect("all are shown as throttled", cases("MET-8")),
    "throttled_never": Defect("throttling is not shown", cases("MET-8")),
    "uuid_wrong": Defect("all clients are shown on a GPU that there is not", cases("FUNC-2 3 9 COMBO-8 MET-3 4 6 8"), SHARED),
    "clock_skew": Defect("the clock of one node is five minutes ahead", cases("FUNC-1 MET-1"), ALL, {"seconds": 300}, last=True),
    # As real versions are
    "quota_inherited": Defect("a pod without a quota shows that of the pod before it", cases("ROBUST-1")),
    "overload_sticks": Defect("a GPU that was overloaded once is so for ever", cases("ROBUST-2")),
    "idle_blocks": Defect("an idle connection blocks the endpoint", cases("ROBUST-4")),
    "negative_quota_huge": Defect("a negative quota is one of exabytes", cases("ROBUST-5")),
    "decimal_quota_ignored": Defect("a quota with a decimal unit is none", cases("ROBUST-6")),
    "index_unknown": Defect("clients are shown on no GPU's index", cases("ROBUST-7")),
    # Life and death
    "wrong_sums": Defect("what is computed is wrong", cases("FUNC-1 7 8 PERF-1 3"), ALL - cases("MET-1 7")),
    "crash_on_disconnect": Defect("a pod's end is the scheduler's", cases("FUNC-8 PERF-3"), ALL, leaves=True),
    "restart_loses_clients": Defect("a scheduler that was restarted takes no clients", cases("FAIL-1"), cases("FAIL-2 3 4"), leaves=True),
    "restart_loses_quotas": Defect("a scheduler that was restarted knows no quotas", cases("FAIL-1"), ALL, leaves=True),
    "restart_core_not_kept": Defect("a restarted scheduler shows core quotas and gives what there is", cases("FAIL-1"), ALL, leaves=True),
    "plugin_restart_kills": Defect("a device plugin that ends ends the pods of its node", cases("FAIL-2"), cases("FAIL-3 4")),
    "library_not_restored": Defect("a restarted device plugin puts no library back", cases("FAIL-2"), cases("FAIL-3 4"), leaves=True),
    "pod_pending": Defect("nodes offer no parts of GPUs", cases("FUNC-1 2 COMBO-3 MET-4"), ALL, {"conf": {"VIRTUAL_DEVICES": 0}}),
    "drain_never_ends": Defect("nobody may be evicted", cases("FAIL-3"), eviction=True),
}
# Defects that are another one in some place only.
SAME = {
    "one_scheduler_silent": "endpoint_down", "metric_missing_on_one": "metric_missing", "core_ignored_on_one": "core_ignored",
    "memory_ignored_on_one": "memory_ignored",
}  # fmt: skip
