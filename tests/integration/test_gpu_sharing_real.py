# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU-sharing matrix on two versions of the real system, built from a clone that GPUFLEET_SHARING_SOURCE names."""

from __future__ import annotations

import functools
import os
import pathlib

import pytest
from harness import sharing_runs
from harness.sharing import two_clusters
from harness.sharing_runs import Matrix
from rigs.sharing.real.build import COMMITS
from rigs.sharing.real.real import Real

SOURCE = os.environ.get("GPUFLEET_SHARING_SOURCE", "")
pytestmark = [
    pytest.mark.kubernetes(own=True), pytest.mark.long,
    pytest.mark.skipif(not SOURCE, reason="GPUFLEET_SHARING_SOURCE names no clone of the real system's repository"),
]  # fmt: skip
# Quotas hold over 4 s, and annotations are looked at every 5 s.
PARAMETERS = {
    "quota_window_s": 4, "pod_timeout_s": 300, "running_timeout_s": 90, "probe_timeout_s": 90,
    "dynamic_update_expect_s": 15, "dynamic_update_observe_timeout_s": 60,
}  # fmt: skip
# None of those about time, which a busy machine disturbs.
HEALTHY = [
    "FUNC-001", "FUNC-002", "FUNC-004", "FUNC-005", "FUNC-006", "FUNC-007", "FUNC-010", "FUNC-011", "COMBO-001", "COMBO-004",
    "COMBO-005", "MET-001", "MET-002", "MET-003", "MET-004", "MET-005", "MET-006", "MET-008", "ROBUST-003",
]  # fmt: skip
# Their defects are real, in both versions.
DEFECTS = ["ROBUST-001", "ROBUST-002", "ROBUST-004", "ROBUST-005", "ROBUST-006", "ROBUST-007"]


@pytest.mark.parametrize("prefix", COMMITS)
def test_a_real_version_passes_but_for_its_own_defects(prefix: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PARAMETERS.items():
        monkeypatch.setitem(sharing_runs.PARAMETERS, name, value)
    system = functools.partial(Real, source=pathlib.Path(SOURCE), prefix=prefix)
    with two_clusters(nodes=(1, 1), speeds=(0.2, 0.04), system=system) as clusters:
        matrix = Matrix(clusters, tmp_path, 0.002)
        cases = [*HEALTHY, *DEFECTS]
        found = {key: why for key, why in matrix.run({"c1": cases, "c2": cases}).items() if why[0] != "SKIPPED"}
        assert not {key: why for key, why in found.items() if why[0] != ("FAIL" if key[1] in DEFECTS else "PASS")}
        assert len(found) >= 2 * len(cases) - 3  # FUNC-004, COMBO-001 and COMBO-005 are for the first cluster
        assert not matrix.gone()
