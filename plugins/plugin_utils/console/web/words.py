# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The texts of the pages: a file for each language, texts/LANGUAGE.yml. Another language is another file.

What runs, nodes and tools say stays as it was said: verdicts, reasons, commands and names of variables are the same in every language.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import pathlib
import typing as t

from ansible.module_utils.common.yaml import yaml_load

FOLDER = pathlib.Path(__file__).resolve().parent / "texts"
DEFAULT = "en"


@functools.lru_cache(maxsize=1)
def languages() -> dict[str, dict[str, str]]:
    """{language: {name of a text: the text}}, English first."""
    by_code = {path.stem: yaml_load(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.yml"))}
    return {DEFAULT: by_code.pop(DEFAULT), **by_code}


def chosen(requested: str, remembered: str, accepted: str) -> str:
    """The language of a page: asked for, chosen before, or what the browser says its reader reads."""
    supported = languages()
    preferred = [part.partition(";")[0].strip().partition("-")[0].lower() for part in accepted.split(",")[:20]]
    return next((code for code in (requested, remembered, *preferred) if code in supported), DEFAULT)


class Words:
    """Texts of one language."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._texts = languages()[language]

    def __call__(self, name: str, **values: t.Any) -> str:
        text = self._texts[f"{name}_one" if values.get("n") == 1 and self.has(f"{name}_one") else name]
        return text.format(**values) if values else text

    def has(self, name: str) -> bool:
        return name in self._texts
