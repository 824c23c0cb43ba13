# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pack is checked and signed."""

from __future__ import annotations

import io
import pathlib
import subprocess
import sys
import tarfile

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover import checker, pack
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

MADE = "2026-01-01T00:00:00Z"
MADE_S = 1767225600


def made(folder: pathlib.Path, name: str = "pack") -> pathlib.Path:
    path = folder / f"{name}.tar"
    with pack.Writer(path, name, MADE) as writer:
        writer.add("index.html", "<p>fine</p>")
        (folder / "journal").write_bytes(b"x" * 2000)
        writer.add_file("runs/r/journal", folder / "journal")
        writer.finish({"said": "ACCEPTED", "created_at": MADE, "blocks": {"su-1": "ACCEPTED"}})
    return path


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("jane", "john"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name], check=True)
    return {name: str(folder / name) for name in ("jane", "john")}


def signers(folder: pathlib.Path, keys: dict[str, str], *names: str, options: str = "") -> str:
    path = folder / "signers"
    path.write_text("".join(f"{name} {options}{pathlib.Path(f'{keys[name]}.pub').read_text()}" for name in names))
    return str(path)


def test_a_pack_that_nobody_signed_is_whole_and_says_so(tmp_path: pathlib.Path) -> None:
    checked = checker.check(str(made(tmp_path)))
    assert not checked.signatures and "NOT SIGNED" in checked.line(False) and len(checked.manifest["files"]) == 2
    assert checker.main([str(tmp_path / "pack.tar")]) == 1


def test_a_second_signature_touches_nothing_of_the_first(tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
    path = made(tmp_path)
    first = checker.sign(str(path), keys["jane"], "Jane", "vendor")
    before = path.read_bytes()[: first.end]
    second = checker.sign(str(path), keys["john"], "John", "customer", ["su-1"])
    assert path.read_bytes()[: first.end] == before
    assert [(one.signer, one.role, one.blocks) for one in second.signatures] == [("Jane", "vendor", ()), ("John", "customer", ("su-1",))]
    named = checker.check(str(path), signers(tmp_path, keys, "jane", "john"))
    assert [one.principal for one in named.signatures] == ["jane", "john"] and "who says to be Jane" in named.line(True)
    assert checker.main([str(path)]) == 0


def test_a_key_that_is_not_listed_or_not_valid_then_is_refused(tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
    path = made(tmp_path)
    checker.sign(str(path), keys["john"], "Jane")
    with pytest.raises(checker.Refused, match=r"is not in .*signers"):
        checker.check(str(path), signers(tmp_path, keys, "jane"))
    with pytest.raises(checker.Refused, match="was not valid then"):
        checker.check(str(path), signers(tmp_path, keys, "john", options='valid-before="20200101" '))
    with pytest.raises(checker.Refused, match="nowhere: No such file"):
        checker.check(str(path), str(tmp_path / "nowhere"))


def changed(path: pathlib.Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert data.count(old) == 1 and len(old) == len(new)
    path.write_bytes(data.replace(old, new))


def test_a_changed_file_is_named(tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
    path = made(tmp_path)
    checker.sign(str(path), keys["jane"], "Jane")
    changed(path, b"<p>fine</p>", b"<p>good</p>")
    with pytest.raises(checker.Refused, match=r"index\.html was changed"):
        checker.check(str(path))


def test_a_pack_whose_manifest_is_written_anew_does_not_fit_its_signature(tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
    path = made(tmp_path)
    checker.sign(str(path), keys["jane"], "Jane")
    changed(path, b'"said": "ACCEPTED"', b'"said": "ACCEPTEE"')
    with pytest.raises(checker.Refused, match="changed or packed again"):
        checker.check(str(path))


@pytest.mark.parametrize("left", [0, 511, 1024, 3000, -1, -1024])
def test_a_pack_that_was_cut_is_refused(tmp_path: pathlib.Path, keys: dict[str, str], left: int) -> None:
    path = made(tmp_path)
    checker.sign(str(path), keys["jane"], "Jane")
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(checker.Refused, match=r"cut|no pack"):
        checker.check(str(path))


def test_a_cut_at_any_block_is_refused_or_leaves_a_pack_without_the_later_signature(tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
    path = made(tmp_path)
    end = checker.check(str(path)).end
    checker.sign(str(path), keys["jane"], "Jane")
    data = path.read_bytes()
    for cut in range(0, len(data), checker.BLOCK):
        path.write_bytes(data[:cut] + bytes(1024))
        if cut == end:
            assert not checker.check(str(path)).signatures
        elif cut != len(data) - 1024:
            with pytest.raises(checker.Refused):
                checker.check(str(path))


def repacked(path: pathlib.Path, mode: str) -> None:
    with tarfile.open(path) as archive:
        files = [(member, archive.extractfile(member).read()) for member in archive.getmembers()]
    with tarfile.open(path, mode) as archive:
        for member, content in files:
            member.mtime += 1
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize(("mode", "words"), [("w", "packed again"), ("w:gz", "gzip"), ("w:xz", "xz")])
@pytest.mark.parametrize("is_signed", [False, True])
def test_a_pack_that_was_packed_again_is_refused(
    tmp_path: pathlib.Path, keys: dict[str, str], mode: str, words: str, is_signed: bool
) -> None:
    path = made(tmp_path)
    if is_signed:
        checker.sign(str(path), keys["jane"], "Jane")
    repacked(path, mode)
    with pytest.raises(checker.Refused, match=f"{words}|something was added"):
        checker.check(str(path))


def test_a_signature_of_another_pack_is_refused(tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
    path, other = made(tmp_path), made(tmp_path, "other")
    end = checker.check(str(path)).end
    signed = checker.sign(str(other), keys["jane"], "Jane")
    tail = other.read_bytes()[checker.check(str(made(tmp_path, "third"))).end :]
    assert signed.signatures
    path.write_bytes(path.read_bytes()[:end] + tail.replace(b"other/", b"pack//"[:5] + b"/"))
    with pytest.raises(checker.Refused):
        checker.check(str(path))


def test_a_time_that_cannot_be_is_refused(tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
    path = made(tmp_path)
    checker.sign(str(path), keys["jane"], "Jane", now=MADE_S + 100)
    with pytest.raises(checker.Refused, match="later than this machine's"):
        checker.check(str(path), now=MADE_S - 1000)
    whole = path.read_bytes()
    with pytest.raises(checker.Refused, match="this machine's clock is before"):
        checker.sign(str(path), keys["john"], "John", now=MADE_S + 50)
    assert len(checker.check(str(path)).signatures) == 1 and path.read_bytes() == whole


@pytest.mark.parametrize("name", ["../evil", "pack/../evil", "/etc/evil", "pack/a\\b"])
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: pathlib.Path, name: str) -> None:
    path = tmp_path / "pack.tar"
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo(name)
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    with pytest.raises(checker.Refused):
        checker.check(str(path))


def test_a_changed_byte_of_a_signed_pack_is_refused_wherever_it_is(tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
    path = made(tmp_path)
    checker.sign(str(path), keys["jane"], "Jane")
    data = bytearray(path.read_bytes())
    for place in range(0, len(data), 37):
        broken = bytearray(data)
        broken[place] ^= 0x5A
        path.write_bytes(broken)
        with pytest.raises(checker.Refused):
            checker.check(str(path))


def test_a_block_that_is_not_there_and_a_name_of_two_lines_are_not_signed(tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
    path = made(tmp_path)
    with pytest.raises(checker.Refused, match="no block 'su-9'; its blocks: su-1"):
        checker.sign(str(path), keys["jane"], "Jane", blocks=["su-9"])
    with pytest.raises(checker.Refused, match="expected some words in one line"):
        checker.sign(str(path), keys["jane"], "Jane\nJohn")
    with pytest.raises(checker.Refused, match="did not sign"):
        checker.sign(str(path), str(tmp_path / "no-key"), "Jane")
    assert not checker.check(str(path)).signatures


def test_a_pack_is_never_written_over_and_half_a_pack_is_not_left(tmp_path: pathlib.Path) -> None:
    path = made(tmp_path)
    before = path.read_bytes()
    with pytest.raises(RunError, match="never written over"):
        made(tmp_path)
    with pytest.raises(RunError, match="no-such-file"), pack.Writer(tmp_path / "half.tar", "half", MADE) as writer:
        writer.add_file("x", tmp_path / "no-such-file")
    assert path.read_bytes() == before and not [one for one in tmp_path.iterdir() if "half" in one.name]


def test_the_program_of_a_pack_needs_nothing_of_the_collection(tmp_path: pathlib.Path) -> None:
    path = made(tmp_path)
    program = tmp_path / "verify.py"
    program.write_bytes(pathlib.Path(checker.__file__).with_suffix(".py").read_bytes())
    done = subprocess.run([sys.executable, "-I", "-S", program, path], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and "whole, 2 files, ACCEPTED; NOT SIGNED" in done.stdout and not done.stderr
