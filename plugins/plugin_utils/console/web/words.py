# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The texts of the pages: a file for each language, texts/LANGUAGE.yml, and texts/expected/LANGUAGE.yml for what wrong fields should have
had, which programs get in English. Another language is another two files.

What runs, nodes and tools say stays as it was said: verdicts, reasons, commands and names of variables are the same in every language.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import pathlib
import re
import typing as t

from ansible.module_utils.common.yaml import yaml_load

FOLDER = pathlib.Path(__file__).resolve().parent / "texts"
DEFAULT = "en"
# What is wrong with a field, as the history says it.
_PROBLEM = re.compile(r"(?:(?P<field>[a-z_]+): )?found (?P<found>.*?), expected (?P<expected>.*)", re.DOTALL)


@functools.lru_cache(maxsize=1)
def languages() -> dict[str, dict[str, str]]:
    """{language: {name of a text: the text}}, English first."""
    by_code = {path.stem: yaml_load(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.yml"))}
    return {DEFAULT: by_code.pop(DEFAULT), **by_code}


@functools.lru_cache
def _expected(language: str) -> list[tuple[re.Pattern[str], str]]:
    """Return [(pattern of an English text, the text in the language)]."""
    path = FOLDER / "expected" / f"{language}.yml"
    rows = yaml_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    pattern = re.compile(r"\\{(\w)\\}")
    return [(re.compile(pattern.sub(r"(?P<\1>.+?)", re.escape(text)), re.DOTALL), translated) for text, translated in rows.items()]


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

    def expected(self, text: str) -> str:
        """Return what a wrong field should have had in this language; in English if the language has no words for it."""
        for pattern, translated in _expected(self.language):
            if found := pattern.fullmatch(text):
                return translated.format(**found.groupdict())
        return text

    def problem(self, text: str) -> str:
        """Return what is wrong with a field, `since: found 'x', expected a day`, in this language; any other text as it is."""
        wrong = _PROBLEM.fullmatch(text)
        if not wrong or self.language == DEFAULT:
            return text
        said = self("found_expected", found=wrong["found"], expected=self.expected(wrong["expected"]))
        return f"{wrong['field']}: {said}" if wrong["field"] else said

    def has(self, name: str) -> bool:
        return name in self._texts
