# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A request to the console of a cluster, followed from its page to the result: by the pages, by kubectl, and in the pod that measures."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import typing as t

import pytest
import starlette.testclient
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import in_cluster, settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import marks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Connection
from cryptography.fernet import Fernet
from harness.console_controllers import FILES, Console
from harness.console_lab import person
from harness.namespace import roles
from rigs.kubernetes.kubernetes import Kubernetes
from rigs.simulated import nodes

pytestmark = [
    pytest.mark.kubernetes, pytest.mark.long, pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl here"),
]  # fmt: skip
HOST = "console.test"
# Long enough for somebody to look at what runs.
SLEEP_S = 40


@pytest.fixture
def console(rig_kubernetes: Kubernetes, tmp_path: pathlib.Path) -> t.Iterator[Console]:
    """A console that may also read what tools print."""
    found = Console(rig_kubernetes, tmp_path)
    own = [yaml.safe_load((FILES / f"{name}.yaml").read_text()) for name in ("rbac", "reviews")]
    found.permit([*roles("probe", "output"), *own])
    try:
        yield found
    finally:
        found.close()


class Page:
    """The pages of the console for one person."""

    def __init__(self, console: Console, name: str) -> None:
        options = settings.Settings(str(console.folder / "results"), namespace=console.namespace, hosts=frozenset({HOST}), rights_s=0.0)
        connection = Connection("cluster", kubeconfig=console.kubeconfig, namespace=console.namespace)
        app = in_cluster.made(connection, options, Fernet.generate_key(), selector="!type")
        self.client = starlette.testclient.TestClient(
            app, base_url=f"http://{HOST}", client=("192.0.2.1", 1), follow_redirects=False, headers={"origin": f"http://{HOST}"}
        )
        token = person(console.admin, console.namespace, name, ["get", "list", "create", "patch", "delete"])
        console.wait(lambda: self.client.post("/enter", data={"token": token}).status_code == 303)
        console.wait(lambda: self.client.get("/runs").status_code == 200)

    def text(self, path: str, **query: str) -> str:
        answer = self.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.text

    def start(self, name: str, **fields: str) -> None:
        """Send the form."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.text("/start"))
        assert found
        answer = self.client.post("/start", data={**fields, "name": name, "csrf": found[1]})
        assert (answer.status_code, answer.headers.get("location")) == (303, f"/runs/{name}"), answer.text


def test_a_request_is_followed_from_its_page_to_the_result(console: Console, rig_kubernetes: Kubernetes) -> None:
    def kubectl(*words: str) -> str:
        command = ["kubectl", "--kubeconfig", str(rig_kubernetes.kubeconfig), "-n", console.namespace, *words]
        done = subprocess.run(command, check=False, text=True, capture_output=True, timeout=60)
        print(f"$ kubectl {' '.join(words)}\n{done.stdout}{done.stderr}")
        assert done.returncode == 0, done.stderr
        return done.stdout

    node = rig_kubernetes.nodes[0]
    rig_kubernetes.plant(node).write_text(nodes.conf(101, SLEEP=SLEEP_S))
    page = Page(console, "ann")
    page.start("rack-7", kind="stages", nodes=node, stage="nccl_node", variables="nccl_node_sizes: 8M:16G")
    assert "rack-7" in kubectl("get", "syncactions")
    console.start()
    console.wait(console.pods)
    # While it runs: the resource, its pod, and the tool in it.
    wide = kubectl("get", "syncactions", "-o", "wide").splitlines()
    assert re.match(r"rack-7 +Running ", wide[1]), wide
    (pod,) = console.pods()
    assert pod["spec"]["nodeName"] == node
    assert pod["metadata"]["name"] in kubectl("get", "pods", "-l", marks.OURS, "-o", "wide")
    seen: dict[str, t.Any] = {}

    def shows_the_tool() -> bool:
        answer = page.client.get("/api/v1/actions/rack-7/output", params={"node": f"lab/{node}"})
        seen.update(answer.json())
        return answer.status_code == 200 and bool(seen.get("lines"))

    console.wait(shows_the_tool, 120)
    assert seen["stage"] == "nccl_node" and seen["lines"][0].startswith("$ ") and "all_reduce_perf" in seen["lines"][0], seen
    assert "all_reduce_perf" in page.text("/runs/rack-7", node=f"lab/{node}").partition('id="output"')[2].partition("</pre>")[0]
    # At the end: conditions, the run, its page.
    rig_kubernetes.plant(node).write_text(nodes.conf(101))
    console.wait(lambda: console.statuses()["rack-7"].get("phase") == actions.FINISHED, 300)
    kubectl("wait", "--for=condition=Accepted", "--timeout=0", "syncaction/rack-7")
    described = kubectl("describe", "syncaction", "rack-7")
    (run,) = console.runs()
    for words in (run, "Phase: *Finished", "Verdict: *Accepted", "Type: *Accepted"):
        assert re.search(words, described), words
    assert run in kubectl("get", "syncactions", "-o", "wide")
    # The link of the status leads to the page of the request, and that to the result.
    (link,) = re.findall(r"Link: +(\S+)", described)
    assert f"/results/{run}" in page.text(link)
    assert 'class="verdict yes"' in page.text(f"/results/{run}")
    console.nothing_left()
