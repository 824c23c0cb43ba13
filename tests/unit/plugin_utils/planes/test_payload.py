# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What travels to a node runs there from standard input, whole or not at all."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload


def program(state: pathlib.Path) -> bytes:
    args = {
        "checks": [{"check": "read"}], "argv": ["echo", "bw=5100MiB/s"], "state_dir": str(state),
        "metrics": [{"name": "bandwidth", "unit": "MiB/s", "regex": "bw=([0-9]+)MiB/s"}],
    }  # fmt: skip
    return payload.program(payload.request("measure", payload.options("measure"), args))


def run(text: bytes, *argv: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, *argv], input=text, capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize("argv", [(), ("-",)])
def test_a_program_on_standard_input_answers(tmp_path: pathlib.Path, argv: tuple[str, ...]) -> None:
    answer = json.loads(run(program(tmp_path / "state"), *argv).stdout)
    assert answer["state"] == "done" and answer["observations"][0]["metrics"]["bandwidth"]["value"] == 5100


def test_a_program_in_a_file_answers(tmp_path: pathlib.Path) -> None:
    (tmp_path / "program.py").write_bytes(program(tmp_path / "state"))
    assert json.loads(run(b"", str(tmp_path / "program.py")).stdout)["state"] == "done"


@pytest.mark.parametrize("part", [0.0, 0.001, 0.1, 0.5, 0.999])
def test_a_program_that_was_cut_does_nothing_and_says_little(tmp_path: pathlib.Path, part: float) -> None:
    whole = program(tmp_path / "state")
    done = run(whole[: int(len(whole) * part)])
    # More than fits into a pipe would wait for a reader that a dead connection does not have.
    assert done.stdout == b"" and len(done.stderr) < 4096 and not (tmp_path / "state").exists()
