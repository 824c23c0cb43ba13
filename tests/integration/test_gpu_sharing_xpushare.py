# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU-sharing matrix on a system with the names and words of xpushare, which the description of nvshare fits by its prefix."""

from __future__ import annotations

import functools
import pathlib
import typing as t

import pytest
from harness.sharing import Clusters, two_clusters
from harness.sharing_runs import Matrix
from rigs.sharing.sharing import Sharing

pytestmark = [pytest.mark.kubernetes(own=True), pytest.mark.long]
# Those that read what the two versions write differently, some that change quotas, and some that read metrics.
CASES = [
    "FUNC-004", "FUNC-005", "FUNC-006", "FUNC-007", "FUNC-010", "FUNC-012", "COMBO-001", "COMBO-004", "MET-001", "MET-003",
    "LEAK-003", "ROBUST-002", "ROBUST-003",
]


SYSTEM = functools.partial(Sharing, prefix="xpushare")


@pytest.fixture(scope="module")
def clusters() -> t.Iterator[Clusters]:
    # GPUs of the second are slowed down, so that what its pods take can be measured.
    with two_clusters(nodes=(1, 1), speeds=(1.0, 0.2), system=SYSTEM) as found:
        yield found


def test_cases_pass_under_the_later_name_and_see_its_defects(clusters: Clusters, tmp_path: pathlib.Path) -> None:
    matrix = Matrix(clusters, tmp_path, 0.002)
    found = matrix.run({"c1": CASES, "c2": CASES})
    wrong = {key: why for key, why in found.items() if why[0] != "PASS" and (key[0] == "c1" or why[0] != "SKIPPED")}
    assert not wrong and len(found) == 2 * len(CASES)
    with clusters.defect("oom_unlogged"):
        found = matrix.run({"c1": ["FUNC-006", "FUNC-007"], "c2": ["FUNC-006", "FUNC-007"]})
    # Without the line that a refusal is logged with, a missing line proves nothing.
    assert {key: verdict for key, (verdict, _why) in found.items()} == {
        ("c1", "FUNC-006"): "FAIL", ("c1", "FUNC-007"): "UNKNOWN", ("c2", "FUNC-006"): "FAIL", ("c2", "FUNC-007"): "UNKNOWN",
    }, found  # fmt: skip
    assert not matrix.gone()
