# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report's page in a real browser: nothing runs that a node sent, nothing is fetched, and it can be read anywhere."""

from __future__ import annotations

import functools
import http.server
import json
import pathlib
import threading
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.pages import OF_A_RUN
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats, model, page
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
  const read = ".b, .sub, .sim, .stamp b, td, th, a, summary, .verdict strong, .where, .part, dt, button, input, label";
  return [...document.querySelectorAll(read)].map((e) => {
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


def opened(browser: Browser, count: int) -> list[list[str]]:
    """Wait until so many nodes are shown. Return the cells of each row of the first one."""
    browser.wait(f"document.querySelectorAll('.one-node').length === {count}")
    return browser.value("""[...document.querySelector('.one-node').querySelectorAll('tbody tr')]
      .map((row) => [...row.cells].map((cell) => cell.innerText))""")


def test_a_node_is_shown_with_all_of_its_rows_by_its_name_or_a_link(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    made = model.build(*samples.fleet(2000, 20))
    browser.size(1280, 900)
    browser.media("light")
    browser.open(pages["large"], DRAWN)
    for count, name in enumerate((made["nodes"][-1]["name"], made["nodes"][1000]["name"]), 1):
        browser.value("document.getElementById('node-name').value = ''; document.getElementById('node-name').focus()")
        browser.type(f" {name} ")
        browser.press("Enter")
        rows = opened(browser, count)
        groups = [group for stage in made["stages"] for group in stage["checks"]]
        shown = [row for group in groups for row in group["rows"] if row["node"] == name]
        assert len(rows) == len(shown) == 20
        assert [row[2] for row in rows] == [f"{formats.number(row['value'])} {row['unit']}" for row in shown]
        assert browser.value("document.activeElement.innerText").startswith(name)
    assert browser.value("document.querySelectorAll('#node-names option').length") == 2000
    browser.value("document.querySelector('#nodes ~ .scroll a').click()")
    assert any("FAIL" in cell for row in opened(browser, 3) for cell in row)
    browser.value("document.querySelector('.one-node button').click()")
    assert browser.value("[document.querySelectorAll('.one-node').length, document.activeElement.id]") == [2, "node-name"]
    browser.value("document.querySelector('#nodes ~ .scroll a').click()")
    opened(browser, 3)
    browser.value("document.querySelector('#nodes ~ .scroll a').click()")  # it is there
    browser.value("document.getElementById('node-name').value = 'none of these'; document.getElementById('node-open').click()")
    browser.wait("document.getElementById('node-said').innerText === 'No node of this page is called none of these.'")
    opened(browser, 3)
    assert (browser.requests[1:], browser.console) == ([], [])


def test_an_address_names_a_node_whatever_it_is_called(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    browser.size(1280, 900)
    browser.open(pages["hostile"], DRAWN)
    names = browser.value("JSON.parse(document.getElementById('nodes-index').textContent).nodes.map(([name]) => name)")
    assert len(names) >= len(samples.HOSTILE)
    for count, name in enumerate(names, 1):
        browser.value(f"location.hash = '#node=' + encodeURIComponent({json.dumps(name)})")
        assert opened(browser, count)
    browser.value("location.hash = '#node=%'")
    browser.wait("document.getElementById('node-said').innerText.includes('names no node')")
    titles = browser.value("[...document.querySelectorAll('.one-node h3')].map((title) => title.firstChild.textContent)")
    assert titles == [f"{name} " for name in reversed(names)]
    browser.value("""(() => { for (const e of document.querySelectorAll('body *'))
      for (const kind of ['mouseover', 'mousemove', 'focus']) e.dispatchEvent(new MouseEvent(kind, {bubbles: false})); })()""")
    assert browser.value("window.harm") is None and browser.dialogs == []
    assert browser.value("document.querySelectorAll('img, iframe, svg a, main a:not([href^=\"#\"]), .one-node a').length") == 0
    assert browser.value("document.querySelector('#opened').innerText.includes('<script>window.harm=1</script>')")
    assert browser.requests == [pages["hostile"].resolve().as_uri()]


def test_a_node_is_shown_in_the_frame_of_the_console(browser: Browser, pages: dict[str, pathlib.Path]) -> None:
    """Whose policy lets scripts run and takes everything else away."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def end_headers(self) -> None:
            self.send_header("content-security-policy", OF_A_RUN["content-security-policy"])
            super().end_headers()

        def log_message(self, *_: t.Any) -> None: ...

    folder = functools.partial(Handler, directory=str(pages["large"].parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser.open(f"http://127.0.0.1:{server.server_port}/large.html", DRAWN)
        assert browser.value("self.origin") == "null"
        browser.value("document.querySelector('#nodes ~ .scroll a').click()")
        assert len(opened(browser, 1)) == 20
        browser.value("document.querySelector('.one-node button').click()")
        browser.wait("!document.querySelector('.one-node') && location.hash === '#one-node'")
        assert (len(browser.requests), browser.console) == (1, [])
        server.shutdown()


def test_a_browser_that_cannot_unpack_says_so_and_shows_the_rest(
    browser: Browser, pages: dict[str, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    old = tmp_path / "old.html"
    old.write_text(pages["large"].read_text().replace("<head>", "<head><script>delete window.DecompressionStream</script>", 1))
    browser.open(old, "document.getElementById('node-said').innerText")
    assert "has no DecompressionStream" in browser.value("document.getElementById('node-said').innerText")
    assert not browser.value("document.getElementById('open-node').checkVisibility()")
    assert browser.value("document.querySelectorAll('.card').length") > 10


@pytest.mark.parametrize("name", ["small", "large", "hostile", "pairs"])
def test_a_phone_scrolls_in_one_direction_only(browser: Browser, pages: dict[str, pathlib.Path], name: str) -> None:
    browser.size(375, 800, phone=True)
    browser.media("light")
    browser.open(pages[name], DRAWN)
    browser.value("document.querySelector('#nodes ~ .scroll a').click()")
    opened(browser, 1)
    assert browser.value("document.documentElement.scrollWidth") <= 375
    assert browser.value("innerWidth") == 375
    wide = browser.value("[...document.querySelectorAll('.plot .main-svg')].map((s) => s.getBoundingClientRect().right)")
    assert max(wide) <= 375


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(browser: Browser, pages: dict[str, pathlib.Path], scheme: str) -> None:
    browser.size(1280, 900)
    browser.media(scheme)
    browser.open(pages["hostile"], DRAWN)
    browser.value("document.querySelector('#nodes ~ .scroll a').click()")
    opened(browser, 1)
    found = browser.value(CONTRASTS)
    assert len(found) > 100
    assert min(found) > [4.5], min(found)
