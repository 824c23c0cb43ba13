# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""States that would choose a floor or the peers of their own part: NICs of groups, settings of machines, GPUs in slots. Each is judged as
in a run, on both planes, beside healthy look-alikes."""

from __future__ import annotations

import functools
import itertools
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nccl, nvidia
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import slots
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import group
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import gpu_memory
from drills import fleets

Record = dict[str, t.Any]
SIZE = 16 << 30
PLANES = ("ssh", "kubernetes")
NIC = ("MT4129 MT_0000000838", 400.0)
SLOW_RATES = (97.0, 100.0, 200.0)


class Port(t.NamedTuple):
    """A port of each node of a group: model, rate, and whether it is active."""

    model: str = NIC[0]
    rate: float = NIC[1]
    is_up: bool = True


def members(gpu: str, nodes: t.Sequence[t.Sequence[Port]], way: str | None = None) -> list[group.GroupMember]:
    made = []
    for number, ports in enumerate(nodes):
        each = [
            {
                "device": f"mlx5_{n}", "port": 1, "link_layer": "InfiniBand", "rate_gbps": port.rate, "gids": [], "near": [n % 8],
                "model": port.model,
            }
            for n, port in enumerate(ports)
        ]  # fmt: skip
        up = [entry for entry, port in zip(each, ports, strict=True) if port.is_up]
        down = [entry for entry, port in zip(each, ports, strict=True) if not port.is_up]
        made.append(group.GroupMember(f"n{number}", "", gpu=gpu, gpus=[f"g{n}" for n in range(8)], ports=up, down=down, nic_path=way))
    return made


def of_group(
    busbw: float, nodes: t.Sequence[t.Sequence[Port]], plane: str, gpu: str = fleets.H100, way: str | None = None, hca: str = ""
) -> str:
    """The word of a run with one group of eight GPUs a node; `hca` is NCCL_IB_HCA of the machines."""
    context = {
        **group.nics_of(members(gpu, nodes, way), "", hca), "op": "all_reduce", "gpu": gpu, "gpus": 8, "nodes": len(nodes), "mnnvl": False,
        "nvls": False, "algorithm": "auto", "proto": "auto", "series_units": {"busbw": "GB/s"},
    }  # fmt: skip
    subject = {"kind": "group", "id": "nccl_fabric", "members": [f"n{number}" for number in range(len(nodes))]}
    metrics, series = {"busbw": {"value": busbw, "unit": "GB/s"}}, [{"size": SIZE, "busbw": busbw}]
    made = fleets.record("n0", "nccl_fabric", "all_reduce", plane=plane, context=context, metrics=metrics, series=series)
    return fleets.accepts({}, made=[{**made, "subject": subject}], stated={})


def of_settings(busbw: float, machine: dict[str, str], run: dict[str, str], plane: str, count: int) -> str:
    """The word of a fleet of nodes with settings of NCCL of their own and of the run."""
    made = []
    for number in range(count):
        selection = nccl.selection([fleets.H200], 8, run, {**machine, **run})
        context = {
            "gpu": fleets.H200, "gpus": 8, "nodes": 1, **selection, "nccl_env": {**machine, **run}, "nccl_machine": machine,
            "series_units": {"busbw": "GB/s"},
        }  # fmt: skip
        metrics = {"busbw": {"value": busbw, "unit": "GB/s"}}
        series = [{"size": SIZE, "busbw": busbw}]
        made.append(fleets.record(f"n{number}", "nccl_node", "all_reduce", plane=plane, context=context, metrics=metrics, series=series))
    return fleets.accepts({}, made=made, stated={f"n{number}": {"gpu_count": 8} for number in range(count)})


def of_links(links: t.Sequence[t.Sequence[tuple[int, int]]], plane: str) -> str:
    """The word of a fleet whose GPUs have these PCIe links (generation, lanes), copies of the host as fast as these let them be."""
    made = []
    for number, of_node in enumerate(links):
        name = f"n{number}"
        gpus = [
            {
                "name": CARD, "uuid": f"GPU-{number}-{n}", "index": n, "virtual": False,
                "pcie": {"gen_max": generation, "width_max": lanes, "width": lanes},
            }
            for n, (generation, lanes) in enumerate(of_node)
        ]  # fmt: skip
        rates = [0.875 * slots.rate(*link) for link in of_node]
        for at in [None, *range(len(gpus))]:
            context = {**gpu_memory._hardware("h2d", gpus if at is None else [gpus[at]], nvidia.Nvidia, "Maker Model"), "gpus": len(gpus)}
            metrics = {"bandwidth": {"value": min(rates) if at is None else rates[at], "unit": "GB/s"}}
            one = fleets.record(name, "gpu_memory", "h2d", plane=plane, context=context, metrics=metrics)
            if at is not None:
                one["subject"] = {"kind": "gpu", "id": f"{name}/gpu/{gpus[at]['uuid']}", "members": []}
            made.append(one)
    return fleets.accepts({}, made=made, stated={f"n{number}": {"gpu_count": len(of_node)} for number, of_node in enumerate(links)})


CARD = "NVIDIA H100 PCIe"
FULL, NARROW, OLDER = (5, 16), (5, 8), (4, 16)
IN_SLOTS = ("NVIDIA L40S", "Tesla T4", "NVIDIA H100 PCIe", "NVIDIA RTX PRO 6000 Blackwell Server Edition")


def in_slots(gpu: str, share: float, way: str | None, plane: str) -> str:
    """The word of a group of GPUs in slots that reaches a share of what a healthy one does."""
    slot = slots.of(gpu)
    assert slot is not None
    healthy = min(0.6 * slots.rate(slot.generation, slot.lanes), 0.96 * 4 * 200 / 8)
    return of_group(share * healthy, [[Port("MT4123 x", 200.0)] * 4] * 2, plane, gpu, way)


GOOD = [Port()] * 8
NVLS_OFF, RING = {"NCCL_NVLS_ENABLE": "0"}, {"NCCL_ALGO": "Ring"}
WAYS = (slots.SWITCH, slots.HOST_BRIDGE, slots.FAR, None)
Case = tuple[str, str, t.Callable[[], str]]


def _faults() -> t.Iterator[Case]:
    for plane in PLANES:
        for rate in SLOW_RATES:
            nodes = [GOOD, [*GOOD[:7], Port(rate=rate)]]
            what = f"{plane}: a group at half its rate, one of eight ports at {rate:g} Gb/s"
            yield what, "refused", functools.partial(of_group, 192.0, nodes, plane)
        for left in (1, 4, 7):
            nodes = [[*GOOD[:left], *[Port(is_up=False)] * (8 - left)]] * 2
            what = f"{plane}: {left} of eight ports of each node are up, and the group is as fast as these"
            yield what, "refused", functools.partial(of_group, 48.0 * left, nodes, plane)
        one_down = [GOOD, [*GOOD[:7], Port(is_up=False)]]
        slow = functools.partial(of_group, 250.0, one_down, plane)
        yield f"{plane}: one port of one node is down, and the group is slow", "refused", slow
        half = functools.partial(of_group, 192.0, [GOOD] * 2, plane, hca="mlx5_0,mlx5_1,mlx5_2,mlx5_3")
        yield f"{plane}: NCCL_IB_HCA of the machines leaves half of the ports", "refused", half
        for machine, count in itertools.product((NVLS_OFF, RING), (1, 3)):
            what = f"{plane}: {' '.join(machine)} of all {count} machines, as fast as a ring"
            yield what, "refused", functools.partial(of_settings, 366.0, machine, {}, plane, count)
        for link, gpus in itertools.product((NARROW, OLDER), (2, 8)):
            one, all_of = [[FULL] * (gpus - 1) + [link]], [[link] * gpus, *[[FULL] * gpus] * 3]
            yield f"{plane}: one of {gpus} GPUs on the link {link}", "refused", functools.partial(of_links, one, plane)
            yield f"{plane}: all {gpus} GPUs of one machine on the link {link}", "refused", functools.partial(of_links, all_of, plane)
        for gpu, way in itertools.product(IN_SLOTS, WAYS):
            what = f"{plane}: {gpu} at half of a healthy group, GPU to NIC: {way}"
            yield what, "refused", functools.partial(in_slots, gpu, 0.5, way, plane)


def _healthy() -> t.Iterator[Case]:
    for plane in PLANES:
        yield f"{plane}: a healthy group", "accepted", functools.partial(of_group, 384.0, [GOOD] * 2, plane)
        beside = [[*GOOD, Port("MT4117 y", 25.0, False)]] * 2
        yield f"{plane}: a port of another model is down", "accepted", functools.partial(of_group, 384.0, beside, plane)
        yield f"{plane}: settings of the run itself", "accepted", functools.partial(of_settings, 366.0, {}, NVLS_OFF, plane, 3)
        harmless = functools.partial(of_settings, 480.0, NVLS_OFF, {}, plane, 3)
        yield f"{plane}: a setting of the machines that makes nothing slower", "accepted", harmless
        for link in (FULL, NARROW, OLDER):
            yield f"{plane}: all GPUs on the link {link}", "accepted", functools.partial(of_links, [[link] * 8] * 3, plane)
        for gpu, way in itertools.product(IN_SLOTS, WAYS):
            yield f"{plane}: {gpu} in slots, GPU to NIC: {way}", "accepted", functools.partial(in_slots, gpu, 0.98, way, plane)


FAULTS, HEALTHY = list(_faults()), list(_healthy())


def wrong() -> tuple[int, list[str], list[str]]:
    """Return the number of planted faults, the accepted ones, and the healthy fleets that are refused."""
    words = fleets.WORDS
    bad = [f"{what}: {word}" for what, best, ask in FAULTS if words.index(word := ask()) > words.index(best)]
    good = [f"{what}: {word}" for what, worst, ask in HEALTHY if words.index(word := ask()) < words.index(worst)]
    return len(FAULTS), bad, good
