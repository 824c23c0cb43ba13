# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Frames in logs: whole ones come back, anything else is an error that says why."""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from hypothesis import given
from hypothesis import strategies as st

NONCE = frame.nonce_of("secret", "uid-1")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
)


def read(lines: t.Iterable[bytes], nonce: str = NONCE) -> dict[str, t.Any]:
    reader = frame.Reader(nonce)
    for line in lines:
        reader.feed(line)
    return reader.result()


def big(count: int = 40000) -> dict[str, t.Any]:
    return {"noise": random.Random(1).randbytes(count).hex()}


@given(st.dictionaries(st.text(), JSON, max_size=8))
def test_what_is_written_comes_back(record: dict[str, t.Any]) -> None:
    lines = frame.lines(record, NONCE)
    assert read(lines) == record
    assert all(len(line) <= frame.LINE_LIMIT and line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)


@given(st.lists(st.binary(max_size=80)), st.randoms(use_true_random=False))
def test_other_output_between_and_before_the_lines_does_not_matter(noise: list[bytes], rng: random.Random) -> None:
    lines = [b"half a line" + line for line in frame.lines(big(), NONCE)]
    for piece in noise:
        lines.insert(rng.randrange(len(lines) + 1), piece.replace(frame.TAG, b""))
    assert read(lines) == big()


@given(st.data())
def test_a_damaged_log_is_never_a_result(data: st.DataObject) -> None:
    log = bytearray(b"".join(frame.lines({"observations": [{"busbw": n} for n in range(300)]}, NONCE)))
    kind = data.draw(st.sampled_from(["cut", "flip", "drop", "twice"]))
    at = data.draw(st.integers(0, len(log) - 2))
    if kind == "cut":
        log = log[:at]
    elif kind == "flip":
        log[at] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "drop":
        del log[at : at + data.draw(st.integers(1, 50))]
    else:
        log = log + log
    try:
        assert read(bytes(log).splitlines()) == {"observations": [{"busbw": n} for n in range(300)]} and kind in ("flip", "drop")
    except ReasonedError as error:
        assert error.reason_code in ("incomplete_output", "no_result", "forged_frame")


@given(st.lists(st.binary(max_size=200) | st.builds(lambda tail: frame.TAG + tail, st.binary(max_size=100))))
def test_any_log_is_read_without_a_traceback(lines: list[bytes]) -> None:
    with pytest.raises(ReasonedError):
        read(lines)


def test_cut_log_says_how_far_it_goes() -> None:
    with pytest.raises(ReasonedError, match="ends after 3 of the frame's") as caught:
        read(frame.lines(big(), NONCE)[:4])
    assert caught.value.reason_code == "incomplete_output"


def test_a_frame_of_another_pod_is_refused() -> None:
    other = frame.lines({"state": "done"}, frame.nonce_of("secret", "uid-2"))
    with pytest.raises(ReasonedError) as caught:
        read(other)
    assert caught.value.reason_code == "forged_frame"
    assert read([*other, *frame.lines({"own": 1}, NONCE)]) == {"own": 1}


def test_two_frames_of_one_pod_are_no_result() -> None:
    with pytest.raises(ReasonedError, match="more than one frame"):
        read(frame.lines({"a": 1}, NONCE) + frame.lines({"a": 2}, NONCE))


def test_a_result_larger_than_allowed_is_refused_on_both_sides() -> None:
    with pytest.raises(ValueError, match="more than"):
        frame.lines({"x": "a" * frame.RESULT_LIMIT}, NONCE)
    lines = frame.lines({"x": "a" * 100}, NONCE)
    lines[0] = lines[0].replace(b"open 109", b"open 999999999")
    with pytest.raises(ReasonedError, match="claims 999999999 bytes"):
        read(lines)


def test_a_bomb_does_not_unpack() -> None:
    import base64
    import zlib

    packed = zlib.compress(b"a" * (64 << 20), 9)
    pieces = [packed[at : at + 2900] for at in range(0, len(packed), 2900)]
    head = frame.TAG + NONCE.encode()
    lines = [head + f" open 100 {'0' * 64} {len(pieces)}".encode()]
    lines += [head + b" %d " % n + base64.b64encode(p) for n, p in enumerate(pieces)]
    with pytest.raises(ReasonedError, match="checksum"):
        read([*lines, head + b" close"])


def message(path: pathlib.Path, record: dict[str, t.Any]) -> str:
    path.write_text("what a tool has left there, which is longer than any result" * 100)
    assert frame.leave(record, NONCE, str(path))
    return path.read_text()


def test_a_message_is_the_frame_and_nothing_else(tmp_path: pathlib.Path) -> None:
    said = message(tmp_path / "m", {"observations": [{"check": "ä"}]})
    assert frame.left(said, NONCE) == {"observations": [{"check": "ä"}]}
    # As kubelets and API servers may hand it on.
    assert frame.left(said.strip(), NONCE) is not None


def test_what_is_too_long_leaves_no_message(tmp_path: pathlib.Path) -> None:
    (tmp_path / "m").touch()
    assert not frame.leave(big(3000), NONCE, str(tmp_path / "m")) and not (tmp_path / "m").read_text()
    assert frame.leave(big(1300), NONCE, str(tmp_path / "m"))
    assert len((tmp_path / "m").read_bytes()) <= frame.MESSAGE_LIMIT


def test_no_message_is_left_where_nobody_reads_it(tmp_path: pathlib.Path) -> None:
    assert not frame.leave({}, NONCE, str(tmp_path / "m")) and not (tmp_path / "m").exists()


@given(st.data())
def test_a_message_that_is_not_whole_and_alone_is_none(data: st.DataObject) -> None:
    whole = b"".join(frame.lines({"observations": [{"busbw": n} for n in range(20)]}, NONCE)).decode()
    other = b"".join(frame.lines({"observations": []}, frame.nonce_of("secret", "another"))).decode()
    kind = data.draw(st.sampled_from(["begin", "end", "flip", "twice", "more", "foreign", "both"]))
    at = data.draw(st.integers(1, len(whole) - 2))
    changed = whole[:at] + chr(ord(whole[at]) ^ 1) + whole[at + 1 :]
    text = data.draw(st.text(min_size=1).filter(str.strip))
    said = {
        "begin": whole[:at], "end": whole[at:], "flip": changed, "twice": whole * 2, "more": f"{whole}{text}\n",
        "foreign": other, "both": whole + other,
    }  # fmt: skip
    found = frame.left(said[kind], NONCE)
    assert found is None or found == read(said[kind].encode().splitlines()), (kind, at)
    assert found is None or kind == "flip", kind


def test_writes_of_a_pod_and_of_its_tools_do_not_mix_within_a_line() -> None:
    program = (
        "import json, os, sys; from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame\n"
        "if os.fork() == 0:\n"
        "    [os.write(1, b'noise without an end ' * 20) for _i in range(3000)]; os._exit(0)\n"
        f"frame.write({{'x': os.urandom(300000).hex()}}, {NONCE!r}, 1); os.wait()"
    )
    log = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, env=os.environ).stdout
    assert len(read(log.split(b"\n"))["x"]) == 600000


def test_the_archive_runs_in_a_bare_python_and_answers_with_a_frame(tmp_path: t.Any) -> None:
    (tmp_path / "payload.zip").write_bytes(payload.archive())
    args = {"checks": [{"check": "facts"}], "timeout": 30, "state_dir": str(tmp_path / "state")}
    request = payload.request("stack_facts", payload.options("stack_facts"), args)
    (tmp_path / "request.json").write_text(json.dumps(request))
    argv = [sys.executable, "-S", "-E", str(tmp_path / "payload.zip"), str(tmp_path / "request.json")]
    environment = {"PATH": os.environ["PATH"], "GPUFLEET_SECRET": "secret", "GPUFLEET_POD_UID": "uid-1"}
    done = subprocess.run(argv, capture_output=True, check=False, env=environment, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    said = read(done.stdout.splitlines())
    assert said["state"] == "done" and [o["check"] for o in said["observations"]] == ["facts"]
    assert "GPUFLEET_SECRET" not in json.dumps(said)
