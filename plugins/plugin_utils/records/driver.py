# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver of a run: one process, of one boot of one machine, in one container of it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.session import boot_id

# The process ids of a machine itself, outside of any container (PROC_PID_INIT_INO of the kernel).
OF_THE_MACHINE = "pid:[4026531836]"


def parent() -> int:
    """The process that began us, whether it still lives or not. Who has outlived it has another parent by then, init or what is process 1
    of a container: that one drives nothing, and lives for ever."""
    began = multiprocessing.parent_process()  # Ansible's workers are begun by this
    return began.pid if began and began.pid else os.getppid()


def of(pid: int = 0) -> str:
    """The identity of a process, our parent's where none is given: MACHINE/BOOT/PID-NAMESPACE/PID/START. That of one that is gone is
    nobody's, and is gone for whoever asks."""
    pid = pid or parent()
    return f"{here()}/{pid}/{process.start_time(pid) or 0}"


@functools.lru_cache(maxsize=1)  # every object in a cluster says it, and a process does not move
def here() -> str:
    """Return the place within which a process id means something: machine, boot and container."""
    try:
        with open("/etc/machine-id", encoding="ascii") as source:
            machine = source.read().strip()
    except (OSError, ValueError):
        machine = ""
    return f"{machine}/{boot_id()}/{os.readlink('/proc/self/ns/pid')}"


def state(driver: str) -> t.Literal["alive", "gone", "elsewhere"]:
    """Return the state of a run's driver. `elsewhere`: on another machine, or in another container, so that it cannot be seen from here."""
    place, pid, started = driver.rsplit("/", 2) if driver.count("/") >= 2 else ("", "0", "0")
    now = here()
    if place == now and pid.isdigit() and started.isdigit():
        return "alive" if process.is_alive(int(pid), int(started)) else "gone"
    driver_parts, own_parts = place.split("/", 2), now.split("/", 2)
    if (
        len(driver_parts) == 3
        and driver_parts[0]
        and driver_parts[0] == own_parts[0]
        and driver_parts[1] != own_parts[1]
        and driver_parts[2] == own_parts[2] == OF_THE_MACHINE
    ):
        return "gone"  # of this machine before a reboot; containers of one image may have one machine-id on many machines
    return "elsewhere"
