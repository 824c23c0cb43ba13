# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stage that is a manifest, whose exit status or framed result is judged. What it may say is for the plane to know that puts it on nodes.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import pathlib
import typing as t

import yaml
from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.plain import plain
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import base

ROLE = "gpufleet.acceptance.manifest"
TIMEOUT_S = 600.0

Object = t.Dict[str, t.Any]


class Manifest(base.Stage):
    """A stage whose whole description is what the user put on the nodes."""

    topology = base.MANIFEST
    role = ROLE

    def __init__(self, name: str, manifest: Object) -> None:
        self.name = name
        self.manifest = manifest


def read(path_or_manifest: t.Any, where: str) -> tuple[t.Any, str]:
    """Return the manifest itself, of a path or of what was read before, and where it stands. Raise RunError if the file cannot be read."""
    if isinstance(path_or_manifest, str):
        path = pathlib.Path(path_or_manifest).expanduser()
        try:
            path_or_manifest = plain(yaml_load(path.read_text(encoding="utf-8")), f"{where}: manifest {path.absolute()}")
        except (OSError, yaml.YAMLError) as error:
            words = " ".join(str(error).split())
            raise RunError(f"{where}: manifest {path.absolute()}: {words}; expected a file with one Job or DaemonSet") from error
        where = f"{where}: manifest {path.absolute()}"
    return path_or_manifest, where


def options(stage: str) -> tuple[Variables, PlainData]:
    """Return the default values and argument specs of such a stage's variables."""
    defaults = {f"{stage}_timeout": TIMEOUT_S, f"{stage}_checks": [{"check": stage, "variant": ""}]}
    specs = {
        f"{stage}_timeout": {"type": "float"},
        f"{stage}_checks": {"type": "list", "elements": "dict"},
        f"{stage}_sample": {"type": "dict"},
        f"{stage}_check_seconds": {"type": "float"},
    }
    return defaults, specs


def of(name: str, manifest: Object) -> Manifest:
    """The description of a stage that is this manifest."""
    return Manifest(name, manifest)
