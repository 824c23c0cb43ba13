# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Raw output is stored once, found again by its reference, and never taken for another text."""

from __future__ import annotations

import base64
import hashlib
import multiprocessing
import pathlib
import subprocess
import typing as t
import zlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import integrity, measurement, raw
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Run:
    made = Run(tmp_path, "20260101T000000Z-0a1b2c")
    made.make()
    return made


def observed(text: bytes, **fields: t.Any) -> dict[str, t.Any]:
    return {**observation.measured("all_reduce", **fields), "raw_z": base64.b64encode(zlib.compress(text)).decode()}


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5))
def test_each_text_is_read_as_it_was_stored(tmp_path_factory, texts) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.mktemp("run")
    references = [raw.store(folder, "lab/gpu-01", "gemm, attempt 1", text) for text in texts]
    assert len(set(references)) == len(texts)
    for (reference, digest), text in zip(references, texts, strict=True):
        assert raw.read(folder, reference) == text and digest == hashlib.sha256(text).hexdigest() == integrity.digest(folder, reference)


def test_people_read_all_texts_of_a_node_with_a_line_before_each(run: Run) -> None:
    completer = measurement.Completer(run, "gemm", "gpu-01", "ssh", {})
    first, second = (completer.complete(observed(text))["raw"] for text in (b"no newline", b"two\nlines\n"))
    printed = subprocess.run(["zcat", run.dir / "raw" / "gpu-01.txt.gz"], stdout=subprocess.PIPE, text=True, check=True).stdout
    place = second.partition("#")[2]
    assert first == "raw/gpu-01.txt.gz#0"
    assert printed.splitlines() == [
        "==== #0 gemm, attempt 1, 10 bytes ====", "no newline", f"==== #{place} gemm, attempt 1, 10 bytes ====", "two", "lines",
    ]  # fmt: skip


def test_all_checks_of_one_call_share_one_text_and_a_node_has_one_file(run: Run) -> None:
    completer = measurement.Completer(run, "gemm", "gpu-01", "ssh", {})
    parts = [completer.complete(observed(b"of all GPUs", part=f"gpu/GPU-{number}")) for number in range(8)]
    other = measurement.Completer(run, "train", "gpu-01", "ssh", {}).complete(observed(b"of all GPUs"))
    assert len({(m["raw"], m["raw_sha256"]) for m in parts}) == 1 and other["raw"] != parts[0]["raw"]
    assert [path.name for path in (run.dir / "raw").iterdir()] == ["gpu-01.txt.gz"]


def _store(folder: pathlib.Path, number: int, told: t.Any) -> None:
    told.put([(raw.store(folder, "gpu-01", "soak, attempt 1", text)[0], text) for text in (b"%d %d" % (number, n) for n in range(20))])


def test_writers_at_once_do_not_mix_their_texts(run: Run) -> None:
    told = multiprocessing.Queue()
    writers = [multiprocessing.Process(target=_store, args=(run.dir, number, told)) for number in range(8)]
    for writer in writers:
        writer.start()
    stored = [one for _writer in writers for one in told.get(timeout=120)]
    for writer in writers:
        writer.join()
    assert len({reference for reference, _text in stored}) == 160
    assert all(raw.read(run.dir, reference) == text for reference, text in stored)


def test_wherever_the_file_is_cut_texts_before_are_whole_and_no_later_one_is_believed(run: Run) -> None:
    texts = [b"first " * 9, b"second", b"third\n"]
    stored = [raw.store(run.dir, "gpu-01", "gemm, attempt 1", text) for text in texts]
    path = run.dir / "raw" / "gpu-01.txt.gz"
    data = path.read_bytes()
    begins = [int(reference.partition("#")[2]) for reference, _digest in stored]
    for at in range(len(data)):
        path.write_bytes(data[:at])
        whole = [integrity.digest(run.dir, reference) == digest for reference, digest in stored]
        assert whole == sorted(whole, reverse=True) and sum(whole) >= sum(begin <= at for begin in begins[1:])
        assert {integrity.digest(run.dir, reference) for reference, digest in stored} <= {
            *(digest for _reference, digest in stored), integrity.MISSING, integrity.DAMAGED,
        }  # fmt: skip
        reference, _digest = raw.store(run.dir, "gpu-01", "gemm, attempt 2", b"after the kill")
        assert raw.read(run.dir, reference) == b"after the kill"
        begun = [begin for begin in begins if begin <= at]
        kept = [s for s, begin in zip(stored, begins, strict=True) if begin < begun[-1]]
        assert all(integrity.digest(run.dir, one) == its_digest for one, its_digest in kept), "what was whole stays whole"
        subprocess.run(["gzip", "-t", path], check=True)


def test_a_damaged_text_is_never_taken_for_whole_and_the_others_stay(run: Run) -> None:
    stored = [raw.store(run.dir, "gpu-01", "gemm, attempt 1", text) for text in (b"first", b"second " * 5, b"third")]
    path = run.dir / "raw" / "gpu-01.txt.gz"
    data = path.read_bytes()
    begin, end = (int(reference.partition("#")[2]) for reference, _digest in stored[1:])
    for at in range(begin, end):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        (_r1, first), (_r2, second), (_r3, third) = stored
        now = [integrity.digest(run.dir, reference) for reference, _digest in stored]
        assert now[0] == first and now[2] == third and now[1] in (second, integrity.DAMAGED)
        if now[1] == second:
            assert raw.read(run.dir, stored[1][0]) == b"second " * 5


@pytest.mark.parametrize("reference", [
    "raw/gpu-01.txt.gz#1", "raw/gpu-01.txt.gz#999999", "raw/gpu-02.txt.gz#0", "raw/../gpu-01.txt.gz#0", "raw/gpu-01.txt.gz#-1",
    "raw/gpu-01.txt.gz#0\n", "../x", "/etc/passwd", "raw/gpu-01.txt.gz#",
])  # fmt: skip
def test_what_names_no_text_is_none(run: Run, reference: str) -> None:
    raw.store(run.dir, "gpu-01", "gemm, attempt 1", b"text")
    assert integrity.digest(run.dir, reference) in (integrity.MISSING, integrity.DAMAGED)
    with pytest.raises((OSError, raw.ChangedError)):
        raw.read(run.dir, reference)


def test_the_texts_of_an_older_version_are_files_of_their_own(run: Run) -> None:
    (run.dir / "raw" / "gpu-01").mkdir()
    (run.dir / "raw" / "gpu-01" / "gemm-0a1b.txt").write_bytes(b"old")
    assert raw.read(run.dir, "raw/gpu-01/gemm-0a1b.txt") == b"old"
    assert integrity.digest(run.dir, "raw/gpu-01/gemm-0a1b.txt") == hashlib.sha256(b"old").hexdigest()
