# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A manifest as a stage: what it may say, what is submitted, when it has ended, and what counts as its result."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import pathlib
import typing as t

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry as planes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import (
    client,
    logs,
    manifests,
    marks,
    settings,
    states,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import manifest, objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import probe as node_probe
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import manifest as stage

EXAMPLES = collection.ROOT / "docs" / "examples"


def load(path_or_manifest: t.Any) -> t.Any:
    """Return a manifest as the plan takes it."""
    manifest, where = stage.read(path_or_manifest, "acceptance_stages[0]")
    planes.require_manifest(manifest, where)
    return manifest


def example(name: str = "burn-in.yml", **pod: t.Any) -> dict[str, t.Any]:
    found = copy.deepcopy(load(str(EXAMPLES / name)))
    found["spec"]["template"]["spec"].update(pod)
    return found


def submitted(wanted: dict[str, t.Any], **variables: t.Any) -> dict[str, t.Any]:
    launch = objects.Launch("20260101T000000Z-0a1b2c", "own", "lab", 900.0)
    given = {f"acceptance_kube_{name}": value for name, value in {"image": "a:1", **variables}.items()}
    return manifest.body(launch, "name", wanted, ["n1", "n2"], settings.pods(given))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.update(kind="Pod"), "found batch/v1 Pod, expected a Job of batch/v1"),
        (lambda m: m.update(apiVersion="batch/v1beta1"), "found batch/v1beta1 Job"),
        (lambda m: m["metadata"].update(namespace="x"), "metadata.namespace"),
        (lambda m: m["metadata"].update(annotations={manifests.RESULT: "yes"}), "found 'yes', expected framed"),
        (lambda m: m["spec"]["template"]["spec"].update(containers=[]), "containers"),
        (lambda m: m["spec"]["template"]["spec"].update(nodeName="n"), "nodeName is not for the manifest"),
        (lambda m: m["spec"]["template"]["spec"].update(affinity={"nodeAffinity": {"a": 1}}), "nodeAffinity is not for"),
        (lambda m: m["spec"]["template"]["spec"]["containers"][0].update(env=[{"name": "GPUFLEET_NONCE"}]), "env GPUFLEET_NONCE"),
    ],
)  # fmt: skip
def test_a_manifest_that_sets_a_field_of_ours_is_refused(change: t.Callable[[dict[str, t.Any]], None], words: str) -> None:
    wanted = example()
    change(wanted)
    with pytest.raises(RunError, match="acceptance_stages") as raised:
        load(wanted)
    assert words in str(raised.value)


def test_a_manifest_needs_a_plane_that_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planes, "shipped", lambda: {"ssh": planes.of({}, "host")})
    with pytest.raises(RunError, match=r"acceptance_stages\[0\]: no plane of the collection takes manifests"):
        load(yaml.safe_load((EXAMPLES / "burn-in.yml").read_text()))


def test_files_that_are_no_manifest(tmp_path: pathlib.Path) -> None:
    (tmp_path / "two.yml").write_text("a: 1\n---\nb: 1\n")
    for name, words in (("absent.yml", "No such file"), ("two.yml", "single document")):
        with pytest.raises(RunError, match=words):
            load(str(tmp_path / name))


def test_a_job_is_once_on_its_node_and_has_an_end() -> None:
    made = submitted(example(affinity={"podAffinity": {"x": 1}}), image_pull_secrets=["s"], priority_class="p")
    spec = made["spec"]["template"]["spec"]
    assert made["spec"]["backoffLimit"] == 0 and spec["restartPolicy"] == "Never" and spec["activeDeadlineSeconds"] == 900
    assert spec["affinity"]["podAffinity"] and spec["affinity"]["nodeAffinity"]
    assert spec["containers"][0]["name"] == marks.CONTAINER and not spec["automountServiceAccountToken"]
    assert spec["imagePullSecrets"] == [{"name": "s"}] and spec["priorityClassName"] == "p"
    for metadata in (made["metadata"], made["spec"]["template"]["metadata"]):
        assert metadata["labels"][marks.RUN] and metadata["annotations"][marks.EXPIRES]


def test_a_daemonset_keeps_its_labels_and_is_found_by_ours() -> None:
    made = submitted(example("disk-read.yml"))
    labels = made["spec"]["template"]["metadata"]["labels"]
    (wanted,) = made["spec"]["selector"]["matchLabels"].items()
    assert wanted in labels.items() and labels["component"] == "probe"
    assert manifests.framed(example("disk-read.yml")) and not manifests.framed(example())


@pytest.mark.parametrize("power", [{"hostPID": True}, {"hostIPC": True}])
def test_powers_must_be_allowed(power: dict[str, t.Any]) -> None:
    with pytest.raises(KubeError, match="acceptance_kube_allow"):
        submitted(example(**power))
    assert submitted(example(**power), allow=["host_pid", "host_ipc"])


def daemon(status: dict[str, t.Any], **container: t.Any) -> dict[str, t.Any]:
    containers = [{"name": "probe", **container}]
    of = {"name": "probe", **status}
    return {"spec": {"restartPolicy": "Always", "containers": containers}, "status": {"phase": "Running", "containerStatuses": [of]}}


@pytest.mark.parametrize(
    ("pod", "phase", "status"),
    [
        (daemon({"state": {"running": {}}, "ready": True}), "Running", None),
        (daemon({"state": {"running": {}}, "ready": True}, readinessProbe={"exec": {}}), "Succeeded", None),
        (daemon({"state": {"terminated": {"exitCode": 0}}}), "Succeeded", 0),
        (daemon({"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 3}}}), "Failed", 3),
        (daemon({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 0}}}), "Succeeded", 0),
    ],
)  # fmt: skip
def test_the_first_end_of_a_daemonsets_container(pod: dict[str, t.Any], phase: str, status: int | None) -> None:
    found = manifest.first_end(pod, framed=True)
    assert found["status"]["phase"] == phase
    assert (found["status"]["containerStatuses"][0]["state"].get("terminated") or {}).get("exitCode") == status


def test_a_container_that_is_only_ready_has_said_nothing_by_its_exit_status() -> None:
    pod = daemon({"state": {"running": {}}, "ready": True}, readinessProbe={"exec": {}})
    assert manifest.first_end(pod, framed=False) == pod


@pytest.mark.parametrize(("status", "state"), [(None, "refused"), (0, "done")])
def test_no_exit_status_is_no_result(monkeypatch: pytest.MonkeyPatch, status: int | None, state: str) -> None:
    nobody = client.connect(client.Connection("lab", server="https://127.0.0.1:1"))
    pods = settings.pods({"acceptance_kube_image": "a:1"})
    probe = manifest.ManifestProbe(nobody, pods, "20260101T000000Z-0a1b2c", "own", 60, example(), {"a": [("own", "")]})
    monkeypatch.setattr(probe, "_log", lambda *_all: logs.PodLog(None, "", "", ""))
    followed = node_probe.FollowedNode("a", request=node_probe.NodeRequest("a", {}))
    followed.uid, followed.state = "u", states.State(states.ENDED)
    if status is not None:
        probe._ends["u"] = status
    said = probe.answer_of(followed).result
    assert all(item["context"]["condition"] is True for item in said.get("observations", ())), "it needs no number"
    assert said["state"] == state and said.get("reason_code") == (None if status == 0 else "no_result")


def line(text: str, nonce: str = "n", size: int | None = None) -> bytes:
    digest = hashlib.sha256(text.encode()).hexdigest()
    count = len(text) if size is None else size
    return f"x gpufleet-result/1 {nonce} {count} {digest} {base64.b64encode(text.encode()).decode()}".encode()


def read(*lines: bytes) -> t.Any:
    reader = manifest.ManifestReader("n")
    for one in lines:
        reader.feed(one)
    try:
        return reader.result()
    except ReasonedError as error:
        return error.reason_code


GOOD = json.dumps({"observations": [{"check": "own"}]})


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([b"noise", line(GOOD), line(GOOD, "other"), b"noise"], json.loads(GOOD)),
        ([b"noise"], "no_result"),
        ([line(GOOD, "other")], "forged_frame"),
        ([line(GOOD), line(GOOD)], "incomplete_output"),
        ([line(GOOD, size=3)], "incomplete_output"),
        ([line(GOOD)[:-20]], "incomplete_output"),
        ([line(GOOD)[:20]], "no_result"),
        ([line("[]")], "incomplete_output"),
        ([line("{}")], "incomplete_output"),
        ([line("{")], "incomplete_output"),
    ],
)
def test_only_a_whole_result_of_its_own_pod_counts(lines: list[bytes], found: t.Any) -> None:
    assert read(*lines) == found


def test_the_examples_are_valid_yaml_of_one_document() -> None:
    assert all(isinstance(yaml.safe_load(path.read_text()), dict) for path in EXAMPLES.glob("*.yml"))
