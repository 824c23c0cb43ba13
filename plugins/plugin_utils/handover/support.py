# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the files that were collected on a node for a part that is sent back, until a hand-over takes them.

    RESULTS/handover/support/NODE/TIME/index.json and the files that it lists

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import pathlib
import re
import shutil
import tempfile
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover import checker, punch_list
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine.reason import PART
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import file_name
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats

FOLDER, INDEX, SCHEMA = "support", "index.json", "gpufleet.acceptance/support/v1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}\Z")
# Files of a node, and characters of a reason: nobody collects more.
_MOST, _LONGEST = 64, 500


class Collected(t.NamedTuple):
    """Files of a node that were collected together, at a time (UTC, as records have it)."""

    node: str
    at: str
    folder: pathlib.Path
    files: tuple[str, ...]


def keep(folder: pathlib.Path, node: str, records: t.Any, largest: int) -> tuple[pathlib.Path, list[str]]:
    """Write what a node has answered, and return its folder and sentences about what is missing or not whole. Raise RunError for an answer
    of another form: a node may say anything."""
    at = time.strftime(checker.TIME, time.gmtime())
    listed, words = [], []
    path = folder / FOLDER / file_name(node)
    path.mkdir(parents=True, exist_ok=True)
    part = pathlib.Path(tempfile.mkdtemp(prefix=".", dir=path))
    try:
        for record in _checked(node, records):
            if "file" in record:
                content = _content(node, record, largest)
                (part / record["file"]).write_bytes(content)
                digest = hashlib.sha256(content).hexdigest()
                listed.append(
                    {"file": record["file"], "bytes": len(content), "sha256": digest, "complete": not record["why"], "why": record["why"]}
                )
            if record["why"]:
                words.append(f"{record.get('file') or record['not_collected']}: {record['why']}")
        index = {"schema": SCHEMA, "node": node, "collected_at": at, "files": listed, "missing": words}
        (part / INDEX).write_text(json.dumps(index, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        part.chmod(0o755)
        target = path / at.replace(":", "")
        os.rename(part, target)
    except OSError as error:
        raise RunError(f"{error.filename or path}: {error.strerror}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target, words


def _checked(node: str, records: t.Any) -> list[dict[str, str]]:
    """Return the records of an answer, with their texts alone."""
    found = []
    names: set[str] = set()
    for record in records if isinstance(records, list) and len(records) <= _MOST else [None]:
        fields = record if isinstance(record, dict) else {}
        values = {str(name): value for name, value in fields.items() if isinstance(value, str)}
        if "why" not in values or ("file" in values) == ("not_collected" in values):
            raise RunError(f"{node}: its answer about support files has another form than expected")
        name = values.get("file", "")
        if "file" in values and (not _NAME.match(name) or name == INDEX or name in names):
            raise RunError(f"{node}: {name!r} is no name of a support file, or it is there twice")
        names.add(name)
        found.append(
            {name: value if name == "content" else " ".join(formats.plain(value).split())[:_LONGEST] for name, value in values.items()}
        )
    return found


def _content(node: str, record: t.Mapping[str, str], largest: int) -> bytes:
    try:
        content = base64.b64decode(record.get("content", ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise RunError(f"{node}: {record['file']}: it is not in Base64: {error}") from error
    if len(content) > largest:
        raise RunError(f"{node}: {record['file']}: it has {len(content)} bytes, more than {largest}")
    return content


def read(folder: pathlib.Path) -> list[Collected]:
    """Return what was collected, the first first. Raise RunError for files that are not as they were written."""
    paths = sorted((folder / FOLDER).glob(f"*/*/{INDEX}"))
    found = [_read(path) for path in paths if not path.parent.name.startswith(".")]  # a folder that is being written
    return sorted(found, key=lambda one: (one.node, one.at))


def _read(path: pathlib.Path) -> Collected:
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        names = [str(file["file"]) for file in index["files"]]
        for name, file in zip(names, index["files"], strict=True):
            if not _NAME.match(name) or hashlib.sha256((path.parent / name).read_bytes()).hexdigest() != file["sha256"]:
                raise RunError(f"{path.parent / name}: it is not as it was collected; remove {path.parent} or collect again")
        return Collected(str(index["node"]), str(index["collected_at"]), path.parent, (INDEX, *names))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path}: it cannot be read ({error}); remove {path.parent} or collect again") from error


def about(row: punch_list.Row, collected: t.Iterable[Collected]) -> list[Collected]:
    """Return what was collected while a row of a part was open: what came later is about the part that replaced it."""
    values = row.values
    if values["category"] != PART:
        return []
    nodes = values["node"].split("|")
    return [
        one
        for one in collected
        if one.node in nodes and values["opened_at"] <= one.at and (not values["closed_at"] or one.at <= values["closed_at"])
    ]


def path_in_pack(one: Collected) -> str:
    """Return the folder of these files in a pack."""
    return f"{FOLDER}/{file_name(one.node)}/{one.folder.name}/"


def said(rows: t.Iterable[punch_list.Row], collected: t.Sequence[Collected], playbook: str) -> list[str]:
    """Return a sentence about the open rows of parts for which nothing was collected; empty if there is none."""
    bare = [row for row in rows if row.state == punch_list.OPEN and row.values["category"] == PART and not about(row, collected)]
    return [f"{len(bare)} open rows of parts without support files: {playbook} collects them"] if bare else []


def summary(records: t.Any) -> list[PlainData]:
    """Return the records of a node without their contents."""
    return [{name: value for name, value in record.items() if name != "content"} for record in records if isinstance(record, dict)]
