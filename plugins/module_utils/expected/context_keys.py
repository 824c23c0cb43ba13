# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one table of the keys of a measurement's context that select anything: an expectation, a ceiling or a group of peers.

Only an identity may select: what a part is (model, part number, slot, capability), what the plan says and what the test did. What a part
does now is a state. A state that selected its own floor, or its own peers, would excuse itself: a port that is linked at 1X would be held
to 1X. States are listed here too, so that nobody takes one for an identity: they are refused in the match of an expectation.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

IDENTITY, STATE = "identity", "state"
NUMBER, WHOLE, TEXT, FLAG = "a number", "a whole number", "text", "true or false"
# Groups of machines that agree on a value by a majority need so many, and so large a share of them.
AGREE, AGREE_SHARE = 3, 0.75


class ContextKey(t.NamedTuple):
    """One key: the kind of its values, `identity` or `state`, where the value comes from, and why it is what it is.

    `matched`: a match of an expectation may name it. `judged`: the reason codes by which a wrong value is found, where one can be wrong.
    """

    kind: str
    nature: str
    source: str
    why: str
    matched: bool = True
    judged: t.Tuple[str, ...] = ()


def _identity(kind: str, source: str, why: str, judged: t.Tuple[str, ...] = (), matched: bool = True) -> ContextKey:
    return ContextKey(kind, IDENTITY, source, why, matched, judged)


def _state(kind: str, source: str, why: str, judged: t.Tuple[str, ...]) -> ContextKey:
    return ContextKey(kind, STATE, source, why, False, judged)


_TEST = "the plan, and the command line that the tool repeats"
KEYS: t.Dict[str, ContextKey] = {
    # Parts
    "gpu": _identity(TEXT, "product name by the driver", "model"),
    "npu": _identity(TEXT, "product name by the driver", "model"),
    "cpu": _identity(TEXT, "/proc/cpuinfo", "model"),
    "nic": _identity(TEXT, "hca_type, else the driver of the device", "model of the chip"),
    "nic_model": _identity(TEXT, "board, else PCI ids (nic_models.model)", "ports of one model are peers"),
    "nic_gbps": _identity(
        NUMBER,
        "the inventory; else the rate at which the same port of machines of this product runs; else the best port of its model",
        "the rate that NIC, slot, cable and peers can do; the rate that was negotiated is rate_gbps",
        ("link_slow", "below_siblings"),
    ),
    "nics": _identity(
        WHOLE, "ports of the GPUs' NICs that the run does not leave out, active or not", "NICs that the GPUs have", ("port_down", "no_rdma")
    ),
    "link_layer": _identity(TEXT, "link_layer of sysfs, a setting of the adapter", "a port has no link in a network of the other kind"),
    "pcie_gen": _identity(WHOLE, "what device and slot can do, the smaller", "their capability", ("pcie_speed", "pcie_slot")),
    "pcie_width": _identity(WHOLE, "what device and slot can do, the smaller", "their capability", ("pcie_width", "pcie_slot")),
    "nic_path": _identity(TEXT, "PCI tree (slots.farthest)", "the way between GPUs and NICs in the machine"),
    "nvlink": _identity(WHOLE, "model", "generation of the model's NVLinks"),
    "mnnvl": _identity(FLAG, "model", "NVLink leaves the node by design of the model"),
    "nvlink_domains": _identity(WHOLE, "ids of the clusters of NVLink switches that the GPUs are in", "racks of a group"),
    "placement": _identity(TEXT, "PCI tree", "bridges above the slot"),
    "hops": _identity(WHOLE, "the inventory's leaves", "place in the network"),
    "machine": _identity(TEXT, "maker and product by the firmware", "model of the machine", matched=False),
    "product": _identity(TEXT, "maker and product by the firmware", "model of the machine", matched=False),
    "place": _identity(TEXT, "hypervisor and container", "bare metal, virtual machine or container", matched=False),
    "slot": _identity(WHOLE, "PCI tree", "place of a GPU in its machine", matched=False),
    "uplink": _identity(TEXT, "PCI tree", "root port that ports share", matched=False),
    "bonded": _identity(FLAG, "name of the device", "two ports as one", matched=False),
    "storage": _identity(TEXT, "the inventory", "name of a file system in acceptance_storage"),
    # The test
    "gpus": _identity(WHOLE, "ranks of the test, which its output lists", "what was measured", ("gpu_count", "gpu_lost")),
    "npus": _identity(WHOLE, "ranks of the test, which its output lists", "what was measured", ("gpu_count", "gpu_lost")),
    "rail": _identity(TEXT, "the plan", "what was measured", matched=False),
    "nodes": _identity(WHOLE, "the plan", "what was measured", ("member",)),
    "nvls": _identity(
        FLAG, "model, number of GPUs and the settings of the run", "what NCCL should do; settings of the machine are nccl_machine",
        ("settings_differ",),
    ),
    "algorithm": _identity(TEXT, "settings of the run", "what was asked for, as of nvls", ("settings_differ",)),
    "proto": _identity(TEXT, "settings of the run", "what was asked for, as of nvls", ("settings_differ",)),
    "op": _identity(TEXT, _TEST, "what was measured"),
    "type": _identity(TEXT, _TEST, "what was measured"),
    "precision": _identity(TEXT, _TEST, "what was measured"),
    "mode": _identity(TEXT, _TEST, "what was measured"),
    "shape": _identity(TEXT, _TEST, "what was measured"),
    "backend": _identity(TEXT, "the tool or library that measured", "what was measured"),
    "bidirectional": _identity(FLAG, _TEST, "what was measured"),
    "loopback": _identity(FLAG, _TEST, "what was measured"),
    "world_size": _identity(WHOLE, "nodes and GPUs of each", "what was measured", matched=False),
    "comparable": _identity(FLAG, "the check, or a driver in software", "a number of its own kind", matched=False),
    "stage": _identity(TEXT, "the plan", "what was measured", matched=False),
    "check": _identity(TEXT, "the plan", "what was measured", matched=False),
    # States
    "rate_gbps": _state(NUMBER, "rate of sysfs", "negotiated", ("link_slow",)),
    "width": _state(WHOLE, "rate of sysfs", "lanes that came up", ("link_slow",)),
    "speed": _state(TEXT, "rate of sysfs", "negotiated", ("link_slow",)),
    "mtu": _state(WHOLE, "the network device", "a setting of the machine", ("mtu",)),
    "nics_used": _state(WHOLE, "state of the ports, and NCCL_IB_HCA of the machine", "ports in use", ("port_down",)),
    "as_set": _state(TEXT, "settings in force", "with those that no plan made", ("settings_differ",)),
    "nics_down": _state(WHOLE, "state of the ports", "ports without a link", ("port_down",)),
    "nics_beside": _state(WHOLE, "PCI tree", "ports of storage", ()),
    "links_under_load": _state(TEXT, "PCIe links while data was copied", "negotiated", ("pcie_speed", "pcie_width")),
    "nccl_machine": _state(TEXT, "files and environment of the machine", "settings that no plan made", ("settings_differ",)),
    "nccl_env": _state(TEXT, "settings in force", "with those that no plan made", ("settings_differ",)),
    "file_system": _state(TEXT, "/proc/self/mountinfo", "kind of the file system that is mounted now", ("mount_differs",)),
    "unlike": _state(TEXT, "storage_direct, and the mount", "why rates are those of memory", ("unchecked",)),
    "governor": _state(TEXT, "cpufreq", "a setting of the machine", ()),
    "driver": _state(TEXT, "the driver", "software", ("drift",)),
    "bound": _state(TEXT, "the process", "where the test ran", ()),
    "warnings": _state(TEXT, "the tool", "words", ()),
}  # fmt: skip
# {key: kind of its values} of the keys that a match of an expectation may name.
MATCHED: t.Dict[str, str] = {name: key.kind for name, key in KEYS.items() if key.matched and key.nature == IDENTITY}
STATES = frozenset(name for name, key in KEYS.items() if key.nature == STATE)
# Keys of the slot of a part. Two NICs of one model and one rate are peers in whatever slots they are: their comparison finds a slot that is
# worse than those of the others.
SLOT = frozenset({"pcie_gen", "pcie_width"})


def selecting(*names: str) -> t.Tuple[str, ...]:
    """Return the names, all of which must be identities of this table; for tuples of keys by which something is selected."""
    wrong = [name for name in names if name not in KEYS or KEYS[name].nature != IDENTITY]
    if wrong:
        raise ValueError(f"context_keys.KEYS: found {', '.join(wrong)} as a key that selects, expected identities only")
    return names


def agreed(values: t.Sequence[t.Any]) -> t.Any:
    """Return the value on which nearly all of enough machines agree, None if there is none: what most machines have in a place is how they
    are built or cabled, and no fault of one of them."""
    counts: t.Dict[t.Any, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    usual = max(counts, key=lambda value: counts[value], default=None)
    return usual if usual is not None and counts[usual] >= max(AGREE, AGREE_SHARE * len(values)) else None
