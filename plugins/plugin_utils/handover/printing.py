# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages as PDF, by Chromium where the controller has it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
import typing as t

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_TIMEOUT_S = 120


def browser() -> str | None:
    """Return the path of a Chromium; None if there is none."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def pdfs(pages: t.Mapping[str, str | pathlib.Path]) -> t.Iterator[tuple[str, bytes]]:
    """Yield each page, a text or a file, as PDF by its name; nothing without a browser, and not those that it does not print."""
    program = browser()
    if program is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        for place, (name, page) in enumerate(pages.items()):
            source = pathlib.Path(folder) / f"{place}.html"
            target = source.with_suffix(".pdf")
            if isinstance(page, str):
                source.write_text(page, encoding="utf-8", errors="backslashreplace")
            else:
                shutil.copyfile(page, source)
            words = [
                program, "--headless", "--disable-gpu", "--no-pdf-header-footer", "--disable-extensions",
                f"--user-data-dir={folder}/profile",
                # The page is ours and without network; as root Chromium has no sandbox.
                *(["--no-sandbox"] if os.geteuid() == 0 else []), f"--print-to-pdf={target}", source.as_uri(),
            ]  # fmt: skip
            try:
                subprocess.run(words, capture_output=True, timeout=_TIMEOUT_S, check=True)
                yield name, target.read_bytes()
            except (OSError, subprocess.SubprocessError):
                continue
