# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The public filters that read tools: `NAME(text, rc=0)`."""

from __future__ import annotations

import importlib
import pathlib

import pytest
import yaml

FILTERS = pathlib.Path(__file__).resolve().parents[3] / "plugins" / "filter"
FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures"
TEXTS = {
    "nccl_tests": (FIXTURES / "h200-x4" / "nccl-v2.19.6-all_reduce-g4.txt").read_text(),
    "perftest": (FIXTURES / "perftest-rxe" / "ib_write_bw_basic.client.txt").read_text(),
    "hccl_test": (
        "the minbytes is 64, maxbytes is 64, iters is 1, warmup_iters is 0\n"
        "data_size(Bytes): | aveg_time(us): | alg_bandwidth(GB/s): | check_result:\n"
        "64                | 1000.00        | 0.00006              | success\n"
    ),
}


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_each_filter_reads_the_output_of_its_tool(name: str) -> None:
    module = importlib.import_module(f"ansible_collections.gpufleet.acceptance.plugins.filter.{name}")
    read = module.FilterModule().filters()[name]
    assert read(TEXTS[name])["outcome"] == read(TEXTS[name], 0)["outcome"] == "measured"
    assert read(TEXTS[name], rc=1)["outcome"] == read(TEXTS[name], 137)["outcome"] == "error"
    for junk in ("", None, 3, [], b"x", "<html>"):
        assert read(junk)["outcome"] == "error" and read(junk)["reason"]
    documented = yaml.safe_load((FILTERS / f"{name}.yml").read_text())
    assert set(documented["RETURN"]["_value"]["contains"]) == set(read("")) == set(read(TEXTS[name]))
