# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet is run ten times, and in the eighth one GPU becomes 3 % slower: no floor speaks of it, its own past does. It is in the terminal,
the report, the history, its page, in what Prometheus scrapes, an alert that arrives and the trace."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import pathlib
import random
import shutil
import typing as t

import msgspec
import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import exporter, folders, importing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import Store, url_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Metric
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from harness.demo_runs import Done, play
from rigs.otel.otel import Collector
from rigs.prometheus.prometheus import Alertmanager, Prometheus, get

ROOT = pathlib.Path(__file__).resolve().parents[2]
RIG = ROOT / "tests/rigs/simulated"
HOSTS = ("h100-01", "h100-02")
FEW = ("--limit", ",".join(HOSTS), "--tags", "gemm")
SLOW = "GPU-00000002-0000-4000-8000-000000000007"  # the last of h100-02
REAL = 7  # the first run that is made; those before it are its numbers with other noise


@dataclasses.dataclass
class Fleet:
    results: pathlib.Path
    nodes: pathlib.Path
    done: Done
    run: str
    collector: Collector


def noise(run: int, node: str) -> float:
    return 1 + random.Random(f"{run} {node}").uniform(-0.0015, 0.0015)


def conduct(results: pathlib.Path, nodes: pathlib.Path, number: int, **more: t.Any) -> tuple[str, Done]:
    """One run of the fleet; from the eighth on a GPU is slow."""
    before = {path.parent.name for path in results.glob("*/plan.json")}
    for at, node in enumerate(HOSTS, start=1):
        faults = "gemm_slow=0.97" if number >= 8 and at == 2 else ""
        lines = f'NAME="NVIDIA H100 80GB HBM3" GPUS=8 MEMORY=81559\nBUSBW=478 TFLOPS={725 * noise(number, node):.4f} IDENTITY={at}'
        (nodes / node / "node.conf").write_text(f'{lines} FAULTS="{faults}"\n')
    done = play(results, *FEW, **more, demo_node=f"{nodes}/{{{{ inventory_hostname }}}}")
    (run,) = {path.parent.name for path in results.glob("*/plan.json")} - before
    return run, done


def earlier(results: pathlib.Path, run: str) -> None:
    """Six runs before it, a day apart: what it measured with noise of their own."""
    content = folders.of_folder(Run(results, run))
    planned = datetime.datetime.fromisoformat(content.plan["created_at"])
    with Store(url_of(results)) as store:
        for number in range(1, REAL):
            day = planned - datetime.timedelta(days=REAL - number)
            name = f"{day:%Y%m%dT%H%M%SZ}-{number:06x}"
            measured = [
                m.replaced(
                    metrics={
                        of: Metric(one.value * noise(number, m.target) ** (-1 if one.unit == "ms" else 1), one.unit)
                        for of, one in m.metrics.items()
                    }
                )
                for m in content.measurements
            ]
            plan = msgspec.structs.replace(content.plan, run_id=name, created_at=f"{day:%Y-%m-%dT%H:%M:%SZ}")
            digest = hashlib.sha256(name.encode()).hexdigest()
            judged = [dataclasses.replace(content.judgements[0], digest=digest)]
            assert importing.write(store, importing.Content(plan, digest, measured, judged)).metrics


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("ten")
    results, nodes = folder / "results", folder / "nodes"
    for node in HOSTS:
        shutil.copytree(RIG / "demo/nodes" / node / "root", nodes / node / "root")
        (nodes / node / "bin").symlink_to(RIG / "tools")
    run, done = conduct(results, nodes, REAL)
    assert done.status == 0 and "against their own past" not in done.output, done.output[-3000:]
    earlier(results, run)
    for number in (8, 9):
        run, done = conduct(results, nodes, number)
        assert done.status == 0 and "regression" not in done.output, done.output[-3000:]
    with Collector(folder) as collector:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}
        run, done = conduct(results, nodes, 10, env=env, acceptance_traces=True)
        yield Fleet(results, nodes, done, run, collector)


def verdicts(fleet: Fleet) -> list[dict[str, t.Any]]:
    return [json.loads(line) for line in (fleet.results / fleet.run / "verdicts.jsonl").read_text().splitlines()]


def test_it_is_a_warning_of_that_gpu_in_terminal_and_report(fleet: Fleet) -> None:
    said = " ".join(fleet.done.output.split())
    assert fleet.done.status == 0 and "note:" not in said, fleet.done.output[-3000:]
    worse = [v for v in verdicts(fleet) if v["regressed"]]
    assert {v["subject"]["id"] for v in worse} == {f"h100-02/gpu/{SLOW}", "h100-02"}
    assert {(v["verdict"], v["reason_code"]) for v in worse} == {("WARN", "regression")}
    assert not [v for v in verdicts(fleet) if v["verdict"] != "PASS" and not v["regressed"]]
    assert f"WARN h100-02 {SLOW}: gemm bf16: " in said and "below its own median" in said and "its 7 siblings unchanged" in said
    reason = next(v["reason"] for v in worse if "/gpu/" in v["subject"]["id"]).partition(": ")[2]
    for name in ("report.html", "report.md"):
        assert reason in (fleet.results / fleet.run / name).read_text().replace("\\", ""), name


def test_judged_again_it_is_not_looked_for_or_refused(fleet: Fleet) -> None:
    done = play(fleet.results, "-e", f"run_id={fleet.run}", playbook="playbooks/judge.yml", acceptance_regression=False)
    assert done.status == 0 and "against their own past" not in done.output, "what YAML reads of off is off"
    # The last judgement holds: what comes after this sees the regression as it was.
    done = play(fleet.results, "-e", f"run_id={fleet.run}", playbook="playbooks/judge.yml", acceptance_regression="refuse")
    said = " ".join(done.output.split())
    assert done.status == 2 and "1 node (h100-02), and acceptance_regression is refuse" in said and "its 7 siblings unchanged" in said


def test_the_history_and_its_page_say_it(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    page = tmp_path / "page.html"
    done = play(
        fleet.results, "-e", "node=h100-02", "-e", "verdict=WARN", "-e", f"history_page={page}", playbook="playbooks/history.yml"
    )
    assert done.status == 0 and "4 verdicts in 1 runs: 4 WARN" in done.output, done.output[-2000:]
    assert "below its own median" in page.read_text()


def test_prometheus_sees_it_and_an_alert_arrives(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    made = exporter.Exporter(url_of(fleet.results))
    made.look()
    assert not made.problem
    server = made.serve("127.0.0.1", 0)
    for name in ("alertmanager", "prometheus"):
        (tmp_path / name).mkdir()
    try:
        text = get(f"http://127.0.0.1:{server.server_port}/metrics") or ""
        worse = [line for line in text.splitlines() if line.startswith(f"{exporter.PREFIX}check_regression{{")]
        assert len(worse) == 2 and all('node="h100-02"' in line and 'check="bf16"' in line for line in worse), "alone, and all together"
        with Alertmanager(tmp_path / "alertmanager") as alertmanager:
            jobs = {"exporter": [f"127.0.0.1:{server.server_port}"]}
            rules = [ROOT / "files/observability/rules.yml"]
            with Prometheus(tmp_path / "prometheus", jobs, rules, alertmanager.url) as prometheus:
                prometheus.until(f"{exporter.PREFIX}check_regression == 1")
                heard = alertmanager.service.until(
                    "told of it", lambda: [one for one in alertmanager.heard if one["labels"]["alertname"] == "GpufleetRegression"]
                )
        assert {one["labels"]["node"] for one in heard} == {"h100-02"}
    finally:
        server.shutdown()
        server.server_close()


def test_the_trace_says_it(fleet: Fleet) -> None:
    spans = fleet.collector.service.until("told of the run", fleet.collector.spans)
    worse = [span["attributes"] for span in spans if span["attributes"].get("gpufleet.regressed")]
    assert {one["gpufleet.subject"] for one in worse} == {f"h100-02/gpu/{SLOW}", "h100-02"}
    assert all(one["gpufleet.verdict"] == "WARN" and "below its own median" in one["gpufleet.reason"] for one in worse)


def test_expectations_are_proposed_from_the_accepted_runs_of_some_days(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    proposal = tmp_path / "ours.yml"
    done = play(fleet.results, "-e", "since=1d", "-e", f"baseline_file={proposal}", playbook="playbooks/baseline.yml")
    assert done.status == 0, done.output[-2000:]
    entries = yaml.safe_load(proposal.read_text())["expectations"]
    assert {entry["match"]["check"] for entry in entries} == {"bf16"} and all("median of 16 gpus" in entry["source"] for entry in entries)
    assert all(entry["source"].startswith("SIMULATED ") and "accepted runs, 20" in entry["source"] for entry in entries)
    wrong = play(fleet.results, "-e", "since=soon", playbook="playbooks/baseline.yml")
    assert wrong.status != 0 and "since: found 'soon', expected a day" in " ".join(wrong.output.split())
