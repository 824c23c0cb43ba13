# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tool in a pod prints while it runs, for whoever looks: read by a command in the pod, over a real WebSocket."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import http.server
import json
import pathlib
import threading
import time
import typing as t
import urllib.parse

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import live_output
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import live
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import client, executing, marks, settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.probe import FollowedNode, NodeProbe, NodeRequest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.stages.nodes import StageOnCluster
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run

ROOT = pathlib.Path(__file__).resolve().parents[5]
SUCCESS = json.dumps({"status": "Success"})
NO_FILE = json.dumps({"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "1"}]}})
NO_PROGRAM = json.dumps({"status": "Failure", "reason": "InternalError", "message": "executable file not found in $PATH"})


@dataclasses.dataclass
class Kubelet:
    """Answers a request to run a command: a status of HTTP, or (stream, text) of messages. `asked` has (path, query) of each request."""

    url: str = ""
    answer: int | list[tuple[int, str]] = dataclasses.field(default_factory=list)
    asked: list[tuple[str, dict[str, list[str]]]] = dataclasses.field(default_factory=list)

    def client(self) -> client.Client:
        return client.connect(client.Connection("lab", server=self.url, namespace="here"))


@pytest.fixture
def kubelet() -> t.Iterator[Kubelet]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urllib.parse.urlsplit(self.path)
            found.asked.append((url.path, urllib.parse.parse_qs(url.query)))
            if isinstance(found.answer, int):
                self.send_response(found.answer)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            # RFC 6455, 1.3: the accept key, and 5.2: one unmasked binary frame for each message.
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
            self.send_header("Sec-WebSocket-Protocol", self.headers["Sec-WebSocket-Protocol"])
            self.end_headers()
            for stream, text in found.answer:
                body = bytes([stream]) + text.encode()
                self.wfile.write(b"\x82\x7e" + len(body).to_bytes(2, "big") + body)
            self.close_connection = True

        def log_message(self, format: str, *args: t.Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Kubelet(f"http://127.0.0.1:{server.server_address[1]}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield found
        server.shutdown()


def probe(kubelet: Kubelet) -> NodeProbe:
    """A stage with the pod p of the node n1, one of n2 that has answered, and one of n3 that the API does not have yet."""
    pods = settings.pods({"acceptance_kube_image": "a:1"})
    made = NodeProbe(kubelet.client(), pods, "20261127T100000Z-aaaaaa", "gemm", 60.0, b"")
    request: t.Any = {}
    for node, uid, ended in (("n1", "u1", False), ("n2", "u2", True), ("n3", "", False)):
        made.followed[node] = FollowedNode(node, uid, "p", request=NodeRequest(node, request), ended=ended)
    return made


def test_the_end_of_the_file_in_the_pod_of_a_node_is_read(kubelet: Kubelet) -> None:
    kubelet.answer = [(executing.STDOUT, "$ all_reduce_perf\n"), (executing.STDOUT, "  8M 1.2\n"), (executing.STATUS, SUCCESS)]
    assert probe(kubelet).last_output("n1") == "$ all_reduce_perf\n  8M 1.2\n"
    path, query = kubelet.asked[0]
    assert path == "/api/v1/namespaces/here/pods/p/exec" and query["container"] == [marks.CONTAINER]
    assert query["command"] == ["tail", "-c", str(live_output.LIMIT), live_output.IN_POD]


@pytest.mark.parametrize("node", ["n2", "n3", "n4"])
def test_a_node_in_whose_pod_nothing_runs_is_not_asked(kubelet: Kubelet, node: str) -> None:
    assert probe(kubelet).last_output(node) == "" and not kubelet.asked


def test_a_pod_in_which_no_tool_has_run_for_a_second_has_no_output(kubelet: Kubelet) -> None:
    kubelet.answer = [(executing.STDERR, "tail: cannot open: No such file or directory"), (executing.STATUS, NO_FILE)]
    assert probe(kubelet).last_output("n1") == ""


@pytest.mark.parametrize("answer", [[(executing.STATUS, NO_PROGRAM)], []])
def test_a_pod_that_cannot_read_the_file_is_named(kubelet: Kubelet, answer: list[tuple[int, str]]) -> None:
    kubelet.answer = answer
    with pytest.raises(client.KubeError, match="tail in pod p has not answered; the image needs it"):
        probe(kubelet).last_output("n1")


def test_without_the_right_the_file_that_grants_it_is_named(kubelet: Kubelet) -> None:
    kubelet.answer = 403
    with pytest.raises(client.KubeError, match=r"apply files/rbac/output\.yaml") as caught:
        probe(kubelet).last_output("n1")
    assert caught.value.reason_code == "no_permission"
    kubelet.answer = 500
    with pytest.raises(client.KubeError, match="status 500"):
        probe(kubelet).last_output("n1")


def test_the_optional_right_is_that_of_the_command_and_no_more() -> None:
    """A WebSocket begins as a GET, which API servers authorise as `get`, newer ones as `create`."""
    role = yaml.safe_load((ROOT / "files/rbac/output.yaml").read_text(encoding="utf-8"))
    assert role["kind"] == "Role"
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]}]


def test_who_looks_at_a_node_of_a_cluster_gets_the_lines_of_its_pod(kubelet: Kubelet, tmp_path: pathlib.Path) -> None:
    stage = t.cast("t.Any", StageOnCluster.__new__(StageOnCluster))
    stage.host, stage._probing = "lab", None
    assert stage.last_output("lab/n1") == "", "its pods are not made yet"
    stage._probing = probe(kubelet)
    assert stage.last_output("other/n1") is None and stage.last_output("gpu-01") is None, "of another host"
    kubelet.answer = [(executing.STDOUT, "$ gemm\n650 TFLOPS\n"), (executing.STATUS, SUCCESS)]
    run = Run(tmp_path, "20261127T100000Z-aaaaaa")
    run.mailbox.folder.mkdir(parents=True)
    live.look(run, "lab/n1")
    with live.answering(run.mailbox, "gemm", stage.last_output):
        for _try in range(600):
            if (output := live.look(run, "lab/n1")) and output.at:
                break
            time.sleep(0.1)
    assert output and (output.stage, list(output.lines), output.problem) == ("gemm", ["$ gemm", "650 TFLOPS"], "")
