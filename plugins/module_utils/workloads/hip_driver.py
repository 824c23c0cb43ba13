# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD's runtime (HIP) by ctypes: memory, copies, events and kernels of the GPUs, with the names of cuda_driver.py.

The kernels are those that memory_kernels.py describes, as C++ text that HIP's own compiler (hiprtc) makes code of for the GPU that is
there: both libraries come with ROCm. It travels to the nodes as text, behind memory_kernels.py and in front of a workload that uses it
(workloads/packing.py): no imports of this collection but of that. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import ctypes
import os
import typing as t

if "COMPARED" not in globals():  # else they stand above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.memory_kernels import COMPARED, MOST

# Status codes (hip_runtime_api.h, hipError_t), and the reason codes of module_utils/answer/reasons.py that they mean.
CODES = {2: "out_of_memory", 214: "ecc"}
PORTABLE = 3  # hipHostRegisterPortable | hipHostRegisterMapped
NON_BLOCKING = 1  # hipStreamNonBlocking
TO_DEVICE, TO_HOST, INSIDE_DEVICE = 1, 2, 3  # hipMemcpyKind
PEER_ALREADY = 704  # hipErrorPeerAccessAlreadyEnabled
BLOCK, BLOCKS = 256, 8  # threads of a block, and blocks of each compute unit
# Compute units of a GPU whose number the kernel does not tell: how many blocks there are changes the speed only.
USUAL_UNITS = 304
FOLDERS = ("", "/opt/rocm/lib/")
DEVICES = "/sys/bus/pci/devices"
TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}

Pointer = t.Any

# KINDS of memory_kernels.py by their places. A word of the host's memory may be in a cache of the device: it is read for the whole system.
SOURCE = """
typedef unsigned long long word;
typedef struct __attribute__((aligned(16))) { word x, y; } two;
#ifndef KERNEL
#define KERNEL extern "C" __global__ void
#endif
#ifdef NOW_NS
#define FROM_HOST(p) (*(volatile word *)(p))
#elif defined(__HIP__)
#define NOW_NS() ((word)wall_clock64() * 10)
#define FROM_HOST(p) __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM)
#else
__device__ static word now() { word t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }
#define NOW_NS() now()
#define FROM_HOST(p) (*(volatile word *)(p))
#endif
#define FIRST ((word)(blockIdx.x) * blockDim.x + threadIdx.x)
#define ALL ((word)(gridDim.x) * blockDim.x)

__device__ static word made(word kind, word i, word seed, word mask)
{
    word v = seed;
    if (kind == 1) v = (i << 3) ^ seed;
    else if (kind == 2) {
        v = (i + seed) * 0x9E3779B97F4A7C15ull;
        v = (v ^ (v >> 30)) * 0xBF58476D1CE4E5B9ull;
        v = (v ^ (v >> 27)) * 0x94D049BB133111EBull;
        v ^= v >> 31;
    } else if (kind == 3) v = 1ull << ((i + seed) & 63);
    return v ^ mask;
}

__device__ static void differ(word *out, word offset, word expected, word read)
{
    if (expected == read) return;
    word slot = atomicAdd(out, 1ull);
    if (slot >= MOST) return;
    out[1 + 3 * slot] = offset;
    out[2 + 3 * slot] = expected;
    out[3 + 3 * slot] = read;
}

KERNEL fill(word *p, word n, word kind, word seed, word mask)
{
    for (word i = 2 * FIRST; i < n; i += 2 * ALL) {
        two v = {made(kind, i, seed, mask), made(kind, i + 1, seed, mask)};
        *(two *)(p + i) = v;
    }
}

KERNEL check(word *p, word n, word kind, word seed, word mask, word *out, word invert)
{
    word done = 0;
    for (word i = 2 * FIRST; i < n; i += 2 * ALL) {
        two v = *(two *)(p + i), e = {made(kind, i, seed, mask), made(kind, i + 1, seed, mask)};
        differ(out, 8 * i, e.x, v.x);
        differ(out, 8 * i + 8, e.y, v.y);
        done += 2;
        if (invert) {
            two w = {~e.x, ~e.y};
            *(two *)(p + i) = w;
        }
    }
    if (done) atomicAdd(out + COMPARED, done);
}

KERNEL same(word *p, word *q, word n, word *out)
{
    word done = 0;
    for (word i = 2 * FIRST; i < n; i += 2 * ALL) {
        two v = *(two *)(p + i), e = *(two *)(q + i);
        differ(out, 8 * i, e.x, v.x);
        differ(out, 8 * i + 8, e.y, v.y);
        done += 2;
    }
    if (done) atomicAdd(out + COMPARED, done);
}

/* Four loads of each thread are under way at a time; the threads of a block add up among themselves. */
KERNEL total(word *p, word n, word *out)
{
    __shared__ word sums[BLOCK];
    word sum = 0, step = 2 * (word)blockDim.x;
    for (word i = 4 * step * blockIdx.x + 2 * threadIdx.x; i < n; i += 4 * step * gridDim.x) {
        two v[4];
        for (int k = 0; k < 4; k++) {
            two none = {0, 0};
            v[k] = i + k * step < n ? *(two *)(p + i + k * step) : none;
        }
        for (int k = 0; k < 4; k++) sum += v[k].x + v[k].y;
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (!threadIdx.x) atomicAdd(out, sums[0]);
}

KERNEL gate(word *flag, word ns)
{
    word since = NOW_NS();
    while (!FROM_HOST(flag) && NOW_NS() - since < ns);
}

KERNEL chase(word *p, word steps, word *out)
{
    word *at = p;
    for (word i = 0; i < steps; i++) at = (word *)FROM_HOST(at);
    out[0] = (word)at;
}
"""


def source() -> str:
    """Return the kernels with the numbers that memory_kernels.py has for them."""
    return f"#define MOST {MOST}\n#define COMPARED {COMPARED}\n#define BLOCK {BLOCK}\n{SOURCE}"


class DriverError(Exception):
    """A call of the runtime that failed; `code` is a reason code."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.code = CODES.get(status, "cuda_failed")


def library(*names: str) -> t.Any:
    """Return the first library of these names that is there. OSError if none is."""
    failed: OSError | None = None
    for path in (folder + name for name in names for folder in FOLDERS):
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            failed = failed or error
    raise failed or OSError("no library was named")


class Driver:
    """libamdhip64, with every GPU that the process sees.

    OSError if a library is not there; DriverError if it cannot be initialised, or its compiler makes no code. The argument, which
    kernels in another language come by, is not used.
    """

    runtime = "HIP"

    def __init__(self, _kernels: t.Callable[[int], str]) -> None:
        self.hip = library("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6")
        self.compiler = library("libhiprtc.so", "libhiprtc.so.7", "libhiprtc.so.6", "libamdhip64.so")
        self.hip.hipGetErrorString.restype = ctypes.c_char_p
        self.call("hipInit", 0)
        number = ctypes.c_int()
        self.call("hipRuntimeGetVersion", ctypes.byref(number))
        self.version = f"{number.value // 10_000_000}.{number.value // 100_000 % 100}"
        self.call("hipGetDeviceCount", ctypes.byref(number))
        self.devices = [CudaDevice(self, index) for index in range(number.value)]
        # Parts of a GPU have its UUID, in the order of their numbers.
        uuids = [device.uuid for device in self.devices]
        for device, uuid, place in zip(self.devices, uuids, range(len(uuids))):
            if uuids.count(uuid) > 1:
                device.uuid = f"{uuid}-p{uuids[:place].count(uuid)}"

    def call(self, function: str, *arguments: t.Any) -> None:
        """Call a function of the library. DriverError with its name and the runtime's own words if it fails."""
        status = getattr(self.hip, function)(*arguments)
        if status:
            words = (self.hip.hipGetErrorString(status) or b"").decode("utf-8", "replace")
            raise DriverError(f"{function} failed with status {status} {words}".strip(), status)

    def code(self) -> bytes:
        """Return the kernels as code for the GPU that is set."""
        program, size, text = ctypes.c_void_p(), ctypes.c_size_t(), source().encode()
        self._compile("hiprtcCreateProgram", ctypes.byref(program), text, b"gpufleet.cpp", 0, None, None)
        status = self.compiler.hiprtcCompileProgram(program, 0, None)
        if status:
            self._compile("hiprtcGetProgramLogSize", program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value + 1)
            self._compile("hiprtcGetProgramLog", program, log)
            words = " ".join(log.value.decode("utf-8", "replace").split())[:300]
            raise DriverError(f"hiprtcCompileProgram failed with status {status}: {words}", 0)
        self._compile("hiprtcGetCodeSize", program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        self._compile("hiprtcGetCode", program, code)
        self._compile("hiprtcDestroyProgram", ctypes.byref(program))
        return code.raw

    def _compile(self, function: str, *arguments: t.Any) -> None:
        status = getattr(self.compiler, function)(*arguments)
        if status:
            raise DriverError(f"{function} failed with status {status}", 0)

    def pin(self, address: int, size: int) -> None:
        """Make host memory pinned for all GPUs."""
        self.call("hipHostRegister", ctypes.c_void_p(address), ctypes.c_size_t(size), PORTABLE)

    def unpin(self, address: int) -> None:
        """Give pinned host memory back to the kernel."""
        self.call("hipHostUnregister", ctypes.c_void_p(address))


class CudaDevice:
    """One GPU, under the name that workloads know. `stream` arguments are handles of stream(); sizes are bytes."""

    def __init__(self, driver: Driver, index: int) -> None:
        self.driver = driver
        self.handle = index
        name = ctypes.create_string_buffer(32)
        driver.call("hipDeviceGetPCIBusId", name, 32, index)
        self.bdf = name.value.decode().lower()
        self.uuid = self._uuid()
        self.processors = _units(self.uuid)
        self.module: t.Any = ctypes.c_void_p()
        self.call("hipSetDevice", index)
        self.image = driver.code()
        self.call("hipModuleLoadData", ctypes.byref(self.module), self.image)
        self.functions: dict[str, ctypes.c_void_p] = {}

    def _uuid(self) -> str:
        """Return the UUID of ROCr, by the kernel's own number; else by that of HIP, which is 16 digits."""
        number = _text(f"{DEVICES}/{self.bdf}/unique_id")
        if not number:
            uuid = (ctypes.c_char * 16)()
            self.driver.call("hipDeviceGetUuid", uuid, self.handle)
            number = uuid.raw.decode("ascii", "replace").strip("\0")
        return f"GPU-{number.lower():0>16}"

    def call(self, function: str, *arguments: t.Any) -> None:
        """Call a function of the library for this GPU."""
        self.driver.call("hipSetDevice", self.handle)
        self.driver.call(function, *arguments)

    def free(self) -> int:
        """Return how many bytes of memory are free, as the runtime says."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def room(self, size: int) -> int:
        """Return the address of new device memory."""
        pointer = ctypes.c_void_p()
        self.call("hipMalloc", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value or 0

    def release(self, address: int) -> None:
        """Free device memory."""
        self.call("hipFree", ctypes.c_void_p(address))

    def mapped(self, address: int) -> int:
        """Return the address by which the GPU reads pinned host memory."""
        pointer = ctypes.c_void_p()
        self.call("hipHostGetDevicePointer", ctypes.byref(pointer), ctypes.c_void_p(address), 0)
        return pointer.value or 0

    def stream(self) -> Pointer:
        """Return a new stream."""
        handle = ctypes.c_void_p()
        self.call("hipStreamCreateWithFlags", ctypes.byref(handle), NON_BLOCKING)
        return handle

    def _copy(self, to: int, source_: int, size: int, kind: int, stream: Pointer) -> None:
        self.call("hipMemcpyAsync", ctypes.c_void_p(to), ctypes.c_void_p(source_), ctypes.c_size_t(size), kind, stream)

    def upload(self, to: int, source_: int, size: int, stream: Pointer) -> None:
        """Queue a copy of host memory to the device."""
        self._copy(to, source_, size, TO_DEVICE, stream)

    def download(self, to: int, source_: int, size: int, stream: Pointer) -> None:
        """Queue a copy of device memory to the host."""
        self._copy(to, source_, size, TO_HOST, stream)

    def copy(self, to: int, source_: int, size: int, stream: Pointer) -> None:
        """Queue a copy inside the device's memory."""
        self._copy(to, source_, size, INSIDE_DEVICE, stream)

    def send(self, to: int, peer: CudaDevice, source_: int, size: int, stream: Pointer) -> None:
        """Queue a copy of memory of this device to another device."""
        ends = ctypes.c_void_p(to), peer.handle, ctypes.c_void_p(source_), self.handle
        self.call("hipMemcpyPeerAsync", *ends, ctypes.c_size_t(size), stream)

    def put(self, address: int, word: int) -> None:
        """Write one word of 8 bytes to device memory, behind all that the runtime's own stream has queued."""
        data = (ctypes.c_uint64 * 1)(word)
        self.call("hipMemcpy", ctypes.c_void_p(address), data, ctypes.c_size_t(8), TO_DEVICE)

    def get(self, address: int) -> int:
        """Return one word of 8 bytes of device memory."""
        data = (ctypes.c_uint64 * 1)()
        self.call("hipMemcpy", data, ctypes.c_void_p(address), ctypes.c_size_t(8), TO_HOST)
        return int(data[0])

    def reach(self, peer: CudaDevice) -> bool:
        """Let this GPU read and write memory of another one; False if it cannot, so that copies go through the host's memory."""
        able = ctypes.c_int()
        self.call("hipDeviceCanAccessPeer", ctypes.byref(able), self.handle, peer.handle)
        if not able.value:
            return False
        return self.driver.hip.hipDeviceEnablePeerAccess(peer.handle, 0) in (0, PEER_ALREADY)

    def zero(self, address: int, size: int, stream: Pointer = None) -> None:
        """Set device memory to 0, at once or as work of a stream."""
        what = ctypes.c_void_p(address), 0, ctypes.c_size_t(size)
        if stream is None:
            self.call("hipMemset", *what)
        else:
            self.call("hipMemsetAsync", *what, stream)

    def launch(self, kernel: str, *parameters: int, stream: Pointer = None, threads: int = 0, blocks: int = 0) -> None:
        """Queue a kernel, over the whole GPU, with one thread (`threads=1`), or with so many blocks of each compute unit."""
        if kernel not in self.functions:
            function = ctypes.c_void_p()
            self.call("hipModuleGetFunction", ctypes.byref(function), self.module, kernel.encode())
            self.functions[kernel] = function
        values = [ctypes.c_uint64(value) for value in parameters]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        grid, threads = (1, threads) if threads else (self.processors * (blocks or BLOCKS), BLOCK)
        self.call("hipModuleLaunchKernel", self.functions[kernel], grid, 1, 1, threads, 1, 1, 0, stream, pointers, None)

    def event(self) -> Pointer:
        """Return a new event."""
        handle = ctypes.c_void_p()
        self.call("hipEventCreate", ctypes.byref(handle))
        return handle

    def record(self, event: Pointer, stream: Pointer) -> None:
        """Queue an event."""
        self.call("hipEventRecord", event, stream)

    def wait(self, stream: Pointer, event: Pointer) -> None:
        """Let a stream wait for an event."""
        self.call("hipStreamWaitEvent", stream, event, 0)

    def reached(self, event: Pointer) -> None:
        """Wait until an event has passed."""
        self.call("hipEventSynchronize", event)

    def discard(self, event: Pointer) -> None:
        """Give an event back."""
        self.call("hipEventDestroy", event)

    def between(self, first: Pointer, last: Pointer) -> float:
        """Return the seconds between two events that have passed."""
        span = ctypes.c_float()
        self.call("hipEventElapsedTime", ctypes.byref(span), first, last)
        return span.value / 1e3

    def settle(self, stream: Pointer = None) -> None:
        """Wait until a stream, or the whole GPU, has done what was queued."""
        if stream is None:
            self.call("hipDeviceSynchronize")
        else:
            self.call("hipStreamSynchronize", stream)


class Links:
    """The present PCIe generation and width of GPUs by the files of the driver."""

    def __init__(self) -> None:
        names = os.listdir(DEVICES) if os.path.isdir(DEVICES) else []
        numbers = {name: _text(f"{DEVICES}/{name}/unique_id") for name in names}
        self.folders = {f"GPU-{number.lower():0>16}": f"{DEVICES}/{name}" for name, number in numbers.items() if number}

    def now(self, uuid: str) -> list[int] | None:
        """Return [generation, width]; None if they cannot be read."""
        folder = self.folders.get("-".join(uuid.split("-")[:2]), "")
        generation, width = GENERATIONS.get(_text(f"{folder}/current_link_speed").split(" ")[0]), _text(f"{folder}/current_link_width")
        return [generation, int(width)] if generation and width.isdigit() else None


def _text(path: str) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return ""


def _units(uuid: str) -> int:
    """Return the compute units of a GPU by the kernel's topology; of a part of a GPU they are those of the part."""
    for name in os.listdir(TOPOLOGY) if os.path.isdir(TOPOLOGY) else []:
        rows = dict(line.split(" ", 1) for line in _text(f"{TOPOLOGY}/{name}/properties").splitlines() if " " in line)
        number, simds, each = (rows.get(key, "") for key in ("unique_id", "simd_count", "simd_per_cu"))
        if number.isdigit() and f"GPU-{int(number):016x}" == uuid and simds.isdigit() and each.isdigit() and int(each):
            return max(1, int(simds) // int(each))
    return USUAL_UNITS
