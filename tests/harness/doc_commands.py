# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands in the pages: lines of indented blocks and of fenced blocks without a language that begin with a program."""

from __future__ import annotations

import pathlib
import re
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = re.compile(
    r"(?:[A-Z_]+=\S+ )*(?:ansible(?:-\w+)?|cp|curl|export|git|gpg|make|pip|podman|python3?|kubectl|sha256sum|ssh-keygen|\.) \S.*"
    r"|\.ci/run\b.*"
)
FENCES = ("", "sh", "bash", "shell", "console")


class Command(t.NamedTuple):
    """A command without its comment, and the page that has it."""

    page: str
    text: str


def commands() -> list[Command]:
    """Return the commands of all pages."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "files").rglob("*.md"), ROOT / "tests/README.md"]
    return [
        Command(str(page.relative_to(ROOT)), re.split(r"\s+# ", line.strip().removeprefix("$ "))[0].rstrip())
        for page in sorted(pages)
        for line in _code(page.read_text(encoding="utf-8"))
        if PROGRAMS.fullmatch(line.strip().removeprefix("$ "))
    ]


def _code(text: str) -> t.Iterator[str]:
    """Yield the lines of a page that are commands, output or files without a language."""
    language: str | None = None
    for line in text.splitlines():
        fence = re.match(r"```(\w*)", line)
        if fence:
            language = fence[1] if language is None else None
        elif language in FENCES or (language is None and line.startswith("    ")):
            yield line
