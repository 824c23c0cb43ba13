# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The addresses of this machine, and what its network ports can do, by the kernel's own word.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import ipaddress
import socket
import struct
import typing as t

_SIOCGIFCONF = 0x8912
_ROOM, _ENTRY = 128, 40  # entries we have room for, bytes of one (struct ifreq on 64 bits)
# Documentation networks: a connected datagram socket sends nothing, it only asks for the route.
_ANYWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


# ethtool(8) through its ioctl (linux/ethtool.h): the settings of a link, and in words of 32 bits the modes that the port supports.
_SIOCETHTOOL, _GLINKSETTINGS, _SETTINGS, _WORDS_AT = 0x8946, 0x4C, 48, 15
# The kind of the module in a port, and how many bytes of its memory can be read: command, type, length, 8 reserved words.
_GMODULEINFO, _MODULE_INFO_BYTES = 0x42, 4 * 11
# Bits of ETHTOOL_LINK_MODE_* from 10 Gb/s on, by Gb/s.
_MODES: t.Dict[int, t.Tuple[t.Tuple[int, int], ...]] = {
    10: ((12, 12), (18, 20), (42, 46)),
    25: ((31, 33),),
    40: ((23, 26),),
    50: ((34, 35), (40, 40), (52, 56)),
    56: ((27, 30),),
    100: ((36, 39), (57, 61), (75, 79)),
    200: ((62, 66), (80, 84), (103, 108)),
    400: ((69, 73), (85, 89), (109, 114)),
    800: ((93, 98), (115, 120)),
}


def most_gbps(netdev: str) -> int | None:
    """Return the rate in Gb/s of the fastest mode that a port supports; None if its driver does not report it."""
    words = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _unused in range(2):  # how many words there are, and then the words
            room = ctypes.create_string_buffer(_SETTINGS + 3 * 4 * words)
            struct.pack_into("=I", room, 0, _GLINKSETTINGS)
            struct.pack_into("=b", room, _WORDS_AT, words)
            try:
                fcntl.ioctl(sock.fileno(), _SIOCETHTOOL, struct.pack("16sP", netdev.encode()[:15], ctypes.addressof(room)))
            except OSError:
                return None
            words = words or -struct.unpack_from("=b", room, _WORDS_AT)[0]
            if words <= 0:
                return None
    masks = struct.unpack_from(f"={words}I", room, _SETTINGS)
    return fastest(sum(word << 32 * place for place, word in enumerate(masks)))


def has_module(netdev: str) -> bool | None:
    """Return True if the driver of a port can read the memory of a cable or module in it (ETHTOOL_GMODULEINFO, struct ethtool_modinfo);
    None if it cannot: there is none, or the driver does not tell."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        room = ctypes.create_string_buffer(_MODULE_INFO_BYTES)
        struct.pack_into("=I", room, 0, _GMODULEINFO)
        try:
            fcntl.ioctl(sock.fileno(), _SIOCETHTOOL, struct.pack("16sP", netdev.encode()[:15], ctypes.addressof(room)))
        except OSError:
            return None
    kind, length = struct.unpack_from("=II", room, 4)
    return True if kind and length else None


def fastest(modes: int) -> int | None:
    """Return the rate in Gb/s of the fastest of the modes that a port supports; `modes` has one bit for each. None if there is none."""
    rates = [rate for rate, spans in _MODES.items() for first, last in spans if modes >> first & (1 << last - first + 1) - 1]
    return max(rates, default=None)


def addresses() -> list[str]:
    """Return every IPv4 and global IPv6 address of an interface, those of the default routes first, without the machine's inner
    networks."""
    candidates = [*_default(), *_ipv4(), *_ipv6()]
    outer = ((text, ipaddress.ip_address(text)) for text in dict.fromkeys(candidates))
    return [text for text, ip in outer if not ip.is_loopback and not ip.is_link_local]


def towards(host: str) -> str:
    """Return the name of the interface by which packets to a host leave this machine; empty if there is none or its name is not known."""
    with contextlib.suppress(OSError):
        family, kind, protocol, _name, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as sock:
            sock.connect(address)
            own = str(sock.getsockname()[0]).partition("%")[0]
        return next((name for name, text in [*_named_ipv4(), *_named_ipv6()] if text == own), "")
    return ""


def _default() -> list[str]:
    sources = []
    for family, somewhere in _ANYWHERE:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect((somewhere, 9))
            sources.append(str(sock.getsockname()[0]).partition("%")[0])
    return sources


def _ipv4() -> list[str]:
    return [address for _name, address in _named_ipv4()]


def _named_ipv4() -> list[tuple[str, str]]:
    """Return names and addresses of interfaces (netdevice(7))."""
    room = array.array("B", bytes(_ROOM * _ENTRY))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("iL", len(room), room.buffer_info()[0])
        try:
            used = struct.unpack("iL", fcntl.ioctl(sock.fileno(), _SIOCGIFCONF, request))[0]
        except OSError:
            return []
    entries = room.tobytes()[:used]
    each = [entries[at : at + _ENTRY] for at in range(0, used, _ENTRY)]
    return [(entry[:16].partition(b"\0")[0].decode(errors="replace"), socket.inet_ntoa(entry[20:24])) for entry in each]


def _ipv6() -> list[str]:
    return [address for _name, address in _named_ipv6()]


def _named_ipv6() -> list[tuple[str, str]]:
    """Return names and global addresses of interfaces by /proc/net/if_inet6: address, index, prefix, scope (0 is global), flags, name."""
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as source:
            rows = [line.split() for line in source]
    except OSError:
        return []
    return [(row[5], str(ipaddress.IPv6Address(bytes.fromhex(row[0])))) for row in rows if row[3] == "00"]
