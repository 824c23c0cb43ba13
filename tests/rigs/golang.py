# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Go that builds programs of the rigs from modules of pinned versions."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import typing as t

from rigs import common

# Seconds after which a build says that it still goes on.
STILL_S = 10.0


def environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}


def go() -> str:
    path = f"{os.environ.get('PATH', '')}:/usr/local/go/bin:/usr/lib/go/bin"
    found = shutil.which("go", path=path)
    if found is None:
        raise common.RigError("programs of the rigs are built with Go, 1.21 or newer, which is not here: https://go.dev/dl")
    version = re.search(r"go1\.(\d+)", common.run(found, "version", cwd="/"))
    if not version or int(version[1]) < 21:  # from there on Go fetches the version that go.mod asks for
        raise common.RigError(f"{found} is older than Go 1.21, which programs of the rigs are built with: https://go.dev/dl")
    return found


def build(what: str, *options: str, package: str, into: pathlib.Path, cwd: pathlib.Path) -> None:
    """Build one program with Go and put it at `into`, saying on standard error what is built and, every `STILL_S`, that it goes on.

    A build runs at the priority of whoever started it: somebody may be waiting. RigError with the compiler's last words if it fails.
    """
    new = into.with_name(f".{into.name}.new")
    argv = [go(), "build", *options, "-o", str(new), package]
    began = time.monotonic()
    print(f"building {what}", file=sys.stderr, flush=True)
    child = subprocess.Popen(argv, cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while True:
        try:
            printed, _none = child.communicate(timeout=STILL_S)
            break
        except subprocess.TimeoutExpired:
            print(f"building {what}: {time.monotonic() - began:.0f} s so far", file=sys.stderr, flush=True)
        except BaseException:
            child.kill()
            child.wait()
            raise
    if child.returncode:
        raise common.RigError(f"{' '.join(argv)}: exit {child.returncode}: {printed.strip()[-500:]}")
    new.rename(into)


def missing(folder: pathlib.Path, names: t.Iterable[str]) -> list[str]:
    """Return those of the names that are not yet in a folder of built programs."""
    return [name for name in names if not (folder / name).exists()]
