# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as Chromium prints it: so few pages that somebody signs it, each of which says what it belongs to, and nothing cut."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import model, page
from harness import pdf
from harness import report_samples as samples
from rigs.browser import Browser, executable

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not executable(), reason="no chromium here: apt-get install chromium")]

FINGERPRINT = "0123456789abcdef" * 4
PLACES = [
    "GPU 7 · slot 5 module 6 · PCIe 00000000:4B:00.0 · serial number 16500030007 · board part number 692-2G520-0282-001 · NVIDIA H100 80GB "
    "HBM3 · UUID GPU-00000003-0000-4000-8000-000000000007",
    "machine · serial number S1234567 · Example GPU-8X",
]
ADVICE = ["Compare temperatures, clocks, links and error counters with those of a node that passes; if it stays, replace the part."]


@pytest.fixture(scope="module")
def browser() -> t.Iterator[Browser]:
    with Browser() as found:
        found.size(1280, 900)
        found.media("dark")
        yield found


def printed(browser: Browser, folder: pathlib.Path, run: t.Any, **changed: t.Any) -> tuple[list[str], list[str]]:
    """Return the text of each page, and that of each part of the report that stands on one page, all without blanks."""
    built = model.build(*run)
    for cause in built["causes"]:
        cause.update(place=PLACES, advice=ADVICE)
    path = folder / "report.html"
    path.write_text(page.render({**built, "fingerprint": FINGERPRINT, **changed}), encoding="utf-8")
    browser.media("dark")
    browser.open(path)
    browser.pdf(folder / "report.pdf")
    sizes = {tuple(map(round, map(float, box.split()[2:]))) for box in re.findall(rb"/MediaBox ?\[([^\]]*)\]", browser_pdf(folder))}
    assert sizes <= {(595, 842), (594, 841), (595, 841), (594, 842)}, f"pages are A4: {sizes}"
    browser.media("light", "print")
    whole = "#paper .finding, #paper .one, #paper tbody tr, #paper .signing, #paper .verdict"
    parts = browser.value(f"[...document.querySelectorAll('{whole}')].map((e) => e.innerText)")
    assert browser.requests == [path.resolve().as_uri()] and browser.console == []
    return pdf.pages(browser_pdf(folder)), ["".join(text.split()) for text in parts]


def browser_pdf(folder: pathlib.Path) -> bytes:
    return (folder / "report.pdf").read_bytes()


@pytest.mark.parametrize(("nodes", "most"), [(14, 12), (500, 40), (2000, 40)])
def test_a_report_is_printed_on_few_pages_each_with_its_run(browser: Browser, tmp_path: pathlib.Path, nodes: int, most: int) -> None:
    pages, parts = printed(browser, tmp_path, samples.fleet(nodes, 20))
    assert 2 <= len(pages) <= most
    for number, text in enumerate(pages, 1):
        assert f"Page{number}of{len(pages)}" in text and f"Run{samples.RUN}·{FINGERPRINT}" in text
    assert all(word in pages[0] for word in ("NOTACCEPTED", "Scope", "Notlookedfor", "Customer", "Supplier", "Signature"))
    assert "Signature" not in "".join(pages[1:]) and "Findings" in pages[1]
    everything = "".join(pages)
    assert parts and [part for part in parts if part not in everything] == []
    assert [part for part in parts if not any(part in text for text in pages)] == [], "cut by the end of a page"
    assert everything.count("GPU7·slot5module6·PCIe00000000:4B:00.0") == min(100, len(model.build(*samples.fleet(nodes, 20))["causes"]))


def test_each_node_of_a_fleet_has_its_line(browser: Browser, tmp_path: pathlib.Path) -> None:
    _pages, parts = printed(browser, tmp_path, samples.fleet(500, 4))
    assert {name for name in (f"node{n:04}" for n in range(1, 501)) if not any(part.startswith(name) for part in parts)} == set()


def test_the_first_page_says_what_changed_since_the_last_accepted_run(browser: Browser, tmp_path: pathlib.Path) -> None:
    since = {"before": "20261101T000000Z-aaaaaa", "said": ["gpu-07 was renamed", "busbw of gpu-03 fell by 4 %"]}
    (first, *_others), _parts = printed(browser, tmp_path, samples.fleet(3, 2), since=since)
    assert "20261101T000000Z-aaaaaa:gpu-07wasrenamed;busbwofgpu-03fellby4%" in first


def test_nothing_that_a_node_sent_runs_on_paper(browser: Browser, tmp_path: pathlib.Path) -> None:
    pages, _parts = printed(browser, tmp_path, samples.hostile())
    assert browser.value("window.harm") is None and browser.dialogs == []
    assert "<script>window.harm=1</script>" in "".join(pages) and all(FINGERPRINT in text for text in pages)


def test_the_screen_is_after_printing_as_it_was(browser: Browser, tmp_path: pathlib.Path) -> None:
    printed(browser, tmp_path, samples.fleet(14, 3))
    browser.media("dark")
    seen = "[document.querySelector('main').checkVisibility(), document.getElementById('paper').checkVisibility()]"
    assert browser.value(seen) == [True, False]
    assert browser.value("document.documentElement.classList.contains('printing')") is False
