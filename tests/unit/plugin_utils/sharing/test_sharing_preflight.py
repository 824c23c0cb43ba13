# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One table says whether a sharing system is installed as its description expects it; what is known to be otherwise refuses the run."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import parameters, preflight, system
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.preflight import ClusterFacts, Draining, SharedNode, SystemPod

NVSHARE, SLICED = system.load("nvshare"), system.load("time_slicing")
ENV = {"NVSHARE_METRICS_ENABLE": "1", "NVSHARE_DEFAULT_GPU_MEMORY_GB": "40", "NVSHARE_DEBUG": "1"}


def daemon(node: str, **changes: t.Any) -> SystemPod:
    return dataclasses.replace(SystemPod(f"s-{node}", node, True, True, ENV, ("registry/nvshare:1",)), **changes)


def facts(**changes: t.Any) -> ClusterFacts:
    """Two nodes with four GPUs of 40 GiB each, as they should be."""
    nodes = [SharedNode("a", 40, 4), SharedNode("b", 40, 4)]
    both = [daemon("a"), daemon("b")]
    return dataclasses.replace(ClusterFacts(nodes, both, both, {"a": 39.6, "b": 39.6}, ["s-a", "s-b"], {}), **changes)


def means(of: ClusterFacts, wanted: system.System = NVSHARE) -> dict[str, str]:
    return {row.topic.partition(" (")[0]: row.means for row in preflight.rows(wanted, of)}


def test_what_is_installed_as_expected_refuses_nothing() -> None:
    table = preflight.rows(NVSHARE, facts())
    assert preflight.refusal(table) == ""
    assert means(facts()) == {
        "nodes of the plan": "ok", "schedulers": "ok", "device plugins": "ok", "parts of GPUs": "ok",
        "NVSHARE_METRICS_ENABLE": "ok", "hostPID of schedulers": "ok", "NVSHARE_DEFAULT_GPU_MEMORY_GB": "ok",
        "NVSHARE_DEBUG": "noted", "metrics": "noted", "images": "noted",
    }  # fmt: skip
    lines = preflight.text(table)
    assert len(lines) == 11 and lines[0].split()[0] == "what" and "registry/nvshare:1" in lines[-1]


def test_the_label_of_a_node_says_how_many_parts_its_gpus_have() -> None:
    assert means(facts(nodes=[SharedNode("a", 16, 4, replicas=4), SharedNode("b", 8, 1, replicas=8)]), SLICED)["parts of GPUs"] == "ok"
    table = preflight.rows(SLICED, facts(nodes=[SharedNode("a", 40, 4, replicas=4)]))
    assert "found a offers 40 with 4 GPUs and its label says 4 of each, expected 4 of each GPU" in preflight.refusal(table)


def test_a_variable_may_have_several_values_that_are_right() -> None:
    schedulers = [daemon("a", env={**ENV, "NVSHARE_METRICS_ENABLE": "true"}), daemon("b")]
    row = next(row for row in preflight.rows(NVSHARE, facts(schedulers=schedulers)) if row.topic == "NVSHARE_METRICS_ENABLE")
    assert row.cells == ["NVSHARE_METRICS_ENABLE", "1 and true", "1 or true", "ok"]


WRONG: list[tuple[str, dict[str, t.Any], str]] = [
    ("nodes of the plan", {"nodes": []}, "found 0, expected at least one"),
    ("schedulers", {"schedulers": [daemon("a"), daemon("b", ready=False)]}, "ready on 1 of 2 nodes, not on b"),
    ("device plugins", {"plugins": [daemon("b")]}, "not on a"),
    ("parts of GPUs", {"nodes": [SharedNode("a", 40, 4), SharedNode("b", 36, 4)]}, "b offers 36 with 4 GPUs, expected 10 of each GPU"),
    ("parts of GPUs", {"nodes": [SharedNode("a", 40, 4), SharedNode("b", 0, None)]}, "b offers 0 with an unknown number of GPUs"),
    ("NVSHARE_METRICS_ENABLE", {"schedulers": [daemon("a"), daemon("b", env={})]}, "not set in s-b, expected 1"),
    ("NVSHARE_METRICS_ENABLE", {"schedulers": [daemon("a"), daemon("b", env={**ENV, "NVSHARE_METRICS_ENABLE": "0"})]}, "0 in s-b"),
    ("hostPID of schedulers", {"schedulers": [daemon("a", host_pid=False), daemon("b")]}, "not set of s-a"),
    ("NVSHARE_DEFAULT_GPU_MEMORY_GB", {"memory_gib": {"a": 79.2, "b": 39.6}}, "40 on a, whose GPU has 79.2 GiB"),
    (
        "NVSHARE_DEFAULT_GPU_MEMORY_GB", {"schedulers": [daemon("a", env={"NVSHARE_METRICS_ENABLE": "1"}), daemon("b")]},
        "16 on a, whose GPU has 39.6 GiB (not set)",
    ),
    ("draining a", {"draining": [Draining("a", ["create pods/eviction", "patch a"])]}, "we may not create pods/eviction, patch a"),
    (
        "gpu_sharing_guardian", {"draining": [Draining("a", (), "x/keeper", refused="it may not patch nodes")]},
        "found service account x/keeper: it may not patch nodes, expected one that may get and patch a: make it as files/rbac/README.md "
        "says, or set gpu_sharing_guardian to '' and do without",
    ),
    ("gpu_sharing_drain_node", {"named_nodes": {"gpu_sharing_drain_node": "c"}}, "found c, expected a node of the plan"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "changes", "words"), WRONG, ids=[f"{row}-{n}" for n, (row, _c, _w) in enumerate(WRONG)])
def test_what_is_known_to_be_otherwise_refuses_the_run_with_its_cause(row: str, changes: dict[str, t.Any], words: str) -> None:
    assert means(facts(**changes))[row] == preflight.WRONG
    assert words in preflight.refusal(preflight.rows(NVSHARE, facts(**changes)))


@pytest.mark.parametrize(
    ("row", "changes"),
    [
        ("parts of GPUs", {"nodes": [SharedNode("a", 40, 4), SharedNode("b", 40, None)]}),
        ("NVSHARE_METRICS_ENABLE", {"schedulers": [daemon("a"), daemon("b", env={**ENV, "NVSHARE_METRICS_ENABLE": None})]}),
        ("NVSHARE_DEFAULT_GPU_MEMORY_GB", {"memory_gib": {"a": 39.6}}),
        ("gpu_sharing_guardian", {"draining": [Draining("a", (), "x/keeper", unknown="its rights we may not ask for")]}),
        ("NVSHARE_DEFAULT_GPU_MEMORY_GB", {"schedulers": [daemon("a"), daemon("b", env={**ENV, "NVSHARE_DEFAULT_GPU_MEMORY_GB": None})]}),
    ],
)
def test_what_nobody_knows_is_said_and_refuses_nothing(row: str, changes: dict[str, t.Any]) -> None:
    assert means(facts(**changes))[row] == preflight.NOT_KNOWN
    assert preflight.refusal(preflight.rows(NVSHARE, facts(**changes))) == ""


def test_a_scheduler_that_reads_the_memory_of_its_gpus_is_not_held_to_its_setting() -> None:
    plain = [daemon(node, env={"NVSHARE_METRICS_ENABLE": "1"}) for node in "ab"]
    row = "NVSHARE_DEFAULT_GPU_MEMORY_GB"
    found = facts(schedulers=plain, reading=["s-a", "s-b"])
    assert means(found)[row] == preflight.OK and not preflight.refusal(preflight.rows(NVSHARE, found))
    assert "16 on b" in preflight.refusal(preflight.rows(NVSHARE, facts(schedulers=plain, reading=["s-a"])))


def test_who_gives_a_drained_node_back_is_said_of_every_node_that_a_case_drains() -> None:
    assert "gpu_sharing_guardian" not in means(facts())
    assert means(facts(draining=[Draining("a", (), "x/keeper")]))["gpu_sharing_guardian"] == preflight.OK
    alone = facts(draining=[Draining("a")])
    assert means(alone)["gpu_sharing_guardian"] == preflight.NOTED and not preflight.refusal(preflight.rows(NVSHARE, alone))


def test_of_a_system_without_schedulers_nothing_of_them_is_expected() -> None:
    table = facts(schedulers=[], memory_gib={}, answering=[])
    assert set(means(table, SLICED)) == {"nodes of the plan", "device plugins", "parts of GPUs", "images"}
    assert preflight.refusal(preflight.rows(SLICED, table)) == ""


@pytest.mark.parametrize(
    ("images", "commit"),
    [
        (["r.example/t/nvshare:libnvshare-f680c69a", "r.example/t/nvshare:nvshare-scheduler-f680c69a"], "f680c69a"),
        (["r.example/t/nvshare:v0.1-8c2f5b90@sha256:00"], "8c2f5b90"),
        (["r.example/t/a:x-f680c69", "r.example/t/b:x-8c2f5b90"], ""),
        (["nvidia/k8s-device-plugin:v0.17.1", "x:20260217", "localhost:5000/x"], ""),
    ],
)
def test_the_commit_of_the_system_is_that_with_which_its_tags_end(images: list[str], commit: str) -> None:
    assert preflight.commit(images) == commit


def test_what_is_allowed_of_t4_hangs_on_the_gpus_and_not_on_the_cluster() -> None:
    for gpus, allowed in ((["Tesla-T4"], 12), (["Tesla T4"], 12), (["NVIDIA-A800"], 10), (["Tesla-T4", "NVIDIA-L4"], 10), ([], 10)):
        assert {parameters.settle(cluster, 1, {}, gpus).numbers["accuracy_mixed"] for cluster in ("c1", "c2")} == {allowed}
    assert parameters.settle("c1", 1, {"accuracy_mixed": 8}, ["Tesla-T4"]).numbers["accuracy_mixed"] == 8
