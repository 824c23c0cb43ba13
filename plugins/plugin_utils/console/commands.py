# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a request comes to on the nodes, in words: the command that is run, and about how long it takes.

What is settled on the nodes only stands in capitals: the peer of a test, the largest size that fits. The commands that were run stand with
each measurement.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import allowed
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import rdma

Record = t.Dict[str, t.Any]
# Of links at this speed, and a launch over a group as nccl-tests takes it for one sweep.
GBPS = 400.0
LAUNCH_S = 60.0
# Ansible itself, and what reaching a node costs it.
START_S, REACH_S = 10.0, 0.2
HCCL_REDUCING = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatterv")


def _settings(stages: t.Iterable[str], given: t.Mapping[str, t.Any]) -> Record:
    """With the defaults of the roles; templates among those are left as they are, nobody here needs one."""
    found: Record = {}
    for stage in stages:
        found.update(allowed.role(stage)[1])
    return {**found, **given}


def shown(stages: t.Sequence[str], given: t.Mapping[str, t.Any], nodes: t.Sequence[str]) -> t.List[str]:
    """The command of the last stage that has one."""
    settings = _settings((*stages, "rdma_ports"), given)
    for stage in reversed(stages):
        if stage == "rdma":
            return _perftest(settings)
        if stage in ("nccl_node", "nccl_fabric"):
            return _nccl(stage, settings, len(nodes))
        if stage in ("hccl_local", "hccl"):
            return _hccl(stage, settings, len(nodes))
    return []


def _perftest(settings: Record) -> t.List[str]:
    kind = rdma.kinds(settings)[0]
    device, port = settings["rdma_ports_devices"], settings["rdma_ports_port"]
    return [kind["tool"], "-d", *(device[:1] or ["DEVICE"]), "-i", str(port or "PORT"), *kind["options"], "PEER"]


def _sweep(stage: str, settings: Record) -> t.List[str]:
    smallest, _colon, largest = str(settings[f"{stage}_sizes"][0]).partition(":")
    return ["-b", smallest, "-e", "LARGEST" if largest in ("", "auto") else largest, "-f", str(settings[f"{stage}_factor"])]


def _counts(stage: str, settings: Record) -> t.List[str]:
    counts = (("-n", settings[f"{stage}_iterations"]), ("-w", settings[f"{stage}_warmup"]))
    return [word for flag, count in counts if count for word in (flag, str(count))]


def _mpirun(ranks: str) -> t.List[str]:
    return ["mpirun", "-np", ranks, "--hostfile", "HOSTS"]


def _ranks(gpus: str, nodes: int) -> str:
    return str(int(gpus) * nodes) if gpus.isdigit() and nodes else "RANKS"


def _nccl(stage: str, settings: Record, nodes: int) -> t.List[str]:
    op, gpus, type_ = (str(settings[f"{stage}_{axis}"][0]) for axis in ("ops", "gpus", "types"))
    words = [f"{op}_perf", *_sweep(stage, settings), "-g"]
    if stage == "nccl_node":
        return [*words, gpus if gpus.isdigit() else "GPUS", *_counts(stage, settings), "-d", type_, "-c", "1"]
    words += ["1", *_counts(stage, settings), *(["-d", type_] if type_ != "float" else [])]
    return [*_mpirun(_ranks(gpus, nodes)), *words]


def _hccl(stage: str, settings: Record, nodes: int) -> t.List[str]:
    op, gpus, type_ = (str(settings[f"{stage}_{axis}"][0]) for axis in ("ops", "gpus", "types"))
    words = [f"{op}_test", "-p", gpus if gpus.isdigit() else "NPUS", *_sweep(stage, settings), "-d", type_]
    words += ["-o", str(settings[f"{stage}_reduction"])] if op in HCCL_REDUCING else []
    return [*_mpirun(_ranks(gpus, nodes if stage == "hccl" else 1)), *words, *_counts(stage, settings)]


def seconds(stages: t.Sequence[str], given: t.Mapping[str, t.Any], nodes: int) -> float:
    """About how long it takes where nothing hangs, on links of 400 Gb/s."""
    settings = _settings(stages, given)
    total = START_S
    for stage in stages:
        total += REACH_S * nodes + _stage_seconds(stage, settings, nodes)
    return total


def _stage_seconds(stage: str, settings: Record, nodes: int) -> float:
    if stage == "rdma":
        machines = [str(number) for number in range(nodes)]
        try:
            rounds = len(rdma.rounds_of(machines, settings))
        except RunError:
            return 0.0
        return rdma.expected_seconds(rounds, rdma.kinds(settings), settings, GBPS)
    times = 1
    for axis in ("ops", "gpus", "sizes", "types", "shapes", "modes"):
        values = settings.get(f"{stage}_{axis}")
        times *= len(values) if isinstance(values, list) else 1
    each = settings.get(f"{stage}_check_seconds")
    burn_in = 60.0 * float(settings.get(f"{stage}_minutes") or 0)
    return times * float(each if isinstance(each, (int, float)) else LAUNCH_S) + burn_in
