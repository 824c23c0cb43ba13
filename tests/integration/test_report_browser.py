# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report's page in a real browser: nothing runs that a node sent, nothing is fetched, and it can be read anywhere."""

from __future__ import annotations

import pathlib
import re
import time
import typing as t
import zlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import model, page
from harness import report_samples as samples
from rigs.browser import Browser, executable

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not executable(), reason="no chromium here: apt-get install chromium")]

DRAWN = "document.documentElement.dataset.drawn"
# Relative luminance and contrast as WCAG 2.1 defines them, of every badge, stamp and soft text against what lies behind it.
CONTRASTS = """(() => {
  const numbers = (c) => c.match(/[\\d.]+/g).map(Number);
  const light = (c) => { const [r, g, b] = numbers(c).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    const n = numbers(c); if (n.length < 4 || n[3] > 0) return c; } return "rgb(255,255,255)"; };
  return [...document.querySelectorAll(".b, .sub, .sim, .stamp b, td, th, a, summary, .verdict strong, .where, .part, dt")].map((e) => {
    const [x, y] = [light(getComputedStyle(e).color), light(behind(e))];
    return [(Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05), e.className || e.tagName]; });
})()"""


@pytest.fixture(scope="module")
def browser() -> t.Iterator[Browser]:
    with Browser() as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pathlib.Path]:
    folder = tmp_path_factory.mktemp("pages")
    runs = {"small": samples.fleet(14, 3), "large": samples.fleet(2000, 20), "hostile": samples.hostile()}
    made = {}
    for name, run in runs.items():
        made[name] = folder / f"{name}.html"
        made[name].write_text(page.render(model.build(*run)), encoding="utf-8")
    rounds = [{"round": i, "pairs": 6, "started_at": None, "seconds": 5.0, "slowest": samples.HOSTILE[0]} for i in range(11)]
    tables = [Table("", f"{n} nodes", "", samples.pairs(n), "higher", "Gb/s", n == 12, rounds=rounds) for n in (12, 100, 300)]
    made["pairs"] = folder / "pairs.html"
    plan, judged = samples.fleet(12, 1)
    judged.tables["stage0"] = tables
    made["pairs"].write_text(page.render(model.build(plan, judged)), encoding="utf-8")
    return made


@pytest.mark.parametrize("name", ["small", "large", "hostile", "pairs"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_draws_all_without_a_request_or_an_error(browser: Browser, pages: dict[str, pathlib.Path], name: str, scheme: str) -> None:
    browser.size(1280, 900)
    browser.media(scheme)
    browser.open(pages[name], DRAWN)
    charts = browser.value("document.querySelectorAll('script.figure').length")
    assert charts > 0
    browser.value("document.querySelectorAll('details').forEach((d) => { d.open = true })")
    undrawn = "[...document.querySelectorAll('.plot')].filter((p) => !p.querySelector('.main-svg')).length"
    end = time.monotonic() + 60
    while browser.value(undrawn):
        assert time.monotonic() < end
        time.sleep(0.1)
    browser.value("new Promise((done) => setTimeout(() => done(true), 500))")  # nor later
    assert browser.requests == [pages[name].resolve().as_uri()]
    assert browser.console == []


def test_the_library_run_in_parts_is_the_one_that_runs_at_once(
    browser: Browser, pages: dict[str, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    """Its schema tells all that is registered with it; what it does to a page are its styles."""
    whole = tmp_path / "whole.html"
    whole.write_text(f"<!doctype html><meta charset=utf-8><body><script>{page.LIBRARY.read_text()}</script>", encoding="utf-8")
    seen = []
    for path, ready in ((whole, "window.Plotly"), (pages["small"], DRAWN)):
        browser.open(path, ready)
        seen.append(browser.value("""[Object.keys(Plotly), JSON.stringify(Plotly.PlotSchema.get()),
          [...document.querySelectorAll('style[id]')].map((style) => style.id)]"""))
    assert seen[0] == seen[1]
    assert browser.value("plotlyParts.length") > 100


def test_nothing_that_a_node_sent_runs(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.size(1280, 900)
    browser.open(pages["hostile"], DRAWN)
    browser.value("document.querySelectorAll('details').forEach((d) => { d.open = true })")
    # Over every element and every dot of every chart, where a tooltip shows what a node sent.
    browser.value("""(() => { for (const e of document.querySelectorAll('body *'))
      for (const kind of ['mouseover', 'mousemove', 'focus']) e.dispatchEvent(new MouseEvent(kind, {bubbles: false})); })()""")
    browser.value("""[...document.querySelectorAll('.plot')].forEach((p) => p.data.forEach((d, curve) => { if (d.mode === 'markers')
      d.x.forEach((_x, point) => Plotly.Fx.hover(p, [{curveNumber: curve, pointNumber: point}])); }))""")
    assert browser.value("window.harm") is None
    assert browser.value("document.querySelectorAll('img, iframe, svg a, main a:not([href^=\"#\"])').length") == 0
    assert browser.dialogs == []
    assert browser.requests == [pages["hostile"].resolve().as_uri()]
    text = browser.value("document.body.innerText")
    assert "<script>window.harm=1</script>" in text
    assert "\\x1b[2J" in text


@pytest.mark.parametrize("name", ["small", "large", "hostile", "pairs"])
def test_a_phone_scrolls_in_one_direction_only(browser: Browser, pages: dict[str, pathlib.Path], name: str) -> None:
    browser.size(375, 800, phone=True)
    browser.media("light")
    browser.open(pages[name], DRAWN)
    assert browser.value("document.documentElement.scrollWidth") <= 375
    assert browser.value("innerWidth") == 375
    wide = browser.value("[...document.querySelectorAll('.plot .main-svg')].map((s) => s.getBoundingClientRect().right)")
    assert max(wide) <= 375


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(browser: Browser, pages: dict[str, pathlib.Path], scheme: str) -> None:
    browser.size(1280, 900)
    browser.media(scheme)
    browser.open(pages["hostile"], DRAWN)
    found = browser.value(CONTRASTS)
    assert len(found) > 100
    assert min(found) > [4.5], min(found)


def test_it_prints_on_a4_in_dark_ink_whatever_the_theme(browser: Browser, pages: dict[str, pathlib.Path], tmp_path: pathlib.Path) -> None:
    browser.size(1280, 900)
    browser.media("dark")
    browser.open(pages["small"], DRAWN)
    browser.value("""addEventListener('beforeprint', () => { window.seen = {
      ink: getComputedStyle(document.documentElement).getPropertyValue('--ink').trim(),
      charts: [...document.querySelectorAll('.plot')].map((p) => p._fullLayout.width) }; })""")
    browser.pdf(tmp_path / "report.pdf")
    pdf = (tmp_path / "report.pdf").read_bytes()
    sizes = {tuple(round(float(x)) for x in m.split()[2:]) for m in re.findall(rb"/MediaBox ?\[([^\]]*)\]", pdf)}
    assert sizes in ({(595, 842)}, {(594, 841)}, {(595, 841)}, {(594, 842)}), sizes
    seen = browser.value("window.seen")
    assert (seen["ink"], set(seen["charts"])) == ("#1a2027", {680})
    # The last byte of a stream may look like the end of a line before `endstream`.
    pages_drawn = [zlib.decompressobj().decompress(s) for s in re.findall(rb"stream\r?\n(x.*?)\r?\nendstream", pdf, re.S)]
    assert sum(len(s) for s in pages_drawn) > 50_000, "the charts are lines on paper, not empty boxes"
    # And back on the screen it is as it was.
    browser.open(pages["small"], DRAWN)
    assert browser.value("document.documentElement.classList.contains('printing')") is False
