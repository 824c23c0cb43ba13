# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics of the console for Prometheus. No name of a node, action or person is a label.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.lib import prometheus_client

PREFIX = "gpufleet_acceptance_console_"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        make: dict[str, t.Any] = {"registry": self.registry}
        self.requests = prometheus_client.Counter(f"{PREFIX}requests", "Requests by way and status.", ("method", "way", "status"), **make)
        self.seconds = prometheus_client.Histogram(
            f"{PREFIX}request_seconds", "Until an answer began.", ("way",), buckets=SECONDS, **make
        )
        self.refused = prometheus_client.Counter(f"{PREFIX}refused", "Requests that were turned away, by why.", ("why",), **make)
        self.streams = prometheus_client.Gauge(f"{PREFIX}streams", "Pages that are told of changes.", **make)

    def text(self) -> bytes:
        return prometheus_client.generate_latest(self.registry)
