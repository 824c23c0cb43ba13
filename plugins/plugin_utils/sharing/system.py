# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The description of a system that shares GPUs: its names, labels, annotations, metrics and words, as data.

`{prefix}` and `{PREFIX}` in a text stand for its prefix, so that one file describes a system under two names.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing as t

import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import shapes

FOLDER = collection.ROOT / "roles" / "gpu_sharing" / "files" / "systems"
_PREFIX = re.compile(r"[a-z][a-z0-9]*")

Object = t.Dict[str, t.Any]
# What a system with schedulers has, besides what its description says.
SCHEDULERS = "schedulers"


@dataclasses.dataclass(frozen=True)
class System:
    """`has` names what it can do, and SCHEDULERS where it has any; `scheduler` and `plugin` are {daemonset, selector ...}, empty where it
    has none; `labels` are those of its metrics by what they say (pod, namespace, gpu); `metrics` the prefix of their names; `patterns` its
    words by what they mean."""

    name: str
    prefix: str
    tag: str
    namespace: str
    resource: str
    devices_per_gpu: int
    has: frozenset[str]
    scheduler: t.Mapping[str, t.Any]
    plugin: t.Mapping[str, t.Any]
    annotations: t.Mapping[str, str]
    environment: t.Mapping[str, str]
    metrics: str
    labels: t.Mapping[str, str]
    quotas: t.Mapping[str, str]
    required_metrics: tuple[str, ...]
    patterns: t.Mapping[str, str]
    expects: t.Mapping[str, t.Any]

    def pattern(self, name: str, **values: str) -> str:
        """Return the pattern to search for in a log, with names and numbers filled in as plain text."""
        return filled(self.patterns[name], {key: re.escape(value) for key, value in values.items()})


def filled(text: str, values: t.Mapping[str, t.Any]) -> str:
    """`{name}` replaced where the name is known: a regular expression has braces of its own."""
    return re.sub(r"\{(\w+)\}", lambda found: str(values.get(found.group(1), found.group(0))), text)


def shipped() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yml"))


def load(wanted: str, changes: t.Mapping[str, t.Any] | None = None) -> System:
    """A description by its name, or by the path of a file; `changes` replace keys of it. RunError names what is wrong."""
    path = FOLDER / f"{wanted}.yml" if wanted in shipped() else pathlib.Path(wanted).expanduser()
    where = f"gpu_sharing_system {wanted}"
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        raise RunError(f"{where}: {said}; expected one of {', '.join(shipped())}, or the path of a description") from error
    if isinstance(given, dict):
        given = merged(given, dict(changes or {}))
    shapes.check("gpu-sharing-system-v1", given, where)
    prefix = given["prefix"]
    if not _PREFIX.fullmatch(prefix):
        raise RunError(f"{where}: prefix: found {prefix!r}, expected lower-case letters and digits")
    found = t.cast("Object", _spelt(given, {"prefix": prefix, "PREFIX": prefix.upper()}))
    for name, pattern in found["patterns"].items():
        try:
            re.compile(filled(pattern, dict.fromkeys(("namespace", "pod", "before", "value", "client"), "x")))
        except re.error as error:
            raise RunError(f"{where}: patterns.{name}: found {pattern!r}, which is no regular expression: {error}") from error
    has = frozenset(found["has"]) | ({SCHEDULERS} if found["scheduler"] else set())
    return System(**{**found, "has": has, "required_metrics": tuple(found["required_metrics"])})


def merged(into: Object, changes: Object) -> Object:
    """Mappings by key, anything else replaced."""
    return {
        **into,
        **{k: merged(into[k], v) if isinstance(v, dict) and isinstance(into.get(k), dict) else v for k, v in changes.items()},
    }


def _spelt(value: t.Any, names: t.Mapping[str, str]) -> t.Any:
    if isinstance(value, dict):
        return {filled(key, names): _spelt(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_spelt(item, names) for item in value]
    return filled(value, names) if isinstance(value, str) else value
