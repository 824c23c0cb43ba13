# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a request may say, and what of it reaches a run."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import typing as t

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import allowed, commands, request
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.spec import Schedule
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry

KNOWN = {"gpu-01": {"pool": "a"}, "gpu-02": {"pool": "a"}, "gpu-03.lab": {"pool": "b"}}
CLUSTER = request.Limits(plane="kubernetes", nodes=KNOWN, images=("registry.example.com/tester:1.0",))
HOSTS = request.Limits(plane="ssh", nodes=KNOWN)
PAIR = {"nodes": ["gpu-01", "gpu-02"]}
TEMPLATE = "{{ lookup('pipe', 'id') }}"


def problems(spec: t.Any, limits: request.Limits = CLUSTER, namespace: str = "") -> list[request.Problem]:
    with pytest.raises(request.RequestError) as caught:
        request.read(spec, limits, namespace)
    assert 0 < len(caught.value.problems) <= request.MOST_PROBLEMS
    for problem in caught.value.problems:
        text = str(problem)
        assert text.isprintable() and len(text) < 4000, "it is shown as it is, wherever"
    return caught.value.problems


def fields(spec: t.Any, limits: request.Limits = CLUSTER) -> list[str]:
    return [problem.field for problem in problems(spec, limits)]


# What is measured ----------------------------------------------------------------------------------------------------


def test_rdma_between_two_nodes() -> None:
    asked = request.read({"rdma": {**PAIR, "device": "mlx5_1", "port": 1, "operation": "write"}}, CLUSTER)
    assert asked.variables() == {
        "acceptance_stages": ["rdma"],
        "acceptance_nodes": {"names": ["gpu-01", "gpu-02"], "expected": ["gpu-01", "gpu-02"]},
        "rdma_tests": ["write_bw"],
        "rdma_scope": "all_pairs",
        "rdma_ports_devices": ["mlx5_1"],
        "rdma_ports_port": 1,
    }
    words = "ib_write_bw -d mlx5_1 -i 1 -s 65536 -n 500000 -q 8 --noPeak --report_gbits PEER"
    assert asked.command_shown() == words.split()
    assert asked.estimate() > 10 and not asked.devices


def test_latency_on_hosts_of_an_inventory() -> None:
    asked = request.read({"rdma": {**PAIR, "operation": "send", "measure": "latency", "scope": "ring"}}, HOSTS)
    told = asked.variables()
    assert told["acceptance_hosts"] == "gpu-01,gpu-02" and "acceptance_nodes" not in told
    assert told["rdma_tests"] == ["send_lat"] and told["rdma_scope"] == "ring"
    assert asked.command_shown()[:5] == ["ib_send_lat", "-d", "DEVICE", "-i", "PORT"]


def test_nodes_that_a_request_does_not_choose_are_left_out_of_its_run() -> None:
    asked = request.read({"rdma": {**PAIR, "operation": "send", "measure": "latency", "scope": "ring"}}, HOSTS)
    assert "acceptance_left_out" not in asked.on(asked.nodes, asked.nodes).variables()
    assert asked.on(asked.nodes, [*asked.nodes, "gpu-09", "gpu-08"]).variables()["acceptance_left_out"] == ["gpu-08", "gpu-09"]


def test_a_collective_over_a_pool_has_its_nodes_when_they_are_known() -> None:
    asked = request.read({"collective": {"pool": {"matchLabels": {"pool": "a"}}, "gpusPerNode": 8, "sizes": ["32M:8G"]}}, CLUSTER)
    with pytest.raises(ValueError, match="before its nodes are known"):
        asked.variables()
    asked = asked.on(asked.chosen(KNOWN))
    told = asked.variables()
    assert told["acceptance_nodes"]["names"] == ["gpu-01", "gpu-02"]
    assert told["acceptance_stages"] == ["stack", "nccl_fabric"] and told["nccl_fabric_gpus"] == ["8"]
    words = "mpirun -np 16 --hostfile HOSTS all_reduce_perf -b 32M -e 8G -f 2 -g 1 -n 20 -w 5"
    assert asked.command_shown() == words.split()
    assert asked.devices


@pytest.mark.parametrize(
    ("library", "alone", "together"), [("NCCL", ["nccl_node"], ["stack", "nccl_fabric"]), ("HCCL", ["hccl_local"], ["hccl"])]
)
def test_one_node_is_measured_by_itself(library: str, alone: list[str], together: list[str]) -> None:
    one = request.read({"collective": {"nodes": ["gpu-01"], "library": library, "operation": "all_gather"}}, CLUSTER)
    two = request.read({"collective": {**PAIR, "library": library}}, CLUSTER)
    assert one.variables()["acceptance_stages"] == alone and one.variables()[f"{alone[-1]}_ops"] == ["all_gather"]
    assert two.variables()["acceptance_stages"] == together
    assert one.command_shown() and two.command_shown()[0] == "mpirun"


def test_stages_with_variables_of_the_list() -> None:
    given = {"nccl_node_iterations": "50", "nccl_node_ops": "all_reduce, all_gather", "stack_cuda": "false", "gemm_seconds": 2.5}
    asked = request.read({"stages": {**PAIR, "names": ["stack", "nccl_node", "gemm"], "variables": given}}, CLUSTER)
    told = asked.variables()
    assert told["nccl_node_iterations"] == 50 and told["nccl_node_ops"] == ["all_reduce", "all_gather"]
    assert told["stack_cuda"] is False and told["acceptance_stages"] == ["stack", "nccl_node", "gemm"]


def test_a_stage_has_the_variables_of_those_that_it_brings() -> None:
    asked = request.read({"stages": {**PAIR, "names": ["rdma"], "variables": {"rdma_ports_devices": ["mlx5_0", "mlx5_1"]}}}, CLUSTER)
    assert asked.variables()["rdma_ports_devices"] == ["mlx5_0", "mlx5_1"]
    assert fields({"stages": {**PAIR, "names": ["stack"], "variables": {"rdma_size": 1}}}) == ["stages.variables[rdma_size]"]


def test_a_variable_of_a_stage_that_is_not_chosen_is_answered_with_that_stage() -> None:
    with pytest.raises(request.RequestError) as refused:
        request.read({"stages": {**PAIR, "names": ["stack"], "variables": {"gemm_seconds": "5"}}}, CLUSTER)
    assert [problem.expected for problem in refused.value.problems] == ["the stage gemm among the chosen ones"]


def test_the_variables_of_the_list_are_there_and_carry_no_program() -> None:
    # What confirms or looks again comes with the stage before it, the cases of GPU sharing need a cluster that is prepared, and
    # storage writes to file systems that the inventory names.
    never = {"rdma_again", "host_health_after", "fabric_map_after", "gpu_sharing", "storage", "storage_together"}
    assert set(allowed.STAGES) == set(registry.shipped()) - never
    for name in allowed.VARIABLES:
        stage = allowed.stage_of(name)
        spec = allowed.role(stage)[0][name]
        assert spec.get("type") in ("int", "float", "bool", "str", "list"), name
        words = {"env", "args", "dir", "python", "mpirun", "ssh", "kube", "root", "path", "file"}
        assert spec["type"] != "path" and not words & set(name.split("_"))


def test_the_preview_has_every_operation_and_range_of_sizes_and_the_products() -> None:
    asked = request.read({"collective": {"nodes": ["gpu-01"], "operation": "all_reduce", "sizes": ["8M:64M", "1G:1G"]}}, CLUSTER)
    assert [command[command.index("-b") + 1] for command in asked.commands_shown().commands] == ["8M", "1G"]
    variables = {"gemm_types": "bf16,fp16", "gemm_modes": "alone", "nccl_node_ops": "all_reduce,broadcast"}
    asked = request.read({"stages": {"nodes": ["gpu-01"], "names": ["nccl_node", "gemm"], "variables": variables}}, CLUSTER)
    (reduce, broadcast, products), more, without = asked.commands_shown()
    assert (more, without) == (0, [])
    assert (reduce[0], broadcast[0], products[:2]) == ("all_reduce_perf", "broadcast_perf", ["python3", "-"])
    checks = json.loads(products[2].strip("'"))["checks"]
    assert checks == [{"dtype": dtype, "mode": "alone", "shape": [8192, 8192, 8192]} for dtype in ("bf16", "fp16")]


def test_the_preview_has_each_stage_with_all_its_commands_or_by_name() -> None:
    names = ["stack", "host_health", "gpu_memory", "nccl_node", "gemm"]
    variables = {"nccl_node_ops": "all_reduce,broadcast", "nccl_node_types": "float,half"}
    shown = request.read({"stages": {"nodes": ["gpu-01"], "names": names, "variables": variables}}, CLUSTER).commands_shown()
    assert [command[0] for command in shown.commands] == ["all_reduce_perf"] * 2 + ["broadcast_perf"] * 2 + ["python3"]
    assert shown.without == ["stack", "host_health", "gpu_memory"] and not shown.more
    tests = {"rdma_tests": "write_bw,send_bw,read_lat"}
    shown = request.read({"stages": {**PAIR, "names": ["rdma"], "variables": tests}}, CLUSTER).commands_shown()
    assert [command[0] for command in shown.commands] == ["ib_write_bw", "ib_send_bw", "ib_read_lat"]
    many = {"nccl_node_ops": "all_reduce,broadcast,all_gather", "nccl_node_sizes": ",".join(f"{2**n}M:1G" for n in range(8))}
    shown = request.read({"stages": {"nodes": ["gpu-01"], "names": ["nccl_node"], "variables": many}}, CLUSTER).commands_shown()
    assert (len(shown.commands), shown.more) == (commands.MOST_COMMANDS, 24 - commands.MOST_COMMANDS)


def test_a_soak_is_asked_for_with_its_hours_and_for_no_longer_than_a_day() -> None:
    asked = request.read({"stages": {**PAIR, "names": ["soak"], "variables": {"soak_hours": "0.5"}}}, CLUSTER)
    assert asked.variables()["soak_hours"] == 0.5 and asked.estimate() >= 1800
    for variables in ({}, {"soak_hours": "0"}, {"soak_hours": 25}):
        with pytest.raises(request.RequestError) as refused:
            request.read({"stages": {**PAIR, "names": ["soak"], "variables": variables}}, CLUSTER)
        assert [(one.field, one.expected) for one in refused.value.problems] == [("stages.variables[soak_hours]", allowed.HOURS)]


def test_a_schedule_and_a_time_to_live_are_read() -> None:
    asked = request.read(
        {"stages": {**PAIR, "names": ["stack"]}, "suspend": True, "ttlSecondsAfterFinished": 60,
         "schedule": {"cron": "0 3 * * 6", "timeZone": "Asia/Shanghai"}, "image": "registry.example.com/tester:1.0"},
        CLUSTER,
    )  # fmt: skip
    assert asked.suspend and not asked.cancel and asked.ttl == 60
    assert asked.schedule == Schedule("0 3 * * 6", "Asia/Shanghai")
    assert asked.variables()["acceptance_kube_image"] == "registry.example.com/tester:1.0"


# What is refused, and where it says so -------------------------------------------------------------------------------

HOSTILE_NAMES = (
    TEMPLATE, "{% for x in y %}", "all", "gpu-*", "~gpu.*", "!gpu-01", "&all", "@/etc/passwd", "gpu-01:gpu-02", "gpu-01,gpu-02",
    "gpu-[1:9]", "-e", "--limit=all", "../../etc/passwd", "gpu-01/../..", "", " ", "gpu-01\n", "gpu-01\nall", "gpu\x00", "gpu-\uff10\uff11",
    "gpu-01\u202e", "💥", "a" * 300, "gpu-04", None, 7, True, ["gpu-01"], {"gpu-01": 1}, "$(id)", "`id`", "gpu-01;id", "%2e%2e", "\ud800",
)  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
@pytest.mark.parametrize("limits", [CLUSTER, HOSTS, request.Limits(plane="kubernetes")], ids=["cluster", "hosts", "unknown"])
def test_a_name_is_a_name_or_refused(name: t.Any, limits: request.Limits) -> None:
    spec = {"rdma": {"nodes": ["gpu-01", name]}}
    if limits.nodes is None and name in ("all", "gpu-04"):  # of a cluster these are names like any other
        assert request.read(spec, limits).variables()["acceptance_nodes"]["names"] == ["gpu-01", name]
        return
    found = problems(spec, limits)
    assert [problem.field for problem in found] == ["rdma.nodes[1]"]


@pytest.mark.parametrize("value", ["mlx5_0 -p 1", "-d", "../mlx5", TEMPLATE, "mlx5_0\n", "*", "", 5, "m" * 64, "mlx5_0;id"], ids=ascii)
def test_a_device_that_is_no_plain_name_is_refused(value: t.Any) -> None:
    assert fields({"rdma": {**PAIR, "device": value}}) == ["rdma.device"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"port": 0}, "rdma.port"),
        ({"port": 256}, "rdma.port"),
        ({"port": "1"}, "rdma.port"),
        ({"port": True}, "rdma.port"),
        ({"operation": "atomic"}, "rdma.operation"),
        ({"operation": "READ"}, "rdma.operation"),
        ({"measure": "both"}, "rdma.measure"),
        ({"scope": "pairs"}, "rdma.scope"),
        ({"nodes": ["gpu-01"]}, "rdma.nodes"),
        ({"nodes": ["gpu-01", "gpu-01"]}, "rdma.nodes[1]"),
        ({"nodes": []}, "rdma.nodes"),
        ({"nodes": "gpu-01,gpu-02"}, "rdma.nodes"),
        ({"pool": {"matchLabels": {}}}, "rdma.nodes"),
        ({"extra_args": ["--use_cuda=0"]}, "rdma.extra_args"),
        ({"rdma_binary_dir": "/tmp"}, "rdma.rdma_binary_dir"),
    ],
)
def test_what_is_wrong_with_rdma_is_said_at_the_field(change: dict[str, t.Any], field: str) -> None:
    assert fields({"rdma": {**PAIR, **change}}) == [field]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"operation": "../../bin/sh"}, "collective.operation"),
        ({"operation": "all_gatherv"}, "collective.operation"),  # HCCL's
        ({"operation": ["all_reduce"]}, "collective.operation"),
        ({"library": "RCCL"}, "collective.library"),
        ({"library": ["NCCL"]}, "collective.library"),
        ({"gpusPerNode": 0}, "collective.gpusPerNode"),
        ({"gpusPerNode": "8"}, "collective.gpusPerNode"),
        ({"sizes": "8M:1G"}, "collective.sizes"),
        ({"sizes": []}, "collective.sizes"),
        ({"sizes": ["8M:1G", "1G:8M"]}, "collective.sizes[1]"),
        ({"sizes": ["8M:1G -c 0"]}, "collective.sizes[0]"),
        ({"sizes": ["-b:1G"]}, "collective.sizes[0]"),
        ({"sizes": [8]}, "collective.sizes[0]"),
    ],
)
def test_what_is_wrong_with_a_collective_is_said_at_the_field(change: dict[str, t.Any], field: str) -> None:
    assert fields({"collective": {**PAIR, **change}}) == [field]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nccl_node_extra_args", ["-c", "0"]),
        ("nccl_node_env", {"LD_PRELOAD": "/tmp/x.so"}),
        ("nccl_node_binary_dir", "/tmp"),
        ("acceptance_kube_image", "evil"),
        ("acceptance_results_dir", "/etc"),
        ("ansible_connection", "local"),
        ("ansible_host", "198.51.100.1"),
        ("acceptance_judgement", {"accepted": True}),
        ("acceptance_expectations", []),
        ("nccl_node_ops", ["../../bin/sh"]),
        ("nccl_node_ops", [TEMPLATE]),
        ("nccl_node_types", ["-c"]),
        ("nccl_node_types", []),
        ("nccl_node_types", ["float"] * 65),
        ("nccl_node_iterations", -1),
        ("nccl_node_iterations", 1.5),
        ("nccl_node_iterations", "1e9"),
        ("nccl_node_iterations", float("inf")),
        ("nccl_node_iterations", True),
        ("nccl_node_iterations", 10**30),
        ("nccl_node_iterations", "٣"),
        ("nccl_node_timeout", 10**6),
        (TEMPLATE, 1),
        (7, 1),
    ],
    ids=ascii,
)
def test_a_variable_that_is_not_on_the_list_or_no_plain_value(name: t.Any, value: t.Any) -> None:
    found = fields({"stages": {**PAIR, "names": ["nccl_node"], "variables": {name: value}}})
    assert len(found) == 1 and found[0].startswith("stages.variables[")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (None, "spec"),
        ([], "spec"),
        ("rdma", "spec"),
        ({}, "spec"),
        ({"rdma": PAIR, "collective": PAIR}, "spec"),
        ({"rdma": []}, "rdma"),
        ({"rdma": PAIR, "extra_vars": {}}, "extra_vars"),
        ({"rdma": PAIR, "namespace": "kube-system"}, "namespace"),
        ({"rdma": PAIR, TEMPLATE: 1}, "{{ lookup('pipe', 'id') }}"),
        ({"rdma": PAIR, 7: 1}, "7"),
        ({"rdma": {**PAIR, 7: 1}}, "rdma.7"),
        ({"rdma": PAIR, "image": "evil:1"}, "image"),
        ({"rdma": PAIR, "image": ["registry.example.com/tester:1.0"]}, "image"),
        ({"rdma": PAIR, "suspend": "yes"}, "suspend"),
        ({"rdma": PAIR, "cancel": 1}, "cancel"),
        ({"rdma": PAIR, "ttlSecondsAfterFinished": -1}, "ttlSecondsAfterFinished"),
        ({"rdma": PAIR, "schedule": "0 3 * * *"}, "schedule"),
        ({"rdma": PAIR, "schedule": {}}, "schedule.cron"),
        ({"rdma": PAIR, "schedule": {"cron": "@reboot"}}, "schedule.cron"),
        ({"rdma": PAIR, "schedule": {"cron": "0 3 * * * *"}}, "schedule.cron"),
        ({"rdma": PAIR, "schedule": {"cron": "0 3 * * 6", "timeZone": "../../etc/passwd"}}, "schedule.timeZone"),
        ({"rdma": PAIR, "schedule": {"cron": "0 3 * * 6", "timeZone": "Mars/Olympus"}}, "schedule.timeZone"),
        ({"rdma": PAIR, "schedule": {"cron": "0 3 * * 6", "acceptedHistoryLimit": 1000}}, "schedule.acceptedHistoryLimit"),
        ({"stages": {**PAIR}}, "stages.names"),
        ({"stages": {**PAIR, "names": ["common"]}}, "stages.names[0]"),
        ({"stages": {**PAIR, "names": [{"name": "x", "role": "evil"}]}}, "stages.names[0]"),
        ({"stages": {**PAIR, "names": ["stack", "stack"]}}, "stages.names[1]"),
        ({"stages": {**PAIR, "names": ["stack"], "variables": []}}, "stages.variables"),
        ({"stages": {"pool": {"matchLabels": {"pool": "c"}}, "names": ["stack"]}}, "stages.pool.matchLabels"),
        ({"stages": {"pool": {"matchLabels": {"a b": "c"}}, "names": ["stack"]}}, "stages.pool.matchLabels"),
        ({"stages": {"pool": {"matchLabels": {"pool": TEMPLATE}}, "names": ["stack"]}}, "stages.pool.matchLabels[pool]"),
        ({"stages": {"pool": {"matchExpressions": []}, "names": ["stack"]}}, "stages.pool.matchExpressions"),
    ],
    ids=ascii,
)
def test_a_wrong_field_of_a_request_is_named(spec: t.Any, field: str) -> None:
    assert field in fields(spec)


def test_all_wrong_fields_are_named_at_once_with_what_was_expected() -> None:
    wrong = {
        "rdma": {"nodes": ["gpu-01", "x y", "gpu-9"], "device": "-", "port": 0, "operation": "o", "extra": 1},
        "ttlSecondsAfterFinished": -1, "schedule": {"cron": "x", "timeZone": "y"}, "suspend": "no", "image": "i",
    }  # fmt: skip
    assert [str(problem) for problem in problems(wrong)] == [
        "rdma.extra: found an unknown field, expected any of nodes, pool, device, port, operation, measure, scope",
        "rdma.nodes[1]: found 'x y', expected the name of a node",
        "rdma.device: found '-', expected the name of an RDMA device, like mlx5_0",
        "rdma.port: found 0, expected a whole number from 1 to 255",
        "rdma.operation: found 'o', expected one of read, write, send",
        "suspend: found 'no', expected true or false",
        "ttlSecondsAfterFinished: found -1, expected a whole number from 0 to 315360000",
        "schedule.cron: found 'x', expected minute, hour, day, month and weekday, like 0 3 * * 6",
        "image: found 'i', expected one of registry.example.com/tester:1.0",
        "schedule.timeZone: found 'y', expected a time zone of the IANA's, like Asia/Shanghai",
        "rdma.nodes[2]: found 'gpu-9', expected a node that is there",
    ]


def test_a_long_list_of_wrong_values_hides_no_other_field() -> None:
    wrong = {"rdma": {"nodes": [f"x {n}" for n in range(100)], "device": "-"}, **{f"y{n}": n for n in range(100)}, "image": "Röck"}
    found = fields(wrong)
    assert {"rdma.device", "image", "y0"} < set(found) and sum(name.startswith("rdma.nodes") for name in found) == request.MOST_OF_FIELD
    assert [problem.found for problem in problems(wrong) if problem.field == "image"] == ["'Röck'"]


def test_a_schedule_that_is_never_due_is_wrong_like_any_other_field() -> None:
    assert fields({"rdma": {**PAIR, "device": "-"}, "schedule": {"cron": "0 0 31 2 *"}}) == ["rdma.device", "schedule.cron"]


def test_a_request_in_a_foreign_namespace_is_refused() -> None:
    limits = request.Limits(plane="kubernetes", nodes=KNOWN, namespaces=("acceptance",))
    assert request.read({"rdma": PAIR}, limits, "acceptance")
    assert [p.field for p in problems({"rdma": PAIR}, limits, "kube-system")] == ["metadata.namespace"]


@pytest.mark.parametrize(
    "spec",
    [
        {"rdma": {"nodes": ["x" * 1_000_000, "gpu-01"]}},
        {"rdma": {"nodes": [f"gpu-{n}" for n in range(100_000)]}},
        {"rdma": PAIR, **{f"field{n}": n for n in range(50_000)}},
        {"stages": {**PAIR, "names": ["stack"], "variables": {f"stack_{n}": n for n in range(50_000)}}},
        {"stages": {**PAIR, "names": ["stack"] * 200_000}},
        {"collective": {**PAIR, "sizes": ["8M:1G"] * 100_000}},
        {"collective": {**PAIR, "sizes": ["9" * 1_000_000]}},
        {"stages": {"pool": {"matchLabels": {f"a{n}": "" for n in range(50_000)}}, "names": ["stack"]}},
        {"rdma": PAIR, "image": "i" * 1_000_000},
        {"rdma": PAIR, "schedule": {"cron": "*" * 1_000_000}},
    ],
    ids=["name", "nodes", "fields", "variables", "names", "sizes", "size", "labels", "image", "cron"],
)
def test_a_megabyte_is_refused_with_few_words(spec: dict[str, t.Any]) -> None:
    assert len(json.dumps(spec)) > 500_000
    assert len("".join(map(str, problems(spec)))) < 50_000


def test_hosts_of_an_inventory_must_be_known() -> None:
    with pytest.raises(ValueError, match="groups"):
        request.Limits(plane="ssh")


# What reaches Ansible ------------------------------------------------------------------------------------------------


def test_the_command_is_a_list_that_names_a_file() -> None:
    asked = request.read({"rdma": PAIR}, CLUSTER)
    words = ["ansible-playbook", "gpufleet.acceptance.acceptance", "--inventory", "/x/inventory.yml", "--extra-vars", "@/x/variables.yml"]
    assert asked.argv("/x/inventory.yml", "/x/variables.yml") == words
    assert asked.argv("i", "v", resume=True)[1] == "gpufleet.acceptance.resume"


def test_a_template_is_never_evaluated(tmp_path: pathlib.Path) -> None:
    """Even where a name were let through: Ansible is told that it is data. The same text from a file of its own would be run."""
    hostile = f"{{{{ lookup('pipe', 'touch {tmp_path}/evaluated') }}}}"
    texts = [hostile, "a\nb", "{% raw %}", "!unsafe x", "\u202eé💥", "- x: y", "null", "1e3", "007", "true", "~"]
    (tmp_path / "variables.yml").write_text(request.written({"given": {"names": texts}, "one": hostile, "count": 3}), encoding="utf-8")
    play = [
        {
            "hosts": "localhost",
            "gather_facts": False,
            "tasks": [{"ansible.builtin.copy": {"content": "{{ [given, one, count] | to_json }}", "dest": str(tmp_path / "seen.json")}}],
        }
    ]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play), encoding="utf-8")
    program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
    words = [program, "play.yml", "-i", "localhost,", "-c", "local", "-e", "@variables.yml"]
    words += ["-e", f"ansible_python_interpreter={sys.executable}"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "seen.json").read_text(encoding="utf-8")) == [{"names": texts}, hostile, 3]
    assert not (tmp_path / "evaluated").exists()


def test_the_command_of_a_stage_names_the_python_of_all_stages() -> None:
    assert commands.shown(["gemm"], {}, ["gpu-01"])[0] == "python3"
    assert commands.shown(["gemm"], {"acceptance_python": "/opt/torch/bin/python3"}, ["gpu-01"])[0] == "/opt/torch/bin/python3"
    assert commands.shown(["gemm"], {"acceptance_python": "/a", "gemm_python": "/b"}, ["gpu-01"])[0] == "/b"
