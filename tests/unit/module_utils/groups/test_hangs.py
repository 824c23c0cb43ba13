# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence of real processes that hang, gathered as the head of a group gathers it: stopped, in a loop, asleep, never started."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import sys
import threading
import time
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import collective, group, hangs, launching
from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise import hang
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import hang as collector
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import stacks

# A rank: all but rank 1 wait in a module that lies where PyTorch's collectives do.
RANK = """
import os, sys, time
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.stacks import answer_with_stacks
sys.path.insert(0, sys.argv[1])
from torch.distributed.distributed_c10d import all_reduce

def stray(how):
    if how == "stop":
        os.kill(os.getpid(), 19)
    while how == "loop":
        pass
    time.sleep(600)

answer_with_stacks()
print("ready", flush=True)
if os.environ["RANK"] == "1":
    stray(sys.argv[2])
all_reduce()
"""
C10D = "import threading\n\ndef all_reduce():\n    threading.Event().wait(600)\n"
MARK = "5" * 32


class OneNode:
    """The group of one node, as evidence is gathered from it."""

    def __init__(self, tmp_path: pathlib.Path, members: t.Sequence[types.SimpleNamespace] = (), ssh: str = "") -> None:
        self.node = Node(60)
        self.params = {"token": MARK}
        self.ssh = ["/bin/sh", ssh]
        self.members = list(members) or [types.SimpleNamespace(name="gpu-01", local=True, address="")]
        self.path = f"{tmp_path}/out"
        self.beating: set[str] = set()

    def heard(self, _members: t.Iterable[t.Any]) -> set[str]:
        return self.beating

    def job(self, commands: list[launching.LaunchCommand], ranks: int, timeout: float) -> launching.Job:
        return launching.Job(commands, self.members, ranks, timeout, self.path)

    def evidence(self) -> hangs.Evidence:
        return hangs.Evidence(t.cast(group.Group, self), on_cpu=True)


@pytest.fixture
def planted(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "torch" / "distributed").mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text("")
    (tmp_path / "torch" / "distributed" / "__init__.py").write_text("")
    (tmp_path / "torch" / "distributed" / "distributed_c10d.py").write_text(C10D)
    (tmp_path / "rank.py").write_text(RANK)
    (tmp_path / "stacks").mkdir()
    return tmp_path


def command(path: pathlib.Path, rank: int, how: str) -> launching.LaunchCommand:
    env = {session.MARK: MARK, "RANK": str(rank), "LOCAL_RANK": str(rank), "TORCHELASTIC_RUN_ID": "x", stacks.STACKS: str(path / "stacks")}
    return launching.LaunchCommand([sys.executable, str(path / "rank.py"), str(path), how], env)


@pytest.mark.parametrize(
    ("how", "rule", "words"),
    [
        ("stop", "stopped", "is stopped (state T)"),
        ("loop", "elsewhere", "at stray ("),
        ("sleep", "elsewhere", "sleeps, at stray ("),
        ("absent", "dead", "has no process"),
    ],
)
def test_the_process_that_holds_the_others_up_is_named_before_any_is_ended(
    planted: pathlib.Path, monkeypatch: pytest.MonkeyPatch, how: str, rule: str, words: str
) -> None:
    monkeypatch.setattr(hangs, "TOTAL_S", 300.0)  # machines are slow at times
    monkeypatch.setattr(hangs, "COLLECT_S", 120.0)
    of = OneNode(planted)
    of.node = Node(600)
    ranks = [command(planted, rank, how) for rank in range(3) if how != "absent" or rank != 1]
    job, evidence = of.job(ranks, 3, 40.0), of.evidence()
    job.plea, seen = b"a rank asks", []

    def gather(of_job: launching.Job) -> str:
        seen.append(of_job.printed())
        text = evidence.gather(of_job)
        of_job.timeout, of_job.on_hang = 0.0, None
        return text

    job.on_hang = gather
    job.start(of.node)
    until = time.monotonic() + 40
    while job.printed().count("ready") < len(ranks) and time.monotonic() < until:
        time.sleep(0.05)
    os.write(out := os.open(f"{of.path}-0.out", os.O_WRONLY | os.O_APPEND), b'{"kind": "a rank asks"}\n')
    os.close(out)
    while not job.finished():
        time.sleep(0.05)
    ruling = evidence.ruling(job)
    assert (ruling.rule, ruling.ranks) == (rule, (1,)) and words in ruling.text[1], (ruling, evidence.unread, job.evidence[:3000])
    assert len(seen) == 1 and "ready" in seen[0] and '"kind":"hang"' in job.raw and "evidence of the hang" in job.raw
    assert evidence.summary()["ranks"] == len(ranks) and evidence.place(0) == ("gpu-01", 0)
    assert job.timed_out and not list(planted.glob("out-*"))  # nothing is left of what was written meanwhile


def test_a_node_that_does_not_answer_is_told_from_one_that_refuses(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hangs, "TOTAL_S", 5.0)
    ssh = tmp_path / "ssh"
    ssh.write_text(
        "case $1 in frozen) sleep 60;; cut) echo 'ssh: connect to host cut port 22: Connection timed out' >&2; exit 255;;"
        "refuses) echo 'Connection refused' >&2; exit 255;; *) echo rubbish; exit 0;; esac\n"
    )
    names = ("frozen", "cut", "refuses", "talks")
    members = [types.SimpleNamespace(name=name, local=False, address=name) for name in names]
    of = OneNode(tmp_path, members, str(ssh))
    job, evidence = of.job([], 8, 1.0), of.evidence()
    text = evidence.gather(job)
    assert sorted(evidence.silent) == ["cut", "frozen"], evidence.unread
    assert evidence.unread == {"refuses": "Connection refused", "talks": "the collector ended with status 0"}
    assert "frozen: did not answer" in text and not list(tmp_path.glob("out-*"))
    assert not evidence.ruling(job).named and "does not single one out" in evidence.worth("x")
    assert evidence.seconds < 7


def test_a_node_whose_member_lives_is_not_one_that_does_not_answer(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hangs, "TOTAL_S", 4.2)
    ssh = tmp_path / "ssh"
    ssh.write_text("exec sleep 60\n")
    of = OneNode(tmp_path, [types.SimpleNamespace(name=name, local=False, address=name) for name in ("slow", "frozen")], str(ssh))
    of.beating = {"slow"}
    evidence = of.evidence()
    evidence.gather(of.job([], 2, 1.0))
    assert evidence.silent == ["frozen"] and evidence.unread == {"slow": "it lives, but could not be asked in time"}


def test_a_collector_that_the_kernel_holds_up_says_so_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    held = "import hang_under_test as h, time\nh.collect = lambda order: time.sleep(60)\nh.LATE_S = 0.2\nh.main()\n"
    code = f"import sys\nimport {collector.__name__} as h\nsys.modules['hang_under_test'] = h\n{held}"
    done = launching.process.run([sys.executable, "-c", code, '{"seconds": 0.1}'], 30)
    assert done.rc == 0, done.raw
    with pytest.raises(ValueError, match="could not be read in time"):
        hangs.answer_of("gpu-01", done.out)


def test_ranks_that_are_not_of_the_launch_make_the_evidence_worthless(tmp_path: pathlib.Path) -> None:
    of = OneNode(tmp_path)
    evidence = of.evidence()
    look = hang.Look("R"), hang.Look("R")
    for twice in (((0, "a"), (0, "b")), ((0, "a"), (9, "b"))):
        evidence.answers = {node: hangs.Answer((hang.RankSeen(rank, node, look),), {rank: 0}) for rank, node in twice}
        ruling = evidence.ruling(of.job([], 2, 1.0))
        assert not ruling.named and "not of this launch" in ruling.text[None]


def test_a_later_look_at_the_same_hang_does_not_wipe_out_what_was_seen(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that wait end at their own deadline; one that cannot be ended keeps its launcher, and so the launch, waiting."""
    of, both = OneNode(tmp_path), (hang.Look("S"), hang.Look("S"))
    evidence, numbers = of.evidence(), [0, 1, 2]

    def look(_job: launching.Job) -> str:
        evidence.answers = {"gpu-01": hangs.Answer(tuple(hang.RankSeen(n, "gpu-01", both) for n in numbers), {n: n for n in numbers})}
        return f"{len(numbers)} ranks"

    monkeypatch.setattr(evidence, "_look_at", look)
    job, places = of.job([], 3, 1.0), {0: (7, "all_reduce")}
    assert evidence.gather(job, places) == "3 ranks"
    numbers[1:] = []
    assert evidence.gather(job, places) == "3 ranks" and evidence.ranks == 3 and not evidence.is_past(places)
    assert evidence.gather(job, {0: (8, "broadcast")}) == "1 ranks" and evidence.ranks == 1 and evidence.is_past(places)


def test_a_rank_that_went_on_after_it_was_looked_at_is_not_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = OneNode(tmp_path)
    evidence, job = of.evidence(), of.job([], 2, 1.0)
    waits, spins = hang.Frame("all_reduce", "/v/torch/distributed/c10d.py", 1), hang.Frame("load", "/x/train.py", 2)
    looks = {0: hang.Look("S", frames=(waits,)), 1: hang.Look("R", frames=(spins,), gil=True)}
    seen = tuple(hang.RankSeen(rank, "gpu-01", (look, look), 0.5) for rank, look in looks.items())
    evidence.answers = {"gpu-01": hangs.Answer(seen, {0: 0, 1: 1})}
    monkeypatch.setattr(evidence, "_look_at", lambda _job: "")
    places = {0: (7, "all_reduce"), 1: (6, "load")}
    evidence.gather(job, places)
    assert evidence.ruling(job, places).ranks == (1,)
    ruling = evidence.ruling(job, {0: (7, "all_reduce"), 1: (7, "all_reduce")})  # it was slow, and another thing holds them up
    assert not ruling.named and "rank 1 has gone on since it was looked at, when it was in load" in ruling.text[None]
    assert not evidence.ruling(job, {0: (7, "all_reduce")}, done=[1]).named


def test_a_rank_that_ended_well_or_by_its_own_deadline_is_not_dead(tmp_path: pathlib.Path) -> None:
    of = OneNode(tmp_path)
    evidence, job = of.evidence(), of.job([], 3, 1.0)
    look = hang.Look("S"), hang.Look("S")
    evidence.answers = {"gpu-01": hangs.Answer(tuple(hang.RankSeen(rank, "gpu-01", look) for rank in (0, 1)), {0: 0, 1: 1})}
    assert evidence.ruling(job).ranks == (2,)
    assert not evidence.ruling(job, ended=[2]).named
    job.err = "gpufleet: rank 2 on gpu-01.example ended with status 0.\ngpufleet: rank ? on gpu-01 ended with status 0.\n"
    assert collective._finished(job) == {2} and not evidence.ruling(job, done=collective._finished(job)).named
    job.err = "gpufleet: rank 2 on gpu-01 ended with status 1.\n"
    assert collective._finished(job) == set()


def test_a_process_that_does_not_take_a_signal_that_it_catches_is_numb(tmp_path: pathlib.Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGUSR1, lambda *_: None); print(1, flush=True); time.sleep(60)"
    child = launching.process.spawn([sys.executable, "-c", code], stdout=-1)
    try:
        assert child.stdout and child.stdout.readline() == b"1\n"
        for stop, is_numb in ((signal.SIGCONT, False), (signal.SIGSTOP, True)):
            os.kill(child.pid, stop)
            while is_numb and collector.state_of(child.pid)["state"] != "T":  # else it may take the signal before it stops
                time.sleep(0.01)
            (tmp_path / str(child.pid)).write_text("")
            asked = stacks.StacksOfProcess(child.pid, str(tmp_path))
            assert asked.problem == "" and asked.read(time.monotonic() + 1) == "" and asked.is_numb is is_numb
    finally:
        launching.process.end(child, signal.SIGKILL)


def test_a_process_that_blocks_the_signal_is_not_numb(tmp_path: pathlib.Path) -> None:
    code = "import signal, time; signal.signal(10, print); signal.pthread_sigmask(signal.SIG_BLOCK, [10])\n"
    code += "print(1, flush=True); time.sleep(60)"
    child = launching.process.spawn([sys.executable, "-c", code], stdout=-1)
    try:
        assert child.stdout and child.stdout.readline() == b"1\n"
        (tmp_path / str(child.pid)).write_text("")
        asked = stacks.StacksOfProcess(child.pid, str(tmp_path))
        assert asked.problem == "" and asked.read(time.monotonic() + 1) == "" and not asked.is_numb
    finally:
        launching.process.end(child, signal.SIGKILL)


def test_a_process_in_a_paused_control_group_is_seen_in_both_versions(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "/proc/7/cgroup": "5:cpu,freezer:/pod1\n0::/pod2\n",
        "/proc/self/mounts": f"cgroup {tmp_path}/first cgroup rw,cpu,freezer 0 0\ncgroup2 {tmp_path}/second cgroup2 rw 0 0\n",
    }
    monkeypatch.setattr(collector, "read", lambda path, *_: texts.get(path, ""))
    assert collector.frozen_by(7) == ""
    texts[f"{tmp_path}/second/pod2/cgroup.events"] = "populated 1\nfrozen 1\n"
    assert collector.frozen_by(7) == "/pod2"
    texts[f"{tmp_path}/first/pod1/freezer.state"] = "FROZEN\n"
    assert collector.frozen_by(7) == "/pod1"
    texts["/proc/self/mounts"] += "cgroup cut"  # as a text that is longer than what is read ends
    assert collector.frozen_by(7) == "/pod1"


def test_ranks_are_ended_even_if_the_evidence_cannot_be_written(tmp_path: pathlib.Path) -> None:
    def full(_job: launching.Job) -> str:
        raise OSError(28, "No space left on device")

    of = OneNode(tmp_path)
    job = of.job([launching.LaunchCommand(["sleep", "60"], {})], 1, 0.1)
    job.on_hang = full
    launching.run([job], Node(60), 1)
    assert job.timed_out and "No space left" in job.raw


def test_without_time_nothing_is_gathered_and_the_reason_says_so(tmp_path: pathlib.Path) -> None:
    of = OneNode(tmp_path)
    of.node = Node(13)
    evidence = of.evidence()
    assert evidence.gather(of.job([], 1, 1.0)) == "" and "the deadline of the stage is too near" in evidence.worth("x")
    of.node, of.params = Node(60), {"token": ""}
    assert evidence.gather(of.job([], 1, 1.0)) == "" and "has no mark" in evidence.worth("x")


def test_a_process_that_would_die_of_the_signal_is_not_asked_for_its_stacks(tmp_path: pathlib.Path) -> None:
    child = launching.process.spawn([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"], stdout=-1)
    try:
        assert child.stdout and child.stdout.readline() == b"1\n"
        asked = stacks.StacksOfProcess(child.pid, str(tmp_path))
        assert asked.problem == "it has not armed faulthandler" and asked.read(time.monotonic() + 1) == "" and child.poll() is None
    finally:
        launching.process.end(child, signal.SIGKILL)


def test_ranks_are_known_by_the_variables_of_their_launcher() -> None:
    of = collector.number_of
    assert of({"RANK": "3", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "x"}) == (3, 1)
    assert of({"RANK": "3"}) is None  # an operator gives it to pods
    assert of({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}) == (5, 1)
    assert of({"PMI_RANK": "2", "MPI_LOCALRANKID": "0"}) == (2, 0)
    assert of({"PMIX_RANK": "4", "SLURM_LOCALID": "0", "SLURM_PROCID": "4"}) == (4, 0)
    assert of({"SLURM_PROCID": "0"}) is None  # the step by which a node was entered


def test_lines_of_the_kernel_since_the_launch_are_kept_and_those_of_processes_and_of_long_ago_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)  # of packets, as /dev/kmsg has records
    monkeypatch.setattr(collector, "KERNEL_LOG", f"/proc/self/fd/{reader}")
    now = time.monotonic()
    for priority, ago, text in ((4, 5000, "old"), (3, 30, "NVRM: Xid (PCI:0000:3b:00): 79\n SUBSYSTEM=pci"), (12, 5, "a process")):
        os.write(writer, f"{priority},1,{int((now - ago) * 1e6)},-;{text}\n".encode())
    seen = collector.kernel_lines(60.0, now + 60)
    os.close(writer)
    os.close(reader)
    assert seen["why"] == "" and [text.partition(": ")[2] for text in seen["lines"]] == ["NVRM: Xid (PCI:0000:3b:00): 79"]


def test_a_line_of_the_kernel_that_says_what_broke_is_not_pushed_out_by_those_behind_it(tmp_path: pathlib.Path) -> None:
    xid = "40 s ago: NVRM: Xid (PCI:0000:3b:00): 119, pid=7, name=python3, Timeout after 6s of waiting for RPC response from GPU3 GSP!"
    storm = [f"40 s ago: NVRM: _kgspLogRpc: entry {number}" for number in range(200)]
    hung = "3 s ago: INFO: task python3:7 blocked for more than 120 seconds."
    lines = [*storm[:50], xid, *storm[50:], hung, "1 s ago: docker0: port 1(veth) entered disabled state"]
    for most in (2, 10, 60):
        kept = collector.most_important(lines, most)
        assert len(kept) == most and xid in kept and hung in kept and kept == [line for line in lines if line in kept]
    assert collector.most_important(lines, 10)[-1] == lines[-1] and collector.most_important(lines[:3], 10) == lines[:3]
    evidence = OneNode(tmp_path).evidence()
    evidence.answers = {"gpu-01": hangs.Answer((), {}, tuple(lines))}
    assert xid in evidence.summary()["kernel"]["gpu-01"]


def test_a_rank_is_late_only_if_two_nodes_hear_the_same_of_it(tmp_path: pathlib.Path) -> None:
    of = OneNode(tmp_path, [types.SimpleNamespace(name=f"gpu-0{number}", local=number == 1, address="") for number in (1, 2)])
    evidence, job = of.evidence(), of.job([], 4, 1.0)
    evidence.on_cpu = False
    ras = "#0-0 (ab) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n  3 ranks have launched up to operation 9\n"
    ras += "  Rank 2 has launched up to operation 8 -- GPU 0 managed by process 7 on node 10.9.8.7\n"
    look = hang.Look("R", "0"), hang.Look("R", "0")
    for other, named in ((ras, True), (ras.replace("8 --", "7 --"), False), ("", False)):
        for number, text in ((0, ras), (1, other)):
            seen = tuple(hang.RankSeen(rank, f"gpu-0{number + 1}", look, 1.0) for rank in (2 * number, 2 * number + 1))
            evidence.answers[f"gpu-0{number + 1}"] = hangs.Answer(seen, {one.rank: one.rank % 2 for one in seen}, ras=text)
        ruling = evidence.ruling(job)
        assert ruling.named is named, (other, ruling)
        if named:
            words = "has launched NCCL's operations up to 8 only, while all other 3 ranks have launched operation 9 (AllReduce)"
            assert ruling.ranks == (2,) and ruling.text[2] == words
            for options, is_short in ((["-n", "400"], True), (["-n", "20", "-m", "100"], False), (["x -w 5000 -n 20"], False)):
                many = of.job([launching.LaunchCommand(["all_reduce_perf", *options], {})], 4, 1.0)
                assert evidence.ruling(many).named is is_short, options


class RasService(threading.Thread):
    """A RAS service on a port of its own that does with each connection what the next of `scenes` says."""

    def __init__(self, *scenes: str) -> None:
        super().__init__(daemon=True)
        self.scenes, self.orders = scenes, b""
        self.open_still: list[socket.socket] = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.start()

    def run(self) -> None:
        for scene in self.scenes:
            connection = self.socket.accept()[0]
            if scene == "silent":
                self.open_still.append(connection)
                continue
            while not self.orders.endswith(b"status\n"):
                self.orders += connection.recv(100)
            connection.sendall(b"OK\nNCCL version 2.27.3 compiled with CUDA 12.9\n")
            if scene == "whole":
                connection.sendall(b"Job summary\n")
                connection.close()
            self.open_still.append(connection)


@pytest.mark.parametrize(
    ("scenes", "words"),
    [
        (("whole",), "NCCL version 2.27.3 compiled with CUDA 12.9\nJob summary\n"),
        (("silent", "whole"), "NCCL version 2.27.3 compiled with CUDA 12.9\nJob summary\n"),  # a stopped rank has the same port
        (("late",), "NCCL version 2.27.3 compiled with CUDA 12.9\n\n[it did not end in time]"),
        (("silent", "silent", "silent"), ""),
    ],
)
def test_the_ras_service_is_told_not_to_wait_for_ranks_that_hang(scenes: tuple[str, ...], words: str) -> None:
    service = RasService(*scenes)
    process = {"pid": os.getpid(), "env": {"NCCL_RAS_ADDR": f"127.0.0.1:{service.port}"}}
    assert collector.ras([process], time.monotonic() + 4) == words
    if words:
        assert service.orders.split(b"\n")[0].split()[0] == b"timeout" and 1 <= int(service.orders.split()[1]) <= collector.RAS_S
    service.socket.close()


def test_a_kernel_log_that_cannot_be_read_is_said_and_not_taken_for_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "KERNEL_LOG", "/nonexistent/kmsg")
    assert "No such file" in collector.kernel_lines(60.0, time.monotonic() + 60)["why"]
    line = '{"kind":"hang","hertz":100,"ranks":[]'
    assert hangs.answer_of("a", line + "}").unread == "its answer does not have the kernel's log"
    answer = hangs.answer_of("a", line + ',"kernel":{"lines":["3 s ago: hung_task\\u001b"],"why":""}}')
    assert (answer.kernel, answer.unread) == (("3 s ago: hung_task?",), "")
