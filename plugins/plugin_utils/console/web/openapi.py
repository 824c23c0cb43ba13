# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenAPI of the REST interface, made of the same table that answers it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import request as requests
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.spec import Spec
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.structs import msgspec

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.request_context import Endpoint

Schema = dict[str, t.Any]
# The most rows of an answer.
MOST = 500
ANY: Schema = {"type": "object"}
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": ["number", "null"]}


def _object(needed: t.Sequence[str] = (), closed: bool = True, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(needed), "additionalProperties": not closed}


def _whole(closed: bool = True, **properties: Schema) -> Schema:
    return _object(tuple(properties), closed, **properties)


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


ACTION = _whole(
    name=TEXT, namespace=TEXT, created=TEXT, who=TEXT, schedule=TEXT, spec=ANY,
    status=_whole(
        phase={"enum": list(actions.PHASES)}, verdict=TEXT, runID=TEXT, progress=TEXT, message=TEXT, command=_list(TEXT),
        nodes={"type": "integer"}, counts={"type": "object", "additionalProperties": {"type": "integer"}}, link=TEXT,
        queuePosition={"type": "integer"}, waitingFor=TEXT, started=TEXT, ended=TEXT, lastScheduled=TEXT, nextScheduled=TEXT,
        conditions=_list(ANY),
    ),
)  # fmt: skip
OUTPUT = _whole(node=TEXT, stage=TEXT, at=TEXT, lines=_list(TEXT), problem=TEXT)
LISTED = _whole(actions=_list({"$ref": "#/components/schemas/Action"}), more=TEXT)
WANTED = _object(("spec",), name=TEXT, spec={"$ref": "#/components/schemas/Spec"})
SET = {**_object(suspend={"type": "boolean"}, cancel={"type": "boolean"}), "minProperties": 1}
SPEC_ONLY = _object(("spec",), spec={"$ref": "#/components/schemas/Spec"})
NOTHING = _object()
PREVIEW = _whole(command=_list(TEXT), commands=_list(_list(TEXT)), commandsMore={"type": "integer"}, withoutCommand=_list(TEXT),
                 seconds={"type": "number"}, nodes=_list(TEXT), devicesUnknown=_list(TEXT), withoutExpectation=_list(TEXT))  # fmt: skip
_NODE = _whole(
    name=TEXT, gpus={"type": ["integer", "null"]}, free={"type": ["integer", "null"]},
    labels={"type": "object", "additionalProperties": TEXT}, used_by=_list(TEXT), problem=TEXT,
)  # fmt: skip
NODES = _whole(nodes=_list(_NODE), count={"type": "integer"})
NOTE = _whole(text=TEXT, to=TEXT, who=TEXT, at=TEXT)
_PLACE = _whole(node=TEXT, slot=TEXT, name=TEXT, pci=TEXT, simulated={"type": "boolean"}, since=TEXT, since_at=TEXT, until=TEXT,
                until_at=TEXT)  # fmt: skip
_PART = _whole(
    kind={"enum": ["gpu", "nic", "optic", "dimm", "disk", "machine", "switch"]}, name=TEXT, address=TEXT, node=TEXT, model=TEXT,
    serial=TEXT, guid=TEXT, pci=TEXT, slot=TEXT, board=TEXT, connected=TEXT, places=_list(_PLACE),
    causes=_list(_whole(run=TEXT, verdict=TEXT, said=TEXT)),
)  # fmt: skip
PARTS = _whole(parts=_list(_PART), more={"type": "boolean"})
_RUN = _object(("run",), run=TEXT, planned_at=TEXT, inventory=TEXT, accepted={"type": "boolean"}, word=TEXT,
               why=TEXT, partial={"type": "boolean"}, simulated={"type": "boolean"}, counts=ANY, journal_sha256=TEXT,
               note=NOTE)  # fmt: skip
RUNS = _whole(runs=_list(_RUN))
RUN = _whole(run=_RUN, report=ANY, notes=_list(NOTE))
VERDICTS = _whole(verdicts=_list(_object(("run", "subject", "verdict"), False, run=TEXT, subject=TEXT, verdict=TEXT, value=NUMBER)),
                  more={"type": "boolean"})  # fmt: skip
COMPARED = _object(("before", "after", "values", "verdicts"), False, before=TEXT, after=TEXT, values=_list(ANY), verdicts=_list(ANY))
# What a parameter of an address may be; a text if it is not here.
QUERIES: dict[str, Schema] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": MOST},
    "phase": {"enum": ["", *actions.PHASES]},
    "sort": {"enum": [sort for name in actions.SORTS for sort in (name, f"-{name}")]},
    "regressed": {"enum": ["", "true", "false"]},
}
CSRF: Schema = {
    "name": "X-CSRF-Token", "in": "header", "required": False, "schema": TEXT,
    "description": "With the session of a browser: the value of `csrf` in the form of /start. A bearer token needs none.",
}  # fmt: skip
PROBLEMS = _whole(error=TEXT, problems=_list(_whole(field=TEXT, found=TEXT, expected=TEXT)))


def about(
    summary: str, answer: Schema, query: t.Sequence[str | tuple[str, str]] = (), body: Schema | None = None, status: int = 200
) -> Schema:
    return {"summary": summary, "answer": answer, "query": query, "body": body, "status": status}


def schemas() -> dict[str, Schema]:
    """Return the schemas that others refer to. Those of a request are the types that it is read by."""
    _refs, of_request = msgspec.json.schema_components([Spec], ref_template="#/components/schemas/{name}")
    of_request["Spec"]["oneOf"] = [{"required": [kind]} for kind in requests.KINDS]  # a request is of one kind
    return {"Action": ACTION, "Problems": PROBLEMS, **of_request}


def document(endpoints: t.Iterable[Endpoint], cookie: str) -> Schema:
    """Return the document of these endpoints. `cookie` is the name of the session's cookie."""
    paths: dict[str, Schema] = {
        "/api/v1/changes": {
            "get": {
                "summary": "Server-sent events: `change`, of whatever action.",
                "responses": {"200": {"description": "events", "content": {"text/event-stream": {}}}},
            }
        }
    }
    for endpoint in endpoints:
        of = endpoint.about or {}
        operation: Schema = {
            "summary": of["summary"],
            "parameters": [
                *({"name": name, "in": "path", "required": True, "schema": TEXT} for name in re.findall(r"\{(\w+)\}", endpoint.path)),
                *(_query(parameter) for parameter in of["query"]),
                *([CSRF] if endpoint.changes else ()),
            ],
            "responses": {
                str(of["status"]): {"description": "done", "content": _content(of["answer"])},
                "default": {"description": "why not", "content": _content({"$ref": "#/components/schemas/Problems"})},
            },
        }
        if of["body"] is not None:
            operation["requestBody"] = {"required": True, "content": _content(of["body"])}
        if not endpoint.right:
            operation["security"] = []
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Console of gpufleet.acceptance", "version": collection.version()},
        "paths": paths,
        "security": [{"token": []}, {"session": []}],
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "token": {
                    "type": "http", "scheme": "bearer",
                    "description": "In a cluster the caller's; on a laptop the content of `.console/api.token` in the results folder.",
                },
                "session": {"type": "apiKey", "in": "cookie", "name": cookie, "description": "The session of a browser."},
            },
        },
    }


def _query(parameter: str | tuple[str, str]) -> Schema:
    name, description = parameter if isinstance(parameter, tuple) else (parameter, "")
    return {"name": name, "in": "query", "schema": QUERIES.get(name, TEXT), **({"description": description} if description else {})}


def _content(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}
