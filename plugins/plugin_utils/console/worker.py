# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller in a process of its own: of a laptop, one for each folder, or of a cluster, one of several of which one works.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import logging
import pathlib
import secrets
import signal
import socket
import sys
import threading
import types
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.actions import ActionError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.cluster import ClusterActions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.controller import Controller
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.lease import Lease
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.local import LocalActions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.runner import Runner
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Connection, KubeError, connect
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.inventory import SELECTOR

LEASE = "gpufleet-acceptance-console"
# Folder of the runs' logs and variables in that of the worker.
ACTIONS = "actions"


def work(folder: str, inventory: str, results: str, most: int = 4) -> None:
    """Until SIGTERM or SIGINT. Runs go on meanwhile and after it, whatever happens to this process."""
    stopped = _signalled()
    place = pathlib.Path(folder)
    with alone(place):
        runner = Runner(place / ACTIONS, inventory, pathlib.Path(results))
        Controller(LocalActions(place, inventory), runner, most).run(stopped)


def lead(
    folder: str, inventory: str, results: str, connection: Connection, namespaces: t.Sequence[str] = (), images: t.Sequence[str] = (),
    selector: str = SELECTOR, most: int = 4, told: t.Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """The controller of a cluster, one of several: works while it holds the lease. `folder` and `results` are shared by all of them,
    `told` are variables for every run. Until SIGTERM or SIGINT; what it has begun ends with it, and another one goes on with that."""
    stopped = _signalled()
    # On a new volume; its pages take a folder that is missing for one that was lost.
    pathlib.Path(results).mkdir(exist_ok=True)
    store = ClusterActions(connection, namespaces, images, selector)
    runner = Runner(pathlib.Path(folder) / ACTIONS, inventory, pathlib.Path(results), told)
    controller = Controller(store, runner, most)
    holder = f"{socket.gethostname()}_{secrets.token_hex(4)}"
    lease = Lease(connect(connection), LEASE, holder, controller.end_all)
    store.leads = lease.held
    lease.start()
    try:
        controller.run(stopped)
    finally:
        controller.end_all()
        lease.stop()


def _signalled() -> t.Callable[[], bool]:
    """Return a function that returns True once SIGTERM or SIGINT has asked this process to end."""
    stopped = threading.Event()

    def stop(_number: int, _frame: types.FrameType | None) -> None:
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return stopped.is_set


@contextlib.contextmanager
def alone(folder: pathlib.Path) -> t.Iterator[None]:
    """Refuses where another worker has the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "worker.lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ActionError(f"{folder}: another console works there; end it, or name another folder") from None
        yield


def main(arguments: t.Sequence[str] | None = None) -> int:
    """The controller of a cluster, in a pod of it."""
    parser = argparse.ArgumentParser(prog="worker", description="The controller of the console of a cluster.")
    parser.add_argument("--folder", required=True, help="folder for the variables of its runs")
    parser.add_argument("--inventory", required=True, help="one host, which is the cluster")
    parser.add_argument("--results-dir", required=True, help="where runs are, and their history")
    parser.add_argument("--history-url-file", default="", help="a file with the URL of a PostgreSQL history")
    parser.add_argument("--webhook-url-file", default="", help="a file with the address that each judged run is posted to")
    parser.add_argument("--namespace", action="append", default=[], help="namespace of the actions; default: that of the pod")
    parser.add_argument("--image", action="append", default=[], help="an image that an action may name")
    parser.add_argument("--selector", default=SELECTOR, help="the nodes that may be measured, by their labels")
    parser.add_argument("--most", type=int, default=4, help="how many runs at once")
    options = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(message)s")
    try:
        url_files = {"acceptance_history_url": options.history_url_file, "acceptance_webhook": options.webhook_url_file}
        told = {name: pathlib.Path(path).read_text(encoding="utf-8").strip() for name, path in url_files.items() if path}
        lead(options.folder, options.inventory, options.results_dir, Connection("cluster"), options.namespace, options.image,
             options.selector, options.most, told)  # fmt: skip
    except (ActionError, KubeError, OSError) as error:
        print(f"console: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
