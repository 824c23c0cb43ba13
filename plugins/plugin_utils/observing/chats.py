# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The messages of chats: what each takes, and templates of JSON in which every value is escaped for the chat's markup and for JSON.

A template has the fields of the message (webhook.py) and nothing else: the address that it is sent to, which is a secret, is no field.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import html
import json
import pathlib
import re
import typing as t
import urllib.parse

import jinja2
import jinja2.sandbox
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.collection import ROOT
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import SinkError

_SHIPPED = ROOT / "roles/common/files/webhooks"
# Most characters of one value: a chat is no report, and a line that is cut in the middle of its markup would be refused.
MOST_OF_A_VALUE = 500
# Characters that mean something anywhere in a line of Markdown, and what means something at its beginning.
_MARKDOWN = re.compile(r"[\\`*_\[\]~|]")
_MARKDOWN_LINE = re.compile(r"(?m)^(\s*)([>#+-]|\d+(?=[.)]))")
# No character: what follows an @ is no name of a person or a room then.
_NOBODY = "@\u200b"


class TemplateError(SinkError):
    """A template that cannot be read, or that makes no JSON of a message."""


class Address(str):
    """The address of a page: in a link it is not escaped as words are."""


class Plain(str):
    """A text for a field without markup: the filter `plain` of templates."""


class Chat(t.NamedTuple):
    """The form that a chat takes: its markup, the most bytes of one text, the method, and the field of its answer that is 0 if it took a
    message. `bearer` says that the address holds a token (https://TOKEN@...), which is sent as a header, and ends with an id of the
    message."""

    markup: str = "none"
    limit: int = 20000
    method: str = "POST"
    zero: str = ""
    bearer: bool = False


# Limits: Slack's of a section; Mattermost's default of a post; Discord's of an embed; Telegram's of a message; WeCom's of a text.
CHATS: dict[str, Chat] = {
    "slack": Chat("slack", 3000),
    "mattermost": Chat("markdown", 16000),
    "teams": Chat(),
    "discord": Chat("markdown", 4000),
    "google_chat": Chat("html", 16000),
    "matrix": Chat("html", method="PUT", bearer=True),
    "telegram": Chat("html", 4000),
    "feishu": Chat(zero="code"),
    "dingtalk": Chat(zero="errcode"),
    "wecom": Chat(limit=2000, zero="errcode"),
}


def _markdown(text: str) -> str:
    escaped = _MARKDOWN_LINE.sub(lambda m: f"{m[1]}\\{m[2]}" if not m[2].isdigit() else f"{m[1]}{m[2]}\\", _MARKDOWN.sub(r"\\\g<0>", text))
    return escaped.replace("@", _NOBODY)


_ESCAPES: dict[str, t.Callable[[str], str]] = {
    "none": str,
    "slack": lambda text: html.escape(text, quote=False),
    "html": lambda text: html.escape(text).replace("@", _NOBODY),
    "markdown": _markdown,
}


def _plain(value: t.Any) -> Plain:
    return Plain(_escaped(value, "none") if isinstance(value, str) else value)


def _escaped(value: t.Any, markup: str) -> t.Any:
    if isinstance(value, Plain):
        return str(value)
    if isinstance(value, Address):
        address = urllib.parse.quote(value, safe=":/?#@!$&+,;=%-._~[]")
        return address if markup in ("none", "markdown") else html.escape(address)
    if isinstance(value, str):
        return _ESCAPES[markup](value if len(value) <= MOST_OF_A_VALUE else f"{value[: MOST_OF_A_VALUE - 1]}…")
    if isinstance(value, dict):
        return {str(name): _escaped(of, markup) for name, of in value.items()}
    return [_escaped(item, markup) for item in value] if isinstance(value, (list, tuple)) else value


def _printed(value: t.Any, markup: str) -> str:
    """Return a value as a template prints it: a text as what stands between the quotes of JSON, anything else as JSON."""
    if isinstance(value, jinja2.Undefined):
        return str(value)  # raises, with the name
    if isinstance(value, str):
        return json.dumps(_escaped(value, markup), ensure_ascii=False)[1:-1]
    return json.dumps(_escaped(value, markup), ensure_ascii=False)


class Template:
    """The template of a chat: the shipped one, or a file of a user's. Raise TemplateError if it cannot be used."""

    def __init__(self, chat: str, path: str = "") -> None:
        self.chat = CHATS.get(chat, Chat())
        self.name = path or f"{chat}.json.j2"
        markup = self.chat.markup
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            undefined=jinja2.StrictUndefined, finalize=lambda value: _printed(value, markup)
        )
        environment.filters["plain"] = _plain
        try:
            text = (pathlib.Path(path).expanduser() if path else _SHIPPED / self.name).read_text(encoding="utf-8")
            self._template = environment.from_string(text)
        except OSError as error:
            raise TemplateError(f"the template {self.name} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise TemplateError(f"the template {self.name} is not UTF-8") from error
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"the template {self.name}, line {error.lineno}: {error.message}") from error

    def body(self, message: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """Return what is sent of a message."""
        try:
            text = self._template.render(**message)
        except Exception as error:  # whatever an expression of a user's does
            raise TemplateError(f"the template {self.name}: {error}") from error
        try:
            body = json.loads(text, strict=False)  # a line break in a text is one
        except ValueError as error:
            line = text.splitlines()[getattr(error, "lineno", 1) - 1 :][:1]
            raise TemplateError(f"the template {self.name} makes no JSON: {error}: {''.join(line).strip()[:200]!r}") from error
        if not isinstance(body, dict):
            raise TemplateError(f"the template {self.name} makes {type(body).__name__}, expected a JSON object")
        return t.cast("dict[str, t.Any]", _cut(body, self.chat.limit))


def _cut(value: t.Any, limit: int) -> t.Any:
    """Return plain data whose texts have at most `limit` bytes, cut behind a line if that is possible."""
    if isinstance(value, dict):
        return {name: _cut(of, limit) for name, of in value.items()}
    if isinstance(value, list):
        return [_cut(item, limit) for item in value]
    if not isinstance(value, str) or len(value.encode()) <= limit:
        return value
    lines: list[str] = []
    room = limit - len("…")
    for line in value.split("\n"):
        room -= len(line.encode()) + 1
        if room < len("…".encode()):
            break
        lines.append(line)
    return "\n".join([*lines, "…"]) if lines else f"{value.encode()[: limit - 3].decode(errors='ignore')}…"
