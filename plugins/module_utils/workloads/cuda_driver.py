# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's driver by ctypes: memory, copies, events and kernels of the GPUs, without CUDA's toolkit.

Everything that gpu_memory.py asks of a device goes through Driver and CudaDevice, so that another vendor's runtime can take their place.

It travels to the nodes as text, in front of a workload that uses it (workloads/packing.py): no imports of this collection.
This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import ctypes
import typing as t

# Status codes (cuda.h, CUresult), and the reason codes of module_utils/answer/reasons.py that they mean.
CODES = {2: "out_of_memory", 214: "ecc"}
PORTABLE = 1  # CU_MEMHOSTREGISTER_PORTABLE
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
PROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
PEER_ALREADY = 704  # CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
BLOCK, BLOCKS = 256, 8  # threads of a block, and blocks of each multiprocessor

Pointer = t.Any


class DriverError(Exception):
    """A call of the driver that failed; `code` is a reason code."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.code = CODES.get(status, "cuda_failed")


class Driver:
    """libcuda, with a context on every GPU that the process sees.

    `kernels` returns the PTX text for a GPU by its compute capability. OSError if the library is not there; DriverError if it cannot be
    initialised.
    """

    runtime = "CUDA"

    def __init__(self, kernels: t.Callable[[int], str]) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.kernels = kernels
        self.call("cuInit", 0)
        number = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(number))
        self.version = f"{number.value // 1000}.{number.value % 1000 // 10}"
        self.call("cuDeviceGetCount", ctypes.byref(number))
        self.devices = [CudaDevice(self, index) for index in range(number.value)]

    def call(self, function: str, *arguments: t.Any) -> None:
        """Call a function of the library. DriverError with its name and the driver's own words if it fails."""
        status = getattr(self.cuda, function)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(status, ctypes.byref(text))
            words = (text.value or b"").decode("utf-8", "replace")
            raise DriverError(f"{function} failed with status {status} {words}".strip(), status)

    def pin(self, address: int, size: int) -> None:
        """Make host memory pinned for all GPUs."""
        self.call("cuMemHostRegister_v2", ctypes.c_void_p(address), ctypes.c_size_t(size), PORTABLE)

    def unpin(self, address: int) -> None:
        """Give pinned host memory back to the kernel."""
        self.call("cuMemHostUnregister", ctypes.c_void_p(address))


class CudaDevice:
    """One GPU. `stream` arguments are handles of stream(); sizes are bytes."""

    def __init__(self, driver: Driver, index: int) -> None:
        self.driver = driver
        self.handle = ctypes.c_int()
        driver.call("cuDeviceGet", ctypes.byref(self.handle), index)
        uuid = (ctypes.c_ubyte * 16)()
        driver.call("cuDeviceGetUuid", uuid, self.handle)
        text = bytes(uuid).hex()
        self.uuid = f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
        name = ctypes.create_string_buffer(20)
        driver.call("cuDeviceGetPCIBusId", name, 20, self.handle)
        self.bdf = name.value.decode().lower()
        number = ctypes.c_int()
        driver.call("cuDeviceGetAttribute", ctypes.byref(number), PROCESSORS, self.handle)
        self.processors = number.value
        self.context = ctypes.c_void_p()
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.handle)
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), driver.kernels(self.capability()).encode() + b"\0")
        self.module = module
        self.functions: dict[str, ctypes.c_void_p] = {}

    def call(self, function: str, *arguments: t.Any) -> None:
        """Call a function of the library in the GPU's context."""
        self.driver.call("cuCtxSetCurrent", self.context)
        self.driver.call(function, *arguments)

    def free(self) -> int:
        """Return how many bytes of memory are free, as the driver says."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def room(self, size: int) -> int:
        """Return the address of new device memory."""
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value

    def release(self, address: int) -> None:
        """Free device memory."""
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def mapped(self, address: int) -> int:
        """Return the address by which the GPU reads pinned host memory."""
        pointer = ctypes.c_uint64()
        self.call("cuMemHostGetDevicePointer_v2", ctypes.byref(pointer), ctypes.c_void_p(address), 0)
        return pointer.value

    def stream(self) -> Pointer:
        """Return a new stream."""
        handle = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(handle), NON_BLOCKING)
        return handle

    def upload(self, to: int, source: int, size: int, stream: Pointer) -> None:
        """Queue a copy of host memory to the device."""
        self.call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_void_p(source), ctypes.c_size_t(size), stream)

    def download(self, to: int, source: int, size: int, stream: Pointer) -> None:
        """Queue a copy of device memory to the host."""
        self.call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(to), ctypes.c_uint64(source), ctypes.c_size_t(size), stream)

    def copy(self, to: int, source: int, size: int, stream: Pointer) -> None:
        """Queue a copy inside the device's memory."""
        self.call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size), stream)

    def send(self, to: int, peer: CudaDevice, source: int, size: int, stream: Pointer) -> None:
        """Queue a copy of memory of this device to another device."""
        sizes = ctypes.c_size_t(size), stream
        self.call("cuMemcpyPeerAsync", ctypes.c_uint64(to), peer.context, ctypes.c_uint64(source), self.context, *sizes)

    def put(self, address: int, word: int) -> None:
        """Write one word of 8 bytes to device memory, behind all that the driver's own stream has queued."""
        data = (ctypes.c_uint64 * 1)(word)
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(8))

    def get(self, address: int) -> int:
        """Return one word of 8 bytes of device memory."""
        data = (ctypes.c_uint64 * 1)()
        self.call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(8))
        return int(data[0])

    def reach(self, peer: CudaDevice) -> bool:
        """Let this GPU read and write memory of another one; False if it cannot, so that copies go through the host's memory."""
        able = ctypes.c_int()
        self.call("cuDeviceCanAccessPeer", ctypes.byref(able), self.handle, peer.handle)
        if not able.value:
            return False
        self.driver.call("cuCtxSetCurrent", self.context)
        return self.driver.cuda.cuCtxEnablePeerAccess(peer.context, 0) in (0, PEER_ALREADY)

    def zero(self, address: int, size: int, stream: Pointer = None) -> None:
        """Set device memory to 0, at once or as work of a stream."""
        what = ctypes.c_uint64(address), ctypes.c_ubyte(0), ctypes.c_size_t(size)
        if stream is None:
            self.call("cuMemsetD8_v2", *what)
        else:
            self.call("cuMemsetD8Async", *what, stream)

    def capability(self) -> int:
        """Return the compute capability, 90 for 9.0."""
        numbers = []
        for attribute in CAPABILITY:
            number = ctypes.c_int()
            self.driver.call("cuDeviceGetAttribute", ctypes.byref(number), attribute, self.handle)
            numbers.append(number.value)
        return 10 * numbers[0] + numbers[1]

    def launch(self, kernel: str, *parameters: int, stream: Pointer = None, threads: int = 0, blocks: int = 0) -> None:
        """Queue a kernel, over the whole GPU, with one thread (`threads=1`), or with so many blocks of each multiprocessor."""
        if kernel not in self.functions:
            function = ctypes.c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(function), self.module, kernel.encode())
            self.functions[kernel] = function
        values = [ctypes.c_uint64(value) for value in parameters]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        grid, threads = (1, threads) if threads else (self.processors * (blocks or BLOCKS), BLOCK)
        self.call("cuLaunchKernel", self.functions[kernel], grid, 1, 1, threads, 1, 1, 0, stream, pointers, None)

    def event(self) -> Pointer:
        """Return a new event."""
        handle = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(handle), 0)
        return handle

    def record(self, event: Pointer, stream: Pointer) -> None:
        """Queue an event."""
        self.call("cuEventRecord", event, stream)

    def wait(self, stream: Pointer, event: Pointer) -> None:
        """Let a stream wait for an event."""
        self.call("cuStreamWaitEvent", stream, event, 0)

    def reached(self, event: Pointer) -> None:
        """Wait until an event has passed."""
        self.call("cuEventSynchronize", event)

    def discard(self, event: Pointer) -> None:
        """Give an event back."""
        self.call("cuEventDestroy_v2", event)

    def between(self, first: Pointer, last: Pointer) -> float:
        """Return the seconds between two events that have passed."""
        span = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(span), first, last)
        return span.value / 1e3

    def settle(self, stream: Pointer = None) -> None:
        """Wait until a stream, or the whole GPU, has done what was queued."""
        if stream is None:
            self.call("cuCtxSynchronize")
        else:
            self.call("cuStreamSynchronize", stream)


class Links:
    """The present PCIe generation and width of GPUs by NVML; None without NVML."""

    def __init__(self) -> None:
        try:
            self.nvml: t.Any = ctypes.CDLL("libnvidia-ml.so.1")
            if self.nvml.nvmlInit_v2():
                self.nvml = None
        except OSError:
            self.nvml = None

    def now(self, uuid: str) -> list[int] | None:
        """Return [generation, width]."""
        if self.nvml is None:
            return None
        handle, generation, width = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint()
        if (
            self.nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle))
            or self.nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle, ctypes.byref(generation))
            or self.nvml.nvmlDeviceGetCurrPcieLinkWidth(handle, ctypes.byref(width))
        ):
            return None
        return [generation.value, width.value]


class Sensors(Links):
    """The sensors and counters of GPUs by NVML. A value that a GPU or a driver does not have is missing."""

    # {name: (function of NVML, arguments before the result, type of the result, factor)}; units: C, W, MHz, bits of nvmlClocksEventReason,
    # errors since the driver was loaded, replays.
    VALUES: dict[str, tuple[str, tuple[int, ...], t.Any, float]] = {
        "temperature": ("nvmlDeviceGetTemperature", (0,), ctypes.c_uint, 1),
        "power": ("nvmlDeviceGetPowerUsage", (), ctypes.c_uint, 1e-3),
        "power_limit": ("nvmlDeviceGetEnforcedPowerLimit", (), ctypes.c_uint, 1e-3),
        "sm_clock": ("nvmlDeviceGetClockInfo", (1,), ctypes.c_uint, 1),
        "sm_clock_max": ("nvmlDeviceGetMaxClockInfo", (1,), ctypes.c_uint, 1),
        "throttle": ("nvmlDeviceGetCurrentClocksThrottleReasons", (), ctypes.c_ulonglong, 1),
        "ecc_corrected": ("nvmlDeviceGetTotalEccErrors", (0, 0), ctypes.c_ulonglong, 1),
        "ecc_uncorrected": ("nvmlDeviceGetTotalEccErrors", (1, 0), ctypes.c_ulonglong, 1),
        "replays": ("nvmlDeviceGetPcieReplayCounter", (), ctypes.c_uint, 1),
    }

    def __init__(self) -> None:
        super().__init__()
        self.handles: dict[str, t.Any] = {}

    @staticmethod
    def shares(looks: list[float]) -> dict[str, float]:
        """Return {bit of a reason for lower clocks: share of the looks that have it}."""
        bits = sorted({1 << bit for look in looks for bit in range(64) if int(look) >> bit & 1})
        return {str(bit): round(sum(bool(int(look) & bit) for look in looks) / len(looks), 3) for bit in bits}

    def read(self, uuid: str) -> dict[str, float]:
        """Return the values that the GPU has now."""
        if self.nvml is None:
            return {}
        if uuid not in self.handles:
            handle = ctypes.c_void_p()
            if self.nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)):
                return {}
            self.handles[uuid] = handle
        values = {}
        for name, (function, arguments, kind, factor) in self.VALUES.items():
            number = kind()
            ask = getattr(self.nvml, function, None)
            if ask is not None and ask(self.handles[uuid], *arguments, ctypes.byref(number)) == 0:
                values[name] = number.value * factor
        return values
