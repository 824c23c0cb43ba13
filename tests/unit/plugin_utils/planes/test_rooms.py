# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who may import whom: no module of the planes, nor of what they send to nodes, imports itself by any way, in a function neither."""

from __future__ import annotations

import ast
import pathlib

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection

PACKAGE = "ansible_collections.gpufleet.acceptance.plugins."
PLUGINS = collection.ROOT / "plugins"
KUBERNETES = "plugin_utils.planes.kubernetes."
# A room imports those before it.
ROOMS = ("api", "pods", "groups", "stages")
# And what stands beside the rooms for all of them.
BESIDE = f"{KUBERNETES}devices"


def imports() -> dict[str, set[str]]:
    """{module: the modules that it imports}, below module_utils, planes and stages."""
    paths = [path for folder in ("module_utils", "plugin_utils/planes", "plugin_utils/stages") for path in (PLUGINS / folder).rglob("*.py")]
    files = {".".join(path.relative_to(PLUGINS).with_suffix("").parts): path for path in paths}
    return {name: _of(path) & set(files) for name, path in files.items()}


def _of(path: pathlib.Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in _live(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            module = str(node.module)[len(PACKAGE) :]
            found |= {module, *(f"{module}.{one.name}" for one in node.names)}
    return found


def _live(node: ast.AST) -> list[ast.AST]:
    """The nodes of a tree but those for the type checker alone."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return []
    return [node, *(below for child in ast.iter_child_nodes(node) for below in _live(child))]


def test_nothing_imports_itself() -> None:
    left = imports()
    while True:  # who imports nobody that is left is no part of a circle
        free = [name for name, needs in left.items() if not needs & set(left)]
        if not free:
            break
        for name in free:
            del left[name]
    assert not left, sorted(left)


def test_a_room_of_a_cluster_imports_those_below_it() -> None:
    for name, needs in imports().items():
        room = name[len(KUBERNETES) :].split(".")[0] if name.startswith(KUBERNETES) else ""
        if room in ROOMS:
            allowed = {f"{KUBERNETES}{below}" for below in ROOMS[: ROOMS.index(room) + 1]}
            wrong = [one for one in needs if one.startswith(KUBERNETES) and one != BESIDE and one.rpartition(".")[0] not in allowed]
            assert not wrong, (name, wrong)
