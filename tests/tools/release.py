#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build, check and sign a release of the last commit: `make release GPG_KEY=FINGERPRINT` (docs/release.md)."""

from __future__ import annotations

import argparse
import fcntl
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import typing as t

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.executable).parent
# Virtual environments that all checkouts share, as for shared_venv.sh.
VENVS = pathlib.Path(os.environ.get("GPUFLEET_RIG_CACHE") or pathlib.Path.home() / ".cache/gpufleet-acceptance/rigs") / "venvs"
# ansible-test is left out: `make sanity` runs it on the same files.
IMPORTER = {"RUN_ANSIBLE_DOC": True, "RUN_ANSIBLE_LINT": True, "RUN_ANSIBLE_TEST": False, "CHECK_REQUIRED_TAGS": True}
PLOTLY = "plugins/plugin_utils/report/plotly/plotly-cartesian.min.js"


class ReleaseError(Exception):
    """What stands in the way of the release: what was found, what was expected, what to do."""


def run(*argv: t.Any, **options: t.Any) -> str:
    """Return the standard output of a command. Raise ReleaseError if it fails."""
    done = subprocess.run([str(word) for word in argv], check=False, capture_output=True, text=True, **options)
    if done.returncode:
        raise ReleaseError(f"{' '.join(map(str, argv))}: exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


# Conditions --------------------------------------------------------------------------------------------------------


def released_version(root: pathlib.Path) -> str:
    """Return the version in galaxy.yml, which must be the newest release of the changelog, with no fragment left over."""
    version = str(yaml.safe_load((root / "galaxy.yml").read_text(encoding="utf-8")).get("version"))
    releases = yaml.safe_load((root / "changelogs/changelog.yaml").read_text(encoding="utf-8")).get("releases") or {}
    newest = max(releases, key=_order, default="none")
    if newest != version:
        raise ReleaseError(
            f"galaxy.yml has version {version}, the newest release in changelogs/changelog.yaml is {newest}: expected the same;"
            " correct galaxy.yml, or run `antsibull-changelog release`"
        )
    fragments = sorted(path.name for path in (root / "changelogs/fragments").glob("*.y*ml"))
    if fragments:
        raise ReleaseError(
            f"changelogs/fragments has {len(fragments)} fragments that no release contains ({', '.join(fragments[:3])}):"
            " set the next version in galaxy.yml and run `antsibull-changelog release`"
        )
    return version


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("-")[0].split("."))


def refuse_changes(root: pathlib.Path) -> None:
    """Raise ReleaseError if the checkout differs from its last commit."""
    changed = run("git", "-C", root, "status", "--porcelain").splitlines()
    if changed:
        names = ", ".join(line[3:] for line in changed[:3])
        raise ReleaseError(f"{len(changed)} files differ from the last commit ({names}): commit or remove them")


def refuse_keys(gpg: str, ssh: str) -> None:
    """Raise ReleaseError unless the GPG key, and the SSH key if one is given, can sign."""
    if not gpg:
        raise ReleaseError("no key to sign with: make release GPG_KEY=FINGERPRINT (`gpg --list-secret-keys` lists them)")
    if subprocess.run(["gpg", "--batch", "--list-secret-keys", gpg], check=False, capture_output=True).returncode:
        raise ReleaseError(f"GPG_KEY={gpg}: no such secret key in the GPG keyring (`gpg --list-secret-keys` lists them)")
    if ssh and not pathlib.Path(ssh).is_file():
        raise ReleaseError(f"SSH_KEY={ssh}: no such file; expected a private SSH key")


# The tarball -------------------------------------------------------------------------------------------------------


def export(root: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Return `folder`, filled with the files of the last commit."""
    folder.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", str(root), "archive", "HEAD"], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="tar")
    return folder


def build(tree: pathlib.Path, folder: pathlib.Path, epoch: int) -> pathlib.Path:
    """Return the collection's tarball, built in `folder` from the files in `tree`: the same bytes for the same files and epoch."""
    folder.mkdir(parents=True, exist_ok=True)
    run(BIN / "ansible-galaxy", "collection", "build", tree, "--output-path", folder, env=_environment())
    (built,) = folder.glob("*.tar.gz")
    normalise(built, epoch)
    return built


def normalise(path: pathlib.Path, epoch: int) -> None:
    """Rewrite a collection's tarball with sorted names and `epoch` as every time. ansible-galaxy takes names in the order of the file
    system and times from the clock."""
    with tarfile.open(path) as archive:
        members = {member.name: (member, archive.extractfile(member) if member.isreg() else None) for member in archive}
        contents = {name: data.read() for name, (_member, data) in members.items() if data}
    listed = json.loads(contents["FILES.json"])
    listed["files"].sort(key=lambda entry: entry["name"])
    contents["FILES.json"] = json.dumps(listed, indent=1).encode()
    manifest = json.loads(contents["MANIFEST.json"])
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(contents["FILES.json"]).hexdigest()
    contents["MANIFEST.json"] = json.dumps(manifest, indent=1).encode()
    first = ("MANIFEST.json", "FILES.json")
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in (*first, *sorted(members.keys() - set(first))):
            member = members[name][0]
            member.mtime = epoch
            member.pax_headers = {}
            member.size = len(contents.get(name, b""))
            archive.addfile(member, io.BytesIO(contents[name]) if name in contents else None)
    path.write_bytes(gzip.compress(plain.getvalue(), mtime=epoch))


def manifest_of(tarball: pathlib.Path) -> bytes:
    """Return MANIFEST.json of a collection's tarball, which is what ansible-galaxy verifies signatures of."""
    with tarfile.open(tarball) as archive:
        data = archive.extractfile("MANIFEST.json")
        assert data
        return data.read()


def check_importable(tarball: pathlib.Path, folder: pathlib.Path) -> str:
    """Return what galaxy-importer prints of the tarball. Raise ReleaseError if it finds an error or a warning."""
    folder.mkdir()
    config = folder / "galaxy-importer.cfg"
    config.write_text("[galaxy-importer]\n" + "".join(f"{key} = {value}\n" for key, value in IMPORTER.items()), encoding="utf-8")
    environment = {**_environment(), "GALAXY_IMPORTER_CONFIG": str(config), "GALAXY_IMPORTER_ANSIBLE_LOCAL_TMP": str(folder)}
    argv = [sys.executable, "-m", "galaxy_importer.main", str(tarball)]
    for _attempt in range(3):  # the importer ends ansible-lint after three minutes, which a busy machine may need
        done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=folder, env=environment)
        output = done.stdout + done.stderr
        if "Timeout on call to ansible-lint" not in output:
            break
    bad = [line for line in output.splitlines() if line.startswith(("WARNING", "ERROR", "CRITICAL"))]
    if done.returncode or bad:
        raise ReleaseError("galaxy-importer refuses the tarball:\n" + ("\n".join(bad) or output[-2000:]))
    return output


def _environment() -> dict[str, str]:
    """Return an environment in which tools find one another, and no checkout of the collection."""
    left = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.startswith("ANSIBLE_")}
    return {**left, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


# What lies beside it -----------------------------------------------------------------------------------------------


def controller(requirements: pathlib.Path) -> pathlib.Path:
    """Return a virtual environment with the packages of `requirements` and nothing else. The first call for these pins builds it."""
    folder = VENVS / f"controller-{hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]}"
    stamp = folder / ".stamp"
    VENVS.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.is_file():
            run(sys.executable, "-m", "venv", "--clear", "--without-pip", folder)
            pip = (BIN / "pip", "--python", folder / "bin/python", "install", "--quiet", "--disable-pip-version-check")
            run(*pip, "-r", requirements)
            stamp.touch()
    return folder


def bill_of_materials(tree: pathlib.Path, version: str) -> str:
    """Return a CycloneDX document of the packages of requirements.txt and all that they need."""
    requirements = tree / "requirements.txt"
    python = controller(requirements) / "bin/python"
    scan = ("environment", "--output-reproducible", "--output-format", "JSON", python)
    document = json.loads(run(BIN / "cyclonedx-py", *scan, env=_environment()))
    reference = f"pkg:generic/gpufleet.acceptance@{version}"
    identity = {"type": "application", "bom-ref": reference, "name": "gpufleet.acceptance", "version": version, "purl": reference}
    document["metadata"]["component"] = identity
    document["components"].append(_plotly(tree))
    named = {re.split(r"[=\[;]", line)[0].lower() for line in requirements.read_text(encoding="utf-8").splitlines() if "==" in line}
    direct = [each["bom-ref"] for each in document["components"] if each["name"].lower() in named or each["purl"].startswith("pkg:npm/")]
    document["dependencies"].append({"ref": reference, "dependsOn": sorted(direct)})
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _plotly(tree: pathlib.Path) -> dict[str, t.Any]:
    """Return the component of the one library that the tarball itself contains."""
    data = (tree / PLOTLY).read_bytes()
    head = data[:200].decode()
    version = head.partition(" v")[2].split()[0]
    return {
        "type": "library",
        "bom-ref": f"pkg:npm/plotly.js-cartesian-dist-min@{version}",
        "name": "plotly.js-cartesian-dist-min",
        "version": version,
        "purl": f"pkg:npm/plotly.js-cartesian-dist-min@{version}",
        "licenses": [{"license": {"id": "MIT"}}],
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(data).hexdigest()}],
    }


def sign_manifest(tarball: pathlib.Path, key: str, signature: pathlib.Path) -> None:
    """Write the detached signature that `ansible-galaxy collection install --signature` verifies."""
    run("gpg", "--yes", "--armor", "--detach-sign", "--local-user", key, "--output", signature, "-", input=manifest_of(tarball).decode())


def signed_project(tree: pathlib.Path, key: str, archive: pathlib.Path, epoch: int) -> None:
    """Write an archive of the repository that `ansible-sign project gpg-verify` accepts: what AWX takes as a project."""
    # Without GPG_TTY it asks for the terminal's name, and a build machine has none.
    run(BIN / "ansible-sign", "project", "gpg-sign", "--fingerprint", key, tree, env={"GPG_TTY": "", **_environment()})

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
        return member

    with tarfile.open(archive, "w:gz") as files:
        files.add(tree, archive.name.removesuffix(".tar.gz"), filter=plain)


def checksums(folder: pathlib.Path) -> str:
    """Return a line for `sha256sum -c` for each file of a folder."""
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir()))


# -------------------------------------------------------------------------------------------------------------------


def release(root: pathlib.Path, gpg: str, ssh: str, say: t.Callable[[str], None]) -> pathlib.Path:
    """Return the folder of the release that was built, checked and signed. Nothing is written there before all checks have passed."""
    refuse_changes(root)
    version = released_version(root)
    refuse_keys(gpg, ssh)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or run("git", "-C", root, "log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory(prefix="gpufleet-release-") as name:
        work = pathlib.Path(name)
        tree, again = export(root, work / "tree"), export(root, work / "again")
        out = work / "out"
        tarball = build(tree, out, epoch)
        if build(again, work / "second", epoch).read_bytes() != tarball.read_bytes():
            raise ReleaseError("two builds of the same commit differ: see tests/tools/release.py, normalise()")
        say(f"{tarball.name}: {tarball.stat().st_size / 1e6:.1f} MB, the same bytes in two builds")
        check_importable(tarball, work / "importer")
        say("galaxy-importer: no error, no warning")
        stem = f"gpufleet-acceptance-{version}"
        (out / f"{stem}.cdx.json").write_text(bill_of_materials(tree, version), encoding="utf-8")
        say("bill of materials: written")
        sign_manifest(tarball, gpg, out / f"{stem}.MANIFEST.json.asc")
        signed_project(tree, gpg, out / f"{stem}-project.tar.gz", epoch)
        (out / "signing-key.asc").write_text(run("gpg", "--armor", "--export", gpg), encoding="ascii")
        sums = out / "SHA256SUMS"
        sums.write_text(checksums(out), encoding="ascii")
        if ssh:
            run("ssh-keygen", "-Y", "sign", "-f", ssh, "-n", "file", sums)
        say("signatures: written")
        dist = root / "dist" / version
        shutil.rmtree(dist, ignore_errors=True)
        shutil.copytree(out, dist)
    return dist


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpg-key", default="", help="fingerprint of the GPG key that signs")
    parser.add_argument("--ssh-key", default="", help="file of a private SSH key that signs the checksums too")
    arguments = parser.parse_args()
    begin = time.monotonic()
    try:
        dist = release(ROOT, arguments.gpg_key, arguments.ssh_key, lambda line: print(line, flush=True))
    except ReleaseError as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    print(f"{dist.relative_to(ROOT)} is ready ({time.monotonic() - begin:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
