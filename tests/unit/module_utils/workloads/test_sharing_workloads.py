# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workloads of the GPU-sharing matrix as programs, as pods run them: over a stand-in of PyTorch, and over the real one where it is."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.sharing.texts import TEXTS
from rigs import pytorch

# A GPU of 1 MiB, whose every allocation counts, in lists of one number.
TORCH = """
import os
float32, uint8 = 4, 1
LIMIT = 1 << 20
used, most, calls = 0, 0, []

class OutOfMemoryError(RuntimeError):
    pass

class Tensor:
    def __init__(self, shape, value, dtype):
        global used, most
        self.shape, self.value, self.size = shape, value, dtype
        for length in shape:
            self.size *= length
        if used + self.size > LIMIT:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate %d bytes\\nin two lines" % self.size)
        used += self.size
        most = max(most, used)

    def __del__(self):
        global used
        used -= self.size if hasattr(self, "value") and used >= self.size else 0

    def min(self):
        return self.value

    max = min

def full(shape, value, dtype, device):
    assert device == "cuda"
    return Tensor(shape, value, dtype)

def empty(shape, dtype, device):
    return full(shape, 0, dtype, device)

def add(x, y, out=None):
    if out is not None:
        out.value = x.value + y.value + float(os.environ.get("WRONG", "0"))
        return out
    return Tensor(x.shape, x.value + y.value + float(os.environ.get("WRONG", "0")), float32)

class cuda:
    OutOfMemoryError = OutOfMemoryError
    synchronize = staticmethod(lambda: calls.append("synchronize"))
    empty_cache = staticmethod(lambda: calls.append("empty_cache"))

    @staticmethod
    def get_device_properties(_number):
        return type("Properties", (), {"total_memory": LIMIT})

import atexit
atexit.register(lambda: print("MOST", most, flush=True))
"""


@pytest.fixture
def pod(tmp_path: pathlib.Path) -> pathlib.Path:
    """What a pod has: the workloads and a torch."""
    (tmp_path / "torch.py").write_text(TORCH)
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def run(pod: pathlib.Path, name: str, python: str = sys.executable, **settings: object) -> subprocess.CompletedProcess[str]:
    words = {key if key == "WRONG" else f"GPUFLEET_W_{key}": str(value) for key, value in settings.items()}
    return subprocess.run(
        [python, "-u", str(pod / name)], env={"PATH": os.environ["PATH"], **words}, capture_output=True, text=True, check=False, timeout=300
    )


def test_a_holder_says_where_it_is_and_ends_when_it_is_told_to(pod: pathlib.Path) -> None:
    (pod / "torch.py").unlink()  # it does not touch the GPU
    settings = {"PATH": os.environ["PATH"], "NVIDIA_VISIBLE_DEVICES": "GPU-1"}
    with subprocess.Popen([sys.executable, "-u", str(pod / "hold.py")], env=settings, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stdout.readline() == "--- on GPU-1 ---\n"
        running.terminate()
    assert running.returncode == 128 + 15


def test_connections_are_open_until_their_pod_ends(pod: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        settings = {"PATH": os.environ["PATH"], "GPUFLEET_W_ADDRESSES": f"127.0.0.1:{port}"}
        command = [sys.executable, "-u", str(pod / "connecting.py")]
        with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None and running.stdout.readline() == "connected to 1 schedulers\n"
            connection, _address = server.accept()
            running.terminate()
            with connection:
                assert connection.recv(1) == b""
    refused = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and f"no connection to '127.0.0.1:{port}'" in refused.stdout


def test_who_is_told_to_end_does_so_at_once_and_by_itself(pod: pathlib.Path) -> None:
    """As process 1 of a container nothing else ends it but a kill."""
    settings = {"PATH": os.environ["PATH"], "GPUFLEET_W_N": "100", "GPUFLEET_W_DURATION_S": "600", "GPUFLEET_W_PROBE_S": "0"}
    with subprocess.Popen([sys.executable, "-u", str(pod / "w5.py")], env=settings, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout and any("QUOTA_PROBE" in line for line in running.stdout)
        running.terminate()
        running.stdout.read()
        assert running.wait(60) == 128 + signal.SIGTERM


@pytest.mark.parametrize("name", ["w1.py", "w2.py", "w3.py", "w4a.py", "w4b.py"])
def test_it_says_pass_and_how_long_it_took(pod: pathlib.Path, name: str) -> None:
    done = run(pod, name, N=100, ITERATIONS=3)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^PASS\n--- [0-9.]+ seconds ---$", done.stdout, re.M)


def test_a_sum_takes_four_matrices_for_a_moment(pod: pathlib.Path) -> None:
    assert f"MOST {4 * 4 * 100 * 100}\n" in run(pod, "w1.py", N=100, ITERATIONS=3).stdout
    assert f"MOST {3 * 4 * 100 * 100}\n" in run(pod, "w4a.py", N=100).stdout


@pytest.mark.parametrize("name", ["w2.py", "w5.py"])
def test_a_wrong_sum_is_no_pass(pod: pathlib.Path, name: str) -> None:
    done = run(pod, name, N=10, ITERATIONS=3, DURATION_S=0, WRONG=1)
    assert done.returncode == 1 and "FAIL: " in done.stdout
    assert "PASS" not in done.stdout and "seconds" not in done.stdout


def test_pressure_is_more_than_the_gpu_holds_and_says_so_in_one_line(pod: pathlib.Path) -> None:
    done = run(pod, "w4a.py", N=0)
    assert done.returncode == 1 and "PASS" not in done.stdout
    assert re.fullmatch(r"OutOfMemoryError: CUDA out of memory\. Tried to allocate \d+ bytes\n", done.stderr)
    assert run(pod, "w4a.py", N=0, FACTOR=0.9).returncode == 0


def test_a_probe_says_its_speed_and_what_became_of_new_memory(pod: pathlib.Path) -> None:
    done = run(pod, "w5.py", N=10, DURATION_S=0.3, PROBE_S=0.1, ALLOCATE_BYTES=1000, TAG="XPUSHARE")
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(lines) >= 4 and len(lines) % 2 == 0
    for speed, allocation in zip(lines[::2], lines[1::2], strict=True):
        assert re.fullmatch(r"\[XPUSHARE\]\[QUOTA_PROBE\] elapsed=\d+\.\d{3}s it=\d+ it_per_sec=\d+\.\d\d", speed)
        assert re.fullmatch(r"\[XPUSHARE\]\[ALLOCATION_PROBE\] elapsed=\d+\.\ds bytes=1000 granted", allocation)
    done = run(pod, "w5.py", N=10, DURATION_S=0.3, PROBE_S=0.1, ALLOCATE_BYTES=1 << 21)
    assert done.returncode == 0 and re.search(r"bytes=2097152 refused: OutOfMemoryError: CUDA out of memory\.", done.stdout)
    assert "granted" not in done.stdout


def test_a_setting_that_is_no_number_is_named(pod: pathlib.Path) -> None:
    done = run(pod, "w2.py", ITERATIONS="many")
    assert (done.returncode, done.stderr) == (1, "GPUFLEET_W_ITERATIONS: expected a number from 0, found 'many'\n")


def test_an_h200_wrote_the_same_lines(fixtures: pathlib.Path) -> None:
    """Recorded on hardware: what is parsed here is what is written there."""
    folder = fixtures / "sharing-h200"
    took = {}
    for path in folder.glob("w*.txt"):
        found = re.search(r"^PASS\n--- ([0-9.]+) seconds ---\n\Z", path.read_text(), re.M)
        assert found, path
        took[path.stem] = float(found[1])
    assert len(took) == 13
    assert (folder / "w4a-pressure.err").read_text().startswith("OutOfMemoryError: CUDA out of memory. ")
    lines = [line for name in ("w5", "w5-plain", "w5-refused") for line in (folder / f"{name}.txt").read_text().splitlines()[:-2]]
    speed, allocation = r"QUOTA_PROBE\] elapsed=\d+\.\d+s it=\d+ it_per_sec=\d+\.\d\d", r"ALLOCATION_PROBE\] elapsed=\d+\.\ds bytes=\d+ "
    shape = rf"\[(NVSHARE|XPUSHARE)\]\[({speed}|{allocation}(granted|refused: .*))"
    assert lines and all(re.fullmatch(shape, line) for line in lines)
    # A GPU that nobody shares out gives two half each, and loses a tenth by changing between them.
    alone = took["w2"] / 16000
    assert all(2 < took[f"w2-twice-{number}"] / 10000 / alone < 2.5 for number in (1, 2))


@pytest.mark.skipif(not all(map(os.path.exists, pytorch.PACKAGES)), reason="Debian's PyTorch is not installed")
def test_real_pytorch_runs_them(pod: pathlib.Path) -> None:
    (pod / "torch.py").unlink()
    for name in TEXTS.keys() - {"hold.py", "connecting.py", "first.py"}:
        done = run(pod, name, pytorch.PYTHON, DEVICE="cpu", N=64, ITERATIONS=3, DURATION_S=0.2, PROBE_S=0.1, ALLOCATE_BYTES=1000)
        assert done.returncode == 0, done.stderr
        assert "PASS\n" in done.stdout, name
        assert ("PROBE" in done.stdout) is (name == "w5.py")
