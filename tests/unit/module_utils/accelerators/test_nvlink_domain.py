# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a tray of a rack says of its NVLink domain and of IMEX, with simulated tools."""

from __future__ import annotations

import pathlib
import sys
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nvlink_domain
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import stack
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from rigs.simulated import rack

Observations = t.Dict[str, t.Dict[str, t.Any]]


def looked(folder: pathlib.Path, faults: str = "", owner: str = "host", imex: str = "auto", **settings: t.Any) -> Observations:
    """The facts and the health of a tray."""
    variables = rack.tray(folder / "tray", 1, faults=faults, owner=owner, **settings)
    params = {
        "checks": [{"check": name, "variant": ""} for name in ("facts", "gpu_health")],
        "python": sys.executable, "packages": [], "environment": [], "sysctls": [], "disks": [], "gpu_count": 4, "imex": imex,
    }  # fmt: skip
    node = Node(60, root=variables["acceptance_root"], tools={"nvidia_smi": variables["acceptance_nvidia_smi"]})
    return {o["check"]: o for o in stack.probe(params, node) if not o["part"]}


def findings(found: Observations) -> dict[str, str]:
    return {finding["code"]: finding["text"] for finding in found["gpu_health"]["context"].get("findings", [])}


def test_a_tray_in_order_has_no_finding_and_names_its_domain(tmp_path: pathlib.Path) -> None:
    found = looked(tmp_path)
    assert found["gpu_health"]["outcome"] == "measured" and findings(found) == {}
    facts, domain = found["facts"]["context"]["facts"], found["facts"]["context"]["link_domain"]
    assert (domain["cluster_uuid"], domain["clique"], domain["trays_by_design"]) == (rack.CLUSTER, "1", 18)
    assert (facts["imex_owner"], facts["imex_daemon"], facts["imex_domain"]) == ("host", "READY", "UP")
    assert facts["imex_nodes"] == 18 and len(facts["imex_nodes_config"]) == 16 and facts["imex_channels"] == 1
    assert facts["imex_version"].partition(".")[0] == facts["driver"].partition(".")[0]


@pytest.mark.parametrize("summary", ["Not_Supported", "N/A", "Healthy"])
def test_a_summary_that_is_not_supported_is_no_fault(tmp_path: pathlib.Path, summary: str) -> None:
    assert findings(looked(tmp_path, f"cells=summary:{summary} cells=route_unhealthy:False cells=incorrect_configuration:None")) == {}


@pytest.mark.parametrize(
    ("faults", "code", "words"),
    [
        ("cells=clusterUuid:00000000-0000-0000-0000-000000000000", "nvlink_domain", "all zero"),
        ("cells=clusterUuid:N/A", "nvlink_domain", "in no NVLink domain"),
        ("cells=cliqueId:0", "nvlink_domain", "CliqueId 0"),
        ("cells=state:N/A cells=clusterUuid:N/A", "unreadable_state", "nobody knows"),
        ("cells=state:N/A", "unreadable_state", "expected Completed"),
        ("cells=state:Not_Supported", "unreadable_state", "expected Completed"),
        ("cells=state:Not_Started", "fabric", "Not Started"),
        ("cells=route_unhealthy:True", "fabric", "route unhealthy"),
        ("imex_silent", "imex", "does not answer"),
        ("imex_state=WAITING_FOR_PEERS", "imex", "WAITING_FOR_PEERS"),
        ("imex_version=570.172.08", "imex", "both must be of one branch"),
        ("no_channel", "imex", "channel0 is missing"),
    ],
)
def test_a_fault_of_one_tray_is_found_by_its_name(tmp_path: pathlib.Path, faults: str, code: str, words: str) -> None:
    found = findings(looked(tmp_path, faults))
    assert words in found[code], found


def test_a_fabric_that_is_not_ready_is_not_blamed_on_a_missing_fabric_manager(tmp_path: pathlib.Path) -> None:
    text = findings(looked(tmp_path, "cells=state:In_Progress"))["fabric"]
    assert "switch trays" in text and "nvidia-fabricmanager" not in text


@pytest.mark.parametrize("owner", ["slurm", "kubernetes"])
def test_a_stopped_daemon_is_no_fault_where_a_scheduler_starts_it_for_each_job(tmp_path: pathlib.Path, owner: str) -> None:
    found = looked(tmp_path, "imex_silent no_channel", owner)
    assert findings(found) == {} and found["facts"]["context"]["facts"]["imex_owner"] == owner
    assert "none runs now" in found["facts"]["context"]["not_looked_for"]["imex"]


def test_a_tray_on_which_nobody_starts_imex_is_a_warning_unless_the_inventory_says_so(tmp_path: pathlib.Path) -> None:
    assert list(findings(looked(tmp_path / "a", "imex_silent no_channel", "none"))) == ["imex_owner"]
    assert findings(looked(tmp_path / "b", "imex_silent no_channel", "none", imex="none")) == {}
    assert "imex" in findings(looked(tmp_path / "c", "imex_silent no_channel", "none", imex="host"))


def test_a_domain_that_an_old_program_prints_without_json_is_read(tmp_path: pathlib.Path) -> None:
    assert looked(tmp_path / "a", "imex_old imex_lost=3")["facts"]["context"]["link_domain"]["imex"]["domain"] == "DEGRADED"
    context = looked(tmp_path / "b", "imex_garbage")["facts"]["context"]
    assert context["link_domain"]["imex"]["domain"] is None and "none that can be read" in context["not_looked_for"]["imex_domain"]


def test_a_node_of_another_model_is_asked_nothing_about_racks(tmp_path: pathlib.Path) -> None:
    found = looked(tmp_path, model="NVIDIA H200", gpus=8)
    assert "link_domain" not in found["facts"]["context"] and "imex_owner" not in found["facts"]["context"]["facts"]


def test_a_health_mask_is_decoded_into_words() -> None:
    assert nvlink_domain.mask_faults(0xAA) == [] and nvlink_domain.mask_in_words(0xAA)["route unhealthy"] == "no"
    assert nvlink_domain.mask_faults(0x1AA) == [] and nvlink_domain.mask_faults(0) == []
    assert nvlink_domain.mask_faults(0xAA ^ 0x30) == ["route unhealthy"]
    assert nvlink_domain.mask_faults(0x4AA) == ["incorrect configuration: no partition"]


@pytest.mark.parametrize(
    ("model", "trays"),
    [("NVIDIA GB200", 18), ("NVIDIA GB300", 18), ("NVIDIA GB200 NVL4", None), ("NVIDIA B200", None), ("NVIDIA H200", None)],
)
def test_racks_have_as_many_trays_as_their_product(model: str, trays: int | None) -> None:
    assert nvlink_domain.trays_by_design([model]) == trays
