# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file of gzip members: what was written stays whole wherever the file is cut, and damage costs only the part in which it is."""

from __future__ import annotations

import gzip
import hashlib
import os
import pathlib
import random
import subprocess
import sys

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import members
from hypothesis import given
from hypothesis import strategies as st


def append(path: pathlib.Path, content: bytes) -> int:
    """Append a part; return how many torn bytes were cut off before."""
    with members.locked(path) as tail:
        tail.append(members.part(content, hashlib.sha256(content).digest(), tail.end))
        return tail.cut


def contents(path: pathlib.Path) -> list[bytes | None]:
    return [part.content for part in members.parts(path)]


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_what_is_appended_is_read_and_printed_by_zcat(tmp_path_factory, texts) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("members") / "a.gz"
    path.touch()
    for text in texts:
        assert append(path, text) == 0
    found = list(members.parts(path))
    assert [(part.content, part.digest) for part in found] == [(text, hashlib.sha256(text).digest()) for text in texts]
    assert b"".join(part.packed for part in found) == path.read_bytes()
    assert (gzip.decompress(path.read_bytes()) if texts else b"") == b"".join(texts)
    for part in found:
        with open(path, "rb") as source:
            source.seek(part.begin)
            assert members.first(source) == part.content
        seal = members.seal_that_ends_at(path, part.end)
        assert seal and seal[:2] == (part.begin, part.digest)
        assert [one.content for one in members.parts(path, part.begin, part.end)] == [part.content]


def test_wherever_the_file_is_cut_whole_parts_are_read_and_the_next_one_is_appended(tmp_path: pathlib.Path) -> None:
    path, texts = tmp_path / "a.gz", [b"first\n" * 20, b"", random.Random(1).randbytes(90)]
    for text in texts:
        append(path, text)
    data, ends = path.read_bytes(), [part.end for part in members.parts(path)]
    for at in range(len(data) + 1):
        path.write_bytes(data[:at])
        whole = sum(end <= at for end in ends)
        torn = at - max([0, *(end for end in ends if end <= at)])
        found = list(members.parts(path))
        assert [part.content for part in found] == texts[:whole] + [None] * bool(torn) and all(p.torn for p in found[whole:])
        assert append(path, b"later") == torn
        assert contents(path) == [*texts[:whole], b"later"]
        assert gzip.decompress(path.read_bytes()) == b"".join(texts[:whole]) + b"later"


def test_rubbish_at_the_end_is_cut_off_however_long_it_is(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.gz"
    append(path, b"first")
    end = path.stat().st_size
    for rubbish in (bytes(5000), random.Random(2).randbytes((1 << 20) + 17), members._MAGIC * 9):
        with open(path, "ab") as target:
            target.write(rubbish)
        assert append(path, b"second") == len(rubbish) and contents(path) == [b"first", b"second"]
        os.truncate(path, end)


def test_a_damaged_byte_costs_no_part_but_its_own(tmp_path: pathlib.Path) -> None:
    path, texts = tmp_path / "a.gz", [b"first\n" * 20, b"second\n" * 5, random.Random(1).randbytes(90)]
    for text in texts:
        append(path, text)
    data, parts = path.read_bytes(), list(members.parts(path))
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        found = list(members.parts(path))
        hit = next(number for number, part in enumerate(parts) if at < part.end)
        assert b"".join(part.packed for part in found) == path.read_bytes()
        now = [part.content for part in found]
        assert now[hit] in (None, texts[hit])  # a time, or a bit that nobody reads, changes no content
        assert now[:hit] + now[hit + 1 :] == texts[:hit] + texts[hit + 1 :]


def test_what_a_node_prints_never_passes_for_a_seal(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.gz"
    append(path, b"first")
    end = path.stat().st_size
    noise = random.Random(3).randbytes(4000)  # cannot be made smaller, so it stands in the file as it is
    forged = noise + members.part(b"", bytes(32), end) + noise + members._MAGIC
    append(path, forged)
    assert contents(path) == [b"first", forged]
    seal = members.seal_behind(path, end)
    assert seal and seal.end == path.stat().st_size
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    assert append(path, b"third") == len(data) - 1 - end and contents(path) == [b"first", b"third"]


def test_parts_larger_than_what_is_read_at_once_are_whole(tmp_path: pathlib.Path) -> None:
    path, texts = tmp_path / "a.gz", [random.Random(n).randbytes(size) for n, size in enumerate((3 << 20, 5, 1 << 20, (1 << 20) - 60))]
    for text in texts:
        append(path, text)
    assert contents(path) == texts
    with open(path, "rb") as source, pytest.raises(ValueError, match="more than"):
        members.first(source, 1 << 20)


def test_what_cannot_be_written_leaves_the_file_as_it_was(tmp_path: pathlib.Path) -> None:
    program = (
        "import resource, pathlib, sys\n"
        "from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import members\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "with members.locked(pathlib.Path(sys.argv[1])) as tail:\n"
        "    tail.append(members.part(b'first', bytes(32), tail.end))\n"
        "    try:\n"
        "        tail.append(members.part(__import__('random').Random(1).randbytes(9000), bytes(32), tail.end))\n"
        "    except OSError as error:\n"
        "        print(error.strerror, tail.end)\n"
    )
    path = tmp_path / "a.gz"
    done = subprocess.run([sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == f"File too large {path.stat().st_size}\n" and contents(path) == [b"first"]
