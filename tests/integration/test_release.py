# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""`make release`: what it writes, that others can verify it, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import tempfile
import typing as t

import pytest
from harness import releases
from harness.releases import run


@dataclasses.dataclass
class Released:
    checkout: pathlib.Path
    dist: pathlib.Path
    version: str
    home: pathlib.Path
    key: str
    ssh: pathlib.Path

    @property
    def stem(self) -> str:
        return f"gpufleet-acceptance-{self.version}"

    @property
    def tarball(self) -> pathlib.Path:
        return self.dist / f"{self.stem}.tar.gz"

    @property
    def signature(self) -> pathlib.Path:
        return self.dist / f"{self.stem}.MANIFEST.json.asc"

    def gpg(self, *argv: t.Any) -> None:
        done = run("gpg", *argv, env={**os.environ, "GNUPGHOME": str(self.home)})
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Released]:
    """A release as `make release` writes it, signed with a GPG key and an SSH key."""
    folder = tmp_path_factory.mktemp("release")
    with tempfile.TemporaryDirectory(prefix="gpg-") as name:  # short: the path of a socket has at most 107 characters
        home = pathlib.Path(name)
        key = releases.make_gpg_key(home)
        ssh = folder / "ssh-key"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "release@test.invalid", "-f", ssh)
        checkout = releases.copy(folder / "checkout")
        try:
            # `make lint` lints the same files; a long test below has the importer do it too.
            environment = {"GNUPGHOME": name, "GALAXY_IMPORTER_RUN_ANSIBLE_LINT": "false"}
            done = releases.release(checkout, "--gpg-key", key, "--ssh-key", str(ssh), environment=environment)
            assert done.returncode == 0, done.stdout + done.stderr
            assert "the same bytes in two builds" in done.stdout and "galaxy-importer: no error, no warning" in done.stdout
            (dist,) = (checkout / "dist").iterdir()
            yield Released(checkout, dist, dist.name, home, key, ssh)
        finally:
            run("gpgconf", "--homedir", home, "--kill", "all")


def test_the_tarball_has_what_runs_and_nothing_of_the_checkout(released: Released) -> None:
    names = releases.names(released.tarball)
    assert {"MANIFEST.json", "CHANGELOG.rst", "LICENSE", "playbooks/acceptance.yml", "inventories/demo/hosts.yml"} <= names
    assert not [name for name in names if name.startswith((".ci", ".git", "dist", "tests/unit", "tests/fixtures", "tests/tools"))]
    assert {name.split("/")[2] for name in names if name.startswith("tests/rigs/")} == {"simulated"}
    assert not [name for name in names if name.startswith("tests/") and name.endswith((".py", ".c"))]
    assert released.tarball.stat().st_size < 4_000_000


def test_a_later_build_elsewhere_has_the_same_bytes(released: Released, tmp_path: pathlib.Path) -> None:
    code = (
        "import pathlib, sys; sys.path.insert(0, 'tests/tools'); import release\n"
        "tree = release.export(pathlib.Path('.'), pathlib.Path(sys.argv[1]) / 'tree')\n"
        "epoch = int(release.run('git', 'log', '-1', '--format=%ct'))\n"
        "print(release.build(tree, pathlib.Path(sys.argv[1]), epoch))\n"
    )
    environment = {**os.environ, "TZ": "Asia/Tokyo"}
    done = run(releases.tools() / "python", "-c", code, tmp_path, cwd=released.checkout, env=environment, umask=0o077)
    assert done.returncode == 0, done.stderr
    assert pathlib.Path(done.stdout.strip()).read_bytes() == released.tarball.read_bytes()


@pytest.mark.long
def test_the_importer_finds_nothing_with_all_its_linters(released: Released, tmp_path: pathlib.Path) -> None:
    code = (
        "import pathlib, sys; sys.path.insert(0, 'tests/tools'); import release\n"
        "print(release.check_importable(*map(pathlib.Path, sys.argv[1:])))\n"
    )
    done = run(releases.tools() / "python", "-c", code, released.tarball, tmp_path / "importer", cwd=released.checkout)
    assert done.returncode == 0 and "ansible-lint run complete" in done.stdout, done.stdout[-2000:] + done.stderr


def galaxy(folder: pathlib.Path, *argv: t.Any) -> tuple[int, str]:
    """Run ansible-galaxy where no checkout of the collection can be found. Return the exit status and all output."""
    left = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHONPATH"))}
    done = run(releases.tools() / "ansible-galaxy", "collection", *argv, cwd=folder, env={**left, "HOME": str(folder)})
    return done.returncode, done.stdout + done.stderr


def verify(released: Released, folder: pathlib.Path, signature: pathlib.Path) -> tuple[int, str]:
    """Verify what is installed in `folder` as docs/release.md says. Return the exit status and all output."""
    keyring = folder / "gpufleet.kbx"
    released.gpg("--no-default-keyring", "--keyring", keyring, "--import", released.dist / "signing-key.asc")
    signed = ("--signature", f"file://{signature}", "--keyring", keyring, "--required-valid-signature-count", "+1")
    return galaxy(folder, "verify", "gpufleet.acceptance", "--offline", *signed, "-p", folder)


@pytest.fixture
def collections(released: Released, tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder into which the tarball is installed."""
    status, output = galaxy(tmp_path, "install", released.tarball, "--offline", "-p", tmp_path)
    assert status == 0, output
    return tmp_path


def test_ansible_galaxy_verifies_signature_and_files(released: Released, collections: pathlib.Path) -> None:
    status, output = verify(released, collections, released.signature)
    assert status == 0 and "Successfully verified" in output, output
    with (collections / "ansible_collections/gpufleet/acceptance/playbooks/acceptance.yml").open("a") as playbook:
        playbook.write("# changed\n")
    status, output = verify(released, collections, released.signature)
    assert status != 0 and "playbooks/acceptance.yml" in output, output


def test_ansible_galaxy_refuses_the_signature_of_something_else(released: Released, collections: pathlib.Path) -> None:
    other = collections / "other"
    other.write_text("{}")
    released.gpg("--armor", "--detach-sign", "--local-user", released.key, other)
    status, output = verify(released, collections, other.with_name("other.asc"))
    assert status != 0 and "Signature verification failed" in output, output


def test_gpg_verifies_the_manifest_before_anything_is_installed(released: Released, tmp_path: pathlib.Path) -> None:
    (tmp_path / "MANIFEST.json").write_text(run("tar", "-xzOf", released.tarball, "MANIFEST.json").stdout)
    released.gpg("--verify", released.signature, tmp_path / "MANIFEST.json")


def test_checksums_are_signed_with_ssh(released: Released, tmp_path: pathlib.Path) -> None:
    assert run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=released.dist).returncode == 0
    allowed = tmp_path / "allowed_signers"
    allowed.write_text(f"release@test.invalid {released.ssh.with_suffix('.pub').read_text()}")
    sums = (released.dist / "SHA256SUMS").read_text()
    signature = released.dist / "SHA256SUMS.sig"
    verify = ("ssh-keygen", "-Y", "verify", "-f", allowed, "-I", "release@test.invalid", "-n", "file", "-s", signature)
    assert run(*verify, input=sums).returncode == 0
    assert run(*verify, input=sums.replace("0", "1")).returncode != 0


def test_the_project_is_signed_as_awx_verifies_it(released: Released, tmp_path: pathlib.Path) -> None:
    run("tar", "-xzf", released.dist / f"{released.stem}-project.tar.gz", "-C", tmp_path)
    project = tmp_path / f"{released.stem}-project"
    verify = (releases.tools() / "ansible-sign", "project", "gpg-verify", "--gnupg-home", released.home, project)
    done = run(*verify)
    assert done.returncode == 0, done.stdout + done.stderr
    (project / "playbooks/acceptance.yml").write_text("---\n")
    assert run(*verify).returncode != 0


def test_the_bill_of_materials_names_what_the_controller_needs(released: Released) -> None:
    document = json.loads((released.dist / f"{released.stem}.cdx.json").read_text())
    assert document["bomFormat"] == "CycloneDX" and document["metadata"]["component"]["version"] == released.version
    found = {component["name"].lower(): component for component in document["components"]}
    pinned = re.findall(r"^([\w.-]+)(?:\[\w+\])?==([^;\s]+)", (released.checkout / "requirements.txt").read_text(), re.MULTILINE)
    assert pinned
    for name, version in pinned:
        assert name == "ansible-core" or found[name.lower()]["version"] == version
        assert found[name.lower()].get("licenses"), name
    assert {"ansible-core", "cffi", "plotly.js-cartesian-dist-min"} <= found.keys() and "pip" not in found
    (own,) = [entry for entry in document["dependencies"] if entry["ref"] == document["metadata"]["component"]["bom-ref"]]
    assert len(own["dependsOn"]) == len({name for name, _version in pinned}) + 1


@pytest.fixture
def checkout(released: Released, tmp_path: pathlib.Path) -> pathlib.Path:
    """A checkout of a state that can be released, to be spoilt."""
    run("git", "clone", "-q", released.checkout, tmp_path / "checkout")
    return tmp_path / "checkout"


def refusal(checkout: pathlib.Path, *options: str) -> str:
    """Return the one line that says why there is no release."""
    done = releases.release(checkout, *options)
    assert done.returncode == 1 and not (checkout / "dist").exists(), done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_what_stands_in_the_way_is_said_in_one_line(checkout: pathlib.Path) -> None:
    assert "make release GPG_KEY=FINGERPRINT" in refusal(checkout)
    assert "GPG_KEY=nobody@test.invalid: no such secret key" in refusal(checkout, "--gpg-key", "nobody@test.invalid")
    (checkout / "stray.txt").write_text("")
    assert "1 files differ from the last commit (stray.txt)" in refusal(checkout)
    (checkout / "stray.txt").unlink()
    (checkout / "changelogs/fragments").mkdir(exist_ok=True)
    fragment = checkout / "changelogs/fragments/99-late.yml"
    fragment.write_text("---\nbugfixes:\n  - something.\n")
    releases.commit(checkout)
    assert "1 fragments that no release contains (99-late.yml)" in refusal(checkout)
    fragment.unlink()
    galaxy = checkout / "galaxy.yml"
    galaxy.write_text(re.sub(r"(?m)^version: .*", "version: 7.0.0", galaxy.read_text()))
    releases.commit(checkout)
    assert "galaxy.yml has version 7.0.0, the newest release in changelogs/changelog.yaml is" in refusal(checkout)
