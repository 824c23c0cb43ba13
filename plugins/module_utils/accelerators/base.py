# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a probe asks about the accelerators of a node, of whichever kind they are.

A kind tells of each of its devices by one dict of the same keys, those of parsers/nvidia_smi.parse_xml; what it cannot say is None there,
never 0. Beside them `word` (what people call such a device) and `idle_mib` (memory in use on it where nothing runs) where they are
not those of a GPU.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node

Device = t.Dict[str, t.Any]
# What snapshot() gives: {"outcome", "reason_code", "reason", "kind", "driver", "cuda", "simulated", "gpus": [Device]}.
Snapshot = t.Dict[str, t.Any]
# What a kind knows of the links between its devices; only the kind itself looks into it.
Links = t.Dict[str, t.Any]
# What is wrong with something, as (reason code, words).
Problem = t.Tuple[str, str]


class Sample(t.NamedTuple):
    """What one line of the sampler says of a device: values of SERIES of evidence.py, and why it was throttled."""

    uuid: str
    values: dict[str, float]
    throttle: t.AbstractSet[str]


class Start(t.NamedTuple):
    """How the runtime of a kind is started for real, in a child, since that may hang or crash. Its `script` prints lines of `runtime` and
    a JSON object, after each step; problem(said, count) says what is wrong with them, as (reason code, reason)."""

    runtime: str
    script: str
    env: dict[str, str]
    code: str
    problem: t.Callable[[dict[str, t.Any], int | None], Problem | None]


class Accelerator:
    """One kind of accelerators, by its tool on a node."""

    kind = ""
    # The evidence code of errors on links, and what people call such a link.
    link_code = "link_errors"
    link = "link"
    # Throttle reasons that no machine in order shows under load, and the device's own counter of the time spent in each, if it has one.
    bad_throttle: t.Mapping[str, str | None] = {}

    def __init__(self, node: Node, program: str) -> None:
        self.node = node
        self.program = program

    def snapshot(self) -> Snapshot:
        """The state of all devices of this kind, or an error that names the cause."""
        raise NotImplementedError

    def health(self, device: Device) -> list[Problem]:
        """What is wrong with one device, as (reason code, words), the gravest first; empty where nothing is."""
        raise NotImplementedError

    def links(self, seen: Snapshot) -> Links | None:
        """The links of the devices; None where they cannot be read."""
        raise NotImplementedError

    def links_down(self, links: Links) -> dict[str, Problem]:
        """{UUID: (reason code, words)} of devices whose links are fewer or slower than the best of the node. How many there should be no
        driver says."""
        raise NotImplementedError

    def unseen(self, seen: Snapshot) -> list[str]:
        """Devices that the kernel driver has and the tool does not show."""
        return []

    def facts(self, seen: Snapshot, links: Links | None) -> dict[str, t.Any]:
        """What must be the same on every node of a cluster, besides who the devices are."""
        raise NotImplementedError

    def start(self) -> Start:
        """How to see that the runtime starts."""
        raise NotImplementedError

    # Evidence --------------------------------------------------------------------------------------------------------

    def sampling(self) -> list[str]:
        """The command line that samples the devices until it is ended."""
        raise NotImplementedError

    def sample(self, line: str, seen: Snapshot) -> Sample | None:
        """What a line of it says; None where it says nothing."""
        raise NotImplementedError

    def link_errors(self, seen: Snapshot) -> dict[str, dict[str, int]] | None:
        """{UUID: {kind of error: count}}; None where the counters cannot be read, {} where there are no links."""
        raise NotImplementedError

    def changed(self, before: Device, after: Device) -> list[str]:
        """What a device says of itself after a test and did not before, in words, where no counter tells it."""
        return []

    def logged(self, line: str) -> tuple[str, str] | None:
        """(PCI address, words) where a line of the kernel log tells of an error of a device."""
        return None
