# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of racks of NVLink: trays whose domain, IMEX or fabric is not in order, and racks that are, measured by the probe over the
simulated tools and judged together as 18 trays."""

from __future__ import annotations

import copy
import pathlib
import sys
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import stack
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.stack import STAGE
from harness import records
from rigs.simulated import rack

ZERO = "00000000-0000-0000-0000-000000000000"
OTHER = "7777aaaa-0000-4000-8000-000000000001"
# The changed tray.
NUMBER = 7


class Case(t.NamedTuple):
    """A rack of which one tray, or with `all` every tray, has these faults and settings. `code` is the reason code by which it is found,
    empty for a rack that is in order; `kinds` are the kinds of subjects that the report names as causes."""

    what: str
    code: str = ""
    faults: str = ""
    owner: str = "host"
    cluster: str = rack.CLUSTER
    clique: str = "1"
    nodes_config: tuple[str, ...] = ()
    driver: str = ""
    every: bool = False
    kinds: tuple[str, ...] = ("node",)
    silent: bool = False


HEALTHY = (
    Case("a whole rack"),
    Case("the summary of the fabric is not supported", faults="cells=summary:Not_Supported", every=True),
    Case("routes that are healthy by their own words", faults="cells=route_unhealthy:False cells=incorrect_configuration:None", every=True),
    Case("a tray writes its ClusterUUID in capitals", cluster=rack.CLUSTER.upper()),
    Case("IMEX is stopped between the jobs of Slurm", faults="imex_silent no_channel", owner="slurm", every=True),
    Case("IMEX is stopped where ComputeDomains start it", faults="imex_silent no_channel", owner="kubernetes", every=True),
)
FAULTS = (
    Case("a tray left the domain", "nvlink_domain", cluster=ZERO, clique="0"),
    Case("a tray reports no ClusterUUID", "nvlink_domain", cluster="N/A", clique="N/A"),
    Case("a tray is in another partition", "nvlink_domain", clique="2"),
    Case("a tray is in another domain", "nvlink_domain", cluster=OTHER),
    Case("a tray was not measured", "no_answer", silent=True),
    Case("a route is unhealthy", "fabric", "cell=route_unhealthy:True"),
    Case("the configuration of the fabric is incorrect", "fabric", "cell=incorrect_configuration:Incorrect_System_GUID"),
    Case("the bandwidth of the fabric is degraded", "fabric", "cell=bandwidth:Degraded"),
    Case("the status of the fabric is an error", "fabric", "cell=status:Insufficient_Resources"),
    Case("the fabric is in progress", "fabric", "cells=state:In_Progress"),
    Case("the fabric of a tray is not started", "fabric", faults="cells=state:Not_Started"),
    Case("the summary of one GPU is unhealthy", "fabric", "cell=summary:Unhealthy"),
    Case("one GPU has no ClusterUUID", "fabric", f"cell=clusterUuid:{ZERO} cell=cliqueId:0"),
    Case("one GPU is in another partition", "fabric", "cell=cliqueId:2"),
    Case("the driver differs within the branch", "nvlink_domain", driver="580.65.06", kinds=("nvlink_domain",)),
    Case("the IMEX daemon is not there", "imex", "imex_silent"),
    Case("the IMEX daemon waits for others", "imex", "imex_state=WAITING_FOR_PEERS"),
    Case("the IMEX channel is missing", "imex", "no_channel"),
    Case("IMEX is of another branch than the driver", "imex", "imex_version=570.172.08", kinds=("node", "nvlink_domain")),
    Case("IMEX is of another version within the branch", "nvlink_domain", "imex_version=580.65.06", kinds=("nvlink_domain",)),
    Case("the list of nodes of IMEX differs", "nvlink_domain", nodes_config=tuple(reversed(rack.addresses())), kinds=("nvlink_domain",)),
    Case("one daemon is unavailable, as all see it", "imex", "imex_lost=4", every=True, kinds=("nvlink_domain",)),
    Case("the versions of all daemons differ", "imex", "imex_versions", every=True, kinds=("nvlink_domain",)),
    Case("nobody starts IMEX on a tray", "nvlink_domain", "imex_silent no_channel", "none", kinds=("node", "nvlink_domain")),
)


def _measured(folder: pathlib.Path, case: Case) -> dict[str, dict[str, t.Any]]:
    """Return the observations of a tray of the whole node, {check: observation}."""
    more: dict[str, t.Any] = {"nodes_config": case.nodes_config} if case.nodes_config else {}
    if case.driver:
        more["driver"] = case.driver
    variables = rack.tray(folder, NUMBER, faults=case.faults, owner=case.owner, cluster=case.cluster, clique=case.clique, **more)
    params = {
        "checks": [{"check": name, "variant": ""} for name in ("facts", "gpu_health")],
        "python": sys.executable, "packages": [], "environment": [], "sysctls": [], "disks": [], "gpu_count": 4, "imex": "auto",
    }  # fmt: skip
    node = Node(120, root=variables["acceptance_root"], tools={"nvidia_smi": variables["acceptance_nvidia_smi"]})
    return {one["check"]: one for one in stack.probe(params, node) if not one["part"]}


def _found(case: Case, healthy: dict[str, dict[str, t.Any]], changed: dict[str, dict[str, t.Any]]) -> tuple[bool, set[str], set[str]]:
    """Judge the rack of a case. Return whether it is accepted, the reason codes of its verdicts, and the kinds of its causes."""
    nodes = [f"tray-{number:02}" for number in range(1, rack.TRAYS + 1)]
    items, measured = [], []
    for number, node in enumerate(nodes, 1):
        of = changed if case.every or number == NUMBER else healthy
        for check, one in of.items():
            about = {"stage": "stack", "check": check, "subject": {"id": node}, "target": node}
            items.append(about)
            context = copy.deepcopy(one["context"])
            if "link_domain" in context:
                context["link_domain"].update(tray=str(number - 1), slot=str(number))
                context["facts"] = {"hostname": node}
                context["addresses"] = [rack.addresses()[number - 1]]
            for name in ("gpu_uuids", "machine_id"):
                context.pop(name, None)
            if not (case.silent and number == NUMBER):
                fields = {name: one[name] for name in ("outcome", "reason_code", "reason")}
                measured.append(records.measurement({**about, **fields, "context": context}))
    judgement = records.judge(records.make_plan({"items": items}), measured, lambda *_who: Expectations.load([]), stages=[STAGE])
    bad = [verdict for verdict in judgement.verdicts if verdict.verdict not in ("PASS", "SKIPPED")]
    return judgement.accepted, {str(verdict.reason_code) for verdict in bad}, {cause["kind"] for cause in judgement.causes}


def accepted(folder: pathlib.Path) -> tuple[int, list[str], list[str]]:
    """Return the number of planted faults, those that were not found by their code and cause, and racks in order that were refused."""
    accepts, rejects = [], []
    healthy = _measured(folder / "healthy", HEALTHY[0])
    for number, case in enumerate((*HEALTHY, *FAULTS)):
        is_accepted, codes, kinds = _found(case, healthy, _measured(folder / str(number), case))
        if not case.code and (not is_accepted or codes):
            rejects.append(f"racks: {case.what}: {', '.join(sorted(codes))}")
        elif case.code and (is_accepted or case.code not in codes or not kinds <= {*case.kinds, "gpu"}):
            said = f"{', '.join(sorted(codes)) or 'nothing'} with {', '.join(sorted(kinds)) or 'no cause'}"
            accepts.append(f"racks: {case.what}: found {said}")
    return len(FAULTS), accepts, rejects
