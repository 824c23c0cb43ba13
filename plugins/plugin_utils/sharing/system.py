# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The description of a system that shares GPUs: its names, labels, annotations, metrics and log patterns, as data.

`{prefix}` and `{PREFIX}` in a text stand for the system's prefix, so that one file describes a system under two names.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing as t

import yaml
from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import shapes

FOLDER = collection.ROOT / "roles" / "gpu_sharing" / "files" / "systems"
_PREFIX = re.compile(r"[a-z][a-z0-9]*")

Object = t.Dict[str, t.Any]
# The ability that a system with schedulers has in addition to those of its description.
SCHEDULERS = "schedulers"


@dataclasses.dataclass(frozen=True)
class System:
    """A system that shares GPUs. `has` names its abilities, with SCHEDULERS if it has any. `scheduler` and `plugin` are {"daemonset",
    "selector" ...}, empty if there is none. `labels` maps a meaning (pod, namespace, gpu) to the label of the metrics, `metrics` is the
    prefix of their names, and `patterns` maps a meaning to a regular expression for log lines."""

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
    """Return a text with each known `{name}` replaced. Other braces stay: they belong to regular expressions."""
    return re.sub(r"\{(\w+)\}", lambda match: str(values.get(match.group(1), match.group(0))), text)


def shipped() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yml"))


def load(source: str, changes: t.Mapping[str, t.Any] | None = None) -> System:
    """Return a system by the name of a shipped description or the path of a file. `changes` replace keys of it. Raise RunError for a
    description that cannot be used."""
    path = FOLDER / f"{source}.yml" if source in shipped() else pathlib.Path(source).expanduser()
    where = f"gpu_sharing_system {source}"
    try:
        document = yaml_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        message = " ".join(str(error).split())
        raise RunError(f"{where}: {message}; expected one of {', '.join(shipped())}, or the path of a description") from error
    if isinstance(document, dict):
        document = merged(document, dict(changes or {}))
    shapes.check("gpu-sharing-system-v1", document, where)
    prefix = document["prefix"]
    if not _PREFIX.fullmatch(prefix):
        raise RunError(f"{where}: prefix: found {prefix!r}, expected lower-case letters and digits")
    description = t.cast("Object", _spelt(document, {"prefix": prefix, "PREFIX": prefix.upper()}))
    for name, pattern in description["patterns"].items():
        try:
            re.compile(filled(pattern, dict.fromkeys(("namespace", "pod", "before", "value", "client"), "x")))
        except re.error as error:
            raise RunError(f"{where}: patterns.{name}: found {pattern!r}, which is no regular expression: {error}") from error
    has = frozenset(description["has"]) | ({SCHEDULERS} if description["scheduler"] else set())
    return System(**{**description, "has": has, "required_metrics": tuple(description["required_metrics"])})


def merged(into: Object, changes: Object) -> Object:
    """Return a mapping with changes: nested mappings are merged by key, any other value is replaced."""
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
