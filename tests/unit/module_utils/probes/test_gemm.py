# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gemm stage over a simulated node."""

from __future__ import annotations

import pathlib
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import gemm
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from rigs.simulated import nodes

CHECKS = [{"check": "bf16", "variant": f"mode={mode} shape=8192x8192x8192"} for mode in ("alone", "together")]


def node(folder: pathlib.Path) -> Node:
    return Node(60, root=str(folder), tools={"nvidia_smi": str(folder / "bin/nvidia-smi")})


def ask(folder: pathlib.Path, faults: str = "", timeout: float = 30.0, python: str = "") -> list[dict[str, t.Any]]:
    nodes.planted(folder, 1, faults=faults)
    params = {
        "checks": CHECKS, "python": python or str(folder / "bin/python3"), "env": {},
        "gpu_count": 8, "mig": "refused", "seconds": 2.0, "warmup_seconds": 1.0, "test_timeout": timeout,
    }  # fmt: skip
    return list(gemm.probe(params, node(folder)))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("gemm_wrong", "GPU 7 computed a wrong product: relative error 0.7"),
        ("gemm_wrong_column", "relative error 0.19, at most 0.0053"),
        ("gemm_nan_corner", "GPU 0 computed a product with values that are not finite"),
        ("gemm_one_bad_product", "GPU 0: 1 of 1800 times the same product gave other values"),
    ],
)
def test_wrong_products_are_wrong_results(tmp_path: pathlib.Path, fault: str, words: str) -> None:
    found = ask(tmp_path, fault)
    assert {o["reason_code"] for o in found} == {"wrong_results"} and len(found) == 2
    assert words in found[0]["reason"]


def test_products_that_nobody_checked_are_no_measurement(tmp_path: pathlib.Path) -> None:
    assert {(o["outcome"], o["reason_code"]) for o in ask(tmp_path, "gemm_unchecked")} == {("error", "bad_output")}


def saying(folder: pathlib.Path, *lines: str) -> str:
    path = folder / "says"
    path.write_text("#!/bin/sh\ncat >/dev/null\ncat <<EOF\n" + "\n".join(lines) + "\nEOF\n" + "sleep 60\n")
    path.chmod(0o755)
    return str(path)


def test_each_check_has_its_own_time_and_all_together_not_more_than_the_whole(tmp_path: pathlib.Path) -> None:
    began = time.monotonic()
    found = ask(tmp_path)
    whole = time.monotonic() - began
    assert len(found) == 2 * 9 and all(o["outcome"] == "measured" for o in found)
    of_nodes = [o["duration_s"] for o in found if not o["part"]]
    assert of_nodes == [0.001, 0.001] and sum(of_nodes) <= whole


@pytest.mark.parametrize("took", ["0.25", "1e300", "-3", "NaN", '"x"'])
def test_the_check_that_did_not_end_has_the_rest_of_the_time(tmp_path: pathlib.Path, took: str) -> None:
    line = '{"kind": "time", "dtype": "bf16", "mode": "alone", "shape": [8192, 8192, 8192], "after_s": 0.5, "took_s": %s}'
    began = time.monotonic()
    first, second = ask(tmp_path, timeout=2.0, python=saying(tmp_path, line % took))
    whole = time.monotonic() - began
    assert [o["reason_code"] for o in (first, second)] == ["timeout", "timeout"]
    if took == "0.25":
        assert first["duration_s"] == 0.25 and 1.7 < second["duration_s"] < whole
    else:
        assert 1.9 < first["duration_s"] < whole and second["duration_s"] == 0


def test_the_gpus_beside_one_with_mig_are_measured(tmp_path: pathlib.Path) -> None:
    nodes.planted(tmp_path, 1, faults="mig")
    params = {
        "checks": CHECKS, "python": str(tmp_path / "bin/python3"), "env": {},
        "gpu_count": 8, "mig": "allowed", "seconds": 2.0, "warmup_seconds": 1.0, "test_timeout": 30.0,
    }  # fmt: skip
    found = list(gemm.probe(params, node(tmp_path)))
    assert {one["outcome"] for one in found} == {"measured"} and len(found) == 2 * (1 + 7), [one["reason"] for one in found]
    assert found[0]["context"]["gpus"] == 7 and len(found[0]["context"]["set_aside"]) == 1 and len(found[0]["members"]) == 7
    (aside,) = found[0]["context"]["set_aside"]
    assert all(aside not in one["part"] for one in found)
    assert {one["reason_code"] for one in gemm.probe({**params, "mig": "refused"}, node(tmp_path))} == {"mig_enabled"}
