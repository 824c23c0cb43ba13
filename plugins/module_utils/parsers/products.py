# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for the products of one device as a workload reports them (workloads/products.py), and whether they are right.

Pure functions; nothing here raises for bad records. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import jsonlines


def problem(who: str, record: dict[str, t.Any]) -> tuple[str, str] | None:
    """Return the defect of the products that `who` computed, as (reason code, reason): nobody checked them, or they are wrong. None if
    there is none."""
    names = ("tflops", "iterations", "compared", "tolerance", "wrong")
    checked = jsonlines.numbers(*map(record.get, names)) and all(record[name] > 0 for name in names[:-1])
    if not checked or not 0 <= record["wrong"] <= record["compared"]:
        printed = ", ".join(f"{name} {record.get(name)}" for name in names)
        return "bad_output", f"the workload does not say how it checked the products of {who}: it printed {printed}"
    if not jsonlines.numbers(record.get("error")):
        return "wrong_results", f"{who} computed a product with values that are not finite"
    if not 0 <= record["error"] <= record["tolerance"]:
        return "wrong_results", f"{who} computed a wrong product: relative error {record['error']:.2g}, at most {record['tolerance']:.2g}"
    if record["wrong"]:
        return "wrong_results", f"{who}: {record['wrong']} of {record['compared']} times the same product gave other values"
    if record["compared"] < record["iterations"]:
        return "bad_output", f"the workload compared {record['compared']} of the {record['iterations']} products of {who}"
    return None
