# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The browser of the tests, beside rigs that make network interfaces."""

from __future__ import annotations

import functools
import http.server
import os
import pathlib
import subprocess
import threading

import pytest
from rigs.browser import Browser, executable

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not executable(), reason="no chromium here: apt-get install chromium")]
LINK = "gfbrowser"
# Each request makes a connection of its own, in eight rows at once, until it is told to stop.
ASK = """
window.stop = false; window.failures = []; window.rows = 8; window.asked = 0;
for (let row = 0; row < 8; row++) (async () => {
    while (!window.stop) {
        try { await fetch(`/?${row}`, {cache: 'no-store'}); asked++; } catch (error) { failures.push(String(error)); }
    }
    rows--;
})(); 1
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.skipif(os.geteuid() != 0, reason="network interfaces need root")
def test_requests_do_not_fail_while_interfaces_come_and_go(tmp_path: pathlib.Path) -> None:
    (tmp_path / "index.html").write_text("<!doctype html><title>here</title>")
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, Browser() as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            browser.open(f"http://127.0.0.1:{server.server_port}/", "document.title === 'here'")
            browser.value(ASK)
            for number in range(10):
                subprocess.run(["ip", "link", "add", LINK, "type", "veth", "peer", "name", f"{LINK}p"], check=True)
                address = f"addr add 10.99.{number}.1/24 dev {LINK}"
                for command in (address, f"link set {LINK} up", f"link set {LINK}p up", f"link del {LINK}"):
                    subprocess.run(["ip", *command.split()], check=True)
            browser.value("window.stop = true")
            browser.wait("rows === 0")
            assert browser.value("failures") == [] and browser.value("asked") > 0, browser.console
        finally:
            subprocess.run(["ip", "link", "del", LINK], check=False, stderr=subprocess.DEVNULL)
            server.shutdown()
