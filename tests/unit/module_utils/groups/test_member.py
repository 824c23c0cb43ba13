# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A member's lease: what it makes goes again, and nothing else does."""

from __future__ import annotations

import os
import pathlib
import pwd
import re
import secrets
import stat
import subprocess
import threading
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import member
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

TOKEN = "a" * 32
PUBLIC = "ssh-ed25519 " + "A" * 68
OTHER = "ssh-ed25519 " + "B" * 68 + " somebody\n"


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    own = pwd.getpwuid(os.geteuid())
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: pwd.struct_passwd((*own[:5], str(tmp_path), own[6])))
    return tmp_path


def make(tmp_path: pathlib.Path, seconds: float = 20, key: bool = True) -> tuple[member.Member, session.Ledger]:
    ledger = session.Ledger(str(tmp_path))
    lease = {"public": PUBLIC, "from": ["127.0.0.1", "::1"], "seconds": 600.0}
    return member.Member(Node(seconds, ledger), secrets.token_hex(16), lease if key else None), ledger


@pytest.mark.parametrize("before", [None, "", OTHER, OTHER.rstrip("\n"), "# mine\n" + OTHER])
def test_the_key_comes_and_goes_and_the_rest_of_the_file_stays(home: pathlib.Path, before: str | None) -> None:
    file = home / ".ssh/authorized_keys"
    if before is not None:
        file.parent.mkdir(mode=0o700)
        file.write_text(before)
        file.chmod(0o640)
    me, _ledger = make(home)
    with me:
        lines = file.read_text().splitlines()
        assert lines[-1].startswith('restrict,command="exec /bin/sh ') and PUBLIC in lines[-1]
        assert ',from="127.0.0.1,::1",expiry-time="20' in lines[-1]
        assert lines[:-1] == (before or "").splitlines()
        assert stat.S_IMODE(os.stat(me.folder).st_mode) == 0o700
    assert not os.path.exists(me.folder)
    if before:
        assert file.read_text().rstrip("\n") == before.rstrip("\n") and stat.S_IMODE(file.stat().st_mode) == 0o640
    else:
        assert not file.exists() and file.parent.exists() == (before is not None)


def test_a_dead_members_lease_is_given_back_from_the_ledger_and_its_ranks_end(home: pathlib.Path) -> None:
    me, ledger = make(home)
    me.__enter__()
    rank = subprocess.Popen(["sleep", "100"], env={**os.environ, session.MARK: me.token}, start_new_session=True)
    stranger = subprocess.Popen(["sleep", "100"], env={**os.environ, session.MARK: secrets.token_hex(16)})
    try:
        session.LEASES.setdefault("member", member.undo)
        said = ledger.undo()
        assert rank.wait(5) == -9 and stranger.poll() is None
        assert "ended 1 processes" in said[0] and not os.path.exists(me.folder) and not (home / ".ssh").exists()
        assert ledger.entries() == [] and ledger.undo() == []
    finally:
        stranger.kill()
        stranger.wait()


def test_a_member_waits_for_the_lock_of_its_head_and_for_its_end(home: pathlib.Path) -> None:
    me, _ledger = make(home, key=False)
    with me:
        me.greet({"hostname": "here"})
        said: list[t.Any] = []
        waiting = threading.Thread(target=lambda: said.append(me.wait(10)))
        waiting.start()
        head = subprocess.Popen(member.reading(me.token), stdout=subprocess.PIPE, text=True)
        assert head.stdout and head.stdout.readline() == '{"hostname": "here"}\n'
        assert head.stdout.readline() == "\n"  # a beat, by which a connection that was cut is told from one that holds
        assert not said
        head.stdout.close()  # as sshd does when its client is gone
        waiting.join(10)
        assert said == [None]
        head.wait(10)


def test_a_head_that_does_not_come_is_named(home: pathlib.Path) -> None:
    me, _ledger = make(home, key=False)
    with me:
        me.greet({})
        assert "did not come within 0 s" in str(me.wait(0.3))


def test_the_head_makes_no_file_where_no_member_is() -> None:
    token = secrets.token_hex(16)
    done = subprocess.run(member.reading(token), capture_output=True, text=True)
    assert done.returncode != 0 and not os.path.exists(member.folder(token))


def test_a_head_that_comes_too_early_holds_nothing_and_makes_nothing(home: pathlib.Path) -> None:
    """flock(1) makes the file that it is to lock: a member that then replaced it saw no head, and waited for it in vain."""
    me, _ledger = make(home, key=False)
    with me:
        assert subprocess.run(member.reading(me.token), capture_output=True).returncode != 0
        assert os.listdir(me.folder) == []
        me.greet({})
        locked = os.stat(member.reading(me.token)[4]).st_ino
        with subprocess.Popen(member.reading(me.token), stdout=subprocess.PIPE) as head:
            assert head.stdout and head.stdout.readline() == b"{}\n"
            assert me._held() and os.stat(member.reading(me.token)[4]).st_ino == locked
            head.kill()


def test_a_rank_that_was_on_its_way_leaves_nothing_either(home: pathlib.Path) -> None:
    """What a head sent before its member was told to end comes in afterwards, and makes the folder again, as orted does."""
    me, ledger = make(home)
    me.__enter__()
    env = {**os.environ, session.MARK: me.token}
    first = subprocess.Popen(["sleep", "100"], env=env, start_new_session=True)
    late = f"while kill -0 {first.pid}; do sleep 0.05; done; sleep 0.2; mkdir -p {me.folder}/ompi; {session.MARK}={me.token} exec sleep 100"
    second = subprocess.Popen(["sh", "-c", late], stderr=subprocess.DEVNULL, start_new_session=True)
    waiting = threading.Thread(target=first.wait)  # a dead child is there until somebody asks for it
    waiting.start()
    session.LEASES.setdefault("member", member.undo)
    assert "ended 2 processes" in ledger.undo()[0] and second.wait(5) == -9 and not os.path.exists(me.folder)
    waiting.join(5)


def test_what_begins_when_nothing_is_left_any_more_leaves_nothing(home: pathlib.Path) -> None:
    """No process is there when the membership is given back, and half a second later one makes the folder."""
    me, ledger = make(home)
    me.__enter__()
    late = subprocess.Popen(["sh", "-c", f"while [ -d {me.folder} ]; do sleep 0.02; done; sleep 0.3; mkdir -p {me.folder}/ompi"])
    session.LEASES.setdefault("member", member.undo)
    ledger.undo()
    assert late.wait(10) == 0 and not os.path.exists(me.folder)


def test_a_command_is_let_in_only_while_the_folder_is_there_and_carries_the_token(home: pathlib.Path) -> None:
    me, _ledger = make(home)
    with me:
        line = (home / ".ssh/authorized_keys").read_text()
        command = re.findall(r'command="((?:[^"\\]|\\.)*)"', line)[0].replace('\\"', '"')  # as sshd reads it

        def over_ssh(asked: str) -> subprocess.CompletedProcess[str]:
            env = {**os.environ, "SSH_ORIGINAL_COMMAND": asked, "SHELL": "/bin/bash"}
            return subprocess.run(["/bin/sh", "-c", command], env=env, check=False, capture_output=True, text=True)

        done = over_ssh(f"echo 'a  b' \"$BASH_VERSION\"; tr '\\0' '\\n' < /proc/$$/environ | grep {session.MARK}")
        assert done.stdout.startswith("a  b 5") and done.stdout.splitlines()[-1] == f"{session.MARK}={me.token}"
    assert over_ssh(f"mkdir -p {me.folder}/ompi").returncode == 75 and not os.path.exists(me.folder)


@pytest.mark.parametrize("public", ["ssh-rsa " + "A" * 68, PUBLIC + ' x\ncommand="id"', PUBLIC + " comment", "", 'a" ' + PUBLIC])
def test_no_key_carries_more_than_a_key(public: str) -> None:
    with pytest.raises(ValueError, match="ed25519"):
        member.authorization(TOKEN, public, ["127.0.0.1"], 60)


@pytest.mark.parametrize("source", ['127.0.0.1" ', "*", "", "no such host", "1.2.3.4,*"])
def test_a_source_that_would_let_everybody_in_is_refused(source: str) -> None:
    with pytest.raises(ValueError):
        member.authorization(TOKEN, PUBLIC, [source], 60)


@pytest.mark.parametrize("token", ["", "../../etc", "A" * 32, "a" * 31])
def test_a_token_of_another_form_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="token"):
        member.folder(token)
