# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of each page of a PDF as Chromium prints it: fonts with a table to Unicode, streams in zlib's format, no objects in streams."""

from __future__ import annotations

import re
import typing as t
import unicodedata
import zlib

_OBJECT = re.compile(rb"(?:^|\n)(\d+) 0 obj\r?\n(.*?)\r?\nendobj", re.DOTALL)
_SHOWN = re.compile(rb"/(\w+) [\d.]+ Tf|<([0-9A-Fa-f]+)>(?= ?Tj|[^<>\[\]]*(?:<[0-9A-Fa-f]+>[^<>\[\]]*)*\] ?TJ)")


def pages(pdf: bytes) -> list[str]:
    """Return the text of each page without any blanks, in the order in which it is drawn."""
    objects = {int(number): body for number, body in _OBJECT.findall(pdf)}
    root = next(body for body in objects.values() if re.search(rb"/Type ?/Catalog\b", body))
    return [_text(objects, page) for page in _leaves(objects, _reference(root, b"Pages"))]


def _leaves(objects: dict[int, bytes], number: int) -> t.Iterator[bytes]:
    kids = re.search(rb"/Kids ?\[([^\]]*)\]", objects[number])
    if not kids:
        yield objects[number]
        return
    for kid in re.findall(rb"(\d+) 0 R", kids[1]):
        yield from _leaves(objects, int(kid))


def _reference(body: bytes, name: bytes) -> int:
    found = re.search(rb"/" + name + rb" (\d+) 0 R", body)
    assert found, f"no {name.decode()} in {body[:200]!r}"
    return int(found[1])


def _stream(body: bytes) -> bytes:
    data = body.split(b"stream", 1)[1].lstrip(b"\r").removeprefix(b"\n")
    return zlib.decompressobj().decompress(data) if b"FlateDecode" in body else data.rpartition(b"endstream")[0]


def _text(objects: dict[int, bytes], page: bytes) -> str:
    fonts = re.search(rb"/Font ?<<(.*?)>>", page, re.DOTALL)
    tables = {name: _table(objects, int(number)) for name, number in re.findall(rb"/(\w+) (\d+) 0 R", fonts[1])} if fonts else {}
    table: dict[int, str] = {}
    shown = []
    for font, glyphs in _SHOWN.findall(_stream(objects[_reference(page, b"Contents")])):
        if font:
            table = tables.get(font, {})
        shown += [table.get(int(glyphs[at : at + 4], 16), "") for at in range(0, len(glyphs), 4)]
    # Fonts draw some letters together, as one sign of their own.
    return "".join(unicodedata.normalize("NFKC", "".join(shown)).split())


def _table(objects: dict[int, bytes], number: int) -> dict[int, str]:
    """Return {glyph: its text} of a font."""
    if not re.search(rb"/ToUnicode \d+ 0 R", objects[number]):
        return {}
    text = _stream(objects[_reference(objects[number], b"ToUnicode")])
    table = {}
    for block in re.findall(rb"beginbfchar(.*?)endbfchar", text, re.DOTALL):
        table.update({int(glyph, 16): _unicode(of) for glyph, of in re.findall(rb"<(\w+)> <(\w+)>", block)})
    for block in re.findall(rb"beginbfrange(.*?)endbfrange", text, re.DOTALL):
        for first, last, of in re.findall(rb"<(\w+)> <(\w+)> <(\w+)>", block):
            start = int(first, 16)
            table.update({glyph: chr(int(of, 16) + glyph - start) for glyph in range(start, int(last, 16) + 1)})
    return table


def _unicode(digits: bytes) -> str:
    return bytes.fromhex(digits.decode()).decode("utf-16-be")
