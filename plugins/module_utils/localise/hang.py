# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judgement of a hang: which ranks never entered the operation that the others wait in, from two looks at every rank.

Pure functions. A rank is named only if every other explanation of what was seen is ruled out; the rules, in this order:

    stopped   it, or a thread of it, is stopped (T, t) or held by a control group at both looks, and other ranks are not
    numb      it has neither taken a signal nor used the processor, and all other ranks have shown their stacks
    dead      its process has ended, or is missing on a node that answered, and the other ranks live
    silent    its node alone did not answer, and all ranks of all other nodes live, none of which is shown to do something else or is behind
    behind    it is in an earlier operation than the others, by its own word, and its stack shows that it does not wait there
    device    it waits for its own device before the operation in which all other ranks wait
    elsewhere its stack is outside of any collective at both looks and shows what holds it, and all other ranks wait in a collective
    blocked   it is stuck in the kernel (D), and no other rank is, or is shown to do something else
    idle      no thread of it has used the processor between the looks, nor waits for a message, and all other ranks poll
    late      NCCL says that it has launched fewer collectives than all other ranks, which are not shown to do something else

By the last five rules nobody is named who has come to the end, or further than another rank: others do not wait for that one.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

STOPPED = ("T", "t")
DEAD = ("Z", "X")
# Where the kernel has a thread that sleeps for a time of its own. gloo and the store wait for a lock or a socket, never so.
SLEEPS = ("hrtimer_nanosleep", "do_nanosleep", "common_nsleep")
# Shares of one processor between the looks: of a rank that polls, of one that does nothing.
POLLS, IDLE = 0.5, 0.01
# So often between the looks a rank wakes up that asks again and again, with a short sleep between, whether something has happened.
# py-spy and a signal wake one up a few times.
ASKS = 10
# How the kernel's functions begin in which a thread waits for a message: a barrier of a launcher (PMI) and NCCL's bootstrap wait so.
MESSAGES = (
    "unix_stream", "pipe_", "anon_pipe", "sk_wait", "__skb_wait", "skb_wait", "wait_woken", "inet_csk_accept", "tcp_recv", "do_sys_poll",
    "do_poll", "poll_schedule", "do_select", "ep_poll", "do_epoll",
)  # fmt: skip
SHOWN = 4
# Functions of the workload of `ddp` (workloads/ddp.py) that wait for other ranks or for the device by a builtin function, which has no
# frame of its own.
OWN_WAITS = ("collect", "tell", "_agree", "_leave", "_queue", "settle")
# The packages of PyTorch's collectives, for CUDA and for Ascend; and what lies there that starts ranks, or is around all that they do.
COLLECTIVES = ("torch/distributed/", "npu/distributed/")
AROUND = ("elastic/", "launcher/", "run.py", "launch.py")
# Parts of PyTorch that compute, and that wait for other ranks in the middle of it without a frame: DistributedDataParallel begins a
# collective for each part of the gradients that is ready, and waits for all of them before the backward pass is over.
MAY_WAIT = ("torch/autograd/", "torch/nn/parallel/distributed.py")
# The function of that workload in which a rank waits for its own device before it takes part in an operation.
PREPARES = "prepare"


class Frame(t.NamedTuple):
    """One frame of a Python stack."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({'/'.join(self.file.split('/')[-2:])}:{self.line})"

    @property
    def waits(self) -> bool:
        """True if the frame is of a function that waits for other ranks or for a device, whatever it has called to do so."""
        path = self.file.replace("\\", "/")
        is_synchronising = self.function in ("synchronize", "wait") and any(word in path for word in ("/cuda/", "/npu/", "/xpu/"))
        is_own = path.endswith("/ddp.py") and self.function in OWN_WAITS
        inner = self._in_collectives
        return is_synchronising or is_own or inner.startswith("nn/") or bool(inner and "/" not in inner)

    @property
    def may_wait(self) -> bool:
        """True if the frame is of a part of PyTorch that computes, or waits for other ranks."""
        return any(part in self.file.replace("\\", "/") for part in MAY_WAIT)

    @property
    def waits_innermost(self) -> bool:
        """True if the frame is of a package of PyTorch that calls other code, as FSDP does the layers of a model, so that it is known to
        wait only if it has called nothing else."""
        return bool(self._in_collectives)

    @property
    def _in_collectives(self) -> str:
        """The path within PyTorch's collectives; empty for any other."""
        path = self.file.replace("\\", "/")
        inner = next((path.rpartition(package)[2] for package in COLLECTIVES if package in path), "")
        return "" if inner.startswith(AROUND) else inner

    @property
    def prepares(self) -> bool:
        """True if the frame is of a rank that waits for its own device alone."""
        return self.function == PREPARES and self.file.replace("\\", "/").endswith("/ddp.py")


class Look(t.NamedTuple):
    """One look at a rank. `held`: names of its threads that are stopped; `frames`: its main thread, innermost first, empty if unreadable;
    `gil`: True if the main thread holds Python's lock; `state`: of the main thread as /proc has it, empty if the process was not there;
    `frozen`: the control group that holds it; `numb`: True if it was sent a signal that it catches, and has not taken it."""

    state: str = ""
    wchan: str = ""
    held: tuple[str, ...] = ()
    frames: tuple[Frame, ...] = ()
    gil: bool = False
    frozen: str = ""
    numb: bool = False

    @property
    def stopped(self) -> bool:
        return self.state in STOPPED or bool(self.held or self.frozen)

    @property
    def waits(self) -> bool:
        return any(frame.waits for frame in self.frames) or bool(self.frames and self.frames[0].waits_innermost)


class Flight(t.NamedTuple):
    """The collectives that were open by PyTorch's flight recorder of a rank: given to its device or to another thread, and not completed.
    `operation` is the number of the workload's operation in which the recorder was read, `open` how many they were."""

    operation: int
    open: int


class RankSeen(t.NamedTuple):
    """Evidence of one rank. `busy`: processors that it used between the looks, 1.0 is one; None if unknown. `woke`: how often its main
    thread has woken up between them, None if unknown. `flight`: None if it wrote none."""

    rank: int
    node: str
    looks: tuple[Look, Look]
    busy: float | None = None
    woke: int | None = None
    flight: Flight | None = None

    @property
    def stopped(self) -> bool:
        return all(look.stopped for look in self.looks)

    @property
    def dead(self) -> bool:
        return all(look.state in DEAD for look in self.looks)

    @property
    def alive(self) -> bool:
        return all(look.state and look.state not in DEAD for look in self.looks)

    @property
    def waits(self) -> bool:
        return all(look.waits for look in self.looks)

    @property
    def prepares(self) -> bool:
        return all(any(frame.prepares for frame in look.frames) for look in self.looks)

    @property
    def asks(self) -> bool:
        """True if the main thread has woken up again and again and did little: it asks for something between short sleeps."""
        is_python = all(look.gil for look in self.looks)
        return not is_python and (self.woke or 0) >= ASKS and (self.busy is None or self.busy < POLLS)

    @property
    def sleeps(self) -> bool:
        """True if the main thread sleeps at both looks, and does not ask for something between short sleeps."""
        return all(look.wchan in SLEEPS for look in self.looks) and not self.asks

    @property
    def stack(self) -> str:
        frames = self.looks[1].frames or self.looks[0].frames
        return ", ".join(str(frame) for frame in frames[:SHOWN])


class Scene(t.NamedTuple):
    """All that is known of a group that hangs. `seen`: by rank. `places`: {rank: (number, operation)} by the ranks' own word. `done`: ranks
    that came to their end. `each`: ranks of a node. `nodes`: names of all nodes. `silent`: nodes that did not answer in time. `unread`:
    {node: why nothing could be read there}. `homes`: {rank: node} as far as known. `on_cpu`: True if ranks wait for no device. `ended`:
    ranks that ended themselves because their operation took too long. `late`: {rank: what NCCL says of it}, of ranks that have launched
    fewer collectives than all others."""

    world: int
    each: int
    nodes: tuple[str, ...]
    seen: dict[int, RankSeen]
    places: dict[int, tuple[int, str]] = {}
    done: frozenset[int] = frozenset()
    silent: tuple[str, ...] = ()
    unread: dict[str, str] = {}
    homes: dict[int, str] = {}
    on_cpu: bool = False
    ended: frozenset[int] = frozenset()
    late: dict[int, str] = {}

    @property
    def complete(self) -> bool:
        """True if every node has answered, and what it shows did not change between the looks."""
        return not self.silent and not self.unread and all(rank.alive or rank.dead for rank in self.seen.values())

    @property
    def everybody(self) -> bool:
        """True if every rank was seen alive at both looks."""
        return self.complete and set(self.seen) == set(range(self.world)) and all(rank.alive for rank in self.seen.values())


class Ruling(t.NamedTuple):
    """The ranks that hold the others up, or the node if its ranks could not be looked at; neither if the evidence does not single any out.
    `rule` names the rule. `text`: {rank, or None for the node or for nobody: what was seen, as the end of a sentence about it}."""

    rule: str
    ranks: tuple[int, ...]
    node: str
    text: dict[int | None, str]

    @property
    def named(self) -> bool:
        return bool(self.ranks or self.node)


def nobody(why: str) -> Ruling:
    return Ruling("", (), "", {None: why})


def judge(scene: Scene) -> Ruling:
    """Return who holds the group up."""
    if not scene.seen:
        why = "; ".join(f"{node}: {text}" for node, text in list(scene.unread.items())[:SHOWN])
        return nobody("no process of a rank could be looked at" + (f": {why}" if why else ""))
    for rule in (_stopped, _numb, _dead, _silent, _behind, _device, _elsewhere, _blocked, _idle, _late):
        ruling = rule(scene)
        if ruling:
            return ruling
    return nobody(_why(scene))


def _why(scene: Scene) -> str:
    """Return why nobody is named."""
    words = [f"{node} did not answer" for node in scene.silent[:SHOWN]]
    words += [f"{node} could not be looked at: {text}" for node, text in list(scene.unread.items())[:SHOWN]]
    if words:
        return "; ".join(words)
    if not scene.everybody:
        return f"{len(scene.seen)} of {scene.world} ranks have a process, and which node lacks one is not known"
    if all(rank.waits for rank in scene.seen.values()):
        return f"all {scene.world} ranks wait in a collective operation"
    return f"none of {scene.world} ranks differs from the others in a way that shows that it does not wait like them"


def _stopped(scene: Scene) -> Ruling | None:
    stopped = [rank for rank in scene.seen.values() if rank.stopped]
    if not stopped or len(stopped) == len(scene.seen):
        return None
    text: dict[int | None, str] = {}
    for rank in stopped:
        look = rank.looks[1]
        what = f"is stopped (state {look.state})" if look.state in STOPPED else f"has stopped threads ({', '.join(look.held[:SHOWN])})"
        what = f"is frozen by its control group ({look.frozen})" if look.frozen else what
        text[rank.rank] = f"{what}{_at(rank)}"
    return Ruling("stopped", tuple(rank.rank for rank in stopped), "", text)


def _numb(scene: Scene) -> Ruling | None:
    """Ranks that do not run at all, for whatever reason: one that sleeps would wake up for a signal. One in state D would not."""
    numb = [rank for rank in scene.seen.values() if _takes_no_signal(rank)]
    others = [rank for rank in scene.seen.values() if rank not in numb]
    if not scene.everybody or not numb or len(numb) > len(others) or not all(look.frames for rank in others for look in rank.looks):
        return None
    text: dict[int | None, str] = {}
    for rank in numb:
        look = rank.looks[1]
        state = f"state {look.state}, in {look.wchan or 'an unknown place'}"
        text[rank.rank] = f"does not run ({state}): it takes no signal, while all other {len(others)} ranks do"
    return Ruling("numb", tuple(sorted(rank.rank for rank in numb)), "", text)


def _dead(scene: Scene) -> Ruling | None:
    """Ranks without a process. A rank that has finished has none either: no rule for most of a group."""
    if not scene.complete:
        return None
    explained = scene.done | scene.ended
    missing = sorted(set(range(scene.world)) - set(scene.seen) - explained)
    dead = sorted(rank.rank for rank in scene.seen.values() if rank.dead and rank.rank not in explained)
    lost = sorted({*missing, *dead})
    if not lost or len(lost) >= len(scene.seen) - len(dead):
        return None
    counts = dict.fromkeys(scene.nodes, 0)
    for rank in scene.seen.values():
        counts[rank.node] = counts.get(rank.node, 0) + 1
    short = [node for node in scene.nodes if counts[node] < scene.each]
    text: dict[int | None, str] = {}
    for number in lost:
        if number in scene.seen:
            text[number] = "has ended, and nobody has taken notice"
        elif scene.homes.get(number) in short or len(short) == 1:
            text[number] = "has no process"
        else:
            return None
    return Ruling("dead", tuple(lost), short[0] if missing and len(short) == 1 else "", text)


def _silent(scene: Scene) -> Ruling | None:
    """One node that does not answer, as a machine that has frozen, or is cut off."""
    if len(scene.silent) != 1 or scene.unread or len(scene.nodes) < 2:
        return None
    if len(scene.seen) != scene.world - scene.each or not all(rank.alive for rank in scene.seen.values()):
        return None
    # A rank that is shown to do something else holds the others up as well, and the node may only be slow to answer.
    other = next((rank for rank in scene.seen.values() if _otherwise(rank, scene)), None)
    if other is not None:
        how = _otherwise(other, scene)
        return nobody(f"{scene.silent[0]} did not answer, and rank {other.rank} {how}{_at(other)}: either may hold the group up")
    # By their own words its ranks were further than another one, which may hold the group up as well.
    its = {rank: scene.places[rank][0] for rank in set(range(scene.world)) - set(scene.seen) if rank in scene.places}
    least = min(its.values(), default=None)
    behind = next((rank for rank in scene.seen if rank in scene.places and least is not None and scene.places[rank][0] < least), None)
    if behind is not None:
        words = f"rank {behind} is behind its ranks, in {scene.places[behind][1]} (operation {scene.places[behind][0]})"
        return nobody(f"{scene.silent[0]} did not answer, and {words}: either may hold the group up")
    if set(range(scene.world)) - set(scene.seen) <= scene.done and not set(scene.seen) <= scene.done:
        return nobody(f"{scene.silent[0]} did not answer, but its ranks had come to their end before")
    waiting = sum(rank.waits for rank in scene.seen.values())
    words = f", of which {waiting} wait in a collective operation" if waiting else ""
    text = f"did not answer, while the other {len(scene.nodes) - 1} nodes did and all their {len(scene.seen)} ranks live{words}"
    return Ruling("silent", (), scene.silent[0], {None: text})


def _otherwise(rank: RankSeen, scene: Scene) -> str:
    """Return what a rank is shown to do else than to wait for others; empty if nothing is shown."""
    if _is_stuck(rank):
        return "is stuck in the kernel"
    if _takes_no_signal(rank):
        return "takes no signal"
    if rank.prepares:
        return "waits for its own device"
    if _is_away(rank, scene.on_cpu):
        return "does not wait for others"
    is_native = not any(look.frames for look in rank.looks)
    others = [other for other in scene.seen.values() if other is not rank]
    if is_native and _is_idle(rank) and others and all((other.busy or 0.0) >= POLLS for other in others):
        return "does nothing"
    return ""


def _behind(scene: Scene) -> Ruling | None:
    """Ranks that did not come to the operation in which others wait, by what they say themselves."""
    places = {rank: place for rank, place in scene.places.items() if rank not in scene.done}
    if set(places) | scene.done != set(range(scene.world)) or not places:
        return None
    last = max(places.values())
    behind = {rank: place for rank, place in places.items() if place[0] < last[0]}
    if not behind or 2 * len(behind) > len(places):
        return None
    candidates = {
        rank: place
        for rank, place in behind.items()
        if rank in scene.seen and (_is_away(scene.seen[rank], scene.on_cpu) or _has_nothing_open(scene.seen[rank], place[0]))
    }
    first = min(place[0] for place in behind.values())
    if not candidates or min(place[0] for place in candidates.values()) > first:
        rank, place = min(((rank, place) for rank, place in behind.items() if rank not in candidates), key=lambda item: item[1][0])
        waits = rank in scene.seen and scene.seen[rank].waits
        how = "waits itself" if waits else "may wait itself, as its stack does not show that it does not"
        return nobody(f"rank {rank} is behind the others, in {place[1]} (operation {place[0]}), and {how}")
    named = [rank for rank, place in candidates.items() if place[0] == first]
    text: dict[int | None, str] = {}
    for rank in named:
        words = f"did not come to {last[1]} (operation {last[0]}), last in {places[rank][1]} (operation {places[rank][0]})"
        if not _is_away(scene.seen[rank], scene.on_cpu):
            words += ", and has no collective open"
        text[rank] = words + _at(scene.seen[rank])
    return Ruling("behind", tuple(sorted(named)), "", text)


def _device(scene: Scene) -> Ruling | None:
    """Ranks whose own device does not come to an end of what it was given, by their place in the workload of `ddp`."""
    preparing = [rank for rank in scene.seen.values() if rank.prepares]
    others = [rank for rank in scene.seen.values() if not rank.prepares]
    if not scene.everybody or not preparing or len(preparing) > len(others) or not all(rank.waits for rank in others):
        return None
    if _is_past(scene, preparing):
        return None
    text: dict[int | None, str] = {rank.rank: f"waits for its own device, which does not finish{_at(rank)}" for rank in preparing}
    return Ruling("device", tuple(sorted(rank.rank for rank in preparing)), "", text)


def _elsewhere(scene: Scene) -> Ruling | None:
    if not scene.everybody:
        return None
    waiting = [rank for rank in scene.seen.values() if rank.waits]
    rest = [rank for rank in scene.seen.values() if not rank.waits]
    if not rest or len(rest) > len(waiting) or _is_past(scene, rest):
        return None
    text: dict[int | None, str] = {}
    for rank in rest:
        how = _stuck_words(rank) if _is_stuck(rank) else _held(rank, scene.on_cpu)
        if not how:
            return None
        text[rank.rank] = f"{how}{_at(rank)}"
    if all(_is_stuck(rank) for rank in rest):
        return None  # of the next rule
    return Ruling("elsewhere", tuple(sorted(rank.rank for rank in rest)), "", text)


def _is_past(scene: Scene, ranks: t.Collection[RankSeen]) -> bool:
    """Return True if one of these ranks has come to its end, or further than a rank that is none of these, by their own words."""
    numbers = {rank.rank for rank in ranks}
    others = [place[0] for number, place in scene.places.items() if number not in numbers and number not in scene.done]
    first = min(others, default=None)
    return bool(numbers & scene.done) or any(
        first is not None and number in scene.places and scene.places[number][0] > first for number in numbers
    )


def _is_outside(rank: RankSeen) -> bool:
    """Return True if the stack of a rank was read at both looks and is outside of any collective."""
    return all(look.frames and not look.waits for look in rank.looks)


def _is_away(rank: RankSeen, on_cpu: bool) -> bool:
    """Return True if a rank waits neither for other ranks nor for a device. A wait for a device is a builtin function, which has no frame
    of its own: it holds no lock of Python, and polls or waits for an interrupt."""
    if not _is_outside(rank) or rank.asks:
        return False
    if all(look.gil or look.wchan in SLEEPS for look in rank.looks):
        return True
    return on_cpu and not any(frame.may_wait for look in rank.looks if look.state != "R" for frame in look.frames)


def _has_nothing_open(rank: RankSeen, operation: int) -> bool:
    """Return True if a rank in this operation waits for no other rank in a collective, by PyTorch's flight recorder, and its stack does not
    show that it waits in another way. One that waits for lost data has the collective open."""
    return _is_outside(rank) and not rank.asks and rank.flight == (operation, 0)


def _held(rank: RankSeen, on_cpu: bool) -> str:
    """Return what keeps a rank outside of any collective at both looks; empty if that is not shown."""
    if not _is_outside(rank):
        return ""
    if all(look.gil for look in rank.looks):
        return "runs Python code"
    if not on_cpu:  # whoever waits for a device may poll, or sleep between two polls
        return ""
    if rank.sleeps:
        return "sleeps"
    # It wants to run; how much it may, on cores that others use too, is another question.
    if all(look.state == "R" for look in rank.looks):
        return "computes"
    return ""


def _is_stuck(rank: RankSeen) -> bool:
    """Return True if the kernel has a rank at one place at both looks, in a sleep that no signal ends."""
    is_idle = rank.busy is not None and rank.busy < IDLE and not rank.asks
    return is_idle and [look.state for look in rank.looks] == ["D", "D"] and rank.looks[0].wchan == rank.looks[1].wchan


def _stuck_words(rank: RankSeen) -> str:
    return f"is stuck in the kernel (state D, in {rank.looks[1].wchan or 'an unknown place'})"


def _takes_no_signal(rank: RankSeen) -> bool:
    """Return True if a rank has taken no signal and used no processor, although it is not in a sleep that no signal ends."""
    return all(look.numb and look.state != "D" for look in rank.looks) and rank.busy is not None and rank.busy < IDLE


def _blocked(scene: Scene) -> Ruling | None:
    if not scene.everybody:
        return None
    blocked = [rank for rank in scene.seen.values() if _is_stuck(rank)]
    others = [rank for rank in scene.seen.values() if rank not in blocked]
    if not blocked or len(blocked) > len(others) or any(look.state == "D" for rank in others for look in rank.looks):
        return None
    if any(rank.waits for rank in blocked) or any(_otherwise(rank, scene) for rank in others) or _is_past(scene, blocked):
        return None
    text: dict[int | None, str] = {rank.rank: f"{_stuck_words(rank)}{_at(rank)}" for rank in blocked}
    return Ruling("blocked", tuple(sorted(rank.rank for rank in blocked)), "", text)


def _is_idle(rank: RankSeen) -> bool:
    return rank.busy is not None and rank.busy < IDLE and rank.looks[0].state == "S" and not rank.asks


def _idle(scene: Scene) -> Ruling | None:
    """Native ranks: whoever waits in NCCL or MPI polls (in gloo it sleeps), so one that uses no processor at all is not there. Nor is one
    that waits for a message, but that one may wait for the others, which may compute."""
    if scene.on_cpu or not scene.everybody or any(look.frames for rank in scene.seen.values() for look in rank.looks):
        return None
    idle = [rank for rank in scene.seen.values() if _is_idle(rank)]
    others = [rank for rank in scene.seen.values() if rank not in idle]
    if not idle or len(idle) > len(others) or not all((rank.busy or 0.0) >= POLLS for rank in others):
        return None
    if _is_past(scene, idle) or any(look.wchan.startswith(MESSAGES) for rank in idle for look in rank.looks):
        return None
    text: dict[int | None, str] = {
        rank.rank: f"does nothing (state {rank.looks[1].state}, in {rank.looks[1].wchan or 'an unknown place'}), "
        f"while the other {len(others)} ranks poll"
        for rank in idle
    }
    return Ruling("idle", tuple(sorted(rank.rank for rank in idle)), "", text)


def _late(scene: Scene) -> Ruling | None:
    """Native ranks: one that computes, and one that waits for its GPU, both use the processor. What waits in a test of nccl-tests has
    launched as many collectives as the others. A rank in Python may wait for lost data before it launches the next one."""
    if scene.on_cpu or not scene.everybody or scene.places or any(look.frames for rank in scene.seen.values() for look in rank.looks):
        return None
    late = [rank for rank in scene.seen.values() if rank.rank in scene.late]
    others = [rank for rank in scene.seen.values() if rank.rank not in scene.late]
    if not late or len(late) >= len(others) or _is_past(scene, late) or any(_otherwise(rank, scene) for rank in others):
        return None
    return Ruling("late", tuple(sorted(rank.rank for rank in late)), "", {rank.rank: scene.late[rank.rank] for rank in late})


def _at(rank: RankSeen) -> str:
    return f", at {rank.stack}" if rank.stack else ""
