# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The head's hold on members, with programs of this machine in place of ssh; launches side by side, each to its own deadline."""

from __future__ import annotations

import json
import os
import pathlib
import secrets
import shutil
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import group, launching, member
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from hypothesis import given
from hypothesis import strategies as st

HELLO = {"hostname": "gpu-02.site", "gpu": "NVIDIA H200", "gpus": ["a", "b"], "memory_mib": 1, "ports": [], "refused": None}
HELLO["nvlink_domain"] = ""


def make(tmp_path: pathlib.Path, script: str, **more: t.Any) -> group.Group:
    """A group of here and one member whose ssh is a script: it gets the options, the address and the command."""
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f"#!/bin/sh\n{script}\n")
    ssh.chmod(0o755)
    members = [{"name": "gpu-01", "address": "h1", "local": True}, {"name": "gpu-02", "address": "h2", **more}]
    params = {"members": members, "token": secrets.token_hex(16), "key": None, "ssh_args": [], "mpi_args": [], "mpirun": "mpirun"}
    return group.Group(params, Node(60), {**HELLO, "hostname": "gpu-01", "simulated": False})


STATE = {"counters": "5e", "log": [3, 9, None]}


@pytest.mark.parametrize(
    ("state", "taken"),
    [
        (STATE, True),
        ({**STATE, "log": [10, 20, None]}, True),
        ({**STATE, "log": [11, 20, None]}, False),  # lines between the two were overwritten
        ({**STATE, "log": [3, 12, 11]}, False),  # an Xid
        ({**STATE, "log": None}, False),
        ({**STATE, "counters": "5f"}, False),
        (None, False),
    ],
)
def test_what_is_finished_holds_while_nothing_has_happened(tmp_path: pathlib.Path, state: t.Any, taken: bool) -> None:
    mine = make(tmp_path, "exit 0")
    for seat in mine.members:
        seat.state = STATE
    mine.node.checkpoints = [json.loads(json.dumps(mine.checkpoint("one", [{"check": "one"}])))["memo"]]
    mine.members[1].state = state
    assert mine.finished() == ({"one": [{"check": "one"}]} if taken else {})
    mine.members[1].problem = ("unreachable", "gone")
    assert mine.finished() == {}


@pytest.fixture
def path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the head wait 0.2 s in place of 10 s for a member that does not see its end."""
    monkeypatch.setattr(group, "NOTICED_S", 0.2)


@pytest.mark.usefixtures("impatient")
def test_a_member_is_held_until_the_head_lets_go(path: pathlib.Path) -> None:
    ended = f"trap 'echo done >> {path}/ended; exit' TERM"
    made = make(path, f"{ended}; echo 'Welcome to gpu-02!'; echo '{json.dumps(HELLO)}'; while :; do sleep 0.1; done")
    with made:
        made.gather(20)
        seat = made.members[1]
        assert [s.name for s in made.present()] == ["gpu-01", "gpu-02"] and made.absent() == {}
        assert (seat.hostname, seat.gpus) == ("gpu-02", ["a", "b"]) and made.gone([seat]) == []
        assert made.names() == {"gpu-01": "gpu-01", "h1": "gpu-01", "gpu-02": "gpu-02", "h2": "gpu-02"}
        assert not (path / "ended").exists()
    assert (path / "ended").read_text() == "done\n"


def test_a_head_with_nothing_to_do_stays_until_its_member_has_seen_it(path: pathlib.Path) -> None:
    looks = f"echo '{json.dumps(HELLO)}'; sleep 0.5; touch {path}/seen; echo; while :; do sleep 0.1; done"
    with make(path, looks) as made:
        made.gather(20)
    assert (path / "seen").exists()


def test_a_head_that_is_told_to_end_waits_for_nobody(path: pathlib.Path) -> None:
    never = f"echo '{json.dumps(HELLO)}'; while ! test -e {path}/over; do sleep 0.1; done; echo; touch {path}/seen"
    with pytest.raises(KeyboardInterrupt), make(path, never) as made:
        made.noticed = lambda _seconds: pytest.fail("it waits")  # type: ignore[method-assign]
        made.gather(20)
        raise KeyboardInterrupt
    assert not (path / "seen").exists()


def test_a_member_that_is_late_is_waited_for_and_one_that_dies_is_missed(path: pathlib.Path) -> None:
    ends = f"while ! test -e {path}/over; do sleep 0.05; done"
    made = make(path, f"test -e {path}/tried || {{ touch {path}/tried; echo not yet >&2; exit 1; }}; echo '{json.dumps(HELLO)}'; {ends}")
    with made:
        made.gather(20)
        assert made.absent() == {}
        (path / "over").touch()
        until = time.monotonic() + 60
        while not made.gone(made.members) and time.monotonic() < until:
            time.sleep(0.05)
        assert made.gone(made.members) == ["gpu-02"] and made.present() == made.members[:1]
        assert made.absent()["gpu-02"][0] == "lost_node"


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("echo 'root@h2: Permission denied (publickey).' >&2; exit 255", "no_permission", "Permission denied"),
        ("echo 'ssh: connect to host h2 port 22: No route to host' >&2; exit 255", "unreachable", "No route"),
        ("exit 3", "unreachable", "status 3"),
        ("sleep 100", "unreachable", "within 2 s"),
        ("yes", "unreachable", "no hello"),
        ("echo '{\"hostname\": 1}'", "unreachable", "within 2 s"),
        ("echo '{}'; sleep 100", "unreachable", "within 2 s"),
        (f"echo '{json.dumps({**HELLO, 'refused': ['error', 'no_gpu', 'no GPU here']})}'; cat", "no_gpu", "no GPU here"),
    ],
)
def test_a_member_that_cannot_take_part_has_its_reason(path: pathlib.Path, script: str, code: str, words: str) -> None:
    with make(path, script) as made:
        made.gather(2)
        assert [s.name for s in made.present()] == ["gpu-01"]
        assert made.absent()["gpu-02"][0] == code and words in made.absent()["gpu-02"][1], made.absent()


def test_what_is_known_beforehand_is_not_waited_for(path: pathlib.Path) -> None:
    with make(path, f"touch {path}/asked; sleep 100", problem="it cannot be reached") as made:
        made.gather(30)
        assert made.absent() == {"gpu-02": ("unreachable", "it cannot be reached")}
    assert not (path / "asked").exists()


@pytest.mark.usefixtures("impatient")
def test_the_command_that_holds_a_member_is_one_line_for_its_shell(path: pathlib.Path) -> None:
    made = make(path, f"printf '%s\\n' \"$@\" > {path}/said; echo '{json.dumps(HELLO)}'; sleep 100")
    with made:
        made.gather(20)
    said = (path / "said").read_text().splitlines()
    assert said[-2:] == ["h2", " ".join(member.reading(made.params["token"]))]


def job(tmp_path: pathlib.Path, number: int, script: str, timeout: float = 30) -> launching.Job:
    return launching.Job([launching.LaunchCommand(["sh", "-c", script], {"TMPDIR": "/tmp"})], [], 1, timeout, str(tmp_path / str(number)))


def test_launches_run_side_by_side_each_to_its_own_deadline(tmp_path: pathlib.Path) -> None:
    meet = f"cd {tmp_path}; while [ \"$(ls | grep -c begun)\" -lt 4 ]; do sleep 0.05; done"
    jobs = [job(tmp_path, n, f"echo {n}; touch {tmp_path}/begun-{n}; {meet}; exit {n}") for n in range(4)]
    jobs.append(job(tmp_path, 4, "echo begun; echo why >&2; sleep 100 & sleep 100", timeout=3))
    jobs.append(launching.Job([launching.LaunchCommand(["/nonexistent"], {})], [], 1, 5, str(tmp_path / "5")))
    launching.run(jobs, Node(60), 6)
    assert [(j.rc, j.out, j.timed_out) for j in jobs[:4]] == [(n, f"{n}\n", False) for n in range(4)]
    assert (jobs[4].timed_out, jobs[4].out, jobs[4].err) == (True, "begun\n", "why\n") and jobs[5].missing
    assert [path.name for path in tmp_path.iterdir() if path.name[0] in "01234"] == [], "outputs are not left behind"


def test_no_launch_outlives_the_probe(tmp_path: pathlib.Path) -> None:
    late = job(tmp_path, 0, "sleep 100", timeout=50)
    launching.run([late], Node(launching.END_S + 2), 1)
    assert late.timed_out and late.timeout < late.requested_timeout == 50


def test_nodes_that_cannot_be_told_apart_are_refused() -> None:
    def seat(name: str, address: str, hostname: str) -> group.GroupMember:
        return group.GroupMember(name, address, False, hostname)

    one = seat("a", "192.0.2.1", "gpu-a")
    assert group.confused([one, seat("b", "192.0.2.2", "gpu-b")]) is None
    code, reason = group.confused([one, seat("b", "192.0.2.1", "gpu-b")]) or ("", "")
    assert code == "duplicate_identity" and "a and b both have the address 192.0.2.1" in reason
    assert "a and b both call themselves gpu-a" in (group.confused([one, seat("b", "192.0.2.2", "gpu-a")]) or ("", ""))[1]
    assert group.confused([seat("a", "", ""), seat("b", "", "")]) is None, "what nobody said is no proof"


def test_hydra_is_told_by_which_address_nodes_reach_us(path: pathlib.Path) -> None:
    launched = make(path, "exit 0")
    launched.members[1].address = "127.0.0.1"
    with launched as entered:
        os.mkdir(entered.folder)
        try:
            launcher = launching.Mpi()
            for launcher.flavour, told in (("hydra", True), ("openmpi5", False)):
                words = entered.job(launcher, entered.members, 1, ["hostname"], {}, 10, 2).argv
                assert (" -localhost 127.0.0.1 " in " ".join(words)) == told
            entered.members[1].address = "no.such.host.invalid"
            launcher.flavour = "hydra"
            assert "-localhost" not in entered.job(launcher, entered.members, 1, ["hostname"], {}, 10, 2).argv
        finally:
            shutil.rmtree(entered.folder)


def test_a_folder_that_it_did_not_make_stays(tmp_path: pathlib.Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    params = {"members": [], "token": "", "key": None, "ssh_args": []}
    made = group.Group(params, Node(60), None)
    made.folder = str(others)
    made.__exit__(ValueError)
    assert others.is_dir()
    with group.Group(params, Node(60), None) as entered:
        own = pathlib.Path(entered.folder)
        assert own.is_dir()
        entered.folder = str(others)
    assert others.is_dir() and not own.exists()


MODELS = {"MT4129 a": 400.0, "MT4123 b": 200.0, "MT4119 c": 100.0}


def nodes_of(count: int, ports: t.Sequence[t.Tuple[str, float | None, bool, t.Sequence[int]]]) -> t.List[group.GroupMember]:
    """Nodes with these ports: model, rate, whether it is active, and the GPUs that it is nearest to."""
    members = []
    for node in range(count):
        each = [
            {
                "device": f"mlx5_{n}", "port": 1, "link_layer": "InfiniBand", "rate_gbps": rate, "gids": [], "near": list(near),
                "model": model,
            }
            for n, (model, rate, _active, near) in enumerate(ports)
        ]  # fmt: skip
        down = [{key: port[key] for key in ("device", "port", "near", "model")} for port, (_m, _r, up, _n) in zip(each, ports) if not up]
        active = [port for port, (_m, _r, up, _n) in zip(each, ports) if up]
        members.append(group.GroupMember(f"n{node}", "", gpus=[f"g{n}" for n in range(8)], ports=active, down=down))
    return members


@given(st.sampled_from(sorted(MODELS)), st.integers(1, 8), st.integers(1, 4), st.data())
def test_what_ports_do_now_selects_no_nics(model: str, count: int, nodes: int, data: st.DataObject) -> None:
    """Rates that some ports negotiated, and ports without a link, leave number and rate of the NICs as they are."""
    healthy = [(model, MODELS[model], True, (n,)) for n in range(count)]
    whole = group.nics_of(nodes_of(nodes, healthy), "", "")
    assert (whole["nics"], whole["nics_used"], whole["nic_gbps"], whole["nics_down"]) == (count, count, MODELS[model], 0)
    members = nodes_of(nodes, healthy)
    one = members[0]
    for port in list(one.ports):
        state = data.draw(st.sampled_from(("good", "slow", "unread", "down")))
        if state == "down" and (nodes > 1 or len(one.ports) > 1):
            one.ports.remove(port)
            one.down.append({key: port[key] for key in ("device", "port", "near", "model")})
        elif state in ("slow", "unread") and nodes > 1:  # with another node that shows the model's rate
            port["rate_gbps"] = 25.0 if state == "slow" else None
    found = group.nics_of(members, "", "")
    if one.ports:  # a node without any active port shows no model: its ports are not counted
        assert (found["nics"], found["nic_gbps"]) == (count, MODELS[model])
        assert found["nics_used"] == len(one.ports) and found["nics_down"] == count - len(one.ports)
    else:
        assert found["nics"] is None or found["nics_used"] == 0


def test_ports_of_another_model_that_are_down_are_not_the_gpus() -> None:
    ports = [("MT4129 a", 400.0, True, (n,)) for n in range(8)] + [("MT4119 c", None, False, ())]
    found = group.nics_of(nodes_of(2, ports), "", "")
    assert (found["nics"], found["nics_used"], found["nics_down"], found["nic_gbps"]) == (8, 8, 0, 400.0)


def test_a_setting_of_the_machine_leaves_out_no_nic_of_the_run() -> None:
    members = nodes_of(2, [("MT4129 a", 400.0, True, (n,)) for n in range(8)])
    found = group.nics_of(members, "", "mlx5_0,mlx5_1")
    assert (found["nics"], found["nics_used"], found["nics_down"]) == (8, 2, 0)
    found = group.nics_of(members, "mlx5_0,mlx5_1", "mlx5_0,mlx5_1")
    assert (found["nics"], found["nics_used"], found["nics_down"]) == (2, 2, 0)
