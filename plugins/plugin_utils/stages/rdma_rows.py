# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows that the RDMA stages read and write: devices and ports, tests of a timetable, and what both sides of a test saw.

A node sends devices, ports and the rows of tests, so a field of them may be missing unless a docstring says otherwise.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Context, PlainData, SeriesRow


class Gid(t.TypedDict, total=False):
    """A GID of a port (module_utils/rdma/gid.py)."""

    index: int
    gid: str
    address: str
    type: str
    netdev: str


class Port(t.TypedDict, total=False):
    """A port of an RDMA device as the probe of the stage rdma_ports saw it; its place in the list of ports is its rail.

    `gid` is the GID that its tests use and `gid_others` are those that could be used. `nic` is the type of its device. `rate_gbps` is its
    rate and `most_gbps` the highest it can have, both in Gb/s and None if unknown. `held_gbps` is the rate that it should have by its peers
    (rdma_rails.held_to), `gpu` the model of its node's GPUs.
    """

    device: str
    port: int
    state: str
    link_layer: str
    rate_gbps: float | None
    most_gbps: float | None
    held_gbps: float | None
    gpu: str | None
    width: int | None
    speed: str | None
    mtu: int | None
    address: str | None
    prefix: int | None
    gids: list[Gid]
    gid: Gid | None
    gid_others: list[Gid]
    nic: str | None


class Device(t.TypedDict, total=False):
    """An RDMA device as the probe of the stage rdma_ports saw it."""

    device: str
    driver: str | None
    firmware: str | None
    board: str | None
    type: str | None
    guid: str | None
    pci: str | None
    pci_id: str | None
    part_number: str | None


class TestKind(t.TypedDict):
    """A kind of test: the tool and its options, the same on both sides, and what its output must say. `direction` is None if one test is
    about both directions; `bytes`, `iterations`, `duration` (seconds) and `qps` are None if the output need not say them. `gpu` is True if
    both sides have their buffers in the memory of GPUs."""

    check: str
    variant: str
    direction: str | None
    tool: str
    options: list[str]
    op: str
    kind: str
    bytes: int | None
    iterations: int | None
    duration: float | None
    qps: int | None
    gpu: bool
    context: Context


class TestOfBoth(t.TypedDict):
    """A test as both of its sides have it. `kind` is the number of its TestKind; `a` and `b` are the ports of server and client, `peer` is
    the server's address."""

    kind: int
    subject: str
    rail: str
    a: str
    b: str
    tcp_port: int
    peer: str
    context: Context


class SideTest(TestOfBoth):
    """One side of a test in the timetable of a node. `gid` and `peer_gid` are None on InfiniBand."""

    role: t.Literal["server", "client"]
    partner: str
    device: str
    port: int
    gid_index: int | None
    gid: str | None
    peer_gid: str | None


class RoundOfNode(t.TypedDict):
    """The tests of a node in one round."""

    round: int
    tests: list[SideTest]


class AbsentTest(t.TypedDict):
    """A test of a pair that cannot be walked, with the reason."""

    check: str
    variant: str
    subject: PlainData
    reason_code: str
    reason: str


class RailRow(t.TypedDict):
    """The test of one rail as one side saw it. `rail`, `a`, `b` (the ports of server and client) and `outcome` are always there. `broke`:
    the link broke. `test` is what the tool's output says of itself."""

    rail: str
    a: str
    b: str
    outcome: str
    walk: t.NotRequired[str]
    reason: t.NotRequired[str | None]
    broke: t.NotRequired[bool]
    test: t.NotRequired[PlainData | None]


class SideRow(RailRow):
    """A row of a node's timetable after its walk: all but `tool_version` is always there. `rows` is the sweep, `changes` are those of the
    node's evidence, `duration_s` is in seconds."""

    role: str
    check: str
    variant: str
    subject: str
    started_at: str
    rows: list[SeriesRow]
    changes: list[PlainData]
    round: int
    duration_s: float
    tool_version: t.NotRequired[str | None]
