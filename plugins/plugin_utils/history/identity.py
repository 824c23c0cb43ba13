# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The identity of a subject, whatever its name: a machine by its machine-id, a GPU by its UUID, a port by the GUID of its device.

So a renamed node, or a GPU that moved to another node, keeps its history. A subject without an identity is known by its name or that of
its node, and so are machines that report the same machine-id.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import keys
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Context, Measurement, PlainData, Verdict

NAME = "name:"
_GPU = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F-]{8,}|[0-9a-fA-F]{8}-[0-9a-fA-F-]{8,}")
_GUID = re.compile(r"[0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){3}|0x[0-9a-fA-F]{16}")


class Who(t.NamedTuple):
    """A subject in a run: `id` is its name there, `nodes` are the nodes it is on (a node is on itself). Simulated and real ones differ."""

    kind: str
    id: str
    simulated: bool

    @property
    def nodes(self) -> list[str]:
        if self.kind == "pair":
            return sorted({keys.node_of(end) for end in keys.ends_of(self.id)})
        return [keys.node_of(self.id)]


def who(record: Measurement | Verdict) -> Who:
    """Return the subject of a measurement or a verdict."""
    return Who(record.subject.kind, record.subject.id, bool(record.simulated))


class Identities:
    """The identities of all subjects of a run, from its measurements."""

    def __init__(self, measurements: t.Iterable[Measurement]) -> None:
        machines: dict[str, set[str]] = collections.defaultdict(set)
        owners: dict[str, set[str]] = collections.defaultdict(set)
        self._guids: dict[str, str] = {}
        self.models: dict[str, str] = {}
        for m in measurements:
            context, subject = m.context, m.subject
            identities = context.get("identities")
            for node, identity in identities.items() if isinstance(identities, dict) else ():
                machine = identity.get("machine_id") if isinstance(identity, dict) else None
                if isinstance(machine, str) and machine.strip():
                    machines[str(node)].add(machine.strip()[:128])
            node = keys.node_of(subject.id)
            if subject.kind == "node" and isinstance(context.get("machine_id"), str) and context["machine_id"].strip():
                machines[node].add(context["machine_id"].strip()[:128])
            if subject.kind in ("node", "gpu") and isinstance(context.get("gpu"), str):
                self.models.setdefault(node, context["gpu"][:200])
            if subject.kind == "gpu":
                owners[subject.id[len(node) + 1 :]].add(node)
            for device in _devices(context) if subject.kind == "node" else ():
                self._guids[f"{node}/nic/{device['device']}"] = str(device["guid"]).lower()
        count = collections.Counter(machine for of in machines.values() for machine in of)
        self._machines = {node: next(iter(of)) for node, of in machines.items() if len(of) == 1 and count[next(iter(of))] == 1}
        self._twice = {part for part, of in owners.items() if len(of) > 1}
        guids = collections.Counter(self._guids.values())
        self._guids = {device: guid for device, guid in self._guids.items() if guids[guid] == 1}

    def of(self, subject: Who, known_identity: t.Callable[[str, bool], str | None] = lambda _name, _simulated: None) -> str:
        """Return the identity of a subject. `known_identity(name, simulated)` returns the last identity of a node of this name, for a node
        that reports none now."""
        if subject.kind == "pair":
            ends = (self.of(Who(keys.kind_of(end), end, subject.simulated), known_identity) for end in keys.ends_of(subject.id))
            return "pair:" + "|".join(sorted(ends))
        if subject.kind not in ("node", "gpu", "nic"):
            return f"{subject.kind}:{subject.id}"
        node = keys.node_of(subject.id)
        part = subject.id[len(node) + 1 :]
        kind, _slash, name = part.partition("/")
        if kind == "gpu" and _GPU.fullmatch(name) and part not in self._twice:
            return f"gpu:{name}"
        if kind == "nic":
            device, _slash, port = name.rpartition("/")
            guid = self._guids.get(f"{node}/nic/{device}")
            if guid:
                return f"port:{guid}/{port}"
        machine = self._machines.get(node)
        node_identity = f"machine:{machine}" if machine else known_identity(node, subject.simulated) or NAME + node
        return f"{node_identity}/{part}" if part else node_identity


def _devices(context: Context) -> t.Iterator[PlainData]:
    """Yield the RDMA devices of a node that have a GUID."""
    devices = context.get("devices")
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, dict) and _GUID.fullmatch(str(device.get("guid"))) and set(str(device["guid"])) - set("0:x"):
            yield device
