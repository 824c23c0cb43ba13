# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The documentation site: pages as Sphinx takes them, and the check of its links (`make docs` builds all of it)."""

from __future__ import annotations

import importlib.util
import pathlib
import typing as t

import pytest
from harness import site_links

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def docs() -> t.Any:
    spec = importlib.util.spec_from_file_location("docs_tool", ROOT / "tests/tools/docs.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_of_the_menu_exists_and_every_page_of_docs_is_in_it(docs: t.Any, tmp_path: pathlib.Path) -> None:
    named = [entry for entries in docs.CHAPTERS.values() for entry in entries]
    assert len(named) == len(set(named))
    assert [entry for entry in named if not any((ROOT / f"{entry}{suffix}").is_file() for suffix in (".md", ".rst"))] == []
    docs.write_source(tmp_path, pictures=False)
    menu = (tmp_path / "index.md").read_text(encoding="utf-8").partition("```{toctree}")[2]
    missing = [page for page in docs.pages() if f"\n{page.with_suffix('').as_posix()}\n" not in menu and page.name != "README.md"]
    assert missing == []


def test_links_lead_to_pages_folders_and_files_as_in_the_checkout(docs: t.Any) -> None:
    known = docs.pages()
    linked: set[str] = set()
    for page in known:
        if page.suffix == ".md":
            text, files = docs.page_text(page, known)
            assert all((ROOT / file).is_file() for file in files), page
            linked |= {f"{found[1]}{found[2] or ''}" for found in docs.LINK.findall(text)}
    assert "rbac/README.md" in linked or "files/rbac/README.md" in linked, "SECURITY.md links to it"
    assert not [link for link in linked if link.endswith("/") and "://" not in link]


def test_no_page_has_a_diagram_that_needs_a_script_to_be_drawn(docs: t.Any) -> None:
    assert [page for page in docs.pages() if "```mermaid" in (ROOT / page).read_text(encoding="utf-8")] == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('<a href="b.html#there">x</a><img src="data:image/png;base64,AA">', ""),
        ('<a href="https://example.com/">x</a><a href="#top">x</a><p id="top">', ""),
        ('<a href="c.html">x</a>', "a.html: c.html: there is no such file"),
        ('<a href="b.html#nowhere">x</a>', "a.html: b.html#nowhere: the page has no such anchor"),
        ('<a href="#nowhere">x</a>', "a.html: #nowhere: the page has no such anchor"),
        ('<script src="https://x.example/x.js"></script>', "a.html: script loads https://x.example/x.js, expected nothing from elsewhere"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path: pathlib.Path, body: str, expected: str) -> None:
    (tmp_path / "a.html").write_text(f"<html><body>{body}</body></html>")
    (tmp_path / "b.html").write_text('<html><body><h1 id="there">x</h1></body></html>')
    assert site_links.broken(tmp_path) == ([expected] if expected else [])
