#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Lint of expectations against physics, against each other, and against what the probes can say: the shipped tables with each overlay,
or the files named on the command line.

Prints the findings; exit status 1 where one is an error, 0 otherwise. An entry that no measurement can be held to is an error of a
shipped table, and a note of anybody else's.
"""

from __future__ import annotations

import itertools
import pathlib
import sys
import types
import typing as t

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / ".collections"))

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nccl, nvidia
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import collective as fabric
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import gemm, gpu_memory, nccl_node, train
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import loopback
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.modules.nccl_fabric import OPTIONS
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, gates, physics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import rdma

# What selects an expectation and is not hardware: settings of NCCL.
ENVIRONMENTS: list[dict[str, str]] = [
    {},
    {"NCCL_NVLS_ENABLE": "0"},
    *({"NCCL_ALGO": name} for name in ("Ring", "Tree", "NVLS", "NVLSTree", "CollnetDirect", "CollnetChain", "PAT")),
]
# Hardware that an entry says nothing about.
USUAL: dict[str, list[t.Any]] = {"gpus": [8, 4], "nodes": [2, 8], "nics": [8], "nic_gbps": [400.0], "shape": ["8192x8192x8192"]}


def options(entry: expectations.Expectation, key: str) -> list[t.Any]:
    """The values of a key for which an entry holds, or usual ones where it holds for all."""
    value = entry.match.get(key, USUAL.get(key, [None]))
    return value if isinstance(value, list) else [value]


def contexts(entry: expectations.Expectation, gpus: list[str]) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    """(check, context) as the probes write it, of all machines with the hardware that an entry is about."""
    makers: dict[str, t.Callable[[expectations.Expectation, str], t.Iterator[tuple[str, dict[str, t.Any]]]]] = {
        "nccl_node": _nccl_node, "nccl_fabric": _nccl_fabric, "gemm": _gemm, "train": _train, "rdma": _rdma, "gpu_memory": _gpu_memory,
        "nic_loopback": _nic_loopback,
    }  # fmt: skip
    make = makers.get(entry.match["stage"])
    for name in options(entry, "gpu") if "gpu" in entry.match else gpus:
        yield from make(entry, str(name)) if make else ()


def _nccl_node(entry: expectations.Expectation, name: str) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    for check, count, env in itertools.product(_checks(entry, ["all_reduce", "all_gather"]), options(entry, "gpus"), ENVIRONMENTS):
        seen = [{"name": name, "uuid": f"GPU-{number}"} for number in range(count)]
        for kind in options(entry, "type"):
            yield check, nccl_node._context(check, {"type": kind or "float"}, seen, env, Node(60))


def _nccl_fabric(entry: expectations.Expectation, name: str) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    hardware = itertools.product(*(options(entry, key) for key in ("gpus", "nodes", "nics", "nic_gbps")))
    for (count, nodes, nics, rate), env in itertools.product(hardware, ENVIRONMENTS):
        members = [{"name": f"n{n}", "address": f"n{n}", "hostname": f"n{n}", "gpus": count, "local": not n} for n in range(nodes)]
        validated = ArgumentSpecValidator(OPTIONS).validate({"members": members, "checks": [], "env": env})
        head = fabric.GroupHead(validated.validated_parameters, Node(60), None)
        ports = [{"device": f"mlx5_{n}", "port": 1, "link_layer": "InfiniBand", "rate_gbps": rate, "gids": []} for n in range(nics)]
        racks = {1, -(-nodes // 18), *filter(None, options(entry, "nvlink_domains"))}
        for domains, check in itertools.product(sorted(racks), _checks(entry, ["all_reduce", "all_gather"])):
            for number, seat in enumerate(head.group.members):
                seat.gpu, seat.ports = name, ports
                seat.nvlink_domain = f"{number * domains // nodes}" if nccl.mnnvl([name]) else ""
            yield check, head.context_of(check, {}, head.group.members, list(range(count)))


def _gemm(entry: expectations.Expectation, name: str) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    for check, shape, backend, mode in itertools.product(
        _checks(entry, ["bf16"]), options(entry, "shape"), ("torch", "cublas"), ("alone", "together")
    ):
        for count in options(entry, "gpus"):
            seen = {"gpus": [{"name": name, "uuid": f"GPU-{number}"} for number in range(count)]}
            want = {"dtype": check, "mode": mode, "shape": [int(n) if n.isdigit() else n for n in str(shape).split("x")]}
            yield check, gemm._context(want, seen, {"library": backend, "backend": backend})


def _train(entry: expectations.Expectation, name: str) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    used = [{"name": name, "uuid": "GPU-0", "index": 0}]
    said: t.Any = types.SimpleNamespace(library="torch", host_cpu=None)
    for check, shape, dtype, mode in itertools.product(
        _checks(entry, ["train"]), options(entry, "shape"), options(entry, "type"), ("alone", "together")
    ):
        keys = {"mode": mode, "type": str(dtype or "bf16"), "shape": str(shape), "steps": "60", "minutes": "10"}
        batch, width, *_rest = str(shape).split("x")
        yield check, train._context(train._order(check, keys, {"steps": 60}), used, said, {"batch": batch, "width": width, "seed": 1})


def _gpu_memory(entry: expectations.Expectation, name: str) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    for check, generation, width in itertools.product(
        _checks(entry, list(gpu_memory.CHECKS)), options(entry, "pcie_gen"), options(entry, "pcie_width")
    ):
        link = {"gen_max": generation, "width": width, "width_max": width}
        yield check, gpu_memory._hardware(check, [{"name": name, "virtual": False, "pcie": link}], nvidia.Nvidia)


def _nic_loopback(entry: expectations.Expectation, _name: str) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    device = {"device": "mlx5_0", "type": "MT4129", "driver": "mlx5_core", **dict.fromkeys(("numa_node", "pcie", "pci_path", "pci"))}
    for check, rate, layer in itertools.product(
        _checks(entry, [*loopback.TESTS, *loopback.OF_GPU]), options(entry, "nic_gbps"), ("InfiniBand", "Ethernet")
    ):
        port = {"device": "mlx5_0", "port": 1, "rate_gbps": rate, "link_layer": layer, "state": "ACTIVE", "gid": {}}
        yield check, loopback.LoopbackPort(device, port, {}).context(check)


def _rdma(entry: expectations.Expectation, name: str) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    tests = [f"{op}_{kind}" for op in ("read", "write", "send", "atomic") for kind in ("bw", "lat")]
    for both, rate, layer in itertools.product((False, True), options(entry, "nic_gbps"), ("InfiniBand", "Ethernet")):
        wanted = {"rdma_tests": tests, "rdma_size": 65536, "rdma_latency_size": 2, "rdma_bidirectional": both, "rdma_qps": 1}
        counts = {"rdma_iterations": 5000, "rdma_latency_iterations": 5000, "rdma_duration": 0, "rdma_extra_args": [], "rdma_gpu": False}
        for kind in rdma.kinds({**wanted, **counts}):
            port = {"rate_gbps": rate, "link_layer": layer, "nic": "mlx5_ib", "gpu": name}
            for hops in ({}, {"hops": 1}):
                yield kind["check"], {**kind["context"], **rdma.of_ports(port, port), **hops}


def _checks(entry: expectations.Expectation, usual: list[str]) -> list[str]:
    return options(entry, "check") if "check" in entry.match else usual


def unreachable(entries: t.Sequence[expectations.Expectation], of: t.Iterable[expectations.Expectation]) -> list[str]:
    """Ids of those of `of` to which no measurement is ever held, among `entries`."""
    everything = expectations.Expectations(entries)
    gpus = sorted({str(name) for e in entries for name in options(e, "gpu") if name})
    found = []
    for entry in of:
        chosen = (one for check, context in contexts(entry, gpus) for one in everything.choose(entry.match["stage"], check, context))
        held = any(one.expectation.id == entry.id for one in chosen)
        if not held:
            found.append(entry.id)
    return found


def _without_machine() -> None:
    """No setting of the machine that this runs on counts."""
    fabric.nccl_settings = nccl_node.nccl_settings = types.SimpleNamespace(of_machine=lambda _node, _env: {})


def main(names: list[str]) -> int:
    """Lint each of `names` alone, or everything that is shipped."""
    findings: set[physics.LintFinding] = set()
    count = 0
    _without_machine()
    try:
        if names:
            for name in names:
                content, ignored = expectations.read(name)
                print(*ignored, sep="\n", end="\n" if ignored else "")
                entries = [expectations.parse(item, f"{name}[{n}]", rank=1) for n, item in enumerate(content)]
                shipped = expectations.shipped().entries
                findings.update(expectations.lint_own(entries, shipped))
                findings.update(_lost([*shipped, *entries], entries, "note"))
                count += len(entries)
        else:
            overlays = sorted(p.stem for p in (expectations.FILES / "overlays").glob("*.yml"))
            for chosen in [(), *((name,) for name in overlays)]:
                entries = list(expectations.shipped(chosen).entries)
                findings.update(physics.lint(entries))
                top = max(entry.rank for entry in entries)
                findings.update(_lost(entries, [entry for entry in entries if entry.rank == top], "error"))
                if not chosen:
                    findings.update(gates.lint(entries, gates.load()))
                    findings.update(_silent())
                count = max(count, len(entries))
    except expectations.ExpectationError as error:
        print(f"error: {error}")
        return 1
    for finding in sorted(findings, key=str):
        print(finding)
    errors = sum(finding.level == "error" for finding in findings)
    print(f"{count} expectations, {errors} errors")
    return 1 if errors else 0


def _silent() -> t.Iterator[physics.LintFinding]:
    """Yield an error for each shipped entry without `gates`: it has to say which published limits it was held against, or that none is
    known."""
    for path in sorted((expectations.FILES / "expectations").glob("*.yml")):
        for raw in expectations.read(path)[0]:
            if "gates" not in raw:
                text = "gates: found nothing, expected the published limits that it was held against, [] where none is known"
                yield physics.LintFinding("error", f"{path.name} `{raw['id']}`", raw["id"], text)


def _lost(
    entries: t.Sequence[expectations.Expectation], of: t.Sequence[expectations.Expectation], level: str
) -> t.Iterator[physics.LintFinding]:
    by_id = {entry.id: entry for entry in of}
    for name in unreachable(entries, of):
        text = "match: no measurement that the probes can make is ever held to it"
        yield physics.LintFinding(level, by_id[name].origin, name, text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
