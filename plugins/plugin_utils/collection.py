# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection about itself.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import pathlib

from ansible.module_utils.common.yaml import yaml_load

ROOT = pathlib.Path(__file__).resolve().parents[2]


def version() -> str:
    """From MANIFEST.json where the collection is installed, from galaxy.yml in a checkout."""
    manifest = ROOT / "MANIFEST.json"
    if manifest.is_file():
        return str(json.loads(manifest.read_text(encoding="utf-8"))["collection_info"]["version"])
    return str(yaml_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"])


def playbook(name: str) -> str:
    """Return what a user gives to ansible-playbook for a playbook of the collection: its full name where the collection is installed, a
    path in a checkout."""
    return f"gpufleet.acceptance.{name}" if (ROOT / "MANIFEST.json").is_file() else f"playbooks/{name}.yml"
