# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes whose programs start at different times begin at one moment, or not at all."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import common_start
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups.common_start import Beginning


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def first_of(port: int, address: str = "127.0.0.1", token: str = "word") -> dict[str, object]:
    return {"address": address, "port": port, "token": token}


def test_who_asks_early_or_late_begins_when_the_first_node_does(port: int) -> None:
    found: list[float] = []

    def asks(after: float) -> None:
        time.sleep(after)
        with Beginning(first_of(port), 0.0, 20.0) as begin:
            found.append(begin)

    threads = [threading.Thread(target=asks, args=[after]) for after in (0.0, 0.0, 1.2)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    with Beginning(first_of(port, ""), 3.0, 20.0) as own:
        for thread in threads:
            thread.join()
    assert len(found) == 3 and all(abs(begin - own) < 0.5 for begin in found)
    with Beginning(first_of(port, ""), -5.0, 20.0) as own, Beginning(first_of(port), 0.0, 20.0) as begin:
        assert abs(begin - own) < 0.5 and begin < time.monotonic()  # too late, which the node sees


def begins(first: dict[str, object], begins_in: float = 0.0) -> float:
    with Beginning(first, begins_in, 1.0) as begin:
        return begin


def test_nobody_begins_without_an_answer_or_by_that_of_a_stranger(port: int) -> None:
    words = f"ports {port} to {port + 3}, did not say within 1 s when the nodes begin: Connection refused"
    with pytest.raises(ReasonedError, match=words) as error:
        begins(first_of(port))
    assert error.value.reason_code == "partner"
    with Beginning(first_of(port, ""), 0.5, 1.0), pytest.raises(ReasonedError, match="another program answers there"):
        begins(first_of(port, token="other"))


def test_a_stranger_who_answers_byte_by_byte_does_not_stall_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common_start, "ASK_S", 0.5)

    def trickles(listener: socket.socket) -> None:
        with contextlib.suppress(OSError), listener:
            while True:
                connection = listener.accept()[0]
                with contextlib.suppress(OSError), connection:
                    for _byte in range(256):
                        connection.sendall(b"x")
                        time.sleep(0.2)

    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=trickles, args=[listener], daemon=True).start()
    began = time.monotonic()
    with pytest.raises(ReasonedError, match=r"timed out|no whole line in time"):
        begins(first_of(listener.getsockname()[1]))
    assert time.monotonic() - began < 20


def test_a_first_node_with_no_room_for_a_thread_answers_the_next_question(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[int] = []
    start = threading.Thread.start

    def starts(self: threading.Thread) -> None:
        if len(refused) < 2 and getattr(getattr(self, "_target", None), "__name__", "") == "_answer":
            refused.append(1)
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", starts)
    with Beginning(first_of(port, ""), 5.0, 20.0) as own, Beginning(first_of(port), 0.0, 20.0) as begin:
        assert abs(begin - own) < 0.5 and len(refused) == 2


def test_the_first_node_takes_the_next_port_where_another_program_has_its_own(port: int) -> None:
    """That program takes what it is asked, and says nothing."""
    with socket.create_server(("", port)), Beginning(first_of(port, ""), 5.0, 20.0) as own, Beginning(first_of(port), 0.0, 20.0) as begin:
        assert abs(begin - own) < 0.5


def test_ports_that_are_all_in_use_are_named(port: int) -> None:
    with contextlib.ExitStack() as taken:
        for place in range(common_start.PLACES):
            with contextlib.suppress(OSError):
                taken.enter_context(socket.create_server(("", port + place)))
        with pytest.raises(ReasonedError, match=f"TCP ports {port} to {port + 3}, .*: Address already in use") as error:
            begins(first_of(port, ""))
    assert error.value.reason_code == "port_in_use"


def test_a_first_node_with_nothing_to_do_still_tells_the_others(port: int) -> None:
    thread = threading.Thread(target=begins, args=[first_of(port, ""), 2.0])
    thread.start()
    time.sleep(1.0)
    assert begins(first_of(port)) - time.monotonic() > 0.5
    thread.join()


def test_without_a_first_node_the_moment_is_told_from_outside() -> None:
    with Beginning(None, 3.0, 1.0) as begin:
        assert 2.5 < begin - time.monotonic() <= 3.0
