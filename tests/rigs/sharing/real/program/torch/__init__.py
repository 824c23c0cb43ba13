# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in of PyTorch on the functions of the CUDA driver, which a library that is loaded before may replace.

A tensor is one number and its size; a sum is a kernel that moves three times this size. Freed blocks are kept for the next tensor of
their size, as PyTorch does.
"""

from __future__ import annotations

import ctypes
import functools
import typing as t

__version__ = "0+simulated"
OUT_OF_MEMORY = 2


class dtype:
    def __init__(self, size: int) -> None:
        self.size = size


float32, uint8 = dtype(4), dtype(1)


class OutOfMemoryError(RuntimeError):
    """As PyTorch's own."""


class _Gpu:
    def __init__(self) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.kept: dict[int, list[int]] = {}
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(ctypes.c_void_p()), 0)

    def call(self, name: str, *arguments: t.Any) -> None:
        code = getattr(self.driver, name)(*arguments)
        if code == OUT_OF_MEMORY:
            raise OutOfMemoryError("CUDA out of memory")
        if code:
            raise RuntimeError(f"CUDA error: {name} returned {code}")

    def allocate(self, size: int) -> int:
        if self.kept.get(size):
            return self.kept[size].pop()
        pointer = ctypes.c_uint64()
        try:
            self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        except OutOfMemoryError:
            if not any(self.kept.values()):
                raise
            self.empty_cache()
            self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value

    def empty_cache(self) -> None:
        for pointers in self.kept.values():
            while pointers:
                self.call("cuMemFree_v2", ctypes.c_uint64(pointers.pop()))

    def launch(self, moved: int) -> None:
        self.call("cuLaunchKernel", ctypes.c_void_p(moved), 1, 1, 1, 1, 1, 1, 0, None, None, None)

    def copied(self, pointer: int) -> None:
        self.call("cuMemcpyDtoH_v2", ctypes.create_string_buffer(8), ctypes.c_uint64(pointer), ctypes.c_size_t(8))

    @property
    def total(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return total.value


@functools.cache
def _device() -> _Gpu:
    return _Gpu()


class Tensor:
    def __init__(self, shape: tuple[int, ...], value: float, of: dtype) -> None:
        self.shape, self.value, self.dtype, self.size = shape, value, of, 0
        size = of.size
        for length in shape:
            size *= length
        self.pointer = _device().allocate(size)
        self.size = size

    def __del__(self) -> None:
        if self.size:
            _device().kept.setdefault(self.size, []).append(self.pointer)

    def min(self) -> float:
        _device().copied(self.pointer)
        return self.value

    max = min


def full(shape: tuple[int, ...], value: float, dtype: dtype, device: str) -> Tensor:
    made = Tensor(shape, value, dtype)
    _device().launch(made.size)
    return made


def empty(shape: tuple[int, ...], dtype: dtype, device: str) -> Tensor:
    return Tensor(shape, 0.0, dtype)


def add(x: Tensor, y: Tensor, out: Tensor | None = None) -> Tensor:
    total = out or Tensor(x.shape, 0.0, x.dtype)
    total.value = x.value + y.value
    _device().launch(3 * total.size)
    return total


class cuda:
    OutOfMemoryError = OutOfMemoryError

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def synchronize() -> None:
        _device().call("cuCtxSynchronize")

    @staticmethod
    def empty_cache() -> None:
        _device().empty_cache()

    @staticmethod
    def get_device_properties(_device_number: int) -> t.Any:
        return type("Properties", (), {"name": "simulated", "total_memory": _device().total})
