# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What travels to a node runs there from standard input, whole or not at all."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects


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


OWN = """
import dataclasses
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation

@dataclasses.dataclass
class Rate:
    value: float

def probe(params, node):
    for check in params["checks"]:
        rate = {"value": Rate(params["options"]["rate"]).value, "unit": "GB/s"}
        yield observation.measured(check["check"], metrics={"rate": rate})
"""


def own(folder: pathlib.Path, text: str = OWN) -> dict[str, t.Any]:
    path = folder / "disk_probe.py"
    path.write_text(text)
    args = {"checks": [{"check": "read"}], "options": {"rate": 95.0}, "state_dir": str(folder / "state")}
    return payload.request("own_probe", payload.options("own_probe"), args, str(path))


def test_a_probe_of_a_teams_own_travels_with_the_request(tmp_path: pathlib.Path) -> None:
    asked = own(tmp_path)
    (tmp_path / "disk_probe.py").unlink()
    answer = json.loads(run(payload.program(asked)).stdout)
    assert answer["observations"][0]["metrics"]["rate"]["value"] == 95.0 and answer["end"] == "done"


def test_a_probe_of_a_teams_own_runs_in_a_pod(tmp_path: pathlib.Path) -> None:
    (tmp_path / "payload.zip").write_bytes(payload.archive())
    (tmp_path / "request.json").write_text(json.dumps(own(tmp_path)))
    environment = {**os.environ, "GPUFLEET_SECRET": "secret", "GPUFLEET_POD_UID": "uid", "PYTHONPATH": ""}
    words = [sys.executable, str(tmp_path / "payload.zip"), str(tmp_path / "request.json")]
    done = subprocess.run(words, env=environment, capture_output=True, timeout=60, check=False)
    reader = frame.Reader(frame.nonce_of("secret", "uid"))
    for line in io.BytesIO(done.stdout):
        reader.feed(line)
    assert reader.result()["observations"][0]["metrics"]["rate"]["value"] == 95.0


def test_the_payload_of_pods_leaves_a_tenth_of_a_config_map_for_requests_and_for_what_is_to_come() -> None:
    assert len(base64.b64encode(payload.archive())) < 0.9 * objects.CONFIG_LIMIT


def test_a_probe_of_a_teams_own_that_cannot_be_loaded_is_a_fault_with_its_words(tmp_path: pathlib.Path) -> None:
    answer = json.loads(run(payload.program(own(tmp_path, "import no_such_module"))).stdout)
    assert answer["observations"] == [] and "no_such_module" in answer["fault"]


def test_a_probe_of_a_teams_own_that_is_no_python_goes_nowhere(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"own probe .*disk_probe\.py: invalid syntax"):
        own(tmp_path, "def probe(:")
    with pytest.raises(ValueError, match="names none"):
        payload.request("own_probe", payload.options("own_probe"), {"checks": []})


def test_a_python_of_another_kind_compiles_the_sources(tmp_path: pathlib.Path) -> None:
    other = program(tmp_path / "state").replace(f"MAGIC_NUMBER == {importlib.util.MAGIC_NUMBER}".encode(), b"MAGIC_NUMBER == b'other'")
    assert b"b'other'" in other
    answer = json.loads(run(other).stdout)
    assert answer["state"] == "done" and answer["observations"][0]["metrics"]["bandwidth"]["value"] == 5100


def test_a_program_carries_what_its_probe_needs_and_no_more(tmp_path: pathlib.Path) -> None:
    own_probe, measure = (payload.unpacking(probe) for probe in ("", "tool"))
    assert len(measure) < len(own_probe)
