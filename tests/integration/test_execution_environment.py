# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The collection in an execution environment, run by ansible-navigator."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest
import yaml
from harness import releases
from rigs import environments

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))

import demo  # noqa: E402

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.geteuid() != 0, reason="builds images as root")]
NAVIGATOR = ("--mode", "stdout", "--ee", "true", "--pull-policy", "never", "--playbook-artifact-enable", "false")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[environments.Environment]:
    tarball = releases.build(tmp_path_factory.mktemp("tarball"))
    with environments.built(releases.tools(), tarball) as made:
        yield made


def navigate(environment: environments.Environment, folder: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ansible-navigator in a folder, as docs/execution_environment.md says."""
    left = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHONPATH"))}
    argv = (environment.tools / "ansible-navigator", "run", *arguments, *NAVIGATOR, "--execution-environment-image", environment.image)
    return releases.run(*argv, cwd=folder, env={**left, **environment.variables})


def test_the_demo_in_the_environment_finds_what_is_planted(environment: environments.Environment, tmp_path: pathlib.Path) -> None:
    done = navigate(environment, tmp_path, "gpufleet.acceptance.demo")
    (run,) = [path.parent for path in tmp_path.glob("results/*/report.json")]
    verdicts = [json.loads(line) for line in (run / "verdicts.jsonl").read_text().splitlines()]
    planted = yaml.safe_load((ROOT / "tests/rigs/simulated/demo/planted.yml").read_text())
    assert demo.compare(planted, verdicts) == ([], []), done.stdout[-3000:]
    assert done.returncode != 0 and "NOT ACCEPTED" in done.stdout


def test_a_run_is_verified_and_its_history_read(environment: environments.Environment, tmp_path: pathlib.Path) -> None:
    variables = {**yaml.safe_load((ROOT / "inventories/demo/group_vars/all.yml").read_text()), "acceptance_stages": ["stack", "gemm"]}
    variables["demo_collection"] = "/usr/share/ansible/collections/ansible_collections/gpufleet/acceptance"
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"h100-01": {}, "h100-04": {}}, "vars": variables}}))
    done = navigate(environment, tmp_path, "gpufleet.acceptance.acceptance", "-i", "hosts.yml")
    (run,) = [path.parent for path in tmp_path.glob("results/*/report.json")]
    assert done.returncode == 0 and json.loads((run / "report.json").read_text()), done.stdout[-3000:] + done.stderr
    for playbook, more in (("verify", f"run_id={run.name}"), ("history", "history_json=found.json")):
        done = navigate(environment, tmp_path, f"gpufleet.acceptance.{playbook}", "-i", "hosts.yml", "-e", more)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert run.name in (tmp_path / "found.json").read_text()


def test_the_packages_of_the_image_are_those_of_the_controller(environment: environments.Environment) -> None:
    listed = environment.podman("run", "--rm", environment.image, "python3", "-m", "pip", "list", "--format", "freeze").lower().splitlines()
    wanted = {line.replace("[binary]", "") for line in (ROOT / "meta/ee-requirements.txt").read_text().lower().splitlines()}
    # ansible-builder leaves out what ansible-core brings along.
    missing = wanted - set(listed)
    assert wanted and not {line for line in missing if not line.startswith("pyyaml==")}, missing
