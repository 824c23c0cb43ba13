# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated RDMA nodes: perftest/perftest.c under the names of all its tools, and trees of sysfs with ports of mlx5.

Simulated by gpufleet.acceptance. A tree holds the files of a ConnectX-7 in RoCE mode as far as they are read.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import pathlib
import shutil
import subprocess

from rigs import common

SOURCE = pathlib.Path(__file__).resolve().parent / "perftest" / "perftest.c"
TOOLS = [f"ib_{op}_{kind}" for op in ("write", "read", "send", "atomic") for kind in ("bw", "lat")]
# Counters that never rise here; which ones there are is what is tested.
COUNTERS = ("counters/symbol_error", "counters/link_downed", "hw_counters/out_of_sequence", "hw_counters/np_cnp_sent")


def tools() -> pathlib.Path:
    """A folder with all tools, compiled once per version of the source."""
    folder = common.CACHE / "perftest" / hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    with common.locked(folder.with_name("lock")):
        if not folder.exists():
            new = folder.with_name("new")
            new.mkdir(exist_ok=True)
            subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", new / TOOLS[0], SOURCE], check=True)
            for name in TOOLS[1:]:
                os.link(new / TOOLS[0], new / name)
            new.rename(folder)
    return folder


def tools_of(root: pathlib.Path) -> pathlib.Path:
    """A folder with the tools of the node whose root this is, among others on one machine and without an environment of its own."""
    folder = root / "opt/simulated/bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name in TOOLS:
        (folder / name).write_text(f'#!/bin/sh\nSIMULATED_ROOT="{root}" exec "{tools() / name}" "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def conf(root: pathlib.Path, *lines: str) -> None:
    """Set the behaviour of the tools on the node whose root this is; lines as perftest.c says."""
    (root / "opt/simulated").mkdir(parents=True, exist_ok=True)
    settings(root / "opt/simulated", *lines)


def sysfs(
    root: pathlib.Path,
    addresses: list[str],
    state: str = "ACTIVE",
    rate: str = "400 Gb/sec (4X NDR)",
    seed: str = "",
    firmware: str = "28.39.1002",
) -> None:
    """One device for each address (rail 0, 1 ...), below `root`/sys."""
    for rail, address in enumerate(addresses):
        port(root, rail, address, state, rate, seed or addresses[0], firmware)


def port(
    root: pathlib.Path, rail: int, address: str, state: str, rate: str, seed: str, firmware: str = "28.39.1002", bridge: str = ""
) -> None:
    """One device with its port 1; `bridge` is what lies before it on the bus, `0000:10:01.0/` for example."""
    device = root / f"sys/class/infiniband/mlx5_{rail}"
    mac = hashlib.sha256(f"{seed} {rail}".encode()).hexdigest()
    guid = ":".join(mac[i : i + 4] for i in (0, 4, 8, 12))
    where = ipaddress.ip_address(address)
    gid = (where if where.version == 6 else ipaddress.IPv6Address(f"::ffff:{address}")).exploded
    local = f"fe80:0000:0000:0000:{guid}"
    gids = [(local, "IB/RoCE v1"), (local, "RoCE v2"), (gid, "IB/RoCE v1"), (gid, "RoCE v2")]
    files = {
        "fw_ver": firmware, "board_id": "MT_0000000838", "hca_type": "MT4129", "node_guid": guid, "node_desc": f"{seed} HCA-{rail}",
        "ports/1/state": {"ACTIVE": "4: ACTIVE", "DOWN": "1: DOWN"}[state],
        "ports/1/phys_state": {"ACTIVE": "5: LinkUp", "DOWN": "3: Disabled"}[state],
        "ports/1/rate": rate, "ports/1/link_layer": "Ethernet", "ports/1/lid": "0x0",
        **{f"ports/1/gids/{i}": g for i, (g, _kind) in enumerate(gids)},
        **{f"ports/1/gid_attrs/types/{i}": kind for i, (_gid, kind) in enumerate(gids)},
        **{f"ports/1/gid_attrs/ndevs/{i}": f"ens{rail}np0" for i in range(len(gids))},
        **{f"ports/1/gids/{i}": ":".join(["0000"] * 8) for i in range(len(gids), 16)},
        **{f"ports/1/{name}": "0" for name in COUNTERS},
    }  # fmt: skip
    for name, text in files.items():
        (device / name).parent.mkdir(parents=True, exist_ok=True)
        (device / name).write_text(text + "\n")
    driver = root / "sys/bus/pci/drivers/mlx5_core"
    driver.mkdir(parents=True, exist_ok=True)
    slot = root / f"sys/devices/pci0000:00/{bridge}0000:{rail:02x}:00.0"
    slot.mkdir(parents=True, exist_ok=True)
    for name, text in {
        "numa_node": str(rail // 4), "current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "16", "max_link_width": "16",
    }.items():  # fmt: skip
        (slot / name).write_text(text + "\n")
    for link, target in ((device / "device", slot), (slot / "driver", driver)):
        if not link.is_symlink():
            link.symlink_to(os.path.relpath(target, link.parent))


def gpu(root: pathlib.Path, slot: str, place: int | None = None) -> None:
    """A GPU at a path of the PCI bus, `0000:1b:00.0` or `pci0000:00/0000:01:00.0/0000:1b:00.0` for example. With a `place` it is one of
    AMD, at this place of the driver's topology."""
    device = root / "sys/devices" / (slot if "/" in slot else f"pci0000:00/{slot}")
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n" if place is None else "0x1002\n")
    (device / "class").write_text("0x030200\n" if place is None else "0x120000\n")
    if place is not None:
        node = root / f"sys/class/kfd/kfd/topology/nodes/{place + 2}"  # behind those of two processors
        node.mkdir(parents=True)
        bus = int(device.name.split(":")[1], 16)
        (node / "properties").write_text(f"simd_count 1216\nvendor_id 4098\nlocation_id {bus << 8}\ndomain 0\n")
    link = root / "sys/bus/pci/devices" / device.name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(device)


def planted(plant: pathlib.Path) -> None:
    """The tools into a host's /opt/simulated."""
    (plant / "bin").mkdir(parents=True, exist_ok=True)
    for name in TOOLS:
        shutil.copy(tools() / name, plant / "bin" / name)


def settings(plant: pathlib.Path, *lines: str) -> None:
    """Set the behaviour of the tools of a host."""
    (plant / "perftest.conf").write_text("".join(f"{line}\n" for line in lines))
