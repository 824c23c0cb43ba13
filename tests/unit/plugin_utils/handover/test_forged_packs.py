# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packs that somebody has forged are refused in one sentence each, by the program that goes with a pack too."""

from __future__ import annotations

import hashlib
import io
import json
import pathlib
import subprocess
import tarfile
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover import checker

MADE, MADE_S = "2026-01-01T00:00:00Z", 1767225600
Files = t.List[t.Tuple[str, bytes]]


def manifest(members: Files, **fields: t.Any) -> bytes:
    """A manifest that fits the files, but for `fields`."""
    listed = [{"path": path, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()} for path, content in members]
    about = {"schema": checker.PACK_SCHEMA, "name": "pack", "said": "ACCEPTED", "created_at": MADE, "blocks": {"su-1": "ACCEPTED"}}
    return json.dumps({**about, "files": listed, **fields}).encode()


def written(folder: pathlib.Path, members: Files, name: str = "pack") -> str:
    """An archive of these members, as the writer of packs makes it."""
    path = folder / "pack.tar"
    with open(path, "wb") as target:
        for below, content in members:
            checker.write_file(target, name, below, content, MADE_S)
        checker.write_end(target)
    return str(path)


def forged(folder: pathlib.Path, *, members: Files | None = None, behind: Files | None = None, **fields: t.Any) -> str:
    given = [("index.html", b"fine")] if members is None else members
    return written(folder, [*given, (checker.MANIFEST, manifest(given, **fields)), *(behind or [])])


def refused(path: str, words: str) -> None:
    with pytest.raises(checker.Refused, match=words) as error:
        checker.check(path)
    assert str(error.value).isprintable(), "what the pack says cannot steer a terminal or add a line"
    assert checker.main([path]) == 1


def test_what_is_not_forged_is_whole(tmp_path: pathlib.Path) -> None:
    assert checker.check(forged(tmp_path)).manifest["said"] == "ACCEPTED"


DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"files": [{"path": "x\n/pack.tar: whole, signed by Jane", "bytes": 1, "sha256": DIGEST}]}, "lists no files"),
        ({"files": [{"path": "index.html", "bytes": 4, "sha256": "\x1b[32mok"}]}, "lists no files"),
        ({"files": [{"path": "../index.html", "bytes": 4, "sha256": DIGEST}]}, "lists no files"),
        ({"files": [{"path": "index.html", "bytes": True, "sha256": DIGEST}]}, "lists no files"),
        ({"files": []}, "index.html is not listed"), ({"files": {}}, "lists no files"),
        ({"name": "other"}, "is of another pack"), ({"name": None}, "is of another pack"),
        ({"blocks": 7}, "state of each block"), ({"blocks": [[1]]}, "state of each block"), ({"blocks": {"a": 1}}, "state of each block"),
        ({"blocks": {"a\nb": "ACCEPTED"}}, "state of each block"), ({"blocks": None}, "state of each block"),
        ({"said": "ACCEPTED\nsigned by Jane"}, "what the pack is about"), ({"said": "\u202eDETPECCA"}, "what the pack is about"),
        ({"said": "ACC\u200bEPTED"}, "what the pack is about"), ({"said": 7}, "what the pack is about"),
        ({"created_at": "2999-01-01T00:00:00Z"}, "one of the two clocks is wrong"), ({"created_at": 7}, "expected one like"),
        ({"created_at": "yesterday\n"}, "expected one like"), ({"schema": "pack/v9"}, "is not of the form"),
        ({"created_at": "2025-01-01T00:00:00Z"}, "packed again"),
    ],
)  # fmt: skip
def test_a_manifest_that_says_other_things_is_refused(tmp_path: pathlib.Path, fields: dict[str, t.Any], words: str) -> None:
    refused(forged(tmp_path, **fields), words)


def test_two_manifests_are_refused_wherever_the_second_one_is(tmp_path: pathlib.Path) -> None:
    files: Files = [("index.html", b"fine")]
    other = (checker.MANIFEST, manifest(files, said="NOT ACCEPTED"))
    refused(forged(tmp_path, members=[*files, other]), "twice")
    refused(forged(tmp_path, members=files, behind=[other]), "twice")
    refused(forged(tmp_path, members=files, behind=[("runs/MANIFEST.json", b"{}")]), "is no part of a signature")


def test_members_that_changed_places_are_refused(tmp_path: pathlib.Path) -> None:
    files: Files = [("a", b"one!"), ("b", b"two!")]
    swapped: Files = [("a", b"two!"), ("b", b"one!")]
    refused(written(tmp_path, [*swapped, (checker.MANIFEST, manifest(files))]), "a was changed")
    refused(written(tmp_path, [*files, files[0], (checker.MANIFEST, manifest(files))]), "twice")
    refused(written(tmp_path, [files[0], (checker.MANIFEST, manifest(files)), files[1]]), "b is missing, or does not stand before")


def test_a_signature_before_the_manifest_is_refused_before_anybody_signs(tmp_path: pathlib.Path) -> None:
    refused(forged(tmp_path, members=[("index.html", b"fine"), ("signatures/01.json", b"{}")]), "where no signature can be")


def special(kind: bytes, **fields: t.Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo("pack/evil")
    info.type = kind
    for name, value in fields.items():
        setattr(info, name, value)
    return info


@pytest.mark.parametrize(
    "member",
    [
        special(tarfile.SYMTYPE, linkname="/etc/passwd"), special(tarfile.LNKTYPE, linkname="pack/index.html"), special(tarfile.FIFOTYPE),
        special(tarfile.DIRTYPE), special(tarfile.CHRTYPE), special(tarfile.XGLTYPE), special(tarfile.GNUTYPE_SPARSE),
    ],
    ids=["symlink", "hard link", "fifo", "folder", "device", "global header", "sparse file"],
)  # fmt: skip
def test_a_member_that_is_no_plain_file_is_refused(tmp_path: pathlib.Path, member: tarfile.TarInfo) -> None:
    path = tmp_path / "pack.tar"
    with tarfile.open(path, "w") as archive:
        archive.addfile(member)
        info = tarfile.TarInfo("pack/index.html")
        info.size = 4
        archive.addfile(info, io.BytesIO(b"fine"))
    refused(str(path), "cut, or|no pack")


@pytest.mark.parametrize("size", [-512, -1, 1 << 40, (1 << 63) - 1])
def test_a_size_that_cannot_be_is_refused_at_once(tmp_path: pathlib.Path, size: int) -> None:
    header = bytearray(special(tarfile.REGTYPE).tobuf(tarfile.GNU_FORMAT))
    header[124:136] = (0xFF if size < 0 else 0x80).to_bytes(1, "big") + (size % (1 << 88)).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    (tmp_path / "pack.tar").write_bytes(bytes(header) + bytes(2048))
    refused(str(tmp_path / "pack.tar"), "cut")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("jane", "john"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "jane", "-f", folder / name], check=True)
    return {name: str(folder / name) for name in ("jane", "john")}


def signed(folder: pathlib.Path, key: str, **fields: t.Any) -> str:
    """A pack with a statement that is not checked before it is signed."""
    path = forged(folder)
    end = checker.check(path).end
    about = {"schema": checker.STATEMENT_SCHEMA, "signer": "Jane", "role": "", "blocks": [], "signed_at": MADE, "bytes": end}
    about["sha256"] = hashlib.sha256(pathlib.Path(path).read_bytes()[:end]).hexdigest()
    text = json.dumps({**about, **fields}).encode()
    command = ["ssh-keygen", "-Y", "sign", "-f", key, "-n", checker.NAMESPACE]
    seal = subprocess.run(command, input=text, capture_output=True, check=True).stdout
    return forged(folder, behind=[("signatures/01.json", text), ("signatures/01.json.sig", seal)])


def test_another_key_with_the_same_name_is_refused_by_a_list_of_signers(tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
    path = signed(tmp_path, keys["john"])
    assert checker.check(path).signatures[0].signer == "Jane"
    (tmp_path / "signers").write_text(f"jane {pathlib.Path(keys['jane'] + '.pub').read_text()}")
    with pytest.raises(checker.Refused, match="is not in"):
        checker.check(path, str(tmp_path / "signers"))
    for text in ("", "jane", "\x00\xff", "jane cert-authority ssh-ed25519 x"):
        (tmp_path / "signers").write_text(text)
        with pytest.raises(checker.Refused, match="is not in"):
            checker.check(path, str(tmp_path / "signers"))
    with pytest.raises(checker.Refused, match="Is a directory"):
        checker.check(path, str(tmp_path))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"blocks": ["su-9"]}, "the block 'su-9', which the pack does not have"), ({"blocks": "su-1"}, "plain words"),
        ({"blocks": [["su-1"]]}, "plain words"), ({"signer": "Jane\nJohn"}, "plain words"), ({"signer": None}, "plain words"),
        ({"role": 7}, "plain words"), ({"signed_at": "2025-12-31T23:59:59Z"}, "before what it covers"),
        ({"signed_at": "2999-01-01T00:00:00Z"}, "one of the two clocks"), ({"bytes": 512}, "of another pack"),
        ({"sha256": DIGEST}, "of another pack"), ({"schema": "x"}, "is not of the form"),
    ],
)  # fmt: skip
def test_a_statement_that_does_not_fit_is_refused_although_its_key_is_good(
    tmp_path: pathlib.Path, keys: dict[str, str], fields: dict[str, t.Any], words: str
) -> None:
    refused(signed(tmp_path, keys["jane"], **fields), words)


def test_a_countersignature_does_not_cover_what_was_changed_under_it(tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
    path = forged(tmp_path)
    checker.sign(path, keys["jane"], "Jane", now=MADE_S)
    both = checker.sign(path, keys["john"], "John", now=MADE_S)
    whole = pathlib.Path(path).read_bytes()
    first = both.signatures and whole.index(b"pack/signatures/01.json")
    second = whole.index(b"pack/signatures/02.json")
    # Without the first signature, with the second one under the name of the first, and with both over another index.
    for changed in (
        whole[:first] + whole[second:], whole[:first] + whole[second:].replace(b"02.json", b"01.json"), whole.replace(b"fine", b"evil"),
    ):  # fmt: skip
        pathlib.Path(path).write_bytes(changed)
        refused(path, "changed|of another pack|packed again|no part of a signature|cut")


def test_a_line_names_the_state_of_each_block_that_was_signed_for(tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
    path = forged(tmp_path, blocks={"su-1": "ACCEPTED", "su-2": "NOT ACCEPTED"})
    assert "signed by Jane for su-2 (NOT ACCEPTED) at" in checker.sign(path, keys["jane"], "Jane", "", ["su-2"], MADE_S).line(True)


def test_what_is_no_file_is_one_sentence(tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "noise").write_bytes(bytes(range(256)) * 64)
    (tmp_path / "zeros").write_bytes(bytes(10240))
    for name in ("empty", "noise", "zeros", "missing", "."):
        with pytest.raises(checker.Refused, match=r"no pack|cut|No such file|Is a directory"):
            checker.check(str(tmp_path / name))
