# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A judged run as a message to a webhook, against a server that notes what it is sent."""

from __future__ import annotations

import http.server
import json
import pathlib
import threading
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.observing import webhook
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import kept
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks import registry

PATH = "/services/s3cret"
DEFAULTS = {"link": "", "chat": "json", "template": ""}
Messages = list[tuple[str, dict[str, t.Any]]]


@pytest.fixture
def receiver() -> t.Iterator[tuple[str, Messages]]:
    """(address, what was sent there); it answers 403 to every other path, and a redirect to /moved."""
    sent: Messages = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response({PATH: 200, "/moved": 302}.get(self.path, 403))
            self.send_header("Location", PATH)
            self.end_headers()

        def log_message(self, *_args: t.Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", sent
    server.shutdown()
    server.server_close()


def judged(**report: t.Any) -> t.Any:
    finding = {"stage": "gemm", "check": "bf16"}
    row = {"kind": "node", "verdict": "FAIL", "convicted": False, "findings": [finding, finding], "simulated": True}
    causes = [{**row, "subject": f"n{number}", "said": f"n{number}: <!channel> slow & broken\x1b[2J"} for number in range(12)]
    fields = {
        "mode": "run", "past": None,
        "word": "NOT ACCEPTED", "accepted": False, "why": "FAIL on 12 nodes", "causes": causes, "partial": False, "simulated": True,
        "counts": {"FAIL": 12}, "planned_at": "2026-11-22T10:00:00Z", "created_at": "2026-11-22T10:07:00Z", **report,
    }  # fmt: skip
    plan = type("Plan", (), {"inventory": ["inventories/lab"], "judging": type("Judging", (), {"of": {}})})()
    return type("Judged", (), {"run_id": "20261122T100000Z-0a1b2c", "folder": pathlib.Path(), "plan": plan, "report": fields})()


def test_a_message_is_for_chats_and_for_programs(receiver: tuple[str, Messages], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook.inventory, "of_plan", lambda plan: "lab")
    address, sent = receiver
    webhook.SINK.judged(judged(), {"url": address + PATH, **DEFAULTS, "link": "https://console.example.com/"})
    ((path, message),) = sent
    lines = message["text"].split("\n")
    assert path == PATH and len(lines) == 13
    assert lines[0] == "NOT ACCEPTED: 20261122T100000Z-0a1b2c: FAIL on 12 nodes"
    assert lines[1].startswith("n0: &lt;!channel&gt; slow &amp; broken") and "\x1b" not in message["text"]
    assert lines[-2:] == ["and 2 more", "https://console.example.com/results/20261122T100000Z-0a1b2c"]
    assert (message["run"], message["accepted"], message["counts"]) == ("20261122T100000Z-0a1b2c", False, {"FAIL": 12})
    assert webhook.message(judged(causes=[]))["text"] == lines[0]
    assert len(message["findings"]) == 12 and not message["cut"] and "\x1b" not in str(message["findings"])
    assert {name: message["findings"][3][name] for name in ("subject", "node", "verdict", "checks")} == {
        "subject": "n3", "node": "n3", "verdict": "FAIL", "checks": ["gemm bf16"]
    }  # fmt: skip


@pytest.mark.parametrize(("path", "said"), [("/other", "refuses the message: 403"), ("/moved", "refuses the message: 302")])
def test_an_error_names_the_host_and_never_the_address(receiver: tuple[str, Messages], path: str, said: str) -> None:
    with pytest.raises(webhook.WebhookError) as error:
        webhook.post(receiver[0] + path, {"text": "x"})
    assert str(error.value) == f"the webhook at 127.0.0.1 {said}"
    assert len(receiver[1]) == 1


@pytest.mark.parametrize("path", [f"{PATH} x", f"{PATH}\x7f", f"{PATH}\u00e9"])
def test_an_address_that_cannot_be_asked_is_not_quoted(receiver: tuple[str, Messages], path: str) -> None:
    """Python's own words for it quote the path, which is the secret."""
    with pytest.raises(webhook.WebhookError) as caught:
        webhook.post(f"{receiver[0]}{path}", {})
    assert "s3cret" not in str(caught.value)


def test_a_receiver_that_is_away_is_an_error() -> None:
    with pytest.raises(webhook.WebhookError, match=r"the webhook at 127\.0\.0\.1 cannot be reached"):
        webhook.post(f"http://127.0.0.1:1{PATH}", {"text": "x"})


def test_the_variable_is_checked_before_anything_is_measured_and_kept_nowhere() -> None:
    (chosen,) = registry.chosen(registry.requested({"acceptance_webhook": "https://hooks.example.com/x"}))
    assert (chosen.sink, chosen.options) == (webhook.SINK, {"url": "https://hooks.example.com/x", **DEFAULTS})
    assert registry.requested({"acceptance_webhook": ""}) == []
    assert webhook.SINK.problem({**DEFAULTS, "url": "hooks.example.com"}) is not None
    assert webhook.SINK.problem({**DEFAULTS, "url": "https://hooks.example.com/x", "link": "console"}) is not None
    assert "acceptance_webhook" in kept.HIDDEN
