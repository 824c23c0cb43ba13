# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A watch that is cut goes on where it was; one whose version is gone begins anew and says what has disappeared."""

from __future__ import annotations

import json
import threading
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import watch
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError

PODS = "/api/v1/namespaces/here/pods"


def pod(name: str, version: int) -> dict[str, t.Any]:
    return {"metadata": {"name": name, "uid": f"uid-of-{name}", "resourceVersion": str(version)}}


def listed(version: int, *names: str) -> dict[str, t.Any]:
    return {"metadata": {"resourceVersion": str(version)}, "items": [pod(name, version) for name in names]}


def stream(*changes: tuple[str, dict[str, t.Any]], torn: bytes = b"") -> bytes:
    return b"".join(json.dumps({"type": kind, "object": item}).encode() + b"\n" for kind, item in changes) + torn


def changes(of: watch.Watch, count: int) -> list[tuple[str, str]]:
    found = [of.changes.get(timeout=20) for _ in range(count)]
    return [(kind, item["metadata"]["name"]) for kind, item in found]


def test_a_stream_that_ends_in_the_middle_of_a_line_goes_on_from_its_last_version(script: t.Any) -> None:
    script.says(PODS, listed(5, "a"))
    script.says(
        PODS,
        stream(("ADDED", pod("b", 6)), ("BOOKMARK", pod("", 8)), torn=b'{"type": "MODI'),
        stream(("DELETED", pod("a", 9))),
        stream(),
        watch=True,
    )
    one = watch.Watch(script.client(), PODS, "ours=1")
    one.start()
    assert changes(one, 3) == [("ADDED", "a"), ("ADDED", "b"), ("GONE", "a")]
    while one.watches < 4:
        time.sleep(0.01)
    one.stop()
    asked = [query["resourceVersion"] for _path, query in script.asked if "watch" in query]
    assert asked[:3] == ["5", "8", "9"] and one.lists == 1
    assert {query["labelSelector"] for _path, query in script.asked} == {"ours=1"}


def test_a_version_that_is_gone_is_a_new_list_and_what_disappeared_is_said(script: t.Any) -> None:
    script.says(PODS, listed(5, "a", "b"), listed(50, "b", "c"))
    gone = {"kind": "Status", "code": 410, "message": "too old resource version"}
    script.says(PODS, stream(("ERROR", gone)), stream(), watch=True)
    one = watch.Watch(script.client(), PODS, "")
    one.start()
    assert changes(one, 5) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "b"), ("ADDED", "c"), ("GONE", "a")]
    one.stop()
    assert one.lists == 2


def test_more_objects_than_are_held_for_nobody_are_there_when_it_starts(script: t.Any) -> None:
    names = [f"pod-{number}" for number in range(watch.BACKLOG + 10)]
    script.says(PODS, listed(5, *names))
    script.says(PODS, stream(*(("ADDED", pod(f"later-{number}", 6 + number)) for number in range(20))), stream(), watch=True)
    one = watch.Watch(script.client(), PODS, "")
    starting = threading.Thread(target=one.start, daemon=True)
    starting.start()
    starting.join(20)
    assert not starting.is_alive() and one.changes.qsize() >= len(names)
    while one.watches < 1:
        time.sleep(0.01)
    time.sleep(0.5)
    assert one.changes.qsize() <= len(names) + 1, "what follows the list waits until it is taken"
    assert [name for _kind, name in changes(one, len(names) + 20)][-1] == "later-19"
    one.stop()


def test_a_first_list_that_is_refused_is_an_error_at_once(script: t.Any) -> None:
    script.says(PODS, 403)
    with pytest.raises(KubeError) as error:
        watch.Watch(script.client(), PODS, "").start()
    assert error.value.status == 403


def test_a_watch_that_is_refused_later_says_so_as_its_last_word(script: t.Any) -> None:
    script.says(PODS, listed(5, "a"))
    script.says(PODS, 403, watch=True)
    one = watch.Watch(script.client(), PODS, "")
    one.start()
    assert changes(one, 1) == [("ADDED", "a")]
    kind, error = one.changes.get(timeout=20)
    assert kind == watch.FAILED and error.status == 403


def test_an_answer_that_is_no_change_is_asked_for_again(script: t.Any) -> None:
    script.says(PODS, listed(5, "a"))
    script.says(PODS, b'{"error": "proxy"}\n', stream(("ADDED", pod("b", 6))), stream(), watch=True)
    one = watch.Watch(script.client(), PODS, "")
    one.start()
    assert changes(one, 2) == [("ADDED", "a"), ("ADDED", "b")]
    one.stop()
