# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real ansible-rulebook from PyPI, with the collection's requirements.txt, in a virtual environment of its own in the cache of the rigs:
it brings packages of other versions than the checkout's environment has."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import typing as t

from rigs import common

PACKAGES = {"java": "default-jre-headless"}
VERSION = "1.3.2"
ROOT = pathlib.Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements.txt"


def programs() -> pathlib.Path:
    """Return the folder of ansible-rulebook and its Python, installed if it is not there yet."""
    common.need_packages(PACKAGES)
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]
    folder = common.CACHE / f"ansible-rulebook-{VERSION}-{digest}"
    done = folder / "bin/ansible-rulebook"
    with common.locked(folder.with_name(f".{folder.name}.lock")):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            common.run(sys.executable, "-m", "venv", str(folder))
            pip = [str(folder / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            try:
                common.run(*pip, "-r", str(REQUIREMENTS), f"ansible-rulebook=={VERSION}")
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
    return done.parent


def start(folder: pathlib.Path, rulebook: str, variables: pathlib.Path) -> subprocess.Popen[str]:
    """Start a rulebook, a file or one of the collection, on localhost; its output lies in `folder`."""
    bin_folder = programs()
    (folder / "hosts").write_text(f"localhost ansible_connection=local ansible_python_interpreter={bin_folder / 'python'}\n")
    environment: dict[str, t.Any] = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment.update(PATH=f"{bin_folder}:{os.environ['PATH']}", ANSIBLE_COLLECTIONS_PATH=str(ROOT / ".collections"))
    command = ["ansible-rulebook", "-r", rulebook, "-i", "hosts", "--vars", str(variables), "-v"]
    with open(folder / "rulebook.log", "a", encoding="utf-8") as log:
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
