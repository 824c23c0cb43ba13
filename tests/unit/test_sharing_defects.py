# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of planted defects speaks of cases that there are, and of nothing that the stand-in does not play."""

from __future__ import annotations

import pathlib
import re

import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import cases
from rigs.sharing import sharing
from rigs.sharing.defects import ALL, BEYOND, BLIND, DEFECTS, SAME

# Played by the cluster, by node.conf, or in a word that is made of two.
ELSEWHERE = {"drain_never_ends", "pod_pending", "core_annotation_ignored", "memory_annotation_ignored"}


def test_the_cases_are_those_of_the_matrix(root: pathlib.Path) -> None:
    files = (root / "roles/gpu_sharing/files/cases").glob("*.yml")
    assert {case["id"] for file in files for case in yaml.safe_load(file.read_text())["cases"]} == ALL | BEYOND
    assert len(ALL) == 49


def test_cases_that_pass_whatever_metrics_say_ask_for_none() -> None:
    def asks(case: cases.Case) -> bool:
        steps, needs = str(case.steps), {need for needs in (case.needs, *(one.needs for one in case.assertions)) for need in needs}
        return "metrics" in needs or "of_memory" in steps or "observe" in steps

    assert {case.id for case in cases.shipped(cases.STRICT) if not asks(case)} == BLIND


def test_every_defect_is_played_and_has_a_case_that_is_meant_to_see_it() -> None:
    text = "".join(path.read_text() for path in sorted(sharing.PROGRAM.rglob("*")) if path.is_file() and path.suffix != ".pyc")
    names = {SAME.get(name, name) for name in DEFECTS} - ELSEWHERE
    played = set(re.findall(r'"([a-z][a-z0-9_]+)"', text))
    assert names <= played, names - played
    assert len([defect for defect in DEFECTS.values() if not defect.by_chance]) >= 40
    for name, defect in DEFECTS.items():
        assert defect.seen and defect.seen | defect.may <= ALL | BEYOND, name


def test_manifests_are_of_the_kinds_and_names_of_the_real_system() -> None:
    paths = [sharing.path(document) for file in sorted(sharing.MANIFESTS.iterdir()) for document in yaml.safe_load_all(file.read_text())]
    assert "/apis/apps/v1/namespaces/nvshare-system/daemonsets/nvshare-scheduler" in paths
    assert "/apis/apps/v1/namespaces/nvshare-system/daemonsets/nvshare-device-plugin" in paths
    assert "/api/v1/namespaces/nvshare-system/resourcequotas/nvshare-system-quotas" in paths
    assert "/apis/rbac.authorization.k8s.io/v1/clusterroles/nvshare-scheduler" in paths
