# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tools in a container on the host. Stand-ins do what the engines document: docker hands on its standard input with --interactive
only and writes the id of the container, apptainer passes on what APPTAINERENV_ says."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nccl_tests
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

WITH_DAEMON = """#!/bin/bash
if [ "$1" = rm ]; then echo "$@" >> "$HERE/removed"; exit; fi
input=/dev/null
while [ "$1" != image:1 ]; do
    case $1 in
        --interactive) input=/dev/stdin ;;
        --cidfile) echo 0123456789abcdef > "$2"; shift ;;
        --env) export "$2"; shift ;;
    esac
    shift
done
shift
if ! command -v "$1" > /dev/null; then
    echo "docker: Error response from daemon: exec: \\"$1\\": executable file not found in \\$PATH"
    exit 127
fi
exec "$@" < $input
"""
INHERITS = """#!/bin/bash
for name in ${!APPTAINERENV_*}; do export "${name#APPTAINERENV_}=${!name}"; done
while [ "$1" != image:1 ]; do shift; done
shift
exec "$@"
"""
ASK = "import os, sys; print(sys.argv[1], os.environ['NCCL_IB_HCA'])"


@pytest.fixture
def engines(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    for name, program in (("docker", WITH_DAEMON), ("podman", WITH_DAEMON), ("apptainer", INHERITS)):
        (tmp_path / name).write_text(program)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("HERE", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def node(kind: str, **more: t.Any) -> Node:
    return Node(30, exec={"kind": kind, "image": "image:1", **more})


@pytest.mark.parametrize("kind", ["docker", "podman", "apptainer"])
def test_a_workload_and_its_variables_reach_the_container(engines: pathlib.Path, kind: str) -> None:
    """The matrix products come on standard input, and lists of devices have commas."""
    made = node(kind)
    assert made.python() == "python3" and made.python("/opt/torch/bin/python3") == "/opt/torch/bin/python3"
    result = made.run([made.python(), "-", "order"], stdin=ASK, env={"NCCL_IB_HCA": "mlx5_0,mlx5_1"}, contained=True)
    assert (result.rc, result.out) == (0, "order mlx5_0,mlx5_1\n"), result.err
    assert not (engines / "removed").exists()


def test_a_container_that_does_not_end_is_removed_by_its_id(engines: pathlib.Path) -> None:
    result = node("docker").run(["sh", "-c", f"sleep 60; touch {engines}/ended"], timeout=3, contained=True)
    assert result.timed_out and not (engines / "ended").exists()
    assert (engines / "removed").read_text() == "rm --force 0123456789abcdef\n"


def test_what_keeps_a_container_from_starting_is_named(engines: pathlib.Path) -> None:
    result = node("docker").run(["all_reduce_perf"], merge=True, contained=True)
    assert "executable file not found" in nccl_tests.parse(result.out, result.rc or 0)["reason"]
    (engines / "docker").unlink()
    result = node("enroot").run(["all_reduce_perf"], merge=True, contained=True)
    assert result.rc == 127 and result.missing is None
    assert "enroot: not found on the node" in nccl_tests.parse(result.out, result.rc)["reason"]
    result = node("enroot").run(["python3", "-"], contained=True)
    assert "enroot: not found on the node" in result.err


def test_memory_is_shared_and_arguments_come_before_the_image(engines: pathlib.Path) -> None:
    for kind in ("docker", "podman"):
        words = node(kind, args=["--ulimit", "memlock=-1"]).container_argv(["tool"], {}, "/tmp/cid")
        assert words[words.index("--ipc") + 1] == "host" and words[-4:] == ["--ulimit", "memlock=-1", "image:1", "tool"]
