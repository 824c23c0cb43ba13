# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds a version of the real system from a clone of its repository, beside the driver that stands in for GPUs."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import shutil
import subprocess

from rigs import common

HERE = pathlib.Path(__file__).resolve().parent
DRIVER = HERE / "driver.c"
# The commit that each name of the system was held against.
COMMITS = {"nvshare": "f680c69", "xpushare": "878dfd8"}
PACKAGES = {"git": "git", "make": "make", "gcc": "gcc", "/usr/include/stdio.h": "libc6-dev"}
CURL = {f"/usr/include/{where}curl/curl.h": "libcurl4-openssl-dev" for where in (f"{os.uname().machine}-linux-gnu/",)}
# What every container has.
OF_C = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|resolv)\.so.*|linux-vdso.*)")


def built(source: pathlib.Path, prefix: str, commit: str = "") -> pathlib.Path:
    """Return the folder with `system` (the scheduler and the libraries that it needs) and `driver` (the client library and the GPUs).
    `source` is a clone that has the commit, in `prefix` the name that the system has there. Raise RigError if it cannot be built."""
    commit = commit or COMMITS[prefix]
    common.need_packages({**PACKAGES, **CURL})
    version = hashlib.sha256(DRIVER.read_bytes() + pathlib.Path(__file__).read_bytes()).hexdigest()[:8]
    folder = common.CACHE / "sharing" / f"{prefix}-{commit}-{version}"
    with common.locked(folder.with_suffix(".lock")):
        if not folder.exists():
            new = folder.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            build(source, prefix, commit, new)
            new.rename(folder)
    return folder


def build(source: pathlib.Path, prefix: str, commit: str, folder: pathlib.Path) -> None:
    system, driver, code = folder / "system", folder / "driver", folder / "code"
    for made in (system, driver, code):
        made.mkdir(parents=True)
    packed = subprocess.run(["git", "-C", str(source), "archive", commit, "src"], check=False, capture_output=True)
    if packed.returncode:
        raise common.RigError(f"{source}: expected a clone with the commit {commit}: {packed.stderr.decode()[-300:]}")
    subprocess.run(["tar", "-x", "-C", str(code)], input=packed.stdout, check=True)
    scheduler, library = f"{prefix}-scheduler", f"lib{prefix}.so"
    common.run("make", "-s", "-C", code / "src", scheduler, library)
    shutil.copy(code / "src" / scheduler, system)
    shutil.copy(code / "src" / library, driver)
    for path in re.findall(r"=> (/\S+) \(", common.run("ldd", system / scheduler)):
        if not OF_C.fullmatch(pathlib.Path(path).name):
            shutil.copy(path, system)
    # One file by all names: the parts for CUDA and for NVML know of one another where a process has loaded both.
    common.run("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", driver / "libsimulated.so", DRIVER, "-lpthread")
    for name in ("libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1"):
        os.symlink("libsimulated.so", driver / name)
    shutil.rmtree(code)
