# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions: of the schemas of records, and of the collection that began a run (docs/versions.md).

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection

_SCHEMA = re.compile(r"([a-z]+)/v([0-9]{1,6})\Z")


def problem(record: t.Any, expected: str) -> str:
    """Return why a record of another schema than `expected`, as `plan/v1`, cannot be read: one sentence that names the versions. Return an
    empty text if the record has that schema or names none of ours."""
    found = record.get("schema") if isinstance(record, dict) else None
    schema, known = (_SCHEMA.match(str(name)) for name in (found, expected))
    if not schema or not known or schema[1] != known[1] or schema[2] == known[2]:
        return ""
    made_by = f" of gpufleet.acceptance {record['collection_version']}" if record.get("collection_version") else ""
    newer = int(schema[2]) > int(known[2])
    advice = "update the collection" if newer else "read it with the version that wrote it"
    return f"found schema {found}{made_by}, expected {expected}, which gpufleet.acceptance {collection.version()} reads; {advice}"


def problem_of_text(text: str | bytes, expected: str) -> str:
    """The same of a record as JSON; empty for a text that is no JSON."""
    try:
        return problem(json.loads(text), expected)
    except (ValueError, RecursionError):
        return ""


def release_line(version: str) -> tuple[str, ...]:
    """Return the major and the minor number of a version, ("1", "0") of "1.0.3"."""
    return tuple(version.split(".")[:2])


def made_elsewhere(version: str) -> str:
    """Return an addition to an error about a run of another version of the collection, empty if `version` is ours."""
    ours = collection.version()
    return f"; gpufleet.acceptance {version} made the run, this is {ours}" if version and version != ours else ""


def why_not_resumed(version: str, remaining: int) -> str:
    """Return why the remaining checks of a run that `version` began cannot be measured by this one: numbers of two versions may differ
    where nodes do not. Empty if they can: nothing remains, or both versions differ in their last number only."""
    ours = collection.version()
    if not remaining or release_line(version) == release_line(ours):
        return ""
    began = f"gpufleet.acceptance {version}" if version else "a version of gpufleet.acceptance that its plan does not name"
    return (
        f"{began} began it and left {remaining} checks unmeasured; {ours} does not measure them, since numbers of two versions may differ: "
        f"resume it with {version or 'that version'}, begin a new run, or judge what was measured by {collection.playbook('judge')}"
    )
