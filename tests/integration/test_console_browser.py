# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The console in a real browser, over simulated nodes and real runs: from the form to the verdict, cancelled in the middle, opened again.

Pictures of the pages are made if CONSOLE_PICTURES names a folder for them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import typing as t

import pytest
from harness import console_hostile, console_memory, history_runs
from rigs import axe
from rigs.browser import Browser, executable
from rigs.simulated import laptop_fleet

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not executable(), reason="no chromium here: apt-get install chromium")]

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVER = "ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.local_server"
NODES = ("h200-01", "h200-03")
# Its nccl-tests hang: a run over it lasts until somebody cancels it.
HANGS = "h200-06"
TEXT = "document.body.innerText"


class Console:
    """A console of its own, as `make console` opens one."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.port = folder, "0"
        self.inventory = laptop_fleet.build(folder / "fleet")
        self.process: subprocess.Popen[str] | None = None

    def open(self) -> str:
        """The link that it prints."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", SERVER, "--inventory", str(self.inventory), "--results-dir", str(self.folder / "results"),
             "--port", self.port],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / ".collections")}, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        said = ""
        for line in t.cast("t.IO[str]", self.process.stdout):
            said += line
            found = re.search(r"(http://127\.0\.0\.1:(\d+))/enter\?code=\S+", line)
            if found:
                self.url, self.port = found[1], found[2]
                return found[0]
        raise AssertionError(f"no link: {said}")

    def next_link(self) -> str:
        """Return the link that it prints next."""
        for line in t.cast("t.IO[str]", t.cast("subprocess.Popen[str]", self.process).stdout):
            if found := re.search(r"http://127\.0\.0\.1:\d+/enter\?code=\S+", line):
                return found[0]
        raise AssertionError("no link")

    def end(self, how: int = signal.SIGTERM) -> None:
        if self.process:
            self.process.send_signal(how)
            self.process.wait(60)
            t.cast("t.IO[str]", self.process.stdout).close()
            self.process = None


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Console]:
    found = Console(tmp_path_factory.mktemp("console"))
    try:
        yield found
    finally:
        found.end()


@pytest.fixture(scope="module")
def browser(console: Console) -> t.Iterator[Browser]:
    with Browser() as found:
        found.size(1280, 900)
        found.open(console.open(), "location.pathname === '/'")
        yield found


def fill(browser: Browser, **fields: str) -> None:
    for name, value in fields.items():
        browser.value(f"""(() => {{ const e = document.querySelector('#start [name="{name}"][value="{value}"]');
          if (e && e.type === "radio") e.click();
          else {{ const of = document.querySelector('#start [name="{name}"]'); of.value = {value!r};
            of.dispatchEvent(new Event("input", {{bubbles: true}})); }} }})()""")


def ask(browser: Browser, console: Console, nodes: str) -> str:
    """Fill in the form and send it; the name of what came of it."""
    browser.open(f"{console.url}/start")
    fill(browser, kind="collective", nodes=nodes, collective_operation="all_reduce")
    browser.wait("document.getElementById('preview').innerText.includes('all_reduce_perf')")
    browser.value("document.querySelector('button.main').click()")
    browser.wait("location.pathname.startsWith('/runs/')")
    return str(browser.value("location.pathname.slice(6)"))


@pytest.fixture(scope="module")
def measured(console: Console, browser: Browser) -> str:
    """A node with a finished run, whichever tests ran before."""
    ask(browser, console, NODES[0])
    browser.wait("document.querySelector('a.main')", 180)
    return NODES[0]


def test_from_the_form_to_the_verdict_and_found_again_in_the_history(console: Console, browser: Browser, pictures: pathlib.Path) -> None:
    name = ask(browser, console, NODES[0])
    browser.value("window.same = true")
    browser.wait(f"{TEXT}.includes('running')", 90)
    picture(browser, pictures / "running.png")
    # The page follows by itself; nobody reloads it.
    browser.wait("document.querySelector('a.main')", 180)
    assert browser.value("window.same") is True
    assert browser.console == []
    picture(browser, pictures / "finished.png")
    browser.value("document.querySelector('a.main').click()")
    browser.wait("location.pathname.startsWith('/results/') && document.querySelector('iframe.report')")
    assert "ACCEPTED" in browser.value(TEXT) and "all_reduce_perf" in browser.value(TEXT)
    run = browser.value("location.pathname.slice(9)")
    picture(browser, pictures / "result.png", full=True)
    # The report draws itself in its frame, and reaches nothing of the console from there.
    browser.open(f"{console.url}/results/{run}/report.html", "document.documentElement.dataset.drawn")
    assert browser.value("location.origin !== 'null' && self.origin === 'null'")
    assert browser.value("(() => { try { return document.cookie } catch (e) { return 'none' } })()") == "none"
    browser.open(f"{console.url}/history?node={NODES[0]}", "document.querySelector('#verdicts')")
    assert run in browser.value(TEXT) and "simulated" in browser.value(TEXT)
    browser.open(f"{console.url}/runs")
    assert name in browser.value(TEXT)


@pytest.mark.parametrize("kind", ["rdma", "collective"])
def test_a_slow_port_is_named_by_its_pairs_and_its_node_by_its_groups(console: Console, browser: Browser, kind: str) -> None:
    browser.open(f"{console.url}/start")
    fill(browser, kind=kind, nodes=f"h200-01 h200-05 h200-06 {laptop_fleet.SLOW_NODE}")
    browser.wait("document.querySelector('#preview code')")
    browser.value("document.querySelector('button.main').click()")
    browser.wait("location.pathname.startsWith('/runs/') && document.querySelector('a.main')", 180)
    run = browser.value("decodeURIComponent(document.querySelector('a.main').pathname.split('/').pop())")
    found = browser.value(f"""fetch('/api/v1/verdicts?run={run}').then((r) => r.json())
      .then((r) => r.verdicts.filter((v) => v.verdict !== 'PASS').map((v) => v.subject + ' ' + v.reason))""")
    port = f"nic/mlx5_{laptop_fleet.SLOW_DEVICE}/1" if kind == "rdma" else "it fails with the good partners"
    assert any(line.startswith(laptop_fleet.SLOW_NODE) and port in line for line in found), found
    # A group is low because of the node, and says so without its name.
    assert all(laptop_fleet.SLOW_NODE in line or line.startswith("nccl_fabric ") for line in found), found


def test_cancelled_in_the_middle_and_open_while_the_console_begins_again(
    console: Console, browser: Browser, pictures: pathlib.Path
) -> None:
    ask(browser, console, HANGS)
    browser.wait(f"{TEXT}.includes('running')", 90)
    browser.value("document.querySelector('a.danger').click()")
    browser.wait("location.pathname === '/cancel' && document.querySelector('button.danger')")
    browser.value("document.querySelector('button.danger').click()")
    browser.wait(f"{TEXT}.includes('cancelled')", 120)
    browser.open(f"{console.url}/runs", "document.querySelector('.live').innerText === 'live'")
    browser.value("window.same = true")
    # However it goes, its worker goes with it, and the session of the page outlives both.
    console.end(signal.SIGKILL)
    browser.wait("document.querySelector('.live').classList.contains('off')", 60)
    picture(browser, pictures / "away.png")
    console.open()
    browser.wait("document.querySelector('.live').innerText === 'live'", 60)
    token = browser.value("""fetch('/start').then((r) => r.text()).then((x) =>
      new DOMParser().parseFromString(x, 'text/html').querySelector('button.main').value)""")
    assert token
    made = browser.value(f"""fetch('/api/v1/actions', {{method: 'POST',
      headers: {{'content-type': 'application/json', 'x-csrf-token': {token!r}}},
      body: JSON.stringify({{name: 'later', spec: {{suspend: true, stages: {{names: ['gemm'], nodes: ['{NODES[1]}']}}}}}})
      }}).then((r) => r.status)""")
    assert made == 201
    browser.wait(f"{TEXT}.includes('later') && {TEXT}.includes('suspended')", 60)
    assert browser.value("window.same") is True


def test_nine_tabs_load_and_all_follow_the_changes(console: Console, browser: Browser) -> None:
    browser.open(f"{console.url}/runs", "document.querySelector('.live').innerText === 'live'")
    with contextlib.ExitStack() as tabs:
        for _number in range(8):
            tabs.enter_context(browser.tab(f"{console.url}/runs"))
            browser.wait("document.querySelector('.live').innerText === 'live'", 20)
        token = browser.value("""fetch('/start').then((r) => r.text()).then((x) =>
          new DOMParser().parseFromString(x, 'text/html').querySelector('button.main').value)""")
        browser.value(f"""fetch('/api/v1/actions', {{method: 'POST',
          headers: {{'content-type': 'application/json', 'x-csrf-token': {token!r}}},
          body: JSON.stringify({{name: 'ninth', spec: {{suspend: true, stages: {{names: ['gemm'], nodes: ['{NODES[1]}']}}}}}})
          }}).then((r) => r.status)""")
        browser.wait(f"{TEXT}.includes('ninth')", 20)
    # The first tab follows too, whichever tab holds the stream.
    browser.wait(f"{TEXT}.includes('ninth')", 20)


def test_a_reload_keeps_what_was_typed(console: Console, browser: Browser) -> None:
    browser.open(f"{console.url}/start")
    fill(browser, kind="stages", nodes=" ".join(NODES), variables="gemm_seconds: 5")
    browser.wait("location.search.includes('gemm_seconds')", 20)
    browser.open(browser.value("location.href"))
    typed = "[...document.querySelectorAll('textarea')].map((e) => e.value.trim())"
    assert browser.value(typed) == [" ".join(NODES), "gemm_seconds: 5"]
    assert browser.value("document.querySelector('[name=kind][value=stages]').checked")
    # A node of the list is ticked, and can be ticked again once it is taken out of it.
    box = f"document.querySelector('[name=found][value=\"{NODES[0]}\"]')"
    assert browser.value(f"[{box}.checked, {box}.disabled]") == [True, True]
    fill(browser, nodes=NODES[1])
    assert browser.value(f"[{box}.checked, {box}.disabled]") == [False, False]


def test_keys_lead_to_pages_and_to_the_jump_box(console: Console, browser: Browser, measured: str) -> None:
    browser.open(f"{console.url}/runs")
    key = "document.body.dispatchEvent(new KeyboardEvent('keydown', {{key: '{0}', bubbles: true, cancelable: true}}))"
    browser.value(key.format("/"))
    browser.value(f"document.activeElement.value = '{NODES[1]}'")
    browser.press("Enter")
    browser.wait(f"location.pathname === '/node' && location.search.includes('{NODES[1]}') && document.readyState === 'complete'")
    browser.value(f"{key.format('g')}; {key.format('f')}")
    browser.wait("location.pathname === '/' && document.querySelector('table.map')")
    # The row of a node leads to it, and the column of its last run to the result.
    browser.value(f"document.querySelector('table.map a[href$=\"{measured}\"]').click()")
    browser.wait("location.pathname === '/node' && document.querySelector('.timeline')")


def test_what_passed_of_a_node_is_folded_until_it_is_asked_for(console: Console, browser: Browser, measured: str) -> None:
    page = f"{console.url}/node?name={measured}"
    fold = "document.querySelector('#passed-nccl_node').closest('details')"
    browser.open(page, "document.querySelector('#passed-nccl_node')")
    assert browser.value(f"{fold}.open") is False and browser.value(f"{fold}.clientHeight") < 60
    browser.value(f"{fold}.querySelector('summary').focus()")
    browser.press("Enter")
    assert browser.value(f"{fold}.open") is True
    browser.open(f"{page}&sort=value#passed-nccl_node", f"{fold}.open")


def test_a_form_is_saved_as_a_template_and_removed(console: Console, browser: Browser) -> None:
    browser.open(f"{console.url}/start")
    fill(browser, kind="stages", nodes=NODES[1], name="weekly-quick")
    browser.value("document.querySelector('button[formaction=\"/templates\"]').click()")
    browser.wait("location.search === '?template=weekly-quick'")
    browser.open(f"{console.url}/start", "document.querySelector('#templates a')")
    browser.value("document.querySelector('#templates a').click()")
    browser.wait(f"document.getElementById('nodes') && document.getElementById('nodes').value === '{NODES[1]}'")
    assert browser.value("document.querySelector('[name=kind][value=stages]').checked")
    browser.value("document.querySelector('#templates button').click()")
    browser.wait("location.pathname === '/start' && !location.search && document.readyState === 'complete'")
    assert browser.value("document.querySelectorAll('#templates a').length") == 0


def test_a_run_that_ends_is_told_of_and_times_are_local(console: Console, browser: Browser) -> None:
    browser._ask("Emulation.setTimezoneOverride", timezoneId="Asia/Shanghai")
    token = browser.value("""fetch('/start').then((r) => r.text()).then((x) =>
      new DOMParser().parseFromString(x, 'text/html').querySelector('button.main').value)""")
    ask_api = f"""(method, path, body) => fetch('/api/v1/actions' + path, {{method, headers: {{'content-type': 'application/json',
      'x-csrf-token': {token!r}}}, body: JSON.stringify(body)}}).then((r) => r.status)"""
    spec = f"{{suspend: true, stages: {{names: ['gemm'], nodes: ['{NODES[1]}']}}}}"
    assert browser.value(f"({ask_api})('POST', '', {{name: 'told', spec: {spec}}})") == 201
    browser.open(f"{console.url}/runs/told", "document.querySelector('.live').innerText === 'live'")
    local, utc = browser.value("(() => { const e = document.querySelector('time'); return [e.textContent, e.title] })()")
    assert utc.endswith(" UTC") and (int(local[11:13]) - int(utc[11:13])) % 24 == 8
    browser.value("""window.Notification = class { static requestPermission() { return Promise.resolve('granted') }
      constructor(title, options) { window.told = [title, options.body] } }; document.querySelector('[data-notify]').click()""")
    browser.wait("document.querySelector('[data-notify]').disabled")
    browser.value(f"({ask_api})('PATCH', '/told', {{cancel: true}})")
    browser.wait("window.told", 60)
    assert browser.value("window.told") == ["told", "Cancelled"]
    browser._ask("Emulation.setTimezoneOverride", timezoneId="")


# The cells of a table of records that are higher than one line; sentences and notes may be.
BROKEN_ROWS = """[...document.querySelectorAll("table.rows tbody td:not(.a)")].filter((td) => {
  const range = document.createRange();
  range.selectNodeContents(td);
  return !td.querySelector(".note") && range.getBoundingClientRect().height > 1.8 * parseFloat(getComputedStyle(td).lineHeight);
}).map((td) => td.innerText)"""


@pytest.mark.skipif(not axe.here(), reason="no npm here, which fetches axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_a_phone_scrolls_in_one_direction(
    console: Console, browser: Browser, pictures: pathlib.Path, scheme: str
) -> None:
    browser.media(scheme)
    runs = browser.value("fetch('/api/v1/runs').then((r) => r.json()).then((r) => r.runs.map((x) => x.run))")
    ways = {
        "fleet": "/",
        "start": "/start?kind=rdma&nodes=nobody&port=x&do=show", "stages": "/start?kind=stages", "runs": "/runs", "action": "/runs/later",
        "cancel": "/cancel?name=later", "suspend": "/suspend",
        "result": f"/results/{runs[0]}", "history": f"/history?node={NODES[0]}", "wrong": "/history?verdict=X", "nodes": "/nodes",
        "node": f"/node?name={NODES[0]}", "compare": f"/compare?after={runs[0]}", "refused": "/nothing", "chinese": "/start?lang=zh",
        "russian": "/runs?lang=ru", "english": "/runs?lang=en",
    }  # fmt: skip
    for name, way in ways.items():
        browser.size(1280, 900)
        browser.open(f"{console.url}{way}")
        browser.value("document.querySelectorAll('details').forEach((d) => { d.open = true })")
        assert axe.violations(browser) == [], name
        picture(browser, pictures / f"{name}-{scheme}.png", full=True)
        browser.size(375, 800)
        assert axe.violations(browser) == [], name
        assert browser.value("document.documentElement.scrollWidth") <= 375, name
        assert browser.value(BROKEN_ROWS) == [], name
        picture(browser, pictures / f"{name}-{scheme}-phone.png", full=True)
    browser.size(1280, 900)
    browser.media("light")


def test_everything_on_the_form_is_reached_with_the_tab_key(console: Console, browser: Browser) -> None:
    browser.open(f"{console.url}/start?kind=rdma")
    stops = "a[href], button, input:not([type=hidden]), select, textarea, summary, .scroll"
    browser.value(f"window.stops = [...document.querySelectorAll('{stops}')].filter((e) => e.checkVisibility()); true")
    reached = set()
    for _stop in range(browser.value("stops.length") + 5):
        browser.press("Tab")
        reached.add(browser.value("stops.indexOf(document.activeElement)"))
    missed = [number for number in range(browser.value("stops.length")) if number not in reached]
    # Of radio buttons of one name the chosen one is reached, and the others from there by arrows.
    assert browser.value(f"{missed}.map((n) => stops[n].type)") == ["radio"] * len(missed)


def tab_to(browser: Browser, what: str) -> None:
    """Press Tab until the focus is on the first element of a selector, or a radio button of its name."""
    for _stop in range(150):
        browser.press("Tab")
        if browser.value(f"document.activeElement === document.querySelector({what!r}) || "
                         f"(document.activeElement.type === 'radio' && document.activeElement.matches({what!r}))"):  # fmt: skip
            return
    raise AssertionError(f"Tab does not come to {what}")


@pytest.mark.parametrize("kind", ["rdma", "collective", "stages"])
def test_every_kind_of_run_is_started_and_cancelled_with_the_keyboard_alone(console: Console, browser: Browser, kind: str) -> None:
    browser.open(f"{console.url}/start")
    tab_to(browser, "[name=kind]")
    for _other in range(("rdma", "collective", "stages").index(kind)):
        browser.press("ArrowDown")
    assert browser.value("document.activeElement.value") == kind
    tab_to(browser, "#nodes")
    browser.type(f"{HANGS} {NODES[0]}")
    if kind == "stages":
        tab_to(browser, "[name=stage][value=nccl_node]")
        browser.press(" ")
    browser.wait("document.querySelector('#preview code')")
    tab_to(browser, "button.main")
    browser.press("Enter")
    browser.wait("location.pathname.startsWith('/runs/') && document.querySelector('a.danger')")
    tab_to(browser, "a.danger")
    browser.press("Enter")
    browser.wait("location.pathname === '/cancel' && document.querySelector('button.danger')")
    tab_to(browser, "button.danger")
    browser.press("Enter")
    browser.wait(f"{TEXT}.toLowerCase().includes('cancelled')", 120)


def new_link(console: Console, browser: Browser) -> str:
    """Ask for a new link on the page to sign in, which is open; the console prints one every five seconds at most."""
    time.sleep(5)
    browser.value("document.querySelector('main form button').click()")
    return console.next_link()


def test_a_session_that_expires_in_the_middle_of_a_form_loses_nothing(console: Console, browser: Browser) -> None:
    browser.open(f"{console.url}/start")
    fill(browser, kind="stages", nodes=NODES[1], variables="gemm_seconds: 5", name="kept-form")
    browser.wait("location.search.includes('gemm_seconds') && location.search.includes('kept-form')", 20)
    address = browser.value("location.href")
    browser.forget_cookies()
    # The preview that follows the typing may have led to the page to sign in already.
    browser.value("document.querySelector('button.main')?.click()")
    browser.wait("document.querySelector('main form[action=\"/enter\"]')")
    # As whoever reads the terminal does.
    with browser.tab(new_link(console, browser)):
        browser.wait("location.pathname === '/'")
    # Back leads to the form with the token of the lost session, and says so; a reload has all that was typed, and a new token.
    browser.open(address)
    typed = "[...document.querySelectorAll('textarea')].map((e) => e.value.trim())"
    assert browser.value(typed) == [NODES[1], "gemm_seconds: 5"]
    browser.value("document.querySelector('[name=stage][value=gemm]').click()")
    browser.value("document.querySelector('[name=suspend]').click()")
    browser.value("document.querySelector('button.main').click()")
    browser.wait("location.pathname === '/runs/kept-form'")


def test_two_people_at_once_see_what_the_other_does(console: Console, browser: Browser) -> None:
    browser.open(f"{console.url}/enter", "document.querySelector('main form button')")
    with Browser() as second:
        second.open(new_link(console, browser), "location.pathname === '/'")
        for one in (browser, second):
            one.open(f"{console.url}/runs", "document.querySelector('.live').innerText === 'live'")
            one.value("window.same = true")
        token = "new DOMParser().parseFromString(x, 'text/html').querySelector('button.main').value"
        spec = f"{{suspend: true, stages: {{names: ['gemm'], nodes: ['{NODES[1]}']}}}}"
        start = f"""(name) => fetch('/start').then((r) => r.text()).then((x) => fetch('/api/v1/actions', {{method: 'POST',
          headers: {{'content-type': 'application/json', 'x-csrf-token': {token}}},
          body: JSON.stringify({{name, spec: {spec}}})}})).then((r) => r.status)"""
        # Both ask under one name: one of them gets it, and the other is told.
        assert sorted(one.value(f"({start})('both')") for one in (browser, second)) == [201, 409]
        for one in (browser, second):
            one.wait(f"{TEXT}.includes('both')")
            assert one.value("window.same") is True
            one.open(f"{console.url}/cancel?name=both", "document.querySelector('button.danger')")
        for one in (browser, second):
            one.value("document.querySelector('button.danger').click()")
        for one in (browser, second):
            one.wait(f"{TEXT}.includes('cancelled')", 60)


def test_pages_are_printed_whole_in_black_on_white(console: Console, browser: Browser, pictures: pathlib.Path) -> None:
    runs = browser.value("fetch('/api/v1/runs').then((r) => r.json()).then((r) => r.runs.map((x) => x.run))")
    browser.media("dark", "print")
    browser.size(700, 1000)  # A4 between its margins
    ways = {"fleet": "/", "node": f"/node?name={NODES[0]}", "runs": "/runs", **{"result": f"/results/{run}" for run in runs[:1]}}
    for name, way in ways.items():
        browser.open(f"{console.url}{way}")
        assert browser.value("document.documentElement.scrollWidth") <= 700, name
        assert browser.value("getComputedStyle(document.body).backgroundColor") in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)"), name
        # Nothing that is cut on the screen is cut on paper.
        cut = "[...document.querySelectorAll('.scroll')].filter((e) => e.scrollHeight > e.clientHeight + 1).length"
        assert browser.value(cut) == 0, name
        browser.pdf(pictures / f"{name}.pdf")
        assert (pictures / f"{name}.pdf").stat().st_size > 5000
    browser.media("light")
    browser.size(1280, 900)


def test_what_nodes_say_is_never_run(browser: Browser, tmp_path: pathlib.Path) -> None:
    hostile = console_hostile.opened(tmp_path / "results", hosts=frozenset())
    with console_memory.serving(hostile.app) as port:
        hostile.auth.new_link(every_s=0.0)
        browser.open(f"http://127.0.0.1:{port}/enter?code={hostile.links[-1]}", "location.pathname === '/'")
        for page in console_hostile.PAGES:
            browser.open(f"http://127.0.0.1:{port}{page}")
            browser.value("document.querySelectorAll('details').forEach((d) => { d.open = true })")
            assert browser.value("[window.harm, document.querySelectorAll('main img, main script').length]") == [None, 0], page
            assert browser.dialogs == [] and all(one.startswith(f"http://127.0.0.1:{port}/") for one in browser.requests), page


@contextlib.contextmanager
def entered(browser: Browser, opened: console_memory.Opened) -> t.Iterator[str]:
    """The address of a console that the browser has signed in to."""
    with console_memory.serving(opened.app) as port:
        opened.auth.new_link(every_s=0.0)
        browser.open(f"http://127.0.0.1:{port}/enter?code={opened.links[-1]}", "location.pathname === '/'")
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def moved(tmp_path: pathlib.Path) -> console_memory.Opened:
    """A console over two runs between which a GPU moved from node a to node b, where it is slow."""
    table = [{"uuid": history_runs.uuid(1), "index": 3, "serial": "165201", "bdf": "0000:4b:00.0", "name": history_runs.GPU}]
    for day, (name, tflops) in enumerate((("a", 672.0), ("b", 400.0)), 1):
        machine = history_runs.Machine(name * 32, {1: tflops}, lists={"gpu_table": table})
        history_runs.judged(tmp_path / "results", day, {name: machine}, acceptance_history=True)
    return console_memory.opened(tmp_path / "results", hosts=frozenset())


def test_a_part_is_found_by_its_serial_number_with_the_places_where_it_was(
    browser: Browser, moved: console_memory.Opened, pictures: pathlib.Path
) -> None:
    with entered(browser, moved) as address:
        browser.value("document.querySelector('[data-jump]').focus()")
        browser.type("165201")
        browser.press("Enter")
        browser.wait("location.pathname === '/part' && document.querySelector('#places')")
        assert history_runs.uuid(1) in browser.value(TEXT) and "400 TFLOPS" in browser.value(TEXT)
        nodes = "[...document.querySelectorAll('#places ~ .scroll tbody')][0].innerText"
        assert re.findall(r"(?m)^([ab])\b", browser.value(nodes)) == ["b", "a"]
        for language in ("zh", "ru", "en") if axe.here() else ():
            for width in (375, 1280):
                browser.size(width, 900)
                browser.open(f"{address}/part?name=165201&lang={language}")
                assert axe.violations(browser) == [], (language, width)
                assert browser.value("document.documentElement.scrollWidth") <= width, language
                picture(browser, pictures / f"part-{language}-{width}.png", full=True)


def test_the_map_of_a_large_fleet_has_whole_pixels_on_a_wide_screen(
    browser: Browser, tmp_path: pathlib.Path, pictures: pathlib.Path
) -> None:
    opened = console_memory.opened(tmp_path, memory=console_memory.Memory(console_memory.nodes(5000)), hosts=frozenset())
    with entered(browser, opened) as address:
        browser.size(1400, 900)
        browser.open(f"{address}/", "document.querySelector('svg.wall')")
        assert browser.value("document.querySelector('svg.wall').getBoundingClientRect().width") == 1000
        assert browser.value("document.documentElement.scrollWidth") <= 1400
        picture(browser, pictures / "fleet-1400.png")
    browser.size(1280, 900)


def test_nothing_comes_from_elsewhere(console: Console, browser: Browser) -> None:
    for way in ("/", "/start", "/runs", "/history", "/nodes"):
        browser.open(f"{console.url}{way}")
        assert all(one.startswith(console.url) for one in browser.requests)
        assert browser.console == [] and browser.dialogs == []


def picture(browser: Browser, path: pathlib.Path, full: bool = False) -> None:
    """Make a picture of the page if somebody wants to look at it: without a GPU one of a long page takes a second of a processor."""
    if os.environ.get("CONSOLE_PICTURES"):
        browser.picture(path, full)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    kept = pathlib.Path(os.environ.get("CONSOLE_PICTURES") or tmp_path_factory.mktemp("pictures"))
    kept.mkdir(parents=True, exist_ok=True)
    return kept
