# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One agent per node: real processes, with a program of this machine in place of ssh that leaves what it has started behind."""

from __future__ import annotations

import os
import pathlib
import secrets
import subprocess
import sys
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import group, head, launching, steps, worker
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process, session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

# Who is on the other node belongs to its sshd and not to our ssh, and hears of us by the connection alone.
SSH = """#!/bin/sh
for word; do last=$word; done
exec 4<&0
setsid sh -c "$last" <&4 &
wait $!
"""
# Every agent tells the first one, at its address and port, who it is; the first says who came.
MEET = """
import os, socket, sys
rank, count = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(where)
    seen = sorted(server.accept()[0].recv(9).decode() for _other in range(count - 1))
    print(count, os.environ["PET_NNODES"], os.environ["NPROC_PER_NODE"], *seen)
else:
    for _again in range(600):
        try:
            socket.create_connection(where).sendall(os.environ["PET_NODE_RANK"].encode())
            break
        except OSError:
            __import__("time").sleep(0.05)
"""


@pytest.fixture
def three(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[group.Group]:
    """A group of here and two other nodes."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ssh").write_text(SSH)
    (tmp_path / "bin" / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    members = [{"name": f"gpu-{n}", "address": f"127.0.0.{n}", "hostname": f"gpu-{n}", "gpus": 8, "local": n == 1} for n in (1, 2, 3)]
    with group.Group({"members": members, "token": "", "key": None, "ssh_args": []}, Node(60), None) as made:
        yield made


def launched(of: group.Group, *argv: str, timeout: float = 40.0) -> launching.Job:
    launcher = launching.Agents(20000 + secrets.randbelow(9000))
    assert launcher.refusal(of.node) is None
    job = of.job(launcher, of.members, 8, list(argv), {"WANTED": "a b'c"}, timeout, 24)
    launching.run([job], of.node, 1)
    return job


def test_agents_meet_at_the_heads_address(three: group.Group) -> None:
    job = launched(three, sys.executable, "-c", MEET)
    assert (job.rc, job.timed_out, job.out) == (0, False, "3 3 8 1 2\n"), job.err


def test_each_agent_has_the_environment_as_it_was_given(three: group.Group) -> None:
    job = launched(three, "sh", "-c", 'echo "$NODE_RANK $MASTER_ADDR $WANTED"; echo trouble >&2')
    assert job.out == "".join(f"{rank} 127.0.0.1 a b'c\n" for rank in range(3)), "the head's first"
    assert job.err == "".join(f"gpu-{n}: trouble\n" for n in (1, 2, 3))


def waiters(mark: str) -> list[tuple[int, int]]:
    return process.with_environment("WAITER", mark)


@pytest.mark.parametrize("fails", [True, False])
def test_none_is_left_when_one_fails_or_the_deadline_comes(three: group.Group, fails: bool) -> None:
    mark = secrets.token_hex(8)
    script = f"[ $NODE_RANK = 1 ] && {(fails and 'exit 7') or ':'}; export WAITER={mark}; sleep 300; :"
    job = launched(three, "sh", "-c", script, timeout=300.0 if fails else 3.0)
    assert job.timed_out != fails and (not fails or job.rc == 7)
    until = time.monotonic() + 60
    while waiters(mark) and time.monotonic() < until:
        time.sleep(0.1)
    assert not waiters(mark)


def test_a_command_of_the_users_by_agents(three: group.Group, tmp_path: pathlib.Path) -> None:
    """As the head of a group on a cluster runs it: first who answers, then the command."""
    names = {f"127.0.0.{n}": f"gpu-{n}" for n in (1, 2, 3)}
    hostname = "".join(f"{address}) echo {name};; " for address, name in names.items())
    tool = tmp_path / "bin" / "hostname"
    tool.write_text(f"#!/bin/sh\ncase 127.0.0.$((NODE_RANK + 1)) in {hostname}esac\n")
    tool.chmod(0o755)
    members = three.params["members"]
    params = {
        "members": members, "ssh_args": [], "launcher": "agents", "argv": [sys.executable, "-c", MEET], "env": {}, "ranks_per_node": 8,
        "mpirun": "mpirun", "mpi_args": [], "command_timeout": 40.0, "join_timeout": 10.0, "meeting_port": 20000 + secrets.randbelow(9000),
    }  # fmt: skip
    seen = head.UserCommand(params, Node(60)).run()
    assert (seen["outcome"], seen["context"]["stdout"], seen["context"]["rc"]) == ("measured", "3 3 8 1 2\n", 0), seen
    assert seen["context"]["launcher"] == "one agent per node"


def test_which_launcher_the_parameters_name() -> None:
    assert isinstance(launching.of({"launcher": "agents"}), launching.Agents)
    assert isinstance(launching.of({"mpirun": "mpirun", "mpi_args": []}), launching.Mpi)


def test_agents_of_a_membership_can_be_found_again() -> None:
    entry = launching.Entry(["ssh"], "/tmp/x", "/tmp/x", "token", 1)
    seat = group.GroupMember("gpu-1", "192.0.2.1")
    (command,) = launching.Agents().commands(entry, [seat], 8, ["true"], {})
    assert f"{session.MARK}=token" in command.argv[-1] and command.leashed


def test_ranks_of_a_step_are_on_the_nodes_of_the_job_and_can_be_found_again() -> None:
    launcher = launching.Steps("77", ["--mca", "btl_tcp_if_include", "eth0", "-x", "A=b=c"])
    members = [group.GroupMember(f"lab/{name}", "192.0.2.1", node=name) for name in ("a", "c")]
    (command,) = launcher.commands(launching.Entry(["ssh"], "/tmp/x", "/tmp/x", "token", 1), members, 4, ["tool", "-g", "1"], {"A": "2"})
    words, env = command.argv[: command.argv.index("env")], command.argv[command.argv.index("env") + 1 : -3]
    assert {"--jobid=77", "--overlap", "--mpi=pmix", "--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--nodelist=a,c"} <= set(words)
    assert {"OMPI_MCA_btl_tcp_if_include=eth0", "A=2", f"{session.MARK}=token", "OMPI_MCA_btl_vader_backing_directory=/tmp/x"} <= set(env)
    assert session.MARK not in " ".join(launching.Job([command], members, 8, 60, "").shown())


@pytest.mark.parametrize(
    ("printed", "extra", "found"),
    [
        ("MPI plugin types are...\\n\\tpmix\\n\\tnone\\nspecific pmix plugin versions available: pmix_v4", [], None),
        ("MPI plugin types are...\\n\\tnone\\n\\tpmi2", [], "srun has no PMIx by which the ranks of MPI meet"),
        ("pmix", ["--map-by", "slot"], "takes no option --map-by of mpirun"),
        (None, [], "srun: not found"),
    ],
)
def test_a_step_wants_pmix_and_no_options_of_mpirun(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, printed: str | None, extra: list[str], found: str | None
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin" if printed is not None else str(tmp_path))
    if printed is not None:
        (tmp_path / "srun").write_text(f"#!/bin/sh\nprintf '{printed}' >&2\n")
        (tmp_path / "srun").chmod(0o755)
    launcher = launching.Steps("77", extra)
    refusal = launcher.refusal(Node(60))
    assert refusal is None and launcher.version == "srun, pmix_v4" if found is None else found in str(refusal)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("slurmstepd-gpu-04: error: execve(): /opt/none/x: No such file or directory\nsrun: error: gpu-04: task 1: Exited", "tool_missing"),
        ("slurmstepd: error: execve(): /opt/none/x: Permission denied", "tool_missing"),
        (
            "/usr/bin/env: \u2018/opt/none/x\u2019: No such file or directory\nsrun: error: gpu-04: tasks 2-3: Exited with exit code 127",
            "tool_missing",
        ),
        ("srun: error: Unable to create step for job 5: Requested node configuration is not available", "launch_failed"),
        ("srun: error: Invalid MPI type 'pmix_v9', --mpi=list for acceptable types", "launch_failed"),
        ("srun: error: gpu-04: task 7: Segmentation fault", None),
    ],
)
def test_a_step_that_does_not_start_says_why(text: str, code: str | None) -> None:
    complaint = launching.Steps("77").complaint(text, {"gpu-04": "lab/gpu-04"})
    assert (complaint[0] if complaint else None) == code
    if "env: " in text:
        assert complaint and complaint[1].startswith("lab/gpu-04 does not have /opt/none/x, or cannot execute it: ")


def test_nodes_are_entered_by_steps_where_the_head_has_no_sshd(monkeypatch: pytest.MonkeyPatch) -> None:
    params = {"job_steps": {"when": "auto", "nodes": {}, "job": "77"}}
    for path, job in ((None, "77"), ("/usr/sbin/sshd", "")):
        monkeypatch.setattr(worker, "sshd", lambda path=path: path)
        assert steps.job_of(params) == job
        assert steps.job_of({"job_steps": {**params["job_steps"], "when": "always"}}) == "77"
        assert steps.job_of({"job_steps": None}) == "" == steps.job_of({"job_steps": {"when": "always", "nodes": {}}})


def test_a_step_is_called_like_ssh(tmp_path: pathlib.Path) -> None:
    (tmp_path / "srun").write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    (tmp_path / "srun").chmod(0o755)
    script = tmp_path / "enter"
    script.write_text(steps.entering("77", {"192.0.2.1": "gpu-1", "fd00::2": "gpu-2"}))

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        return subprocess.run(["/bin/sh", str(script), *words], capture_output=True, text=True, env=env, check=False)

    for option in ([], ["-x"]):  # Hydra's
        said = call(*option, "fd00::2", "echo 'a b'; exit 3").stdout.splitlines()
        assert "--nodelist=gpu-2" in said and "--jobid=77" in said and said[-3:] == ["/bin/sh", "-c", "echo 'a b'; exit 3"]
    stranger = call("192.0.2.9", "true")
    assert stranger.returncode == 255 and "192.0.2.9 is no node of the job" in stranger.stderr
