# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read plain data as typed records, and name every field that is wrong: `msgspec.convert` stops at the first one.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.structs import UNSET, Struct, UnsetType, msgspec

Record = t.TypeVar("Record", bound=Struct)
# Told of each wrong field: its path, the value found (None if there is none), and what was expected.
Wrong = t.Callable[[str, t.Any, str], None]


def read(path: str, value: t.Any, kind: type[Record], wrong: Wrong) -> Record | UnsetType:
    """Return a mapping as a record of `kind`, UNSET if it is no mapping. `path` is that of the mapping, empty for the outermost.

    A field that is wrong has its default value, or UNSET. None is a missing field if the default is UNSET."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    if not isinstance(value, dict):
        wrong(path or "spec", value, expected(kind))
        return UNSET
    for name in value:
        if name not in fields:
            wrong(_below(path, repr(name).strip("'\"")), UNSET, f"any of {', '.join(fields)}")
    given: dict[str, t.Any] = {}
    for name, field in fields.items():
        found = value.get(name)
        if (name not in value or (found is None and field.default is UNSET)) and not field.required:
            continue
        given[field.name] = _value(_below(path, name), found, field.type, wrong)
        if given[field.name] is UNSET and not field.required:
            del given[field.name]
    return kind(**given)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _value(path: str, value: t.Any, hint: t.Any, wrong: Wrong) -> t.Any:
    """Return a value of the type `hint`, UNSET if it is none. What is wrong in a list or in a mapping is UNSET there."""
    if UnsetType in t.get_args(hint):
        (hint,) = (one for one in t.get_args(hint) if one is not UnsetType)
    plain, *about = t.get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
    if isinstance(plain, type) and issubclass(plain, Struct):
        return read(path, value, plain, wrong)
    container = t.get_origin(plain)
    try:
        msgspec.convert(value, t.Annotated[(container, *about)] if container in (list, dict) and about else hint)
        known = value in _choices(hint, value)
    except msgspec.ValidationError:
        known = False
    if not known:
        wrong(path, value, expected(hint))
        return UNSET
    if container is list:
        (item,) = t.get_args(plain)
        return [_value(f"{path}[{number}]", one, item, wrong) for number, one in enumerate(value)]
    if container is dict:
        key, item = t.get_args(plain)
        return {
            name: _value(f"{path}[{name}]", one, item, wrong) for name, one in value.items() if _value(path, name, key, wrong) is not UNSET
        }
    return value


def expected(hint: t.Any) -> str:
    """Return what a type expects, in words: the description of the type, or its choices or bounds."""
    plain, *about = t.get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
    if isinstance(plain, type) and issubclass(plain, Struct):
        return f"a mapping with any of {', '.join(plain.__struct_encode_fields__)}"
    if t.get_origin(plain) is t.Literal:
        return f"one of {', '.join(t.get_args(plain))}"
    if _choices(hint):
        return f"one of {', '.join(_choices(hint))}"
    for meta in about:
        return meta.description or f"a whole number from {meta.ge} to {meta.le}"
    return "true or false"


def _choices(hint: t.Any, *others: t.Any) -> t.Collection[t.Any]:
    """Return the choices of a type that are no literals; `others` if it has none."""
    return next(((about.extra_json_schema or {}).get("enum", others) for about in getattr(hint, "__metadata__", ())), others)
