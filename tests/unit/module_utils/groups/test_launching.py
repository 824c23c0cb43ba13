# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One agent per node: real processes, with a program of this machine in place of ssh that leaves what it has started behind."""

from __future__ import annotations

import os
import pathlib
import secrets
import sys
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import group, head, launching
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
