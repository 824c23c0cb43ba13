# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence of a hang on one node: what each rank of a group is doing, read from outside while it hangs.

    python hang.py '{"mark": "GPUFLEET_GROUP", "token": "...", "seconds": 8, "tool": ["nvidia-smi", ...]}'

Prints one line of JSON: {"kind": "hang", "ranks": [...], "counters": {name: [before, after]}, "kernel": {"lines": [...], "why": text},
"tool": text, "ras": text, "seconds"}. Each
rank is looked at twice, `window` seconds apart: the state of its process and of its threads, where the kernel has it (wchan, syscall,
stack), how much CPU it has used, and its Python stacks, from py-spy if that is installed, else from faulthandler if the rank has armed it.
Nothing is changed: py-spy pauses a process for some milliseconds.

It never takes much longer than `seconds`. If it could not finish, since the kernel held it up where it reads a process that is stuck, it
prints {"kind": "hang", "problem": why} in place of all else.

Ranks are the processes whose environment has the mark of the group and a rank number. This workload is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import typing as t

if "answer_with_stacks" not in globals():  # else it stands above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.stacks import OUTERMOST, STACKS, StacksOfProcess

# As in module_utils/answer/plain_data.py, which does not travel with this file.
PlainData = t.Dict[str, t.Any]

# Seconds between the two looks, for one call of py-spy, for the service of a library, and beyond `seconds` until the collector gives up.
WINDOW_S, SPY_S, RAS_S, LATE_S = 2.0, 2.0, 2.0, 1.5
# Variables of a rank's number and its number on the node: torchrun, Open MPI, PMIx, Hydra. torchrun's have common names.
NUMBERS = (
    ("RANK", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", ""),
    ("PMIX_RANK", "SLURM_LOCALID", ""),
    ("PMI_RANK", "MPI_LOCALRANKID", ""),
)
# The kernel's log, and how many of its lines are kept, the newest; a record of it has at most RECORD bytes.
KERNEL_LOG, KERNEL_LINES, RECORD = "/dev/kmsg", 60, 8192
# Lines of it that say that something is broken. They stay where a storm of others would push them out: an Xid 119 has some forty behind it.
BROKEN = re.compile(
    r"(?i)\bS?Xid\b|fallen off the bus|probably locked|hardware error|machine check|\bmce: |\bEDAC |\bAER: |blocked for more than"
    r"|\block-?up\b|\bstall|out of memory|\boom-kill|killed process|i/o error|link (?:is )?down|\bcatastrophic|fatal|\btimed? ?out\b"
    r"|health (?:compromised|buffer)|error cqe|unresponsive|not responding|gpu reset|kernel bug|\boops\b|call trace|uncorrect"
)
# Where NCCL's own service for questions (RAS) listens, from NCCL 2.24 on.
RAS_PORT = 28028
# How often it is asked, and how many seconds it has for the first word.
RAS_ATTEMPTS, RAS_FIRST_S = 3, 0.7
TEXT_LIMIT, THREAD_LIMIT, FRAME_LIMIT = 16384, 64, 60


def read(path: str, most: int = TEXT_LIMIT, offset: int = 0) -> str:
    """Return the text of a file from an offset in bytes on; empty if it cannot be read."""
    try:
        with open(path, "rb") as source:
            if offset:
                source.seek(offset)
            return source.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


# Which processes are ranks ---------------------------------------------------------------------------------------------


def environment(pid: int) -> t.Dict[str, str]:
    pairs = (word.partition("=") for word in read(f"/proc/{pid}/environ", 1 << 20).split("\0"))
    return {name: value for name, _equals, value in pairs if name}


def number_of(env: t.Mapping[str, str]) -> t.Tuple[int, int | None] | None:
    """Return (rank, rank on its node or None) from the environment of a process; None if it is no rank."""
    for rank, local, besides in NUMBERS:
        if env.get(rank, "").isdigit() and (not besides or besides in env):
            return int(env[rank]), int(env[local]) if env.get(local, "").isdigit() else None
    return None


def ranks(mark: str, token: str) -> t.Dict[int, t.List[PlainData]]:
    """Return the processes of each rank of the group on this node, the largest first: a rank may have a shell around it."""
    processes: t.Dict[int, t.List[PlainData]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        env = environment(int(name))
        number = number_of(env) if env.get(mark) == token else None
        if number is None:
            continue
        size = re.search(r"VmRSS:\s+(\d+)", read(f"/proc/{name}/status"))
        known = {key: env[key] for key in (STACKS, "NCCL_RAS_ADDR") if key in env}
        process = {"pid": int(name), "local": number[1], "env": known, "size": int(size.group(1)) if size else 0}
        processes.setdefault(number[0], []).append(process)
    return {rank: sorted(of, key=lambda process: -process["size"]) for rank, of in processes.items()}


# What the kernel says ----------------------------------------------------------------------------------------------------


def state_of(pid: int) -> PlainData:
    """Return {"state", "wchan", "syscall", "stack", "ticks" of CPU, "switches": how often its main thread has waited for something,
    "threads": [[id, name, state, wchan]], "frozen": the control group that holds it, or ""}; empty if it is gone. Threads that are stopped
    come first, THREAD_LIMIT are there at most."""
    stat = read(f"/proc/{pid}/stat")
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 13:
        return {}
    switches = re.search(r"(?m)^voluntary_ctxt_switches:\s+(\d+)", read(f"/proc/{pid}/status"))
    states: t.Dict[int, str] = {}
    with contextlib.suppress(OSError):
        for thread in sorted(map(int, os.listdir(f"/proc/{pid}/task"))):
            states[thread] = (read(f"/proc/{pid}/task/{thread}/stat").rpartition(")")[2].split() or [""])[0]
    threads = [
        [thread, read(f"/proc/{pid}/task/{thread}/comm").strip(), states[thread], read(f"/proc/{pid}/task/{thread}/wchan").strip()]
        for thread in sorted(states, key=lambda thread: states[thread] not in ("T", "t"))[:THREAD_LIMIT]
    ]
    return {
        "state": fields[0],
        "wchan": read(f"/proc/{pid}/wchan").strip(),
        "syscall": read(f"/proc/{pid}/syscall").strip(),
        "stack": read(f"/proc/{pid}/stack", 4096).splitlines()[:FRAME_LIMIT],
        "ticks": int(fields[11]) + int(fields[12]),
        **({"switches": int(switches.group(1))} if switches else {}),
        "at": time.monotonic(),
        "threads": threads,
        "frozen": frozen_by(pid),
    }


def frozen_by(pid: int) -> str:
    """Return the control group that holds a process, as the runtime of a container pauses it, in either version of the kernel's interface;
    empty if none does, as far as can be read."""
    groups = [line.split(":", 2) for line in read(f"/proc/{pid}/cgroup").splitlines() if line.count(":") > 1]
    mounts = [line.split() for line in read("/proc/self/mounts", 1 << 22).splitlines()]  # a node with many pods has thousands
    for mount in (mount for mount in mounts if len(mount) > 3):
        for _number, controllers, path in groups:
            is_second = mount[2] == "cgroup2" and not controllers
            is_first = mount[2] == "cgroup" and "freezer" in controllers.split(",") and "freezer" in mount[3].split(",")
            file, word = ("cgroup.events", "frozen 1") if is_second else ("freezer.state", "FROZEN")
            if (is_second or is_first) and word in read(f"{mount[1]}{path}/{file}"):
                return path
    return ""


def most_important(lines: t.Sequence[str], most: int) -> t.List[str]:
    """Return the newest lines, in their order, of those that say that something is broken first."""
    broken = [number for number, line in enumerate(lines) if BROKEN.search(line)][-most:]
    others = [number for number in range(len(lines)) if number not in set(broken)][len(broken) - most :] if len(broken) < most else []
    return [lines[number] for number in sorted([*broken, *others])]


def kernel_lines(since_s: float, until: float) -> PlainData:
    """Return {"lines": lines that the kernel has logged in the last `since_s` seconds, each with its age, "why": why they could not all be
    read, or ""}: of too many most_important. Lines of processes, which may write there too, are left out."""
    try:
        handle = os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return {"lines": [], "why": f"{KERNEL_LOG}: {error.strerror}"}
    lines: t.List[str] = []
    why = ""
    now = time.monotonic()
    try:
        while time.monotonic() < until:
            try:
                record = os.read(handle, RECORD)
            except BrokenPipeError:  # the next read goes on behind what was overwritten
                continue
            except BlockingIOError:
                break
            header, _semicolon, text = record.decode("utf-8", "replace").partition(";")
            fields = header.split(",")
            if not record:
                break
            if len(fields) > 2 and fields[0].isdigit() and fields[2].isdigit() and int(fields[0]) < 8:
                ago = now - int(fields[2]) / 1e6
                if ago <= since_s:
                    lines.append(f"{max(0.0, ago):.0f} s ago: {text.partition(chr(10))[0][:280]}")
        else:
            why = "it could not be read to its end in time"
    except OSError as error:
        why = f"{KERNEL_LOG}: {error.strerror}"
    finally:
        os.close(handle)
    return {"lines": most_important(lines, KERNEL_LINES), "why": why}


def counters() -> t.Dict[str, int]:
    """Return the counters of RDMA ports and network interfaces."""
    found = {}
    between = ("ports", "counters", "hw_counters", "statistics")
    wanted = ("rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped")
    paths = [*glob.glob("/sys/class/infiniband/*/ports/*/counters/*"), *glob.glob("/sys/class/infiniband/*/ports/*/hw_counters/*")]
    paths += [path for name in wanted for path in glob.glob(f"/sys/class/net/*/statistics/{name}")]
    for path in paths[:4000]:
        text = read(path, 64).strip()
        if text.isdigit():
            found["/".join(word for word in path.split("/")[4:] if word not in between)] = int(text)
    return found


# Stacks ------------------------------------------------------------------------------------------------------------------


def spy_of(pid: int) -> str:
    """Return the path of py-spy on this node, also beside the interpreter of the rank; empty if there is none."""
    interpreter = read(f"/proc/{pid}/cmdline").partition("\0")[0]
    places = [os.path.join(os.path.dirname(path), "py-spy") for path in (interpreter, sys.executable or "") if os.path.isabs(path)]
    return shutil.which("py-spy") or next((path for path in places if os.access(path, os.X_OK)), "")


def threads_of(text: str, pid: int) -> t.List[PlainData] | None:
    """Return the threads of `py-spy dump --json`, the main one first, frames innermost first; None if the text is none.

    py-spy knows the number of a thread from Python 3.11 on, and before that if it may pause the process. The number is that of the
    container of a rank, which is another one outside of it. The main thread is then the one that Python calls so, or the only one with
    the frame of a program.
    """
    try:
        dumped = json.loads(text)
        threads = [
            {
                "main": thread.get("os_thread_id") == pid,
                "name": str(thread.get("thread_name") or ""),
                "active": bool(thread.get("active")),
                "gil": bool(thread.get("owns_gil")),
                "frames": [[frame["name"], frame["filename"], frame["line"]] for frame in thread["frames"][:FRAME_LIMIT]],
            }
            for thread in dumped
        ]
        has_program = [any(frame["name"] in OUTERMOST for frame in thread["frames"]) for thread in dumped]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not any(thread["main"] for thread in threads):
        by_name = [thread for thread in threads if thread["name"] == "MainThread"]
        by_frame = [thread for thread, has in zip(threads, has_program) if has]
        for of in (by_name, by_frame):
            if len(of) == 1:
                of[0]["main"] = True
                break
    return sorted(threads, key=lambda thread: not thread["main"])[:THREAD_LIMIT]


class Stacks:
    """The Python stacks of the ranks of this node, all asked for at once."""

    def __init__(self, pids: t.Mapping[int, PlainData], until: float) -> None:
        """`pids`: {pid: {"state", "env"}}. `until`: when the last of them is given up."""
        self.until = until
        self.spies_until = min(until, time.monotonic() + SPY_S)
        self.spies: t.Dict[int, subprocess.Popen[bytes]] = {}
        self.pids = pids
        self.asked: t.Dict[int, StacksOfProcess] = {}
        for pid, known in pids.items():
            spy = spy_of(pid)
            if spy and known["state"] != "t":
                # A stopped process cannot be paused once more; without a pause a frame or two may be missing.
                argv = [spy, "dump", "--json", "--pid", str(pid), *(["--nonblocking"] if known["state"] == "T" else [])]
                with contextlib.suppress(OSError):
                    self.spies[pid] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if pid not in self.spies:
                self.asked[pid] = StacksOfProcess(pid, known["env"].get(STACKS, ""))

    def read(self) -> t.Dict[int, PlainData]:
        """Return {pid: {"how", "threads_python"} or {"how", "text"}, or {"why": why there are none}}."""
        stacks: t.Dict[int, PlainData] = {}
        why: t.Dict[int, str] = dict.fromkeys(self.asked, "py-spy is not installed")
        for pid, spy in self.spies.items():
            output = output_of(spy, self.spies_until)
            out, err = output or (b"", b"it did not end in time")
            if output is None and self.pids[pid]["state"] != "T":  # killed while it attached, it may have left the process stopped
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGCONT)
            threads = threads_of(out.decode("utf-8", "replace"), pid)
            if threads is not None:
                stacks[pid] = {"how": "py-spy", "threads_python": threads}
            else:  # it may not be allowed to look into a process
                why[pid] = f"py-spy: {' '.join(err.decode('utf-8', 'replace').split())[:300]}"
                self.asked[pid] = StacksOfProcess(pid, self.pids[pid]["env"].get(STACKS, ""))
        for pid, asked in self.asked.items():
            text = "" if self.pids[pid]["state"] in ("T", "t") else asked.read(self.until)
            words = asked.problem or "its faulthandler has written nothing"
            stacks[pid] = {"how": "faulthandler", "text": text} if text else {"why": f"{why[pid]}; {words}", "numb": asked.is_numb}
        return stacks


def output_of(tool: subprocess.Popen[bytes], until: float) -> t.Tuple[bytes, bytes] | None:
    """Return what a program has printed, as (output, errors). If it has not ended by `until` kill it and return None; it is not waited for,
    since a program that a driver holds up cannot be killed."""
    try:
        out, err = tool.communicate(timeout=max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        tool.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            tool.wait(timeout=0.2)
        return None
    return out or b"", err or b""


# The services of libraries -----------------------------------------------------------------------------------------------


def ras(of: t.Iterable[PlainData], until: float) -> str:
    """Return what the RAS service of NCCL says of all ranks of the group; empty if no rank of this node listens there, or answers. `of`:
    processes. Several of them may listen at the same port: the kernel chooses one, and one that is stopped does not answer."""
    for process in of:
        address = process["env"].get("NCCL_RAS_ADDR", "")
        host, _colon, port = address.rpartition(":")
        number = int(port) if port.isdigit() else RAS_PORT
        if number not in listening(process["pid"]):
            continue
        for _attempt in range(RAS_ATTEMPTS):
            answer = ras_answer((host.strip("[]") or "localhost", number), until)
            if answer or time.monotonic() >= until:
                return answer
    return ""


def ras_answer(where: t.Tuple[str, int], until: float) -> str:
    """Return the answer of one RAS service; empty if it says nothing within RAS_FIRST_S. By itself it waits 5 s for each of the ranks that
    do not answer it, of which a group that hangs has some: it is told to wait for less."""
    answer, is_whole = b"", False
    patience = max(1, int(min(RAS_S, until - time.monotonic() - 1)))
    with contextlib.suppress(OSError), socket.create_connection(where, timeout=0.5) as connection:
        connection.sendall(b"timeout %d\nverbose status\n" % patience)
        first_until = min(until, time.monotonic() + RAS_FIRST_S)
        while len(answer) < TEXT_LIMIT:
            connection.settimeout(max(0.1, (until if answer else first_until) - time.monotonic()))
            piece = connection.recv(4096)
            is_whole = not piece
            if not piece or time.monotonic() >= until:
                break
            answer += piece
    text = answer.decode("utf-8", "replace")
    text = text[3:] if text.startswith("OK\n") else text  # to the timeout
    return text if is_whole or not text else f"{text}\n[it did not end in time]"


def listening(pid: int) -> t.Set[int]:
    """Return the TCP ports on which a process listens."""
    inodes = set()
    with contextlib.suppress(OSError):
        for handle in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(f"/proc/{pid}/fd/{handle}"))
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in read(f"/proc/{pid}/net/{table}", 1 << 20).splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def flights(of: t.Iterable[PlainData]) -> t.Dict[str, str]:
    """Return {pid: what a rank has written of its last collectives, PyTorch's flight recorder}."""
    texts = {str(p["pid"]): read(os.path.join(p["env"][STACKS], f"{p['pid']}.flight")) for p in of if STACKS in p["env"]}
    return {pid: text for pid, text in texts.items() if text}


# Two looks ---------------------------------------------------------------------------------------------------------------


def looked_at(processes: t.Mapping[int, t.List[PlainData]], until: float) -> t.Dict[int, t.List[PlainData]]:
    """Return for each rank the state of its processes, with the stacks of the largest."""
    states = {rank: [{"pid": p["pid"], **state_of(p["pid"])} for p in of] for rank, of in processes.items()}
    largest = {of[0]["pid"]: {"state": states[rank][0].get("state"), "env": of[0]["env"]} for rank, of in processes.items()}
    alive = {pid: known for pid, known in largest.items() if known["state"] not in (None, "Z", "X")}
    stacks = Stacks(alive, until).read()
    for of in states.values():
        of[0].update(stacks.get(of[0]["pid"], {}))
    return states


def collect(order: PlainData) -> PlainData:
    began = time.monotonic()
    until = began + order["seconds"]
    tool, words = None, ""
    if order.get("tool"):
        try:
            tool = subprocess.Popen(order["tool"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except OSError as error:
            words = f"{order['tool'][0]}: {error.strerror}"
    processes = ranks(order["mark"], order["token"])
    counted = counters()
    first = looked_at(processes, began + max(WINDOW_S, order["seconds"] / 2))
    time.sleep(max(0.0, began + WINDOW_S - time.monotonic()))
    window = time.monotonic() - began
    counted_again = counters()
    second = looked_at(processes, until)
    largest = [of[0] for of in processes.values()]
    if tool:
        output = output_of(tool, until)
        words = output[0].decode("utf-8", "replace")[:TEXT_LIMIT] if output else f"{order['tool'][0]} did not end in time"
    return {
        "kind": "hang",
        "host": socket.gethostname(),
        "window": round(window, 2),
        "hertz": os.sysconf("SC_CLK_TCK"),
        "ranks": [
            {
                "rank": rank,
                "local": of[0]["local"],
                "command": " ".join(read(f"/proc/{of[0]['pid']}/cmdline", 300).split("\0"))[:200],
                "looks": [first[rank], second[rank]],
            }
            for rank, of in sorted(processes.items())
        ],
        "counters": {name: [value, counted_again[name]] for name, value in counted.items() if counted_again.get(name, value) != value},
        # The log is by the time since boot, which stands still while the machine sleeps, as the clock of Python does.
        "kernel": kernel_lines(float(order.get("since") or 0.0), max(until, time.monotonic() + RAS_S / 4)),
        "tool": words,
        "ras": ras(largest, max(until, time.monotonic() + RAS_S / 4)),
        "flights": flights(largest),
        "seconds": round(time.monotonic() - began, 2),
    }


class Printed:
    """The one line that is printed, whoever prints first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def line(self, record: PlainData) -> None:
        with self._lock:
            sys.stdout.write(json.dumps(record, separators=(",", ":")) + "\n")
            sys.stdout.flush()
            os._exit(0)  # nobody waits for a thread that the kernel holds up


def main() -> int:
    order, printed = json.loads(sys.argv[1]), Printed()
    late = threading.Timer(
        order["seconds"] + LATE_S, printed.line, [{"kind": "hang", "problem": "its processes could not be read in time"}]
    )
    late.daemon = True
    late.start()
    printed.line(collect(order))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
