# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which products count, and in which words they do not."""

from __future__ import annotations

import math
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import products

RIGHT = {"tflops": 700.0, "iterations": 1376, "compared": 2752, "tolerance": 0.005, "error": 0.002, "wrong": 0}


def test_products_whose_check_passed_have_no_problem() -> None:
    assert products.problem("GPU 3", RIGHT) is None and products.problem("GPU 3", {**RIGHT, "error": 0}) is None


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"wrong": 2750}, "wrong_results", "GPU 3: 2750 of 2752 times the same product gave other values"),
        ({"error": 0.7}, "wrong_results", "relative error 0.7, at most 0.005"),
        ({"error": None}, "wrong_results", "values that are not finite"),
        ({"error": -1.0}, "wrong_results", "relative error -1"),
        ({"tolerance": 0}, "bad_output", "does not say how it checked the products of GPU 3"),
        ({"tolerance": math.inf}, "bad_output", "tolerance inf"),
        ({"tolerance": None}, "bad_output", "tolerance None"),
        ({"wrong": -1}, "bad_output", "wrong -1"),
        ({"wrong": 3000}, "bad_output", "wrong 3000"),
        ({"wrong": None}, "bad_output", "wrong None"),
        ({"compared": 0}, "bad_output", "compared 0"),
        ({"compared": 12}, "bad_output", "compared 12 of the 1376 products"),
        ({"iterations": 10**400}, "bad_output", "does not say"),
        ({"tflops": True}, "bad_output", "tflops True"),
    ],
)
def test_others_do_not(changes: dict[str, t.Any], code: str, words: str) -> None:
    found = products.problem("GPU 3", {**RIGHT, **changes})
    assert found and found[0] == code and words in found[1]
