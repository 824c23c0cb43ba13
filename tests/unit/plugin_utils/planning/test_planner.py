# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From a real inventory, a real play and the roles of the collection to a plan: what is listed, what is refused and in which words, and
what a run that is resumed takes of it."""

from __future__ import annotations

import json
import typing as t

import pytest
import yaml
from ansible import context
from harness.records import measurement
from harness.sites import DISK, HOSTS, Site

RUN = "20260101T000000Z-0a1b2c"


def build(made: t.Any, *stages: t.Any) -> dict[str, t.Any]:
    return made.build(RUN, list(stages))[0]


def listed(plan: dict[str, t.Any], stage: str) -> list[tuple[str, str, str]]:
    return [(i["subject"]["id"], i["check"], i["variant"]) for i in plan["items"] if i["stage"] == stage]


def test_every_host_has_every_check_of_its_stages(site: Site) -> None:
    plan = build(site.planner(), "stack", DISK)
    assert listed(plan, "disk") == [(host, *check) for host in HOSTS for check in (("read", ""), ("write", "size=1G"))]
    assert {subject for subject, _check, _variant in listed(plan, "stack")} == set(HOSTS)
    assert [stage["name"] for stage in plan["stages"]] == ["stack", "disk"] and plan["run_id"] == RUN
    assert not plan["partial"] and plan["targets"] == {host: {"plane": "ssh"} for host in HOSTS}
    assert json.loads(site.of.planner.dump(plan)) == plan.as_dict()


def test_hosts_of_like_settings_share_them_and_a_secret_is_in_none(site: Site) -> None:
    hosts: dict[str, t.Any] = {"gpu-01": {}, "gpu-02": {"disk_size": "2G"}, "gpu-03": {}}
    plan = build(site.planner({"disk_key": "hunter2"}, hosts), DISK)
    sets, of = plan["settings"]["sets"], plan["settings"]["of"]
    assert of["gpu-01"] == of["gpu-03"] != of["gpu-02"] and sets[of["gpu-02"]]["disk_size"] == "2G"
    assert "hunter2" not in site.of.planner.dump(plan)


def test_what_was_left_out_makes_a_part(site: Site) -> None:
    plan = build(site.planner(limit="gpu-02", tags=["disk"]), "stack", DISK)
    assert plan["partial"] and plan["left_out"] == ["gpu-01", "gpu-03"] and plan["skipped_stages"] == ["stack"]
    assert {subject for subject, *_check in listed(plan, "disk")} == {"gpu-02"} and not listed(plan, "stack")


def test_nodes_that_the_console_did_not_choose_make_a_part(site: Site) -> None:
    plan = build(site.planner({"acceptance_left_out": ["gpu-09"]}, limit="gpu-02"), DISK)
    assert plan["partial"] and plan["left_out"] == ["gpu-01", "gpu-03", "gpu-09"]


def test_a_machine_is_looked_at_again_after_its_last_load(site: Site) -> None:
    plan = build(site.planner(), "host_health", DISK)
    assert [stage["name"] for stage in plan["stages"]] == ["stack", "host_health", "disk", "host_health_after"]
    again = [check for check in listed(plan, "host_health") if check[1] != "bandwidth"]
    assert listed(plan, "host_health_after") == again and len(again) == 6 * len(HOSTS)
    redfish = {"host_health_redfish_url": "https://bmc", "host_health_redfish_user": "x", "host_health_redfish_password": "y"}
    plan = build(site.planner({"host_health_tests": "bandwidth", **redfish}, hosts={"gpu-01": {}}), "host_health", DISK)
    assert [check for _host, check, _variant in listed(plan, "host_health_after")] == ["kernel", "redfish"]


@pytest.mark.parametrize(
    ("tags", "skip", "stages"),
    [
        (["disk"], [], ["disk"]),
        (["host_health"], [], ["stack", "host_health"]),
        (["host_health", "disk"], [], ["stack", "host_health", "disk", "host_health_after"]),
        ([], ["host_health"], ["disk"]),
        ([], ["host_health_after"], ["stack", "host_health", "disk"]),
        ([], ["disk"], ["stack", "host_health"]),
    ],
)
def test_the_second_look_by_tags(site: Site, tags: list[str], skip: list[str], stages: list[str]) -> None:
    plan = build(site.planner(tags=tags or ("all",), skip=skip), "host_health", DISK)
    assert [stage["name"] for stage in plan["stages"]] == stages


def test_a_second_look_needs_a_first_one(site: Site) -> None:
    for planner, wanted in (
        (site.planner(tags=["disk", "host_health_after"]), ["host_health", DISK]),
        (site.planner(), [DISK, "host_health_after"]),
        (site.planner(), ["stack", "host_health_after", DISK, "host_health"]),
    ):
        with pytest.raises(site.of.planner.PlanError, match="host_health_after: found no host_health before it"):
            build(planner, *wanted)


def test_no_load_is_behind_the_second_look(site: Site) -> None:
    for behind in (["train"], ["stack", "gemm", "train"]):
        loads = ", ".join(name for name in behind if name != "stack")
        with pytest.raises(site.of.planner.PlanError, match=f"stage host_health_after: found {loads} behind it, expected it behind all"):
            build(site.planner(), "host_health", DISK, "host_health_after", *behind)
    plan = build(site.planner(), "host_health", DISK, "host_health_after", "rdma_ports")
    assert [stage["name"] for stage in plan["stages"]][-2:] == ["host_health_after", "rdma_ports"], "this one looks only"


@pytest.mark.parametrize("second", [[], ["host_health_after"], [{"name": "host_health_after"}]])
def test_a_stage_by_name_brings_its_second_look_as_well(site: Site, second: list[t.Any]) -> None:
    plan = build(site.planner(), {"name": "host_health"}, DISK, *second)
    assert [stage["name"] for stage in plan["stages"]] == ["host_health", "disk", "host_health_after"]
    alone = {"name": "host_health", "role": "gpufleet.acceptance.host_health"}
    assert [stage["name"] for stage in build(site.planner(), alone, DISK)["stages"]] == ["host_health", "disk"]


def test_a_level_chooses_the_stages_that_nobody_named(site: Site) -> None:
    within = ["stack", "host_health", "gpu_memory", "nic_loopback", "nccl_node", "gemm", "train"]
    between = ["storage", "fabric_map", "rdma_ports", "rdma", "rdma_again", "nccl_fabric", "ddp", "fabric_map_after"]
    plans = {level: site.planner().build(RUN, None, level)[0] for level in ("quick", "standard", "full")}
    stages = {level: [stage["name"] for stage in plan.stages] for level, plan in plans.items()}
    assert stages["quick"] == ["stack", "nccl_node", "train"]
    assert [name for name in stages["full"] if name in within + between] == within + between
    assert [name for name in stages["full"] if name not in between] == stages["standard"]
    assert {level: plan.level for level, plan in plans.items()} == {level: level for level in plans}
    assert build(site.planner(), "stack").level == ""


def test_a_level_leaves_stages_between_nodes_out_of_a_run_of_one_node_and_says_so(site: Site) -> None:
    plan = site.planner(hosts={"gpu-01": {}}).build(RUN, None, "full")[0]
    stages = [stage["name"] for stage in plan.stages]
    assert "train" in stages and "rdma" not in stages
    left_out = "acceptance_level full: rdma, rdma_again, nccl_fabric, ddp measure between nodes"
    assert [note for note in plan.notes if note.startswith(left_out)]
    assert not plan.partial


def test_a_plan_names_its_inventory(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build(site.planner(), "stack")["inventory"] == "default"
    monkeypatch.setattr(context, "CLIARGS", {"inventory": ("inventories/cluster/", "/etc/lab.yml", "a,b,")})
    assert build(site.planner(), "stack")["inventory"] == "cluster,lab.yml,a,b"


def test_a_short_name_on_the_command_line_wins_over_the_inventory(site: Site) -> None:
    inventory = {
        "gpu_sharing_cases": ["MET-001"], "gpu_sharing_scale": 1.0, "gpu_sharing_profile": "strict", "gpu_sharing_cluster": "c1",
        "gpu_sharing_image": "x", "acceptance_plane": "kubernetes",
    }  # fmt: skip
    planner = site.planner(inventory, extra={"cases": "FUNC-001,MET-005", "scale": 0.5, "gpu_sharing_scale": 0.25})
    stages, _left_out = planner.stages(["gpu_sharing"])
    settled = next(iter(planner.settings(stages).values()))
    assert settled["gpu_sharing_cases"] == ["FUNC-001", "MET-005"]
    assert (settled["gpu_sharing_scale"], settled["gpu_sharing_profile"]) == (0.25, "strict")


def test_a_quick_test_measures_in_small_whatever_the_inventory_says_and_is_a_part(site: Site) -> None:
    planner = site.planner({"train_minutes": 90, "train_width": 4096, "train_timeout": 9000}, extra={"train_steps": 50})
    planner.quick = True
    plan = build(planner, "stack", "train")
    assert (plan["mode"], plan["partial"], plan["left_out"], plan["skipped_stages"]) == ("quick", True, [], [])
    assert plan["not_proven"] == [site.of.planner.registry.shipped()["train"].not_proven, "what works between nodes"]
    assert {check: variant for _node, check, variant in listed(plan, "train")} == {
        "compute": "mode=together shape=4096x4096x4096 type=bf16", "train": "mode=together steps=50",
    }  # fmt: skip
    (settings,) = plan["settings"]["sets"]
    assert (settings["train_width"], settings["train_minutes"], settings["train_timeout"]) == (1024, 0.0, 90.0)


def test_minutes_of_a_burn_in_need_a_deadline_that_lets_them_pass(site: Site) -> None:
    with pytest.raises(site.of.interface.PlanError, match="train_timeout: found 600, expected more than 900"):
        build(site.planner({"train_minutes": 10}), "train")
    with pytest.raises(site.of.interface.PlanError, match="train_steps: found 3"):
        build(site.planner({"train_steps": 3}), "train")
    plan = build(site.planner({"train_minutes": 10, "train_timeout": 1000, "train_gpus": 2}), "train")
    assert ("gpu-01", "burn_in", "gpus=2 minutes=10") in listed(plan, "train")


def test_a_sample_is_a_seeded_choice_that_is_written_down(site: Site) -> None:
    chosen = {"count": 2, "seed": 7}
    first, again = (build(site.planner({"disk_sample": chosen}), DISK) for _time in range(2))
    assert listed(first, "disk") == listed(again, "disk")
    assert first["sample"]["disk"] == {"seed": 7, "nodes": sorted({s for s, *_check in listed(first, "disk")}), "of": 3}


def test_a_stage_that_a_plane_cannot_run_is_left_out_of_it_with_a_note(site: Site) -> None:
    (site.folder / "job.yml").write_text(yaml.safe_dump({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"},
        "spec": {"template": {"spec": {"containers": [{"name": "x", "image": "lab/x:1"}], "restartPolicy": "Never"}}},
    }))  # fmt: skip
    plan = build(site.planner(), DISK, {"name": "burn", "manifest": str(site.folder / "job.yml")})
    assert not listed(plan, "burn") and any("stage burn: not for gpu-01: a manifest" in note for note in plan["notes"])


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ([], "acceptance_stages: found [], expected a list of stages"),
        ("stack", "acceptance_stages: found 'stack', expected a list of stages"),
        (["disc"], "acceptance_stages[0]: unknown stage 'disc'; expected one of dcgm, ddp, fabric_map"),
        (["stack", "stack"], "acceptance_stages[1]: stage 'stack' is listed twice"),
        ([{"name": "Disk", "role": "disk"}], "found stage name 'Disk', expected lower-case letters"),
        ([{"name": "disk", "role": "nowhere"}], "acceptance_stages[0]: role 'nowhere' of stage 'disk' cannot be loaded"),
        ([{"name": "other", "role": "disk"}], "role 'disk' of stage 'other' has no other_checks in its defaults"),
    ],
)
def test_stages_that_cannot_be_planned(site: Site, stages: t.Any, words: str) -> None:
    with pytest.raises(site.of.interface.PlanError) as refusal:
        site.planner().build(RUN, stages)
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"acceptance_gpu_cuont": 8}, "unknown variable acceptance_gpu_cuont; did you mean acceptance_gpu_count"),
        ({"disk_sise": "1G"}, "unknown variable disk_sise of stage disk; did you mean disk_size"),
        ({"acceptance_gpu_count": "eight"}, "acceptance_gpu_count: found 'eight', expected a whole number"),
        ({"disk_checks": []}, "disk_checks: found [], expected a list of checks that is not empty"),
        ({"disk_checks": [{"check": "a"}, {"check": "a"}]}, "disk_checks: check 'a' is listed twice"),
        ({"disk_checks": ["a"]}, "disk_checks: found 'a', expected {check: NAME, variant: TEXT}"),
        ({"disk_size": "{{ nowhere }}"}, "disk_size: 'nowhere' is undefined"),
        ({"disk_sample": {"count": 0}}, "disk_sample: found {'count': 0}, expected at least one node"),
        ({"disk_sample": {"count": 1, "percent": 5}}, "disk_sample: found "),
        ({"acceptance_kube_image": "x"}, "acceptance_kube_image has no effect on plane ssh"),
        ({"acceptance_plane": "pbs"}, "acceptance_plane"),
        ({"acceptance_lock_wait": -1}, "gpu-01: acceptance_lock_wait: found -1, expected at least 0"),
        ({"acceptance_fabric_network": "10.1.30.0/33"}, "gpu-01: acceptance_fabric_network: found '10.1.30.0/33', expected a network with"),
        (
            {"acceptance_fabric_network": "10.1.30.0/24", "acceptance_fabric_address": "10.2.0.1"},
            "acceptance_fabric_network: no host has an address in 10.1.30.0/24; acceptance_fabric_address says gpu-01 10.2.0.1",
        ),
        ({"ansible_host": "192.0.2.1"}, "ansible_host: gpu-01 and gpu-02 are the same machine, 192.0.2.1; expected one name for each"),
        ({"ansible_host": "gpu-{{ 3 }}.lab"}, "gpu-01 and gpu-02 are the same machine, gpu-3.lab"),
        ({"acceptance_plane": "kubernetes"}, "gpu-01: acceptance_kube_image is not set; expected the image that has the tools under test"),
        (
            {"acceptance_plane": "kubernetes", "acceptance_kube_image": "x", "acceptance_kube_resources": {"limits": {"memroy": 1}}},
            "gpu-01: acceptance_kube_resources: limits: found key 'memroy', expected cpu, memory, ephemeral-storage",
        ),
    ],
)
def test_settings_that_cannot_be_planned_name_host_and_variable(site: Site, variables: dict[str, t.Any], words: str) -> None:
    with pytest.raises(site.of.interface.RunError) as refusal:
        build(site.planner(variables), DISK)
    assert words in str(refusal.value) and "Traceback" not in str(refusal.value)


@pytest.mark.parametrize(
    "hosts",
    [
        {"gpu-01": {"ansible_host": "192.0.2.1"}, "gpu-02": {"ansible_host": "192.0.2.1", "ansible_port": 2222}},
        {"gpu-01": {"ansible_host": "192.0.2.1"}, "gpu-02": {"ansible_host": "192.0.2.1", "ansible_ssh_common_args": "-J jump"}},
        {"gpu-01": {"ansible_connection": "local", "ansible_host": "x"}, "gpu-02": {"ansible_connection": "local", "ansible_host": "x"}},
        {"gpu-01": {"ansible_host": "{{ inventory_hostname }}.lab"}, "gpu-02": {"ansible_host": "{{ inventory_hostname }}.lab"}},
    ],
)
def test_machines_that_only_look_the_same_are_planned(site: Site, hosts: dict[str, t.Any]) -> None:
    assert {subject for subject, *_check in listed(build(site.planner(hosts=hosts), DISK), "disk")} == set(hosts)


def test_one_machine_by_its_own_name_and_by_another_is_refused(site: Site) -> None:
    with pytest.raises(site.of.interface.RunError, match="gpu-01 and other are the same machine, GPU-01"):
        build(site.planner(hosts={"gpu-01": {}, "other": {"ansible_host": "GPU-01"}}), DISK)


def test_a_network_that_holds_some_host_is_planned(site: Site) -> None:
    hosts = {"gpu-01": {"acceptance_fabric_address": "10.1.30.1"}, "gpu-02": {"acceptance_fabric_address": "10.2.0.2"}}
    for network in ("10.1.30.0/24", "10.1.30.7/24"):
        build(site.planner({"acceptance_fabric_network": network}, hosts), DISK)
    build(site.planner({"acceptance_fabric_network": "10.9.0.0/16", "acceptance_fabric_address": "ib0.lab"}), DISK)
    build(site.planner({"acceptance_fabric_network": "10.9.0.0/16"}), DISK)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("acceptence_gpu_count", "acceptance_gpu_count"),
        ("dsik_size", "disk_size"),
        ("disks_size", "disk_size"),
        ("rdma_ports_network", ""),
        ("disk_size", ""),
        ("rack_size", ""),
        ("size", ""),
    ],
)
def test_a_variable_that_only_begins_wrong_is_named_in_a_note(site: Site, name: str, meant: str) -> None:
    plan = build(site.planner({name: "1G"}), DISK)
    assert plan["notes"] == ([f"gpu-01: {name} is no variable of this collection; did you mean {meant}?"] if meant else [])


def test_tags_that_leave_nothing_are_refused(site: Site) -> None:
    with pytest.raises(site.of.interface.PlanError, match=r"--tags gemm; the stages are stack; others are brought by acceptance_stages"):
        build(site.planner(tags=["gemm"]), "stack")


def test_a_variable_that_a_run_makes_itself_is_nobodys_to_give(site: Site) -> None:
    with pytest.raises(site.of.interface.PlanError, match="acceptance_judgement: found a value of yours"):
        build(site.planner(extra={"acceptance_judgement": {"accepted": True}}), DISK)


# A run that is resumed -------------------------------------------------------------------------------------------


def test_what_is_left_is_done_as_the_next_attempt(site: Site) -> None:
    plan, stages, _settings = site.planner().build(RUN, [DISK])
    done = [
        {**{k: i[k] for k in ("stage", "check", "variant", "subject")}, "outcome": outcome, "attempt": 1}
        for i, outcome in zip(plan["items"], ["measured", "error", "measured", "measured", "timeout"], strict=False)
    ]
    left = site.of.todo.remaining(plan, list(map(measurement, done)), [stage.stage for stage in stages])
    assert {host: [(i["check"], i["attempt"]) for i in of["disk"]] for host, of in left.items()} == {
        "gpu-01": [("write", 2)],
        "gpu-03": [("read", 2), ("write", 1)],
    }


def test_a_resume_goes_on_with_what_the_run_was_begun_with_and_says_what_differs(site: Site) -> None:
    plan = build(site.planner({"disk_size": "1G"}), DISK)
    today = site.planner({"disk_size": "4G"})
    stages, _skipped = today.stages(plan["stages"])
    found, notes = site.of.kept.settings(plan, today, stages)
    assert {values["disk_size"] for values in found.values()} == {"1G"}
    assert notes == ['gpu-01, gpu-02, gpu-03: disk_size is "4G" in today\'s inventory, this run goes on with "1G"']


def test_a_resume_waits_for_what_was_left_to_a_cluster_unless_it_is_told_not_to(site: Site) -> None:
    plan = build(site.planner(), DISK)
    for one in plan["settings"]["sets"]:
        one["acceptance_detach"] = True
    for given, detached in (({}, False), ({"acceptance_detach": True}, True), ({"disk_sise": "1G"}, False)):
        today = site.planner(given)
        stages, _skipped = today.stages(plan["stages"])
        found, notes = site.of.kept.settings(plan, today, stages)
        assert {values["acceptance_detach"] for values in found.values()} == {detached}, given
        assert not any("acceptance_detach" in note for note in notes)


def test_a_resume_passes_over_an_inventory_that_cannot_be_planned_today(site: Site) -> None:
    plan = build(site.planner(), DISK)
    today = site.planner({"disk_sise": "1G"})
    stages, _skipped = today.stages(plan["stages"])
    found, (note,) = site.of.kept.settings(plan, today, stages)
    assert set(found) == set(HOSTS) and "passed over: gpu-01: unknown variable disk_sise" in note


def test_one_python_is_that_of_all_stages_unless_a_stage_has_its_own(site: Site) -> None:
    made = site.planner({"acceptance_python": "/opt/torch/bin/python3", "train_python": "/opt/other/bin/python3"})
    _plan, _stages, settings = made.build(RUN, ["stack", "gpu_memory", "gemm", "train", "soak", "nccl_fabric", "ddp"])
    own = {name: value for name, value in settings["gpu-01"].items() if name.endswith("_python") and not name.startswith("acceptance_")}
    assert own.pop("train_python") == "/opt/other/bin/python3"
    assert set(own) == {f"{name}_python" for name in ("stack", "gpu_memory", "gemm", "soak", "nccl_fabric", "ddp")}
    assert set(own.values()) == {"/opt/torch/bin/python3"}
    _plan, _stages, settings = site.planner().build(RUN, ["gemm"])
    assert settings["gpu-01"]["gemm_python"] == ""


@pytest.mark.parametrize(("minutes", "takes"), [(0, "about 40 s"), (10, "about 11 min"), (0.5, "about 80 s")])
def test_the_time_of_a_stage_has_its_burn_in(site: Site, minutes: float, takes: str) -> None:
    plan = build(site.planner({"train_minutes": minutes, "train_timeout": 1200}), "train")
    lines = site.of.estimate.summary(plan, {}, "run")
    assert any("train: 3 nodes" in line and takes in line for line in lines), lines


def test_the_total_counts_stages_between_nodes(site: Site) -> None:
    def lines(*stages: str) -> list[str]:
        plan = build(site.planner({"acceptance_fabric_address": "10.0.0.1"}), *stages)
        return t.cast("list[str]", site.of.estimate.summary(plan, {}, "run"))

    assert any("nccl_fabric: 3 nodes and 1 group, about 60 s" in line for line in lines("nccl_fabric")), lines("nccl_fabric")
    assert any("in all where nothing hangs" in line for line in lines("nccl_fabric"))
    assert any("  rdma: " in line and ", about " in line for line in lines("rdma_ports", "rdma")), lines("rdma_ports", "rdma")
