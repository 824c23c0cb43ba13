# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Go that builds programs of the rigs from modules of pinned versions."""

from __future__ import annotations

import os
import re
import shutil

from rigs import common


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
