# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pages of a first run: they quote the report word for word, have ten steps, and name playbooks, codes and files that exist."""

from __future__ import annotations

import ast
import functools
import pathlib
import re

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import reason_codes

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("docs/first_nodes.md", "docs/first_cluster.md")
# What the scheduler and the kubelet say, and what SSH says.
ELSEWHERE = ("Unschedulable: 0/2 nodes", "ImagePullBackOff: ")
# A message has at least so many letters of its own.
LEAST = 15


def _pattern(node: ast.Constant | ast.JoinedStr) -> str:
    """Return the regular expression of the texts that a string or an f-string of the code makes; empty if nearly all of it is values."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    fixed = [str(part.value) if isinstance(part, ast.Constant) else None for part in parts]
    if sum(len(text) for text in fixed if text) < LEAST:
        return ""
    return "".join(".*?" if text is None else re.escape(text) for text in fixed)


@functools.lru_cache
def messages() -> tuple[re.Pattern[str], ...]:
    """Return the patterns of all texts of the plugins."""
    patterns = set()
    for path in sorted((ROOT / "plugins").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr | ast.Constant):
                patterns.add(_pattern(node))
    return tuple(re.compile(pattern) for pattern in patterns if pattern)


def quotes() -> list[tuple[str, str]]:
    return [(page, line[2:]) for page in PAGES for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.startswith("> ")]


@pytest.mark.parametrize(("page", "quote"), quotes())
def test_a_quoted_sentence_is_one_of_the_code(page: str, quote: str) -> None:
    if not quote.startswith(ELSEWHERE):
        assert any(pattern.fullmatch(quote) for pattern in messages()), f"{page}: no message of plugins/ reads {quote!r}"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_ten_steps_and_names_what_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert re.findall(r"^\*\*(\d+)\. ", text, re.M) == [str(number) for number in range(1, 11)]
    playbooks = re.findall(r"gpufleet\.acceptance\.(\w+) -i", text)
    assert len(playbooks) > 5 and [name for name in playbooks if not (ROOT / f"playbooks/{name}.yml").is_file()] == []
    assert [name for name in re.findall(r"\$C/(files/\S+)", text) if not (ROOT / name).exists()] == []
    codes = [code for words in re.findall(r"^((?:`\w+`(?:, )?)+):", text, re.M) for code in re.findall(r"\w+", words)]
    known = {*reasons.ALL, *reason_codes.ADVICE}
    assert len(codes) > 5 and [code for code in codes if code not in known] == []


def test_readme_leads_to_both_pages() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page for page in PAGES if f"({page})" not in text] == []
