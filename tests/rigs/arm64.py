# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Python for arm64, as Grace has it, that runs on this machine: Debian's, under Debian's qemu-user. Nothing is installed."""

from __future__ import annotations

import pathlib
import shutil
import typing as t

from rigs import common

# Python 3.11 of Debian 12, which this machine may or may not run, and the libraries of its modules.
PACKAGES = (
    "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "zlib1g", "libexpat1", "libffi8", "libssl3",
    "libbz2-1.0", "liblzma5", "libuuid1",
)  # fmt: skip
SOURCES = (
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main",
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian-security bookworm-security main",
)


class Arm64(t.NamedTuple):
    """The words that run Python on an emulated arm64, before its arguments."""

    argv: tuple[str, ...]


def python() -> Arm64:
    """Return the interpreter; fetch it once for this machine. Raises RigError if it cannot be had."""
    folder = common.CACHE / "arm64-bookworm"
    with common.locked(common.CACHE / "arm64.lock"):
        if not (folder / "root/usr/bin/python3.11").exists():
            new = folder.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            _fetch(new)
            shutil.rmtree(folder, ignore_errors=True)
            new.rename(folder)
    return Arm64((f"{folder}/qemu/usr/bin/qemu-aarch64-static", "-L", f"{folder}/root", f"{folder}/root/usr/bin/python3.11"))


def _fetch(folder: pathlib.Path) -> None:
    for name in ("state/lists/partial", "cache/archives/partial", "debs", "root", "qemu"):
        (folder / name).mkdir(parents=True)
    (folder / "state/status").write_text("")
    (folder / "sources.list").write_text("\n".join(SOURCES) + "\n")
    settings = {
        "Dir::State": folder / "state", "Dir::State::status": folder / "state/status", "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "sources.list", "Dir::Etc::sourceparts": "-", "APT::Sandbox::User": "root",
        "APT::Architecture": "arm64", "APT::Architectures::": "arm64",
    }  # fmt: skip
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    common.run(*apt, "update", cwd=folder)
    common.run(*apt, "download", *PACKAGES, cwd=folder / "debs")
    for package in (folder / "debs").glob("*.deb"):
        common.run("dpkg-deb", "-x", package, folder / "root")
    host = common.run("dpkg", "--print-architecture").strip()
    of_host = [word.replace("=arm64", f"={host}") for word in apt]
    common.run(*of_host, "update", cwd=folder)
    common.run(*of_host, "download", "qemu-user-static", cwd=folder)
    common.run("dpkg-deb", "-x", next(folder.glob("qemu-user-static*.deb")), folder / "qemu")
