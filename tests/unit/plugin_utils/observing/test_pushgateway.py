# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is sent to a gateway with a password, and what is said of one that refuses. A real one is in the integration tests."""

from __future__ import annotations

import http.server
import pathlib
import threading
import typing as t

import prometheus_client.parser
import pytest
from ansible import context
from ansible.module_utils.common.collections import ImmutableDict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.observing import pushgateway
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats, model
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Judged
from harness import report_samples as samples

Asked = list[tuple[str, str, bytes]]


@pytest.fixture
def gateway() -> t.Iterator[tuple[int, Asked]]:
    asked: Asked = []

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            login = self.headers.get("Authorization") or ""
            asked.append((self.path, login, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200 if login else 401)
            self.end_headers()
            self.wfile.write(b"who\nare you")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port, asked
    server.shutdown()
    server.server_close()


def test_a_path_and_a_password_of_the_address_are_used(gateway: tuple[int, Asked]) -> None:
    port, asked = gateway
    pushgateway.push(f"http://me:s%40cret@127.0.0.1:{port}/sub/", "lab one", "m 1\n")
    pushgateway.push(f"http://me:x@127.0.0.1:{port}", "a/b", "m 1\n")
    # Prometheus' own client writes labels with a blank or a slash in base64.
    assert asked[0][:2] == ("/sub/metrics/job/gpufleet_acceptance/inventory@base64/bGFiIG9uZQ==", "Basic bWU6c0BjcmV0")
    assert [line for line in asked[0][2].splitlines() if not line.startswith(b"#")] == [b"m 1.0"]
    assert asked[1][0] == "/metrics/job/gpufleet_acceptance/inventory@base64/YS9i"


def test_all_samples_of_a_report_arrive(gateway: tuple[int, Asked]) -> None:
    plan, judged = samples.fleet(3, 2)
    text = formats.prometheus(model.build(plan, t.cast(t.Any, judged)))
    pushgateway.push(f"http://me:x@127.0.0.1:{gateway[0]}", "lab", text)

    def families(exposed: str) -> list[tuple[t.Any, ...]]:
        return [(f.name, f.type, f.documentation, f.samples) for f in prometheus_client.parser.text_string_to_metric_families(exposed)]

    assert families(gateway[1][0][2].decode()) == families(text) and len(families(text)) > 5


def test_a_controller_without_the_client_is_told_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"url": "http://pushgateway.example:9091"}
    assert pushgateway.SINK.problem(options) is None
    monkeypatch.setattr(pushgateway.importlib.util, "find_spec", lambda _name: None)
    assert "lacks the Python package prometheus_client" in str(pushgateway.SINK.problem(options))


def test_a_refusal_is_one_line(gateway: tuple[int, Asked]) -> None:
    with pytest.raises(pushgateway.PushError, match=f"the Pushgateway at 127.0.0.1:{gateway[0]} refuses the metrics: 401 who are you"):
        pushgateway.push(f"http://127.0.0.1:{gateway[0]}", "lab", "m 1\n")


@pytest.mark.parametrize(
    ("of_the_plan", "given", "label"),
    [
        ({"inventory": "lab"}, ["inventories/cluster"], "lab"),
        ({}, ["inventories/cluster/", "more.yml,"], "cluster%2Cmore.yml"),  # an older version did not keep which
        ({}, [], "default"),
    ],
)
def test_the_series_are_those_of_the_run_s_inventory(
    gateway: tuple[int, Asked], monkeypatch: pytest.MonkeyPatch, of_the_plan: dict[str, str], given: list[str], label: str
) -> None:
    port, asked = gateway
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(inventory=tuple(given)))
    plan, judged = samples.fleet(1, 1)
    plan.inventory = of_the_plan.get("inventory", "")
    done = Judged(samples.RUN, pathlib.Path(), plan, t.cast(t.Any, judged), model.build(plan, t.cast(t.Any, judged)))
    pushgateway.SINK.judged(done, {"url": f"http://me:x@127.0.0.1:{port}"})
    assert asked[0][0] == f"/metrics/job/gpufleet_acceptance/inventory/{label}"
