# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answer in a pod's log: late lines are waited for, what is not of the frame is kept as text, what is foreign is not believed."""

from __future__ import annotations

import functools
import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import logs
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.manifest import Unframed

POD = "/api/v1/namespaces/here/pods/one"
NONCE = frame.nonce_of("secret", "uid")
READER = functools.partial(frame.Reader, NONCE)
FRAME = b"".join(frame.lines({"state": "done"}, NONCE))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LATE_S", (0.01, 0.01, 0.01))


def test_a_frame_whose_last_line_comes_late(script: t.Any, tmp_path: pathlib.Path) -> None:
    script.says(f"{POD}/log", b"hello\n" + FRAME[:-20], b"hello\n" + FRAME + b"bye\n")
    found = logs.read(script.client(), POD, READER, lambda: tmp_path / "raw")
    assert found.record == {"state": "done"} and (found.reason_code, found.last) == ("", "hello | bye")
    assert (tmp_path / "raw").read_bytes() == b"hello\nbye\n"


def test_a_frame_of_another_pod_is_none(script: t.Any) -> None:
    script.says(f"{POD}/log", b"".join(frame.lines({"state": "done"}, frame.nonce_of("secret", "another"))))
    found = logs.read(script.client(), POD, READER)
    assert found.record is None and found.reason_code and found.reason


@pytest.mark.parametrize(("answer", "code"), [(404, "pod_deleted"), (403, "no_result"), (b"Killed\n", "no_result")])
def test_a_log_without_an_answer_says_why(script: t.Any, answer: t.Any, code: str) -> None:
    script.says(f"{POD}/log", answer)
    found = logs.read(script.client(), POD, READER)
    assert found.record is None and found.reason_code == code and found.reason
    assert found.last == ("Killed" if isinstance(answer, bytes) else "")


def test_what_a_container_says_is_kept_up_to_a_limit(script: t.Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LOG_LIMIT", 1000)
    script.says(f"{POD}/log", b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 50 + FRAME)
    assert logs.read(script.client(), POD, READER, lambda: tmp_path / "raw").record
    assert len((tmp_path / "raw").read_bytes()) == 1000


def test_a_log_of_an_earlier_controller_is_not_overwritten(script: t.Any, tmp_path: pathlib.Path) -> None:
    (tmp_path / "own-pod-1.log").write_text("of one that was killed\n")
    script.says(f"{POD}/log", b"hello\n" + FRAME[:-20], b"hello\n" + FRAME)
    assert logs.read(script.client(), POD, READER, lambda: tmp_path / "own-pod-1.log").record
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {"own-pod-1.log": "of one that was killed\n", "own-pod-1~2.log": "hello\n"}


def test_a_log_without_anything_to_keep_makes_no_file(script: t.Any) -> None:
    script.says(f"{POD}/log", FRAME)
    assert logs.read(script.client(), POD, READER, lambda: pytest.fail("no file is needed")).record


class Api:
    """Answers of the API for a pod's log, one after the other, by whether the container before is asked for."""

    def __init__(self, now: list[t.Any], before: list[t.Any] | None = None) -> None:
        self.answers = {False: now, True: before or []}

    def lines(self, path: str, previous: bool = False, **_query: t.Any) -> t.Iterator[bytes]:
        assert path == f"{POD}/log"
        answers = self.answers[previous]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(found, KubeError):
            raise found
        yield from found


def first_end(now: list[t.Any], before: list[t.Any]) -> logs.PodLog:
    return logs.read(t.cast(Client, Api(now, before)), POD, Unframed, restarts=True)


def test_the_first_end_of_a_container_that_was_started_again() -> None:
    none = KubeError("bad_spec", "previous terminated container not found", 400)
    assert first_end([[b"second"]], [[b"first"]]).last == "first"
    assert first_end([[b"only"]], [none]).last == "only"
    assert first_end([[b"second"]], [none, [b"first"]]).last == "first", "it was started again while we read"
    assert first_end([[b"kept"]], [[b"unable to retrieve container logs for containerd://x"]]).last == "kept"
