# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check a folder of HTML pages: each link leads to a file and an anchor in it, and no page loads anything from elsewhere."""

from __future__ import annotations

import html.parser
import pathlib
import urllib.parse

# A link to another site may be anywhere; what a page loads by itself may not.
LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


class Page(html.parser.HTMLParser):
    """The anchors of a page, and its links as (tag, attribute, address)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            if name in ("href", "src"):
                self.links.append((tag, name, value))


def broken(folder: pathlib.Path) -> list[str]:
    """Return a line for each link that leads nowhere, and for each thing that a page loads from elsewhere."""
    parsed = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    lines = []
    for path, page in parsed.items():
        for tag, attribute, address in page.links:
            parts = urllib.parse.urlsplit(address)
            name = path.relative_to(folder.resolve())
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                if (tag, attribute) in LOADED:
                    lines.append(f"{name}: {tag} loads {address}, expected nothing from elsewhere")
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                lines.append(f"{name}: {address}: there is no such file")
            elif parts.fragment and target in parsed and urllib.parse.unquote(parts.fragment) not in parsed[target].anchors:
                lines.append(f"{name}: {address}: the page has no such anchor")
    return sorted(set(lines))
