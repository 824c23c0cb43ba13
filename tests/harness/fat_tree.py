# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fat trees with planted faults, as ibnetdiscover prints them and as the nodes of a run have measured them."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import infiniband
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import subnet
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement
from harness import records

End = t.Tuple[str, int]
FULL = "4xHDR"


class FatTree:
    """`hosts`, whose names have `digits`, with `rails` ports each, `per_leaf` of them at each leaf of their rail, and `uplinks` of each
    leaf spread over `spines`.

    `cables` is {name: [end, end]}: the cable of a host's port `gpu-0001:1`, that of an uplink `leaf-1:33`. Change it to plant a fault.
    `rates` are {name: what the cable trained to}, `rates_at` {end: what that end says it trained to}, if its ends differ; all others have
    the rate `full`. `described` are {host: the description of its adapters}.
    """

    def __init__(self, hosts: int, rails: int = 1, per_leaf: int = 4, spines: int = 2, uplinks: int = 4, digits: int = 4) -> None:
        self.hosts = [f"gpu-{number:0{digits}d}" for number in range(1, hosts + 1)]
        self.of_hosts = frozenset(self.hosts)
        self.rails, self.per_leaf, self.uplinks = rails, per_leaf, uplinks
        self.cables: dict[str, list[End]] = {}
        self.full = FULL
        self.rates: dict[str, str] = {}
        self.rates_at: dict[End, str] = {}
        self.described: dict[str, str] = {}
        self.errors: dict[End, dict[str, int]] = {}
        self.leaves: list[str] = []
        for first in range(0, hosts, per_leaf):
            for rail in range(rails):
                leaf = f"leaf-{len(self.leaves) + 1}"
                for slot, host in enumerate(self.hosts[first : first + per_leaf], 1):
                    self.cables[f"{host}:{rail + 1}"] = [(host, rail + 1), (leaf, slot)]
                for up in range(uplinks):
                    port = len(self.leaves) * (uplinks // spines) + up % (uplinks // spines) + 1
                    spine = f"spine-{up // (uplinks // spines) + 1}"
                    self.cables[f"{leaf}:{per_leaf + up + 1}"] = [(leaf, per_leaf + up + 1), (spine, port)]
                self.leaves.append(leaf)
        self.spines = [f"spine-{number}" for number in range(1, spines + 1)]
        self.numbers = {name: number for number, name in enumerate([*self.hosts, *self.leaves, *self.spines], 1)}

    def swap(self, a: str, b: str) -> None:
        """Exchange two cables at their leaf's (of uplinks: their spine's) side."""
        self.cables[a][1], self.cables[b][1] = self.cables[b][1], self.cables[a][1]

    def guid(self, name: str, rail: int = 1) -> str:
        """Return the GUID of a switch, or of the adapter of a host's rail."""
        return f"{0xA0000000 + rail if name in self.of_hosts else 0xFC000000:08x}{self.numbers[name] * 16:08x}"

    def port_guid(self, host: str, rail: int) -> str:
        return f"{int(self.guid(host, rail), 16) + 1:016x}"

    def _end(self, end: End) -> tuple[str, int]:
        """Return the GUID and the port of an end: each port of a host is the only one of its adapter."""
        name, port = end
        return (self.guid(name, port), 1) if name in self.of_hosts else (self.guid(name), port)

    def linked(self) -> dict[End, tuple[End, str]]:
        """Return the far end and the rate of each end of a cable."""
        at: dict[End, tuple[End, str]] = {}
        for name, (a, b) in self.cables.items():
            rate = self.rates.get(name, self.full)
            at[a], at[b] = (b, self.rates_at.get(a, rate)), (a, self.rates_at.get(b, rate))
        return at

    def text(self) -> str:
        """Return what ibnetdiscover prints."""
        at = self.linked()
        by_device: dict[str, list[End]] = {}
        for end in sorted(at):
            by_device.setdefault(self._end(end)[0], []).append(end)
        lines: list[str] = []
        for guid, ends in by_device.items():
            name = ends[0][0]
            host = name in self.of_hosts
            lines += ["vendid=0x2c9", f"devid=0x{'1021' if host else 'd2f2'}", f"sysimgguid=0x{guid}"]
            lines.append(f"caguid=0x{guid}" if host else f"switchguid=0x{guid}({guid})")
            words = f'# "MF0;{name}:MQM9700/U1" enhanced port 0 lid {self.numbers[name]} lmc 0'
            heading = f'Ca\t1 "H-{guid}"\t\t# "{self.described.get(name, f"{name} HCA-{ends[0][1]}")}"'
            lines.append(heading if host else f'Switch\t64 "S-{guid}"\t\t{words}')
            for end in ends:
                far, rate = at[end]
                far_guid, far_port = self._end(far)
                kind, own, theirs = "H" if far[0] in self.of_hosts else "S", "", ""
                if host:
                    own = f"({self.port_guid(*end)})"
                if kind == "H":
                    theirs = f"({self.port_guid(*far)})"
                lines.append(f'[{self._end(end)[1]}]{own}\t"{kind}-{far_guid}"[{far_port}]{theirs}\t\t# "{far[0]}" lid 7 {rate}')
            lines.append("")
        return "\n".join(lines)

    def measured(self, witness: FatTree | None = None) -> list[Measurement]:
        """Return the measurements of a run: the ports of all hosts, and the fabric as the first one sees it, and as the second one sees
        `witness`."""
        plugged = {a for a, _b in self.cables.values()}
        found = []
        for host in self.hosts:
            ports = [
                {
                    "device": f"mlx5_{rail}", "port": 1, "state": "ACTIVE" if (host, rail + 1) in plugged else "DOWN",
                    "physical": "LinkUp" if (host, rail + 1) in plugged else "Polling", "link_layer": "InfiniBand", "rate_gbps": 200.0,
                    "guid": self.port_guid(host, rail + 1), "sm_lid": 1, "heard": [],
                }
                for rail in range(self.rails)
            ]  # fmt: skip
            found.append(self._record(host, "ports", {"ports": ports, "condition": True}))
        for host, tree in zip(self.hosts, [self, witness]):
            if tree is not None:
                found.append(self._record(host, "discovery", {"fabrics": [tree.seen()], "condition": True}))
        return found

    def seen(self) -> dict[str, t.Any]:
        """Return the fabric as the probe has it of ibnetdiscover's text."""
        fabric = infiniband.discovery(self.text())
        assert not fabric.unread, fabric.unread
        errors = infiniband.Errors({self._end(end): counters for end, counters in self.errors.items()}, 1, "")
        return subnet.plain({"device": "mlx5_0", "port": 1}, fabric, {}, errors, None, infiniband.Manager("1", 1, "MASTER"), {})

    def _record(self, host: str, check: str, context: dict[str, t.Any]) -> Measurement:
        subject = {"kind": "node", "id": host, "members": []}
        return records.measurement({"stage": "fabric_map", "check": check, "subject": subject, "target": host, "context": context})
