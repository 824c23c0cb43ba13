# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The form of a hand-over pack, its check and its signatures. Each pack holds a copy of this file as verify.py:

    python3 verify.py PACK.tar [--signers FILE]                         say in one line whether the pack is whole, who signed it and when
    python3 verify.py PACK.tar --sign KEY --as NAME [--role customer]   sign it, or add a second signature

It needs Python 3.8 or later, and for signatures ssh-keygen of OpenSSH 8.1 or later (8.9 with --signers).

A pack is a tar archive that is not compressed: NAME/FILE ..., then NAME/MANIFEST.json with the size and SHA-256 of each file before it,
then the signatures. A signature is NAME/signatures/01.json, a statement with the SHA-256 of all bytes of the archive before it, and
NAME/signatures/01.json.sig, which `ssh-keygen -Y sign` makes of the statement. So a later signature covers the earlier ones, and touches
none.

This plugin util is PRIVATE to the collection; it imports nothing but the standard library.
"""

from __future__ import annotations

import argparse
import calendar
import dataclasses
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import typing as t

MANIFEST, SIGNATURES, CHECKER = "MANIFEST.json", "signatures/", "verify.py"
PACK_SCHEMA, STATEMENT_SCHEMA = "gpufleet.acceptance/pack/v1", "gpufleet.acceptance/signature/v1"
NAMESPACE = "handover@gpufleet.acceptance"
TIME = "%Y-%m-%dT%H:%M:%SZ"
BLOCK, _END = 512, 1024
# Bytes of a statement, a signature and a manifest that are read: nobody writes larger ones.
_LARGEST_STATEMENT, _LARGEST_MANIFEST = 1 << 16, 1 << 28
# Seconds that the clocks of two machines may differ.
_CLOCK_S = 600
_SSH_TIMEOUT_S = 60
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
# One line in which everything can be seen: no control characters, none of direction and none without width.
_FIELD = re.compile(r"[^\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]{1,200}\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class Refused(Exception):
    """A pack that is not as it was written or signed, or that cannot be checked. The text is a sentence that names the file."""


@dataclasses.dataclass(frozen=True)
class Signature:
    """A good signature. `signer`, `role` and `blocks` are what the signer says, `principal` is who a list of signers says that the key is,
    empty if there was no list; `key` is its fingerprint, and `at` the signer's time in seconds since 1970."""

    signer: str
    role: str
    blocks: tuple[str, ...]
    at: int
    key: str
    principal: str = ""

    def words(self, states: dict[str, t.Any]) -> str:
        """Return who signed, when, for which blocks, each with its state, and by which key."""
        role = f" as {self.role}" if self.role else ""
        blocks = f" for {', '.join(f'{block} ({states.get(block)})' for block in self.blocks)}" if self.blocks else ""
        who = self.principal or self.signer
        says = f", who says to be {self.signer}" if self.principal and self.principal != self.signer else ""
        return f"{who}{says}{role}{blocks} at {time.strftime(TIME, time.gmtime(self.at))} (key {self.key})"


@dataclasses.dataclass(frozen=True)
class Pack:
    """A pack that is whole, with its signatures, the first first. `end` is where the next signature begins, in bytes."""

    path: str
    name: str
    manifest: dict[str, t.Any]
    signatures: tuple[Signature, ...]
    end: int

    def line(self, is_compared: bool) -> str:
        """Return what `verify` prints. `is_compared` says whether there was a list of signers."""
        whole = f"{self.path}: whole, {len(self.manifest['files'])} files, {self.manifest['said']}"
        if not self.signatures:
            return f"{whole}; NOT SIGNED: nobody vouches for it"
        states = self.manifest.get("blocks", {})
        signed = "; ".join(f"{'then ' if place else ''}signed by {one.words(states)}" for place, one in enumerate(self.signatures))
        return f"{whole}; {signed}" + (
            "" if is_compared else "; compare the keys with those that you were told, or name them with --signers"
        )


# Reading ----------------------------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Member:
    path: str  # below the folder of the pack
    info: tarfile.TarInfo
    start: int  # of its header
    end: int


def check(path: str, signers: str | None = None, now: float | None = None) -> Pack:
    """Return a pack that is whole and whose signatures are good. `signers` is a file of allowed signers (ssh-keygen(1)): each key must be
    in it then. Raise Refused for a pack that is not whole, and for a signature that is not good."""
    try:
        with open(path, "rb") as source:
            return _check(path, source, signers, time.time() if now is None else now)
    except OSError as error:
        raise Refused(f"{error.filename or path}: {error.strerror or error}") from error


def _check(path: str, source: t.BinaryIO, signers: str | None, now: float) -> Pack:
    name, members, end = _members(path, source)
    of_path = {member.path: member for member in members}
    if MANIFEST not in of_path:
        raise Refused(f"{path}: it was cut, or is no pack: {MANIFEST} is missing")
    place = members.index(of_path[MANIFEST])
    manifest = _manifest(path, name, _bytes(source, of_path[MANIFEST], _LARGEST_MANIFEST))
    created = _seconds(path, MANIFEST, manifest.get("created_at"), now)
    _check_files(path, source, manifest, members[:place])
    _check_headers(path, source, name, members[: place + 1], created)
    signatures = _signatures(path, source, manifest, members[place + 1 :], created, signers, now)
    return Pack(path, name, manifest, tuple(signatures), end)


def _members(path: str, source: t.BinaryIO) -> tuple[str, list[_Member], int]:
    """Return the name of the pack, its members in their order, and where the last of them ends."""
    start = source.read(6)
    for magic, word in ((b"\x1f\x8b", "gzip"), (b"PK", "zip"), (b"BZh", "bzip2"), (b"\xfd7zXZ", "xz"), (b"\x28\xb5\x2f\xfd", "zstd")):
        if start.startswith(magic):
            raise Refused(f"{path}: it was packed again ({word}); a pack is a tar archive that is not compressed")
    size = source.seek(0, os.SEEK_END)
    source.seek(0)
    members, end, names = [], 0, set()
    try:
        with tarfile.open(fileobj=source, mode="r:") as archive:
            for info in archive:
                stop = info.offset_data + -(-info.size // BLOCK) * BLOCK
                if not info.isreg() or info.offset != end or info.size < 0 or stop > size:
                    raise Refused(f"{path}: it was cut, or packed again: {info.name!r} is not a whole file in its place")
                name, _slash, below = info.name.partition("/")
                if not _NAME.match(name) or not is_path(below):
                    raise Refused(f"{path}: {info.name!r} is no name of a file in a pack")
                names.add(name)
                members.append(_Member(below, info, end, stop))
                end = stop
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
        raise Refused(f"{path}: it was cut, or is no pack: {error}") from error
    if not members or len(names) != 1:
        raise Refused(f"{path}: it is no pack: expected one folder with files, found {len(names)}")
    if len({member.path for member in members}) != len(members):
        raise Refused(f"{path}: a file is in it twice")
    source.seek(end)
    rest = source.read(_END + 1)
    if rest != bytes(_END):
        raise Refused(f"{path}: it was cut, or something was added behind {members[-1].path}")
    return names.pop(), members, end


def is_path(below: str) -> bool:
    """Return True for a path that no extraction can lead out of its folder."""
    parts = below.split("/")
    return bool(below) and not any(part in ("", ".", "..") or "\\" in part or not part.isprintable() for part in parts)


def _bytes(source: t.BinaryIO, member: _Member, most: int) -> bytes:
    if member.info.size > most:
        raise Refused(f"{member.path}: it has {member.info.size} bytes, more than {most}")
    source.seek(member.info.offset_data)
    return source.read(member.info.size)


def _json(path: str, name: str, text: bytes, schema: str) -> dict[str, t.Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path}: {name} is no JSON: {error}") from error
    if not isinstance(value, dict) or value.get("schema") != schema:
        raise Refused(f"{path}: {name} is not of the form {schema}")
    return value


def _manifest(path: str, name: str, text: bytes) -> dict[str, t.Any]:
    manifest = _json(path, MANIFEST, text, PACK_SCHEMA)
    files = manifest.get("files")
    if not isinstance(files, list) or not all(map(_is_listed, files)):
        raise Refused(f"{path}: {MANIFEST} lists no files with path, bytes and sha256")
    if manifest.get("name") != name:
        raise Refused(f"{path}: its folder is {name}, and {MANIFEST} is of another pack")
    blocks = manifest.get("blocks", {})
    if not isinstance(blocks, dict) or not all(is_field(text) for item in blocks.items() for text in item):
        raise Refused(f"{path}: {MANIFEST} does not say the state of each block")
    if not is_field(manifest.get("said")):
        raise Refused(f"{path}: {MANIFEST} does not say what the pack is about")
    return manifest


def _is_listed(file: t.Any) -> bool:
    """Return True for a file as a manifest lists it."""
    return (
        isinstance(file, dict) and isinstance(file.get("path"), str) and is_path(file["path"])
        and isinstance(file.get("bytes"), int) and not isinstance(file["bytes"], bool)
        and isinstance(file.get("sha256"), str) and bool(_DIGEST.match(file["sha256"]))
    )  # fmt: skip


def is_field(text: t.Any) -> bool:
    """Return True for some words in one line in which everything can be seen."""
    return isinstance(text, str) and bool(_FIELD.match(text))


def _seconds(path: str, name: str, text: t.Any, now: float) -> int:
    try:
        at = calendar.timegm(time.strptime(str(text), TIME))
    except ValueError:
        raise Refused(f"{path}: {name}: found the time {text!r}, expected one like 2026-01-01T00:00:00Z") from None
    if at > now + _CLOCK_S:
        raise Refused(f"{path}: {name} has the time {text}, which is later than this machine's: one of the two clocks is wrong")
    return at


def _check_files(path: str, source: t.BinaryIO, manifest: dict[str, t.Any], members: t.Sequence[_Member]) -> None:
    present = {member.path: member for member in members}
    reserved = sorted(member for member in present if member.startswith(SIGNATURES))
    if reserved:
        raise Refused(f"{path}: {reserved[0]} stands before {MANIFEST}, where no signature can be")
    for file in manifest["files"]:
        member = present.pop(file["path"], None)
        if member is None:
            raise Refused(f"{path}: {file['path']} is missing, or does not stand before {MANIFEST}")
        digest = _digest(source, member.info.offset_data, member.info.offset_data + member.info.size)
        if member.info.size != file["bytes"] or digest != file["sha256"]:
            raise Refused(f"{path}: {file['path']} was changed: its SHA-256 is {digest}, in {MANIFEST} {file['sha256']}")
    if present:
        raise Refused(f"{path}: {sorted(present)[0]} is not listed in {MANIFEST}")


def _digest(source: t.BinaryIO, start: int, end: int) -> str:
    source.seek(start)
    digest, left = hashlib.sha256(), end - start
    while left > 0:
        chunk = source.read(min(left, 1 << 20))
        if not chunk:
            break
        digest.update(chunk)
        left -= len(chunk)
    return digest.hexdigest()


def _check_headers(path: str, source: t.BinaryIO, name: str, members: t.Sequence[_Member], at: int) -> None:
    """Raise Refused if the archive is not the one that was written, although its files are."""
    for member in members:
        source.seek(member.start)
        expected = header(name, member.path, member.info.size, at)
        padding = bytes(member.end - member.info.offset_data - member.info.size)
        if source.read(len(expected)) != expected or _read(source, member.end - len(padding), len(padding)) != padding:
            raise Refused(
                f"{path}: it was packed again: the files are as listed, the archive around {member.path} is not the one that was made"
            )


def _read(source: t.BinaryIO, start: int, size: int) -> bytes:
    source.seek(start)
    return source.read(size)


def header(name: str, path: str, size: int, at: int) -> bytes:
    """Return the header of a file of a pack: nobody's, and of one time, so that it can be told from that of another archive."""
    info = tarfile.TarInfo(f"{name}/{path}")
    info.size, info.mtime, info.mode = size, at, 0o644
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


# Signatures -------------------------------------------------------------------------------------------------------------------------------


def _signatures(
    path: str, source: t.BinaryIO, manifest: dict[str, t.Any], members: t.Sequence[_Member], created: int, signers: str | None, now: float
) -> t.Iterator[Signature]:
    before, name = created, manifest["name"]
    for place in range(0, len(members), 2):
        number = place // 2 + 1
        files = [f"{SIGNATURES}{number:02}.json", f"{SIGNATURES}{number:02}.json.sig"]
        if [member.path for member in members[place : place + 2]] != files:
            raise Refused(f"{path}: {members[place].path} stands behind {MANIFEST} and is no part of a signature, or the pack was cut")
        statement, sealed = members[place], members[place + 1]
        text = _bytes(source, statement, _LARGEST_STATEMENT)
        said = _json(path, files[0], text, STATEMENT_SCHEMA)
        signature = _said(path, files[0], said, now)
        unknown = sorted(set(signature.blocks) - set(manifest.get("blocks", {})))
        if unknown:
            raise Refused(f"{path}: {files[0]} is for the block {unknown[0]!r}, which the pack does not have")
        if signature.at < before:
            raise Refused(f"{path}: {files[0]}: signed at {said['signed_at']}, before what it covers was made: a clock was wrong or set")
        if said.get("bytes") != statement.start or said.get("sha256") != _digest(source, 0, statement.start):
            raise Refused(f"{path}: {files[0]} is the signature of another pack, or what stands before it was changed or packed again")
        _check_headers(path, source, name, [statement, sealed], signature.at)
        before = signature.at
        principal, key = _by_ssh(path, files[1], text, _bytes(source, sealed, _LARGEST_STATEMENT), signature.at, signers)
        yield dataclasses.replace(signature, key=key, principal=principal)


def _said(path: str, name: str, said: dict[str, t.Any], now: float) -> Signature:
    signer, role, blocks = said.get("signer"), said.get("role", ""), said.get("blocks", [])
    texts = [signer, *([role] if role != "" else []), *(blocks if isinstance(blocks, list) else [None])]
    if not all(map(is_field, texts)):
        raise Refused(f"{path}: {name} does not say in plain words who signs, in which role and for which blocks")
    return Signature(str(signer), str(role), tuple(blocks), _seconds(path, name, said.get("signed_at"), now), "")


def _by_ssh(path: str, name: str, text: bytes, sealed: bytes, at: int, signers: str | None) -> tuple[str, str]:
    """Return the principal, empty without a list of signers, and the fingerprint of the key of a good signature."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "signature")
        with open(file, "wb") as target:
            target.write(sealed)
        verified = _ssh_keygen(["-Y", "check-novalidate", "-n", NAMESPACE, "-s", file], text)
        key = re.search(rb"\b(SHA256:\S+)", verified.stdout)
        if verified.returncode or key is None:
            raise Refused(f"{path}: {name} is no signature of what stands before it: {_words(verified)}")
        fingerprint = key.group(1).decode("ascii", "replace")
        if signers is None:
            return "", fingerprint
        with open(signers, "rb"):
            pass
        moment = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(at))
        found = _ssh_keygen(["-Y", "find-principals", "-O", f"verify-time={moment}", "-s", file, "-f", signers], b"")
        for principal in found.stdout.decode("utf-8", "replace").splitlines():
            options = ["-Y", "verify", "-O", f"verify-time={moment}", "-n", NAMESPACE, "-s", file, "-f", signers, "-I", principal]
            if principal and not _ssh_keygen(options, text).returncode:
                return principal, fingerprint
        raise Refused(f"{path}: {name}: the key {fingerprint} is not in {signers}, or was not valid then: {_words(found)}")


def _ssh_keygen(options: t.Sequence[str], text: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["ssh-keygen", *options], input=text, capture_output=True, timeout=_SSH_TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise Refused("ssh-keygen: not found; signatures need OpenSSH 8.1 or later") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"ssh-keygen: it did not end within {_SSH_TIMEOUT_S} s") from None


def _words(result: subprocess.CompletedProcess[bytes]) -> str:
    lines = (result.stderr or result.stdout).decode("utf-8", "replace").split("\n")
    said = " ".join(" ".join(line.split()) for line in lines if line.strip())
    return "".join(char if char.isprintable() else "?" for char in said)[:300] or f"ssh-keygen ended with status {result.returncode}"


def sign(path: str, key: str, signer: str, role: str = "", blocks: t.Sequence[str] = (), now: float | None = None) -> Pack:
    """Add a signature by an SSH key, a file or the public half of one of an agent, and return the signed pack.

    Raise Refused if the pack is not whole, if it has no such block, or if ssh-keygen does not sign."""
    at = int(time.time() if now is None else now)
    pack = check(path, now=now)
    for field, value in (("name", signer), *([("role", role)] if role else []), *(("block", block) for block in blocks)):
        if not is_field(value):
            raise Refused(f"{field}: found {value!r}, expected some words in one line")
    of_pack = pack.manifest.get("blocks", {})
    unknown = sorted(set(blocks) - set(of_pack))
    if unknown:
        known = ", ".join(sorted(of_pack)) or "none"
        raise Refused(f"{path}: it has no block {unknown[0]!r}; its blocks: {known}")
    made = _seconds(path, MANIFEST, pack.manifest["created_at"], at)
    if at < max([made, *(signature.at for signature in pack.signatures)]):
        raise Refused(f"{path}: this machine's clock is before the time at which it was made or signed; set the clock first")
    number = len(pack.signatures) + 1
    with open(path, "rb") as source:
        digest = _digest(source, 0, pack.end)
    statement = json.dumps(
        {
            "schema": STATEMENT_SCHEMA, "signer": signer, "role": role, "blocks": list(blocks),
            "signed_at": time.strftime(TIME, time.gmtime(at)), "bytes": pack.end, "sha256": digest,
        }, indent=1, sort_keys=True,
    ).encode()  # fmt: skip
    signed = _ssh_keygen(["-Y", "sign", "-f", key, "-n", NAMESPACE], statement)
    if signed.returncode or not signed.stdout.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        raise Refused(f"{key}: ssh-keygen did not sign: {_words(signed)}")
    added = io.BytesIO()
    for name, content in ((f"{number:02}.json", statement), (f"{number:02}.json.sig", signed.stdout)):
        write_file(added, pack.name, SIGNATURES + name, content, at)
    _append(path, pack.end, added.getvalue())
    return check(path, now=now)


def write_file(target: t.BinaryIO, name: str, path: str, content: bytes, at: int) -> None:
    """Write a file of a pack to the end of an archive."""
    target.write(header(name, path, len(content), at))
    target.write(content + bytes(-len(content) % BLOCK))


def write_end(target: t.BinaryIO) -> None:
    """Write what ends an archive."""
    target.write(bytes(_END))


def _append(path: str, end: int, added: bytes) -> None:
    """Write a new archive with `added` behind the first `end` bytes of one, and put it in its place at once."""
    new = f"{path}.new"
    try:
        with open(path, "rb") as source, open(new, "xb") as target:
            shutil.copymode(path, new)
            shutil.copyfileobj(source, target, 1 << 20)
            target.truncate(end)
            target.seek(end)
            target.write(added)
            write_end(target)
            target.flush()
            os.fsync(target.fileno())
        os.replace(new, path)
    except FileExistsError:
        raise Refused(f"{new}: it exists: somebody signs this pack now, or was interrupted; remove it then") from None
    except OSError as error:
        raise Refused(f"{new}: {error.strerror}; a signature needs room for a second archive") from error


# The command ------------------------------------------------------------------------------------------------------------------------------


def main(arguments: t.Sequence[str] | None = None) -> int:
    """Check or sign a pack as the command line says. Return 0 if it is whole and signed, 1 if not."""
    parser = argparse.ArgumentParser(prog=CHECKER, description="Check a hand-over pack and its signatures, or sign it.")
    parser.add_argument("pack", metavar="PACK.tar")
    parser.add_argument("--signers", metavar="FILE", help="allowed signers, as ssh-keygen(1) has them: a key that is not in it is refused")
    parser.add_argument("--sign", metavar="KEY", help="sign with this SSH key")
    parser.add_argument("--as", dest="signer", metavar="NAME", help="who signs")
    parser.add_argument("--role", default="", metavar="ROLE", help="as what: vendor, customer")
    parser.add_argument(
        "--block", action="append", default=[], metavar="BLOCK", help="sign for this block only; may be given several times"
    )
    given = parser.parse_args(arguments)
    if bool(given.sign) != bool(given.signer):
        parser.error("--sign KEY and --as NAME belong together")
    try:
        if given.sign:
            sign(given.pack, given.sign, given.signer, given.role, given.block)
        pack = check(given.pack, given.signers)
    except Refused as error:
        print(f"REFUSED: {error}", file=sys.stderr)
        return 1
    print(pack.line(given.signers is not None))
    return 0 if pack.signatures else 1


if __name__ == "__main__":
    sys.exit(main())
