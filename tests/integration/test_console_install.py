# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/console.yml on a cluster: makes what is missing, makes nothing twice, and takes all away but the data."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.cluster import ClusterActions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import client
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Connection, KubeError
from harness.console_lab import play
from harness.namespace import Namespace
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = pytest.mark.kubernetes
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/syncactions.acceptance.gpufleet.dev"
NAME = "gpufleet-acceptance-console"
IMAGE, ALLOWED = "registry.example.com/console:1", "registry.example.com/tester:1"
SPEC = {"stages": {"pool": {}, "names": ["stack"]}, "suspend": True}
Object = t.Any


class Installed(Namespace):
    def __init__(self, rig: Kubernetes, folder: pathlib.Path) -> None:
        super().__init__(rig, [])
        self.folder = folder
        lab = {
            "acceptance_plane": "kubernetes", "acceptance_kube_kubeconfig": str(rig.kubeconfig),
            "acceptance_kube_namespace": self.namespace, "acceptance_kube_image": rig.image, "acceptance_kube_env": {"SECRET": "s3cret"},
            "console_image": IMAGE, "console_wait": 0, "console_images": [ALLOWED],
            "console_variables": {"acceptance_kube_pod_patch": {"spec": {"hostNetwork": True}}},
            "console_host": "console.example.com", "console_ingress_class": "nginx", "console_tls_secret": "tls",
        }  # fmt: skip
        (folder / "inventory.json").write_text(json.dumps({"all": {"hosts": {"lab": lab}}}))

    def play(self, *more: str) -> str:
        return play(self.folder / "inventory.json", *more, secret="s3cret")

    def there(self, path: str) -> Object:
        try:
            return self.admin.get(path)
        except KubeError as error:
            assert error.status == 404, error
            return None

    def objects(self) -> dict[str, Object]:
        rbac, core = "/apis/rbac.authorization.k8s.io/v1", f"/api/v1/namespaces/{self.namespace}"
        paths = {
            "crd": CRD, "deployment": f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{NAME}", "told": f"{core}/configmaps/{NAME}",
            "account": f"{core}/serviceaccounts/{NAME}", "role": f"{rbac}/namespaces/{self.namespace}/roles/{NAME}",
            "binding": f"{rbac}/clusterrolebindings/{NAME}-{self.namespace}-nodes", "data": f"{core}/persistentvolumeclaims/{NAME}",
            "key": f"{core}/secrets/{NAME}", "service": f"{core}/services/{NAME}",
        }  # fmt: skip
        return {name: self.there(path) for name, path in paths.items()}

    def account(self) -> Connection:
        """The way to the API as the console has it."""
        core = f"/api/v1/namespaces/{self.namespace}"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token, ca = self.folder / "token", self.folder / "ca"
        token.write_text(self.admin.post(f"{core}/serviceaccounts/{NAME}/token", request)["status"]["token"])
        ca.write_text(self.there(f"{core}/configmaps/kube-root-ca.crt")["data"]["ca.crt"])
        return Connection("lab", server=self.admin.server, token_file=str(token), ca_file=str(ca), namespace=self.namespace)


def test_the_console_is_made_once_and_taken_away_but_for_its_data(rig_kubernetes: Kubernetes, tmp_path: pathlib.Path) -> None:
    installed = Installed(rig_kubernetes, tmp_path)
    try:
        assert not any(installed.objects().values())
        assert installed.play("--check") == "changed=1" and not any(installed.objects().values())
        assert installed.play() == "changed=1"
        found = installed.objects()
        assert all(found.values())
        assert installed.play() == "changed=0", "the second time there is nothing to do"
        assert "s3cret" not in json.dumps(found)
        told = json.loads(found["told"]["data"]["inventory.json"])["all"]["hosts"]["cluster"]
        assert told["acceptance_kube_image"] == rig_kubernetes.image
        assert told["acceptance_kube_pod_patch"] == {"spec": {"hostNetwork": True}}
        assert not {"acceptance_kube_kubeconfig", "acceptance_kube_env"} & set(told)
        containers = found["deployment"]["spec"]["template"]["spec"]["containers"]
        assert len(containers) == 2
        for container in containers:
            assert container["image"] == IMAGE and f"--image={ALLOWED}" in container["command"]
        assert installed.play("-e", "console_image=registry.example.com/console:2") == "changed=1", "an upgrade"
        assert installed.objects()["key"]["data"] == found["key"]["data"] != {}, "nobody has to sign in again"
        # Its own account may what it needs, and no more.
        account = installed.account()
        kept = ClusterActions(account, selector="!type")
        made = kept.create(None, SPEC, "me")
        reader = client.connect(account)
        for path in ("/api/v1/namespaces/kube-system/secrets", f"/apis/apps/v1/namespaces/{installed.namespace}/deployments", CRD):
            with pytest.raises(KubeError) as caught:
                reader.get(path)
            assert caught.value.status == 403
        kept.delete(made.name)
        assert installed.play("-e", "state=absent") == "changed=1"
        left = installed.objects()
        assert left.pop("data") and not any(left.values())
        assert installed.play("-e", "state=absent") == "changed=0"
    finally:
        if installed.there(CRD):
            installed.play("-e", "state=absent")
        installed.admin.delete(f"/api/v1/namespaces/{installed.namespace}/persistentvolumeclaims/{NAME}")
