# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guardian pod's program as a real process, run from the payload's zip over a tree of plain files, and peers over real TCP."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import guardian_pod
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import session
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload

ROOT = pathlib.Path(__file__).resolve().parents[4]
SECRET, UID = "0123456789abcdef", "a-pod"
KEY = frame.nonce_of(SECRET, UID)
BEFORE = ["powersave", "schedutil", "performance"]
SWITCHED = ["performance"] * 3
# A test pod in small: holds the governor until its input ends.
PEER = """
import json, sys
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import guardian_pod
with guardian_pod.Held(json.loads(sys.argv[1])) as held:
    print(json.dumps(held.summary()), flush=True)
    sys.stdin.read()
print(json.dumps(held.summary()), flush=True)
"""
# What is on its way ends with the socket, and nobody is told (tcp(7), TCP_REPAIR of Linux).
TCP_REPAIR = 19


class Pod:
    """The host of a node in a folder, and a guardian's container on it that the kubelet starts when it is told to."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        (folder / "etc").mkdir()
        (folder / "etc/machine-id").write_text("0" * 32)
        (folder / "payload.zip").write_bytes(payload.archive())
        for number, value in enumerate(BEFORE):
            self.policy(number, value)
        self.process: subprocess.Popen[str] | None = None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.peers: list[subprocess.Popen[str]] = []

    def policy(self, number: int, value: str) -> None:
        policy = self.folder / f"sys/devices/system/cpu/cpufreq/policy{number}"
        policy.mkdir(parents=True)
        for name, text in (("scaling_governor", value), ("affected_cpus", str(number)), ("scaling_driver", "acpi-cpufreq")):
            (policy / name).write_text(text + "\n")

    @property
    def governors(self) -> list[str]:
        return [path.read_text().strip() for path in sorted(self.folder.glob("sys/devices/system/cpu/cpufreq/*/scaling_governor"))]

    def start(self, timeout: float = 60) -> None:
        told = {
            "governor": "performance", "state_dir": str(self.state), "machine": str(self.folder), "run_id": "20260101T000000Z-000001",
            "stage": "rdma", "timeout": timeout, "port": self.port, "root": str(self.folder),
        }  # fmt: skip
        (self.folder / "request-0.json").write_text(json.dumps({"guardian": told}))
        environment = {"PATH": os.environ["PATH"], "GPUFLEET_SECRET": SECRET, "GPUFLEET_POD_UID": UID}
        command = [sys.executable, str(self.folder / "payload.zip"), str(self.folder / "request-0.json")]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end(self, number: int) -> str:
        """Signal the guardian; what it had said."""
        assert self.process
        self.process.send_signal(number)
        said = self.process.communicate(timeout=60)[0]
        assert self.process.returncode == (0 if number == signal.SIGTERM else -number), said
        return said

    def told(self, **other: t.Any) -> dict[str, t.Any]:
        return {"governor": "performance", "address": "127.0.0.1", "port": self.port, "key": KEY, **other}

    def peer(self, **other: t.Any) -> tuple[subprocess.Popen[str], dict[str, t.Any]]:
        """A test pod, and what it was answered."""
        peer = subprocess.Popen(
            [sys.executable, "-c", PEER, json.dumps(self.told(**other))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, PYTHONPATH=str(ROOT / ".collections")),
        )  # fmt: skip
        self.peers.append(peer)
        assert peer.stdout
        return peer, json.loads(peer.stdout.readline())

    def close(self) -> None:
        for process in [*self.peers, *([self.process] if self.process else [])]:
            process.kill()
            process.communicate()


@pytest.fixture
def pod(tmp_path: pathlib.Path) -> t.Iterator[Pod]:
    found = Pod(tmp_path)
    try:
        yield found
    finally:
        found.close()


def until(what: t.Callable[[], t.Any], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, what()
        time.sleep(0.02)


def last(peer: subprocess.Popen[str]) -> dict[str, t.Any]:
    """What a peer says in the end, told to end or not."""
    return t.cast("dict[str, t.Any]", json.loads(peer.communicate("", timeout=60)[0]))


def test_each_policy_gets_its_own_value_back_when_its_peer_is_done(pod: Pod) -> None:
    pod.start()
    peer, said = pod.peer()
    assert said["state"] == "switched" and pod.governors == SWITCHED and (pod.state / "ledger.jsonl").exists()
    assert said["before"] == {"powersave": 1, "schedutil": 1, "performance": 1}
    done = last(peer)
    assert done["state"] == "switched" and done["given_back"] == ["restored the governor of 2 policies"]
    assert pod.governors == BEFORE and not pod.state.exists()
    pod.peer()  # and the next may come
    assert pod.governors == SWITCHED
    assert "restored the governor of 2 policies" in pod.end(signal.SIGTERM)
    assert pod.governors == BEFORE and not pod.state.exists()


def test_governors_come_back_when_the_peer_is_killed(pod: Pod) -> None:
    pod.start()
    peer, _said = pod.peer()
    peer.kill()
    until(lambda: pod.governors == BEFORE and not pod.state.exists())


def test_a_peer_that_vanishes_without_a_word(pod: Pod) -> None:
    pod.start()
    until(lambda: _listens(pod))
    link = socket.create_connection(("127.0.0.1", pod.port))
    link.sendall(json.dumps({"key": KEY}).encode() + b"\n")
    assert json.loads(link.recv(4096))["state"] == "switched"
    try:
        link.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    except PermissionError:
        pytest.skip("to vanish takes CAP_NET_ADMIN")
    finally:
        link.close()
    assert pod.governors == SWITCHED
    until(lambda: pod.governors == BEFORE, guardian_pod.IDLE_S + guardian_pod.AGAIN_S * guardian_pod.TRIES + 60)


@pytest.mark.parametrize("why", ["told to end", "deadline"])
def test_sigterm_and_deadline_give_back_and_tell_the_peer(pod: Pod, why: str) -> None:
    pod.start(timeout=12 if why == "deadline" else 60)
    peer, said = pod.peer()
    assert said["state"] == "switched"
    if why == "told to end":
        pod.end(signal.SIGTERM)
    until(lambda: pod.process and pod.process.poll() == 0)
    assert pod.governors == BEFORE and not pod.state.exists()
    done = last(peer)
    assert (done["state"], done["reason_code"]) == ("lost", "guardian_lost") and why in done["reason"]
    assert done["given_back"] == ["restored the governor of 2 policies"]


def test_kill_9_of_the_guardian_is_put_right_when_it_starts_again(pod: Pod) -> None:
    pod.start()
    peer, _said = pod.peer()
    pod.end(signal.SIGKILL)
    assert pod.governors == SWITCHED
    done = last(peer)
    assert done["state"] == "lost" and "is gone" in done["reason"]
    pod.start()
    until(lambda: pod.governors == BEFORE and not pod.state.exists())
    assert "restored the governor of 2 policies" in pod.end(signal.SIGTERM)


def test_what_a_killed_guardian_left_is_put_right_by_a_session_behind_ssh(pod: Pod) -> None:
    pod.start()
    pod.peer()
    pod.end(signal.SIGKILL)
    own = session.Session(str(pod.state), "20260101T000000Z-000002", "governor", 60)
    own.start(lambda: ())
    own.wait(10)
    own.collect()
    assert own.undone == ["restored the governor of 2 policies"] and pod.governors == BEFORE
    until(lambda: not pod.state.exists())


def test_the_rest_of_a_ledger_is_left_to_whom_it_belongs(pod: Pod) -> None:
    pod.state.mkdir()
    ledger = session.Ledger(str(pod.state))
    ledger.record("container", engine="docker", cidfile="/nowhere")
    ledger.process(os.getpid())
    kept = ledger.entries()
    pod.start()
    peer, said = pod.peer()
    assert said["state"] == "switched"
    assert last(peer)["given_back"] and pod.governors == BEFORE
    assert ledger.entries() == kept


def test_what_somebody_else_has_changed_stays(pod: Pod) -> None:
    pod.start()
    peer, _said = pod.peer()
    (pod.folder / "sys/devices/system/cpu/cpufreq/policy0/scaling_governor").write_text("ondemand\n")
    (words, left) = last(peer)["given_back"]
    assert words == "restored the governor of 1 policy" and "policy0 is left at ondemand: it was changed" in left
    assert pod.governors == ["ondemand", "schedutil", "performance"]


def test_a_wrong_key_and_a_second_peer_are_refused(pod: Pod) -> None:
    pod.start()
    peer, said = pod.peer(key="f" * 32)
    assert (said["state"], said["reason_code"]) == ("not_switched", "no_permission") and pod.governors == BEFORE
    last(peer)
    first, said = pod.peer()
    assert said["state"] == "switched"
    second, said = pod.peer()
    assert (said["state"], said["reason_code"]) == ("not_switched", "busy_run")
    assert last(second)["state"] == "not_switched" and pod.governors == SWITCHED
    with socket.create_connection(("127.0.0.1", pod.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert json.loads(stranger.recv(4096))["state"] == "not_switched"
    assert last(first)["given_back"] and pod.governors == BEFORE


@pytest.mark.parametrize("holder", ["lock", "machine"])
def test_a_node_that_is_measured_behind_ssh_is_left_alone(pod: Pod, holder: str) -> None:
    if holder == "lock":
        lock = session.Lock(str(pod.state))
        assert lock.try_acquire()
        lock.sign(run_id="20260101T000000Z-000009", stage="gemm", pid=os.getpid())
        handle = lock.handle
    else:
        handle = os.open(pod.folder / "etc", os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_SH)
    pod.start()
    peer, said = pod.peer()
    assert said["state"] == "not_switched" and pod.governors == BEFORE
    by_machine = ("duplicate_identity", "a run on the machine itself")
    code, words = {"lock": ("busy_run", "20260101T000000Z-000009"), "machine": by_machine}[holder]
    assert said["reason_code"] == code and words in said["reason"]
    last(peer)
    os.close(handle)
    assert pod.peer()[1]["state"] == "switched"


def test_a_session_behind_ssh_is_refused_while_it_holds(pod: Pod) -> None:
    pod.start()
    pod.peer()
    with pytest.raises(ReasonedError, match=r"run 20260101T000000Z-000001 \(stage rdma"):
        session.Session(str(pod.state), "20260101T000000Z-000002", "gemm", 60).start(lambda: ())


def test_a_node_without_cpufreq_says_so(pod: Pod) -> None:
    for path in pod.folder.glob("sys/devices/system/cpu/cpufreq/*/scaling_governor"):
        path.unlink()
    pod.start()
    peer, said = pod.peer()
    assert (said["state"], said["reason_code"]) == ("not_switched", "no_cpufreq")
    assert last(peer)["state"] == "not_switched"
    until(lambda: not pod.state.exists())


def test_a_guardian_that_does_not_listen_leaves_the_governor_unswitched(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guardian_pod, "CONNECT_S", 0.3)
    with guardian_pod.Held(pod.told()) as held:
        said = held.summary()
    assert (said["state"], said["reason_code"]) == ("not_switched", "unreachable") and f"127.0.0.1:{pod.port}" in said["reason"]


def test_a_guardian_that_was_never_there() -> None:
    with guardian_pod.Held({"governor": "performance", "reason_code": "image_pull", "reason": "its guardian pod: no image"}) as held:
        said = held.summary()
    assert (said["state"], said["reason_code"], said["wanted"]) == ("not_switched", "image_pull", "performance")


def _listens(pod: Pod) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", pod.port)):
        return True
    return False
