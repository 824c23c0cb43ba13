# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who holds a group up that hangs: recordings of real PyTorch over gloo, and random groups in which nobody may be named wrongly."""

from __future__ import annotations

import json
import pathlib
import random
import re
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import hangs
from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise import hang
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import hang as collector
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import stacks

FIXTURES = pathlib.Path(__file__).resolve().parents[3] / "fixtures" / "hang"
WAITS = hang.Frame("all_reduce", "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py", 1541)
SCRIPT = hang.Frame("<module>", "train.py", 32)
BACKWARD = (hang.Frame("_engine_run_backward", "/usr/lib/torch/autograd/graph.py", 825), SCRIPT)
PREPARES = (hang.Frame("synchronize", "/usr/lib/torch/cuda/__init__.py", 1160), hang.Frame("prepare", "/tmp/x/ddp.py", 504))


def look(case: str, rank: int, how: str) -> dict[str, t.Any]:
    """Return what the collector would have written of one look at a rank of a recording. Of ranks 1 and 3 only faulthandler's text was
    recorded; they waited as rank 0 did."""
    folder = FIXTURES / case
    proc = (folder / f"proc-{2 if rank == 2 else 0}.txt").read_text()
    dump = (folder / f"py-spy-{rank}.json").read_text() if (folder / f"py-spy-{rank}.json").exists() else ""
    pid = next((int(number) for number in re.findall(r'"os_thread_id": (\d+)', dump)), 1)
    threads = re.findall(r"(?m)^(\S+) (\w) \(\w+\) wchan (\S+)$", proc)
    known: dict[str, t.Any] = {
        "pid": pid,
        "state": re.findall(r"(?m)^State:\s+(\w)", proc)[0],
        "wchan": re.findall(r"(?m)^wchan (\S+)", proc)[0],
        "threads": [[pid + number, name, state, wchan] for number, (name, state, wchan) in enumerate(threads)],
        "ticks": 0,
        "at": 1.0,
    }
    spied = collector.threads_of(dump, pid)
    told = [line for line in (folder / "faulthandler.txt").read_text().splitlines() if line.startswith(f"[default{rank}]")]
    if how == "py-spy" and spied is not None:
        return {**known, "how": "py-spy", "threads_python": spied}
    return {**known, "how": "faulthandler", "text": "\n".join(told)}


def recorded(case: str, how: str = "py-spy") -> hang.Scene:
    """The recording as the answers of two nodes with two ranks each."""
    ticks = int(re.findall(r"cpu ticks in 1 s: (\d+)", (FIXTURES / case / "proc-2.txt").read_text())[0])
    seen = {}
    for node, ranks in (("gpu-01", (0, 1)), ("gpu-02", (2, 3))):
        records = []
        for rank in ranks:
            first = look(case, rank, how)
            second = {**first, "ticks": ticks if rank == 2 else 0, "at": 2.0}
            records.append({"rank": rank, "local": rank % 2, "looks": [[first], [second]]})
        answer = hangs.answer_of(node, json.dumps({"kind": "hang", "hertz": 100, "ranks": records}))
        seen.update({one.rank: one for one in answer.seen})
    return hang.Scene(4, 2, ("gpu-01", "gpu-02"), seen, on_cpu=True)


@pytest.mark.parametrize(
    ("case", "how", "rule", "words"),
    [
        ("stopped", "py-spy", "stopped", "is stopped (state T)"),
        ("stopped", "faulthandler", "stopped", "is stopped (state T)"),
        ("absent", "py-spy", "elsewhere", "sleeps, at sleep_instead_of_collective (hang.py:14), <module> (hang.py:28)"),
        ("absent", "faulthandler", "elsewhere", "sleeps, at sleep_instead_of_collective (hang.py:14)"),
        ("loop", "py-spy", "elsewhere", "runs Python code, at spin_forever (hang.py:20)"),
        ("loop", "faulthandler", "elsewhere", "computes, at spin_forever (hang.py:20)"),
    ],
)
def test_the_rank_of_a_recorded_hang_is_named_with_its_stack(case: str, how: str, rule: str, words: str) -> None:
    ruling = hang.judge(recorded(case, how))
    assert (ruling.rule, ruling.ranks) == (rule, (2,)) and words in ruling.text[2], ruling


def test_a_loop_is_not_told_from_waiting_for_a_device_by_its_processor_time() -> None:
    assert not hang.judge(recorded("loop", "faulthandler")._replace(on_cpu=False)).named
    assert hang.judge(recorded("loop")._replace(on_cpu=False)).ranks == (2,)  # it holds Python's lock, which nobody holds who waits


def test_nobody_is_named_where_all_wait_in_the_collective() -> None:
    scene = recorded("absent")
    ruling = hang.judge(scene._replace(seen={**scene.seen, 2: scene.seen[0]._replace(rank=2, node="gpu-02")}))
    assert not ruling.named and "all 4 ranks wait" in ruling.text[None]


def test_faulthandler_gives_the_main_thread_which_it_prints_last() -> None:
    text = 'Thread 0x0a (most recent call first):\n  File "a.py", line 3 in run\n\nCurrent thread 0x0b (most recent call first):\n'
    frames = stacks.frames_of(text + '  File "b.py", line 7 in <lambda>\n  File "c.py", line 1 in <module>\n')
    assert frames == [("<lambda>", "b.py", 7), ("<module>", "c.py", 1)]
    assert stacks.frames_of("rubbish") == []
    assert stacks.frames_of(text + '  File "b.py", line 7 in <lambda>\n') == []  # it is not known where it comes from
    assert stacks.frames_of('Thread 0x0a (most recent call first):\n  File "a.py", line 3 in run\n') == []  # of another thread


def test_faulthandler_gives_the_main_thread_of_every_version_and_form() -> None:
    thread = 'Thread 0x00007f01 [pulse] (most recent call first):\n  File "/x/pulse.py", line 9 in run\n\n'
    main = 'Current thread 0x00007f02 [trainer] (most recent call first):\n  Garbage-collecting\n  File "/x/t.py", line ??? in step\n'
    program = '  File "/x/t.py", line 3 in <module>\n'
    module = program + '  File "<frozen runpy>", line 88 in _run_code\n  File "<frozen runpy>", line 198 in _run_module_as_main\n'
    native = "\nCurrent thread's C stack trace (most recent call first):\n  Binary file \"/usr/bin/python3\", at _start+0x21 [0x55]\n"
    for outer in (program, module, program + native):
        assert stacks.frames_of(thread + main + outer)[:2] == [("step", "/x/t.py", 0), ("<module>", "/x/t.py", 3)]
    # A build without the interpreter lock writes the thread alone that took the signal.
    alone = "<Cannot show all threads while the GIL is disabled>\nStack (most recent call first):\n"
    assert stacks.frames_of(alone + program) == [("<module>", "/x/t.py", 3)]
    assert stacks.frames_of(alone + '  File "/x/pulse.py", line 9 in run\n') == []
    assert stacks.frames_of("Thread 0x0b (most recent call first):\n  File ???, line 4 in ???\n" + program)[0] == ("???", "???", 4)


def dumped(*threads: tuple[int | None, str | None, str, str]) -> str:
    """Return what `py-spy dump --json` writes of threads: (number, name, innermost, outermost function)."""
    return json.dumps([
        {"pid": 70, "thread_id": 1 << 40, "thread_name": name, "os_thread_id": number, "active": False, "owns_gil": False, "frames": [
            {"name": function, "filename": "/x/t.py", "module": None, "short_filename": "t.py", "line": 3, "locals": None}
            for function in (inner, outer)
        ]}
        for number, name, inner, outer in threads
    ])  # fmt: skip


@pytest.mark.parametrize(
    "threads",
    [
        [(71, "Thread-1", "run", "_bootstrap"), (70, "MainThread", "step", "<module>")],
        [(None, "Thread-1", "run", "_bootstrap"), (None, "MainThread", "step", "<module>")],  # Python 3.10 that is stopped
        [(8, "Thread-1", "run", "_bootstrap"), (7, "MainThread", "step", "<module>")],  # the numbers of a container
        [(None, None, "run", "_bootstrap"), (None, None, "step", "_run_module_as_main")],
        [(None, "worker", "run", "_bootstrap")] * 100 + [(None, "MainThread", "step", "<module>")],
    ],
)
def test_py_spy_gives_the_main_thread_also_without_its_number(threads: list[tuple[int | None, str | None, str, str]]) -> None:
    spied = collector.threads_of(dumped(*threads), 70)
    assert spied and spied[0]["main"] and spied[0]["frames"][0][0] == "step" and len(spied) <= collector.THREAD_LIMIT
    assert sum(thread["main"] for thread in spied) == 1


def test_no_thread_is_taken_for_the_main_one_by_a_guess() -> None:
    spied = collector.threads_of(dumped((None, None, "run", "<module>"), (None, None, "step", "<module>")), 70)
    assert spied and not any(thread["main"] for thread in spied)


# One rule each -------------------------------------------------------------------------------------------------------


def rank(number: int, *frames: hang.Frame, state: str = "S", wchan: str = "futex_do_wait", busy: float = 0.0, gil: bool = False,
         held: tuple[str, ...] = (), each: int = 2) -> hang.RankSeen:  # fmt: skip
    one = hang.Look(state, wchan, held, frames, gil)
    return hang.RankSeen(number, f"gpu-{number // each + 1:02}", (one, one), busy)


def scene(*ranks: hang.RankSeen, world: int = 4, **more: t.Any) -> hang.Scene:
    nodes = tuple(f"gpu-{number + 1:02}" for number in range(world // 2))
    return hang.Scene(world, 2, nodes, {one.rank: one for one in ranks}, **more)


def waiting(*numbers: int) -> list[hang.RankSeen]:
    return [rank(number, WAITS, SCRIPT) for number in numbers]


def polling(*numbers: int) -> list[hang.RankSeen]:
    return [rank(number, state="R", wchan="0", busy=1.0) for number in numbers]


def test_a_stopped_thread_of_a_rank_that_waits_is_enough() -> None:
    ruling = hang.judge(scene(*waiting(0, 1, 2), rank(3, WAITS, held=("gloo",))))
    assert ruling.ranks == (3,) and "has stopped threads (gloo), at all_reduce" in ruling.text[3]


def test_a_rank_whose_container_is_paused_is_stopped_whatever_its_state() -> None:
    paused = rank(3, state="D")._replace(looks=(hang.Look("D", frozen="/pod1"), hang.Look("D", frozen="/pod1")))
    ruling = hang.judge(scene(*waiting(0, 1, 2), paused))
    assert (ruling.rule, ruling.ranks) == ("stopped", (3,)) and ruling.text[3].startswith("is frozen by its control group (/pod1)")


def test_a_rank_that_takes_no_signal_does_not_run() -> None:
    numb = rank(3)._replace(looks=(hang.Look("S", "0", numb=True), hang.Look("S", "0", numb=True)))
    ruling = hang.judge(scene(*waiting(0, 1, 2), numb))
    assert (ruling.rule, ruling.ranks) == ("numb", (3,)) and ruling.text[3].startswith("does not run (state S")
    awake = numb._replace(looks=(hang.Look("S", "0", numb=True), hang.Look("S", "0")))
    assert not hang.judge(scene(*waiting(0, 1, 2), awake)).named  # it has taken one, and could not write
    waits = hang.Look("D", "folio_wait_bit", numb=True)  # for a disk: no signal wakes it up
    assert hang.judge(scene(*waiting(0, 1, 2), numb._replace(looks=(waits, waits)))).rule == "blocked"
    assert not hang.judge(scene(*waiting(0, 1), rank(2), numb)).named  # nothing is known of another, either


def test_nobody_is_named_where_all_are_stopped() -> None:
    assert not hang.judge(scene(*(rank(number, state="T") for number in range(4)))).named


def test_a_rank_without_a_process_is_named_by_its_node() -> None:
    ruling = hang.judge(scene(*polling(0, 1, 3)))
    assert (ruling.rule, ruling.ranks, ruling.node) == ("dead", (2,), "gpu-02")
    assert not hang.judge(scene(*polling(0, 1, 3), unread={"gpu-02": "refused"})).named  # it may be there
    assert not hang.judge(scene(*polling(3))).named  # the others may have finished
    assert not hang.judge(scene(*polling(0, 1, 3), done=frozenset({2}))).named


def test_the_one_node_that_does_not_answer_is_named() -> None:
    ruling = hang.judge(scene(*waiting(0, 1), silent=("gpu-02",)))
    assert (ruling.rule, ruling.ranks, ruling.node) == ("silent", (), "gpu-02")
    assert "all their 2 ranks live, of which 2 wait" in ruling.text[None]
    assert not hang.judge(scene(*waiting(0), silent=("gpu-02",))).named
    assert not hang.judge(scene(*waiting(0, 1), world=6, silent=("gpu-02", "gpu-03"))).named


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (rank(1, SCRIPT, state="R", busy=1.0, gil=True), "rank 1 does not wait for others, at <module> (train.py:32)"),
        (rank(1, SCRIPT, wchan="hrtimer_nanosleep"), "rank 1 does not wait for others"),
        (rank(1, state="D", wchan="io_schedule"), "rank 1 is stuck in the kernel"),
        (rank(1)._replace(looks=(hang.Look("S", "0", numb=True),) * 2), "rank 1 takes no signal"),
    ],
)
def test_a_node_that_does_not_answer_is_not_named_where_a_rank_of_another_holds_the_group_up(other: hang.RankSeen, words: str) -> None:
    """The node may only be slow to answer."""
    ruling = hang.judge(scene(*waiting(0), other, silent=("gpu-02",)))
    assert not ruling.named and words in ruling.text[None] and ruling.text[None].startswith("gpu-02 did not answer")


def test_a_rank_that_is_behind_by_its_own_word_is_named_unless_it_waits_there() -> None:
    places = {0: (5, "all_reduce"), 1: (5, "all_reduce"), 2: (4, "init"), 3: (5, "all_reduce")}
    ruling = hang.judge(scene(*waiting(0, 1, 3), rank(2, SCRIPT), places=places, on_cpu=True))
    assert (ruling.rule, ruling.ranks) == ("behind", (2,))
    assert ruling.text[2] == "did not come to all_reduce (operation 5), last in init (operation 4), at <module> (train.py:32)"
    ruling = hang.judge(scene(*waiting(0, 1, 2, 3), places=places))
    assert not ruling.named and "rank 2 is behind the others, in init (operation 4), and waits itself" in ruling.text[None]
    ruling = hang.judge(scene(*waiting(0, 1, 3), rank(2), places=places))
    assert not ruling.named and "may wait itself" in ruling.text[None]


def test_a_rank_whose_device_does_not_finish_before_the_operation_is_named() -> None:
    """As on an H100 with a kernel that does not end: all ranks say the same operation, and poll."""
    places = {number: (5, "all_reduce") for number in range(4)}
    ruling = hang.judge(scene(*waiting(0, 1, 3), rank(2, *PREPARES, state="R", busy=1.0), places=places))
    assert (ruling.rule, ruling.ranks) == ("device", (2,))
    assert ruling.text[2].startswith("waits for its own device, which does not finish, at synchronize (cuda/__init__.py:1160), prepare (")
    assert not hang.judge(scene(*waiting(0), *(rank(number, *PREPARES) for number in (1, 2, 3)), places=places)).named  # nobody differs
    assert not hang.judge(scene(*waiting(0, 1), rank(2, *PREPARES), rank(3, SCRIPT), places=places)).named  # rank 3 may hold it up
    assert not hang.judge(scene(*waiting(0, 1), rank(2, *PREPARES), places=places, unread={"gpu-02": "refused"})).named


def test_of_two_ranks_that_are_behind_the_one_that_the_other_waits_for_is_named() -> None:
    places = {0: (5, "x"), 1: (5, "x"), 2: (4, "x"), 3: (3, "x"), 4: (5, "x"), 5: (5, "x")}
    seen = (*waiting(0, 1, 2, 4, 5), rank(3, SCRIPT))
    assert hang.judge(scene(*seen, world=6, places=places, on_cpu=True)).ranks == (3,)
    seen = (*waiting(0, 1, 3, 4, 5), rank(2, SCRIPT))  # rank 3 waits in what all others have left
    assert not hang.judge(scene(*seen, world=6, places=places, on_cpu=True)).named
    assert not hang.judge(scene(*waiting(0, 1, 2, 4, 5), rank(3, SCRIPT), world=6, places=places)).named  # it may wait for its GPU


def test_native_ranks_are_told_apart_by_what_the_kernel_says_of_them() -> None:
    ruling = hang.judge(scene(*polling(0, 1, 2), rank(3, wchan="hrtimer_nanosleep")))
    assert (ruling.rule, ruling.ranks) == ("idle", (3,)) and "in hrtimer_nanosleep" in ruling.text[3]
    ruling = hang.judge(scene(*polling(0, 1, 2), rank(3, state="D", wchan="nfs_wait_bit")))
    assert (ruling.rule, ruling.ranks) == ("blocked", (3,))
    assert not hang.judge(scene(*polling(0, 1, 2, 3))).named
    assert not hang.judge(scene(*(rank(number) for number in range(4)))).named


# Scenes in which a healthy rank looks like the one ---------------------------------------------------------------------


def at(*numbers: int) -> dict[int, tuple[int, str]]:
    """Return the places of ranks 0, 1, ... by the numbers of their operations."""
    return {number: (operation, f"operation-{operation}") for number, operation in enumerate(numbers)}


def spinning(number: int, *frames: hang.Frame) -> hang.RankSeen:
    return rank(number, *(frames or (SCRIPT,)), state="R", wchan="0", busy=1.0, gil=True)


def stuck(number: int) -> hang.RankSeen:
    return rank(number, state="D", wchan="nfs_wait_bit")


def test_a_frame_around_all_that_a_rank_does_is_no_wait() -> None:
    record = hang.Frame("wrapper", "/v/torch/distributed/elastic/multiprocessing/errors/__init__.py", 355)
    fsdp = hang.Frame("forward", "/v/torch/distributed/fsdp/fully_sharded_data_parallel.py", 853)
    layer, model = hang.Frame("_call_impl", "/v/torch/nn/modules/module.py", 1751), hang.Frame("forward", "/home/x/model.py", 12)
    for around in ((record,), (fsdp, layer), (layer, fsdp, record)):
        others = [rank(number, WAITS, *around, SCRIPT) for number in range(3)]
        assert hang.judge(scene(*others, spinning(3, model, *around, SCRIPT))).ranks == (3,)
        assert not hang.judge(scene(*others, spinning(3, model, *around, SCRIPT)._replace(looks=others[0].looks))).named
    # A wait without a frame of its own, in the middle of FSDP; and the collectives of Ascend.
    npu = hang.Frame("batch_isend_irecv", "/v/torch_npu/distributed/distributed_c10d.py", 9)
    for waits in (fsdp, npu, hang.Frame("all_reduce", "/v/torch/distributed/nn/functional.py", 3)):
        assert hang.judge(scene(*(rank(number, waits, SCRIPT) for number in range(3)), spinning(3))).ranks == (3,)


def test_a_rank_in_a_backward_pass_may_wait_for_others_there() -> None:
    backward = hang.Frame("_engine_run_backward", "/v/torch/autograd/graph.py", 825)
    agree = hang.Frame("_agree", "/tmp/x/ddp.py", 333)
    places = at(6, 6, 6, 5)
    for frame, state, named in ((backward, "S", False), (backward, "R", True), (SCRIPT, "S", True), (agree, "S", False)):
        behind = rank(3, frame, SCRIPT, state=state)
        assert hang.judge(scene(*waiting(0, 1, 2), behind, places=places, on_cpu=True)).named is named, (frame, state)
    silent = scene(rank(0, agree, SCRIPT), rank(1, agree, SCRIPT), silent=("gpu-02",), on_cpu=True)
    assert hang.judge(silent).node == "gpu-02"


@pytest.mark.parametrize("other", [spinning(3), stuck(3), rank(3, *PREPARES, SCRIPT, state="R", busy=1.0)])
def test_a_rank_that_has_come_further_or_to_its_end_is_not_what_others_wait_for(other: hang.RankSeen) -> None:
    assert hang.judge(scene(*waiting(0, 1, 2), other)).ranks == (3,)
    assert hang.judge(scene(*waiting(0, 1, 2), other, places=at(6, 6, 6, 6))).ranks == (3,)
    assert not hang.judge(scene(*waiting(0, 1, 2), other, places=at(6, 6, 6, 7))).named
    assert not hang.judge(scene(*waiting(0, 1, 2), other, places=at(6, 6, 6), done=frozenset({3}))).named


def test_a_node_that_does_not_answer_is_not_named_if_a_rank_of_another_is_behind_or_its_own_had_ended() -> None:
    seen = scene(*waiting(0, 1), silent=("gpu-02",))
    assert hang.judge(seen._replace(places=at(6, 6, 6, 6))).node == "gpu-02"
    assert hang.judge(seen._replace(places=at(6, 6, 6, 5))).node == "gpu-02"
    ruling = hang.judge(seen._replace(places=at(6, 5, 6, 6)))
    assert not ruling.named and "rank 1 is behind its ranks, in operation-5 (operation 5)" in ruling.text[None]
    ruling = hang.judge(seen._replace(places=at(6, 6), done=frozenset({2, 3})))
    assert not ruling.named and "had come to their end before" in ruling.text[None]


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ([*waiting(0), rank(1, *PREPARES, SCRIPT, state="R", busy=1.0)], "rank 1 waits for its own device"),
        ([*polling(0), rank(1)], "rank 1 does nothing"),
    ],
)
def test_a_node_that_does_not_answer_is_not_named_beside_a_rank_that_holds_up_as_well(seen: list[hang.RankSeen], words: str) -> None:
    ruling = hang.judge(scene(*seen, silent=("gpu-02",)))
    assert not ruling.named and words in ruling.text[None]


def test_a_rank_that_is_stuck_is_not_named_alone_beside_one_that_computes() -> None:
    assert hang.judge(scene(*waiting(0, 1), spinning(2), stuck(3))).ranks == (2, 3)
    assert not hang.judge(scene(*waiting(0), rank(1), spinning(2), stuck(3))).named  # of rank 1 nothing is known
    assert hang.judge(scene(*waiting(0, 1), stuck(2), rank(3))).ranks == (2,)


def test_a_native_rank_that_waits_for_a_message_may_wait_for_those_that_compute() -> None:
    for wchan in ("unix_stream_read_generic", "pipe_read", "anon_pipe_read", "inet_csk_accept", "poll_schedule_timeout.constprop.0"):
        assert not hang.judge(scene(*polling(0, 1, 2), rank(3, wchan=wchan))).named
    assert hang.judge(scene(*polling(0, 1, 2), rank(3))).ranks == (3,)


def test_a_rank_that_is_behind_and_has_no_collective_open_does_not_wait_there() -> None:
    """On an H200: a rank in a loop, and one that waits for a collective by `item`, have the same stack to faulthandler."""
    behind, places = rank(3, SCRIPT, state="R", wchan="0", busy=1.0), at(6, 6, 6, 5)
    for flight, named in ((None, False), ((5, 1), False), ((4, 0), False), ((5, 0), True)):
        seen = behind._replace(flight=hang.Flight(*flight) if flight else None)
        ruling = hang.judge(scene(*waiting(0, 1, 2), seen, places=places))
        assert ruling.named is named, (flight, ruling)
    assert ruling.text[3].endswith("last in operation-5 (operation 5), and has no collective open, at <module> (train.py:32)")
    waits = rank(3, WAITS, SCRIPT)._replace(flight=hang.Flight(5, 0))  # by the store, or before the collective is recorded
    assert not hang.judge(scene(*waiting(0, 1, 2), waits, places=places)).named


@pytest.mark.parametrize(
    ("text", "flight"),
    [
        ('{"operation": 5, "open": 0, "entries": []}', (5, 0)),
        *((text, None) for text in ('{"operation": 5, "open": 0, "entr', '{"entries": []}', "[]", None, '{"operation": 1e999}')),
    ],
)
def test_a_flight_record_is_read_only_if_it_is_whole(text: str | None, flight: tuple[int, int] | None) -> None:
    record = {"rank": 0, "local": 0, "looks": [[LOOK], [LOOK]]}
    answer = hangs.answer_of("gpu-01", json.dumps({"kind": "hang", "hertz": 100, "ranks": [record], "flights": {"5": text}}))
    assert answer.seen[0].flight == flight


def test_a_native_rank_that_has_launched_less_than_all_others_is_named_if_nothing_speaks_against() -> None:
    late = {3: "has launched NCCL's operations up to 9 only"}
    ruling = hang.judge(scene(*polling(0, 1, 2, 3), late=late))
    assert (ruling.rule, ruling.ranks, ruling.text) == ("late", (3,), late)
    assert not hang.judge(scene(*polling(0, 1, 2, 3))).named
    assert not hang.judge(scene(*polling(0, 1, 2, 3), late={2: "", 3: ""})).named
    assert not hang.judge(scene(*polling(0, 1, 2, 3), late=late, done=frozenset({3}))).named
    assert hang.judge(scene(*polling(0, 1, 3), stuck(2), late=late)).ranks == (2,)
    # In Python a rank may wait for lost data before it launches the next one.
    assert not hang.judge(scene(*(rank(number, SCRIPT, state="R", busy=1.0) for number in range(4)), late=late)).named


def test_a_rank_that_asks_between_short_sleeps_is_not_taken_for_one_that_sleeps() -> None:
    sleeps = rank(3, SCRIPT, wchan="hrtimer_nanosleep")
    for woke, named in ((None, True), (4, True), (40, False)):
        for more in ({"on_cpu": True}, {"places": at(6, 6, 6, 5)}):
            ruling = hang.judge(scene(*waiting(0, 1, 2), sleeps._replace(woke=woke), **more))
            assert ruling.named is named, (woke, more, ruling)


def test_a_rank_without_a_stack_is_not_named_for_waking_up_or_for_sleeping_as_gloo_does() -> None:
    asks = rank(3, wchan="hrtimer_nanosleep")._replace(woke=40)
    assert not hang.judge(scene(*polling(0, 1, 2), asks)).named
    assert not hang.judge(scene(*waiting(0, 1, 2), stuck(3)._replace(woke=40))).named
    assert hang.judge(scene(*waiting(0, 1, 2), spinning(3)._replace(woke=40))).ranks == (3,)
    assert not hang.judge(scene(*polling(0, 1, 2), rank(3), on_cpu=True)).named  # py-spy and faulthandler failed on all
    assert not hang.judge(scene(*waiting(0, 1), rank(2, *PREPARES, SCRIPT, state="R", busy=1.0), stuck(3))).named


def test_a_rank_that_ended_because_its_operation_took_too_long_is_not_dead() -> None:
    assert hang.judge(scene(*waiting(0, 1, 2))).ranks == (3,)
    assert not hang.judge(scene(*waiting(0, 1, 2), ended=frozenset({3}))).named
    assert hang.judge(scene(*waiting(0, 1), ended=frozenset({3}))).ranks == (2,)


LOOK = {"pid": 5, "state": "R", "ticks": 1, "at": 1.0, "threads": [[5, "a\x1b[31m", "T", "0"]], "how": "py-spy", "threads_python": [
    {"main": True, "gil": True, "frames": [["spin\n", "/x/a.py", 3]]}]}  # fmt: skip


ENDLESS = {**LOOK, "threads_python": [{"main": True, "gil": 1, "frames": [["f", "x", float("inf")]]}]}


@pytest.mark.parametrize(
    "ranks",
    [
        *(3, None, [{}], [7], [None], [{"rank": 0, "local": 0, "looks": [[], []]}]),
        [{"rank": "x", "local": 0, "looks": [[LOOK], [LOOK]]}],
        [{"rank": 0, "local": 0, "looks": [[LOOK], [LOOK], [LOOK]]}],
        [{"rank": 0, "local": 0, "looks": [[LOOK], [ENDLESS]]}],
    ],
)
def test_an_answer_that_the_collector_would_not_write_is_not_read_at_all(ranks: object) -> None:
    with pytest.raises(ValueError, match="not as the collector writes it"):
        hangs.answer_of("gpu-01", json.dumps({"kind": "hang", "hertz": 100, "ranks": ranks}))
    assert not hang.judge(scene()).named


def test_an_answer_is_read_only_if_it_is_whole() -> None:
    for line, why in (('{"kind":"hang","ranks":[', "cut off"), ('{"kind":"hang","problem":"not in\\ntime"}', r"not in\?time")):
        with pytest.raises(ValueError, match=why):
            hangs.answer_of("gpu-01", line)
    with pytest.raises(ValueError, match="not as"):
        hangs.answer_of("gpu-01", json.dumps({"kind": "hang", "hertz": 0, "ranks": [{"rank": 0, "local": 0, "looks": [[LOOK], [LOOK]]}]}))


def test_words_of_a_machine_are_one_line_without_control_characters() -> None:
    record = {"rank": 0, "local": 0, "looks": [[LOOK], [LOOK]]}
    answer = hangs.answer_of("gpu-01", json.dumps({"kind": "hang", "hertz": 100, "ranks": [record]}))
    assert answer.seen[0].stack == "spin? (x/a.py:3)" and answer.seen[0].looks[0].held == ("a?[31m",) and answer.local == {0: 0}


# Random groups -------------------------------------------------------------------------------------------------------


def random_scene(draw: random.Random) -> tuple[hang.Scene, set[int]]:
    """Return a random group that hangs, seen as badly as may be, and who holds it up: nobody, if packets were lost.

    All ranks walk through numbered operations. Culprits stay between two of them, in one of many ways; the others wait in the next one, in
    one of many ways, too. In an operation with a root some ranks may have gone on, and at the end some have finished. Stacks, nodes and
    what ranks say are lost at random, and what they say is late.
    """
    each = draw.choice([1, 2, 4])
    world = each * draw.choice([2, 3, 4])
    native, on_cpu = draw.random() < 0.3, draw.random() < 0.5
    step = draw.randint(2, 9)
    count = draw.choice([0, 1, 1, 1, 1, 2])
    culprits = set(draw.sample(range(world), min(count, world - 1)))
    kind = {number: draw.choice(["stop", "thread", "sleep", "loop", "stuck", "dead", "device"]) for number in culprits}
    at = {number: step - 1 if kind.get(number, "device") != "device" else step for number in range(world)}
    if not culprits:  # a link is broken: some wait in an operation that others have left
        for number in draw.sample(range(world), draw.randint(0, world - 1)):
            at[number] = step - 1
    elif draw.random() < 0.2:  # the root has gone on
        at.update({number: step + 1 for number in range(world) if number not in culprits and draw.random() < 0.2})
    finished = {number for number in range(world) if number not in culprits and draw.random() < 0.3} if draw.random() < 0.1 else set()
    seen, places = {}, {}
    for number in range(world):
        how = kind.get(number, "wait")
        frames = (SCRIPT,) if how != "wait" else (WAITS, SCRIPT)
        if how == "thread" or (how == "wait" and not on_cpu and draw.random() < 0.5):
            frames = (SCRIPT,) if draw.random() < 0.5 else frames  # a wait for a device is a builtin function: no frame of its own
        polls = native or not on_cpu
        state, wchan, busy, gil, held = ("R", "0", 1.0, False, ()) if polls else ("S", "futex_do_wait", 0.0, False, ())
        woke = 0
        if how == "wait" and draw.random() < 0.1:  # it asks between short sleeps, for a launcher's barrier, or in a backward pass
            wchan, frames = ("pipe_read", ()) if native else ("hrtimer_nanosleep", (SCRIPT,)) if draw.random() < 0.5 else (wchan, BACKWARD)
            woke, busy, state = (0, 0.0, "S") if native else (40, 0.0, "S") if frames == (SCRIPT,) else (0, busy, state)
        if number in finished:
            state, wchan, busy, gil, frames = "R", "0", 1.0, True, (SCRIPT,)
        if how == "stop":
            state, wchan, busy = "T", "do_signal_stop", 0.0
        elif how == "sleep":
            state, wchan, busy = "S", "hrtimer_nanosleep", 0.0
        elif how == "loop":
            state, wchan, busy, gil = "R", "0", draw.uniform(0.1, 1.0), draw.random() < 0.7
        elif how == "stuck":
            state, wchan, busy = "D", "io_schedule", 0.0
        elif how == "device":
            state, wchan, busy, frames = "R", "0", 1.0, (*PREPARES, SCRIPT)
        elif how == "thread":
            held = ("worker",)
        if native or draw.random() < 0.15:
            frames, gil = (), False
        looks = [hang.Look(state, wchan, t.cast("tuple[str, ...]", held), frames, gil) for _unused in range(2)]
        if draw.random() < 0.05:
            looks[draw.randrange(2)] = hang.Look()
        if how != "dead":
            seen[number] = hang.RankSeen(number, f"n{number // each}", (looks[0], looks[1]), busy, woke)
        if not native and number not in finished and draw.random() < 0.95:
            # A rank that cannot speak said its last word earlier; one that can, says where it is.
            late = draw.randint(0, 2) if how in ("stop", "loop", "dead") else 0
            places[number] = (max(1, at[number] - late), f"operation-{max(1, at[number] - late)}")
    nodes = [f"n{number}" for number in range(world // each)]
    unread = {node: "refused" for node in nodes if draw.random() < 0.05}
    silent = tuple(node for node in nodes if node not in unread and draw.random() < 0.02)
    seen = {number: one for number, one in seen.items() if one.node not in unread and one.node not in silent}
    if silent:  # a node does not answer because it is the one
        held_up = {number for number in range(world) if f"n{number // each}" in silent}
        return hang.Scene(world, each, tuple(nodes), seen, {}, silent=silent, unread=unread, on_cpu=on_cpu), culprits | held_up
    done = frozenset(finished)
    return hang.Scene(world, each, tuple(nodes), seen, places, done, unread=unread, on_cpu=on_cpu), culprits


def test_nobody_is_named_wrongly_in_random_groups() -> None:
    right = hung = 0
    for seed in range(1500):
        world, culprits = random_scene(random.Random(seed))
        ruling = hang.judge(world)
        assert set(ruling.ranks) <= culprits, (seed, ruling, world)
        if ruling.node and not ruling.ranks:
            assert ruling.node in world.silent, (seed, ruling)
        hung += bool(culprits)
        right += ruling.named
    assert right > hung / 2, (right, hung)  # nor is a judge of use who names nobody
