# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`acceptance_traces: true`: a judged run as a trace, by OTLP over HTTP.

Spans are derived from the times in the journal after the run, so tracing costs nothing while nodes are measured. Ids are derived from the
run id, so a run that is judged again has the same trace. OpenTelemetry is imported only when a trace is sent.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import importlib.util
import logging
import os
import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import SinkError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, Verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Judged, Options, Sink

SERVICE = "gpufleet-acceptance"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
TIMEOUTS = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
# The default timeout in seconds. It is short, so that an unreachable collector does not delay the run.
TIMEOUT_S = 3.0
BATCH = 512
# In a run with more measurements than this, only checks without a PASS have a span for their tool.
TOOLS = 50000
BAD = ("FAIL", "UNKNOWN")


class TraceError(SinkError):
    """The collector did not accept the whole trace."""


class Span(t.NamedTuple):
    """A span. Its id is derived from `path`; `parent` is the path of its parent span. Times are seconds since the epoch."""

    path: str
    parent: str
    name: str
    began: float
    ended: float
    attributes: dict[str, t.Any]
    error: str = ""


class Traces(Sink):
    name = "traces"

    def problem(self, options: Options) -> str | None:
        for name in PROTOCOLS:
            if os.environ.get(name) not in (None, "", "http/protobuf"):
                return f"{name}: found {os.environ[name]!r}, expected http/protobuf"
        for package in ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"):
            with contextlib.suppress(ImportError):
                if importlib.util.find_spec(package):
                    continue
            return f"the Python package {package} is not there; expected those of requirements.txt"
        return None

    def judged(self, of: Judged, options: Options) -> None:
        send(of.run_id, list(spans(of)))


SINK = Traces()


def spans(of: Judged) -> t.Iterator[Span]:
    """Yield the spans of a run: for each stage its nodes, pairs and groups with the wait for the pod and each tool, then the stage, last
    the run."""
    verdicts = {verdict.key: verdict for verdict in of.judgement.verdicts}
    complete = len(of.judgement.deciding) <= TOOLS
    of_stage = {(node["name"], stage): word for node in of.report["nodes"] for stage, word in node["stages"].items()}
    tools: dict[tuple[str, str], list[tuple[Key, Measurement]]] = {}
    for key, measurement in of.judgement.deciding.items():
        if measurement.started_at:
            tools.setdefault((key.stage, node_of(key.subject)), []).append((key, measurement))
    stages: dict[str, list[Span]] = {}
    left_out = 0
    for (stage, node), measured in tools.items():
        node_path = f"{stage}/{node}"
        common_attributes = {"gpufleet.run": of.run_id, "gpufleet.stage": stage, "gpufleet.node": node}
        tool_spans = [_tool(node_path, common_attributes, key, measurement, verdicts.get(key)) for key, measurement in measured]
        began, ended = min(span.began for span in tool_spans), max(span.ended for span in tool_spans)
        waited_s = max(float(measurement.context.get("pod_waited_s") or 0) for _key, measurement in measured)
        if waited_s:
            yield Span(f"{node_path}/wait", node_path, "waiting for the pod", began - waited_s, began, common_attributes)
        word = str(of_stage.get((node, stage), ""))
        error = f"{word} in stage {stage}" if word in BAD else ""
        stages.setdefault(stage, []).append(
            Span(node_path, stage, f"{stage} {node}", began - waited_s, ended, {**common_attributes, "gpufleet.verdict": word}, error)
        )
        reported = tool_spans if complete else [span for span in tool_spans if span.attributes.get("gpufleet.verdict") != "PASS"]
        left_out += len(tool_spans) - len(reported)
        yield from reported
    for stage, parts in stages.items():
        yield from parts
        yield Span(
            stage, "run", f"stage {stage}", min(part.began for part in parts), max(part.ended for part in parts),
            {"gpufleet.run": of.run_id, "gpufleet.stage": stage},
        )  # fmt: skip
    report = of.report
    ends = [part.ended for parts in stages.values() for part in parts]
    yield Span(
        "run", "", "acceptance run", _epoch(of.plan.created_at), max([_epoch(report["created_at"]), *ends]),
        {
            "gpufleet.run": of.run_id, "gpufleet.accepted": report["accepted"], "gpufleet.simulated": report["simulated"],
            "gpufleet.partial": report["partial"], "gpufleet.spans_left_out": left_out,
        },
        "" if report["passed"] else str(report["why"]),
    )  # fmt: skip


def _tool(node_path: str, common_attributes: t.Mapping[str, t.Any], key: Key, measurement: Measurement, verdict: Verdict | None) -> Span:
    began = _epoch(measurement.started_at)
    attributes = {
        **common_attributes, "gpufleet.subject": key.subject, "gpufleet.check": key.check, "gpufleet.variant": key.variant,
        "gpufleet.outcome": measurement.outcome, "gpufleet.attempt": measurement.attempt, "gpufleet.simulated": measurement.simulated,
    }  # fmt: skip
    if measurement.command:
        attributes["process.executable.name"] = os.path.basename(str(measurement.command[0]))
        attributes["process.command_args"] = [str(word)[:200] for word in measurement.command[:50]]
    error = str(measurement.reason or measurement.outcome) if measurement.outcome not in ("measured", "not_applicable") else ""
    if verdict is not None:
        attributes["gpufleet.verdict"] = verdict.verdict
        if verdict.value is not None:
            attributes |= {"gpufleet.value": float(verdict.value), "gpufleet.unit": str(verdict.unit or "")}
        if verdict.floor is not None:
            attributes["gpufleet.floor"] = float(verdict.floor)
        if verdict.regressed:
            attributes |= {"gpufleet.regressed": True, "gpufleet.reason": str(verdict.reason)[:1000]}
        if verdict.verdict in BAD:
            error = str(verdict.reason)
    name = f"{key.check} {key.variant}".strip()
    path = f"{node_path}/{key.check}/{key.variant}/{key.subject}"
    return Span(path, node_path, name, began, began + float(measurement.duration_s), attributes, error[:1000])


def trace_id(run_id: str) -> int:
    """Return the trace id of a run."""
    return int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:16], "big")


def _span_id(run_id: str, path: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{run_id}/{path}".encode()).digest()[:8], "big") or 1


def endpoint() -> str | None:
    """Return the OTLP endpoint on the host of JAEGER_AGENT_HOST, None if that is not set or if a standard variable sets the endpoint.
    Jaeger no longer has an agent; its collector accepts OTLP."""
    host = os.environ.get("JAEGER_AGENT_HOST")
    if not host or any(os.environ.get(name) for name in ENDPOINTS):
        return None
    return f"http://{f'[{host}]' if ':' in host else host}:4318/v1/traces"


def send(run_id: str, spans: t.Sequence[Span]) -> None:
    """Send spans to the collector. Raise TraceError unless it accepts all of them."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExportResult
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

    address = endpoint()
    if address:
        Display().display(f"note: JAEGER_AGENT_HOST names an agent that Jaeger has no more; the trace goes to {address}, as OTLP")
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return
    service = {SERVICE_NAME: SERVICE, SERVICE_VERSION: collection.version()}
    resource = Resource.create(service).merge(OTELResourceDetector().detect())  # attributes of the environment take precedence
    scope = InstrumentationScope("gpufleet.acceptance", collection.version())

    def context(path: str) -> SpanContext:
        return SpanContext(trace_id(run_id), _span_id(run_id, path), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    def readable(span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=span.name, context=context(span.path), parent=context(span.parent) if span.parent else None, resource=resource,
            attributes=span.attributes, status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            instrumentation_scope=scope, start_time=int(span.began * 1e9), end_time=int(max(span.began, span.ended) * 1e9),
        )  # fmt: skip

    timeout = None if any(os.environ.get(name) for name in TIMEOUTS) else TIMEOUT_S
    with _captured_log() as messages:
        exporter = OTLPSpanExporter(endpoint=address, timeout=timeout)
        sent = 0
        while sent < len(spans):
            batch = spans[sent : sent + BATCH]
            # Check the export itself: a flush reports success even if the export failed.
            if exporter.export([readable(span) for span in batch]) is not SpanExportResult.SUCCESS:
                break
            sent += len(batch)
        exporter.shutdown()  # type: ignore[no-untyped-call]
    if sent < len(spans):
        raise TraceError(f"{sent} of {len(spans)} spans were taken by the collector: {messages[-1] if messages else 'it gives no reason'}")


@contextlib.contextmanager
def _captured_log() -> t.Iterator[list[str]]:
    """Collect the log messages of OpenTelemetry during a block."""
    texts: list[str] = []

    class ListHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    logger, handler = logging.getLogger("opentelemetry"), ListHandler()
    propagated = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield texts
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated


def _epoch(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()
