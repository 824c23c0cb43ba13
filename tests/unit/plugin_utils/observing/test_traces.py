# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A run as spans: each within its parent, by ids that follow from the run, and of a run that is very large only what tells something."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.observing import traces
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import states
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import model
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Judged
from harness import report_samples as samples


def judged() -> Judged:
    """Two nodes of a cluster; the pod of the first has waited, the second is slow."""
    verdicts = [samples.verdict("c/a", "gemm", "bf16"), samples.verdict("c/b", "gemm", "bf16", "FAIL", reason="slow")]
    found = [
        samples.measurement("c/a", "gemm", "bf16", context={"pod_waited_s": 7.0}, started_at="2026-11-21T06:17:30Z"),
        samples.measurement("c/b", "gemm", "bf16", started_at="2026-11-21T06:17:40Z"),
    ]
    plan, judgement = samples.plan(["c"], ["gemm"]), samples.judgement(verdicts, found)
    made = model.build(plan, t.cast(t.Any, judgement))
    return Judged(samples.RUN, pathlib.Path(), plan, t.cast(t.Any, judgement), made)


def test_each_span_is_within_its_parent_and_what_is_bad_is_an_error() -> None:
    found = {span.path: span for span in traces.spans(judged())}
    names = ["acceptance run", "bf16", "bf16", "gemm c/a", "gemm c/b", "stage gemm", "waiting for the pod"]
    assert sorted(span.name for span in found.values()) == names
    for span in found.values():
        parent = found.get(span.parent)
        assert span.path == "run" or (parent and parent.began <= span.began <= span.ended <= parent.ended), span
    wait = found["gemm/c/a/wait"]
    assert wait.ended - wait.began == 7.0 and wait.ended == found["gemm/c/a/bf16//c/a"].began
    errors = {span.path: span.error for span in found.values() if span.error}
    assert errors == {"run": "because", "gemm/c/b": "FAIL in stage gemm", "gemm/c/b/bf16//c/b": "slow"}


def test_of_a_very_large_run_what_passed_has_no_span_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "TOOLS", 1)
    found = {span.path: span for span in traces.spans(judged())}
    assert "gemm/c/a/bf16//c/a" not in found and "gemm/c/b/bf16//c/b" in found
    assert found["run"].attributes["gpufleet.spans_left_out"] == 1


def test_standard_variables_come_before_jaegers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*traces.ENDPOINTS, "JAEGER_AGENT_HOST"):
        monkeypatch.delenv(name, raising=False)
    assert traces.endpoint() is None
    monkeypatch.setenv("JAEGER_AGENT_HOST", "fd00::1")
    assert traces.endpoint() == "http://[fd00::1]:4318/v1/traces"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    assert traces.endpoint() is None


@pytest.mark.parametrize(
    ("state", "seconds"),
    [
        ({"running": {"startedAt": "2026-11-21T06:17:19Z"}}, 9.0),
        ({"terminated": {"startedAt": "2026-11-21T06:17:05Z"}}, 0.0),  # clocks need not agree
        ({"waiting": {}}, 0.0),
        ({"running": {"startedAt": "soon"}}, 0.0),
    ],
)
def test_how_long_a_pod_has_waited_for_its_start(state: dict[str, t.Any], seconds: float) -> None:
    pod = {
        "metadata": {"creationTimestamp": "2026-11-21T06:17:10Z"},
        "status": {"containerStatuses": [{"name": "sidecar"}, {"name": "probe", "state": state}]},
    }
    assert states.waited_s(pod) == seconds
