# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the libcuda that plants faults between a workload and NVIDIA's driver."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).with_name("libcuda_between.c")
FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


def compiler() -> str | None:
    """Return the path of a C compiler; None if there is none."""
    return shutil.which("gcc") or shutil.which("cc")


def driver_library() -> str | None:
    """Return the path of the libcuda that programs of this machine load; None if there is none."""
    program = "import ctypes\nctypes.CDLL('libcuda.so.1')\nprint(next(l.split()[-1] for l in open('/proc/self/maps') if 'libcuda.so' in l))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return ran.stdout.strip() or None


def build(folder: pathlib.Path, real: str) -> dict[str, str]:
    """Build the library in a folder; return the environment by which a program loads it. `real` is the path of the driver's library."""
    cc = compiler()
    assert cc, "a C compiler"
    # The stand-in needs a library of this name: at build time an empty one, at run time the driver's.
    (folder / "empty").mkdir(parents=True)
    (folder / "empty.c").write_text("")
    placeholder = folder / "empty/libcuda-real.so"
    subprocess.run([cc, "-shared", "-Wl,-soname,libcuda-real.so", "-o", str(placeholder), str(folder / "empty.c")], check=True)
    command = [cc, *FLAGS, "-Wl,--no-as-needed", "-o", str(folder / "libcuda.so.1"), str(SOURCE), str(placeholder), "-ldl"]
    subprocess.run(command, check=True)
    (folder / "libcuda-real.so").symlink_to(real)
    return {"LD_LIBRARY_PATH": str(folder), "GPU_FAULT_REAL": str(folder / "libcuda-real.so")}
