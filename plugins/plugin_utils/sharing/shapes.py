# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validation of files against the schemas of the collection; an error is one sentence.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import measurement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError


@functools.lru_cache(maxsize=4)
def _validator(name: str) -> t.Any:
    measurement.require()
    import jsonschema

    return jsonschema.Draft202012Validator(measurement.schema(name))


def check(name: str, document: t.Any, where: str) -> None:
    """Raise RunError if a document does not fit a schema. The message names the place in `where`, what was found and what is expected."""
    wrong = min(_validator(name).iter_errors(document), key=lambda error: list(map(str, error.absolute_path)), default=None)
    if wrong is None:
        return
    while wrong.context:  # of several alternatives, report the one that matched furthest
        wrong = max(wrong.context, key=lambda error: len(error.absolute_path))
    place = ".".join(map(str, wrong.absolute_path))
    raise RunError(f"{where}: {f'{place}: ' if place else ''}{wrong.message[:300]}")
