# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that a stage leaves in a folder of the user's on the node, by the names and with the keys that acceptance images use.

They are for other tools to read; no verdict is made of them. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import os
import typing as t

# Of what a program printed, the end that a file takes.
PRINTED = 65536


def write(folder: str, files: t.Mapping[str, t.Any], names: t.Iterable[str]) -> str | None:
    """Write these files whole, and remove those of `names` that belong to another result. Return an error text, None on success."""
    try:
        os.makedirs(folder, exist_ok=True)
        for name in {*names} - {*files}:
            if os.path.lexists(os.path.join(folder, name)):
                os.unlink(os.path.join(folder, name))
        for name, content in files.items():
            path = os.path.join(folder, name)
            with open(f"{path}.new", "w", encoding="utf-8") as target:
                json.dump(content, target, indent=2)
            os.replace(f"{path}.new", path)
    except OSError as error:
        return f"results_dir {folder} could not be written: {error.strerror or error}"
    return None


def printed(returncode: int, out: str, err: str) -> dict[str, t.Any]:
    return {"returncode": returncode, "stdout": out[-PRINTED:], "stderr": err[-PRINTED:]}


def environment(torch: str | None, devices: int) -> dict[str, t.Any]:
    return {"cuda_available": bool(devices), "cuda_device_count": devices, "torch": torch}
