# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start a child on the CPUs and in the memory of one NUMA node.

The kernel hands both down to the child, so that no tool such as numactl has to be installed.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import host_memory

# Number of the system call set_mempolicy (Linux, asm/unistd.h), and the policy that undoes another one.
CALL = {"x86_64": 238, "aarch64": 237}
DEFAULT = 0
# Numbers of NUMA nodes that a policy has room for.
NODES = 1024
# Words of what a child was bound to.
CPUS_AND_MEMORY, CPUS = "cpus and memory", "cpus"


class Place(t.NamedTuple):
    """A NUMA node and its CPUs."""

    number: int
    cpus: t.FrozenSet[int]


def places(root: str = "/") -> dict[int, Place]:
    """Return the NUMA nodes of a machine that have CPUs and memory, by their numbers. `root` is where its file system is found."""
    cpus_of = host_memory.numa_nodes(os.path.join(root, "sys"))
    return {number: Place(number, frozenset(cpus)) for number, cpus in cpus_of.items()}


@contextlib.contextmanager
def bound(place: Place | None) -> t.Iterator[str | None]:
    """Children that this thread starts meanwhile run on the CPUs of `place` and take memory there only; None binds nothing.

    Yields CPUS_AND_MEMORY; CPUS if the process may not set a memory policy, as in a container without CAP_SYS_NICE: a child then gets its
    memory where it runs, as long as there is any. Raises ReasonedError if this process may not use the CPUs or the memory of the node.
    """
    if place is None:
        yield None
        return
    affinity = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, place.cpus)
    except OSError as error:
        reason = f"no CPU of NUMA node {place.number} may be used here ({os.strerror(error.errno or 0)}): see cpuset of the container"
        raise ReasonedError("no_permission", reason) from error
    try:
        failed = _policy(host_memory.BIND, place.number)
        if failed == errno.EINVAL:
            reason = f"no memory of NUMA node {place.number} may be used here: see cpuset of the container"
            raise ReasonedError("no_permission", reason)
        yield CPUS if failed else CPUS_AND_MEMORY
    finally:
        _policy(DEFAULT)
        os.sched_setaffinity(0, affinity)


def _policy(mode: int, number: int | None = None) -> int:
    """Set the memory policy of this thread; returns the errno, 0 if it is set."""
    call = CALL.get(platform.machine())
    if call is None:
        return errno.ENOSYS
    if number is None:
        failed = host_memory.LIBC.syscall(call, mode, None, 0)
    else:
        bits = ctypes.sizeof(ctypes.c_ulong) * 8
        mask = (ctypes.c_ulong * (NODES // bits))()
        if number >= NODES:
            return errno.EINVAL
        mask[number // bits] = 1 << number % bits
        failed = host_memory.LIBC.syscall(call, mode, mask, ctypes.c_ulong(NODES + 1))
    return ctypes.get_errno() if failed else 0
