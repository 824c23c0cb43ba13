# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The workload of the stage ddp where it needs no PyTorch: how agents meet, and which values are exact. The rest is
tests/integration/test_ddp_fleet.py's."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes.ddp import SOURCE
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import agent, ddp

NAMES = ["gpu-01", "gpu-02", "gpu-03"]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("", 0))
        return int(taken.getsockname()[1])


def about(number: int, **more: t.Any) -> dict[str, t.Any]:
    said = {"id": "one", "node": NAMES[number], "node_rank": number, "nnodes": 3, "nproc": 2, "backend": "gloo", "torch": "2.6.0"}
    return {**said, "problem": None, **more}


def meet(*guests: dict[str, t.Any], wait: float = 3.0, port: int = 0) -> dict[str, agent.Refused | None]:
    """What each of these nodes is told."""
    port = port or free_port()
    told: dict[str, agent.Refused | None] = {}

    def attend(one: dict[str, t.Any]) -> None:
        order = {"id": one["id"], "nodes": NAMES, "join_timeout": wait}
        try:
            agent.Meeting(order, one, one["node_rank"], "127.0.0.1", port).attend()
            told[one["node"]] = None
        except agent.Refused as refused:
            told[one["node"]] = refused

    threads = [threading.Thread(target=attend, args=(one,)) for one in guests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return told


def test_nodes_that_are_alike_go_on() -> None:
    assert meet(about(2), about(1), about(0)) == dict.fromkeys(NAMES)


@pytest.mark.parametrize(
    ("other", "code", "words"),
    [
        ({"torch": "1.13.1"}, "versions_differ", "1.13.1 on gpu-03"),
        ({"nnodes": 4}, "rank_mismatch", "--nnodes is 4 on gpu-03"),
        ({"nproc": 8}, "rank_mismatch", "--nproc_per_node is 8 on gpu-03"),
        ({"problem": ["gpu_invisible", "torch sees no GPU"]}, "gpu_invisible", "gpu-03: torch sees no GPU"),
    ],
)
def test_what_differs_is_said_to_all(other: dict[str, t.Any], code: str, words: str) -> None:
    told = meet(about(0), about(1), about(2, **other), wait=20)
    refused = told["gpu-01"]
    assert refused and refused.code == code and words in str(refused)
    assert (one := told["gpu-03"]) and one.code == code


def test_a_node_that_does_not_come_is_named() -> None:
    told = meet(about(0), about(2), wait=1.5)
    assert all(one and one.code == "rendezvous" and str(one).startswith("gpu-02 did not come") for one in told.values()), told


def test_a_port_that_somebody_else_has_and_a_stranger_behind_it() -> None:
    with socket.create_server(("", 0)) as taken:
        port = int(taken.getsockname()[1])
        threading.Thread(target=taken.accept, daemon=True).start()
        told = meet(about(0), about(1), wait=1.0, port=port)
    assert (first := told["gpu-01"]) and first.code == "port_in_use" and str(port) in str(first)
    assert (second := told["gpu-02"]) and second.code in ("port_in_use", "unreachable") and "gpu-02" in str(second)


def test_a_name_that_does_not_resolve() -> None:
    with pytest.raises(agent.Refused, match=r"gpu-02: the name no\.such\.invalid of the first node does not resolve") as caught:
        agent.Meeting({"id": "one", "nodes": NAMES, "join_timeout": 0.5}, about(1), 1, "no.such.invalid", 29500).attend()
    assert caught.value.code == "name_resolution"


@pytest.mark.parametrize("world", [2, 3, 8, 512, 4096])
@pytest.mark.parametrize("kind", sorted(ddp.EXACT))
def test_every_sum_is_exact_in_its_type_and_every_rank_counts(kind: str, world: int) -> None:
    pattern = ddp.Pattern(types.SimpleNamespace(**{kind: kind}), "cpu", kind, world, 0)
    sums = [pattern.sum_of(c) for c in range(pattern.period)]
    assert min(sums) > 0 and max(sums) <= ddp.EXACT[kind], "whatever the order, no partial sum is larger"
    assert any(pattern.small), "each rank adds something to some element"


def test_the_packed_text_is_one_program() -> None:
    told = {"role": "agent", "id": "x", "nodes": ["a"], "addresses": [""], "rendezvous": "c10d", "join_timeout": 1, "order": {}}
    order = json.dumps(told)
    env = {"NODE_RANK": "1", "NNODES": "1", "NPROC_PER_NODE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", SOURCE, order], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and '"kind":"node"' in done.stdout and "NODE_RANK 1 of 1 nodes" in done.stdout, done.stderr
