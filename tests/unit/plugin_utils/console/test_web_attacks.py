# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The console as somebody attacks it: from outside, from another page, with what a node or a tool says, and by taking its time."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
import logging
import pathlib
import re
import socket
import threading
import time
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import (
    api,
    auth,
    fleet,
    forms,
    guard,
    pages,
    serving,
    sessions,
    settings,
    streams,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.sessions import Caller, Sessions, TooLong, WebSession
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import store
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from cryptography.fernet import Fernet
from harness import console_hostile, history_content
from harness import console_memory as memory
from harness import history_runs as runs

RDMA = {"rdma": {"nodes": ["n0001", "n0002"]}}
HOSTILE = console_hostile.TEXTS
INJECTED = (
    "{{ lookup('pipe', 'id') }}", "$(id)", "`id`", "; id", "| id", "--extra-vars=@/etc/passwd", "../../etc/passwd", "a\nb: c",
    "n0001:n0002",
    "all", "*", "!n0001", "<b>", "\0", "\u202e", "x" * 5000, "', 'y", "https://192.0.2.9/",
)  # fmt: skip
PLAIN = {"device": ("all",), "name": ("all",), "variables": ("n0001:n0002", "all")}
FIELDS = (
    *("nodes", "labels", "device", "port", "rdma_operation", "measure", "scope", "library", "collective_operation", "gpus", "sizes"),
    *("variables", "stage", "ttl", "image", "cron", "zone", "kind", "name"),
)


@pytest.fixture
def console(tmp_path: pathlib.Path) -> memory.Opened:
    return memory.opened(tmp_path / "results")


def csrf(text: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', text)
    assert found
    return found[1]


# Who is not known ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "endpoint",
    [endpoint for endpoint in (*api.ENDPOINTS, *pages.ENDPOINTS) if endpoint.right],
    ids=lambda endpoint: f"{endpoint.method} {endpoint.path}",
)
def test_nobody_comes_in_without_a_session(console: memory.Opened, endpoint: t.Any) -> None:
    path = re.sub(r"\{\w+(:path)?\}", "x", endpoint.path)
    answer = console.client().request(endpoint.method, path, headers={"content-type": "application/json"})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert console.client().get("/api/v1/changes").status_code == 401


def test_every_answer_forbids_what_a_page_must_not_do(console: memory.Opened) -> None:
    client = console.signed_in()
    for path in ("/runs", "/nothing", "/api/v1/actions", "/static/console.js", "/metrics", "/runs/../../x", "/results/x/y"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    page = client.get("/start").text
    assert "<script src=" in page and not re.search(r"<script(?! src)|<style| style=| on\w+=", page)


def test_a_link_of_the_terminal_holds_once(console: memory.Opened) -> None:
    console.auth.new_link(every_s=0.0)
    first, second = console.client(), console.client()
    assert first.get(f"/enter?code={console.links[-1]}").status_code == 303
    cookie = first.cookies.get(console.cookie)
    assert cookie and first.get("/runs").status_code == 200
    assert second.get(f"/enter?code={console.links[-1]}").status_code == 401
    assert second.get("/enter?code=").status_code == 200
    old = console.links[-1]
    # Only our own page asks for another, and who holds the old one has nothing.
    assert second.post("/enter").status_code == 403
    assert second.post("/enter", headers={"origin": f"http://{memory.HOST}"}).status_code == 200
    assert console.links == [old]  # not at once again
    assert "set-cookie" not in second.get("/runs").headers
    assert "set-cookie" not in console.client().get("/enter").headers


def test_a_program_that_looks_at_the_link_does_not_use_it_up(console: memory.Opened) -> None:
    console.auth.new_link(every_s=0.0)
    client = console.client()
    assert client.head(f"/enter?code={console.links[-1]}").status_code == 200 and not client.cookies
    answer = client.get(f"/enter?code={console.links[-1]}")
    assert answer.status_code == 303 and "HttpOnly; SameSite=Lax" in answer.headers["set-cookie"]


def test_sessions_are_ours_short_and_end() -> None:
    sessions = Sessions(Fernet.generate_key(), 100.0, 1000.0, True)
    mine = sessions.begin(Caller("a", ("g",), "token"))
    sealed = sessions.sealed(mine)
    assert sessions.opened(sealed) == mine
    head = f"{sessions.cookie}=x; Path=/; HttpOnly; SameSite=Lax; Max-Age=100; Secure"
    assert sessions.header("x") == head and sessions.cookie.startswith("__Host-console-")
    # Browsers send a cookie to every port of its host: consoles that share a host must not share its name.
    assert Sessions(Fernet.generate_key(), 100.0, 1000.0, True).cookie != sessions.cookie
    assert "token" not in repr(mine) and mine.csrf not in repr(mine)
    forged = json.dumps(dataclasses.asdict(mine))
    for cookie in ("", "x", forged, sealed[:-4], Sessions(Fernet.generate_key(), 100.0, 1000.0, True).sealed(mine)):
        assert sessions.opened(cookie) is None
    over = WebSession("i", "c", Caller("a"), time.time() - 2000, time.time() - 1)
    assert sessions.opened(sessions.sealed(over)) is None
    late = sessions.begin(mine.who, dataclasses.replace(mine, begun=time.time() - 950))
    assert late.until - time.time() < 60
    sessions.end(mine)
    assert sessions.opened(sealed) is None
    with pytest.raises(TooLong, match="token: found 5000 characters"):
        sessions.sealed(sessions.begin(Caller("a", (), "x" * 5000)))


# Another page -------------------------------------------------------------------------------------------------------------------------


def test_what_another_page_sends_changes_nothing(console: memory.Opened) -> None:
    client, other = console.signed_in(), console.signed_in()
    mine, theirs = csrf(client.get("/start").text), csrf(other.get("/start").text)
    form = {"kind": "rdma", "nodes": "n0001 n0002", "name": "x"}
    assert mine != theirs
    for given, headers in (
        ({}, {}), ({"csrf": ""}, {}), ({"csrf": theirs}, {}), ({"csrf": mine}, {"origin": "http://evil.test"}),
        ({"csrf": mine}, {"origin": "null"}), ({"csrf": mine}, {"sec-fetch-site": "cross-site"}),
        ({"csrf": mine}, {"sec-fetch-site": "same-site"}),
    ):  # fmt: skip
        assert client.post("/start", data={**form, **given}, headers=headers).status_code == 403
        head = {"x-csrf-token": given.get("csrf", ""), **headers}
        assert client.post("/api/v1/actions", json={"spec": RDMA}, headers=head).status_code == 403
    assert not console.actions.of
    # Not as another kind of body either, which a page may send without asking.
    plain = client.post("/api/v1/actions", content=json.dumps({"spec": RDMA}), headers={"content-type": "text/plain", "x-csrf-token": mine})
    assert plain.status_code == 415
    # What was sent once does nothing more when it is sent again, and nothing at all after its session.
    assert client.post("/start", data={**form, "csrf": mine}).status_code == 303
    assert client.post("/start", data={**form, "csrf": mine}).status_code == 303
    assert list(console.actions.of) == ["x"]
    cookie = client.cookies[console.cookie]
    assert client.post("/leave", data={"csrf": mine}).status_code == 303
    replayed = console.client()
    replayed.cookies.set(console.cookie, cookie)
    assert replayed.post("/start", data={**form, "name": "y", "csrf": mine}).status_code == 401
    assert list(console.actions.of) == ["x"]


def test_the_console_answers_under_its_own_names_only(console: memory.Opened) -> None:
    client = console.signed_in()
    for host in ("evil.test", "", f"{memory.HOST}:81", "127.0.0.1"):
        assert client.get("/runs", headers={"host": host}).status_code == 421


# Who says who they are ----------------------------------------------------------------------------------------------------------------


class Api:
    """What an API server answers to reviews."""

    def __init__(self) -> None:
        self.users = {"good-token-of-ann": ("ann", ["dev"]), "good-token-of-bob": ("bob", [])}
        self.rights = {("ann", verb) for verb in ("list", "get", "create", "patch", "delete")} | {("bob", "list")}
        self.asked: list[dict[str, t.Any]] = []

    def post(self, path: str, body: dict[str, t.Any]) -> dict[str, t.Any]:
        spec = body["spec"]
        self.asked.append(spec)
        if path == auth.REVIEW:
            user = self.users.get(spec["token"])
            return {"status": {"authenticated": True, "user": {"username": user[0], "groups": user[1]}} if user else {"error": "no"}}
        assert path == auth.ACCESS and spec["resourceAttributes"]["namespace"] == "mine"
        return {"status": {"allowed": (spec["user"], spec["resourceAttributes"]["verb"]) in self.rights}}


PROXY = auth.Proxies(("198.51.100.0/24",), "a secret of the proxy")


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> tuple[memory.Opened, Api]:
    server = Api()
    reviews = auth.Reviews(t.cast("t.Any", server), "mine", remembered_s=0.0)
    return memory.opened(tmp_path / "results", auth.ClusterLogin(reviews, PROXY), namespace="mine"), server


def test_headers_of_a_proxy_are_believed_from_the_proxy_only(cluster: tuple[memory.Opened, Api]) -> None:
    console, _server = cluster
    said = {"x-forwarded-user": "ann", "x-forwarded-groups": "dev", "x-forwarded-for": "203.0.113.7"}
    proof = {"x-console-proxy-secret": "a secret of the proxy"}
    for address, headers in (
        ("192.0.2.1", {**said, **proof}), ("198.51.100.9", said), ("198.51.100.9", {**said, "x-console-proxy-secret": "a secret"}),
        ("198.51.100.9", {**said, "x-console-proxy-secret": ""}), ("192.0.2.1", {**said, "x-forwarded-for": "198.51.100.9"}),
        ("testclient", {**said, **proof}),
    ):  # fmt: skip
        assert console.client(address).get("/runs", headers=headers).status_code == 401
    client = console.client("198.51.100.9")
    page = client.get("/start", headers={**said, **proof})
    assert page.status_code == 200 and "ann" in page.text
    form = {"kind": "rdma", "nodes": "n0001 n0002", "name": "x", "csrf": csrf(page.text)}
    # The same browser with another person behind the proxy has another session.
    other = {**said, **proof, "x-forwarded-user": "bob"}
    assert client.post("/start", data=form, headers=other).status_code == 403
    assert client.post("/start", data=form, headers={**said, **proof}).status_code == 303
    assert '"from": "203.0.113.7"' in console.audit.getvalue().splitlines()[-1]
    with pytest.raises(RunError, match="console_proxy_secret"):
        auth.Proxies(("10.0.0.1",), "short")
    with pytest.raises(RunError, match="console_proxy_addresses: found 'x'"):
        auth.Proxies(("x",), "a secret of the proxy")


def test_each_action_is_asked_for_and_a_right_that_is_taken_away_is_gone(cluster: tuple[memory.Opened, Api]) -> None:
    console, server = cluster
    ann, bob = ({"authorization": f"Bearer good-token-of-{name}"} for name in ("ann", "bob"))
    client = console.client()
    assert client.get("/api/v1/actions", headers={"authorization": "Bearer bad"}).status_code == 401
    assert client.post("/api/v1/actions", json={"name": "x", "spec": RDMA}, headers=bob).status_code == 403
    assert client.post("/api/v1/actions", json={"name": "x", "spec": RDMA}, headers=ann).status_code == 201
    assert client.get("/api/v1/actions", headers=bob).status_code == 200
    assert client.delete("/api/v1/actions/x", headers=bob).status_code == 403
    entered = client.post("/enter", data={"token": "good-token-of-ann"}, headers={"origin": f"http://{memory.HOST}"})
    assert entered.status_code == 303 and "good-token" not in entered.headers["set-cookie"]
    page = client.get("/runs/x").text
    server.rights -= {("ann", "patch")}
    assert client.post("/runs/x", data={"csrf": csrf(page), "do": "cancel"}).status_code == 403
    del server.users["good-token-of-ann"]
    assert client.get("/runs").status_code == 401
    assert console.actions.get("x").status.phase == actions.QUEUED


def test_no_token_stands_in_a_log(cluster: tuple[memory.Opened, Api], caplog: pytest.LogCaptureFixture) -> None:
    console, _server = cluster
    caplog.set_level(logging.DEBUG)
    client = console.client()
    token = "good-token-of-ann"
    client.post("/enter", data={"token": token}, headers={"origin": f"http://{memory.HOST}"})
    client.post("/enter", data={"token": "bad-token"}, headers={"origin": f"http://{memory.HOST}"})
    client.post("/api/v1/actions", json={"spec": {"rdma": token}}, headers={"authorization": f"Bearer {token}"})
    logged = [record.getMessage() for record in caplog.records if "httpx" not in record.name]
    written = "".join([console.audit.getvalue(), client.get("/metrics").text, *logged])
    assert "token-of" not in written and "bad-token" not in written


# What is too much ---------------------------------------------------------------------------------------------------------------------


def test_bodies_that_are_too_long_are_turned_away(console: memory.Opened) -> None:
    client = console.signed_in()
    token = csrf(client.get("/start").text)
    big = b"x" * 1_000_000
    head = {"content-type": "application/json", "x-csrf-token": token}
    assert client.post("/api/v1/actions", content=big, headers=head).status_code == 413
    assert client.post("/start", content=iter([b"csrf=" + token.encode(), *[big] * 3])).status_code == 413
    assert client.post("/start", content=b"a", headers={"content-length": "-1"}).status_code in (400, 413)
    many = "&".join(f"nodes={number}" for number in range(20_000))
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post("/start", content=f"csrf={token}&{many}", headers=form).status_code == 400
    for body in (b"[" * 100_000, b'{"spec": ' * 20_000, b'{"spec": NaN}', b"\xff", b"[]", b'"x"', b"", b'{"name": 1, "spec": {}}'):
        answer = client.post("/api/v1/actions", content=body, headers=head)
        assert answer.status_code in (400, 422), body[:20]
    assert not console.actions.of


def test_a_client_that_asks_too_often_gets_429(tmp_path: pathlib.Path) -> None:
    limits = settings.CallLimits(rate=1.0, burst=20, changes=0.1, changes_burst=2)
    console = memory.opened(tmp_path / "results", limits=limits)
    statuses = [console.client().get("/healthz").status_code for _number in range(25)]
    assert statuses.count(429) >= 4
    assert console.client("192.0.2.77").get("/healthz").status_code == 200
    rates = guard.Rates(0.0, 1, 3)
    assert [rates.takes("a"), rates.takes("a"), rates.takes("b")] == [True, False, True]


def test_strangers_behind_an_address_use_up_no_limit_of_those_who_have_signed_in(tmp_path: pathlib.Path) -> None:
    links: list[str] = []
    console = memory.opened(tmp_path / "results", auth.LocalLogin("tester", links.append, "a-token"))
    owner = console.client()
    console.auth.new_link(every_s=0.0)
    assert owner.get(f"/enter?code={links[-1]}").status_code == 303
    head = {"x-csrf-token": csrf(owner.get("/start").text)}
    program = {"authorization": "Bearer a-token"}
    stranger = console.client()
    assert [stranger.post("/enter").status_code for _number in range(60)].count(429) >= 25
    guess = {"authorization": "Bearer guessed", "cookie": f"{console.cookie}=guessed"}
    assert [stranger.post("/api/v1/actions", json={}, headers=guess).status_code for _number in range(60)].count(429) >= 25
    spec = {"rdma": {"nodes": ["n0001", "n0002"]}}
    assert owner.post("/api/v1/actions", json={"name": "one", "spec": spec}, headers=head).status_code == 201
    assert stranger.patch("/api/v1/actions/one", json={"cancel": True}, headers=program).status_code == 200
    # Who has signed in is limited too.
    assert 429 in [owner.patch("/api/v1/actions/one", json={"cancel": True}, headers=head).status_code for _number in range(40)]


def test_who_opens_the_link_signs_in_however_often_strangers_try(tmp_path: pathlib.Path) -> None:
    limits = settings.CallLimits(rate=0.01, burst=5, changes=0.01, changes_burst=2)
    console = memory.opened(tmp_path / "results", limits=limits)
    stranger = console.client()
    console.auth.new_link(every_s=0.0)
    assert [stranger.get("/runs").status_code for _number in range(7)].count(429) == 2
    # The page to sign in has limits of its own.
    home = {"origin": f"http://{memory.HOST}"}
    assert [stranger.post("/enter", headers=home).status_code for _number in range(4)] == [200, 200, 429, 429]
    assert [stranger.get("/enter?code=guessed").status_code for _number in range(2)] == [401, 429]
    # Whoever asks for newer links ends none, until one is used.
    for _number in range(3):
        console.auth.new_link(every_s=0.0)
    assert console.client().get(f"/enter?code={console.links[0]}").status_code == 303
    assert console.client("192.0.2.9").get(f"/enter?code={console.links[-1]}").status_code == 401


def test_only_the_last_links_of_the_terminal_hold() -> None:
    links: list[str] = []
    login = auth.LocalLogin("tester", links.append)
    for _number in range(auth.LINKS + 1):
        login.new_link(every_s=0.0)
    assert [bool(login.opens(link)) for link in links] == [False, *[True] * auth.LINKS]
    assert login.enter(links[0]) is None and login.enter(links[1]) and login.enter(links[2]) is None


def test_a_token_of_a_cluster_is_proven_by_its_last_review_without_another() -> None:
    asked = []

    def post(_path: str, body: dict[str, t.Any]) -> dict[str, t.Any]:
        asked.append(body["spec"]["token"])
        return {"status": {"authenticated": body["spec"]["token"] == "good", "user": {"username": "ann"}}}

    client: t.Any = types.SimpleNamespace(post=post)
    login = auth.ClusterLogin(auth.Reviews(client, "lab"))
    good, bad = ({"authorization": f"Bearer {token}"} for token in ("good", "bad"))
    assert login.proven("192.0.2.1", good, None) == "" and not asked
    assert login.who("192.0.2.1", good, None) and login.who("192.0.2.1", bad, None) is None
    assert (login.proven("192.0.2.1", good, None), login.proven("192.0.2.1", bad, None)) == ("ann", "")
    assert asked == ["good", "bad"]


def test_streams_are_counted_and_what_a_page_is_told_is_one_line(tmp_path: pathlib.Path) -> None:
    console = memory.opened(tmp_path / "results", limits=settings.CallLimits(streams_of_one=1))
    serve = memory.serving(console.app)
    with serve as port:
        console.auth.new_link(every_s=0.0)
        cookie = re.search(rb"set-cookie: (console-[0-9a-f]+=[^;]+)", _asked(port, f"/enter?code={console.links[-1]}"), re.I)
        assert cookie
        head = f"Cookie: {cookie[1].decode()}\r\n"
        with socket.create_connection(("127.0.0.1", port), 10) as first:
            first.sendall(f"GET /api/v1/changes HTTP/1.1\r\nHost: {memory.HOST}\r\n{head}\r\n".encode())
            text = b""
            while b"event: begin" not in text:
                text += first.recv(4096)
            assert b"429" in _asked(port, "/api/v1/changes", head).splitlines()[0]
            console.actions.create("x", RDMA, "a\r\nevent: harm")
            while b"event: change" not in text:
                text += first.recv(4096)
            assert b"event: harm" not in text


def test_a_stream_ends_with_the_right_to_look_whatever_there_is_to_tell(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may, over = [True], threading.Event()
    monkeypatch.setattr(streams, "BEAT_S", 0.3)
    monkeypatch.setattr(streams, "_may", lambda _ask: may[0])
    console = memory.opened(tmp_path / "results")
    console.actions.create("x", RDMA, "a")

    def always() -> None:
        while not over.wait(0.02):
            console.actions.put(console.actions.of["x"])

    steady = threading.Thread(target=always)
    with memory.serving(console.app) as port:
        console.auth.new_link(every_s=0.0)
        cookie = re.search(rb"set-cookie: (console-[0-9a-f]+=[^;]+)", _asked(port, f"/enter?code={console.links[-1]}"), re.I)
        assert cookie
        with socket.create_connection(("127.0.0.1", port), 60) as page:
            page.sendall(f"GET /api/v1/changes HTTP/1.1\r\nHost: {memory.HOST}\r\nCookie: {cookie[1].decode()}\r\n\r\n".encode())
            text = b""
            steady.start()
            try:
                while b": beat" not in text or b"event: change" not in text:
                    text += page.recv(4096)
                may[0] = False
                end = time.monotonic() + 60
                while not text.endswith(b"\r\n0\r\n\r\n"):
                    assert time.monotonic() < end, "it is still told"
                    text = text[-16:] + page.recv(4096)
            finally:
                over.set()
                steady.join()


def _asked(port: int, path: str, head: str = "") -> bytes:
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: {memory.HOST}\r\n{head}Connection: close\r\n\r\n".encode())
        text = b""
        while piece := client.recv(65536):
            text += piece
        return text


def test_a_client_that_sends_too_slowly_is_cut_off(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEAD_S", 0.5)
    console = memory.opened(tmp_path / "results", limits=settings.CallLimits(body_s=0.5))
    with memory.serving(console.app) as port:
        with socket.create_connection(("127.0.0.1", port), 10) as silent, socket.create_connection(("127.0.0.1", port), 10) as dripping:
            dripping.sendall(b"GET /healthz HTTP/1.1\r\nHo")
            assert silent.recv(100) == b"" and dripping.recv(100) == b""
        with socket.create_connection(("127.0.0.1", port), 10) as half:
            half.sendall(f"POST /start HTTP/1.1\r\nHost: {memory.HOST}\r\nContent-Length: 1000\r\n\r\nkind=".encode())
            assert half.recv(100).startswith(b"HTTP/1.1 408")
        with contextlib.suppress(ConnectionError):
            assert _asked(port, "/healthz", f"X: {'y' * 200_000}\r\n").startswith(b"HTTP/1.1 4")
        assert _asked(port, "/healthz").endswith(b"ok\n")


# What a node, a tool or a person says -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> memory.Opened:
    """Names, errors and outputs as an attacker would choose them, wherever the console shows any."""
    results = tmp_path_factory.mktemp("hostile") / "results"
    results.mkdir()
    history_content.put(results, history_content.content(list(HOSTILE), [(HOSTILE[0], "plain")]))
    infos = [actions.NodeInfo(name, 8, 8, {name: name}, [name], name) for name in HOSTILE]
    console = memory.opened(results, memory=memory.Memory(infos))
    for number, text in enumerate(HOSTILE):
        status = actions.Status(
            phase=text if number == 2 else actions.RUNNING, run_id=text, verdict=text, command=[text], counts={text: 1}, progress=text,
            message=text, link=text, queue_position=1, waiting_for=text, started=text,
            conditions=[{"type": text, "status": text, "message": text, "lastTransitionTime": text}],
        )  # fmt: skip
        console.actions.put(actions.Action(f"x{number}", text, {"rdma": {"nodes": [text], "device": text}}, status, text, text))
    return console


def test_nothing_that_anybody_says_becomes_markup(hostile: memory.Opened) -> None:
    client = hostile.signed_in()
    ways = ["/", "/start", "/runs", "/nodes", "/history", "/history?check=*", "/compare"]
    ways += [f"/runs/x{number}" for number in range(len(HOSTILE))]
    seen = ""
    for path in ways:
        seen += _harmless(client.get(path))
    for text in HOSTILE:
        for path, name in (
            ("/node", "name"), ("/history", "node"), ("/history", "check"), ("/history", "since"), ("/history", "verdict"),
            ("/history", "run"), ("/start", "nodes"), ("/start", "q"), ("/start", "name"), ("/nodes", "q"), ("/nodes", "label"),
            ("/nodes", "sort"), ("/runs", "text"), ("/runs", "phase"), ("/compare", "before"), ("/compare", "after"),
            ("/runs", "lang"), ("/runs", "after"), ("/start", "kind"), ("/", "q"), ("/", "by"), ("/", "verdict"), ("/", "stage"),
            ("/history", "until"), ("/runs/x0", "node"), ("/part", "name"), ("/history", "part"),
        ):  # fmt: skip
            seen += _harmless(client.get(path, params={name: text, **({"do": "show"} if path == "/start" else {})}))
        _harmless(client.get("/history/curves", params={"node": "*"}), of_a_run=True)
        _harmless(client.get("/find", params={"q": text}), moved=True)
    assert "&lt;script&gt;window.harm=1" in seen and "\\x1b[2J" in seen
    assert "49" not in re.findall(r">\s*(\d+)\s*<", seen)


def _harmless(answer: t.Any, of_a_run: bool = False, moved: bool = False) -> str:
    assert answer.status_code < 500, answer.url
    assert not {"x", "x-harm"} & set(answer.headers) and "x=1" not in answer.headers.get("set-cookie", "")
    text = str(answer.text)
    assert "<script>window.harm" not in text and "<img" not in text
    assert not re.search(r'(href|src|action)="(javascript|//|https?:)', text)
    if not of_a_run:
        assert text.count("<script") == (0 if moved else 1)
        assert "\x1b" not in text and "\u202e" not in text
    return text


def test_what_nodes_say_stays_text_in_cards_lists_and_templates(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = console_hostile.opened(tmp_path / "results").signed_in()
    seen = "".join(_harmless(client.get(page)) for page in console_hostile.PAGES)
    monkeypatch.setattr(fleet.FleetReader, "state", lambda _reader: (console_hostile.state(), HOSTILE[0]))
    for page in ("/", "/?part=lists", f"/node?name={console_hostile.NODE}"):
        seen += _harmless(client.get(page))
    assert seen.count("&lt;script&gt;window.harm=1") > 30


def test_a_session_does_not_outlive_a_clock_that_was_ahead(console: memory.Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    client = console.signed_in()
    assert client.get("/runs").status_code == 200
    now = time.time()
    # Corrected by a little, as time services do; back by a year; ahead by more than a session lasts.
    for moved_s, status in ((-60, 200), (-365 * 86400, 401), (2 * 3600, 401), (0, 200)):
        monkeypatch.setattr(sessions, "time", types.SimpleNamespace(time=lambda moved_s=moved_s: now + moved_s))
        assert client.get("/runs").status_code == status, moved_s


def test_a_table_holds_no_formula(hostile: memory.Opened) -> None:
    answer = hostile.signed_in().get("/history.csv", params={"check": "*"})
    assert answer.headers["content-disposition"] == 'attachment; filename="history.csv"'
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert len(rows) > len(HOSTILE)
    assert not [cell for row in rows for cell in row if cell[:1] in "=+-@\t\r" and cell and not re.fullmatch(r"-?[\d.e+-]+", cell)]


@pytest.mark.parametrize("field", FIELDS)
def test_nothing_is_injected_through_a_field(console: memory.Opened, field: str) -> None:
    client = console.signed_in()
    token = csrf(client.get("/start").text)
    kinds = {**dict.fromkeys(forms.COLLECTIVE.values(), "collective"), **dict.fromkeys(forms.STAGES.values(), "stages")}
    base = {"kind": kinds.get(field, "rdma"),
            "nodes": "n0001 n0002", "where": "pool" if field == "labels" else "nodes", "stage": "gemm",
            **({"cron": "0 3 * * 6"} if field == "zone" else {})}  # fmt: skip
    for number, text in enumerate(INJECTED):
        given = f"gemm_types: {text}" if field == "variables" else f"pool={text}" if field == "labels" else text
        answer = client.post("/start", data={**base, "name": f"a{number}", field: given, "csrf": token})
        # A plain word is a name of something that may be there; it stays a word.
        assert answer.status_code == (303 if text in PLAIN.get(field, ()) else 422), (field, text)
        _harmless(answer, moved=answer.status_code == 303)
    assert len(console.actions.of) == len(PLAIN.get(field, ()))


def test_variables_that_a_request_may_not_set_are_refused(console: memory.Opened) -> None:
    client = console.signed_in()
    head = {"x-csrf-token": csrf(client.get("/start").text)}
    for name in ("acceptance_root", "ansible_connection", "acceptance_kube_pod_patch", "nccl_node_binary_dir", "gemm_python", "x"):
        spec = {"stages": {"names": ["gemm"], "nodes": ["n0001"], "variables": {name: "y"}}}
        answer = client.post("/api/v1/actions", json={"spec": spec}, headers=head)
        assert answer.status_code == 422 and name in answer.text
    for more in ({"image": "evil.test/x"}, {"namespace": "kube-system"}, {"command": ["sh"]}):
        assert client.post("/api/v1/actions", json={"spec": {**RDMA, **more}}, headers=head).status_code == 422
    assert not console.actions.of


def test_no_way_leads_out_of_a_runs_folder(tmp_path: pathlib.Path) -> None:
    results = tmp_path / "results"
    runs.judged(results, 1, runs.fleet(a=670.0), acceptance_history=True)
    run = runs.run_id(1)
    (tmp_path / "secret").write_text("the secret")
    (results / run / "raw/link").symlink_to(tmp_path / "secret")
    (results / run / "raw/link.txt.gz").symlink_to(tmp_path / "secret")
    (results / run / "report.md").unlink()
    (results / run / "report.md").symlink_to(tmp_path / "secret")
    client = memory.opened(results).signed_in()
    for name in (
        "../../secret", "..%2f..%2fsecret", "%2e%2e/%2e%2e/secret", "raw/../../../secret", "raw/link", "/etc/passwd", "raw//etc/passwd",
        "report.md", "raw%2f..%2f..%2f..%2fsecret", "plan.json", "journal.jsonl.gz", "controller.json", "todo/tasks.yml", "raw",
        "report.html%00", "..\\secret", "raw/link%230", "raw/link.txt.gz%230", "raw/..%2flink.txt.gz%230",
    ):  # fmt: skip
        answer = client.get(f"/results/{run}/{name}")
        assert answer.status_code in (307, 404), name
        assert "the secret" not in answer.text
    for odd in (f"{run}%2f..", "x", f"{run}x", store.FILE):
        assert client.get(f"/results/{odd}").status_code == 404
        assert client.get(f"/results/{odd}/report.html").status_code == 404
    for odd in ("x", "0" * 64, "' or 1=1 --"):
        assert client.get(f"/digest/{odd}").status_code == 404
