# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The collection's rulebook under a real ansible-rulebook: tickets, notices and proposals arrive, also after it was killed."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import pathlib
import signal
import subprocess
import threading
import time
import typing as t
import urllib.error
import urllib.request

import pytest
import yaml
from harness import history_runs as runs
from harness.fleet_runs import ROOT, wait
from rigs import rulebook
from rigs.services import free_port

# Java and Ansible start nine times: half a minute on a quiet machine. Unit tests of `observing` test the sources themselves.
pytestmark = pytest.mark.long

RULEBOOK = ROOT / "extensions/eda/rulebooks/acceptance.yml"
Sent = list[tuple[str, dict[str, t.Any]]]


@pytest.fixture
def receiver() -> t.Iterator[tuple[str, Sent]]:
    """The ticket system, the chat and the scheduler: (address, what was sent to which path)."""
    sent: Sent = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sent.append((self.path, json.loads(body)))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_args: t.Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", sent
    server.shutdown()
    server.server_close()


def both_sources(file: pathlib.Path, port: int) -> None:
    """The shipped rules over the results folder, and the same rules over messages of acceptance_webhook."""
    (of_folder,) = yaml.safe_load(RULEBOOK.read_text())
    source = {"host": "127.0.0.1", "port": port, "token": "s3cret", "position": "{{ position }}.webhook", "confirm_after": 1}
    of_webhook = {**of_folder, "name": "Messages", "sources": [{"name": "messages", "gpufleet.acceptance.webhook": source}]}
    file.write_text(yaml.safe_dump([of_folder, of_webhook]))


def post(address: str, content: t.Any) -> int:
    request = urllib.request.Request(address, json.dumps(content).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except urllib.error.URLError:
        return 0


@contextlib.contextmanager
def running(folder: pathlib.Path, variables: dict[str, t.Any]) -> t.Iterator[subprocess.Popen[str]]:
    (folder / "variables.yml").write_text(json.dumps(variables))
    process = rulebook.start(folder, str(folder / "rules.yml"), folder / "variables.yml")
    try:
        yield process
    except BaseException:
        print((folder / "rulebook.log").read_text()[-6000:])
        raise
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_findings_become_tickets_notices_and_proposals(tmp_path: pathlib.Path, receiver: tuple[str, Sent]) -> None:
    address, sent = receiver
    results, port = tmp_path / "results", free_port()
    runs.judged(results, 1, runs.fleet(a=670, b=670))
    both_sources(tmp_path / "rules.yml", port)
    urls = {f"{name}_url": f"{address}/{name}" for name in ("ticket", "notify", "quarantine")}
    variables = {"results_dir": str(results), "position": str(tmp_path / "position.json"), "interval": 0.5, **urls}
    hook = f"http://127.0.0.1:{port}/s3cret"

    def of(path: str) -> list[dict[str, t.Any]]:
        return [content for to, content in sent if to == path]

    with running(tmp_path, {**variables, "confirm_after": 3600}) as process:
        wait(lambda: (tmp_path / "position.json").exists() and post(hook, {}) == 400, process)
        assert post(f"http://127.0.0.1:{port}/other", {}) == 404
        runs.judged(results, 2, runs.fleet(a=670, b=500))
        wait(lambda: len(sent) >= 2, process)
        assert [content["node"] for content in of("/quarantine")] == ["b"]
        assert {content["run"] for content in of("/ticket")} == {runs.run_id(2)}
        assert {content["subject"] for content in of("/ticket")} == {f"b/gpu/{runs.uuid(ord('b'))}"}
        assert all("tflops 500 TFLOPS is only 0.746" in content["title"] for content in of("/ticket"))
    tickets = of("/ticket")

    # It was killed before anybody said that its events were worked on: they come again, with the same ids.
    sent.clear()
    with running(tmp_path, {**variables, "confirm_after": 1}) as process:
        wait(lambda: len(sent) >= 2, process)
        assert of("/ticket") == tickets
        wait(lambda: json.loads((tmp_path / "position.json").read_text())["pending"] == [], process)

        # A run on another machine, whose message brings the same.
        sent.clear()
        wait(lambda: post(hook, {}) == 400, process)
        runs.judged(tmp_path / "elsewhere", 3, runs.fleet(c=500), acceptance_webhook=hook)
        wait(lambda: len(sent) >= 2, process)
        assert [content["node"] for content in of("/quarantine")] == ["c"] and len(of("/ticket")) == 1

        # A regression, in words of a node that are a template.
        sent.clear()
        harm = tmp_path / "harm"
        finding = {
            "subject": "c", "kind": "regression", "node": "c", "verdict": "REGRESSION", "convicted": False, "checks": ["gemm bf16"],
            "said": f"{{{{ lookup('ansible.builtin.pipe', 'touch {harm}') }}}} slower", "simulated": False,
        }  # fmt: skip
        words = dict.fromkeys(("inventory", "planned_at", "judged_at", "word", "why"), "x")
        flags = {"accepted": True, "partial": False, "simulated": False, "cut": False, "mode": "run", "counts": {}}
        assert post(hook, {"run": runs.run_id(4), **words, **flags, "findings": [finding]}) == 200
        wait(lambda: len(sent) >= 1, process)
        (notice,) = of("/notify")
        assert notice["text"].startswith("{ { lookup(") and notice["text"].endswith(f"slower ({runs.run_id(4)})") and not harm.exists()
        time.sleep(1.5)
        assert len(sent) == 1
