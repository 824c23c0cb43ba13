# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every command in the pages is run over the simulated fleet, or has a reason why it is not."""

from __future__ import annotations

import json
import pathlib
import re
import shlex
import shutil
import typing as t

import pytest
import yaml
from harness.demo_runs import ROOT, Done, play
from harness.doc_commands import Command, commands
from harness.pages import files_of

# Commands that are not run here: a pattern of the whole command, and why.
NOT_RUN = {
    r"make (demo|test|test-all|unit|lint|integration|integration-rest|integration-all|docs|sanity|fuzz\b.*|drill.*|release\b.*)":
        "is a step of CI or of the long set itself",
    r"\.ci/run": "is CI itself",
    r"make setup( .*)?|export .*|\. .*|python3 -m venv .*": "sets up what this test runs in",
    r"make console|ansible-playbook playbooks/console\.yml .*console_local=true": "lasts until Ctrl-C; test_console_local.py opens it",
    r"ansible-playbook playbooks/exporter\.yml .*|PYTHONPATH=\S+ python -m \S+\.exporter .*":
        "lasts until Ctrl-C; test_observing_prometheus.py scrapes it",
    r"curl .*": "needs a console that runs; test_console_local.py asks it with a token",
    r"cp -r inventories/cluster \S+": "leaves a folder in the checkout",
    r"cp -r \S+/acceptance/inventories/cluster cluster|cp -r \$C/inventories/demo demo":
        "needs the built collection; test_installed.py does that",
    r"ansible-galaxy .*|pip install .*|ansible-sign .*|gpg .*|ssh-keygen .*|ansible-playbook gpufleet\.acceptance\..*":
        "needs the built collection; test_installed.py and test_release.py do that",
    r"(ansible-builder|ansible-navigator) .*|cp \S*(execution-environment\.yml|\.tar\.gz) \S+":
        "needs an image; test_execution_environment.py builds one and runs it",
    r"ansible all .*": "needs hosts behind SSH",
    r"ansible-rulebook .*": "lasts until Ctrl-C; test_eda.py runs the same rulebook",
    r"ansible-playbook docs/examples/awx/.*": "needs AWX; test_awx_examples.py holds its files against the modules of awx.awx",
    r"kubectl .*": "needs a cluster; test_console_install.py and the tests of Kubernetes apply the same manifests",
    r"podman (build|push) .*": "needs images from a registry; test_kube_image.py builds the image from Debian's packages",
    r"ansible-playbook playbooks/(console|gpu_sharing|logs|observability_preflight)\.yml .*": "needs a cluster; test_kube_*.py run it",
    r"ansible-playbook playbooks/(status|cleanup)\.yml .* -e .*": "needs a cluster; test_kube_*.py run it",
    r"ansible-playbook \S+ .*acceptance_detach=true": "needs a cluster; test_kube_detach.py runs it",
    r"ansible-playbook playbooks/soak\.yml .*hours=72": "takes three days; tests/drills/soak.py runs minutes of it",
    r"ansible-playbook playbooks/rdma_pair\.yml .*": "needs RDMA ports; test_rdma_fleet.py and test_rdma_guests.py run it",
    r"ansible-playbook playbooks/(handover|verify)\.yml .*(RUN\d?\b|pack=).*|python3 verify\.py .*":
        "needs rounds and keys; test_handover.py and test_pack.py make packs, check and sign them",
    r"ansible-playbook playbooks/(acceptance\.yml .*acceptance_open_checks=|support_files\.yml).*":
        "needs the files of a hand-over; test_open_checks.py, test_handover.py and test_support.py hold what they do",
    r"ansible-playbook \S+ .*acceptance_slurm_\S+=.*": "needs a Slurm cluster; test_slurm_faults.py runs it",
    r"ansible-playbook playbooks/quarantine\.yml .*": "needs nodes of a cluster; test_slurm.py and test_quarantine_kubernetes.py run it",
    r"ansible-playbook \S+ .*--tags copy": "needs the stage of docs/stages.md; test_docs_stages.py runs it",
    r"ansible-playbook \S+ .*\"storage\".*": "needs file systems, of which the demo's hosts have none; test_storage_fleet.py runs it",
    r"ansible-playbook \S+ .*\"nic_loopback\".*": "needs RDMA ports, of which the demo's hosts have none; tests/drills/loopback.py runs it",
}  # fmt: skip
# The simulated hosts by the names that pages give to nodes.
NODES = {"gpu-01": "h100-01", "gpu-02": "h100-04", "gpu-node-7": "h100-01"}
# Playbooks that measure: they are run on one host.
MEASURING = ("acceptance", "quick")
# Those of which a few seconds are enough for CI; the others are in the long set.
QUICK = re.compile(r"playbooks/(judge|verify|history|compare|status)\.yml")


def reason(command: Command) -> str:
    """Return why a command is not run here, empty if it is."""
    return next((why for pattern, why in NOT_RUN.items() if re.fullmatch(pattern, command.text)), "")


ALL = commands()
# A command that two pages have, with another name of the inventory, is run once.
RUN = sorted({re.sub(r"-i \S+", "-i cluster", command.text) for command in ALL if not reason(command)})


def test_each_reason_is_about_a_command_and_each_page_has_its_commands() -> None:
    # Commands of the release and of the site are on pages that are written beside this test.
    optional = {pattern for pattern in NOT_RUN if "ansible-galaxy" in pattern}
    unused = [pattern for pattern in NOT_RUN if not any(re.fullmatch(pattern, command.text) for command in ALL)]
    assert set(unused) - optional == set()
    assert len(RUN) > 15 and all(text.startswith("ansible-playbook ") for text in RUN), RUN


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, list[str]]:
    """A results folder with two runs of two healthy hosts, as the first command of README.md makes them."""
    results = tmp_path_factory.mktemp("docs") / "results"
    for _ in range(2):
        assert play(results, "--limit", "h100-01,h100-04", "--tags", "stack,gemm").status == 0
    return results, sorted(path.parent.name for path in results.glob("*/plan.json"))


def adapted(text: str, runs: t.Sequence[str]) -> tuple[str, list[str]]:
    """Return the playbook and the arguments of a command for the simulated fleet and the runs that it has."""
    text = re.sub(r" \[-[^\]]*\]", "", text)  # optional arguments
    text = re.sub(r"run_id=\.\.\.", f"run_id={runs[-1]}", text)
    text = re.sub(r"runs=\S+", f"runs={','.join(runs)}", text)
    text = re.sub(r"since=2026-\S+ -e until=2026-\S+", "since=2d", text)
    for name, node in NODES.items():
        text = text.replace(name, node)
    _program, playbook, *arguments = shlex.split(text)
    place = arguments.index("-i")
    del arguments[place : place + 2]
    if pathlib.Path(playbook).stem in MEASURING and "--limit" not in arguments:
        arguments += ["--limit", "h100-01"]
    return playbook, arguments


@pytest.mark.parametrize("text", [text if QUICK.search(text) else pytest.param(text, marks=pytest.mark.long) for text in RUN])
def test_a_command_of_the_pages_does_what_it_says(text: str, measured: tuple[pathlib.Path, list[str]], tmp_path: pathlib.Path) -> None:
    results, runs = measured
    playbook, arguments = adapted(text, runs)
    files = {name: str(tmp_path / value) for name, value in re.findall(r"(history_page|baseline_file|history_file)=(\S+)", text)}
    done: Done = play(results, *arguments, playbook=playbook, **files)
    assert done.status == 0, done.output[-3000:]
    assert all(pathlib.Path(path).stat().st_size for path in files.values())


@pytest.mark.parametrize(("change", "status", "verdict"), [({}, 0, "PASS"), ({"value": 1e-6}, 2, "FAIL"), (None, 2, "UNKNOWN")])
def test_a_stage_of_the_page_is_tried_on_the_simulated_fleet(
    change: dict[str, float] | None, status: int, verdict: str, tmp_path: pathlib.Path
) -> None:
    files_of("docs/stages.md", tmp_path)
    shutil.copytree(ROOT / "inventories/demo", tmp_path / "demo")
    settings = yaml.safe_load((tmp_path / "group_vars/all.yml").read_text())
    settings["acceptance_expectations"] = [] if change is None else [settings["acceptance_expectations"][0] | change]
    (tmp_path / "demo/hosts.yml").write_text("all: {hosts: {h100-01: }}\n")
    results = tmp_path / "results"
    done = play(results, "--tags", "copy", inventory=tmp_path / "demo", demo_collection=str(ROOT), **settings)
    assert done.status == status, done.output[-3000:]
    (verdicts,) = results.glob("*/verdicts.jsonl")
    assert {json.loads(line)["verdict"] for line in verdicts.read_text().splitlines()} == {verdict}
