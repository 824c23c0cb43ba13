# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host and two leaf switches that hear each other by LLDP: lldpd of the distribution, each in a network namespace of its own."""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
import typing as t

from rigs import common
from rigs.services import Service

PACKAGES = {"lldpd": "lldpd", "lldpcli": "lldpd"}
HOST, LEAVES, HUB = "host", ("leaf-03", "leaf-04"), "hub"
# {interface of the host: the leaf and its port}
CABLES = {"ens1np0": ("leaf-03", "Ethernet7"), "ens2np0.100": ("leaf-03", "Ethernet8"), "ens3np0": ("leaf-04", "swp9")}
# An interface of the host at which both leaves are heard.
SHARED = "bond0"
# A bridge forwards LLDP frames only if it is told to.
_FORWARD_LLDP = 1 << 14


class Lldp:
    """Up as long as the context lasts."""

    def __init__(self) -> None:
        self._services: dict[str, Service] = {}

    def __enter__(self) -> Lldp:
        common.need_root("lldp")
        common.need_packages(PACKAGES)
        # lldpcli belongs to a user of its own, who must reach the sockets.
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="lldp-"))
        self._folder.chmod(0o755)
        try:
            for name in (HOST, *LEAVES, HUB):
                common.run("ip", "netns", "add", _netns(name))
            self._cables()
            for name in (HOST, *LEAVES):
                self._start(name)
            self._names()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        for service in self._services.values():
            service.end()
        for name in common.run("ip", "netns", "list").split():
            if name in map(_netns, (HOST, *LEAVES, HUB)):
                common.run("ip", "netns", "del", name)
        shutil.rmtree(self._folder)

    def until(self, ready: t.Callable[[str], bool]) -> str:
        """Return what `lldpctl -f keyvalue` prints on the host, once `ready` is true of it."""
        return str(self._services[HOST].until("heard", lambda: (text := self._neighbours()) and ready(text) and text))

    def _neighbours(self) -> str:
        return common.run("lldpctl", "-u", self._socket(HOST), "-f", "keyvalue")

    def _cables(self) -> None:
        for interface, port in CABLES.items():
            _cable((HOST, interface), port)
        common.run("ip", "-n", _netns(HUB), "link", "add", "name", HUB, "type", "bridge", "group_fwd_mask", _FORWARD_LLDP)
        _up(HUB, HUB)
        for name, interface in ((HOST, SHARED), *((leaf, "swp1") for leaf in LEAVES)):
            _cable((name, interface), (HUB, name))
            common.run("ip", "-n", _netns(HUB), "link", "set", name, "master", HUB)

    def _start(self, name: str) -> None:
        # In a mount namespace of its own: lldpd confines itself to a folder below /run.
        daemon = f"mount -t tmpfs none /run && mkdir /run/lldpd && exec {shutil.which('lldpd', path='/usr/sbin:/usr/bin')} -d -u $0"
        argv = ["ip", "netns", "exec", _netns(name), "unshare", "-m", "sh", "-c", daemon, self._socket(name)]
        service = self._services[name] = Service(name, argv, self._folder)
        service.start()
        service.until("ready", pathlib.Path(self._socket(name)).exists)

    def _names(self) -> None:
        """Name switches and ports as administrators of a network do. The second leaf sends the Ethernet addresses of its ports."""
        for name in (HOST, *LEAVES):
            self._configure(name, "system", "hostname", name)
            self._configure(name, "system", "description", "A switch\nof two lines")
            self._configure(name, "lldp", "tx-interval", 1)
        self._configure("leaf-03", "lldp", "portidsubtype", "ifname")
        self._configure("leaf-03", "ports", "Ethernet7", "lldp", "portidsubtype", "local", "Ethernet1/7")
        self._configure("leaf-03", "ports", "Ethernet7", "lldp", "portdescription", "rail 1")

    def _configure(self, name: str, *words: object) -> None:
        common.run("lldpcli", "-u", self._socket(name), "configure", *words)

    def _socket(self, name: str) -> str:
        return str(self._folder / f"{name}.socket")


def _netns(name: str) -> str:
    return f"lldp-{os.getpid()}-{name}"


def _cable(*ends: tuple[str, str]) -> None:
    (first, interface), (second, port) = ends
    peer = ("type", "veth", "peer", "name", port, "netns", _netns(second))
    common.run("ip", "link", "add", "name", interface, "netns", _netns(first), *peer)
    for name, link in ends:
        _up(name, link)


def _up(name: str, interface: str) -> None:
    common.run("ip", "-n", _netns(name), "link", "set", interface, "up")
