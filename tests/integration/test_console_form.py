# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The form and the pages that ask and take notes in a real browser, over actions in memory: nothing runs."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions
from harness import console_memory
from harness import history_runs as runs
from rigs import axe
from rigs.browser import Browser, executable

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not executable(), reason="no chromium here: apt-get install chromium")]

RUN = runs.run_id(1)
INVALID = "[...document.querySelectorAll('[aria-invalid]')].map((e) => e.id)"


class Page(t.NamedTuple):
    """A browser that is signed in, and the address of its console."""

    browser: Browser
    url: str

    def fill(self, name: str, value: str) -> None:
        self.browser.value(f"""(() => {{ const of = document.getElementById({name!r}); of.value = {value!r};
          of.dispatchEvent(new Event("input", {{bubbles: true}})); }})()""")


@pytest.fixture
def page(tmp_path: pathlib.Path) -> t.Iterator[Page]:
    """A console with one action that runs."""
    (tmp_path / RUN).mkdir()
    console = console_memory.opened(tmp_path, hosts=frozenset())
    status = actions.Status(phase=actions.RUNNING, run_id=RUN, progress="1/2")
    console.actions.put(actions.Action("mine", "", {"rdma": {"nodes": ["n0001", "n0002"]}}, status, "2026-11-22T10:00:00Z"))
    with console_memory.serving(console.app) as port, Browser() as browser:
        console.auth.new_link(every_s=0.0)
        browser.size(1280, 900)
        browser.open(f"http://127.0.0.1:{port}/enter?code={console.links[-1]}", "location.pathname === '/'")
        yield Page(browser, f"http://127.0.0.1:{port}")


def test_wrong_fields_are_marked_from_the_first_on_and_while_they_are_typed(page: Page) -> None:
    browser = page.browser
    browser.open(f"{page.url}/start?kind=rdma&nodes=nobody&port=x&do=show")
    browser.wait("document.activeElement.id === 'nodes'")
    assert browser.value(INVALID) == ["nodes", "port"]
    page.fill("nodes", "n0001 n0002")
    browser.wait("document.querySelectorAll('[aria-invalid]').length === 1", 20)
    assert browser.value(INVALID) == ["port"] and browser.value("document.activeElement.id") == "nodes"
    assert browser.value("[...document.querySelectorAll('#preview a')].map((e) => e.hash)") == ["#port"]
    page.fill("port", "1")
    browser.wait("document.querySelector('#preview code')", 20)
    assert browser.value(INVALID) == [] and browser.console == []


@pytest.mark.skipif(not axe.here(), reason="no npm here, which fetches axe-core")
def test_axe_finds_nothing_on_pages_that_ask_and_take_notes(page: Page) -> None:
    for path in ("/start?kind=stages&nodes=nobody&do=show", "/cancel?name=mine", "/cancel", "/runs/mine"):
        page.browser.open(f"{page.url}{path}")
        assert axe.violations(page.browser) == [], path
