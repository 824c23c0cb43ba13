# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Events of the runs whose messages `acceptance_webhook` sends."""

from __future__ import annotations

import asyncio
import hmac
import logging
import pathlib
import ssl
import sys
import typing as t

from aiohttp import web

DOCUMENTATION = r"""
short_description: Yield finished runs, new findings and new regressions that acceptance_webhook sends
description:
  - Listens for the messages of C(acceptance_webhook) and yields the same events as the source C(results_folder), on a
    machine that does not see the results folder.
  - A message is answered when its events are in the file O(position). None is lost if ansible-rulebook ends before it works on them.
  - A message has at most 200 findings. Findings are over if a complete run of the same inventory does not have them.
  - The Python of ansible-rulebook needs the packages of the collection's requirements.txt.
options:
  position:
    description: File that remembers what was yielded. Each source needs its own.
    type: str
    required: true
  token:
    description: The secret path of the address, V(http://HOST:PORT/TOKEN) in C(acceptance_webhook). Everything else is answered with 404.
    type: str
    required: true
  host:
    description: Address to listen on.
    type: str
    default: 127.0.0.1
  port:
    description: Port to listen on.
    type: int
    default: 5010
  certfile:
    description: File with the certificate for HTTPS. Empty for HTTP.
    type: str
    default: ""
  keyfile:
    description: File with the key of the certificate. Empty if it is in O(certfile).
    type: str
    default: ""
  confirm_after:
    description: Seconds after which an event counts as worked on. If ansible-rulebook ends earlier, it is yielded again after a restart.
    type: float
    default: 30
  feedback:
    description: Let ansible-rulebook say which events it has stored. It must run with a persistence id then, and the source needs a name.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: runs
  gpufleet.acceptance.webhook:
    host: 0.0.0.0
    port: 5010
    token: "{{ eda_token }}"
    certfile: /etc/ssl/eda.pem
    position: /var/lib/gpufleet/eda-webhook.json
"""

# ansible-rulebook runs this file by itself: the collection that it belongs to need not be on Python's path.
for _folder in pathlib.Path(__file__).absolute().parents:
    if _folder.name == "ansible_collections" and str(_folder.parent) not in sys.path:
        sys.path.append(str(_folder.parent))

OPTIONS: dict[str, dict[str, t.Any]] = {
    "position": {"type": "str", "required": True},
    "token": {"type": "str", "required": True, "no_log": True},
    "host": {"type": "str", "default": "127.0.0.1"},
    "port": {"type": "int", "default": 5010},
    "certfile": {"type": "str", "default": ""},
    "keyfile": {"type": "str", "default": ""},
    "confirm_after": {"type": "float", "default": 30},
    "feedback": {"type": "bool", "default": False},
}
MOST_BYTES = 4 << 20
logger = logging.getLogger(__name__)


async def main(queue: asyncio.Queue[t.Any], args: dict[str, t.Any]) -> None:
    """Yield events for ever. Raise an error of one sentence if the options, the address or the position cannot be used."""
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.observing import following, position
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

    given, feedback = position.options(OPTIONS, args)
    token = given["token"].strip("/")
    if not token:  # a template without a value
        raise RunError("token: found nothing, expected a secret: who knows it can send findings")
    place = position.Position(given["position"])
    delivery = position.Delivery(queue, place, feedback, given["confirm_after"])
    arrived = asyncio.Event()

    async def receive(request: web.Request) -> web.Response:
        if not hmac.compare_digest(request.path.encode(), f"/{token}".encode()):
            return web.Response(status=404)
        try:
            following.receive(await request.read(), place)
        except RunError as error:
            logger.warning("%s", error)
            return web.Response(status=400, text=f"{error}\n")
        arrived.set()
        return web.Response(text="received\n")

    app = web.Application(client_max_size=MOST_BYTES)
    app.router.add_post("/{path:.*}", receive)
    server = web.AppRunner(app, access_log=None)
    try:
        await server.setup()
        await web.TCPSite(server, given["host"], given["port"], ssl_context=_tls(given["certfile"], given["keyfile"])).start()
        arrived.set()
        while True:
            await delivery.deliver()
            delivery.confirm()
            try:
                await asyncio.wait_for(arrived.wait(), 1.0)
            except TimeoutError:
                continue
            arrived.clear()
    finally:
        await server.cleanup()
        place.close()


def _tls(certfile: str, keyfile: str) -> ssl.SSLContext | None:
    if not certfile:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certfile, keyfile or None)
    return context
