# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU-sharing matrix on two versions of the real system, built from a clone that GPUFLEET_SHARING_SOURCE names. GPUFLEET_SHARING_CASES
takes some of the cases: all of them take an hour for a version on two cores."""

from __future__ import annotations

import collections
import functools
import os
import pathlib

import pytest
from harness import sharing_runs
from harness.sharing import two_clusters
from harness.sharing_runs import Matrix
from rigs.sharing.defects import ALL, BEYOND
from rigs.sharing.real.build import COMMITS
from rigs.sharing.real.real import Real

SOURCE = os.environ.get("GPUFLEET_SHARING_SOURCE", "")
SOME = [case for case in os.environ.get("GPUFLEET_SHARING_CASES", "").split(",") if case]
pytestmark = [
    pytest.mark.kubernetes(own=True), pytest.mark.long,
    pytest.mark.skipif(not SOURCE, reason="GPUFLEET_SHARING_SOURCE names no clone of the real system's repository"),
]  # fmt: skip
# Quotas hold over 4 s, and annotations are looked at every 5 s. Loads beside others take 40 s alone on a slow T4, and pods share it.
PARAMETERS = {
    "scale_timeout_s": 600, "stab_iteration_timeout_s": 600,
    "quota_window_s": 4, "pod_timeout_s": 300, "running_timeout_s": 90, "probe_timeout_s": 90,
    "dynamic_update_expect_s": 15, "dynamic_update_observe_timeout_s": 60,
}  # fmt: skip
# Their defects are real, in both versions: each is seen by the case that is named for it, with this cause.
DEFECTS = {
    "ROBUST-001": "a pod without a memory quota is shown with one",
    "ROBUST-002": "a GPU without pods is still shown as overloaded",
    "ROBUST-004": "a scheduler does not say that it is healthy while another connection is open",
    "ROBUST-005": "a quota of -1Gi is shown as more than the GPU has",
    "ROBUST-006": "a quota of 4G is not shown as 4000000000 bytes",
    "ROBUST-007": "a client is not shown with the index that its GPU has",
    "ROBUST-008": "a pod got more than its quota before the quota had reached it",
}
# Defects of both versions that the cases of the matrix see: docs/gpu_sharing.md.
FOUND = {
    "FUNC-010": "no new allocation within the higher quota was granted after the change",
    "COMBO-004": "an allocation within 6 GiB was refused",
    **dict.fromkeys(("LEAK-003", "LEAK-004", "FAIL-004"), "a scheduler counts memory as running on a GPU without clients"),
}
# Shares of slow GPUs miss a quota by more than what is allowed: kernels that are queued when a turn ends are long there.
SHARES = {case: "the share at" for case in ("FUNC-009", "FUNC-012", "COMBO-006", "PERF-004")}
# Unknown on a busy machine: loads that are short beside the start of pods show no cliff.
SHORT = {"PERF-008": "the loads are too short beside the start of pods"}
# A GPU that is once called overloaded stays so (ROBUST-002), and its pods run one after the other until the scheduler is restarted: many
# pods on a T4 (PERF-008) do that, and on any GPU pods that need more memory than it has (ROBUST-010). Without them before, all these pass.
ONE_AFTER_THE_OTHER = {
    **dict.fromkeys(("MET-003", "STAB-004"), "printed fewer than 1 probes"), "ROBUST-009": "a pod on a GPU with six made no progress",
    "ROBUST-012": "not all pods made progress at the same time",
}  # fmt: skip
# Hours of pods one after the other, which show nothing more of the real system at this scale than those that are run.
LEFT = {"STAB-002", "LEAK-001", "LEAK-004", "LEAK-005", "PERF-002", "PERF-003"}


def wrong(case: str, verdict: str, why: str) -> bool:
    """Return True for a verdict that is neither that of a healthy system nor a real defect or a known limit of the simulated GPUs."""
    if case in DEFECTS:
        return verdict != "FAIL" or DEFECTS[case] not in why
    cause = {**FOUND, **SHARES, **SHORT, **ONE_AFTER_THE_OTHER}.get(case)
    return verdict not in ("PASS", "SKIPPED") and not (cause and cause in why)


@pytest.mark.parametrize("prefix", COMMITS)
def test_a_real_version_passes_but_for_its_own_defects(prefix: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PARAMETERS.items():
        monkeypatch.setitem(sharing_runs.PARAMETERS, name, value)
    system = functools.partial(Real, source=pathlib.Path(SOURCE), prefix=prefix)
    with two_clusters(nodes=(1, 1), speeds=(0.2, 0.04), system=system) as clusters:
        matrix = Matrix(clusters, tmp_path, 0.002)
        cases = SOME or sorted((ALL | BEYOND) - LEFT)
        found = matrix.run({"c1": cases, "c2": cases})
        assert not {key: why for key, why in found.items() if wrong(key[1], *why)}
        assert len(found) == 2 * len(cases)
        passed = collections.Counter(verdict for verdict, _why in found.values())
        assert passed["PASS"] >= (1 if SOME else 70), passed
        assert not matrix.gone()
