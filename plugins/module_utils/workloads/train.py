# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Matrix products and a small training on every GPU of a node, alone and all together: the workload of the `train` stage.

Runs under the node's Python, behind products.py and training.py (workloads/packing.py), with the order as its argument:

    {"devices": ["GPU-..."] or ["0"], "kind": type of the devices in PyTorch or "cpu", "plugin": package that adds the type to PyTorch,
     "visible": variable by which a process sees one device only, each empty if there is none,
     "checks": [{"do": "compute", "mode": "alone"|"together", "dtype": "bf16", "shape": [m, n, k]},
                {"do": "train", "mode": "alone"|"together", "steps": 60},
                {"do": "burn", "mode": "together", "steps": 60, "minutes": 30}],
     "seconds": 2, "warmup_seconds": 1, "seed": 1, "width": 2048, "batch": 4096, "silence": 120, "deadline": 300}

This process, the coordinator, touches no GPU. Each GPU has a process of its own, which sees no other GPU: if one dies, hangs or breaks its
context, the others go on. Each prints a record every few steps; the coordinator ends a process that is silent for too long. It prints lines
of JSON: the records of each process, with the number of its check and of its GPU, a `fault` for each GPU that could not go on, and a last
`end`.
"""

from __future__ import annotations

import copy
import ctypes
import json
import os
import select
import selectors
import signal
import statistics
import subprocess
import sys
import time
import typing as t

if "TorchProduct" not in globals():  # else they stand above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.products import BEGAN, Torch, finite, measure, say, write
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.stacks import (
        ASK_STACKS,
        STACKS_LIMIT,
        STACKS_S,
        answer_with_stacks,
        frames_of,
        has_signal,
    )
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.training import Training, curve, deterministic

# As in module_utils/answer/plain_data.py, which does not travel with this file.
PlainData = t.Dict[str, t.Any]

# This whole text, which is handed on to the processes of the GPUs. The program that runs it from memory has set it.
SOURCE: str = globals().get("SOURCE", "")
BOOT = "import sys; exec(compile(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())), 'train.py', 'exec'))"
PR_SET_PDEATHSIG = 1
# A sign of life after so many steps; the first ones, which load libraries, are not timed.
STEPS_PER_PULSE = 10
FIRST_STEPS = 5
MINUTE = 60.0
# How long PyTorch may need to be imported, at least: from a file system over the network, by all processes at once.
START_S = 120.0
# What is kept of what a process says for people.
WORDS = 2000


# The process of a GPU --------------------------------------------------------------------------------------------------


class Worker:
    """Does what the head asks for, on the one GPU that it sees."""

    def __init__(self, settings: PlainData) -> None:
        self.settings = settings
        known = {name: settings[name] for name in ("build", "build_word", "blas") if name in settings}
        self.backend = Torch(settings["kind"], settings["plugin"], **known)
        self.torch = self.backend.torch
        # The draws on the CPU are the same for all GPUs: nothing of them may depend on how threads share the work.
        self.torch.set_num_threads(1)
        deterministic(self.torch)
        place = self.torch.device("cpu" if self.backend.kind == "cpu" else f"{self.backend.kind}:0")
        # Made once, since drawing it takes seconds on the CPU, by all processes at once.
        self.training = Training(self.torch, place, settings["seed"], width=settings["width"], batch=settings["batch"])
        self.start = [parameter.detach().clone() for parameter in self.training.net.parameters()]
        self.fresh = copy.deepcopy(self.training.optimiser.state_dict())

    def settle(self) -> None:
        self.backend.api.synchronize(0)

    def compute(self, order: PlainData) -> None:
        check = {name: order[name] for name in ("dtype", "shape", "mode")}
        measure(self.backend, {**check, "mode": "alone"}, self.settings["seconds"], self.settings["warmup_seconds"])

    @property
    def flops(self) -> float:
        """Operations of a step: two for each weight and sample on the way there, four on the way back."""
        weights = sum(int(p.numel()) for p in self.training.net.parameters() if p.dim() == 2)
        return 6.0 * float(self.settings["batch"]) * weights

    def lap(self, steps: int) -> t.Tuple[t.List[float], float]:
        """Train `steps` steps from the start on. Return their losses, and the time of a step in seconds.

        The time is the median over groups of `STEPS_PER_PULSE` steps: a training of 60 steps takes a fifth of a second, of which one
        pause of the CPU takes a quarter (measured on an H100: 176 TFLOPS by the mean of all steps, where other runs had 222 to 225).
        """
        with self.torch.no_grad():
            for parameter, value in zip(self.training.net.parameters(), self.start):
                parameter.copy_(value)
        self.training.optimiser.load_state_dict(copy.deepcopy(self.fresh))
        losses: t.List[t.Any] = []
        times: t.List[float] = []  # seconds per step of each group of steps
        begun, clock = min(FIRST_STEPS, steps - 1), 0.0
        self.backend.torch.backends.cuda.matmul.allow_tf32 = True
        for number in range(steps):
            if number == begun:
                self.settle()
                clock = time.perf_counter()
            losses.append(self.training.step(number))
            if (number + 1) % STEPS_PER_PULSE == 0 or number + 1 == steps:
                self.settle()
                current_s = time.perf_counter()
                if number >= begun:
                    times.append((current_s - clock) / (number + 1 - begun))
                    begun, clock = number + 1, current_s
                say(kind="pulse")
        return [float(loss) for loss in losses], statistics.median(times)

    def train(self, order: PlainData) -> None:
        began = time.monotonic()
        losses, step_s = self.lap(order["steps"])
        parameters, gradients = self.training.digests()
        say(
            kind="result",
            steps=len(losses),
            losses=[finite(loss) for loss in losses],
            fingerprint=f"{curve(losses)}-{parameters:x}-{gradients:x}",
            step_ms=step_s * 1e3,
            tflops=self.flops / step_s / 1e12,
            took_s=time.monotonic() - began,
        )

    def burn(self, order: PlainData) -> None:
        """The same laps of training again and again: each must be as the first one, bit for bit."""
        began = time.monotonic()
        steps, flops = order["steps"], self.flops
        end = time.monotonic() + order["minutes"] * MINUTE
        first, wrong, first_wrong, laps = "", 0, None, 0
        minute_began, minutes, steps_of_minute, slowest = time.monotonic(), 0, 0, 0.0
        while time.monotonic() < end or laps < 2:
            lap_began = time.monotonic()
            losses, _step_s = self.lap(steps)
            fingerprint = curve(losses)
            first = first or fingerprint
            laps, steps_of_minute = laps + 1, steps_of_minute + steps
            slowest = max(slowest, time.monotonic() - lap_began)
            if fingerprint != first:
                wrong += 1
                if first_wrong is None:
                    first_wrong = time.monotonic() - began
                    say(kind="wrong", lap=laps, after_s=first_wrong)
            passed = time.monotonic() - minute_began
            if passed >= MINUTE or time.monotonic() >= end:
                minutes += 1
                say(kind="minute", minute=minutes, seconds=passed, tflops=flops * steps_of_minute / passed / 1e12, laps=laps, wrong=wrong)
                minute_began, steps_of_minute = time.monotonic(), 0
        took = time.monotonic() - began
        say(
            kind="result",
            steps=steps,
            laps=laps,
            wrong=wrong,
            first_wrong_s=first_wrong,
            slowest_lap_s=slowest,
            fingerprint=first,
            tflops=flops * steps * laps / took / 1e12,
            took_s=took,
        )


def host_cpu() -> str | None:
    """Return the model of the CPU, which draws weights and data: another one may round the last bit otherwise. None if it is unknown."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as text:
            return next((line.partition(":")[2].strip() for line in text if line.startswith("model name")), None)
    except OSError:
        return None


def fault_of(error: BaseException) -> PlainData:
    """Return the fault of a GPU as a code and in words."""
    words = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    code = "cuda_failed"
    if isinstance(error, ImportError):
        code, words = "torch_missing", f"{sys.executable} cannot import PyTorch: {words}"
    elif "out of memory" in words.lower():
        code = "out_of_memory"
    elif "uncorrectable ecc" in words.lower():
        code = "ecc"
    return {"code": code, "reason": words}


def worker(settings: PlainData) -> int:
    # Nobody is left to end a process that hangs on a GPU where its head was killed.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    answer_with_stacks(2)
    say(kind="pulse")
    try:
        gpu_worker = Worker(settings)
        description = {"library": gpu_worker.backend.library, "torch": gpu_worker.torch.__version__, "device_kind": gpu_worker.backend.kind}
        say(kind="ready", host_cpu=host_cpu(), **description)
        for line in sys.stdin.buffer:
            order = json.loads(line)
            getattr(gpu_worker, order["do"])(order)
            say(kind="done")
    except Exception as error:
        say(kind="fault", **fault_of(error))
        return 1
    return 0


def state_of(pid: int) -> str:
    """Return the state of a process as the kernel has it, one letter; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as source:
            return source.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


# The head --------------------------------------------------------------------------------------------------------------


def relay(record: PlainData) -> None:
    """A record of a GPU's process, and the same in words for people; what it is worth is for others to say."""
    say(**record)
    kind, speed = record.get("kind"), f"{record.get('tflops') or 0:.4g} TFLOPS"
    words = ""
    if kind == "ready":
        words = f"[ENV] device {record['device']}: {record.get('library')}, {record.get('device_kind')}"
    elif kind == "fault":
        words = f"[RESULT] device {record['device']}: {record['reason']}"
    elif kind == "result" and record.get("losses"):
        losses = record["losses"]
        words = f"[TRAIN] device {record['device']}: loss {losses[0]} to {losses[-1]} in {len(losses)} steps, {speed}"
    elif kind == "result" and record.get("laps"):
        words = f"[TRAIN] device {record['device']}: {record['laps']} laps, {record['wrong']} of them not as the first one, {speed}"
    elif kind == "result":
        words = f"[COMPUTE] device {record['device']}: {record.get('iterations')} products, {record.get('wrong')} wrong, {speed}"
    if words:
        write(" ".join(words.split()))


class GpuProcess:
    """The process of one GPU, as the head sees it."""

    def __init__(self, settings: PlainData, number: int, name: str) -> None:
        env = dict(os.environ, LOCAL_RANK=str(number), CUBLAS_WORKSPACE_CONFIG=":4096:8")
        if settings["visible"]:
            env[settings["visible"]] = name
        argv = [sys.executable, "-c", BOOT, json.dumps({**settings, "worker": number})]
        pipe = subprocess.PIPE
        self.number = number
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env)
        self.check: int | None = None
        self.busy = True  # until it says that it is ready
        self.alive = True
        self.answers = False  # whether it was asked for its stacks
        self.heard_at = time.monotonic()
        self.partial_line = b""
        self.words = b""
        self.tell(b"%d\n%s" % (len(SOURCE.encode()), SOURCE.encode()))

    def tell(self, data: bytes) -> None:
        try:
            into = t.cast(t.IO[bytes], self.process.stdin)
            into.write(data)
            into.flush()
        except OSError:
            pass  # it has died, which its output tells

    def ask(self, number: int, order: PlainData) -> None:
        self.check, self.busy, self.heard_at = number, True, time.monotonic()
        self.tell(json.dumps(order).encode() + b"\n")

    def receive(self, data: bytes) -> None:
        """Take output of a process and store its records, with the GPU and the check that each is about."""
        self.heard_at = time.monotonic()
        *lines, self.partial_line = (self.partial_line + data).split(b"\n")
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if not isinstance(record, dict):
                self.words = (self.words + line + b"\n")[-WORDS:]
                continue
            kind = record.get("kind")
            if kind in ("ready", "done"):
                self.busy = False
            if kind == "fault":
                self.alive = self.busy = False
            if kind == "result":  # its clock began when its process did
                record["after_s"] = max(0.0, self.heard_at - BEGAN - float(record["took_s"]))
            if kind not in ("pulse", "done"):
                relay({**record, "check": self.check, "device": self.number})

    def ended(self) -> None:
        """Report the fault of a process that ended by itself with work left."""
        status = self.process.wait()
        if not self.alive:
            return
        words = " ".join(self.words.decode("utf-8", "replace").split())[-300:]
        how = f"was killed by signal {-status} ({signal.Signals(-status).name})" if status < 0 else f"ended with status {status}"
        self.lost("tool_failed", f"its process {how}{': ' + words if words else ''}")

    def ask_stacks(self) -> None:
        """Let a process that does not go on write its stacks to its standard error, if it would not die of the signal."""
        self.answers = has_signal(self.process.pid, "SigCgt", ASK_STACKS)
        if self.answers:
            self.process.send_signal(ASK_STACKS)

    def hung(self, reason: str, until: float) -> None:
        """Report a process that does not go on, with where it is, and end it. It has until then to write the stacks that it was asked
        for."""
        state = state_of(self.process.pid)
        text = self._stacks(until) if self.answers and state not in ("T", "t", "Z", "") else ""
        frames = ", ".join(f"{function} ({os.path.basename(file)}:{line})" for function, file, line in frames_of(text)[:4])
        held = {"T": "stopped by a signal", "t": "stopped by a debugger"}.get(state, f"in state {state or 'unknown'}")
        say(kind="stacks", device=self.number, state=state, text=text)
        self.lost("timeout", f"{reason} and was ended; it was {f'at {frames}' if frames else held}")

    def _stacks(self, until: float) -> str:
        """Return what the process writes to its standard error, until that shows where it is; empty if it writes nothing."""
        errors, text = t.cast(t.IO[bytes], self.process.stderr), ""
        while not frames_of(text) and select.select([errors], [], [], max(0.0, until - time.monotonic()))[0]:
            piece = os.read(errors.fileno(), 1 << 16)
            if not piece:
                break
            text = (text + piece.decode("utf-8", "replace"))[-STACKS_LIMIT:]
        return text

    def lost(self, code: str, reason: str) -> None:
        self.alive = self.busy = False
        relay({"kind": "fault", "code": code, "reason": reason, "check": self.check, "device": self.number})
        self.process.kill()


class Coordinator:
    def __init__(self, settings: PlainData) -> None:
        self.settings = settings
        self.end = time.monotonic() + settings["deadline"]
        self.selector = selectors.DefaultSelector()
        self.devices = [GpuProcess(settings, number, name) for number, name in enumerate(settings["devices"])]
        for device in self.devices:
            for stream in (device.process.stdout, device.process.stderr):
                self.selector.register(t.cast(t.IO[bytes], stream), selectors.EVENT_READ, device)

    def wait(self, devices: t.Sequence[GpuProcess]) -> None:
        """Wait until all of these devices are done, or lost."""
        while any(device.busy for device in devices):
            for key, _events in self.selector.select(0.2):
                device = key.data
                data = os.read(key.fd, 1 << 16)
                if not data:
                    self.selector.unregister(key.fileobj)
                    if key.fileobj is device.process.stdout:
                        device.ended()
                elif key.fileobj is device.process.stdout:
                    device.receive(data)
                else:
                    device.words = (device.words + data)[-WORDS:]
            self._end_hung(devices)

    def _end_hung(self, devices: t.Sequence[GpuProcess]) -> None:
        """End the processes that say nothing, and at the deadline all that are busy. They are asked for their stacks side by side, and none
        is waited for longer than STACKS_S beyond the deadline: the probe ends us soon after it."""
        current_s = time.monotonic()
        reasons: t.List[t.Tuple[GpuProcess, str]] = []
        for device in devices:
            patience = self.settings["silence"] if device.check is not None else max(self.settings["silence"], START_S)
            if device.busy and current_s - device.heard_at > patience:
                reasons.append((device, f"its process said nothing for {patience:.0f} s"))
            elif device.busy and current_s > self.end:
                reasons.append((device, f"its process did not end within {self.settings['deadline']:.0f} s"))
        for device, _reason in reasons:
            device.ask_stacks()
        for device, reason in reasons:
            device.hung(reason, min(current_s, self.end) + STACKS_S)

    def run(self) -> None:
        self.wait(self.devices)
        for number, order in enumerate(self.settings["checks"]):
            began = time.monotonic()
            devices = [device for device in self.devices if device.alive]
            for group in [devices] if order["mode"] == "together" else [[device] for device in devices]:
                for device in group:
                    device.ask(number, order)
                self.wait(group)
            say(kind="time", check=number, after_s=began - BEGAN, took_s=time.monotonic() - began)
        lost = [device.number for device in self.devices if not device.alive]
        write(f"[RESULT] {f'devices {lost} were lost' if lost else 'every device did all it was asked for'}")
        say(kind="end")

    def close(self) -> None:
        for device in self.devices:
            device.process.kill()
        for device in self.devices:
            device.process.wait()


def main() -> int:
    order = json.loads(sys.argv[1])
    # cuBLAS computes FP32 as TF32, or TF32 as FP32, where an image or a login says so: neither is what is measured here.
    os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    if "worker" in order:
        return worker(order)
    head = Coordinator(order)
    try:
        head.run()
    finally:
        head.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
