# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The history is told of every run that was judged.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import comparison
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Judged, Options, Sink

URLS = ("postgresql://", "postgresql+psycopg://", "sqlite:///")


class HistorySink(Sink):
    """Everything of a run that is worth to be compared with later."""

    name = "history"
    options: t.Mapping[str, t.Mapping[str, t.Any]] = {"url": {"type": "str", "default": "", "no_log": True}}

    def problem(self, options: Options) -> str | None:
        # The value may hold a password.
        is_supported = str(options["url"]).startswith(URLS)
        return None if is_supported or not options["url"] else "expected the URL of a database, like postgresql://USER:PASSWORD@HOST/DATABASE"

    def judged(self, of: Judged, options: Options) -> None:
        # Half a second of imports, which nobody pays who asked for no history.
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import folders, importing, store

        with store.Store(store.url_of(comparison.results_of(of), options["url"]), make=True) as history:
            importing.write(history, folders.of_judged(of))


SINK = HistorySink()
