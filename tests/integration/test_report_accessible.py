# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pages for whoever has no mouse, sees little, or has paper; and the page of the history, whatever its nodes are called."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import searching, showing, store
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import model, page
from harness import history_content
from harness import history_runs as runs
from harness import report_samples as samples
from rigs import axe
from rigs.browser import Browser, executable

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not executable(), reason="no chromium here: apt-get install chromium")]

DRAWN = "document.documentElement.dataset.drawn"
# Names that a node may have given itself.
NAMES = ["plain", "</script><script>window.harm=1</script>", "'\"><img src=x onerror=window.harm=1>", "{{ 7 * 7 }}"]
LONG = "n" * 300


@pytest.fixture(scope="module")
def browser() -> t.Iterator[Browser]:
    with Browser() as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pathlib.Path]:
    """A run with all that a report can show, one that is compared with the last accepted one, and the history of both."""
    folder = tmp_path_factory.mktemp("pages")
    plan, judged = samples.fleet(200, 1)
    rounds = [{"round": i, "pairs": 6, "started_at": None, "seconds": 5.0, "slowest": "n0001"} for i in range(11)]
    judged.tables["stage0"] = [Table("", "write_bw", "", samples.pairs(n), "higher", "Gb/s", rounds=rounds) for n in (12, 150)]
    made = {"report": folder / "report.html", "history": folder / "history.html"}
    built = model.build(plan, judged)
    built["sections"] = [{"title": "Cases", "said": ["A line."], "columns": ["case"], "rows": [["ONE"]], "charts": samples.charts()}]
    made["report"].write_text(page.render(built), encoding="utf-8")
    for day, slow in enumerate((668.0, 669.0, 667.0, 520.0), 1):
        machines = {name: runs.Machine(f"{n:032x}", {n: slow if n == 2 else 671.0 - n}) for n, name in enumerate(NAMES)}
        last = runs.judged(folder / "results", day, machines, acceptance_history=True)
    made["compared"] = last.dir / "report.html"
    history_content.put(folder / "results", history_content.content([LONG, *NAMES], [(LONG, "plain")]))
    with store.Store(store.url_of(folder / "results")) as history:
        asked = searching.Query()
        made["history"].write_text(showing.html(asked, searching.search(history, asked)), encoding="utf-8")
    return made


@pytest.mark.skipif(not axe.here(), reason="no npm here, which fetches axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["report", "compared", "history"])
def test_axe_finds_nothing(browser: Browser, pages: dict[str, pathlib.Path], name: str, scheme: str) -> None:
    browser.size(1280, 900)
    browser.media(scheme)
    browser.open(pages[name], DRAWN)
    browser.value("document.querySelectorAll('details').forEach((d) => { d.open = true })")
    if name != "history":
        browser.value("document.querySelector('a[href^=\"#node=\"]').click()")
        browser.wait("document.querySelector('.one-node td')")
    assert axe.violations(browser) == []
    # A narrow screen makes tables scroll, which must be reached without a mouse.
    browser.size(375, 800)
    assert axe.violations(browser) == []


def test_charts_of_a_stage_are_drawn_when_they_are_unfolded(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.size(1280, 900)
    browser.open(pages["report"], DRAWN)
    told = samples.charts()
    plots = "[...document.querySelectorAll('details .plot')].filter((p) => p.getAttribute('aria-label').startsWith('ONE on '))"
    browser.wait(f"{plots}.filter((p) => p.data && p.closest('details').open).length === 1")  # that of a case that failed
    browser.value(f"{plots}.forEach((p) => {{ p.closest('details').open = true }})")
    browser.wait(f"{plots}.filter((p) => p.data).length === {len(told)}")
    assert browser.value(f"{plots}.map((p) => p.data.length)") == [len(chart["curves"]) for chart in told]
    # Moments are seen in both themes.
    colours = []
    for scheme in ("light", "dark"):
        browser.media(scheme)
        browser.open(pages["report"], DRAWN)
        colours.append(browser.value(f"{plots}.find((p) => p.layout?.shapes?.length)?.layout.shapes[0].line.color"))
    assert len(set(colours)) == 2 and None not in colours


def test_everything_is_reached_with_the_tab_key_in_order_and_is_seen_to_be(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.size(1280, 900)
    browser.open(pages["report"], DRAWN)
    what = "a[href], summary, .scroll, input, button"
    browser.value(f"window.stops = [...document.querySelectorAll('{what}')].filter((e) => e.checkVisibility()); true")
    count = browser.value("stops.length")
    assert count > 20
    reached = []
    for _stop in range(count):
        browser.press("Tab")
        reached.append(browser.value("""[stops.indexOf(document.activeElement), getComputedStyle(document.activeElement).outlineStyle,
          parseFloat(getComputedStyle(document.activeElement).outlineWidth) >= 2]"""))
    assert reached == [[number, "solid", True] for number in range(count)]


def test_what_is_folded_opens_with_enter_and_closes_with_escape(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.size(1280, 900)
    browser.open(pages["report"], DRAWN)
    browser.value("document.querySelector('summary').focus()")
    is_open = "document.querySelector('details').open"
    browser.press("Enter")
    assert browser.value(is_open)
    browser.press("Tab")  # into what has opened, or behind it
    browser.value("document.querySelector('details .scroll, details summary').focus()")
    browser.press("Escape")
    assert not browser.value(is_open)
    assert browser.value("document.activeElement === document.querySelector('summary')")


def test_on_paper_nothing_of_the_history_is_folded_and_all_charts_fit(
    browser: Browser, pages: dict[str, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    """A report prints a layout of its own (test_report_paper.py)."""
    browser.size(1280, 900)
    browser.media("dark")
    browser.open(pages["history"], DRAWN)
    browser.value("""addEventListener('beforeprint', () => { window.seen = {
      folded: document.querySelectorAll('details:not([open])').length,
      ink: getComputedStyle(document.documentElement).getPropertyValue('--ink').trim(),
      charts: [...document.querySelectorAll('.plot')].map((p) => p._fullLayout && p._fullLayout.width) }; })""")
    browser.pdf(tmp_path / "history.pdf")
    seen = browser.value("window.seen")
    assert (seen["folded"], seen["ink"], set(seen["charts"])) == (0, "#1a2027", {680})


def test_the_page_of_the_history_draws_its_curves_whatever_the_nodes_are_called(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.size(1280, 900)
    browser.open(pages["history"], DRAWN)
    curves = browser.value("""[...document.querySelectorAll('.plot')].flatMap((p) => p.data.filter((d) => d.meta !== 'floor')
      .map((d) => [d.name, d.y.length, p.querySelectorAll('.scatterlayer .lines path').length > 0]))""")
    assert {name for name, _points, _drawn in curves} > {"plain", LONG} and all(drawn for *_curve, drawn in curves)
    assert max(points for _name, points, _drawn in curves) == 4
    browser.value("""[...document.querySelectorAll('.plot')].forEach((p) => p.data.forEach((d, curve) => d.x.forEach((_x, point) =>
      Plotly.Fx.hover(p, [{curveNumber: curve, pointNumber: point}]))))""")
    assert (browser.requests, browser.console) == ([pages["history"].resolve().as_uri()], [])
    browser.value("""(() => { for (const e of document.querySelectorAll('body *'))
      for (const kind of ['mouseover', 'mousemove', 'focus']) e.dispatchEvent(new MouseEvent(kind, {bubbles: false})); })()""")
    assert browser.value("window.harm") is None
    assert browser.value("document.querySelectorAll('img, iframe, main a, svg a').length") == 0
    assert (browser.requests, browser.dialogs) == ([pages["history"].resolve().as_uri()], [])
    text = browser.value("document.body.innerText")
    assert all(name in text for name in [LONG, *NAMES])
