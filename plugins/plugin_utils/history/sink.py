# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sink that writes every judged run to the history.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import comparison
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Judged, Options, Sink

URLS = ("postgresql://", "postgresql+psycopg://", "sqlite:///")


class HistorySink(Sink):
    """Writes the parts of a run with which later runs are compared."""

    name = "history"
    options: t.Mapping[str, t.Mapping[str, t.Any]] = {"url": {"type": "str", "default": "", "no_log": True}}

    def problem(self, options: Options) -> str | None:
        # Do not show the value: it may hold a password.
        is_supported = str(options["url"]).startswith(URLS)
        return None if is_supported or not options["url"] else "expected the URL of a database, like postgresql://USER:PASSWORD@HOST/DATABASE"

    def judged(self, of: Judged, options: Options) -> None:
        # These imports take half a second, so a run without a history does not load them.
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import folders, importing, store

        with store.Store(store.url_of(comparison.results_of(of), options["url"]), make=True) as history:
            importing.write(history, folders.of_judged(of))


SINK = HistorySink()
