# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages of chats: each has the form that its chat takes, and no word of a node's is markup of it."""

from __future__ import annotations

import http.server
import json
import pathlib
import threading
import typing as t

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.collection import ROOT
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.observing import chats, webhook
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks import registry

# What would be a link, a mention of everybody, an end of a JSON text or of an HTML element, were it not escaped.
NASTY = 'n1: <!channel> <b>@all</b> [x](http://evil) *_`|~\\ "}], "text": "x'
LINK = "https://console.example.com/results/20261122T100000Z-0a1b2c"
SECRET = "s3cret"


def message(**more: t.Any) -> dict[str, t.Any]:
    return {
        "run": "20261122T100000Z-0a1b2c", "inventory": "lab", "word": "NOT ACCEPTED", "accepted": False, "why": NASTY, "partial": False,
        "simulated": True, "counts": {"FAIL": 1}, "causes": [NASTY], "more": 2, "planned_at": "2026-11-22T10:00:00Z",
        "judged_at": "2026-11-22T10:07:00Z", "link": chats.Address(LINK), "mode": "run", "findings": [], "cut": False, **more,
    }  # fmt: skip


def texts(value: t.Any) -> t.Iterator[str]:
    """Yield all texts of plain data."""
    if isinstance(value, dict):
        for of in value.values():
            yield from texts(of)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("chat", chats.CHATS)
def test_every_chat_gets_result_run_link_and_causes(chat: str) -> None:
    body = chats.Template(chat).body(message(causes=["n1: slow"] * 10, why="FAIL on 1 node"))
    whole = "\n".join(texts(body)).replace("\\", "")
    for words in ("NOT ACCEPTED", "(simulated)", "lab", "20261122T100000Z-0a1b2c", "FAIL on 1 node", "n1: slow", "and 2 more", LINK):
        assert words in whole, words
    assert whole.count("n1: slow") == 10
    accepted = chats.Template(chat).body(message(causes=[], more=0, accepted=True, simulated=False, link=chats.Address("")))
    assert "(simulated)" not in str(accepted) and "more" not in str(list(texts(accepted)))


@pytest.mark.parametrize("chat", chats.CHATS)
def test_no_word_of_a_node_is_markup_of_a_chat(chat: str) -> None:
    """A value that left its text would change the structure; one that is not escaped would stand as it is in a text with markup."""
    plain, nasty = (chats.Template(chat).body(message(why=word, causes=[word])) for word in ("words", NASTY))

    def shape(value: t.Any) -> t.Any:
        if isinstance(value, dict):
            return {name: shape(of) for name, of in value.items()}
        return [shape(item) for item in value] if isinstance(value, list) else type(value).__name__

    assert shape(plain) == shape(nasty)
    marked = {"slack": ["<!channel>"], "html": ["<b>@", "@all"], "markdown": ["[x](", " *_", "@all"], "none": []}
    if chat == "slack":
        assert NASTY in nasty["blocks"][-2]["text"]["text"] and nasty["blocks"][-2]["text"]["type"] == "plain_text"
        nasty["blocks"] = nasty["blocks"][:2]
    if chat == "matrix":
        assert NASTY in nasty.pop("body")
    for part in marked[chats.CHATS[chat].markup]:
        assert [text for text in texts(nasty) if part in text] == []


@pytest.mark.parametrize(
    ("markup", "given", "expected"),
    [
        ("slack", "a <!here> & b", "a &lt;!here&gt; &amp; b"),
        ("html", "<a href='x'>", "&lt;a href=&#x27;x&#x27;&gt;"),
        ("markdown", "mlx5_0 *x* `y` | [z]", "mlx5\\_0 \\*x\\* \\`y\\` \\| \\[z\\]"),
        ("markdown", "a-b (1.5) #2\n# no title\n2. no list\n- nor this", "a-b (1.5) #2\n\\# no title\n2\\. no list\n\\- nor this"),
        ("markdown", "@channel", "@\u200bchannel"),
        ("none", "<b> *x* @all", "<b> *x* @all"),
    ],
)
def test_values_are_escaped_for_the_markup_of_a_chat(markup: str, given: str, expected: str) -> None:
    assert chats._escaped(given, markup) == expected
    assert chats._escaped({"a": [given, 1, None, True]}, markup) == {"a": [expected, 1, None, True]}


def test_a_link_stays_a_link_and_cannot_end_its_markup() -> None:
    link = chats.Address("https://console.example.com/a_b/results/x?y=1&z=2")
    assert chats._escaped(link, "markdown") == link
    assert chats._escaped(link, "html") == link.replace("&", "&amp;")
    assert chats._escaped(chats.Address('https://c/x)"<|'), "markdown") == "https://c/x%29%22%3C%7C"


def test_long_texts_are_cut_behind_a_line() -> None:
    causes = [f"n{number}: {'slow ' * 90}" for number in range(10)]
    for chat, limits in chats.CHATS.items():
        body = chats.Template(chat).body(message(causes=causes))
        assert max(len(text.encode()) for text in texts(body)) <= limits.limit, chat
    lines = chats.Template("wecom").body(message(causes=causes))["text"]["content"].split("\n")
    assert lines[-1] == "…" and lines[-2].startswith("• n2: slow")
    assert len(chats._cut("é" * 3000, 100).encode()) <= 100


OWN = """{"room": "gpu", "ok": {{ accepted }}, "counts": {{ counts }},
 "text": "*{{ word }}*{% for cause in causes %}
- {{ cause }}{% endfor %}"}"""


def test_a_template_of_a_users_own_is_json_whatever_its_values_are(tmp_path: pathlib.Path) -> None:
    own = tmp_path / "own.j2"
    own.write_text(OWN, encoding="utf-8")
    body = chats.Template("slack", str(own)).body(message())
    assert body == {
        "room": "gpu", "ok": False, "counts": {"FAIL": 1}, "text": "*NOT ACCEPTED*\n- " + NASTY.replace("<", "&lt;").replace(">", "&gt;")
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"text": "{{ wrod }}"}', "'wrod' is undefined"),
        ('{"text": "x",\n{% if %}}', "line 2"),
        ('{"text": {{ word }}}', "makes no JSON: Expecting value: line 1 column 10"),
        ('["{{ word }}"]', "makes list, expected a JSON object"),
        ('{"text": "{{ causes.__class__.__base__ }}"}', "unsafe"),
        ('{"text": "{% include "/etc/passwd" %}"}', "no loader"),
        ('{"text": "{{ url }}"}', "'url' is undefined"),
        ('{"text": "{{ 1 // 0 }}"}', "division"),
    ],
)
def test_a_bad_template_is_one_error_before_the_run(tmp_path: pathlib.Path, text: str, said: str) -> None:
    own = tmp_path / "own.j2"
    own.write_text(text, encoding="utf-8")
    values = {"acceptance_webhook": f"https://hooks.example.com/{SECRET}", "acceptance_webhook_template": str(own)}
    with pytest.raises(RunError) as caught:
        registry.chosen(registry.requested(values))
    assert str(caught.value).startswith(f"acceptance_webhook: sink webhook: the template {own}") and said in str(caught.value)
    assert SECRET not in str(caught.value) and "\n" not in str(caught.value)


def test_a_template_that_is_away_and_a_chat_that_is_unknown_are_errors_before_the_run(tmp_path: pathlib.Path) -> None:
    values = {"acceptance_webhook": f"https://hooks.example.com/{SECRET}"}
    for more, said in (
        ({"acceptance_webhook_template": str(tmp_path / "gone.j2")}, "gone.j2 cannot be read: No such file or directory"),
        ({"acceptance_webhook_chat": "icq"}, "one of: json, slack"),
        ({"acceptance_webhook_chat": "matrix"}, "expected an address with a token: https://TOKEN@"),
    ):
        with pytest.raises(RunError) as caught:
            registry.chosen(registry.requested({**values, **more}))
        assert said in str(caught.value) and SECRET not in str(caught.value)


def test_the_variable_lists_the_chats_that_there_are() -> None:
    options = yaml.safe_load((ROOT / "roles/common/meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]["main"][
        "options"
    ]
    assert options["acceptance_webhook_chat"]["choices"] == ["json", *chats.CHATS]
    assert {path.name for path in (ROOT / "roles/common/files/webhooks").iterdir()} == {f"{chat}.json.j2" for chat in chats.CHATS}


class Receiver(http.server.BaseHTTPRequestHandler):
    """Answers what its server is given, and notes what it is asked."""

    def do_POST(self) -> None:
        server = t.cast("t.Any", self.server)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.seen.append((self.command, self.path, self.headers["Authorization"], body))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(server.answer)

    do_PUT = do_POST

    def log_message(self, *_args: t.Any) -> None:
        pass


@pytest.fixture
def receiver() -> t.Iterator[t.Any]:
    server: t.Any = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
    server.seen, server.answer = [], b"ok"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_matrix_is_given_its_token_in_a_header_and_the_same_message_once(receiver: t.Any) -> None:
    url = f"http://{SECRET}@127.0.0.1:{receiver.server_port}/_matrix/client/v3/rooms/!r:example.com/send/m.room.message"
    for identity in ("a", "a", "b"):
        webhook.post(url, {"msgtype": "m.notice"}, chats.CHATS["matrix"], identity)
    (method, first, token, body), second, third = receiver.seen
    assert (method, token, body) == ("PUT", f"Bearer {SECRET}", {"msgtype": "m.notice"})
    assert first.startswith("/_matrix/client/v3/rooms/!r:example.com/send/m.room.message/") and SECRET not in first
    assert second[1] == first != third[1]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b'{"errcode": 0, "errmsg": "ok"}', ""),
        (b'{"errcode": 310000, "errmsg": "keywords not in content"}', "refuses the message: errcode 310000"),
        (b"<html>", "does not say that it took the message: expected errcode in its answer"),
        (b"[]", "does not say that it took the message"),
        (b'{"errcode": false}', "refuses the message"),
    ],
)
def test_a_chat_that_refuses_with_status_200_is_noticed(receiver: t.Any, answer: bytes, said: str) -> None:
    receiver.answer = answer
    url = f"http://127.0.0.1:{receiver.server_port}/robot/send?access_token={SECRET}"
    if not said:
        webhook.post(url, {"msgtype": "text"}, chats.CHATS["dingtalk"])
        return
    with pytest.raises(webhook.WebhookError) as caught:
        webhook.post(url, {"msgtype": "text"}, chats.CHATS["dingtalk"])
    assert said in str(caught.value) and SECRET not in str(caught.value)
