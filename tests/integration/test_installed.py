# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The collection as its tarball installs it: an empty folder, a virtual environment of requirements.txt only, no checkout."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import typing as t
import urllib.request

import pytest
import yaml
from harness import releases

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))

import demo  # noqa: E402

pytestmark = pytest.mark.long

SITE = {
    "galaxy.yml": "namespace: site\nname: own\nversion: 1.0.0\nreadme: README.md\nauthors: [site]\nlicense: [MIT]\n",
    "README.md": "# Stages of a site\n",
    "roles/copy/defaults/main.yml": "copy_checks: \"{{ {'check': ['copy'], 'block': ['1M']} | gpufleet.acceptance.checks }}\"\n",
    "roles/copy/tasks/main.yml": """\
- name: Measure how fast the node copies memory
  gpufleet.acceptance.measure:
    argv: [dd, if=/dev/zero, of=/dev/null, "bs={block}", count=64]
    env: {LC_ALL: C}
    metrics: [{name: time, unit: s, regex: 'copied, ([0-9.]+) s'}]
""",
}
EXPECTED = {
    "id": "copy", "match": {"stage": "copy", "check": "copy"}, "metric": "time", "value": 600, "unit": "s", "better": "lower",
    "source": "this test", "date": "2026-11", "confidence": "measured",
}  # fmt: skip


@dataclasses.dataclass
class Installed:
    """A person's folder and home: `collection` is where ansible-galaxy has installed the tarball."""

    folder: pathlib.Path
    programs: pathlib.Path
    environment: dict[str, str]

    @property
    def collection(self) -> pathlib.Path:
        return pathlib.Path(self.environment["HOME"]) / ".ansible/collections/ansible_collections/gpufleet/acceptance"

    def argv(self, program: str, *arguments: t.Any) -> list[str]:
        return [str(self.programs / program), *map(str, arguments)]

    def run(self, program: str, *arguments: t.Any) -> subprocess.CompletedProcess[str]:
        return releases.run(*self.argv(program, *arguments), cwd=self.folder, env=self.environment)

    def playbook(self, name: str, *arguments: t.Any) -> subprocess.CompletedProcess[str]:
        return self.run("ansible-playbook", f"gpufleet.acceptance.{name}", *arguments)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install the tarball of this checkout into a new home and a new virtual environment, as the README says."""
    base = tmp_path_factory.mktemp("installed")
    tarball = releases.build(base)
    folder, home = base / "folder", base / "home"
    folder.mkdir()
    home.mkdir()
    left = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON", "VIRTUAL_ENV"))}
    own = {"HOME": str(home), "PATH": f"{base}/venv/bin:/usr/local/bin:/usr/bin:/bin", "PIP_CACHE_DIR": os.path.expanduser("~/.cache/pip")}
    made = Installed(folder, base / "venv/bin", {**left, **own})
    assert releases.run(sys.executable, "-m", "venv", base / "venv").returncode == 0
    packages = releases.run("tar", "-xzOf", tarball, "requirements.txt").stdout
    (folder / "requirements.txt").write_text(packages)
    pip = made.run("pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt")
    assert pip.returncode == 0, pip.stderr
    done = made.run("ansible-galaxy", "collection", "install", tarball)
    assert done.returncode == 0 and made.collection.is_dir(), done.stdout + done.stderr
    (folder / "requirements.txt").unlink()
    return made


def runs(installed: Installed) -> list[pathlib.Path]:
    return sorted(path.parent for path in installed.folder.glob("results/*/report.json"))


def test_the_demo_finds_all_and_only_the_planted_faults(installed: Installed) -> None:
    # Other runs of the demo on this machine hold its simulated nodes.
    own = {"acceptance_state_dir": f"{installed.folder.parent}/demo/{{{{ inventory_hostname }}}}"}
    done = installed.playbook("demo", "-e", json.dumps(own))
    (run,) = runs(installed)
    verdicts = [json.loads(line) for line in (run / "verdicts.jsonl").read_text().splitlines()]
    planted = yaml.safe_load((installed.collection / "tests/rigs/simulated/demo/planted.yml").read_text())
    assert demo.compare(planted, verdicts) == ([], []), done.stdout[-3000:]
    assert done.returncode == 2 and "NOT ACCEPTED" in done.stdout
    assert [path.name for path in installed.folder.iterdir()] == ["results"]


@pytest.fixture(scope="module")
def inventory(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """An inventory of two healthy simulated hosts with a stage of a second collection, which is installed too."""
    folder = tmp_path_factory.mktemp("site")
    for name, text in SITE.items():
        (folder / "own" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "own" / name).write_text(text)
    for argv in (("build", folder / "own", "--output-path", folder), ("install", folder / "site-own-1.0.0.tar.gz")):
        done = installed.run("ansible-galaxy", "collection", *argv)
        assert done.returncode == 0, done.stdout + done.stderr
    variables = yaml.safe_load((installed.collection / "inventories/demo/group_vars/all.yml").read_text())
    variables |= {
        "demo_collection": str(installed.collection),
        "acceptance_state_dir": str(folder / "state" / "{{ inventory_hostname }}"),
        "acceptance_stages": ["stack", "nccl_node", {"name": "copy", "role": "site.own.copy"}],
        "acceptance_expectations": [EXPECTED],
    }
    path = installed.folder / "hosts.yml"
    path.write_text(yaml.safe_dump({"all": {"hosts": {"h100-01": {}, "h100-04": {}}, "vars": variables}}))
    return path


@pytest.fixture(scope="module")
def accepted(installed: Installed, inventory: pathlib.Path) -> pathlib.Path:
    """The folder of an acceptance of these hosts."""
    before = runs(installed)
    done = installed.playbook("acceptance", "-i", inventory.name)
    assert done.returncode == 0 and "ACCEPTED" in done.stdout, done.stdout[-3000:] + done.stderr
    (run,) = set(runs(installed)) - set(before)
    return run


def test_a_stage_of_another_collection_is_measured_and_judged(accepted: pathlib.Path) -> None:
    verdicts = [json.loads(line) for line in (accepted / "verdicts.jsonl").read_text().splitlines()]
    own = [verdict for verdict in verdicts if verdict["stage"] == "copy"]
    assert {verdict["verdict"] for verdict in own} == {"PASS"} and len(own) == 2
    assert {verdict["stage"] for verdict in verdicts} >= {"stack", "nccl_node", "copy"}


def test_an_inventory_that_can_be_read_in_part_is_refused(installed: Installed, inventory: pathlib.Path, accepted: pathlib.Path) -> None:
    before = runs(installed)
    done = installed.playbook("acceptance", "-i", inventory.name, "-i", "nowhere", "--tags", "stack")
    assert done.returncode == 4 and "its hosts would be missing from the acceptance" in done.stderr, done.stdout + done.stderr
    assert runs(installed) == before and accepted in before


def test_history_knows_the_run(installed: Installed, inventory: pathlib.Path, accepted: pathlib.Path) -> None:
    done = installed.playbook("history", "-i", inventory.name, "-e", "node=h100-01", "-e", "history_json=found.json")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert accepted.name in (installed.folder / "found.json").read_text()


def test_runs_verify_and_can_be_judged_again(installed: Installed, inventory: pathlib.Path, accepted: pathlib.Path) -> None:
    for playbook in ("verify", "judge"):
        done = installed.playbook(playbook, "-i", inventory.name, "-e", f"run_id={accepted.name}")
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr


def test_the_console_opens(installed: Installed, inventory: pathlib.Path, accepted: pathlib.Path) -> None:
    local = ("-e", "console_local=true", "-e", "console_port=0")
    argv = installed.argv("ansible-playbook", "gpufleet.acceptance.console", "-i", inventory.name, *local)
    # Ansible leaves what it prints into a pipe in Python's buffer; Ctrl-C reaches all processes of a terminal.
    options: dict[str, t.Any] = {"env": {**installed.environment, "PYTHONUNBUFFERED": "1"}, "start_new_session": True, "text": True}
    with subprocess.Popen(argv, cwd=installed.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options) as console:
        try:
            assert console.stdout
            lines: list[str] = []
            for line in console.stdout:
                lines.append(line)
                if link := re.search(r"http://127\.0\.0\.1:\d+/\S*", line):
                    break
            else:
                pytest.fail("".join(lines))
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with opener.open(link[0]) as answer:
                assert answer.status == 200
            with opener.open(link[0].partition("/enter")[0] + "/api/v1/runs") as answer:
                assert accepted.name in {run["run"] for run in json.load(answer)["runs"]}
        finally:
            os.killpg(console.pid, signal.SIGINT)
            console.communicate()
