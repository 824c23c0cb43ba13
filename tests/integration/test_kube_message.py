# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The way of an answer from a real kubelet: as the termination message of its pod where it fits, else by the log, which is believed alone
where a message is not ours."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import logs, settings, states
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects, probe
from harness.namespace import Namespace, roles
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]
RUN = "20260101T000000Z-0a1b2c"
NODE = "kube-01"
# More than a message takes, and no compression helps.
MUCH = "head -c 9000 /dev/urandom | base64"
FORGED = b"".join(frame.lines({"state": "done", "observations": []}, frame.nonce_of("guessed", "uid"))).decode()


class Seen(t.NamedTuple):
    said: dict[str, t.Any]
    # What the kubelet reported as the container's message, and how many logs were read.
    message: str
    logs: int


@pytest.fixture
def answer(rig_kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., Seen]:
    """Return the answer of a pod on a real node whose tool is this line of shell, and how it came."""
    lab = Namespace(rig_kubernetes, roles("probe", "daemonset", "job"))
    read: list[str] = []
    real = logs.read

    def counted(client: t.Any, pod: str, *more: t.Any) -> logs.PodLog:
        read.append(pod)
        return real(client, pod, *more)

    def run(line: str, **variables: t.Any) -> Seen:
        monkeypatch.setattr(logs, "read", counted)
        given = {"image": rig_kubernetes.image, "start_timeout": 60, **variables}
        pods = settings.pods({f"acceptance_kube_{name}": value for name, value in given.items()})
        metrics = [{"name": "busbw", "unit": "GB/s", "regex": "busbw=([0-9]+)"}]
        args = {"checks": [{"check": "read"}], "argv": ["sh", "-c", f"{line}; echo busbw=42"], "metrics": metrics, "timeout": 60}
        request = payload.request("measure", payload.options("measure"), args)
        running = probe.NodeProbe(lab.api, pods, RUN, "own", 60, payload.archive())
        try:
            (found,) = [one for answers in running.run([probe.NodeRequest(NODE, request)]) for one in answers]
            (pod,) = lab.admin.get(running.pods, labelSelector=running.launch.selector)["items"]
        finally:
            assert running.clean() == []
        lab.nothing_left()
        return Seen(found.result, states.message(pod), len(read))

    return run


def measured(said: dict[str, t.Any]) -> bool:
    (seen,) = said.get("observations") or [{}]
    return seen.get("outcome") == "measured" and seen["metrics"]["busbw"] == {"value": 42.0, "unit": "GB/s"}


@pytest.mark.parametrize("launcher", ["pods", "daemonset", "job"])
def test_a_small_answer_comes_with_the_watch(answer: t.Callable[..., Seen], launcher: str) -> None:
    seen = answer("true", launcher=launcher)
    assert measured(seen.said), seen
    assert seen.logs == 0 and len(seen.message) < frame.MESSAGE_LIMIT


@pytest.mark.parametrize("launcher", ["pods", "daemonset"])
def test_one_that_does_not_fit_is_read_from_the_log(answer: t.Callable[..., Seen], launcher: str) -> None:
    seen = answer(MUCH, launcher=launcher)
    assert measured(seen.said), seen
    assert seen.logs == 1 and not seen.message


@pytest.mark.parametrize(
    ("tool", "ends"),
    [
        (f"printf %s '{FORGED}' > {objects.MESSAGE}; {MUCH}", FORGED[-40:]),
        (f"head -c 9000 /dev/zero | tr '\\0' x > {objects.MESSAGE}; {MUCH}", "x" * 40),
    ],
    ids=["forged", "cut"],
)
def test_a_message_of_the_tool_is_not_believed(answer: t.Callable[..., Seen], tool: str, ends: str) -> None:
    """It may write where the kubelet reads. What it says there is neither an answer nor keeps the true one away."""
    seen = answer(tool)
    assert seen.message.endswith(ends.strip()) or seen.message.endswith(ends), seen.message[-80:]
    assert measured(seen.said) and seen.logs == 1, seen


def test_before_our_own_message_it_is_overwritten(answer: t.Callable[..., Seen]) -> None:
    seen = answer(f"printf %s '{FORGED}' > {objects.MESSAGE}")
    assert measured(seen.said) and seen.logs == 0, seen


def test_a_message_that_is_asked_for_elsewhere_leaves_the_log(answer: t.Callable[..., Seen]) -> None:
    seen = answer("true", pod_patch={"container": {"terminationMessagePath": "/tmp/other"}})
    assert measured(seen.said) and seen.logs == 1 and not seen.message, seen


@pytest.mark.parametrize("launcher", ["daemonset", "job"])
def test_a_probe_that_is_ended_is_not_run_again(answer: t.Callable[..., Seen], launcher: str) -> None:
    """The kubelet starts it again where it is a DaemonSet's; how it ended the first time is what is told."""
    seen = answer("echo ran >&2; kill -TERM 1; sleep 60", launcher=launcher)
    assert seen.said["reason_code"] == "container_failed" and "exit status 143" in seen.said["reason"], seen
