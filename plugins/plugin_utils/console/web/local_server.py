# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A console on a laptop: the pages at this machine's own address, and a process beside them that carries out what is asked for.

    python -m ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.local_server \\
        --inventory cluster --results-dir results

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import ipaddress
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import worker
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.actions import ActionError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.local import LocalActions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import app, auth, lib, serving, sessions, settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.audit import Audit
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.past import Past
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

MODULE = "ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.local_server"
PORT = 8470
# In the results folder, unless it is said.
FOLDER = ".console"
# A worker that ended is begun again after so long.
AGAIN_S = 2.0

Say = t.Callable[[str], None]


class ConsoleFiles(t.NamedTuple):
    """The files and settings that a console works with."""

    folder: pathlib.Path
    inventory: str
    results: str
    history_url: str = ""


def place(inventory: str, results: str, folder: str = "", history_url: str = "") -> ConsoleFiles:
    return ConsoleFiles(pathlib.Path(folder or os.path.join(results, FOLDER)).absolute(), inventory, os.path.abspath(results), history_url)


def run(of: ConsoleFiles, port: int, say: Say, address: str = "127.0.0.1", seconds: float = 0.0) -> None:
    """Until it is ended, or for so long. RunError and ActionError are for the user."""
    lib.need()
    if not _is_loopback(address):
        expected = "one of this machine's own, as 127.0.0.1: a console without a cluster is for one person"
        raise RunError(f"address: found {address!r}, expected {expected}")
    of.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.makedirs(of.results, exist_ok=True)
    store = LocalActions(of.folder, of.inventory)
    store.known()
    names = {f"{name}:{{port}}" for name in ("127.0.0.1", "localhost", "[::1]")}
    with _Listening(address, port) as listening, _WorkerProcess(of, say), open(of.folder / "audit.jsonl", "a", encoding="utf-8") as audited:
        os.chmod(of.folder / "audit.jsonl", 0o600)
        host = f"[{address}]" if ":" in address else address
        who = auth.LocalLogin(getpass.getuser(), lambda code: say(f"open http://{host}:{listening.port}/enter?code={code}"),
                              sessions.token_in(of.folder))  # fmt: skip
        names = {name.format(port=listening.port) for name in names}
        options = settings.Settings(of.results, of.history_url, hosts=frozenset(names), logs=str(of.folder / worker.ACTIONS))
        key = sessions.key_in(of.folder)
        past = Past(of.results, of.history_url)
        application = app.create_app(store, past, options, who, key, lambda: store.limits(store.known()), Audit(audited))
        server = serving.server(application, address, listening.port)
        who.new_link()
        say(from_elsewhere(host, listening.port))
        say("the link holds once; end the console with Ctrl-C, runs that have begun go on without it")
        if seconds:
            timer = threading.Timer(seconds, lambda: setattr(server, "should_exit", True))
            timer.daemon = True
            timer.start()
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listening.socket])


def from_elsewhere(host: str, port: int) -> str:
    """Return how the console is reached from another machine. The port is the same at both ends: requests for another one are refused."""
    tunnel = f"ssh -N -L {port}:{host}:{port} {getpass.getuser()}@{socket.gethostname()}"
    return f"from another machine: {tunnel}, and open the link there while it runs"


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


class _Listening:
    """The port, before anything else is begun."""

    def __init__(self, address: str, port: int) -> None:
        try:
            self.socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind((address, port))
            self.socket.listen(128)  # who is faster than we are with the link that we print waits, and is not turned away
        except (OSError, OverflowError) as error:
            raise RunError(f"port {port} on {address} cannot be had: {error}; name another one") from None
        self.port = int(self.socket.getsockname()[1])

    def __enter__(self) -> t.Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.socket.close()


class _WorkerProcess:
    """The worker in a process of its own, begun again where it dies."""

    def __init__(self, of: ConsoleFiles, say: Say) -> None:
        self._of, self._say = of, say
        self._stop = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="console-worker", daemon=True)

    def __enter__(self) -> t.Self:
        self._begin()
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join(10)
        if self._child:
            self._child.terminate()
            try:
                self._child.wait(20)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
            t.cast("t.IO[bytes]", self._child.stdin).close()

    def _begin(self) -> None:
        root = str(pathlib.Path(__file__).parents[7])
        command = [sys.executable, "-m", MODULE, "--inventory", self._of.inventory, "--results-dir", self._of.results, "--folder",
                   str(self._of.folder), "--work"]  # fmt: skip
        paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
        with open(self._of.folder / "worker.log", "ab") as log:
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": paths},
                start_new_session=True,
            )  # fmt: skip

    def _keep(self) -> None:
        is_told = False
        while not self._stop.wait(AGAIN_S):
            if self._child and self._child.poll() is not None:
                if not is_told:
                    log = self._of.folder / "worker.log"
                    self._say(f"the worker ended with {self._child.returncode} and is started again; see {log}")
                is_told = True
                self._begin()


def _end_with_parent() -> None:
    """Whoever holds the other end is gone, however it went; runs go on."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


def main(arguments: t.Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="console", description="The console of a laptop.")
    parser.add_argument("--inventory", required=True, help="of the hosts that requests may name")
    parser.add_argument("--results-dir", required=True, help="where runs are, and their history")
    parser.add_argument("--folder", default="", help="folder of the console's requests; default: .console in the results folder")
    parser.add_argument("--history-url", default=os.environ.get("ACCEPTANCE_HISTORY_URL", ""), help=argparse.SUPPRESS)
    parser.add_argument("--address", default="127.0.0.1", help="one of this machine's own")
    parser.add_argument("--port", type=int, default=PORT, help="0 for any that is free")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    of = place(options.inventory, options.results_dir, options.folder, options.history_url)
    try:
        if options.work:
            threading.Thread(target=_end_with_parent, name="console-parent", daemon=True).start()
            worker.work(str(of.folder), of.inventory, of.results)
        else:
            run(of, options.port, lambda text: print(text, flush=True), options.address)
    except (RunError, ActionError, OSError) as error:
        print(f"console: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
