# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `nic_loopback`: every RDMA port of a node against itself, each alone and all at once.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import context_keys
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import nic_loopback as probe
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import loopback
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands, peer_values
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.causes import Blame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlainData, Variables, Verdict, is_number
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Section
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import base, rdma_ports
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import INT_MAX, NONE_OR_MORE, Range

# Ports that share a way to the host share it unevenly, so their sum is compared: with at least bands.SIBLINGS like groups of the node, and
# with the same group of identical machines. A way with half its lanes or half its speed gives half.
WARN_BELOW, FAIL_BELOW = 0.9, 0.75
# A port that shares its way with no other, and together keeps less than this share of what it gives alone, is worth a look.
KEPT = 0.8
# How many ports the report shows, those first that lose most.
SHOWN = 20


class UplinkGroup(t.NamedTuple):
    """The ports of a node behind one root port of PCIe, in one test of all ports: their verdicts' keys, and their sum in Gb/s together
    and alone (None if one of them has no number of its own)."""

    node: str
    uplink: str
    keys: tuple[Key, ...]
    together: float
    alone: float | None
    hardware: str

    @property
    def ports(self) -> str:
        """The ports in words."""
        return ", ".join(key.subject.partition("/nic/")[2].replace("/", " port ") for key in self.keys)


class NicLoopback(base.Stage):
    name = "nic_loopback"
    role = "gpufleet.acceptance.nic_loopback"
    place = 18
    level = "standard"
    # What ports share, and how many bridges are before them, differs between machines: those are held to the other ports of the node and to
    # identical machines.
    conditions = frozenset({loopback.PORTS, *loopback.LATENCY, *loopback.TOGETHER, *loopback.OF_GPU})
    sees: t.Mapping[str, tuple[str, ...]] = {"nic": (*loopback.TESTS, *loopback.OF_GPU)}
    # From 64 KiB on the size of a message does not change the rate, and the expectations are of such.
    ranges: t.Mapping[str, Range] = {
        "port": Range(1, 255), "ports": NONE_OR_MORE, "gbps": Range(0, 100_000, "Gb/s", above=True),
        "size": Range(1 << 16, INT_MAX, "bytes"), "qps": Range(1, 16384),
        "duration": Range(1, 600, "seconds"), "tcp_port": Range(1024, 65000),
    }  # fmt: skip
    requestable = ("tests", "gpu", "devices", "port", "size", "qps", "duration")

    def isolation(self, settings: Variables) -> base.Isolation:
        return rdma_ports.isolation(settings, self.name)

    def opinions(
        self, deciding: t.Mapping[Key, Measurement], records: list[Measurement], expected: base.Expected, tables: list[Table]
    ) -> t.Iterator[tuple[Key, Opinion] | Blame]:
        own_records = {key: record for key, record in deciding.items() if key.stage == self.name}
        yield from _fewer(own_records)
        yield from _down(own_records)
        yield from _slow(own_records)
        groups = _groups(own_records)
        yield from _like(
            groups, lambda group: (group.keys[0][:3], group.node, len(group.keys), group.hardware), bands.SIBLINGS, "of its node"
        )
        yield from _like(
            groups, lambda group: (group.keys[0][:3], group.ports, group.hardware), bands.NEIGHBOURS, "the same one of identical machines"
        )
        for group in groups:
            if len(group.keys) == 1 and group.alone and group.together < KEPT * group.alone:
                reason = (
                    f"{group.ports}: {group.together:.5g} Gb/s with all ports at once, {group.alone:.5g} alone, on a PCIe way of its own"
                )
                yield group.keys[0], Opinion("WARN", reason, "below_siblings", group.together, "Gb/s", metric="bandwidth")

    def sections(self, rows: list[tuple[Verdict, Measurement]]) -> list[Section]:
        """Return the ports that lose most of their bandwidth when all work at once."""
        groups = _groups({m.key: m for _verdict, m in rows if m.stage == self.name})
        lost = sorted((group for group in groups if group.alone), key=lambda group: group.together / (group.alone or 1.0))
        if not lost:
            return []
        table = [
            [group.node, group.ports, group.keys[0].check.replace("_all", ""), f"{group.alone:.0f}", f"{group.together:.0f}", group.uplink]
            for group in lost[:SHOWN]
        ]
        sentences = [f"Ports that share a PCIe root port, by what they keep when all ports work at once; the {SHOWN} that keep least."]
        columns = ["node", "ports", "test", "alone (Gb/s)", "at once (Gb/s)", "behind"]
        return [{"title": "NIC loopback of all ports at once", "said": sentences, "columns": columns, "rows": table}]


def _fewer(own_records: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield an UNKNOWN for each node with fewer ports than at least half of the machines of its product, if the inventory does not say
    how many it should have: a NIC that has fallen off the bus leaves nothing behind."""
    counts: dict[str, dict[Key, int]] = collections.defaultdict(dict)
    for key, record in own_records.items():
        if key.check != loopback.PORTS or record.context.get("wanted") is not None:
            continue
        ports = record.context.get("ports")
        if record.outcome == "measured" and isinstance(ports, list):
            counts[str(record.context.get("machine"))][key] = len(ports)
        elif record.reason_code == "no_rdma_expected":
            counts[str(record.context.get("machine"))][key] = 0
    for machine, ports_by_key in counts.items():
        for key, port_count in ports_by_key.items():
            larger = [count for count in ports_by_key.values() if count > port_count]
            if larger and 2 * len(larger) >= len(ports_by_key):
                who = f"{len(larger)} of {len(ports_by_key)} machines{f' of product {machine}' if machine else ''}"
                counted = f"{port_count} RDMA ports, {who} have {min(larger)} or more"
                reason = f"{counted}: a NIC is missing; nic_loopback_ports says how many are right"
                yield key, Opinion("UNKNOWN", reason, "no_rdma")


# A port that is down: what to do if that is right.
_IF_UNUSED = "if it is not used, name the devices that are in nic_loopback_devices"


def _rows(own_records: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Measurement, PlainData]]:
    """Yield (key, record, row) of each port that the check of the ports has seen."""
    for key, record in own_records.items():
        ports = record.context.get("ports")
        if key.check == loopback.PORTS and record.outcome == "measured" and isinstance(ports, list):
            yield from ((key, record, port) for port in ports if isinstance(port, dict))


def _down(own_records: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield an opinion on each port that is down although the inventory does not say which ports are in use: FAIL if at least half of the
    other machines of its product have it up; UNKNOWN if a like port of the machine is up, or a cable or module is in it; else WARN."""
    states: dict[tuple[str, str], dict[Key, PlainData]] = collections.defaultdict(dict)
    alike: dict[tuple[Key, str, str], list[PlainData]] = collections.defaultdict(list)
    for key, record, port in _rows(own_records):
        if "state" in port:
            states[str(record.context.get("machine")), str(port.get("port"))][key] = port
            alike[key, str(port.get("model")), str(port.get("turn"))].append(port)
    for (machine, name), by_key in states.items():
        up = sum(port["state"] == "ACTIVE" for port in by_key.values())
        for key, port in by_key.items():
            if port["state"] == "ACTIVE" or probe.stated(own_records[key].context):
                continue
            state = str(port["state"] or "without a state")
            other_machines = len(by_key) - 1
            product = f" of product {machine}" if machine else ""
            kind = (key, str(port.get("model")), str(port.get("turn")))
            siblings = [each for each in alike[kind] if port.get("model") and each["state"] == "ACTIVE"]
            if up and 2 * up >= other_machines:
                reason = f"{name} is {state}, {up} of {other_machines} other machines{product} have it up: see its cable; {_IF_UNUSED}"
                yield key, Opinion("FAIL", reason, "port_down")
            elif siblings:
                others = f"{len(siblings)} other ports of its model ({port['model']}) are up on this machine"
                yield key, Opinion("UNKNOWN", f"{name} is {state}, and {others}: see its cable; {_IF_UNUSED}", "port_down")
            elif port.get("module") is True:
                reason = f"{name} is {state} with a cable or module in it: see the cable and its other end; {_IF_UNUSED}"
                yield key, Opinion("UNKNOWN", reason, "port_down")
            else:
                yield key, Opinion("WARN", f"{name} is {state}, so it was not measured; {_IF_UNUSED}", "port_unused")


def _slow(own_records: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield an opinion on each port that runs more slowly than it should, if the inventory does not state the rate: FAIL below what it is
    held to (judging/peer_values.py); WARN if its place is as slow in nearly all of enough machines, or if all ports of its model run
    below what the adapter can do."""
    ports = [
        (key, port, peer_values.Peer("gbps", str(port["model"]), str(record.context.get("machine")), str(port.get("port")), _number(port)))
        for key, record, port in _rows(own_records)
        if port.get("model") and port.get("state") == "ACTIVE" and not port.get("software") and not record.context.get("gbps_stated")
    ]
    values = peer_values.PeerValues((key.subject, peer) for key, _port, peer in ports)
    for key, port, peer in ports:
        should_be, best, able = values.should_be(peer), values.best(peer), port.get("able")
        if should_be is None or best is None:
            continue
        name = peer.place.partition("/")[2].replace("/", " port ")
        advice = "nic_loopback_gbps states the rate if it is meant to be so"
        if peer.now is None:
            reason = f"{name} does not say its rate, others of its model ({peer.model}) run at {best:g} Gb/s"
            yield key, Opinion("WARN", reason, "link_slow")
        elif peer.now < should_be:
            lanes = f" on {port['lanes']} lanes" if port.get("lanes") else ""
            others = f"other ports of its model ({peer.model}) run at {should_be:g}"
            reason = f"{name} runs at {peer.now:g} Gb/s{lanes}, {others}: see its cable, module and the port of the switch; {advice}"
            yield key, Opinion("FAIL", reason, "link_slow")
        elif peer.now < best:
            others = f"other ports of its model ({peer.model}) run at {best:g}"
            yield key, Opinion("WARN", f"{name} runs at {peer.now:g} Gb/s on nearly all machines, {others}; {advice}", "link_slow")
        elif isinstance(able, dict) and is_number(able.get("gbps")) and peer.now < able["gbps"]:
            text = f"{name}, as all ports of its model, runs at {peer.now:g} Gb/s and can do {able['gbps']:g} by {able.get('witness')}"
            yield key, Opinion("WARN", f"{text}; {advice}", "link_slow")


def _number(port: PlainData) -> float | None:
    return float(port["gbps"]) if is_number(port.get("gbps")) else None


def _groups(own_records: t.Mapping[Key, Measurement]) -> list[UplinkGroup]:
    """Return the ports of each node in each test of all ports at once, by the root port that they are behind."""
    by_uplink: dict[tuple[t.Any, ...], list[tuple[Key, Measurement]]] = collections.defaultdict(list)
    for key, record in own_records.items():
        if key.check in loopback.TOGETHER and record.subject.kind == "nic" and not _software(record):
            by_uplink[key.check, key.variant, node_of(key.subject), str(record.context.get("uplink"))].append((key, record))
    groups = []
    for (check, _variant, node, uplink), ports in sorted(by_uplink.items()):
        ports.sort(key=lambda key_and_record: key_and_record[0].subject)
        rates = [_rate(record) for _key, record in ports]
        if any(rate is None for rate in rates):
            continue
        single_rates = [_rate(own_records.get(key._replace(check=check.replace("_all", "")))) for key, _record in ports]
        single_sum = None if any(rate is None for rate in single_rates) else sum(t.cast("list[float]", single_rates))
        look = repr([[record.context.get(name) for name in _OF_PORT] for _key, record in ports])
        groups.append(UplinkGroup(node, uplink, tuple(key for key, _r in ports), sum(t.cast("list[float]", rates)), single_sum, look))
    return groups


# Identities by which groups of ports are alike. Neither the slots nor what the ports negotiated: both are what the comparison is about.
_OF_PORT = context_keys.selecting("nic", "nic_model", "nic_gbps")


def _software(record: Measurement) -> bool:
    return record.context.get("nic") in loopback.SOFTWARE


def _rate(record: Measurement | None) -> float | None:
    metric = record.metrics.get("bandwidth") if record is not None and record.outcome == "measured" else None
    return float(metric.value) if metric is not None and is_number(metric.value) else None


def _like(
    groups: list[UplinkGroup], likeness: t.Callable[[UplinkGroup], t.Hashable], minimum: int, where: str
) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield a WARN or FAIL for the ports of each group whose sum is far below the median of at least `minimum` groups like it."""
    alike: dict[t.Hashable, list[UplinkGroup]] = collections.defaultdict(list)
    for group in groups:
        alike[likeness(group)].append(group)
    for members in alike.values():
        for group in members:
            other_rates = [neighbour.together for neighbour in members if neighbour is not group]
            median = statistics.median(other_rates) if len(other_rates) >= minimum else 0.0
            if median <= 0 or group.together >= WARN_BELOW * median:
                continue
            verdict = "FAIL" if group.together < FAIL_BELOW * median else "WARN"
            reason = (
                f"{group.ports}: {group.together:.5g} Gb/s together behind {group.uplink} with all ports at once, "
                f"{len(other_rates)} like groups ({where}) have {median:.5g}: look at the PCIe link of the switch or slot"
            )
            for key in group.keys:
                yield key, Opinion(verdict, reason, "below_siblings", group.together, "Gb/s", metric="bandwidth", expected=median)


STAGE = NicLoopback()
