# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Releases of this checkout, made from a copy of it and signed with a key of the test."""

from __future__ import annotations

import functools
import os
import pathlib
import subprocess
import tarfile
import typing as t

import yaml
from rigs import common

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".cache/release/bin"
AUTHOR = ("-c", "user.name=test", "-c", "user.email=test@localhost")
PACKAGES = {"gpg": "gnupg", "ssh-keygen": "openssh-client"}


def run(*argv: t.Any, **options: t.Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in argv], check=False, capture_output=True, text=True, **options)


@functools.cache
def tools() -> pathlib.Path:
    """Return the folder of the release tools, in the virtual environment that `make release` makes."""
    made = run("make", ".cache/release/.stamp", cwd=ROOT, env={**os.environ, "MAKEFLAGS": ""})
    assert made.returncode == 0, made.stdout + made.stderr
    return TOOLS


def copy(folder: pathlib.Path) -> pathlib.Path:
    """Return a repository of one commit with the files of this checkout, its version released in the changelog."""
    folder.mkdir()
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).stdout
    files = "\0".join(name for name in listed.split("\0") if name and os.path.lexists(ROOT / name))
    packed = subprocess.run(["tar", "--null", "-c", "-T", "-"], input=files.encode(), capture_output=True, check=True, cwd=ROOT).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)
    if any((folder / "changelogs/fragments").glob("*.yml")):
        galaxy = folder / "galaxy.yml"
        version = yaml.safe_load(galaxy.read_text())["version"]
        if version in (yaml.safe_load((folder / "changelogs/changelog.yaml").read_text())["releases"] or {}):
            # The commits since the last release are those of the next one.
            major, minor, _patch = version.split(".")
            galaxy.write_text(galaxy.read_text().replace(f"version: {version}", f"version: {major}.{int(minor) + 1}.0"))
        done = run("antsibull-changelog", "release", "--date", "2026-11-25", cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
    run("git", "init", "-q", ".", cwd=folder)
    commit(folder)
    return folder


def commit(folder: pathlib.Path) -> None:
    run("git", "add", "-A", cwd=folder)
    done = run("git", *AUTHOR, "commit", "-q", "-m", "all", cwd=folder)
    assert done.returncode == 0, done.stderr


def build(folder: pathlib.Path) -> pathlib.Path:
    """Return the collection's tarball of this checkout, built in `folder` by ansible-galaxy alone."""
    done = run("ansible-galaxy", "collection", "build", copy(folder / "checkout"), "--output-path", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (tarball,) = folder.glob("*.tar.gz")
    return tarball


def release(checkout: pathlib.Path, *options: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the tool behind `make release` in a checkout."""
    return run(tools() / "python", checkout / "tests/tools/release.py", *options, cwd=checkout, env={**os.environ, **(environment or {})})


def make_gpg_key(home: pathlib.Path) -> str:
    """Return the fingerprint of a new GPG key without passphrase in the keyring of `home`."""
    common.need_packages(PACKAGES)
    environment = {**os.environ, "GNUPGHOME": str(home)}
    made = run("gpg", "--batch", "--passphrase", "", "--quick-gen-key", "release@test.invalid", "ed25519", "sign", env=environment)
    assert made.returncode == 0, made.stderr
    listed = run("gpg", "--with-colons", "--list-secret-keys", env=environment).stdout
    return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))


def names(tarball: pathlib.Path) -> set[str]:
    with tarfile.open(tarball) as archive:
        return set(archive.getnames())
