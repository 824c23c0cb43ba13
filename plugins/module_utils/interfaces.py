# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The addresses of this machine, by the kernel's own word.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import ipaddress
import socket
import struct

_SIOCGIFCONF = 0x8912
_ROOM, _ENTRY = 128, 40  # entries we have room for, bytes of one (struct ifreq on 64 bits)
# Documentation networks: a connected datagram socket sends nothing, it only asks for the route.
_ANYWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def addresses() -> list[str]:
    """Every IPv4 and global IPv6 address of an interface, those that the default routes start from first; none of the machine's own
    inner networks."""
    found = [*_default(), *_ipv4(), *_ipv6()]
    return [one for one in dict.fromkeys(found) if not (ip := ipaddress.ip_address(one)).is_loopback and not ip.is_link_local]


def _default() -> list[str]:
    found = []
    for family, somewhere in _ANYWHERE:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asked:
            asked.connect((somewhere, 9))
            found.append(str(asked.getsockname()[0]).partition("%")[0])
    return found


def _ipv4() -> list[str]:
    """netdevice(7)."""
    room = array.array("B", bytes(_ROOM * _ENTRY))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        request = struct.pack("iL", len(room), room.buffer_info()[0])
        try:
            used = struct.unpack("iL", fcntl.ioctl(asked.fileno(), _SIOCGIFCONF, request))[0]
        except OSError:
            return []
    entries = room.tobytes()[:used]
    return [socket.inet_ntoa(entries[at + 20 : at + 24]) for at in range(0, used, _ENTRY)]


def _ipv6() -> list[str]:
    """/proc/net/if_inet6: address, index, prefix, scope (0 is global), flags, interface."""
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as source:
            rows = [line.split() for line in source]
    except OSError:
        return []
    return [str(ipaddress.IPv6Address(bytes.fromhex(row[0]))) for row in rows if row[3] == "00"]
