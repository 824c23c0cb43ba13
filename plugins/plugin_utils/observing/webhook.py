# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`acceptance_webhook: URL`: send the outcome of each judged run, as JSON for programs or as the message of a chat (chats.py).

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import typing as t
import urllib.error
import urllib.parse

from ansible.module_utils.urls import open_url
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.observing import chats, events
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import inventory
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import SinkError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.formats import plain
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Judged, Options, Sink

TIMEOUT_S = 10.0
# Causes that are named; the report has all.
MOST_CAUSES = 10
# Findings and regressions for programs.
MOST_FINDINGS = 200
# The name of the message for programs, which has a text for chats too.
JSON = "json"
# Most of an answer that is read.
MOST_OF_AN_ANSWER = 65536


class WebhookError(SinkError):
    """The receiver did not accept a message. The text names the receiver's host only: the rest of an address is often its password."""


class Webhook(Sink):
    name = "webhook"
    options: t.Mapping[str, t.Mapping[str, t.Any]] = {
        "url": {"type": "str", "required": True, "no_log": True},
        "link": {"type": "str", "default": ""},
        "chat": {"type": "str", "default": JSON, "choices": [JSON, *chats.CHATS]},
        "template": {"type": "str", "default": ""},
    }

    def problem(self, options: Options) -> str | None:
        if not _is_address(options["url"]):
            return "expected the address of a webhook, like https://hooks.example.com/services/..."
        if options["link"] and not _is_address(options["link"]):
            return "link: expected the address of a console, like https://console.example.com"
        if _of(options).bearer and not urllib.parse.urlsplit(options["url"]).username:
            return "expected an address with a token: https://TOKEN@matrix.example.com/_matrix/client/v3/rooms/ROOM/send/m.room.message"
        try:
            for example in _EXAMPLES:
                _content(example, options)
        except chats.TemplateError as error:
            return str(error)
        return None

    def judged(self, of: Judged, options: Options) -> None:
        about = message(of, options["link"])
        post(options["url"], _content(about, options), _of(options), f"{about['run']}\n{about['judged_at']}")


def _of(options: Options) -> chats.Chat:
    return chats.CHATS.get(options["chat"], chats.Chat())


def _content(about: t.Mapping[str, t.Any], options: Options) -> t.Mapping[str, t.Any]:
    """Return what is sent of a message: the message itself for a program, or what a template makes of it."""
    if options["chat"] == JSON and not options["template"]:
        return about
    fields = {name: value for name, value in about.items() if name != "text"}
    return chats.Template(options["chat"], options["template"]).body({**fields, "link": chats.Address(about["link"])})


def _is_address(text: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def message(of: Judged, link: str = "") -> dict[str, t.Any]:
    """Return the message about a judged run. `link` is the address of a console, whose page of the result is named then."""
    report = of.report
    causes = [plain(cause["said"]) for cause in report["causes"]]
    noticed = events.harmless([*events.findings(report["causes"]), *events.regressions(report["past"])])
    address = f"{link.rstrip('/')}/results/{of.run_id}" if link else ""
    lines = [f"{report['word']}: {of.run_id}: {plain(report['why'])}", *causes[:MOST_CAUSES]]
    if len(causes) > MOST_CAUSES:
        lines.append(f"and {len(causes) - MOST_CAUSES} more")
    return {
        # Chats take <, > and & for markup of their own, such as a link or the mention of everybody.
        "text": "\n".join([*lines, *([address] if address else [])]).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
        "run": of.run_id, "inventory": inventory.of_plan(of.plan), "word": report["word"], "accepted": report["accepted"],
        "why": plain(report["why"]), "partial": report["partial"], "simulated": report["simulated"], "counts": report["counts"],
        "causes": causes[:MOST_CAUSES], "more": max(0, len(causes) - MOST_CAUSES), "planned_at": report["planned_at"],
        "judged_at": report["created_at"], "link": address, "mode": report["mode"], "findings": noticed[:MOST_FINDINGS],
        "cut": len(noticed) > MOST_FINDINGS,
    }  # fmt: skip


def post(url: str, content: t.Mapping[str, t.Any], chat: chats.Chat | None = None, identity: str = "") -> None:
    """Send a message to a chat, or to a program. Raise WebhookError if it is not accepted. A chat that knows messages by an id shows those
    of one `identity` once."""
    chat = chat or chats.Chat()
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname
    headers = {"Content-Type": "application/json"}
    if chat.bearer:
        headers["Authorization"] = f"Bearer {urllib.parse.unquote(parts.username or '')}"
        message_id = hashlib.sha256(identity.encode()).hexdigest()[:32]
        url = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=f"{parts.path.rstrip('/')}/{message_id}").geturl()
    try:
        with open_url(
            url, data=json.dumps(content), method=chat.method, timeout=TIMEOUT_S, headers=headers, follow_redirects="none"
        ) as answer:  # fmt: skip
            said = answer.read(MOST_OF_AN_ANSWER) if chat.zero else b""
    except urllib.error.HTTPError as error:
        raise WebhookError(f"the webhook at {host} refuses the message: {error.code}") from error
    except urllib.error.URLError as error:
        raise WebhookError(f"the webhook at {host} cannot be reached: {error.reason}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:  # words of the last two quote the address
        raise WebhookError(f"the webhook at {host} does not answer: {type(error).__name__}") from error
    if chat.zero:
        _take(said, chat.zero, str(host))


def _take(answer: bytes, field: str, host: str) -> None:
    """Raise WebhookError unless an answer says that the message was taken: such chats answer 200 to messages that they refuse."""
    try:
        code = json.loads(answer)[field]
    except (ValueError, KeyError, TypeError) as error:
        raise WebhookError(f"the webhook at {host} does not say that it took the message: expected {field} in its answer") from error
    if code != 0 or isinstance(code, bool):
        raise WebhookError(f"the webhook at {host} refuses the message: {field} {str(code)[:20]}")


# Messages that every template must make JSON of, before anything is measured: an accepted run, and one whose causes have markup.
_EXAMPLE: dict[str, t.Any] = {
    "run": "20260101T000000Z-000000", "inventory": "cluster", "word": "ACCEPTED", "accepted": True, "why": "all 12 checks passed",
    "partial": False, "simulated": False, "counts": {"PASS": 12}, "causes": [], "more": 0, "planned_at": "2026-01-01T00:00:00Z",
    "judged_at": "2026-01-01T00:10:00Z", "link": "", "mode": "run", "findings": [], "cut": False,
}  # fmt: skip
_EXAMPLES: tuple[dict[str, t.Any], ...] = (
    _EXAMPLE,
    {
        **_EXAMPLE, "word": "NOT ACCEPTED", "accepted": False, "partial": True, "simulated": True, "counts": {"FAIL": 12},
        "why": "FAIL on 12 nodes", "causes": ['gpu-01: "<b>&\\*_`"'] * MOST_CAUSES, "more": 2, "cut": True,
        "link": "https://console.example.com/results/20260101T000000Z-000000",
        "findings": [{"subject": "gpu-01", "node": "gpu-01", "kind": "node", "verdict": "FAIL", "convicted": True, "checks": ["a b"],
                      "said": "slow", "simulated": False}],
    },
)  # fmt: skip

SINK = Webhook()
