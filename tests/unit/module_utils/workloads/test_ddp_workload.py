# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The workload of the stage ddp where it needs no PyTorch: how agents meet, and which values are exact. The rest is
tests/integration/test_ddp_fleet.py's."""

from __future__ import annotations

import json
import pathlib
import pickle
import socket
import subprocess
import sys
import threading
import time
import types
import typing as t
import warnings

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes.ddp import SOURCE
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import agent, ddp, hang

NAMES = ["gpu-01", "gpu-02", "gpu-03"]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("", 0))
        return int(taken.getsockname()[1])


def about(number: int, **more: t.Any) -> dict[str, t.Any]:
    said = {"id": "one", "node": NAMES[number], "node_rank": number, "nnodes": 3, "nproc": 2, "backend": "gloo", "torch": "2.6.0"}
    return {**said, "problem": None, **more}


def meet(
    *guests: dict[str, t.Any], wait: float = 3.0, port: int = 0, address: str = "127.0.0.1", late: t.Mapping[int, float] | None = None,
) -> dict[str, agent.CannotTrain | None]:  # fmt: skip
    """What each of these nodes is told; some come late, by seconds."""
    port = port or free_port()
    told: dict[str, agent.CannotTrain | None] = {}

    def attend(one: dict[str, t.Any]) -> None:
        time.sleep((late or {}).get(one["node_rank"], 0))
        order = {"id": one["id"], "nodes": NAMES, "join_timeout": wait}
        try:
            agent.Meeting(order, one, one["node_rank"], address, port).attend()
            told[one["node"]] = None
        except agent.CannotTrain as refused:
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
    with pytest.raises(agent.CannotTrain, match=r"gpu-02: the name no\.such\.invalid of the first node does not resolve") as caught:
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


class LostStore:
    """The store of a group whose rank 0 has left: it takes the last word of a rank, and breaks when it is asked."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def wait(self, keys: list[str], _timeout: t.Any) -> None:
        assert set(keys) <= self.values.keys()

    def get(self, key: str) -> str:
        if key == "bye":
            raise RuntimeError("Broken pipe")
        return self.values[key]


def leaving(monkeypatch: pytest.MonkeyPatch, rank: int, world: int) -> LostStore:
    for name, value in (("RANK", rank), ("WORLD_SIZE", world), ("LOCAL_RANK", 0)):
        monkeypatch.setenv(name, str(value))
    one = ddp.Rank({"node": "gpu-01", "join_timeout": 5, "collective_timeout": 5, "beat": 5})
    store = LostStore()
    one.store, one.dist = store, types.SimpleNamespace(destroy_process_group=lambda: None)
    one._leave()
    return store


def test_a_rank_whose_store_has_left_before_it_asks_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    assert leaving(monkeypatch, rank=2, world=4).values == {"done/1/2": "0"}


def test_the_rank_that_keeps_the_store_says_that_it_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="Broken pipe"):
        leaving(monkeypatch, rank=0, world=1)


class OldDriver:
    """torch.cuda as it is where PyTorch is built for a newer CUDA than the driver: in the words of PyTorch 2.11."""

    __version__ = "2.11.0+cu130"
    version = types.SimpleNamespace(cuda="13.0")

    class cuda:
        nccl = types.SimpleNamespace(version=lambda: (2, 28, 9))

        @staticmethod
        def is_available() -> bool:
            warnings.warn(
                "CUDA initialization: The NVIDIA driver on your system is too old (found version 12040). Please update your GPU driver by "
                "downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx", stacklevel=1,
            )  # fmt: skip
            return False

        @staticmethod
        def device_count() -> int:
            return 0


def test_a_torch_for_a_newer_cuda_than_the_driver_is_named_with_both_versions() -> None:
    found = agent._cuda(OldDriver, 8, {})
    assert found["problem"] == ["driver_too_old", "torch 2.11.0+cu130 is built for CUDA 13.0, newer than the driver for CUDA 12.4"]
    told = meet(about(0), about(1), about(2, **found), wait=20)
    assert all(one and one.code == "driver_too_old" and "gpu-03: torch 2.11.0+cu130" in str(one) for one in told.values()), told


@pytest.mark.parametrize("ill", [0, 2])
def test_who_comes_after_the_one_with_the_problem_is_told_why(ill: int) -> None:
    """Not that nobody answers at the first node's port, which would send somebody to look for a firewall."""
    problem = {"problem": ["gpu_invisible", "torch sees no GPU"]}
    told = meet(*(about(n, **(problem if n == ill else {})) for n in (0, 2, 1)), wait=20, late={1: 1.0})
    assert all(one and one.code == "gpu_invisible" and f"{NAMES[ill]}: torch sees no GPU" in str(one) for one in told.values()), told


def test_a_name_without_anybody_behind_it() -> None:
    """A Service without endpoints: its name resolves, and nobody answers."""
    with socket.create_server(("", 0)) as gone:
        port = int(gone.getsockname()[1])
    with pytest.raises(agent.CannotTrain, match=rf"gpu-02: port {port} of the first node, localhost, cannot be reached") as caught:
        agent.Meeting({"id": "one", "nodes": NAMES, "join_timeout": 0.5}, about(1), 1, "localhost", port).attend()
    assert caught.value.code == "unreachable"


@pytest.mark.skipif(not pathlib.Path("/proc/net/if_inet6").exists(), reason="this kernel has no IPv6")
def test_agents_meet_over_ipv6() -> None:
    told = meet(about(0), about(1), about(2), wait=20, address="::1")
    assert told == dict.fromkeys(NAMES)
    assert agent.interface_of("::1") == "lo"


@pytest.mark.parametrize(
    ("rendezvous", "words"),
    [("c10d", ["--rdzv_endpoint=[fd00::1]:29500"]), ("static", ["--master_addr=fd00::1", "--master_port=29500"])],
)
def test_torchrun_is_told_an_ipv6_address_as_it_reads_it(rendezvous: str, words: list[str]) -> None:
    """An address with a port behind it stands in brackets."""
    assert set(words) <= set(agent.rendezvous_options(rendezvous, "fd00::1", 29500, 0, "one", 60))
    assert "--rdzv_endpoint=10.0.0.1:29500" in agent.rendezvous_options("c10d", "10.0.0.1", 29500, 1, "one", 60)


# PyTorch's record of the last collectives -----------------------------------------------------------------------------


def entry(seq: int, state: str, group: t.Any = ("0", "default_pg"), **more: t.Any) -> dict[str, t.Any]:
    fields = {"process_group": group, "collective_seq_id": seq, "is_p2p": False, "profiling_name": "nccl:all_reduce", "state": state}
    return {**fields, "frames": [{"name": "step", "filename": "/x/t.py", "line": 3}] * 40, "retired": True, **more}


def names_of(record: dict[str, t.Any], group: t.Any, is_p2p: bool = False) -> list[tuple[int, str]]:
    kept = [one for one in record["entries"] if (list(one["process_group"]), one["is_p2p"]) == (list(group), is_p2p)]
    return [(one["collective_seq_id"], one["state"]) for one in kept]


ENTRIES = [
    *(entry(seq, "completed") for seq in range(1, 900)),
    entry(900, "started"),
    *(entry(seq, "scheduled") for seq in range(901, 950)),
    *(entry(seq, "completed", ("1", "model")) for seq in range(1, 40)),
    *(entry(seq, "scheduled", ("1", "model"), is_p2p=True, profiling_name="nccl:send 0->1") for seq in range(40, 42)),
]


@pytest.mark.parametrize("name", ["_dump_nccl_trace_json", "_dump_fr_trace_json", "_dump_nccl_trace"])
@pytest.mark.parametrize("takes", [3, 0])
def test_of_the_flight_recorder_is_kept_what_a_hang_is_read_from(name: str, takes: int) -> None:
    record = {"version": "2.5", "pg_config": {"0": {"ranks": str(list(range(4096)))}}, "entries": ENTRIES}

    def dump(*flags: bool) -> str | bytes:
        if name.endswith("_json"):
            return json.dumps(record)
        if len(flags) > takes:
            raise TypeError("incompatible function arguments")
        return pickle.dumps(record)

    kept = ddp.flight(types.SimpleNamespace(**{name: dump}))
    assert kept and (kept["entries_of_all"], kept["open"]) == (len(ENTRIES), 52) and len(json.dumps(kept)) < hang.TEXT_LIMIT
    open_ones = [(seq, "scheduled") for seq in (901, 902, 903)]
    assert names_of(kept, ("0", "default_pg")) == [(899, "completed"), (900, "started"), *open_ones, (949, "scheduled")]
    assert names_of(kept, ("1", "model")) == [(39, "completed")]
    assert names_of(kept, ("1", "model"), True) == [(40, "scheduled"), (41, "scheduled")]


def test_a_flight_recorder_that_is_off_or_refuses_writes_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_flags: bool) -> str:
        raise RuntimeError("not built with NCCL")

    assert ddp.flight(None) is None and ddp.flight(types.SimpleNamespace(_dump_nccl_trace_json=refuse)) is None
    assert ddp.flight(types.SimpleNamespace(_dump_nccl_trace_json=lambda *_flags: '{"entries": []}')) is None
    both = types.SimpleNamespace(_dump_nccl_trace_json=refuse, _dump_fr_trace_json=lambda *_flags: json.dumps({"entries": ENTRIES}))
    torch = types.SimpleNamespace(_C=types.SimpleNamespace(_distributed_c10d=both))
    monkeypatch.setitem(sys.modules, "torch", t.cast(types.ModuleType, torch))
    monkeypatch.setenv(ddp.STACKS, str(tmp_path))
    ddp.write_flight()
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "2000")
    ddp.write_flight(7)
    (written,) = tmp_path.iterdir()
    kept = json.loads(written.read_text())
    assert written.name.endswith(".flight") and (kept["operation"], kept["entries_of_all"]) == (7, len(ENTRIES))
