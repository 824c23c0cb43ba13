# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a pod shows while its probe works: lines and numbers as they come, nothing of it in the frame's way."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import time
import typing as t
import urllib.error
import urllib.request

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import exposition, frame, observation, serving
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import session, telemetry

RUN = {"run_id": "r", "stage": "gemm"}


class Pod:
    """A request with its state directory and its log."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        checks = [{"check": "bf16", "variant": ""}, {"check": "fp8", "variant": ""}]
        self.request = {"probe": "gemm", "params": {"checks": checks, "state_dir": str(folder / "state"), "run": RUN}}
        self.path = pathlib.Path(session.result_path(str(folder / "state"), "r", "gemm"))
        self.path.parent.mkdir(parents=True)
        self.out = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.shown = telemetry.Telemetry(self.request, True, 0, "gpu-01", self.out)
        self.url = f"http://127.0.0.1:{self.shown.server.server_port}"

    def says(self, *records: dict[str, t.Any]) -> None:
        with open(self.path, "a", encoding="utf-8") as target:
            target.writelines(json.dumps(record) + "\n" for record in records)

    def events(self) -> list[dict[str, t.Any]]:
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]

    def until(self, words: str) -> str:
        for _unused in range(200):
            text = get(f"{self.url}/metrics")
            if words in text:
                return text
            time.sleep(0.05)
        raise AssertionError(f"{words!r} is not in {text}")


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


@pytest.fixture
def pod(tmp_path: pathlib.Path) -> t.Iterator[Pod]:
    made = Pod(tmp_path)
    yield made
    made.shown.server.shutdown()
    made.shown.server.server_close()
    os.close(made.out)


def seen(check: str, part: str = "", **fields: t.Any) -> dict[str, t.Any]:
    return {**observation.measured(check, metrics={"tflops": {"value": 650.5, "unit": "TFLOPS"}}), "part": part, **fields}


def test_numbers_and_lines_come_while_the_probe_works(pod: Pod) -> None:
    assert get(f"{pod.url}/healthz") == "ok\n"
    pod.says({"began": {}}, seen("bf16"), seen("bf16", "gpu/GPU-1", simulated=True))
    text = pod.until('probe_checks{run_id="r",stage="gemm",node="gpu-01",outcome="measured"} 2')
    assert 'probe_planned_checks{run_id="r",stage="gemm",node="gpu-01"} 2' in text
    assert 'probe_done{run_id="r",stage="gemm",node="gpu-01"} 0' in text
    assert 'check="bf16",variant="",part="gpu/GPU-1",metric="tflops",unit="TFLOPS",simulated="true"} 650.5' in text
    last = observation.failed("fp8", "timeout", "secret words of a tool", outcome="timeout")
    pod.shown.end({"state": "done", "observations": [seen("bf16"), seen("bf16", "gpu/GPU-1"), last]})
    assert 'probe_done{run_id="r",stage="gemm",node="gpu-01"} 1' in get(f"{pod.url}/metrics")
    events = pod.events()
    assert [one["event"] for one in events] == ["probe_begun", "check_done", "check_done", "check_done", "probe_done"]
    assert all((one["run"], one["stage"], one["node"]) == ("r", "gemm", "gpu-01") for one in events)
    assert (events[3]["outcome"], events[3]["reason_code"], events[3]["level"]) == ("timeout", "timeout", "warn")
    assert events[-1]["outcomes"] == {"measured": 2, "timeout": 1} and "secret" not in str(events)


def test_a_line_that_is_not_whole_yet_and_a_file_that_becomes_another_are_read_once(pod: Pod) -> None:
    whole = json.dumps(seen("bf16")) + "\n"
    pod.path.write_text(whole[:20])
    time.sleep(2 * telemetry.POLL_S)
    pod.path.write_text("[1]\nnull\n{\n" + whole)
    pod.until('outcome="measured"} 1')
    new = pod.path.with_name("new")
    new.write_text(whole + json.dumps(seen("fp8")) + "\n")
    new.rename(pod.path)
    pod.until('outcome="measured"} 2')


def test_nothing_that_is_shown_disturbs_the_frame(pod: Pod) -> None:
    tag = frame.TAG.decode()
    pod.says(seen(f"{tag}x open 1 2 3"), seen("x" * 20000), {"check": 7, "outcome": ["?"], "metrics": [1]}, {"check": "a", "outcome": "b"})
    pod.shown.end({"state": "done", "observations": []})
    nonce = frame.nonce_of("secret", "uid")
    frame.write({"fine": True}, nonce, pod.out)
    reader = frame.Reader(nonce)
    for line in (pod.folder / "log").read_bytes().splitlines(keepends=True):
        assert len(line) <= frame.LINE_LIMIT
        reader.feed(line)
    assert reader.result() == {"fine": True} and reader.foreign == 0


def test_a_port_that_is_taken_is_said_and_costs_nothing_else(tmp_path: pathlib.Path) -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as taken, open(tmp_path / "log", "wb") as out:
        request = {"probe": "gemm", "params": {"checks": [], "state_dir": str(tmp_path), "run": RUN}}
        shown = telemetry.Telemetry(request, True, taken.getsockname()[1], "n", out.fileno())
        shown.end({"state": "done", "observations": []})
    events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
    assert events == ["probe_begun", "no_metrics", "probe_done"]


def test_it_is_off_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(telemetry.LOG, raising=False)
    monkeypatch.delenv(telemetry.PORT, raising=False)
    assert telemetry.of_environment({"probe": "gemm", "params": {}}) is None
    monkeypatch.setenv(telemetry.PORT, "8080")
    assert telemetry.of_environment({"guardian": {}}) is None and telemetry.PORT not in os.environ


def test_a_page_that_cannot_be_made_is_said_to_who_asks() -> None:
    def broken(_accept: str) -> tuple[str, bytes]:
        raise ValueError("no history")

    server = serving.serve({"/metrics": broken}, 0, "127.0.0.1")
    try:
        for path, status in (("metrics?x=1", 503), ("else", 404)):
            with pytest.raises(urllib.error.HTTPError) as error:
                get(f"http://127.0.0.1:{server.server_port}/{path}")
            assert error.value.code == status
    finally:
        server.shutdown()
        server.server_close()


def test_a_label_may_hold_any_text() -> None:
    found = exposition.Exposition(run_id="r")
    found.sample("x", 1, node='a"} 1\nforged_metric \\')
    assert found.text() == 'gpufleet_acceptance_x{run_id="r",node="a\\"} 1\\nforged_metric \\\\"} 1\n'
