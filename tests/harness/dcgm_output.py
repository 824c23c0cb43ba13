# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Outputs of `dcgmi diag -j` as versions 3 and 4 print them."""

from __future__ import annotations

import json
import typing as t

PASS = {"status": "Pass"}


def v4(tests: dict[str, list[dict[str, t.Any]]], version: str = "4.2.3", **root: t.Any) -> str:
    """As version 4 prints it: {test: results of GPUs 0, 1 ...}."""
    listed = [
        {
            "name": name,
            "results": [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": number, **of} for number, of in enumerate(results)],
            "test_summary": {"status": "Fail" if any(of["status"] == "Fail" for of in results) else results[0]["status"]},
        }
        for name, results in tests.items()
    ]
    whole = {
        "DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": listed}], **root},
        "entity_groups": [{"entity_group": "GPU", "entity_group_id": 1, "entities": []}],
        "metadata": {"DCGM Version": version, "Driver Version Detected": "570.148.08"},
    }
    return json.dumps(whole, indent=1)


def v3(**tests: list[dict[str, t.Any]]) -> str:
    """As version 3 prints it, behind a line of text."""
    categories = [
        {"category": "Deployment", "tests": [{"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "Pass"}]},
                                             {"name": "Persistence Mode", "results": [{"gpu_ids": "0,1", "status": "Pass"}]}]},
        {"category": "Hardware", "tests": [{"name": name.replace("_", " "), "results": results} for name, results in tests.items()]},
    ]  # fmt: skip
    root = {"DCGM GPU Diagnostic": {"test_categories": categories}, "version": "3.3.5"}
    return "Successfully ran diagnostic for group.\n" + json.dumps(root, indent=1)
