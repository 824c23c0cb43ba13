# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the RDMA devices of a node and the state of their ports from sysfs alone.

Every kind of device lacks some of the files: what is not there is None, and no reason to fail.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import fcntl
import fnmatch
import os
import re
import socket
import struct
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import nic_models
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import lldp
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import gid
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import interfaces
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

Port = t.Dict[str, t.Any]
CLASS = "/sys/class/infiniband"
# {PCI vendor: the beginnings of the PCI classes of its accelerators}.
ACCELERATORS = dict(kind.pci for kind in registry.KINDS.values() if kind.pci)
MODULES = (
    "mlx5_ib", "mlx5_core", "rdma_rxe", "ib_uverbs", "ib_umad", "rdma_ucm",
    *(module for kind in registry.KINDS.values() for module in kind.peer_memory), "irdma", "bnxt_re",
)  # fmt: skip
_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B
# PCI Express capability, its device control register and the bit for relaxed ordering; extended capability of ACS.
_PCI_EXPRESS, _DEVICE_CONTROL, _RELAXED = 0x10, 8, 0x10
_ACS, _ACS_CONTROL = 0x000D, 6
LLDPCTL, LLDP_S = "lldpctl", 5.0
_NO_NEIGHBOUR = {"switch": None, "switch_port": None}
# What tells a model of an adapter by the PCI bus.
_PCI_ID = ("vendor", "device", "subsystem_vendor", "subsystem_device")
# One counter in as many places as drivers put it.
COUNTERS = ("counters", "hw_counters")


def ports_of(devices: list[dict[str, t.Any]], params: dict[str, t.Any]) -> list[Port]:
    """The ports that are rails, in their order, each with the GID that `params` (options of the module) choose."""
    ports = [p for device in devices for p in device["ports"] if params["port"] in (None, p["port"])]
    for port in ports:
        port.update(_chosen(port, params))
    return ports


def add_neighbours(node: Node, ports: list[Port]) -> None:
    """Add to each port the `switch` and its `switch_port`, None if they are not known: lldpd is not installed, hears nothing, or is not to
    be asked from a container. InfiniBand has no LLDP."""
    result = node.run([LLDPCTL, "-f", "keyvalue"], timeout=LLDP_S) if node.which(LLDPCTL) else None
    heard = lldp.neighbours(result.out) if result and result.ok else {}
    for port in ports:
        neighbour = heard.get(port["netdev"] or "")
        port.update({"switch": neighbour.switch or None, "switch_port": neighbour.port or None} if neighbour else _NO_NEIGHBOUR)


# Devices -------------------------------------------------------------------------------------------------------------


def names(node: Node) -> list[str]:
    """All RDMA devices in the order of their names, numbers as numbers: this order numbers the rails."""
    try:
        entries = os.listdir(node.path(CLASS))
    except OSError:
        return []
    return in_order(entries)


def in_order(devices: t.Iterable[str]) -> list[str]:
    """Names of devices as they number the rails."""
    return sorted(devices, key=lambda name: [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", name)])


def read_devices(node: Node, patterns: t.Sequence[str] = ()) -> list[dict[str, t.Any]]:
    """The devices whose names match, each with its `ports`."""
    chosen = [n for n in names(node) if not patterns or any(fnmatch.fnmatchcase(n, p) for p in patterns)]
    return [_device(node, name) for name in chosen]


def _device(node: Node, name: str) -> dict[str, t.Any]:
    path = f"{CLASS}/{name}"
    real = os.path.realpath(node.path(path + "/device"))
    pci = os.path.basename(real) if re.match(r"^[0-9a-f]{4,8}:", os.path.basename(real)) else None
    hardware = _pci(node, path + "/device", real) if pci else {}
    try:
        numbers = sorted(int(n) for n in os.listdir(node.path(f"{path}/ports")) if n.isdigit())
    except OSError:
        numbers = []
    driver = _link(node, path + "/device/driver") or ("rdma_rxe" if node.read(path + "/parent") else None)
    return {
        "device": name,
        "driver": driver,
        "firmware": node.read(path + "/fw_ver") or None,
        "board": node.read(path + "/board_id") or None,
        "type": node.read(path + "/hca_type") or None,
        "description": node.read(path + "/node_desc") or None,
        "guid": node.read(path + "/node_guid") or None,
        "pci": pci,
        "pci_path": real if pci else None,
        "numa_node": _number(node.read(path + "/device/numa_node")),
        **{k: hardware.get(k) for k in ("pci_id", "part_number", "serial_number", "pcie", "relaxed_ordering", "acs")},
        "ports": [_port(node, path, name, number) for number in numbers],
    }


def _port(node: Node, path: str, device: str, number: int) -> Port:
    folder = f"{path}/ports/{number}"
    layer = node.read(folder + "/link_layer") or "unknown"
    gids = gid.table(node, folder, layer)
    netdev = _netdev(node, path, number, gids)
    rate = re.match(r"([\d.]+)\s*Gb/sec\s*(?:\((\d+)X\s*(\w+)\))?", node.read(folder + "/rate") or "")
    address, prefix = _interface(netdev) if netdev and node.root == "/" else (None, None)
    own = netdev if netdev and node.root == "/" and layer == "Ethernet" else None  # ioctls ask this machine's own kernel
    most_gbps = interfaces.most_gbps(own) if own else None
    return {
        "device": device,
        "port": number,
        "state": _word(node.read(folder + "/state")),
        "physical": _word(node.read(folder + "/phys_state")),
        "link_layer": layer,
        "rate_gbps": float(rate.group(1)) if rate else None,
        "most_gbps": most_gbps,
        # Whether a cable or module is plugged in; None if the driver does not say it.
        "module": interfaces.has_module(own) if own else None,
        "width": int(rate.group(2)) if rate and rate.group(2) else None,
        "speed": rate.group(3) if rate else None,
        "lid": node.read(folder + "/lid") or None,
        "netdev": netdev,
        "netdev_up": node.read(f"/sys/class/net/{netdev}/operstate") == "up" if netdev else None,
        "mtu": _number(node.read(f"/sys/class/net/{netdev}/mtu")) if netdev else None,
        "address": address,
        "prefix": prefix,
        "gids": gids,
        "counters": counters(node, device, number),
    }


def _netdev(node: Node, path: str, number: int, gids: list[gid.Gid]) -> str | None:
    """The network device of a port: as its GIDs name it, as its driver does, or the one of its PCI function."""
    for g in gids:
        if g["netdev"]:
            return str(g["netdev"])
    parent = node.read(path + "/parent")
    if parent:
        return parent
    try:
        netdevs = sorted(os.listdir(node.path(path + "/device/net")))
    except OSError:
        return None
    same = [n for n in netdevs if (_number(node.read(f"/sys/class/net/{n}/dev_port")) or 0) + 1 == number]
    return next(iter(same or netdevs), None)


def _interface(netdev: str) -> tuple[str | None, int | None]:
    """IPv4 address and length of the prefix of a network device (netdevice(7))."""
    addresses = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query_socket:
        for request in (_SIOCGIFADDR, _SIOCGIFNETMASK):
            try:
                answer = fcntl.ioctl(query_socket.fileno(), request, struct.pack("256s", netdev.encode()[:15]))
            except OSError:
                return None, None
            addresses.append(answer[20:24])
    return socket.inet_ntoa(addresses[0]), bin(int.from_bytes(addresses[1], "big")).count("1")


def counters(node: Node, device: str, port: int) -> dict[str, int]:
    """All counters of a port that are numbers; which there are depends on the driver."""
    values = {}
    for folder in COUNTERS:
        path = f"{CLASS}/{device}/ports/{port}/{folder}"
        try:
            listed = os.listdir(node.path(path))
        except OSError:
            continue
        for name in listed:
            value = _number(node.read(f"{path}/{name}"))
            if value is not None and name != "lifespan":
                values[name] = value
    return values


def port_state(node: Node, device: str, port: int) -> str | None:
    """`ACTIVE`, `DOWN` …, None where there is no such device or port."""
    return _word(node.read(f"{CLASS}/{device}/ports/{port}/state"))


def _word(text: str | None) -> str | None:
    """`4: ACTIVE` -> `ACTIVE`."""
    return text.partition(":")[2].strip() or text if text else None


def _number(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None


def _link(node: Node, path: str) -> str | None:
    try:
        return os.path.basename(os.readlink(node.path(path)))
    except OSError:
        return None


# PCI -----------------------------------------------------------------------------------------------------------------


def _pci(node: Node, path: str, real: str) -> dict[str, t.Any]:
    config = _bytes(real + "/config")
    product = _bytes(real + "/vpd")
    pcie = {
        side: {"speed": _gigatransfers(node.read(f"{path}/{side}_link_speed")), "width": _number(node.read(f"{path}/{side}_link_width"))}
        for side in ("current", "max")
    }
    slot = os.path.dirname(real)  # the port of the bridge or switch that the device is plugged into
    pcie["slot"] = {
        "speed": _gigatransfers(_bytes(slot + "/max_link_speed").decode("ascii", "replace")),
        "width": _number(_bytes(slot + "/max_link_width").decode("ascii", "replace")),
    }
    control = _capability(config, _PCI_EXPRESS)
    relaxed = None
    if control and len(config) >= control + _DEVICE_CONTROL + 2:
        relaxed = bool(int.from_bytes(config[control + _DEVICE_CONTROL : control + _DEVICE_CONTROL + 2], "little") & _RELAXED)
    return {
        "pci_id": ":".join((node.read(f"{path}/{name}") or "").replace("0x", "") for name in _PCI_ID).strip(":") or None,
        "part_number": _keyword(product, b"PN"),
        "serial_number": _keyword(product, b"SN"),
        "pcie": pcie,
        "relaxed_ordering": relaxed,
        "acs": _acs(real),
    }


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as source:
            return source.read(4096)
    except OSError:
        return b""


def _gigatransfers(text: str | None) -> float | None:
    number = re.match(r"[\d.]+", text or "")
    return float(number.group(0)) if number else None


def _capability(config: bytes, capability: int) -> int:
    """Offset of a capability in the configuration space, 0 where it is not there or may not be read (needs root)."""
    offset = config[0x34] if len(config) > 64 else 0
    for _step in range(48):
        if offset < 64 or offset + 1 >= len(config):
            return 0
        if config[offset] == capability:
            return offset
        offset = config[offset + 1]
    return 0


def _acs(real: str) -> dict[str, int] | None:
    """ACS control word of each bridge above a device that has it; None where configuration spaces may not be read."""
    control_words: dict[str, int] = {}
    readable = False
    bridge = os.path.dirname(real)
    while re.match(r"^[0-9a-f]{4,8}:", os.path.basename(bridge)):
        config = _bytes(bridge + "/config")
        readable = readable or len(config) > 256
        offset = 256
        for _step in range(96):
            header = int.from_bytes(config[offset : offset + 4], "little")
            if header and header & 0xFFFF == _ACS:
                control_words[os.path.basename(bridge)] = int.from_bytes(
                    config[offset + _ACS_CONTROL : offset + _ACS_CONTROL + 2], "little"
                )
            offset = header >> 20
            if offset < 256:
                break
        bridge = os.path.dirname(bridge)
    return control_words if readable else None


def _keyword(product: bytes, word: bytes) -> str | None:
    """A field of the vital product data (PCI 3.0, appendix I): keyword, length, text."""
    at = product.find(word)
    if at < 0 or at + 3 > len(product):
        return None
    text = product[at + 3 : at + 3 + product[at + 2]].decode("ascii", "replace").strip("\0 ")
    return text if text.isprintable() and text else None


def gpu_affinity(node: Node, devices: list[dict[str, t.Any]]) -> dict[str, list[str]]:
    """The closest devices of each GPU (by PCI address): those that share the most bridges with it."""
    nics = {d["device"]: d["pci_path"] for d in devices if d["pci_path"]}
    return {slot: _closest(path, nics) for slot, path in accelerators(node, ACCELERATORS).items()}


def accelerators(node: Node, kinds: t.Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return {PCI address: path in sysfs} of the accelerators of some kinds, which are {PCI vendor: beginnings of PCI classes}."""
    folder = node.path("/sys/bus/pci/devices")
    try:
        slots = sorted(os.listdir(folder))
    except OSError:
        return {}
    path_of = {}
    for slot in slots:
        classes = kinds.get(node.read(f"/sys/bus/pci/devices/{slot}/vendor") or "", ())
        if (node.read(f"/sys/bus/pci/devices/{slot}/class") or "").startswith(classes):
            path_of[slot] = os.path.realpath(f"{folder}/{slot}")
    return path_of


def _closest(path: str, paths: t.Mapping[str, str]) -> list[str]:
    """Return the names of those of {name: path in sysfs} that share the most bridges with a device, in order."""
    shared = {name: len(os.path.commonpath([path, other_path])) for name, other_path in paths.items()}
    return sorted(name for name, depth in shared.items() if depth == max(shared.values()))


def nearest_accelerators(
    node: Node, devices: list[dict[str, t.Any]], kinds: t.Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    """Return {RDMA device: PCI address of its accelerator}: the one that shares the most bridges with it, of several equally near the one
    that the fewest devices before it have. Devices without a place on the bus, and all without accelerators, have none."""
    path_of = accelerators(node, kinds)
    nearest: dict[str, str] = {}
    for device in devices:
        near = _closest(device["pci_path"], path_of) if path_of and device["pci_path"] else []
        if near:
            nearest[device["device"]] = min(near, key=list(nearest.values()).count)
    return nearest


# What is wrong -------------------------------------------------------------------------------------------------------


def _chosen(port: Port, params: dict[str, t.Any]) -> dict[str, t.Any]:
    """`gid`, what else would do in `gid_others` (a partner may be in its network), and `gid_problem` where none will."""
    if port["link_layer"] == "InfiniBand":
        return {"gid": None, "gid_others": [], "gid_problem": ""}
    gids, problem = gid.choose(
        port["gids"], params["network"], params["roce_version"], params["address_family"], params["link_local"], params["gid_index"]
    )
    return {"gid": gids[0] if gids else None, "gid_others": gids[1:], "gid_problem": problem}


def findings(
    devices: list[dict[str, t.Any]], ports: list[Port], rails: int | None = None, gbps: t.Sequence[float] = ()
) -> list[dict[str, str]]:
    """[{"code", "part", "text"}] of what is wrong on this node alone. `rails` and `gbps` are what it should have, where that is known:
    so many ports, and the rate of all or of each."""
    problems: list[dict[str, str]] = []
    expected_gbps = list(gbps) * len(ports) if len(gbps) == 1 else list(gbps)

    def find(code: str, port: Port, text: str) -> None:
        part = f"nic/{port['device']}/{port['port']}"
        problems.append({"code": code, "part": part, "text": f"{port['device']} port {port['port']}: {text}"})

    active = [p for p in ports if p["state"] == "ACTIVE"]
    for port in ports:
        if port["state"] != "ACTIVE":
            find("port_down", port, f"the port is {port['state'] or 'without a state'} ({port['physical'] or 'physical state unknown'})")
        elif port["link_layer"] != "InfiniBand" and port["gid"] is None:
            find("no_gid", port, port["gid_problem"])
    counts = {"rdma_ports_rails": rails, "rdma_ports_gbps": len(gbps) if len(gbps) > 1 else None}
    for variable, count in counts.items():
        if count is not None and count != len(ports):
            port_names = ", ".join(f"{p['device']} port {p['port']}" for p in ports)
            problems.append({"code": "rail_order", "part": "", "text": f"{len(ports)} rails ({port_names}), {variable} says {count}"})
    for port, minimum in zip(ports, expected_gbps):
        if port["state"] == "ACTIVE" and not 0 < minimum <= (port["rate_gbps"] or 0):
            current = "a rate that cannot be read" if port["rate_gbps"] is None else f"{port['rate_gbps']:g} Gb/s"
            find("link_slow", port, f"{current}, rdma_ports_gbps says {minimum:g}")
    # Ports of one model are siblings, whatever they negotiated; a slower NIC of another model beside them is meant to be so.
    models = nic_models.models(devices)
    for port in active:
        siblings = [p for p in active if models.get(p["device"]) == models.get(port["device"])]
        for name, unit in (("rate_gbps", "Gb/s"), ("width", "lanes")):
            best = max((p[name] for p in siblings if p[name]), default=None)
            if best and port[name] and port[name] < best and not expected_gbps:
                find("link_slow", port, f"{port[name]:g} {unit}, its siblings have {best:g}")
        if port["rate_gbps"] is None and any(p["rate_gbps"] for p in siblings) and not expected_gbps:
            find("no_answer", port, "it is active and does not say its rate, its siblings do")
        largest = max((p["mtu"] for p in siblings if p["mtu"]), default=0)
        if port["mtu"] and port["mtu"] < largest:
            find("mtu", port, f"the MTU is {port['mtu']}, siblings have {largest}")
    for device in devices:
        pcie = device["pcie"] or {}
        current, highest = pcie.get("current", {}), pcie.get("max", {})
        low = [k for k in ("speed", "width") if current.get(k) and highest.get(k) and current[k] < highest[k]]
        if low and device["ports"]:
            shortfalls = ", ".join(f"{k} {current[k]:g} of {highest[k]:g}" for k in low)
            find("pcie_width", device["ports"][0], f"its PCIe link is not what it can be: {shortfalls}")
    for board in {d["board"] for d in devices if d["board"]}:
        alike = [d for d in devices if d["board"] == board and d["firmware"]]
        versions = sorted({d["firmware"] for d in alike})
        if len(versions) > 1:
            versions_text = ", ".join(f"{d['device']} {d['firmware']}" for d in alike)
            find("firmware", alike[0]["ports"][0], f"devices of board {board} have different firmware: {versions_text}")
    return problems


def warnings(devices: list[dict[str, t.Any]]) -> list[str]:
    """Worth a look, and no finding."""
    other_drivers = sorted(
        {f"{d['device']} ({d['driver'] or 'driver unknown'})" for d in devices if not (d["driver"] or "").startswith("mlx5")}
    )
    return [f"not of the driver mlx5: {', '.join(other_drivers)}"] if other_drivers else []


def netdev_table(ports: list[Port]) -> list[str]:
    """Return the lines that ibdev2netdev prints."""
    return [
        f"{p['device']} port {p['port']} ==> {p['netdev'] or 'no netdev'} ({'Up' if p['state'] == 'ACTIVE' else 'Down'})" for p in ports
    ]


def gid_lines(ports: list[Port]) -> list[str]:
    """The GID table of every port, with the chosen one marked."""
    return [
        f"{p['device']} {p['port']} {g['index']:>3} {g['gid']} {g['address']} {g['type']} {g['netdev'] or '-'}"
        + (" *" if p["gid"] and p["gid"]["index"] == g["index"] else "")
        for p in ports
        for g in p["gids"]
    ]
