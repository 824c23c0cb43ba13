# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our modules come out of Python's cache under Ansible's own loader of collections: in a process of its own, as a run has it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
LOADED = """
import json, sys
from ansible.plugins.loader import action_loader, init_plugin_loader
init_plugin_loader([sys.argv[1]])
before = list(sys.meta_path)
action_loader.get("gpufleet.acceptance.plan", class_only=True)
action_loader.get("gpufleet.acceptance.gemm", class_only=True)
action_loader.get("gpufleet.acceptance.judge", class_only=True)
assert sys.meta_path == before
print(json.dumps({name: type(module.__spec__.loader).__name__ for name, module in sys.modules.items() if "ansible_collections" in name}))
"""


def test_modules_of_the_collection_are_not_compiled_in_every_run() -> None:
    collections = str(ROOT / ".collections")
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": collections, "PYTHONPATH": ""}
    done = subprocess.run([sys.executable, "-c", LOADED, collections], env=environment, capture_output=True, text=True, check=True)
    loaders = json.loads(done.stdout)
    ours = "ansible_collections.gpufleet.acceptance.plugins."
    every = {str(path.relative_to(ROOT / "plugins").with_suffix("")).replace("/", ".") for path in (ROOT / "plugins").rglob("*.py")}
    files = {name for name in loaders if name.startswith(ours) and name[len(ours) :] in every}
    assert f"{ours}plugin_utils.conclude" in files
    first = {f"{ours}plugin_utils.{name}" for name in ("compiled", "needed")}
    assert {name for name in files if loaders[name] != "SourceFileLoader"} == first
    # Packages, which have no file of their own, are Ansible's as before.
    assert loaders[f"{ours}plugin_utils"] != "SourceFileLoader"
