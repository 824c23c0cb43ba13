# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The two halves of a group in pods: a real sshd that lets the head in, and the head's words where it does not."""

from __future__ import annotations

import contextlib
import pathlib
import secrets
import shutil
import socket
import subprocess
import threading
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import group, head, launching, member, worker
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import leases
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process, session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def keys(tmp_path: pathlib.Path) -> pathlib.Path:
    if not any(shutil.which(name) for name in worker._PROGRAMS):
        pytest.skip("needs sshd")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "identity"], check=True)
    (tmp_path / "identity").chmod(0o640)  # as a pod's fsGroup makes it
    return tmp_path


def entering(port: int, keys: pathlib.Path, folder: pathlib.Path, command: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    identity = head._identity(str(keys / "identity"), str(folder))
    argv = ["ssh", "-o", "BatchMode=yes", *head.ssh_args(port, identity), "127.0.0.1", command]
    return subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.parametrize("is_file", [True, False])
def test_a_worker_lets_the_groups_key_in_and_passes_its_environment_on(
    keys: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, is_file: bool
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/hpcx/lib:/a b")
    monkeypatch.setenv("GPUFLEET_POD_UID", "u-1")
    port = free_port()
    public = keys / "identity.pub"
    key = {"authorized_keys": str(public)} if is_file else {"public_key": public.read_text().strip()}
    child = worker._start({"port": port, **key}, Node(60), str(tmp_path))
    try:
        said = entering(port, keys, tmp_path / "head", "env")
        assert said.returncode == 0, said.stderr
        assert "LD_LIBRARY_PATH=/opt/hpcx/lib:/a b" in said.stdout.splitlines()
        assert "GPUFLEET_POD_UID" not in said.stdout
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
        (keys / "identity").write_bytes((tmp_path / "other").read_bytes())
        assert entering(port, keys, tmp_path / "again", "true").returncode == 255
    finally:
        worker.process.end(child)


def test_the_files_of_a_worker_that_is_killed_are_given_back(tmp_path: pathlib.Path) -> None:
    leases.register()
    assert session.LEASES["worker"] is worker.undo
    ledger = session.Ledger(str(tmp_path))
    with worker._folder(Node(60, ledger)) as folder:
        pathlib.Path(folder, "host_key").touch()
        assert ledger.undo() == [f"removed {folder}"] and not pathlib.Path(folder).exists()
    assert not worker.undo({"folder": str(tmp_path)}) and tmp_path.exists()


def test_a_port_in_use_is_named(keys: pathlib.Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        # Nobody must take the listener of somebody else for our sshd.
        params = {"port": port, "authorized_keys": str(keys / "identity.pub"), "work": None}
        seen = list(worker.probe(params, Node(30)))
    assert [one["reason_code"] for one in seen] == ["port_in_use"] and str(port) in seen[0]["reason"]


@pytest.mark.parametrize(("code", "said"), [("partner", ("tool_missing", True)), ("gpu_count", ("gpu_count", False))])
def test_a_worker_without_sshd_is_a_member_where_the_head_may_come_without(
    monkeypatch: pytest.MonkeyPatch, code: str, said: tuple[str, bool]
) -> None:
    """If the head did not come, it has an sshd itself and needed one here."""
    monkeypatch.setattr(worker, "sshd", lambda: None)
    of_member = [observation.failed(member.CHECK, code, "the head of the group did not come within 5 s"), observation.measured("other")]
    monkeypatch.setattr(worker.probing, "of", lambda _work: lambda _params, _node: of_member)
    params = {"port": 1, "public_key": "", "work": {"params": {}}}
    first, second = worker.probe({**params, "optional": True}, Node(30))
    assert (first["reason_code"], worker.NO_SSHD in first["reason"]) == said and second == of_member[1]
    (refused,) = worker.probe(params, Node(30))
    assert (refused["check"], refused["reason_code"]) == (member.CHECK, "tool_missing")


def test_environment_that_could_break_the_configuration_stays_out() -> None:
    text = worker.config(22, "/k", "/a", {"GOOD": "a b", "QUOTE": 'a"b', "LINE": "a\nPermitRootLogin yes", "HOME": "/x"})
    assert '"GOOD=a b"' in text and "QUOTE" not in text and "LINE" not in text and "HOME=" not in text
    assert "PermitRootLogin yes" not in text


def test_what_an_operator_says_of_its_own_rendezvous_reaches_no_login() -> None:
    """A PyTorchJob's pods are told of a torchrun of one process each; what ours does not set it would take for its options."""
    told = {"MASTER_ADDR": "g-master-0", "MASTER_PORT": "23456", "RANK": "1", "WORLD_SIZE": "2"}
    own = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "auto", "PET_NODE_RANK": "1"}
    assert "SetEnv" not in worker.config(22, "/k", "/a", {**told, **own})


def test_the_head_says_which_step_fails() -> None:
    port = free_port()
    nodes: list[dict[str, t.Any]] = [
        {"name": "a", "address": "127.0.0.1", "host": "localhost"},
        {"name": "b", "address": "127.0.0.1", "host": "no-such-host.invalid"},
        {"name": "c", "address": "", "host": "", "problem": "node c is not ready"},
    ]
    first, second, third = head.meet(nodes, port, 0.5, head.Hints(unresolved="ask the lab's DNS", closed="see the lab's firewall"))
    assert f"port {port} of 127.0.0.1 cannot be reached" in first["problem"] and "localhost resolves to" in first["problem"]
    assert first["problem"].endswith(": see the lab's firewall, and whether its sshd runs")
    assert "no-such-host.invalid does not resolve" in second["problem"] and second["problem"].endswith(": ask the lab's DNS")
    assert third["problem"] == "node c is not ready"


@pytest.mark.parametrize(("banner", "problem"), [(b"SSH-2.0-OpenSSH_9.6\r\n", ""), (b"HTTP/1.0 400\r\n", "no sshd"), (b"", "no sshd")])
def test_the_head_enters_only_what_says_that_it_is_ssh(banner: bytes, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "_TRY_S", 30.0 if banner else 0.3)  # who says something is waited for
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _address = server.accept()
                    connection.sendall(banner)
                    held.append(connection)

        held: list[socket.socket] = []
        threading.Thread(target=answer, daemon=True).start()
        port = server.getsockname()[1]
        worker_of = {"name": "a", "address": "127.0.0.1", "host": "localhost"}
        said = head.meet([worker_of], port, 0.1, head.Hints("acceptance_kube_ssh_port"))[0].get("problem", "")
        assert problem in said and bool(problem) == bool(said)
        if problem:
            assert str(port) in said and "acceptance_kube_ssh_port" in said
        for connection in held:
            connection.close()


def test_an_agent_behind_sshd_ends_with_its_launch(keys: pathlib.Path, tmp_path: pathlib.Path) -> None:
    port = free_port()
    child = worker._start({"port": port, "authorized_keys": str(keys / "identity.pub")}, Node(60), str(tmp_path))
    mark = secrets.token_hex(8)
    (tmp_path / "head").mkdir()
    identity = head._identity(str(keys / "identity"), str(tmp_path / "head"))
    members = [{"name": "gpu-01", "address": "127.0.0.1", "hostname": "gpu-01", "gpus": 8}]
    params = {"members": members, "token": "", "key": None, "ssh_args": head.ssh_args(port, identity)}
    try:
        with group.Group(params, Node(60), None) as entered:
            for script, timeout in (("echo $NNODES $NODE_RANK", 30.0), (f"export WAITER={mark}; sleep 300", 4.0)):
                job = entered.job(launching.Agents(), entered.members, 8, ["sh", "-c", script], {}, timeout, 8)
                launching.run([job], Node(60), 1)
                assert (job.out, job.timed_out) == (("1 0\n", False) if timeout > 4 else ("", True)), job.err
        until = time.monotonic() + 20
        while process.with_environment("WAITER", mark) and time.monotonic() < until:
            time.sleep(0.1)
        assert not process.with_environment("WAITER", mark)
    finally:
        process.end(child)


OWN = """
def probe(params, node):
    yield {"check": params["checks"][0], "members": [one["name"] for one in params["members"]], "ssh": params["ssh_args"][:2]}
"""


def test_the_head_runs_whatever_probe_its_stage_has(tmp_path: pathlib.Path) -> None:
    (tmp_path / "identity").write_text("key")
    work = {"probe": "ddp", "source": OWN, "params": {"checks": ["all_reduce"]}}
    lost = {"name": "lab/gpu-01", "address": "", "host": "", "problem": "is cordoned"}
    params = {"members": [lost], "port": 22, "identity": str(tmp_path / "identity"), "join_timeout": 1.0, "work": work}
    seen = list(head.probe(params, Node(30)))
    assert seen == [{"check": "all_reduce", "members": ["lab/gpu-01"], "ssh": ["-F", "/dev/null"]}]
