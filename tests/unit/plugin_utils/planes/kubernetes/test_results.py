# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A copy of the results on a volume: what is mounted, what is refused, and that the log does not depend on it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects

RUN = "20260101T000000Z-0a1b2c"


def pod(results: t.Any) -> dict[str, t.Any]:
    launch = objects.Launch(RUN, "gemm", "lab", 100.0)
    launch.own({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n", "uid": "u"}})
    wanted = settings.pods({"acceptance_kube_image": "a:1", "acceptance_kube_results": results})
    return t.cast("dict[str, t.Any]", launch.pod("p", 0, wanted)["spec"])


@pytest.mark.parametrize(
    ("results", "volume", "path"),
    [
        ({"claim": "nccl-pvc"}, {"persistentVolumeClaim": {"claimName": "nccl-pvc"}}, "/workspace/results"),
        ({"host_path": "/data", "path": "/out"}, {"hostPath": {"path": "/data", "type": "DirectoryOrCreate"}}, "/out"),
    ],
)
def test_a_claim_or_a_folder_is_mounted(results: t.Any, volume: dict[str, t.Any], path: str) -> None:
    spec = pod(results)
    assert {"name": "results", **volume} in spec["volumes"]
    container = spec["containers"][0]
    assert {"name": "results", "mountPath": path} in container["volumeMounts"]
    assert {"name": "GPUFLEET_RESULTS", "value": f"{path}/{RUN}/gemm"} in container["env"]


def test_nothing_is_mounted_where_nobody_asks() -> None:
    assert "results" not in json.dumps(pod({}))


@pytest.mark.parametrize("wrong", [{"path": "/x"}, {"claim": "a", "host_path": "/b"}, {"claim": "a", "path": "x"}, {"pvc": "a"}])
def test_what_it_may_not_hold_is_named(wrong: dict[str, t.Any]) -> None:
    with pytest.raises(KubeError, match="acceptance_kube_results: found"):
        pod(wrong)


@pytest.mark.parametrize("writable", [True, False])
def test_the_frame_is_there_whether_or_not_the_copy_could_be_written(tmp_path: pathlib.Path, writable: bool) -> None:
    (tmp_path / "payload.zip").write_bytes(payload.archive())
    params: dict[str, t.Any] = {"checks": [], "timeout": 10.0, "state_dir": str(tmp_path / "state"), "run": {}, "root": "/"}
    asked = payload.request("measure", payload.options("measure"), {**params, "argv": ["true"], "metrics": []})
    (tmp_path / "request.json").write_text(json.dumps(asked))
    folder = tmp_path / "results" / RUN
    if not writable:
        (tmp_path / "results").write_text("a file")
    mine = {"GPUFLEET_SECRET": "s", "GPUFLEET_POD_UID": "u", "GPUFLEET_RESULTS": str(folder), "GPUFLEET_NODE": "n", "GPUFLEET_POD": "p"}
    command = [sys.executable, str(tmp_path / "payload.zip"), str(tmp_path / "request.json")]
    done = subprocess.run(command, env={**os.environ, **mine}, capture_output=True, check=True, timeout=60)
    reader = frame.Reader(frame.nonce_of("s", "u"))
    for line in done.stdout.splitlines():
        reader.feed(line)
    assert reader.result()["state"] == "done"
    if writable:
        assert json.loads((folder / "n.p.json").read_text()) == reader.result()
    else:
        assert b"the copy of the result was not written" in done.stdout
