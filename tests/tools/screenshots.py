#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pictures of the console's main pages and of a report, light, dark, as on a phone and on paper, for a person to look at.

    python tests/tools/screenshots.py FOLDER [--results-dir RESULTS] [--looks light,phone]

The console is that of `make console`. If nothing was measured in RESULTS yet, the run of the demo is waited for first.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import re
import subprocess
import sys
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from rigs.browser import Browser  # noqa: E402

# How a page is shown: (width, colour scheme).
LOOKS = {"light": (1280, "light"), "dark": (1280, "dark"), "phone": (390, "light")}


def pages(browser: Browser) -> dict[str, str]:
    """Return the addresses of the pages, with the newest run and action that there are."""
    listed = "fetch('/api/v1/{0}').then((r) => r.json()).then((r) => r.{0}.map((one) => one.{1}))"
    run = next(iter(browser.value(listed.format("runs", "run"))), "")
    action = next(iter(browser.value(listed.format("actions", "name"))), "")
    node = browser.value(listed.format("nodes", "name"))[-1]
    return {
        "fleet": "/", "start": f"/start?kind=rdma&nodes={node}&do=show", "runs": "/runs", "run": f"/runs/{action}",
        "result": f"/results/{run}", "history": f"/history?node={node}", "nodes": "/nodes", "node": f"/node?name={node}",
        "part": f"/part?name={urllib.parse.quote(node)}%20GPU%207", "compare": f"/compare?after={run}", "refused": "/nothing",
    }  # fmt: skip


def _progress(browser: Browser, folder: pathlib.Path, looks: list[str]) -> None:
    """Take pictures of the page of a run while it measures, if one does."""
    running = "fetch('/api/v1/actions?phase=Running').then((r) => r.json()).then((r) => (r.actions[0] || {}).name || '')"
    name = browser.value(running)
    if not name:
        return
    origin = browser.value("location.origin")
    browser.open(f"{origin}/runs/{name}")
    with contextlib.suppress(TimeoutError, AssertionError):
        browser.wait("document.querySelector('#grid')", 60)
    for look in looks:
        browser.size(LOOKS[look][0], 900, phone=look == "phone")
        browser.media(LOOKS[look][1])
        browser.picture(folder / f"progress-{look}.png", full=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="of the pictures; made if it does not exist")
    parser.add_argument("--results-dir", default=str(ROOT / "results"))
    parser.add_argument("--looks", type=lambda text: text.split(","), default=list(LOOKS), help=f"of {','.join(LOOKS)}; all by default")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(ROOT / "tests/tools/console.py"), "--port", "0", "--results-dir", arguments.results_dir]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as console:
        try:
            lines = iter(console.stdout or ())
            link = next((found[0] for line in lines if (found := re.search(r"http://\S+/enter\?code=\S+", line))), None)
            if link is None:
                print("the console did not open", file=sys.stderr)
                return 1
            with Browser() as browser:
                browser.open(link, "location.pathname === '/'")
                _progress(browser, arguments.folder, arguments.looks)
                begun = "fetch('/api/v1/runs').then((r) => r.json()).then((r) => r.runs.length)"
                while not browser.value(begun):  # a promise, which `wait` would take for true
                    time.sleep(1)
                origin = browser.value("location.origin")
                shown = {name: f"{origin}{address}" for name, address in pages(browser).items()}
                run = shown["result"].rpartition("/")[2]
                shown["report"] = (pathlib.Path(arguments.results_dir) / run / "report.html").absolute().as_uri()
                for name, address in shown.items():
                    for look, (width, scheme) in ((look, LOOKS[look]) for look in arguments.looks):
                        browser.size(width, 900, phone=look == "phone")
                        browser.media(scheme)
                        # A report or curves draw themselves in a frame, of which the page knows nothing.
                        browser.open(address)
                        browser.value("document.querySelectorAll('iframe').forEach((one) => { one.loading = 'eager' })")
                        browser.wait("!document.querySelector('iframe') || performance.now() > 3000")
                        browser.picture(arguments.folder / f"{name}-{look}.png", full=name != "report")
                browser.open(shown["report"])
                browser.pdf(arguments.folder / "report.pdf")
        finally:
            console.terminate()
    print(f"{len(list(arguments.folder.glob('*.png')))} pictures in {arguments.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
