# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of cables, links, modules and switches, planted at a random place of a random fabric beside healthy fabrics of the same kinds."""

from __future__ import annotations

import copy
import math
import pathlib
import random
import typing as t

from drills.fabrics import ETHERNET, INFINIBAND, Fabric, Module, Written
from harness.fat_tree import FatTree

# Hosts, ports of each, hosts at each leaf, spines, uplinks of each leaf. Without spines each rail is a fabric of its own.
SHAPES = (
    (16, 1, 4, 2, 4), (24, 1, 4, 4, 4), (24, 2, 8, 2, 4), (18, 2, 8, 2, 4), (16, 4, 8, 2, 8), (24, 4, 8, 4, 8), (20, 4, 8, 2, 4),
    (8, 8, 8, 2, 4), (16, 8, 8, 4, 8), (8, 8, 8, 0, 0), (6, 4, 6, 0, 0),
)  # fmt: skip
# How often each fault is planted, each time elsewhere, and how many healthy fabrics there are.
TIMES, HEALTHY = 3, 55
FAIL, WARN, UNKNOWN = "FAIL", "WARN", "UNKNOWN"
COUNTERS = ("SymbolErrorCounter", "LinkDownedCounter", "LinkErrorRecoveryCounter", "PortRcvErrors", "LocalLinkIntegrityErrors")
SLOWER = {"EDR": ("SDR", "FDR"), "HDR": ("EDR", "FDR", "SDR"), "NDR": ("HDR", "EDR"), "XDR": ("NDR", "HDR")}
NO_MANAGER = ("/usr/sbin/sminfo: iberror: failed: query\n", "sminfo: iberror: query failed\n")


class Found(t.NamedTuple):
    """The verdict that a fault must get, with one of the codes, at one of the subjects or their parts. No other subject may be named."""

    verdict: str
    codes: tuple[str, ...]
    at: t.Collection[str]


class Kind(t.NamedTuple):
    """The fabrics in which a fault shows: the layer (empty: either), ports of a node, leaves with uplinks, and groups of leaves."""

    layer: str = ""
    rails: int = 1
    leaves: int = 0
    groups: int = 1


Plant = t.Callable[[Fabric, random.Random, pathlib.Path], Found]


def made(source: random.Random, kind: Kind = Kind()) -> Fabric:
    """Return a random healthy fabric of a kind."""
    shapes = [
        shape for shape in SHAPES
        if shape[1] >= kind.rails and -(-shape[0] // shape[2]) >= kind.groups
        and (not kind.leaves or (shape[4] and -(-shape[0] // shape[2]) * shape[1] >= kind.leaves))
    ]  # fmt: skip
    return Fabric(source, kind.layer or source.choice((INFINIBAND, ETHERNET)), FatTree(*source.choice(shapes)))


# Cables -------------------------------------------------------------------------------------------------------------------


def _port(fabric: Fabric, source: random.Random) -> tuple[str, int]:
    return source.choice(fabric.tree.hosts), source.randint(1, fabric.tree.rails)


def _among_others(fabric: Fabric, source: random.Random) -> str:
    """Return a host with at least three others at its leaves: with fewer nobody says which rail a leaf is of."""
    hosts, per_leaf = fabric.tree.hosts, fabric.tree.per_leaf
    groups = [hosts[first : first + per_leaf] for first in range(0, len(hosts), per_leaf)]
    return source.choice([host for group in groups if len(group) > 3 for host in group])


def missing(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    host, rail = _port(fabric, source)
    del fabric.tree.cables[f"{host}:{rail}"]
    return Found(FAIL, ("cable_missing",), {host})


def swapped_rails(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    host = _among_others(fabric, source)
    first, second = source.sample(range(1, fabric.tree.rails + 1), 2)
    fabric.tree.swap(f"{host}:{first}", f"{host}:{second}")
    return Found(FAIL, ("cable_swapped",), {host})


def swapped_nodes(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    """Two nodes of different groups of leaves."""
    rail, per_leaf, hosts = source.randint(1, fabric.tree.rails), fabric.tree.per_leaf, fabric.tree.hosts
    first = source.randrange(len(hosts))
    second = source.choice([place for place in range(len(hosts)) if place // per_leaf != first // per_leaf])
    fabric.tree.swap(f"{hosts[first]}:{rail}", f"{hosts[second]}:{rail}")
    return Found(FAIL, ("cable_swapped", "cable_wrong"), {hosts[first], hosts[second]})


def wrong_rail(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    host, rail = _among_others(fabric, source), source.randint(1, fabric.tree.rails)
    own = int(fabric.tree.cables[f"{host}:{rail}"][1][0].partition("-")[2]) - 1
    other = own - (rail - 1) + source.choice([each for each in range(fabric.tree.rails) if each != rail - 1])
    fabric.tree.cables[f"{host}:{rail}"][1] = (fabric.tree.leaves[other], source.randint(60, 63))
    return Found(FAIL, ("cable_wrong",), {host})


def other_group(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    """A port on a leaf of its rail, of other nodes."""
    host, rail = _port(fabric, source)
    own = int(fabric.tree.cables[f"{host}:{rail}"][1][0].partition("-")[2]) - 1
    rails = fabric.tree.rails
    others = [place for place in range(len(fabric.tree.leaves)) if place % rails == own % rails and place != own]
    fabric.tree.cables[f"{host}:{rail}"][1] = (fabric.tree.leaves[source.choice(others)], source.randint(60, 63))
    return Found(FAIL, ("cable_wrong",), {host})


def no_uplink(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    leaf = source.choice(fabric.tree.leaves)
    for up in source.sample(range(1, fabric.tree.uplinks + 1), source.randint(1, 2)):
        del fabric.tree.cables[f"{leaf}:{fabric.tree.per_leaf + up}"]
    return Found(FAIL, ("cable_missing",), {leaf})


def swapped_uplinks(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    first, second = source.sample(fabric.tree.leaves, 2)
    of_spine = fabric.tree.uplinks // len(fabric.tree.spines)
    a, b = source.sample(range(len(fabric.tree.spines)), 2)
    ends = [fabric.tree.per_leaf + 1 + spine * of_spine + source.randrange(of_spine) for spine in (a, b)]
    fabric.tree.swap(f"{first}:{ends[0]}", f"{second}:{ends[1]}")
    return Found(FAIL, ("cable_swapped", "cable_wrong"), {first, second})


# Links --------------------------------------------------------------------------------------------------------------------


def _slower(full: str, source: random.Random) -> str:
    """Return a rate with fewer lanes, or with a lower speed of each."""
    width, _x, speed = full.partition("x")
    return source.choice([f"{lanes}x{speed}" for lanes in (1, 2) if lanes < int(width)] + [f"{width}x{slow}" for slow in SLOWER[speed]])


def slow_port(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    host, rail = _port(fabric, source)
    cable = f"{host}:{rail}"
    rate = _slower(fabric.tree.full, source)
    fabric.tree.rates[cable] = rate
    return Found(FAIL, ("link_slow",), {host, fabric.tree.cables[cable][1][0]})


def slow_uplink(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    cable = source.choice([name for name in fabric.tree.cables if name.startswith("leaf-")])
    fabric.tree.rates[cable] = _slower(fabric.tree.full, source)
    return Found(FAIL, ("link_slow",), {name for name, _port in fabric.tree.cables[cable]})


def slow_end(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    """One end of a link says a lower rate than the other."""
    cable = source.choice(list(fabric.tree.cables.values()))
    fabric.tree.rates_at[source.choice(cable)] = _slower(fabric.tree.full, source)
    return Found(FAIL, ("link_slow",), {name for name, _port in cable})


def all_ports_of_node_slow(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    host, rate = source.choice(fabric.tree.hosts), _slower(fabric.tree.full, source)
    fabric.tree.rates.update({f"{host}:{rail}": rate for rail in range(1, fabric.tree.rails + 1)})
    return Found(FAIL, ("link_slow",), {host, *(fabric.tree.cables[f"{host}:{rail}"][1][0] for rail in range(1, fabric.tree.rails + 1))})


def trained_down(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    """A module has lost lanes, and its link runs with those that are left."""
    host, rail = _port(fabric, source)
    width, _x, speed = fabric.tree.full.partition("x")
    lanes = source.choice([lanes for lanes in (1, 2) if lanes < int(width)])
    fabric.tree.rates[f"{host}:{rail}"] = f"{lanes}x{speed}"
    fabric.modules[host, rail].use(lanes)
    return Found(FAIL, ("link_slow", "nic_fault"), {host, fabric.tree.cables[f"{host}:{rail}"][1][0]})


def errors(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    end = source.choice(source.choice(list(fabric.tree.cables.values())))
    fabric.tree.errors[end] = {name: source.choice((15, 1200, 65535)) for name in source.sample(COUNTERS, source.randint(1, 3))}
    return Found(WARN, ("port_errors",), {end[0]})


def rising(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    """Counters that rise while they are watched; those of some stood above the threshold before."""
    end, name = source.choice(source.choice(list(fabric.tree.cables.values()))), source.choice(COUNTERS)
    if source.random() < 0.5:
        fabric.tree.errors[end] = {name: 11}
    fabric.rising[end] = {name: source.randint(12, 900)}
    return Found(WARN, ("port_errors",), {end[0]})


# Modules ------------------------------------------------------------------------------------------------------------------


def _module(fabric: Fabric, source: random.Random) -> tuple[str, Module]:
    place = _port(fabric, source)
    module = fabric.modules[place] = Module(source)
    return place[0], module


def hot(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    host, module = _module(fabric, source)
    module.celsius = round(source.uniform(80.5, 96), 1)
    return Found(FAIL, ("nic_fault",), {host})


def bias(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    host, module = _module(fabric, source)
    module.bias[source.randrange(4)] = round(source.choice((source.uniform(12.5, 20), source.uniform(0.1, 1.9))), 2)
    return Found(FAIL, ("nic_fault",), {host})


def dim(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    host, module = _module(fabric, source)
    module.rx_dbm[source.randrange(4)] = source.choice((-math.inf, round(source.uniform(-30, -10.8), 2)))
    return Found(FAIL, ("nic_fault",), {host})


def flag(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    """The module raises an alarm by itself."""
    host, module = _module(fabric, source)
    module.los = source.choice(("0,1,0,0", "1,1,1,1"))
    module.flags = [source.choice(("module temperature high alarm", "laser rx power low alarm"))]
    return Found(FAIL, ("nic_fault",), {host})


def warned(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    """The module warns: ethtool by a flag or by a limit, mlxlink by a recommendation."""
    host, module = _module(fabric, source)
    if source.random() < 0.5:
        module.flags = ["module temperature high warning"]
    else:
        module.celsius = 75.5
    module.advice = source.choice((("15", "Bad signal integrity"), ("1032", "The module's temperature is high")))
    return Found(WARN, ("nic_event",), {host})


def bit_errors(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    host, module = _module(fabric, source)
    rate = f"{source.randint(2, 9)}E-{source.randint(5, 11)}"
    if source.random() < 0.5:
        module.effective = rate
    else:
        module.symbol = rate
    return Found(WARN, ("port_errors",), {host})


def unread_modules(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    """No module of one node can be read."""
    host, tool = source.choice(fabric.tree.hosts), "mlxlink" if fabric.uses_mlxlink else "ethtool"
    if source.random() < 0.3:
        fabric.without.add((host, tool))
    else:
        fabric.answers[host, tool] = source.choice(
            ((1, "", "netlink error: Input/output error\n"), (0, "", ""), (0, '{"result": {', ""), (0, "<html>500</html>\n", ""), None)
        )
    return Found(UNKNOWN, ("no_answer",), {host})


def nonsense_values(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    """All values of the modules of one node are words."""
    host, word = source.choice(fabric.tree.hosts), source.choice(("err", "nan", "--", "0x"))
    for rail in range(1, fabric.tree.rails + 1):
        fabric.modules[host, rail] = Module(source)
        fabric.modules[host, rail].nonsense = word
    return Found(UNKNOWN, ("no_answer",), {host})


# Subnet managers, switches and strangers ----------------------------------------------------------------------------------------


def no_manager(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    for host in fabric.nodes[:2]:
        fabric.answers[host, "sminfo"] = (255, "", source.choice(NO_MANAGER))
    if source.random() < 0.5:
        fabric.managers = dict.fromkeys(fabric.managers, 0)
    return Found(FAIL, ("subnet_manager",), fabric.nodes[:2])


def two_managers(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    others = source.sample(fabric.nodes, source.randint(1, len(fabric.nodes) // 2))
    fabric.managers.update(dict.fromkeys(others, source.randint(2, 900)))
    return Found(FAIL, ("subnet_manager",), fabric.nodes[:2])


def no_master(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    """The subnet manager whose address the ports have is none that manages."""
    fabric.manager_state = source.choice(("0 SMINFO_NOTACT", "1 SMINFO_DISCOVER", "2 SMINFO_STANDBY"))
    return Found(FAIL, ("subnet_manager",), fabric.nodes[:2])


def other_firmware(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    """Another version, or the same short version of another day."""
    switch = source.choice(list(fabric.firmware))
    if source.random() < 0.5:
        fabric.firmware[switch] = source.choice(("31.2010.4026", "31.2012.1068"))
    else:
        fabric.dates[switch] = "11/24/2023"
    return Found(WARN, ("firmware",), {switch})


def stranger(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    host = source.choice(fabric.nodes)
    fabric.nodes.remove(host)
    fabric.tree.described[host] = source.choice(("build-box mlx5_0", "localhost HCA-1", "MT4129 ConnectX7 Mellanox Technologies"))
    return Found(WARN, ("unknown_device",), fabric.nodes[:2])


# A plan -------------------------------------------------------------------------------------------------------------------------


def planned(fabric: Fabric, source: random.Random, folder: pathlib.Path, left_out: t.Collection[str] = ()) -> None:
    """Write the plan of a fabric as it is cabled now, with or without the cables between switches."""
    is_whole, by_device = fabric.layer == INFINIBAND and source.random() < 0.5, source.random() < 0.5
    rows = [["node", "port", "switch", "switch_port"]]
    for name, ((near, port), (far, far_port)) in fabric.tree.cables.items():
        of_host = near in fabric.tree.of_hosts
        if name in left_out or not (of_host or is_whole):
            continue
        here = (f"mlx5_{port - 1}" if by_device else f"{port}") if of_host else f"{port}"
        rows.append([near, here, far, f"{far_port}" if fabric.layer == INFINIBAND else f"swp{far_port}"])
    head, *rest = rows
    source.shuffle(rest)
    separator = source.choice((",", ";", "\t"))
    path = folder / "plan.csv"
    path.write_text("".join(separator.join(row) + "\n" for row in (head, *rest)))
    fabric.settings["acceptance_fabric_plan"] = str(path)


def other_than_planned(fabric: Fabric, source: random.Random, folder: pathlib.Path) -> Found:
    """Two nodes at one leaf are exchanged: the network is as good with them, and only the plan tells."""
    planned(fabric, source, folder)
    rail, per_leaf = source.randint(1, fabric.tree.rails), fabric.tree.per_leaf
    at = [
        fabric.tree.hosts[first : first + per_leaf] for first in range(0, len(fabric.tree.hosts), per_leaf)
        if len(fabric.tree.hosts[first : first + per_leaf]) > 1
    ]  # fmt: skip
    a, b = source.sample(source.choice(at), 2)
    fabric.tree.swap(f"{a}:{rail}", f"{b}:{rail}")
    return Found(FAIL, ("cable_swapped",), {a, b})


def planned_and_missing(fabric: Fabric, source: random.Random, folder: pathlib.Path) -> Found:
    planned(fabric, source, folder)
    return missing(fabric, source, folder)


def planned_elsewhere(fabric: Fabric, source: random.Random, folder: pathlib.Path) -> Found:
    planned(fabric, source, folder)
    host, rail = _port(fabric, source)
    leaf, _own = fabric.tree.cables[f"{host}:{rail}"][1]
    fabric.tree.cables[f"{host}:{rail}"][1] = (source.choice((leaf, source.choice(fabric.tree.leaves))), source.randint(60, 63))
    return Found(FAIL, ("cable_wrong",), {host})


def not_planned(fabric: Fabric, source: random.Random, folder: pathlib.Path) -> Found:
    host, rail = _port(fabric, source)
    planned(fabric, source, folder, left_out={f"{host}:{rail}"})
    return Found(WARN, ("cable_unknown",), {host})


def plan_of_another(fabric: Fabric, source: random.Random, folder: pathlib.Path) -> Found:
    """The plan names a switch that nobody saw."""
    planned(fabric, source, folder)
    path = pathlib.Path(fabric.settings["acceptance_fabric_plan"])
    text = path.read_text()
    separator = next(each for each in ",;\t" if each in text)
    path.write_text(text + separator.join((fabric.nodes[0], f"mlx5_{fabric.tree.rails + 4}", "leaf-99", "7")) + "\n")
    return Found(UNKNOWN, ("cable_unknown",), fabric.nodes[:2])


# What nobody could see --------------------------------------------------------------------------------------------------------------


def _spoiled(text: str, source: random.Random) -> t.Any:
    """Return the answer of a tool that prints its text not as it should."""
    lines = text.splitlines(keepends=True)
    places = [place for place, line in enumerate(lines) if line.startswith("[")]
    blocks = text.split("\n\n")
    block = source.randrange(len(blocks))
    place = source.choice(places)
    return source.choice(
        (
            (0, "", ""), (1, "", "ibwarn: [7] mad_rpc_open_port: can't open UMAD port\n"), None, (0, "<html><body>502</body></html>\n", ""),
            (0, text[: source.randrange(len(text) // 10, len(text) - 60)], ""), (-11, text, "Segmentation fault\n"),
            (0, "".join(lines[:place] + lines[place + 1 :]), ""), (0, "\n\n".join(blocks[:block] + blocks[block + 1 :]), ""),
            (0, text.replace(lines[place], "[?] \x00\x01\n"), ""), (0, text + text, ""),
            (0, text.replace(lines[place].rpartition(" ")[2], "4xZZZ\n"), ""),
        )
    )  # fmt: skip


def unread_discovery(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    at = source.choice((fabric.nodes[:1], fabric.nodes[1:2], fabric.nodes[:2]))
    for host in at:
        fabric.answers[host, "ibnetdiscover"] = _spoiled(fabric.tree.text(), source)
    return Found(UNKNOWN, ("incomplete_output", "tool_failed", "timeout"), at)


def unread_counters(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    """The tool that reads the counters of errors is there, and what it prints is not all, from both nodes that look."""
    for host in fabric.nodes[:2]:
        text = fabric.ibqueryerrors(False, fabric.tree)
        fabric.answers[host, "ibqueryerrors"] = source.choice(
            ((0, "", ""), (0, text[: len(text) // 3], ""), None, (255, "", "ibwarn: can't open UMAD port\n"), (0, "<html>502</html>", ""))
        )
    return Found(UNKNOWN, ("incomplete_output", "tool_failed", "timeout", "no_answer"), fabric.nodes[:2])


def without_tools(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    at = source.choice((fabric.nodes[:1], fabric.nodes[1:2], fabric.nodes[:2]))
    fabric.without |= {(host, "ibnetdiscover") for host in at}
    return Found(UNKNOWN, ("tool_missing",), at)


def other_sight(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    """The witness sees a link less than the first node, or more."""
    other = copy.deepcopy(fabric.tree)
    del other.cables[source.choice([name for name in other.cables if name.startswith("leaf-")])]
    fabric.others_see[source.choice(fabric.nodes[:2])] = other
    return Found(UNKNOWN, ("unresolved",), [*fabric.nodes[:2], *fabric.tree.leaves, *fabric.tree.spines])


def silent_port(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    place = _port(fabric, source)
    fabric.unheard.add(place)
    return Found(UNKNOWN, ("cable_unknown",), {place[0]})


def silent_node(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    host = source.choice(fabric.nodes)
    if source.random() < 0.3:
        fabric.without.add((host, "lldpctl"))
    else:
        text = fabric.lldpctl(host)
        fabric.answers[host, "lldpctl"] = source.choice(
            ((0, "", ""), (0, text[: len(text) // 2], ""), None, (1, "", "lldpctl: unable to connect to socket\n"), (0, '{"lldp": {}}', ""),
             (0, "null", ""), (0, "[]", ""))
        )  # fmt: skip
    return Found(UNKNOWN, ("cable_unknown", "incomplete_output"), {host})


def two_neighbours(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    place = _port(fabric, source)
    fabric.strange[place] = ("desk-switch", source.choice(("gi0/1", "swp9")))
    return Found(UNKNOWN, ("unresolved", "cable_unknown"), [*fabric.nodes, *fabric.tree.leaves, "desk-switch"])


# During the run ---------------------------------------------------------------------------------------------------------------------


def during(plant: Plant) -> Plant:
    """What a fault is at the end of the run that was not there at its beginning."""

    def planted(fabric: Fabric, source: random.Random, folder: pathlib.Path) -> Found:
        fabric.later = copy.deepcopy(fabric)
        found = plant(fabric.later, source, folder)
        # A node that does not look at the end has no check there; the first that does bears it.
        return found._replace(at=[*found.at, fabric.nodes[0]])

    return planted


def moved(fabric: Fabric, source: random.Random, folder: pathlib.Path) -> Found:
    return swapped_nodes(fabric, source, folder)._replace(codes=("cable_wrong",), at=[*fabric.nodes, *fabric.tree.leaves])


def lost(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    cable = fabric.tree.cables.pop(source.choice(list(fabric.tree.cables)))
    return Found(FAIL, ("cable_missing",), {name for name, _port in cable})


def not_seen_at_first(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> Found:
    """The first look failed, so that nothing can be compared with the one at the end."""
    fabric.later = copy.deepcopy(fabric)
    for host in fabric.nodes[:2]:
        fabric.answers[host, "ibnetdiscover"] = _spoiled(fabric.tree.text(), source)
    return Found(UNKNOWN, ("incomplete", "incomplete_output", "tool_failed", "timeout"), fabric.nodes[:2])


IB, IB2 = Kind(INFINIBAND), Kind(INFINIBAND, rails=2)
FAULTS: list[tuple[str, Kind, Plant]] = [
    ("a node's cable is missing", Kind(), missing),
    ("two cables of one node are exchanged", Kind(rails=2), swapped_rails),
    ("cables of two nodes are exchanged", Kind(rails=4, groups=2), swapped_nodes),
    ("a port is on the leaf of another rail", Kind(rails=2), wrong_rail),
    ("a port is on a leaf of other nodes", Kind(rails=4, groups=2), other_group),
    ("uplinks of a leaf are missing", Kind(INFINIBAND, leaves=4), no_uplink),
    ("two uplinks are exchanged", Kind(INFINIBAND, leaves=5), swapped_uplinks),
    ("the link of a port trained down", Kind(), slow_port),
    ("an uplink trained down", Kind(INFINIBAND, leaves=2), slow_uplink),
    ("one end of a link trained down", IB, slow_end),
    ("a module has lost lanes, and its link trained down", Kind(), trained_down),
    ("all links of a node trained down", Kind(), all_ports_of_node_slow),
    ("errors were counted at a port", IB, errors),
    ("errors are being counted at a port", IB, rising),
    ("a module is too hot", Kind(), hot),
    ("the bias current of a lane is beyond its limits", Kind(), bias),
    ("a lane gets too little light, or none", Kind(), dim),
    ("a module raises an alarm", Kind(), flag),
    ("a module warns", Kind(), warned),
    ("bit errors behind the correction", IB, bit_errors),
    ("no module of one node can be read", Kind(), unread_modules),
    ("the values of a node's modules are words", Kind(), nonsense_values),
    ("no subnet manager answers", IB, no_manager),
    ("nodes know different subnet managers", IB, two_managers),
    ("the subnet manager that answers is not the master", IB, no_master),
    ("a switch has other firmware", IB, other_firmware),
    ("an adapter of no node of the run", IB2, stranger),
    ("two nodes of a leaf are exchanged against the plan", Kind(), other_than_planned),
    ("a planned cable is missing", Kind(), planned_and_missing),
    ("a cable is plugged in elsewhere than planned", Kind(), planned_elsewhere),
    ("a cable that the plan does not have", Kind(), not_planned),
    ("the plan names a switch that nobody saw", IB, plan_of_another),
    ("what ibnetdiscover prints is no whole fabric", IB, unread_discovery),
    ("what ibqueryerrors prints is not all", IB, unread_counters),
    ("a node that should look lacks ibnetdiscover", IB, without_tools),
    ("two nodes see different fabrics", Kind(INFINIBAND, leaves=2), other_sight),
    ("a port hears no switch, and its siblings do", Kind(ETHERNET, rails=2), silent_port),
    ("a node hears no switch, and others do", Kind(ETHERNET), silent_node),
    ("a port hears two neighbours", Kind(ETHERNET, rails=2), two_neighbours),
    ("a link is gone at the end of the run", IB, during(lost)),
    ("a link is slower at the end of the run", Kind(INFINIBAND, leaves=2), during(slow_uplink)),
    ("errors were counted during the run", IB, during(errors)),
    ("a cable was moved during the run", Kind(INFINIBAND, groups=2), during(moved)),
    ("the subnet manager went during the run", IB, during(no_manager)),
    ("nobody saw the fabric when the run began", IB, not_seen_at_first),
]


# Healthy fabrics --------------------------------------------------------------------------------------------------------------------


def _other_order(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> None:
    """A leaf has its uplinks in another order."""
    leaf = source.choice(fabric.tree.leaves)
    a, b = source.sample(range(1, fabric.tree.uplinks + 1), 2)
    fabric.tree.swap(f"{leaf}:{fabric.tree.per_leaf + a}", f"{leaf}:{fabric.tree.per_leaf + b}")


def _known_stranger(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> None:
    """An adapter that may be there: the inventory names it, it is SHARP's, or its description begins with the name of a node."""
    host = source.choice(fabric.nodes[2:])
    fabric.nodes.remove(host)
    fabric.tree.described[host] = source.choice(("storage-3 HCA-1", "Mellanox Technologies Aggregation Node"))
    fabric.settings["fabric_map_others"] = ["storage-*"]


def _one_leaf(fabric: Fabric, _source: random.Random, _folder: pathlib.Path) -> None:
    """All ports of a node are at one leaf, as below the switches of racks."""
    tree = fabric.tree
    for place, host in enumerate(tree.hosts):
        leaf = tree.leaves[place // tree.per_leaf * tree.rails]
        for rail in range(1, tree.rails + 1):
            tree.cables[f"{host}:{rail}"][1] = (leaf, 100 + place % tree.per_leaf * tree.rails + rail)
    left = {leaf for place, leaf in enumerate(tree.leaves) if place % tree.rails}
    tree.cables = {name: cable for name, cable in tree.cables.items() if cable[0][0] not in left}
    tree.leaves = [leaf for leaf in tree.leaves if leaf not in left]


def _low_light_off(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> None:
    """Modules in ports without a cable get no light."""
    rail = source.randint(1, fabric.tree.rails)
    for host in fabric.tree.hosts:
        del fabric.tree.cables[f"{host}:{rail}"]
        fabric.modules[host, rail].rx_dbm = [-math.inf] * 4


def _whole_run(fabric: Fabric, _source: random.Random, _folder: pathlib.Path) -> None:
    fabric.later = copy.deepcopy(fabric)


def _mixed_rates(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> None:
    """All uplinks are twice as fast as the ports of nodes, as between newer switches."""
    width = fabric.tree.full.partition("x")[0]
    fabric.tree.full = f"{width}xHDR"
    fabric.tree.rates.update({name: f"{width}xNDR" for name in fabric.tree.cables if name.startswith("leaf-")})


def _no_firmware(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> None:
    for switch in source.sample(list(fabric.firmware), len(fabric.firmware) // 2):
        del fabric.firmware[switch]


def _fewer_tools(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> None:
    fabric.tools -= {source.choice(("iblinkinfo", "ibqueryerrors", "sminfo", "vendstat")), "mlxlink" if source.random() < 0.5 else ""}


def _nothing_hears(fabric: Fabric, source: random.Random, _folder: pathlib.Path) -> None:
    """No node hears a switch: LLDP is off, or the tool is on no node."""
    if source.random() < 0.5:
        fabric.tools.discard("lldpctl")
    else:
        fabric.unheard |= {(host, rail) for host in fabric.tree.hosts for rail in range(1, fabric.tree.rails + 1)}


Change = t.Callable[[Fabric, random.Random, pathlib.Path], None]
HEALTHY_KINDS: list[tuple[str, Kind, Change]] = [
    ("a fabric", Kind(), lambda _fabric, _source, _folder: None),
    ("a fabric as planned", Kind(), planned),
    ("uplinks in another order", Kind(INFINIBAND, leaves=2), _other_order),
    ("an adapter that may be there", IB2, _known_stranger),
    ("all ports of a node at one leaf", Kind(leaves=1), _one_leaf),
    ("ports without cables on all nodes", Kind(INFINIBAND, rails=4), _low_light_off),
    ("two looks that see the same", IB, _whole_run),
    ("faster uplinks", Kind(INFINIBAND, leaves=2), _mixed_rates),
    ("switches that do not tell their firmware", IB, _no_firmware),
    ("tools that are on no node", IB, _fewer_tools),
    ("no LLDP anywhere", Kind(ETHERNET), _nothing_hears),
]


def accepted(folder: pathlib.Path, seed: int) -> tuple[int, list[str], list[str]]:
    """Return how many faults were planted, those that were not found as they should be, and what was refused though it is healthy."""
    accepts: list[str] = []
    rejects: list[str] = []
    written: Written = {}
    folder.mkdir(parents=True)
    trials = [(what, kind, plant, number) for what, kind, plant in FAULTS for number in range(TIMES)]
    for what, kind, plant, number in trials:
        source = random.Random(f"{seed} {what} {number}")
        fabric = made(source, kind)
        found = plant(fabric, source, folder)
        judgement = fabric.judged(folder, written)
        bad = [verdict for verdict in judgement.verdicts if verdict.verdict not in ("PASS", "SKIPPED")]
        words = "; ".join(f"{v.subject.id} {v.check} {v.verdict} {v.reason_code}" for v in bad[:4]) or "nothing"
        trial = f"cabling: {what} (seed {seed}, trial {number}): "
        if not any(
            v.verdict in (FAIL, found.verdict) and v.reason_code in found.codes and _is_at(v.subject.id, found.at) for v in bad
        ) or judgement.accepted != (found.verdict == WARN):  # fmt: skip
            accepts.append(f"{trial}found {words}")
        rejects += [
            f"{trial}{v.subject.id} is named: {v.verdict} {v.reason_code}: {v.reason}" for v in bad if not _is_at(v.subject.id, found.at)
        ]
    for number in range(HEALTHY):
        what, kind, change = HEALTHY_KINDS[number % len(HEALTHY_KINDS)]
        source = random.Random(f"{seed} {what} {number}")
        fabric = made(source, kind)
        change(fabric, source, folder)
        judgement = fabric.judged(folder, written)
        bad = [verdict for verdict in judgement.verdicts if verdict.verdict not in ("PASS", "SKIPPED")]
        if bad or not judgement.accepted:
            words = "; ".join(f"{v.subject.id} {v.check} {v.verdict}: {v.reason}" for v in bad[:2])
            rejects.append(f"cabling: healthy: {what} (seed {seed}, trial {number}): {words or 'not accepted'}")
    return len(trials), accepts, rejects


def _is_at(subject: str, at: t.Collection[str]) -> bool:
    return subject.partition("/")[0] in at
