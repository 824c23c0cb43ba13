# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `host_health`: the machine beside its accelerators. What it finds are conditions, except for the bandwidth of its memory.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import statistics
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import bandwidth, tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.plain_data import Observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import host_health as probe
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    Measurement,
    PlainData,
    PlanItem,
    SeriesRow,
    Variables,
    is_number,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.redfish import address, identity
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import (
    Expected,
    Nodes,
    Settings,
    Stage,
    stands_for_nodes,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import Range

# Shares of the median of the other NUMA nodes of a machine, which have the same memory modules. One of four channels less leaves 0.75,
# one of two 0.5.
NODE_WARN, NODE_FAIL = 0.85, 0.7
# The check of a machine's management controller by Redfish, which is planned where an address is given.
REDFISH = "redfish"
MEMORY = "memory"
# The checks whose measurements are compared with each other.
_COMPARED = (bandwidth.CHECK, REDFISH, MEMORY)


class HostHealth(Stage):
    # Not `host`: every variable that begins with the name of a stage must be one of its own, and inventories have many that begin so.
    name = "host_health"
    role = "gpufleet.acceptance.host_health"
    place = 12
    level = "standard"
    # Sizes, speeds and settings are facts of the node: the rules for facts compare them.
    before = ("stack",)
    conditions = frozenset((*probe.CHECKS, REDFISH))
    by_controller = frozenset((REDFISH,))
    sees: t.Mapping[str, tuple[str, ...]] = {
        "host_memory": ("memory", "kernel", "bandwidth", REDFISH), "pcie": ("pcie",), "storage": ("storage",), "thermal": ("bmc", REDFISH),
    }  # fmt: skip
    requestable = ("tests", "pcie_corrected")
    ranges: t.Mapping[str, Range] = {"pcie_corrected": Range(0, 1e9), "ras_days": Range(0, 36600, "days")}

    def problem(self, settings: Variables) -> str | None:
        unknown = [test for test in settings["host_health_tests"] if test not in probe.CHECKS]
        if unknown:
            return f"host_health_tests: found {unknown[0]!r}, expected {', '.join(probe.CHECKS)}"
        url = str(settings.get("host_health_redfish_url") or "")
        return _redfish_problem(url, settings) if url else None

    def items(self, nodes: Nodes, settings: Settings) -> tuple[t.Sequence[PlanItem | PlainData], list[str]]:
        """Return the items of the plan. Raise RunError if two machines have the same management controller: one would be judged by the
        parts of the other."""
        by_service: dict[tuple[str, int], str] = {}
        for host in dict.fromkeys(nodes.values()):
            url = str(settings[host].get("host_health_redfish_url") or "")
            first = by_service.setdefault(address.service_of(url), host) if url else host
            if first != host:
                raise RunError(
                    f"host_health_redfish_url: found {url} for {first} and for {host}, expected an address of its own for each "
                    "machine, such as https://{{ inventory_hostname }}-bmc"
                )
        return super().items(nodes, settings)

    def observe(self, check: str, variant: str, settings: Variables) -> Observation:
        # A run that asks no management controller does not load what asks one.
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.redfish import client, reading

        service = client.Service(
            settings["host_health_redfish_url"], settings["host_health_redfish_user"], settings["host_health_redfish_password"],
            time.monotonic() + settings["host_health_redfish_timeout"], settings["host_health_redfish_validate_certs"],
            settings["host_health_redfish_ca_path"],
        )  # fmt: skip
        return reading.observe(service)

    def opinions(
        self, deciding: t.Mapping[Key, Measurement], records: list[Measurement], expected: Expected, tables: list[Table]
    ) -> t.Iterator[tuple[Key, Opinion]]:
        """Yield an opinion for each machine of which a NUMA node copies memory more slowly than the others of as many cores, and for each
        whose management controller is that of another machine."""
        by_check = {check: {key: m for key, m in deciding.items() if (m.stage, m.check) == (self.name, check)} for check in _COMPARED}
        for key, m in by_check[bandwidth.CHECK].items():
            if m.outcome == "measured" and m.context.get("place") == tree.BARE_METAL:
                yield from ((key, opinion) for opinion in _slow_nodes(m.series))
        yield from _other_machines(by_check[REDFISH], by_check[MEMORY])


def _other_machines(redfish: t.Mapping[Key, Measurement], memory: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield an opinion for each machine that was judged by the management controller of another one."""
    by_controller = {key.subject: identity.by_controller(m.context.get("machine")) for key, m in redfish.items()}
    by_firmware = {key.subject: identity.by_firmware(m.context) for key, m in memory.items()}
    twice = identity.shared(by_controller)
    for key in redfish:
        node = key.subject
        differs = identity.difference(by_controller[node], by_firmware[node]) if node in by_firmware else None
        if differs:
            yield key, Opinion("UNKNOWN", f"host_health_redfish_url leads to another machine: {differs}", "identity_changed")
        elif node in twice:
            yield key, Opinion("UNKNOWN", f"host_health_redfish_url: {twice[node]}", "duplicate_identity")


def _redfish_problem(url: str, settings: Variables) -> str | None:
    """Return what is wrong with the variables of Redfish. The words quote no value: each may hold a password."""
    expected = address.problem(url)
    if expected:
        return f"host_health_redfish_url: found another text, expected {expected}"
    if stands_for_nodes(settings):
        return "host_health_redfish_url: found an address for a host that stands for many nodes, expected one on hosts that are machines"
    for name in ("host_health_redfish_user", "host_health_redfish_password"):
        if not settings.get(name):
            return f"{name}: found nothing, expected the login of a user of {url} who may read"
    return None


def _slow_nodes(series: t.Sequence[SeriesRow]) -> t.Iterator[Opinion]:
    """Yield an opinion for each NUMA node whose bandwidth with all cores is far below the median of the machine's other nodes with as many
    cores. That of one core is only shown: it differed by 40 % between seven calls on one virtual machine, that of all cores by 16 %."""
    metric = "bandwidth"
    rows = [row for row in series if is_number(row.get(metric))]
    for row in rows:
        other_values = [sibling[metric] for sibling in rows if sibling is not row and sibling.get("cores") == row.get("cores")]
        median = statistics.median(other_values) if other_values else 0.0
        if median > 0 and row[metric] < NODE_WARN * median:
            verdict, floor = ("FAIL", NODE_FAIL) if row[metric] < NODE_FAIL * median else ("WARN", NODE_WARN)
            reason = (
                f"NUMA node {row.get('node')} copies memory at {row[metric]:.4g} GB/s, {row[metric] / median:.2f} of the median of the "
                f"machine's other nodes, {median:.4g}: a memory module may be missing, slow or in the wrong slot there"
            )
            yield Opinion(
                verdict, reason, "below_siblings", float(row[metric]), "GB/s", floor * median, "fleet", "the machine's other NUMA nodes",
                "measured", metric=metric, expected=median,
            )  # fmt: skip


STAGE = HostHealth()
