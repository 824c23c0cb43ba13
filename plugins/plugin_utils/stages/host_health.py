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

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import bandwidth, tree
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
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import host_parts
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
# The check of the same controller by IPMI.
BMC = "bmc"
# The checks whose measurements are compared with each other.
_COMPARED = (bandwidth.CHECK, REDFISH, BMC, MEMORY)
# {class of faults: {check: parts without which it cannot show one, by their codes in `not_looked_for`; of codes with `|` between one is
# enough}}. What a management controller says of a machine at rest shows its parts, and not how it bears heat and load over time.
NEEDED: dict[str, dict[str, tuple[str, ...]]] = {
    "host_memory": {
        "memory": ("edac|kernel_log",), "kernel": ("kernel_log", "kernel_log_since_boot"), "bandwidth": ("numa",),
        REDFISH: ("redfish_memory",),
    },
    "pcie": {"pcie": ("pcie_link", "aer")},
    "storage": {"storage": ("smart", "disks", "arrays", "file_systems")},
    "power": {BMC: ("ipmi", "ipmi_words"), REDFISH: ("redfish_power", "redfish_fans", "redfish_temperatures")},
}  # fmt: skip
# Checks whose sources in a virtual machine are those of the guest: its kernel hears nothing of the host's memory and processors.
OF_GUEST = frozenset({("host_memory", "kernel"), ("host_memory", "memory")})


class HostHealth(Stage):
    # Not `host`: every variable that begins with the name of a stage must be one of its own, and inventories have many that begin so.
    name = "host_health"
    role = "gpufleet.acceptance.host_health"
    place = 12
    level = "standard"
    # Sizes, speeds and settings are facts of the node: the rules for facts compare them.
    before: tuple[str, ...] = ("stack",)
    last: tuple[str, ...] = ("host_health_after",)
    loads = False
    conditions = frozenset((*probe.CHECKS, REDFISH))
    by_controller = frozenset((REDFISH,))
    sees: t.Mapping[str, tuple[str, ...]] = {fault: tuple(needed) for fault, needed in NEEDED.items()}
    requestable: tuple[str, ...] = ("tests", "pcie_corrected")
    ranges: t.Mapping[str, Range] = {"pcie_corrected": Range(0, 1e9), "ras_days": Range(0, 36600, "days")}

    def problem(self, settings: Variables) -> str | None:
        unknown = [test for test in settings["host_health_tests"] if test not in probe.CHECKS]
        if unknown:
            return f"host_health_tests: found {unknown[0]!r}, expected {', '.join(probe.CHECKS)}"
        url = str(settings.get("host_health_redfish_url") or "")
        return _redfish_problem(url, settings) if url else None

    def lacks(self, fault: str, measurement: Measurement) -> str | None:
        unseen = measurement.context.get("not_looked_for")
        if isinstance(unseen, dict) and measurement.outcome == "measured":  # else it has found a defect
            needed = [codes.split("|") for codes in NEEDED[fault].get(measurement.check, ())]
            missing = [str(unseen[codes[0]]) for codes in needed if all(code in unseen for code in codes)]
            if missing:
                return "; ".join(missing)
        if (fault, measurement.check) in OF_GUEST and measurement.context.get("place") == tree.VIRTUAL_MACHINE:
            return "a virtual machine does not show the memory and the processors of its host"
        return super().lacks(fault, measurement)

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
        whose management controller is that of another machine, or that lacks parts which others of its product have."""
        by_check = {check: {key: m for key, m in deciding.items() if (m.stage, m.check) == (self.name, check)} for check in _COMPARED}
        for key, m in by_check[bandwidth.CHECK].items():
            if m.outcome == "measured" and m.context.get("place") == tree.BARE_METAL:
                yield from ((key, opinion) for opinion in _slow_nodes(m.series))
        yield from _other_machines(by_check[REDFISH], by_check[MEMORY])
        for check in (BMC, REDFISH):
            yield from host_parts.opinions(by_check[check])


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
    """Yield an opinion for each NUMA node whose bandwidth with all cores is far below the median of the machine's other nodes. One with
    another number of cores in use is a WARN at most, since cores may have been taken away on purpose; it stays among its siblings. The
    bandwidth of one core is only shown: it differed by 40 % between seven calls on one virtual machine, that of all cores by 16 %."""
    metric = "bandwidth"
    rows = [row for row in series if is_number(row.get(metric))]
    for row in rows:
        siblings = [sibling for sibling in rows if sibling is not row]
        alike = [sibling for sibling in siblings if sibling.get("cores") == row.get("cores")]
        other_values = [sibling[metric] for sibling in alike or siblings]
        median = statistics.median(other_values) if other_values else 0.0
        if median > 0 and row[metric] < NODE_WARN * median:
            verdict, floor = ("FAIL", NODE_FAIL) if row[metric] < NODE_FAIL * median and alike else ("WARN", NODE_WARN)
            cores = "" if alike else f" with {row.get('cores')} cores, another number than the others"
            reason = (
                f"NUMA node {row.get('node')} copies memory at {row[metric]:.4g} GB/s{cores}, {row[metric] / median:.2f} of the median of "
                f"the machine's other nodes, {median:.4g}: a memory module may be missing, slow or in the wrong slot there"
            )
            yield Opinion(
                verdict, reason, "below_siblings", float(row[metric]), "GB/s", floor * median, "fleet", "the machine's other NUMA nodes",
                "measured", metric=metric, expected=median,
            )  # fmt: skip


STAGE = HostHealth()
