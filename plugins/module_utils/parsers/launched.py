# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removal of the text that launchers and terminals add to the lines of a tool.

Open MPI and PRRTE tag lines with `[1,0]<stdout>:`, Hydra with `[0] `, Slurm with `0: `, container logs with a time or a pod.
Pure functions; nothing here raises for bad text. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PREFIX = re.compile(
    r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})?(?:\[[^\]\n]{1,200}\](?:\[[^\]\n]{1,200}\])?(?:<std(?:out|err)>)?:? ?"
    r"|(?<=\d{4})<std(?:out|err)>: ?)"
    r"|\d{1,6}: |\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:\d\d) |<std(?:out|err)>: ?"
)
_LEVELS = 3


def plain(text: str, landmark: re.Pattern[str]) -> str:
    """Return the text as the tool wrote it: without carriage returns and colours, and without prefixes if one stands before `landmark`.

    `landmark` matches the beginning of a line that the tool surely prints, so that lines of its own that look like a
    prefix stay what they are.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    match = landmark.search(text)
    if not match or not text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip("# \t"):
        return text
    lines = []
    for line in text.split("\n"):
        for _level in range(_LEVELS):
            prefix = _PREFIX.match(line)
            if not prefix:
                break
            line = line[prefix.end() :]
        lines.append(line)
    return "\n".join(lines)
