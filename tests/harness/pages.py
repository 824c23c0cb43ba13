# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages of docs/ whose code blocks are files: each begins with a comment that is its path."""

from __future__ import annotations

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```\w+\n# (\S+/\S+)\n(.*?)^```$", re.S | re.M)


def files_of(page: str, folder: pathlib.Path) -> None:
    """Write the files of a page below a folder, as its reader would."""
    for name, text in _BLOCK.findall((ROOT / page).read_text()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
