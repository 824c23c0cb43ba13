# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`acceptance_pushgateway: URL`: push the metrics of a judged run, in Prometheus text format, to a Pushgateway.

A push replaces the earlier metrics of the same inventory, because the gateway never expires metrics.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import typing as t
import urllib.error
import urllib.parse

from ansible.module_utils.urls import open_url
from ansible_collections.gpufleet.acceptance.plugins.module_utils import exposition
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import inventory
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Judged, Options, Sink

JOB = "gpufleet_acceptance"
TIMEOUT_S = 10.0


class PushError(Exception):
    """The gateway did not accept the metrics. The message says why and holds no secret."""


class Pushgateway(Sink):
    name = "pushgateway"
    options: t.Mapping[str, t.Mapping[str, t.Any]] = {"url": {"type": "str", "required": True}}

    def problem(self, options: Options) -> str | None:
        try:
            parts = urllib.parse.urlsplit(options["url"])
            fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.query
        except ValueError:
            fine = False
        # Do not show the value: it may hold a password.
        return None if fine else "expected the address of a Pushgateway, like http://pushgateway.example:9091"

    def judged(self, of: Judged, options: Options) -> None:
        push(options["url"], inventory.of_plan(of.plan), formats.prometheus(of.report))


def push(url: str, group: str, text: str) -> None:
    """Replace the metrics of a group on a Pushgateway. Raise PushError if they are not accepted."""
    parts = urllib.parse.urlsplit(url)
    place = f"{parts.hostname}{f':{parts.port}' if parts.port else ''}"
    path = f"{parts.path.rstrip('/')}/metrics/job/{JOB}/{_label('inventory', group)}"
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else str(parts.hostname)
    netloc = f"{host}:{parts.port}" if parts.port else host
    login = (urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")) if parts.username else (None, None)
    try:
        with open_url(
            urllib.parse.urlunsplit((parts.scheme, netloc, path, "", "")), data=text.encode(), method="PUT", timeout=TIMEOUT_S,
            headers={"Content-Type": exposition.TYPE}, url_username=login[0], url_password=login[1], force_basic_auth=bool(login[0]),
        ):  # fmt: skip
            pass
    except urllib.error.HTTPError as error:
        message = " ".join(error.read(2000).decode("utf-8", "replace").split())
        raise PushError(f"the Pushgateway at {place} refuses the metrics: {error.code} {message}") from error
    except urllib.error.URLError as error:
        raise PushError(f"the Pushgateway at {place} cannot be reached: {error.reason}") from error
    except OSError as error:
        raise PushError(f"the Pushgateway at {place} does not answer: {error}") from error


def _label(name: str, value: str) -> str:
    """Return a grouping label as a part of the path, in base64 if the value is empty or has a slash."""
    if value and "/" not in value:
        return f"{name}/{urllib.parse.quote(value, safe='')}"
    return f"{name}@base64/{base64.urlsafe_b64encode(value.encode()).decode() or '='}"


SINK = Pushgateway()
