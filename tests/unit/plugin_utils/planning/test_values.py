# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values as users write them in YAML, read by Ansible itself: each reaches the files of the run as data, or is refused with its variable.
All examples of the documentation and of the shipped inventories are planned as they stand."""

from __future__ import annotations

import datetime
import functools
import json
import re
import shutil
import textwrap
import types
import typing as t

import pytest
import yaml
from ansible.parsing import vault as ansible_vault
from harness.pages import files_of
from harness.sites import DISK, ROOT, Site

# Where an example stands, the variable, and what follows its name in YAML.
Example = tuple[str, str, str]
# How many days ahead a waiver may end (acceptance_waiver_days).
LATEST_DAYS = 90
# What stands beside an example, by the beginning of its variable.
BESIDE = {
    "acceptance_": {"vault_ledger_token": "x"},
    "gpu_sharing_": {"gpu_sharing_cluster": "c1", "gpu_sharing_image": "x"},
    "hccl_local_": {"hccl_binary_dir": "/x", "hccl_mpirun": "/x"},
    "host_health_": {"host_health_redfish_user": "x", "host_health_redfish_password": "x", "vault_redfish_password": "x"},
    "nccl_fabric_gpus": {"nccl_fabric_rails": ["mlx5_0"]},
    "train_minutes": {"train_timeout": 1200},
}


def prepared(site: Site, planner: t.Any, stages: t.Any = None) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """Begin a run as the action `plan` does; return plan.json and the first host's todo, as their readers have them."""
    args = {"mode": "run", "results_dir": str(site.folder / "results"), "stages": stages or ["stack", DISK]}
    task_vars = {"hostvars": planner.vars["hostvars"], "ansible_play_hosts_all": planner.hosts}
    planned, _lines = site.of.prepare.prepare(args, planner.play, planner.loader, task_vars, controller=1)
    folder = site.folder / "results" / planned["run_id"]
    return json.loads((folder / "plan.json").read_text()), json.loads((folder / "todo/gpu-01.json").read_text())


def inventory(variables: str) -> str:
    return f"all:\n  hosts: {{gpu-01: , gpu-02: }}\n  vars:\n{textwrap.indent(variables, '    ')}\n"


def test_dates_without_quotes_are_days(site: Site) -> None:
    variables = f"""
acceptance_waivers:
  - {{subject: gpu-01, stage: nccl_node, ticket: OPS-1234, expires: {datetime.date.today() + datetime.timedelta(30)}}}
acceptance_new_references:
  - {{subject: "gpu-0*", stage: gemm, since: 2026-08-02, ticket: OPS-1240, reason: power limit of 600 W}}
acceptance_expectations:
  - {{id: ours, match: {{stage: gemm, check: bf16}}, metric: tflops, value: 600, unit: TFLOPS, source: us, date: 2026-11-02,
     confidence: measured}}
disk_size: 2026-11-02
stack_golden: {{built: 2026-11-02 10:00:00}}
"""
    plan, todo = prepared(site, site.planner(text=inventory(variables)))
    judging = plan["judging"]
    assert judging["waivers"][0]["expires"] == (datetime.date.today() + datetime.timedelta(30)).isoformat()
    assert judging["references"][0]["since"] == "2026-08-02"
    assert [entry["date"] for entry in judging["sets"][0] if entry["id"] == "ours"] == ["2026-11-02"]
    assert judging["stack"]["gpu-01"]["golden"] == {"built": "2026-11-02T10:00:00"}
    assert todo["settings"]["disk_size"] == "2026-11-02"
    assert todo["settings"]["acceptance_new_references"][0]["since"] == "2026-08-02"


# A value in YAML, and the end of the message by which it is refused; empty if it is data.
VALUES = {
    "2027-01-31": "", "2027-01-31T10:00:00Z": "", "12:30:45": "", "!!set {a, b}": "", "!!omap [a: 1]": "", "0o17": "", "1_000": "", "~": "",
    "!unsafe '{{ x }}'": "", "'{{ (1, 2) }}'": "", "'{{ [3, 1] | unique }}'": "", "'{{ {1: 2} }}'": "", "18446744073709551615": "",
    ".nan": "found nan, expected a finite number", ".inf": "found inf, expected a finite number", "1.0e+999": "found inf, expected",
    "!!binary aGVsbG8=": "found binary data, expected text", "0x1" + 40 * "0": "found a whole number of 161 bits, expected at most 64",
    "{on: 1}": "found the key True, expected text: quote it", "{1.10: 1}": "found the key 1.1, expected text",
    "{~: 1}": "found the key None",
    "{1: a, '1': b}": "found the key '1' twice", "'{{ nowhere }}'": "'nowhere' is undefined",
    "'{{ [nowhere] }}'": "'nowhere' is undefined", "'{{ \"inf\" | float }}'": "found inf", "'{{ lookup }}'": "",
    "!vault 'x'": "",
}  # fmt: skip
REFUSED = {value for value in VALUES if VALUES[value] or value in ("'{{ lookup }}'", "!vault 'x'")}
# A place in a variable, and its name in messages.
PLACES = {
    "stack_golden: {a: VALUE}": "stack_golden",
    "stack_golden: {a: {b: [1, VALUE]}}": "stack_golden",
    "stack_golden: {a: [[VALUE]]}": "stack_golden",
    "acceptance_expectations: {h200-gemm-bf16: {note: VALUE}}": "acceptance_expectations",
    "acceptance_sinks: [{sink: log, options: {x: VALUE}}]": "acceptance_sinks",
    "acceptance_rack: VALUE": "acceptance_rack",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_data_or_refused_by_name(site: Site, place: str, value: str) -> None:
    try:
        plan, todo = prepared(site, site.planner(text=inventory(place.replace("VALUE", value))))
    except site.of.interface.RunError as refusal:
        words = str(refusal)
        assert PLACES[place] in words and VALUES[value] in words and "Traceback" not in words, words
        if PLACES[place] == "stack_golden":
            assert value in REFUSED, words
    else:
        assert value not in REFUSED
        assert json.dumps([plan, todo], allow_nan=False)


SECRET = "SUDQJkVaYFJ3YWxs"


def encrypted(vault: t.Any, indent: int) -> str:
    text = ansible_vault.VaultLib(vault).encrypt(SECRET, vault[0][1]).decode()
    return "!vault |\n" + textwrap.indent(text.strip(), " " * indent)


# A variable in which VALUE is encrypted, and the place that a refusal names; empty if no file of a run has the value.
ENCRYPTED = {
    "acceptance_rack: VALUE": "gpu-01: acceptance_rack",
    "disk_size: VALUE": "gpu-01: disk_size",
    "stack_golden:\n  a: [1, VALUE]": "gpu-01: stack_golden.a[1]",
    "disk_sample:\n  env:\n    - {name: TOKEN, value: VALUE}": "gpu-01: disk_sample.env[0].value",
    "acceptance_expectations:\n  h200-gemm-bf16: {note: VALUE}": "gpu-01: acceptance_expectations",
    "disk_size: '{{ secret }}'\nsecret: VALUE": "gpu-01: disk_size",
    "disk_sample: '{{ {1: [secret]} }}'\nsecret: VALUE": "gpu-01: disk_sample",
    "acceptance_kube_pod_patch:\n  metadata: {labels: {a: VALUE}}": "gpu-01: acceptance_kube_pod_patch.metadata.labels.a",
    "disk_key: VALUE": "",
    "secret: VALUE": "",
    "ansible_password: VALUE": "",
}


@pytest.mark.parametrize("place", ENCRYPTED)
def test_an_encrypted_value_reaches_no_file_of_a_run(site: Site, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """ansible-vault marks a secret: a variable that plan.json shows may not hold one."""
    vault = [("default", ansible_vault.VaultSecret(b"a password"))]
    if hasattr(ansible_vault, "VaultSecretsContext"):  # ansible-core 2.19 and later
        monkeypatch.setattr(ansible_vault.VaultSecretsContext, "_current", ansible_vault.VaultSecretsContext(vault))
    if re.search(r"[\[{,].*VALUE", place):  # no block of YAML may stand there
        text = place.replace("VALUE", "'{{ given }}'") + "\ngiven: " + encrypted(vault, 4)
    else:
        text = place.replace("VALUE", encrypted(vault, 4))
    try:
        plan, todo = prepared(site, site.planner(text=inventory(text), vault=vault))
    except site.of.interface.RunError as refusal:
        assert ENCRYPTED[place] and f"{ENCRYPTED[place]}" in str(refusal) and "ansible-vault" in str(refusal), refusal
        assert SECRET not in str(refusal)
    else:
        assert not ENCRYPTED[place]
        assert SECRET not in json.dumps([plan, todo])
    for path in (site.folder / "results").rglob("*.json"):
        assert SECRET not in path.read_text(errors="replace")


@pytest.mark.parametrize(
    ("name", "place", "is_withheld"),
    [
        ("acceptance_kube_pod_patch", "spec.containers[0].env[0].value", True), ("acceptance_kube_pod_patch", "metadata.labels.a", False),
        ("acceptance_kube_pod_patch", "metadata.environment", False), ("stack_golden", "env[0].value", False),
    ],
)  # fmt: skip
def test_an_environment_of_a_pod_may_be_encrypted(site: Site, name: str, place: str, is_withheld: bool) -> None:
    assert site.of.kept.is_withheld(name, f"gpu-01: {name}.{place}") is is_withheld


def test_a_manifest_with_a_date_is_planned(site: Site) -> None:
    text = """
apiVersion: batch/v1
kind: Job
metadata: {name: x, annotations: {made: 2026-11-02}}
spec: {template: {spec: {containers: [{name: x, image: "lab/x:1"}], restartPolicy: Never}}}
"""
    (site.folder / "job.yml").write_text(text)
    planner = site.planner(text=inventory("acceptance_gpu_count: 8"))
    for manifest in (str(site.folder / "job.yml"), planner.loader.load(text)):
        plan, _todo = prepared(site, planner, ["stack", {"name": "burn", "manifest": manifest}])
        assert plan["stages"][1]["manifest"]["metadata"]["annotations"] == {"made": "2026-11-02"}


# Examples of pages and inventories ----------------------------------------------------------------------------------


@functools.lru_cache
def roles_of_variables() -> dict[str, str]:
    """Return {variable: role} of all documented variables."""
    roles = {}
    for path in sorted((ROOT / "roles").glob("*/meta/argument_specs.yml")):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            roles.update({name: path.parent.parent.name for name in entry.get("options") or {}})
    return roles


def examples() -> t.Iterator[Example]:
    """Yield each `variable: value` of a page or inventory, in a block, in a comment of an inventory, or in backticks."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "inventories").rglob("*.yml"))]
    for path in pages:
        lines = [re.sub(r"^(\s*)# ?", r"\1", line) if path.suffix == ".yml" else line for line in path.read_text().splitlines()]
        fenced = path.suffix == ".yml"
        for number, line in enumerate(lines):
            if line.startswith("```"):
                fenced = line == "```yaml"
            begin = re.match(r"(\s*)([a-z_]+):( .*)?$", line)
            if begin and begin.group(2) in roles_of_variables() and (begin.group(1) or fenced):
                indent = len(begin.group(1))
                block = [begin.group(3) or ""]
                for following in lines[number + 1 :]:
                    depth = len(following) - len(following.lstrip())
                    text = following.strip()
                    is_over = depth < indent or (depth == indent and not text.startswith("- "))
                    if not text or text.startswith("```") or is_over:
                        break
                    block.append(following[indent:])
                yield f"{path.relative_to(ROOT)}:{number + 1}", begin.group(2), "\n".join(block)
            for name, value in re.findall(r"`([a-z_]+):( [^`]+)`", line):
                if name in roles_of_variables() and "..." not in value and value.strip().upper() != value.strip():
                    yield f"{path.relative_to(ROOT)}:{number + 1}", name, value


EXAMPLES = list(examples())


def test_the_examples_are_found() -> None:
    """The forms with which runs have failed are among them."""
    dates = [place for place, name, value in EXAMPLES if re.search(r"(expires|since): 20[0-9-]+[,}]", value)]
    assert {place.split(":")[0] for place in dates} >= {"docs/rules.md", "inventories/cluster/hosts.yml", "docs/kubernetes.md"}
    assert len(EXAMPLES) > 120
    assert ("gpu_sharing_system", " time_slicing") in {(name, value) for _place, name, value in EXAMPLES}, "at the margin of a block"


WITH_A_WAIVER = sorted({place.rpartition(":")[0] for place, _name, value in EXAMPLES if "expires: 20" in value})


@pytest.mark.parametrize("path", WITH_A_WAIVER)
def test_a_page_with_a_waiver_says_how_far_ahead_it_may_end(path: str) -> None:
    """A day that is right today is too late, or over, for most readers: such a waiver stopped every run."""
    assert re.search(rf"expires: 20[0-9-]+.*at most {LATEST_DAYS} days", (ROOT / path).read_text()), path


class Day(datetime.date):
    """A day that stands for today."""

    now = datetime.date.today()

    @classmethod
    def today(cls) -> datetime.date:  # type: ignore[override]
        return cls.now


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example[0]} {example[1]}")
def test_an_example_is_planned_as_it_stands(site: Site, monkeypatch: pytest.MonkeyPatch, example: Example) -> None:
    place, name, value = example
    ends = re.search(r"\bexpires: (20[0-9-]+)", value)
    if ends:  # it is planned on the first day on which a reader may copy it
        monkeypatch.setattr(Day, "now", datetime.date.fromisoformat(ends[1]) - datetime.timedelta(LATEST_DAYS))
        monkeypatch.setattr(site.of.inputs, "datetime", types.SimpleNamespace(date=Day))
    if place.startswith("docs/stages.md"):  # with the roles of the page, and without its other variables
        files_of("docs/stages.md", site.folder)
        shutil.rmtree(site.folder / "group_vars")
    is_of_cluster = name.startswith(("acceptance_kube", "acceptance_nodes", "acceptance_node_vars", "gpu_sharing")) or "_kube_" in name
    is_of_cluster |= "manifest" in value
    beside: dict[str, t.Any] = {"demo_node": "/x"}
    beside.update({"acceptance_plane": "kubernetes", "acceptance_kube_image": "x"} if is_of_cluster else {})
    # The plane of docs/planes.md has a variable that it needs.
    beside.update({"acceptance_processes_folder": "/tmp/processes"} if name == "acceptance_plane" and "processes" in value else {})
    beside.update({"acceptance_plane": "slurm"} if name.startswith("acceptance_slurm") else {})
    beside.update({key: with_it for begin, of in BESIDE.items() if name.startswith(begin) for key, with_it in of.items()})
    beside.pop(name, None)
    planner = site.planner(text=inventory(f"{yaml.safe_dump(beside)}{name}:{value}"))
    role = roles_of_variables()[name]
    stage = "stack" if role == "common" else role
    if not (ROOT / f"plugins/plugin_utils/stages/{stage}.py").exists():  # an exporter or a console has no part in a run
        assert json.dumps(site.of.plain.plain(planner.layers.variables("gpu-01")[name], name), allow_nan=False)
        return
    stages, _left_out = planner.stages([stage] if name != "acceptance_stages" else planner.layers.variables("gpu-01")[name])
    settings = planner.settings(stages)
    assert json.dumps(settings["gpu-01"], allow_nan=False)
    assert name in settings["gpu-01"] or name == "acceptance_level"
    if name == "acceptance_node_vars":  # of one cluster, which has the nodes that an entry means
        settings = {"gpu-01": settings["gpu-01"]}
        nodes = {"selector": ["gpu-01/node-01"], "names": ["gpu-01/node-07"]}
        kubernetes = type(site.of.plane.PLANE)
        monkeypatch.setattr(kubernetes, "select", lambda _plane, _host, _settings, entry: nodes[next(key for key in nodes if key in entry)])
    inputs = site.of.inputs.judging_inputs(planner, settings).as_dict()
    assert json.dumps(inputs, allow_nan=False)
    if name == "acceptance_node_vars":
        assert {"gpu-01/node-01", "gpu-01/node-07"} <= inputs["of"].keys() and inputs["waivers"]
    (site.folder / "todo").mkdir()
    site.of.mailbox.Mailbox(site.folder).assign("gpu-01", {"stages": {}, "settings": settings["gpu-01"], "secret": []})


PAGES_WITH_INVENTORY = ["docs/first_nodes.md", "docs/first_cluster.md"]


@pytest.mark.parametrize("page", PAGES_WITH_INVENTORY)
def test_the_inventory_of_a_page_is_planned_whole(site: Site, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files_of(page, site.folder)
    # The page names the file of kubectl, which its reader has.
    monkeypatch.setenv("HOME", str(site.folder))
    (site.folder / ".kube").mkdir()
    (site.folder / ".kube" / "config").touch()
    planner = site.planner(text=(site.folder / "cluster/hosts.yml").read_text())
    stages, _left_out = planner.stages(["stack", "host_health", "gpu_memory", "nic_loopback", "nccl_node", "gemm", "train"])
    settings = planner.settings(stages)
    assert len(settings) == (20 if page == "docs/first_nodes.md" else 1)
    assert json.dumps(site.of.inputs.judging_inputs(planner, settings).as_dict(), allow_nan=False)
    shipped = [interface.stage for interface in stages]
    assert site.of.foreseeable.problem(settings, shipped, planner.layers.variables, lambda _host, _name, value: value) is None
