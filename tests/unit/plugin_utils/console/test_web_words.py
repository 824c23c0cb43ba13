# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What wrong fields should have had, in the languages of the console."""

from __future__ import annotations

import ast
import inspect
import types
import typing as t

import pytest
from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import allowed, calendar, request, spec, typed
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import api, words
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import ranging, searching

OTHERS = sorted(set(words.languages()) - {words.DEFAULT})
# What a name of a function that makes such a text is called, and which of its arguments the text is.
TEXT_OF = {"wrong": 2, "Problem": 2, "ValueError": 0, "HistoryError": 0}


def _text(node: ast.expr | None) -> str | None:
    """Return a text or f-string of the source with 7 for each value in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (_text(part) if isinstance(part, ast.Constant) else "7" for part in node.values)
        return "".join(part or "" for part in parts)
    return None


def expected_of(module: types.ModuleType) -> t.Iterator[str]:
    """Yield the texts about what is expected that a module's source has."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        found: ast.expr | None = None
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
            found = node.args[TEXT_OF[name]] if len(node.args) > TEXT_OF.get(name, 99) else None
            found = next((keyword.value for keyword in node.keywords if name == "Meta" and keyword.arg == "description"), found)
        elif isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["expected"]:
            found = node.value
        elif isinstance(node, ast.FunctionDef) and node.name in ("expected", "problem"):
            yield from (text for one in ast.walk(node) if isinstance(one, ast.Return) and (text := _text(one.value)))
        text = _text(found)
        if text and (module is not searching and module is not ranging):
            yield text
        elif text and ", expected " in text and not text.startswith("older_than"):
            yield text.rpartition(", expected ")[2]


# Of programs and of commands alone: no page shows these.
NO_PAGE = {
    "a host pattern means groups too: the hosts of an inventory must be known", "a pool has no variables before its nodes are known",
    "any of 7", "one that was accepted", "suspend or cancel",
}  # fmt: skip
# Texts that the source puts together: what it has in pieces, and each whole.
PIECES = {
    "7 from 0 to 7", "7. After a change of hardware run the stage rdma_ports",
    "a device that each node had when it was last measured; 77 had 7",
}  # fmt: skip
_DEVICE = (
    "a device that each node had when it was last measured; n1{} had mlx5_0, mlx5_1."
    " After a change of hardware run the stage rdma_ports"
)
WHOLE = {"a number from 0 to 7", _DEVICE.format(""), _DEVICE.format(" and 3 more of these nodes"), "none: no image may be chosen here"}


@pytest.mark.parametrize("language", OTHERS)
def test_what_is_expected_is_said_in_each_language(language: str) -> None:
    say = words.Words(language)
    texts = {text for module in (allowed, calendar, request, spec, typed, api, searching, ranging) for text in expected_of(module)}
    assert len(texts) > 35
    assert texts >= NO_PAGE | PIECES
    assert sorted(text for text in texts - NO_PAGE - PIECES | WHOLE if say.expected(text) == text) == []


@pytest.mark.parametrize("language", OTHERS)
def test_each_row_keeps_the_values_and_none_is_hidden_by_an_earlier_one(language: str) -> None:
    rows = yaml_load((words.FOLDER / "expected" / f"{language}.yml").read_text(encoding="utf-8"))
    say = words.Words(language)
    for text, translated in rows.items():
        values = {"a": "AAA", "b": "BBB", "c": "CCC"}
        assert say.expected(text.format(**values)) == translated.format(**values), text
        assert all((f"{{{name}}}" in text) == (f"{{{name}}}" in translated) for name in values), text
    assert list(rows) == list(yaml_load((words.FOLDER / "expected" / f"{OTHERS[0]}.yml").read_text(encoding="utf-8")))


def test_problems_of_the_history_are_in_the_language_of_the_page() -> None:
    problem = "since: found 'x', expected a day as 2026-08-01, or 30d, 8w, 6m, 1y"
    assert words.Words("en").problem(problem) == problem
    assert words.Words("ru").problem(problem) == "since: найдено 'x', ожидается день, например 2026-08-01, или 30d, 8w, 6m, 1y"
    assert words.Words("zh").problem("found since 2 and until 1, expected a first day that is not after the last one").startswith("实际为")
    assert words.Words("ru").problem("the history is locked") == "the history is locked"
    assert words.Words("ru").expected("words of a later version") == "words of a later version"
