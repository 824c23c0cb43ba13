# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The probe of one node, over simulated tools."""

from __future__ import annotations

import pathlib
import subprocess
import typing as t

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nccl_tests
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import nccl_node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.modules.nccl_tests import OPTIONS

TOOLS = pathlib.Path(__file__).resolve().parents[3] / "rigs" / "simulated" / "tools"


def observed(op: str, **more: t.Any) -> dict[str, t.Any]:
    given = {"binary_dir": str(TOOLS), "ops": [op], "sizes": "8M:32M", **more}
    validated = ArgumentSpecValidator(OPTIONS).validate(given)
    assert not validated.error_messages
    params = validated.validated_parameters
    params["checks"] = nccl_node.default_checks(params)
    (found,) = nccl_node.probe(params, Node(60, tools={"nvidia_smi": str(TOOLS / "nvidia-smi")}))
    return found


def test_every_test_is_measured() -> None:
    for op in ("all_reduce", "all_gather", "alltoall", "broadcast", "sendrecv"):
        found = observed(op)
        assert found["outcome"] == "measured" and found["metrics"]["busbw"]["value"] > 100, found["reason"]


@pytest.mark.parametrize("arguments", [["-c", "0"], ["--check", "0"]])
def test_a_test_that_checks_nothing_is_no_measurement(arguments: list[str]) -> None:
    found = observed("all_reduce", extra_args=arguments)
    assert (found["outcome"], found["reason_code"]) == ("error", "unchecked") and "remove" in found["reason"]
    assert not found["metrics"] and not found["series"] and "busbw" in found["raw"]


def test_output_that_is_not_read_to_its_end_is_said_so(tmp_path: pathlib.Path) -> None:
    tool = tmp_path / "all_reduce_perf"
    tool.write_text("#!/bin/sh\nhead -c 20000000 /dev/zero | tr '\\0' 'x'\n")
    tool.chmod(0o755)
    found = observed("all_reduce", binary_dir=str(tmp_path))
    assert found["reason_code"] == "incomplete_output"
    assert "printed 19 MiB, of which the first 8 are read" in found["reason"] and "NCCL_DEBUG" in found["reason"]
    left_out = 20000000 - process.OUTPUT_LIMIT
    assert found["raw"].endswith(f"\n[... {left_out} bytes left out ...]\n")


@pytest.mark.parametrize("kind", ["float", "half", "double", "int8"])
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "gather", "scatter", "broadcast", "sendrecv"])
def test_a_number_of_ranks_that_divides_no_size_is_rounded_as_nccl_tests_does(op: str, kind: str) -> None:
    """A rank gets whole elements, aligned to 16 bytes (`GetCollByteCount` of all_gather.cu and its neighbours, nccl-tests 2.17)."""
    command = [str(TOOLS / f"{op}_perf"), "-b", "8M", "-e", "64M", "-f", "2", "-g", "88", "-d", kind]
    parsed = nccl_tests.parse(subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout, 0, 88)
    assert parsed["outcome"] == "measured", parsed["reason"]
    parts = 88 if op not in ("all_reduce", "broadcast", "sendrecv") else 1
    assert [row["size"] for row in parsed["rows"]] == [(8 << 20 << n) // parts // 16 * 16 * parts for n in range(4)]
