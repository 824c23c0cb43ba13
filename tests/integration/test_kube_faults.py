# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of a real cluster under groups of pods: webhooks that do not answer, preemption, eviction, tokens that expire, proxies."""

from __future__ import annotations

import base64
import contextlib
import json
import pathlib
import socket
import subprocess
import threading
import time
import typing as t

import pytest
import test_kube_groups as groups
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup, client
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils
from harness.namespace import roles
from rigs import common
from rigs.kubernetes.kubernetes import CONTROL, Kubernetes

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]
ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def lab(rig_kubernetes: Kubernetes) -> t.Iterator[groups.Lab]:
    made = groups.Lab(rig_kubernetes)
    yield made
    made.cluster.api.delete(f"/api/v1/namespaces/{made.namespace}")


# Admission webhooks --------------------------------------------------------------------------------------------------


HOOK = "gate.gpufleet.invalid"


@contextlib.contextmanager
def webhook(lab: groups.Lab, url: str) -> t.Iterator[None]:
    """Every pod of the namespace is to be asked for at an address where nobody answers; in force when this returns."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    hook = {
        "name": HOOK, "rules": [rule], "failurePolicy": "Fail", "timeoutSeconds": 1, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": url},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": lab.namespace}},
    }  # fmt: skip
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": lab.namespace},
        "webhooks": [hook],
    }  # fmt: skip
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asked"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}

    def in_force() -> bool:
        try:
            lab.admin.post(f"/api/v1/namespaces/{lab.namespace}/pods", pod, dryRun="All")
        except client.KubeError as error:
            return HOOK in error.reason
        return False

    lab.cluster.api.create(path, body)
    try:
        groups._until(in_force, 30)
        yield
    finally:
        lab.cluster.api.delete(f"{path}/{lab.namespace}")


@pytest.mark.long
@pytest.mark.parametrize("kind", groups.KINDS)
def test_a_webhook_that_does_not_answer_in_time(lab: groups.Lab, kind: str) -> None:
    """An address of the control machine's network that nobody has."""
    silent = lab.cluster.address(CONTROL).rsplit(".", 1)[0] + ".250"
    with webhook(lab, f"https://{silent}:9443/"):
        code, reason = groups.why(lab.run(kind))
    assert code == "admission" and HOOK in reason and "does not answer" in reason, (code, reason)


def test_a_webhook_that_cannot_be_reached(lab: groups.Lab) -> None:
    with webhook(lab, f"https://{lab.cluster.address(CONTROL)}:1/"):
        code, reason = groups.why(lab.run("statefulset"))
        assert code == "admission" and HOOK in reason and "refused" in reason, (code, reason)


# Who takes the place of our pods -------------------------------------------------------------------------------------


@contextlib.contextmanager
def important(lab: groups.Lab, node: str) -> t.Iterator[t.Callable[[], None]]:
    """Return the manifest of a pod of a class above ours that requests all devices of this node."""
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    high = f"high-{lab.namespace}"
    ours = {"metadata": {"name": "gpufleet-acceptance"}, "value": 0, "preemptionPolicy": "Never"}  # files/rbac/priority.yaml
    for one in (ours, {"metadata": {"name": high}, "value": 1000}):
        lab.cluster.api.create(classes, {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **one})
    container = {
        "name": "main", "image": lab.cluster.bare_image, "command": ["/bin/sleep", "600"], "resources": {"limits": {"nvidia.com/gpu": "8"}},
    }  # fmt: skip
    spec = {
        "priorityClassName": high, "nodeSelector": {"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }  # fmt: skip
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "training-0"}, "spec": spec}
    lab.before = {"training-0"}
    pods = f"/api/v1/namespaces/{lab.namespace}/pods"
    try:
        yield lambda: lab.cluster.api.create(pods, pod)
    finally:
        lab.cluster.api.delete(f"{pods}/training-0?gracePeriodSeconds=0")
        for name in (high, "gpufleet-acceptance"):
            lab.cluster.api.delete(f"{classes}/{name}")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["mpijob", "job", "statefulset"])
def test_a_group_whose_worker_is_preempted(lab: groups.Lab, kind: str) -> None:
    """Ours wait for free devices and take nobody's; who is above them takes theirs."""
    with important(lab, "kube-02") as come:
        lab.when("launcher", "Running", lambda _pod: come(), 2)
        code, reason = groups.why(lab.run(kind, ["sleep", "120"], timeout=120, priority_class="gpufleet-acceptance"))
    assert "PreemptionByScheduler" in reason and "preempting to accommodate a higher priority pod" in reason, (code, reason)
    assert code in ("evicted", "lost_node", "unreachable", "launch_failed", "tool_failed"), (code, reason)


def test_a_head_that_is_evicted_by_the_api(lab: groups.Lab) -> None:
    def evict(pod: dict[str, t.Any]) -> None:
        asked = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"], "namespace": lab.namespace}}
        lab.admin.post(f"/api/v1/namespaces/{lab.namespace}/pods/{pod['metadata']['name']}/eviction", asked)

    lab.when("launcher", "Running", evict, 2)
    code, reason = groups.why(lab.run("job", ["sleep", "120"], timeout=120))
    assert code == "evicted" and "EvictionByEvictionAPI" in reason, (code, reason)


# A token that expires ------------------------------------------------------------------------------------------------


# For so long the API server takes a token that has expired: clocks differ.
LEEWAY_S = 60


def token(lab: groups.Lab, account: str, seconds: float) -> str:
    """A token of this service account that is good for so long, signed as the API server signs them: it gives none below ten minutes."""

    def word(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    uid = lab.cluster.api.request("GET", f"/api/v1/namespaces/{lab.namespace}/serviceaccounts/{account}")["metadata"]["uid"]
    ends = int(time.time() + seconds) - LEEWAY_S
    issuer = "https://kubernetes.default.svc.cluster.local"
    claims = {
        "iss": issuer, "aud": [issuer], "iat": ends - 600, "nbf": ends - 600, "exp": ends,
        "sub": f"system:serviceaccount:{lab.namespace}:{account}",
        "kubernetes.io": {"namespace": lab.namespace, "serviceaccount": {"name": account, "uid": uid}},
    }  # fmt: skip
    signed = f"{word(json.dumps({'alg': 'ES256', 'typ': 'JWT'}).encode())}.{word(json.dumps(claims).encode())}"
    key = serialization.load_pem_private_key((lab.cluster.pki / "sa.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    pair = utils.decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{signed}.{word(b''.join(number.to_bytes(32, 'big') for number in pair))}"


def bearer(lab: groups.Lab, path: pathlib.Path) -> None:
    """From now on the lab's client comes with the token of this file, as a service account with the rights of a group."""
    lab.cluster.user("token-tester", roles(*groups.ROLES["job"]), lab.namespace, token_s=600)
    path.write_text(token(lab, "token-tester", 20))
    given = {"server": lab.cluster.server, "token_file": str(path), "ca_file": str(lab.cluster.pki / "ca.crt")}
    lab.api = client.connect(client.Connection("lab", namespace=lab.namespace, **given))


@pytest.mark.long
def test_a_token_that_expires_in_the_middle_of_a_group(lab: groups.Lab, tmp_path: pathlib.Path) -> None:
    """No result, for that reason; what it has made goes with the next start, which has a token again."""
    bearer(lab, tmp_path / "token")
    launched = lab.group("job", ["sleep", "35"], timeout=90)
    try:
        said = launched.run().result
        found = (said.get("reason_code"), said.get("reason"))
    except client.KubeError as error:
        found = (error.reason_code, error.reason)
    assert found[0] in ("credentials", "no_result") and "does not accept our credentials: expired" in str(found[1]), found
    with pytest.raises(client.KubeError, match="expired") as error:
        launched.clean()
    assert error.value.reason_code == "credentials" and lab.left()
    (tmp_path / "token").write_text(token(lab, "token-tester", 600))
    assert cleanup.janitor(lab.api, groups.RUN, "groups")
    lab.nothing_left()


@pytest.mark.long
def test_a_token_that_is_renewed_in_the_middle_of_a_group(lab: groups.Lab, tmp_path: pathlib.Path) -> None:
    bearer(lab, tmp_path / "token")
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(5):
            (tmp_path / "new").write_text(token(lab, "token-tester", 20))
            (tmp_path / "new").rename(tmp_path / "token")

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        found = groups.seen(lab.run("job", ["sleep", "35"], timeout=90))
    finally:
        stop.set()
        thread.join()
    assert found["outcome"] == "measured", found


# A proxy on the way to the API server --------------------------------------------------------------------------------


class Proxy:
    """A real one, which lets connections to port `allowed` through."""

    def __init__(self, folder: pathlib.Path, allowed: int) -> None:
        common.need_packages({"tinyproxy": "tinyproxy-bin"})
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = folder / "proxy.log"
        settings = folder / "proxy.conf"
        lines = (f"Port {self.port}", "Listen 127.0.0.1", "Allow 127.0.0.1", f'LogFile "{self.log}"', "LogLevel Connect", "MaxClients 100")
        settings.write_text("\n".join([*lines, "Timeout 600", f"ConnectPort {allowed}", ""]))
        self.child = subprocess.Popen(["tinyproxy", "-d", "-c", settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{self.port}"
        groups._until(self._listens, 10)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def passed(self) -> int:
        """How many connections it was asked for."""
        return self.log.read_text().count(": CONNECT ")

    def end(self) -> None:
        self.child.terminate()
        self.child.wait(10)


@pytest.fixture
def proxy(tmp_path: pathlib.Path) -> t.Iterator[Proxy]:
    made = Proxy(tmp_path, 6443)
    yield made
    made.end()


def through(lab: groups.Lab, url: str, no_proxy: str = "") -> client.Client:
    given = {"kubeconfig": lab.kubeconfig, "namespace": lab.namespace, "proxy": url, "no_proxy": no_proxy}
    return client.connect(client.Connection("lab", **given))


def test_a_group_through_a_proxy(lab: groups.Lab, proxy: Proxy) -> None:
    """Requests, the watch that stays open, and the logs."""
    lab.api = through(lab, proxy.url)
    found = groups.seen(lab.run("job", ["hostname"], ranks=1))
    assert found["outcome"] == "measured", found
    assert proxy.passed() >= 2 and f"CONNECT {lab.cluster.address(CONTROL)}:6443" in proxy.log.read_text()


def test_what_is_not_to_go_through_the_proxy(lab: groups.Lab, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """In both spellings, of ours and of the environment."""
    path = f"/api/v1/namespaces/{lab.namespace}/pods"
    for spelling, warned in (("localhost,10.233.0.0/16", False), ("localhost,10.233.*.*", True)):
        made = through(lab, proxy.url, spelling)
        assert made.get(path)["items"] == []
        assert bool([note for note in made.notes if "10.233.*.*" in note and "10.233.0.0/16" in note]) == warned
    assert proxy.passed() == 0
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    through(lab, "").get(path)
    assert proxy.passed() == 1
    monkeypatch.setenv("NO_PROXY", "10.233.*.*")
    made = through(lab, "")
    assert made.get(path)["items"] == [] and made.notes
    assert proxy.passed() == 1


def test_a_proxy_that_refuses_and_one_that_is_away(lab: groups.Lab, tmp_path: pathlib.Path) -> None:
    strict = Proxy(tmp_path, 443)
    try:
        with pytest.raises(client.KubeError, match="the proxy refuses") as error:
            through(lab, strict.url).get("/version")
        assert error.value.reason_code == "cluster_unreachable" and strict.url in error.value.reason
    finally:
        strict.end()
    with pytest.raises(client.KubeError, match="connection refused") as error:
        through(lab, strict.url).get("/version")
    assert error.value.reason_code == "cluster_unreachable" and strict.url in error.value.reason


# MPI that is not Open MPI --------------------------------------------------------------------------------------------


def test_hydra_in_pods(lab: groups.Lab) -> None:
    """MPICH's launcher, from the machine of the pod: the tester image has Open MPI."""
    common.need_packages({"/usr/bin/mpiexec.hydra": "mpich"})
    patch = {
        "spec": {"volumes": [{"name": "machine", "hostPath": {"path": "/usr"}}]},
        "container": {
            "volumeMounts": [{"name": "machine", "mountPath": "/machine", "readOnly": True}],
            "env": [{"name": "LD_LIBRARY_PATH", "value": "/machine/lib/x86_64-linux-gnu"}],
        },
    }
    found = groups.seen(lab.run("job", ["hostname"], ranks=2, pod_patch=patch, more={"mpirun": "/machine/bin/mpiexec.hydra"}))
    assert found["outcome"] == "measured", found
    assert found["context"]["launcher"].startswith("Hydra") and len(found["context"]["stdout"].split()) == 4
    assert len(set(found["context"]["stdout"].split())) == 2
