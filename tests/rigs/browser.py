# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A headless Chromium for tests, driven over a pair of pipes with the DevTools protocol: no port, no driver package."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time
import typing as t

from rigs.browser_network import own_network

# Text has no width without a font.
PACKAGES = {"chromium": "chromium", "/usr/share/fonts/truetype/liberation": "fonts-liberation"}
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip


def executable() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One browser with one page: `open(path)`, then ask it. `requests`, `console` and `dialogs` are what the page did."""

    def __init__(self) -> None:
        found = executable()
        if not found:
            raise RuntimeError("no chromium here: apt-get install chromium")
        self.profile = tempfile.mkdtemp(prefix="browser-")
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4; these copies lie above both. The numbers are the kernel's choice:
        # one of ours could be another thread's, and dup2 fails (EBUSY) where that thread still waits for what it opens.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (commands, answers)]
        shell = f'exec "$0" "$@" 3<&{high[0]} 4>&{high[1]} {high[0]}<&- {high[1]}>&-'
        self._network = own_network()
        through = self._network.FLAGS if self._network else ()
        arguments = [found, *FLAGS, *through, f"--user-data-dir={self.profile}", "--remote-debugging-pipe", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", shell, *arguments], pass_fds=high, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, preexec_fn=self._network.enter if self._network else None,  # noqa: PLW1509
        )  # fmt: skip
        for fd in (commands, answers, *high):
            os.close(fd)
        self._unread = b""
        self._number = 0
        self.requests: list[str] = []
        self.console: list[str] = []
        self.dialogs: list[str] = []
        self._loaded = False
        targets = self._ask("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self._session: str | None = self._ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    _session: str | None = None

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            os.close(self._to)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._from)
        if self._network:
            self._network.close()
        shutil.rmtree(self.profile, ignore_errors=True)

    def open(self, path: pathlib.Path | str, wait_for: str = "true", seconds: float = 180) -> None:
        """Load a file or an address and wait until an expression is true in it."""
        with contextlib.suppress(RuntimeError):  # that the page before has loaded is no news of this one
            self.value("new Promise((done) => { const later = () => setTimeout(() => done(true)); "
                       "if (document.readyState === 'complete') later(); else addEventListener('load', later); })")  # fmt: skip
        self.requests.clear()
        self.console.clear()
        self.dialogs.clear()
        self._loaded = False
        self._ask("Page.navigate", url=path if isinstance(path, str) else path.resolve().as_uri())
        self.wait(wait_for, seconds, lambda: self._loaded)

    @contextlib.contextmanager
    def tab(self, address: str) -> t.Iterator[None]:
        """Another tab, which everything inside of the block is asked of."""
        before = self._session
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")
        try:
            self.open(address)
            yield
        finally:
            self._session = before
            self._ask("Target.closeTarget", targetId=target)
            self._ask("Page.bringToFront")

    def wait(self, for_: str, seconds: float = 180, also: t.Callable[[], bool] = lambda: True) -> None:
        """Until an expression is true in the page that is open, whichever that is by then."""
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(RuntimeError):  # asked of a page that was just left
                if also() and self.value(f"Boolean({for_})"):
                    return
            if time.monotonic() > end:
                raise TimeoutError(f"not so after {seconds:g} s: {for_}; {self.console}")
            self._read(0.05)

    def size(self, width: int, height: int, phone: bool = False) -> None:
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def media(self, scheme: str = "light", medium: str = "") -> None:
        self._ask("Emulation.setEmulatedMedia", media=medium, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def value(self, expression: str) -> t.Any:
        """Return the value of an expression in the page."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """A key that is pressed and let go."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40, " ": 32}
        what = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": codes[key]}
        text = {"text": {"Enter": "\r", " ": " "}[key]} if key in ("Enter", " ") else {}
        self._ask("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **what, **text)
        self._ask("Input.dispatchKeyEvent", type="keyUp", **what)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self._ask("Input.insertText", text=text)

    def forget_cookies(self) -> None:
        """Lose all sessions, as when they expire."""
        self._ask("Network.clearBrowserCookies")

    def picture(self, path: pathlib.Path, full: bool = False) -> None:
        clip = {}
        if full:
            height = self.value("document.documentElement.scrollHeight")
            width = self.value("innerWidth")
            clip = {"clip": {"x": 0, "y": 0, "width": width, "height": min(height, 12000), "scale": 1}, "captureBeyondViewport": True}
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png", **clip)["data"]))

    def pdf(self, path: pathlib.Path) -> None:
        answer = self._ask("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _ask(self, method: str, **params: t.Any) -> dict[str, t.Any]:
        self._number += 1
        number = self._number
        message: dict[str, t.Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 120
        while time.monotonic() < end:
            for answer in self._read(1):
                if answer.get("id") == number:
                    if "error" in answer:
                        raise RuntimeError(f"{method}: {answer['error']}")
                    return answer["result"]
        raise TimeoutError(f"{method}: no answer")

    def _read(self, seconds: float) -> list[dict[str, t.Any]]:
        """Messages that are there; what the page does on its own is written down."""
        if not select.select([self._from], [], [], seconds)[0]:
            return []
        piece = os.read(self._from, 1 << 20)
        if not piece:
            raise RuntimeError(f"the browser ended with status {self.process.wait()}")
        *whole, self._unread = (self._unread + piece).split(b"\0")
        messages = [json.loads(text) for text in whole]
        for message in messages:
            self._note(message.get("method", ""), message.get("params", {}))
        return messages

    def _note(self, method: str, params: dict[str, t.Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            # A data: address is the page's own, as the picture that a heat map is.
            if not params["request"]["url"].startswith("data:"):
                self.requests.append(params["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.console.append(f"{params['type']}: {params['args']}")
        elif method == "Runtime.exceptionThrown":
            self.console.append(f"exception: {params['exceptionDetails']}")
        elif method == "Log.entryAdded":
            self.console.append(f"{params['entry']['level']}: {params['entry']['text']}")
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(params["message"])
