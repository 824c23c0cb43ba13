# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages from their templates, and the two files of ours that a browser fetches.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import hashlib
import json
import pathlib
import re
import typing as t
import urllib.parse

import markupsafe
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.lib import starlette
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.request_context import RequestContext
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.words import languages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.advice import ADVICE
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import keys
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import page

if t.TYPE_CHECKING:
    import jinja2
    import starlette.responses

HERE = pathlib.Path(__file__).resolve().parent
KINDS = {".css": "text/css", ".js": "text/javascript"}
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)\Z")


@functools.lru_cache(maxsize=1)
def files() -> dict[str, bytes]:
    """{name: what a browser gets}; the colours and tables are those of the report."""
    contents = {path.name: path.read_bytes() for path in (HERE / "static").iterdir() if path.suffix in KINDS}
    contents["console.css"] = (page.TEMPLATES / "report.css").read_bytes() + contents["console.css"]
    return contents


@functools.lru_cache(maxsize=1)
def _address_of_files() -> dict[str, str]:
    return {name: f"/static/{name}?{hashlib.sha256(text).hexdigest()[:12]}" for name, text in files().items()}


@functools.lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = page.environment(HERE / "templates")
    environment.filters.update(when=when, url=url, said=said, node_of=node_of, advised=ADVICE.get)
    environment.globals.update(static=_address_of_files(), languages=languages(), phases=actions.PHASES, ended=actions.ENDED)
    return environment


def when(text: str) -> str:
    """Return a time as people read it, in an element that the script shows in the reader's own zone. Other text stays as it is."""
    match = _TIME.match(text)
    return markupsafe.Markup(f'<time datetime="{match[1]}T{match[2]}Z">{match[1]} {match[2]} UTC</time>') if match else text


def node_of(subject: str) -> str:
    """Return the node of a subject, of a pair the first one."""
    return keys.node_of(subject.partition("|")[0])


def said(value: t.Any) -> str:
    """A fact in words."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def url(path: str, fields: t.Mapping[str, t.Any] | t.Sequence[tuple[str, str]]) -> str:
    """An address with what is asked for; what is empty is left out."""
    pairs = [(name, str(value)) for name, value in (fields.items() if isinstance(fields, t.Mapping) else fields) if value not in ("", None)]
    return f"{path}?{urllib.parse.urlencode(pairs)}" if pairs else path


def draw(ask: RequestContext, template: str, code: int = 200, /, **values: t.Any) -> starlette.responses.Response:
    query = [(name, value) for name, value in ask.request.query_params.multi_items() if name != "lang"]

    def with_(**changes: t.Any) -> str:
        """This page, with some of what is asked for changed."""
        remaining = [(name, value) for name, value in query if name not in changes]
        return url(ask.request.url.path, [*remaining, *((name, str(value)) for name, value in changes.items())])

    text = _environment().get_template(f"{template}.html.j2").render(
        say=ask.words, ask=ask, with_=with_, csrf=ask.session.csrf if ask.session else "", path=ask.request.url.path,
        here=query, storage=ask.console.storage.problems() if ask.who else (), **values,
    )  # fmt: skip
    return starlette.responses.HTMLResponse(text, code)
