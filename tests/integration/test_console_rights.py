# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rights in the console of a cluster come from its API server: real tokens, real roles, and a console with the rights of
files/console and no more."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
import starlette.testclient
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import cluster
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import in_cluster, settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Connection, KubeError
from cryptography.fernet import Fernet
from harness.console_lab import RBAC, person, until
from harness.namespace import Namespace, roles
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = pytest.mark.kubernetes
FILES = pathlib.Path(__file__).resolve().parents[2] / "files/console"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HOST = "console.test"
VERBS = {"ann": ["get", "list", "create", "patch", "delete"], "bob": ["get", "list"], "stranger": []}


@pytest.fixture
def namespace(rig_kubernetes: Kubernetes) -> t.Iterator[Namespace]:
    """With the resource, and a console's user that may what files/console says."""
    own = [yaml.safe_load((FILES / f"{name}.yaml").read_text()) for name in ("rbac", "reviews")]
    found = Namespace(rig_kubernetes, [*roles("probe"), *own])
    crd = yaml.safe_load((FILES / "crd.yaml").read_text())
    path = f"{CRDS}/{crd['metadata']['name']}"
    found.admin.post(CRDS, crd)

    def served() -> bool:
        conditions = found.admin.get(path).get("status", {}).get("conditions") or []
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    def gone() -> bool:
        try:
            found.admin.get(path)
        except KubeError as error:
            return error.status == 404
        return False

    until(served)
    try:
        yield found
    finally:
        for item in found.admin.get(cluster._path(found.namespace))["items"]:
            found.admin.patch(f"{cluster._path(found.namespace)}/{item['metadata']['name']}", {"metadata": {"finalizers": []}})
        found.admin.delete(path)
        until(gone)


def test_the_api_server_says_who_it_is_and_what_they_may(namespace: Namespace, tmp_path: pathlib.Path) -> None:
    where = namespace.namespace
    tokens = {name: {"authorization": f"Bearer {person(namespace.admin, where, name, verbs)}"} for name, verbs in VERBS.items()}
    options = settings.Settings(str(tmp_path / "results"), namespace=where, hosts=frozenset({HOST}), rights_s=0.0)
    app = in_cluster.made(
        Connection("lab", kubeconfig=namespace.kubeconfig, namespace=where), options, Fernet.generate_key(), selector="!type"
    )

    def client() -> starlette.testclient.TestClient:
        return starlette.testclient.TestClient(app, base_url=f"http://{HOST}", client=("192.0.2.1", 1), follow_redirects=False)

    program = client()
    nodes = [one["name"] for one in program.get("/api/v1/nodes", headers=tokens["bob"]).json()["nodes"]]
    assert nodes
    wanted = {"name": "mine", "spec": {"suspend": True, "stages": {"names": ["stack"], "nodes": nodes[:1]}}}
    until(lambda: program.get("/api/v1/actions", headers=tokens["ann"]).status_code == 200)  # the authorizer has read the roles
    assert program.get("/api/v1/actions").status_code == 401
    assert program.get("/api/v1/actions", headers={"authorization": "Bearer x.y.z"}).status_code == 401
    assert program.get("/api/v1/actions", headers=tokens["stranger"]).status_code == 403
    assert program.post("/api/v1/actions", json=wanted, headers=tokens["bob"]).status_code == 403
    assert program.post("/api/v1/actions", json=wanted, headers=tokens["ann"]).status_code == 201
    kept = namespace.admin.get(f"{cluster._path(where)}/mine")
    assert kept["metadata"]["annotations"][cluster.ASKED_BY] == f"system:serviceaccount:{where}:ann"
    assert program.delete("/api/v1/actions/mine", headers=tokens["bob"]).status_code == 403
    # In a browser, by a token that stands in no page and no cookie.
    browser = client()
    secret = tokens["ann"]["authorization"].removeprefix("Bearer ")
    entered = browser.post("/enter", data={"token": secret}, headers={"origin": f"http://{HOST}"})
    assert entered.status_code == 303 and secret not in entered.headers["set-cookie"]
    until(lambda: browser.get("/runs/mine").status_code == 200)
    page = browser.get("/runs/mine").text
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found and secret not in page
    # The right is taken away while the page is open, then the person.
    namespace.admin.delete(f"{RBAC}/namespaces/{where}/rolebindings/ann")
    until(lambda: browser.post("/runs/mine", data={"csrf": found[1], "do": "nothing"}).status_code == 403)
    assert browser.post("/runs/mine", data={"csrf": found[1], "do": "cancel"}).status_code == 403
    assert not namespace.admin.get(f"{cluster._path(where)}/mine")["spec"].get("cancel")
    namespace.admin.delete(f"/api/v1/namespaces/{where}/serviceaccounts/ann")
    until(lambda: browser.get("/runs").status_code == 401)
