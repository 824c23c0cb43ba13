# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The form that asks for a measurement: its fields as the spec of a request, and a spec's problems at their fields.

What is wrong is never corrected here: it goes into the spec as it was typed, and the request says what it expects.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import request as requests
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.spec import LIBRARIES
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData

Fields = t.Sequence[tuple[str, str]]

# {field of a spec's kind: field of the form}
RDMA = {"device": "device", "port": "port", "operation": "rdma_operation", "measure": "measure", "scope": "scope"}
COLLECTIVE = {"library": "library", "operation": "collective_operation", "gpusPerNode": "gpus", "sizes": "sizes"}
STAGES = {"names": "stage", "variables": "variables"}
OTHER = {"ttlSecondsAfterFinished": "ttl", "image": "image", "schedule.cron": "cron", "schedule.timeZone": "zone"}
OF_KIND = {"rdma": RDMA, "collective": COLLECTIVE, "stages": STAGES}
DEFAULTS = {
    "kind": "rdma", "where": "nodes", "rdma_operation": "write", "measure": "bandwidth", "scope": "all_pairs",
    "library": LIBRARIES[0],
    "collective_operation": "all_reduce", "zone": "UTC",
}  # fmt: skip
# All that have one value; `stage` and `found` may have several.
FIELDS = (
    *("kind", "where", "nodes", "labels", "q", "name", "device", "port", "rdma_operation", "measure", "scope", "library"),
    *("collective_operation", "gpus", "sizes", "variables", "ttl", "image", "cron", "zone", "suspend"),
)
MOST_NODES_SHOWN = 50
# {field of the form: the text of its label}, in the order of the page.
LABELS = {
    "kind": "kind", "nodes": "nodes_list", "labels": "labels_of_pool", "device": "device", "port": "port", "rdma_operation": "operation",
    "measure": "measure", "scope": "scope", "library": "library", "collective_operation": "operation", "gpus": "gpus_per_node",
    "sizes": "sizes", "stage": "kind_stages", "variables": "variables", "image": "image", "cron": "cron", "zone": "zone", "ttl": "ttl",
    "name": "run_name",
}  # fmt: skip


class WrongValues(t.NamedTuple):
    """Values of a field of the form for which the same is expected. `part` names the label or the variable that has them, or, if the form
    does not have the field, the field of the request."""

    part: str
    found: str
    expected: str

    @property
    def is_missing(self) -> bool:
        return self.found == requests.NOTHING


def _one(fields: Fields, name: str) -> str:
    return next((value for key, value in fields if key == name), DEFAULTS.get(name, "")).strip()


def words(text: str) -> list[str]:
    """Names with blanks, commas or lines between them."""
    return [word for word in re.split(r"[\s,]+", text) if word]


def nodes_of(fields: Fields) -> list[str]:
    """Return the names of the list and of the ticked nodes, each once."""
    ticked = [value for name, value in fields if name == "found"]
    return list(dict.fromkeys([*words(_one(fields, "nodes")), *ticked]))


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else text


def spec_of(fields: Fields) -> PlainData:
    kind = _one(fields, "kind")
    body: PlainData = {}
    if _one(fields, "where") == "pool":
        pairs = [word.partition("=")[::2] for word in words(_one(fields, "labels"))]
        body["pool"] = {"matchLabels": dict(pairs)}
    else:
        body["nodes"] = nodes_of(fields)
    if kind == "rdma":
        for name in ("operation", "measure", "scope"):
            body[name] = _one(fields, RDMA[name])
        if _one(fields, "device"):
            body["device"] = _one(fields, "device")
        if _one(fields, "port"):
            body["port"] = _number(_one(fields, "port"))
    elif kind == "collective":
        for name in ("library", "operation"):
            body[name] = _one(fields, COLLECTIVE[name])
        if _one(fields, "gpus"):
            body["gpusPerNode"] = _number(_one(fields, "gpus"))
        if _one(fields, "sizes"):
            body["sizes"] = words(_one(fields, "sizes"))
    elif kind == "stages":
        body["names"] = [value for key, value in fields if key == "stage"]
        lines = [line.strip() for line in _one(fields, "variables").splitlines() if line.strip()]
        if lines:
            pairs = [(name.strip(), value.strip()) for name, _colon, value in (line.partition(":") for line in lines)]
            body["variables"] = dict(pairs)
    spec: PlainData = {kind: body}
    if _one(fields, "ttl"):
        spec["ttlSecondsAfterFinished"] = _number(_one(fields, "ttl"))
    if _one(fields, "image"):
        spec["image"] = _one(fields, "image")
    if _one(fields, "suspend"):
        spec["suspend"] = True
    if _one(fields, "cron"):
        spec["schedule"] = {"cron": _one(fields, "cron"), "timeZone": _one(fields, "zone")}
    return spec


def fields_of(spec: t.Mapping[str, t.Any]) -> list[tuple[str, str]]:
    """A spec as the form shows it: to ask for the same once more."""
    kind = next((name for name in requests.KINDS if spec.get(name)), "rdma")
    body = spec.get(kind) or {}
    fields: list[tuple[str, str]] = [("kind", kind)]
    if body.get("pool") is not None:
        labels = (body["pool"].get("matchLabels") or {}).items()
        fields += [("where", "pool"), ("labels", ", ".join(f"{name}={value}" for name, value in labels))]
    else:
        fields += [("where", "nodes"), ("nodes", "\n".join(map(str, body.get("nodes") or ())))]
    for name, field in OF_KIND[kind].items():
        value = body.get(name)
        if name == "names":
            fields += [(field, str(item)) for item in value or ()]
        elif name == "variables":
            fields.append((field, "\n".join(f"{item}: {text_of(of)}" for item, of in (value or {}).items())))
        elif value is not None:
            fields.append((field, text_of(value)))
    if spec.get("ttlSecondsAfterFinished") is not None:
        fields.append(("ttl", str(spec["ttlSecondsAfterFinished"])))
    return fields


def text_of(value: t.Any) -> str:
    """Return the value of a variable as somebody types it."""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)


def at_fields(problems: t.Iterable[requests.Problem], absent: t.Container[str] = ()) -> dict[str, list[WrongValues]]:
    """Return {field of the form: what is wrong with it}, in the order of the page. What belongs to no field, or to one of `absent`, comes
    first, under an empty name."""
    by_field: dict[str, dict[tuple[str, str], list[str]]] = {"": {}, **{name: {} for name in LABELS}}
    for problem in problems:
        field = _field_of(problem.field)
        field = "" if field in absent else field
        key = re.fullmatch(r".*?\[(.*)\]", problem.field, re.DOTALL)
        part = "" if key is None or key[1].isdigit() else key[1]
        by_field[field].setdefault((part if field else problem.field, problem.expected), []).append(problem.found)
    return {
        field: [WrongValues(part, ", ".join(dict.fromkeys(found)), expected) for (part, expected), found in wrong.items()]
        for field, wrong in by_field.items() if wrong
    }  # fmt: skip


def _field_of(path: str) -> str:
    plain = re.sub(r"\[.*\]", "", path)
    if plain in OTHER:
        return OTHER[plain]
    kind, _dot, name = plain.partition(".")
    if name == "nodes":
        return "nodes"
    if name.startswith("pool"):
        return "labels"
    if plain in ("spec", "metadata.name"):
        return "kind" if plain == "spec" else "name"
    return OF_KIND.get(kind, {}).get(name, "")
