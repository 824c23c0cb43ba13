# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD's runtime (HIP) by ctypes: memory, copies, events and kernels of the GPUs, with the names of cuda_driver.py.

Kernels are C++ text (hip_kernels.py, hip_products.py) that HIP's own compiler (hiprtc) makes code of for the GPU that is there: both
libraries come with ROCm. It travels to the nodes as text, behind hip_kernels.py and in front of a workload that uses it
(workloads/packing.py): no imports of this collection but of that. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import ctypes
import os
import typing as t

if "BLOCK" not in globals():  # else it stands above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.hip_kernels import BLOCK

# Status codes (hip_runtime_api.h, hipError_t), and the reason codes of module_utils/answer/reasons.py that they mean.
CODES = {2: "out_of_memory", 214: "ecc"}
PORTABLE = 3  # hipHostRegisterPortable | hipHostRegisterMapped
NON_BLOCKING = 1  # hipStreamNonBlocking
TO_DEVICE, TO_HOST, INSIDE_DEVICE = 1, 2, 3  # hipMemcpyKind
PEER_ALREADY = 704  # hipErrorPeerAccessAlreadyEnabled
BLOCKS = 8  # of each compute unit
# HIP puts all streams of a device on four queues of the hardware unless this variable says more: loads in one queue wait for each other.
QUEUES, MOST_QUEUES = "GPU_MAX_HW_QUEUES", 12
# Compute units of a GPU whose number the kernel does not tell: how many blocks there are changes the speed only.
USUAL_UNITS = 304
FOLDERS = ("", "/opt/rocm/lib/")
DEVICES = "/sys/bus/pci/devices"
TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}

Pointer = t.Any


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

    `kernels` returns the C++ text for a GPU by its graphics version. OSError if a library is not there; DriverError if it cannot be
    initialised, or its compiler makes no code.
    """

    runtime = "HIP"

    def __init__(self, kernels: t.Callable[[int], str]) -> None:
        self.kernels = kernels
        # {graphics version: code}: the many parts of partitioned GPUs would be compiled for one after the other.
        self.codes: dict[int, bytes] = {}
        os.environ.setdefault(QUEUES, str(MOST_QUEUES))
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

    def code(self, capability: int) -> bytes:
        """Return the kernels as code for the GPU that is set."""
        if capability not in self.codes or not capability:
            self.codes[capability] = self._compiled(self.kernels(capability).encode())
        return self.codes[capability]

    def _compiled(self, text: bytes) -> bytes:
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
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
        self.properties = topology(self.bdf)
        self.processors = _units(self.properties)
        self.module: t.Any = ctypes.c_void_p()
        self.call("hipSetDevice", index)
        self.image = driver.code(self.capability())
        self.call("hipModuleLoadData", ctypes.byref(self.module), self.image)
        self.functions: dict[str, ctypes.c_void_p] = {}

    def _uuid(self) -> str:
        """Return the UUID of ROCr, by the kernel's own number; else by that of HIP, which is 16 digits. Parts of a GPU have functions of
        their own in their addresses and no files in /sys: the number is that of the GPU."""
        number = text_of(f"{DEVICES}/{self.bdf}/unique_id") or text_of(f"{DEVICES}/{self.bdf[:-1]}0/unique_id")
        if not number:
            uuid = (ctypes.c_char * 16)()
            self.driver.call("hipDeviceGetUuid", uuid, self.handle)
            number = uuid.raw.decode("ascii", "replace").strip("\0")
        return f"GPU-{number.lower():0>16}"

    def call(self, function: str, *arguments: t.Any) -> None:
        """Call a function of the library for this GPU."""
        self.driver.call("hipSetDevice", self.handle)
        self.driver.call(function, *arguments)

    def capability(self) -> int:
        """Return the graphics version, 90402 for gfx942; 0 if the kernel's topology does not tell it."""
        return self.properties.get("gfx_target_version", 0)

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
        numbers = {name: text_of(f"{DEVICES}/{name}/unique_id") for name in names}
        # Drivers that give no number there may have one in the topology.
        known = {f"{of.get('unique_id', 0):x}": _address(of) for of in _nodes() if of.get("unique_id")}
        by_number = {**known, **{number: name for name, number in numbers.items() if number}}
        self.folders = {f"GPU-{number.lower():0>16}": f"{DEVICES}/{name}" for number, name in by_number.items() if name in numbers}

    def folder(self, uuid: str) -> str:
        """Return the folder of a GPU, of a part of one that of the whole; empty if there is none."""
        return self.folders.get(whole(uuid), "")

    def now(self, uuid: str) -> list[int] | None:
        """Return [generation, width]; None if they cannot be read."""
        folder = self.folder(uuid)
        generation, width = GENERATIONS.get(text_of(f"{folder}/current_link_speed").split(" ")[0]), text_of(f"{folder}/current_link_width")
        return [generation, int(width)] if generation and width.isdigit() else None


def whole(uuid: str) -> str:
    """Return the UUID of the GPU of which this is a part, or which it is."""
    return "-".join(uuid.split("-")[:2])


def text_of(path: str) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return ""


def topology(bdf: str) -> dict[str, int]:
    """Return the properties of a GPU in the kernel's topology; empty if it has none. The runtime may give the parts of a GPU the address of
    the whole: then they are those of its first part, whose properties the other parts have too."""
    here = [of for of in _nodes() if _address(of)[:-1] == bdf[:-1]]
    return next((of for of in here if _address(of) == bdf), min(here, key=_address, default={}))


def _nodes() -> list[dict[str, int]]:
    """Return the properties of all GPUs, or parts of them, in the kernel's topology."""
    found = []
    for name in os.listdir(TOPOLOGY) if os.path.isdir(TOPOLOGY) else []:
        rows = [line.split() for line in text_of(f"{TOPOLOGY}/{name}/properties").splitlines()]
        found.append({row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()})
    return [properties for properties in found if properties.get("simd_count")]


def _address(properties: t.Mapping[str, int]) -> str:
    location = properties.get("location_id", 0)
    return f"{properties.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"


def _units(properties: t.Mapping[str, int]) -> int:
    """Return the compute units of a GPU; of a part of a GPU they are those of the part."""
    each = properties.get("simd_per_cu", 0)
    return max(1, properties.get("simd_count", 0) // each) if each else USUAL_UNITS
