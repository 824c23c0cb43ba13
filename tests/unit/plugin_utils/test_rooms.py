# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Imports between packages: a package imports only those below it, no module itself in a circle, wherever in the file the import stands."""

from __future__ import annotations

import ast
import functools
import graphlib
import pathlib

PLUGINS = pathlib.Path(__file__).resolve().parents[3] / "plugins"
PACKAGE = "ansible_collections.gpufleet.acceptance.plugins."
# Of docs/architecture.md, the lowest first; what stands directly in plugin_utils has a place of its own.
ROOMS = (
    "compiled", "collection", "records", "judging", "sharing", "redfish", "stages", "sinks", "report", "observing", "history", "planes",
    "planning", "conclude", "needed", "console",
)  # fmt: skip


def modules() -> dict[str, pathlib.Path]:
    return {
        str(path.relative_to(PLUGINS).with_suffix("")).replace("/", "."): path
        for folder in ("plugin_utils", "module_utils")
        for path in sorted((PLUGINS / folder).rglob("*.py"))
    }


@functools.lru_cache(maxsize=1)
def imports() -> dict[str, set[str]]:
    """{module: the modules of ours that it imports}, those for the type checker alone left out: nothing runs by them."""
    known, found = modules(), {}
    for name, path in known.items():
        found[name] = set()
        pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
                pending += node.orelse
                continue
            pending += ast.iter_child_nodes(node)
            if isinstance(node, ast.Import):
                given = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{name}: imports are written out"
                given = [f"{node.module}.{alias.name}" for alias in node.names] + [str(node.module)]
            else:
                continue
            found[name] |= {one.removeprefix(PACKAGE) for one in given} & set(known)
    return found


def room(module: str) -> int:
    return ROOMS.index(module.split(".")[1])


def test_a_room_imports_only_those_below_it() -> None:
    upwards = [
        f"{name} imports {other}"
        for name, others in imports().items()
        if name.startswith("plugin_utils.")
        for other in sorted(others)
        if other.startswith("plugin_utils.") and room(other) > room(name)
    ]
    assert not upwards


def test_what_runs_on_nodes_imports_nothing_of_the_controller() -> None:
    strangers = {
        f"{name} imports {other}"
        for name, others in imports().items()
        if name.startswith("module_utils.")
        for other in others
        if other.startswith("plugin_utils.")
    }
    assert not strangers


def test_no_module_imports_itself_in_a_circle() -> None:
    graphlib.TopologicalSorter(imports()).prepare()


def test_a_plane_knows_no_other() -> None:
    def plane(module: str) -> str:
        words = module.split(".")
        return words[2] if words[:2] == ["plugin_utils", "planes"] and len(words) > 3 else ""

    across = {(name, other) for name, others in imports().items() for other in others if plane(name) and plane(other)}
    assert across and all(plane(name) == plane(other) for name, other in across)


# The rooms of the plane of clusters, the lowest first; `plane` sees all of them, `devices` none.
CLUSTERS, OF_CLUSTERS = "plugin_utils.planes.kubernetes.", ("devices", "api", "pods", "groups", "stages", "plane")


def test_a_room_of_the_plane_of_clusters_imports_only_those_below_it() -> None:
    def place(module: str) -> int:
        return OF_CLUSTERS.index(module[len(CLUSTERS) :].split(".", maxsplit=1)[0])

    ours = [(name, other) for name, others in imports().items() for other in others if name.startswith(CLUSTERS)]
    upwards = [f"{name} imports {other}" for name, other in ours if other.startswith(CLUSTERS) and place(other) > place(name)]
    assert ours and not upwards
