# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the GID of a port that a test uses: RoCE v2 before anything else, the wanted network, IPv4 before IPv6, then the lowest index.

A GID table is a list of {"index", "gid" (as sysfs writes it), "address" (IPv4 or IPv6), "type" ("RoCE v1", "RoCE v2", "InfiniBand"),
"netdev"} without its empty entries. Indexes differ between hosts: every host chooses for itself.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import ipaddress
import os
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

Gid = t.Dict[str, t.Any]

# Tables have 16 to 1024 entries, the used ones in front; removed addresses leave small gaps.
GAP = 32
_ZERO = re.compile(r"^[0:]*$")
# A prefix that nobody has configured yet, with a GUID behind it: no address of a network.
_LINK_LOCAL = (ipaddress.ip_network("fe80::/10"), ipaddress.ip_network("169.254.0.0/16"))


def table(node: Node, port: str, link_layer: str) -> list[Gid]:
    """The GIDs of a port (its folder in sysfs). An entry whose type cannot be read belongs to another network namespace and is
    left out."""
    entries, empty = [], 0
    for index in range(_length(node, port)):
        gid = node.read(f"{port}/gids/{index}")
        if not gid or _ZERO.match(gid):
            empty += 1
            if empty > GAP:
                break
            continue
        empty = 0
        kind = "InfiniBand" if link_layer == "InfiniBand" else _roce(node.read(f"{port}/gid_attrs/types/{index}"))
        parsed = address(gid)
        if kind and parsed:
            netdev = node.read(f"{port}/gid_attrs/ndevs/{index}")
            entries.append({"index": index, "gid": gid, "address": parsed, "type": kind, "netdev": netdev or None})
    return entries


def _length(node: Node, port: str) -> int:
    try:
        return len(os.listdir(node.path(f"{port}/gids")))
    except OSError:
        return 0


def _roce(kind: str | None) -> str | None:
    if kind is None:
        return None
    return "RoCE v2" if "v2" in kind.lower() else "RoCE v1"


def address(gid: str) -> str | None:
    """Return the address in a GID, IPv4 if it is a mapped one; None if there is none."""
    try:
        ip = ipaddress.IPv6Address(gid)
    except ValueError:
        return None
    return str(ip.ipv4_mapped or ip)


def link_local(text: str) -> bool:
    """fe80::/10 and 169.254.0.0/16."""
    ip = ipaddress.ip_address(text)
    return any(ip.version == network.version and ip in network for network in _LINK_LOCAL)


def networks(words: t.Iterable[str]) -> list[t.Any]:
    """Return CIDRs as networks. Raise ValueError, which names the word, for a word that is not a CIDR."""
    return [ipaddress.ip_network(word, strict=False) for word in words]


def choose(
    gids: list[Gid],
    allowed_networks: t.Sequence[str] = (),
    version: int = 2,
    family: str = "",
    allow_link_local: bool = False,
    index: int | None = None,
) -> tuple[list[Gid], str]:
    """Return the GIDs that may be used, the best one first; or an empty list and the reason, with the GIDs that there are.

    `allowed_networks` are CIDRs (none: any network), `version` the RoCE version, `family` `ipv4`, `ipv6` or both. An `index` given by the
    user is taken as it is, if it holds a GID. On InfiniBand no GID has to be chosen.
    """
    listed = "; ".join(f"{g['index']}: {g['address']} {g['type']} {g['netdev'] or ''}".strip() for g in gids) or "no GID at all"
    if index is not None:
        chosen = [g for g in gids if g["index"] == index]
        return chosen, "" if chosen else f"GID index {index} holds no GID; there are: {listed}"
    allowed = networks(allowed_networks)

    def fits(g: Gid) -> bool:
        where = ipaddress.ip_address(g["address"])
        return (
            g["type"] == f"RoCE v{version}"
            and bool(g["netdev"])
            and (not family or where.version == int(family[-1]))
            and (allow_link_local or not link_local(g["address"]))
            and (not allowed or any(where.version == n.version and where in n for n in allowed))
        )

    candidates = sorted((g for g in gids if fits(g)), key=lambda g: (link_local(g["address"]), ":" in g["address"], g["index"]))
    if candidates:
        return candidates, ""
    rules = [f"RoCE v{version}", family or "IPv4 or IPv6"]
    rules += [f"in {' or '.join(allowed_networks)}"] if allowed_networks else []
    rules += [] if allow_link_local else ["not link-local"]
    return [], f"no GID is {', '.join(rules)}; there are: {listed}"


def of_one_network(local_gids: list[Gid], remote_gids: list[Gid], prefix: int | None) -> tuple[Gid, Gid]:
    """Return the best candidates of two ports that are in one network (`prefix` bits of an IPv4 address, 64 of an IPv6 one); if no two are,
    the best of each."""
    for local_gid in local_gids:
        bits = 64 if ":" in local_gid["address"] else prefix or 24
        network = ipaddress.ip_network(f"{local_gid['address']}/{bits}", strict=False)
        for remote_gid in remote_gids:
            where = ipaddress.ip_address(remote_gid["address"])
            if where.version == network.version and where in network:
                return local_gid, remote_gid
    return local_gids[0], remote_gids[0]
