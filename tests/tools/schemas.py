#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write the JSON schemas of plans, measurements, their shared values and verdicts from their one definition, records/model.py."""

from __future__ import annotations

import json
import pathlib
import sys
import typing as t

import msgspec

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections")]

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import model  # noqa: E402

FOLDER = ROOT / "roles" / "common" / "files" / "schemas"


def _schema(record: type, name: str, extra_fields: dict[str, t.Any], rules: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the schema of a Struct, with fields and rules that its types do not say."""
    parts = msgspec.json.schema(record)["$defs"]
    body = parts.pop(record.__name__)
    summary = body.pop("description").partition("\n")[0]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": name, "title": summary}
    body.pop("title")
    body["properties"] |= extra_fields
    for part in parts.values():
        part["description"] = part["description"].partition("\n")[0]
    return _plain({**head, **body, **rules, "$defs": parts})


def _plain(schema: t.Any) -> t.Any:
    """Write a choice of simple types as one list of types: what a validator says of a value is then a sentence that names them."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {name: _plain(value) for name, value in schema.items()}
    choices = schema.get("anyOf", [])
    if not choices or not all("type" in one for one in choices):
        return schema
    types = [one["type"] for one in choices]
    if "number" in types and "integer" in types:  # each integer is a number
        types.remove("integer")
    del schema["anyOf"]
    for one in choices:
        schema |= one
    return schema | {"type": types if len(types) > 1 else types[0]}


def texts() -> dict[str, str]:
    """Return the text of each generated file by its name in `FOLDER`."""
    schemas = {
        "measurement-v1.json": _schema(model.Measurement, "measurement/v1", model.JOURNAL_FIELDS, model.MEASUREMENT_RULES),
        "plan-v1.json": _schema(model.Plan, "plan/v1", {}, {}),
        "shared-v1.json": _schema(model.SharedValue, "shared/v1", model.CHAIN, {}),
        "verdict-v1.json": _schema(model.Verdict, "verdict/v1", {}, {}),
    }
    return {name: json.dumps(schema, indent=1) + "\n" for name, schema in schemas.items()}


if __name__ == "__main__":
    for file_name, text in texts().items():
        (FOLDER / file_name).write_text(text, encoding="utf-8")
