# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run over simulated hosts as other systems see it, a real Pushgateway and a real OpenTelemetry collector among them. What is away costs
a note."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.observing import traces
from harness.demo_runs import Done, play
from rigs.otel.otel import Collector
from rigs.prometheus.prometheus import Pushgateway
from rigs.services import free_port

# h100-03 has a slow GPU.
FEW = ("--limit", "h100-01,h100-03", "--tags", "gemm")


def events(done: Done) -> list[dict[str, t.Any]]:
    return [json.loads(line) for line in done.output.splitlines() if line.startswith("{")]


@pytest.fixture
def gateway(tmp_path: pathlib.Path) -> t.Iterator[Pushgateway]:
    folder = tmp_path / "gateway"
    folder.mkdir()
    with Pushgateway(folder) as made:
        yield made


def test_a_run_is_in_the_log_and_in_the_gateway(gateway: Pushgateway, tmp_path: pathlib.Path) -> None:
    results = tmp_path / "results"
    done = play(results, *FEW, acceptance_log="json", acceptance_pushgateway=gateway.url)
    assert done.status == 2, done.output[-3000:]
    said = events(done)
    assert [one["event"] for one in said if one["event"].startswith("run_")] == ["run_begun", "run_judged"]
    (run,) = (path.parent.name for path in results.glob("*/plan.json"))
    assert {one["run"] for one in said} == {run}
    kept = {(one["node"], one["stage"], one["outcome"]) for one in said if one["event"] == "stage_kept"}
    assert kept == {("h100-01", "gemm", "measured"), ("h100-03", "gemm", "measured")}
    judged = {one["node"]: (one["verdict"], one["level"]) for one in said if one["event"] == "node_judged"}
    assert judged == {"h100-01": ("PASS", "info"), "h100-03": ("FAIL", "error")}

    metrics = gateway.metrics()
    mine = f'gpufleet_acceptance_accepted{{instance="",inventory="demo",job="gpufleet_acceptance",partial="true",run_id="{run}"'
    assert mine in metrics
    again = play(results, "-e", f"run_id={run}", playbook="playbooks/judge.yml", acceptance_pushgateway=gateway.url)
    assert again.status == 2 and "note:" not in again.output
    assert gateway.metrics().count("gpufleet_acceptance_accepted{") == 1, "a push takes the place of the last"


def test_a_gateway_that_is_away_is_a_note(tmp_path: pathlib.Path) -> None:
    port = free_port()
    done = play(tmp_path / "results", "--limit", "h100-01", "--tags", "gemm", acceptance_pushgateway=f"http://me:s3cret@127.0.0.1:{port}")
    assert done.status == 0, done.output[-3000:]
    assert f"the Pushgateway at 127.0.0.1:{port} cannot be reached" in " ".join(done.output.split())
    assert "s3cret" not in done.output
    assert not [path for path in (tmp_path / "results").rglob("*") if path.is_file() and "s3cret" in path.read_text(errors="replace")]


def test_what_is_no_address_is_refused_before_anything_is_measured(tmp_path: pathlib.Path) -> None:
    done = play(tmp_path / "results", *FEW, acceptance_pushgateway="pushgateway:9091")
    assert done.status != 0 and "acceptance_pushgateway: sink pushgateway: expected the address" in " ".join(done.output.split())
    done = play(tmp_path / "results", *FEW, acceptance_log="yaml")
    assert done.status != 0 and "acceptance_log: found 'yaml', expected one of text, json" in " ".join(done.output.split())
    assert not list((tmp_path / "results").glob("*/plan.json"))


def test_a_run_is_a_trace(tmp_path: pathlib.Path) -> None:
    with Collector(tmp_path) as collector:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=lab"}
        done = play(tmp_path / "results", *FEW, env=env, acceptance_traces=True)
        assert done.status == 2 and "not told of the judgement" not in done.output, done.output[-3000:]
        spans = collector.service.until("told of the run", collector.spans)
    (run,) = (path.parent.name for path in (tmp_path / "results").glob("*/plan.json"))
    by_id = {span["spanId"]: span for span in spans}
    assert len(by_id) == len(spans) and {span["traceId"] for span in spans} == {f"{traces.trace_id(run):032x}"}
    names = [span["name"] for span in spans]
    assert {"acceptance run", "stage gemm", "gemm h100-01", "gemm h100-03"} <= set(names)
    (root,) = (span for span in spans if not span.get("parentSpanId"))
    assert root["name"] == "acceptance run" and root["status"]["code"] == 2 and root["attributes"]["gpufleet.run"] == run
    assert root["resource"]["service.name"] == "gpufleet-acceptance" and root["resource"]["deployment.environment"] == "lab"
    for span in spans:
        parent = by_id.get(span.get("parentSpanId", ""))
        assert span is root or (parent and int(parent["startTimeUnixNano"]) <= int(span["startTimeUnixNano"])), span["name"]
    tools = [span for span in spans if "gpufleet.check" in span["attributes"]]
    slow = [span for span in tools if span["attributes"]["gpufleet.verdict"] == "FAIL"]
    assert slow and all(span["attributes"]["gpufleet.node"] == "h100-03" and span["status"]["code"] == 2 for span in slow)
    assert all(span["attributes"]["gpufleet.value"] > 0 for span in slow)


def test_a_collector_that_is_away_is_a_note(tmp_path: pathlib.Path) -> None:
    few = ("--limit", "h100-01", "--tags", "gemm")
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    done = play(tmp_path / "results", *few, env=away, acceptance_traces=True)
    assert done.status == 0 and "sink traces was not told of the judgement: TraceError: 0 of" in " ".join(done.output.split()), done.output[
        -3000:
    ]
    agent = play(tmp_path / "results", *few, env={"JAEGER_AGENT_HOST": "127.0.0.1"}, acceptance_traces=True)
    assert agent.status == 0 and "the trace goes to http://127.0.0.1:4318/v1/traces, as OTLP" in " ".join(agent.output.split())
    grpc = play(tmp_path / "other", *few, env={"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, acceptance_traces=True)
    assert grpc.status != 0 and "OTEL_EXPORTER_OTLP_PROTOCOL: found 'grpc', expected http/protobuf" in " ".join(grpc.output.split())
