# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages and the API of a cluster's console. What is asked for there is carried out by its controllers, in processes of their own.

    python -m ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.in_cluster --namespace NAMESPACE \\
        --results-dir /results --session-key /secrets/session.key --host console.example.com

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import sys
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import hosts
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.actions import ActionError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.cluster import ClusterActions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.request import Limits
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import app, auth, lib, serving, sessions, settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.guard import App
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.past import Past
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import inventory
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Connection, KubeError, connect
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

PORT = 8470


def made(connection: Connection, options: settings.Settings, key: bytes, images: t.Sequence[str] = (), selector: str = inventory.SELECTOR,
         proxies: auth.Proxies | None = None, audiences: t.Sequence[str] = (), hosts_file: str = "") -> App:  # fmt: skip
    """ActionError where the cluster does not answer, or does not know the resource."""
    store = ClusterActions(connection, [options.namespace], images, selector)
    store.start()
    reviews = auth.Reviews(connect(connection), options.namespace, options.rights_s, audiences)
    past = Past(options.results_dir, options.history_url)
    own = hosts.expectations_of(hosts_file) if hosts_file else None

    def limits() -> Limits:
        known = store.limits(store.known())
        return dataclasses.replace(known, expectations=dict.fromkeys(known.nodes or (), own)) if own else known

    return app.create_app(store, past, options, auth.ClusterLogin(reviews, proxies), key, limits)


def main(arguments: t.Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="in_cluster", description="The pages of a cluster's console.")
    parser.add_argument("--namespace", required=True, help="namespace of the actions")
    parser.add_argument("--results-dir", required=True, help="where runs are, and their history")
    parser.add_argument("--session-key", required=True, help="file with the key of the sessions: 32 bytes as URL-safe base64")
    parser.add_argument("--host", action="append", default=[], help="host name of the pages, with a port if it has one")
    parser.add_argument("--plain", action="store_true", help="it is reached without TLS")
    parser.add_argument("--tls-certificate", default="", help="file; without it, something in front of the console speaks TLS")
    parser.add_argument("--tls-key", default="", help="file")
    parser.add_argument("--image", action="append", default=[], help="one that requests may name")
    parser.add_argument("--selector", default=inventory.SELECTOR, help="of nodes that requests may name")
    parser.add_argument("--inventory", default="", help="one host, which is the cluster: its expectations are known before a run then")
    parser.add_argument("--audience", action="append", default=[], help="for which tokens must have been made")
    parser.add_argument("--proxy-address", action="append", default=[], help="address of a proxy whose headers name the user")
    parser.add_argument("--proxy-secret", default="", help="file with the secret that it sends with each request")
    parser.add_argument("--kubeconfig", default="", help="outside of a cluster")
    parser.add_argument("--address", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=PORT)
    parsed = parser.parse_args(arguments)
    try:
        lib.need()
        proxies = auth.Proxies(tuple(parsed.proxy_address), _text(parsed.proxy_secret)) if parsed.proxy_address else None
        key = sessions.usable_key(_text(parsed.session_key).encode(), parsed.session_key)
        options = settings.Settings(
            parsed.results_dir, os.environ.get("ACCEPTANCE_HISTORY_URL", ""), parsed.namespace,
            frozenset(name.lower() for name in parsed.host), secure=not parsed.plain,
        )  # fmt: skip
        connection = Connection("cluster", kubeconfig=parsed.kubeconfig, namespace=parsed.namespace)
        application = made(connection, options, key, parsed.image, parsed.selector, proxies, parsed.audience, parsed.inventory)
        serving.server(application, parsed.address, parsed.port, parsed.tls_certificate, parsed.tls_key).run()
    except (RunError, ActionError, KubeError, OSError) as error:
        print(f"console: {error}", file=sys.stderr)
        return 1
    return 0


def _text(path: str) -> str:
    return pathlib.Path(path).read_text(encoding="utf-8").strip()


if __name__ == "__main__":
    sys.exit(main())
