# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""axe-core, which says what of a page people cannot use who do not see it, or have no mouse: a pinned version from npm, kept in the
cache of the rigs."""

from __future__ import annotations

import hashlib
import pathlib
import shutil
import tarfile
import tempfile
import typing as t

from rigs import common
from rigs.browser import Browser

VERSION = "4.14.1"
SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
SCRIPT = common.CACHE / "axe" / f"axe-core-{VERSION}.min.js"


def here() -> bool:
    return SCRIPT.exists() or shutil.which("npm") is not None


def script() -> str:
    """The text of axe.min.js, fetched where it is not there yet."""
    with common.locked(SCRIPT.with_name("lock")):
        if not SCRIPT.exists():
            with tempfile.TemporaryDirectory() as folder:
                common.run("npm", "pack", "--silent", f"axe-core@{VERSION}", cwd=folder)
                with tarfile.open(pathlib.Path(folder) / f"axe-core-{VERSION}.tgz") as package:
                    data = t.cast("t.IO[bytes]", package.extractfile("package/axe.min.js")).read()
            new = SCRIPT.with_name(f".{SCRIPT.name}.new")
            new.write_bytes(data)
            new.rename(SCRIPT)
        found = SCRIPT.read_bytes()
    if hashlib.sha256(found).hexdigest() != SHA256:
        raise common.RigError(f"{SCRIPT} is not axe.min.js of axe-core {VERSION}; remove it")
    return found.decode()


def violations(browser: Browser) -> list[str]:
    """Return what is wrong with the open page: a line for each rule and element, of every rule that axe-core has."""
    if not browser.value("Boolean(window.axe)"):
        browser.value(f"{script()}; true")
    found = browser.value("axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations)")
    return [f"{one['id']} ({one['impact']}): {' '.join(map(str, node['target']))}: {one['help']}" for one in found for node in one["nodes"]]
