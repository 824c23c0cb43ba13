# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`acceptance_pushgateway: URL`: push the metrics of a judged run, in Prometheus text format, to a Pushgateway.

A push replaces the earlier metrics of the same inventory, because the gateway never expires metrics.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import importlib.util
import typing as t
import urllib.error
import urllib.parse

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import inventory
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import SinkError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Judged, Options, Sink

if t.TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

JOB = "gpufleet_acceptance"
TIMEOUT_S = 10.0


class PushError(SinkError):
    """The gateway did not accept the metrics. The message says why and holds no secret."""


class Pushgateway(Sink):
    name = "pushgateway"
    options: t.Mapping[str, t.Mapping[str, t.Any]] = {"url": {"type": "str", "required": True}}

    def problem(self, options: Options) -> str | None:
        if importlib.util.find_spec("prometheus_client") is None:
            return "the controller lacks the Python package prometheus_client; install the collection's requirements.txt"
        try:
            parts = urllib.parse.urlsplit(options["url"])
            fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.query
        except ValueError:
            fine = False
        # Do not show the value: it may hold a password.
        return None if fine else "expected the address of a Pushgateway, like http://pushgateway.example:9091"

    def judged(self, of: Judged, options: Options) -> None:
        push(options["url"], inventory.of_plan(of.plan), formats.prometheus(of.report))


class _Samples:
    """The collector of the metrics of a text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def collect(self) -> t.Iterable[Metric]:
        from prometheus_client.parser import text_string_to_metric_families

        return text_string_to_metric_families(self._text)


def push(url: str, group: str, text: str) -> None:
    """Replace the metrics of a group on a Pushgateway. Raise PushError if they are not accepted."""
    from prometheus_client import exposition  # 20 ms that only a run with a Pushgateway takes

    parts = urllib.parse.urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    login = (urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")) if parts.username else (None, None)
    handler = functools.partial(exposition.basic_auth_handler, username=login[0], password=login[1])
    gateway = parts._replace(netloc=place, fragment="").geturl()
    try:
        exposition.push_to_gateway(gateway, JOB, _Samples(text), {"inventory": group}, TIMEOUT_S, handler)
    except urllib.error.HTTPError as error:
        message = " ".join(error.read(2000).decode("utf-8", "replace").split())
        raise PushError(f"the Pushgateway at {place} refuses the metrics: {error.code} {message}") from error
    except urllib.error.URLError as error:
        raise PushError(f"the Pushgateway at {place} cannot be reached: {error.reason}") from error
    except OSError as error:
        raise PushError(f"the Pushgateway at {place} does not answer: {error}") from error


SINK = Pushgateway()
