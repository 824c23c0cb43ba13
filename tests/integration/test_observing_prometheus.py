# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real Prometheus scrapes the exporter: every query of rules and dashboards returns data, and an alert reaches a real Alertmanager."""

from __future__ import annotations

import json
import pathlib
import shlex
import shutil
import subprocess
import sys
import typing as t

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import current, exporter
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import url_of
from harness.demo_runs import play
from harness.history_content import content, put
from rigs import common
from rigs.prometheus.prometheus import PACKAGES, Alertmanager, Prometheus, get
from rigs.services import Service, free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))
import dashboards  # noqa: E402 - a script, no package

HERE = ROOT / "files/observability"
CHOSEN = {"$node": "a", "$check": "write_bw"}


class Seen(t.NamedTuple):
    prometheus: Prometheus
    alertmanager: Alertmanager


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Seen]:
    """Two nodes and the slow pair of them, scraped and alerted on."""
    folder = tmp_path_factory.mktemp("seen")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(current, "DAYS", 3650)
        put(folder, content(["a", "b"], [("a", "b")]))
        made = exporter.Exporter(url_of(folder))
        made.look()
    assert not made.problem
    server = made.serve("127.0.0.1", 0)
    for name in ("alertmanager", "prometheus"):
        (folder / name).mkdir()
    try:
        with Alertmanager(folder / "alertmanager") as alertmanager:
            jobs = {"exporter": [f"127.0.0.1:{server.server_port}"]}
            with Prometheus(folder / "prometheus", jobs, [HERE / "rules.yml"], alertmanager.url) as prometheus:
                prometheus.until(f"{exporter.PREFIX}history_up == 1")
                yield Seen(prometheus, alertmanager)
    finally:
        server.shutdown()
        server.server_close()


def test_the_playbook_and_the_program_answer(tmp_path: pathlib.Path) -> None:
    put(tmp_path, content(["a"], []))
    port = free_port()
    done = play(tmp_path, "-e", f"exporter_port={port}", "-e", "exporter_seconds=1", playbook="playbooks/exporter.yml")
    assert done.status == 0 and f"answering on port {port}: /metrics" in done.output, done.output[-2000:]
    again = play(tmp_path / "none", "-e", "exporter_port=0", "-e", "exporter_seconds=1", playbook="playbooks/exporter.yml")
    assert again.status == 0 and "there is no history yet" in " ".join(again.output.split())
    path = f"PYTHONPATH={ROOT}/.collections"
    options = ["--results-dir", str(tmp_path), "--address", "127.0.0.1", "--port", str(port)]
    program = ["env", path, sys.executable, "-m", exporter.__name__, *options]
    service = Service("exporter", program, tmp_path)
    service.start()
    try:
        text = service.until("showing the history", lambda: "history_up 1" in (get(f"http://127.0.0.1:{port}/metrics") or "") and "fine")
        assert text and get(f"http://127.0.0.1:{port}/healthz") == "ok\n"
    finally:
        service.end()


def test_the_role_writes_a_unit_that_answers_and_manifests(tmp_path: pathlib.Path) -> None:
    put(tmp_path, content(["a"], []))
    port = free_port()
    book = tmp_path / "play.yml"
    book.write_text(json.dumps([{"hosts": "h100-01", "gather_facts": False, "roles": ["gpufleet.acceptance.exporter"]}]))
    options = {
        "exporter_python": sys.executable, "exporter_collections": f"{ROOT}/.collections", "exporter_results_dir": str(tmp_path),
        "exporter_port": port, "exporter_address": "127.0.0.1", "exporter_unit_dir": str(tmp_path), "exporter_service": False,
        "exporter_manifest": str(tmp_path / "exporter.yaml"),
    }  # fmt: skip
    done = play(tmp_path, playbook=str(book), **options)
    assert done.status == 0, done.output[-2000:]
    again = play(tmp_path, playbook=str(book), **options)
    assert "changed=0" in again.output
    unit = (tmp_path / "gpufleet-acceptance-exporter.service").read_text().splitlines()
    (command,) = (line.removeprefix("ExecStart=") for line in unit if line.startswith("ExecStart="))
    (path,) = (shlex.split(line)[0].removeprefix("Environment=") for line in unit if line.startswith("Environment="))
    service = Service("exporter", ["env", path, *shlex.split(command)], tmp_path)
    service.start()
    try:
        service.until("showing the history", lambda: "history_up 1" in (get(f"http://127.0.0.1:{port}/metrics") or ""))
    finally:
        service.end()
    bare = play(tmp_path, playbook=str(book), **options, exporter_kind="manifests")
    assert bare.status != 0 and "exporter_image is not set" in bare.output
    assert play(tmp_path, playbook=str(book), **options, exporter_kind="manifests", exporter_image="registry.example/a:1").status == 0
    deployment, of_service = yaml.safe_load_all((tmp_path / "exporter.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    monitor = yaml.safe_load((HERE / "servicemonitor.yaml").read_text())["spec"]
    assert container["command"][-1] == f"--port={port}" and container["image"] == "registry.example/a:1"
    assert of_service["metadata"]["labels"].items() >= monitor["selector"]["matchLabels"].items()
    assert [one["port"] for one in monitor["endpoints"]] == [one["name"] for one in of_service["spec"]["ports"]]


def queries() -> list[tuple[str, str]]:
    found = []
    for path in sorted((HERE / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            found += [(f"{path.stem}: {panel['title']}", target["expr"]) for target in panel["targets"]]
    return found


@pytest.mark.parametrize(("what", "expression"), queries(), ids=[what for what, _expression in queries()])
def test_every_query_of_a_dashboard_returns_data(seen: Seen, what: str, expression: str) -> None:
    for name, value in CHOSEN.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, what
    assert seen.prometheus.until(expression)


def test_every_variable_of_a_dashboard_has_values(seen: Seen) -> None:
    for path in sorted((HERE / "dashboards").glob("*.json")):
        for variable in json.loads(path.read_text())["templating"]["list"]:
            if variable["type"] == "query":
                metric, label = variable["query"].removeprefix("label_values(").removesuffix(")").split(", ")
                assert seen.prometheus.until(f"count by ({label}) ({metric})"), variable


def test_the_files_are_what_their_builder_makes() -> None:
    there = {path.stem: path.read_text() for path in (HERE / "dashboards").glob("*.json")}
    assert there == dashboards.texts(), "python tests/tools/dashboards.py"


def test_recorded_rules_have_data_and_an_alert_arrives(seen: Seen) -> None:
    rules = yaml.safe_load((HERE / "rules.yml").read_text())["groups"][0]["rules"]
    for rule in rules:
        if "record" in rule:
            assert seen.prometheus.until(rule["record"]), rule
    heard = seen.alertmanager.service.until(
        "told of the regression", lambda: [one for one in seen.alertmanager.heard if one["labels"]["alertname"] == "GpufleetRegression"]
    )
    assert heard[0]["labels"]["node"] == "a" and heard[0]["status"] == "firing"
    assert heard[0]["annotations"]["summary"] == "a: gemm bf16 became worse than its own past"


@pytest.mark.parametrize(("folder", "rules", "tests"), [
    (HERE, "rules.yml", "rules_test.yml"),
    (ROOT / "roles/gpu_sharing/files/rules", "nvshare.yml", "nvshare_test.yml"),
])  # fmt: skip
def test_rules_pass_their_own_tests(folder: pathlib.Path, rules: str, tests: str, tmp_path: pathlib.Path) -> None:
    common.need_packages(PACKAGES)
    for name in (rules, tests):
        shutil.copy(folder / name, tmp_path)
    for command in (["promtool", "check", "rules", rules], ["promtool", "test", "rules", tests]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    broken = (tmp_path / rules).read_text().replace("== 1", "== 7")
    (tmp_path / rules).write_text(broken)
    assert subprocess.run(["promtool", "test", "rules", tests], cwd=tmp_path, capture_output=True, check=False).returncode
