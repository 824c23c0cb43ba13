# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`acceptance_traces: true`: a judged run as a trace, by OTLP over HTTP.

It is made of the times in the journal when all is said, so that it costs nothing while somebody measures. Ids follow from the run: the
trace of a run is found without looking, and a run that is judged again is the same trace. OpenTelemetry is loaded when a trace is sent.

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
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, Verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Judged, Options, Sink

SERVICE = "gpufleet-acceptance"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
TIMEOUTS = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
# Where the environment says nothing else: a collector that is away holds nobody up for long.
TIMEOUT_S = 3.0
BATCH = 512
# Of a larger run only what is no PASS has a span of its tool.
TOOLS = 50000
BAD = ("FAIL", "UNKNOWN")


class TraceError(Exception):
    """The trace was not taken, or not all of it."""


class Span(t.NamedTuple):
    """The parts of a span; its id follows from `parent`, the name of another span. Times are seconds of the epoch."""

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
    """The run, its stages, in each its nodes, pairs and groups, and there the waiting for the pod and each tool."""
    verdicts = {verdict.key: verdict for verdict in of.judgement.verdicts}
    whole = len(of.judgement.deciding) <= TOOLS
    of_stage = {(node["name"], stage): word for node in of.report["nodes"] for stage, word in node["stages"].items()}
    tools: dict[tuple[str, str], list[tuple[Key, Measurement]]] = {}
    for key, one in of.judgement.deciding.items():
        if one.started_at:
            tools.setdefault((key.stage, node_of(key.subject)), []).append((key, one))
    stages: dict[str, list[Span]] = {}
    left_out = 0
    for (stage, node), measured in tools.items():
        here = f"{stage}/{node}"
        about = {"gpufleet.run": of.run_id, "gpufleet.stage": stage, "gpufleet.node": node}
        own = [_tool(here, about, key, one, verdicts.get(key)) for key, one in measured]
        began, ended = min(span.began for span in own), max(span.ended for span in own)
        waited = max(float(one.context.get("pod_waited_s") or 0) for _key, one in measured)
        if waited:
            yield Span(f"{here}/wait", here, "waiting for the pod", began - waited, began, about)
        word = str(of_stage.get((node, stage), ""))
        error = f"{word} in stage {stage}" if word in BAD else ""
        stages.setdefault(stage, []).append(
            Span(here, stage, f"{stage} {node}", began - waited, ended, {**about, "gpufleet.verdict": word}, error)
        )
        told = own if whole else [span for span in own if span.attributes.get("gpufleet.verdict") != "PASS"]
        left_out += len(own) - len(told)
        yield from told
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


def _tool(here: str, about: t.Mapping[str, t.Any], key: Key, one: Measurement, verdict: Verdict | None) -> Span:
    began = _epoch(one.started_at)
    attributes = {
        **about, "gpufleet.subject": key.subject, "gpufleet.check": key.check, "gpufleet.variant": key.variant,
        "gpufleet.outcome": one.outcome, "gpufleet.attempt": one.attempt, "gpufleet.simulated": one.simulated,
    }  # fmt: skip
    if one.command:
        attributes["process.executable.name"] = os.path.basename(str(one.command[0]))
        attributes["process.command_args"] = [str(word)[:200] for word in one.command[:50]]
    error = str(one.reason or one.outcome) if one.outcome not in ("measured", "not_applicable") else ""
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
    path = f"{here}/{key.check}/{key.variant}/{key.subject}"
    return Span(path, here, name, began, began + float(one.duration_s), attributes, error[:1000])


def trace_id(run_id: str) -> int:
    """By which the trace of a run is found."""
    return int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:16], "big")


def _span_id(run_id: str, path: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{run_id}/{path}".encode()).digest()[:8], "big") or 1


def endpoint() -> str | None:
    """Return the endpoint if the standard variables do not set it: Jaeger's agent is gone, today's collectors on its host speak OTLP."""
    host = os.environ.get("JAEGER_AGENT_HOST")
    if not host or any(os.environ.get(name) for name in ENDPOINTS):
        return None
    return f"http://{f'[{host}]' if ':' in host else host}:4318/v1/traces"


def send(run_id: str, found: t.Sequence[Span]) -> None:
    """TraceError where the collector does not take everything."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExportResult
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

    to = endpoint()
    if to:
        Display().display(f"note: JAEGER_AGENT_HOST names an agent that Jaeger has no more; the trace goes to {to}, as OTLP")
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return
    own = {SERVICE_NAME: SERVICE, SERVICE_VERSION: collection.version()}
    resource = Resource.create(own).merge(OTELResourceDetector().detect())  # what the environment says of us wins
    scope = InstrumentationScope("gpufleet.acceptance", collection.version())

    def context(path: str) -> SpanContext:
        return SpanContext(trace_id(run_id), _span_id(run_id, path), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    def made(span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=span.name, context=context(span.path), parent=context(span.parent) if span.parent else None, resource=resource,
            attributes=span.attributes, status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            instrumentation_scope=scope, start_time=int(span.began * 1e9), end_time=int(max(span.began, span.ended) * 1e9),
        )  # fmt: skip

    timeout = None if any(os.environ.get(name) for name in TIMEOUTS) else TIMEOUT_S
    with _said() as said:
        exporter = OTLPSpanExporter(endpoint=to, timeout=timeout)
        sent = 0
        while sent < len(found):
            batch = found[sent : sent + BATCH]
            # Asked of the export itself: a flush says that it went well when the export failed.
            if exporter.export([made(span) for span in batch]) is not SpanExportResult.SUCCESS:
                break
            sent += len(batch)
        exporter.shutdown()  # type: ignore[no-untyped-call]
    if sent < len(found):
        raise TraceError(f"{sent} of {len(found)} spans were taken by the collector: {said[-1] if said else 'it gives no reason'}")


@contextlib.contextmanager
def _said() -> t.Iterator[list[str]]:
    """Collect the log messages of OpenTelemetry during a block."""
    texts: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    logger, handler = logging.getLogger("opentelemetry"), Kept()
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield texts
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


def _epoch(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()
